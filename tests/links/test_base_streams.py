"""Draws of bases and of tables in one cycle are independent of each other: no two have one stream."""

import zlib
from collections import Counter

import numpy as np
import pytest

from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.links import base
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.parallel.streams import Purpose, Stream
from mpibayes.io.table import table_from_arrays

VIEWS = [["c0", "c1", "c2"], ["c3", "c4", "c5"]]


def chain() -> Mixture:
    """Two views of three columns each, which say nearly the same."""
    g, n = np.random.default_rng(0), 60
    x = np.repeat(g.integers(2, size=(n, 2)), 3, axis=1) ^ (g.random((n, 6)) < 0.2)
    columns, rows = table_from_arrays([(f"c{i}", "categorical", x[:, i], ("0", "1")) for i in range(6)])
    settings = Settings(
        seed=7, links="forest", link_base="learned", link_moves=1, view_concentration=1.0, column_moves=0
    )
    mixture = Mixture(serial(), columns, lambda a, b: rows.take(slice(a, b)), n, settings, views=VIEWS)
    mixture.start("prior")
    return mixture


def test_a_base_that_comes_with_a_link_is_drawn_by_a_stream_of_its_own(monkeypatch):
    drawn, right = Counter(), Stream.log_gammas

    def noted(self, shape, ids):
        if self.purpose == Purpose.BASES:
            drawn[self] += 1
        return right(self, shape, ids)

    monkeypatch.setattr(Stream, "log_gammas", noted)
    mixture = chain()
    for _ in range(12):
        mixture.cycle()
    names = {f"c{i}": zlib.crc32(f"c{i}".encode()) for i in range(6)}
    assert any(stream.sub not in names.values() for stream in drawn), "no link was drawn"
    assert max(drawn.values()) == 1


def test_tables_of_links_in_two_views_have_streams_of_their_own(monkeypatch):
    right, seen = base.Integrated.log_weight, {}

    def noted(self, child, parent, counts):
        key = self._key["cycle"], self._key["chain"], child, parent
        assert key not in seen, (key, self.kind.columns[child].name, seen[key])
        seen[key] = self.kind.columns[child].name
        return right(self, child, parent, counts)

    monkeypatch.setattr(base.Integrated, "log_weight", noted)
    mixture = chain()
    for _ in range(3):
        mixture.cycle()
    assert len(mixture.views) == 2 and set(seen.values()) == {f"c{i}" for i in range(6)}


@pytest.mark.quick
def test_bases_with_links_are_others():
    key = {"seed": 1, "cycle": 2, "chain": 0}
    tables, phi = np.array([[3, 1, 0], [0, 2, 0]]), np.array([1.0, 1.0, 0.0])
    one, other = (base.base_given(tables, phi, "c", key, with_link) for with_link in (False, True))
    assert not np.array_equal(one, other)
