"""Exports of a mixture's run: clusters as the report numbers them, labels and draws for ArviZ without burn-in."""

import csv
import warnings

import numpy as np
import pytest

import mpibayes as mb
from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.cli import main
from mpibayes.hpc.crosscat.draws import Posterior, iterate_draws
from mpibayes.hpc.crosscat.predict import DRAWS
from mpibayes.hpc.crosscat.report.summarise import summarise
from mpibayes.hpc.crosscat.summaries.predictor import Predictor
from mpibayes.hpc.crosscat.summaries.row_clusters import row_clusters
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.hpc.results.export import export
from mpibayes.io.ingest import import_table
from mpibayes.io.row_names import identifier_of
from mpibayes.io.table import Table, table_from_arrays, write_table
from tests.crosscat.report.runs import make_run, planted


@pytest.fixture(scope="module")
def two_chains(table, tmp_path_factory):
    """A run with held-out rows, of which every second draw is kept."""
    return make_run(tmp_path_factory.mktemp("two") / "a", table, cycles=30, burn_in=10, labels=2, chains=2, heldout=0.2)


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_clusters_are_those_of_the_report(two_chains, tmp_path):
    done = export(two_chains, "clusters", tmp_path / "c.csv")
    lines = read(tmp_path / "c.csv")
    run = Posterior([two_chains])
    report = summarise(Posterior([two_chains]))
    r = report.views[0].representative
    assert list(lines[0]) == ["row", "cluster", "probability", "held_out"]  # there is no source to have lines
    assert [int(line["row"]) for line in lines] == list(range(1, 401))
    assert np.flatnonzero([line["held_out"] == "true" for line in lines]).tolist() == run.data.heldout.tolist()
    cluster = np.array([int(line["cluster"]) for line in lines if line["held_out"] == "false"])
    assert np.bincount(cluster)[1:].tolist() == r.sizes.tolist()
    assert np.bincount(cluster)[1:][: len(report.views[0].clusters)].tolist() == [
        c.rows for c in report.views[0].clusters
    ]
    chain = ("chain-1", "chain-2")[r.chain]
    (labels,) = [d.labels[0] for d in iterate_draws(two_chains / chain) if d.cycle == r.cycle]
    assert (cluster[:, None] == cluster).tolist() == (labels[:, None] == labels).tolist()
    assert f"cycle {r.cycle} of" in done.notes[0] and chain in done.notes[0]
    assert done.notes[1].startswith(f"{400 - run.n_rows} rows held out")


def test_probabilities_of_clusters_are_the_definition(two_chains, tmp_path):
    """The share of a row's companions in a draw that are in its cluster, averaged over draws."""
    export(two_chains, "clusters", tmp_path / "c.csv")
    lines = [line for line in read(tmp_path / "c.csv") if line["held_out"] == "false"]
    cluster = np.array([line["cluster"] for line in lines])
    draws = [d.labels[0] for c in (1, 2) for d in iterate_draws(two_chains / f"chain-{c}") if d.cycle > 10]
    assert len(draws) == 20
    reported = []  # the same the wrong way round: the share of its cluster that are its companions
    for i in range(len(lines)):
        expected = np.mean([np.mean(cluster[z == z[i]] == cluster[i]) for z in draws])
        assert float(lines[i]["probability"]) == pytest.approx(expected, abs=1e-4)
        reported.append(abs(np.mean([np.mean(z[cluster == cluster[i]] == z[i]) for z in draws]) - expected))
    assert max(reported) > 0.01


