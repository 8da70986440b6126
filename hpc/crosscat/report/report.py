"""The report of a mixture's posterior: its text, its pictures and summary.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.crosscat.report import agreement
from mpibayes.hpc.crosscat.report.agreement import ChainSummary
from mpibayes.hpc.crosscat.report.profiles import MANY_CLUSTERS, BlockProfile, Trait
from mpibayes.hpc.crosscat.report.summarise import ClusterLine, RunSummary, summarise
from mpibayes.hpc.crosscat.report.tables import first_exact, parts, which_draw
from mpibayes.hpc.crosscat.scalars import CLUSTERS
from mpibayes.hpc.posterior.tables import Report, finite, machine_scalars
from mpibayes.text import visible


def make(run: Posterior) -> Report:
    """See `report.report`."""
    posterior = summarise(run)
    pictures = _pictures(posterior)
    return Report(lambda: parts(posterior), _machine(posterior, list(pictures)), pictures)


def _pictures(p: RunSummary) -> dict[str, bytes]:
    """File names and PNG bytes."""
    from mpibayes.hpc.crosscat.report import figures
    from mpibayes.hpc.crosscat.report.heat_map import heat_map

    after = p.settled.after.get(CLUSTERS)
    settled = [
        None if after is None else (after, float(np.interp(after, c.trace["cycle"], c.seconds))) for c in p.run.chains
    ]
    pictures = {"trace.png": figures.trace(p.run.chains, settled)}
    if any(c.growth for c in p.run.chains):
        pictures["annealing.png"] = figures.annealing(p.run.chains, settled, p.run.n_rows)
    if p.agreement is not None and len(p.summaries) > 1:
        pictures["chains.png"] = figures.chains_compared(p.summaries, p.agreement.ari, p.agreement.vi)
    if "heldout_lpd" in p.scalars:
        pictures["heldout.png"] = figures.held_out(p.run.chains)
    if p.ordered is not None:
        pictures["cluster_sizes.png"] = figures.cluster_sizes(p.ordered, p.run.n_rows)
    if p.profiles:
        sizes = np.array([line.rows for line in p.clusters[:MANY_CLUSTERS]])
        title = f"Cluster profiles of the representative partition ({visible(which_draw(p))})"
        pictures["profiles.png"] = heat_map(
            p.columns, sizes, [line.name for line in p.clusters[: len(sizes)]], p.run.n_rows, title,
            len(p.representative.sizes), p.profiles,
        )  # fmt: skip
    return pictures


def _machine(p: RunSummary, pictures: list[str]) -> dict[str, Any]:
    """summary.json. Numbers that do not exist are null."""
    r, run = p.representative, p.run
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
        "n_clusters": {str(k): share for k, share in p.n_clusters.items()},
        "heldout_lpd_averaged": p.heldout_averaged,
        "moves": agreement.moves_together(p.summaries),
        "kept_draws": p.n_kept,
        "warnings": p.warnings,
        "pictures": pictures,
    }
    if p.agreement is not None:
        a = p.agreement
        document["agreement"] = {
            "verdict": a.verdict,
            "groups": [[p.summaries[i].name for i in group] for group in a.groups],
            "adjusted_rand": [[finite(x) for x in row] for row in a.ari.tolist()],
            "variation_of_information": [[finite(x) for x in row] for row in a.vi.tolist()],
            "rows": a.n_rows,
            "log_joint_gap": a.gap,
            "climbing": [p.summaries[i].name for i in a.climbing],
        }
    if r is not None:
        document["representative"] = {
            "directory": str(run.chains[r.chain].folder),
            "cycle": r.cycle,
            "n_clusters": len(r.sizes),
            "sizes": r.sizes.tolist(),
            "expected_variation_of_information": r.loss,
            "draws_compared": len(r.losses),
            "mean_loss_of_draws": float(r.losses.mean()),
        }
        document["clusters"] = [
            {"cluster": c.number, "name": ", ".join(c.name), "rows": c.rows, "share": c.share, "stability": c.stability}
            | {"traits": [_machine_trait(t) for t in c.traits]}
            for c in p.clusters
        ]
        document["columns"] = [
            {"column": c.name, "kind": c.kind, "information_nats": c.information}
            for c in sorted(p.profiles, key=lambda c: -c.information)
        ]
        document["blocks"] = [_machine_block(block, p.clusters) for block in p.blocks]
        ordered = p.ordered
        low, high = np.quantile(ordered, (0.05, 0.95), axis=0)
        document["ordered_sizes"] = {"mean": ordered.mean(axis=0).tolist(), "low": low.tolist(), "high": high.tolist()}
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
