"""What is exported of a mixture besides its trace: its clusters, and what is kept with the labels."""

from __future__ import annotations

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.hpc.crosscat.draws import Posterior, iterate_draws
from mpibayes.hpc.crosscat.partitions import contingency, ordered_sizes
from mpibayes.hpc.crosscat.representative import COMPARED, representatives
from mpibayes.hpc.family import Clusters
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.io.trace import Axes
from mpibayes.text import counted

FORMS = ("labels", "clusters")
WEIGHTS = 100  # clusters whose weights are exported, at most


def clusters(run: Posterior) -> Clusters:
    """See `Clusters`. P(r | row) = mean_d n_rk / n_k, where k is the row's cluster in draw d, and n_rk of the n_k rows
    there are in cluster r of the representative partition; in each view."""
    run.read_traces()  # which also tell what belongs to the burn-in
    kept = run.kept()
    if not kept:
        raise ConfigError(
            f"{run.chains[0].home}: no draw of the labels was kept after burn-in; let the run go on, give a smaller "
            "--burn-in, or lower output.labels"
        )
    found, used = representatives(run, kept), evenly(kept, COMPARED)
    probabilities = [np.zeros(run.n_rows) for _ in found.views]
    for _, draw in run.states(used):
        for r, probability in zip(found.views, probabilities):
            z = draw.labels[r.of.nearest_view(draw)]
            together = contingency(r.labels, z)
            probability += (together / together.sum(axis=0))[r.labels, z]
    clusters = [counted(len(r.sizes), "cluster") for r in found.views]
    which = [f"cycle {r.cycle:,} of {run.chains[r.chain].folder}, {of}" for r, of in zip(found.views, clusters)]
    said = f"the representative partition, as in the report: {which[0]}"
    if run.several:
        said = f"the views of cycle {found.cycle:,} of {run.chains[found.chain].folder}, numbered as in the report: "
        named = [f"{r.of.names[0]} and others" if r.of.names[1:] else r.of.names[0] for r in found.views]
        said += "; ".join(f"{v}: {name} ({of})" for v, (name, of) in enumerate(zip(named, clusters), 1))
    return Clusters([(r.labels + 1, p / len(used)) for r, p in zip(found.views, probabilities)], said)


def parameters(run: Posterior) -> tuple[list[dict[str, np.ndarray]], Axes]:
    """Hyperparameters by column, those that vary, and of one view `weight`, the share of the rows in the largest
    cluster, the next, and so on, for as many clusters as all draws after burn-in have, at most WEIGHTS. None where one
    cannot be."""
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
    """(cycle, sizes of the clusters, hyperparameters of each column by name) of every kept draw of a chain."""
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
    """Of each hyperparameter: the columns, or blocks of them, that have it."""
    blocks, names = list(run.chains[0].config.joint), {}
    for kind in run.components.kinds:
        members = [kind.members(c) for c in range(len(kind))]
        joint = any(len(of) > 1 for of in members)
        columns = blocks if joint else [of[0].name for of in members]
        names |= {f"{kind.hyper}{ending}": columns for ending in _endings(kind)}
    return names


def _axis(name: str) -> str:
    """Every hyperparameter has an axis of its own, since those of other columns may be fixed."""
    return "cluster" if name == "weight" else f"{name}_column"
