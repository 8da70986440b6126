"""Seconds of one processor for each count in `cost_model.features`.

Written by `benchmarks/scaling.py fit`, not to be edited: measure and fit again on a machine whose figures matter more.
These are of AMD EPYC, 2 cores, kernels avx512, 2026-11-22 01:42 UTC, commit 8c20e57acdd4+.
"""

SECONDS: dict[str, dict[str, float]] = {
    "sweep": {
        "row": 1.486e-08,
        "row x lane": 4.113e-10,
        "row x column x lane": 2.09e-11,
        "row x column x lane, far": 4.034e-11,
        "row x real x lane": 4.431e-11,
        "row x count x lane": 3.622e-11,
    },
    "collapsed sweep": {
        "row": 2.277e-08,
        "row x lane": 3.594e-10,
        "row x column x lane": 2.129e-11,
        "row x column x lane, far": 4.495e-11,
        "row x real x lane": 4.527e-11,
        "row x count x lane": 3.429e-10,
    },
    "statistics": {
        "row": 5.937e-09,
        "changed row x column": 1.189e-09,
        "row x numeric column": 7.915e-12,
        "shard x level x cluster": 5.105e-10,
    },
    "order": {
        "row": 5.412e-09,
        "shard x level x cluster": 1.216e-09,
    },
    "hyperparameters": {
        "cycle": 0.00016,
        "column": 2.946e-06,
        "level x cluster": 2.712e-09,
        "numeric x cluster": 3.261e-07,
    },
    "draw": {
        "cycle": 0.0001104,
        "level x cluster": 1.526e-08,
        "numeric x cluster": 4.254e-08,
    },
    "log joint": {
        "cycle": 0.0001303,
        "level x cluster": 3.499e-09,
        "numeric x cluster": 4.078e-08,
    },
    "reduction": {
        "cycle": 0.0001536,
        "shard": 3.411e-06,
        "level x cluster": 2.758e-09,
    },
    "other": {
        "cycle": 0.0004613,
        "shard": 1.965e-06,
        "level x cluster": 2.78e-10,
    },
    "moves": {
        "round": 0.001133,
        "row": 2.939e-07,
        "row x column": 2.465e-09,
        "level x cluster": 2.777e-07,
    },
    "crowd": {
        "rank": 6.259e-09,
        "shard": 0.0,
    },
}
