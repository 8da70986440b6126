"""Lanes of a chain: their streams have nothing to do with each other, and lane 0 is the chain as it always was."""

import numpy as np
import pytest

from mpibayes.hpc.parallel.streams import Purpose, Stream, generator, in_lane
from mpibayes.kernels import mixture
from mpibayes.kernels.mixture import split

LANES = range(5)
ROWS = np.array([0, 5, 9])


def by_numpy(chain):
    return generator(7, Purpose.START, 3, 2, chain).bit_generator.random_raw(2)


def by_ids(chain):
    return split.words(ROWS, 7, Purpose.SEEDS, 0, 3, chain)


def by_rows(chain):
    return mixture.priorities(4, 3, 7, 3, chain)


def uniforms(chain):
    return Stream(7, Purpose.WEIGHTS, 3, chain).uniforms(np.arange(2))


KNOWN = {
    by_numpy: [0xA4DE01B7DD512E36, 0xB338190F01AEF9B4],
    by_ids: [0x914222B0EED50623, 0xA5EE651BBEE02BE8, 0x3E7257FAEE5BE69C],
    by_rows: [0x9321EE806EA60F86, 0xC084CCE4455E5EFE, 0xB4CA001BC9F84AE4],
    uniforms: [0.9660662309086165, 0.3075097642697191],
}


@pytest.mark.parametrize("draw", KNOWN)
def test_lane_0_has_known_draws(draw):
    assert draw(in_lane(1, 0)).tolist() == KNOWN[draw]


@pytest.mark.parametrize("draw", KNOWN)
def test_no_two_lanes_or_chains_share_a_draw(draw):
    result = np.concatenate([draw(in_lane(chain, lane)) for chain in LANES for lane in LANES])
    assert len(np.unique(result)) == len(result)
