"""Kinds of files, recognised by their first bytes, unpacked, or by their names if these bytes are inconclusive."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from pathlib import Path

from mpibayes.errors import DataError
from mpibayes.io.encodings import unmarked
from mpibayes.io.files import HDF5, first_line, open_regular, reading
from mpibayes.io.packing import PACKED, UNREADABLE, decompressed, members, packing_of

HEAD = 1 << 12  # bytes read to recognise a file
MAX_CONTROL = 0.05  # share of control characters above which bytes are not text
CONTROL = [bytes([c]) for c in range(1, 32) if c not in b"\t\n\v\f\r\x1b"]
SAS = bytes(12) + bytes.fromhex("c2ea8160b31411cfbd92080009c7318c181f1011")
OLE2 = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
WRITE = "write it as CSV, Parquet or Feather"
SPREADSHEET = "save it as .xlsx or CSV"


@dataclass(frozen=True)
class Kind:
    """name: of the module in `formats` that reads it, as a table records it; "csv" for text, "" if it cannot be read.
    title: with its article. advice: for a kind that cannot be read. variant: of a module with several formats."""

    name: str
    title: str = ""
    advice: str = ""
    variant: str = ""


TEXT = Kind("csv", "text")
JSON_LINES = Kind("json_lines", "JSON lines")
PARQUET, ARROW = Kind("parquet", "a Parquet file"), Kind("arrow", "a Feather (Arrow) file", "", "file")
ARROW_STREAM = Kind("arrow", "an Arrow stream", "", "stream")
EXCEL = Kind("excel", "an Excel workbook")
SPSS = Kind("labelled", "an SPSS file", "", "sav")
PORTABLE = Kind("labelled", "an SPSS portable file", "", "por")
STATA = Kind("labelled", "a Stata file", "", "dta")
SAS_DATA = Kind("labelled", "a SAS data set", "", "sas7bdat")
SAS_TRANSPORT = Kind("labelled", "a SAS transport file", "", "xport")
R_DATA = Kind("", "an R data file", "write it from R as CSV, Parquet or Feather: write.csv(data, 'data.csv')")
UNKNOWN = Kind("", "neither text nor a kind of file that is known here", WRITE)
JSON = Kind(
    "", "a JSON document",
    "expected JSON lines, an object a line, as pandas.read_json(FILE).to_json('lines.jsonl', orient='records', "
    "lines=True) writes them",
)  # fmt: skip

MAGIC = {
    b"PAR1": PARQUET,
    b"ARROW1": ARROW,
    b"\xff\xff\xff\xff": ARROW_STREAM,
    b"$FL2": SPSS,
    b"$FL3": SPSS,
    b"<stata_dta>": STATA,
    SAS: SAS_DATA,
    b"HEADER RECORD*******LIB": SAS_TRANSPORT,
    OLE2: EXCEL,
    HDF5: Kind("", "an HDF5 file", "expected CSV, Parquet or another kind of table (a typed table needs no import)"),
    b"FEA1": Kind("", "a Feather file of version 1", "write it anew: version 2 is read"),
    b"RDX2\n": R_DATA,
    b"RDX3\n": R_DATA,
    b"X\n\x00\x00\x00": R_DATA,
    b"A\n2\n": R_DATA,
    b"A\n3\n": R_DATA,
    b"ORC": Kind("", "an ORC file", WRITE),
    b"Obj\x01": Kind("", "an Avro file", WRITE),
    b"SQLite format 3\0": Kind("", "an SQLite database", "write the table as CSV"),
    b"\x93NUMPY": Kind("", "a NumPy array", WRITE),
    b"\x80\x04\x95": Kind("", "a Python pickle", WRITE),
    b"\x80\x05\x95": Kind("", "a Python pickle", WRITE),
    b"MATLAB 5.0 MAT-file": Kind("", "a MATLAB file", "write the table as CSV: writetable(data, 'data.csv')"),
    b"7z\xbc\xaf\x27\x1c": Kind("", "a 7z archive", "unpack it"),
    b"Rar!": Kind("", "a RAR archive", "unpack it"),
    b"%PDF": Kind("", "a PDF document", "expected a table"),
    b"\x89PNG": Kind("", "an image", "expected a table"),
    b"\xff\xd8\xff": Kind("", "an image", "expected a table"),
    b"GIF8": Kind("", "an image", "expected a table"),
    b"II*\0": Kind("", "an image", "expected a table"),
    b"MM\0*": Kind("", "an image", "expected a table"),
}
SUFFIXES = {
    ".parquet": PARQUET, ".pq": PARQUET, ".feather": ARROW, ".arrow": ARROW, ".arrows": ARROW_STREAM,
    ".xlsx": EXCEL, ".xlsm": EXCEL, ".xlsb": EXCEL, ".xls": EXCEL, ".sav": SPSS, ".zsav": SPSS, ".por": PORTABLE,
    ".dta": STATA, ".sas7bdat": SAS_DATA, ".xpt": SAS_TRANSPORT, ".jsonl": JSON_LINES, ".ndjson": JSON_LINES,
    ".rds": R_DATA, ".rda": R_DATA, ".rdata": R_DATA,
}  # fmt: skip


def kind_of(path: Path, encoding: str = "utf-8") -> Kind:
    """Recognise a file. encoding: of its text, if it is text. Raises DataError if it cannot be read."""
    with reading(path):
        try:
            with open_regular(path) as raw:
                head = raw.read(4)
                if head == b"PK\x03\x04" and not packing_of(raw):
                    return _archive(members(raw))
                raw.seek(0)
                head = decompressed(raw).read(HEAD)
        except IsADirectoryError:
            raise DataError(f"{path}: is a directory; name the files in it") from None
        except OSError:
            raise
        except UNREADABLE as error:
            raise DataError(f"{path}: cannot be read: {first_line(error)}") from error
    return _by_head(head) or _by_name(path, head, encoding)


def _by_head(head: bytes) -> Kind | None:
    """Recognise a file by its first bytes; None if it may be text."""
    for magic, kind in MAGIC.items():
        if head.startswith(magic):
            return kind
    if head[:4] == b"PK\x03\x04":
        return EXCEL if b"xl/" in head else Kind("", "a zip archive in an archive", "unpack it")
    if b"ASCII SPSS PORT FILE" in head[:256]:
        return PORTABLE
    if 104 <= head[:1].ljust(1, b"\0")[0] <= 115 and head[1:2] in (b"\1", b"\2") and head[2:3] == b"\1":
        return STATA  # before version 117: version, byte order, 1
    if head[257:262] == b"ustar":
        return Kind("", "a tar archive", "unpack it")
    if re.match(rb"\s*<(!doctype html|html|table)\b", head.removeprefix(codecs.BOM_UTF8), re.IGNORECASE):
        return Kind("", "an HTML page", f"open it in a spreadsheet, and {SPREADSHEET}")
    if head.lstrip().startswith(b"<?xml"):
        return Kind("", "an XML document", SPREADSHEET)
    return None


def _archive(names: list[str]) -> Kind:
    """Kind of a zip archive of any number of files but one, which includes spreadsheets."""
    there = set(names)
    if any(name.startswith("xl/workbook.") for name in names):
        return EXCEL
    if {"mimetype", "content.xml"} <= there:
        return Kind("", "an OpenDocument file", SPREADSHEET)
    if names and all(name.endswith(".npy") for name in names):
        return Kind("", "a NumPy archive", "a sparse matrix of SciPy is read with --sparse; write others as CSV")
    if not names:
        return Kind("", "a zip archive that is damaged or empty", "expected one table in it")
    few = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return Kind("", f"a zip archive of {len(names)} files ({few})", "expected one table in it: unpack it")


def _by_name(path: Path, head: bytes, encoding: str) -> Kind:
    """Recognise JSON by its beginning, and a non-text file by its name; neither has a magic number."""
    if encoding != "utf-8":
        return TEXT
    if wide := unmarked(head):
        return Kind("", f"text in {wide.upper()} without a byte order mark", f"say --encoding {wide}")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    while suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    named = SUFFIXES.get(suffix)
    if sum(map(head.count, CONTROL)) > MAX_CONTROL * len(head):
        return named or UNKNOWN
    text = head.removeprefix(codecs.BOM_UTF8).lstrip()
    if re.match(rb"\[\s*\{" if suffix != ".json" else rb"\[", text):
        return JSON
    return JSON_LINES if named is JSON_LINES or re.match(rb'\{\s*("|\})', text) else TEXT
