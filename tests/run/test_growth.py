"""`mpibayes run --grow`: a run takes in the rows that came to its table, and keeps what it was so far."""

import json
import os
import shutil
import subprocess
import time
from unittest import mock

import numpy as np
import pytest

import mpibayes as mb
from mpibayes.errors import CheckpointError, ConfigError
from mpibayes.hpc.config.load import load
from mpibayes.hpc.crosscat import family
from mpibayes.hpc.crosscat.draws import last_draw
from mpibayes.hpc.ibp.draws import last_draw as last_features
from mpibayes.hpc.posterior.chains import KeptChains
from mpibayes.hpc.python.grow import with_more_rows
from mpibayes.hpc.run import grown
from mpibayes.hpc.run.identity import RESOLVED, read_provenance, read_resolved
from mpibayes.hpc.run.lock import _started, this_process
from mpibayes.io.append import append_rows
from mpibayes.io.files import unguarded
from mpibayes.io.ingest import import_table
from mpibayes.io.table import Table
from mpibayes.io.trace import read_trace
from tests.exact.compare import seed
from tests.run.conftest import command, exported, in_process, mpibayes, run, run_some
from tests.run.test_grown import CONFIG, begun, csv


def contents(folder):
    """Contents of a run directory, its logs and its growths aside."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    names = {str(path.relative_to(folder)): path for path in files}
    return {name: path.read_bytes() for name, path in names.items() if not name.startswith(("logs", "grown"))}


@pytest.mark.parametrize("family", ["mixture", "crosscat"])
def test_a_run_goes_on_with_new_rows(tmp_path, family):
    asked = begun(tmp_path, family)
    before = contents(tmp_path / "may")
    refused = run(tmp_path, "may")
    assert refused.returncode == 2 and "--grow (run.grow = true)" in refused.stderr
    assert contents(tmp_path / "may") == before
    done = run(tmp_path, "may", "--grow")
    assert done.returncode == 0, done.stderr
    for words in ("40 rows appended to the 90", "assigns 32 more training rows", "draws count from cycle 5"):
        assert words in done.stdout, done.stdout
    assert contents(tmp_path / "may" / "grown" / "1") == before
    assert mpibayes(tmp_path, "query", "may/grown/1", "logp", "--of", "p=a").stdout == asked
    assert mpibayes(tmp_path, "query", "may", "logp", "--of", "p=a").stdout not in ("", asked)
    assert all(len(z) == 104 for z in last_draw(tmp_path / "may").labels)
    assert read_trace(tmp_path / "may")["cycle"].tolist() == list(range(1, 11))
    assert run(tmp_path, "may").returncode == run(tmp_path, "may", "--grow").returncode == 0  # nothing came since
    assert len(list((tmp_path / "may" / "grown").iterdir())) == 1
    assert '"grown": 1' in mpibayes(tmp_path, "status", "may", "--json").stdout
    assert "1 time; cycles count from the last" in mpibayes(tmp_path, "status", "may").stdout
    assert "130 rows in 2 parts" in mpibayes(tmp_path, "check", "run.toml").stdout


def test_chains_start_each_from_itself_until_they_have_settled(tmp_path):
    words = ("--set", "run.chains=2", "--set", "run.until=settled")
    begun(tmp_path, "mixture", *words)
    done = run(tmp_path, "may", *words, "--grow")
    assert done.returncode == 0, done.stderr
    for i in (1, 2):
        assert f"chain-{i}: starts: as the last draw of may/grown/1/chain-{i}" in done.stdout, done.stdout
        assert len(last_draw(tmp_path / "may" / f"chain-{i}").labels[0]) == 104
    status = mpibayes(tmp_path, "status", "may").stdout
    assert "chain-2" in status and "finished" in status


def test_draws_come_from_other_streams(tmp_path):
    (tmp_path / "run.toml").write_text(CONFIG.format(family="mixture"))
    config = load(tmp_path / "run.toml").changed("sampler", init="one")
    seeds = [grown.Growth(times).settings(config).run.seed for times in range(4)]
    assert seeds[0] == config.run.seed and len(set(seeds)) == 4


@pytest.mark.thorough
def test_rows_come_again_and_an_annealed_start_is_none(tmp_path):
    anneal = ("--set", "sampler.strategy=anneal", "--set", "anneal.passes=1.5", "--set", "run.burn_in=auto",
              "--set", "run.shards=auto")  # fmt: skip
    begun(tmp_path, "mixture", *anneal)
    assert run(tmp_path, "may", *anneal, "--set", "run.cycles=6", "--grow").returncode == 0
    append_rows(csv(tmp_path, "july.csv", 30, 4, "abcd"), tmp_path / "people.h5")
    refused = run(tmp_path, "may", *anneal)
    assert refused.returncode == 2 and "30 rows appended to" in refused.stderr and "130" in refused.stderr
    done = run(tmp_path, "may", *anneal, "--grow", "--set", "run.cycles=8")
    assert done.returncode == 0 and "may/grown/2" in done.stdout, done.stdout + done.stderr
    assert [len(read_trace(tmp_path / p)["cycle"]) for p in ("may/grown/1", "may/grown/2", "may")] == [10, 6, 8]
    assert [record["rows"] for record in read_provenance(tmp_path / "may")["grown"]] == [90, 130]
    assert len(last_draw(tmp_path / "may").labels[0]) == 128
    for place, words in (("may", "added 30 rows"), ("may/grown/2", "added 40 rows")):  # each against the one before it
        assert f"The last append {words}" in mpibayes(tmp_path, "report", place).stdout


def test_a_held_out_file_may_have_the_new_levels(tmp_path):
    held = ("--set", "data.heldout=held.csv", "--set", "data.unseen=missing")
    (tmp_path / "held.csv").write_text("p,q,r,s\na,b,x,1.5\nd,c,y,4.0\n")
    begun(tmp_path, "mixture", *held)
    later = csv(tmp_path, "july.csv", 30, 5)
    later.write_text(later.read_text() + "d,a,x,1.0\n")
    append_rows(later, tmp_path / "people.h5")
    done = run(tmp_path, "may", *held, "--grow")
    assert done.returncode == 0, done.stderr
    (tmp_path / "held.csv").write_text("p,q,r,s\na,b,x,1.5\n")
    assert "the held-out file's rows are not those" in run(tmp_path, "may", *held).stderr


def test_a_prior_by_level_has_no_room_for_another(tmp_path):
    prior = ("--set", "columns.p.prior={dirichlet = [1, 2, 1]}")
    import_table(csv(tmp_path, "may.csv", 90, 1), tmp_path / "people.h5")
    (tmp_path / "run.toml").write_text(CONFIG.format(family="mixture"))
    assert run(tmp_path, "may", *prior).returncode == 0
    later = csv(tmp_path, "june.csv", 40, 2)
    later.write_text(later.read_text() + "d,a,x,1.0\n")
    append_rows(later, tmp_path / "people.h5")
    done = run(tmp_path, "may", *prior, "--grow")
    assert done.returncode == 2 and "got 3 numbers, expected 4" in done.stderr, done.stderr
    assert "column 'p': d came with rows that were appended" in done.stderr
    assert not (tmp_path / "may" / "grown").exists()


class Killed(BaseException):
    """Not to be caught."""


STEPS = [("os.link", 0), ("os.link", 3), ("shutil.copy2", 0), ("os.rename", 0), ("identity.write_provenance", 0),
         ("remove", 0), ("remove", 3), ("identity.write_resolved", 0), ("identity.write_provenance", 1)]  # fmt: skip
COMMITTED = 5  # steps up to the one that makes it a run of all rows
# Those before leave the run as it was, and a folder that is not finished: half of it linked, or all but its record.
STARTED_AGAIN = {1, 4, *range(COMMITTED, len(STEPS))}


@pytest.mark.thorough
def test_a_start_that_is_cut_off_loses_nothing(tmp_path, monkeypatch):
    """Cut off at each of STEPS, a run is what it was, or, once it is one of all rows, the next start completes it."""
    asked = begun(tmp_path)
    before = contents(tmp_path / "may")
    shutil.copytree(tmp_path / "may", tmp_path / "straight")
    assert run(tmp_path, "straight", "--grow").returncode == 0
    requested = exported(tmp_path, "straight")
    record, settings = read_provenance(tmp_path / "straight"), (tmp_path / "straight" / RESOLVED).read_text()
    settings = "".join(settings.splitlines(keepends=True)[:-2])  # without the name and the checksum
    for i, (step, after) in enumerate(STEPS):
        place = tmp_path / f"cut-{i}"
        shutil.copytree(tmp_path / "may", place)
        of, name = (grown, step) if "." not in step else (getattr(grown, step.split(".")[0]), step.split(".")[1])
        right, calls = getattr(of, name), []

        def dies(*given, right=right, calls=calls, after=after, **named):
            calls.append(1)
            if len(calls) > after:
                raise Killed
            return right(*given, **named)

        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(of, name, dies)
            grown.take_in(place, {**read_provenance(place), "fingerprint": record["fingerprint"]}, 90, settings,
                          unguarded)  # fmt: skip
        if i < COMMITTED:
            assert contents(place) == before, step
            assert mpibayes(tmp_path, "query", place.name, "logp", "--of", "p=a").stdout == asked
        else:
            with pytest.raises(ConfigError, match="has not finished; run the same command again"):
                KeptChains([place])
            assert mpibayes(tmp_path, "query", f"{place.name}/grown/1", "logp", "--of", "p=a").stdout == asked
            assert read_resolved(place)["run"]["shards"] == 3
            state = mpibayes(tmp_path, "status", place.name).stdout
            assert "not started" in state and "has not finished" in state, state
        if i not in STARTED_AGAIN:
            continue
        done = run(tmp_path, place.name, "--grow")
        assert done.returncode == 0, (step, done.stderr)
        assert exported(tmp_path, place.name) == requested, step
        assert contents(place / "grown" / "1") == before and len(list((place / "grown").iterdir())) == 1, step


@pytest.mark.thorough
def test_the_same_bits_on_ranks_and_after_stops(tmp_path):
    """Before the rows came and after it."""
    (tmp_path / "run.toml").write_text(CONFIG.format(family="crosscat"))
    import_table(csv(tmp_path, "may.csv", 90, 1), tmp_path / "people.h5")
    assert run(tmp_path, "one").returncode == 0
    assert run_some(tmp_path, "pieces", 4, ranks=2).returncode == 75
    assert run(tmp_path, "pieces", ranks=3).returncode == 0
    append_rows(csv(tmp_path, "june.csv", 80, 2, "abcd"), tmp_path / "people.h5")
    assert run(tmp_path, "one", "--grow").returncode == 0
    assert run_some(tmp_path, "pieces", 3, "run.grow=true", ranks=3).returncode == 75
    assert run(tmp_path, "pieces", "--grow", ranks=2).returncode == 0
    assert exported(tmp_path, "one") == exported(tmp_path, "pieces")


@pytest.mark.thorough
def test_kills_at_any_moment_lose_nothing(tmp_path):
    """Kills of appends, and of starts that take the rows in: tables and runs are always those of before or after."""
    rng, n_files = np.random.default_rng(seed(231)), 3
    (tmp_path / "run.toml").write_text(CONFIG.format(family="mixture"))
    import_table(csv(tmp_path, "may.csv", 90, 1), tmp_path / "people.h5")
    assert run(tmp_path, "may").returncode == 0
    sources = [csv(tmp_path, f"later-{i}.csv", 20, 10 + i, "abcd") for i in range(n_files)]
    n_killed, took = 0, {"import": 4.0, "run": 4.0}

    def killed(*words):
        """True if a command was killed, at a moment of the later part of its life."""
        began = time.monotonic()
        process = subprocess.Popen(command(1, *words), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            _, errors = process.communicate(timeout=took[words[0]] * rng.uniform(0.3, 1.05))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return True
        assert process.returncode == 0, errors
        took[words[0]] = time.monotonic() - began
        return False

    for i, source in enumerate(sources):
        for words in (("import", source.name, "people.h5", "--append"), ("run", "run.toml", "-o", "may", "--grow")):
            for _ in range(3):
                done = not killed(*words)
                n_killed += not done
                table = Table.open(tmp_path / "people.h5")
                assert table.n_rows in (90 + 20 * i, 110 + 20 * i) and len(table.read()) == table.n_rows
                for home in (tmp_path / "may", *(tmp_path / "may" / "grown").glob("[0-9]")):
                    try:
                        KeptChains([home])
                    except ConfigError as error:
                        assert "has not finished" in str(error), error
                if done or (words[0] == "import" and table.n_rows == 110 + 20 * i):
                    break
            else:
                done = in_process(tmp_path, *words)
                assert done.returncode == 0, done.stderr
    assert run(tmp_path, "may", "--grow").returncode == 0 and n_killed >= 3
    assert len(last_draw(tmp_path / "may").labels[0]) == 72 + 16 * n_files
    sizes = [KeptChains([home]).table.n_rows for home in sorted((tmp_path / "may" / "grown").glob("[0-9]"))]
    assert sizes[0] == 90 and sizes == sorted(sizes)


FAMILIES = {
    "ibp": ('family = "ibp"', "", "labels = 2"),
    "svi": ('family = "svi"\ncomponents = 3', "", "kept = 2"),
    "regression": (
        'family = "regression"\nlikelihood = "logistic"', '[regression]\nresponse = "bought"\npredictors = ["x", "y"]',
        "thin = 1",
    ),
}  # fmt: skip
SCORE = {"ibp": "heldout_lpd", "svi": "heldout_lpd", "regression": "lp"}


@pytest.mark.quick("ibp")
@pytest.mark.parametrize("family", FAMILIES)
def test_other_families_take_rows_in_too(tmp_path, family):
    """Features and components start from those of the last draw, coefficients from the mode of all rows."""
    g, sizes = np.random.default_rng(7), (60, 24)
    for name, n in zip(("may.csv", "june.csv"), sizes):
        x, y = g.normal(size=(2, n)) + 3 * g.integers(0, 2, (2, n))
        bought = np.where(g.random(n) < 1 / (1 + np.exp(1 - x)), "yes", "no")
        of = [f"{a:.3f},{b:.3f}" + f",{c}" * (family == "regression") for a, b, c in zip(x, y, bought)]
        (tmp_path / name).write_text("\n".join(["x,y" + ",bought" * (family == "regression"), *of]) + "\n")
    model, more, output = FAMILIES[family]
    (tmp_path / "run.toml").write_text(
        f'[data]\ntable = "t.h5"\nheldout = 0.25\n[model]\n{model}\n{more}\n[run]\nshards = 2\ncycles = 10\n'
        f"[output]\n{output}\n"
    )
    import_table(tmp_path / "may.csv", tmp_path / "t.h5")
    assert run(tmp_path, "a").returncode == 0
    before = contents(tmp_path / "a")
    append_rows(tmp_path / "june.csv", tmp_path / "t.h5")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    done = run(tmp_path, "a", "--grow")
    assert done.returncode == 0 and "24 rows appended to the 60" in done.stdout, done.stdout + done.stderr
    assert (family == "regression") != ("starts: " in done.stdout), done.stdout
    assert mpibayes(tmp_path, "report", "a").stdout.count("The last append added 24 rows") == 1
    assert contents(tmp_path / "a" / "grown" / "1") == before
    scores = [read_trace(tmp_path / place)[SCORE[family]] for place in ("a", "a/grown/1")]
    assert len(scores[0]) == len(scores[1]) == 10 and not np.array_equal(*scores, equal_nan=True)
    if family == "ibp":
        first = last_features(tmp_path / "a" / "grown" / "1").rows()
        assert len(first) == 45 and len(last_features(tmp_path / "a").rows()) == 63
    assert run(tmp_path, "b", "--grow", ranks=2).returncode == 0
    assert contents(tmp_path / "b")["config.resolved.toml"] == contents(tmp_path / "a")["config.resolved.toml"]
    assert np.array_equal(read_trace(tmp_path / "b")[SCORE[family]], read_trace(tmp_path / "a")[SCORE[family]], True)


def test_a_run_without_a_kept_draw_starts_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(family, "EARLY", (1000,))
    begun(tmp_path, "mixture", "--set", "output.labels=100")
    done = run(tmp_path, "may", "--grow", "--set", "output.labels=100")
    assert done.returncode == 0 and "more training rows" not in done.stdout, done.stdout + done.stderr


def test_a_run_that_is_refused_loses_no_earlier_one(tmp_path):
    """Provenance of before the rows came, put back from a copy, and a folder of the user's own."""
    begun(tmp_path, "mixture")
    copy = (tmp_path / "may" / "provenance.json").read_bytes()
    assert run(tmp_path, "may", "--grow").returncode == 0
    earlier = contents(tmp_path / "may" / "grown" / "1")
    (tmp_path / "may" / "grown" / "2024").mkdir()
    (tmp_path / "may" / "provenance.json").write_bytes(copy)
    assert run(tmp_path, "may").returncode == 2
    assert contents(tmp_path / "may" / "grown" / "1") == earlier and (tmp_path / "may" / "grown" / "2024").is_dir()
    again = run(tmp_path, "may", "--grow")
    assert again.returncode != 0 and "it is another run" in again.stderr
    assert contents(tmp_path / "may" / "grown" / "1.old-1") == earlier


