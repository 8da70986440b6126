"""The notebooks of examples/notebooks run from their first cell to their last, and what they say is so."""

import shutil
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOKS = sorted(path.stem for path in (EXAMPLES / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy, since they leave a run beside them; those that come later find it finished."""
    place = tmp_path_factory.mktemp("examples")
    for name in ("census_income", "notebooks"):
        shutil.copytree(EXAMPLES / name, place / name, ignore=shutil.ignore_patterns("runs"))
    return place / "notebooks"


@pytest.mark.thorough
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook(copy, name):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    book = nbformat.read(copy / f"{name}.ipynb", 4)
    client = nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": str(copy)}})
    client.execute()
    shown = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [o for o in shown if o.output_type == "error" or o.get("name") == "stderr"]
    assert all(cell.outputs or "holes" in cell.source for cell in book.cells if cell.cell_type == "code")


def test_there_is_one_for_each_kind_of_question():
    assert NOTEBOOKS == ["clusters", "gaps", "odd", "probable", "together"]
    for name in NOTEBOOKS:
        text = (EXAMPLES / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8")
        assert "/tmp/" not in text and "Traceback" not in text
