"""Files that hold either the old or the new content, never something between.

A file is written under a temporary name beside its place, flushed to disk and renamed over it; then the directory is
flushed, too. The temporary file is always new: a leftover or link with its name is removed, never written to.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import resource
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO

from mpibayes.errors import CheckpointError, ConfigError, DataError, MpibayesError

TEMPORARY = ".tmp"
# Called just before a run's files are changed; raises CheckpointError if another process has taken the run's directory.
Guard = Callable[[], None]
NOT_REGULAR = "not a regular file"
NO_WRITER = "a pipe without a writer; start the writer first"
FULL = {errno.ENOSPC, errno.EDQUOT}
ADVICE = dict.fromkeys(FULL, "free some space, or name another place") | {errno.EFBIG: "raise that limit"}
DISK = {*FULL, errno.EFBIG, errno.EIO}
HDF5 = b"\x89HDF\r\n\x1a\n"  # first bytes of an HDF5 file


def reason(error: BaseException) -> str:
    """Message of the operating system, without Python's decoration, e.g. "No space left on device"; else the
    error's."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else getattr(error, "strerror", None) or str(error)


def first_line(error: BaseException) -> str:
    """First line of an error's message, or its type."""
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
            f"{path}: cannot be written: {reason(error)}{_missing(path, error)}. Correct that (free some space, or "
            "correct the permissions) and run the same command again: it continues from the last complete checkpoint."
        ) from error


@contextmanager
def writing(path: str | Path, otherwise: type[MpibayesError] = ConfigError) -> Iterator[None]:
    """Turn an `OSError` inside the block into an error that names the file, the reason, and the disk's limit.

    A disk that is full or fails is a CheckpointError, so that the exit code is 4; other problems with a path named by
    the user raise `otherwise`.
    """
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error, otherwise) from error


def cannot_write(path: str | Path, error: OSError, otherwise: type[MpibayesError] = ConfigError) -> MpibayesError:
    """The error for the user; see `writing`."""
    kind = CheckpointError if error.errno in DISK else otherwise
    advice = ADVICE.get(error.errno, "name another place, or mend this one")
    return kind(f"{path}: cannot be written: {reason(error)}{_missing(path, error)}; {advice}")


def _missing(path: str | Path, error: OSError) -> str:
    """Describe the free space, or the largest allowed file, if that was insufficient."""
    if error.errno == errno.EFBIG:
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        return "" if limit == resource.RLIM_INFINITY else f" (a file may have {limit:,} bytes here: ulimit -f)"
    if error.errno in FULL:
        folder = Path(path).parent
        with suppress(OSError):
            return f" ({shutil.disk_usage(folder).free / 1e6:,.1f} MB are free in {folder}, and it takes more)"
    return ""


def open_regular(path: str | Path, mode: str = "rb", *, pipe: bool = False, **options: Any) -> IO[Any]:
    """`open` for a regular file, to read or append: a FIFO, a device or a socket is refused without waiting for it.

    pipe: also accept a pipe, such as a shell's <(...); it is empty if it has no writer.
    Raises OSError, whose `reason` may be "not a regular file".
    """
    try:
        file = open(path, mode, opener=_without_waiting, **options)  # noqa: SIM115
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket; when appending, also a FIFO without a reader
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
    """Open without blocking: a FIFO would wait for its other end, ignoring signals; a terminal might become ours."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, 0o666)


def read_regular(path: str | Path, *, pipe: bool = False) -> bytes:
    """Read a file; see `open_regular`. A pipe without a writer, or not yet with one, raises OSError."""
    with open_regular(path, pipe=pipe) as file:
        data = file.read()
        if not data and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            raise OSError(None, NO_WRITER, str(path))
        return data


def first_bytes(path: Path, advice: str = "name the files in it") -> bytes:
    """First 8 bytes of a data file. Raises DataError if it cannot be read. advice: for a directory."""
    with reading(path):
        try:
            with open_regular(path) as file:
                return file.read(8)
        except IsADirectoryError:
            raise DataError(f"{path}: is a directory; {advice}") from None


def stamps(paths: Iterable[str | Path]) -> dict[Path, tuple[int, ...]]:
    """Device, inode, size and modification time of files. Raises DataError if one is missing."""
    stamps = {}
    for path in map(Path, paths):
        with reading(path):
            now = os.stat(path)
            stamps[path] = (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns)
    return stamps


def require_unchanged(before: dict[Path, tuple[int, ...]]) -> None:
    """Raise DataError if a file has changed since its `stamps` were taken."""
    changed = [path for path, stamp in stamps(before).items() if stamp != before[path]]
    if changed:
        raise DataError(f"{changed[0]}: changed while it was read; wait until it is complete, and import it again")


def sha256_of(path: str | Path) -> str:
    """SHA-256 of a file's content, in hexadecimal digits. Raises DataError."""
    with reading(path), open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unguarded() -> None:
    """Guard for files with no other writer."""


