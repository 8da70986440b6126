"""Profiles of clusters: divergence of a column's distribution in each cluster from that in all rows (Kullback-Leibler,
nats), and its description. Plain functions of arrays; nothing is read or printed here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from mpibayes.hpc.components.block import unpack
from mpibayes.hpc.components.line import Line
from mpibayes.hpc.components.multinormal import Multinormal
from mpibayes.hpc.components.product import Components, Prior
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.report import ordered
from mpibayes.hpc.crosscat.report.telling import Shared, choose, likeness, nothing_shared
from mpibayes.hpc.report.drawing import cut, shortened
from mpibayes.io.clock import around
from mpibayes.io.order import order_of
from mpibayes.io.recording import ANOTHER
from mpibayes.io.rows import Column
from mpibayes.io.spells import life_table
from mpibayes.text import factor, percent, spread

TELLING = 0.1  # nats: least divergence of a column that characterises a cluster
TRAITS = 5  # columns named for each cluster
NAMING = 2  # of them that are in its name
MANY_CLUSTERS, MANY_COLUMNS = 20, 11  # most in the picture, which has to fit a screen
PLAIN = 0.9  # share of a cluster's rows from which a level is named without its share
REST = "not "  # prefix of the name for values other than a column's only atom, see `io.recording.levels`
ATOM_LETTERS = 8  # longest atom; a longer one is rounded to six digits
NONE = 0.005  # share of a cluster's rows below which it does not have a level
LEVEL_LETTERS = 24  # longest name of a level in the name of a cluster
CLOSE = 0.9999  # correlations are clipped to this when compared


# --- profiles ---------------------------------------------------------------------------------------------------------


@dataclass
class Numbers:
    """Observed cells of a real or count column in K clusters: counts (V, K) in the intervals between its `cuts`, mean
    and scatter (sum of squares about the mean) (K,), 0 without cells."""

    counts: np.ndarray
    mean: np.ndarray
    scatter: np.ndarray


@dataclass
class ColumnProfile:
    """One column in the K' clusters shown, against all rows.

    divergence (K',) nats: Kullback-Leibler divergence of the cluster's predictive from that of all clusters together;
    missing_divergence: the part due to the share of missing cells. information: the shown clusters' share of the mutual
    information between column and cluster. alike (K', K'): see `telling.likeness`. Categorical columns have `levels`,
    `p` (V, K') and `overall` (V,); other columns `mean`, `sd` (K',) of the observed cells and `overall` (mean, sd).
    """

    name: str
    title: str  # for people; a column with atoms has two profiles: one of its atoms, one of the rest
    kind: str
    divergence: np.ndarray
    missing_divergence: np.ndarray
    missing: np.ndarray
    missing_overall: float
    information: float
    alike: np.ndarray
    overall: np.ndarray
    levels: tuple[str, ...] = ()
    p: np.ndarray | None = None
    mean: np.ndarray | None = None
    sd: np.ndarray | None = None
    log: bool = False  # mean and sd are of logarithms
    unit: str = ""  # of dates
    order: tuple[int, ...] = ()  # of ordered levels, from the least (`io.order`)
    ends: tuple[float, ...] = ()  # of the parts of a survival column's time axis, which are its levels


@dataclass(frozen=True)
class Trait:
    """Description of one cluster in one column. `value`, which follows the column's title, and `overall` are for
    people, the rest is for programs."""

    column: str
    title: str
    nats: float
    what: str  # "level", "ordered", "mean", "survival" or "missing"
    value: str
    overall: str
    numbers: dict

    @property
    def named(self) -> str:
        """The column's title, shortened if it is too long for a name."""
        return cut(self.title)

    @property
    def label(self) -> str:
        """Short name of the trait: `education = Children`, `occupation not None`, `income missing`."""
        if self.what in ("mean", "survival"):
            return f"{self.named} {self.value}"
        if self.what == "missing":
            share = self.numbers["missing"]
            rare = self.lacking and share <= 1.0 - PLAIN
            return f"{self.named} " + ("not missing" if rare else f"missing{_beyond(share)}")
        levels, p = self.numbers["levels"], self.numbers["p"]
        if self.what == "ordered":
            short = [shortened(name, LEVEL_LETTERS) for name in levels]
            return f"{self.title} {ordered.in_words(self.numbers['place'], short, sum(p), PLAIN)}"
        atoms, share = self.title != self.column, _beyond(sum(p))
        short = [_atom(name) if atoms else shortened(name, LEVEL_LETTERS) if name.strip() else '""' for name in levels]
        if self.lacking:
            return f"{self.named} {_is_not(' or '.join(short), atoms)}"
        if share and atoms:  # "52 69 %" would be read as numbers
            share = f" in{share}"
        elif share:
            short = [name if name == '""' else _quoted(name) for name in short]
        return f"{self.named} {_is(' or '.join(short), atoms)}{share}"

    @property
    def lacking(self) -> bool:
        """True if the trait is something that the cluster lacks."""
        if self.what == "missing":
            return self.numbers["missing"] < self.numbers["overall"]
        return self.what == "level" and self.numbers["p"][0] < self.numbers["overall"][0]

    @property
    def at_no_atom(self) -> bool:
        """True if the trait is only that the column's value is none of its several atoms."""
        return self.what == "level" and self.title != self.column and self.numbers["levels"] == [ANOTHER]

    def __str__(self) -> str:
        return f"{self.named} {self.value} (overall {self.overall})"


def _is(level: str, of_atoms: bool) -> str:
    """Format a level: `= red`; for values other than a column's atom, `not 0`."""
    if of_atoms and level == ANOTHER:
        return "none of its repeated values"
    return level if of_atoms and level.startswith(REST) else f"= {level}"


def _is_not(level: str, of_atoms: bool) -> str:
    if of_atoms and level == ANOTHER:
        return "one of its repeated values"
    return f"= {level.removeprefix(REST)}" if of_atoms and level.startswith(REST) else f"not {level}"


def _atom(level: str) -> str:
    """Format an atom, rounded if it has many digits."""
    try:
        return level if len(level) <= ATOM_LETTERS else f"{float(level):.6g}"
    except ValueError:  # a date, or none of the atoms
        return level


def _beyond(share: float) -> str:
    """Format a share; "" if it is of nearly all rows."""
    return "" if share >= PLAIN else f" {percent(share)}"


def profiles(
    components: Components, prior: Prior, s: Statistics, shown: np.ndarray, numbers: Mapping[str, Numbers]
) -> list[ColumnProfile]:
    """Return every column's profile in the clusters `shown` (indices into `s`), in the order of the blocks.

    Categorical columns: the cluster's posterior predictive, against the mixture of the clusters' predictives weighted
    by their shares. Real and count columns: shares of the intervals in `numbers`, with one pseudo-row distributed like
    all rows, less the bias of small samples, about (intervals - 1) / 2n; not the component's predictive, whose width in
    a cluster of equal values depends on the cluster's size and not on its rows. The size-weighted mean of a column's
    divergences is the mutual information of column and cluster, and a divergence is at most -log(share of the cluster).
    Survival columns: shares of the parts of the time axis, by the actuarial estimate, in order.
    """
    return list(each_profile(components, prior, s, shown, numbers))


def each_profile(
    components: Components, prior: Prior, s: Statistics, shown: np.ndarray, numbers: Mapping[str, Numbers],
    compared: bool = True,
) -> Iterator[ColumnProfile]:  # fmt: skip
    """Yield the profiles of `profiles` one by one. compared: True to compute `alike`; else it is (0, 0)."""
    size = s.size.astype(np.float64)
    for c, column in enumerate(components.categorical.columns):
        rows = slice(prior.offsets[c], prior.offsets[c + 1] - 1)
        counts = s.levels[rows] + prior.dirichlet[rows, None]
        p = counts / counts.sum(axis=0)
        observed = size - s.levels[prior.offsets[c + 1] - 1]
        overall = _mix(p, observed)
        inner = _divergence(p[:, shown], overall)
        words = {"levels": column.levels, "p": p[:, shown], "order": order_of(column)}
        yield _column(column, size, observed, shown, inner, overall, p, compared, **words)
    for column in components.survival.columns:
        given = numbers[column.name].counts
        n = given.sum(axis=0)
        p = life_table(given + (given.sum(axis=1) / max(n.sum(), 1))[:, None])[: len(column.ends) + 1]
        overall = _mix(p, n)
        bias = len(column.ends) / (2.0 * np.maximum(n, 1))
        inner = np.maximum(_divergence(p, overall) - bias, 0.0)[shown]
        words = {"levels": parts_in_words(column), "p": p[:, shown], "order": tuple(range(len(p))), "ends": column.ends}
        yield _column(column, size, n, shown, inner, overall, p, compared, **words)
    kinds = sorted(components.kinds, key=lambda kind: kind.exact)  # reals, then counts
    single = {column.name: column for kind in kinds if kind.name != "survival" for column in kind.columns}
    for column in (column for column in single.values() if not column.levels):
        given = numbers[column.name]
        n = given.counts.sum(axis=0)
        share = given.counts.sum(axis=1) / max(n.sum(), 1)
        p = (given.counts + share[:, None]) / (n + 1)
        width = np.exp(-(share * np.log(np.where(share > 0, share, 1.0))).sum())  # effective number of intervals
        bias = (width - 1.0) / (2.0 * np.maximum(n, 1))
        inner = np.maximum(_divergence(p, _mix(p, n)) - bias, 0.0)[shown]
        centre = (n * given.mean).sum() / max(n.sum(), 1)
        sd = np.sqrt((given.scatter + n * (given.mean - centre) ** 2).sum() / max(n.sum(), 1))
        spread = np.sqrt(given.scatter / np.maximum(n, 1))
        mean = np.where(n > 0, given.mean, np.nan)[shown]
        overall = np.array([centre, sd])
        words = {"mean": mean, "sd": spread[shown], "log": column.log, "unit": column.unit}
        yield _column(column, size, n, shown, inner, overall, p, compared, **words)


@dataclass
class BlockProfile:
    """A block of D columns in the K' clusters shown: number of rows with the block (K',), their means (K', D) and
    correlations (K', D, D), and those of all rows, (D,) and (D, D). NaN where rows are too few."""

    name: str
    columns: tuple[str, ...]
    rows: np.ndarray
    mean: np.ndarray
    correlation: np.ndarray
    overall_mean: np.ndarray
    overall: np.ndarray


def block_profiles(components: Components, s: Statistics, shown: np.ndarray) -> list[BlockProfile]:
    """Return profiles of the blocks of jointly modelled columns, in the clusters `shown` (indices into `s`)."""
    made = []
    for block, n, mean, scatter in components.multinormal.parts(s.of(Multinormal)):
        if isinstance(block, Line):
            continue
        matrix = unpack(scatter)
        share = n / max(n.sum(), 1)
        centre = mean @ share
        off = (mean - centre[:, None]).T
        whole = matrix.sum(axis=0) + (n[:, None, None] * off[:, :, None] * off[:, None, :]).sum(axis=0)
        means = np.where(n > 0, mean, np.nan).T[shown]
        correlations = _correlation(matrix[shown])
        made.append(BlockProfile(block.name, block.columns, n[shown], means, correlations, centre, _correlation(whole)))
    return made


def _correlation(scatter: np.ndarray) -> np.ndarray:
    deviation = np.sqrt(np.diagonal(scatter, axis1=-2, axis2=-1))
    with np.errstate(divide="ignore", invalid="ignore"):
        return scatter / (deviation[..., :, None] * deviation[..., None, :])


def correlated(block: BlockProfile, k: int, most: int = 3) -> list[tuple[str, str, float, float]]:
    """Return the most distinctive correlations in cluster k (of those shown): (a, b, there, in all rows).

    First those farthest from all rows' on Fisher's scale, if the cluster has enough rows to distinguish them.
    """
    i, j = np.tril_indices(len(block.columns), -1)
    here, everywhere = block.correlation[k][i, j], block.overall[i, j]
    n = float(block.rows[k])
    with np.errstate(invalid="ignore"):
        apart = np.abs(np.arctanh(np.clip(here, -CLOSE, CLOSE)) - np.arctanh(np.clip(everywhere, -CLOSE, CLOSE)))
    telling = np.flatnonzero(np.isfinite(apart) & (apart > 3.0 / np.sqrt(max(n - 3.0, 1e-9))) & (apart > 0.1))
    order = telling[np.argsort(-apart[telling], kind="stable")][:most]
    return [(block.columns[j[p]], block.columns[i[p]], float(here[p]), float(everywhere[p])) for p in order]


def parts_in_words(column: Column) -> tuple[str, ...]:
    """Describe the parts of a survival column's time axis: up to 100, 100 to 200, after 200."""
    ends = [f"{end:,.6g}" for end in column.ends]
    between = [f"{a} to {b}" for a, b in pairwise(ends)]
    return (f"up to {ends[0]}", *between, f"after {ends[-1]}") if ends else ("any time",)


def _mix(p: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the mixture of the columns of `p` (V, K); with equal weights if all weights are 0."""
    weight = weight if weight.sum() > 0 else np.ones_like(weight)
    return p @ (weight / weight.sum())


def _divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Return sum p log(p / q) for each column of `p` (V, K'); q (V,) is positive where p is."""
    ratio = np.divide(p, q[:, None], out=np.ones_like(p), where=p > 0)
    return np.maximum((p * np.log(ratio)).sum(axis=0), 0.0)


def _column(column, size, observed, shown, inner, overall, values, compared, **more) -> ColumnProfile:
    """Make a profile from the observed cells' distribution, values (V, K), and the missing cells: the divergence of
    (missing or not, then the value) is the sum of its two parts."""
    n_missing = size - observed
    missing = (n_missing / size)[shown]
    everywhere = n_missing.sum() / size.sum()
    part, lacks = np.zeros(len(shown)), np.zeros(len(size))
    if column.atoms:  # the column's other profile covers cells missing here: atoms, and missing ones
        n_missing, everywhere = np.zeros(len(size)), 0.0
    if everywhere > 0:
        # half a cell of each kind: a small cluster without missing cells says little
        m = (n_missing + 0.5) / (size + 1.0)
        all_m = (m * size).sum() / size.sum()
        lacks, m = m, m[shown]
        part = m * np.log(m / all_m) + (1.0 - m) * np.log((1.0 - m) / (1.0 - all_m))
    divergence = part + (1.0 - missing) * inner
    information = float((size[shown] / size.sum() * divergence).sum())
    title = column.part_of or column.name
    if column.atoms:
        missing = np.zeros(len(shown))
    alike = np.zeros((0, 0))
    if compared:
        cells = np.vstack([values * (1.0 - lacks), lacks])
        alike = likeness(cells[:, shown], size[shown], _mix(cells, size))
    return ColumnProfile(
        column.name, title, column.kind, divergence, part, missing, float(everywhere), information, alike, overall,
        **more,
    )  # fmt: skip


def traits(
    columns: Sequence[ColumnProfile], k: int, shared: Shared = nothing_shared, most: int = TRAITS,
    repeated: np.ndarray | None = None,
) -> list[Trait]:  # fmt: skip
    """Return the traits that distinguish cluster k (of those shown) from the other clusters and from all rows, in order
    of what each adds. repeated (C, K'): columns that follow from others there (`beside_links`)."""
    new = np.ones(len(columns), bool) if repeated is None else ~repeated[:, k]
    least = TELLING if len(columns) > 1 else 0.0  # the clusters of a single column are ranges
    telling = [c for c, is_new in zip(columns, new) if is_new and c.divergence[k] >= least]
    others = [i for i in range(len(columns[0].divergence)) if i != k] if columns else []
    named: list[Trait] = []
    for c in order(telling, [(k, i) for i in others], np.array([c.divergence[k] for c in telling]), shared):
        new = trait(c, k)
        if not (new.lacking and any(t.lacking for t in named)):  # "no job" in one column is enough
            named.append(new)
        if len(named) == most:
            break
    means = {t.title for t in named if t.what == "mean"}  # these say more than `at_no_atom`
    return [t for t in named if not (t.at_no_atom and t.title in means)]


def picture(
    columns: Sequence[ColumnProfile], shared: Shared = nothing_shared, traits: Sequence[Sequence[Trait]] = ()
) -> list[ColumnProfile]:
    """Return the columns for a picture of the largest clusters, all pairs of clusters counting equally. traits: of each
    cluster; the columns that name most clusters are in the picture, so that it shows what their names say."""
    n = min(len(columns[0].divergence), MANY_CLUSTERS)
    telling = [c for c in columns if np.any(c.divergence[:n] >= TELLING)]
    telling = telling or sorted(columns, key=lambda c: -c.information)[:1]
    pairs = [(i, j) for i in range(n) for j in range(i)]
    ordered = order(telling, pairs, np.array([c.information for c in telling]), shared, MANY_COLUMNS)
    named = Counter(t.column for of_cluster in traits[:n] for t in sorted(of_cluster, key=lambda t: t.lacking)[:NAMING])
    first = sorted((c for c in columns if c.name in named), key=lambda c: -named[c.name])
    picked = {c.name for c in [*first, *(c for c in ordered if c.name not in named)][:MANY_COLUMNS]}
    known = {c.name for c in ordered}
    return [c for c in [*ordered, *(c for c in first if c.name not in known)] if c.name in picked]


def order(
    columns: Sequence[ColumnProfile],
    pairs: Sequence[tuple[int, int]],
    divergence: np.ndarray,
    shared: Shared,
    most: int = 2 * TRAITS,
) -> list[ColumnProfile]:
    """Return at most `most` columns that distinguish these pairs of the clusters shown: see `telling.choose`."""
    if not columns:
        return []
    one, other = np.array(pairs, np.int64).reshape(-1, 2).T
    alike = np.stack([c.alike[one, other] for c in columns])
    return [columns[i] for i in choose([c.name for c in columns], alike, divergence, shared, most)]


def trait(c: ColumnProfile, k: int) -> Trait:
    """Describe cluster k by column c."""
    nats = float(c.divergence[k])
    if c.missing[k] >= 1.0 or c.missing_divergence[k] > 0.5 * nats:
        numbers = {"missing": float(c.missing[k]), "overall": c.missing_overall}
        return Trait(
            c.name, c.title, nats, "missing", f"missing {percent(c.missing[k])}", percent(c.missing_overall), numbers
        )
    if c.ends:
        left, overall = (1.0 - np.cumsum(x)[:-1] for x in (c.p[:, k], c.overall))
        at = int(np.abs(left - overall).argmax())
        value, everywhere = f"{percent(left[at])} beyond {c.ends[at]:,.6g}", percent(overall[at])
        numbers = {"time": c.ends[at], "survival": float(left[at]), "overall": float(overall[at])}
        return Trait(c.name, c.title, nats, "survival", value, everywhere, numbers)
    if c.order:
        p, q = c.p[list(c.order), k], c.overall[list(c.order)]
        first, last = ordered.telling_run(p, q)
        run = slice(first, last + 1)
        levels, where = [c.levels[v] for v in c.order[run]], ordered.place(first, last, len(p))
        numbers = {"levels": levels, "p": p[run].tolist(), "overall": q[run].tolist(), "place": where}
        value = ordered.in_words(where, levels, p[run].sum(), np.inf)
        return Trait(c.name, c.title, nats, "ordered", value, percent(q[run].sum()), numbers)
    if c.p is not None:
        chosen = telling_levels(c.p[:, k], c.overall)
        p, q = c.p[chosen, k], c.overall[chosen]
        atoms = c.title != c.name  # atoms are numbers
        names = [_atom(c.levels[v]) if atoms else _quoted(cut(c.levels[v])) for v in chosen]
        if p[0] >= q[0]:
            of = " in " if atoms else " "
            value = _is(" or ".join(f"{level}{of}{percent(share)}" for level, share in zip(names, p)), atoms)
        else:
            value = _is_not(names[0], atoms) if p[0] < NONE else f"{_is(names[0], atoms)} only {percent(p[0])}"
        numbers = {"levels": [c.levels[v] for v in chosen], "p": p.tolist(), "overall": q.tolist()}
        return Trait(c.name, c.title, nats, "level", value, " and ".join(map(percent, q)), numbers)
    numbers = {
        "mean": float(c.mean[k]),
        "sd": _or_none(c.sd[k]),
        "overall_mean": float(c.overall[0]),
        "overall_sd": _or_none(c.overall[1]),
        **({"scale": "log"} if c.log else {}),
    }
    words = partial(around, unit=c.unit) if c.unit else factor if c.log else spread
    return Trait(c.name, c.title, nats, "mean", words(c.mean[k], c.sd[k]), words(*c.overall), numbers)


def telling_levels(p: np.ndarray, q: np.ndarray) -> list[int]:
    """Return the levels to name: the one that adds most to the divergence of `p` from `q`, with the next if both are
    common; or, if the cluster lacks a level common in other rows, that level."""
    gain = p * np.log(p / q)
    first, second = (int(v) for v in np.argsort(-gain, kind="stable")[:2]) if len(p) > 1 else (0, 0)
    lacking = int(np.argmax(q - p))
    if p[first] < 0.3 and q[lacking] > 0.25 and p[lacking] < 0.2 * q[lacking]:
        return [lacking]
    if p[first] < PLAIN and second != first and gain[second] > 0.3 * gain[first] and p[second] >= 0.1:
        return [first, second]
    return [first]


def _quoted(level: str) -> str:
    """Return the level's name, in quotes if it could be taken for a number or is hard to see."""
    plain = level.strip() == level and level and not level[-1].isdigit()
    return level if plain else f'"{level}"'


def _or_none(x) -> float | None:
    return float(x) if np.isfinite(x) else None
