"""Parameters of real columns in lines and of their root columns, drawn given the rows of the clusters (docs/math.md
1.10)."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping

import numpy as np

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.normal import posterior
from mpibayes.hpc.components.product import Components
from mpibayes.hpc.components.single import with_new
from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.parallel.streams import Purpose, generator


class LineParameters:
    """Parameters in every cluster; the last is a new one. A column's draw depends only on its name, the key and the
    clusters, not on which columns are requested."""

    def __init__(
        self, components: Components, hyper: Hyper, statistics: Statistics, purpose: Purpose, key: Mapping[str, int]
    ):
        self._components, self._hyper, self._purpose, self._key = components, hyper, purpose, key
        self._single = with_new(*statistics.of(components.normal))
        self._pairs = with_new(*statistics.of(components.multinormal))

    def _generator(self, name: str) -> np.random.Generator:
        return generator(purpose=self._purpose, sub=zlib.crc32(name.encode()), **self._key)

    def root(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Draw mean and variance of a column that depends on no number, in each of its contexts, (U, K + 1)."""
        kind, c = self._components.kind_of(name)
        parts = kind.parts(slice(c, c + 1))
        location, kappa, nu, spread = posterior(self._hyper.normal[c], *(a[parts] for a in self._single))
        stream = self._generator(name)
        variance = spread / (2.0 * stream.standard_gamma(0.5 * nu))
        return location + stream.standard_normal(variance.shape) * np.sqrt(variance / kappa), variance

    def _line(self, name: str) -> int:
        kind = self._components.multinormal
        return next(b for b, block in enumerate(kind.blocks) if kind.given[b] and block.name == name)

    def place(self, name: str) -> int:
        """Return the index of a column's cells among the vectors."""
        return int(self._components.multinormal.cuts["coordinate"][self._line(name)]) + 1

    def line(self, name: str) -> tuple[np.ndarray, ...]:
        """Draw a line: a value of the parent, the mean there, the slope, the variance about the line, (K + 1,) each."""
        b = self._line(name)
        block, *moments = list(self._components.multinormal.parts(self._pairs))[b]
        location, (_, of_parent, root), _ = block.draw(self._hyper.wishart[b], *moments, self._generator(name))
        return location[0], location[1], -of_parent / root, root**-2.0

    def lines(
        self, coding: Coding, of: Collection[int] | None = None
    ) -> dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Draw, for each column `of`, by default all that may be in a line, by index, parents first: the mean at the
        parent's center, slope and variance, (1, K + 1); for a column not in a line, mean, 0 and variance in each
        context, (U, K + 1)."""
        result = {}
        for c in (c for c in coding.order if coding.plain[c].line and (of is None or c in of)):
            name, parent = coding.plain[c].name, int(coding.parents[c])
            if c not in coding.in_lines:
                mean, variance = self.root(name)
                result[c] = mean, np.zeros_like(mean), variance
            else:
                at_parent, middle, slope, variance = self.line(name)
                middle = middle + slope * (coding.plain[parent].center - at_parent)
                result[c] = middle[None], slope[None], variance[None]
        return result
