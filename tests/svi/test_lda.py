"""Latent Dirichlet allocation: its bound, its steps, its noise and guard, with wrong twins that these tests reject."""

import numpy as np
import pytest
from scipy.special import digamma, polygamma

from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.svi.lda import heldout, model
from mpibayes.hpc.svi.lda.ascent import EXACTLY
from mpibayes.hpc.svi.lda.heldout import HeldOut, halves
from mpibayes.hpc.svi.lda.law import Law
from mpibayes.hpc.svi.lda.local import Documents, Local, unit_of
from mpibayes.hpc.svi.lda.model import Evaluator, State
from mpibayes.hpc.svi.noise import Noise
from mpibayes.hpc.svi.schedule import Constant, Decay
from mpibayes.hpc.svi.step import KEPT, Step
from mpibayes.kernels.svi import lda, lda_twin
from tests.svi.lda_cases import ascent, corpus, plain_bound, settings, sparse

ETA = 0.1
FIXED = ("vb", "linear", "cvb0")  # local steps that draw nothing
MANY = {"topics": 12, "alpha": 0.05}  # more than there are: documents have several optima


def bounds(chain, cycles):
    """Bounds of all states from the first on."""
    chain.start()
    result = [chain.evaluate()]
    for _ in range(cycles):
        chain.cycle()
        result.append(chain.evaluate())
    return np.array(result)


def of(rows, q, gamma, eta=ETA):
    text = lda.Documents(rows.starts, rows.columns, rows.values, len(q.lam))
    evaluator = Evaluator.of(q, eta)
    return evaluator.of_documents(rows, text, gamma) + evaluator.of_topics()


def test_the_bound_is_its_definition():
    rows, _ = corpus()
    rng = np.random.default_rng(2)
    q = State(rng.gamma(1.0, 2.0, (60, 5)) + 0.05, rng.gamma(1.0, 0.5, 5))
    gamma = rng.gamma(1.0, 3.0, (len(rows), 5)).astype(np.float32)
    assert of(rows, q, gamma) == pytest.approx(plain_bound(rows, q.lam, gamma, q.alpha, ETA), rel=1e-12)


def test_its_gradients():
    """By finite differences: of lambda, the Fisher information times the step of the whole table less lambda, so that
    the step is along the natural gradient; of alpha, zero at what is learned."""
    rows, _ = corpus(d=30, v=12, k=3)
    rng = np.random.default_rng(3)
    q = State(rng.gamma(2.0, 2.0, (12, 3)) + 0.3, np.array([0.3, 0.5, 0.9]))
    gamma = rng.gamma(2.0, 2.0, (30, 3)).astype(np.float32)
    e_beta, e_theta = digamma(q.lam) - digamma(q.lam.sum(axis=0)), digamma(gamma) - digamma(gamma.sum(axis=1))[:, None]
    counts = np.zeros((12, 3))
    for d, (a, b) in enumerate(zip(rows.starts, rows.starts[1:])):
        for w, c in zip(rows.columns[a:b], rows.values[a:b]):
            share = np.exp(e_theta[d] + e_beta[w])
            counts[w] += c * share / share.sum()
    for eta, right in ((ETA, True), (0.0, False)):  # the wrong twin's target lacks the prior
        gap = eta + counts - q.lam
        gradient = polygamma(1, q.lam) * gap - polygamma(1, q.lam.sum(axis=0)) * gap.sum(axis=0)
        h, result = 1e-5, np.zeros_like(q.lam)
        for w in range(12):
            for k in range(3):
                up, down = (q.lam.copy() for _ in range(2))
                up[w, k] += h
                down[w, k] -= h
                result[w, k] = (of(rows, State(up, q.alpha), gamma) - of(rows, State(down, q.alpha), gamma)) / (2 * h)
        assert np.allclose(result, gradient, rtol=1e-5, atol=1e-4) == right
    mean = model.mean_log_theta(gamma) / 30
    best = model.best_alpha(q.alpha, mean)
    assert np.abs(digamma(best.sum()) - digamma(best) + mean).max() < 1e-6
    assert of(rows, State(q.lam, best), gamma) > of(rows, q, gamma)


def fall(values):
    """The greatest fall from one to the next, relative."""
    return float((-np.diff(values) / np.abs(values[1:])).max())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("learned", [False, True])
def test_warm_steps_with_all_documents_raise_the_bound(seed, learned):
    rows, _ = corpus(seed=seed, length=30)
    assert fall(bounds(ascent(rows, 60, settings(**MANY, seed=seed, learn_alpha=learned)), 40)) < 1e-10


@pytest.mark.parametrize("seed", range(4))
def test_cold_ones_do_not(seed):
    """The wrong twin: local steps that start anew fall into other optima."""
    rows, _ = corpus(seed=seed, length=30)
    assert fall(bounds(ascent(rows, 60, settings(**MANY, seed=seed, warm=100)), 60)) > 1e-6