def test_another_held_out_file_does_not_come_with_rows(tmp_path):
    held = ("--set", "data.heldout=held.csv")
    (tmp_path / "held.csv").write_text("p,q,r,s\na,b,x,1.5\n")
    begun(tmp_path, "mixture", *held)
    (tmp_path / "held.csv").write_text("".join((tmp_path / "may.csv").read_text().splitlines(keepends=True)[:9]))
    done = run(tmp_path, "may", *held, "--grow")
    assert done.returncode == 2 and "the held-out file's rows are not those" in done.stderr, done.stderr
    assert not (tmp_path / "may" / "grown").exists()


def test_a_draw_that_cannot_be_read_keeps_rows_out(tmp_path):
    begun(tmp_path, "mixture")
    segment = max((tmp_path / "may" / "labels").glob("seg-*.h5"))
    segment.write_bytes(segment.read_bytes()[:-400])
    before = contents(tmp_path / "may")
    assert run(tmp_path, "may", "--grow").returncode in (3, 4)
    assert contents(tmp_path / "may") == before


def test_links_to_other_disks_lead_there_from_earlier_runs(tmp_path):
    begun(tmp_path, "mixture")
    (tmp_path / "scratch").mkdir()
    (tmp_path / "may" / "labels").rename(tmp_path / "scratch" / "labels")
    (tmp_path / "may" / "labels").symlink_to("../scratch/labels")
    done = run(tmp_path, "may", "--grow")
    assert done.returncode == 0 and "starts: as the last draw of may/grown/1" in done.stdout, done.stdout + done.stderr


