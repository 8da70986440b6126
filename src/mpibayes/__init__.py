"""Exact Bayesian mixtures and regressions of very large tables, distributed with MPI."""

__version__ = "1.0.0"
