"""Latent Dirichlet allocation under the run loop: its settings from a configuration, and a chain with its scores and
kept states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.config.config import Config
from mpibayes.hpc.data.sparse import SparseData
from mpibayes.hpc.family import Info
from mpibayes.hpc.parallel.shards import count
from mpibayes.hpc.scalar import LOOKED_ROWS
from mpibayes.hpc.svi import family as svi
from mpibayes.hpc.svi.lda import keys, model
from mpibayes.hpc.svi.lda.ascent import Ascent, Settings
from mpibayes.hpc.svi.lda.heldout import HeldOut
from mpibayes.hpc.svi.lda.local import SAMPLED
from mpibayes.hpc.svi.lda.scalars import SCALARS
from mpibayes.hpc.svi.noise import Noise
from mpibayes.hpc.svi.schedule import Constant, Decay, Schedule
from mpibayes.text import counted

PARTS = 10  # number of kept states unless output.kept is given
SMALL, WORDS = 5_000, 500_000  # step.batch "auto": up to so many documents, or words in all, "all"
BATCH = 256  # documents per cycle otherwise
SHORT = 50.0  # step.local "auto": topics are sampled if documents have fewer words on average
LEAST_CYCLES, SAMPLED_PASSES = 200, 20  # cycles and passes with sampled topics
MOST_BATCHES = 200  # per pass, with sampled topics
CYCLES, MOST_CYCLES, LONG = 60, 200, 100.0  # run.cycles "auto" with all documents: more if fewer than LONG words each
PASSES = 10  # visits of each document in batches
ALPHA, SHARE = 0.1, 0.5  # model.alpha "auto"; largest weight of all topics as a share of a document's words
SAMPLED_SHARE = 0.25  # the same share with sampled topics
DOCUMENTS, MOST_SHARDS = 100, 64  # least documents per shard, and most shards: sums do not depend on them
SLOWING = Decay(10.0, 0.5)  # default step sizes with batches


def settings_of(config: Config) -> Settings:
    """Settings of a chain, from a configuration in which "auto" has been resolved."""
    of, step = config.of(keys.Model), config.of(keys.Step)
    first, _, then = local_of(config).partition(", then ")
    return Settings(
        of.topics, of.alpha, of.eta, of.learn_alpha, config.run.seed, config.run.shards,
        None if step.batch == "all" else svi.schedule_of(step.batch), rate_of(config), Noise(step.noise),
        svi.schedule_of(step.effective) if step.noise != "none" else None, step.guard == "shrink",
        first, then or first, step.switch if then else 0, step.warm, step.tolerance, step.iterations, step.sweeps,
    )  # fmt: skip


def local_of(config: Config) -> str:
    """Value of step.local; "auto" marks a run started before versions that decide it at the first start."""
    step = config.of(keys.Step)
    if step.local != "auto":
        return step.local
    return "linear, then vb" if step.batch == "all" else "cvb0, then vb"


def alpha_of(length: float, topics: int, sampled: bool = False) -> float:
    """Value of alpha with "auto". length: mean words of a document. With a larger alpha the prior alone determines a
    document's topics; with a smaller one cvb0 ends in poor optima, though gibbs does not."""
    share = SAMPLED_SHARE if sampled else SHARE
    return float(np.clip(share * length / topics, 1e-3, ALPHA))


def is_large(n_documents: int, n_words: float) -> bool:
    """True if batches find topics sooner than cycles over all documents."""
    return n_documents > SMALL and n_words > WORDS


