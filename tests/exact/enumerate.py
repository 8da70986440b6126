"""Exact posteriors of tiny tables, by enumerating the partitions of their rows.

A *case* is a table of at most eight rows with the priors of its columns and PY(concentration, discount).  All posterior
quantities of such a table are computed here from the formulas of docs/math.md 1 (marginal likelihoods of one cluster,
and the EPPF), with no code in common with the program.

The joint law of partition and hyperparameters factorises given the partition,

    p(z, (alpha, d), h) ∝ [p(alpha, d) EPPF(z | alpha, d)] · ∏_c [p(h_c) ∏_k f_c(C_k | h_c)],

so a grid for every column costs a table (points, partitions) each and never their product.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import numpy as np
from scipy.special import gammaln, logsumexp, multigammaln

NAN = float("nan")


@dataclass(frozen=True)
class Case:
    """A tiny table.  `columns`: (name, kind, values, levels or None); codes with -1, floats with NaN, for missing.

    priors[name] is {"dirichlet": [...]}, {"mean", "kappa", "nu", "variance"} or {"shape", "rate"}; for kind "survival",
    whose values are negative if censored, also "cuts". Kind "vector" denotes blocks of real columns: values are a tuple
    of cells per row, NaN throughout if the block is missing, the names of the columns replace levels, and the prior is
    that of a block, its mean a number per column.
    """

    name: str
    columns: tuple
    priors: dict
    concentration: float
    discount: float

    @property
    def n_rows(self) -> int:
        return len(self.columns[0][2])

    def with_(self, **changes) -> Case:
        return replace(self, **changes)


@dataclass(frozen=True)
class Grids:
    """Discrete hyperpriors.  process: points (alpha, d), log weights; columns[name]: priors, log weights."""

    process: tuple | None = None
    columns: dict = field(default_factory=dict)


CAT6_COLUMNS = (
    ("a", "categorical", (0, 0, 1, 1, 2, 0), ("a0", "a1", "a2")),
    ("b", "categorical", (0, 0, 1, 1, 0, 1), ("b0", "b1")),
)
CAT6_PRIORS = {"a": {"dirichlet": (0.5, 0.5, 1.0)}, "b": {"dirichlet": (0.3, 0.7)}}

CASES = {
    case.name: case
    for case in (
        Case("cat6", CAT6_COLUMNS, CAT6_PRIORS, 1.0, 0.0),
        Case("cat6py", CAT6_COLUMNS, CAT6_PRIORS, 0.5, 0.4),
        # A negative concentration is allowed as long as it exceeds -discount.
        Case("cat6neg", CAT6_COLUMNS, CAT6_PRIORS, -0.2, 0.5),
        Case(
            "nix5",
            (("x", "real", (-2.1, -1.7, 0.3, 1.9, 2.4), None),),
            {"x": {"mean": 0.0, "kappa": 0.2, "nu": 2.0, "variance": 0.5}},
            0.8,
            0.0,
        ),
        Case(
            "count5",
            (
                ("n", "count", (0.0, 1.0, 6.0, 4.0, 9.0), None),
                ("c", "categorical", (0, 0, 0, 1, 1), ("u", "v")),
            ),
            {"n": {"shape": 1.5, "rate": 0.4}, "c": {"dirichlet": (0.6, 0.9)}},
            1.2,
            0.0,
        ),
        # Every kind of column, each with missing cells; row 4 is missing altogether.
        Case(
            "miss6",
            (
                ("c", "categorical", (0, 2, 1, -1, -1, 0), ("r", "s", "t")),
                ("x", "real", (-1.4, NAN, 1.1, 1.6, NAN, -0.9), None),
                ("n", "count", (NAN, 3.0, 0.0, 1.0, NAN, 5.0), None),
            ),
            {
                "c": {"dirichlet": (0.4, 0.8, 0.5)},
                "x": {"mean": 0.2, "kappa": 0.3, "nu": 2.5, "variance": 0.6},
                "n": {"shape": 1.2, "rate": 0.5},
            },
            0.9,
            0.25,
        ),
    )
}


NANS = (NAN, NAN)
VECTOR_CASES = {
    case.name: case
    for case in (
        Case(
            "niw5",
            (("g", "vector", ((-1.9, 0.2), (-1.6, -0.4), (0.2, 1.1), (1.7, 1.5), (2.3, 2.6)), ("g0", "g1")),),
            {"g": {"mean": (0.3, 0.9), "kappa": 0.2, "nu": 2.6, "variance": 0.15}},
            0.8,
            0.0,
        ),
        # two blocks beside other columns; each is missing in some rows, row 4 is missing altogether
        Case(
            "niwmiss6",
            (
                ("g", "vector", ((-1.4, 0.1), NANS, (1.1, 1.8), (1.6, 0.9), NANS, (-0.9, 0.3)), ("g0", "g1")),
                ("x", "real", (0.4, 2.0, NAN, 1.6, NAN, -0.9), None),
                ("h", "vector", (NANS, (3.0, 1.0), (0.5, 0.2), (0.1, -0.4), NANS, (2.2, 1.3)), ("h0", "h1")),
                ("c", "categorical", (0, 1, 1, -1, -1, 0), ("u", "v")),
            ),
            {
                "g": {"mean": (0.1, 0.5), "kappa": 0.3, "nu": 1.7, "variance": 0.3},
                "x": {"mean": 0.2, "kappa": 0.3, "nu": 2.5, "variance": 0.6},
                "h": {"mean": (1.0, 0.5), "kappa": 0.6, "nu": 3.5, "variance": 0.2},
                "c": {"dirichlet": (0.6, 0.9)},
            },
            0.9,
            0.25,
        ),
    )
}


@cache
def partitions(n_rows: int) -> np.ndarray:
    """All set partitions of n_rows as restricted growth strings, int64 (Bell number, n_rows), lexicographic;
    read-only."""
    strings = [()]
    for _ in range(n_rows):
        strings = [(*s, k) for s in strings for k in range(max(s, default=-1) + 2)]
    result = np.array(strings, dtype=np.int64)
    result.flags.writeable = False
    return result


@cache
def blocks(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The blocks of each partition, int64 (Bell number, n_rows), 0 past the last: their rows as bit masks (bit n is
    row n), and their sizes."""
    member = partitions(n_rows)[:, :, None] == np.arange(n_rows)
    return (member << np.arange(n_rows)[:, None]).sum(axis=1), member.sum(axis=1)