def test_a_step_with_a_batch_is_unbiased():
    """The targets of all batches of a partition have the whole table's as their mean; without N / |S| they do not."""
    rows, _ = corpus(d=120)
    rng = np.random.default_rng(1)
    q = State(rng.gamma(1.0, 2.0, (60, 5)) + 0.05, np.full(5, 0.2))
    documents = Documents([rows], 60, 5, unit_of(1e4), False)
    local = Local("vb", True, 1e-4, 100)

    def target(chosen, scale):
        return model.stepped(q, ETA, documents.look(q, local, [chosen], None)[0][:, :5], None, Step(1.0, scale))[0].lam

    parts = np.split(rng.permutation(120), 6)
    whole = target(None, 1.0)
    np.testing.assert_allclose(np.mean([target(np.sort(p), 6.0) for p in parts], axis=0), whole, rtol=1e-6)
    assert np.abs(np.mean([target(np.sort(p), 1.0) for p in parts], axis=0) / whole - 1).max() > 0.5


class NotCentred(Noise):
    """Wrong: the mean of the e_n is left in."""

    def deviation(self, total, weighted, numbers, n_batch):
        return weighted


@pytest.mark.parametrize(
    "noise, right", [(Noise("svi+"), True), (Noise("positive"), True), (NotCentred("svi+"), False)]
)
def test_noise_leaves_what_all_documents_share(noise, right):
    """Documents of one length: noise does not change how many words there are."""
    counts = np.zeros((50, 8))
    rng = np.random.default_rng(0)
    for row in counts:
        row[rng.choice(8, 4, replace=False)] = 3
    for seed in range(5):
        chain = ascent(sparse(counts), 8, settings(noise=noise, effective=Constant(10.0), seed=seed, topics=3))
        chain.start()
        assert (abs(chain._found.noise.sum()) < 1e-4) == right and np.abs(chain._found.noise).max() > 1.0


def adversarial(rng, v, k):
    lam = 10.0 ** rng.uniform(-3, 3, (v, k))
    noise = rng.normal(size=(v, k)) * 10.0 ** rng.uniform(-4, 6, (1, k))
    aimed = rng.random(k) < 0.5
    noise[:, aimed] = -lam[:, aimed] * 10.0 ** rng.uniform(-1, 4, aimed.sum())
    return lam, noise


def test_the_guard_keeps_topics_in_their_domain():
    """100,000 adversarial updates of a topic; noise after the guard is the wrong twin, and no guard another."""
    rng, held, wrong = np.random.default_rng(5), 0, 0
    for _ in range(100):
        lam, noise = adversarial(rng, 6, 1000)
        q, total = State(lam, np.ones(1000)), rng.gamma(0.2, 3.0, (6, 1000))
        step = Step(float(rng.uniform(0.05, 1.0)), 1.0)
        sure = step.to(lam, ETA + total)
        result, acted = model.stepped(q, ETA, total, noise, step)
        assert model.sound(result) and (result.lam >= KEPT * sure * (1 - 1e-9)).all()
        half = model.stepped(q, ETA, total, 0.5 * noise, step)[0].lam + 0.5 * step.rate * noise
        unguarded = model.stepped(q, ETA, total, noise, Step(step.rate, 1.0, guard=False))[0]
        held, wrong = held + acted, wrong + (half.min() <= 0) + (not model.sound(unguarded))
    assert 0.3 < held / 1e5 < 1.0 and wrong == 200


def test_a_chain_with_noise_stays_sound_and_one_without_a_guard_ends():
    rows, _ = corpus()
    given = {"noise": Noise("svi+"), "effective": Constant(1.5), "rate": Constant(0.9)}
    chain = ascent(rows, 60, settings(**given))
    chain.start()
    acted = 0
    for _ in range(30):
        chain.cycle()
        acted += chain.guarded
    assert model.sound(chain.q) and acted > 30
    loose = ascent(rows, 60, settings(**given, guard=False))
    loose.start()
    for _ in range(30):
        loose.cycle()
    assert loose.broken and loose.cycles == 30


def test_topics_are_found():
    """True topics each have a topic near them, whatever the local step; random topics have none."""
    rows, beta = corpus(d=300, length=80)
    hundred = Constant(100.0)
    for first, then, batch in (
        ("vb", "vb", None), ("linear", "vb", None), ("cvb0", "vb", hundred), ("gibbs", "gibbs", hundred),
    ):  # fmt: skip
        rate = Decay(10.0, 0.5) if batch else Constant(1.0)
        best = None
        for chain in range(2):
            given = settings(first=first, then=then, switch=30, warm=60, batch=batch, rate=rate)
            one = ascent(rows, 60, given, chain=chain)
            one.start()
            for _ in range(60):
                one.cycle()
            bound = one.evaluate()
            if best is None or bound > best[0]:
                best = bound, one.q.lam / one.q.lam.sum(axis=0)
        away = 0.5 * np.abs(best[1].T[:, None] - beta[None]).sum(axis=2)
        assert away.min(axis=0).max() < 0.2, (first, away.min(axis=0))
    random = np.random.default_rng(9).dirichlet(np.full(60, 0.1), 5)
    assert (0.5 * np.abs(random[:, None] - beta[None]).sum(axis=2)).min(axis=0).max() > 0.5


