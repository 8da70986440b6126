"""A cycle on up to 4,096 ranks, simulated phase by phase from measured compute and published networks.

    python benchmarks/simulate_ranks.py                   tables and pictures (scaling_*.png here), beside real runs
    python benchmarks/simulate_ranks.py --table           tables alone

Compute: the constants of hpc/crosscat/cost/cost_constants.py, with the spread from cycle to cycle that was measured;
each rank draws its own, and every collective waits for the last. Shards are dealt as the program deals them, and in
each cycle another one is collapsed. Messages: the latency-bandwidth model of hpc/crosscat/cost/cost_model.py between
ranks of a node and between nodes.
What is not in it: other jobs on the network, processors that slow each other down by sharing memory bandwidth, the
reading and writing of files.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from machine import kept, markdown

from mpibayes.hpc.crosscat.cost.cost_constants import SECONDS
from mpibayes.hpc.crosscat.cost.cost_model import (
    DIVIDED,
    ONE_NODE,
    Cycle,
    Design,
    Network,
    Problem,
    bottleneck,
    compute_seconds,
    efficiency,
    forecast,
    message_seconds,
)
from mpibayes.hpc.parallel import shards as cut

HERE = Path(__file__).resolve().parent
CYCLES = 200
LEAST_SHOWN = 0.005  # share of a cycle that a phase has in some bar of the picture; the others are drawn together
RANKS = (1, 2, 4, 16, 64, 256, 512, 1000, 2048, 4096)
LEFT_OUT = (2, 512, 2048)  # of the table; the picture has them

# One way between two nodes, small message; and large messages.
NETWORKS = (
    # Microsoft, learn.microsoft.com/azure/virtual-machines/hbv3-performance: 1.2 us, 192 Gb/s one way
    Network("InfiniBand HDR", 1.2e-6, 24e9, ranks_per_node=64),
    # the same, hbv4-performance: below 2 us, 400 Gb/s
    Network("InfiniBand NDR", 2.0e-6, 50e9, ranks_per_node=128),
    # ports of 200 Gb/s, three hops at most: Argonne, "Aurora interconnect"; De Sensi et al. (2020), arXiv:2008.08886,
    # SC20, for its latencies between groups under load; 2 us is taken
    Network("Slingshot", 2.0e-6, 23e9, ranks_per_node=64),
    # 20 to 50 us through the kernel's TCP (as measured in clouds: De Sensi et al. 2022, arXiv:2210.15315, for noise)
    Network("Ethernet 25G, TCP", 30e-6, 2.8e9, ranks_per_node=32),
)

DESIGNS = {
    "root": Design(divided=False, tree=False, changed_rows=False, slim=False),
    "divided": Design(),
}
CENSUS = {"columns": 68, "level_rows": 465, "widest": 19}
PROBLEMS = {
    "50M rows, K = 64": Problem(50_000_000, clusters=64, shards=1000, **CENSUS),
    "50M rows and 10 real columns, K = 64": Problem(50_000_000, clusters=64, shards=1000, reals=10, **CENSUS),
    "1,000M rows, K = 256": Problem(1_000_000_000, clusters=256, shards=20_000, **CENSUS),
    "2.46M rows, K = 64": Problem(2_458_285, clusters=64, shards=49, **CENSUS),
    "200,000 rows, K = 64": Problem(200_000, clusters=64, shards=4, **CENSUS),
}


@dataclass(frozen=True)
class Spread:
    """How compute times vary: standard deviation over mean, from cycle to cycle on one rank."""

    sweep: float = 0.02

    @classmethod
    def measured(cls, cases: list[dict]) -> Spread:
        result = []
        for case in cases:
            if case["ranks"] == 1 and case["rows"] >= 100_000:
                sweep = case["ranks_detail"][0]["phases"]["sweep"]
                if sweep["mean"] > 0:
                    result.append(sweep["sd"] / sweep["mean"])
        return cls(float(np.median(result))) if result else cls()


def simulate(
    problem: Problem, ranks: int, net: Network, design: Design, spread: Spread, cycles: int = CYCLES, cores: int = 0
) -> tuple[Cycle, float]:
    """Mean seconds by phase on the critical path, and the standard deviation of a cycle. cores: if fewer than ranks."""
    p, rng = problem, np.random.default_rng(1)
    slower = max(1.0, ranks / cores) if cores else 1.0
    bounds = cut.bounds(p.rows, p.shards)
    dealt = [cut.of_rank(p.shards, ranks, r) for r in range(ranks)]
    n_shards = np.array([len(d) for d in dealt])
    rows = np.array([bounds[d.stop] - bounds[d.start] if len(d) else 0 for d in dealt], float)
    first = np.array([d.start for d in dealt])
    parts = {
        phase: np.array([_of_rank(phase, p, r, s, design) for r, s in _distinct(rows, n_shards)])[
            _which(rows, n_shards)
        ]
        for phase in ("sweep", "statistics", "order", "other", "reduction", "moves")
    }
    shard_rows = p.rows / p.shards
    excess = compute_seconds("collapsed shard", p, shard_rows, 1)
    messages = message_seconds(p, ranks, net, design)
    alone = forecast(p, min(ranks, p.shards), net, design).seconds  # root's work, or the busiest rank's part of it
    names = ["sweep", "collapsed shard", "statistics", "order", "other", "waiting", *DIVIDED, "reduction", "broadcast"]
    names += ["crowd", "news", "moves"]
    total = dict.fromkeys(names, 0.0)
    lengths = []
    for _ in range(cycles):
        length = 0.0

        def spend(phase, seconds):
            nonlocal length
            total[phase] += seconds
            length += seconds

        for phase in DIVIDED:  # one after another; everyone waits
            spend(phase, slower * alone[phase])
        spend("crowd", slower * alone.get("crowd", 0.0))
        spend("broadcast", messages.get("broadcast", 0.0))
        noise = np.abs(1 + spread.sweep * rng.standard_normal(ranks))
        collapsed = int(np.searchsorted(first, rng.integers(p.shards), side="right")) - 1
        mine = (parts["sweep"] + parts["order"] + parts["other"]) * noise
        mine[collapsed] += excess
        slowest = int(mine.argmax())
        quiet = parts["sweep"].mean()
        spend("sweep", slower * quiet)
        spend("order", slower * float(parts["order"][slowest]))
        spend("other", slower * float(parts["other"][slowest]))
        spend("collapsed shard", slower * excess if slowest == collapsed else 0.0)
        known = quiet + parts["order"][slowest] + parts["other"][slowest] + excess * (slowest == collapsed)
        spend("waiting", slower * float(mine[slowest] - known))  # uneven numbers of shards, and the spread
        spend("news", messages.get("news", 0.0))
        spend("statistics", slower * float(parts["statistics"].max()))
        spend("reduction", slower * float(parts["reduction"].max()) + messages.get("reduction", 0.0))
        spend("moves", slower * float(parts["moves"].max()) / p.moves_every if p.moves_every else 0.0)
        lengths.append(length)
    return Cycle({name: s / cycles for name, s in total.items()}), float(np.std(lengths))


def _distinct(rows, n_shards):
    return sorted(set(zip(rows.tolist(), n_shards.tolist())))


def _which(rows, n_shards):
    place = {pair: i for i, pair in enumerate(_distinct(rows, n_shards))}
    return np.array([place[pair] for pair in zip(rows.tolist(), n_shards.tolist())])


def _of_rank(phase, problem, rows, shards, design):
    """The slowest rank's; a rank without a shard still makes the calls."""
    seconds = compute_seconds(phase, problem, rows, shards, design)
    return seconds if rows else SECONDS[phase].get("cycle", 0.0)


