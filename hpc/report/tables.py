"""Common parts of reports of all models: a head, warnings, numbers as text and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from mpibayes.errors import MpibayesError
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.posterior.chains import Chain, begun
from mpibayes.hpc.posterior.scalars import ScalarSummary, r_hat_in_words
from mpibayes.hpc.report.document import GOOD, Section, Verdict
from mpibayes.hpc.report.drawing import Picture
from mpibayes.hpc.report.findings import Findings
from mpibayes.hpc.run.status import read_status
from mpibayes.hpc.scalar import Scalar, shown
from mpibayes.io.files import chain_directories
from mpibayes.text import counted, number

WARNED = 4  # warnings of a verdict, at most


@dataclass
class Report:
    """A report before it is written: `parts` for report.txt, `document` for summary.json, PNG `pictures` and text
    `files` by name. parts: makes them anew, for rich changes what it prints.

    For the terminal and the page: the `verdict`; `top`, small tables of what was found; and the page's `sections`.
    chains: those of the run, whose traces were read. Where they are short of their end, text and verdict begin with
    that. findings: how rows and columns are grouped, None of a model that groups none. subject: what the verdict is
    about, by default the run directories; "" where its headline names it. beside: other reports, by the folder below
    this one's that they lie in. linked: columns of the table and those that they lean on inside clusters, in most
    draws, the pairs first that say most.
    """

    parts: Callable[[], Sequence[Any]]
    document: dict[str, Any]
    pictures: dict[str, Picture]
    files: dict[str, str] = field(default_factory=dict)
    verdict: Verdict = field(kw_only=True)
    top: Callable[[], Sequence[Any]] = tuple
    sections: Callable[[], Sequence[Section]] = tuple
    chains: Sequence[Chain] = ()
    findings: Callable[[], Findings | None] = lambda: None
    subject: str | None = None
    beside: Mapping[str, Report] = field(default_factory=dict)
    linked: Sequence[tuple[str, str]] = ()

    def __post_init__(self) -> None:
        words = early_look(self.chains)
        if words:
            later = self.parts
            self.parts = lambda: [_bold(words), "", *later()]
            self.verdict = replace(self.verdict, found=[words, *self.verdict.found])


@dataclass(frozen=True)
class Facts:
    """A title, and lines of a word and what it says."""

    title: str
    lines: Sequence[tuple[str, str]]

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.table import Table

        from mpibayes.terminal import Text

        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        for key, value in self.lines:
            grid.add_row(Text(key), Text(value))
        yield Text(self.title, style="bold")
        yield grid


def head(chains: Sequence[Chain], about: Sequence[tuple[str, str]]) -> Facts:
    """The title and some lines of a word and what it says."""
    return Facts(f"Posterior of {', '.join(dict.fromkeys(str(c.home) for c in chains))}", about)


def early_look(chains: Sequence[Chain]) -> str:
    """Say how far chains are that have not reached their end; "" where all have."""
    if not any(chain.early for chain in chains):
        return ""
    most = "at most " if any(c.config.run.judged for c in chains) else ""
    planned = span([c.config.run.cycles for c in chains], "cycle")
    return f"An early look: {span([c.last for c in chains])} of {most}{planned}."


def _bold(words: str) -> Any:
    from mpibayes.terminal import Text

    return Text(words, style="bold")


def not_started(chains: Sequence[Chain]) -> list[tuple[str, str]]:
    """The chains that a run is to have and that have no cycles yet."""
    lines = []
    for home, planned in {c.home: c.config.run.chains for c in chains}.items():
        there = len(begun(home)) or len(chain_directories(home))
        if there < planned:
            have = "has" if planned - there == 1 else "have"
            missing = f"{planned - there} of the {planned} chains of {home} {have} no cycles yet"
            lines.append(("missing", f"{missing}: run the same command again"))
    return lines


def states(chains: Sequence[Chain]) -> str:
    """Describe whether the chains have finished, and on how many ranks they last ran."""
    states, ranks = [], set()
    for chain in chains:
        try:
            status = read_status(chain.folder)
        except MpibayesError:
            continue
        states.append(str(status.get("state", "unknown")))
        ranks.add(status.get("ranks"))
    text = " / ".join(dict.fromkeys(states)) or "state unknown"
    ranks.discard(None)
    if len(ranks) == 1:
        text += f", last on {counted(ranks.pop(), 'rank')}"
    return text


def shards(config: Config) -> str:
    n = config.run.shards
    return "shards decided by the run" if n == "auto" else counted(n, "shard")


def span(values: Sequence[int], noun: str = "") -> str:
    """7, or 7 to 12; with what they count, if it is given."""
    low, high = min(values), max(values)
    text = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"{text} {noun}{'s' * (high != 1)}" if noun else text


def fixed(x: float, digits: int) -> str:
    """A number with so many digits after the point; - for one that does not exist."""
    return f"{x:,.{digits}f}" if np.isfinite(x) else "-"


def plain_table(*columns: str) -> Any:
    """A table whose first column is of words, and the others of numbers, but for a last one without a name."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    for i, name in enumerate(columns):
        words = i == 0 or (i == len(columns) - 1 and not name)
        table.add_column(name, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    return table


def scalar_table(
    scalars: Sequence[Scalar],
    summaries: Mapping[str, ScalarSummary],
    remarks: Mapping[str, str],
    unjudged: Collection[str] = (),
) -> Any:
    """A line for each scalar that has a label and a summary. unjudged: those whose ESS and R-hat are left out."""
    table = plain_table("after burn-in", "mean", "sd", "5 %", "95 %", "ESS", "R-hat", "")
    for scalar in shown(scalars):
        if scalar.label and scalar.name in summaries:
            cells = _cells(scalar, summaries[scalar.name], scalar.name not in unjudged)
            unit = "" if scalar.unit == "nats" else scalar.unit  # which go without saying
            table.add_row(scalar.label, *cells, remarks.get(scalar.name, unit))
    return table


def _cells(scalar: Scalar, s: ScalarSummary, judged: bool) -> list[str]:
    if s.fixed:
        return [number(s.mean) if abs(s.mean) < 1e4 else fixed(s.mean, 1), "fixed", "", "", "", ""]
    digits = scalar.form.digits
    cells = [
        fixed(s.mean, digits), fixed(s.sd, digits), *(fixed(x, 0 if scalar.whole else digits) for x in (s.low, s.high))
    ]  # fmt: skip
    return [*cells, *([fixed(s.ess, 0), r_hat_in_words(s.r_hat)] if judged else ["", ""])]


def means(scalar: Scalar, chains: Sequence[Mapping[str, ScalarSummary]]) -> list[str]:
    """Mean in each chain, for a column of `chain_table`."""
    return [fixed(c[scalar.name].mean, scalar.form.digits) for c in chains]


def sds(scalar: Scalar, chains: Sequence[Mapping[str, ScalarSummary]]) -> list[str]:
    """Standard deviation in each chain, for a column of `chain_table`."""
    return [fixed(c[scalar.name].sd, scalar.form.digits) for c in chains]


def warnings_in_words(warnings: Sequence[str]) -> Any:
    from mpibayes.terminal import Text

    text = Text()
    for i, warning in enumerate(warnings):
        begin = text.line if i else text.append
        begin("warning: ", style="bold yellow").append(warning)
    return text


def commands_in_words(commands: Sequence[tuple[str, str]]) -> list[Any]:
    """Each with what it does, whole lines whatever the width."""
    from mpibayes.terminal import Text

    return [
        part
        for words, command in commands
        for part in (Text(f"To {words}:"), Text(f"  {command}", style="cyan", no_wrap=True))
    ]


def sentence(text: str) -> str:
    """A text with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}." if text and text[-3:] != "..." else text


def warned(warnings: Sequence[str]) -> list[str]:
    """The warnings as sentences of a verdict; of many the first."""
    sentences = list(map(sentence, warnings[:WARNED]))
    left = len(warnings) - len(sentences)
    return [*sentences, f"{counted(left, 'more warning')} in report.txt."] if left else sentences


def use_it(run: Any, sound: str, best: Chain | None = None) -> list[str]:
    """Next steps with a sound result; none with another. best: the chain to use alone."""
    if best is not None:
        return [
            f"Use {best.name}, which predicts best: mpibayes predict {best.folder} NEW.csv -o OUT.csv scores new rows, "
            f"mpibayes query {best.folder} answers questions."
        ]
    home = run.chains[0].home
    return [f"Use it: mpibayes predict {home} NEW.csv -o OUT.csv scores new rows."] if sound == GOOD else []


def finite(value: Any) -> Any:
    """A number for JSON, which has no NaN."""
    return None if isinstance(value, float) and not np.isfinite(value) else value


def machine_scalars(scalars: Mapping[str, ScalarSummary]) -> dict[str, Any]:
    return {key: {name: finite(v) for name, v in asdict(s).items()} for key, s in scalars.items()}
