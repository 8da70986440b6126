"""`predict` against the definitions: docs/math.md 2.6 computed cell by cell with scipy, for mixed columns with missing
cells."""

import csv
import io

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from scipy.special import logsumexp
from scipy.stats import nbinom, t

from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.crosscat.draws import Posterior, iterate_draws, writer
from mpibayes.hpc.crosscat.summaries.predictor import Predictor
from mpibayes.hpc.crosscat.summaries.representative import representatives
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.hpc.results.predict import predict
from mpibayes.io.table import table_from_arrays, write_table
from mpibayes.io.trace import read_trace
from tests.crosscat.report.runs import make_run, planted

QUIET = {"console": Console(quiet=True)}


def new_rows(n=25, seed=11):
    """Other rows of the same law with many missing cells; the first has none, the second nothing else."""
    columns, _ = planted(n=n, seed=seed)
    g = np.random.default_rng(seed)
    for name, _, values, _ in columns:
        hole = g.random(n) < 0.3
        hole[0], hole[1] = False, True
        if values.dtype.kind == "i":
            values[0] = 1 if name != "noise" else 2
            values[hole] = -1
        else:
            values[0] = 5.0
            values[hole] = np.nan
    return columns


def cluster_terms(columns, training, z, draw, x):
    """log w_k f(x | rows of k) of every cluster and of a new one, the naive way. `x`: {name: code or number, -1 or
    NaN missing}."""
    n, k_all = len(z), z.max() + 1
    alpha, d = draw.hyper.concentration, draw.hyper.discount
    blocks = {"codes": 0, "reals": 0, "tallies": 0}
    hyper = {}
    for name, kind, _, levels in columns:
        where = {"real": "reals", "count": "tallies"}.get(kind, "codes")
        i = blocks[where]
        blocks[where] += 1
        h = draw.hyper
        hyper[name] = {"codes": h.dirichlet, "reals": h.normal, "tallies": h.gamma}[where][i], levels, kind
    terms = []
    for k in range(k_all + 1):
        rows = z == k
        weight = (rows.sum() - d) / (n + alpha) if k < k_all else (alpha + k_all * d) / (n + alpha)
        total = np.log(weight)
        for name, (h, levels, kind) in hyper.items():
            total += log_cell(x[name], training[name][rows], h, levels, kind)
        terms.append(total)
    return np.array(terms)


def log_cell(x, cells, h, levels, kind):
    if kind in ("categorical", "boolean"):
        if x < 0:
            return 0.0
        seen = cells[cells >= 0]
        return np.log((np.sum(seen == x) + h) / (len(seen) + h * len(levels)))
    if np.isnan(x):
        return 0.0
    if kind == "count":
        return nbinom.logpmf(x, *count_parameters(cells, h))
    return t.logpdf(x, *student_parameters(cells, h))


def count_parameters(cells, h):
    seen = cells[~np.isnan(cells)]
    b = h[1] + len(seen)
    return h[0] + seen.sum(), b / (b + 1)


