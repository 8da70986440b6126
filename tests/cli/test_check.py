"""`mpibayes check`: finds what is wrong, tells what a run takes, and its memory model holds on a real process."""

import subprocess
import sys

import numpy as np
import pytest

from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.cli import main
from mpibayes.hpc.cli.check import check
from mpibayes.hpc.crosscat import check as mixture_check
from mpibayes.hpc.crosscat.cost.rehearsal import SAMPLE_ROWS, sample_rows
from mpibayes.hpc.crosscat.cost.speed import Speed, Timing
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.outcome.law import Law
from mpibayes.hpc.outcome.likelihoods import LIKELIHOODS
from mpibayes.hpc.parallel.shards import busiest
from mpibayes.hpc.registry import check_of
from mpibayes.io.table import table_from_arrays, write_table


def make_table(path, n, n_categorical, n_real, seed=0):
    rng = np.random.default_rng(seed)
    columns = [(f"c{i}", "categorical", rng.integers(-1, 4, n), list("abcd")) for i in range(n_categorical)]
    columns += [(f"x{i}", "real", rng.normal(size=n), None) for i in range(n_real)]
    columns += [("count", "count", rng.poisson(3.0, n).astype(float), None)]
    return write_table(path, *table_from_arrays(columns))


@pytest.fixture
def case(tmp_path):
    make_table(tmp_path / "t.h5", 2000, 3, 2)
    (tmp_path / "run.toml").write_text('[data]\ntable = "t.h5"\n[model]\nfamily = "mixture"\n[run]\nshards = 4\n')
    return tmp_path / "run.toml"


def test_what_it_says(case, capsys):
    assert main(["check", str(case), "--ranks", "12", "--set", "data.heldout=0.1", "--set", "run.chains=2"]) == 0
    text = capsys.readouterr().out
    for words in (
        "2,000 rows", "3 categorical, 2 real, 1 count", "1,800 trained on, 200 held out",
        "4 of about 450 rows", "12 ranks, but 4 shards and 2 chains: 4 ranks have nothing to do",
        "2 chains side by side, each on 6 ranks of 12", "exact: every cycle leaves the posterior invariant",
        "busiest of 12 ranks", "s a cycle on 4 ranks", "ranks:          1: ",
        "seconds a cycle (efficiency)", "messages of", "x 2 chains", "two checkpoints",
    ):  # fmt: skip
        assert words in text, (words, text)
    assert list(case.parent.iterdir()) and not (case.parent / "runs").exists()


@pytest.mark.thorough
def test_stray_rows_are_counted_with_several_shards_alone(case, capsys):
    for change, megabytes in (
        ("sampler.stray_rows=2000", "strays 0.2"), ("sampler.stray_rows=9999999", "strays 0.2"),
        ("sampler.stray_rows=0", ""), ("run.shards=1", ""),
    ):  # fmt: skip
        assert main(["check", str(case), "--set", change]) == 0
        text = capsys.readouterr().out
        assert megabytes in text and ("strays" in text) == bool(megabytes), (change, text)


def test_chains_side_by_side_take_their_time_once_and_hold_the_rows_each(case):
    """Four chains: on four ranks each has one, on one rank it has four; a rank then holds all rows, not a quarter."""
    from mpibayes.hpc.run.examine import MPI_BYTES, examine

    result = examine(case, ["run.chains=4", "data.heldout=none"])
    memory = check_of(result.config.kind).memory
    assert result.schedule(4).turns == 1 and result.schedule(1).turns == 4
    alone, beside = memory(result, 1), memory(result, 4)
    assert beside["rows"] == alone["rows"] and beside["process"] == alone["process"] + MPI_BYTES
    assert memory(examine(case, ["run.chains=4", "run.groups=1"]), 4)["rows"] < 0.3 * alone["rows"]


def test_how_the_chain_starts(case, capsys):
    assert main(["check", str(case), "--set", "run.chains=2"]) == 0
    text = capsys.readouterr().out
    for words in (
        'strategy = "auto": all rows in 128 random clusters; split and merge moves in every cycle until 100, then',
        "a trace of 0.1 MiB", "subsample",
        "draws count from cycle 101 of 1000; it ends sooner once it has settled",
    ):  # fmt: skip
        assert (words in text) == (words != "subsample"), (words, text)
    anneal = ("--set", "sampler.strategy=anneal", "--set", "sampler.split_merge=0", "--set", "run.cycles=100")
    assert main(["check", str(case), *anneal]) == 0
    text = capsys.readouterr().out
    for words in (
        'strategy = "anneal": 500 of 2,000 rows added one by one; split and merge moves never',
        "rows are added until cycle 24 (linear in 10 passes)",
        "draws count from cycle 63 of 100; labels are kept every 10 cycles", "subsample 0.0", "8 kept draws",
    ):  # fmt: skip
        assert words in text, (words, text)
    assert main(["check", str(case), *anneal, "--set", "run.cycles=20"]) == 2
    assert "2,000 rows are added until cycle 24; expected more than 24, 48 would do" in capsys.readouterr().err


