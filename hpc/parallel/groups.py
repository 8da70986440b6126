"""Groups of ranks side by side, each with its own communicator, and the messages between them.

A group works by itself until `agree` or `all_done`, where all groups meet. A group that ends early, because it was
asked to stop or failed, notifies every rank of the other groups at once: they check `heard` between cycles, end at a
checkpoint and come to the meeting. So an error of one group is an error of the whole job, and no rank waits for one
that will never come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from mpibayes.errors import MpibayesError
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.schedule import Schedule

T = TypeVar("T")
PATIENCE_S = 5.0  # for the other ranks of a group, which may not know of an error
FAILED = "another chain failed"


def _nobody() -> None:
    return None


class Groups:
    """Ranks of a job (`world`), divided into the groups of a schedule.

    comm: communicator of this rank's group, the world itself if there is one group. number: of the group. signalled():
    why a signal asks this process to stop, or None.
    """

    def __init__(self, world: Communicator, schedule: Schedule, signalled: Callable[[], str | None] = _nobody):
        group_of = [schedule.group_of(rank) for rank in range(world.size)]
        self.world, self.number = world, group_of[world.rank]
        self.several = len(schedule.sizes) > 1
        self.comm = world.split(group_of) if self.several else world
        self.comm.asked_to_stop = world.asked_to_stop
        self._signalled = signalled
        self._outside = [rank for rank, group in enumerate(group_of) if group != self.number]
        self._sent: list[Callable[[], Any]] = []
        self._reported = False
        self._heard: list[str] = []

    def heard(self) -> str | None:
        """Reason why another group ended early, or None."""
        while self.several and (words := self.world.hear()) is not None:
            self._heard.append(words)
        return self._heard[0] if self._heard else None

    def agree(self, step: Callable[[], T], what: str) -> T:
        """Return this group's `step()`, taken by all its ranks; if it failed in any group, every rank of the job raises
        the same MpibayesError. Collective over all groups. what: the step in words."""
        if not self.several:
            return step()
        value, failure = None, None
        try:
            value = step()
        except MpibayesError as error:
            if not error.shared and not self.comm.wait_for_all(PATIENCE_S):
                raise  # the others of this group do not know: `main` ends the job
            failure = error
            self._tell(FAILED)
        self.world.meet(what, self._pass_on)
        everyone = self.world.collect((failure if self.comm.rank == 0 else None, self._reported))
        self._hear_out([report for _, report in everyone])
        if failures := [error for error, _ in everyone if error is not None]:
            raise _one_for_all(failures)
        return value

    def all_done(self, step: Callable[[], bool], what: str, why: Callable[[], str | None] = _nobody) -> bool:
        """True if `step()` is true in all groups; a group where it is false stops the other groups. why: the reason, in
        words. Errors as in `agree`."""

        def done() -> bool:
            if not (end := step()):
                self._tell(why() or "another rank")
            return end

        return all(self.world.collect(self.agree(done, what))) if self.several else done()

    def _tell(self, words: str) -> None:
        """Notify the other groups, once; the first rank of the group sends the message."""
        if self.several and self.comm.rank == 0:
            self._tell_outside(words)

    def _tell_outside(self, words: str) -> None:
        if not self._reported:
            self._reported = True
            self._sent = [self.world.tell(words, rank) for rank in self._outside]

    def _pass_on(self) -> None:
        """Pass a signal that reaches one of this group's processes on to the other groups while waiting for them."""
        if words := self._signalled():
            self._tell_outside(words)

    def _hear_out(self, heard: list[bool]) -> None:
        """Receive all messages sent, so that none is in transit when the program ends."""
        while len(self._heard) < sum(heard[rank] for rank in self._outside):
            self._heard.append(self.world.hear(patiently=True))
        for done in self._sent:
            done()
        self._sent = []


def _one_for_all(failures: list[MpibayesError]) -> MpibayesError:
    """The first group's failure, with the failures of other groups."""
    first = failures[0]
    also = [f"likewise: {other.message}" for other in failures[1:] if other.message != first.message]
    error = type(first)(first.message, [*first.problems, *also])
    error.shared = True
    return error
