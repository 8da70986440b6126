"""Rare levels of a synthetic table: levels of few training rows are merged into one, and rare atoms are dropped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mpibayes.hpc.synthetic.training import Training
from mpibayes.io.rows import Column
from mpibayes.text import counted

OTHER = "other"


@dataclass(frozen=True)
class Merging:
    """merged: by column, a mask of the levels that become `name[column]`, whose code follows that of a missing cell;
    atoms: by numeric column, a mask of the atoms that are replaced by other numbers."""

    merged: Mapping[str, np.ndarray] = field(default_factory=dict)
    name: Mapping[str, str] = field(default_factory=dict)
    atoms: Mapping[str, np.ndarray] = field(default_factory=dict)

    def coded(self, column: str, codes: np.ndarray) -> np.ndarray:
        """Level codes (n,) of a column, with its rare levels merged."""
        if column not in self.merged:
            return codes
        levels = self.merged[column]
        return np.where(np.append(levels, False)[codes.astype(np.intp)], len(levels) + 1, codes)

    def notes(self) -> list[str]:
        """Notes for people."""
        each = [
            f"{counted(int(mask.sum()), 'level')} of {name} {'is' if mask.sum() == 1 else 'are'} '{self.name[name]}'"
            + (", all that it has" if mask.all() else "")
            for name, mask in self.merged.items()
        ]
        each += [
            f"{counted(int(mask.sum()), 'recurring value')} of {name} {'is' if mask.sum() == 1 else 'are'} not repeated"
            for name, mask in self.atoms.items()
        ]
        return [f"rare: {'; '.join(each)}"] if each else []


def merging(training: Training, columns: Sequence[Column], least: int) -> Merging:
    """Merge levels of fewer than `least` training rows, including those found only in held-out rows. If the merged
    levels of a column together still have too few training rows, its next rarest level joins them."""
    merged, name, atoms = {}, {}, {}
    for c in columns:
        count = training.counts[c.name]
        mask = count < least
        if not mask.any():
            continue
        if not c.levels:
            atoms[c.name] = mask
            continue
        for level in np.argsort(count, kind="stable"):
            if not 0 < count[mask].sum() < least:
                break
            mask[level] = True
        merged[c.name] = mask
        kept = {level for level, out in zip(c.levels, mask) if not out}
        name[c.name] = OTHER
        while name[c.name] in kept:
            name[c.name] += "_"
    return Merging(merged, name, atoms)
