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
