"""Small complete run directories, made without `mpibayes run`: a table with planted clusters, a configuration, a
chain."""

import time
from pathlib import Path

import numpy as np

from mpibayes.hpc.config.load import load
from mpibayes.hpc.crosscat.chain import Mixture, Settings
from mpibayes.hpc.crosscat.draws import of_chain, writer
from mpibayes.hpc.crosscat.family import Family
from mpibayes.hpc.crosscat.heldout import HeldOut
from mpibayes.hpc.crosscat.keys import Model, priors
from mpibayes.hpc.crosscat.scalars import BY_FAMILY
from mpibayes.hpc.crosscat.start import views
from mpibayes.hpc.data.rows import Data
from mpibayes.hpc.parallel.comm import serial
from mpibayes.hpc.run import directory as run_directory
from mpibayes.hpc.run.lock import Lock
from mpibayes.hpc.run.table import as_modelled
from mpibayes.hpc.scalar import kinds
from mpibayes.io.table import Table, table_from_arrays, write_table
from mpibayes.io.trace import TraceWriter

MOVES_EVERY = 4  # cycles between rounds of split and merge moves, which take most of a chain's time on small tables


def planted(n=400, seed=0):
    """Three planted groups: `colour`, `flag`, `height` and `visits` tell them, `noise` and `dust` do not; some cells
    are missing.

    Returns the columns as table_from_arrays takes them, and the groups (n,)."""
    g = np.random.default_rng(seed)
    z = g.choice(3, n, p=[0.5, 0.3, 0.2])
    colour = np.where(g.random(n) < 0.93, z, g.integers(0, 4, n))
    flag = (g.random(n) < np.array([0.04, 0.9, 0.5])[z]).astype(int)
    height = g.normal(np.array([0.0, 60.0, 0.0])[z], np.array([4.0, 5.0, 4.0])[z])
    visits = g.poisson(np.array([2.0, 2.0, 25.0])[z]).astype(float)
    noise = g.integers(0, 5, n)
    dust = g.normal(7.0, 2.0, n)
    income = g.normal(np.array([3.0, 5.0, 3.0])[z], 1.0)
    income[g.random(n) < np.array([0.02, 0.02, 0.97])[z]] = np.nan  # missing says more than the value
    for codes in (colour, noise):
        codes[g.random(n) < 0.05] = -1
    for numbers in (height, visits, dust):
        numbers[g.random(n) < 0.05] = np.nan
    columns = [
        ("colour", "categorical", colour, ["red", "green", "blue", "grey"]),
        ("flag", "boolean", flag, ["no", "yes"]),
        ("height", "real", height, None),
        ("visits", "count", visits, None),
        ("noise", "categorical", noise, ["a", "b", "c", "d", "e"]),
        ("dust", "real", dust, None),
        ("income", "real", income, None),
    ]
    return columns, z


def write_planted(path, **more) -> Table:
    columns, rows = table_from_arrays(planted(**more)[0])
    return write_table(path, columns, rows)


def make_run(
    folder,
    table: Table,
    cycles=40,
    burn_in=10,
    labels=1,
    text="",
    heldout=None,
    chains=1,
    keep=True,
    starts=("sequential", "one"),
    shards=1,
    **more,
) -> Path:
    """A finished run of `table` in `folder`; `text`: further lines of the configuration; keep=False: no draws of the
    labels; starts: of the first chain and of the others; shards: one, as a cycle of two takes twice the time; more:
    further settings of the sampler."""
    folder = Path(folder)
    given = f"[data]\ntable = '{table.path}'\n" + (f"heldout = {heldout}\n" if heldout else "")
    if "family" not in text:
        given += '[model]\nfamily = "mixture"\n'
        text, _, of_model = text.partition("[model]\n")
        given += of_model
    given += f"[run]\ncycles = {cycles}\nburn_in = {burn_in}\nchains = {chains}\nseed = 5\nshards = {shards}\n"
    given += f"[output]\nlabels = {labels}\n{text}"
    path = folder.parent / f"{folder.name}.toml"
    path.write_text(given)
    config = load(path)
    modelled = as_modelled(config, table)
    data = Data(modelled, config.unused, config.heldout_fraction, latent=config.model.latent)
    content = {"fingerprint": table.fingerprint, "heldout": None}
    lock = Lock()
    decided = Family.decided(config, data.n_rows)
    config = run_directory.open_run(folder, config, table, content, decided, fresh=False, lock=lock)
    lock.release()
    model = config.of(Model)
    settings = Settings(
        seed=5, shards=shards, concentration=model.law, discount=model.discount,
        likelihood=model.likelihood, priors=priors(config),
        view_concentration=model.view_law,
        **{"split_merge": MOVES_EVERY, **more},
    )  # fmt: skip
    scalars = BY_FAMILY[model.family]
    for chain in range(chains):
        place = folder if chains == 1 else folder / f"chain-{chain + 1}"
        place.mkdir(exist_ok=True)
        mixture = Mixture(serial(), data.columns, data.rows_of, data.n_rows, settings, chain)
        if model.has_views and model.likelihood:
            rows = data.rows_of(0, data.n_rows)
            views.follow(mixture, views.found_by(views.searched(data.columns, rows, settings, chain, 2)))
        else:
            if model.has_views:
                views.deal(mixture, 2)
            mixture.start(starts[min(chain, len(starts) - 1)])
        score = HeldOut(serial(), data.heldout_blocks(serial(), 2)) if heldout else None
        if data.training_rows is not None:
            np.save(place / run_directory.TRAINING_ROWS, data.training_rows)
        trace, draws = TraceWriter(place, [s.name for s in scalars], kinds=kinds(scalars)), writer(place)
        for cycle in range(1, cycles + 1):
            started = time.perf_counter()
            info = mixture.cycle()
            lpd, averaged = score.score(mixture.views, mixture.places, cycle > burn_in) if score else (np.nan, np.nan)
            seconds = time.perf_counter() - started
            scores = {"heldout_lpd": lpd, "heldout_lpd_averaged": averaged}
            trace.append(cycle, {**vars(info), **scores, "seconds": seconds})
            if keep and cycle % labels == 0 and not mixture.growing:
                draws.append(cycle, **of_chain(mixture, model.has_views))
        trace.flush()
        draws.flush()
    return folder
