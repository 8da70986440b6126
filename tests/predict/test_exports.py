"""Exports of a mixture's run: clusters as the report numbers them, labels and draws for ArviZ without burn-in."""

import csv
import warnings

import numpy as np
import pytest

from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.commands.export import export, identifier_of
from mpibayes.hpc.crosscat.draws import Posterior, iterate_draws
from mpibayes.hpc.crosscat.report.summarise import summarise
from mpibayes.io.ingest import import_table
from mpibayes.io.table import Table, table_from_arrays, write_table
from tests.crosscat.report.runs import make_run, planted


@pytest.fixture(scope="module")
def two_chains(table, tmp_path_factory):
    """With held-out rows; every second draw is kept."""
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
    assert list(lines[0]) == ["row", "cluster", "probability"]  # there is no source to have lines
    assert [int(line["row"]) - 1 for line in lines] == run.data.training_rows.tolist()
    cluster = np.array([int(line["cluster"]) for line in lines])
    assert np.bincount(cluster)[1:].tolist() == r.sizes.tolist()
    assert np.bincount(cluster)[1:][: len(report.views[0].clusters)].tolist() == [
        c.rows for c in report.views[0].clusters
    ]
    chain = ("chain-1", "chain-2")[r.chain]
    (labels,) = [d.labels[0] for d in iterate_draws(two_chains / chain) if d.cycle == r.cycle]
    assert (cluster[:, None] == cluster).tolist() == (labels[:, None] == labels).tolist()
    assert f"cycle {r.cycle} of" in done.notes[0] and chain in done.notes[0]
    assert done.notes[1].startswith(f"{400 - run.n_rows} held-out rows are left out")


def test_probabilities_of_clusters_are_the_definition(two_chains, tmp_path):
    """The share of a row's companions in a draw that are in its cluster, averaged over draws."""
    export(two_chains, "clusters", tmp_path / "c.csv")
    lines = read(tmp_path / "c.csv")
    cluster = np.array([line["cluster"] for line in lines])
    draws = [d.labels[0] for c in (1, 2) for d in iterate_draws(two_chains / f"chain-{c}") if d.cycle > 10]
    assert len(draws) == 20
    told = []  # the same the wrong way round: the share of its cluster that are its companions
    for i in range(len(lines)):
        expected = np.mean([np.mean(cluster[z == z[i]] == cluster[i]) for z in draws])
        assert float(lines[i]["probability"]) == pytest.approx(expected, abs=1e-4)
        told.append(abs(np.mean([np.mean(z[cluster == cluster[i]] == z[i]) for z in draws]) - expected))
    assert max(told) > 0.01


def test_slices_do_not_matter(two_chains, tmp_path, monkeypatch):
    export(two_chains, "clusters", tmp_path / "a.csv")
    monkeypatch.setattr("mpibayes.hpc.commands.export.SLICE_ROWS", 7)
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
    assert list(lines[0]) == ["name", "row", "line", "cluster", "probability"] and len(lines) == 48
    for line in lines:
        assert source[int(line["line"]) - 1].startswith(f'"{line["name"]}",')
        assert int(line["line"]) == int(line["row"]) + 1


def test_which_column_is_an_identifier(tmp_path):
    def named(*columns):
        found = identifier_of(write_table(tmp_path / "t.h5", *table_from_arrays(columns), overwrite=True))
        return found and found.name

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
