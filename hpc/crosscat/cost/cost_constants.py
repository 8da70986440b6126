"""Seconds of one processor for each count in `cost_model.features`.

Written by `benchmarks/scaling.py fit`, not to be edited: measure and fit again on a machine whose figures matter more.
These are of AMD EPYC, 2 cores, kernels avx512, 2026-11-22 09:58 UTC, commit 88a1418ac535.
"""

SECONDS: dict[str, dict[str, float]] = {
    "sweep": {
        "row": 1.857e-08,
        "row x lane": 5.552e-10,
        "row x column x lane": 2.21e-11,
        "row x column x lane, far": 3.696e-11,
        "row x real x lane": 4.092e-11,
        "row x count x lane": 3.571e-11,
    },
    "collapsed shard": {
        "row x column": 8.639e-11,
        "row x column, far": 7.39e-10,
        "row x real": 5.908e-10,
        "row x count": 1.373e-09,
    },
    "statistics": {
        "row": 5.954e-09,
        "changed row x column": 1.233e-09,
        "shard x level x cluster": 5.064e-10,
    },
    "order": {
        "row": 6.698e-09,
        "shard x level x cluster": 1.089e-09,
    },
    "hyperparameters": {
        "cycle": 0.0001741,
        "column": 2.997e-06,
        "level x cluster": 2.783e-09,
        "numeric x cluster": 3.297e-07,
    },
    "draw": {
        "cycle": 0.0001226,
        "column": 6.557e-08,
        "level x cluster": 1.582e-08,
        "numeric x cluster": 4.081e-08,
    },
    "log joint": {
        "cycle": 0.000145,
        "level x cluster": 3.651e-09,
        "numeric x cluster": 2.933e-08,
    },
    "reduction": {
        "cycle": 0.0001619,
        "shard": 3.416e-06,
        "level x cluster": 2.829e-09,
    },
    "other": {
        "cycle": 0.000466,
        "shard": 1.901e-06,
        "level x cluster": 2.157e-10,
    },
    "moves": {
        "row": 2.978e-07,
        "row x column": 2.525e-09,
        "level x cluster": 2.669e-07,
    },
    "crowd": {
        "rank": 1.156e-08,
        "shard": 0.0,
    },
}
