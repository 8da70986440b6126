"""The files that a table was imported from, found again."""

import pytest

from mpibayes.io.ingest import import_table
from mpibayes.io.table import Table
from mpibayes.io.tables import sources_near


@pytest.fixture
def study(tmp_path):
    """A folder of data beside one of runs."""
    for folder in ("study/raw/2024", "study/runs"):
        (tmp_path / folder).mkdir(parents=True)
    lines = [f"p{i},{i % 7},{i % 3}" for i in range(60)]
    (tmp_path / "study/raw/2024/people.csv").write_text("\n".join(["name,visits,ward", *lines]) + "\n")
    return tmp_path / "study"


def near(place):
    table = Table.open(place / "runs/people.h5")
    found = sources_near(table.path, table.source)
    return None if found is None else [path.resolve() for path in found]


def test_a_source_in_another_folder(study, tmp_path):
    """A table finds its source in the folder of the import, also after both have moved together."""
    import_table(study / "raw/2024/people.csv", study / "runs/people.h5")
    assert near(study) == [study / "raw/2024/people.csv"]
    moved = study.rename(tmp_path / "elsewhere")
    assert near(moved) == [moved / "raw/2024/people.csv"]
    (moved / "runs/people.csv").write_text("beside the table first")
    assert near(moved) == [moved / "runs/people.csv"]
    (moved / "runs/people.csv").unlink()
    (moved / "raw/2024/people.csv").unlink()
    assert near(moved) is None


def test_sources_in_several_folders(study):
    for name, cells in (("a", "1,2"), ("b", "3,4")):
        (study / name).mkdir()
        (study / name / f"{name}.csv").write_text("\n".join(["x,y", *[cells] * 20, "0,1"]) + "\n")
    import_table([study / "a/a.csv", study / "b/b.csv"], study / "runs/people.h5")
    assert near(study) is None
