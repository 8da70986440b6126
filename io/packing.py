"""Packed files: gzip, xz, bzip2, zstd, and a zip archive of one file, recognised by their first bytes."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import shutil
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from mpibayes.io.files import open_regular

MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"PK\x03\x04": "zip"}
PACKED = (".gz", ".xz", ".bz2", ".zst", ".zip")  # suffixes of packed files
UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile)  # errors of unpacking
_SEPARATOR = codecs.BOM_UTF8 + b"sep="


def packing_of(raw: BinaryIO) -> str:
    """Packing of the open file: a value of MAGIC, or "". A zip archive of several files does not count as packed."""
    raw.seek(0)
    head = raw.read(8)
    raw.seek(0)
    packing = next((name for magic, name in MAGIC.items() if head.startswith(magic)), "")
    return "" if packing == "zip" and len(members(raw)) != 1 else packing


def members(raw: BinaryIO) -> list[str]:
    """Files in a zip archive, without those that macOS adds; none if it is damaged."""
    try:
        with zipfile.ZipFile(raw) as archive:
            names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        names = []
    raw.seek(0)
    return [name for name in names if not name.startswith("__MACOSX/") and not name.endswith(".DS_Store")]


def decompressed(raw: BinaryIO):
    """Stream of the content of the open file, from its beginning; `raw` itself if it is not packed. Excel's own first
    line, sep=, is skipped: it is not part of the table. Raises OSError."""
    packing = packing_of(raw)
    if packing == "xz":
        return lzma.open(raw)
    if packing == "gzip":
        return gzip.open(raw)
    if packing == "bzip2":
        return bz2.open(raw)
    if packing == "zstd":
        import pyarrow as pa

        return pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd")
    if packing == "zip":
        return _of_zip(raw)
    if raw.read(len(_SEPARATOR)).removeprefix(codecs.BOM_UTF8).lower().startswith(b"sep="):
        raw.seek(0)
        raw.readline()
    else:
        raw.seek(0)
    return raw


def _of_zip(raw: BinaryIO):
    """Open the only file in an archive."""
    archive = zipfile.ZipFile(raw)
    try:
        return archive.open(members(raw)[0])
    except RuntimeError:
        raise OSError(None, "the archive is encrypted; unpack it first") from None
    except NotImplementedError as error:
        raise OSError(None, f"{error}; unpack it first") from None


class Seekable:
    """Content of a file for readers that need random access. A packed file is unpacked once, into an unnamed temporary
    file that lives as long as this object."""

    def __init__(self, path: Path):
        self.path, self._unpacked = path, None

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the content. Raises OSError, and the exceptions in UNREADABLE."""
        with open_regular(self.path) as raw:
            if self._unpacked is None and not packing_of(raw):
                yield raw
                return
            if self._unpacked is None:
                unpacked = tempfile.TemporaryFile(prefix="mpibayes-")  # noqa: SIM115
                weakref.finalize(self, unpacked.close)
                shutil.copyfileobj(decompressed(raw), unpacked, 1 << 20)
                self._unpacked = unpacked
        self._unpacked.seek(0)
        yield self._unpacked
