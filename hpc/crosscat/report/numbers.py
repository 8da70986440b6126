"""Report of a mixture or a cross-categorization for programs: summary.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.crosscat.report import agreement, outcome, population, survival
from mpibayes.hpc.crosscat.report.agreement import Agreement
from mpibayes.hpc.crosscat.report.dependence import Dependence
from mpibayes.hpc.crosscat.report.groups import ShownLevel
from mpibayes.hpc.crosscat.report.links import Links
from mpibayes.hpc.crosscat.report.profiles import BlockProfile
from mpibayes.hpc.crosscat.report.summarise import RunSummary
from mpibayes.hpc.crosscat.report.tables import first_exact
from mpibayes.hpc.crosscat.report.traits import Trait
from mpibayes.hpc.crosscat.report.view_summary import ClusterLine, ViewSummary
from mpibayes.hpc.report.tables import finite, machine_scalars, settled_json, summary_json

WRITTEN = 300  # most columns for which summary.json has every pair
UNCERTAIN = 100  # most pairs of columns listed as uncertain


def numbers(p: RunSummary) -> dict[str, Any]:
    """Return the contents of summary.json."""
    run = p.run
    document = summary_json(
        run,
        zip(run.chains, p.summaries),
        family={},
        table={"training_rows": run.n_rows, "columns": len(run.data.stored)},
        likelihood=run.likelihood,
        exact_from_cycle=first_exact(p),
        settled=settled_json(p.settled),
        ranking=[c.name for c in agreement.ranked(p.summaries)[0]],
        scalars=machine_scalars(p.scalars),
        **{name: {str(k): share for k, share in of.items()} for name, of in p.counts.items()},
        heldout_lpd_averaged=p.heldout_averaged,
        moves=agreement.moves_together(p.summaries),
        kept_draws=p.n_kept,
        warnings=p.warnings,
    )
    if p.links is not None:
        document["links"] = _links(p.links)
    if p.outcome is not None:
        document["outcome"] = outcome.numbers(p.outcome)
        if p.run.several:
            document["outcome"] |= {"view": p.views[p.outcome.view].number, "share_of_draws": p.outcome.share}
    if p.agreement is None:
        return document
    document["agreement"] = _agreement(p, p.agreement)
    if p.dependence is None:
        return document | _view(p, p.views[0])
    document["agreement"] = {"verdict": agreement.worst(p.agreements), "columns": document["agreement"]}
    r = p.representatives
    document["representative"] = {
        "directory": str(run.chains[r.chain].folder),
        "cycle": r.cycle,
        "n_views": len(r.views),
        "expected_variation_of_information": r.loss,
        "draws_compared": r.n_own,
        "among_counts": r.among,
    }
    document["views"] = [_one_of_several(p, i, view) for i, view in enumerate(p.views)]
    document["dependence"] = _dependence(p.dependence)
    return document


def _agreement(p: RunSummary, a: Agreement) -> dict[str, Any]:
    return {
        "verdict": a.verdict,
        "groups": [[p.summaries[i].name for i in group] for group in a.groups],
        "adjusted_rand": [[finite(x) for x in row] for row in a.ari.tolist()],
        "variation_of_information": [[finite(x) for x in row] for row in a.vi.tolist()],
        "columns" if a is p.of_columns else "rows": a.n,
        "log_joint_gap": a.gap,
        "climbing": [p.summaries[i].name for i in a.climbing],
    }


def _view(p: RunSummary, view: ViewSummary) -> dict[str, Any]:
    """Describe the representative partition of the rows in a view, and its clusters."""
    r, ordered = view.representative, view.ordered
    low, high = np.quantile(ordered, (0.05, 0.95), axis=0)
    return {
        "representative": {
            "directory": str(p.run.chains[r.chain].folder),
            "cycle": r.cycle,
            "n_clusters": len(r.sizes),
            "sizes": r.sizes.tolist(),
            "expected_variation_of_information": r.loss,
            "draws_compared": len(r.losses),
            "among_counts": r.among,
            "mean_loss_of_draws": float(r.losses.mean()),
        },
        "clusters": [
            {"cluster": c.number, "name": c.name, "rows": c.rows, "share": c.share, "stability": c.stability}
            | population.document(c)
            | {"traits": [_trait(t) for t in c.traits]}
            for c in view.clusters
        ],
        "levels": [_level(shown) for shown in view.levels],
        "columns": [
            {"column": c.name, "kind": c.kind, "information_nats": c.information}
            for c in sorted(view.profiles, key=lambda c: -c.information)
        ],
        "blocks": [_block(block, view.clusters) for block in view.blocks],
        **({"survival": [survival.numbers(c, view.clusters) for c in view.curves]} if view.curves else {}),
        "ordered_sizes": {"mean": ordered.mean(axis=0).tolist(), "low": low.tolist(), "high": high.tolist()},
    }


def _level(shown: ShownLevel) -> dict[str, Any]:
    """Describe a level of groups of clusters; null where a single chain cannot judge."""
    level = shown.level
    judged = level.judged
    return {
        "groups": level.n,
        "text": str(level),
        "natural": level.natural if judged else None,
        "usable": level.usable if judged else None,
        "certain": finite(level.certain),
        "changing": level.changing if judged else None,
        "adjusted_rand": {
            "chains": finite(float(level.agree)),
            "trees_of_chains": finite(float(level.by_itself)),
            "earlier_and_later": finite(float(level.lasting)),
        },
        "least_overlap": finite(level.matched),
        "found": [
            {"group": g.number, "name": g.name, "rows": g.rows, "share": g.share, "certain": finite(g.certain)}
            | population.document(g)
            | {"traits": [_trait(t) for t in g.traits]}
            for g in shown.groups
        ],
    }


def _one_of_several(p: RunSummary, i: int, view: ViewSummary) -> dict[str, Any]:
    """Describe one of several views: also its columns of the table, and their certainty."""
    d, members = p.dependence, p.dependence.of(i)
    document = _view(p, view)
    document["profiles"] = document.pop("columns")
    shares = d.with_others(i).tolist()
    return {
        "view": view.number,
        "columns": [
            {"column": name, "with_others": finite(share), "alone": alone}
            for name, share, alone in zip(d.names[members], shares, d.alone[members].tolist())
        ],
        "together": finite(d.together(i)),
        "distribution": view.spread or None,
        "agreement": _agreement(p, view.agreement),
        **document,
    }


def _links(links: Links) -> dict[str, Any]:
    pairs = [{**vars(pair), "sure": pair.sure} for pair in links.pairs]
    return {"draws": links.n_draws, "pairs": pairs}


def _dependence(d: Dependence) -> dict[str, Any]:
    """Describe the least certain pairs, and all pairs if the columns are not too many for a text."""
    document = {
        "draws": d.n_draws,
        "uncertain": [
            {"columns": [d.names[i], d.names[j]], "share": float(d.share[i, j])} for i, j in d.uncertain[:UNCERTAIN]
        ],
    }
    if len(d.names) <= WRITTEN:
        document |= {"columns": list(d.names), "share": np.round(d.share, 6).tolist()}
    return document


def _block(block: BlockProfile, clusters: Sequence[ClusterLine]) -> dict[str, Any]:
    def plain(x):
        return [plain(y) for y in x] if isinstance(x, list) else finite(x)

    return {
        "block": block.name,
        "columns": list(block.columns),
        "overall": {"mean": plain(block.overall_mean.tolist()), "correlation": plain(block.overall.tolist())},
        "clusters": [
            {"cluster": c.number, "rows": int(n), "mean": plain(mean.tolist()), "correlation": plain(r.tolist())}
            for c, n, mean, r in zip(clusters, block.rows, block.mean, block.correlation)
        ],
    }


def _trait(t: Trait) -> dict[str, Any]:
    return {"column": t.column, "nats": t.nats, "what": t.what, "text": str(t), **t.numbers}
