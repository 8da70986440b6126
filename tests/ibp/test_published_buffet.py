"""The published sampler that ours is measured against runs, and its features are those of the rows."""

import importlib
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from mpibayes.hpc.ibp.state import Settings
from mpibayes.hpc.parallel.comm import serial

FOLDER = Path(__file__).parents[2] / "benchmarks"
with mock.patch.object(sys, "path", [str(FOLDER), *sys.path]):
    published_buffet = importlib.import_module("published_buffet")


@pytest.mark.parametrize("scheme", published_buffet.HOT)
def test_published_cycles_run(scheme):
    stream = np.random.default_rng(3)
    x = stream.standard_normal((60, 4))
    settings = Settings(seed=2, shards=3, alpha=20.0, noise_sd=1.0, feature_sd=1.0)
    chain = published_buffet.Published(serial(), lambda a, b: x[a:b], 60, 4, settings, scheme=scheme)
    seen = set()
    for _ in range(20):
        chain.cycle()
        assert np.array_equal(chain.features().sum(axis=0), chain.totals.owned)
        seen.add(len(chain.slots))
    assert len(seen) > 2