def log_eppf(sizes, concentration: float, discount: float):
    """Log probability of partitions with these block sizes, (..., blocks) with 0 for none, under PY(concentration,
    discount); products from i = 1."""
    sizes = np.asarray(sizes, dtype=float)
    there, n = sizes > 0, sizes.sum(axis=-1).max()
    k = there.sum(axis=-1)
    new = np.append(0.0, np.log(concentration + discount * np.arange(1, k.max())).cumsum())[k - 1]
    rows = np.log(concentration + np.arange(1, n)).sum()
    each = gammaln(np.where(there, sizes - discount, 1.0)) - there * gammaln(1.0 - discount)
    return new - rows + each.sum(axis=-1)


def log_marginal(kind: str, values: np.ndarray, prior: dict) -> float:
    """log f(C): the marginal likelihood of one cluster's cells of one column; missing cells are left out first."""
    if kind in ("categorical", "boolean"):
        beta = np.asarray(prior["dirichlet"], dtype=float)
        counts = np.bincount(values[values >= 0], minlength=len(beta)).astype(float)
        total = gammaln(beta.sum()) - gammaln(beta.sum() + counts.sum())
        return float(total + (gammaln(beta + counts) - gammaln(beta)).sum())
    if kind == "vector":
        return log_marginal_of_block(values, prior)
    x = values[~np.isnan(values)]
    n = len(x)
    if n == 0:
        return 0.0
    if kind == "survival":
        return log_marginal_of_times(x, prior)
    if kind == "real":
        mean, kappa, nu, variance = (prior[key] for key in ("mean", "kappa", "nu", "variance"))
        centre = x.mean()
        scale_n = nu * variance + ((x - centre) ** 2).sum() + n * kappa / (kappa + n) * (mean - centre) ** 2
        return float(
            gammaln((nu + n) / 2)
            - gammaln(nu / 2)
            + 0.5 * np.log(kappa / (kappa + n))
            + nu / 2 * np.log(nu * variance)
            - (nu + n) / 2 * np.log(scale_n)
            - n / 2 * np.log(np.pi)
        )
    shape, rate = prior["shape"], prior["rate"]
    s = x.sum()
    whole = shape * np.log(rate) + gammaln(shape + s) - gammaln(shape) - (shape + s) * np.log(rate + n)
    return float(whole - gammaln(x + 1).sum())


