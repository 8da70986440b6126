"""Results of the finished parts of a long step, which a program that was stopped need not compute again.

Each part is a sealed HDF5 file (`io/seal.py`) with the part's arrays and the name of its owner. Nothing depends on it
but time: a part that is damaged, missing or of another owner is computed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np

from mpibayes.errors import MpibayesError
from mpibayes.io.files import Guard, make_directory, remove, replacing, unguarded
from mpibayes.io.h5 import reading_h5, write_h5
from mpibayes.io.seal import Seal, append_seal

FOLDER = "searches"  # in a chain's directory


class Finished:
    """Parts in a folder, which is made with the first of them; several processes may write different parts.

    owner: name of the chain and version of the program. guard: called before anything in the folder is changed.
    """

    def __init__(self, folder: Path, owner: str, guard: Guard = unguarded):
        self.folder, self._owner, self._guard = folder, owner, guard

    def get(self, part: str) -> dict[str, np.ndarray] | None:
        """Return the arrays of a part; None if it is not there, or cannot be used."""
        path = self.folder / f"{part}.h5"
        try:
            seal = Seal.of(path)
            seal.require()
            seal.verify_contents()
            with reading_h5(path) as file:
                return {name: data[()] for name, data in file.items()} if file.attrs["owner"] == self._owner else None
        except (OSError, KeyError, RuntimeError, ValueError, MpibayesError):
            return None

    def put(self, part: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Store the arrays of a part, if the disk permits. Raises CheckpointError if the folder is another run's."""

        def fill(file: h5py.File) -> None:
            file.attrs["owner"] = self._owner
            for name, array in arrays.items():
                file.create_dataset(name, data=array)

        with suppress(OSError):
            self._guard()
            make_directory(self.folder, within=self.folder.parent)
            with replacing(self.folder / f"{part}.h5", guard=self._guard) as file:
                write_h5(file, fill)
                append_seal(file)

    def clear(self) -> None:
        """Remove all parts."""
        if self.folder.exists():
            self._guard()
            with suppress(OSError):
                remove(self.folder)


def n_finished(chain: Path) -> int:
    """Number of finished parts in a chain's directory, of any owner, by their seals. Never fails."""
    with suppress(OSError):
        return sum(map(_is_sealed, (chain / FOLDER).glob("*.h5")))
    return 0


def _is_sealed(path: Path) -> bool:
    with suppress(OSError, ValueError):
        return Seal.of(path).about is not None
    return False