@pytest.mark.thorough
def test_what_it_says_of_views(case, capsys):
    views = ("--set", "model.family=crosscat", "--set", "sampler.init_views=3", "--set", "sampler.view_moves=0")
    assert main(["check", str(case), *views, "--set", "run.chains=2", "--set", "sampler.init_rows=500"]) == 0
    text = capsys.readouterr().out
    for words in (
        "exact: every cycle leaves the posterior of the views and of the rows' clusters in each invariant",
        "views from the best of 3 searches on 500 rows, each starting from at most 3 views; in each view",
        "found on 500 rows from at most 3 initial views, to measure time; a chain may find others",
        "this includes moves of columns", ", columns ", ", pilot ",
    ):  # fmt: skip
        assert words in text, (words, text)


@pytest.mark.thorough
def test_what_it_says_of_an_outcome(case, capsys):
    of = [f"outcome.{key}" for key in ("column=x0", "covariates=['count']", "slopes=['x1']", "likelihood=normal")]
    more = [word for each in [*of, "columns.count.use=false"] for word in ("--set", each)]
    assert main(["check", str(case), "--ranks", "2", *more]) == 0
    text = capsys.readouterr().out
    for words in (
        "outcome:        x0 (normal) by clusters, slopes of x1, covariates count; labels follow it from cycle 101 on",
        "warning: count is no column of the mixture", ", outcome 0.1 (for", "draws of the outcome's coefficients, ",
    ):  # fmt: skip
        assert words in text, (words, text)
    assert main(["check", str(case)]) == 0
    assert "outcome" not in capsys.readouterr().out


def test_the_prior_alone(case, capsys):
    assert main(["check", str(case), "--set", "model.likelihood=false"]) == 0
    assert "leaves the prior on partitions" in capsys.readouterr().out


def test_what_is_wrong(case):
    with pytest.raises(ConfigError, match="did you mean c1"):
        check.callback(case, ["columns.c11.use=false"], None)
    with pytest.raises(DataError):
        check.callback(case, ["data.table=nowhere.h5"], None)
    with pytest.raises(DataError):
        check.callback(case, [f"data.table={case}"], None)


def test_the_sample_is_cut_from_all_over_the_table(tmp_path):
    n = 3 * SAMPLE_ROWS
    columns, rows = table_from_arrays([("x", "real", np.arange(n, dtype=float), None)])
    table = write_table(tmp_path / "t.h5", columns, rows)
    sample = sample_rows(Data(table, (), None))
    assert len(sample) == SAMPLE_ROWS
    assert sample.reals.min() == 0 and sample.reals.max() == n - 1
    assert len(np.unique(sample.reals)) == SAMPLE_ROWS


def test_memory_parts(tmp_path):
    """Bytes that can be counted by hand: 1,000 rows, 3 one-byte columns, 2 reals, 1 count, 4 shards on 2 ranks."""
    table = make_table(tmp_path / "t.h5", 1000, 3, 2)
    parts = mixture_check.memory_per_rank(table.columns, table.n_rows, 4, 2, 16, kept_draws=5)
    assert parts["rows"] == 500 * (3 + 2 * 8 + 8)
    assert parts["labels"] == 4 * (500 + 250)
    assert parts["gathered"] == 1000 + 2 * 500 and parts["draws"] == 5 * 1000
    assert parts["clusters"] == 16 * (15 * 32 + 3 * 96) + 8 * 1024
    half = mixture_check.memory_per_rank(table.columns, table.n_rows, 4, 4, 16)
    growing = mixture_check.memory_per_rank(table.columns, table.n_rows, 4, 2, 16, growing=True)
    assert parts["columns"] == parts["pilot"] == 0
    views = mixture_check.memory_per_rank(
        table.columns, table.n_rows, 4, 2, 16, kept_draws=5, n_views=3, has_views=True, pilot_rows=100
    )
    assert views["labels"] == 4 * (3 * 500 + 250) and views["rows"] == parts["rows"]
    assert views["gathered"] == (1 + 3) * 1000 + 2 * 500 and views["draws"] == 3 * 5 * 1000
    assert views["columns"] == 500 * 11 + 250 * (2 * 27 + 24 + 32 * 17) and views["pilot"] == 100 * (7 * 27 + 2448)
    assert parts["subsample"] == 0 and growing["subsample"] == 16 * 250
    assert half["rows"] == parts["rows"] // 2 and half["gathered"] == half["draws"] == 0
    strays = mixture_check.memory_per_rank(table.columns, table.n_rows, 4, 2, 16, strays=40)
    assert strays["strays"] == 40 * (3 * 27 + 16) and parts["strays"] == 0
    of = Law(LIKELIHOODS["logistic"], np.zeros(2), np.ones(2), np.ones(3), np.zeros(2), n_fresh=4)
    outcome = mixture_check.memory_per_rank(table.columns, table.n_rows, 4, 2, 200, heldout_rows=100, outcome=of)
    assert outcome["outcome"] == (500 + 50) * (8 + 4 * 4) + 500 * 16 + 250 * (4 * 2 * 24 + 16)
    assert outcome["bounds"] == parts["outcome"] == 0


