"""Arrays of all ranks in one message, and some of their rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.parallel.comm import Communicator


def concatenated(comm: Communicator, sent: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
    """Concatenate the ranks' arrays, in one message; each array begins at a multiple of 8 bytes. Collective.

    sent: this rank's rows of each array, and the first row of each rank and the end, (ranks + 1,).
    """
    width = [mine.shape[1] * mine.itemsize for mine, _ in sent]  # bytes of a row
    words = np.array([-(-np.diff(at) * n // 8) for n, (_, at) in zip(width, sent)])  # (arrays, ranks)
    begins = np.append(0, words.T.ravel().cumsum())  # rank by rank
    message, n = np.empty(int(begins[-1])), len(sent)

    def part(i: int, rank: int, length: int) -> np.ndarray:
        return message[begins[rank * n + i] : begins[rank * n + i + 1]].view(np.uint8)[:length]

    for i, (mine, _) in enumerate(sent):
        part(i, comm.rank, mine.nbytes)[:] = np.ascontiguousarray(mine).view(np.uint8).ravel()
    comm.share_rows(message, begins[::n])
    result = []
    for i, (mine, at) in enumerate(sent):
        lengths = np.diff(at).tolist()
        each = [
            part(i, rank, rows * width[i]).view(mine.dtype).reshape(rows, mine.shape[1])
            for rank, rows in enumerate(lengths)
            if rows
        ]
        result.append(each[0] if len(each) == 1 else np.concatenate([mine[:0], *each]))
    return result


def put_rows(array: np.ndarray, at: np.ndarray, rows: np.ndarray) -> None:
    """Set rows of a contiguous array: as array[at] = rows, but several times as fast."""
    if array.shape[1]:
        row = np.dtype((np.void, array.shape[1] * array.itemsize))
        array.view(row)[:, 0][at] = np.ascontiguousarray(rows).view(row)[:, 0]


def places(met: np.ndarray | None) -> np.ndarray | None:
    """Return the places of a mask's ones, uint8 (n,); None if there is none."""
    return None if met is None else np.flatnonzero(met.view(np.bool_))