def test_python_goes_on_with_a_growth_that_was_cut_off(tmp_path, monkeypatch):
    begun(tmp_path, "mixture")
    place, table = tmp_path / "may", Table.open(tmp_path / "people.h5")
    record = {**read_provenance(place), "fingerprint": table.fingerprint}
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(grown, "remove", mock.Mock(side_effect=Killed))
        grown.take_in(place, record, 90, read_settings(place), unguarded)
    config, folder, settings = with_more_rows(str(tmp_path / "june.csv"), place, ["run.cycles=9"], {}, mock.Mock())
    assert (config, folder, settings[-1]) == (place / RESOLVED, place, "run.cycles=9")
    dead = subprocess.Popen(["true"])
    dead.wait()
    (place / "LOCK").write_text(json.dumps({**this_process(), "pid": dead.pid, "started": _started(os.getpid())}))
    words = " ".join(mpibayes(tmp_path, "status", "may").stdout.split())
    assert "the same command continues. A start that adds rows has not finished. The run of" in words, words
    (place / "LOCK").unlink()
    grown.complete(place, unguarded)
    state = mpibayes(tmp_path, "status", "may").stdout
    assert "not started" in state and "rows appended" in state, state
    for pid, words in (
        (os.getpid(), "starting"),
        (dead.pid, f"process {dead.pid} is gone; the same command continues"),
    ):
        owner = {**this_process(), "pid": pid, "started": _started(os.getpid())}
        (place / "LOCK").write_text(json.dumps(owner))
        state = mpibayes(tmp_path, "status", "may").stdout
        assert words in state and ("died" in state) == (pid == dead.pid) and "not started" not in state, state
    (place / "LOCK").unlink()
    assert run(tmp_path, "may").returncode == 0 and len(last_draw(place).labels[0]) == 104