def log_marginal_of_times(x: np.ndarray, prior: dict) -> float:
    """Log marginal of times to an event, negative if censored: a hazard per part between the cuts, each with its events
    n and its exposure e, b^a Gamma(a + n) / (Gamma(a) (b + e)^(a + n))."""
    a, b, ends, total = prior["shape"], prior["rate"], (0.0, *prior["cuts"], np.inf), 0.0
    for low, high in itertools.pairwise(ends):
        n = int(((x > 0) & (x > low) & (x <= high)).sum())
        e = float((np.clip(np.abs(x), low, high) - low).sum())
        total += float(a * np.log(b) + gammaln(a + n) - gammaln(a) - (a + n) * np.log(b + e))
    return total


def log_marginal_of_block(values: np.ndarray, prior: dict) -> float:
    """Normal-inverse-Wishart marginal likelihood of the observed rows of `values` (n, D); prior["spread"] is the
    diagonal of S_0."""
    x = values[~np.isnan(values).any(axis=1)]
    n, d = x.shape
    if n == 0:
        return 0.0
    mean, kappa, nu, spread = (np.asarray(prior[key], dtype=float) for key in ("mean", "kappa", "nu", "spread"))
    centre = x.mean(axis=0)
    off = centre - mean
    matrix = np.diag(spread) + (x - centre).T @ (x - centre) + n * kappa / (kappa + n) * np.outer(off, off)
    return float(
        multigammaln((nu + n) / 2, d)
        - multigammaln(nu / 2, d)
        + nu / 2 * np.log(spread).sum()
        - (nu + n) / 2 * np.linalg.slogdet(matrix)[1]
        + d / 2 * np.log(kappa / (kappa + n))
        - n * d / 2 * np.log(np.pi)
    )


def with_spread(values: np.ndarray, prior: dict) -> dict:
    """Prior of a block with the diagonal of S_0: nu variance times the columns' own variances, unless given, because
    `values` are not the whole table's."""
    return {"spread": prior["nu"] * prior["variance"] * np.nanvar(values, axis=0), **prior}


def column_values(column) -> np.ndarray:
    """The cells of a case's column: int64 codes, or float64."""
    _, kind, values, _ = column
    return np.array(values, dtype=np.int64 if kind in ("categorical", "boolean") else float)


def log_marginal_of_subsets(column, prior: dict) -> np.ndarray:
    """log f of every subset of the rows, float64 (2**n_rows,), indexed by bit mask (bit n is row n); f(∅) = 1."""
    values = column_values(column)
    if column[1] == "vector":
        prior = with_spread(values, prior)
    n_rows = len(values)
    out = np.zeros(1 << n_rows)
    for mask in range(1, 1 << n_rows):
        out[mask] = log_marginal(column[1], values[[n for n in range(n_rows) if mask >> n & 1]], prior)
    return out


