"""Notes on columns that are imported as they are, and may need a decision of their owner: identifiers of several rows,
columns that lack most of their cells, levels that may mean missing, survey weights by their names, and columns of a
survey's design."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from mpibayes.io.infer import Decision
from mpibayes.io.profile import Profile
from mpibayes.io.rows import LEVELLED
from mpibayes.io.summary import named
from mpibayes.io.weights import DESIGN, words_of
from mpibayes.text import option

WEIGHTS = re.compile(
    r"((survey|sample|sampling|samp|person|case|design|final|population|pop|[pf])_?)?(weights?|wgt|wt|wght)"
)
MEANS_MISSING = re.compile(
    r"\b(missing|refus\w*|no (answer|response)|not (answered|asked|applicable|stated|ascertained)|don.?t know)\b"
    r"|^(n/?a([_ .-]n/?a)*|iap|inap|dk|\?+)$",  # NA_NA: two missing cells that a program has pasted together
    re.IGNORECASE,
)
PROBABILITY = re.compile(r"(sel(ection)?|incl?(usion)?|samp(ling)?)?[_ .]?prob(ability)?", re.IGNORECASE)  # to be drawn
MOST_LEVELS = 100  # of a category: among more, names of things may have such words
WIDE = 4.0  # least ratio of the largest survey weight to the mean: weights of objects differ less
REPEATED = 1.5  # rows per value of an identifier from which on they belong together
FEWEST = 20  # values of such an identifier
MOSTLY = 0.5  # share of missing cells


def hints(profiles: Sequence[Profile], decisions: Sequence[Decision], explained: Collection[str]) -> Iterator[str]:
    """Yield notes. explained: columns whose missing cells have a known reason (`io/absent.py`)."""
    columns = list(zip(profiles, decisions, strict=True))
    for p, d in columns:
        if d.reason.startswith("identifier") and not d.warning and p.n_observed >= REPEATED * p.n_distinct >= FEWEST:
            yield (
                f"column '{p.name}': {p.counted} different values in {p.n_observed:,} rows, which a run takes to be "
                "independent; if rows of one value belong together, groups and held-out scores look surer than they are"
            )
        if d.kind in ("real", "count") and _is_weight(p):
            yield f"column '{p.name}': if it says how many cases a row stands for: {option('weight', p.name)}"
    yield from _design(columns)
    yield from _levels_for_missing(columns)
    lacking = [p.name for p, d in columns if d.kind != "ignored" and p.name not in explained and _lacks_most(p)]
    if lacking:
        lack = "column {} lacks" if len(lacking) == 1 else "columns {} lack"
        yield (
            f"{lack.format(named(lacking))} over half of the cells; a run learns nothing from which cells are "
            "missing. If that is informative (nothing happened there, say), add a column that says so: yes or no"
        )


def _design(columns: Sequence[tuple[Profile, Decision]]) -> Iterator[str]:
    """Ask about columns that describe how a sample was drawn, beside weights."""
    if not any(d.kind == "ignored" and d.reason.startswith("weight of") for _, d in columns):
        return
    designs = [(p, d) for p, d in columns if DESIGN & {*words_of(p.name)} or PROBABILITY.fullmatch(p.name)]
    found = [p.name for p, d in designs if d.kind != "ignored" and p.kind is None]
    originals = tuple(f"copy of another column: '{name}' " for name in found)
    again = [p.name for p, d in columns if d.reason.startswith(originals)]  # they would take the place of the originals
    if found:
        seem = "column {} seems" if len(found) == 1 else "columns {} seem"
        yield (
            f"{seem.format(named(found))} to say how the sample was drawn, as its weights do; if so, "
            f"{option('drop', ','.join([*found, *again]))}: views and groups may show little else"
        )


def _levels_for_missing(columns: Sequence[tuple[Profile, Decision]]) -> Iterator[str]:
    """Ask about levels that are words for no answer."""
    found: dict[str, list[str]] = {}
    for p, d in columns:
        if d.kind in LEVELLED and p.levels is None and len(d.levels) <= MOST_LEVELS:
            for level in filter(MEANS_MISSING.search, d.levels):
                found.setdefault(level, []).append(p.name)
    for level, names in found.items():
        have = "column {} has" if len(names) == 1 else "columns {} have"
        yield f"{have.format(named(names))} the level {level!r}; if it means missing: {option('missing', level)}"


def _is_weight(p: Profile) -> bool:
    name = p.name.strip().lower().replace(" ", "_").replace(".", "_")
    return bool(WEIGHTS.fullmatch(name)) and p.dates is None and p.minimum >= 0 and p.maximum >= WIDE * p.mean


def _lacks_most(p: Profile) -> bool:
    return p.n_missing > MOSTLY * (p.n_missing + p.n_observed)
