"""Shares of a population by survey weights, their standard errors, and where a report and an export have them."""

import json

import numpy as np
import pytest

import mpibayes as mb
from mpibayes.hpc.cli import main
from mpibayes.hpc.crosscat.summaries.shares import PopulationShares
from mpibayes.hpc.posterior.linearised import linearised_variance
from mpibayes.io.table import table_from_arrays, write_table
from tests.crosscat.report.runs import make_run, planted

N = 200
W = np.round(np.random.default_rng(5).gamma(2.0, 1.0, N), 3)


def variance(z, w, k):
    """The usual linearisation, written out."""
    n, p = len(w), w[z == k].sum() / w.sum()
    return n / (n - 1) * np.sum(w**2 * ((z == k) - p) ** 2) / w.sum() ** 2


def test_the_variance_for_given_labels():
    g = np.random.default_rng(1)
    z, w = g.integers(0, 3, 80), g.gamma(1.0, 1.0, 80)
    result = linearised_variance(np.bincount(z, w), np.bincount(z, w**2), w)
    assert np.allclose(result, [variance(z, w, k) for k in range(3)], rtol=1e-12)
    p = np.bincount(z) / 80
    equal = linearised_variance(np.bincount(z) * 2.0, np.bincount(z) * 4.0, np.full(80, 2.0))
    assert np.allclose(equal, p * (1 - p) / 79)
    alone = linearised_variance(np.array([w.sum()]), np.array([(w**2).sum()]), w)
    assert 0.0 <= alone[0] < 1e-15


def covered(error=lambda of: of.error):
    """Share of 600 samples of 150 people, drawn with unequal chances from a population, in which 95 % intervals hold
    the population's share of a cluster."""
    g = np.random.default_rng(3)
    z, chance = g.integers(0, 3, 5000), g.gamma(2.0, 1.0, 5000)
    chance = chance * np.array([0.5, 1.0, 3.0])[z]
    truth, hits = np.bincount(z) / 5000, 0
    for _ in range(600):
        drawn = g.choice(5000, 150, p=chance / chance.sum())
        of = PopulationShares(z[drawn], 1.0 / chance[drawn])
        hits += np.abs(of.share - truth)[0] < 1.96 * error(of)[0]
    return hits / 600


def test_intervals_cover_the_share_of_the_population():
    """Within 4 binomial errors of 95 %, and 1 point for 150 rows being few: fails once in 10,000 seeds. Errors as of
    equal weights do not."""
    assert 0.90 < covered() < 0.986
    assert covered(lambda of: np.sqrt(of.share * (1 - of.share) / 149)) < 0.90


def test_draws_that_differ_add_their_spread():
    z = np.arange(N) % 2
    same = PopulationShares(z, W)
    given = same.error
    same.add(1 - z)  # the same clusters under other numbers
    assert np.allclose(same.error, given) and np.allclose(given**2, [variance(z, W, k) for k in (0, 1)])
    other = z.copy()
    other[:50:2] = 2  # a quarter of the first cluster is apart
    same.add(other)
    share = W[other == 0].sum() / W.sum()
    expected = (variance(z, W, 0) + variance(other, W, 0) + (share - same.share[0]) ** 2) / 2
    assert np.isclose(same.error[0] ** 2, expected) and np.isclose(same.error[1], given[1])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weighed")
    columns, rows = table_from_arrays(planted(N)[0])
    table = write_table(folder / "t.h5", columns, rows, source={"weight": "w"}, weights=W)
    write_table(folder / "plain.h5", columns, rows)
    return make_run(folder / "run", table, cycles=24, burn_in=8, chains=2, heldout=0.1)


@pytest.mark.thorough
def test_the_report_has_shares_of_rows_and_of_the_population(run, tmp_path, capsys):
    assert main(["report", str(run), "-o", str(tmp_path / "a")]) == 0
    assert "population" in capsys.readouterr().out
    text = (tmp_path / "a" / "report.txt").read_text()
    assert "'w': the model is fitted to the rows as they are; population: weighted shares" in text
    document = json.loads((tmp_path / "a" / "summary.json").read_text())
    frame = mb.open(run, frames="pandas").clusters().frame
    assert (frame["weight"] == W).all()
    trained = frame[~frame["held_out"]]
    expected = trained.groupby("cluster")["weight"].sum() / trained["weight"].sum()
    result = [c["population_share"] for c in document["clusters"]]
    assert np.allclose(result, expected.iloc[: len(result)])
    errors = np.array([c["population_share_error"] for c in document["clusters"]])
    given = PopulationShares(trained["cluster"].to_numpy() - 1, trained["weight"].to_numpy()).error[: len(errors)]
    assert (errors < 0.5).all() and (errors > 1.001 * given).mean() > 0.5  # they have the spread of the draws, too
    assert sum(g["population_share"] for g in document["levels"][0]["found"]) == pytest.approx(1.0)
    for options in (["--unweighted"], ["--table", str(run.parent / "plain.h5")]):
        assert main(["report", str(run), "-o", str(tmp_path / "b"), *options]) == 0
        assert "population" not in capsys.readouterr().out
        assert "population_share" not in (tmp_path / "b" / "summary.json").read_text()
    assert main(["report", str(run), "-o", str(tmp_path / "b"), *options, "--weighted"]) == 2
    assert "has no weights of its rows" in capsys.readouterr().err


def test_the_export_has_weights_and_says_shares(run, tmp_path, capsys):
    out = str(tmp_path / "c.csv")
    assert main(["export", str(run), "--to", "clusters", "-o", out]) == 0
    assert "of the population, by the weights of the rows ('w'), with standard errors: clusters: 1 " in (
        capsys.readouterr().err
    )
    head, first, *_ = (tmp_path / "c.csv").read_text().splitlines()
    assert head.endswith("held_out,weight") and first.endswith(f",{W[0]:.4g}")
    assert main(["export", str(run), "--to", "clusters", "-o", out, "--unweighted"]) == 0
    assert "weight" not in (tmp_path / "c.csv").read_text().splitlines()[0]
    assert main(["export", str(run), "--to", "labels", "-o", str(tmp_path / "l.txt"), "--weighted"]) == 2
