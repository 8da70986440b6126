"""Groups of ranks side by side, each with a communicator of its own, and what they have to know of each other.

A group works by itself until `agree` or `all_done`, where all groups meet. One that ends before its time, because it
was asked to stop or because it failed, tells every rank of the others at once: these look at `heard` between two
cycles, end at a checkpoint and come to the meeting. So an error of one group is an error of the whole job, and nobody
waits for those who will never come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from mpibayes.errors import MpibayesError
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.schedule import Schedule

T = TypeVar("T")
PATIENCE_S = 5.0  # for the others of a group, which may not know of an error
FAILED = "another chain failed"


def _nobody() -> None:
    return None


class Groups:
    """The ranks of a job (`world`) in the groups of a schedule.

    comm: of this rank's group, the world itself where there is one group. number: of the group. signalled(): why a
    signal asks this process to stop, if one does.
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
        self._told = False
        self._heard: list[str] = []

    def heard(self) -> str | None:
        """Reason why another group has ended early, if one has."""
        while self.several and (words := self.world.hear()) is not None:
            self._heard.append(words)
        return self._heard[0] if self._heard else None

    def agree(self, step: Callable[[], T], what: str) -> T:
        """This group's `step()`, which all its ranks take, unless it failed in some group: then every rank of the job
        raises the same MpibayesError. Collective over all groups. what: the step in words."""
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
        everyone = self.world.collect((failure if self.comm.rank == 0 else None, self._told))
        self._hear_out([report for _, report in everyone])
        if failures := [error for error, _ in everyone if error is not None]:
            raise _one_for_all(failures)
        return value

    def all_done(self, step: Callable[[], bool], what: str, why: Callable[[], str | None] = _nobody) -> bool:
        """True if `step()` is true in all groups; one where it is not has the others stop. why: the reason, in words.
        Errors as of `agree`."""

        def done() -> bool:
            if not (end := step()):
                self._tell(why() or "another rank")
            return end

        return all(self.world.collect(self.agree(done, what))) if self.several else done()

    def _tell(self, words: str) -> None:
        """Have the other groups know, once; the first rank of the group speaks."""
        if self.several and self.comm.rank == 0:
            self._tell_outside(words)

    def _tell_outside(self, words: str) -> None:
        if not self._told:
            self._told = True
            self._sent = [self.world.tell(words, rank) for rank in self._outside]

    def _pass_on(self) -> None:
        """While this group waits for the others, a signal that reaches one of its processes is for them."""
        if words := self._signalled():
            self._tell_outside(words)

    def _hear_out(self, heard: list[bool]) -> None:
        """Receive all that was sent, so that nothing is under way when the program ends."""
        while len(self._heard) < sum(heard[rank] for rank in self._outside):
            self._heard.append(self.world.hear(patiently=True))
        for done in self._sent:
            done()
        self._sent = []


def _one_for_all(failures: list[MpibayesError]) -> MpibayesError:
    """The first group's failure, with what else failed."""
    first = failures[0]
    also = [f"likewise: {other.message}" for other in failures[1:] if other.message != first.message]
    error = type(first)(first.message, [*first.problems, *also])
    error.shared = True
    return error
