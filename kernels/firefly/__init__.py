"""The kernels of Firefly Monte Carlo: rows, their brightness, the density of theta, its updates, and whole cycles."""

from mpibayes.kernels.firefly.lights import Lights
from mpibayes.kernels.firefly.messages import Messages, cycles_on_ranks
from mpibayes.kernels.firefly.moves import (
    GOALS,
    HMC,
    MALA,
    RANDOM_WALK,
    SLICE,
    Mover,
    adapt,
    cycles,
    proposal_rate,
    start_tuning,
)
from mpibayes.kernels.firefly.rows import LOGISTIC, SOFTMAX, STUDENT, Rows
from mpibayes.kernels.firefly.target import FLAT, GAUSSIAN, LAPLACE, Target

__all__ = [
    "FLAT",
    "GAUSSIAN",
    "GOALS",
    "HMC",
    "LAPLACE",
    "LOGISTIC",
    "MALA",
    "RANDOM_WALK",
    "SLICE",
    "SOFTMAX",
    "STUDENT",
    "Lights",
    "Messages",
    "Mover",
    "Rows",
    "Target",
    "adapt",
    "cycles",
    "cycles_on_ranks",
    "proposal_rate",
    "start_tuning",
]
