"""States of chains in tests of linked columns: partitions by first appearance, equal on any number of ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from tests.exact.compare import Verdict, by_looks
from tests.exact.on_ranks import require_the_same


def by_appearance(labels: np.ndarray) -> tuple[int, ...]:
    """Labels of rows, numbered by first appearance."""
    names: dict[int, int] = {}
    return tuple(names.setdefault(k, len(names)) for k in labels.tolist())


def judged_in_parts(replicates: Iterator, judged: Callable[[list], Verdict], size: int, looks: int) -> Verdict | None:
    """Verdict on `size` of the replicates, on root, in parts as in `by_looks`; None off root."""

    def more(first: int, last: int) -> list | None:
        records = [next(replicates) for _ in range(first, last)]
        return None if records[0] is None else records

    return by_looks(more, judged, size, looks)


def require_the_same_on_ranks(replicates: Callable[..., Iterable], cases: Iterable[tuple]) -> None:
    """Compare the records of replicates(comm, *case), which root holds, on all ranks with those on one. Collective."""
    for case in cases:
        require_the_same(lambda comm, case=case: _digest(replicates(comm, *case)), *case)


def _digest(records: Iterable) -> str | None:
    """Hash the arrays of all records; None without records, off root."""
    arrays = [np.array(part) for record in records if record is not None for part in record]
    return hashlib.sha256(b"".join(a.tobytes() for a in arrays)).hexdigest() if arrays else None
