"""Small words of messages."""

import math

import pytest

from mpibayes.hpc.parallel.launcher import launcher_rank, launcher_size
from mpibayes.hpc.run.clock import job_time_left
from mpibayes.hpc.run.lock import restarts
from mpibayes.hpc.synthetic.truth import parse_levels
from mpibayes.text import counted, every, factor, import_again, whole_number


def test_one_and_many():
    assert [counted(n, "row") for n in (0, 1, 2, 12_000)] == ["0 rows", "1 row", "2 rows", "12,000 rows"]
    assert [counted(n, "class", "classes") for n in (1, 3)] == ["1 class", "3 classes"]
    assert [every(n) for n in (1, 4)] == ["every cycle", "every 4 cycles"]


def test_a_name_with_a_blank_is_quoted_for_the_shell():
    assert import_again("zip code", "categorical").endswith("--kind 'zip code=categorical' --force")


@pytest.mark.parametrize(
    "times, text", [(1.0, "1"), (1.00321, "1.0032"), (1.08, "1.080"), (1.1, "1.1"), (1.7, "1.7"), (12.0, "12")]
)
def test_a_factor_near_one_is_not_one(times, text):
    assert factor(math.log(187.0), math.log(times)) == f"187 ×/÷ {text}"


NO_NUMBERS = ["", "x", "-1", "1.5", "²", "٣", "9" * 5000, "1e3", " 1", "+1"]


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_a_launcher_or_batch_system_left_is_a_number_or_nothing(monkeypatch, text):
    """`isdigit` takes ² and 5,000 digits, which `int` does not: each was an exit 70 of every command."""
    assert whole_number(text) is None
    for name in ("PMI_SIZE", "PMI_RANK", "SLURM_RESTART_COUNT", "SLURM_JOB_END_TIME"):
        monkeypatch.setenv(name, text)
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("PATH", "")  # no scontrol
    assert (launcher_size(), launcher_rank(), restarts(), job_time_left()) == (1, 0, 0, None)
    with pytest.raises(ValueError, match="is not a number of levels"):
        parse_levels(text)
