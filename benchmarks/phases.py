"""The phases of a cycle, timed from outside: functions of the sampler are wrapped, each phase gets its own time alone.

A phase that is entered inside another stops the other's clock. Wall and processor seconds are both kept: messages are
judged by the former, compute on a busy machine by the latter. A function that no longer exists is named in `absent`.
"""

from __future__ import annotations

import functools
import importlib
import time

# phase, module or class, attribute. A phase ending in "*" also owns all that is called inside it.
WRAPPED = [
    ("sweep", "mpibayes.kernels.mixture", "sweep"),
    ("statistics", "mpibayes.kernels.mixture", "accumulate"),
    ("statistics", "mpibayes.kernels.mixture", "anchors"),
    ("statistics", "mpibayes.hpc.crosscat.view.sweep.Step", "_count"),
    ("hyperparameters", "mpibayes.hpc.components.product.Components", "update"),
    ("draw", "mpibayes.hpc.components.product.Components", "draw"),
    ("broadcast", "mpibayes.hpc.crosscat.view.update", "exchange"),
    ("other", "mpibayes.hpc.crosscat.view.update.Update", "run"),
    ("reduction", "mpibayes.hpc.crosscat.view.sync", "summarise"),
    ("reduction", "mpibayes.hpc.crosscat.view.sync", "carry"),
    ("order", "mpibayes.hpc.crosscat.view.sweep.Step", "run"),
    ("log joint", "mpibayes.hpc.crosscat.chain.Mixture", "_info"),
    ("moves*", "mpibayes.hpc.crosscat.chain.Mixture", "_split_and_merge"),
]
COLLECTIVES = ("broadcast", "sum_everywhere", "least_everywhere", "gather_to_root", "share_rows", "send")
PHASES = (
    "sweep", "collapsed sweep", "order", "statistics", "reduction", "log joint", "hyperparameters", "draw",
    "broadcast", "moves", "waiting", "other",
)  # fmt: skip


class Stopwatch:
    """Own seconds of each phase since the last `lap`, as {phase: (wall, processor)}."""

    def __init__(self):
        self.absent: list[str] = []
        self.bytes = dict.fromkeys(COLLECTIVES, 0)
        self._seconds: dict[str, list[float]] = {}
        self._stack: list[str] = ["other"]
        self._last = self._now()

    @staticmethod
    def _now():
        return time.perf_counter(), time.process_time()

    def _charge(self) -> None:
        now = self._now()
        spent = self._seconds.setdefault(self._stack[-1], [0.0, 0.0])
        spent[0] += now[0] - self._last[0]
        spent[1] += now[1] - self._last[1]
        self._last = now

    def enter(self, phase: str) -> None:
        self._charge()
        owner = self._stack[-1]
        self._stack.append(owner if owner.endswith("*") else phase)

    def leave(self) -> None:
        self._charge()
        self._stack.pop()

    def lap(self) -> dict[str, tuple[float, float]]:
        self._charge()
        seconds, self._seconds = self._seconds, {}
        return {phase.rstrip("*"): tuple(spent) for phase, spent in seconds.items()}

    def wrap(self) -> None:
        """Put clocks around the functions of WRAPPED."""
        for phase, place, name in WRAPPED:
            try:
                owner = importlib.import_module(place)
            except ModuleNotFoundError:
                module, _, class_ = place.rpartition(".")
                owner = getattr(importlib.import_module(module), class_, None)
            inner = getattr(owner, name, None)
            if inner is None:
                self.absent.append(f"{place}.{name}")
            else:
                setattr(owner, name, self._timed(phase, inner))

    def _timed(self, phase, inner):
        @functools.wraps(inner)
        def timed(*args, **kwargs):
            tail = phase == "sweep" and len(args) > 8 and args[8] is not None
            self.enter("collapsed sweep" if tail else phase)
            try:
                return inner(*args, **kwargs)
            finally:
                self.leave()

        return timed

    def watch(self, comm) -> None:
        """Count what collectives carry, and tell waiting for the slowest rank from the message itself by a barrier."""
        for name in COLLECTIVES:
            if hasattr(comm, name):
                setattr(comm, name, self._counted(comm, name, getattr(comm, name)))

    def _counted(self, comm, name, inner):
        def counted(array, *args):
            self.bytes[name] += array.nbytes
            if hasattr(comm, "_comm") and name != "send":
                self.enter("waiting")
                comm._comm.Barrier()
                self.leave()
            return inner(array, *args)

        return counted
