"""Progress of a run while `fit` waits for it: log lines, a display on a terminal, or one in a notebook."""

from __future__ import annotations

import html
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from mpibayes.errors import MpibayesError
from mpibayes.hpc.registry import ROOMS, scalars_of
from mpibayes.hpc.run.live import panel
from mpibayes.hpc.run.progress import line
from mpibayes.hpc.run.status import NAME, read_status
from mpibayes.io.files import chain_directories
from mpibayes.text import visible

PROGRESS = re.compile(r"^(\S+ )?cycle=\d+/")  # a progress line of the log, which displays replace
Status = Mapping[str, Any]


class Display(Protocol):
    def say(self, text: str) -> None:
        """Show a line of text from the run, or from `fit`."""

    def show(self, chains: Sequence[Status]) -> None:
        """Show the chains' progress."""

    def close(self) -> None:
        """End the display."""


def display_for(progress: bool) -> Display:
    """Choose the display that suits the environment. progress: False for none."""
    if not progress:
        return Silent()
    if _in_notebook():
        return Notebook()
    return Terminal() if sys.stdout.isatty() else Lines()


def _in_notebook() -> bool:
    """True in a notebook's kernel, which can display HTML."""
    if "IPython" not in sys.modules:
        return False
    shell = sys.modules["IPython"].get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def statuses(folder: Path, since: float) -> list[Status]:
    """Read status.json of each chain that was written after `since`, seconds since 1970."""
    statuses: list[Status] = []
    try:
        for place in chain_directories(folder):
            if (place / NAME).stat().st_mtime >= since:
                statuses.append({**read_status(place), "chain": place.name if place != folder else ""})
    except (OSError, MpibayesError):
        pass  # not there yet
    return statuses


def in_words(chain: Status) -> str:
    """Describe one chain in a line: chain-1: cycle=120/2000 K=37 ..."""
    if chain.get("cycle") is None or not chain.get("cycles"):
        return ""
    kind = chain.get("family")
    scalars = scalars_of(kind) if kind in ROOMS else ()
    name = f"{chain['chain']}: " if chain["chain"] else ""
    state = "" if chain.get("state") == "running" else f" ({chain.get('state')})"
    return visible(name + line(chain, scalars, {}) + state)


class Silent:
    """A display that shows nothing, not even errors, since these are raised."""

    def say(self, text: str) -> None:
        pass

    def show(self, chains: Sequence[Status]) -> None:
        pass

    def close(self) -> None:
        pass


class Lines:
    """Prints the lines of the run's log as they arrive."""

    def say(self, text: str) -> None:
        print(visible(text), flush=True)

    def show(self, chains: Sequence[Status]) -> None:
        pass

    def close(self) -> None:
        pass


class Terminal:
    """A bar per chain, redrawn in place below the log lines."""

    def __init__(self) -> None:
        from rich.live import Live

        from mpibayes.terminal import Console

        self._live = Live(console=Console(file=sys.stdout), refresh_per_second=4, transient=True)
        self._live.start()

    def say(self, text: str) -> None:
        if not PROGRESS.match(text):
            self._live.console.print(visible(text), highlight=False)

    def show(self, chains: Sequence[Status]) -> None:
        from rich.console import Group

        there = [c for c in chains if c.get("cycle") is not None and c.get("cycles") and c.get("family") in ROOMS]
        names = [f" {c['chain']}" if c["chain"] else "" for c in there]
        self._live.update(Group(*(panel(c, scalars_of(c["family"]), name) for c, name in zip(there, names))))

    def close(self) -> None:
        self._live.stop()


class Notebook:
    """A display in HTML, updated in place; with plain text for other readers of the notebook."""

    def __init__(self) -> None:
        self._said: list[str] = []
        self._chains: Sequence[Status] = ()
        self._started = time.monotonic()
        self._handle: Any = None
        self._shown = ""

    def say(self, text: str) -> None:
        if not PROGRESS.match(text):
            self._said.append(re.sub(r"^\d{4}-\d\d-\d\dT\S+ ", "", text))
            self._update()

    def show(self, chains: Sequence[Status]) -> None:
        self._chains = chains
        self._update()

    def close(self) -> None:
        self._update()

    def _update(self) -> None:
        from IPython.display import display

        if repr(self) == self._shown:
            return
        self._shown = repr(self)
        if self._handle is None:
            self._handle = display(self, display_id=True)
        else:
            self._handle.update(self)

    def __repr__(self) -> str:
        return "\n".join([*map(visible, self._said), *filter(None, map(in_words, self._chains))])

    def _repr_html_(self) -> str:
        parts = [f"<div>{html.escape(visible(text))}</div>" for text in self._said]
        for chain in self._chains:
            words = in_words(chain)
            if words:
                bar = f'<progress value="{chain["cycle"]}" max="{chain["cycles"]}"></progress>'
                parts.append(f"<div>{bar} <code>{html.escape(words)}</code></div>")
        return "".join(parts)