def student_parameters(cells, h):
    y = cells[~np.isnan(cells)]
    n, mean = len(y), y.mean() if len(y) else 0.0
    kappa, nu = h[1] + n, h[2] + n
    spread = h[2] * h[3] + ((y - mean) ** 2).sum() + n * h[1] / kappa * (mean - h[0]) ** 2
    return nu, (h[1] * h[0] + n * mean) / kappa, np.sqrt(spread / nu * (1 + 1 / kappa))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A short run on 90 rows whose draws are looked at one by one: (run directory, training columns, draws)."""
    folder = tmp_path_factory.mktemp("small")
    columns, _ = planted(n=90, seed=3)
    table = write_table(folder / "t.h5", *table_from_arrays(columns))
    run = make_run(folder / "a", table, cycles=14, burn_in=8, text="[model]\ndiscount = 0.3\n")
    return run, columns, [d for d in iterate_draws(run) if d.cycle > 8]


@pytest.fixture(scope="module")
def brute(small):
    """Terms of every draw and new row by definition: [draw][row] -> (K + 1,)."""
    _, columns, draws = small
    training = {name: values for name, _, values, _ in columns}
    given = new_rows()
    rows = [{name: values[i] for name, _, values, _ in given} for i in range(25)]
    return [[cluster_terms(columns, training, d.labels[0], d, x) for x in rows] for d in draws]


def predictor_of(run_dir, draws=99, impute=True):
    run = Posterior([run_dir])
    kept = run.kept()
    return Predictor(run, evenly(kept, draws), representatives(run, kept).views, impute)


@pytest.fixture(scope="module")
def result(small):
    return predictor_of(small[0])(table_from_arrays(new_rows())[1])


def test_log_density_is_the_definition(brute, result):
    each = np.array([[logsumexp(terms) for terms in draw] for draw in brute])
    expected = logsumexp(each, axis=0) - np.log(len(each))
    assert len(each) == 6
    assert result.log_density == pytest.approx(expected, abs=2e-4)  # the kernels' categorical scores are float32
    assert result.log_density[1] == pytest.approx(0.0, abs=1e-6)  # nothing observed
    assert result.log_density_sd == pytest.approx(each.std(axis=0, ddof=1), abs=2e-4)


def test_draws_are_distributions_over_rows(small, result):
    """The average of the kept draws, one by one, is what is predicted."""
    rows = table_from_arrays(new_rows())[1]
    each = [draw.log_density(rows) for draw in Posterior([small[0]]).draws(99)]
    assert len(each) == 6
    assert logsumexp(each, axis=0) - np.log(6) == pytest.approx(result.log_density, abs=1e-5)


def test_cluster_probabilities_are_the_definition(small, brute, result):
    run, _, draws = small
    r = predictor_of(run).representatives[0]
    n = len(r.sizes)
    joint = np.zeros((25, n + 1))  # sum over draws of p_d(x, cluster)
    for d, terms in zip(draws, brute, strict=True):
        for i, x in enumerate(terms):
            p = np.exp(x)
            joint[i, n] += p[-1]
            for k in range(len(p) - 1):
                rows = d.labels[0] == k
                joint[i, :n] += p[k] * np.bincount(r.labels[rows], minlength=n) / rows.sum()
    expected = joint / joint.sum(axis=1, keepdims=True)
    assert result.views[0].p == pytest.approx(expected[:, :n], abs=2e-4)
    assert result.views[0].p_new == pytest.approx(expected[:, n], abs=2e-4)
    assert result.views[0].p.sum(axis=1) + result.views[0].p_new == pytest.approx(1.0, abs=1e-5)
    # with nothing observed: the clusters' shares
    assert np.argsort(-result.views[0].p[1])[0] == 0


@pytest.mark.parametrize("name", ["colour", "flag", "noise", "height", "dust", "income", "visits"])
def test_imputation_is_the_definition(small, brute, result, name):
    """p(missing cell | observed cells) averaged over draws and clusters; the moments of numbers likewise."""
    _, columns, draws = small
    kinds = {n: (kind, levels) for n, kind, _, levels in columns}
    training = {n: values for n, _, values, _ in columns}
    kind, levels = kinds[name]
    given = {n: values for n, _, values, _ in new_rows()}[name]
    missing = np.flatnonzero(given < 0 if given.dtype.kind == "i" else np.isnan(given))
    cell = result.imputed[name]
    assert np.array_equal(cell.rows, missing) and 1 in missing and 0 not in missing
    same = [
        n
        for n, (k, _) in kinds.items()
        if (k in ("real", "count") and k == kind) or ({k, kind} <= {"categorical", "boolean"})
    ]
    for at, value, spread in zip(cell.rows, cell.value, cell.spread, strict=True):
        weights, parts = [], []
        for d, terms in zip(draws, brute, strict=True):
            hyper = {"real": d.hyper.normal, "count": d.hyper.gamma}.get(kind, d.hyper.dirichlet)[same.index(name)]
            for k, w in enumerate(np.exp(terms[at])):
                cells = training[name][d.labels[0] == k]
                weights.append(w)
                if levels:
                    parts.append([np.exp(log_cell(v, cells, hyper, levels, kind)) for v in range(len(levels))])
                elif kind == "count":
                    a, p = count_parameters(cells, hyper)
                    parts.append([nbinom.mean(a, p), nbinom.var(a, p) + nbinom.mean(a, p) ** 2])
                else:
                    nu, centre, scale = student_parameters(cells, hyper)
                    variance = scale**2 * (nu / (nu - 2) if nu > 2 else 3.0)
                    parts.append([centre, variance + centre**2])
        average = np.average(parts, axis=0, weights=weights)
        if levels:
            assert spread == pytest.approx(average.max(), abs=2e-4)
            assert average[int(value)] == pytest.approx(average.max(), abs=2e-4)
        else:
            assert value == pytest.approx(average[0], rel=1e-3, abs=1e-3)
            assert spread == pytest.approx(np.sqrt(average[1] - average[0] ** 2), rel=2e-3)


def test_relabelled_draws_predict_the_same(small, tmp_path):
    """Label switching: every draw's clusters numbered in another order."""
    import shutil

    run, _, draws = small
    other = tmp_path / "b"
    shutil.copytree(run, other)
    shutil.rmtree(other / "labels")
    kept, g = writer(other), np.random.default_rng(0)
    for d in draws:
        kept.append(d.cycle, labels=g.permutation(d.labels[0].max() + 1)[d.labels[0]], **vars(d.hyper))
    kept.flush()
    rows = table_from_arrays(new_rows())[1]
    one, two = (predictor_of(place)(rows) for place in (run, other))
    assert two.log_density == pytest.approx(one.log_density, abs=1e-5)
    assert two.views[0].p == pytest.approx(one.views[0].p, abs=1e-5)
    assert two.imputed["height"].value == pytest.approx(one.imputed["height"].value, rel=1e-5)
    assert two.imputed["colour"].spread == pytest.approx(one.imputed["colour"].spread, abs=1e-5)


