"""The kinds of columns: a new kind needs a file, a kernel, and an entry here."""

from __future__ import annotations

from mpibayes.hpc.components.categorical import Categorical
from mpibayes.hpc.components.component import Component
from mpibayes.hpc.components.multinormal import Multinormal
from mpibayes.hpc.components.normal import Normal
from mpibayes.hpc.components.poisson import Poisson
from mpibayes.hpc.components.survival import Survival

KINDS: tuple[type[Component], ...] = (Categorical, Normal, Poisson, Multinormal, Survival)
