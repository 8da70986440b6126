"""Seconds of one processor for each count in `cost_model.features`.

Written by `benchmarks/scaling.py fit`, not to be edited: measure and fit again on a machine whose figures matter more.
These are of AMD EPYC, 2 cores, kernels avx512, 2026-11-22 06:47 UTC, commit 57a5f3e2d43d+.
"""

SECONDS: dict[str, dict[str, float]] = {
    "sweep": {
        "row": 2.104e-08,
        "row x lane": 5.46e-10,
        "row x column x lane": 2.23e-11,
        "row x column x lane, far": 3.935e-11,
        "row x real x lane": 4.186e-11,
        "row x count x lane": 3.327e-11,
    },
    "collapsed shard": {
        "row x column": 8.541e-11,
        "row x column, far": 2.024e-09,
        "row x real": 5.604e-10,
        "row x count": 2.653e-08,
    },
    "statistics": {
        "row": 6.032e-09,
        "changed row x column": 1.275e-09,
        "row x numeric column": 4.128e-12,
        "shard x level x cluster": 5.828e-10,
    },
    "order": {
        "row": 6.463e-09,
        "shard x level x cluster": 1.217e-09,
    },
    "hyperparameters": {
        "cycle": 0.0001861,
        "column": 3.034e-06,
        "level x cluster": 2.808e-09,
        "numeric x cluster": 3.235e-07,
    },
    "draw": {
        "cycle": 0.0001316,
        "level x cluster": 1.59e-08,
        "numeric x cluster": 3.789e-08,
    },
    "log joint": {
        "cycle": 0.0001557,
        "level x cluster": 3.566e-09,
        "numeric x cluster": 3.248e-08,
    },
    "reduction": {
        "cycle": 0.0001869,
        "shard": 3.627e-06,
        "level x cluster": 2.603e-09,
    },
    "other": {
        "cycle": 0.000539,
        "shard": 2.251e-06,
        "level x cluster": 2.135e-10,
    },
    "moves": {
        "round": 0.006505,
        "row": 2.147e-07,
        "row x column": 3.01e-09,
        "level x cluster": 2.756e-07,
    },
    "crowd": {
        "rank": 0.0,
        "shard": 3.169e-08,
    },
}
