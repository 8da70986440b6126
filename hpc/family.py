"""What the run loop needs of a sampler, whatever it samples: mixtures and regressions live under one roof.

A *family* (`registry.py`) knows what belongs to one kind of model before a chain starts; a *sampler* is one chain of
it. The loop in `run/loop.py` advances a sampler, stores what it tells, writes its state into checkpoints, and restores
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # whoever asks the registry for a family's scalars loads none of these
    import numpy as np

    from mpibayes.hpc.config.config import Config
    from mpibayes.hpc.data.rows import Data
    from mpibayes.hpc.parallel.comm import Communicator
    from mpibayes.hpc.scalar import Scalar
    from mpibayes.io.files import Guard
    from mpibayes.io.table import Rows


@dataclass
class Told:
    """What some consecutive cycles came to.

    values: {name: (n,) or (n, ...)}, on root, a row a cycle; every scalar and array of the trace but `seconds`.
    draw: on root, what is kept of the last cycle besides, if anything. word: the ranks' words, summed.
    problem: why the values cannot be those of a sound chain.
    """

    cycles: range
    word: Sequence[int]
    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    draw: Mapping[str, Any] | None = None
    problem: str = ""


class Draws(Protocol):
    """Keeps draws that are no rows of the trace, on root; in a folder of segments of its own."""

    last_cycle: int

    def append(self, cycle: int, **draw: Any) -> None: ...

    def flush(self) -> None: ...

    def truncate(self, cycle: int) -> None: ...


class Sampler(Protocol):
    """One chain on all ranks. Every method but `in_words` and `draws` is collective."""

    n_rows: int  # training rows
    n_shards: int
    cycles: int  # done
    growing: bool  # some rows are not in yet: no draw counts
    shards: Sequence[int]  # numbers of this rank's shards
    scalars: Sequence[Scalar]  # of the trace, with `seconds`
    axes: Mapping[str, Mapping[str, Sequence[str]]]  # of the arrays of the trace (`io.trace.Axes`)

    def start(self) -> None:
        """The state before the first cycle."""

    def advance(self, word: Sequence[int], limit: int) -> Told:
        """One cycle or several, `limit` at most. word: this rank's small integers, to be summed over ranks."""

    def state(self) -> tuple[dict[int, dict[str, np.ndarray]], dict[str, Any]]:
        """What a checkpoint has to hold: the arrays of each of this rank's shards, and what all share."""

    def restore(self, shared: Mapping[str, Any], shards: Mapping[int, Mapping[str, np.ndarray]]) -> None:
        """Bring the chain to such a state."""

    def draws(self, folder: Path, run: str, guard: Guard) -> Draws | None:
        """Where draws are kept that are no rows of the trace; root alone. guard: see `io.segments.Segments`."""

    def in_words(self) -> list[str]:
        """How the chain starts, or goes on, and from which cycle its draws count; root alone."""


class Family(Protocol):
    """One kind of model with its configuration and its rows, on all ranks, as far as all chains of a run share it."""

    scalars: Sequence[Scalar]  # of the trace, in its order; declared in the family's `scalars.py`
    heldout_file: Rows | None  # on root, once read

    def __init__(self, comm: Communicator, config: Config, data: Data): ...

    @staticmethod
    def decided(config: Config, n_training: int) -> dict[str, dict[str, Any]]:
        """What "auto" comes to at the first start, by section and key."""

    def read_files(self, places: Sequence[Path], fresh: bool) -> dict[str, Any]:
        """All files besides the table that the chains in `places` start from; what of them the run depends on.

        Collective. Like `load`, it raises what can be wrong with the input before a run directory is made.
        """

    def load(self, places: Sequence[Path], fresh: bool) -> None:
        """What all chains share of the rows, and what those that have no checkpoint start from. Collective."""

    def chain(self, config: Config, number: int) -> Sampler:
        """A chain, counted from 0, before it starts; `config` with "auto" decided. Collective."""
