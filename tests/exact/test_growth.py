"""A run to which a row is added with `--grow` has the posterior of all rows; started as users start it.

Four rows of three columns, cross-categorized, the last added after 200 cycles. One long chain is compared with the
enumeration: means of events by batches, at LEVEL in all (Bonferroni). The same test rejects a chain whose old rows keep
their clusters, and one whose prior has no room for a level that first occurs in the last row.
"""

from pathlib import Path

import numpy as np
import pytest
import scipy

from mpibayes.hpc.crosscat.chain import Mixture, Tally
from mpibayes.hpc.crosscat.start import strategy
from mpibayes.hpc.crosscat.start.subsample import all_rows
from mpibayes.hpc.posterior.chains import home_of
from mpibayes.hpc.run.directory import read_start
from mpibayes.io.append import append_rows
from mpibayes.io.draws import FOLDER
from mpibayes.io.ingest import import_table
from mpibayes.io.segments import read_blocks
from tests.exact.compare import autocorrelation_time, batch_means_z, seed
from tests.exact.crosscat import CASES, fixed, given
from tests.exact.enumerate import Posterior
from tests.run.conftest import run

LEVEL = 1e-4
CYCLES, FEWER = 1200, 1000
CONFIG = """
[data]
table = "four.h5"
[model]
family = "{family}"
concentration = 1.0
{of_views}split_merge = 1
[run]
seed = {seed}
shards = {shards}
cycles = 200
[output]
labels = 1
"""
OF_VIEWS = "view_concentration = 1.0\n[sampler]\ninit_rows = 0\ninit_views = 1\n"
HALF = {"dirichlet": (0.5, 0.5, 0.5)}
NEW_LEVEL = given(
    (
        ("a", "categorical", (0, 0, 1, 2), ("no", "yes", "new")),
        ("b", "categorical", (0, 0, 1, 1), ("no", "yes")),
        ("c", "categorical", (1, 0, 1, 0), ("no", "yes")),
    ),
    {"a": HALF, "b": {"dirichlet": (0.5, 0.5)}, "c": {"dirichlet": (0.5, 0.5)}},
    fixed(),
)
SETUPS = {"cc4x3": CASES["cc4x3"], "a new level": NEW_LEVEL}


def rows_of(setup, start, stop):
    names = ",".join(name for name, *_ in setup.columns)
    cells = [[levels[x[i]] for _, _, x, levels in setup.columns] for i in range(start, stop)]
    return "\n".join([names, *map(",".join, cells)]) + "\n"


def grown(place: Path, name: str, n_shards: int, family="crosscat", cycles=CYCLES, frozen=None):
    """Indices of the states of a chain after its last row was added, in the enumeration of all four."""
    setup = SETUPS[name]
    of_views = OF_VIEWS if family == "crosscat" else "[sampler]\n"
    text = CONFIG.format(shards=n_shards, seed=seed(221), family=family, of_views=of_views)
    priors = "".join(f"[columns.{c}]\nprior = {{grid = [0.5]}}\n" for c in "abc")
    (place / "four.toml").write_text(text + priors)
    schema = "".join(f'[columns.{c}]\nkind = "categorical"\nlevels = ["no", "yes"]\n' for c in "abc")
    (place / "schema.toml").write_text(schema)
    (place / "run.toml").write_text((place / "four.toml").read_text())
    (place / "three.csv").write_text(rows_of(setup, 0, 3))
    (place / "last.csv").write_text(rows_of(setup, 3, 4))
    import_table(place / "three.csv", place / "four.h5", schema=place / "schema.toml")
    first = run(place, "out", "--set", "run.shards=1")
    assert first.returncode == 0, first.stderr
    append_rows(place / "last.csv", place / "four.h5")
    if frozen:
        frozen()
    done = run(place, "out", "--grow", "--set", f"run.shards={n_shards}", "--set", f"run.cycles={cycles}")
    assert done.returncode == 0, done.stderr
    return states(home_of(place / "out"), law(name, family))


def law(name, family="crosscat"):
    return SETUPS[name].posterior if family == "crosscat" else Posterior(SETUPS[name].case)


