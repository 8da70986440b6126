"""`--weight COLUMN`: weights lie beside the rows of the table, which is otherwise that without the column."""

import h5py
import numpy as np
import pandas as pd
import pytest

import mpibayes as mb
from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.cli import main
from mpibayes.io.ingest import import_table
from mpibayes.io.seal import append_seal
from mpibayes.io.table import Table, table_from_arrays, write_table

N = 60
FRAME = pd.DataFrame(
    {"vote": np.tile(["red", "blue", "none"], N // 3), "age": np.arange(N) % 47 + 18, "w": np.arange(N) % 4 + 0.25}
)


def weighed(folder, frame=FRAME, weight="w", **options):
    frame.to_csv(folder / "a.csv", index=False)
    return import_table(folder / "a.csv", folder / "a.h5", weight=weight, overwrite=True, **options)


def test_weights_are_beside_the_rows_and_not_of_them(tmp_path):
    summary = weighed(tmp_path)
    table = Table.open(tmp_path / "a.h5")
    assert table.weight == "w" and (table.weights() == FRAME["w"]).all()
    assert [c.name for c in table.columns] == ["vote", "age"]
    FRAME.drop(columns="w").to_csv(tmp_path / "b.csv", index=False)
    without = import_table(tmp_path / "b.csv", tmp_path / "b.h5").table
    assert without.weight is None and without.fingerprint == table.fingerprint
    assert summary.columns[2].reason.startswith("weight of each row") and not summary.warnings
    [note] = summary.notes
    assert "weights from 0.25 to 3.25" in note and "fitted to the rows as they are" in note
    kish = FRAME["w"].sum() ** 2 / (FRAME["w"] ** 2).sum()
    assert f"worth about {kish:.0f} of equal weight" in note


def test_weights_as_people_write_them(tmp_path):
    """Decimal commas and thousands, several files, Parquet."""
    large = FRAME.assign(w=FRAME["w"] * 1000)
    texts = large["w"].map(lambda x: f"{x:,.2f}".translate(str.maketrans(",.", ".,")))
    weighed(tmp_path, large.assign(w=texts))
    assert (Table.open(tmp_path / "a.h5").weights() == large["w"]).all()
    for i, part in enumerate((FRAME[:25], FRAME[25:])):
        part.to_csv(tmp_path / f"{i}.csv", index=False)
    import_table([tmp_path / "0.csv", tmp_path / "1.csv"], tmp_path / "c.h5", weight="w")
    assert (Table.open(tmp_path / "c.h5").weights() == FRAME["w"]).all()
    mb.import_table(FRAME, tmp_path / "d.h5", weight="w")
    assert (Table.open(tmp_path / "d.h5").weights() == FRAME["w"]).all()


@pytest.mark.parametrize("text", ["-1", "", "NA", "many", "inf", "nan", "1e200"])
def test_a_weight_that_is_none_is_named_with_its_row(tmp_path, text):
    frame = FRAME.astype({"w": object})
    frame.loc[4, "w"] = text
    with pytest.raises(
        DataError, match=r"a.csv row 5 \(line 6\), column 'w': found '.*', expected the weight"
    ) as caught:
        weighed(tmp_path, frame)
    assert repr(text) in str(caught.value) and not (tmp_path / "a.h5").exists()


def test_equal_weights_and_weights_of_nothing_are_said(tmp_path):
    [note] = weighed(tmp_path, FRAME.assign(w=2.5)).notes
    assert "all weights are 2.5: weighted answers are those of the rows" in note
    _, note = weighed(tmp_path, FRAME.assign(w=np.where(np.arange(N) < 3, 0.0, FRAME["w"]))).notes
    assert "3 rows of weight 0" in note
    with pytest.raises(DataError, match="all weights are 0"):
        weighed(tmp_path, FRAME.assign(w=0))


def test_columns_that_are_no_weights(tmp_path):
    with pytest.raises(ConfigError, match=r"weight: no column of numbers 'v' in .*; it has vote, age, w"):
        weighed(tmp_path, weight="v")
    with pytest.raises(DataError, match="column 'vote': found 'red', expected the weight"):
        weighed(tmp_path, weight="vote")
    with pytest.raises(DataError, match="column 'nr': counts the rows"):
        weighed(tmp_path, FRAME.assign(nr=np.arange(N) + 1), "nr")
    with pytest.raises(DataError, match="column 'house_id': is called an identifier"):
        weighed(tmp_path, FRAME.assign(house_id=np.arange(N) // 2), "house_id")
    for options in ({"kinds": {"w": "real"}}, {"keep": ["w"]}, {"ordered": ["w"]}):
        with pytest.raises(ConfigError) as caught:
            weighed(tmp_path, **options)
        assert list(caught.value.problems) == ["column 'w': weighs rows, and is not a column of the table"]


def test_a_count_and_a_weight_do_not_go_together(tmp_path):
    with pytest.raises(ConfigError, match="counts equal rows, or is the weight of each; name it once"):
        weighed(tmp_path, FRAME.assign(w=2), count="w")
    with pytest.raises(ConfigError, match=r"stands for many \('n'\) has no weight of its own \('w'\)"):
        weighed(tmp_path, FRAME.assign(n=2), count="n")


def test_the_schema_keeps_it(tmp_path):
    weighed(tmp_path, write_schema=tmp_path / "s.toml")
    assert 'weight = "w"' in (tmp_path / "s.toml").read_text()
    weighed(tmp_path, weight=None, schema=tmp_path / "s.toml")
    assert (Table.open(tmp_path / "a.h5").weights() == FRAME["w"]).all()


def test_other_weights_are_left_out_without_advice_to_use_them(tmp_path):
    """Surveys often have several, of which one is meant."""
    frame = FRAME.assign(pweight=FRAME["w"] + 0.125)
    [alone] = weighed(tmp_path, frame, None).warnings
    assert "--weight pweight keeps it" in alone and "--kind pweight=real" in alone
    [beside] = weighed(tmp_path, frame).warnings
    assert "--weight" not in beside and "If it is data: --kind pweight=real" in beside


def test_the_command(tmp_path, capsys):
    FRAME.to_csv(tmp_path / "a.csv", index=False)
    assert main(["import", str(tmp_path / "a.csv"), str(tmp_path / "a.h5"), "--weight", "w"]) == 0
    assert "60 rows, 2 of 3 columns" in capsys.readouterr().out
    assert main(["import", str(tmp_path / "a.csv"), str(tmp_path / "b.h5"), "--sparse", "--weight", "w"]) == 2
    assert "--weight: no use with --sparse" in capsys.readouterr().err


# --- the file ---------------------------------------------------------------------------------------------------------


def written(folder, weights, source):
    arrays = table_from_arrays([("x", "real", np.arange(len(weights), dtype=float), None)])
    return write_table(folder / "t.h5", *arrays, source=source, weights=weights)


def resealed(path, change):
    """The table after a change, with checksums that are right."""
    size = path.read_bytes().rfind(b"\n{")
    with open(path, "r+b") as file:
        file.truncate(size)
    with h5py.File(path, "r+") as file:
        change(file)
    with open(path, "r+b") as file:
        append_seal(file)


def test_a_flipped_bit_in_the_weights_is_seen(tmp_path):
    weights = np.random.default_rng(1).random(1000)
    path = written(tmp_path, weights, {"weight": "w"}).path
    content = bytearray(path.read_bytes())
    content[content.find(weights[500:510].tobytes())] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="damaged HDF5 file"):
        Table.open(path).weights()


@pytest.mark.parametrize("change", ["gone", "unnamed", "longer", "negative"])
def test_impossible_weights_in_a_file(tmp_path, change):
    path = written(tmp_path, np.ones(20), None if change == "unnamed" else {"weight": "w"}).path

    def made(file):
        if change in ("gone", "longer"):
            del file["weights"]
        if change in ("unnamed", "longer"):
            file["weights"] = np.ones(20 + (change == "longer"))
        if change == "negative":
            file["weights"][3] = -1.0

    resealed(path, made)
    with pytest.raises(DataError, match=r"inconsistent|damaged table"):
        Table.open(path).weights()