def study(problem: Problem, net: Network, design: Design, spread: Spread) -> list[dict]:
    one, _ = simulate(problem, 1, net, design, spread)
    lines = []
    for ranks in RANKS:
        if ranks > 2 * problem.shards and ranks > 16:
            continue
        cycle, sd = simulate(problem, ranks, net, design, spread)
        lines.append(
            {
                "ranks": ranks, "seconds": cycle.seconds, "cycle_s": cycle.total, "sd": sd,
                "efficiency": efficiency(one, cycle, ranks), "bottleneck": bottleneck(one, cycle, ranks),
            }
        )  # fmt: skip
    return lines


def report(spread: Spread, moves_every: int) -> str:
    """A table of all problems on the first network, with both designs' efficiencies, and one of networks."""
    cells: dict[int, dict[str, str]] = {}  # by ranks, by problem
    for title, problem in PROBLEMS.items():
        problem = replace(problem, moves_every=moves_every)
        lines = {name: study(problem, NETWORKS[0], design, spread) for name, design in DESIGNS.items()}
        for old, new in zip(lines["root"], lines["divided"]):
            text = f"{new['cycle_s'] * 1e3:,.1f} ({new['efficiency']:.2f}; {old['efficiency']:.2f})"
            cells.setdefault(new["ranks"], {})[title] = text
    heads = ["ranks", *(f"{title}, {problem.shards:,} shards" for title, problem in PROBLEMS.items())]
    shown = [ranks for ranks in sorted(cells) if ranks not in LEFT_OUT]
    rows = [[f"{ranks:,}", *(cells[ranks].get(title, "") for title in PROBLEMS)] for ranks in shown]
    text = [f"Milliseconds a cycle (efficiency; with all on root), {NETWORKS[0].name}:\n", markdown(heads, rows) + "\n"]
    text.append("**Networks**: 50M rows, K = 64, 1,000 ranks; divided\n")
    rows = []
    for net in NETWORKS:
        problem = replace(PROBLEMS["50M rows, K = 64"], moves_every=moves_every)
        line = next(line for line in study(problem, net, Design(), spread) if line["ranks"] == 1000)
        talk = sum(message_seconds(problem, 1000, net).values())
        rows.append([net.name, *_cells(line), f"{talk * 1e3:.2f}"])
    text.append(markdown(["network", "ms a cycle", "efficiency", "limited by", "ms of messages"], rows) + "\n")
    return "\n".join(text)


