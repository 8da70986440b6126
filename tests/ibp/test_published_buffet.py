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
def test_published_cycles_find_features(scheme):
    stream = np.random.default_rng(3)
    x = (stream.random((60, 2)) < 0.5) @ (3.0 * stream.standard_normal((2, 4))) + 0.3 * stream.standard_normal((60, 4))
    chain = published_buffet.Published(serial(), lambda a, b: x[a:b], 60, 4, Settings(seed=2, shards=3), scheme=scheme)
    for _ in range(30):
        chain.cycle()
    owned = chain.features().sum(axis=0)
    assert np.array_equal(owned, chain.totals.owned)
    assert (owned > 5).sum() >= 2
