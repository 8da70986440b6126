"""Exact Bayesian mixtures of very large mixed tables, distributed with MPI."""

__version__ = "0.1.0"