def test_forecasts_of_a_grown_run_are_of_its_longest_shard(tmp_path):
    """Shards of recorded sizes, 25 % longer than the mean for the last; the wrong one: as if they were even."""
    table = make_table(tmp_path / "t.h5", 1000, 3, 2)
    assert busiest((200, 200, 200, 400), 1000, 4) == (400, 400) and busiest((200, 200, 200, 400), 1000, 2) == (600, 400)
    assert busiest(4, 1000, 2) == (500, 250) and busiest("auto", 1000, 3) == (1000, 1000)
    grown, even = (
        mixture_check.memory_per_rank(table.columns, 1000, given, 4, 16, growing=True)
        for given in ((230, 230, 230, 310), 4)
    )
    assert grown["rows"] == 310 * 27 and even["rows"] == 250 * 27 and grown["subsample"] == 16 * 310
    timing, n = Timing(20_000, 1, 0.0, 0.01, 0.0, 5, 0.1), 1_000_000
    sizes = (230_000, 230_000, 230_000, 310_000)
    seconds = [Speed.of(table.columns, n, given, 4, timing).cycle_s(4) for given in (sizes, 4)]
    assert 1.1 < seconds[0] / seconds[1] < 1.24, seconds


PEAK = """
import sys
from mpibayes.hpc.run.loop import main
code = main(sys.argv[1], sys.argv[2])
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print("peak KiB", peak)
sys.exit(code)
"""


@pytest.mark.thorough
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    "n, cycles, views, outcome",
    [(300_000, 4, 0, False), (100_000, 2, 2, False), (300_000, 4, 0, True)],
    ids=["one", "several", "outcome"],
)
def test_memory_forecast_of_a_real_run(tmp_path, n, cycles, views, outcome):
    """Peak resident memory of one process within 20 % of the forecast, where the data, and what is copied of them, are
    half of it."""
    every = 2
    table = make_table(tmp_path / "t.h5", n, 60, 20)
    of_views = f"init_views = {views}\ninit_rows = 0\ngroup_moves = 1\n" if views else ""
    family = "crosscat" if views else "mixture"
    (tmp_path / "run.toml").write_text(
        f'[data]\ntable = "t.h5"\n[sampler]\ninit = "random"\ninit_clusters = 8\n{of_views}'
        f'[model]\nfamily = "{family}"\n'
        f"[run]\ncycles = {cycles}\nburn_in = 2\n[output]\nlabels = {every}\n"
        + (f'[outcome]\ncolumn = "x0"\ncovariates = {[f"x{i}" for i in range(1, 20)]}\n' if outcome else "")
    )
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path / "run.toml"), str(tmp_path / "run")],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    peak = 1024 * int(done.stdout.rsplit("peak KiB", 1)[1])
    law = Law(LIKELIHOODS["normal"], np.zeros(1), np.ones(1), np.ones(19), np.zeros(1)) if outcome else None
    parts = mixture_check.memory_per_rank(
        table.columns[: len(table.columns) - outcome], n, 6 if n > 200_000 else 4, 1, 8, kept_draws=cycles // every,
        mpi=False, n_views=max(1, views), has_views=views > 0, outcome=law,
    )  # fmt: skip
    forecast = sum(parts.values())
    assert abs(peak - forecast) < 0.2 * peak, (peak / 2**20, forecast / 2**20)