class Table:
    """Held-out documents in memory."""

    def __init__(self, rows):
        self.rows, self.heldout = rows, np.arange(len(rows))

    def heldout_of(self, start, stop):
        return self.rows.take(slice(start, stop))


def test_perplexity_by_completion():
    """Compare with plain NumPy; the truth's topics beat random ones, and shards make no difference."""
    rows, beta = corpus(d=80, seed=7)
    seen, other = halves(rows)
    assert (seen.lengths() + other.lengths() == rows.lengths()).all() and not (
        set(seen.columns[: seen.starts[1]]) & set(other.columns[: other.starts[1]])
    )
    q = State(np.ascontiguousarray(1000 * beta.T + 1e-3), np.full(5, 0.2))
    result = HeldOut(serial(), Table(rows), 4, 60, 5).perplexity(q)
    p, total, n = q.lam / q.lam.sum(axis=0), 0.0, 0.0
    for d in range(len(rows)):
        w, c = (a[seen.starts[d] : seen.starts[d + 1]] for a in (seen.columns, seen.values))
        gamma = q.alpha + c.sum() / 5
        for _ in range(500):
            share = gamma * p[w]
            gamma = q.alpha + c @ (share / share.sum(axis=1, keepdims=True)) if len(w) else q.alpha
        theta = gamma / gamma.sum()
        w, c = (a[other.starts[d] : other.starts[d + 1]] for a in (other.columns, other.values))
        total, n = total + c @ np.log(p[w] @ theta), n + c.sum()
    assert result == pytest.approx(np.exp(-total / n), rel=5e-3)
    assert HeldOut(serial(), Table(rows), 1, 60, 5).perplexity(q) == pytest.approx(result, rel=1e-12)
    worse = State(np.random.default_rng(0).gamma(1.0, 1.0, (60, 5)), q.alpha)
    assert HeldOut(serial(), Table(rows), 4, 60, 5).perplexity(worse) > 1.3 * result
    assert heldout.COMPLETION.kind == "linear" and EXACTLY.kind == "vb"


@pytest.mark.parametrize("kind", FIXED)
def test_topics_of_new_documents_are_found_as_the_run_found_its_own(kind):
    """Compare with the twin; the other steps are its wrong twins."""
    rows, beta = corpus(d=40, seed=3, length=6)
    q, eta = State(np.ascontiguousarray(300.0 * beta.T + ETA), np.full(5, 0.1)), ETA
    law = Law.of(q, eta, kind)
    result = law.topics_of(rows)
    for other in FIXED:
        weight = (lda_twin.exp_digamma if other == "vb" else lambda x: x)(law.q.lam)
        total = law.q.lam.sum(axis=0)
        weight = weight / (lda_twin.exp_digamma(total) if other == "vb" else total)
        words = rows.starts, rows.columns, rows.values
        gamma = lda_twin.local_steps(*words, weight, law.q.alpha, other, None, 300, 1e-3)[0]
        away = np.abs(result - gamma / gamma.sum(axis=1, keepdims=True)).max()
        assert (away < 1e-3) == (other == kind), (other, away)


def test_what_more_cycles_are_for():
    """Advice on a bound that rises: a longer run where held-out documents gain by it, or are not known; else the
    bound."""
    from types import SimpleNamespace

    from mpibayes.hpc.svi.lda.report.summarise import _better
    from mpibayes.hpc.svi.report.chains import step_warnings

    best, step = SimpleNamespace(gain=1e-4, guarded=0.0), SimpleNamespace(noise="none", effective=1.0)
    cycle = np.arange(1.0, 61.0)
    perplexity = np.where(cycle % 6 == 0, 1500.0, np.nan)
    text = []
    for falls in (0.0, -0.01, 0.02):
        perplexity[-1] = 1500.0 * (1.0 - falls)
        better = _better({"cycle": cycle, "perplexity": perplexity})
        assert better == pytest.approx(falls)
        text += step_warnings(best, 4, step, better)
    assert "are for the bound alone" in text[0] and text[1] == text[0] and text[2].endswith(": raise run.cycles")
    assert step_warnings(best, 4, step, _better({"cycle": cycle, "perplexity": np.full(60, np.nan)})) == [text[2]]
    assert step_warnings(SimpleNamespace(gain=0.0, guarded=0.0), 4, step) == []
