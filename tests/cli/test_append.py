"""`mpibayes import --append` and `mpibayes.append_rows` as a user gives them."""

import pytest

import mpibayes as mb
from mpibayes.errors import DataError
from mpibayes.io.table import Table
from tests.run.conftest import mpibayes

FIRST = "city,size\n" + "".join(f"{'Oslo' if i % 2 else 'Rome'},{i % 7}.5\n" for i in range(40))


@pytest.fixture
def place(tmp_path):
    (tmp_path / "may.csv").write_text(FIRST)
    (tmp_path / "june.csv").write_text("size,city\n1.5,Oslo\n2.5,Bonn\n")
    assert mpibayes(tmp_path, "import", "may.csv", "people.h5").returncode == 0
    return tmp_path


def test_a_look_and_an_append(place):
    look = mpibayes(place, "import", "june.csv", "people.h5", "--append", "--dry-run")
    assert "2 rows fit, and would follow its 40; nothing was written" in look.stdout
    done = mpibayes(place, "import", "june.csv", "people.h5", "--append")
    assert done.returncode == 0 and "2 rows appended, in people.part-2.h5: now 42 rows" in done.stdout
    assert "column 'city': 1 new level in 1 cell: 'Bonn'" in done.stdout
    again = mpibayes(place, "import", "june.csv", "people.h5", "--append")
    assert again.returncode == 3 and "has these 2 rows already" in again.stderr
    assert mpibayes(place, "import", "june.csv", "people.h5", "--append", "--force").returncode == 0


def test_options_that_the_table_answers(place):
    done = mpibayes(place, "import", "june.csv", "people.h5", "--append", "--kind", "city=real", "--sparse")
    assert done.returncode == 2 and "--kind, --sparse: no use with --append" in done.stderr


def test_there_has_to_be_a_table(place):
    done = mpibayes(place, "import", "june.csv", "none.h5", "--append")
    assert done.returncode == 3 and "none.h5" in done.stderr and not (place / "none.h5").exists()


def test_from_python(place, capsys):
    mb.append_rows({"city": ["Ulm", None], "size": [0.5, None]}, place / "people.h5")
    assert "'Ulm'" in capsys.readouterr().out and len(Table.open(place / "people.h5")) == 42
    with pytest.raises(DataError, match="has other columns"):
        mb.append_rows({"city": ["Ulm"]}, place / "people.h5")


def test_a_sparse_table_takes_no_rows(place):
    (place / "ratings.csv").write_text("user,movie,rating,time\n1,1,3,0\n1,2,4,0\n2,1,5,0\n")
    names = ("--sparse", "--names", "user,movie,rating,time")
    assert mpibayes(place, "import", "ratings.csv", "ratings.h5", *names).returncode == 0
    before = (place / "ratings.h5").read_bytes()
    for more in ((), ("--dry-run",), ("--force",)):
        done = mpibayes(place, "import", "ratings.csv", "ratings.h5", "--append", *more)
        assert done.returncode == 3 and "a sparse table, of counts or ratings; expected a typed table" in done.stderr
    assert (place / "ratings.h5").read_bytes() == before and not list(place.glob("ratings.part-*"))
