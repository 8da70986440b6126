"""A run whose real columns are modelled jointly: ranks, stops, held-out rows, prediction, report, and bad tables."""

import csv
import json
import re

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.hpc.results.predict import predict
from mpibayes.io.table import table_from_arrays, write_table
from tests.run.conftest import exported, mpibayes, run, small_config

NAMES = ("x", "y", "z")
BLOCKS = """
[blocks.body]
columns = ["x", "z", "y"]
[blocks.pair]
columns = ["u", "v"]
prior = {nu = 3, kappa = [0.1, 1.0]}
"""
CONFIG = small_config(sections=BLOCKS)


def joint_table(path, n=300, seed=4, spoil=None):
    """Three clusters that differ in their correlations; a tenth lacks a block. spoil: cells made missing."""
    g = np.random.default_rng(seed)
    z = g.integers(3, size=n)
    mix = g.normal(size=(3, 3, 3)) + np.eye(3)
    body = np.einsum("nij,nj->ni", mix[z], g.normal(size=(n, 3))) + g.normal(0, 2, (3, 3))[z]
    pair = g.normal(size=(n, 2)) @ np.array([[1.0, 0.8], [0.0, 0.6]]) * np.array([1.0, 100.0])
    body[g.random(n) < 0.1], pair[g.random(n) < 0.1] = np.nan, np.nan
    body[:3] = g.normal(size=(3, 3))
    if spoil is not None:
        body[spoil[0]] = 1.0
        body[spoil] = np.nan
    w = g.normal(size=n) + z
    columns = [(name, "real", body[:, d], None) for d, name in enumerate(NAMES)]
    columns += [("c", "categorical", g.integers(2, size=n), ("p", "q")), ("w", "real", w, None)]
    columns += [("u", "real", pair[:, 0], None), ("v", "real", pair[:, 1], None)]
    write_table(path, *table_from_arrays(columns))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a finished run "one" on one rank."""
    place = tmp_path_factory.mktemp("blocks")
    joint_table(place / "table.h5")
    (place / "run.toml").write_text(CONFIG)
    done = run(place, "one")
    assert done.returncode == 0, done.stderr
    return place


@pytest.mark.thorough
@pytest.mark.parametrize("ranks", [2, 4])
def test_any_number_of_ranks(place, ranks):
    done = run(place, f"ranks-{ranks}", ranks=ranks)
    assert done.returncode == 0, done.stderr
    assert exported(place, f"ranks-{ranks}") == exported(place, "one")


@pytest.mark.thorough
def test_stopped_and_continued(place):
    for cycles, ranks in ((5, 3), (12, 1)):
        done = run(place, "pieces", "--set", f"run.cycles={cycles}", ranks=ranks)
        assert done.returncode == 0, done.stderr
    assert exported(place, "pieces") == exported(place, "one")


@pytest.mark.thorough
def test_annealed_from_a_prior_draw_and_with_all_opening(place):
    words = ["sampler.strategy=anneal", "anneal.start_rows=40", "anneal.passes=3"]
    words += ["run.cycles=30", "run.burn_in=auto"]
    done = run(place, "annealed", *(w for word in words for w in ("--set", word)), ranks=2)
    assert done.returncode == 0, done.stderr
    assert run(place, "prior", "--set", "model.likelihood=false", "--set", "run.cycles=3").returncode == 0
    assert run(place, "seq", "--set", "sampler.strategy=sequential+gibbs", "--set", "run.cycles=2").returncode == 0


def test_another_block_does_not_continue_the_run(place):
    done = run(place, "one", "--set", "blocks.pair.prior={nu=4}")
    assert done.returncode == 2 and "blocks.pair.prior" in done.stderr, done.stderr


@pytest.mark.thorough
def test_check_and_report(place):
    done = mpibayes(place, "check", "run.toml")
    assert done.returncode == 0, done.stderr
    assert "body: x, z, y" in done.stdout and "pair: u, v" in done.stdout
    done = mpibayes(place, "report", "one", "--full")
    assert done.returncode == 0, done.stderr
    assert "body, a full covariance of 3 columns: x, z, y" in done.stdout
    assert "Block body" in done.stdout and "Block pair" in done.stdout
    assert re.search(r"\(1\) x +\(2\) z +\(3\) y\nmeans\n +# +\(1\) +\(2\) +\(3\)\n", done.stdout)
    document = json.loads((place / "one" / "report" / "summary.json").read_text())
    body = document["blocks"][0]
    assert body["block"] == "body" and body["columns"] == ["x", "z", "y"]
    kept = Posterior([place / "one"])
    kept.read_traces()
    table = kept.data.rows_of(0, kept.n_rows)
    whole = table.vectors[:, :3][~np.isnan(table.vectors[:, 0])]
    np.testing.assert_allclose(body["overall"]["mean"], whole.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(body["overall"]["correlation"], np.corrcoef(whole.T), rtol=1e-9)
    assert {c["column"] for c in document["columns"]} == {*"xyzcwuv"}


def test_a_row_with_a_part_of_a_block_is_a_data_error(tmp_path):
    joint_table(tmp_path / "table.h5", spoil=(np.array([7, 20]), np.array([1, 2])))
    (tmp_path / "run.toml").write_text(CONFIG)
    for done in (run(tmp_path, "out", ranks=2), mpibayes(tmp_path, "check", "run.toml")):
        assert done.returncode == 3, done.stderr
        assert "table.h5: a row must have all cells of a block, or none" in done.stderr
        assert "block body: 2 rows have some of its columns but not all; the first is row 8, which lacks" in done.stderr
        assert "lacks y. Missing in such rows: z in 1, y in 1" in done.stderr and "impute" in done.stderr
        assert "out of [blocks.body], so that" in done.stderr
    assert not (tmp_path / "out").exists()


def write_new(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "y", "z", "c", "w", "u", "v"])
        writer.writerows([["" if isinstance(v, float) and np.isnan(v) else v for v in row] for row in rows])


def multivariate_t(p):
    """Student t of the next row, by SciPy, from (location, matrix, nu)."""
    return lambda keep: stats.multivariate_t(p[0][keep], p[1][np.ix_(keep, keep)] / p[2], p[2])


def test_predict_scores_and_imputes_the_missing_part_of_a_block(place):
    """Rows with all, some and no cells of the blocks, against SciPy's multivariate t cluster by cluster and draw by
    draw: density of what is there, and mean of what is not."""
    nan = np.nan
    new = [
        [0.3, -0.2, 1.1, nan, nan, nan, nan], [0.3, nan, 1.1, nan, nan, nan, nan], [nan, nan, 1.1, nan, nan, nan, nan],
        [nan, nan, nan, nan, nan, 0.5, nan], [nan, 0.7, nan, nan, nan, 0.5, 30.0], [nan] * 7,
    ]  # fmt: skip
    write_new(place / "new.csv", new)
    predict(place / "one", place / "new.csv", place / "out.csv", impute=True, draws=3, overwrite=True)
    with (place / "out.csv").open() as file:
        out = list(csv.DictReader(file))
    kept = Posterior([place / "one"])
    kept.read_traces()
    requested = evenly(kept.kept(), 3)
    order = {"body": [0, 2, 1], "pair": [5, 6]}  # columns of the file, in the blocks' order
    densities, means = np.empty((3, len(new))), np.empty((3, len(new), 7))
    for d, (_, draw) in enumerate(kept.whole.states(requested)):
        hyper, (s,) = draw.hyper, kept.statistics([draw.labels])
        log_weight = np.log(np.append(s.size - 0.0, hyper.concentration) / (s.size.sum() + hyper.concentration))
        terms = np.tile(log_weight, (len(new), 1))
        conditional = np.full((len(new), 7, len(log_weight)), nan)
        joint = kept.components.multinormal
        for wishart, (block, *moments) in zip(hyper.wishart, joint.parts(s.of(joint))):
            p = block.predictive(wishart, *moments)
            for r, row in enumerate(new):
                x = np.array(row)[order[block.name]]
                seen, lacking = np.flatnonzero(~np.isnan(x)), np.flatnonzero(np.isnan(x))
                for k in range(len(log_weight)):
                    location, matrix = p.location[k], p.matrix[k]
                    if len(seen):
                        terms[r, k] += multivariate_t((location, matrix, p.nu[k]))(seen).logpdf(x[seen])
                    inverse = np.linalg.inv(matrix[np.ix_(seen, seen)])
                    shift = matrix[np.ix_(lacking, seen)] @ inverse @ (x[seen] - location[seen])
                    conditional[r, np.array(order[block.name])[lacking], k] = location[lacking] + shift
        densities[d] = logsumexp(terms, axis=1)
        share = np.exp(terms - densities[d][:, None])
        means[d] = (share[:, None, :] * conditional).sum(axis=2)
    result = np.array([float(line["log_density"]) for line in out])
    np.testing.assert_allclose(result, logsumexp(densities, axis=0) - np.log(3), atol=1e-5)
    weight = np.exp(densities - densities.max(axis=0))
    weight /= weight.sum(axis=0)
    expected = (weight[:, :, None] * means).sum(axis=0)
    for r, row in enumerate(new):
        for column, name in ((0, "x"), (1, "y"), (2, "z"), (5, "u"), (6, "v")):
            text = out[r][f"imputed_{name}"]
            assert (text == "") == (not np.isnan(row[column]))
            if text:
                assert float(text) == pytest.approx(expected[r, column], rel=1e-5, abs=1e-6)
                assert float(out[r][f"imputed_{name}_sd"]) > 0
