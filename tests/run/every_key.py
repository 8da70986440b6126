"""A small run of each kind of model, and for every key of its configuration values other than the default.

`VALUES[kind][key]` has the cases of a key, `section.name`: its value for `--set`, followed by other keys that it needs.
For [columns.NAME] and [blocks.NAME] the key omits NAME. A key that may hold a section, such as `prior`, has a case for
each possible section.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np

from mpibayes.hpc import registry
from mpibayes.hpc.config.section import Section
from mpibayes.hpc.crosscat.given_priors import GammaPrior
from mpibayes.hpc.crosscat.keys import OF_VIEWS
from mpibayes.io.sparse import SparseRows
from mpibayes.io.table import table_from_arrays, write_table
from tests.run.test_regression_runs import people
from tests.sparse_tables import write_sparse
from tests.svi.cases import clouds
from tests.svi.lda_cases import corpus
from tests.svi.ratings import made

Case = tuple[str, ...]
N_ROWS = 60  # of the mixed table

# --- the runs ---------------------------------------------------------------------------------------------------------

SHORT = "[run]\nseed = 5\nshards = 3\ncycles = 5\n"
LABELS = "[output]\nlabels = 1\n"
CONFIG = {
    "mixture": f'[data]\ntable = "mixed.h5"\n[model]\nfamily = "mixture"\n{SHORT}{LABELS}',
    "crosscat": f'[data]\ntable = "mixed.h5"\n[model]\nfamily = "crosscat"\n[sampler]\ninit_rows = 0\n{SHORT}{LABELS}',
    "ibp": f'[data]\ntable = "reals.h5"\n[model]\nfamily = "ibp"\n{SHORT}{LABELS}',
    "regression": '[data]\ntable = "people.h5"\n[model]\nfamily = "regression"\nlikelihood = "logistic"\n[regression]\n'
    f'response = "bought"\npredictors = ["age", "job", "children"]\nmissing = "drop"\n{SHORT}',
    "svi": f'[data]\ntable = "reals.h5"\n[model]\nfamily = "svi"\n{SHORT}[output]\nkept = 1\n',
    "svi factorization": '[data]\ntable = "ratings.h5"\n[model]\nfamily = "svi"\nlikelihood = "factorization"\n'
    f"rank = 2\n{SHORT}[output]\nkept = 2\n",
    "svi lda": f'[data]\ntable = "news.h5"\n[model]\nfamily = "svi"\nlikelihood = "lda"\ntopics = 4\n{SHORT}'
    "[output]\nkept = 2\n",
}  # by kind


def make_files(place: Path) -> None:
    """Make tables, files of held-out rows, labels, and `KIND.toml` of every kind."""
    rng = np.random.default_rng(8)
    z = rng.integers(3, size=N_ROWS)
    x = 3.0 * z + rng.normal(size=N_ROWS)
    x[::9], x[::4] = np.nan, 0.0
    mixed = [
        ("colour", "categorical", (z + (rng.random(N_ROWS) < 0.2)) % 3, ["red", "green", "blue"]),
        ("smokes", "boolean", (rng.random(N_ROWS) < 0.2 + 0.3 * z).astype(int), ["no", "yes"]),
        ("x", "real", np.round(x, 1), None),
        ("y", "real", rng.normal(size=N_ROWS) - z, None),
        ("w", "real", rng.normal(size=N_ROWS) * (1 + z), None),
        ("n", "count", rng.poisson(1.0 + 3 * z).astype(float), None),
    ]
    reals = clouds(N_ROWS, 3, 3, seed=2)
    columns, rows = table_from_arrays(mixed)
    columns = [replace(c, resolution=0.1, atoms=(0.0,)) if c.name == "x" else c for c in columns]
    for name in ("mixed.h5", "moved.h5"):
        write_table(place / name, columns, rows)
    for name in ("reals.h5", "moved_reals.h5"):
        write_table(place / name, *table_from_arrays([(f"x{d}", "real", reals[:, d], None) for d in range(3)]))
    (place / "new.csv").write_text("colour,smokes,x,y,w,n\nred,no,1.5,0,0.5,2\nviolet,yes,4,1,2,3\n")
    (place / "new_reals.csv").write_text("x0,x1,x2\n0.5,1,2\n-1,0,0.25\n")
    for name in ("people.h5", "moved_people.h5"):
        people(place / name, n=120)
    (place / "new_people.csv").write_text(
        "age,job,children,bought,colour,paid\n30,pilot,1,yes,red,3\n50,clerk,0,no,,2\n"
    )
    ratings = made(40, 12, 2, True, seed=2)
    for name in ("ratings.h5", "moved_ratings.h5"):
        write_sparse(place / name, SparseRows(ratings.starts, ratings.columns, ratings.values), 12)
    for name in ("news.h5", "moved_news.h5"):
        write_sparse(place / name, corpus(d=60)[0], 60)
    (place / "labels.txt").write_text(" ".join(map(str, z)) + "\n")
    for kind, text in CONFIG.items():
        (place / f"{kind}.toml").write_text(text)


# --- the keys ---------------------------------------------------------------------------------------------------------


def keys_of(kind: str) -> Iterator[tuple[str, Any]]:
    """Yield (`section.name`, its declaration) for every key of a kind of model with more than one value."""
    doors = registry.keys_of(kind)
    unused = OF_VIEWS if kind == "mixture" else {}
    idle = {f"{section}.{key}" for section, keys in unused.items() for key in keys}
    for name, section in {**doors.SECTIONS, **doors.NAMED}.items():
        for key, info in section.model_fields.items():
            one_value = get_origin(info.annotation) is Literal and len(get_args(info.annotation)) == 1
            if not one_value and f"{name}.{key}" not in idle:
                yield f"{name}.{key}", info


def sections_in(annotation: Any) -> set[type[Section]]:
    """Sections that a value of this type may be."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return {annotation}
    return set().union(*map(sections_in, get_args(annotation)))