class Posterior:
    """Exact posterior of a case, jointly with grids if there are any.

    partitions (B, N); p (B,) the law of the partition; process (A, B) and columns[name] (H, B): joint laws of the
    partition with (alpha, d), and with one column's prior; log_evidence = log p(X).
    """

    def __init__(self, case: Case, grids: Grids = Grids(), likelihood: bool = True):
        self.case, self.grids = case, grids
        self.partitions = partitions(case.n_rows)
        masks, sizes = blocks(case.n_rows)

        points, weights = grids.process or (((case.concentration, case.discount),), (0.0,))
        eppf = np.array([log_eppf(sizes, a, d) for a, d in points])
        log_process = normalised(weights)[:, None] + eppf
        log_columns = {}
        for column in case.columns:
            name = column[0]
            priors, weights = grids.columns.get(name, ((case.priors[name],), (0.0,)))
            tables = [log_marginal_of_subsets(column, prior) * likelihood for prior in priors]
            scores = np.array([t[masks].sum(axis=1) for t in tables])
            log_columns[name] = normalised(weights)[:, None] + scores

        by_partition = logsumexp(log_process, axis=0)
        for scores in log_columns.values():
            by_partition = by_partition + logsumexp(scores, axis=0)
        self.log_evidence = float(logsumexp(by_partition))
        self.p = np.exp(by_partition - self.log_evidence)
        self.process = self.p * np.exp(log_process - logsumexp(log_process, axis=0))
        self.columns = {k: self.p * np.exp(v - logsumexp(v, axis=0)) for k, v in log_columns.items()}
        self.n_clusters = self.partitions.max(axis=1) + 1

    @cached_property
    def index_of_code(self) -> np.ndarray:
        """Lookup from the code of a partition (see `codes`) to its number, -1 if no partition has the code."""
        n = self.case.n_rows
        table = np.full(n**n, -1, dtype=np.int64)
        table[codes(self.partitions)] = np.arange(len(self.partitions))
        return table

    def index(self, labels) -> np.ndarray:
        """Partition numbers of label arrays (..., N); any labels, compared within a row only."""
        return self.index_of_code[codes(np.asarray(labels))]

    def p_clusters(self) -> np.ndarray:
        """P(K = 1), ..., P(K = N)."""
        return np.bincount(self.n_clusters, weights=self.p, minlength=self.case.n_rows + 1)[1:]

    def together(self, i: int, j: int) -> float:
        """P(rows i and j share a cluster)."""
        return float(self.p[self.partitions[:, i] == self.partitions[:, j]].sum())

    def summaries(self) -> tuple[list[str], np.ndarray]:
        """Names and 0/1 table (summaries, partitions) of the events K = k and 'rows i and j together'."""
        n = self.case.n_rows
        names = [f"K={k}" for k in range(1, n + 1)]
        rows = [self.n_clusters == k for k in range(1, n + 1)]
        for i in range(n):
            for j in range(i + 1, n):
                names.append(f"({i},{j})")
                rows.append(self.partitions[:, i] == self.partitions[:, j])
        return names, np.array(rows, dtype=float)

    def draw(self, generator, size: int) -> np.ndarray:
        """Exact draws of the partition, labels (size, N)."""
        return self.partitions[generator.choice(len(self.p), size=size, p=self.p / self.p.sum())]


def normalised(log_weights) -> np.ndarray:
    """Log weights that sum to one."""
    log_weights = np.asarray(log_weights, dtype=float)
    return log_weights - logsumexp(log_weights)


def leaders(labels: np.ndarray) -> np.ndarray:
    """For each row the first row with its label, int64 (..., N): a name of the partition free of labels."""
    labels = np.asarray(labels)
    return (labels[..., :, None] == labels[..., None, :]).argmax(axis=-1)


def codes(labels: np.ndarray) -> np.ndarray:
    """One integer below N**N for each partition in labels (..., N)."""
    n = labels.shape[-1]
    return leaders(labels) @ (n ** np.arange(n))


# ---- the law of the number of clusters, no data ----------------------------------------------------------------------


def log_law_of_clusters(n_rows: int, concentration: float, discount: float) -> np.ndarray:
    """log P(K = k), k = 1..n_rows, under PY(concentration, discount), by the generalised Stirling recursion.

    Row n + 1 opens a cluster with probability (alpha + k d) / (n + alpha), the first with probability one.
    """
    log_p = np.full(n_rows + 1, -np.inf)
    log_p[1] = 0.0
    k = np.arange(n_rows + 1, dtype=float)
    with np.errstate(divide="ignore"):
        for n in range(1, n_rows):
            top = n + 1
            total = np.log(n + concentration)
            old = np.log(np.maximum(n - k[1 : top + 1] * discount, 0.0)) - total
            new = np.full(top, -np.inf)
            new[1:] = np.log(concentration + k[1:top] * discount) - total  # k = 0 never opens again
            log_p[1 : top + 1] = np.logaddexp(log_p[1 : top + 1] + old, log_p[:top] + new)
    return log_p[1:]


def expected_clusters(n_rows: int, concentration: float, discount: float) -> float:
    """E[K] by E_{n+1} = E_n + (alpha + d E_n) / (n + alpha); for d = 0 the sum of alpha / (alpha + i)."""
    expected = 1.0
    for n in range(1, n_rows):
        expected += (concentration + discount * expected) / (n + concentration)
    return expected


def draw_prior_partition(n_rows: int, concentration: float, discount: float, generator) -> np.ndarray:
    """One partition from the Chinese restaurant process, labels int64 (n_rows,)."""
    labels = np.zeros(n_rows, dtype=np.int64)
    sizes = np.zeros(n_rows)
    sizes[0], k = 1.0, 1
    for n in range(1, n_rows):
        u = generator.random() * (n + concentration)
        label = int(np.searchsorted(np.cumsum(sizes[:k] - discount), u, side="right"))
        labels[n] = label
        sizes[label] += 1.0
        k = max(k, label + 1)
    return labels
