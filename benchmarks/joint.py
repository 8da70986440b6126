"""A table whose real columns are one block with a full covariance in each cluster, as the sampler takes it."""

from __future__ import annotations

from mpibayes.hpc.data.rows import Carve, in_blocks


def jointly(columns, rows) -> tuple[tuple, object, dict]:
    """Columns and rows with all reals in one block, and the settings that say so."""
    blocks = {"all": {"columns": [c.name for c in columns if c.block == "reals"]}}
    return in_blocks(columns, blocks), Carve(columns, blocks)(rows), {"blocks": blocks}
