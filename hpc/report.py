"""`mpibayes report`: tables, pictures and a machine-readable summary of the posterior of one or several chains.

Clusters are those of the representative partition (`summary.expected_variation`), never of the last draw. Kept draws
are read one at a time and the table in slices.
"""

from __future__ import annotations

import importlib.util
import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from mpibayes.hpc import summary
from mpibayes.hpc.errors import ConfigError
from mpibayes.hpc.kept_draws import KeptRun, evenly, hyper_of
from mpibayes.hpc.summary import ColumnProfile, Scalar, Trait, number, percent
from mpibayes.io.files import reason, write_bytes, write_text
from mpibayes.io.table import Rows

PROBES = 1000  # rows on which partitions are compared
COMPARED = 200  # kept draws compared with one another, at most
SAMPLED = 20_000  # rows on which columns are compared with one another
LISTED = 30  # clusters in the table, at most
LEAST_SHARE = 0.001  # smaller clusters are gathered in one line
WIDTH = 118  # of report.txt
SCALARS = (
    ("n_clusters", "clusters K"),
    ("log_joint", "log joint"),
    ("concentration", "concentration"),
    ("discount", "discount"),
    ("entropy", "entropy of sizes"),
    ("heldout_lpd", "held-out, each draw"),
)


@dataclass
class Representative:
    """The kept draw that stands for the posterior: labels (N,) numbered by size, and how good it is."""

    chain: int
    cycle: int
    labels: np.ndarray
    sizes: np.ndarray  # (R,) descending
    loss: float  # expected variation of information, nats, to the other draws
    losses: np.ndarray  # (D',) of all draws compared
    hyper: Any


@dataclass
class ClusterLine:
    """What the report says of one cluster."""

    number: int
    rows: int
    share: float
    stability: float
    traits: list[Trait] = field(default_factory=list)


@dataclass
class Posterior:
    """All that a report shows."""

    run: KeptRun
    traces: list[dict[str, np.ndarray]]
    scalars: dict[str, Scalar]
    n_clusters: dict[int, float]
    heldout_averaged: float | None
    n_kept: int
    representative: Representative | None = None
    clusters: list[ClusterLine] = field(default_factory=list)
    profiles: list[ColumnProfile] = field(default_factory=list)
    ordered: np.ndarray | None = None  # (D, most) sizes of the draws' clusters
    warnings: list[str] = field(default_factory=list)


def require_extra(*modules: str) -> None:
    """ConfigError when a library of the `report` extra is not installed."""
    lacking = [name for name in modules if importlib.util.find_spec(name) is None]
    if lacking:
        raise ConfigError(f"the report needs {' and '.join(lacking)}: pip install '.[report]' in the program's folder")


def report(
    run_dirs: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    burn_in: int | None = None,
    console: Any = None,
    table: str | Path | None = None,
) -> Path:
    """Print the report and write it to `out` (DIR/report of the first directory): report.txt, summary.json, PNG
    pictures.

    burn_in: cycles left out of each chain, instead of what the configuration says. table: where the run's table is now.
    Returns the folder. Raises ConfigError (no run there, nothing after burn-in, `out` not writable), DataError (the
    table is missing or another one), CheckpointError (a damaged trace or labels segment).
    """
    from rich.console import Console

    require_extra("matplotlib", "arviz")
    console = console or Console()
    run_dirs = [run_dirs] if isinstance(run_dirs, str | Path) else list(run_dirs)
    run = KeptRun(run_dirs, burn_in, table)
    folder = Path(out) if out is not None else Path(run_dirs[0]) / "report"
    _make(folder)
    posterior = summarise(run)
    pictures = _pictures(posterior)
    text = StringIO()
    paper = Console(file=text, width=WIDTH, color_system=None, force_terminal=False, legacy_windows=False)
    for part in _parts(posterior):
        paper.print(part)
    try:
        for name, image in pictures.items():
            write_bytes(folder / name, image)
        write_text(folder / "report.txt", "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n")
        write_text(
            folder / "summary.json", json.dumps(_machine(posterior, list(pictures)), indent=1, allow_nan=False) + "\n"
        )
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {reason(error)}; choose another place with --out") from None
    for part in _parts(posterior):
        console.print(part)
    console.print(
        f"\nwritten to {folder}: report.txt, summary.json, {', '.join(pictures)}",
        highlight=False,
        soft_wrap=True,
        markup=False,
    )
    return folder


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be made: {reason(error)}; choose another place with --out") from None


