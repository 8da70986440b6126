"""Verdicts on states that are a partition of the rows and a forest of links."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.exact.compare import Verdict, judge

Event = tuple[str, np.ndarray, float]  # name, mean in each replicate, probability


def judge_states(
    law, states: np.ndarray, level: float, most_links: int | None = None, more: Sequence[Event] = ()
) -> Verdict:
    """Judge the final states, and time averages: pairs of rows together, each link, each number of links.

    law: with `p` (partitions, forests), `partitions` (partitions, rows) and `forests`, parents of each column, -1 for
    none. states (replicates, cycles): numbers in `p.ravel()`. most_links: None to leave their number out.
    """
    z, f = law.partitions, np.array(law.forests)
    pairs = [(i, j) for i in range(z.shape[1]) for j in range(i)]
    links = sorted({(c, p) for forest in law.forests for c, p in enumerate(forest) if p != -1})
    numbers = range(0 if most_links is None else most_links + 1)
    events = {f"rows {(i, j)}": np.repeat(z[:, i] == z[:, j], len(f)) for i, j in pairs}
    events |= {f"link {(c, p)}": np.tile(f[:, c] == p, len(z)) for c, p in links}
    events |= {f"{e} links": np.tile((f != -1).sum(axis=1) == e, len(z)) for e in numbers}
    each, p = np.array(list(events.values()), float), law.p.ravel()
    means = np.column_stack([each[:, states].mean(axis=2).T, *(mean for _, mean, _ in more)])
    expected = np.append(each @ p, [probability for *_, probability in more])
    return judge(states[:, -1], p, [*events, *(name for name, *_ in more)], means, expected, level)


def levels_of_cells(law, cells: np.ndarray) -> list[Event]:
    """Events that a missing cell has a level, for `judge_states`. cells (replicates, cycles, holes)."""
    return [
        (f"cell {hole} is {v}", (cells[:, :, h] == v).mean(axis=1), law.p_of_cell(*hole, v))
        for h, hole in enumerate(law.holes)
        for v in range(law.n_levels[hole[1]])
    ]