def cases_of(kind: str) -> list[Case]:
    """Runs of a kind of model; a case of two keys is one run."""
    return list(dict.fromkeys(case for cases in VALUES[kind].values() for case in cases))


def runs_of(kind: str) -> list[Case]:
    """The same cases in fewer runs: those that change keys of different sections share one, except for those in
    ALONE."""
    runs: list[Case] = []
    for case in cases_of(kind):
        for i, run in enumerate(runs):
            if not {case, run} & ALONE and not sections_of(run) & sections_of(case):
                runs[i] += case
                break
        else:
            runs.append(case)
    return runs


def sections_of(case: Case) -> set[str]:
    """Sections that a case changes. A block holds columns: both count as one section here."""
    return {change.partition(".")[0].replace("blocks", "columns") for change in case}


# --- the values -------------------------------------------------------------------------------------------------------


def each(key: str, *values: str) -> dict[str, list[Case]]:
    """Values of a key that needs no other key."""
    return {key: [(f"{key}={value}",) for value in values]}


OF_CLASSES = (
    "outcome.column=smokes", 'outcome.covariates=["y"]', 'outcome.slopes=["w"]', "outcome.mean=[0.5, 0]",
    "outcome.sd=1.5", "outcome.covariate_sd=2", "outcome.standardise=false", "outcome.auxiliary=1",
    "outcome.kernel=firefly", "outcome.steps=3",
)  # fmt: skip
OF_NUMBERS = (
    "outcome.column=y", 'outcome.covariates=["w", "colour"]', "outcome.likelihood=student-t", "outcome.degrees=6",
    "outcome.scale=0.7",
)  # fmt: skip
OF_LEVELS = ("outcome.column=colour", 'outcome.covariates=["w"]', "outcome.likelihood=softmax", "outcome.sd=[1.5, 2]")
ALONE = {
    ("model.likelihood=false",), ("model.family=crosscat",),  # under them other keys have no effect
    ("report.image=[1, 3]",),  # it has all columns
    ("sampler.opening=all",),  # of discount 0 alone
    OF_CLASSES, OF_NUMBERS, OF_LEVELS,  # beside which there are no links and no views
}  # fmt: skip
TOGETHER = (
    "run.seed=7", "run.shards=4", "run.cycles=6", "run.burn_in=2", "run.checkpoint_minutes=0.0001",
    "run.max_time=3h50m", "run.grow=true", "run.groups=1", "run.ranks=1", "output.thin=2",
)  # fmt: skip
RUN: dict[str, list[Case]] = {
    **{change.partition("=")[0]: [TOGETHER] for change in TOGETHER},  # one run for all of them
    **each("run.until", "cycles"),
    **each("run.chains", "2"),
}
SETTLED = ("run.until=settled", "run.chains=2")
NOISE = ("step.noise=svi+", "step.effective=2")
SEARCH = "sampler.init_rows=20"  # a search takes as long as all the rest of a run: few have one
ANNEAL = ("sampler.strategy=anneal", "anneal.passes=1.5")  # cycles of growth there are 3, one a shard
IN_TIME = (ANNEAL[0], "anneal.schedule=seconds", "anneal.seconds=0.000001")  # all at once, whatever the clock says
BLOCK = ('blocks.body.columns=["y", "w"]',)

