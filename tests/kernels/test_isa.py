"""No result bit depends on the width of the vectors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mpibayes.kernels.common.machine import ISA

ROOT = Path(__file__).parents[2]
WIDTHS = ("baseline", "avx2", "avx512")


def fingerprint(isa):
    environment = {**os.environ, "MPIBAYES_ISA": isa, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.run(
        [sys.executable, "-m", "tests.kernels.fingerprint"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.thorough
@pytest.mark.skipif("MPIBAYES_ISA" in os.environ, reason="an instruction set is forced")
def test_every_width_gives_the_same_bits():
    available = WIDTHS[: WIDTHS.index(ISA) + 1]
    seen = {}
    for isa in available:
        done = fingerprint(isa)
        assert done.returncode == 0, done.stderr
        name, seen[isa] = done.stdout.split()
        assert name == isa
    assert len(set(seen.values())) == 1, seen


def test_an_unknown_width_is_refused():
    done = fingerprint("sse9")
    assert done.returncode != 0 and "MPIBAYES_ISA=sse9 is not one of baseline, avx2, avx512" in done.stderr
