"""Open table files of either kind, complete and undamaged."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import h5py

from mpibayes.errors import DataError
from mpibayes.io.files import HDF5, first_bytes
from mpibayes.io.h5 import reading_h5
from mpibayes.io.seal import Seal

OURS = "mpibayes-"  # prefix of the formats of tables


@contextlib.contextmanager
def open_sealed(path: Path) -> Iterator[h5py.File]:
    """Open the file of a table; any failure to read it becomes a DataError."""
    advice = "expected a table made by 'mpibayes import'"
    if first_bytes(path, advice) != HDF5:
        raise DataError(f"{path}: not an HDF5 file; {advice}")
    try:
        seal = Seal.of(path)
        seal.verify_contents()
        with reading_h5(path) as file:
            if str(file.attrs.get("format", "")).startswith(OURS):
                seal.require()
            yield file
    except (OSError, KeyError, ValueError, TypeError, RuntimeError, OverflowError) as error:
        cut = "truncated" in str(error)
        why = "truncated HDF5 file, or changed since its import" if cut else f"damaged HDF5 file ({_reason(error)})"
        raise DataError(f"{path}: {why}; import the table again or copy it again") from error


def _reason(error: Exception) -> str:
    """Operating system's message inside an HDF5 error."""
    text = str(error)
    match = re.search(r"error message = '([^']+)'", text)
    if match:
        return match.group(1)
    return getattr(error, "strerror", None) or text.splitlines()[0] if text else type(error).__name__
