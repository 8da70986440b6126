"""Numerical trouble of a chain of features ends a run with a message and exit code 5, known to all ranks."""

from unittest import mock

import numpy as np
import pytest

from mpibayes.errors import NumericalError
from mpibayes.hpc.ibp import update
from mpibayes.hpc.ibp.chain import Buffet
from mpibayes.hpc.ibp.moves import round as moves
from mpibayes.hpc.ibp.state import Settings
from mpibayes.hpc.parallel.comm import world


def chain(**settings):
    x = np.random.default_rng(1).standard_normal((40, 3))
    return Buffet(world(), lambda a, b: x[a:b], *x.shape, Settings(**{"shards": 4, "moves": 1, **settings}))


def no_inverse(*given):
    raise np.linalg.LinAlgError("Matrix is not positive definite")


@pytest.mark.mpi
def test_a_matrix_without_inverse_on_root_is_known_to_all():
    buffet = chain()
    with (
        mock.patch.object(update, "learn", no_inverse),
        pytest.raises(NumericalError, match=r"cycle 1: .* float64"),
    ):
        buffet.cycle()
    buffet.cycle()  # nobody waits for anybody


@pytest.mark.mpi
@pytest.mark.parametrize("opening", ["one", "all"])
def test_too_many_births_are_known_to_all(opening):
    """The tail of the collapsed shard refuses them, on one rank alone."""
    with pytest.raises(NumericalError, match=r"cycle 1: a row would propose .* fix the mass \(model.alpha\)"):
        chain(alpha=50_000.0, opening=opening).cycle()


def test_trouble_in_a_move_has_its_message():
    buffet = chain()
    with mock.patch.object(moves, "run", no_inverse), pytest.raises(NumericalError, match="float64") as caught:
        buffet.cycle()
    assert caught.value.exit_code == 5
