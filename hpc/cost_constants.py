"""Seconds of one processor for each count in `cost_model.features`, written by `benchmarks/scaling.py fit`.

Not to be edited: fit again on a machine whose figures matter more.
"""

SECONDS = {}
