"""Rules of links that are given by name: a child, and its parent or two (docs/links.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from mpibayes.hpc.config.against_table import nearest_column
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.config.places import Report, shown
from mpibayes.hpc.crosscat.keys import Model
from mpibayes.hpc.data.bins import MOST_CONTEXTS, most_contexts
from mpibayes.hpc.links.bins import n_contexts as contexts_of_number
from mpibayes.hpc.links.coding import MOST_CODES
from mpibayes.hpc.links.crossed import MOST_CASES
from mpibayes.io import table
from mpibayes.text import counted

LINKS = "model", "links"


def between_keys(model: Model, report: Report) -> None:
    """Report violations of the rules about links between columns."""
    parents: dict[str, tuple[str, ...]] = {}
    for child, *above in model.named_links:
        again, earlier = child in parents, parents.setdefault(child, tuple(above))
        every = list(dict.fromkeys((*earlier, *above)))
        if len(every) > 2:
            what = f"{shown(child)} has {len(every)} parents, {', '.join(map(shown, every))}; a column has at most two"
            report.add(LINKS, what)
        elif earlier != tuple(above) and len(every) > 1:
            report.add(LINKS, f"{shown(child)} is listed twice; give both parents in one link")
        elif len(set(above)) < len(above):
            report.add(LINKS, f"{shown(above[0])} is listed twice as a parent of {shown(child)}; list it once")
        elif again:
            report.add(LINKS, f"the link {shown([child, *above])} is listed twice; list it once")
    for circle in _circles(parents):
        around = " on ".join(map(shown, [*circle, circle[0]]))
        report.add(LINKS, f"{around}: links go in a circle; take one of them out")


def _circles(parents: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
    """Return cycles of links, one at least if there are any: lists of columns, each a child of the next."""
    result: list[list[str]] = []
    done: set[str] = set()

    def visit(walk: list[str]) -> None:
        for parent in parents.get(walk[-1], ()):
            if parent in walk:
                result.append(walk[walk.index(parent) :])
            elif parent not in done:
                visit([*walk, parent])
        done.add(walk[-1])

    for child in parents:
        if child not in done:
            visit([child])
    return result


def against_table(config: Config, by_name: Mapping[str, table.Column], report: Report) -> None:
    """Report links that do not fit the table's columns."""
    used = {c: column for c, column in by_name.items() if c not in config.unused}
    joint = {c for block in config.blocks.values() for c in block.columns}
    fit = [c for c, column in used.items() if column.levels]
    for child, parent in config.of(Model).pairs:
        for name in (child, parent):
            if name not in used:
                report.add(LINKS, f"the run has no column {shown(name)}; {nearest_column(name, fit)}")
        if child in used and child not in fit:  # see `_check_lines` and `_check_children`
            if parent in fit:
                _check_link(used[child], used[parent], config.of(Model).has_views, report)
            continue
        if parent in used and parent not in fit and (parent in joint or config.of(Model).has_views):
            where = "a block" if parent in joint else "views"
            what = f"column {shown(parent)} is {used[parent].kind}, and no column depends on a number in {where}"
            report.add(LINKS, what)
        elif parent in used and used[parent].kind == "survival":
            report.add(LINKS, f"column {shown(parent)} is a survival column; no column can depend on one")
        elif child in fit and parent in used:
            _check_link(used[child], used[parent], config.of(Model).has_views, report)
    _check_two(config.of(Model), used, report)


def _check_two(model: Model, used: Mapping[str, table.Column], report: Report) -> None:
    """Report columns that cannot have the two parents that they are given."""
    n_contexts = _contexts_of_parents(model, used)
    for child, *above in model.named_links:
        if len(above) < 2 or not {child, *above} <= set(used):
            continue
        if not used[child].levels:
            what = f"column {shown(child)} is {used[child].kind}; a column with two parents is categorical or boolean"
            report.add(LINKS, f"{what}. Give {shown(child)} one of them, or take the link out")
            continue
        n = prod(n_contexts[name] for name in above)
        each = " and ".join(f"{n_contexts[name]} contexts of {shown(name)}" for name in above)
        for name in (name for name in above if not used[name].levels and n_contexts[name] < _least(model, used[name])):
            what = f"the {each} leave {shown(name)} fewer than two bins, since there are at most {MOST_CONTEXTS}"
            report.add(LINKS, f"{what} pairs; give {shown(child)} one of them")
        if n > MOST_CONTEXTS:
            report.add(LINKS, f"the {each} make {n}, more than {MOST_CONTEXTS}; give {shown(child)} one of them")
        elif n * (len(used[child].levels) + 1) > MOST_CODES:
            what = f"{len(used[child].levels):,} levels of {shown(child)} in the {each}"
            report.add(LINKS, f"{what} make more than {MOST_CODES:,} codes; give it one of them")
    cases = prod(n_contexts[name] for name in sorted(set(model.seconds.values()) & set(n_contexts)))
    if cases > MOST_CASES:
        what = f"second parents have {cases:,} combinations of contexts, more than {MOST_CASES}"
        report.add(LINKS, f"{what}; put the parent with fewer levels second, or give fewer columns two parents")


def _least(model: Model, number: table.Column) -> int:
    """Fewest contexts of a numeric parent: its atoms, and two bins."""
    return 2 + (0 if model.plain else len(number.atoms))


def _contexts_of_parents(model: Model, used: Mapping[str, table.Column]) -> dict[str, int]:
    """Return the number of contexts of each column that may be one of two parents, by name."""
    columns = [replace(c, atoms=()) for c in used.values()] if model.plain else list(used.values())
    pairs = [(of[1], of[2]) for of in model.named_links if len(of) == 3 and set(of) <= set(used)]
    given = {
        c.name: contexts_of_number(replace(c, cuts=model.binned[c.name])) for c in columns if c.name in model.binned
    }
    with_levels = {c.name: min(len(c.levels), MOST_CONTEXTS) for c in columns if c.levels}
    return with_levels | most_contexts(columns, pairs) | given


def _check_link(child: table.Column, parent: table.Column, several: bool, report: Report) -> None:
    """Report an impossible link. several: True if there may be several views."""
    lacks = f"column {shown(parent.name)} lacks {counted(parent.n_missing, 'cell')}"
    if several and parent.n_missing:
        what = f"{lacks}; in views, a parent must have no missing cells"
        report.add(LINKS, f'{what}. Link {shown(child.name)} to another one, or set family = "mixture"')
    elif not parent.levels and parent.n_missing:
        what = f"{lacks}; a numeric parent must have no missing cells"
        report.add(LINKS, f"{what}. Link {shown(child.name)} to another column, or impute these cells")
    elif parent.levels and min(len(parent.levels), MOST_CONTEXTS) * (len(child.levels) + 1) > MOST_CODES:
        contexts = f"{min(len(parent.levels), MOST_CONTEXTS)} contexts of {shown(parent.name)}"
        what = f"{len(child.levels):,} levels of {shown(child.name)} in {contexts} make more than {MOST_CODES:,} codes"
        report.add(LINKS, f"{what}; take the link out")
