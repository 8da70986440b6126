"""Common parts of several verbs: options, a length of time, standard output, and a line of progress."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import click

PATH = click.Path(path_type=Path)
SET = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key of CONFIG; VALUE is TOML, or plain text: run.seed=3, sampler.strategy=anneal, "
    "'anneal.schedule=[[2, 0.1], [10, 1.0]]'. Repeatable.",
)
TABLE = click.option("--table", type=PATH, help="Current location of the run's table, if it has moved.")
BURN_IN = click.option("--burn-in", type=click.IntRange(min=0), help="Cycles to leave out.  [default: run.burn_in]")


def force(help: str) -> Callable:
    return click.option("--force", "overwrite", is_flag=True, help=help)


def weighted(help: str) -> Callable:
    return click.option("--weighted/--unweighted", default=None, help=help)


def source(help: str) -> Callable:
    where = "  [default: beside the table, in the folder above, here, or where it was]"
    return click.option("--source", "sources", multiple=True, type=PATH, help=help + where)


def unseen(help: str) -> Callable:
    levels = click.Choice(["missing", "error"])
    return click.option("--unseen", type=levels, default="missing", show_default=True, help=help)


def seed(help: str | None = None) -> Callable:
    return click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=1, show_default=True, help=help)


class Duration(click.ParamType):
    """A length of time, such as 3h50m."""

    name = "time"

    def convert(self, value, param, ctx):
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def parse(self, text):
        from mpibayes.hpc.config.section import parse_duration

        return parse_duration(text)


def standard_output():
    """Console for standard output, imported on demand."""
    from mpibayes.terminal import output

    return output()


@contextlib.contextmanager
def on_terminal(console, first: str, line: Callable[..., str]):
    """On a terminal, show a line with `first`, and yield a function that replaces it by `line` of its arguments;
    elsewhere yield None."""
    if not console.is_terminal:
        yield None
        return
    with console.status(first) as live:
        yield lambda *at: live.update(line(*at))
