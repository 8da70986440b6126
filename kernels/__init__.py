"""Compiled samplers, one algorithm a file: mixture.pyx (mixtures) with its C headers, and its plain twin, twin.py."""
