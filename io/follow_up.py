"""Two columns whose names and values suggest a time and its event: a survival column, if the user says so (`watched`).
A note asks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mpibayes.io.infer import Decision
from mpibayes.io.profile import Profile
from mpibayes.io.rows import LEVELLED, NUMERIC
from mpibayes.io.watched import NO, YES
from mpibayes.text import option

TIMES = re.compile(
    r"((fu|surv|survival|s|stop|event|follow_?up)_?)?(time|days|months|years)|tenure|duration|survival|tte"
)
EVENTS = re.compile(
    r"status|event|death|died|dead|deceased|observed|cens(or(ed)?)?|churn(ed)?|fail(ed|ure)?|relapse(d)?|fustat"
)
FEWEST_TIMES = 20  # distinct values
MOST_STATES = 3


def questions(profiles: Sequence[Profile], decisions: Sequence[Decision]) -> Iterator[str]:
    """Yield a note if one column looks like a time, and another one like its event."""
    columns = list(zip(profiles, decisions, strict=True))
    times = [p for p, d in columns if _is(TIMES, p) and d.kind in NUMERIC and _is_time(p)]
    events = [(p, d) for p, d in columns if _is(EVENTS, p) and d.kind in LEVELLED and 2 <= len(d.levels) <= MOST_STATES]
    if len(times) != 1 or not events:
        return
    (time,), (event, decision) = times, events[0]
    plain = all(level.lower() in YES | NO for level in decision.levels)
    pair = f"{time.name},{event.name}" + ("" if plain else "=VALUE")
    yield (
        f"columns '{time.name}' and '{event.name}': if they say how long each row was observed, and whether an event "
        f"came: {option('survival', pair)}"
    )


def _is(names: re.Pattern[str], p: Profile) -> bool:
    return bool(names.fullmatch(p.name.strip().lower().replace(" ", "_").replace(".", "_")))


def _is_time(p: Profile) -> bool:
    return p.dates is None and p.minimum >= 0 and p.n_distinct > FEWEST_TIMES