def sampled_batch(n_documents: int) -> int:
    """Number of documents per cycle if topics are sampled. A step costs the same whatever the batch, so in large tables
    batches grow, and the number of cycles does not."""
    return min(n_documents, max(BATCH, n_documents // MOST_BATCHES))


def sampled_cycles(n_documents: int, batch: int) -> int:
    """Number of cycles if topics are sampled in batches: 200 to about 4,000 with batches of `sampled_batch`."""
    return max(LEAST_CYCLES, -(-SAMPLED_PASSES * n_documents // batch))


def cycles_of(length: float) -> int:
    """Number of cycles with all documents: more for short ones, of which each carries less and takes less time."""
    return int(np.clip(CYCLES * LONG / max(length, 1.0), CYCLES, MOST_CYCLES))


def rate_of(config: Config) -> Schedule:
    """Schedule of step sizes."""
    step = config.of(keys.Step)
    if step.rate != "auto":
        return svi.schedule_of(step.rate)
    return Constant(1.0) if step.batch == "all" else SLOWING


class Family(svi.Approximated):
    """See `hpc.family.Family`."""

    data: SparseData

    @staticmethod
    def default_shards(n_rows: int) -> int:
        return min(MOST_SHARDS, max(1, n_rows // DOCUMENTS))

    @staticmethod
    def cycle_s(n_cells: int) -> float:
        return 2e-3 + 1e-7 * n_cells

    def decided(self, config: Config, n_training: int) -> dict[str, dict[str, Any]]:
        step, run, kept = config.of(keys.Step), config.run, config.of(keys.Output).kept
        of, table = config.of(keys.Model), self.data.table
        length = table.total / max(1, table.n_rows)
        batch, local, cycles = step.batch, step.local, run.cycles
        if local == "auto":
            short = length < SHORT and batch != "all"
            local = "cvb0, then vb" if of.learn_alpha else SAMPLED if short else "cvb0"
        if batch == "auto" and local == SAMPLED:
            batch = sampled_batch(n_training)
        elif batch == "auto":
            batch = BATCH if is_large(n_training, table.total) else "all"
        if cycles == "auto" and isinstance(batch, int):
            sampled = local == SAMPLED
            cycles = sampled_cycles(n_training, batch) if sampled else max(CYCLES, -(-PASSES * n_training // batch))
        elif cycles == "auto":
            cycles = cycles_of(length)
        half = cycles // 2
        # about half of the cycles restart vb; their steps take most of the time
        end = cycles if batch != "all" else half if local == "vb" else cycles * 9 // 10
        return {
            "model": {"alpha": alpha_of(length, of.topics, local == SAMPLED) if of.alpha == "auto" else of.alpha},
            "step": {
                "batch": batch, "local": local,
                "switch": half if step.switch == "auto" else step.switch,
                "warm": end if step.warm == "auto" else step.warm,
            },
            "run": {"shards": count(run.shards, n_training, self.default_shards), "burn_in": 0, "cycles": cycles},
            "output": {"kept": max(1, cycles // PARTS) if kept == "auto" else kept},
        }  # fmt: skip

    def chain(self, config: Config, number: int) -> TopicsChain:
        return TopicsChain(self, config, number)


class TopicsChain(svi.Ascending):
    """See `hpc.family.Chain`: a chain of variational inference, its held-out score, and its kept states."""

    scalars = SCALARS

    def __init__(self, family: Family, config: Config, number: int):
        self.comm, self.config = family.comm, config
        data, table = family.data, family.data.table
        self.ascent = Ascent(
            self.comm, data.rows_of, data.n_rows, table.n_columns, table.total, settings_of(config), number
        )
        self.every = config.of(keys.Output).kept
        self.heldout = None
        if data.heldout is not None:
            topics = config.of(keys.Model).topics
            self.heldout = HeldOut(self.comm, data, self.ascent.n_shards, table.n_columns, topics)

    def advance(self, word: Sequence[int], limit: int) -> Info:
        """Run one cycle."""
        ascent, words = self.ascent, np.array(word, np.int64)
        self.comm.sum_everywhere(words)
        ascent.cycle()
        result = Info(range(ascent.cycles, ascent.cycles + 1), words.tolist())
        bound = score = np.nan
        keeps = ascent.cycles % self.every == 0 and not ascent.broken
        if keeps:
            bound = ascent.evaluate()
            score = self.heldout.perplexity(ascent.q) if self.heldout is not None else np.nan
        if self.comm.rank == 0:
            eta = self.config.of(keys.Model).eta
            values = {
                "bound": bound, "perplexity": score, "topics_used": model.n_used(ascent.q, eta),
                "iterations": ascent.iterations, "step_size": ascent.rate(), "guarded": ascent.guarded,
                LOOKED_ROWS: ascent.looked,
            }  # fmt: skip
            result.values = {name: np.array([value], np.float64) for name, value in values.items()}
            if keeps:
                result.draw = {"lam": ascent.q.lam, "alpha": ascent.q.alpha, "bound": bound}
            if ascent.broken:
                result.problem = 'noise took a parameter out of its domain; set step.guard = "shrink"'
            elif keeps and not np.isfinite(bound):
                result.problem = "the bound is not a finite number"
        return result

    def state(self) -> tuple[dict[int, dict[str, np.ndarray]], dict[str, Any]]:
        return self.ascent.state()

    def restore(self, shared: Mapping[str, Any], shards: Mapping[int, Mapping[str, np.ndarray]]) -> None:
        self.ascent.restore(shared, shards)

    def in_words(self) -> list[str]:
        ascent = self.ascent
        lines = [model_in_words(self.config, ascent.n_rows, ascent.n_words), step_in_words(self.config)]
        if self.cycles:
            lines = [f"continues from cycle {self.cycles}"]
        return [*lines, svi.APPROXIMATION]


def model_in_words(config: Config, n_documents: int, n_words: int) -> str:
    """Describe the model in one line."""
    of = config.of(keys.Model)
    alpha = f"alpha {of.alpha:g}" + (" at first, then learned for each topic" if of.learn_alpha else "")
    words = f"{counted(of.topics, 'topic')} of {counted(n_documents, 'document')} and {counted(n_words, 'word')}"
    return f"latent Dirichlet allocation, {words}, {alpha}, eta {of.eta:g}"


def step_in_words(config: Config) -> str:
    """Describe a cycle in one line."""
    step, rate = config.of(keys.Step), rate_of(config)
    given = config.changed("step", rate=_as_given(rate)) if step.rate == "auto" else config
    words = svi.step_in_words(given, "documents", "documents")
    first, _, then = local_of(config).partition(", then ")
    local = f"local step {first}" + (f" in {counted(step.switch, 'cycle')}, then {then}" if then else "")
    local += f" of {counted(step.sweeps, 'sweep')}" if first == SAMPLED else ""
    warm = f", warm after cycle {step.warm:,}" if "vb" in (first, then) and step.batch == "all" else ""
    return f"{words}; {local}{warm}"


def _as_given(rate: Schedule) -> Any:
    return rate.value if isinstance(rate, Constant) else keys.DecayingRate(delay=rate.delay, decay=rate.decay)
