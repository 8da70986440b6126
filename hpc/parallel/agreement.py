"""Steps that may fail on one rank alone, on which all ranks agree; and values of root's that all ranks get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar, overload

import numpy as np

from mpibayes.errors import CheckpointError, MpibayesError
from mpibayes.hpc.parallel.comm import Communicator, names
from mpibayes.hpc.parallel.waiting import announce
from mpibayes.memory import lack_of_memory

T = TypeVar("T")


def agree(comm: Communicator, step: Callable[[], T], what: str = "go on", loud: bool = True) -> T:
    """Return this rank's `step()`; if it failed on any rank, every rank raises the same MpibayesError.

    Collective. For steps that may fail on one rank alone (reading a slice, writing a file); a step holds no collective.
    what: the step in words ("read its rows of the table"), for the line printed when it takes long; loud=False for
    steps that are expected to.
    """
    value, error = None, None
    who = names(comm, [0]) if comm.one_of_many else "the program"
    try:
        with announce(f"{who} to {what}", loud=loud and comm.rank == 0):
            value = step()
    except MpibayesError as caught:
        error = caught
    except (OSError, MemoryError) as caught:
        error = _expected(caught, what)
    comm.meet(what)
    failures = [(rank, e) for rank, e in enumerate(comm.collect(error)) if e is not None]
    if failures:
        raise _one_for_all(comm, failures)
    return value


def _expected(error: OSError | MemoryError, what: str) -> MpibayesError:
    doing = "" if what == "go on" else f", trying to {what}"
    if memory := lack_of_memory(error):
        return CheckpointError(
            f"{memory}{doing}",
            ["`mpibayes check CONFIG --ranks N` predicts the memory of a rank; spread the ranks over more nodes"],
        )
    return MpibayesError(f"{type(error).__name__}: {error}{doing}")


def _one_for_all(comm: Communicator, failures: list[tuple[int, MpibayesError]]) -> MpibayesError:
    """The failure of the first rank, with the rank's name."""
    (rank, error), others = failures[0], [rank for rank, _ in failures[1:]]
    if comm.one_of_many and (comm.numbers[rank] > 0 or others):
        also = [f"likewise {names(comm, others)}"] if others else []
        error = type(error)(f"{names(comm, [rank])}: {error.message}", [*error.problems, *also])
    error.shared = True
    return error


@overload
def on_root(comm: Communicator, step: Callable[[], T], share: Literal[True] = True, what: str = "go on") -> T: ...
@overload
def on_root(comm: Communicator, step: Callable[[], T], share: Literal[False], what: str = "go on") -> T | None: ...
def on_root(comm: Communicator, step: Callable[[], T], share: bool = True, what: str = "go on") -> T | None:
    """Return root's `step()` on every rank (`share`) or on root alone; if it fails, every rank raises the same
    error."""
    value = agree(comm, step if comm.rank == 0 else lambda: None, what)
    return comm.share(value) if share else value


def broadcast_arrays(comm: Communicator, arrays: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
    """Return root's dictionary of arrays on every rank, in two messages: a small header and one block of bytes."""
    if comm.size == 1:
        return arrays
    header: Any = None
    if comm.rank == 0:
        arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
        header = [(name, array.shape, array.dtype.str) for name, array in arrays.items()]
    header = comm.share(header)
    sizes = [
        (int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize + 63) // 64 * 64 for _, shape, dtype in header
    ]
    block = np.empty(sum(sizes), np.uint8)
    views, start = {}, 0
    for (name, shape, dtype), size in zip(header, sizes):
        nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        views[name] = block[start : start + nbytes].view(dtype).reshape(shape)
        start += size
    if comm.rank == 0:
        for name, array in arrays.items():
            views[name][...] = array
    comm.broadcast(block)
    return views
