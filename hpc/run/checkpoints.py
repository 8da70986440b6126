"""Saving a chain's state to its checkpoints, and resuming from one; every function is collective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mpibayes.errors import CheckpointError, MpibayesError
from mpibayes.hpc.family import Chain
from mpibayes.hpc.parallel.agreement import agree, on_root
from mpibayes.hpc.parallel.comm import Communicator
from mpibayes.io import checkpoint, generations
from mpibayes.io.files import Guard, unguarded
from mpibayes.io.generations import Generation
from mpibayes.text import counted


def save(comm: Communicator, place: Path, chain: Chain, kept: Mapping[str, Any], guard: Guard = unguarded) -> None:
    """Write a generation of the chain's present state. A failure of one rank is raised on all ranks.

    kept: contents of the trace and the kept draws, on root; guard: called before anything is changed; see
    `checkpoint.commit`.
    """
    cycle = chain.cycles
    name = f"checkpoint {cycle:09d}"
    draft = on_root(comm, lambda: checkpoint.begin(place, cycle, guard), what=f"begin {name}")
    shards, shared = chain.state()
    first = min(shards, default=0)
    try:
        part = agree(comm, lambda: checkpoint.write_part(draft, first, shards), f"write its part of {name}")
    except MpibayesError:
        if comm.rank == 0:
            checkpoint.discard(draft)
        on_root(comm, guard, share=False)  # another run that has taken the directory may have removed the draft
        raise
    parts = comm.collect(part)
    shared = {"cycles": cycle} | shared
    on_root(
        comm,
        lambda: checkpoint.commit(draft, parts, shared, kept=kept, guard=guard),
        share=False,
        what=f"complete {name}",
    )


def newest(comm: Communicator, place: Path, chain: Chain) -> Generation | None:
    """Return the newest generation that every rank finds whole, or None if there never was one."""
    result = on_root(comm, lambda: generations.latest(place, deep=False), what="look for the newest checkpoint")
    while result is not None:
        if result.n_shards != chain.n_shards:
            raise CheckpointError(
                f"{result.path}: is of {counted(result.n_shards, 'shard')}, and this run has {chain.n_shards} "
                "(run.shards): it is not this run's. Put the directory's own checkpoints back, or start anew with "
                "--fresh"
            )
        verify = partial(_problems, result, chain.shards)
        problems = agree(comm, verify, f"verify its part of checkpoint {result.cycle:09d}")
        everyone = [p for subset in comm.collect(problems) for p in subset]
        if not everyone:
            return result
        result = on_root(comm, partial(generations.previous, result, everyone), what="look for an older checkpoint")
    return None


def _problems(generation: Generation, shards: Sequence[int]) -> list[str]:
    """Problems of the parts of a generation that hold these shards."""
    return [problem for index in shards if (problem := generation.verify_part(index))]


def restore(comm: Communicator, generation: Generation, chain: Chain) -> None:
    """Restore the chain to the state of a generation."""
    shared, mine = agree(
        comm,
        lambda: (generation.shared(), {index: generation.shard(index) for index in chain.shards}),
        f"read its part of checkpoint {generation.cycle:09d}",
    )
    chain.restore(shared, mine)
