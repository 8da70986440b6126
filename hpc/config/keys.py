"""The sections that every family of models has. What a family adds to them is in its own `keys.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from mpibayes.hpc.config.section import (
    CYCLES,
    CYCLES_OR_NONE,
    LENGTH_OF_TIME,
    Cycles,
    CyclesOrNone,
    Duration,
    Name,
    Section,
    key,
    none,
    tuples,
    whole,
)
from mpibayes.io.shape import Shape

MOST_JOINT = 64  # columns of a block
MOST_SHARDS = 65_536
MOST_CHAINS = 1000
MOST_RANKS = 1024  # that a run starts itself, on one machine
MOST_MINUTES = 525_600  # between checkpoints: a year


class Data(Section):
    single: ClassVar[bool] = False  # whether a fraction holds out single entries, and not rows

    table: str = key(
        ..., "the typed table that `mpibayes import` wrote; relative to this file", "the path of a table", path=True
    )
    heldout: Annotated[Annotated[float, Field(gt=0, le=0.5)] | Name | None, BeforeValidator(none)] = key(
        None,
        "rows kept out of training and scored: a fraction, or the path of an .h5 file, or of one that can be imported",
        'a fraction in (0, 0.5], the path of a file, or "none"',
        path=True,
        of_the_model=True,
    )
    unseen: Literal["error", "missing"] = key(
        "error",
        "a level of held-out or new rows that the table does not have: stop, or take the cell as missing",
        '"error" or "missing"',
    )


class Model(Section):
    """A family adds its own keys, and says with `family` by which names it goes."""

    of_the_model: ClassVar[bool] = True
    latent: ClassVar[bool] = False  # whether real columns are modelled as `data.latent.Latent` has them
    sparse: ClassVar[bool] = False  # whether it is about a sparse table

    family: str = key("", "the family of the model", "the name of a family")

    @property
    def plain(self) -> bool:
        """True if real columns have no steps, atoms and logarithms, whatever the import found."""
        return False

    @property
    def shaped(self) -> Mapping[str, Shape]:
        """Coordinates of the shaped real columns, by column."""
        return {}

    @property
    def fits_shapes(self) -> bool:
        """True if the first start of a run is to fit them."""
        return False

    @property
    def binned(self) -> Mapping[str, tuple[float, ...]]:
        """Cuts between the bins of the columns of numbers that others may lean on, by column."""
        return {}

    @property
    def fits_bins(self) -> bool:
        """True if the first start of a run is to find them."""
        return False


class Run(Section):
    seed: int = key(0, "names the random streams", "a whole number from 0 to 2^63 - 1", ge=0, lt=2**63)
    shards: Literal["auto"] | Annotated[int, Field(ge=1, le=MOST_SHARDS)] = key(
        "auto",
        "fixed pieces of the table; not more ranks than shards can work",
        f'"auto" or {whole(1, MOST_SHARDS)}',
        decided_once=True,
    )
    cycles: Cycles = key(
        1000, "length of the chain, at most; raise it to extend a finished run", CYCLES, may_change=True
    )
    until: Literal["auto", "cycles", "settled", "scores"] = key(
        "auto",
        "when to end: after run.cycles, or sooner, once the chains agree (scores: in their held-out scores, whatever "
        "their clusters are); auto is settled for several chains on a small table",
        '"auto", "cycles", "settled" or "scores"',
        decided_once=True,
        may_change=True,
    )
    burn_in: Literal["auto"] | CyclesOrNone = key(
        "auto",
        "cycles left out of summaries; auto is a fifth of cycles (until settled: 100 at most), counted from the end of "
        "an annealed start, decided at the first start",
        f'"auto" or {CYCLES_OR_NONE}',
        decided_once=True,
    )
    chains: int = key(1, "independent chains, in DIR/chain-1 and so on", whole(1, MOST_CHAINS), ge=1, le=MOST_CHAINS)
    grow: bool = key(
        False,
        "take in rows that came to the table: the chains start again from where they are, and what the run was before "
        "is set aside in DIR/grown; false refuses a longer table",
        "true or false",
        may_change=True,
    )
    groups: Literal["auto"] | Annotated[int, Field(ge=1, le=MOST_CHAINS)] = key(
        "auto",
        "groups of ranks side by side, each with chains of its own, which it takes in turns; each holds all rows",
        f'"auto" or {whole(1, MOST_CHAINS)}',
        may_change=True,
    )
    ranks: Literal["auto"] | Annotated[int, Field(ge=1, le=MOST_RANKS)] = key(
        "auto",
        "processes that a run starts by mpirun where no launcher did; auto: MPIBAYES_RANKS, or one for each chain and "
        "shard, no more than cores, and a single one for work of seconds, in batch jobs and without MPICH",
        f'"auto" or {whole(1, MOST_RANKS)}',
        may_change=True,
    )
    checkpoint_minutes: float = key(
        5.0,
        "minutes between two checkpoints",
        f"a number above 0, at most {MOST_MINUTES:,} (a year)",
        may_change=True,
        gt=0,
        le=MOST_MINUTES,
    )
    max_time: Duration = key(
        None,
        "stop at a checkpoint before this much time has passed (seconds here; 3h50m and 1-02:00:00 are understood)",
        LENGTH_OF_TIME,
        may_change=True,
    )

    @property
    def judged(self) -> bool:
        """True if the run may end before run.cycles, by a judgement of its chains."""
        return self.until in ("settled", "scores")


class Output(Section):
    thin: Cycles = key(1, "cycles between two lines of the trace", CYCLES)


class Column(Section):
    """[columns.NAME]"""

    of_the_model: ClassVar[bool] = True

    use: bool = key(True, "false leaves the column out of the model", "true or false")


class Block(Section):
    """[blocks.NAME], in families that have them: columns whose cells lie side by side in the rows."""

    of_the_model: ClassVar[bool] = True

    columns: Annotated[tuple[Name, ...], Field(min_length=2, max_length=MOST_JOINT), BeforeValidator(tuples)] = key(
        ...,
        "real columns that are modelled jointly, with a full covariance in each cluster",
        f"a list of the names of 2 to {MOST_JOINT} real columns",
    )


SECTIONS: Mapping[str, type[Section]] = {"data": Data, "model": Model, "run": Run, "output": Output}
NAMED: Mapping[str, type[Section]] = {"columns": Column}  # [columns.NAME]
