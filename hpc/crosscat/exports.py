"""Exports of a mixture other than its trace: the cluster of each row, and the arrays kept with the labels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.crosscat.draws import Posterior, iterate_draws
from mpibayes.hpc.crosscat.summaries.partitions import ordered_sizes
from mpibayes.hpc.crosscat.summaries.representative import COMPARED, Representatives
from mpibayes.hpc.crosscat.summaries.row_clusters import clusters_of, row_clusters
from mpibayes.hpc.crosscat.summaries.shares import PopulationShares
from mpibayes.hpc.family import Clusters
from mpibayes.hpc.outcome.keys import Outcome
from mpibayes.hpc.posterior.chains import config_in, evenly
from mpibayes.hpc.report.drawing import cut
from mpibayes.io import export as forms
from mpibayes.io.trace import Axes
from mpibayes.text import counted, percent

__all__ = ["FORMS", "clusters", "clusters_of", "parameters"]

FORMS = ("labels", "clusters", "links", "outcome")
WEIGHTS = 100  # most clusters whose weights are exported
VIEWS, SHARES = 4, 12  # most views, and clusters of each, whose shares of the population are reported


def require_links(run_dirs) -> None:
    """Raise ConfigError if a run has no links."""
    for run_dir in run_dirs:
        model = config_in(run_dir).model
        if model.parents == "none" or not model.likelihood:
            how = 'a run with model.links = "forest" learns them'
            if config_in(run_dir).of(Outcome).column is not None:
                how = "a mixture with an outcome learns none"
            raise ConfigError(f"{run_dir}: has no links between columns; {how}")


def require_outcome(run_dirs) -> None:
    """Raise ConfigError if a run has no outcome."""
    for run_dir in run_dirs:
        if config_in(run_dir).of(Outcome).column is None:
            raise ConfigError(f"{run_dir}: has no outcome; a run with outcome.column has one")


def outcome(run: Posterior) -> Iterator[tuple[int, str]]:
    """Yield the chain and the line of each draw for --to outcome: labels of the training rows | beta | eta of each row,
    or the mean of a numeric outcome; of a softmax the numbers of all levels but the first, row after row."""
    of = run.outcomes
    for chain, draw in run.states():
        state = of.state(draw)
        z = draw.labels[draw.outcome_view]
        eta = state.eta_of(of.answers, z)
        numbers = (" ".join(map(repr, part.ravel().tolist())) for part in (state.beta, of.recorded(eta)))
        yield chain, " | ".join([forms.labels_as_text(z), *numbers])


def links(run: Posterior) -> Iterator[tuple[int, str]]:
    """Yield the chain and the line of each draw for --to links: the parent of each column, both of one that has two."""
    place = {column.name: c for c, column in enumerate(run.columns)}
    seconds = [place.get(column.second) for column in run.columns]
    for chain, draw in run.states():
        pairs = zip(draw.parents.tolist(), seconds)
        yield chain, " ".join(f"{first}" if second is None else f"{first},{second}" for first, second in pairs)


def clusters(run: Posterior, groups: int | None = None) -> Clusters:
    """See `hpc.family.ClusterExports`."""
    weights = run.training_weights(run.weighted)
    partitions, views = row_clusters(run, groups)
    weighed = {} if weights is None else {"weight": run.table.weights(), "shares": _shares(run, partitions, weights)}
    sizes = [
        "a column alone: its clusters are its histogram"
        if run.several and len(r.of.names) == 1
        else counted(len(r.sizes), "cluster")
        for r in partitions.views
    ]
    if not run.several:
        r = partitions.views[0]
        where = f"cycle {r.cycle:,} of {run.chains[r.chain].folder}, {sizes[0]}"
        return Clusters(views, f"the representative partition, as in the report: {where}", **weighed)
    named = [cut(r.of.names[0]) + " and others" * bool(r.of.names[1:]) for r in partitions.views]
    each = "; ".join(f"{v}: {name} ({of})" for v, (name, of) in enumerate(zip(named, sizes), 1))
    where = f"cycle {partitions.cycle:,} of {run.chains[partitions.chain].folder}"
    return Clusters(views, f"the views of {where}, numbered as in the report: {each}", **weighed)


def _shares(run: Posterior, partitions: Representatives, weights: np.ndarray) -> list[str]:
    """Describe the population shares of the largest clusters in the first views."""
    views = [r for r in partitions.views if not (run.several and r.slight)][:VIEWS]
    shares = [PopulationShares(r.labels, weights) for r in views]
    for _, draw in run.states(evenly(run.kept(), COMPARED)):
        for r, of in zip(views, shares):
            of.add(draw.labels[r.of.nearest_view(draw)])
    numbers = {id(r): f" of view {v}" * run.several for v, r in enumerate(partitions.views, 1)}
    lines = []
    for r, of in zip(views, shares):
        each = [f"{k} {percent(p)} ± {100 * e:.2g}" for k, (p, e) in enumerate(zip(of.share[:SHARES], of.error), 1)]
        more = f" and {len(of.share) - SHARES:,} more" if len(of.share) > SHARES else ""
        lines.append(
            f"of the population, by the weights of the rows ('{run.table.weight}'), with standard errors: clusters"
            f"{numbers[id(r)]}: {', '.join(each)}{more}"
        )
    return lines


def parameters(run: Posterior) -> tuple[list[dict[str, np.ndarray]], Axes]:
    """Return the hyperparameters that vary, by column, and with one view `weight`: the shares of the rows in the
    clusters, largest first, for as many clusters as all draws after burn-in have, at most WEIGHTS. Empty if a chain has
    no such draw."""
    run.read_traces()
    draws = [list(_small(chain.folder)) for chain in run.chains]
    later = [[d for d in of if d[0] > chain.burn_in] for chain, of in zip(run.chains, draws)]
    if not all(later):
        return [], {}
    most = min(WEIGHTS, min(len(sizes) for of in later for _, sizes, _ in of))
    chains, axes = [], {}
    for of in draws:
        weight = ordered_sizes([sizes for _, sizes, _ in of], max(len(sizes) for _, sizes, _ in of))[:, :most]
        arrays = {"cycle": np.array([cycle for cycle, _, _ in of]), "weight": weight / run.n_rows}
        chains.append(arrays | {name: np.stack([hyper[name] for *_, hyper in of]) for name in of[0][2]})
    names = _names(run) if run.several else {"weight": list(range(1, most + 1)), **_names(run)}
    for name, places in names.items():
        rows = [arrays["cycle"] > chain.burn_in for arrays, chain in zip(chains, run.chains)]
        cells = np.concatenate([arrays[name][at] for arrays, at in zip(chains, rows)])
        varies = (cells != cells[0]).any(axis=0)
        for arrays in chains:
            arrays[name] = arrays[name][:, varies]
        if varies.any():
            axes[name] = {_axis(name): [place for place, kept in zip(places, varies) if kept]}
    return [{name: a for name, a in arrays.items() if name in axes or name == "cycle"} for arrays in chains], axes


def _small(folder):
    """Yield (cycle, cluster sizes, hyperparameters of columns by name) of every kept draw of a chain."""
    from mpibayes.hpc.components.kinds import KINDS

    for draw in iterate_draws(folder):
        hyper = {}
        for kind in KINDS:
            values = getattr(draw.hyper, kind.hyper)
            of = values.reshape(len(values), len(kind.hyper_names) or 1)
            hyper |= {f"{kind.hyper}{name}": of[:, i] for i, name in enumerate(_endings(kind))}
        sizes = np.bincount(draw.labels[0])
        yield draw.cycle, sizes[sizes > 0], hyper


def _endings(kind) -> list[str]:
    return [f"_{name}" for name in kind.hyper_names] or [""]


def _names(run: Posterior) -> dict[str, list]:
    """Return the columns, or blocks of columns, that have each hyperparameter."""
    blocks, names = list(run.chains[0].config.joint), {}
    for kind in run.components.kinds:
        members = [kind.members(c) for c in range(len(kind))]
        joint = any(len(of) > 1 for of in members)
        columns = blocks if joint else [of[0].name for of in members]
        names |= {f"{kind.hyper}{ending}": columns for ending in _endings(kind)}
    return names


def _axis(name: str) -> str:
    """Return an axis per hyperparameter, since different columns may have it fixed."""
    return "cluster" if name == "weight" else f"{name}_column"


LINES, TEXTS = {}, {"links": links, "outcome": outcome}
NEEDS = {"links": require_links, "outcome": require_outcome}
