"""Queries are refused: see the reason."""

from __future__ import annotations

from mpibayes.hpc.svi.query import ask

__all__ = ["ask"]
