"""`mpibayes run people.csv`: a data file instead of a configuration.

Beside the run directory appear the table imported from the file, and a short configuration for the user to edit: DIR.h5
and DIR.toml. The same command finds them again. The configuration's first lines record the name and content of the file
that the table was made from, so that a changed file is noticed; and the table's fingerprint, so that a table imported
by the user in its place, with a schema perhaps, is kept.
"""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path
from urllib.parse import quote

from mpibayes.errors import ConfigError, DataError
from mpibayes.hpc.config.json_schema import NAME, header
from mpibayes.hpc.run.output import say
from mpibayes.hpc.settled import SMALL
from mpibayes.io.files import is_there, make_directory, open_regular, reading, set_aside, sha256_of, write_text, writing
from mpibayes.io.formats import kinds
from mpibayes.io.packing import PACKED
from mpibayes.io.parts import fingerprints
from mpibayes.io.table import SUFFIXES as TABLES
from mpibayes.io.table import Table
from mpibayes.text import toml_string

TEXTS = (".csv", ".tsv", ".tab", ".txt", ".data", ".dat")
MADE_FROM = re.compile(r"# made by `mpibayes run` from (?P<name>\".*\"), (sha256|fingerprint) [0-9a-f]{64}\n")
OF_IMPORT = re.compile(r"(?<![\w-])--(?!fresh\b)[a-z]")  # options of `import` that `run` lacks
ITS_TABLE = re.compile(r"^# its table: fingerprint ([0-9a-f]{64})$", re.MULTILINE)
TEXT = """{made}{known}{schema}# Edit it, and give it to `mpibayes run`; every key that is not here has its default.

[data]
table = {table}
heldout = 0.1   # a tenth of the rows is not trained on, but scored

[model]
family = "auto"  # "crosscat": views of the columns, each with its own clusters; "mixture": one view

[run]
chains = 2      # from different starts, so that the report can tell whether they agree
cycles = {cycles}    # at most
{until}"""
UNTIL = """until = "scores"  # ends once the chains' held-out scores have settled; "settled": their clusters, too
"""
CYCLES = ((30_000, 2000), (100_000, 800), (math.inf, 400))  # (cells up to, cycles): a first answer within minutes


def is_data(path: Path) -> bool:
    """True if a file has the name of a table or of data, or is not text, as a configuration is."""
    name = path.name.lower()
    for suffix in PACKED:
        name = name.removesuffix(suffix)
    if name.endswith((*TEXTS, *TABLES, *kinds.SUFFIXES)) or name != path.name.lower():
        return True
    try:
        return not name.endswith(".toml") and path.is_file() and kinds.kind_of(path) is not kinds.TEXT
    except (DataError, OSError):  # opening it will report why
        return False


def stem(path: Path) -> str:
    """Name before the first dot: "people" for people.csv.gz."""
    return path.name.split(".")[0] or path.stem


def configuration(source: Path, folder: Path, fresh: bool) -> Path:
    """Return the configuration for a data file, made if there is none yet; on root.

    folder: the run directory. fresh: make table and configuration again. Raises ConfigError if they belong to another
    file, or to an earlier version of the file, or if `folder` has no name; DataError if it cannot be imported.
    """
    if folder.name in ("", ".."):
        raise ConfigError(
            f"-o {folder}: a data file's table and configuration lie beside the run directory and have its name, so it "
            f"needs one; for example -o {Path('runs') / stem(source)}"
        )
    place = folder.with_name(folder.name + ".toml")
    is_table = source.suffix.lower() in TABLES
    beside = folder.with_name(folder.name + ".h5")
    table = source if is_table else beside
    with reading(folder, ConfigError):
        is_there(folder)
    with reading(place, ConfigError):
        there = is_there(place)
    if there and not fresh:
        if not (is_table and beside.exists() and beside.samefile(source)):  # its own table, from any source
            _require_same(place, table, source, _made_from(source, is_table))
        return place
    with writing(folder.parent):
        make_directory(folder.parent)
    kept = is_table or _is_another(table, place, source)
    if kept and not is_table:
        say(f"{table}: was imported from {source.name} separately and is kept; remove it to have it imported again")
    made = _made_from(source, is_table) if kept else _made_of(source, f"sha256 {_import(source, table, there)}")
    if there:
        _keep_own(place)
    named, result = toml_string(str(table.absolute() if is_table else table.name)), Table.open(table)
    cells = result.n_rows * len(result.columns)
    cycles = next(cycles for most, cycles in CYCLES if cells <= most)
    until = UNTIL if cells <= SMALL else ""
    schema = header(f"./{quote(folder.name)}/{NAME}")  # written into the run directory at its start
    known = "" if kept else f"# its table: fingerprint {result.fingerprint}\n"
    with writing(place):
        text = TEXT.format(made=made, known=known, schema=schema, table=named, cycles=cycles, until=until)
        write_text(place, text)
    say(f"{place}: the configuration; mpibayes schema explains every key")
    return place