def collapsed_table(spread: Spread) -> str:
    """What the collapsed shard costs 1,000 ranks: one, two and four shards each, and columns of other kinds."""
    kinds = {"68 categorical": {}, "and 10 real": {"reals": 10}, "and 10 of counts": {"counts": 10}}
    rows = []
    for columns, each in zip([*["68 categorical"] * 3, "and 10 real", "and 10 of counts"], (1, 2, 4, 1, 1)):
        problem = replace(PROBLEMS["50M rows, K = 64"], shards=1000 * each, moves_every=0, **kinds[columns])
        one, _ = simulate(problem, 1, NETWORKS[0], Design(), spread)
        many, _ = simulate(problem, 1000, NETWORKS[0], Design(), spread)
        none = efficiency(one, Cycle(many.seconds | {"collapsed shard": 0.0}), 1000)
        size = 50_000_000 / problem.shards
        plain, more = (compute_seconds(phase, problem, size, 1) for phase in ("sweep", "collapsed shard"))
        rows.append(
            [columns, each, f"{plain * 1e3:.1f}", f"{(plain + more) * 1e3:.1f}", f"{many.total * 1e3:.1f}",
             f"{efficiency(one, many, 1000):.2f}", f"{none:.2f}"]
        )  # fmt: skip
    head = ["columns", "shards a rank", "ms a shard's sweep", "of the collapsed one", "ms a cycle", "efficiency"]
    return markdown([*head, "were it as quick as the others"], rows)


def _cells(line: dict) -> list[str]:
    return [f"{line['cycle_s'] * 1e3:,.1f}", f"{line['efficiency']:.2f}", line["bottleneck"]]


