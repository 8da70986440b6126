"""The verdict of Geweke's joint tests, the files test_geweke*.py: the worst event of independent replicates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tests.exact.compare import by_looks

LEVEL = 1e-4  # of all events together: a right program is rejected at most so often


class Worst(NamedTuple):
    p: float
    event: int
    z: float

    @property
    def passed(self) -> bool:
        return self.p >= LEVEL


def worst_event(replicate, test, size: int, looks: int = 1) -> Worst:
    """The worst of the events. replicate(r): indicators of the events after each step of a replicate, (steps, events).
    test(means): p-values and z of each event, nan where it is left out, from means over steps, (replicates, events).
    looks: `by_looks`."""

    def judged(means):
        p, z = test(np.array(means))
        event = int(np.nanargmin(p))
        return Worst(float(min(1.0, p[event] * np.isfinite(p).sum())), event, float(z[event]))

    def more(first, last):
        return [np.mean(replicate(r), axis=0) for r in range(first, last)]

    return by_looks(more, judged, size, looks)