def _made_from(source: Path, is_table: bool) -> str:
    """First line of a configuration made from this file in its present state."""
    return _made_of(
        source, f"fingerprint {Table.open(source).fingerprint}" if is_table else f"sha256 {sha256_of(source)}"
    )


def _made_of(source: Path, content: str) -> str:
    return f"# made by `mpibayes run` from {toml_string(source.name)}, {content}\n"


def _keep_own(place: Path) -> None:
    """Set aside a configuration of other origin, in the place of the one being made."""
    with reading(place), open_regular(place) as file:
        ours = MADE_FROM.match(file.read(4096).decode("utf-8", "replace"))
    if ours is None:
        with writing(place):
            say(f"{place}: was not written by mpibayes; it is now {set_aside(place)}")


def _require_same(place: Path, table: Path, source: Path, made: str) -> None:
    with reading(place), open_regular(place) as file:
        result = MADE_FROM.match(file.read(4096).decode("utf-8", "replace"))
    if result is not None and result[0] != made and not _came_before(result[0], source):
        was = "it has changed since then" if result["name"] == toml_string(source.name) else f"not {source.name}"
        raise ConfigError(
            f"{place}: was made from {result['name']}; {was}. Choose another directory with -o, or start over with "
            "--fresh"
        )
    if not table.exists():
        raise ConfigError(f"{place}: its table {table} is gone; start over with --fresh")


def _came_before(made: str, source: Path) -> bool:
    """True if a configuration was made from this table before rows were appended to it: the run decides what to do with
    them."""
    if source.suffix.lower() not in TABLES:
        return False
    table = Table.open(source)
    return any(_made_of(source, f"fingerprint {f}") == made for f in fingerprints(table.pieces))


def _is_another(table: Path, place: Path, source: Path) -> bool:
    """True if there is a table of this source that the configuration does not record: imported by the user, or by a
    start interrupted before it wrote the configuration. Raises ConfigError if the source is newer."""
    if not table.exists():
        return False
    known = None
    if place.exists():
        with reading(place), open_regular(place) as file:
            known = ITS_TABLE.search(file.read(4096).decode("utf-8", "replace"))
    try:
        result = Table.open(table)
    except DataError:
        return False
    if known is not None and known[1] == result.fingerprint:
        return False
    if result.source.get("files") != [source.name]:
        raise ConfigError(
            f"{table}: exists and is kept: it was not made from {source.name}; choose another directory with -o, or "
            "move it away"
        )
    if source.stat().st_mtime > table.stat().st_mtime:
        raise ConfigError(f"{table}: was imported separately, before {source} changed; import it again, or remove it")
    return True


def _import(source: Path, table: Path, overwrite: bool) -> str:
    """Import the source and return its SHA-256."""
    from mpibayes.io.ingest import import_table
    from mpibayes.io.summary import summary_lines

    if table.exists() and not overwrite:
        raise ConfigError(f"{table}: exists and is kept; choose another directory with -o, or move it away")
    say(f"importing {source} into {table}")
    try:
        summary = import_table(source, table, overwrite=overwrite, hashed=True)
    except (ConfigError, DataError) as error:
        if isinstance(error, ConfigError) and table.exists() and not overwrite:
            raise ConfigError(
                f"{table}: exists by now, perhaps from another run of this command, and is kept; run it again, or "
                "choose another directory with -o"
            ) from None
        if not OF_IMPORT.search(str(error)):
            raise
        way = f"give such options to {_import_command(source, table)}, then run the same command again"
        raise type(error)(error.message, [*error.problems, way]) from None
    lines = summary_lines(summary)
    remarks = [line for line in lines if line.startswith(("note: ", "warning: "))]
    say("\n".join([*lines[:2], *remarks]))
    say(f"what each column became, and why: {_import_command(source, '--dry-run')}")
    if any(map(OF_IMPORT.search, remarks)):
        say(f"to change that: {_import_command(source, table, '--force')} OPTIONS, then this command with --fresh")
    return summary.sha256[0]


def _import_command(*words: str | Path) -> str:
    return shlex.join(["mpibayes", "import", *map(str, words)])
