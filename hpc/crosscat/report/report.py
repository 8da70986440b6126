"""The report of the posterior of a mixture, or of a cross-categorization: its text, its pictures and summary.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.crosscat.report import agreement, population
from mpibayes.hpc.crosscat.report.agreement import Agreement, ChainSummary
from mpibayes.hpc.crosscat.report.dependence import Dependence, dependence_map
from mpibayes.hpc.crosscat.report.findings import findings
from mpibayes.hpc.crosscat.report.groups import ShownLevel
from mpibayes.hpc.crosscat.report.links import Links, forest_picture
from mpibayes.hpc.crosscat.report.profiles import MANY_CLUSTERS, BlockProfile, Trait
from mpibayes.hpc.crosscat.report.sections import sections, top, verdict
from mpibayes.hpc.crosscat.report.summarise import ClusterLine, RunSummary, ViewSummary, summarise
from mpibayes.hpc.crosscat.report.tables import first_exact, parts
from mpibayes.hpc.crosscat.report.views import which_draw
from mpibayes.hpc.crosscat.scalars import CLUSTERS
from mpibayes.hpc.report.drawing import Picture
from mpibayes.hpc.report.tables import Report, finite, machine_scalars
from mpibayes.text import counted, visible

PICTURED = 6  # views with pictures of their own
WRITTEN = 300  # columns of which summary.json has every pair
UNCERTAIN = 100  # pairs of columns listed there


def make(run: Posterior) -> Report:
    """See `report.report`."""
    posterior = summarise(run)
    pictures = _pictures(posterior)
    return Report(
        lambda: parts(posterior), _machine(posterior, list(pictures)), pictures, verdict=verdict(posterior),
        top=lambda: top(posterior), sections=lambda: sections(posterior, pictures), chains=run.chains,
        findings=lambda: findings(posterior), linked=posterior.links.of_table if posterior.links else (),
    )  # fmt: skip


def _pictures(p: RunSummary) -> dict[str, Picture]:
    """File names and PNG bytes."""
    from mpibayes.hpc.crosscat.report import figures

    run, after = p.run, p.settled.after.get(CLUSTERS)
    settled = [
        None if after is None else (after, float(np.interp(after, c.trace["cycle"], c.seconds))) for c in run.chains
    ]
    pictures = {"trace.png": figures.trace(run.chains, settled, run.scalars)}
    if any(c.growth for c in run.chains):
        pictures["annealing.png"] = figures.annealing(run.chains, settled, run.n_rows)
    if p.agreement is not None and len(p.summaries) > 1:
        title = "Same views?" if run.several else "Same clustering?"
        pictures["chains.png"] = figures.chains_compared(
            p.summaries, p.agreement.ari, p.agreement.vi, run.scalars, title
        )
    if "heldout_lpd" in p.scalars:
        pictures["heldout.png"] = figures.held_out(run.chains)
    if p.dependence is not None and len(p.dependence.names) > 1:
        pictures["dependence.png"] = dependence_map(p.dependence)
    if p.links is not None and any(pair.share > 0.5 for pair in p.links.pairs):
        pictures["links.png"] = forest_picture(p.links)
    return pictures | _pictures_of_views(p)


def _pictures_of_views(p: RunSummary) -> dict[str, Picture]:
    """Draw the views that group columns and rows, the first of many; of a mixture its only one."""
    from mpibayes.hpc.crosscat.report import figures
    from mpibayes.hpc.crosscat.report.heat_map import heat_map

    run, pictures = p.run, {}
    views = [view for view in p.views if not (run.several and view.slight)][:PICTURED]
    if views:
        draws = f"{counted(len(views[0].ordered), 'kept draw')} of {counted(run.n_rows, 'row')}"
        titles = [f"View {v.number}: cluster sizes" if run.several else "Cluster sizes" for v in views]
        of = {f"{title} over {draws}": v.ordered for title, v in zip(titles, views)}
        pictures["cluster_sizes.png"] = figures.cluster_sizes(of, run.n_rows)
    for v in views:
        if v.profiles:
            sizes = np.array([line.rows for line in v.clusters[:MANY_CLUSTERS]])
            where, name = (f"View {v.number}: cluster", f"-{v.number}") if run.several else ("Cluster", "")
            title = f"{where} profiles of the representative partition"
            title += f" ({visible(which_draw(run, v.representative))})"
            pictures[f"profiles{name}.png"] = heat_map(
                v.columns, sizes, [line.name for line in v.clusters[: len(sizes)]], run.n_rows, title,
                len(v.representative.sizes), v.profiles,
            )  # fmt: skip
    return pictures


def _machine(p: RunSummary, pictures: list[str]) -> dict[str, Any]:
    """summary.json. Numbers that do not exist are null."""
    run = p.run
    document: dict[str, Any] = {
        "format": "mpibayes-report",
        "version": 1,
        "runs": [{"directory": str(c.folder), **_machine_chain(line)} for c, line in zip(run.chains, p.summaries)],
        "table": {
            "path": str(run.table.path),
            "fingerprint": run.table.fingerprint,
            "training_rows": run.n_rows,
            "columns": len(run.data.stored),
        },
        "likelihood": run.likelihood,
        "exact_from_cycle": first_exact(p),
        "settled": {
            "judged_after_cycle": p.settled.cycle,
            "problems": {what: list(why) for what, why in p.settled.problems.items()},
            "after_cycles": dict(p.settled.after),
        },
        "ranking": [c.name for c in agreement.ranked(p.summaries)[0]],
        "scalars": machine_scalars(p.scalars),
        **{name: {str(k): share for k, share in of.items()} for name, of in p.counts.items()},
        "heldout_lpd_averaged": p.heldout_averaged,
        "moves": agreement.moves_together(p.summaries),
        "kept_draws": p.n_kept,
        "warnings": p.warnings,
        "pictures": pictures,
    }
    if p.links is not None:
        document["links"] = _machine_links(p.links)
    if p.agreement is None:
        return document
    document["agreement"] = _machine_agreement(p, p.agreement)
    if p.dependence is None:
        return document | _machine_view(p, p.views[0])
    document["agreement"] = {"verdict": agreement.worst(p.agreements), "columns": document["agreement"]}
    r = p.representatives
    document["representative"] = {
        "directory": str(run.chains[r.chain].folder),
        "cycle": r.cycle,
        "n_views": len(r.views),
        "expected_variation_of_information": r.loss,
        "draws_compared": len(r.compared.cycle),
        "among_counts": r.among,
    }
    document["views"] = [_machine_found(p, i, view) for i, view in enumerate(p.views)]
    document["dependence"] = _machine_dependence(p.dependence)
    return document


def _machine_agreement(p: RunSummary, a: Agreement) -> dict[str, Any]:
    return {
        "verdict": a.verdict,
        "groups": [[p.summaries[i].name for i in group] for group in a.groups],
        "adjusted_rand": [[finite(x) for x in row] for row in a.ari.tolist()],
        "variation_of_information": [[finite(x) for x in row] for row in a.vi.tolist()],
        "columns" if a is p.of_columns else "rows": a.n,
        "log_joint_gap": a.gap,
        "climbing": [p.summaries[i].name for i in a.climbing],
    }


def _machine_view(p: RunSummary, view: ViewSummary) -> dict[str, Any]:
    """The representative partition of the rows in a view, and its clusters."""
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
            | {"traits": [_machine_trait(t) for t in c.traits]}
            for c in view.clusters
        ],
        "levels": [_machine_level(shown) for shown in view.levels],
        "columns": [
            {"column": c.name, "kind": c.kind, "information_nats": c.information}
            for c in sorted(view.profiles, key=lambda c: -c.information)
        ],
        "blocks": [_machine_block(block, view.clusters) for block in view.blocks],
        "ordered_sizes": {"mean": ordered.mean(axis=0).tolist(), "low": low.tolist(), "high": high.tolist()},
    }


def _machine_level(shown: ShownLevel) -> dict[str, Any]:
    """A level of groups of the clusters; null where one chain leaves it open."""
    level = shown.level
    judged = level.judged
    return {
        "groups": level.n,
        "text": str(level),
        "natural": level.natural if judged else None,
        "usable": level.usable if judged else None,
        "certain": finite(level.certain),
        "adjusted_rand": {"chains": finite(float(level.agree)), "trees_of_chains": finite(float(level.by_itself))},
        "least_overlap": finite(level.matched),
        "found": [
            {"group": g.number, "name": g.name, "rows": g.rows, "share": g.share, "certain": finite(g.certain)}
            | population.document(g)
            | {"traits": [_machine_trait(t) for t in g.traits]}
            for g in shown.groups
        ],
    }


def _machine_found(p: RunSummary, i: int, view: ViewSummary) -> dict[str, Any]:
    """A view of several: which columns of the table it has, too, and how sure that is."""
    d, members = p.dependence, p.dependence.of(i)
    document = _machine_view(p, view)
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
        "agreement": _machine_agreement(p, view.agreement),
        **document,
    }


def _machine_links(links: Links) -> dict[str, Any]:
    pairs = [{**vars(pair), "sure": pair.sure} for pair in links.pairs]
    return {"draws": links.n_draws, "pairs": pairs}


def _machine_dependence(d: Dependence) -> dict[str, Any]:
    """The least certain pairs, and all of them where the columns are not too many for a text."""
    document = {
        "draws": d.n_draws,
        "uncertain": [
            {"columns": [d.names[i], d.names[j]], "share": float(d.share[i, j])} for i, j in d.uncertain[:UNCERTAIN]
        ],
    }
    if len(d.names) <= WRITTEN:
        document |= {"columns": list(d.names), "share": np.round(d.share, 6).tolist()}
    return document


def _machine_block(block: BlockProfile, clusters: Sequence[ClusterLine]) -> dict[str, Any]:
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


def _machine_chain(c: ChainSummary) -> dict[str, Any]:
    document = {name: finite(value) for name, value in vars(c).items()}
    return document | {"scalars": machine_scalars(c.scalars)}


def _machine_trait(t: Trait) -> dict[str, Any]:
    return {"column": t.column, "nats": t.nats, "what": t.what, "text": str(t), **t.numbers}
