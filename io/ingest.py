"""`mpibayes import`: files of rows into a typed table, in two passes over their text.

The first pass reads every column completely and decides its kind (`infer`), or checks it against the user's (`schema`).
The second writes. Memory depends on the block size and the number of levels, not on the number of rows.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa

from mpibayes.errors import ConfigError, DataError
from mpibayes.io import derived, infer
from mpibayes.io.absent import Absence, Absences, notes, reasons
from mpibayes.io.asked_columns import empty_profiles, unmet
from mpibayes.io.copies import Copied, copies, dummies, without_copies
from mpibayes.io.dialect import MAX_PROBLEMS
from mpibayes.io.encode import Encoder, Offences
from mpibayes.io.files import read_regular, reason, require_unchanged, sha256_of, stamps, write_text, writing
from mpibayes.io.find_forms import Written, as_found, find_forms
from mpibayes.io.follow_up import questions
from mpibayes.io.hints import hints
from mpibayes.io.import_notes import ImportNotes
from mpibayes.io.making import Made, made_columns
from mpibayes.io.patterns import Patterns, count_column
from mpibayes.io.profile import Profile
from mpibayes.io.redundant import Redundancy
from mpibayes.io.scales import asked, columns_in, with_order
from mpibayes.io.schema import ColumnSchema, Schema, read_schema, schema_text
from mpibayes.io.source import Progress, TextSource
from mpibayes.io.summary import ColumnSummary, ImportSummary, named
from mpibayes.io.survey_weights import REASON, SurveyWeights
from mpibayes.io.table import Table, TableWriter, check_table_name
from mpibayes.io.tables import folder_from
from mpibayes.io.target import SCHEMA, TABLE, check_target, same_file
from mpibayes.io.watched import stored
from mpibayes.io.weights import without_weights
from mpibayes.text import is_unicode


def import_table(
    sources: str | os.PathLike | Sequence[str | os.PathLike],
    out: str | os.PathLike,
    *,
    schema: str | os.PathLike | Schema | None = None,
    write_schema: str | os.PathLike | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    encoding: str | None = None,
    missing: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
    keep: Sequence[str] = (),
    drop: Sequence[str] = (),
    ordered: Sequence[str] = (),
    unordered: Sequence[str] = (),
    names: str | os.PathLike | Sequence[str] | None = None,
    sheet: str | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    dates: str | None = None,
    calendar: Sequence[str] = (),
    count: str | None = None,
    weight: str | None = None,
    survival: Sequence[str] = (),
    overwrite: bool = False,
    hashed: bool = False,
    progress: Progress | None = None,
) -> ImportSummary:
    """Import one or several files with the same columns into the typed table `out`.

    schema: a schema file (or Schema); write_schema: where to write the resulting one. missing: markers in addition to
    the usual ones (MISSING, or the schema's). kinds: column -> kind; keep: columns to use even if constant or
    identifiers; drop: columns to leave out. ordered, unordered: columns whose categories are ordered or not, overriding
    inference; ordered=["none"]: only the named ones (`scales`). names: column names, or a file with one per line.
    sheet: of an Excel workbook, by default the first. decimal ("." or ","), thousands (one of , . ' and a blank), dates
    ("day-first" or "month-first"): forms of numbers and dates, if they cannot be inferred. calendar: columns of dates
    whose weekday, month and hour become columns, too. count: the column with the number of equal rows that each row
    represents; the table has them all. weight: the column of survey weights, which are kept beside the rows. survival:
    pairs of columns, "TIME,EVENT" or "TIME,EVENT=VALUE", merged into one named after the first: how long a row was
    observed, and whether the event occurred. hashed: include the SHA-256 of the sources in the summary. progress is
    called with (phase, rows done, share of the input read).

    Raises ConfigError (schema, options, `out` exists) or DataError (the files, or `out` cannot be written). Nothing is
    written under the final names unless all succeeds.
    """
    start = time.perf_counter()
    wrong = [m for m in missing if not is_unicode(m)]
    if wrong:
        raise ConfigError(f"--missing {wrong[0]}: not UTF-8")
    out = Path(out)
    check_table_name(out)
    described = [path for path in (schema, names) if isinstance(path, str | os.PathLike)]
    paths = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    inputs = [*paths, *described]
    check_target(out, overwrite, TABLE, inputs, DataError)
    if write_schema is not None:
        write_schema = Path(write_schema)
        check_target(write_schema, overwrite, SCHEMA, inputs, DataError)
        if same_file(out, write_schema):
            raise ConfigError(f"{out}: is named twice; give the table and the schema two files")
    schema = schema if isinstance(schema, Schema) else read_schema(schema) if schema else Schema()
    before = stamps(paths)
    with one_thread():
        source = TextSource(
            paths,
            delimiter=schema.delimiter if delimiter is None else delimiter,
            header=schema.header if header is None else header,
            encoding=schema.encoding if encoding is None else encoding,
            names=_read_names(names),
            sheet=schema.sheet if sheet is None else sheet,
            count=schema.count if count is None else count,
            survival=survival or schema.survival or (),
        )
        weight = schema.weight if weight is None else weight
        weights = None if weight is None else SurveyWeights(source, weight)
        if decimal is not None and decimal == thousands:
            raise ConfigError(f"--decimal {decimal} --thousands {thousands}: one mark cannot be both")
        ordered, unordered, keep, drop, calendar = (
            columns_in(words, source.names) for words in (ordered, unordered, keep, drop, calendar)
        )
        profiles = empty_profiles(
            source, schema, missing, kinds or {}, keep, drop, ordered, unordered, calendar, weight
        )
        written = Written(decimal or schema.decimal, thousands or schema.thousands, dates or schema.dates)
        guesses = find_forms(source, profiles, written)
        if weights is not None:
            weights.form = profiles[source.position_of("weight", weight)].form
        rows = _profile_all(source, profiles, weights, progress)
        no_events = [text for pair in source.survival if (text := pair.require_events(source.paths[0]))]
        kept = set(keep)
        of_rows = {source.count: "says how many equal rows each row stands for", weight: REASON}
        of_rows |= {pair.event: f"says whether the event of '{pair.time}' came" for pair in source.survival}
        decisions = [
            infer.Decision("ignored", reason=of_rows[p.name]) if p.name in of_rows else infer.decide(p, p.name in kept)
            for p in profiles
        ]
        decisions = without_weights(profiles, decisions, kept, weight)
        in_schema = {name: c.ordered for name, c in schema.columns.items() if c.ordered is not None}
        decisions = list(with_order(profiles, decisions, asked(ordered, unordered, in_schema, source.names)))
        errors = [d.error for d in decisions if d.error]
        if errors:
            raise DataError(f"{source.paths[0]}: cannot be imported as it is", errors[:MAX_PROBLEMS])
        calendar = {*calendar, *(name for name, column in schema.columns.items() if column.calendar)}
        made, columns = made_columns(profiles, decisions, calendar)
        sums: list[str] = []

        def finish() -> None:
            """Complete the files while the table still has a temporary name."""
            sums[:] = map(sha256_of, paths if hashed else ())
            require_unchanged(before)

        may_count = None if source.count else count_column(profiles, decisions, kept)

        chosen = {*kept, *(p.name for p in profiles if p.kind is not None)}
        chosen |= {m.name for m in made if m.name != m.profile.name}

        def notes_of(redundancy: Redundancy, absences: Sequence[Absence]) -> tuple[list[str], list[str]]:
            """Notes, without those on absences, and warnings, once all rows were seen."""
            notes = [
                *(weights.notes() if weights else ()),
                *_notes(decisions, profiles),
                *(() if source.survival else questions(profiles, decisions)),
                *hints(profiles, decisions, {a.column for a in absences}),
                *derived.notes(columns, redundancy),
            ]
            warnings = [d.warning for d in decisions if d.warning]
            found = [*source.notes, *guesses, *unmet(missing, profiles, source), *no_events]
            return notes, [*found, *warnings, *redundancy.warnings()]

        def write(chosen: set[str] | None) -> tuple[Table, list[str], list[str]]:
            options = (overwrite, rows, profiles, decisions, made, columns, may_count, weights, notes_of)
            return _write(source, out, *options, progress, finish, chosen)

        try:
            table, asked_of, warnings = write(chosen)
        except Copied as of:
            decisions = without_copies(profiles, decisions, of)
            made, columns = made_columns(profiles, decisions, calendar - of.columns)
            table, asked_of, warnings = write(None)
        absences = Absence.stored(table.source)
        absent = reasons(absences)
        decisions = [
            replace(d, reason=f"{d.reason}; {absent[p.name]}") if p.name in absent else d
            for p, d in zip(profiles, decisions, strict=True)
        ]
    if write_schema is not None:
        _write_schema(write_schema, source, profiles, decisions, as_found(profiles, written), calendar, weight)
    return ImportSummary(
        table,
        rows,
        _column_summaries(table, profiles, decisions, made),
        tuple(warnings),
        time.perf_counter() - start,
        _reading(source),
        notes=(*notes(absences), *asked_of),
        sha256=tuple(sums),
    )


def look_at(sources: str | os.PathLike | Sequence[str | os.PathLike], **options) -> ImportSummary:
    """Return the summary of an import with the same options; the table is made in a temporary folder and deleted."""
    with tempfile.TemporaryDirectory(prefix="mpibayes-") as folder:
        return replace(import_table(sources, Path(folder) / "look.h5", **options), written=False)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Run pyarrow on one thread: batch jobs keep to their cores, and memory stays small."""
    before = pa.cpu_count()
    pa.set_cpu_count(1)
    try:
        yield
    finally:
        pa.set_cpu_count(before)


def _read_names(names: str | os.PathLike | Sequence[str] | None) -> list[str] | None:
    if names is None or not isinstance(names, str | os.PathLike):
        return None if names is None else list(names)
    try:
        lines = read_regular(names, pipe=True).decode("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{names}: not a readable file of column names, one a line: {reason(error)}") from error
    return [line.strip() for line in lines if line.strip()]


def _notes(decisions: Sequence[infer.Decision], profiles: Sequence[Profile]) -> Iterator[str]:
    """Yield a note for each reason shared by several columns."""
    columns: dict[str, list[str]] = {}
    for p, d in zip(profiles, decisions, strict=True):
        if d.note:
            columns.setdefault(d.note, []).append(p.name)
    for note, names in columns.items():
        yield f"{'column' if len(names) == 1 else 'columns'} {named(names)}: {note}"


def _profile_all(
    source: TextSource, profiles: list[Profile], weights: SurveyWeights | None, progress: Progress | None
) -> int:
    """Make the first pass. Returns the number of rows; raises DataError with the cells that contradict the settings."""
    offences = Offences()
    rows = 0
    used = [i for i, profile in enumerate(profiles) if profile.kind != "ignored"] or None
    for batch in source.batches(used, progress, "reading"):
        rows += batch.n_rows
        if weights is not None:
            weights.look(batch)
        for position, profile in enumerate(profiles):
            if position in batch.columns and (weights is None or profile.name != weights.name):
                profile.add(batch, position, offences)
    if rows == 0:
        raise DataError(f"{source.paths[0]}: has no rows" + (" below its header" if source.dialect.header else ""))
    if offences:
        raise offences.error(source, "Mend the file, declare the text as missing (--missing), or change the schema.")
    if weights is not None:
        weights.require()
    return rows


def _write(
    source, out, overwrite, rows, profiles, decisions, made, columns, may_count, weights, notes_of, progress, finish,
    chosen,
) -> tuple[Table, list[str], list[str]]:  # fmt: skip
    """Make the second pass: write the table, with its notes and warnings, which are returned, too. chosen: columns that
    stay even if they are copies; other copies raise `Copied`, and nothing is written; None: all stay."""

    def require_no_copies(table: Table) -> None:
        if chosen is None:
            return
        copied = copies(table, redundancy.groups, chosen)
        beside = [(category, names) for category, names in redundancy.dummies if category not in copied]
        indicating = dummies(table, beside, chosen)
        if copied or indicating:
            raise Copied(copied, indicating)

    if not made:
        problems = [f"{p.name}: {d.reason}" for p, d in zip(profiles, decisions, strict=True)]
        advice = "keep some (--keep) or say what they are (--schema)"
        raise DataError(f"{source.paths[0]}: no column is left; {advice}", problems)
    used = [m.position for m in made]
    no = {m.name: m.profile.no for m in made if m.profile.no}
    encoder = Encoder(columns, used, [m.profile.markers for m in made], [m.form for m in made], no)
    forms = {m.name: m.form for m in made} | ({weights.name: weights.form} if weights else {})
    about = {
        "names": list(source.names),
        "files": [p.name for p in source.paths],
        "folder": folder_from(out, source.paths),
        "format": source.dialect.format,
        "delimiter": source.dialect.delimiter,
        "header": source.dialect.header,
        "encoding": source.dialect.encoding,
        "sheet": source.sheet,
        "count": source.count,
        "weight": weights and weights.name,
        **stored(source.survival),
        "missing": {m.name: list(m.profile.markers) for m in made},
        "no": {name: list(texts) for name, texts in no.items()},
        "forms": {name: asdict(form) for name, form in forms.items() if form is not None},
        "calendar": {m.name: m.profile.name for m in made if m.name != m.profile.name},
    }
    offences = Offences()
    redundancy, patterns, absences = Redundancy(columns, rows), Patterns(columns, may_count), Absences(columns)
    with TableWriter(out, columns, rows, overwrite, about, before_named=require_no_copies) as writer:
        for batch in source.batches([*used, *([weights.at] if weights else [])], progress, "writing"):
            coded = encoder.encode(batch, offences, offences)
            writer.write(coded, weights and weights.of(batch))
            redundancy.add(coded)
            patterns.add(coded)
            absences.add(coded)
            if offences:
                raise offences.error(source, "The file changed while it was read.")
        patterns.require_none(source.paths[0])
        found = list(absences.found())
        asked, warnings = notes_of(redundancy, found)
        left_out = {p.name: d.reason for p, d in zip(profiles, decisions, strict=True) if d.kind == "ignored"}
        kept = ImportNotes(left_out, [*asked, *warnings])
        writer.source = {**about, "absent": [a.store() for a in found], **kept.store()}
        finish()
    return writer.table, asked, warnings


def _write_schema(path: Path, source: TextSource, profiles, decisions, written: Written, calendar, weight) -> None:
    columns, comments = {}, {}
    markers = [(*p.no, *p.markers) for p in profiles]
    ((usual, _),) = Counter(markers).most_common(1)
    for p, d, missing in zip(profiles, decisions, markers, strict=True):
        r = (d.recording.resolution, d.recording.atoms, d.recording.log) if d.kind == "real" else ()
        columns[p.name] = ColumnSchema(d.kind, d.levels or None, missing if missing != usual else None, *r)
        columns[p.name] = replace(columns[p.name], calendar=p.name in calendar, no=p.no, ordered=d.ordered)
        comments[p.name] = d.reason
    dialect = source.dialect
    encoding = dialect.encoding if dialect.encoding != "utf-8" else None
    read = {"delimiter": dialect.delimiter, "header": dialect.header, "encoding": encoding, "sheet": source.sheet}
    read |= {"count": source.count, "weight": weight, "survival": tuple(p.text for p in source.survival) or None}
    text = schema_text(Schema(columns, usual, **read, **asdict(written)), comments)
    with writing(path):
        write_text(path, text)


def _column_summaries(table: Table, profiles, decisions, made: list[Made]) -> tuple[ColumnSummary, ...]:
    columns = {c.name: c for c in table.columns}
    calendar: dict[str, list[Made]] = {}
    for m in made:
        if m.name != m.profile.name:
            calendar.setdefault(m.profile.name, []).append(m)
    result = []
    for p, d in zip(profiles, decisions, strict=True):
        for name, what in ((p.name, d), *((m.name, m.decision) for m in calendar.get(p.name, ()))):
            summary = ColumnSummary(name, what.kind, len(what.levels), what.levels, p.n_missing, what.reason)
            summary = replace(summary, warned=bool(what.warning), recording=what.recording, ordered=bool(what.ordered))
            column = columns.get(name)
            if column is not None and not column.levels and column.n_missing < table.n_rows:
                statistics = {"mean": column.center, "minimum": column.minimum, "maximum": column.maximum}
                summary = replace(summary, **statistics, unit=column.unit)
            result.append(summary)
    return tuple(result)


def _reading(source: TextSource) -> str:
    dialect = source.dialect
    delimiter = {"\t": "tab", " ": "blank"}.get(dialect.delimiter, repr(dialect.delimiter))
    how = f"CSV, delimiter {delimiter}" if dialect.typed is None else dialect.typed.title
    if dialect.header is None:
        return how
    row = "line" if dialect.typed is None else "row"
    header = f"first {row} taken as header" if dialect.header else f"no header: first {row} taken as data"
    return f"{how}, {header}" + (" (detected)" if source.header_detected else " (as given)")