# --- computing --------------------------------------------------------------------------------------------------------


def summarise(run: KeptRun) -> Posterior:
    """Everything the report shows, from the traces, the kept draws and one pass over the table."""
    traces = run.traces()
    later = [_after(t, c.burn_in) for t, c in zip(traces, run.chains, strict=True)]
    for chain, t, rest in zip(run.chains, traces, later, strict=True):
        if not t:
            raise ConfigError(
                f"{chain.folder}: nothing was kept yet; the trace is written with each checkpoint (mpibayes status "
                f"{chain.home})"
            )
        if not len(rest["cycle"]):
            raise ConfigError(
                f"{chain.folder}: a burn-in of {chain.burn_in:,} cycles leaves nothing of the {t['cycle'][-1]:,} "
                "cycles there are; give a smaller one with --burn-in, or let the run go on"
            )
    names = [key for key, _ in SCALARS if all(key in t for t in later)]
    scalars = {key: summary.scalar([t[key] for t in later]) for key in names}
    kept = run.kept()
    averaged = [t["heldout_lpd_averaged"][-1] for t in later if "heldout_lpd_averaged" in t]
    averaged = [float(a) for a in averaged if np.isfinite(a)]
    posterior = Posterior(
        run, traces, {k: s for k, s in scalars.items() if s.n_draws},
        summary.posterior_of_count(np.concatenate([t["n_clusters"] for t in later])),
        float(np.mean(averaged)) if averaged else None, len(kept),
    )  # fmt: skip
    posterior.warnings += summary.mixing_warnings(
        {n: posterior.scalars[k] for k, n in SCALARS if k in posterior.scalars}
    )
    if not kept:
        posterior.warnings.append(
            "no draw of the labels was kept after burn-in, so clusters cannot be shown: give a smaller --burn-in, "
            "let the run go on, or lower output.labels"
        )
        return posterior
    if len(kept) < summary.ENOUGH_DRAWS:
        posterior.warnings.append(
            f"only {len(kept)} draws of the labels were kept after burn-in: clusters, sizes and stability below are "
            f"rough; keep at least {summary.ENOUGH_DRAWS} (run.cycles, output.labels)"
        )
    posterior.representative = r = representative(run, kept)
    _describe(posterior, r, kept)
    return posterior


def _after(trace: dict[str, np.ndarray], burn_in: int) -> dict[str, np.ndarray]:
    if not trace:
        return {}
    keep = trace["cycle"] > burn_in
    return {name: values[keep] for name, values in trace.items()}


def representative(run: KeptRun, kept: Sequence[tuple[int, int]]) -> Representative:
    """Of at most COMPARED kept draws, evenly spaced, the one with the least expected variation of information to them
    all.

    The loss is computed on PROBES rows, drawn once and for all for a table of this length. Ties go to the earlier draw.
    """
    kept = evenly(kept, COMPARED)
    probes = np.arange(run.n_rows)
    if run.n_rows > PROBES:
        probes = np.sort(np.random.default_rng(run.n_rows).choice(run.n_rows, PROBES, replace=False))
    seen, labels = [], []
    for chain, draw in run.draws(kept):
        seen.append((chain, draw.cycle))
        labels.append(draw.labels[probes])
    losses = summary.expected_variation(np.stack(labels))
    best = int(np.argmin(np.round(losses, 12)))
    ((chain, draw),) = run.draws([seen[best]])
    z = summary.by_size(draw.labels)
    return Representative(chain, draw.cycle, z, np.bincount(z), float(losses[best]), losses, hyper_of(draw))


