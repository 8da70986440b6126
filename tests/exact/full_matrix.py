"""The long exactness check: every case, number of shards and opening, on several numbers of ranks, with a report.

    python -m tests.exact.full_matrix                      1, 2, 3 and 4 ranks (starts mpirun itself); about an hour
    python -m tests.exact.full_matrix --ranks 1 --cycles 100000
    python -m tests.exact.full_matrix --clusters           E[K] without likelihood at N = 60 and 2000 (mpirun or not)
    python -m tests.exact.full_matrix --reference          right and wrong cycles on simulated shards, TV table
    python -m tests.exact.full_matrix --power              rejections by the CI tests of wrong versions of the program
    python -m tests.exact.full_matrix --power-of-moves     the same for the split and merge moves, and exact errors
    python -m tests.exact.full_matrix --matrices           posterior times transition matrix of the moves, all rows

--split-merge: a round of split and merge moves after every cycle of the matrix and of --clusters.

One long chain each, started at an exact draw.  tau: the largest integrated autocorrelation time among the summaries
(P(K = k), pairs together); floor: the total variation that cycles / tau independent draws would have on average;
chi-square: on the chain thinned to one draw in 2 tau; z: the worst summary by batch means (5 to 40 batches of 10 tau or
more; Student t), p with Bonferroni.
bits: sha256 over the labels of the first cycles, equal on every number of ranks.  The exit code is 1 if any p is below
1e-5 or any digest differs.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from scipy import stats

from mpibayes.hpc.parallel.comm import serial
from tests.exact import production, wrong_cycles, wrong_moves
from tests.exact.compare import (
    autocorrelation_time,
    batch_means_z,
    chi_square,
    judge_history,
    total_variation,
    variation_floor,
)
from tests.exact.enumerate import CASES, Posterior, draw_prior_partition, expected_clusters

LEVEL = 1e-5
HEADER = "| case | shards | opening | ranks | cycles | tau | TV | floor | chi-square p | worst summary | z | p | bits |"


def configurations():
    for name, case in CASES.items():
        for s in range(1, case.n_rows + 1):
            for opening in ("one", "all") if case.discount == 0 and s > 1 else ("one",):
                yield name, s, opening


def measure(index: np.ndarray, posterior: Posterior) -> dict:
    """Figures of one long chain of partition numbers."""
    names, table = posterior.summaries()
    expected = table @ posterior.p
    # An event seen rarely in a chain of this length has no normal tail; a batch must hold many autocorrelation
    # times.
    least = np.clip(len(index) / 20, 20, 200)
    usable = [j for j in range(len(names)) if len(index) * min(expected[j], 1 - expected[j]) >= least]
    series = table[:, index]
    tau = max(autocorrelation_time(series[j]) for j in usable)
    batches = int(np.clip(len(index) / (10 * tau), 5, 40))
    z = {names[j]: batch_means_z(series[j], expected[j], batches)[0] for j in usable}
    worst = max(z, key=lambda name: abs(z[name]))
    return {
        "tau": tau,
        "tv": total_variation(np.bincount(index, minlength=len(posterior.p)), posterior.p),
        "floor": variation_floor(posterior.p, len(index) / tau),
        "p_chi": chi_square(index[:: max(1, int(np.ceil(2 * tau)))], posterior.p),
        "worst": worst,
        "z": z[worst],
        "p_z": float(min(1.0, 2 * stats.t.sf(abs(z[worst]), batches - 1) * len(usable))),
    }


def posterior_rows(comm, cycles: int, digest_cycles: int, seed: int, split_merge: int):
    """Yield one result per configuration, on root."""
    for name, n_shards, opening in configurations():
        posterior = Posterior(CASES[name])
        mixture = production.sampler(comm, CASES[name], n_shards, seed, opening, split_merge=split_merge)
        production.place(mixture, posterior.draw(np.random.Generator(np.random.Philox(seed)), 1)[0], 0)
        digest, labels = hashlib.sha256(), []
        for t in range(cycles):
            mixture.cycle()
            z = mixture.view.labels()
            if comm.rank == 0:
                labels.append(z)
                if t < digest_cycles:
                    digest.update(z.tobytes())
        if comm.rank == 0:
            row = {"case": name, "shards": n_shards, "opening": opening, "ranks": comm.size, "cycles": cycles}
            yield row | measure(posterior.index(np.array(labels)), posterior) | {"bits": digest.hexdigest()[:12]}


def line(r: dict) -> str:
    return (
        f"| {r['case']} | {r['shards']} | {r['opening']} | {r['ranks']} | {r['cycles']} | {r['tau']:.1f} | "
        f"{r['tv']:.4f} | {r['floor']:.4f} | {r['p_chi']:.3g} | {r['worst']} | {r['z']:+.2f} | {r['p_z']:.3g} | "
        f"{r['bits']} |"
    )


def worker(given) -> int:
    """On every rank: the matrix on this world; root writes JSON lines to given.json."""
    from mpibayes.hpc.parallel.comm import world

    comm = world()
    cycles = given.cycles if comm.size == 1 else given.cycles_on_ranks
    with open(given.json, "w") if comm.rank == 0 else open("/dev/null", "w") as stream:
        for row in posterior_rows(comm, cycles, given.cycles_on_ranks, given.seed, int(given.split_merge)):
            print(line(row), flush=True)
            stream.write(json.dumps(row) + "\n")
    return 0


def matrix(given) -> int:
    """Start one world after another and compare."""
    given.out.mkdir(parents=True, exist_ok=True)
    launcher = shutil.which("mpirun", path=str(Path(sys.executable).parent)) or shutil.which("mpirun") or "mpirun"
    rows = []
    print(HEADER + "\n|" + " --- |" * 13)
    for n in given.ranks:
        path = given.out / f"ranks-{n}.jsonl"
        start = [launcher, "-n", str(n)] if n > 1 else []
        words = ["--worker", "--json", str(path), "--seed", str(given.seed)]
        words += ["--cycles", str(given.cycles), "--cycles-on-ranks", str(given.cycles_on_ranks)]
        words += ["--split-merge"] * given.split_merge
        subprocess.run([*start, sys.executable, "-m", "tests.exact.full_matrix", *words], check=True)
        rows += [json.loads(text) for text in path.read_text().splitlines()]
    bits: dict = {}
    for r in rows:
        bits.setdefault((r["case"], r["shards"], r["opening"]), set()).add(r["bits"])
    different = [key for key, result in bits.items() if len(result) > 1]
    small = [r for r in rows if min(r["p_chi"], r["p_z"]) < LEVEL]
    p = np.array([q for r in rows for q in (r["p_chi"], r["p_z"])])
    summary = (
        f"{len(rows)} chains, {len(small)} with a p-value below {LEVEL:g} (least {p.min():.2g}); "
        f"median TV / floor {np.median([r['tv'] / r['floor'] for r in rows]):.2f}; "
        f"{len(different)} of {len(bits)} configurations with different bits on different numbers of ranks"
    )
    print("\n" + summary)
    report = "\n".join([HEADER, "|" + " --- |" * 13, *map(line, rows), "", summary, ""])
    (given.out / "full_matrix.md").write_text(report)
    return int(bool(small or different))


def clusters(given) -> int:
    """Compare E[K] without likelihood: a pilot chain measures tau, the run has 1,000 tau (N = 60) or 200 tau (N =
    2000)."""
    from mpibayes.hpc.parallel.comm import world

    comm, worst, longest = world(), 0.0, 5 * given.cycles
    if comm.rank == 0:
        print("| N | alpha | d | shards | opening | ranks | tau | cycles | E[K] | +- | exact | z |\n|" + " --- |" * 12)
    for n_rows, taus in ((60, 1000), (2000, 200)):
        for alpha, d, opening in ((2.0, 0.0, "one"), (2.0, 0.0, "all"), (1.0, 0.3, "one")):
            for n_shards in (1, 4, 16):
                case = production.prior_case(n_rows, alpha, d)
                mixture = production.sampler(
                    comm, case, n_shards, given.seed, opening, likelihood=False, split_merge=int(given.split_merge)
                )
                generator = np.random.Generator(np.random.Philox(given.seed))
                production.place(mixture, draw_prior_partition(n_rows, alpha, d, generator), 0)
                pilot, tau = [], np.inf
                while len(pilot) < 50 * tau and len(pilot) < longest:
                    pilot += [mixture.cycle().n_clusters for _ in range(1500)]
                    tau = comm.share(autocorrelation_time(np.array(pilot)) if comm.rank == 0 else None)
                cycles = min(longest, max(2000, int(taus * tau)))
                k = np.array([mixture.cycle().n_clusters for _ in range(cycles)])
                if comm.rank == 0:
                    exact = expected_clusters(n_rows, alpha, d)
                    # 20 batches, each of several tau, unless the run was cut short: then z is printed but not judged.
                    z, error = batch_means_z(k, exact, 20)
                    worst = max(worst, abs(z) if cycles >= taus * tau else 0.0)
                    print(
                        f"| {n_rows} | {alpha} | {d} | {n_shards} | {opening} | {comm.size} | {tau:.1f} | {cycles} | "
                        f"{k.mean():.3f} | {error:.3f} | {exact:.3f} | {z:+.2f} |",
                        flush=True,
                    )
    return int(2 * stats.t.sf(worst, 19) * 18 < LEVEL)


def reference(given) -> int:
    """Print the total variation of right and wrong cycles on simulated shards."""
    from tests.exact.reference import ALL, EXACT, TWINS, Reference, Uncollapsed, contiguous, history

    generator = np.random.Generator(np.random.Philox(given.seed))
    chains, burn, cycles = 6000, 20, 60
    schemes = {"one shard collapsed": EXACT, "all shards open": ALL, **TWINS}
    settings = [(name, s) for name in ("cat6", "cat6py", "nix5") for s in (1, 2, 3)]
    print(f"total variation after {burn} cycles of 2 sweeps, {chains} chains x {cycles - burn} cycles\n")
    print("| scheme | " + " | ".join(f"{name} S={s}" for name, s in settings) + " |")
    print("|" + " --- |" * (len(settings) + 1))
    for label, scheme in schemes.items():
        cells = []
        for name, s in settings:
            case = CASES[name]
            if scheme.opening == "all" and case.discount:
                cells.append("-")
                continue
            posterior = Posterior(case)
            chain = Reference(case, contiguous(case.n_rows, s), scheme)
            index = history(chain, posterior, chains, cycles, generator)[:, burn:]
            cells.append(f"{total_variation(np.bincount(index.ravel(), minlength=len(posterior.p)), posterior.p):.3f}")
        print(f"| {label} | " + " | ".join(cells) + " |", flush=True)
    for atoms in (1, 5):
        cells = []
        for name, s in settings:
            posterior = Posterior(CASES[name])
            if s > 1 or CASES[name].discount:
                cells.append("-")
                continue
            index = history(Uncollapsed(CASES[name], atoms), posterior, chains, cycles, generator)[:, burn:]
            cells.append(f"{total_variation(np.bincount(index.ravel(), minlength=len(posterior.p)), posterior.p):.3f}")
        print(f"| uncollapsed, {atoms} atom(s) | " + " | ".join(cells) + " |", flush=True)
    return 0


def power(given) -> int:
    """Count rejections by the CI tests of the right program and of each wrong one, over given.repeats seeds."""
    from tests.exact.test_mixture_exact import CYCLES, PROCESS
    from tests.exact.test_mixture_exact import LEVEL as level

    designs = [
        ("no anchors", wrong_cycles.no_anchors, "count5", 2, 200),
        ("no anchors", wrong_cycles.no_anchors, "cat6py", 6, 80),
        ("tail over N", lambda: wrong_cycles.tail_over_rows(6), "cat6", 2, 100),
        ("tail over N", lambda: wrong_cycles.tail_over_rows(6), "miss6", 3, 100),
        ("nothing private", wrong_cycles.nothing_private, "count5", 2, 1300),
    ]
    alone = serial()
    print("| rule taken out | case | shards | replicates x cycles | wrong rejected | right rejected | median p |")
    print("|" + " --- |" * 7)

    def row(label, where, n_shards, n, run, wrong):
        bad, good = [], []
        for i in range(given.repeats):
            with wrong():
                bad.append(run(given.seed + 100 * i))
            good.append(run(given.seed + 100 * i))
        rejected = [sum(p < level for p in each) for each in (bad, good)]
        print(
            f"| {label} | {where} | {n_shards} | {n} x {CYCLES} | {rejected[0]} of {given.repeats} | "
            f"{rejected[1]} of {given.repeats} | {np.median(bad):.1e} |",
            flush=True,
        )

    for label, wrong, name, n_shards, n in designs:
        posterior = Posterior(CASES[name])

        def run(seed, name=name, n_shards=n_shards, n=n, posterior=posterior):
            mixture = production.sampler(alone, CASES[name], n_shards, seed)
            return judge_history(production.partition_history(mixture, posterior, n, CYCLES, seed + 1), posterior).p

        row(label, name, n_shards, n, run, wrong)

    def joint(seed):
        verdicts = PROCESS.judge(PROCESS.history(PROCESS.sampler(alone, 2, seed), 700, CYCLES, seed + 1), level)
        return min(min(1.0, v.p * len(verdicts)) for v in verdicts)

    row("hyperparameters after w", "miss6, (alpha, d) grid", 2, 700, joint, wrong_cycles.hypers_after_weights)
    return 0


def power_of_moves(given) -> int:
    """Count rejections by the CI tests of wrong split and merge moves, and compute the error of one move."""
    from tests.exact import transitions
    from tests.exact.test_split_merge import CYCLES, FEW, FOUR_ROWS, LEVEL, OFTEN, PARTS, WRONG

    print("| rule taken out | case | moves | error of a move | replicates x rounds | wrong rejected | right rejected |")
    print("|" + " --- |" * 7)
    rare = [
        (wrong_moves.clusters_of_the_start, "cat6py", "guided", 0),
        (wrong_moves.order_of_labels, "cat6", "guided", 0),
        (wrong_moves.odds_from_all_rows, "cat6", "informed, two recalled", 0),
    ]
    for wrong, name, part, n in WRONG + rare:
        posterior, p = Posterior(CASES[name]), ([], [])
        for i in range(given.repeats if n else 0):
            for result, context in zip(p, (wrong, contextlib.nullcontext)):
                with PARTS[part](), context():
                    mixture = production.sampler(
                        serial(),
                        CASES[name],
                        1,
                        given.seed + 100 * i,
                        kind=production.MovesAlone,
                        split_merge=1,
                    )
                    history = production.partition_history(mixture, posterior, n, CYCLES, given.seed + 100 * i + 1)
                result.append(judge_history(history, posterior).p)
        # with the program's own constants, but for launches without scans and partial recall
        with (
            wrong_moves.constants(**({"SCANS": 0} if "no scans" in part else FEW if "recalled" in part else {})),
            wrong(),
        ):
            moves = transitions.Moves(CASES[name], 1, FOUR_ROWS[name])
            error = moves.error(moves.matrix(transitions.informed if "informed" in part else transitions.guided))
        rejected = [f"{sum(q < LEVEL for q in result)} of {len(result)}" if n else "-" for result in p]
        size = f"{n} x {CYCLES}" if n else "-"
        print(
            f"| {wrong.__name__} | {name} | {part} | {error:.1e} | {size} | {rejected[0]} | {rejected[1]} |", flush=True
        )
    print("informed: as in the tests,", ", ".join(f"{k} {v}" for k, v in OFTEN.items()))
    return 0


def matrices(given) -> int:
    """Print the error of one move, on the whole tables of five and six rows."""
    from tests.exact import transitions

    worst = 0.0
    print("| case | shards | cycle | guided | informed |\n|" + " --- |" * 5)
    for cycle, name in enumerate(CASES, start=1):
        moves = transitions.Moves(CASES[name], cycle % 3 + 1, (), cycle, given.seed)
        errors = [moves.error(moves.matrix(move)) for move in (transitions.guided, transitions.informed)]
        worst = max(worst, *errors)
        print(f"| {name} | {cycle % 3 + 1} | {cycle} | {errors[0]:.1e} | {errors[1]:.1e} |", flush=True)
    return int(worst > 1e-12)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--cycles", type=int, default=20_000, help="cycles of each chain on one rank")
    parser.add_argument("--cycles-on-ranks", type=int, default=1_000, help="cycles of each chain on more ranks")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--repeats", type=int, default=20, help="seeds of --power")
    parser.add_argument("--out", type=Path, default=Path("full_matrix"), help="folder for the report")
    parser.add_argument("--clusters", action="store_true")
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--power", action="store_true")
    parser.add_argument("--power-of-moves", action="store_true")
    parser.add_argument("--matrices", action="store_true")
    parser.add_argument("--split-merge", action="store_true", help="a round of split and merge moves in every cycle")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", help=argparse.SUPPRESS)
    given = parser.parse_args()
    for action in (worker, clusters, reference, power, power_of_moves, matrices):
        if getattr(given, action.__name__):
            return action(given)
    return matrix(given)


if __name__ == "__main__":
    sys.exit(main())
