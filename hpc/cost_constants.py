"""Seconds of one processor for each count in `cost_model.features`, written by `benchmarks/scaling.py fit`.

Not to be edited: measure and fit again on a machine whose figures matter more. These are of
AMD EPYC, 2 cores, kernels avx512, 2026-11-21 23:21 UTC, commit 795d3ad95e7e+.
"""

SECONDS: dict[str, dict[str, float]] = {
    "sweep": {
        "row": 6.135e-08,
        "row x lane": 6.934e-10,
        "row x column": 2.64e-10,
        "row x column x lane": 2.121e-11,
        "row x column x lane, far": 3.538e-11,
        "row x real x lane": 1.46e-10,
        "row x count x lane": 5.24e-10,
    },
    "collapsed sweep": {
        "row x lane": 1.305e-09,
        "row x column": 1.14e-09,
        "row x column x lane": 1.454e-11,
        "row x column x lane, far": 3.564e-11,
        "row x real x lane": 1.604e-10,
        "row x count x lane": 8.241e-10,
    },
    "statistics": {
        "row": 3.917e-09,
        "changed row x column": 5.53e-10,
        "row x numeric column": 1.121e-09,
        "shard x level x cluster": 4.178e-10,
    },
    "order": {
        "shard": 2.415e-05,
        "row": 6.782e-09,
        "shard x level x cluster": 2.311e-09,
    },
    "hyperparameters": {
        "cycle": 0.001459,
        "column": 5.658e-05,
        "level x cluster": 1.152e-08,
        "numeric x cluster": 1.286e-06,
    },
    "draw": {
        "cycle": 0.000292,
        "level x cluster": 4.19e-08,
        "numeric x cluster": 9.019e-08,
    },
    "log joint": {
        "cycle": 0.0001873,
        "column": 2.855e-06,
        "level x cluster": 1.748e-08,
        "numeric x cluster": 3.411e-08,
    },
    "reduction": {
        "cycle": 5.622e-05,
        "shard": 1.399e-05,
        "level x cluster": 5.238e-10,
    },
    "other": {
        "cycle": 0.0003745,
        "shard": 7.242e-06,
        "level x cluster": 8.679e-11,
    },
    "moves": {
        "round": 0.04361,
        "row x column": 5.191e-08,
        "level x cluster": 1.891e-06,
    },
}
