"""Keys of the configuration, of every family, away from their defaults: the same bytes on one rank and on two.

This process, and ranks that stay (`tests/ranks.py`), go through the cases of `every_key.VALUES` with `mpibayes run`.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from mpibayes.hpc import registry
from mpibayes.hpc.config.load import load
from mpibayes.io.draws import iterate_draws
from mpibayes.io.files import chain_directories
from mpibayes.io.trace import read_trace
from tests.run.conftest import mpibayes
from tests.run.every_key import CONFIG, NO_VALUE, REFUSED, VALUES, cases_of, keys_of, make_files, runs_of, sections_in

FORMS = ("labels", "features", "factors", "topics")  # of `export`, besides csv


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("every_key")
    make_files(place)
    return place


def words_of(case):
    return [word for change in case for word in ("--set", change)]


def call_all(place: Path, calls: dict[str, list], ranks: int) -> dict[str, str]:
    """Call `mpibayes` with these words, by name; the errors of the calls that failed."""
    ended = {name: mpibayes(place, *words, ranks=ranks) for name, words in calls.items()}
    return {name: f"exit code {end.returncode}: {end.stderr}" for name, end in ended.items() if end.returncode}


def exports_of(kind: str, out: str) -> dict[str, list]:
    """The calls that write every form there is."""
    burn_in = {"csv": ["--no-timings"], "labels": ["--burn-in", "0"], "features": ["--burn-in", "0"]}
    forms = ("csv", *(form for form in FORMS if form in registry.exports_of(kind).FORMS))
    return {
        f"{out}.{form}": ["export", out, "--to", form, "-o", f"{out}.{form}", *burn_in.get(form, [])] for form in forms
    }


def differences(place: Path, kind: str, cases) -> list[str]:
    """The problems of some cases, by number. A case's run is in KIND-NUMBER-RANKS."""
    problems = []
    for ranks in (1, 2):
        calls = {f"{kind}-{n}-{ranks}": ["run", f"{kind}.toml", "-o", f"{kind}-{n}-{ranks}", *words_of(case)]
                 for n, case in cases.items()}  # fmt: skip
        failed = call_all(place, calls, ranks)
        problems += [f"{cases[int(name.split('-')[-2])]} on {ranks} ranks: {text}" for name, text in failed.items()]
        cases = {n: case for n, case in cases.items() if f"{kind}-{n}-{ranks}" not in failed}
    exports = {name: words for n in cases for name, words in exports_of(kind, f"{kind}-{n}-1").items()}
    problems += [f"{name}: {text}" for name, text in call_all(place, exports, 1).items()]
    for n, case in cases.items():
        one, two = (written(place / f"{kind}-{n}-{ranks}") for ranks in (1, 2))
        if one != two or not one:
            problems.append(
                f"{case}: other bytes on 2 ranks, in {[name for name in one if one[name] != two.get(name)]}"
            )
    return problems


def written(out: Path) -> dict[tuple, bytes]:
    """Return the material of every export: traces without timings, and arrays of kept draws, by chain."""
    parts = {}
    for folder in chain_directories(out):
        trace = {name: x for name, x in read_trace(folder).items() if name != "seconds"}
        parts |= {(folder.name if folder != out else "", name): x.tobytes() for name, x in trace.items()}
        parts |= {
            (folder.name if folder != out else "", cycle, name): array.tobytes()
            for cycle, arrays in iterate_draws(folder)
            for name, array in arrays.items()
        }
    return parts


def test_every_kind_of_model_has_a_run():
    assert set(CONFIG) == set(VALUES) == set(registry.ROOMS) - {registry.AUTO}  # which is one of two of them


@pytest.mark.parametrize("kind", CONFIG)
def test_every_key_has_a_value_that_is_not_its_default(place, kind):
    requested = dict(keys_of(kind))
    assert set(VALUES[kind]) <= set(requested), "keys that there are not"
    problems = []
    for name, info in requested.items():
        cases, (section, key) = VALUES[kind].get(name, []), name.split(".")
        if name in NO_VALUE.get(kind, ()):
            assert not cases
            continue
        if not cases:
            problems.append(f"{name}: no case in every_key.py")
        left = sections_in(info.annotation) - REFUSED.get(kind, set())
        for case in cases:
            config = load(place / f"{kind}.toml", case)
            of = config.named[section].values() if section in config.named else [config.sections[section]]
            values = [getattr(section, key) for section in of]
            left -= set(map(type, values))
            if not info.is_required() and values == [info.default] * len(values):
                problems.append(f"{case}: {name} has its default")
        problems += [f"{name}: no case holds a {section.__name__}" for section in left]
    assert not problems, "\n".join(problems)


PART = 24  # runs of a test, which has to end in time on a busy machine
PARTS = [(kind, start) for kind in CONFIG for start in range(0, len(runs_of(kind)), PART)]


@pytest.mark.thorough
@pytest.mark.parametrize("kind, start", PARTS)
def test_every_key_on_one_rank_and_on_two(place, mpirun, kind, start):
    problems = differences(place, kind, dict(list(enumerate(runs_of(kind)))[start : start + PART]))
    assert not problems, "\n".join(problems)


SAMPLE = [
    tuple(change for case in VALUES["mixture"]["columns.prior"] for change in case),
    (*VALUES["mixture"]["blocks.prior"][0], "data.heldout=new.csv", "data.unseen=missing"),
]


def test_a_sample_of_keys_on_one_rank_and_on_two(place, mpirun):
    """It takes seconds, as ranks are started; nothing less has a configuration sent to another rank."""
    problems = differences(place, "mixture", dict(enumerate(SAMPLE, 1000)))
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("kind", CONFIG)
def test_a_configuration_travels(place, kind):
    """To other ranks: every case, which in `Config` holds every kind of section."""
    for case in cases_of(kind):
        config = load(place / f"{kind}.toml", case)
        assert pickle.loads(pickle.dumps(config)) == config, case
