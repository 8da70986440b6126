"""Files that are either the old ones or the new ones, never something between.

A file is written under a temporary name beside its place, flushed to disk, renamed over it, and the directory is
flushed too. HDF5 files are built in memory and written as plain bytes: a full disk is then one clear `OSError` from
one write call, where the HDF5 library would report it at some later close and keep the broken file open.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

import h5py

from mpibayes.hpc.errors import CheckpointError, ConfigError, DataError

TEMPORARY = ".tmp"
NOT_REGULAR = "not a regular file"
HDF5 = b"\x89HDF\r\n\x1a\n"  # what such a file begins with


def reason(error: OSError) -> str:
    """The operating system's words without Python's decoration, e.g. "No space left on device"."""
    return os.strerror(error.errno) if error.errno else str(error)


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Turn an `OSError` inside the block into a DataError that names the file and the reason."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {reason(error)}") from error


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
            raise OSError(NOT_REGULAR) from None
        raise
    try:
        kind = os.fstat(file.fileno()).st_mode
        if not (stat.S_ISREG(kind) or (pipe and stat.S_ISFIFO(kind))):
            raise OSError(NOT_REGULAR)
        os.set_blocking(file.fileno(), True)
    except BaseException:
        file.close()
        raise
    return file


def _without_waiting(path: str, flags: int) -> int:
    """Opening a FIFO waits for its other end, through all signals; opening a terminal may make it ours."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, 0o666)


def read_regular(path: str | Path, *, pipe: bool = False) -> bytes:
    """The bytes of a file; see `open_regular`."""
    with open_regular(path, pipe=pipe) as file:
        return file.read()


def first_bytes(path: Path, advice: str = "name the files in it") -> bytes:
    """The first 8 bytes of a file of data. DataError where it cannot be read. advice: what to do about a directory."""
    with reading(path):
        try:
            with open_regular(path) as file:
                return file.read(8)
        except IsADirectoryError:
            raise DataError(f"{path}: is a directory; {advice}") from None


def sync_directory(path: str | Path) -> None:
    """Flush a directory's entries to disk; file systems that cannot do this (EINVAL, ENOTSUP) are left alone."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(fd)


@contextmanager
def replacing(path: str | Path, *, shared: bool = False) -> Iterator[BinaryIO]:
    """Open a temporary binary file that becomes `path` when the block ends well, and is removed when it does not.

    shared: several processes may write this file at once (exports), so the temporary name carries the process number.
    Run files have one writer; their fixed temporary name is reused after a kill, and nothing piles up.
    Raises OSError.
    """
    path = Path(path)
    temporary = path.with_name(f"{path.name}.{os.getpid()}{TEMPORARY}" if shared else path.name + TEMPORARY)
    try:
        with open(temporary, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_bytes(path: str | Path, data: bytes | memoryview, *, shared: bool = False) -> None:
    """Replace `path` by `data` in one step. Raises OSError."""
    with replacing(path, shared=shared) as file:
        file.write(data)


def write_text(path: str | Path, text: str) -> None:
    """Replace `path` by UTF-8 text in one step. Raises OSError."""
    write_bytes(path, text.encode())


def set_aside(path: Path) -> Path:
    """Rename a file or folder to the first free NAME.old-N, so that nothing is lost; its new place. Raises OSError."""
    n = 1
    while (aside := path.with_name(f"{path.name}.old-{n}")).exists():
        n += 1
    path.rename(aside)
    return aside


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
    if not run_dir.is_dir():
        what = "this is a file" if run_dir.exists() else "there is no such directory"
        raise ConfigError(f"{run_dir}: {what}. Expected the directory of a run (the -o of `mpibayes run`).")
    chains = [p for p in run_dir.iterdir() if re.fullmatch(r"chain-\d+", p.name) and p.is_dir()]
    return sorted(chains, key=lambda p: int(p.name[6:])) or [run_dir]
