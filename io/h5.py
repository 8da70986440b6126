"""HDF5 files: the only module that opens them for reading, and the only one that writes them.

A file is written through a Python file: a full disk then gives one clear `OSError`, where the HDF5 library would report
it at some later close, keep the broken file open, and end the process.

A file to be read must contain all of its data. HDF5 can refer elsewhere: external links, virtual datasets and external
storage open any other file by name, and a filter unknown to the library is looked for among the machine's plug-ins. No
checksum covers these (`io/seal.py`), and this program writes none of them, so each is refused by name before it is
followed.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import h5py
from h5py import h5d, h5g, h5l, h5o, h5z

from mpibayes.errors import DataError, MpibayesError
from mpibayes.io.files import open_regular

FILTERS = {h5z.FILTER_DEFLATE, h5z.FILTER_SHUFFLE, h5z.FILTER_FLETCHER32}  # the filters that are written
REMEMBERED = 1024  # files whose links were checked


@contextmanager
def reading_h5(path: str | Path, kind: type[MpibayesError] = DataError) -> Iterator[h5py.File]:
    """Open a regular file for reading, without locks, after checking that it contains all of its data.

    Raises `kind`, naming the reference to another file; OSError, RuntimeError, KeyError and ValueError like h5py, also
    from the block.
    from the block.
    """
    with open_regular(path) as regular:
        now = os.fstat(regular.fileno())
    key = (os.fspath(path), now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns)
    with h5py.File(path, "r", locking=False) as file:
        if key not in _whole:
            elsewhere = _pointing_elsewhere(file)
            if elsewhere:
                raise kind(f"{path}: refused: {elsewhere}. A file of mpibayes has all of its content in itself")
            if len(_whole) >= REMEMBERED:
                _whole.clear()
            _whole.add(key)
        yield file


_whole: set[tuple] = set()


def _pointing_elsewhere(file: h5py.File) -> str:
    """Describe the first link, dataset or filter that leads out of a file; "" if there is none."""
    groups, seen = [("", file.id)], set()
    while groups:
        path, group = groups.pop()
        for name in group:
            link, place = group.links.get_info(name), f"{path}/{name.decode(errors='replace')}"
            if link.type == h5l.TYPE_EXTERNAL:
                target = group.links.get_val(name)[0].decode(errors="replace")
                return f"'{place}' is a link to another file, {target}"
            if link.type != h5l.TYPE_HARD:
                return f"'{place}' is a link by name"
            if link.u in seen:
                continue
            seen.add(link.u)
            item = h5o.open(group, name)
            if isinstance(item, h5g.GroupID):
                groups.append((place, item))
            elif isinstance(item, h5d.DatasetID) and (words := _stored_elsewhere(item.get_create_plist())):
                return f"'{place}' {words}"
    return ""


def _stored_elsewhere(how: h5py.h5p.PropDCID) -> str:
    """Describe where the values of a dataset are, if not in its own file; "" otherwise."""
    if how.get_layout() == h5d.VIRTUAL:
        files = {how.get_virtual_filename(i) for i in range(how.get_virtual_count())}
        return f"is put together of other files, {', '.join(sorted(files))}"
    if how.get_external_count():
        return f"has its values in another file, {how.get_external(0)[0].decode(errors='replace')}"
    foreign = [f for f in map(how.get_filter, range(how.get_nfilters())) if f[0] not in FILTERS]
    if foreign:
        return f"needs the filter {foreign[0][0]} ({foreign[0][3].decode(errors='replace')}), which is not ours"
    return ""


class _Medium(io.RawIOBase):
    """The file that HDF5 writes to. Its first failure is kept until HDF5 is done, since HDF5 cannot release a file that
    it failed to write. Until then all writes appear to succeed: HDF5 reads back its data, and ends the process on a
    difference. So data that a full disk rejected stays in memory."""

    def __init__(self, file: BinaryIO):
        self._file, self._at, self._end, self.failure = file.fileno(), 0, 0, None
        self._not_taken: list[tuple[int, bytes]] = []  # (offset, bytes) written since a failure

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._end}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def write(self, data) -> int:
        view = memoryview(data).cast("B")
        with self._keeping():
            written = 0
            while self.failure is None and written < len(view):
                written += os.pwrite(self._file, view[written:], self._at + written)
        if self.failure is not None:
            self._not_taken.append((self._at, bytes(view)))
        self._at += len(view)
        self._end = max(self._end, self._at)
        return len(view)

    def readinto(self, data) -> int:
        view, got, piece = memoryview(data).cast("B"), 0, b"."
        with self._keeping():
            while piece and got < len(view):
                piece = os.pread(self._file, len(view) - got, self._at + got)
                view[got : got + len(piece)] = piece
                got += len(piece)
        view[got:] = bytes(len(view) - got)
        for offset, written in self._not_taken:
            start, stop = max(offset, self._at), min(offset + len(written), self._at + len(view))
            if start < stop:
                view[start - self._at : stop - self._at] = written[start - offset : stop - offset]
        self._at += len(view)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        self._end = self._at if size is None else size
        with self._keeping():
            os.ftruncate(self._file, self._end)
        return self._end

    def flush(self) -> None:
        """Do nothing: written data is already with the operating system."""

    @contextmanager
    def _keeping(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failure = self.failure or error


@contextmanager
def writing_h5(file: BinaryIO) -> Iterator[tuple[h5py.File, Callable[[], None]]]:
    """Turn an empty file, open for writing and reading, into an HDF5 file of the default library version, which older
    readers know. Yield it with a function that raises any failure so far. Large arrays are not copied. Raises
    OSError."""
    medium = _Medium(file)

    def check() -> None:
        if medium.failure is not None:
            raise medium.failure

    try:
        with h5py.File(medium, "w") as h5:
            yield h5, check
    except (OSError, RuntimeError):  # errors that follow the first failure add nothing
        if medium.failure is None:
            raise
    check()


def write_h5(file: BinaryIO, fill: Callable[[h5py.File], None]) -> None:
    """Write the HDF5 content that `fill` makes into an empty file; see `writing_h5`. Raises OSError."""
    with writing_h5(file) as (h5, _):
        fill(h5)


def h5_image(fill: Callable[[h5py.File], None]) -> bytes:
    """Bytes of the HDF5 file that `fill` makes, in the default library version, which older readers know."""
    with h5py.File.in_memory(block_size=1 << 18) as file:
        fill(file)
        file.flush()
        return file.id.get_file_image()
