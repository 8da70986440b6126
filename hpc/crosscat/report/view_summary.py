"""Summary of a view for the report: the clusters of its representative partition, and what characterises them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mpibayes.hpc.components.statistics import Statistics
from mpibayes.hpc.crosscat.draws import OfColumns, Posterior, ViewDraw
from mpibayes.hpc.crosscat.levels.cells import in_intervals
from mpibayes.hpc.crosscat.levels.of_run import levels_of_views
from mpibayes.hpc.crosscat.report import distribution, groups, profiles, survival, telling
from mpibayes.hpc.crosscat.report.agreement import Agreement
from mpibayes.hpc.crosscat.report.beside_links import BesideLinks
from mpibayes.hpc.crosscat.report.groups import ShownLevel
from mpibayes.hpc.crosscat.report.links import Links
from mpibayes.hpc.crosscat.report.names import against_the_whole, most_telling, name_clusters
from mpibayes.hpc.crosscat.report.profiles import BlockProfile, ColumnProfile
from mpibayes.hpc.crosscat.report.traits import Trait, picture, traits_of
from mpibayes.hpc.crosscat.summaries.partitions import contingency, jaccard, ordered_sizes
from mpibayes.hpc.crosscat.summaries.representative import COMPARED, SAMPLED, Representative
from mpibayes.hpc.crosscat.summaries.shares import PopulationShares
from mpibayes.hpc.crosscat.summaries.tallies import cuts as cuts_of
from mpibayes.hpc.posterior.chains import evenly
from mpibayes.hpc.report.document import Levels, Numbers
from mpibayes.io.rows import Rows

LISTED = 30  # most clusters in the table
BROWSED = 500  # most clusters on the page
LEAST_SHARE = 0.001  # smaller clusters share one line


@dataclass
class ClusterLine:
    """One cluster in the report."""

    number: int
    rows: int
    share: float
    stability: float
    traits: list[Trait] = field(default_factory=list)
    name: str = ""  # a short name, see `names.name_clusters`
    population: float = np.nan  # share of the population, by survey weights, and its standard error
    population_error: float = np.nan


@dataclass
class ViewSummary:
    """A view, the only one of a mixture, and the clusters of its representative partition.

    together: see `Dependence.together`; for a column alone, the share of draws in which it is alone. NaN for a mixture.
    """

    number: int
    representative: Representative
    agreement: Agreement  # of the chains, on the rows
    together: float = np.nan
    clusters: list[ClusterLine] = field(default_factory=list)
    profiles: list[ColumnProfile] = field(default_factory=list)
    columns: list[ColumnProfile] = field(default_factory=list)  # in the picture of the profiles, in order
    blocks: list[BlockProfile] = field(default_factory=list)
    curves: list[survival.Curves] = field(default_factory=list)  # of its survival columns, in all clusters
    browsed: list[ClusterLine] = field(default_factory=list)  # up to BROWSED, starting with `clusters`
    whole: list[Levels | Numbers] = field(default_factory=list)  # all columns in `browsed`, for the page
    ordered: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))  # (D, most) sizes of the draws' clusters
    shared: telling.Shared = telling.nothing_shared  # of its columns, in `clusters`
    beside: BesideLinks = field(default_factory=BesideLinks)
    levels: list[ShownLevel] = field(default_factory=list)  # groups of clusters, few first; [] of a slight view
    spread: str = ""  # of a column alone, see `distribution.in_words`
    population: PopulationShares | None = None  # of its clusters, where rows have weights

    @property
    def slight(self) -> bool:
        """True if the view groups no columns or no rows."""
        return self.representative.slight

    @property
    def names(self) -> list[str]:
        """The view's columns of the table, the most informative about its clusters first."""
        information = dict.fromkeys(self.representative.of.names, 0.0)
        for c in self.profiles:
            if c.title in information:
                information[c.title] += c.information
        return sorted(information, key=lambda name: -information[name])


