"""Mixtures and cross-categorizations under the run loop: their settings, and a chain with scores and kept labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.crosscat import draws, host, stray_rows
from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.given_priors import AUTO_CONCENTRATION
from mpibayes.hpc.crosscat.heldout import HeldOut
from mpibayes.hpc.crosscat.keys import Model, Output, priors
from mpibayes.hpc.crosscat.sampler_keys import Sampler
from mpibayes.hpc.crosscat.scalars import BY_FAMILY
from mpibayes.hpc.crosscat.start import combined, first_look, merged, newcomers, sample, searches, strategy, views
from mpibayes.hpc.crosscat.start.labels import Given, given_labels, grown_labels, labels_of_chain
from mpibayes.hpc.crosscat.start.subsample import IDLE
from mpibayes.hpc.crosscat.start.surprise import surprising
from mpibayes.hpc.data.rows import Data, OnePass, digest
from mpibayes.hpc.family import Info
from mpibayes.hpc.outcome import kept as outcomes
from mpibayes.hpc.outcome import keys as outcome_keys
from mpibayes.hpc.parallel.agreement import on_root
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.hpc.parallel.shards import count, default_count
from mpibayes.hpc.run import directory as run_directory
from mpibayes.hpc.run import output
from mpibayes.hpc.run.progress import say
from mpibayes.io.draws import DrawWriter
from mpibayes.io.files import Guard
from mpibayes.io.finished import Finished
from mpibayes.text import counted

EARLY = 1, 2, 4, 8  # cycles whose draws are kept too: a report after any cycle has one in the second half


def settings_of(config: Config, n_rows: int) -> Settings:
    """Return the settings of the sampler from a configuration with "auto" resolved. n_rows: training rows."""
    model, sampler = config.of(Model), config.of(Sampler)
    return Settings(
        seed=config.run.seed,
        shards=config.run.shards,
        concentration=model.law,
        discount=model.discount,
        sweeps_per_cycle=sampler.sweeps_per_cycle,
        opening=sampler.opening,
        likelihood=model.likelihood,
        priors=priors(config),
        blocks=config.joint,
        hyper_every=sampler.hyper_every,
        split_merge=None if sampler.split_merge == "auto" else sampler.split_merge,
        annealing=strategy.annealing(config, n_rows),
        stray_rows=0 if sampler.stray_rows == "auto" else sampler.stray_rows,
        stray_rows_fixed=config.burn_in,
        view_concentration=model.view_law,
        view_discount=model.view_discount,
        column_moves=None if sampler.column_moves == "auto" else sampler.column_moves,
        view_moves=sampler.view_moves,
        columns_stay=strategy.cycles_alone(config, n_rows),
        group_moves=None if sampler.group_moves == "auto" else sampler.group_moves,
        column_powers=sampler.column_powers,
        links=model.parents if model.likelihood else "none",
        link_base=model.link_base,
        link_moves=None if sampler.link_moves == "auto" else sampler.link_moves,
        search="done" if model.has_views and strategy.pilot_rows(config, n_rows) else "none",
    )


class Family:
    """See `hpc.family.Family`."""

    shares_cycles = True

    def __init__(self, comm: Communicator, config: Config, data: Data):
        self.comm, self.data = comm, data
        self._config = config
        self._labels = self.heldout_file = None

    default_shards = staticmethod(default_count)

    @staticmethod
    def cycle_s(n_cells: int) -> float:
        return 3e-3 + 2e-8 * n_cells

    @staticmethod
    def decided(config: Config, n_training: int) -> dict[str, dict[str, Any]]:
        shards = count(config.run.shards, n_training)
        opening, strays = config.of(Sampler).opening, config.of(Sampler).stray_rows
        if opening == "auto":  # cheaper cycles, and as many effective draws per second: benchmarks/opening.py
            opening = "one"
        values = {
            "run": {"shards": shards, "burn_in": strategy.burn_in(config, n_training, shards)},
            "sampler": {
                "opening": opening,
                "stray_rows": stray_rows.default_count(n_training, shards) if strays == "auto" else strays,
                "init": strategy.initial(config, n_training),
                "init_rows": strategy.pilot_rows(config, n_training),
                "init_clusters": strategy.random_clusters(config, n_training),
            },
            "model": {"concentration": AUTO_CONCENTRATION, "view_concentration": AUTO_CONCENTRATION},
        }
        if config.of(Model).has_views:
            values["sampler"] |= {"init_views": strategy.views_at_first(config)}
            if not strategy.further_searches(config, n_training):  # "auto" also says that more may follow
                values["sampler"] |= {"searches": strategy.searches(config, n_training)}
        if strategy.annealing(config, n_training) is not None:
            values["anneal"] = {"start_rows": strategy.start_rows(config, n_training)}
        return values

    @staticmethod
    def grown(config: Config) -> Config:
        return config.changed("sampler", strategy="auto", init="one")

    def read_files(self, places: Sequence[Path], fresh: bool) -> dict[str, Any]:
        comm, config, data = self.comm, self._config, self.data
        on_root(comm, lambda: strategy.check_length(config, data.n_rows))
        if config.of(Sampler).init == "labels" and (
            fresh or on_root(comm, lambda: run_directory.lacks_checkpoint(places))
        ):
            self._labels = on_root(comm, self._given_labels)
        if config.heldout_path is not None:
            self.heldout_file, message = data.read_heldout_file(comm, config.heldout_path, config.data.unseen)
            if message:
                output.say(f"warning: {message}")
        return {"heldout": None if self.heldout_file is None else digest(self.heldout_file)}

    def _given_labels(self) -> list[Given]:
        """Return the initial labels of each chain; on root only."""
        config, data = self._config, self.data
        path, several, n = strategy.labels_path(config), config.of(Model).has_views, config.run.chains
        grown = [grown_labels(path, data, config.run.seed, i, several) for i in range(n)]
        if None in grown:
            return [given_labels(path, data.n_rows, len(data.stored), several)] * n
        if strategy.annealing(config, data.n_rows) is not None:
            raise ConfigError(
                f"{config.path}: a run that starts from the clusters of {path} has all their rows from the start; set "
                'sampler.strategy = "auto"'
            )
        old = counted(data.n_rows - grown[0].n_new, "training row")
        say(f"{path} had {old}; {grown[0].n_new:,} were appended")
        return grown

    def load(self, places: Sequence[Path], fresh: bool) -> None:
        """Do nothing: every chain reads the rows of its shards."""

    def chain(self, config: Config, number: int) -> ViewsChain:
        labels = None if self._labels is None else self._labels[number]
        return ViewsChain(self.comm, config, self.data, self.heldout_file, labels, number)


class ViewsChain:
    """See `hpc.family.Chain`: a chain of one view or several, the scores of its held-out rows, and its kept labels."""

    axes: Mapping[str, Mapping[str, Sequence[str]]] = {}

    def __init__(self, comm: Communicator, config: Config, data: Data, heldout_file, labels, number: int):
        self.comm, self.config, self.data = comm, config, data
        self.number, self._labels, self._from = number, labels, ""
        self.start_record: dict[str, Any] = {}
        self.scalars, self._several = BY_FAMILY[config.model.family], config.of(Model).has_views
        settings = settings_of(config, data.n_rows)
        read = OnePass(data)
        self.mixture = Mixture(comm, data.columns, read.rows_of, data.n_rows, settings, number)
        columns, self._about = None, []
        if config.of(outcome_keys.Outcome).column is not None:
            from mpibayes.hpc.crosscat import with_outcome

            columns = with_outcome.columns_of(config, data)
            with_outcome.add_outcome(self.mixture, columns, config)
            self._about = with_outcome.in_words(columns, config)
        self.heldout = None
        if (data.heldout is not None or config.heldout_path is not None) and config.of(Model).likelihood:
            blocks = data.heldout_blocks(comm, self.mixture.n_shards, heldout_file, read)
            answers = None if columns is None else columns.of_blocks(comm, self.mixture.n_shards, config)
            self.heldout = HeldOut(comm, blocks, answers)

    @property
    def n_rows(self) -> int:
        return self.mixture.n_rows

    @property
    def n_shards(self) -> int:
        return self.mixture.n_shards

    @property
    def cycles(self) -> int:
        return self.mixture.cycles

    @property
    def growing(self) -> bool:
        return self.mixture.growing

    @property
    def shards(self) -> list[int]:
        return [shard.index for shard in self.mixture.shards]

    def start_from(self, place: Path, finished: Finished | None = None) -> None:
        self._from = place
        self._labels = on_root(self.comm, lambda: labels_of_chain(place, self.data, self._several))
        self.start(finished)

    def start(self, finished: Finished | None = None) -> None:
        mixture, given = self.mixture, self._labels
        if given is not None:
            if self._several:
                home = dict(zip((c.name for c in self.data.stored), given.view_of.tolist()))
                whole = {c.name: c.part_of or c.name for c in mixture.columns}
                views.arrange(mixture, [home[whole[names[0]]] for names in mixture.units])
            if newcomers.n_in_clusters(given.n_new, mixture.settings.likelihood):
                mixture.start(given.labels)
                if not surprising(mixture, given.labels[0]):
                    self.start_record = {"surprising": False}
                    return
            if self._from and self._finds_better(given.labels, finished):
                return
            labels = (
                newcomers.with_newcomers(self.comm, self.data, mixture, given.labels) if given.n_new else given.labels
            )
            mixture.start(labels)
            return
        found = self._views_of_search(finished)
        how = strategy.initial_of_chain(self.config, self.number), strategy.random_clusters(self.config, self.n_rows)
        if n := strategy.cluster_rows(self.config, self.n_rows):
            self._say(sample.ahead_in_words(n))
            found = sample.clusters_of_sample(self.comm, self.data, mixture, n, found, finished)
            views.follow(mixture, found)
            return
        if found is not None:
            views.take(mixture, found, *how)
            return
        if self._several:
            views.deal(mixture, strategy.views_at_first(self.config))
        mixture.start(*how)

    def _views_of_search(self, finished: Finished | None) -> views.Pilot | None:
        """Return the best of the searches for views; None if there are none. Collective."""
        rows, n = strategy.pilot_rows(self.config, self.n_rows), strategy.searches(self.config, self.n_rows)
        if not (self._several and rows):
            return None
        further = strategy.further_searches(self.config, self.n_rows)
        words = searches.ahead_in_words(self.n_rows, rows, n, further=further)
        self._say(words + searches.kept_in_words(n, finished))
        settings, n_views = views.settings_of_search(self.mixture), strategy.views_at_first(self.config)
        self._look_first(settings, n)
        of = self.data, settings, self.number, rows, n_views, n
        choice = searches.best_search(self.comm, *of, finished=finished, further=further)
        if (more := strategy.rows_again(self.config, self.n_rows)) and searches.small_clusters(choice):
            rows = more
            words = searches.ahead_in_words(self.n_rows, rows, n) + ", since clusters are small in those of fewer rows"
            self._say(words + searches.kept_in_words(n, finished, n))
            choice = searches.best_search(self.comm, *of[:3], rows, *of[4:], finished=finished, first=n)
        if len(choice.scores):
            self.start_record = {"searches": choice.scores.tolist(), "judges": choice.n_judges}
        result, gain = combined.combined(self.comm, *of[:3], strategy.rows_of_fold(rows), choice)
        result, more = merged.merged(self.comm, *of[:3], rows, choice, result, self.mixture.settings.links)
        self.start_record |= {name: of for name, of in (("combined", gain), ("merged", more)) if of > 0.0}
        return result

    def _look_first(self, settings: Settings, n_searches: int) -> None:
        """Report held-out scores before long searches. Collective."""
        if self.number or self.heldout is None or self.heldout.answers is not None:  # later scores include the outcome
            return
        if not first_look.worthwhile(self.mixture.n_cells, n_searches):
            return
        n = strategy.random_clusters(self.config, self.n_rows)
        for look in first_look.scores(self.comm, self.data, settings, self.number, self.heldout, n):
            self._say(first_look.in_words(*look))

    def _finds_better(self, labels: Sequence[np.ndarray], finished: Finished | None) -> bool:
        """After growth of the table: search as at a first start, and start from the best search if it predicts better
        than the present chain; return True then. Collective."""
        mixture, n_new = self.mixture, int((labels[0] == IDLE).sum())
        n = strategy.searches_of_growth(self.config, self.n_rows, n_new)
        if not n:
            return False
        present = searches.Present([view.columns for view in mixture.views], labels)
        settings, n_views = views.settings_of_search(mixture), strategy.views_at_first(self.config)
        rows = min(strategy.ROWS_OF_EACH, self.n_rows)
        goal = "views" if self.config.of(Model).has_views else "clusters"
        ahead = searches.ahead_in_words(self.n_rows, rows, n, strategy.n_new_judges(n_new), goal)
        self._say(ahead + searches.kept_in_words(n, finished))
        of = self.data, settings, self.number, rows, n_views, n
        choice = searches.best_search(self.comm, *of, present, finished)
        if choice.gain is None:
            return False
        self.start_record = {"searches": choice.scores.tolist(), "judges": choice.n_judges, "gain": choice.gain}
        if choice.gain > 0.0:
            views.follow(mixture, choice.best)
        return choice.gain > 0.0

    def _say(self, words: str) -> None:
        if self.comm.rank == 0:
            say((f"chain-{self.number + 1}: " if self.config.run.chains > 1 else "") + words)

    def advance(self, word: Sequence[int], limit: int) -> Info:
        """Run one cycle; return its scalars and scores, and its labels if they are kept."""
        mixture, output = self.mixture, self.config.of(Output)
        info = mixture.cycle(word)
        lpd = averaged = np.nan
        whole = not mixture.growing
        if self.heldout is not None and info.cycle % output.thin == 0:
            counts = whole and info.cycle > self.config.burn_in
            of = mixture.linking.codings, mixture.outcome, host.view_of(mixture)
            lpd, averaged = self.heldout.score(mixture.views, mixture.places, counts, *of)
        keep = whole and (info.cycle % output.labels == 0 or (output.labels >= max(EARLY) and info.cycle in EARLY))
        draw = draws.of_chain(mixture, self._several) if keep else None
        result = Info(range(info.cycle, info.cycle + 1), info.word)
        if self.comm.rank == 0:
            values = vars(info) | {"heldout_lpd": lpd, "heldout_lpd_averaged": averaged}
            result.values = {s.name: np.array([values[s.name]]) for s in self.scalars if not s.timing}
            result.draw = draw
            if not np.isfinite(info.log_joint):
                result.problem = "the log joint probability is not a finite number"
        return result

    def state(self) -> tuple[dict[int, dict[str, np.ndarray]], dict[str, Any]]:
        """Return every view's labels, columns and hyperparameters, the running scores of held-out rows, and the plan of
        growth. Names of the v-th view's entries begin with "view-v/"."""
        mixture, heldout = self.mixture, self.heldout
        shards: dict[int, dict[str, np.ndarray]] = {i: {} for i in self.shards}
        shared: dict[str, Any] = {
            "n_views": len(mixture.views),
            "plan": np.asarray(mixture.plan, np.float64),
            "process": np.asarray(mixture.process, np.float64),
            "heldout_draws": heldout.n_draws if heldout is not None else 0,
        }
        if len(mixture.strays):
            shared["stray_rows"] = mixture.strays
        if mixture.settings.links != "none":
            shared["links"] = mixture.linking.coding.parents
        if mixture.settings.learns_bases:
            shared["tables"] = mixture.linking.flat_tables()
        for v, view in enumerate(mixture.views):
            labels, state = view.state()
            shared |= {f"view-{v}/{name}": value for name, value in state.items()}
            for i, z in labels.items():
                shards[i][f"view-{v}/z"] = z
        for i, shard in enumerate(mixture.view.shards if mixture.linking.gaps.columns else ()):
            levels = mixture.linking.gaps.levels(i, shard.rows).values()
            shards[shard.index]["gaps"] = np.concatenate([*levels, np.zeros(0, np.intp)]).astype(np.uint16)
        for i, shard in enumerate(mixture.shards if mixture.linking.numbers.columns else ()):
            shards[shard.index]["numbers"] = mixture.linking.numbers_of(i)
        shared |= outcomes.arrays_of(mixture.outcome) | ({"host": mixture.host} if mixture.outcome is not None else {})
        for i, arrays in outcomes.points_of(mixture.outcome).items():
            shards[i] |= arrays
        if heldout is not None:
            for i in shards:
                shards[i]["heldout_log_sum"] = heldout.log_sums[i]
        return shards, shared

    def restore(self, shared: Mapping[str, Any], shards: Mapping[int, Mapping[str, np.ndarray]]) -> None:
        mixture, names = self.mixture, [f"view-{v}" for v in range(int(shared["n_views"]))]
        mixture.arrange([shared[f"{name}/columns"] for name in names])
        if "links" in shared:
            mixture.linking.link(shared["links"])
        if "tables" in shared:
            mixture.linking.resume_bases(shared["tables"], int(shared["cycles"]))
        for i, shard in enumerate(mixture.view.shards if mixture.linking.gaps.columns else ()):
            mixture.linking.gaps.put(i, shard.rows, shards[shard.index]["gaps"])
        for i, shard in enumerate(mixture.shards if mixture.linking.numbers.columns else ()):
            mixture.linking.put_numbers(i, shards[shard.index]["numbers"])
        for view, name in zip(mixture.views, names):
            hyper = Hyper(**{f.name: shared[f"{name}/{f.name}"] for f in fields(Hyper)})
            view.resume(lambda i, z=f"{name}/z": shards[i][z], int(shared[f"{name}/n_labels"]), hyper)
        mixture.strays = shared.get("stray_rows", mixture.strays)
        mixture.resume(int(shared["cycles"]), shared["plan"], tuple(shared["process"].tolist()))
        outcomes.restore(mixture.outcome, shared, shards)
        if mixture.outcome is not None:  # earlier versions had no host, and one view
            entered = mixture.cycles >= mixture.outcome.entry
            mixture.host = int(shared.get("host", 0 if entered else host.NOBODY))
        if self.heldout is not None:
            self.heldout.n_draws = int(shared["heldout_draws"])
            self.heldout.log_sums = {i: arrays["heldout_log_sum"] for i, arrays in shards.items()}

    def draws(self, folder: Path, run: str, guard: Guard) -> DrawWriter:
        return draws.writer(folder, run, guard)

    def in_words(self) -> list[str]:
        config, n_rows, n_columns, cycle = self.config, self.n_rows, len(self.data.columns), self.cycles
        started = [] if cycle else [f"starts: {strategy.start_in_words(config, n_rows, n_columns, self.number)}"]
        if not cycle and self._labels is not None and self._labels.n_new:
            likelihood, familiar = config.of(Model).likelihood, "surprising" in self.start_record
            rows = newcomers.in_words(self._labels.n_new, likelihood, familiar)
            place = self._from or strategy.labels_path(config)
            started = [f"starts: as the last draw of {place}; {rows}"]
            if searches.left_present(self.start_record):
                started = [f"starts: anew, and not as the last draw of {place}"]
        started += [] if cycle else self._about
        started += [searches.in_words(**self.start_record)] if "searches" in self.start_record else []
        words = [f"continues from cycle {cycle}"] if cycle else []
        words += [strategy.growth_in_words(config, n_rows)] if self.growing else []
        words += [strategy.counting_in_words(config)] if cycle <= config.burn_in else []
        return [*started, "; ".join(w for w in words if w)]
