"""Seconds of one processor for each count in `cost_model.features`.

Written by `benchmarks/scaling.py fit`, not to be edited: measure and fit again on a machine whose figures matter more.
These are of AMD EPYC, 2 cores, kernels avx512, 2026-11-22 09:58 UTC, commit 88a1418ac535.
"""

SECONDS: dict[str, dict[str, float]] = {
    "sweep": {
        "row": 1.863e-08,
        "row x lane": 5.539e-10,
        "row x column x lane": 2.201e-11,
        "row x column x lane, far": 3.708e-11,
        "row x real x lane": 4.098e-11,
        "row x count x lane": 3.572e-11,
    },
    "collapsed shard": {
        "row x column": 8.16e-11,
        "row x column, far": 7.438e-10,
        "row x real": 5.919e-10,
        "row x count": 1.373e-09,
    },
    "statistics": {
        "row": 6.191e-09,
        "changed row x column": 1.355e-09,
        "shard x level x cluster": 4.777e-10,
    },
    "order": {
        "row": 6.486e-09,
        "shard x level x cluster": 1.097e-09,
    },
    "hyperparameters": {
        "cycle": 0.0001795,
        "column": 3.32e-06,
        "level x cluster": 2.808e-09,
        "numeric x cluster": 3.258e-07,
    },
    "draw": {
        "cycle": 0.0001226,
        "column": 9.31e-08,
        "level x cluster": 1.598e-08,
        "numeric x cluster": 4.081e-08,
    },
    "log joint": {
        "cycle": 0.0001466,
        "level x cluster": 3.668e-09,
        "numeric x cluster": 2.857e-08,
    },
    "reduction": {
        "cycle": 0.0001725,
        "shard": 3.689e-06,
        "level x cluster": 2.886e-09,
    },
    "other": {
        "cycle": 0.0004896,
        "shard": 1.951e-06,
        "level x cluster": 2.148e-10,
    },
    "moves": {
        "row": 2.978e-07,
        "row x column": 2.525e-09,
        "level x cluster": 2.669e-07,
    },
    "crowd": {
        "rank": 7.971e-09,
        "shard": 0.0,
    },
}