def create(path: Path) -> BinaryIO:
    """Create a new file for writing and reading, replacing whatever has its name. Raises OSError."""
    path.unlink(missing_ok=True)
    return open(path, "x+b")  # mode x follows no link


def remove(path: Path) -> None:
    """Remove a directory with its contents, or anything else with this name; links are not followed."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def is_there(path: str | Path) -> bool:
    """True if this path exists, following links. Raises OSError if that is unknown: a loop of links, a name that is too
    long."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def make_directory(path: str | Path, within: Path | None = None) -> None:
    """Make a directory and its missing ancestors, all of them on disk when this returns. Raises OSError.

    within: an existing ancestor, which is not made again if it has been moved away.
    """
    path, missing = Path(path), []
    while True:
        try:
            path.mkdir()
        except FileExistsError:
            if not path.is_dir():
                raise
        except FileNotFoundError:
            if path.parent == within:
                raise
            missing.append(path)
            path = path.parent
            continue
        else:
            sync_directory(path.parent)
        if not missing:
            return
        path = missing.pop()


def sync_directory(path: str | Path) -> None:
    """Flush a directory's entries to disk, if the file system supports it (EINVAL, ENOTSUP) and we may read it."""
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


def require_replaceable(path: Path) -> None:
    """Raise OSError if the path is not a regular file: a directory, a device, a pipe, a loop of links."""
    with suppress(FileNotFoundError):
        kind = os.stat(path).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(kind):
            raise OSError(None, NOT_REGULAR, str(path))


@contextmanager
def replacing(path: str | Path, *, guard: Guard = unguarded, new: bool = False) -> Iterator[BinaryIO]:
    """Open a temporary binary file that becomes `path` when the block succeeds, and is removed when it fails.
    new: raise FileExistsError if another file has the name by then.

    The temporary name is unique: several processes may write an export, and a frozen run may resume beside the one that
    presumed it dead. A kill leaves it behind; see `remove_left_overs`. A path that is not a regular file, such as
    /dev/null, is never replaced.
    Raises OSError, and the guard's exceptions.
    """
    path = Path(path)
    require_replaceable(path)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}{TEMPORARY}")
    guard()
    try:
        with create(temporary) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        guard()
        (_name_anew if new else os.replace)(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_directory(path.parent)


def _name_anew(temporary: Path, path: Path) -> None:
    """Rename a file unless the name is taken: atomically where hard links exist, else after a check."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        if os.path.lexists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        os.replace(temporary, path)
    else:
        temporary.unlink()


def remove_left_overs(folder: Path, guard: Guard = unguarded) -> None:
    """Remove temporary files of a run's killed writers; for the holder of the folder. Raises OSError.

    Spares those of trace.h5, which a report may be writing.
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
    """Rename a file or folder to the first free NAME.old-N, so that nothing is lost; return the new path. Raises
    OSError."""
    n = 1
    while os.path.lexists(aside := path.with_name(f"{path.name}.old-{n}")):
        n += 1
    path.rename(aside)
    return aside


def chain_directories(run_dir: str | Path) -> list[Path]:
    """Directories of single chains: `chain-1`, ... in `run_dir` by number, or `run_dir` itself if there are none.

    Raises ConfigError if `run_dir` is not a directory.
    """
    run_dir, such = Path(run_dir), ""
    try:
        chains = [p for p in run_dir.iterdir() if re.fullmatch(r"chain-\d+", p.name) and p.is_dir()]
    except FileNotFoundError:
        what = "there is no such directory"
    except NotADirectoryError:
        made = run_dir.parent / "runs" / run_dir.stem
        what, such = "this is a file", f", such as {made}" if made.is_dir() else ""
    except OSError as error:
        what = f"cannot be read: {reason(error)}"
    else:
        return sorted(chains, key=lambda p: int(p.name[6:])) or [run_dir]
    raise ConfigError(f"{run_dir}: {what}. Expected the directory of a run (the -o of `mpibayes run`){such}.")
