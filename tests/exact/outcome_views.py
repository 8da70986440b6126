"""A tiny cross-categorized table with an outcome in one of its views: its exact law, by enumeration of views, rows and
the outcome's place with quadrature over the coefficients, and the program's chain on it."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.special import expit

from mpibayes.hpc.crosscat import host
from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.start import views as start
from mpibayes.hpc.outcome.answers import Answers
from mpibayes.hpc.outcome.law import Law
from mpibayes.hpc.outcome.likelihoods import LIKELIHOODS
from mpibayes.hpc.outcome.outcome import Outcome
from tests.exact import crosscat, production
from tests.exact.crosscat import BINARY, STRIDE, given
from tests.exact.enumerate import blocks, partitions

SETUP = given(
    (
        ("a", "categorical", (0, 0, 1, 1), BINARY),
        ("b", "categorical", (0, 1, 0, 1), BINARY),
        ("c", "categorical", (0, 0, 1, -1), BINARY),
    ),
    {"a": {"dirichlet": (0.3, 0.3)}, "b": {"dirichlet": (0.5, 0.5)}, "c": {"dirichlet": (0.4, 0.7)}},
    crosscat.fixed(0.8, 0.3, 0.7, 0.2),
)
UNITS, N = SETUP.units, 4
Y, W = np.array([-1.0, -1.0, 1.0, np.nan]), np.array([0.6, -0.9, 0.4, 1.1])
MEAN, SD, WIDE = 0.4, 2.0, 1.2
POINTS = np.linspace(-8.0, 8.0, 81)


WEIGHT = np.exp(-0.5 * POINTS**2)
WEIGHT /= WEIGHT.sum()
THETA, BETA = MEAN + SD * POINTS, WIDE * POINTS


@cache
def likelihoods() -> np.ndarray:
    """Return the likelihood at each theta and beta of every row."""
    eta = THETA[:, None, None] + BETA[:, None] * W
    return np.where(np.isnan(Y), 1.0, expit(np.where(np.isnan(Y), 1.0, Y) * eta))


@cache
def integrals() -> tuple[np.ndarray, np.ndarray]:
    """Evidence of the outcome given each partition of the rows (B,), and E of beta, beta^2, eta_i, eta_i^2 (B, 2 + 2 N)
    under the posterior of the coefficients."""
    theta, beta, weight, likelihood = THETA, BETA, WEIGHT, likelihoods()
    of = np.zeros((2**N, 3, len(beta)))  # of each set of rows: the integral of 1, theta and theta^2 given beta
    for s in range(2**N):
        rows = [i for i in range(N) if s >> i & 1]
        each = likelihood[:, :, rows].prod(axis=2)
        of[s] = [weight * f @ each for f in (np.ones_like(theta), theta, theta**2)]
    evidence, moments = [], []
    for z, masks in zip(partitions(N), blocks(N)[0]):
        sets = masks[: z.max() + 1]
        joint = weight * of[sets, 0].prod(axis=0)
        terms = [beta, beta**2]
        for i in range(N):
            first, second = of[sets[z[i]], 1:] / of[sets[z[i]], 0]
            offset = W[i] * beta
            terms += [first + offset, second + 2.0 * offset * first + offset**2]
        evidence.append(joint.sum())
        moments.append(np.array(terms) @ joint / joint.sum())
    return np.array(evidence), np.array(moments)


def events(views, rows, place: int) -> np.ndarray:
    """Indicators of one state: views (C,) of the columns, rows (C, N) labels of each column's view, place: a column
    that is in the outcome's view."""
    views, rows = np.asarray(views), np.asarray(rows)
    together, (i, j) = views[:, None] == views, np.triu_indices(N, 1)
    f, g = np.triu_indices(len(views), 1)
    here, z = views == views[place], rows[place]
    n_clusters = np.arange(1, N + 1) == len(set(z.tolist()))
    of_rows = (rows[:, i] == rows[:, j]).ravel()
    all_alike = together[f, g], here, here[f] & here[g], n_clusters, z[i] == z[j], of_rows, [together.all()]
    return np.concatenate(all_alike).astype(float)


@cache
def law() -> np.ndarray:
    """Probability of each state of `Posterior` with each column as host, (S, C)."""
    p = SETUP.posterior.p[:, None] * integrals()[0][SETUP.posterior.rows]
    return p / p.sum()


@cache
def exact() -> np.ndarray:
    """Expectations of `events`, and then of the moments."""
    of, moments, total = SETUP.posterior, integrals()[1], 0.0
    for s, place in np.ndindex(law().shape):
        rows = of.rows[s]
        total = total + law()[s, place] * np.concatenate(
            [events(of.views[s], of.partitions[rows], place), moments[rows[place]]]
        )
    return total


def put(mixture: Mixture, number: int, generator: np.random.Generator) -> None:
    """Put the chain at an exact draw, for the `number`-th replicate; coefficients are points of the rules."""
    of, (n_states, n_columns) = SETUP.posterior, law().shape
    s, place = divmod(int(generator.choice(n_states * n_columns, p=law().ravel())), n_columns)
    z = of.partitions[of.rows[s, place]]
    by_cluster = [likelihoods()[:, :, z == k].prod(axis=2) * WEIGHT[:, None] for k in range(z.max() + 1)]
    beta = WEIGHT * np.prod([each.sum(axis=0) for each in by_cluster], axis=0)
    b = generator.choice(len(POINTS), p=beta / beta.sum())
    theta = [generator.choice(THETA, p=each[:, b] / each[:, b].sum()) for each in by_cluster]
    crosscat.place(mixture, UNITS, of.views[s].tolist(), of.partitions[of.rows[s]], number * STRIDE)
    mixture.host, mixture.outcome.theta, mixture.outcome.beta = place, np.array(theta)[:, None], BETA[[b]]


def sampler(comm, n_shards: int, seed: int, entry: int = 0, **settings) -> Mixture:
    """The program's chain with the outcome, from random views and rows; moves of everything in each cycle."""
    columns, rows, _ = production.table_of(SETUP.case, SETUP.priors)
    part = {"split_merge": 1, "column_moves": 1, "priors": SETUP.priors, "shards": n_shards}
    settings = Settings(seed=seed, **{**part, **SETUP.process, **settings})
    mixture = Mixture(comm, columns, lambda a, b: rows.take(np.arange(a, b)), N, settings)
    numbers = (np.array([of]) for of in (MEAN, SD, WIDE, MEAN))
    of, whole = Law(LIKELIHOODS["logistic"], *numbers), answers()
    parts = [whole.take(np.arange(s.start, s.start + len(s))) for s in mixture.shards]
    mixture.outcome = Outcome(comm, mixture.shards, parts, mixture.n_shards, of, seed, 0, entry)
    start.deal(mixture, 3)
    mixture.start("prior")
    return mixture


def answers() -> Answers:
    """Outcomes of all rows."""
    return Answers(Y, np.zeros((N, 0), np.float32), W[:, None].astype(np.float32))


def recorded(mixture: Mixture) -> np.ndarray | None:
    """`events` and moments of the present state, on root. Collective."""
    now = crosscat.state(mixture, UNITS)
    if now is None:
        return None
    views, labels = now
    place = views.index(host.view_of(mixture))
    eta = mixture.outcome.now.eta_of(answers(), np.array(labels[place]))
    moments = [m for x in (*mixture.outcome.beta, *eta) for m in (x, x * x)]
    return np.concatenate([events(views, labels, place), moments])
