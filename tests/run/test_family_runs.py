"""Every family besides the mixtures (test_same_bits.py, test_views.py): the same bits on any number of ranks, straight
through or stopped and continued."""

from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest

from tests.run import test_ibp_runs as ibp
from tests.run import test_lda_runs as lda
from tests.run import test_ratings_runs as ratings
from tests.run import test_regression_runs as regression
from tests.run import test_svi_runs as svi
from tests.run.conftest import everything, mpibayes, ran, sets


class Case(NamedTuple):
    """Runs of a family with these changes of its configuration."""

    family: ModuleType
    changes: tuple[str, ...] = ()
    pieces: tuple[tuple[int, int], ...] = ()  # cycles that a piece goes to, and its ranks
    ranks: tuple[int, ...] = ()  # of runs without a stop
    left_out: str = ""  # lines that the configuration does without


NOISY = ('step.noise="svi+"', "step.effective={growing = 1}", "step.rate=0.85")
BATCHES = ("step.batch=40", "step.rate={delay = 1, decay = 0.6}", 'step.noise="svi+"', "step.effective=2")
PAPER = (*NOISY, 'step.count="all"', 'step.users="stepped"', "model.learn=false", "model.biases=false")
HALVES, SHORT_HALVES = ((13, 3), (30, 2)), ((13, 3), (24, 2))
IN_BURN_IN_AND_AFTER = ((90, 3), (260, 2), (400, 1))  # in burn-in step size and q are state
STOPPED = {
    "ibp": Case(ibp, (), ((17, 3), (40, 2))),  # missing cells, the scores' average and the features are state
    "svi": Case(svi, (), HALVES),
    "lda": Case(lda, (), SHORT_HALVES),
    "sampled topics": Case(lda, lda.SAMPLED, SHORT_HALVES),
    "ratings": Case(ratings, NOISY, HALVES),
    "ratings, batches": Case(ratings, BATCHES, HALVES),
    "ratings, paper": Case(ratings, PAPER, HALVES),
    "regression": Case(regression, ("firefly.refresh=29",), IN_BURN_IN_AND_AFTER),
    "regression without bounds": Case(regression, ("firefly.bounds=none",), IN_BURN_IN_AND_AFTER),
    "regression, q fixed": Case(regression, ("firefly.q=0.1",), IN_BURN_IN_AND_AFTER),
}
DRAWS = {ibp: 10, svi: 6, lda: 6, ratings: 6, regression: 0}
CYCLES = {ibp: 40, svi: 30, lda: 24, ratings: 30, regression: 400}
STEPS = ('step.noise="positive"', "step.batch=all")
STRAIGHT = {
    "ibp": Case(ibp, ("model.alpha=learn", "model.noise_sd=learn", "model.feature_sd=learn"), ((23, 1), (40, 3))),
    "ibp, noise of columns": Case(
        ibp,
        ("model.noise=column", "model.noise_sd=learn", "model.c=learn", "sampler.sweeps_per_cycle=2"),
        ((23, 1), (40, 3)),
    ),
    "ibp, all open": Case(
        ibp,
        ("sampler.opening=all", "model.standardise=false", "model.c=2.5", "run.chains=2"),
        ((23, 1), (40, 3)),
    ),
    "ibp, prior": Case(
        ibp, ("model.likelihood=false", "run.shards=5"), ((23, 1), (40, 3)), (), "noise_sd = 0.4\nfeature_sd = 1.0\n"
    ),
    "svi, positive": Case(svi, STEPS[:1], (), (3,)),
    "svi, all rows": Case(svi, STEPS[1:], (), (3,)),
    "svi, growing": Case(svi, ("step.batch={growing = 20}",), (), (3,)),
    "lda, positive": Case(lda, STEPS[:1], (), (3,)),
    "lda, all documents": Case(lda, STEPS[1:], (), (3,)),
    "lda, linear": Case(lda, ('step.local="linear"', "model.learn_alpha=false"), (), (3,)),
    "ratings": Case(ratings, NOISY, (), (4,)),
    "logistic": Case(regression, ("firefly.theta_update=hmc", "firefly.refresh=37"), (), (2, 4)),
    "softmax": Case(
        regression,
        ("firefly.theta_update=mala", "firefly.z_update=explicit", "firefly.q=0.2", "run.chains=2"),
        (),
        (3,),
    ),
    "student-t": Case(
        regression,
        ("firefly.theta_update=slice", "regression.prior=laplace", "regression.prior_scale=heldout"),
        (),
        (4,),
    ),
}
STILL = {
    "svi": (svi, "plain.toml", ("output.kept=20",), 400, 390),
    "ratings": (
        ratings,
        "run.toml",
        ("model.rank=1", "model.learn=false", "output.kept=50", "step.tolerance=1e-8"),
        800,
        760,
    ),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The folder with a family's table and run.toml, made once."""
    made = {}

    def place(family):
        if family not in made:
            made[family] = family.make(tmp_path_factory.mktemp("family"))
        return made[family]

    return place


def same_bits(place, name, case):
    """Compare a run on one rank with its pieces, and with runs on other ranks; return its trace and draws."""
    words, last = sets(*case.changes), "/chain-2" if "run.chains=2" in case.changes else ""
    text = (place / "run.toml").read_text()
    (place / "case.toml").write_text(text.replace(case.left_out, "") if case.left_out else text)
    ran(place, f"{name}-1", *words, config="case.toml")
    expected = everything(place, f"{name}-1{last}")
    for cycles, ranks in case.pieces:
        ran(place, f"{name}-pieces", *words, *sets(f"run.cycles={cycles}"), ranks=ranks, config="case.toml")
    if case.pieces:
        assert everything(place, f"{name}-pieces{last}") == expected
    for ranks in case.ranks:
        ran(place, f"{name}-on-{ranks}", *words, ranks=ranks, config="case.toml")
        assert everything(place, f"{name}-on-{ranks}{last}") == expected
    return expected


@pytest.mark.quick("ibp", "svi", "lda")
@pytest.mark.parametrize("name", STOPPED)
def test_stopped_in_pieces_on_other_ranks(places, name):
    family = STOPPED[name].family
    trace, draws = same_bits(places(family), f"stopped {name}", STOPPED[name])
    assert trace.count(b"\n") == CYCLES[family] + 1 and len({cycle for cycle, _ in draws}) == DRAWS[family]
    assert family is not ibp or b"nan" not in trace.splitlines()[-1]


@pytest.mark.thorough
@pytest.mark.parametrize("name", STRAIGHT)
def test_any_number_of_ranks(places, name):
    case = STRAIGHT[name]
    place = places(case.family)
    if case.family is regression:
        regression.configure(place, name if name in regression.RESPONSE else "logistic")
    trace, _ = same_bits(place, name, case)
    assert trace.count(b"\n") == CYCLES[case.family] + 1
    if case.family is ibp:
        assert mpibayes(place, "report", f"{name}-1").returncode == 0


@pytest.mark.parametrize("name", STILL)
def test_a_still_chain_goes_on_as_it_is(places, name):
    """Steps of all rows end where the bound does not grow; a chain that was stopped then has the same trace."""
    family, config, changes, cycles, stop = STILL[name]
    place, words = places(family), sets(*changes)
    ran(place, "still", *words, *sets(f"run.cycles={cycles}"), config=config)
    ran(place, "halves", *words, *sets(f"run.cycles={stop}"), config=config, ranks=2)
    ran(place, "halves", *words, *sets(f"run.cycles={cycles}"), config=config)
    trace, draws = everything(place, "still")
    assert (trace, draws) == everything(place, "halves")
    bound = np.genfromtxt(trace.decode().splitlines(), delimiter=",", names=True)["bound"]
    assert len(bound) == cycles and (np.diff(bound) >= -1e-10 * abs(bound[-1])).all() and bound[-1] == bound[-50]
