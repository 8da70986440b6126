"""The whole way on whole tables: import, check, run on two ranks, report. Needs their folder, MPIBAYES_DATA."""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path

import pytest

from tests.conftest import FOR_RANKS, launch
from tests.run.conftest import mpibayes

EXAMPLE = Path(__file__).parents[2] / "examples" / "census_income"
PEAK = """
import os, pathlib, resource, sys
from mpibayes.hpc.run.loop import main
code = main("run.toml", "out")
pathlib.Path(f"peak-{os.getpid()}.kib").write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
sys.exit(code)
"""


def import_census(folder: Path, place: Path):
    with gzip.open(EXAMPLE / "census_income.csv.gz", "rt") as sample:
        names = sample.readline().strip()
    source = folder / "census_income_kdd" / "census-income.data.90pct.xz"
    return mpibayes(place, "import", source, "table.h5", "--names", names, "--schema", EXAMPLE / "schema.toml")


def import_kdd(folder: Path, place: Path):
    source = folder / "kddcup99" / "kddcup.data_10_percent.90pct.xz"
    return mpibayes(place, "import", source, "table.h5", "--drop", "column_42")


@pytest.mark.data
@pytest.mark.thorough
@pytest.mark.parametrize(
    "load, rows, n_rows, few",
    [
        pytest.param(import_census, 179_571, 161_614, 30, id="census"),  # clusters and memory grow until then
        pytest.param(import_kdd, 444_619, 400_157, 5, id="kdd"),
    ],
)
def test_import_check_run_report(data_folder, tmp_path, load, rows, n_rows, few, pictures):
    done = load(data_folder, tmp_path)
    assert done.returncode == 0 and f"{rows:,} rows" in done.stdout, done.stderr
    (tmp_path / "run.toml").write_text(
        f'[data]\ntable = "table.h5"\nheldout = 0.1\n[model]\nfamily = "mixture"\n'
        f"[run]\nseed = 1\ncycles = {few}\n[output]\nlabels = 5\n"
    )
    check = mpibayes(tmp_path, "check", "run.toml", "--ranks", "2")
    assert check.returncode == 0, check.stderr
    forecast = float(re.search(r"memory:\s+([\d,]+) MiB", check.stdout)[1].replace(",", ""))

    (tmp_path / "peak.py").write_text(PEAK)
    done = launch(["mpirun", "-n", 2, sys.executable, "peak.py"], timeout=400, cwd=tmp_path, env=FOR_RANKS)
    assert done.returncode == 0, done.stderr
    status = json.loads((tmp_path / "out" / "status.json").read_text())
    assert status["state"] == "finished" and status["n_clusters"] > 20
    peaks = [int(path.read_text()) for path in tmp_path.glob("peak-*.kib")]
    assert len(peaks) == 2
    measured = max(peaks) / 1024
    assert measured == pytest.approx(forecast, rel=0.2)

    done = mpibayes(tmp_path, "report", "out", timeout=300)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "out" / "report" / "summary.json").read_text())
    assert f"{n_rows:,}" in done.stdout and summary
    for picture in ("trace", "cluster_sizes", "profiles", "heldout"):
        assert (tmp_path / "out" / "report" / f"{picture}.png").stat().st_size > 10_000
