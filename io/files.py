"""Files that are either the old ones or the new ones, never something between.

A file is written under a temporary name beside its place, flushed to disk, renamed over it, and the directory is
flushed too. HDF5 files are built in memory and written as plain bytes: a full disk is then one clear `OSError` from
one write call, where the HDF5 library would report it at some later close and keep the broken file open.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import h5py

from mpibayes.hpc.errors import CheckpointError, ConfigError

TEMPORARY = ".tmp"


def reason(error: OSError) -> str:
    """The operating system's words without Python's decoration, e.g. "No space left on device"."""
    return os.strerror(error.errno) if error.errno else str(error)


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
