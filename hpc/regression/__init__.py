"""Bayesian regression: the design of a table, the likelihoods, the posterior mode, and Firefly Monte Carlo.

Reading order: settings, design, likelihoods, prior; mode/fit, mode/laplace; problem, firefly; draws, predictive.
"""
