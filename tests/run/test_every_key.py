"""Keys of the configuration, of every family, away from their defaults: the same bytes on one rank and on two.

This process, and a program under mpirun, go through the cases of `every_key.VALUES` with `mpibayes run`. What ends the
job (an error that not all ranks know of) costs one case: the program is started again with the next.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import pytest

from mpibayes.hpc import registry
from mpibayes.hpc.config.load import load
from tests.conftest import FOR_RANKS, launch
from tests.run.conftest import mpibayes
from tests.run.every_key import CONFIG, NO_VALUE, REFUSED, VALUES, cases_of, keys_of, make_files, runs_of, sections_in

PROGRAM = """
import json, os, sys
from mpibayes.hpc import cli
from mpibayes.hpc.parallel.launcher import launcher_rank

for name, words in json.load(open(sys.argv[1])):
    code = cli.main(words)
    if launcher_rank() == 0:
        print(f"ended {name} {code}", flush=True)
        print(f"error ended {name}", file=sys.stderr, flush=True)
"""
FORMS = ("labels", "features", "factors", "topics")  # of `export`, besides csv


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("every_key")
    make_files(place)
    return place


def words_of(case):
    return [word for change in case for word in ("--set", change)]


def call_all(place: Path, calls: dict[str, list], ranks: int) -> dict[str, str]:
    """Call `mpibayes` with these words, by name, in one program on so many ranks, where one is this process; the errors
    of the calls that failed."""
    if ranks == 1:
        ended = {name: mpibayes(place, *words) for name, words in calls.items()}
        return {name: f"exit code {end.returncode}: {end.stderr}" for name, end in ended.items() if end.returncode}
    left, failed = dict(calls), {}
    while left:
        plan = place / "calls.json"
        plan.write_text(json.dumps(list(left.items())))
        done = launch(["mpirun", "-n", ranks, sys.executable, "-c", PROGRAM, plan], 300, place, FOR_RANKS)
        ends = [line for line in done.stdout.splitlines() if line.startswith("ended ")]
        ended = [line.removeprefix("ended ").rsplit(" ", 1) for line in ends]  # the name of a kind has a blank
        errors = [text.strip() for text in done.stderr.split("error ended ")]
        for (name, code), text in zip(ended, errors):
            del left[name]
            if code != "0":
                failed[name] = f"exit code {code}: {text}"
        if left:
            name = next(iter(left))
            del left[name]
            failed[name] = f"ended the program, code {done.returncode}: {errors[-1]}"
    return failed


def exports_of(kind: str, out: str) -> dict[str, list]:
    """The calls that write every byte that the guarantee is about."""
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
    runs = [f"{kind}-{n}-{ranks}" for n in cases for ranks in (1, 2)]
    failed = call_all(place, {name: words for out in runs for name, words in exports_of(kind, out).items()}, 1)
    problems += [f"{name}: {text}" for name, text in failed.items()]
    for n, case in cases.items():
        one, two = (written(place, f"{kind}-{n}-{ranks}") for ranks in (1, 2))
        if one != two or not one:
            problems.append(
                f"{case}: other bytes on 2 ranks, in {[name for name in one if one[name] != two.get(name)]}"
            )
    return problems


def written(place: Path, out: str) -> dict[str, bytes]:
    """The files that were exported from a run, by the end of their names."""
    return {path.name.removeprefix(out): path.read_bytes() for form in ("csv", *FORMS)
            for path in sorted(place.glob(f"{out}*.{form}"))}  # fmt: skip


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
