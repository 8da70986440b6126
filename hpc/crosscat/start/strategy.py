"""Start of a chain: the meaning of `sampler.strategy`, `sampler.init` and [anneal], and the cycle from which draws
count.

`auto` starts from many random clusters, of which most soon empty. One cluster, divided by moves, would leave a cluster
of several kinds of rows for thousands of cycles: dividing it in two gains nothing while the two share the kinds. But
learned links between columns with levels pay for their tables in every cluster: among many clusters few are found, and
clusters then stand in for the others. A mixture with such links, and no lines, starts from one. On a large table every
chain starts from the clusters of a sample of its own (sample.py).
`anneal` starts from a few rows and adds the others by `anneal.schedule`. `sequential+gibbs` seats all rows one by one,
and `prior+gibbs` draws their clusters from the prior; with `sampler.split_merge = 0` these three are the strategies of
Obermeyer, Glidden & Jonas 2014, section 2.4.
"""

from __future__ import annotations

from pathlib import Path

from mpibayes.errors import ConfigError
from mpibayes.hpc import settled
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.crosscat.keys import Model
from mpibayes.hpc.crosscat.moves.round import OFTEN, later
from mpibayes.hpc.crosscat.sampler_keys import Anneal, Sampler, growing_schedule
from mpibayes.hpc.crosscat.start.subsample import Annealing, planned_cycles
from mpibayes.text import counted, duration

START_ROWS = 1000  # rows of the first subsample, but at most a quarter of all rows
INITIAL_VIEWS = 16
SEARCH_ROWS = 10_000  # sample of a single search for views
CLUSTER_ROWS = 0.1, 10_000, 50_000  # sample in which clusters are first looked for: share of the rows, least, most
MIN_ROWS_SAMPLED = 30_000  # training rows from which on there is such a sample
ROWS_OF_EACH = 3000  # sample of each of several searches: as good, in a third of the time
SEARCHES, MIN_ROWS_JUDGED = 3, 500  # of a chain; training rows for several: few judges choose by chance
SEARCHES_OF_CLUSTERS, MAX_SAMPLES = 2, 10  # of a mixture that grew; rows up to which it has any, in samples
JUDGES = 0.1, 3000  # training rows that judge several searches: share and most
NEW_JUDGES = 0.5, 50  # new rows that judge after growth: share and least
PROBES = 0.1, 50, 1500  # rows of a search held out to judge its trials: share, least and most
RANDOM_CLUSTERS, ROWS_OF_RANDOM = 128, 8  # at the start; least rows of each: more end in the same clusters
CYCLES_OF_ROWS = 20  # first cycles from random clusters, without moves of columns: similar rows have not met yet
SETTLING_CYCLES = 20  # full-data cycles per shard after an annealed start (docs/math.md 3.3: 10 leave a bias)

STARTS = {
    "one": "in one cluster",
    "sequential": "added one by one",
    "prior": "in clusters drawn from the prior",
    "overdispersed": "in a random number of random clusters",
}


