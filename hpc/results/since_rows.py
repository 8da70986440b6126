"""The section of a report about rows added to the run's table: a comparison with the run before them."""

from __future__ import annotations

from typing import Any

from mpibayes.errors import MpibayesError
from mpibayes.hpc.comparison.since import add, since
from mpibayes.hpc.registry import posterior_of
from mpibayes.hpc.report.document import Document
from mpibayes.hpc.run.grown import FOLDER, place_of
from mpibayes.hpc.run.identity import GROWN, read_provenance


def add_since(made: Document, run: Any) -> None:
    """Add to the report of an opened run what is new since the last growth, if any. If the earlier run has been
    removed, or has no draws, the report stays as it is."""
    homes = {chain.home for chain in run.chains}
    home = homes.pop()
    times = len(read_provenance(home).get(GROWN, ()))
    if homes or not times:
        return
    try:
        place = place_of(home, times)
        if home.parent.name == FOLDER and not place.exists():  # an earlier state of the run, beside still earlier ones
            place = home.with_name(str(times))
        before = posterior_of(run.chains[0].config.kind)([place], None, run.table.path)
        before.read_traces()
        before.require_draws()
        if before.table.n_rows >= run.table.n_rows:  # `before` has grown itself, or `run` was opened before a growth
            return
        result = since(run, before, made)
    except MpibayesError:
        return
    add(made, result)
