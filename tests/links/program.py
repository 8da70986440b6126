"""The program's sampler on a tiny table with links, started at exact draws, and wrong versions of its code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from unittest import mock

import numpy as np

from mpibayes.hpc.components.categorical import Categorical
from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.links import gaps, in_turn, moves, scores
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.gaps import Gaps, Tables
from mpibayes.io.rows import Column
from mpibayes.io.table import table_from_arrays
from mpibayes.kernels.mixture import twin_turns
from tests.exact.compare import Verdict
from tests.exact.production import STRIDE, place
from tests.links.enumerate import LinkedPosterior
from tests.links.judged import judge_states, levels_of_cells
from tests.links.states import by_appearance


def sampler(comm, law: LinkedPosterior, n_shards: int, seed: int, **settings) -> Mixture:
    """The program's mixture of the law's table, with links drawn in every cycle."""
    given = [
        (f"c{c}", "categorical", law.cells[:, c], tuple(f"v{v}" for v in range(n))) for c, n in enumerate(law.n_levels)
    ]
    priors = {f"c{c}": {"grid": law.betas} for c in range(len(law.n_levels))}
    if law.of is not None:
        given.append(("number", "real", law.of.x, ()))
        priors["number"] = dict(zip(("mean", "kappa", "nu", "variance"), law.of.prior))
    columns, rows = table_from_arrays(given)
    if law.of is not None:
        columns = [_with_number(column, c, law) for c, column in enumerate(columns)]
    settings = {"links": "forest", "link_moves": 1, "split_merge": 0, **settings}
    return Mixture(
        comm, columns, lambda start, stop: rows.take(np.arange(start, stop)), len(rows),
        Settings(
            seed=seed, shards=n_shards, concentration=law.process[0], discount=law.process[1], priors=priors, **settings
        ),
    )  # fmt: skip


def _with_number(column: Column, c: int, law: LinkedPosterior) -> Column:
    """A numeric column cut into bins, as in a run."""
    if c == law.of.above:
        return replace(column, part_of="number")
    if column.name != "number":
        return column
    atoms = () if law.of.above == -1 else tuple(range(law.n_levels[law.of.above] - 1))
    return replace(column, cuts=law.of.cuts, atoms=atoms, n_missing=0)


def put(mixture: Mixture, law: LinkedPosterior, state: int, cycles: int, generator) -> None:
    """Put the chain at a state of the law after `cycles` cycles, with cells and pseudo-counts drawn given it."""
    labels, parents = law.state(state)
    mixture.linking.link(np.array(parents if law.of is None else (*parents, -1)))
    cells, betas = law.draw(state, generator)
    view, needed = mixture.view, mixture.linking.gaps
    for i, shard in enumerate(view.shards):
        levels = [cells[shard.start + at, c] for c, at in needed.at[i].items()]
        needed.put(i, shard.rows, np.concatenate([*levels, np.zeros(0, np.intp)]))
    order = [int(column.name[1:]) for column in view.components.categorical.columns]
    place(mixture, np.array(labels), cycles, replace(view.hyper, dirichlet=betas[order]))


def replicates(
    mixture: Mixture, law: LinkedPosterior, n_replicates: int, cycles: int, seed: int
) -> Iterator[tuple[list, list] | None]:
    """Yield, from each exact start, numbers of states (cycles,), and levels of needed missing cells, -1 for others
    (cycles, holes), on root; None elsewhere."""
    generator, d = np.random.Generator(np.random.Philox(seed)), len(law.n_levels)
    starts = generator.choice(law.p.size, size=n_replicates, p=law.p.ravel())
    for r, start in enumerate(starts):
        put(mixture, law, int(start), r * STRIDE, generator)
        seen, filled = [], []
        for _ in range(cycles):
            mixture.cycle()
            labels, levels = mixture.view.labels(), mixture.linking.gap_levels()
            if mixture.comm.rank == 0:
                z = by_appearance(labels)
                forest = tuple(mixture.linking.coding.parents[:d].tolist())
                seen.append(law.number[z, forest])
                filled.append(_of_holes(mixture, law, forest, levels))
        yield (seen, filled) if mixture.comm.rank == 0 else None


def _of_holes(mixture: Mixture, law: LinkedPosterior, forest, levels: np.ndarray) -> list[int]:
    """Level of each missing cell, -1 if it is not needed, from the chain's levels of needed cells."""
    at = {c: i for i, c in enumerate(mixture.linking.coding.order)}
    needed = sorted((h for h in law.holes if law.needed(forest, *h)), key=lambda h: (at[h[1]], h[0]))
    level = dict(zip(needed, levels.tolist(), strict=True))
    return [level.get(h, -1) for h in law.holes]


