"""Copies of a table that was a DataFrame: its types, its index, and what it has besides."""

import numpy as np
import pytest

import mpibayes as mb

pandas = pytest.importorskip("pandas")


def people(n=90):
    g = np.random.default_rng(3)
    k = g.integers(0, 2, n)
    frame = pandas.DataFrame(
        {
            "name": [f"p{i}" for i in range(n)],
            "age": pandas.array(np.round(g.normal(np.where(k, 60, 30), 4)).astype(int), "Int64"),
            "mass": np.round(g.normal(np.where(k, 80, 60), 6), 1),
            "colour": pandas.Categorical(np.where(k, "red", "blue"), ["blue", "red"]),
            "member": pandas.array(g.random(n) < np.where(k, 0.9, 0.2), "boolean"),
            "since": pandas.to_datetime("2020-01-01") + pandas.to_timedelta(g.integers(0, 900, n), "D"),
        },
        index=pandas.Index(np.arange(n) + 1000, name="number"),
    )
    for name in frame.columns[1:]:
        frame.loc[frame.index[5:][g.random(n - 5) < 0.15], name] = None
    return frame


@pytest.mark.thorough
def test_copies_are_like_the_frame(tmp_path):
    frame = people()
    run = mb.fit(
        frame, tmp_path / "run", family="mixture", cycles=40, chains=1, heldout=0, until_settled=False, progress=False
    )
    copies = run.complete(copies=3)
    for copy in copies:
        assert list(copy.columns) == list(frame.columns) and copy.index.equals(frame.index)
        assert not copy.isna().any().any()
        for name in frame.columns:
            there = frame[name].notna()
            assert (copy[name][there].astype(str) == frame[name][there].astype(str)).all(), name
        assert copy["age"].dtype.kind == "i" and copy["since"].dtype.kind == "M" and copy["member"].dtype == bool
    assert any((copies[0][name].astype(str) != copies[1][name].astype(str)).any() for name in frame.columns)
    long = run.complete(copies=3, long=True)
    assert (long[long[".imp"] == 0].isna().sum()[frame.columns] == frame.isna().sum()).all()
    assert (long[long[".imp"] == 2]["mass"].to_numpy() == copies[1]["mass"].to_numpy()).all()
