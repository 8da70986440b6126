"""Beside lace (PyPI: pylace) on the same table: conditional probabilities and missing cells of rows that neither saw.

    python benchmarks/lace_peer.py prepare RUN NEW.csv FOLDER --rows 500      in this package's environment: both tables
    python benchmarks/lace_peer.py lace FOLDER --targets income,sex --seconds 300     in an environment that has pylace
    python benchmarks/lace_peer.py ours RUN FOLDER --targets income,sex

RUN: a run of a table; NEW.csv: rows of the same source. `prepare` writes the run's training rows and new rows as both
programs read them, levels as text that no one takes for numbers. Of each target, given all other cells of its row: mean
log probability of what was there, the share in which the most probable level was there, and seconds.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np

LEVEL = "is "
LEVELS = 200  # of a column that both programs are given: lace has codes of a byte


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    prepared = verbs.add_parser("prepare")
    prepared.add_argument("run")
    prepared.add_argument("new")
    prepared.add_argument("folder", type=Path)
    prepared.add_argument("--rows", type=int, default=500)
    lace_ = verbs.add_parser("lace")
    lace_.add_argument("folder", type=Path)
    lace_.add_argument("--targets", required=True)
    lace_.add_argument("--seconds", type=int, default=300)
    lace_.add_argument("--states", type=int, default=8)
    ours_ = verbs.add_parser("ours")
    ours_.add_argument("run")
    ours_.add_argument("folder", type=Path)
    ours_.add_argument("--targets", required=True)
    ours_.add_argument("--draws", type=int, default=100)
    given = vars(parser.parse_args())
    {"prepare": prepare, "lace": lace, "ours": ours}[given.pop("verb")](**given)


def prepare(run: str, new: str, folder: Path, rows: int) -> None:
    from mpibayes.hpc.query.asking import Asking
    from mpibayes.hpc.query.new_rows import rows_of

    asking = Asking(run, 1)
    folder.mkdir(parents=True, exist_ok=True)
    kept = [c for c in asking.asked.columns if len(c.levels) <= LEVELS]
    train = asking.asked.recorded(asking.asked.training_numbers())
    for name, subset in (("train", train), ("new", rows_of(asking, new).whole(asking).rows.take(slice(0, rows)))):
        columns = []
        for c in kept:
            x = getattr(subset, c.block)[:, c.index]
            if c.levels:
                columns.append([LEVEL + c.levels[v] if v < len(c.levels) else "" for v in x.tolist()])
            else:
                columns.append(["" if np.isnan(v) else f"{v:.10g}" for v in x])
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *(c.name for c in kept)])
            writer.writerows((i, *line) for i, line in enumerate(zip(*columns)))


def score(name: str, p: np.ndarray, at: np.ndarray, seconds: float) -> None:
    """p (n, levels), at (n,): the level that was there, -1 for one that is not known."""
    there = at >= 0
    log = np.log(np.maximum(p[there, at[there]], 1e-300))
    right = p[there].argmax(axis=1) == at[there]
    share = np.bincount(at[there]).max() / there.sum()
    error = log.std(ddof=1) / len(log) ** 0.5
    print(
        f"{name}: mean log p {log.mean():.4f} ± {error:.4f}, right {right.mean():.1%} (always the commonest: "
        f"{share:.1%}), {there.sum()} rows, {seconds:.1f} s"
    )


def lace(folder: Path, targets: str, seconds: int, states: int) -> None:
    import polars
    from lace import Engine

    train, new = (polars.read_csv(folder / f"{n}.csv", infer_schema_length=None) for n in ("train", "new"))
    train = train.with_columns(polars.col("id").cast(polars.String))
    constant = [c for c in train.columns if train[c].drop_nulls().n_unique() < 2]
    train, new = train.drop(constant), new.drop(constant)
    started = time.perf_counter(), time.process_time()
    engine = Engine.from_df(train.rename({"id": "ID"}), n_states=states, rng_seed=1)
    engine.update(100_000, timeout=seconds, quiet=True)
    iterations = len(engine.diagnostics())
    wall, cpu = time.perf_counter() - started[0], time.process_time() - started[1]
    print(f"lace: {states} states, {iterations} iterations, {wall:.0f} s by the clock, {cpu:.0f} s of CPU")
    others = [c for c in new.columns if c != "id"]
    for target in targets.split(","):
        levels = sorted(v for v in train[target].unique().to_list() if v is not None)
        place = {v: i for i, v in enumerate(levels)}
        frame, p, at, started_ = polars.DataFrame({target: levels}), [], [], time.process_time()
        for row in new.iter_rows(named=True):
            known = {c: row[c] for c in others if c != target and row[c] is not None}
            try:
                log = np.array(engine.logp(frame, given=known))
            except Exception:  # a level that lace's codebook does not have
                continue
            p.append(np.exp(log))
            at.append(place.get(row[target], -1))
        score(f"lace, {target}", np.array(p), np.array(at), time.process_time() - started_)


def ours(run: str, folder: Path, targets: str, draws: int) -> None:
    from mpibayes.hpc.query.asking import Asking
    from mpibayes.hpc.query.new_rows import rows_of

    asking = Asking(run, draws)
    plain = folder / "plain.csv"
    with (folder / "new.csv").open() as file:
        lines = list(csv.reader(file))
    with plain.open("w", newline="") as file:
        csv.writer(file).writerows([[cell.removeprefix(LEVEL) for cell in line[1:]] for line in lines])
    new = rows_of(asking, plain).whole(asking)
    for target in targets.split(","):
        started = time.process_time()
        column = asking.conditions.column(target)
        at = getattr(new.rows, column.block)[:, column.index].astype(int)
        known = asking.known(new.rows).without([target])
        p = np.concatenate(asking.of_distributions(target, known, 256, lambda _, d: d.p))
        at = np.where(at < len(column.levels), at, -1)
        score(f"mpibayes, {target}", p, at, time.process_time() - started)


if __name__ == "__main__":
    main()