def verdict(records: list, law: LinkedPosterior, level: float) -> Verdict:
    """Judge states, and each level of a missing cell."""
    states, cells = (np.array(part) for part in zip(*records, strict=True))
    most = law.cells.shape[1] - 1 + (law.of is not None)
    return judge_states(law, states, level, most, levels_of_cells(law, cells))


# ---- wrong twins -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def without_prior():
    """Wrong: the number of links has no prior: every link has its prior weight at an even t."""
    with mock.patch.object(moves, "log_weight_of_links", lambda e, d, stream: -float(np.log(d))):
        yield


@contextlib.contextmanager
def codes_of_the_parent_before():
    """Wrong: columns that stay linked keep the codes of their previous parent, as with a cache keyed only by the
    child. Missing cells are not drawn in turn: that kernel takes a code's context to be its parent's."""
    right = Coding._code

    def stale(self, rows, place, level):
        code = right(self, rows, place, level)
        return code if self.parents[place] == -1 else np.roll(code, 1)

    with mock.patch.object(Coding, "_code", stale), gaps_in_turn(()):
        yield


@contextlib.contextmanager
def numbers_apart_from_their_atoms():
    """Wrong: forests in which a column may depend on a number, and the number's atom on that column."""
    right = moves.draw_with_others

    def apart(score, alone, u, order, above):
        return right(score, alone, u, order, np.full_like(above, -1))

    with mock.patch.object(moves, "draw_with_others", apart):
        yield


@contextlib.contextmanager
def evidence_of_all_clusters():
    """Wrong: scores of links treat all rows as one cluster."""
    right = scores.link_scores

    def whole(comm, contexts, kind, multiplier, labelled, n_labels, *more):
        return right(comm, contexts, kind, multiplier, [(rows, np.zeros_like(z)) for rows, z in labelled], 1, *more)

    with mock.patch.object(moves, "link_scores", whole):
        yield


@contextlib.contextmanager
def levels_of_counted_rows_alone():
    """Wrong: levels that no row has take no probability."""
    right = Categorical.draw_given

    def without_total(self, beta, levels, columns, stream, met=None):
        return right(
            self, beta if met is None else np.where(met | (beta == 0), beta, 1e-30), levels, columns, stream, met
        )

    with mock.patch.object(Categorical, "draw_given", without_total):
        yield


@contextlib.contextmanager
def gaps_by_the_parent_alone():
    """Wrong: missing cells that others depend on are drawn without these."""
    right = Gaps._log_weights

    def alone(self, tables, densities, rows, k, c, at):
        children, self._children = self._children, {c: []}
        result = right(self, tables, densities, rows, k, c, at)
        self._children = children
        return result

    by_level = Tables.by_level

    def even(self, place):
        return np.zeros_like(by_level(self, place))

    with mock.patch.object(Gaps, "_log_weights", alone), mock.patch.object(Tables, "by_level", even), gaps_in_turn(()):
        yield


@contextlib.contextmanager
def gaps_in_turn(columns):
    """Draw missing cells of these columns one after another, and those of others given parameters. Not wrong."""
    with mock.patch.object(gaps, "few_cells", lambda of, kind, k: tuple(c for c in of.lacking if c in columns)):
        yield


@contextlib.contextmanager
def gaps_in_turn_by_the_parent_alone():
    """Wrong: missing cells that others depend on are drawn in turn without these."""

    def fill(*arguments, **key):
        twin_turns.fill_in_turn(*arguments, by_children=False, **key)

    with mock.patch.object(in_turn.turns, "fill_in_turn", fill):
        yield


@contextlib.contextmanager
def links_of_what_is_there():
    """Wrong: links are drawn as if a missing cell were a separate level."""
    right = Gaps.completed

    def first_level(self, kind, multiplier, levels, labelled, first, key):
        for masks, rows in zip(self.masks, right(self, kind, multiplier, levels, labelled, first, key)):
            for c, mask in masks.items():
                getattr(rows, self.coding.plain[c].block)[mask, self.coding.plain[c].index] = 0
            yield rows

    with mock.patch.object(Gaps, "completed", first_level):
        yield
