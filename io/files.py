"""Files that are either the old ones or the new ones, never something between.

A file is written under a temporary name beside its place, flushed to disk, renamed over it, and the directory is
flushed too. The temporary file is always a new one: what has its name, left over from a kill or a link that someone put
there, is removed, and never written to. HDF5 files are written through a file of ours: a full disk is then one clear
`OSError`, where the HDF5 library would report it at some later close and keep the broken file open.
"""

from __future__ import annotations

import errno
import io
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

import h5py

from mpibayes.errors import CheckpointError, ConfigError, DataError, MpibayesError

TEMPORARY = ".tmp"
# Asked just before a run's files are changed; raises CheckpointError when someone else has taken the run's directory.
Guard = Callable[[], None]
NOT_REGULAR = "not a regular file"
NO_WRITER = "a pipe to which nobody writes; start its writer first"
HDF5 = b"\x89HDF\r\n\x1a\n"  # what such a file begins with


def reason(error: BaseException) -> str:
    """The operating system's words without Python's decoration, e.g. "No space left on device"; else the error's."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else getattr(error, "strerror", None) or str(error)


def first_line(error: Exception) -> str:
    """The first line of an error's words, or its name."""
    return (str(error).splitlines() or [type(error).__name__])[0]


@contextmanager
def reading(path: str | Path, kind: type[MpibayesError] = DataError) -> Iterator[None]:
    """Turn an `OSError` inside the block into an error for the user that names the file and the reason."""
    try:
        yield
    except FileNotFoundError:
        raise kind(f"{path}: no such file") from None
    except OSError as error:
        raise kind(f"{path}: cannot be read: {reason(error)}") from error


@contextmanager
def storing(path: str | Path) -> Iterator[None]:
    """Turn an `OSError` inside the block into a CheckpointError that names the file and the reason."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"{path}: cannot be written: {reason(error)}. Mend that (free some space, or correct the permissions) "
            "and run the same command again: it continues from the last complete checkpoint."
        ) from error


def open_regular(path: str | Path, mode: str = "rb", *, pipe: bool = False, **options: Any) -> IO[Any]:
    """`open`, of a regular file for reading or appending: a FIFO, a device or a socket is refused and not waited for.

    pipe: a pipe will do as well, as a shell's <(...) is one; it is empty where nobody writes to it.
    Raises OSError, whose `reason` may be "not a regular file".
    """
    try:
        file = open(path, mode, opener=_without_waiting, **options)  # noqa: SIM115
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket; of files to append to also a FIFO that nobody reads
            raise OSError(None, NOT_REGULAR, str(path)) from None
        raise
    try:
        kind = os.fstat(file.fileno()).st_mode
        if not (stat.S_ISREG(kind) or (pipe and stat.S_ISFIFO(kind))):
            raise OSError(None, NOT_REGULAR, str(path))
        os.set_blocking(file.fileno(), True)
    except BaseException:
        file.close()
        raise
    return file


def _without_waiting(path: str, flags: int) -> int:
    """Opening a FIFO waits for its other end, through all signals; opening a terminal may make it ours."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, 0o666)


def read_regular(path: str | Path, *, pipe: bool = False) -> bytes:
    """The bytes of a file; see `open_regular`. A pipe that nobody writes to, or not yet, raises OSError."""
    with open_regular(path, pipe=pipe) as file:
        data = file.read()
        if not data and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            raise OSError(None, NO_WRITER, str(path))
        return data


def first_bytes(path: Path, advice: str = "name the files in it") -> bytes:
    """The first 8 bytes of a file of data. DataError where it cannot be read. advice: what to do about a directory."""
    with reading(path):
        try:
            with open_regular(path) as file:
                return file.read(8)
        except IsADirectoryError:
            raise DataError(f"{path}: is a directory; {advice}") from None


def unguarded() -> None:
    """The guard of files that no one else writes."""


def create(path: Path) -> BinaryIO:
    """A new file for writing and reading, whatever has its name. Raises OSError."""
    path.unlink(missing_ok=True)
    return open(path, "x+b")  # which follows no link


def remove(path: Path) -> None:
    """Remove a directory with all that is in it, or whatever else has this name; links are not followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def make_directory(path: str | Path) -> None:
    """Make a directory, and those above it that are missing, each of them on disk when this returns. Raises OSError."""
    path = Path(path)
    try:
        path.mkdir()
    except FileExistsError:
        if not path.is_dir():
            raise
        return
    except FileNotFoundError:
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def sync_directory(path: str | Path) -> None:
    """Flush a directory's entries to disk, where the file system can (EINVAL, ENOTSUP) and we may read it."""
    try:
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except PermissionError:
        return
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(fd)


