"""Compiled samplers, each with a plain-Python twin: mixtures (mixture, split, visits) and regressions (firefly)."""
