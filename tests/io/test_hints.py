"""Notes of an import on repeated identifiers, columns that lack most cells, and survey weights."""

import pytest

from mpibayes.io.ingest import look_at
from tests.query.runs import write_csv


def rows(weight):
    return [
        {
            "id": i // 3 + 100, "visit": ("spring", "summer", "autumn")[i % 3], "score": (7 * i) % 13 + i % 5,
            "died": f"2020-01-{1 + i % 28:02d}" if i % 7 == 0 else "", weight: 0.7 + (i % 11) + 90.5 * (i % 50 == 0),
        }
        for i in range(300)
    ]  # fmt: skip


def notes_of(path, made):
    return look_at([write_csv(path, made)]).notes


@pytest.mark.parametrize(("weight", "asked"), [("weight", True), ("sample_weight", True), ("height", False)])
def test_notes_ask_the_owner(tmp_path, weight, asked):
    notes = notes_of(tmp_path / "visits.csv", [{k: str(v) for k, v in row.items()} for row in rows(weight)])
    assert any("column 'died' lacks over half of the cells" in note for note in notes), notes
    assert any(f"--weight {weight}" in note for note in notes) is asked, notes


def test_rows_of_one_unit_are_not_independent(tmp_path):
    made = [{"patient_id": str(1000 + 37 * i % 150), "dose": str(i % 2), "score": f"{i % 17}"} for i in range(300)]
    alone = [{**row, "patient_id": str(1000 + i)} for i, row in enumerate(made)]
    assert any("'patient_id'" in note and "independent" in note for note in notes_of(tmp_path / "a.csv", made))
    assert not any("independent" in note for note in notes_of(tmp_path / "b.csv", alone))
    assert not any("lacks" in note for note in notes_of(tmp_path / "b.csv", alone))


def test_levels_that_are_words_for_no_answer_are_asked_about(tmp_path):
    """Each level once; not those that the import was told about, nor words within others."""
    made = [
        {
            "owns": ("iap", "yes")[i % 2], "lives": ("iap", "alone", "with others")[i // 2 % 3],
            "votes": ("Don't know", "yes", "no")[i % 3], "eats": ("NaCl", "Nadia", "missingno")[i // 3 % 3],
            "dose": ("NA_NA", "0_no", "1_yes")[i // 9 % 3], "lorry": ("??", "car", "what?")[i // 27 % 3],
        }
        for i in range(300)
    ]  # fmt: skip
    file = write_csv(tmp_path / "a.csv", made)
    asked = [note for note in look_at([file]).notes if "means missing" in note]
    assert asked == [
        "columns 'owns' and 'lives' have the level 'iap'; if it means missing: --missing iap",
        "column 'votes' has the level \"Don't know\"; if it means missing: --missing \"Don't know\"",
        "column 'dose' has the level 'NA_NA'; if it means missing: --missing NA_NA",
        "column 'lorry' has the level '??'; if it means missing: --missing '??'",
    ]
    assert not any("iap" in note for note in look_at([file], missing=["iap"], drop=["owns"]).notes)


@pytest.mark.parametrize("weight", ["dweight", "visits"])
def test_columns_that_say_how_a_sample_was_drawn(tmp_path, weight):
    """They are asked about beside weights, with what would take their place: a copy of the probability."""
    made = [
        {
            "psu": 100 + 37 * i % 50, "stratum": "abcd"[i % 4], "prob": 0.01 * (1 + i % 9), "problem": i % 5,
            "area": "ABCDEFGHI"[i % 9], "answer": i // 3 % 5, weight: 0.4 + i % 7 / 5,
        }
        for i in range(350)
    ]  # fmt: skip
    notes = notes_of(tmp_path / "a.csv", [{k: str(v) for k, v in row.items()} for row in made])
    asked = [note for note in notes if "how the sample was drawn" in note]
    assert len(asked) == (weight == "dweight")
    for note in asked:
        assert note.startswith("columns 'psu', 'stratum' and 'prob' seem") and "--drop psu,stratum,prob,area:" in note