def start_rows(config: Config, n_rows: int) -> int:
    """Return the number of rows of the first subsample."""
    given = config.of(Anneal).start_rows
    return max(1, min(n_rows // 4, START_ROWS)) if given == "auto" else min(given, n_rows)


def annealing(config: Config, n_rows: int) -> Annealing | None:
    """Return the settings of the subsample's growth; None if all rows are active from the start."""
    if not growing_schedule(config.of(Sampler), config.of(Anneal)):
        return None
    a = config.of(Anneal)
    return Annealing(a.schedule, a.passes, start_rows(config, n_rows), a.seconds)


def growth_cycles(config: Config, n_rows: int) -> int | None:
    """Return the number of cycles until all rows are active: 0 if from the start, None if the clock decides."""
    settings = annealing(config, n_rows)
    return 0 if settings is None else planned_cycles(settings, n_rows)


def growth_cost(config: Config, n_rows: int) -> float:
    """Return the cost of growth, in cycles over all rows; 0 for a plan by the clock, whose cost is unknown here."""
    settings = annealing(config, n_rows)
    if settings is None or settings.schedule == "seconds":
        return 0.0
    return settings.passes if isinstance(settings.schedule, str) else settings.schedule[-1][0]


def initial(config: Config, n_rows: int) -> str:
    """Return the kind of initial partition, with "auto" resolved."""
    sampler = config.of(Sampler)
    if sampler.init != "auto":
        return sampler.init
    if sampler.strategy == "auto":
        return "one" if _learns_from_one(config, n_rows) else "random"
    if sampler.strategy == "prior+gibbs" or (sampler.strategy == "anneal" and config.of(Anneal).schedule == "constant"):
        return "prior"
    return "sequential"


def _learns_from_one(config: Config, n_rows: int) -> bool:
    """True if a chain starts from one cluster by default: in a mixture that learns links, none of them a line, without
    bases of the whole table, where a cluster pays for what differs alone; on a table too small for a sample."""
    model = config.of(Model)
    forest = model.parents == "forest" and not model.lined and model.link_base == "uniform"
    return forest and model.likelihood and not model.has_views and n_rows < MIN_ROWS_SAMPLED


def random_clusters(config: Config, n_rows: int) -> int:
    """Return the number of clusters of init = "random"."""
    given = config.of(Sampler).init_clusters
    return clusters_at_random(n_rows) if given == "auto" else given


def clusters_at_random(n_rows: int) -> int:
    """Return the number of random clusters from which n_rows start by default."""
    return max(1, min(RANDOM_CLUSTERS, n_rows // ROWS_OF_RANDOM))


def cycles_alone(config: Config, n_rows: int) -> int:
    """Return the number of first cycles in which moves of columns are left out."""
    at_random = config.of(Sampler).init == "random" and not cluster_rows(config, n_rows)
    return CYCLES_OF_ROWS if config.of(Model).has_views and at_random else 0


def views_at_first(config: Config) -> int:
    """Return the number of initial views, to which columns are dealt at random, or by dependence before a search."""
    given = config.of(Sampler).init_views
    if not config.of(Model).has_views:
        return 1
    return INITIAL_VIEWS if given == "auto" else given


def pilot_rows(config: Config, n_rows: int) -> int:
    """Return the number of rows of the sample on which views are searched for, or without views clusters; 0: none."""
    sampler, rows = config.of(Sampler), config.of(Sampler).init_rows
    if rows == "auto":
        rows = 0
        if sampler.strategy == "auto" and sampler.init == "auto":
            of_search = SEARCH_ROWS if searches(config, n_rows) == 1 else ROWS_OF_EACH
            rows = of_search if config.of(Model).has_views else _rows_for_clusters(n_rows)
    return min(rows, n_rows) if config.of(Model).likelihood else 0


def cluster_rows(config: Config, n_rows: int) -> int:
    """Return the number of rows of the sample on which clusters are looked for, once there are views; 0: none."""
    rows = pilot_rows(config, n_rows)
    return _rows_for_clusters(n_rows) if rows and config.of(Model).has_views else rows


def _rows_for_clusters(n_rows: int) -> int:
    share, fewest, most = CLUSTER_ROWS
    return max(fewest, min(most, round(share * n_rows))) if n_rows >= MIN_ROWS_SAMPLED else 0


def searches(config: Config, n_rows: int) -> int:
    """Return the number of searches for views that a chain makes on n_rows training rows, if it makes any."""
    given, several = config.of(Sampler).searches, n_rows >= MIN_ROWS_JUDGED
    return (SEARCHES if several else 1) if given == "auto" else given


def rows_again(config: Config, n_rows: int) -> int:
    """Return the number of rows of searches that are repeated because clusters are too small for the sample of several
    searches; 0 if the table has hardly more rows, or the sample is another than the default."""
    again = pilot_rows(config, n_rows) == ROWS_OF_EACH and searches(config, n_rows) > 1 and n_rows >= 2 * ROWS_OF_EACH
    return min(SEARCH_ROWS, n_rows) if again else 0


def rows_of_fold(of_search: int) -> int:
    """Return the number of rows that a fold is to leave when views are combined: as many as a search has, or half of a
    large sample, since each set of columns has a chain for each fold."""
    return of_search if of_search <= ROWS_OF_EACH else max(ROWS_OF_EACH, of_search // 2)


def further_searches(config: Config, n_rows: int) -> int:
    """Return the number of searches added by default to a single one that finds several views, where judges would be
    too few."""
    return SEARCHES - 1 if config.of(Sampler).searches == "auto" and n_rows < MIN_ROWS_JUDGED else 0


def searches_of_growth(config: Config, n_rows: int, n_new: int) -> int:
    """Return the number of searches with which a chain compares itself after growth by n_new rows: none if it had none
    at the start, or if judges would be too few; none of a mixture if a sample would show little of its clusters."""
    sampler, model = config.of(Sampler), config.of(Model)
    if not model.likelihood or n_rows < MIN_ROWS_JUDGED or not n_new_judges(n_new):
        return 0
    if not model.has_views:
        return SEARCHES_OF_CLUSTERS if n_rows <= MAX_SAMPLES * ROWS_OF_EACH else 0
    if not sampler.init_rows:
        return 0
    return SEARCHES if sampler.searches == "auto" else max(SEARCHES, sampler.searches)


def n_judges(n_rows: int, n_searches: int) -> int:
    """Return the number of training rows that judge; a single search needs no judges."""
    share, most = JUDGES
    return min(round(share * n_rows), most) if n_searches > 1 else 0


def n_new_judges(n_new: int) -> int:
    """Return the number of new rows that judge searches and the present chain; 0 if they would be too few."""
    share, fewest = NEW_JUDGES
    n = min(round(share * n_new), JUDGES[1])
    return n if n >= fewest else 0


def rows_of_search(n_rows: int, most: int, judges: int) -> int:
    """Return the number of training rows of each search, at most `most`, without the judges of searches and trials."""
    left = n_rows - judges
    return min(most, left - n_probes(left, most))


def n_probes(n_rows: int, most: int) -> int:
    """Return the number of n_rows that a search on `most` of them holds out to judge its trials; 0 if they would be too
    few."""
    share, fewest, greatest = PROBES
    n = min(greatest, most // 2, max(n_rows - most, round(share * n_rows)))
    return n if n >= fewest else 0


def labels_path(config: Config) -> Path:
    """Return the file or run directory of init = "labels"."""
    return config.resolve(config.of(Sampler).init_labels)


def initial_of_chain(config: Config, number: int) -> str:
    """Return the initial partition's kind for chain `number`, from 0: the first overdispersed start is one cluster."""
    how = config.of(Sampler).init
    return "one" if how == "overdispersed" and number == 0 and config.run.chains > 1 else how


def burn_in(config: Config, n_rows: int, n_shards: int) -> int:
    """Return the number of cycles left out of summaries. After an annealed start shards must settle (docs/math.md
    3.3)."""
    cycles = config.run.cycles
    if config.run.burn_in != "auto":
        return config.run.burn_in
    growth = growth_cycles(config, n_rows)
    least = settled.BURN_IN if config.run.judged else cycles  # a judged run may end long before run.cycles
    if growth == 0:
        return min(cycles // 5, least)
    growth = cycles // 2 if growth is None else growth
    left = min(cycles - growth, 5 * least)
    return growth + max(left // 5, min(left // 2, SETTLING_CYCLES * n_shards))


def check_length(config: Config, n_rows: int) -> None:
    """Raise ConfigError if the chain would end, or its draws would count, before all rows are active."""
    problems = []
    growth = growth_cycles(config, n_rows) or 0
    given = config.of(Anneal).start_rows
    if annealing(config, n_rows) is not None and given != "auto" and given >= n_rows:
        problems.append(
            f"{config.where(('anneal', 'start_rows'))}: got {given}, and the table has {n_rows:,} training rows: "
            'nothing would be left to add; expected fewer, or "auto"'
        )
    elif growth and config.run.cycles <= growth:
        problems.append(
            f"{config.where(('run', 'cycles'))}: got {config.run.cycles}, but {n_rows:,} rows are added until cycle "
            f"{growth}; expected more than {growth}, {2 * growth} would do (or fewer anneal.passes)"
        )
    if growth and config.run.burn_in != "auto" and config.run.burn_in < growth:
        problems.append(
            f"{config.where(('run', 'burn_in'))}: got {config.run.burn_in}, but {n_rows:,} rows are added until cycle "
            f'{growth}, and no draw before counts; expected "auto", or {growth} or more'
        )
    if problems:
        raise ConfigError(f"{config.path}: the length of the chain does not fit", problems)


def start_in_words(config: Config, n_rows: int, n_columns: int, number: int = 0) -> str:
    """Describe the start of a chain; `config` has "auto" resolved."""
    how = initial_of_chain(config, number)
    if how == "random":
        clusters = f"in {counted(random_clusters(config, n_rows), 'random cluster')}"
    elif how == "labels":
        clusters = f"labelled as in {labels_path(config)}"
    else:
        clusters = STARTS[how]
    settings, every = annealing(config, n_rows), config.of(Sampler).split_merge
    rows = "all rows" if settings is None else f"{min(settings.start_rows, n_rows):,} of {n_rows:,} rows"
    if n := cluster_rows(config, n_rows) if how != "labels" else 0:
        rows, clusters = "all rows", f"in clusters found on a sample of {n:,}"
    if every == "auto":
        moves = f"in every cycle until {OFTEN}, then every {later(n_rows * n_columns)} cycles"
    else:
        moves = "never" if every == 0 else "in every cycle" if every == 1 else f"every {every} cycles"
    views = ""
    if config.of(Model).has_views and how != "labels":
        views = f"{views_in_words(config, n_rows, n_columns)}; in each view "
    return f'strategy = "{config.of(Sampler).strategy}": {views}{rows} {clusters}; split and merge moves {moves}'


def views_in_words(config: Config, n_rows: int, n_columns: int) -> str:
    """Describe the initial views."""
    sample, n = pilot_rows(config, n_rows), searches(config, n_rows)
    n_views = min(views_at_first(config), n_columns)
    if not sample:
        return counted(n_views, "random view")
    by = "a search" if n == 1 else f"the best of {n} searches"
    if more := further_searches(config, n_rows):
        by += f" (of {n + more} if it finds several)"
    rows = counted(rows_of_search(n_rows, sample, n_judges(n_rows, n)), "row")
    if again := rows_again(config, n_rows):
        rows += f" ({rows_of_search(n_rows, again, n_judges(n_rows, n)):,} if clusters are small)"
    return f"views from {by} on {rows}, {'each ' * (n > 1)}starting from at most {counted(n_views, 'view')}"


def growth_in_words(config: Config, n_rows: int) -> str:
    """Describe how long rows are added; "" if all are active from the start."""
    settings = annealing(config, n_rows)
    if settings is None:
        return ""
    if settings.schedule == "seconds":
        return (
            f"rows are added for about {duration(settings.seconds)}; the plan follows the clock: the run is not "
            "reproducible from the seed alone"
        )
    shape = settings.schedule if isinstance(settings.schedule, str) else "piecewise"
    cost = growth_cost(config, n_rows)
    passes = f"{cost:g} pass{'es' * (cost != 1)}"
    return f"rows are added until cycle {growth_cycles(config, n_rows)} ({shape} in {passes})"


def counting_in_words(config: Config) -> str:
    """Describe the cycle from which draws count."""
    if config.burn_in >= config.run.cycles:
        return f"no draws count: run.burn_in = {config.burn_in} of run.cycles = {config.run.cycles}"
    later = ", once all rows are in" if config.of(Anneal).schedule == "seconds" else ""
    ends = "; it ends sooner once it has settled" if config.run.judged else ""
    return f"draws count from cycle {config.burn_in + 1} of {config.run.cycles}{later}{ends}"
