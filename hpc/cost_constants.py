"""Seconds of one processor for each count in `cost_model.features`.

Written by `benchmarks/scaling.py fit`, not to be edited: measure and fit again on a machine whose figures matter more.
These are of AMD EPYC, 2 cores, kernels avx512, 2026-11-22 00:03 UTC, commit 7b39b2cc51e2+.
"""

SECONDS: dict[str, dict[str, float]] = {
    "sweep": {
        "row": 1.647e-08,
        "row x lane": 3.791e-10,
        "row x column": 3.627e-13,
        "row x column x lane": 2.171e-11,
        "row x column x lane, far": 4.633e-11,
        "row x real x lane": 5.042e-11,
        "row x count x lane": 4.264e-11,
    },
    "collapsed sweep": {
        "row": 8.568e-08,
        "row x lane": 8.688e-11,
        "row x column x lane": 2.497e-11,
        "row x column x lane, far": 4.533e-11,
        "row x real x lane": 8.92e-11,
        "row x count x lane": 4.036e-10,
    },
    "statistics": {
        "row": 6.096e-09,
        "changed row x column": 1.916e-09,
        "row x numeric column": 3.335e-12,
        "shard x level x cluster": 5.117e-10,
    },
    "order": {
        "row": 7.823e-09,
        "shard x level x cluster": 1.437e-09,
    },
    "hyperparameters": {
        "cycle": 0.000181,
        "column": 3.067e-06,
        "level x cluster": 2.707e-09,
        "numeric x cluster": 3.805e-07,
    },
    "draw": {
        "cycle": 0.0001117,
        "level x cluster": 1.565e-08,
        "numeric x cluster": 3.949e-08,
    },
    "log joint": {
        "cycle": 0.0001712,
        "level x cluster": 3.392e-09,
        "numeric x cluster": 3.233e-08,
    },
    "reduction": {
        "cycle": 0.0001597,
        "shard": 3.46e-06,
        "level x cluster": 3.261e-09,
    },
    "other": {
        "cycle": 0.0005864,
        "shard": 4.741e-06,
        "level x cluster": 1.403e-10,
    },
    "moves": {
        "round": 0.0082,
        "row": 4.107e-09,
        "row x column": 6.363e-09,
        "level x cluster": 3.272e-07,
    },
    "crowd": {
        "rank": 6.591e-08,
        "shard": 0.0,
    },
}