def describe(
    run: Posterior, views: Sequence[ViewSummary], kept: Sequence[tuple[int, int]], links: Links | None,
    weights: np.ndarray | None,
) -> None:  # fmt: skip
    """Compute stability, sizes and profiles of the clusters of every view. kept: (chain, cycle) of the kept draws;
    weights: survey weights of the training rows."""
    used = evenly(kept, COMPARED)
    overlaps = [np.zeros(len(view.representative.sizes)) for view in views]
    sizes: list[list[np.ndarray]] = [[] for _ in views]
    if weights is not None:
        for view in views:
            view.population = PopulationShares(view.representative.labels, weights)
    for _, draw in run.states(used):
        for view, overlap, of in zip(views, overlaps, sizes):
            r = view.representative
            z = draw.labels[r.of.nearest_view(draw)]
            together = contingency(r.labels, z)
            overlap += jaccard(together)
            of.append(np.bincount(z))
            if view.population is not None:
                view.population.add(z, together)
    for view, of in zip(views, sizes):
        view.ordered = ordered_sizes(of, max(len(s) for s in of))
    sample, statistics, linked = None, [None] * len(views), links.often if links else ()
    if run.likelihood:
        sample = run.sample(SAMPLED)
        chosen = [view.representative for view in views]
        statistics = run.statistics_of([(r.of, ViewDraw(r.cycle, r.labels, r.hyper)) for r in chosen])
    for view, overlap, of in zip(views, overlaps, statistics):
        _characterise(view, view.representative.of, view.representative, overlap / len(used), of, sample, linked)
    levels_of = levels_of_views(run, [(v.representative.of, len(v.representative.sizes)) for v in views], kept)
    for view, levels in zip(views, levels_of):
        if levels is not None:
            r = view.representative
            view.levels = groups.shown_levels(levels, r.of, r.hyper, view.shared, view.beside, weights)


def _characterise(
    view: ViewSummary, mine: OfColumns, r: Representative, stability: np.ndarray, statistics: Statistics | None,
    sample: Rows | None, linked: Sequence[tuple[str, str]],
) -> None:  # fmt: skip
    """Characterise a view's clusters by its columns. statistics: of the clusters; sample: rows of all columns; both are
    None without cells. linked: pairs of columns linked in most draws."""
    least = max(2, int(np.ceil(LEAST_SHARE * mine.n_rows)))
    shown = np.arange(min(LISTED, max(1, int(np.count_nonzero(r.sizes >= least)))))
    shared = telling.nothing_shared
    if statistics is not None and sample is not None:
        step = max(1, mine.n_rows // SAMPLED)
        cells, z = _cells(mine.columns, mine.take(sample)), r.labels[::step]
        cuts = {c.name: cuts_of(c, cells[c.name]) for c in mine.columns if not c.levels}
        codes = {name: in_intervals(x, cuts[name]) if name in cuts else x for name, x in cells.items()}
        view.beside, listed = BesideLinks(linked, codes, step), z < len(shown)
        apart = {c.name for c in mine.components.survival.columns}  # a censoring time is not informative
        alike = {name: x[listed] for name, x in codes.items() if name not in apart}
        shared = view.shared = telling.shared_of(alike, z[listed])
        if len(mine.names) == 1:
            view.spread = distribution.in_words(mine.columns, cells)
        counts, moments = mine.histograms(r.labels, cuts), mine.moments(r.labels)
        numbers = {name: profiles.Numbers(counts[name], *moments[name]) for name in cuts}
        view.profiles = profiles.profiles(mine.components, mine.components.prior(r.hyper), statistics, shown, numbers)
        view.blocks = profiles.block_profiles(mine.components, statistics, shown)
        view.curves = survival.curves(mine.components, r.hyper, statistics)
    repeated = view.beside.repeated([c.name for c in view.profiles], r.labels, len(r.sizes))
    traits = [traits_of(view.profiles, int(k), shared, repeated=repeated) for k in shown]
    view.columns = picture(view.profiles, shared, traits) if view.profiles else []
    browsed = np.arange(min(BROWSED, len(r.sizes)))
    if statistics is not None and sample is not None:

        def again():
            prior = mine.components.prior(r.hyper)
            return profiles.each_profile(mine.components, prior, statistics, browsed, numbers, compared=False)

        view.whole = [against_the_whole(c) for c in again()]
        traits += most_telling(again, view.whole, browsed[len(shown) :], repeated[:, : len(browsed)])
    traits += [[]] * (len(browsed) - len(traits))
    view.browsed = [
        ClusterLine(int(k) + 1, int(r.sizes[k]), float(r.sizes[k] / mine.n_rows), float(stability[k]), traits[k])
        for k in browsed
    ]
    for line, name in zip(view.browsed, name_clusters([line.traits for line in view.browsed])):
        line.name = name
    if view.population is not None:
        for line, share, error in zip(view.browsed, view.population.share, view.population.error):
            line.population, line.population_error = float(share), float(error)
    view.clusters = view.browsed[: len(shown)]


def _cells(columns, rows: Rows) -> dict[str, np.ndarray]:
    return {c.name: getattr(rows, c.block)[:, c.index] for c in columns}
