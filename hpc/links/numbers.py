"""Numeric columns that may have parents, in lines or in the contexts of columns with levels: the evidence of their
links, and the hyperparameters drawn with them (docs/math.md 2.14)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpibayes.hpc.links.children import Children
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.forest import ROOT
from mpibayes.hpc.links.lines import Lines

MOST_HYPER = 4  # most hyperparameters of a numeric column


class Numbers:
    """R columns, `coding.leaning`, numbered from 0, or as parents behind the D columns with levels, from D. lines,
    children: evidence of `coding.lines` and `coding.children`."""

    def __init__(self, coding: Coding, lines: Lines, children: Children):
        self._lines, self._children = lines, children
        number = {c: i for i, c in enumerate(coding.leaning)}
        self._in_lines, self._are_children = ([number[c] for c in of] for of in (coding.lines, coding.children))
        self._length = [4 if coding.plain[c].kind == "real" else 2 for c in coding.leaning]
        self._d = len(coding.levelled)

    def __len__(self) -> int:
        return len(self._length)

    def under(self, parent: int, columns: Sequence[int]) -> np.ndarray:
        """Log evidence of `columns`, numbered from 0, under one of the D + R parents or without one, ROOT; -inf where
        no link is allowed. Collective."""
        result = np.full(len(self), -np.inf)
        children = [i for i, c in enumerate(self._are_children) if c in columns]
        if parent < self._d and children:
            result[[self._are_children[i] for i in children]] = self._children.under(parent, children)
        if self._in_lines and parent == ROOT:
            result[self._in_lines] = self._lines.alone
        elif parent - self._d in self._in_lines:
            result[self._in_lines] = self._lines.under[:, self._in_lines.index(parent - self._d)]
        return result[list(columns)]

    def beside(self, score: np.ndarray, alone: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Extend the scores of D columns with levels, (D, D + E) and (D,), by those of the numbers: (D + R, D + R + E)
        and (D + R,). Collective."""
        d, r = len(score), len(self)
        if not r:
            return score, alone
        whole, every = np.full((d + r, score.shape[1] + r), -np.inf), range(r)
        whole[:d, :d], whole[:d, d + r :] = score[:, :d], score[:, d:]
        for parent in range(d + r):
            whole[d:, parent] = self.under(parent, every)
        return whole, np.append(alone, self.under(ROOT, every))

    def draw(self, parents: np.ndarray, u: np.ndarray, columns: Sequence[int] | None = None) -> np.ndarray:
        """Draw hyperparameters (R, MOST_HYPER) given the parents (R,), numbered among D + R. u (R,): uniforms. columns:
        those to draw, which must have been scored under their parents; None for all."""
        hyper, chosen = np.zeros((len(self), MOST_HYPER)), set(range(len(self)) if columns is None else columns)
        for i, c in enumerate(self._are_children):
            if c in chosen and parents[c] < self._d:
                of = self._children.draw(i, int(parents[c]), float(u[c]))
                hyper[c, : len(of)] = of
        if not self._in_lines:
            return hyper
        place = {self._d + c: i for i, c in enumerate(self._in_lines)}
        above = np.array([place.get(parent, ROOT) for parent in parents[self._in_lines].tolist()], np.int64)
        drawn = self._lines.draw(above, u[self._in_lines])
        for c, parent, of in zip(self._in_lines, parents[self._in_lines].tolist(), drawn):
            if c in chosen and not 0 <= parent < self._d:
                hyper[c] = of
        return hyper

    def forms(self, hyper: np.ndarray) -> list[np.ndarray]:
        """Split off each column's own hyperparameters."""
        return [of[:n] for of, n in zip(hyper, self._length)]