def test_a_growth_killed_before_its_first_cycle_names_the_run_that_can_be_read(tmp_path):
    begun(tmp_path)
    assert run(tmp_path, "may", "--grow").returncode == 0
    shutil.rmtree(tmp_path / "may" / "trace")
    with pytest.raises(ConfigError, match=r"nothing has been saved yet: .* mpibayes report .*may/grown/1$"):
        KeptChains([tmp_path / "may"]).require_begun()
    KeptChains([tmp_path / "may" / "grown" / "1"]).require_begun()


def test_a_run_that_was_set_aside_does_not_continue_and_the_new_one_does_not_grow_again(tmp_path):
    begun(tmp_path, "mixture")
    assert run(tmp_path, "may", "--grow").returncode == 0
    assert read_resolved(tmp_path / "may")["run"]["grow"] is False  # the report's command to continue names this file
    earlier = tmp_path / "may" / "grown" / "1"
    done = mpibayes(tmp_path, "run", str(earlier / RESOLVED), "-o", str(earlier), "--set", "run.grow=true")
    assert done.returncode == 2 and "which does not continue; run" in done.stderr, done.stderr
    assert not (earlier / "grown").exists()


def test_a_growth_that_another_start_has_taken_over_says_so(tmp_path, monkeypatch):
    """A frozen start wakes up after its draft was removed."""
    begun(tmp_path, "mixture")
    place, table = tmp_path / "may", Table.open(tmp_path / "people.h5")
    record, lost = {**read_provenance(place), "fingerprint": table.fingerprint}, []

    def copied(source, target):
        shutil.rmtree(target.parent)
        lost.append(True)
        target.write_bytes(b"")

    def guard():
        if lost:
            raise CheckpointError("writes nothing more")

    with monkeypatch.context() as patch, pytest.raises(CheckpointError, match="writes nothing more"):
        patch.setattr(grown, "_copy", copied)
        grown.take_in(place, record, 90, read_settings(place), guard)
    with monkeypatch.context() as patch, pytest.raises(CheckpointError, match="No such file"):
        patch.setattr(grown, "_copy", copied)
        grown.take_in(place, record, 90, read_settings(place), unguarded)