@contextmanager
def replacing(path: str | Path, *, guard: Guard = unguarded) -> Iterator[BinaryIO]:
    """Open a temporary binary file that becomes `path` when the block ends well, and is removed when it does not.

    Its name is one that no other has: several processes may write an export, and a run that was frozen may thaw beside
    the one that took it for dead. A kill leaves it; see `remove_left_overs`.
    Raises OSError, and what the guard raises.
    """
    path = Path(path)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}{TEMPORARY}")
    guard()
    try:
        with create(temporary) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        guard()
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_directory(path.parent)


def remove_left_overs(folder: Path, guard: Guard = unguarded) -> None:
    """Remove the temporary files of a run's writers that were killed; for whoever holds the folder. Raises OSError.

    A report may be writing trace.h5 meanwhile: that one is left alone.
    """
    for name in os.listdir(folder):
        if re.fullmatch(r"(?!trace\.h5\.).+\.[0-9a-f]{16}" + re.escape(TEMPORARY), name):
            guard()
            (folder / name).unlink(missing_ok=True)


def write_bytes(path: str | Path, data: bytes | memoryview, *, guard: Guard = unguarded) -> None:
    """Replace `path` by `data` in one step. Raises OSError."""
    with replacing(path, guard=guard) as file:
        file.write(data)


def write_text(path: str | Path, text: str, *, guard: Guard = unguarded) -> None:
    """Replace `path` by UTF-8 text in one step. Raises OSError."""
    write_bytes(path, text.encode(), guard=guard)


def set_aside(path: Path) -> Path:
    """Rename a file or folder to the first free NAME.old-N, so that nothing is lost; its new place. Raises OSError."""
    n = 1
    while os.path.lexists(aside := path.with_name(f"{path.name}.old-{n}")):
        n += 1
    path.rename(aside)
    return aside


class _Medium(io.RawIOBase):
    """What HDF5 writes to: a file whose first failure is kept until HDF5 is done, since it cannot let go of a file that
    it could not write. Until then it looks as if all were there."""

    def __init__(self, file: BinaryIO):
        self._file, self._at, self._end, self.failure = file, 0, 0, None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._end}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def write(self, data) -> int:
        with self._keeping():
            self._file.seek(self._at)
            self._file.write(data)
        self._at += len(data)
        self._end = max(self._end, self._at)
        return len(data)

    def readinto(self, data) -> int:
        with self._keeping():
            self._file.seek(self._at)
            self._file.readinto(data)
        self._at += len(data)
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        self._end = self._at if size is None else size
        with self._keeping():
            self._file.truncate(self._end)
        return self._end

    def flush(self) -> None:
        with self._keeping():
            self._file.flush()

    @contextmanager
    def _keeping(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failure = self.failure or error


def write_h5(file: BinaryIO, fill: Callable[[h5py.File], None]) -> None:
    """Make of an empty file, open for writing and reading, the HDF5 file that `fill` makes, in the default library
    version, which older readers know. Large arrays are not copied. Raises OSError."""
    medium = _Medium(file)
    try:
        with h5py.File(medium, "w") as h5:
            fill(h5)
    except (OSError, RuntimeError):  # what comes of a failure is no news
        if medium.failure is None:
            raise
    if medium.failure is not None:
        raise medium.failure


def h5_image(fill: Callable[[h5py.File], None]) -> bytes:
    """The bytes of the HDF5 file that `fill` makes, in the default library version, which older readers know."""
    with h5py.File.in_memory(block_size=1 << 18) as file:
        fill(file)
        file.flush()
        return file.id.get_file_image()


def chain_directories(run_dir: str | Path) -> list[Path]:
    """The directories of single chains: `chain-1`, ... in `run_dir` by number, or without any `run_dir` itself.

    Raises ConfigError when `run_dir` is not a directory.
    """
    run_dir = Path(run_dir)
    try:
        chains = [p for p in run_dir.iterdir() if re.fullmatch(r"chain-\d+", p.name) and p.is_dir()]
    except FileNotFoundError:
        what = "there is no such directory"
    except NotADirectoryError:
        what = "this is a file"
    except OSError as error:
        what = f"cannot be read: {reason(error)}"
    else:
        return sorted(chains, key=lambda p: int(p.name[6:])) or [run_dir]
    raise ConfigError(f"{run_dir}: {what}. Expected the directory of a run (the -o of `mpibayes run`).")
