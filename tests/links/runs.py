"""Runs with linked columns from the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mpibayes.hpc.crosscat.draws import iterate_draws
from tests.run.conftest import exported, run


def links_of(place: Path, name: str) -> list[list[int]]:
    """Parents of all columns in each kept draw of a run."""
    return [draw.parents.tolist() for draw in iterate_draws(place / name)]


def require_the_same_in_pieces(
    place: Path, straight: str, pieces: Sequence[tuple[int, int]], *settings: str,
    drawn: Callable[[Path, str], Any] = links_of,
) -> None:  # fmt: skip
    """Compare a run with one that is stopped after some cycles and continued: pieces are (cycles, ranks)."""
    name = f"{straight}-in-pieces"
    for cycles, ranks in pieces:
        done = run(place, name, *settings, "--set", f"run.cycles={cycles}", ranks=ranks)
        assert done.returncode == 0, done.stderr
    assert exported(place, name) == exported(place, straight)
    assert drawn(place, name) == drawn(place, straight)
