"""Outcome of the rows of a mixture: a regression in each cluster, with additional global coefficients."""
