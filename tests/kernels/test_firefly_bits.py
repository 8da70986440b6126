"""No bit of a Firefly chain depends on the instruction set, on how a cycle is driven, or on where shards are."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mpibayes.kernels import firefly
from mpibayes.kernels.common.machine import ISA
from mpibayes.kernels.firefly import HMC, MALA, RANDOM_WALK, SLICE, SOFTMAX, Lights, Mover

from .firefly_problems import NAMES, random_problem, record

ROOT = Path(__file__).parents[2]
WIDTHS = ("baseline", "avx2", "avx512")
N_CYCLES, ADAPTING_UNTIL = 40, 25


def started(likelihood, n_shards, n_predictors=5, n=300, untuned=True):
    """(shards' lights, target, theta, tuning): all rows drawn once."""
    problem = random_problem(likelihood, n, n_predictors)
    shards, theta = problem.shards(firefly, n_shards, untuned), problem.theta0 + 0.05
    lights = [Lights(rows) for rows in shards]
    for shard, one in enumerate(lights):
        one.draw(theta, 4, 0, 1, shard)
    return lights, problem.target(firefly, shards), theta, firefly.start_tuning(0.1, 30.0)


def in_one_call(likelihood, kind, n_shards, explicit, **more):
    lights, target, theta, tuning = started(likelihood, n_shards, **more)
    out = record(N_CYCLES, len(theta))
    mover = Mover(kind, len(theta), np.diag(np.linspace(0.5, 1.0, len(theta))))
    for first in (0, 7, 30):  # in pieces
        n = {0: 7, 7: 23, 30: N_CYCLES - 30}[first]
        part = {name: values[first : first + n] for name, values in out.items()}
        firefly.cycles(
            lights, target, mover, theta, tuning, -0.2 if explicit else 1.5, explicit, 3, 4, first + 1, 1, n,
            ADAPTING_UNTIL, part,
        )  # fmt: skip
    return out, tuning, lights


def messages(lights):
    """Messages of three ranks, of which the last has no shards."""
    half = (len(lights) + 1) // 2
    x, _, bounds = lights[0].gather()
    dealt = half, len(lights) - half, 0
    own = lights[:half], lights[half:], []
    return [firefly.Messages(of, dealt, x.shape[1], bounds.shape[1]) for of in own]


def exchange(ranks, theta, most, queries=0):
    """Exchange messages until they are complete; returns how often. theta: of each rank, or of all."""
    for times in range(1, 10):
        for rank, of in enumerate(ranks):
            of.pack(theta[rank] if isinstance(theta, list) else theta, queries + rank, most)
        for of in ranks:
            of.everyones[:] = [other.mine for other in ranks]
        done = {of.complete(most) for of in ranks}
        assert len(done) == 1
        if done.pop():
            return times
    raise AssertionError("never complete")


def step_by_step(likelihood, kind, n_shards, explicit, way, **more):
    """The same chain as a Python loop, with rows in messages, asked for (`remote`), or where they are (`lights`)."""
    lights, target, theta, tuning = started(likelihood, n_shards, **more)
    out, n_rows = record(N_CYCLES, len(theta)), sum(one.rows.n for one in lights)
    mover = Mover(kind, len(theta), np.diag(np.linspace(0.5, 1.0, len(theta))))

    def remote(at, gradient):
        total, part = 0.0, None if gradient is None else np.empty_like(gradient)
        for one in lights:
            total += target.partial(one, at, part)
            if gradient is not None:
                gradient += part
        return total

    ranks = messages(lights)
    for c in range(N_CYCLES):
        cycle = c + 1
        adapting = cycle <= ADAPTING_UNTIL
        step, q = tuning[0 if adapting else 1], firefly.proposal_rate(tuning, -0.2 if explicit else 1.5, n_rows)
        queries = sum(one.sweep(theta, q, explicit, 4, cycle, 1, shard) for shard, one in enumerate(lights))
        lengths = np.array([one.n_bright for one in lights])
        if way == "lights":
            target.load(lights)
        elif way == "messages":
            assert exchange(ranks, theta, 1 << 20) < 4
            ranks[0].load(target)
        else:
            target.remote = remote
        accept, evaluations = mover.step(target, theta, step, 3, 4, cycle, 1)
        if way == "remote":
            for one in lights:
                one.refresh(theta)
        else:
            for one, gap in zip(lights, np.split(target.gap, np.cumsum(lengths)[:-1]), strict=True):
                one.set_gap(gap)
        if adapting:
            firefly.adapt(tuning, accept, lengths.sum(), mover.goal)
        out["theta"][c], out["lp"][c], out["acceptance"][c], out["step_size"][c] = (
            theta, target.log_density, accept, step,
        )  # fmt: skip
        out["bright"][c], out["queries_z"][c] = lengths.sum(), queries
        out["queries_theta"][c] = evaluations * lengths.sum()
    return out, tuning, lights


@pytest.mark.parametrize("n_shards", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", [HMC, MALA, RANDOM_WALK, SLICE])
@pytest.mark.parametrize("likelihood", NAMES, ids=NAMES.values())
def test_a_loop_in_python_gives_the_same_bits(likelihood, kind, n_shards):
    explicit = (kind + n_shards) % 2 == 0
    out, tuning, lights = in_one_call(likelihood, kind, n_shards, explicit)
    for way in ("lights", "messages", "remote"):
        again, again_tuning, again_lights = step_by_step(likelihood, kind, n_shards, explicit, way)
        for name, values in out.items():
            assert np.array_equal(values, again[name]), (way, name)
        assert np.array_equal(tuning, again_tuning)
        for one, other in zip(lights, again_lights, strict=True):
            assert np.array_equal(one.bright, other.bright) and np.array_equal(one.gap, other.gap)
    assert len(np.unique(out["lp"])) > N_CYCLES / 2 and out["bright"].min() < out["bright"].max()


def test_messages_have_room_for_the_rows():
    """They grow, stay as they are, and shrink; every rank reads the same numbers."""
    lights, target, theta, _ = started(SOFTMAX, 4)
    for one in lights:
        one.set_bright(np.arange(75, dtype=np.int32))
    ranks = messages(lights)
    assert exchange(ranks, theta, 300, 10) == 2 and exchange(ranks, theta, 300) == 1
    large = ranks[0].mine.size
    for of in ranks:
        assert of.n_bright == 300 and of.queries == 3 and list(of.counts) == [75] * 4
        of.load(target)
        assert target.n_rows == 300
    assert exchange(messages(lights), theta, 299) == 1  # too many to send
    for one in lights:
        one.set_bright(np.arange(2, dtype=np.int32))
    assert exchange(ranks, theta, 300) == 1 and exchange(ranks, theta, 300) == 1
    assert ranks[0].mine.size < large and ranks[2].n_bright == 8


def test_ranks_that_differ_are_found():
    lights, _, theta, _ = started(SOFTMAX, 2)
    with pytest.raises(RuntimeError, match="rank 1 has other coefficients"):
        exchange(messages(lights), [theta, np.nextafter(theta, 9), theta], 1 << 20)


def test_regular_sampling_gives_the_same_bits():
    """load_full: no lights, log L of every row."""
    problem = random_problem(SOFTMAX)
    shards = problem.shards(firefly, 3)
    target, mover, results = problem.target(firefly, shards), Mover(HMC, 15), []
    target.load_full(shards)
    for pieces in ((10,), (4, 6)):
        theta, tuning, first, lp = problem.theta0.copy(), firefly.start_tuning(0.05, 0.0), 1, []
        for n in pieces:
            out = record(n, 15)
            firefly.cycles([], target, mover, theta, tuning, 3.0, False, 3, 4, first, 1, n, 5, out)
            assert (out["bright"] == 200).all() and (out["queries_theta"] == 800).all() and not out["queries_z"].any()
            first, lp = first + n, [*lp, *out["lp"]]
        results.append([*lp, *theta])
    theta, loop = problem.theta0.copy(), []
    tuning = firefly.start_tuning(0.05, 0.0)
    for cycle in range(1, 11):
        accept, _ = mover.step(target, theta, tuning[0 if cycle <= 5 else 1], 3, 4, cycle, 1)
        loop.append(target.log_density)
        if cycle <= 5:
            firefly.adapt(tuning, accept, 200, mover.goal)
    assert results[0] == results[1] == [*loop, *theta]


def fingerprint():
    """A hash of chains of every model and update, with widths that do and do not fill the vectors."""
    digest = hashlib.sha256()
    for likelihood in NAMES:
        for kind in (HMC, MALA, RANDOM_WALK, SLICE):
            for n_predictors, untuned in ((5, True), (8, False), (37, False)):
                n = 301 + 10 * n_predictors
                out, tuning, lights = in_one_call(
                    likelihood, kind, 2, kind == MALA, n_predictors=n_predictors, n=n, untuned=untuned
                )
                for values in (*out.values(), tuning, *(one.gap for one in lights)):
                    digest.update(np.ascontiguousarray(values).tobytes())
        problem = random_problem(likelihood, 203, 19)
        (rows,) = problem.shards(firefly, 1)
        v, gradient = np.random.default_rng(1).normal(size=(203, problem.n_classes)), np.empty(rows.n_parameters)
        rows.log_likelihood(problem.theta0, gradient)
        for values in (rows.bounds, rows.gram(v[:, 0].copy()), rows.combine(v), rows.linear(problem.theta0), gradient):
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


@pytest.mark.skipif("MPIBAYES_ISA" in os.environ, reason="an instruction set is forced")
def test_every_width_gives_the_same_bits():
    seen = {}
    for isa in WIDTHS[: WIDTHS.index(ISA) + 1]:
        environment = {**os.environ, "MPIBAYES_ISA": isa, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        done = subprocess.run(
            [sys.executable, "-m", "tests.kernels.test_firefly_bits"],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        name, seen[isa] = done.stdout.split()
        assert name == isa
    assert len(set(seen.values())) == 1, seen


if __name__ == "__main__":
    print(ISA, fingerprint())
