"""Seconds of one processor for each count in `cost_model.features`.

Written by `benchmarks/scaling.py fit`, not to be edited: measure and fit again on a machine whose figures matter more.
These are of AMD EPYC, 2 cores, kernels avx512, 2026-11-22 04:20 UTC, commit ab3047c4081a.
"""

SECONDS: dict[str, dict[str, float]] = {
    "sweep": {
        "row": 1.16e-08,
        "row x lane": 4.217e-10,
        "row x column x lane": 2.166e-11,
        "row x column x lane, far": 3.955e-11,
        "row x real x lane": 4.645e-11,
        "row x count x lane": 3.95e-11,
    },
    "collapsed shard": {
        "row": 8.992e-09,
        "row x column": 2.466e-10,
        "row x column, far": 1.937e-09,
        "row x real": 7.449e-10,
        "row x count": 2.56e-08,
    },
    "statistics": {
        "row": 5.511e-09,
        "changed row x column": 1.202e-09,
        "row x numeric column": 1.238e-11,
        "shard x level x cluster": 4.589e-10,
    },
    "order": {
        "row": 5.586e-09,
        "shard x level x cluster": 1.182e-09,
    },
    "hyperparameters": {
        "cycle": 0.000122,
        "column": 3.476e-06,
        "level x cluster": 2.663e-09,
        "numeric x cluster": 3.627e-07,
    },
    "draw": {
        "cycle": 0.0001035,
        "column": 9.919e-08,
        "level x cluster": 1.546e-08,
        "numeric x cluster": 4.817e-08,
    },
    "log joint": {
        "cycle": 0.0001257,
        "level x cluster": 3.556e-09,
        "numeric x cluster": 4.656e-08,
    },
    "reduction": {
        "cycle": 0.0001613,
        "shard": 3.708e-06,
        "level x cluster": 2.626e-09,
    },
    "other": {
        "cycle": 0.0004454,
        "shard": 2.196e-06,
        "level x cluster": 1.925e-10,
    },
    "moves": {
        "row": 2.682e-07,
        "row x column": 2.365e-09,
        "level x cluster": 2.867e-07,
    },
    "crowd": {
        "rank": 1.765e-08,
        "shard": 0.0,
    },
}