def against_real(cases: list[dict], spread: Spread, cores: int) -> str:
    """Simulated beside measured cycles, for the runs on 1, 2 and (more than cores) 4 ranks."""
    from scaling import busy_seconds, problem_of

    rows = []
    for figure, ranks in (("strong", 1), ("strong", 2), ("weak", 1), ("weak", 2), ("oversubscribed", 4)):
        result = [c for c in cases if c["figure"] == figure and c["ranks"] == ranks]
        if not result:
            continue
        problem = replace(problem_of(result[0]), widest=19, moves_every=0)
        cycle, _ = simulate(problem, ranks, ONE_NODE, Design(), spread, cores=cores)
        real = float(np.median([c["cycle_s"] for c in result]))
        best = min(c["cycle_min_s"] for c in result)
        busy = min(busy_seconds(c) for c in result)
        part = sum(s for name, s in cycle.seconds.items() if name not in ("waiting", "news", "broadcast"))
        part /= max(1.0, ranks / cores)
        rows.append(
            [figure, f"{problem.rows:,}", ranks, f"{real * 1e3:.1f} ({best * 1e3:.1f})", f"{cycle.total * 1e3:.1f}",
             f"{cycle.total / real - 1:+.0%}", f"{busy * 1e3:.1f}", f"{part * 1e3:.1f}", f"{part / busy - 1:+.0%}"]
        )  # fmt: skip
    head = ["run", "rows", "ranks", "measured, ms: median (quickest)", "simulated", "off by"]
    return markdown([*head, "processor ms of the busiest rank", "simulated", "off by"], rows)


def pictures(spread: Spread, moves_every: int) -> list[Path]:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    net, made = NETWORKS[0], []
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), sharey=True)
    for axis, (name, design) in zip(axes, DESIGNS.items()):
        for title, problem in PROBLEMS.items():
            lines = study(replace(problem, moves_every=moves_every), net, design, spread)
            axis.semilogx([x["ranks"] for x in lines], [x["efficiency"] for x in lines], "o-", label=title, base=2)
        axis.set(title={"root": "draws and merges on root", "divided": "divided over ranks"}[name], xlabel="ranks")
        axis.grid(alpha=0.3)
    axes[0].set(ylabel="efficiency against one rank", ylim=(0, 1.05))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncols=3, fontsize=8)
    figure.suptitle(f"Simulated: {net.name}, {net.ranks_per_node} ranks a node", fontsize=10)
    made.append(HERE / "scaling_ranks.png")
    figure.tight_layout(rect=(0, 0.11, 1, 1))
    figure.savefig(made[-1], dpi=110)
    titles = ("50M rows, K = 64", "50M rows and 10 real columns, K = 64")
    bars = {}  # seconds by phase on 1,000 ranks, by (title, design)
    for title in titles:
        for name, design in DESIGNS.items():
            lines = study(replace(PROBLEMS[title], moves_every=moves_every), net, design, spread)
            bars[title, name] = next(line["seconds"] for line in lines if line["ranks"] == 1000)
    phases = [p for p in bars[titles[0], "root"] if any(b[p] > LEAST_SHOWN * sum(b.values()) for b in bars.values())]
    figure, axes = plt.subplots(1, 2, figsize=(10, 4))
    for axis, title in zip(axes, titles):
        for x, name in enumerate(DESIGNS):
            seconds = bars[title, name]
            heights = [seconds[p] for p in phases] + [sum(s for p, s in seconds.items() if p not in phases)]
            bottom = 0.0
            for i, (phase, height) in enumerate(zip([*phases, "the rest"], heights)):
                axis.bar(x, height * 1e3, 0.6, bottom, color=plt.cm.tab20(i), label=phase if x == 0 else None)
                bottom += height * 1e3
        axis.set(title=f"{title}, 1,000 ranks", xticks=(0, 1), ylabel="ms a cycle")
        axis.title.set_fontsize(10)
        axis.margins(y=0.04)
        axis.set_xticklabels(["on root", "divided"])
    words, names = axes[1].get_legend_handles_labels()
    figure.legend(words[::-1], names[::-1], loc="center right", fontsize=8)  # in the order of the bars, from above
    made.append(HERE / "scaling_phases.png")
    figure.tight_layout(rect=(0, 0, 0.85, 1))
    figure.savefig(made[-1], dpi=110)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="no pictures")
    parser.add_argument("--moves-every", type=int, default=0, help="cycles between rounds of moves")
    args = parser.parse_args()
    result = kept().get("scaling", {"cases": [], "machine": {"cores": 0}})
    spread = Spread.measured(result["cases"])
    print(f"spread of a sweep from cycle to cycle: {spread.sweep:.1%}\n")
    print(against_real(result["cases"], spread, result["machine"]["cores"]), "\n")
    print(report(spread, args.moves_every))
    print(collapsed_table(spread))
    if not args.table:
        for path in pictures(spread, args.moves_every):
            print(path)


if __name__ == "__main__":
    main()