def read_settings(place):
    """The settings of a run, without its name and the checksum."""
    return "".join((place / RESOLVED).read_text().splitlines(keepends=True)[:-2])


def test_a_run_that_was_opened_before_says_so(tmp_path):
    begun(tmp_path, "mixture")
    opened = mb.open(tmp_path / "may")
    before = opened.logp(of={"p": "a"})
    assert run(tmp_path, "may", "--grow").returncode == 0
    for ask in (lambda: opened.logp(of={"p": "a"}), lambda: opened.columns):
        with pytest.raises(ConfigError, match="rows were appended to this run since it was opened; open it again"):
            ask()
    assert mb.open(tmp_path / "may" / "grown" / "1").logp(of={"p": "a"}).frame.equals(before.frame)


@pytest.mark.thorough
def test_a_table_that_is_run_as_it_is_grows(tmp_path):
    """`mpibayes run people.h5`, whose configuration names the table as it was."""
    import_table(csv(tmp_path, "may.csv", 90, 1), tmp_path / "people.h5")
    words = ("run", "people.h5", "-o", "runs/may", "--set", "run.cycles=4", "--set", "run.chains=1", "--ranks", "1")
    assert mpibayes(tmp_path, *words).returncode == 0
    append_rows(csv(tmp_path, "june.csv", 40, 2, "abcd"), tmp_path / "people.h5")
    refused = mpibayes(tmp_path, *words)
    assert refused.returncode == 2 and "With --grow (run.grow = true)" in refused.stderr, refused.stderr
    done = mpibayes(tmp_path, *words, "--grow")
    assert done.returncode == 0 and "40 rows appended to the 90" in done.stdout, done.stdout + done.stderr
