"""Small finished runs of regressions of a simulated shop's customers."""

import shutil
from pathlib import Path

import numpy as np

from mpibayes.hpc.regression.scalars import SCALARS
from mpibayes.hpc.scalar import kinds
from mpibayes.io.segments import read_attributes
from mpibayes.io.table import Table, table_from_arrays, write_table
from mpibayes.io.trace import TraceWriter, read_axes, read_trace
from tests.run.conftest import in_process

JOBS = ["clerk", "nurse", "cook", "pilot"]
BIRDS = ["finch", "gull", "robin"]
RESPONSE = {"logistic": "bought", "softmax": "bird", "student-t": "price"}
PREDICTORS = ("age", "income", "visits", "job", "smoker")
CONFIG = """
[data]
table = "{table}"
heldout = {heldout}
[model]
family = "regression"
likelihood = "{likelihood}"
[regression]
response = "{response}"
predictors = {predictors}
{regression}
[run]
seed = 5
shards = 2
cycles = {cycles}
burn_in = {burn_in}
chains = {chains}
{text}
"""


def customers(n=1500, seed=0, holes=False):
    """Columns for table_from_arrays, with missing cells if `holes`; `bought`, `bird` and `price` depend on
    age, visits and smoker."""
    g = np.random.default_rng(seed)
    age, income, visits = g.normal(40, 12, n), g.lognormal(10, 0.6, n), g.poisson(3, n).astype(float)
    job, smoker = g.integers(0, 4, n), (g.random(n) < 0.3).astype(int)
    effect = 0.06 * (age - 40) + 0.9 * smoker - 0.2 * visits
    bought = (g.logistic(size=n) < effect).astype(int)
    each = np.stack([0 * age, 0.06 * (age - 40), 0.9 * smoker - 0.3], axis=1)
    bird = (each + g.gumbel(size=each.shape)).argmax(axis=1)
    price = 200 + 40 * effect + 18 * g.standard_t(4, n)
    if holes:
        age[g.random(n) < 0.05] = np.nan
        job[g.random(n) < 0.04] = -1
        bought[g.random(n) < 0.02] = -1
    return [
        ("age", "real", age, None),
        ("income", "real", income, None),
        ("visits", "count", visits, None),
        ("job", "categorical", job, JOBS),
        ("smoker", "boolean", smoker, ["no", "yes"]),
        ("bought", "boolean", bought, ["no", "yes"]),
        ("bird", "categorical", bird, BIRDS),
        ("price", "real", price, None),
    ]


def write_customers(path, **more) -> Table:
    return write_table(path, *table_from_arrays(customers(**more)))


def write_csv(path: Path, columns, leave_out=()) -> Path:
    """Write such columns as text, missing cells empty."""

    def cell(value, levels):
        if levels is not None:
            return "" if value < 0 else levels[value]
        return "" if np.isnan(value) else repr(float(value))

    kept = [c for c in columns if c[0] not in leave_out]
    lines = [",".join(c[0] for c in kept)]
    lines += [",".join(cell(c[2][i], c[3]) for c in kept) for i in range(len(kept[0][2]))]
    path.write_text("\n".join(lines) + "\n")
    return path


def make_run(
    folder: Path,
    table: Table,
    likelihood: str,
    *,
    cycles=2000,
    burn_in=500,
    chains=1,
    heldout="0.2",
    regression="",
    text="",
) -> Path:
    """A finished run in `folder`. regression, text: further lines of that section, and of the whole."""
    config = folder.parent / f"{folder.name}.toml"
    config.write_text(
        CONFIG.format(
            table=table.path, heldout=heldout, likelihood=likelihood, response=RESPONSE[likelihood], cycles=cycles,
            burn_in=burn_in, predictors=list(PREDICTORS), chains=chains, regression=regression, text=text,
        ).replace("heldout = None\n", "")
    )  # fmt: skip
    done = in_process(folder.parent, "run", config, "-o", folder)
    assert done.returncode == 0, done.stderr + done.stdout
    return folder


def rewritten(run_dir: Path, folder: Path, change) -> Path:
    """Copy a run of one chain with a changed trace: `change` receives the trace and returns it."""
    shutil.copytree(run_dir, folder)
    trace, axes = change(read_trace(run_dir)), read_axes(run_dir)
    shutil.rmtree(folder / "trace")
    shutil.rmtree(folder / "checkpoints")  # it records the contents of the trace
    writer = TraceWriter(
        folder, [s.name for s in SCALARS], str(read_attributes(run_dir / "trace")["run"]), axes, kinds=kinds(SCALARS)
    )
    writer.extend(trace["cycle"], trace)
    writer.flush()
    return folder