def test_slices_do_not_matter(two_chains, tmp_path, monkeypatch):
    export(two_chains, "clusters", tmp_path / "a.csv")
    monkeypatch.setattr("mpibayes.hpc.results.export.SLICE_ROWS", 7)
    export(two_chains, "clusters", tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_rows_have_the_identifier_and_the_line_of_their_source(tmp_path):
    g = np.random.default_rng(1)
    text = "name,a,b\n" + "".join(f'"p,{i}",{g.integers(3)},{g.normal():.3f}\n' for i in range(60))
    (tmp_path / "t.csv").write_text(text)
    table = import_table(tmp_path / "t.csv", tmp_path / "t.h5", keep=["name"]).table
    run = make_run(tmp_path / "a", table, cycles=6, burn_in=2, heldout=0.2, text="[columns.name]\nuse = false\n")
    export(run, "clusters", tmp_path / "c.csv")
    lines, source = read(tmp_path / "c.csv"), text.splitlines()
    assert list(lines[0]) == ["name", "row", "line", "cluster", "probability", "held_out"] and len(lines) == 60
    for n, line in enumerate(lines, 1):
        assert source[int(line["line"]) - 1].startswith(f'"{line["name"]}",') and line["name"] == f"p,{n - 1}"
        assert int(line["line"]) == n + 1 == int(line["row"]) + 1


def test_held_out_rows_have_the_cluster_that_predict_gives_them(two_chains, tmp_path):
    """Clusters are those of `predict` on the same cells, a new one left aside; each row in its place."""
    run = Posterior([two_chains])
    result, (view,) = row_clusters(run)
    new = Predictor(run, evenly(run.kept(), DRAWS), result.views)
    p = new(run.data.heldout_of(0, len(run.data.heldout))).views[0].p
    assert view.held_out.sum() == 80 and view.cluster.shape == view.probability.shape == (400,)
    assert np.array_equal(view.cluster[view.held_out], p.argmax(axis=1) + 1)
    assert np.array_equal(view.probability[view.held_out], p.max(axis=1))
    planted_groups = planted()[1]
    table = np.zeros((view.cluster.max() + 1, 3))
    np.add.at(table, (view.cluster[view.held_out], planted_groups[view.held_out]), 1)
    assert table.max(axis=1).sum() >= 70  # of 80; shifted by one row it is about 40
    shifted = np.zeros_like(table)
    np.add.at(shifted, (np.roll(view.cluster, 1)[view.held_out], planted_groups[view.held_out]), 1)
    assert shifted.max(axis=1).sum() < 60


def test_batches_of_held_out_rows_do_not_matter(two_chains, monkeypatch):
    whole = row_clusters(Posterior([two_chains]))[1][0]

    class InSevens(Predictor):
        batch = property(lambda self: 7, lambda self, n: None)

    monkeypatch.setattr("mpibayes.hpc.crosscat.summaries.row_clusters.Predictor", InSevens)
    parts = row_clusters(Posterior([two_chains]))[1][0]
    assert np.array_equal(whole.cluster, parts.cluster) and np.allclose(whole.probability, parts.probability)


@pytest.fixture(scope="module")
def of_people(tmp_path_factory):
    """A run whose source has a name that was not imported, an empty line, and a cell of two lines."""
    folder = tmp_path_factory.mktemp("people")
    g = np.random.default_rng(1)
    rows = [f"p{i},{g.integers(3)},{g.normal():.3f},2020-01-{1 + i % 28:02d}" for i in range(60)]
    rows[20] = '"p\n20",' + rows[20].split(",", 1)[1]
    source = folder / "people.csv"
    source.write_text("\n".join(["name,a,b,day", *rows[:10], "", *rows[10:], ""]))
    table = import_table(source, folder / "people.h5").table
    assert "name" not in {c.name for c in table.columns}
    return make_run(folder / "a", table, cycles=6, burn_in=2, heldout=0.2), source


def test_rows_are_named_by_a_column_of_the_source(of_people, tmp_path):
    run, source = of_people
    export(run, "clusters", tmp_path / "c.csv", ids=["day", "name"])
    lines, text = read(tmp_path / "c.csv"), source.read_text().splitlines()
    assert list(lines[0])[:4] == ["day", "name", "row", "line"]
    assert [line["name"].replace("\n", "") for line in lines] == [f"p{i}" for i in range(60)]
    for line in lines:  # after an empty line, and a cell of two, lines are not rows
        assert text[int(line["line"]) - 1].strip('"').startswith(line["name"].split("\n")[0])
    assert int(lines[-1]["line"]) == 63


def test_a_source_that_is_not_the_tables_names_no_rows(of_people, tmp_path):
    run, source = of_people
    lines = source.read_text().splitlines(keepends=True)
    cases = {
        "sorted": (lines[:1] + lines[:0:-1][-5:] + lines[6:], "row 1 has other cells"),
        "shorter": (lines[:-3], r"57 rows instead of 60"),
        "longer": ([*lines, "\n" + lines[1]], "more than the table's 60 rows"),
    }
    for name, (text, words) in cases.items():
        other = tmp_path / f"{name}.csv"
        other.write_text("".join(text))
        with pytest.raises(DataError, match=words):
            export(run, "clusters", tmp_path / "c.csv", ids=["name"], sources=[other])
    with pytest.raises(ConfigError, match=r"--id nam: no such column .* \(did you mean 'name'\?\)"):
        export(run, "clusters", tmp_path / "c.csv", ids=["nam"])
    with pytest.raises(ConfigError, match=r"there\.csv: there is no such file"):
        export(run, "clusters", tmp_path / "c.csv", ids=["name"], sources=[tmp_path / "there.csv"])
    with pytest.raises(ConfigError, match="--id and --source are for --to clusters"):
        export(run, "labels", tmp_path / "c.csv", ids=["name"])
    assert not (tmp_path / "c.csv").exists()


def test_a_source_that_is_gone(of_people, tmp_path):
    run, source = of_people
    place = source.rename(source.with_suffix(".away"))
    try:
        with pytest.raises(ConfigError, match=r"people\.csv, is not beside it: name it with --source"):
            export(run, "clusters", tmp_path / "c.csv", ids=["name"])
        done = export(run, "clusters", tmp_path / "c.csv", ids=["name"], sources=[place])
        assert len(read(tmp_path / "c.csv")) == 60
        done = export(run, "clusters", tmp_path / "c.csv")
        assert read(tmp_path / "c.csv")[59]["line"] == "61"
        assert any("the table's source is not there" in note for note in done.notes)
    finally:
        place.rename(source)


def test_every_row_in_every_view(tmp_path):
    one, two = (planted(n=120, seed=seed)[0] for seed in (0, 1))
    columns = [*one[:4], *((f"{name} 2", *rest) for name, *rest in two[:4])]
    table = write_table(tmp_path / "t.h5", *table_from_arrays(columns))
    run = make_run(tmp_path / "a", table, cycles=12, burn_in=4, heldout=0.2, text="[model]\nfamily = 'crosscat'\n")
    done = export(run, "clusters", tmp_path / "c.csv")
    lines = read(tmp_path / "c.csv")
    result, views = row_clusters(Posterior([run]))
    names = [f"{name}_{v + 1}" for v in range(len(views)) for name in ("cluster", "probability")]
    assert len(views) > 1 and list(lines[0]) == ["row", *names, "held_out"] and len(lines) == 120
    assert "numbered as in the report" in done.notes[0]
    for v, (view, r) in enumerate(zip(views, result.views), 1):
        assert [int(line[f"cluster_{v}"]) for line in lines] == view.cluster.tolist()
        assert np.array_equal(view.cluster[~view.held_out], r.labels + 1) and view.held_out.sum() == 24
        assert view.cluster.min() >= 1 and view.cluster.max() <= len(r.sizes)
        assert (view.probability > 0).all() and (view.probability <= 1 + 1e-9).all()


@pytest.mark.parametrize("family", ["mixture", "crosscat"])
def test_the_prior_has_clusters_of_held_out_rows(table, tmp_path, family):
    """All have the same: a new row of the prior is like any other."""
    text = f"[data]\ntable = '{table.path}'\nheldout = 0.2\n[model]\nfamily = '{family}'\nlikelihood = false\n"
    (tmp_path / "a.toml").write_text(f"{text}[run]\ncycles = 6\nburn_in = 2\nshards = 1\n[output]\nlabels = 1\n")
    assert main(["run", str(tmp_path / "a.toml"), "-o", str(tmp_path / "a")]) == 0
    for view in row_clusters(Posterior([tmp_path / "a"]))[1]:
        assert len(view.cluster) == 400 and len(set(view.cluster[view.held_out])) == 1


def test_components_of_an_approximation_are_of_all_rows(tmp_path):
    """Three clouds, far apart: each has a component, for the rows that were held out, too, and for others."""
    g = np.random.default_rng(2)
    z = np.tile([0, 1, 2], 40)
    columns = [(name, "real", 30.0 * z + g.normal(size=120), None) for name in "xy"]
    write_table(tmp_path / "t.h5", *table_from_arrays(columns))
    (tmp_path / "a.toml").write_text(
        "[data]\ntable = 't.h5'\nheldout = 0.3\n[model]\nfamily = 'svi'\ncomponents = 3\n[run]\ncycles = 30\n"
    )
    assert main(["run", str(tmp_path / "a.toml"), "-o", str(tmp_path / "a")]) == 0
    export(tmp_path / "a", "clusters", tmp_path / "c.csv")
    lines = read(tmp_path / "c.csv")
    assert len(lines) == 120 and sum(line["held_out"] == "true" for line in lines) == 36
    assert len({(line["cluster"], k) for line, k in zip(lines, z)}) == len({line["cluster"] for line in lines})
    rows = {name: 30.0 * np.array([2.0, 0.0, 1.0]) for name in "xy"}
    result = mb.open(tmp_path / "a").clusters(rows=rows).to_pydict()
    assert [str(k) for k in result["cluster"]] == [lines[i]["cluster"] for i in (2, 0, 1)]


def test_which_column_is_an_identifier(tmp_path):
    def named(*columns):
        result = identifier_of(write_table(tmp_path / "t.h5", *table_from_arrays(columns), overwrite=True))
        return result and result.name

    x = np.arange(5.0)
    assert named(("size", "real", x, None), ("person_id", "real", x + 100, None)) == "person_id"
    assert named(("person_id", "real", np.zeros(5), None)) is None
    assert named(("size", "real", x, None), ("word", "categorical", np.arange(5), list("abcde"))) == "word"
    assert named(("word", "categorical", np.array([0, 1, 2, 2, -1]), list("abcde"))) is None


def test_labels_are_those_after_burn_in(two_chains, tmp_path):
    for burn_in, n in ((None, 10), (0, 15), (20, 5)):
        export(two_chains, "labels", tmp_path / "z.txt", burn_in=burn_in)
        assert len((tmp_path / "z.chain-2.txt").read_text().splitlines()) == n
    with pytest.raises(ConfigError, match="--burn-in"):
        export(two_chains, "labels", tmp_path / "z.txt", burn_in=30)
    with pytest.raises(ConfigError, match="no draw of the labels was kept after burn-in"):
        export(two_chains, "clusters", tmp_path / "z.csv", burn_in=30)


def arviz():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("arviz", reason="the report extra is not installed")


def test_draws_for_arviz(two_chains, table, tmp_path):
    az = arviz()
    assert export(two_chains, "arviz", tmp_path / "d.h5").notes == []
    data = az.from_netcdf(str(tmp_path / "d.h5"))
    assert data.posterior.draw.values.tolist() == list(range(11, 31)) and "log_joint" in data.posterior
    assert data.warmup_posterior.sizes["draw"] == 10 and "discount" in data.sample_stats  # which is fixed
    kept = data.kept_draws
    assert kept.draw.values.tolist() == list(range(12, 31, 2)) and data.warmup_kept_draws.sizes["draw"] == 5
    draws = [d for d in iterate_draws(two_chains / "chain-2") if d.cycle > 10]
    columns = [c.name for c in table.columns if c.kind == "real"]
    for name in kept.normal_mean.normal_mean_column.values:
        values = kept.normal_mean.sel(normal_mean_column=name).values[1]
        assert values.tolist() == [d.hyper.normal[columns.index(name), 0] for d in draws]
    shape = kept.gamma_shape.sel(gamma_shape_column="visits").values[1]
    assert shape.tolist() == [d.hyper.gamma[0, 0] for d in draws]
    sizes = [np.sort(np.bincount(d.labels[0]))[::-1] for d in draws]
    n = len(draws[0].labels[0])
    assert kept.weight.values[1].tolist() == [(s[: kept.sizes["cluster"]] / n).tolist() for s in sizes]
    fewest = min(
        len(np.unique(d.labels[0])) for c in (1, 2) for d in iterate_draws(two_chains / f"chain-{c}") if d.cycle > 10
    )
    assert kept.cluster.values.tolist() == list(range(1, fewest + 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for group in ("posterior", "kept_draws"):
            assert not az.summary(data, group=group).isna().any(axis=None)


def test_draws_for_arviz_without_the_table(tmp_path):
    columns, _ = planted(n=60)
    table = write_table(tmp_path / "t.h5", *table_from_arrays(columns))
    run = make_run(tmp_path / "a", table, cycles=6, burn_in=2)
    table.path.rename(tmp_path / "moved.h5")
    (note,) = export(run, "arviz", tmp_path / "d.h5").notes
    assert note.startswith("hyperparameters and weights are left out") and "--table" in note
    assert export(run, "arviz", tmp_path / "d.h5", table=tmp_path / "moved.h5").notes == []
    with pytest.raises(DataError, match=r"there\.h5"):
        export(run, "arviz", tmp_path / "d.h5", table=tmp_path / "there.h5")
    assert Table.open(tmp_path / "moved.h5").n_rows == 60