def _describe(posterior: Posterior, r: Representative, kept: Sequence[tuple[int, int]]) -> None:
    """Stability, sizes and profiles of the clusters."""
    run = posterior.run
    overlap, sizes = np.zeros(len(r.sizes)), []
    used = evenly(kept, COMPARED)
    for _, draw in run.draws(used):
        overlap += summary.jaccard(summary.contingency(r.labels, draw.labels))
        sizes.append(np.bincount(draw.labels))
    posterior.ordered = summary.ordered_sizes(sizes, max(len(s) for s in sizes))
    least = max(2, int(np.ceil(LEAST_SHARE * run.n_rows)))
    shown = np.arange(min(LISTED, max(1, int(np.count_nonzero(r.sizes >= least)))))
    explained: dict[tuple[str, str], float] = {}
    if run.likelihood:
        cells = _cells(run.columns, run.sample(SAMPLED))
        cuts = {c.name: summary.cuts(cells[c.name]) for c in run.columns if not c.levels}
        codes = {name: _in_intervals(x, cuts[name]) if name in cuts else x for name, x in cells.items()}
        explained = summary.explained_entropy(codes)
        counts, moments = run.histograms(r.labels, cuts), run.moments(r.labels)
        numbers = {name: summary.Numbers(counts[name], *moments[name]) for name in cuts}
        (statistics,) = run.statistics([r.labels])
        posterior.profiles = summary.profiles(run.components, run.components.prior(r.hyper), statistics, shown, numbers)
    for k in shown:
        posterior.clusters.append(
            ClusterLine(
                int(k) + 1, int(r.sizes[k]), float(r.sizes[k] / run.n_rows), float(overlap[k] / len(used)),
                summary.traits(posterior.profiles, int(k), explained),
            )
        )  # fmt: skip


def _cells(columns, rows: Rows) -> dict[str, np.ndarray]:
    return {c.name: getattr(rows, c.block)[:, c.index] for c in columns}


