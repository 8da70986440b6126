"""The sections of the configuration of latent Dirichlet allocation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from mpibayes.hpc.config import keys
from mpibayes.hpc.config.section import (
    CYCLES,
    CYCLES_OR_NONE,
    POSITIVE,
    ROW_COUNT,
    Cycles,
    CyclesOrNone,
    RowCount,
    Section,
    key,
    tuples,
    whole,
)
from mpibayes.hpc.svi import keys as svi
from mpibayes.hpc.svi.keys import GrowingRate, GrowingSize, Rate

LOCAL = ("auto", "vb", "linear", "cvb0", "gibbs", "linear, then vb", "cvb0, then vb")
MOST_STEPS = 100_000  # most per document and cycle


class DecayingRate(svi.DecayingRate):
    """(t + delay)^-decay in cycle t."""

    delay: Annotated[float, Field(ge=0, le=1e9)] = 10.0
    decay: Annotated[float, Field(ge=0.5, le=1)] = 0.5


class Model(keys.Model):
    sparse: ClassVar[bool] = True

    family: Literal["svi"] = key("svi", "variational inference: an approximation of the posterior", '"svi"')
    likelihood: Literal["lda"] = key(
        "lda", "topics of documents (latent Dirichlet allocation): a sparse table of counts of words", '"lda"'
    )
    topics: int = key(50, "number of topics", "a whole number from 1 to 10000", ge=1, le=10000)
    alpha: Literal["auto"] | Annotated[float, Field(gt=0, le=1000)] = key(
        "auto",
        "Dirichlet prior of a document's topics: of each topic; auto: 0.1, or less where all topics together would "
        "outweigh half the words of a mean document (with step.local gibbs a quarter)",
        '"auto" or a number above 0, at most 1000',
        decided_once=True,
    )
    eta: float = key(
        0.05, "Dirichlet prior of a topic's words: of each word", "a number above 0, at most 1000", gt=0, le=1000
    )
    learn_alpha: bool = key(False, "learn an alpha for each topic, in cycles with the local step vb", "true or false")


class Step(svi.Step):
    """Keys of [step]: a cycle's batch, step size, noise and local step."""

    batch: Annotated[Literal["auto", "all"] | RowCount | GrowingSize, BeforeValidator(tuples)] = key(
        "auto",
        "documents of a cycle, chosen anew each time: all, a number, or {growing = g} for g t in cycle t; auto: "
        "all of up to 5,000 documents or 500,000 words, otherwise 256; with gibbs 256, or a 200th of all if that "
        "is more",
        f'"auto", "all", {ROW_COUNT}, or {{growing = {POSITIVE}}}',
        decided_once=True,
    )
    rate: Annotated[Literal["auto"] | Rate | DecayingRate | GrowingRate, BeforeValidator(tuples)] = key(
        "auto",
        "step size: a number, {delay = d, decay = k} for (t + d)^-k in cycle t, or {growing = g} for g t, at most "
        "1; auto: 1 with all documents, otherwise {delay = 10, decay = 0.5}",
        '"auto", a number above 0 and at most 1, {delay = 0 to 1e9, decay = from 0.5 to 1}, or '
        f"{{growing = {POSITIVE}}}",
    )
    local: Literal[LOCAL] = key(
        "auto",
        "how a document's topics are found: vb: variational Bayes; linear: the same without digamma; cvb0: a "
        "word's own share left out; gibbs: means over sweeps of a Gibbs sampler; or one, then vb; auto: gibbs for "
        "documents of fewer than 50 words unless step.batch is all, otherwise cvb0; with model.learn_alpha cvb0, "
        "then vb",
        " or ".join(f'"{name}"' for name in LOCAL),
        decided_once=True,
    )
    switch: Literal["auto"] | CyclesOrNone = key(
        "auto",
        'cycles before "then"; auto: half of run.cycles',
        f'"auto" or {CYCLES_OR_NONE}',
        decided_once=True,
    )
    warm: Literal["auto"] | CyclesOrNone = key(
        "auto",
        "cycles in which a document's topics are found anew; later vb continues from the last ones, which raises "
        "the bound but leaves no poor optimum; auto: half of run.cycles, after another local step nine tenths, in "
        "batches all",
        f'"auto" or {CYCLES_OR_NONE}',
        decided_once=True,
    )
    tolerance: float = key(
        0.01,
        "summed change of a document's gamma, over its length plus 1, below which its local step ends",
        "a number above 0, at most 1000",
        gt=0,
        le=1000,
    )
    iterations: int = key(
        100, "maximal iterations of a document's local step", whole(1, MOST_STEPS), ge=1, le=MOST_STEPS
    )
    sweeps: int = key(
        6,
        "sweeps of gibbs over the words of a document, of which the first third does not count",
        whole(1, MOST_STEPS),
        ge=1,
        le=MOST_STEPS,
    )


class Run(keys.Run):
    cycles: Literal["auto"] | Cycles = key(
        "auto",
        "maximal number of steps; raise it to extend a finished run; auto: 60 with all documents, up to 200 where "
        "they have fewer than 100 words, otherwise ten passes over them, with gibbs 20 and at least 200 cycles",
        f'"auto" or {CYCLES}',
        decided_once=True,
        may_change=True,
    )


class Output(svi.Output):
    kept: Literal["auto"] | Cycles = key(
        "auto",
        "cycles between kept states, with the bound of all documents; auto: a tenth of run.cycles",
        f'"auto" or {CYCLES}',
        decided_once=True,
    )


SECTIONS: Mapping[str, type[Section]] = {
    "data": keys.Data, "model": Model, "step": Step, "run": Run, "output": Output,
}  # fmt: skip
NAMED: Mapping[str, type[Section]] = {"columns": keys.Column}
