"""Sections that every family of models has. A family's additions are in its own `keys.py`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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

MOST_JOINT = 64  # most columns of a block
MOST_SHARDS = 65_536
MOST_CHAINS = 1000
MOST_RANKS = 1024  # most ranks that a run starts itself, on one machine
MOST_MINUTES = 525_600  # most minutes between checkpoints: a year


class Data(Section):
    single: ClassVar[bool] = False  # True if a fraction holds out single entries instead of rows

    table: str = key(
        ..., "the typed table that `mpibayes import` wrote; relative to this file", "the path of a table", path=True
    )
    heldout: Annotated[Annotated[float, Field(gt=0, le=0.5)] | Name | None, BeforeValidator(none)] = key(
        None,
        "rows that are scored, not trained on: a share (the same rows for any seed), or a file of rows",
        'a fraction in (0, 0.5], the path of a file, or "none"',
        path=True,
        of_the_model=True,
    )
    unseen: Literal["error", "missing"] = key(
        "error",
        "levels of held-out or new rows that the table lacks: an error, or missing cells",
        '"error" or "missing"',
    )


class Model(Section):
    """Shared keys of [model]. A family adds its own keys, and lists its names in `family`."""

    of_the_model: ClassVar[bool] = True
    latent: ClassVar[bool] = False  # True if real columns are modelled as in `data.latent.Latent`
    sparse: ClassVar[bool] = False  # True for models of sparse tables

    family: str = key("", "the family of the model", "the name of a family")

    @property
    def has_views(self) -> bool:
        """True if there may be several views of the columns."""
        return False

    @property
    def parents(self) -> str | Mapping[str, str]:
        """Links between columns in the form of `view.Settings`."""
        return "none"

    @property
    def plain(self) -> bool:
        """True if steps, atoms and logarithms of real columns, as found by the import, are ignored."""
        return False

    @property
    def shaped(self) -> Mapping[str, Shape]:
        """Coordinates of the shaped real columns, by name."""
        return {}

    @property
    def fits_shapes(self) -> bool:
        """True if the first start of a run fits the shapes."""
        return False

    @property
    def binned(self) -> Mapping[str, tuple[float, ...]]:
        """Cuts between the bins of the numeric columns that may be parents, by name."""
        return {}

    @property
    def fits_bins(self) -> bool:
        """True if the first start of a run computes the cuts."""
        return False

    @property
    def lined(self) -> Collection[str]:
        """Real columns that may be linked in lines."""
        return ()

    @property
    def born(self) -> Collection[str]:
        """Numeric columns that may depend on columns with levels."""
        return ()

    @property
    def seconds(self) -> Mapping[str, str]:
        """Second parent of each column that is given two, by name."""
        return {}

    @property
    def fits_children(self) -> bool:
        """True if the first start of a run chooses these numeric columns."""
        return False

    @property
    def fits_lines(self) -> bool:
        """True if the first start of a run chooses the columns that may be linked in lines."""
        return False

    @property
    def links_by_default(self) -> str:
        """Links chosen at the first start of a run; "" if they are given, or there are none."""
        return ""


class Run(Section):
    seed: int = key(0, "names the random streams", "a whole number from 0 to 2^63 - 1", ge=0, lt=2**63)
    shards: Literal["auto"] | Annotated[int, Field(ge=1, le=MOST_SHARDS)] = key(
        "auto",
        "pieces of the table, which ranks share; auto, for mixtures and features: 1 below 5,000 rows, 4 up to "
        "200,000, then one per 50,000 rows",
        f'"auto" or {whole(1, MOST_SHARDS)}',
        decided_once=True,
    )
    cycles: Cycles = key(1000, "maximal length of a chain; raise it to extend a finished run", CYCLES, may_change=True)
    until: Literal["auto", "cycles", "settled", "scores"] = key(
        "auto",
        "when the run ends: after run.cycles; once the chains have settled; or, after 400 cycles, once their "
        "held-out scores have; auto: settled for several chains of a mixture and at most 250,000 training cells",
        '"auto", "cycles", "settled" or "scores"',
        decided_once=True,
        may_change=True,
    )
    burn_in: Literal["auto"] | CyclesOrNone = key(
        "auto",
        "cycles left out of summaries, counted from the end of an annealed start; auto: a fifth of run.cycles "
        "(until settled: at most 100), fixed at the first start",
        f'"auto" or {CYCLES_OR_NONE}',
        decided_once=True,
    )
    chains: int = key(1, "independent chains, in DIR/chain-1, ...", whole(1, MOST_CHAINS), ge=1, le=MOST_CHAINS)
    grow: bool = key(
        False,
        "take in rows that were appended to the table: the chains start again from where they are, and the run so "
        "far is set aside in DIR/grown; false refuses a longer table",
        "true or false",
        may_change=True,
    )
    groups: Literal["auto"] | Annotated[int, Field(ge=1, le=MOST_CHAINS)] = key(
        "auto",
        "groups of ranks side by side, each with its own chains and all rows of the table",
        f'"auto" or {whole(1, MOST_CHAINS)}',
        may_change=True,
    )
    ranks: Literal["auto"] | Annotated[int, Field(ge=1, le=MOST_RANKS)] = key(
        "auto",
        "processes that a run starts itself, by mpirun, without a launcher; auto: MPIBAYES_RANKS, or one per chain "
        "and shard, no more than cores, and one for work of seconds, in batch jobs and without MPICH",
        f'"auto" or {whole(1, MOST_RANKS)}',
        may_change=True,
    )
    checkpoint_minutes: float = key(
        5.0,
        "minutes between checkpoints",
        f"a number above 0, at most {MOST_MINUTES:,} (a year)",
        may_change=True,
        gt=0,
        le=MOST_MINUTES,
    )
    max_time: Duration = key(
        None,
        "stop at a checkpoint before this time has passed",
        LENGTH_OF_TIME,
        may_change=True,
    )

    @property
    def judged(self) -> bool:
        """True if a judgement of its chains may end the run before run.cycles."""
        return self.until in ("settled", "scores")


class Output(Section):
    thin: Cycles = key(1, "cycles between lines of the trace", CYCLES)


class Column(Section):
    """[columns.NAME]"""

    of_the_model: ClassVar[bool] = True

    use: bool = key(True, "false leaves the column out of the model", "true or false")

    @property
    def given(self) -> bool:
        """True if its prior is given, in the column's units, so that the column stays as recorded."""
        return False


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
