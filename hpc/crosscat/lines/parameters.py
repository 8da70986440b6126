"""Parameters of real columns in lines and of their root columns, drawn given the rows of the clusters (docs/math.md
1.10)."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from mpibayes.hpc.components.hyper import Hyper
from mpibayes.hpc.components.line import drawn
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

    def roots(self, names: Sequence[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Draw mean and variance of columns that depend on no number, in each of their contexts, (U, K + 1)."""
        kind = self._components.normal
        number = {kind.members(c)[0].name: c for c in range(len(kind))}
        parts = [kind.parts(slice(number[name], number[name] + 1)) for name in names]
        rows = np.concatenate([np.zeros(0, np.intp), *(np.arange(of.start, of.stop) for of in parts)])
        hyper, moments = kind.wide(self._hyper.normal)[rows], (a[rows] for a in self._single)
        location, kappa, nu, spread = posterior(hyper, *moments)
        gamma, z, ends = np.empty_like(nu), np.empty_like(nu), np.cumsum([of.stop - of.start for of in parts]).tolist()
        cut = [slice(end - (of.stop - of.start), end) for of, end in zip(parts, ends)]
        half = 0.5 * nu
        for name, own in zip(names, cut):
            stream = self._generator(name)
            gamma[own], z[own] = stream.standard_gamma(half[own]), stream.standard_normal(half[own].shape)
        variance = spread / (2.0 * gamma)
        mean = location + z * np.sqrt(variance / kappa)
        return ((mean[own], variance[own]) for own in cut)

    def _line(self, name: str) -> int:
        kind = self._components.multinormal
        return next(b for b, block in enumerate(kind.blocks) if kind.given[b] and block.name == name)

    def place(self, name: str) -> int:
        """Return the index of a column's cells among the vectors."""
        return int(self._components.multinormal.cuts["coordinate"][self._line(name)]) + 1

    def slopes(self, names: Sequence[str]) -> Iterator[tuple[np.ndarray, ...]]:
        """Draw lines: of each a value of the parent, the mean there, the slope, the variance about the line, (K + 1,)
        each."""
        if not names:
            return iter(())
        kind, which = self._components.multinormal, [self._line(name) for name in names]
        columns, pairs = (kind.cuts[axis][which, None] + np.arange(n) for axis, n in (("coordinate", 2), ("pair", 3)))
        n, mean, scatter = self._pairs
        of = n[which], mean[columns.ravel()], scatter[pairs.ravel()], [self._generator(name) for name in names]
        location, factor, _ = drawn([kind.blocks[b] for b in which], self._hyper.wishart[which], *of)
        of_parent, root = factor[1::3], factor[2::3]
        return zip(location[0::2], location[1::2], -of_parent / root, root**-2.0)

    def lines(
        self, coding: Coding, of: Collection[int] | None = None
    ) -> dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Draw, for each column `of`, by default all that may be in a line, by index, parents first: the mean at the
        parent's center, slope and variance, (1, K + 1); for a column not in a line, mean, 0 and variance in each
        context, (U, K + 1)."""
        every = [c for c in coding.order if coding.plain[c].line and (of is None or c in of)]
        names = {c: coding.plain[c].name for c in every}
        roots = self.roots([name for c, name in names.items() if c not in coding.in_lines])
        slopes, result = self.slopes([name for c, name in names.items() if c in coding.in_lines]), {}
        for c in every:
            if c not in coding.in_lines:
                mean, variance = next(roots)
                result[c] = mean, np.zeros_like(mean), variance
            else:
                at_parent, middle, slope, variance = next(slopes)
                middle = middle + slope * (coding.plain[int(coding.parents[c])].center - at_parent)
                result[c] = middle[None], slope[None], variance[None]
        return result