def test_agrees_with_the_held_out_score_of_the_run(run_dir):
    """The same rows, the same draws (output.labels = 1: all of them): the run's averaged score is predict's mean log
    density."""
    run = Posterior([run_dir])
    rows = run.data._chosen(run.data.heldout)
    last = read_trace(run_dir)["heldout_lpd_averaged"][-1]
    assert predictor_of(run_dir)(rows).log_density.mean() == pytest.approx(last, abs=1e-6)
    one = predictor_of(run_dir, draws=1)(rows)
    assert one.log_density.mean() == pytest.approx(read_trace(run_dir)["heldout_lpd"][-1], abs=1e-6)
    assert np.isnan(one.log_density_sd).all()


def test_batches_do_not_matter(small):
    rows = table_from_arrays(new_rows())[1]
    predictor = predictor_of(small[0])
    whole = predictor(rows)
    parts = [predictor(rows.take(slice(i, i + 7))) for i in range(0, 25, 7)]
    assert np.array_equal(np.concatenate([p.log_density for p in parts]), whole.log_density)
    assert np.concatenate([p.views[0].p for p in parts]) == pytest.approx(whole.views[0].p, abs=1e-12)


def write_csv(path, columns):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([name for name, *_ in columns])
        for i in range(len(columns[0][2])):
            cells = []
            for _, kind, values, levels in columns:
                v = values[i]
                missing = v < 0 if levels else np.isnan(v)
                cells.append("" if missing else levels[v] if levels else int(v) if kind == "count" else repr(float(v)))
            writer.writerow(cells)


def read_back(path):
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    with open(path) as file:
        return [{k: v if v != "" else None for k, v in row.items()} for row in csv.DictReader(file)]


