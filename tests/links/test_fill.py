"""Missing cells of parents: the compiled draws are those of plain Python, and change the counts as they should."""

import numpy as np
import pytest

from mpibayes.hpc.components.categorical import Categorical
from mpibayes.hpc.links.coding import Coding
from mpibayes.hpc.links.gaps import Gaps, masks_of
from mpibayes.hpc.parallel.comm import serial
from mpibayes.io.table import table_from_arrays
from mpibayes.kernels import mixture as kernels
from mpibayes.kernels.mixture import updates

N, K, LEVELS = 400, 5, (40, 30, 4, 3, 2)  # the second column needs codes of 16 bits
PARENTS = np.array([-1, 0, 1, 1, -1])  # b leans on a, c and d on b; e alone
KEY = {"seed": 3, "cycle": 9, "chain": 0}


def state():
    """Gaps, the columns' kind, coded rows in two shards with labels, some of them idle, and the counts."""
    rng = np.random.default_rng(5)
    cells = [np.where(rng.random(N) < 0.3, -1, rng.integers(v, size=N)) for v in LEVELS]
    given = [(n, "categorical", x, tuple(map(str, range(v)))) for n, x, v in zip("abcde", cells, LEVELS)]
    columns, rows = table_from_arrays(given)
    coding = Coding(columns, PARENTS, {n: np.arange(v) % 32 for n, v in zip("abcde", LEVELS)})
    parts = [rows.take(np.arange(0, 250)), rows.take(np.arange(250, N))]
    gaps = Gaps(coding, [masks_of(columns, part) for part in parts])
    for i, part in enumerate(parts):
        gaps.start(i, part, 250 * i, KEY)
    z = rng.integers(-1, K, N).astype(np.int32)
    labelled = list(zip([coding.coded(part) for part in parts], [z[:250].copy(), z[250:].copy()]))
    kind = Categorical(sorted(coding.columns, key=lambda c: (c.block == "codes16", c.index)), {}, {})
    return gaps, kind, labelled, counted(kind, labelled)


def counted(kind, labelled):
    return sum(kernels.accumulate(rows, z, K, kind.offsets)[1] for rows, z in labelled)


def drawn(plain):
    gaps, kind, labelled, levels = state()
    assert gaps._plain
    before = [rows.codes16.copy() for rows, _ in labelled]
    gaps.__dict__["_plain"] = plain
    gaps.draw(serial(), kind, np.full(len(kind), 0.4), levels, labelled, [0, 250], KEY, {})
    moved = [(rows.codes16 != old).any(axis=1) for (rows, _), old in zip(labelled, before)]
    assert sum(m.sum() for m in moved) > 50
    assert not any(m[z < 0].any() for m, (_, z) in zip(moved, labelled))
    assert np.array_equal(levels, counted(kind, labelled))
    return [(rows.codes8, rows.codes16) for rows, _ in labelled], levels


def test_compiled_draws_are_those_of_plain_python():
    (ours, levels), (plain, of_plain) = drawn(True), drawn(False)
    for one, other in zip(ours, plain):
        assert all(np.array_equal(a, b) for a, b in zip(one, other))
    assert np.array_equal(levels, of_plain)


def test_what_does_not_fit_is_refused():
    _, _, labelled, levels = state()
    rows, z = labelled[0]
    at, change = np.zeros(1, np.int64), np.zeros(levels.shape, np.int32)
    own = "codes8", 0, 3, 0, np.zeros(3, np.int64), np.zeros((1, K, 3), np.float32), 1

    def fill(at, own):
        updates.fill_cells([(rows, at, z, 0)], own, None, [], change, purpose=1, sub=0, **KEY)

    with pytest.raises(ValueError, match="rows and labels"):
        fill(at + len(z), own)
    with pytest.raises(ValueError, match="tables and contexts"):
        fill(at, (*own[:5], own[5][:, 1:], 1))
    with pytest.raises(ValueError, match="rows, levels and contexts"):
        fill(at, ("codes8", 9, *own[2:]))
