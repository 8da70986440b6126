"""Our use of rich: names from tables, files and configurations are shown as they are, never interpreted as markup, and
cannot control the terminal."""

from __future__ import annotations

import sys

import rich.console
import rich.text

from mpibayes.text import visible


class Console(rich.console.Console):
    """Console that makes plain texts, such as cells of tables, visible and without markup."""

    def __init__(self, **more):
        # also in a notebook, write to the file
        super().__init__(markup=False, emoji=False, force_jupyter=False, **more)

    def render_str(self, text: str, **more) -> rich.text.Text:
        return super().render_str(visible(text), **more)


def output() -> Console:
    """Console for standard output. Off a terminal rich assumes 80 columns, which would fold the tables."""
    return Console(width=None if sys.stdout.isatty() else 120)


class Text(rich.text.Text):
    """A single-line text, whatever its content; `line` starts another."""

    def __init__(self, text: str = "", *arguments, **more):
        super().__init__(visible(text), *arguments, **more)

    def append(self, text: str | rich.text.Text, style=None) -> Text:
        return super().append(visible(text) if isinstance(text, str) else text, style)

    def line(self, text: str, style=None) -> Text:
        return super().append("\n" + visible(text), style)