@pytest.mark.parametrize("source", ["new.csv", "new.h5"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_files(small, result, tmp_path, source, suffix):
    given = new_rows()
    if source.endswith("csv"):
        write_csv(tmp_path / source, given)
    else:
        write_table(tmp_path / source, *table_from_arrays(given))
    out = tmp_path / f"out{suffix}"
    reported = predict(small[0], tmp_path / source, out, probabilities=True, impute=True, batch_rows=7, **QUIET)
    rows = read_back(out)
    assert reported.n_rows == len(rows) == 25 and reported.n_draws == 6
    assert [int(r["row"]) for r in rows] == list(range(1, 26))
    assert [float(r["log_density"]) for r in rows] == pytest.approx(result.log_density.tolist(), abs=1e-9)
    assert reported.log_density == pytest.approx(result.log_density.mean())
    best = [int(r["cluster"]) for r in rows]
    for i, r in enumerate(rows):
        p = [float(r[f"p_{k + 1}"]) for k in range(result.views[0].p.shape[1])]
        assert p == pytest.approx(result.views[0].p[i].tolist(), abs=1e-6)
        top = float(r["p_new"]) if best[i] == 0 else p[best[i] - 1]
        assert float(r["p_cluster"]) == pytest.approx(top) == max(*p, float(r["p_new"]))
    for name, _, values, levels in given:
        for i, r in enumerate(rows):
            missing = values[i] < 0 if levels else np.isnan(values[i])
            assert (r[f"imputed_{name}"] is not None) == bool(missing)
            if missing and levels:
                assert r[f"imputed_{name}"] in levels and 0 < float(r[f"imputed_{name}_p"]) <= 1
            elif missing:
                assert float(r[f"imputed_{name}_sd"]) > 0
    assert [p.name for p in tmp_path.iterdir() if "tmp" in p.name] == []


def test_all_chains_are_used(table, tmp_path):
    run = make_run(tmp_path / "a", table, cycles=8, burn_in=3, chains=2)
    rows = table_from_arrays(new_rows())[1]
    both = predictor_of(run)
    assert both.n_draws == 10
    each = [[logsumexp_of(run / f"chain-{c}", rows)] for c in (1, 2)]
    expected = logsumexp(np.concatenate(each), axis=0) - np.log(2)
    assert both(rows).log_density == pytest.approx(expected, abs=1e-6)


def logsumexp_of(chain, rows):
    run = Posterior([chain])
    kept = run.kept()
    return Predictor(run, kept, representatives(run, kept).views)(rows).log_density


def test_unused_columns_may_lack(table, tmp_path):
    run = make_run(tmp_path / "a", table, cycles=8, burn_in=3, text="[columns.noise]\nuse = false\n")
    write_csv(tmp_path / "new.csv", [c for c in new_rows() if c[0] != "noise"])
    assert predict(run, tmp_path / "new.csv", tmp_path / "out.csv", **QUIET).n_rows == 25


def test_wrong_files_are_refused_before_the_work(small, tmp_path):
    run = small[0]
    given = new_rows()
    (tmp_path / "else.csv").write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(DataError, match="lacks 7 of the table's 7 columns"):
        predict(run, tmp_path / "else.csv", tmp_path / "out.csv", **QUIET)
    strange = [(n, k, v, ["red", "green", "violet", "grey"] if n == "colour" else lv) for n, k, v, lv in given]
    write_csv(tmp_path / "strange.csv", strange)
    with pytest.raises(DataError, match="violet"):
        predict(run, tmp_path / "strange.csv", tmp_path / "out.csv", unseen="error", **QUIET)
    assert not (tmp_path / "out.csv").exists()
    with pytest.raises(ConfigError, match="unseen"):
        predict(run, tmp_path / "strange.csv", tmp_path / "other.csv", unseen="guess", **QUIET)
    with pytest.raises(DataError, match=r"nothing\.csv"):
        predict(run, tmp_path / "nothing.csv", tmp_path / "other.csv", **QUIET)


def test_wrong_targets_are_refused(small, tmp_path):
    run = small[0]
    write_csv(tmp_path / "new.csv", new_rows())
    with pytest.raises(ConfigError, match=r"\.parquet"):
        predict(run, tmp_path / "new.csv", tmp_path / "out.txt", **QUIET)
    with pytest.raises(ConfigError, match="no directory"):
        predict(run, tmp_path / "new.csv", tmp_path / "no" / "out.csv", **QUIET)
    (tmp_path / "mine.csv").write_text("mine")
    with pytest.raises(ConfigError, match="--force"):
        predict(run, tmp_path / "new.csv", tmp_path / "mine.csv", **QUIET)
    assert (tmp_path / "mine.csv").read_text() == "mine"
    predict(run, tmp_path / "new.csv", tmp_path / "mine.csv", overwrite=True, **QUIET)
    with pytest.raises(ConfigError, match="draws"):
        predict(run, tmp_path / "new.csv", tmp_path / "out.csv", draws=0, **QUIET)


def test_lacking_columns_and_new_levels_are_missing_cells(small, tmp_path):
    """Both score as empty cells do, and one line says so, before the work."""
    given = new_rows()
    names = ["noise", "visits"]
    strange = [(n, k, v, ["red", "green", "violet", "grey"] if n == "colour" else lv) for n, k, v, lv in given]
    write_csv(tmp_path / "few.csv", [c for c in strange if c[0] not in names])
    paper = io.StringIO()
    console = Console(file=paper, width=200)
    reported = predict(small[0], tmp_path / "few.csv", tmp_path / "few-out.csv", console=console)
    violet = given[0][2] == 2
    holes = [(n, k, np.where(violet, -1, v) if n == "colour" else v, lv) for n, k, v, lv in given]
    holes = [(n, k, np.full(25, -1 if lv else np.nan) if n in names else v, lv) for n, k, v, lv in holes]
    write_csv(tmp_path / "holes.csv", holes)
    assert predict(small[0], tmp_path / "holes.csv", tmp_path / "holes-out.csv", **QUIET).notes == ()
    assert (tmp_path / "few-out.csv").read_bytes() == (tmp_path / "holes-out.csv").read_bytes()
    assert "has no column 'visits', 'noise'; read as missing" in reported.notes[0]
    assert f"'colour': {violet.sum()} cells, first 'violet' in row {1 + violet.argmax()}" in reported.notes[1]
    assert paper.getvalue().index("violet") < paper.getvalue().index("kept draw")


def test_runs_that_cannot_predict(table, tmp_path):
    write_csv(tmp_path / "new.csv", new_rows())
    with pytest.raises(ConfigError, match="no such directory"):
        predict(tmp_path / "nothing", tmp_path / "new.csv", tmp_path / "out.csv", **QUIET)
    none = make_run(tmp_path / "a", table, cycles=6, burn_in=2, keep=False)
    with pytest.raises(ConfigError, match="no draw of the labels was kept"):
        predict(none, tmp_path / "new.csv", tmp_path / "out.csv", **QUIET)
    flat = make_run(tmp_path / "b", table, cycles=6, burn_in=2, text="[model]\nlikelihood = false\n")
    with pytest.raises(ConfigError, match="prior"):
        predict(flat, tmp_path / "new.csv", tmp_path / "out.csv", **QUIET)


def test_a_wrong_average_is_noticed(brute, result):
    """The tolerance of these tests tells apart: the log of the mean from the mean of the logs, and weighted clusters
    from plain ones."""
    each = np.array([[logsumexp(terms) for terms in draw] for draw in brute])
    assert np.abs(each.mean(axis=0) - result.log_density).max() > 2e-3
    new = np.array([[np.exp(terms[-1] - logsumexp(terms)) for terms in draw] for draw in brute])
    assert np.abs(new.mean(axis=0) - result.views[0].p_new).max() > 1e-3
