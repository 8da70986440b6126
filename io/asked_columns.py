"""An empty profile for each column of an import, with what the user asked of it: by options and by a schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mpibayes.errors import ConfigError
from mpibayes.io.dialect import MAX_PROBLEMS
from mpibayes.io.header import MISSING
from mpibayes.io.index_column import has_index_name, is_unnamed
from mpibayes.io.profile import Profile
from mpibayes.io.rows import LEVELLED
from mpibayes.io.scales import NONE
from mpibayes.io.schema import SCHEMA_KINDS, ColumnSchema, Schema
from mpibayes.io.source import TextSource
from mpibayes.text import near, option


def empty_profiles(
    source: TextSource,
    schema: Schema,
    missing: Sequence[str],
    kinds: Mapping[str, str],
    keep: Sequence[str],
    drop: Sequence[str],
    ordered: Sequence[str] = (),
    unordered: Sequence[str] = (),
    calendar: Sequence[str] = (),
    weight: str | None = None,
) -> list[Profile]:
    """Return an empty profile per column, with the user's settings (`ingest.import_table`). Raises ConfigError with all
    mistakes."""
    problems = []
    has = f"; it has {', '.join(source.names[:12])}{' ...' if len(source.names) > 12 else ''}"
    there = set(source.names)
    mentions = [
        ("the schema", schema.columns),
        ("kinds", kinds),
        ("keep", keep),
        ("drop", drop),
        ("calendar", calendar),
    ]
    mentions += [("ordered", [name for name in ordered if name != NONE]), ("unordered", unordered)]
    problems += [f"column '{name}': is both ordered and unordered" for name in ordered if name in unordered]
    for where, mentioned in mentions:
        unknown = [name for name in mentioned if name not in there]
        problems += [
            f"{where}: no column '{name}' in {source.paths[0]}{near(name, source.names) or has}"
            for name in unknown[:MAX_PROBLEMS]
        ]
        if len(unknown) > MAX_PROBLEMS:
            problems.append(f"{where}: {len(unknown) - MAX_PROBLEMS:,} more of its columns are not there")
    kept, dropped = set(keep), set(drop)
    if weight is not None and weight in {*kept, *calendar, *ordered, *unordered}:
        problems.append(f"column '{weight}': weighs rows, and is not a column of the table")
    for name, kind in kinds.items():
        if kind not in SCHEMA_KINDS:
            known = ", ".join(SCHEMA_KINDS)
            problems.append(f"column '{name}': unknown kind '{kind}'{near(kind, SCHEMA_KINDS)}; one of {known}")
        if name == source.count and kind != "ignored":
            problems.append(f"column '{name}': counts rows, and is not a column of the table")
        if name == weight and kind != "ignored":
            problems.append(f"column '{name}': weighs rows, and is not a column of the table")
        if name in dropped - kept and kind != "ignored":
            problems.append(f"column '{name}': is both dropped and kept")
    problems += [f"column '{name}': is both dropped and kept" for name in sorted(dropped & kept)]
    profiles = []
    times, events = ({getattr(pair, of) for pair in source.survival} for of in ("time", "event"))
    for name in (*times, *events):
        given = kinds.get(name, schema.columns.get(name, ColumnSchema()).kind)
        if name in dropped or given not in (None, "ignored" if name in events else "survival"):
            problems.append(f"column '{name}': is of a pair of --survival, and of no other kind")
        if name in events and name in kept:
            problems.append(f"column '{name}': is of a pair of --survival, and cannot be kept beside its time")
    for position, name in enumerate(source.names):
        column = schema.columns.get(name, ColumnSchema())
        kind = "ignored" if name in dropped or name in events or name == source.count else kinds.get(name, column.kind)
        kind = "survival" if name in times else kind
        if kind == "survival" and name not in times:
            problems.append(
                f"column '{name}': a survival column is of two of the file: {option('survival', name + ',EVENT')}"
            )
        kind = "real" if name == weight else kind  # read as a number, to infer the form of its numbers
        levels = column.levels if kind in LEVELLED else None
        given_markers = (m for m in (column.missing, schema.missing) if m is not None)
        usual = next(given_markers, MISSING)
        no = column.no if levels else ()
        labels = source.labels.get(len(profiles), {})
        markers = [*usual, *(m.strip() for m in missing)]
        markers = dict.fromkeys([*markers, *(labels[m] for m in markers if m in labels)])
        markers = tuple(m for m in markers if m not in no)
        problems += [
            f"column '{name}': the level {v!r} is also a missing marker; give the column its own (missing = [...])"
            for v in levels or ()
            if v in markers
        ]
        if levels is not None and kind == "boolean" and len(levels) != 2:
            problems.append(f"column '{name}': a boolean column has two levels, the schema gives {len(levels)}")
        unread = source.dialect.unread.get(len(profiles), "")
        if unread and (kind not in (None, "ignored") or name in kept):
            problems.append(f"column '{name}': is {unread}; it cannot be imported, only left out")
        profiles.append(Profile(name, "ignored" if unread else kind, levels, markers, no=no))
        profiles[-1].asked_missing = column.missing or ()
        profiles[-1].unnamed = is_unnamed(position, source.names)
        profiles[-1].usual_index = has_index_name(position, source.names)
        profiles[-1].unread = unread if kind is None else ""
        profiles[-1].n_marked = dict.fromkeys((labels.get(m.strip(), m.strip()) for m in missing), 0)
        in_file = source.orders.get(position)
        profiles[-1].order = tuple(labels.values()) or tuple(in_file or ())
        profiles[-1].ordered = in_file is not None
        recorded = {"resolution": column.resolution, "atoms": column.atoms, "log": column.log}
        profiles[-1].cuts = column.cuts or ()
        profiles[-1].recorded = {key: value for key, value in recorded.items() if value is not None}
    if problems:
        raise ConfigError("the description of the columns does not fit", problems)
    markers_of = {profile.name: tuple(profile.markers) for profile in profiles}
    source.survival = [replace(pair, missing=markers_of[pair.event]) for pair in source.survival]
    return profiles


def unmet(missing: Sequence[str], profiles: list[Profile], source: TextSource) -> Iterator[str]:
    """Report the user's markers that no cell has."""
    for marker in map(str.strip, missing):
        labels = (source.labels.get(i, {}).get(marker, marker) for i in range(len(profiles)))
        if marker in {text for pair in source.survival for text in pair.seen}:
            continue
        if not any(profile.n_marked.get(label) for profile, label in zip(profiles, labels)):
            yield f"--missing {marker}: no cell has it"
