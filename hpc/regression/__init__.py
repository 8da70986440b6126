"""Bayesian regression: the design of a table, the posterior mode, and what can be foretold from it.

Reading order: settings, design, checks; likelihood, prior, fit; laplace, forecast, importance, scales.
"""
