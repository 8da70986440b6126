"""What of a chain is in its checkpoints, and how it goes on from one; every function is collective.

A generation holds each shard's labels and the running scores of its held-out rows, and what all shards share: the
number of cycles, the hyperparameters, and the plan by which an annealed chain's rows come in.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from mpibayes.hpc.comm import Communicator, agree, on_root
from mpibayes.hpc.errors import MpibayesError
from mpibayes.hpc.heldout import HeldOut
from mpibayes.hpc.mixture import Mixture
from mpibayes.hpc.models.components import Hyper
from mpibayes.io import checkpoint


def save(comm: Communicator, place: Path, mixture: Mixture, heldout: HeldOut | None, kept: dict | None = None) -> None:
    """Write a generation of the chain's present state. A failure of one rank is raised on all of them.

    kept: on root, what the trace and the labels hold (`checkpoint.commit`).
    """
    cycle = mixture.cycles
    name = f"checkpoint {cycle:09d}"
    on_root(comm, lambda: checkpoint.begin(place, cycle), share=False, what=f"begin {name}")
    shards = {shard.index: {"z": shard.z} for shard in mixture.shards}
    if heldout is not None:
        for i in shards:
            shards[i]["heldout_log_sum"] = heldout.log_sums[i]
    first = min(shards, default=0)
    try:
        part = agree(comm, lambda: checkpoint.write_part(place, cycle, first, shards), f"write its part of {name}")
    except MpibayesError:
        if comm.rank == 0:
            checkpoint.discard(place, cycle)
        raise
    parts = comm.collect(part)
    shared = {
        "cycles": cycle,
        "n_labels": mixture.n_labels,
        "plan": np.asarray(mixture.plan, np.float64),
        "heldout_draws": heldout.n_draws if heldout is not None else 0,
        **vars(mixture.hyper),
    }
    on_root(
        comm, lambda: checkpoint.commit(place, cycle, parts, shared, kept=kept), share=False, what=f"complete {name}"
    )


def newest(comm: Communicator, place: Path, mixture: Mixture) -> checkpoint.Generation | None:
    """The newest generation that every rank finds whole, or None when there never was one."""
    found = on_root(comm, lambda: checkpoint.latest(place, deep=False), what="look for the newest checkpoint")
    while found is not None:
        problems = agree(
            comm,
            lambda found=found: [p for shard in mixture.shards if (p := found.verify_part(shard.index))],
            f"verify its part of checkpoint {found.cycle:09d}",
        )
        everyone = [p for some in comm.collect(problems) for p in some]
        if not everyone:
            return found
        found = on_root(comm, partial(checkpoint.previous, found, everyone), what="look for an older checkpoint")
    return None


def restore(comm: Communicator, found: checkpoint.Generation, mixture: Mixture, heldout: HeldOut | None) -> None:
    """Bring the chain to the state of a generation."""
    shared, mine = agree(
        comm,
        lambda: (found.shared(), {s.index: found.shard(s.index) for s in mixture.shards}),
        f"read its part of checkpoint {found.cycle:09d}",
    )
    hyper = Hyper(*(shared[name] for name in ("concentration", "discount", "dirichlet", "normal", "gamma")))
    plan = shared.get("plan", ())  # checkpoints of older versions have none
    mixture.resume(int(shared["cycles"]), lambda i: mine[i]["z"], int(shared["n_labels"]), hyper, plan)
    if heldout is not None:
        heldout.n_draws = int(shared["heldout_draws"])
        heldout.log_sums = {i: arrays["heldout_log_sum"] for i, arrays in mine.items()}
