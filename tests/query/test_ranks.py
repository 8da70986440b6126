"""Several ranks share a query: the same answer, to the bit, and one message for a mistake."""

from pathlib import Path

import pytest

from mpibayes.errors import ConfigError
from mpibayes.hpc.parallel.comm import world
from mpibayes.hpc.parallel.together import dealt
from tests.query.runs import people, people_run, write_csv

ROOT = Path(__file__).resolve().parents[2]
ROWS = ["--rows", "new.csv"]
QUESTIONS = [
    ["logp", *ROWS, "--of", "income"],
    ["conditional", "colour", *ROWS, "--given", "age"],
    ["simulate", "-n", "200", "--given", "age=30..40"],
    ["surprisal", "--by", "rows"],
    ["dependence"],
    ["pairs"],
    ["predictors", "colour", "--set", "2"],
    ["compare", "--group", "colour=red", "--against", "colour=blue"],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    people_run(folder, "crosscat")
    write_csv(folder / "new.csv", people(300, seed=9))
    return folder


@pytest.mark.thorough
def test_the_answer_does_not_depend_on_ranks(folder, mpirun):
    """Answers to every kind of question are the same on one rank and on three, in one start of each."""
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from mpibayes.hpc.cli import main; from tests.query.test_ranks import QUESTIONS\n"
        "for i, q in enumerate(QUESTIONS):\n"
        "    code = main(['query', 'crosscat', *q, '-o', f'{sys.argv[1]}-{i}.csv'])\n"
        "    assert code == 0, code\n"
    )
    for n in (1, 3):
        done = mpirun(n, "-c", program, str(n), cwd=folder)
        assert done.returncode == 0, done.stderr
    for i, question in enumerate(QUESTIONS):
        one, three = ((folder / f"{n}-{i}.csv").read_bytes() for n in (1, 3))
        assert one == three and len(one) > 100, question


@pytest.mark.thorough
def test_one_message_for_a_mistake(folder, mpirun):
    program = (
        "from mpibayes.hpc.cli import main\n"
        "import sys; from mpibayes.hpc.parallel.comm import world\n"
        "code = main(['query', 'crosscat', *sys.argv[1:]]); sys.exit(code)\n"
    )
    for arguments, words, code in (
        (["logp", "--of", "color=red"], "did you mean 'colour'?", 2),
        (["logp", "--rows", "none.csv"], "none.csv", 3),
        (["dependence", "-o", "no/where.csv"], "cannot be written", 2),
    ):
        done = mpirun(2, "-c", program, *arguments, cwd=folder)
        assert done.returncode == code and done.stderr.count("mpibayes: error:") == 1, done.stderr
        assert words in done.stderr


@pytest.mark.mpi(min_size=2)
def test_parts_come_in_order_and_fail_together():
    comm = world()
    assert dealt(comm, 7, lambda i: i * i) == [i * i for i in range(7)]
    assert dealt(comm, 0, lambda i: i) == []

    def bad(i):
        if i == comm.size - 1:  # on the last rank alone
            raise ConfigError("part is bad")
        return i

    with pytest.raises(ConfigError, match="part is bad"):
        dealt(comm, 2 * comm.size, bad)
