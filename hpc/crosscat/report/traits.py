"""Traits of clusters: the columns that distinguish each cluster, from their profiles, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from mpibayes.hpc.crosscat.report import ordered
from mpibayes.hpc.crosscat.report.profiles import ColumnProfile
from mpibayes.hpc.crosscat.report.telling import Shared, choose, nothing_shared
from mpibayes.hpc.report.drawing import cut, shortened
from mpibayes.io.clock import around
from mpibayes.io.recording import ANOTHER
from mpibayes.text import factor, percent, spread

MIN_DIVERGENCE = 0.1  # nats: least divergence of a column that characterises a cluster
TRAITS = 5  # columns named for each cluster
NAMING = 2  # of them that are in its name
MANY_CLUSTERS, MANY_COLUMNS = 20, 11  # most in the picture, which has to fit a screen
PLAIN = 0.9  # share of a cluster's rows from which a level is named without its share
REST = "not "  # prefix of the name for values other than a column's only atom, see `io.recording.levels`
ATOM_LETTERS = 8  # longest atom; a longer one is rounded to six digits
NONE = 0.005  # share of a cluster's rows below which it does not have a level
LEVEL_LETTERS = 24  # longest name of a level in the name of a cluster
FEW = 0.2  # share of a cluster's rows below which their level is only more frequent than elsewhere


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
            if self.rare:
                return f"{self.named} more often {' or '.join(short)} ({share.strip()})"
        return f"{self.named} {_is(' or '.join(short), atoms)}{share}"

    @property
    def lacking(self) -> bool:
        """True if the trait is something that the cluster lacks."""
        if self.what == "missing":
            return self.numbers["missing"] < self.numbers["overall"]
        return self.what == "level" and self.numbers["p"][0] < self.numbers["overall"][0]

    @property
    def rare(self) -> bool:
        """True if the trait is a level that few rows of the cluster have, though more than elsewhere, or the mean of
        fewer than half of them, as the others are at atoms."""
        if self.what == "mean":
            return self.numbers.get("share", 1.0) < 0.5
        return self.what == "level" and not self.lacking and sum(self.numbers["p"]) < FEW

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


def traits_of(
    columns: Sequence[ColumnProfile], k: int, shared: Shared = nothing_shared, most: int = TRAITS,
    repeated: np.ndarray | None = None,
) -> list[Trait]:  # fmt: skip
    """Return the traits that distinguish cluster k (of those shown) from the other clusters and from all rows, in order
    of what each adds. repeated (C, K'): columns that follow from others there (`beside_links`)."""
    new = np.ones(len(columns), bool) if repeated is None else ~repeated[:, k]
    least = MIN_DIVERGENCE if len(columns) > 1 else 0.0  # the clusters of a single column are ranges
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


def naming(traits: Sequence[Trait]) -> list[Trait]:
    """Sort traits for a name: those of most rows, those that the cluster lacks, then rare ones."""
    return sorted(traits, key=lambda t: (t.rare, t.lacking))  # stable


def picture(
    columns: Sequence[ColumnProfile], shared: Shared = nothing_shared, traits: Sequence[Sequence[Trait]] = ()
) -> list[ColumnProfile]:
    """Return the columns for a picture of the largest clusters, all pairs of clusters counting equally. traits: of each
    cluster; the columns that name most clusters are in the picture, so that it shows what their names say."""
    n = min(len(columns[0].divergence), MANY_CLUSTERS)
    telling = [c for c in columns if np.any(c.divergence[:n] >= MIN_DIVERGENCE)]
    telling = telling or sorted(columns, key=lambda c: -c.information)[:1]
    pairs = [(i, j) for i in range(n) for j in range(i)]
    ordered = order(telling, pairs, np.array([c.information for c in telling]), shared, MANY_COLUMNS)
    named = Counter(t.column for of_cluster in traits[:n] for t in naming(of_cluster)[:NAMING])
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
        chosen, atoms = telling_levels(c.p[:, k], c.overall), c.title != c.name  # atoms are numbers
        if atoms and ANOTHER in (c.levels[v] for v in chosen):
            lost = int(np.argmax(c.overall - c.p[:, k]))
            if c.overall[lost] >= FEW and c.p[lost, k] <= 1.0 - PLAIN:
                chosen = [lost]  # "not 0" says more than "none of its repeated values"
        p, q = c.p[chosen, k], c.overall[chosen]
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
    words = partial(around, unit=c.unit, step=c.step) if c.unit else factor if c.log else spread
    value = words(c.mean[k], c.sd[k])
    if c.share is not None and c.share[k] < PLAIN:  # the others are at atoms
        numbers["share"] = float(c.share[k])
        value += f" in{_beyond(c.share[k])}"
    return Trait(c.name, c.title, nats, "mean", value, words(*c.overall), numbers)


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