def states(home, exact):
    result, known = [], {}
    for block in read_blocks(home / FOLDER):
        if isinstance(exact, Posterior):
            result += exact.index(block["labels"].astype(int)[:, None])[:, 0].tolist()
            continue
        for views, labels in zip(block["views"].astype(int), block["labels"].astype(int)):
            key = views.tobytes(), labels.tobytes()
            if key not in known:
                known[key] = exact.number(views.tolist(), [labels[v].tolist() for v in views])
            result.append(known[key])
    return np.array(result)


def p_value(found, exact):
    """The p-value of the worst event, times their number. Batches are twenty times as long as the event takes."""
    names, table = exact.summaries()
    expected = table @ exact.p
    usable = np.flatnonzero((expected > 0.02) & (expected < 0.98))
    ps = []
    for e in usable:
        x = table[e][found]
        if x.min() == x.max():
            ps.append(0.0)
            continue
        tau = autocorrelation_time(x)
        batches = int(np.clip(len(x) / (20 * tau), 8, 40))
        z, _ = batch_means_z(x, expected[e], batches)
        ps.append(2 * scipy.stats.t.sf(abs(z), batches - 1))
    worst = int(np.argmin(ps))
    return min(1.0, ps[worst] * len(ps)), f"{names[usable[worst]]}: p {ps[worst]:.2g} of {len(ps)} events"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "n_shards, family, cycles", [(1, "crosscat", CYCLES), (3, "crosscat", CYCLES), (1, "mixture", FEWER)]
)
def test_the_posterior_of_all_rows(tmp_path, n_shards, family, cycles):
    result = grown(tmp_path, "cc4x3", n_shards, family, cycles=cycles)
    p, worst = p_value(result, law("cc4x3", family))
    assert p >= LEVEL, f"{worst} (seed {seed(221)})"


@pytest.mark.thorough
def test_the_posterior_of_all_rows_after_searches(tmp_path, monkeypatch):
    """The new row judges two searches on the old rows, and the chain as it was."""
    monkeypatch.setattr(strategy, "MIN_ROWS_JUDGED", 2)
    monkeypatch.setattr(strategy, "NEW_JUDGES", (1.0, 1))
    result = grown(tmp_path, "cc4x3", 1, "mixture", cycles=FEWER)
    record = read_start(home_of(tmp_path / "out"))
    assert record["judges"] == 1 and len(record["searches"]) == 2
    p, worst = p_value(result, law("cc4x3", "mixture"))
    assert p >= LEVEL, f"{worst} (seed {seed(221)})"


@pytest.mark.quick
def test_old_rows_that_stay_are_rejected(tmp_path, monkeypatch):
    cycle, growing, within = Mixture.cycle, Mixture.growing.fget, []

    def last_alone(self, i, shard, steps, target):
        remove, assign = all_rows(self.views[0].z[i])
        last = shard.start + assign == 3
        return remove[last], assign[last]

    def cycle_by_visits(self, *word):
        within.append(self)
        try:
            return cycle(self, *word)
        finally:
            within.clear()

    def frozen():
        monkeypatch.setattr(Mixture, "_visits", last_alone)
        monkeypatch.setattr(Mixture, "cycle", cycle_by_visits)
        monkeypatch.setattr(Mixture, "growing", property(lambda self: bool(within) or growing(self)))
        monkeypatch.setattr(Mixture, "_split_and_merge", lambda self: Tally())

    result = grown(tmp_path, "cc4x3", 1, "mixture", cycles=FEWER, frozen=frozen)
    p, worst = p_value(result, law("cc4x3", "mixture"))
    assert p < LEVEL, worst


@pytest.mark.thorough
def test_a_row_with_a_new_level(tmp_path):
    """The law of a table whose last row lacks the cell is rejected."""
    result = grown(tmp_path, "a new level", 3, "mixture", cycles=FEWER)
    p, worst = p_value(result, law("a new level", "mixture"))
    assert p >= LEVEL, f"{worst} (seed {seed(221)})"
    columns = (("a", "categorical", (0, 0, 1, -1), ("no", "yes")), *NEW_LEVEL.columns[1:])
    wrong = given(columns, {name: {"dirichlet": (0.5, 0.5)} for name in "abc"}, fixed())
    p, worst = p_value(result, Posterior(wrong.case))
    assert p < LEVEL, worst
