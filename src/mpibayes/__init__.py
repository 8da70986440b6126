"""Exact Bayesian mixtures and regressions of very large tables, distributed with MPI."""

__version__ = "0.1.0"