OF_A_MIXTURE = {
    **RUN,
    **each("data.table", "moved.h5"),
    "data.heldout": [("data.heldout=0.2",), ("data.heldout=new.csv", "data.unseen=missing")],
    "data.unseen": [("data.heldout=new.csv", "data.unseen=missing")],
    **each("model.family", "crosscat"),
    **each("model.concentration", "0.7", "[0.5, 1, 3]", "{gamma = [1, 1], points = 41}", "{gamma = [1, 2]}"),
    **each("model.discount", "0.3", "[0, 0.5]", "learn"),
    **each("model.real", "as is"),
    **each("model.shapes", "none", "{y = [0.5, 2, 0.3, 0.8]}"),
    "model.lines": [
        ("model.links=forest", "model.lines=none"),
        ("model.links=forest", 'model.lines=["y", "w"]'),
    ],
    "model.children": [
        ("model.links=forest", "model.children=none"),
        ("model.links=forest", 'model.children=["y"]'),
    ],
    "model.bins": [("model.links=forest", "model.bins=none"), ("model.links=forest", "model.bins={y = [0.5, 1.5]}")],
    **each("model.likelihood", "false"),
    "sampler.strategy": [("sampler.strategy=sequential+gibbs",), ("sampler.strategy=prior+gibbs",), ANNEAL],
    **each("sampler.split_merge", "1"),
    "sampler.init": [
        *((f"sampler.init={how}",) for how in ("one", "sequential", "prior", "overdispersed")),
        ("sampler.init=labels", "sampler.init_labels=labels.txt"),
    ],
    "sampler.init_clusters": [("sampler.init_clusters=5", "sampler.init=random")],
    "sampler.init_labels": [("sampler.init=labels", "sampler.init_labels=labels.txt")],
    **each("sampler.sweeps_per_cycle", "3"),
    **each("sampler.opening", "all", "one"),
    **each("sampler.stray_rows", "0", "20"),
    **each("sampler.hyper_every", "2"),
    "anneal.schedule": [
        ("anneal.schedule=geometric", *ANNEAL),
        *((f"anneal.schedule={how}", ANNEAL[0]) for how in ("constant", "sequential", "[[1, 0.5], [2, 1]]")),
        IN_TIME,
    ],
    "anneal.passes": [ANNEAL],
    "anneal.start_rows": [("anneal.start_rows=40", *ANNEAL)],
    "anneal.seconds": [IN_TIME],
    **each("output.labels", "2"),
    "columns.use": [("columns.w.use=false",)],
    "columns.prior": [
        ("columns.colour.prior={dirichlet = [1, 2, 0.5]}",),
        ("columns.smokes.prior={grid = [0.1, 1, 10]}",),
        ("columns.x.prior={mean = 4, kappa = 0.1, nu = 3, variance = 2}",),
        ("columns.n.prior={shape = 2, rate = 0.5}",),
    ],
    "blocks.columns": [BLOCK],
    "blocks.prior": [("blocks.body.prior={kappa = 0.2, nu = [3, 6], variance = 0.5, mean = [0, 1]}", *BLOCK)],
}
LINKS: dict[str, list[Case]] = {
    **each("model.links", "forest", "lines", '[["smokes", "colour"]]'),
    "model.link_base": [("model.links=forest", "model.link_base=learned")],
    "sampler.link_moves": [("sampler.link_moves=1", "model.links=forest")],
}
OUTCOME = {change.partition("=")[0]: [of] for of in (OF_LEVELS, OF_NUMBERS, OF_CLASSES) for change in of}
OUTCOME["outcome.likelihood"] = [OF_NUMBERS, OF_LEVELS]
ONE_VIEW = (
    OF_A_MIXTURE
    | LINKS
    | OUTCOME
    | {
        "run.until": [("run.until=cycles",), SETTLED, ("run.until=scores", "run.chains=2")],
        "sampler.init_rows": [(SEARCH,)],
    }
)
SEVERAL_VIEWS = LINKS | {
    **OUTCOME,
    # a case of keys that say how a chain starts, which is as in a mixture
    **{key: of[:1] if key.startswith(("sampler.", "anneal.")) else of for key, of in OF_A_MIXTURE.items()},
    **each("model.concentration", "[3, 1]", "{gamma = [1, 1], points = 41}"),
    **each("model.view_concentration", "0.6", "[0.5, 1, 3]", "{gamma = [1, 1], points = 41}"),
    **each("model.view_discount", "[0, 0.5]", "learn"),
    "sampler.init_views": [("sampler.init_views=2",), ("sampler.init_views=2", SEARCH)],
    "sampler.init_rows": [(SEARCH, *ANNEAL)],
    "sampler.searches": [("sampler.searches=3", SEARCH)],
    **each("sampler.column_moves", "1", "0"),
    **each("sampler.view_moves", "1", "0"),
    **each("sampler.group_moves", "2", "0"),
    **each("sampler.column_powers", "1"),
}
FEATURES = {
    **RUN,
    **each("data.table", "moved_reals.h5"),
    **each("data.heldout", "0.2", "new_reals.csv"),
    **each("data.unseen", "missing"),
    **each("data.heldout_cells", "0.3"),
    **each("model.alpha", "2.0", "{gamma = [2, 1]}"),
    **each("model.c", "2.0", "learn", "[0.5, 1, 2]"),
    **each("model.noise_sd", "0.5", "{inverse_gamma = [2, 1]}"),
    **each("model.feature_sd", "1.5", "{inverse_gamma = [2, 1]}"),
    **each("model.noise", "column"),
    **each("model.standardise", "false"),
    **each("model.likelihood", "false"),
    **each("sampler.sweeps_per_cycle", "2"),
    **each("sampler.opening", "all", "one"),
    **each("sampler.moves", "1", "0"),
    **each("sampler.init", "sequential", "random", "none"),
    **each("sampler.init_rows", "20"),
    **each("report.image", "[1, 3]"),
    **each("output.labels", "2"),
    "columns.use": [("columns.x2.use=false",)],
}
TABLE_OF_A_REGRESSION = {
    "softmax": ("model.likelihood=softmax", "regression.response=colour"),
    "student-t": ("model.likelihood=student-t", "regression.response=paid"),
}
T = TABLE_OF_A_REGRESSION["student-t"]
REGRESSION = {
    **RUN,
    **each("data.table", "moved_people.h5"),
    "data.heldout": [("data.heldout=0.2",), ("data.heldout=new_people.csv", "data.unseen=missing")],
    "data.unseen": [("data.heldout=new_people.csv", "data.unseen=missing")],
    "model.likelihood": list(TABLE_OF_A_REGRESSION.values()),
    "regression.response": list(TABLE_OF_A_REGRESSION.values()),
    **each("regression.predictors", '["age"]'),
    **each("regression.intercept", "false"),
    **each("regression.standardise", "false"),
    **each("regression.missing", "drop", "indicator"),
    **each("regression.prior", "laplace", "flat"),
    "regression.prior_scale": [
        ("regression.prior_scale=1.0",),
        ("regression.prior_scale=heldout", "data.heldout=0.2"),
    ],
    **each("regression.intercept_scale", "3.0"),
    "regression.degrees_of_freedom": [("regression.degrees_of_freedom=6.0", *T)],
    "regression.scale": [
        ("regression.scale=0.7", *T),
        ("regression.scale=heldout", "data.heldout=0.2", *T),
    ],
    **each("firefly.bounds", "untuned", "none"),
    **each("firefly.theta_update", "mala", "random-walk", "slice"),
    **each("firefly.z_update", "explicit"),
    **each("firefly.q", "0.3"),
    "firefly.xi": [("firefly.xi=1.0", "firefly.bounds=untuned")],
    **each("firefly.whiten", "false"),
    **each("firefly.step_size", "0.1"),
    **each("firefly.leapfrog_steps", "2"),
    **each("firefly.refresh", "2", "0"),
    **each("firefly.init", "map", "prior"),
    **each("output.log_posterior", "2", "0"),
    "columns.use": [("columns.paid.use=false", "regression.predictors=all")],
}
STEPS = {
    **RUN,
    "step.noise": [NOISE],
    "step.effective": [NOISE, ("step.effective={growing = 2}", "step.noise=svi+")],
    "step.guard": [("step.guard=none", "step.noise=svi+", "step.effective=55")],
    **each("step.tolerance", "0.001"),
}
BATCHES = {
    **each("step.batch", "20", "{growing = 9}"),
    **each("step.rate", "0.5", "{delay = 1, decay = 0.6}", "{growing = 0.2}"),
}
GAUSSIANS = {
    **STEPS,
    **BATCHES,
    **each("data.table", "moved_reals.h5"),
    **each("data.heldout", "0.2", "new_reals.csv"),
    **each("data.unseen", "missing"),
    **each("model.likelihood", "finite-dirichlet"),
    **each("model.components", "3"),
    **each("model.alpha", "0.5"),
    **each("model.mean_variance", "5.0"),
    **each("model.degrees", "6.0"),
    **each("model.scale", "2.0"),
    **each("model.standardise", "false"),
    "step.noise": [NOISE, ("step.noise=positive", "step.effective=2")],
    **each("output.kept", "2"),
    "columns.use": [("columns.x2.use=false",)],
}
RATINGS = {
    **STEPS,
    **BATCHES,
    **each("data.table", "moved_ratings.h5"),
    **each("data.heldout", "0.2"),
    **each("data.unseen", "missing"),
    **each("model.rank", "3"),
    **each("model.biases", "false"),
    **each("model.learn", "false"),
    **each("model.center", "false"),
    **each("model.variance", "0.5"),
    **each("model.prior_variance", "0.8"),
    "step.count": [("step.count=all", "step.noise=svi+", "step.effective=100")],
    "step.users": [("step.users=stepped", *NOISE)],
    **each("output.kept", "1"),
    "columns.use": [],
}
TOPICS = {
    **STEPS,
    **BATCHES,
    **each("data.table", "moved_news.h5"),
    **each("data.heldout", "0.2"),
    **each("data.unseen", "missing"),
    **each("model.topics", "3"),
    **each("model.alpha", "0.3"),
    **each("model.eta", "0.1"),
    **each("model.learn_alpha", "true"),
    "step.noise": [NOISE, ("step.noise=positive", "step.effective=2")],
    **each("step.local", "vb", "linear", "cvb0", "gibbs", '"linear, then vb"', '"cvb0, then vb"'),
    "step.switch": [("step.switch=2", 'step.local="cvb0, then vb"')],
    "step.warm": [("step.warm=2", "step.local=vb")],
    "step.iterations": [("step.iterations=7", "step.local=vb")],
    "step.sweeps": [("step.sweeps=3", "step.local=gibbs")],
    **each("output.kept", "1"),
    "columns.use": [],
}
VALUES: dict[str, dict[str, list[Case]]] = {
    "mixture": ONE_VIEW,
    "crosscat": SEVERAL_VIEWS,
    "ibp": FEATURES,
    "regression": REGRESSION,
    "svi": GAUSSIANS,
    "svi factorization": RATINGS,
    "svi lda": TOPICS,
}
REFUSED = {"crosscat": {GammaPrior}}  # views that split and merge have no gamma prior
NO_VALUE = {"svi factorization": {"columns.use"}, "svi lda": {"columns.use"}}  # a sparse table has no such columns