def _in_intervals(x: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """The interval of every cell, missing cells last."""
    return np.where(np.isnan(x), len(cuts) + 1, np.searchsorted(cuts, x))


# --- showing ----------------------------------------------------------------------------------------------------------


def _parts(posterior: Posterior) -> list[Any]:
    """What is printed, in order."""
    parts = [_header(posterior), "", _scalar_table(posterior)]
    if posterior.warnings:
        parts += ["", _warnings(posterior)]
    if posterior.representative is not None:
        parts += ["", _cluster_title(posterior), _cluster_table(posterior), *_small_clusters(posterior)]
    return parts


def _header(p: Posterior) -> Any:
    from rich.table import Table
    from rich.text import Text

    run = p.run
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for key, value in _about(p):
        grid.add_row(Text(key), Text(value))
    title = Table.grid()
    homes = list(dict.fromkeys(str(c.home) for c in run.chains))
    title.add_row(Text(f"Posterior of {', '.join(homes)}", style="bold"))
    title.add_row(grid)
    return title


def _about(p: Posterior) -> list[tuple[str, str]]:
    run, config = p.run, p.run.chains[0].config
    data = run.data
    kinds: dict[str, int] = {}
    for c in data.columns:
        kinds[c.kind] = kinds.get(c.kind, 0) + 1
    rows = f"{run.n_rows:,} training rows"
    if data.heldout is not None:
        rows += f", {len(data.heldout):,} held out"
    elif config.heldout_path is not None:
        rows += f"; held-out rows from {config.heldout_path}"
    columns = f"{len(data.columns)} (" + ", ".join(f"{n} {kind}" for kind, n in kinds.items()) + ")"
    if not run.likelihood:
        columns += "; their cells were ignored: model.likelihood = false samples the prior"
    cycles = [int(t["cycle"][-1]) for t in p.traces]
    length = f"{cycles[0]:,}" if len(set(cycles)) == 1 else " / ".join(f"{c:,}" for c in cycles)
    chains = "" if len(cycles) == 1 else f", {len(cycles)} chains"
    burn_ins = sorted({c.burn_in for c in run.chains})
    return [
        ("table", str(run.table.path)),
        ("rows", rows),
        ("columns", columns),
        ("cycles", f"{length} of {config.run.cycles:,}{chains}, {_states(p)}"),
        (
            "burn-in",
            f"{' / '.join(f'{b:,}' for b in burn_ins)} cycles left out; {p.n_kept:,} draws of the labels kept after it",
        ),
        (
            "exact",
            f"from cycle 1 on: every cycle leaves the posterior invariant, on any number of ranks ({_shards(config)})",
        ),
    ]


def _states(p: Posterior) -> str:
    states, ranks = [], set()
    for chain in p.run.chains:
        try:
            status = json.loads((chain.folder / "status.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        states.append(str(status.get("state", "unknown")))
        ranks.add(status.get("ranks"))
    text = " / ".join(dict.fromkeys(states)) or "state unknown"
    ranks.discard(None)
    if len(ranks) == 1:
        n = ranks.pop()
        text += f", last on {n} rank{'s' if n != 1 else ''}"
    return text


def _shards(config) -> str:
    shards = config.run.shards
    return "shards decided by the run" if shards == "auto" else f"{shards} shard{'s' if shards != 1 else ''}"


def _scalar_table(p: Posterior) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    table.add_column("after burn-in")
    for name in ("mean", "sd", "5 %", "95 %", "ESS", "R-hat"):
        table.add_column(name, justify="right")
    table.add_column("")
    for key, label in SCALARS:
        if key in p.scalars:
            s = p.scalars[key]
            table.add_row(label, *_scalar_cells(key, s), _remark(p, key, s))
    if p.heldout_averaged is not None:
        own = [c.config.burn_in for c in p.run.chains]
        since = (
            ""
            if own == [c.burn_in for c in p.run.chains]
            else f", over the draws after the run's burn-in of {own[0]:,}"
        )
        table.add_row(
            "held-out, averaged",
            _fixed(p.heldout_averaged, 3),
            *[""] * 5,
            f"log of the mean density, nats a row{since}",
        )
    return table


def _scalar_cells(key: str, s: Scalar) -> list[str]:
    if s.fixed:
        return [number(s.mean) if abs(s.mean) < 1e4 else _fixed(s.mean, 1), "fixed", "", "", "", ""]
    digits = {"log_joint": 1, "heldout_lpd": 3, "entropy": 3}.get(key)
    if digits is None:
        digits = 1 if key == "n_clusters" else 2
    cells = [
        _fixed(x, 0 if key == "n_clusters" and x in (s.low, s.high) else digits) for x in (s.mean, s.sd, s.low, s.high)
    ]
    return [*cells, _fixed(s.ess, 0), _fixed(s.r_hat, 3)]


def _fixed(x: float, digits: int) -> str:
    return f"{x:,.{digits}f}" if np.isfinite(x) else "-"


def _remark(p: Posterior, key: str, s: Scalar) -> str:
    if key == "n_clusters":
        mode = max(p.n_clusters, key=p.n_clusters.get)
        return f"mode {mode} ({percent(p.n_clusters[mode])} of the draws)"
    return "nats a row" if key == "heldout_lpd" else ""


def _warnings(p: Posterior) -> Any:
    from rich.text import Text

    text = Text()
    for i, warning in enumerate(p.warnings):
        text.append("\n" if i else "")
        text.append("warning: ", style="bold yellow")
        text.append(warning)
    return text


def _cluster_title(p: Posterior) -> Any:
    from rich.text import Text

    r = p.representative
    chain = f"chain {p.run.chains[r.chain].name}, " if len(p.run.chains) > 1 else ""
    text = Text("Clusters of the representative partition", style="bold")
    text.append(
        f"\n{chain}cycle {r.cycle:,}: of {len(r.losses)} kept draws the one nearest to all others (expected variation "
        f"of information {r.loss:.3f} nats; the draws' mean is {r.losses.mean():.3f})",
        style="not bold",
    )
    if p.profiles:
        text.append(
            "\nstable = mean over draws of the best overlap (Jaccard); then the columns that differ most from all "
            "rows, farthest first",
            style="not bold dim",
        )
    return text


def _cluster_table(p: Posterior) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    for name in ("#", "rows", "share", "stable"):
        table.add_column(name, justify="right", no_wrap=True)
    if p.profiles:
        table.add_column("what characterises it")
    for line in p.clusters:
        cells = [str(line.number), f"{line.rows:,}", percent(line.share), f"{line.stability:.2f}"]
        if p.profiles:
            words = Text()
            for i, t in enumerate(line.traits):
                words.append(" · " if i else "", style="dim")
                words.append_text(_phrase(t))
            cells.append(words if line.traits else Text("nothing stands out: much like all rows", style="dim"))
        table.add_row(*cells)
    return table


def _phrase(t: Trait) -> Any:
    """A trait on paper, its level names cut to what a line can bear."""
    from rich.text import Text

    text = Text()
    name = textwrap.shorten(t.column, 40, placeholder="…") if " " in t.column else t.column
    text.append(name, style="cyan")
    text.append(f" = {t.value}" if t.what == "level" else f" {t.value}", style="")
    text.append(f" (overall {t.overall})", style="dim")
    return text


def _small_clusters(p: Posterior) -> list[Any]:
    from rich.text import Text

    rest = p.representative.sizes[len(p.clusters) :]
    if not len(rest):
        return []
    many = f"{len(rest):,} more cluster{'s' if len(rest) > 1 else ''}"
    size = f"with at most {rest.max():,} rows each" if len(rest) > 1 else f"with {rest.max():,} rows"
    return [Text(f"{many} {size}, {percent(rest.sum() / p.run.n_rows)} of the rows", style="dim")]


def _pictures(p: Posterior) -> dict[str, bytes]:
    """File names and PNG bytes."""
    from mpibayes.hpc import figures

    names = [c.name for c in p.run.chains]
    burn_ins = [c.burn_in for c in p.run.chains]
    pictures = {"trace.png": figures.trace(p.traces, names, burn_ins)}
    if "heldout_lpd" in p.scalars:
        pictures["heldout.png"] = figures.held_out(p.traces, names, burn_ins)
    if p.ordered is not None:
        pictures["cluster_sizes.png"] = figures.cluster_sizes(p.ordered, p.run.n_rows)
    if p.profiles:
        sizes = np.array([line.rows for line in p.clusters])
        title = f"Cluster profiles of the representative partition (cycle {p.representative.cycle:,})"
        pictures["profiles.png"] = figures.heat_map(p.profiles, sizes, p.run.n_rows, title)
    return pictures


def _machine(p: Posterior, pictures: list[str]) -> dict[str, Any]:
    """summary.json. Numbers that do not exist are null."""
    r, run = p.representative, p.run
    document: dict[str, Any] = {
        "format": "mpibayes-report",
        "version": 1,
        "runs": [
            {"directory": str(c.folder), "burn_in": c.burn_in, "cycles": int(t["cycle"][-1])}
            for c, t in zip(run.chains, p.traces, strict=True)
        ],
        "table": {
            "path": str(run.table.path),
            "fingerprint": run.table.fingerprint,
            "training_rows": run.n_rows,
            "columns": len(run.data.columns),
        },
        "likelihood": run.likelihood,
        "exact_from_cycle": 1,
        "scalars": {key: {name: _finite(v) for name, v in asdict(s).items()} for key, s in p.scalars.items()},
        "n_clusters": {str(k): share for k, share in p.n_clusters.items()},
        "heldout_lpd_averaged": p.heldout_averaged,
        "kept_draws": p.n_kept,
        "warnings": p.warnings,
        "pictures": pictures,
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
            {"cluster": c.number, "rows": c.rows, "share": c.share, "stability": c.stability}
            | {"traits": [_machine_trait(t) for t in c.traits]}
            for c in p.clusters
        ]
        document["columns"] = [
            {"column": c.name, "kind": c.kind, "information_nats": c.information}
            for c in sorted(p.profiles, key=lambda c: -c.information)
        ]
        ordered = p.ordered
        low, high = np.quantile(ordered, (0.05, 0.95), axis=0)
        document["ordered_sizes"] = {"mean": ordered.mean(axis=0).tolist(), "low": low.tolist(), "high": high.tolist()}
    return document


def _machine_trait(t: Trait) -> dict[str, Any]:
    return {"column": t.column, "nats": t.nats, "what": t.what, "text": str(t), **t.numbers}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value
