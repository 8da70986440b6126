"""Common parts of all models' reports: a head, warnings, numbers as text and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from mpibayes.errors import MpibayesError
from mpibayes.hpc.config.config import Config
from mpibayes.hpc.posterior.chains import Chain, begun
from mpibayes.hpc.posterior.scalars import ScalarSummary, r_hat_in_words
from mpibayes.hpc.report.document import GOOD, Command, Facts, Section, Traces, on_paper
from mpibayes.hpc.run.status import at_work, read_status
from mpibayes.hpc.scalar import Scalar, shown
from mpibayes.hpc.settled import Judgement
from mpibayes.io.files import chain_directories
from mpibayes.text import counted, number, span, took

Lines = list[tuple[str, str]]  # (term, text)
WARNED = 4  # most warnings in a verdict


def about_section(chains: Sequence[Chain], about: Sequence[tuple[str, str]]) -> Section:
    """Describe the run in lines of a term and its text."""
    homes = ", ".join(dict.fromkeys(str(c.home) for c in chains))
    return Section("about", "What was run", [Facts(f"Posterior of {homes}", about)])


def chains_section(
    chains: Sequence[Chain],
    scalars: Sequence[Scalar],
    warnings: Sequence[str],
    summary: Sequence[Any],
    more: Sequence[Any],
) -> Section:
    """Traces, a summary of the scalars, warnings on paper (the page has them in the verdict), and more."""
    warned = [on_paper(warnings_in_words(warnings))] if warnings else []
    return Section("chains", "Chains", [Traces(chains, scalars), *summary, *warned, *more])


def rows_in_words(run: Any) -> str:
    """Describe training and held-out rows."""
    return counted(run.n_rows, "training row") + heldout_in_words(run)


def heldout_in_words(run: Any) -> str:
    """Describe held-out rows, in words that follow the number of training rows."""
    if run.data.heldout is not None:
        return f", {len(run.data.heldout):,} held out"
    path = run.chains[0].config.heldout_path
    return "" if path is None else f"; held-out rows from {path}"


def cycles_in_words(chains: Sequence[Chain], cycles: Sequence[int], planned: bool = True) -> Lines:
    """Lines on the chains' lengths, whether they have ended, and which have not begun."""
    several = f", {len(chains)} chains" if len(chains) > 1 else ""
    of = f" of {span([c.config.run.cycles for c in chains])}" if planned else ""
    return [("cycles", f"{span(cycles)}{of}{several}, {states(chains)}"), *not_started(chains)]


def time_in_words(seconds: Sequence[float], more: str = "") -> Lines:
    """Line on the time of the chains."""
    return [("time", f"{took(sum(seconds))}{' of all chains' if len(seconds) > 1 else ''} in cycles{more}")]


def burn_in_in_words(burn_in: Sequence[int], kept: str, more: str = "") -> Lines:
    """Line on the cycles left out. kept: what was kept after them, in words; more: further words on the cycles."""
    return [("burn-in", f"{span(burn_in, 'cycle')} left out{more}; {kept} kept after it")]


def summary_json(
    run: Any, runs: Iterable[tuple[Chain, Any]], *, family: Mapping[str, Any], table: Mapping[str, Any], **more: Any
) -> dict[str, Any]:
    """Frame of summary.json. family: fields that identify the model; runs: each chain with its summary; table: fields
    of the table besides its location; more: further fields. Missing numbers are null."""
    return {
        "format": "mpibayes-report",
        "version": 1,
        **family,
        "runs": [{"directory": str(chain.folder), **_chain_json(of)} for chain, of in runs],
        "table": {"path": str(run.table.path), "fingerprint": run.table.fingerprint, **table},
        **more,
    }


def _chain_json(line: Any) -> dict[str, Any]:
    """A chain's summary in summary.json."""
    of = {name: finite(value) for name, value in vars(line).items()}
    return of | {"scalars": machine_scalars(line.scalars)} if "scalars" in of else of


def not_started(chains: Sequence[Chain]) -> Lines:
    """Lines on planned chains of a run that have no cycles yet."""
    lines = []
    for home, planned in {c.home: c.config.run.chains for c in chains}.items():
        folders = begun(home) or chain_directories(home)
        there = len(folders)
        if there < planned:
            have = "has" if planned - there == 1 else "have"
            missing = f"{planned - there} of the {planned} chains of {home} {have} no cycles yet"
            what = "ask again later" if any(map(at_work, folders)) else "run the same command again"
            lines.append(("missing", f"{missing}: {what}"))
    return lines


def states(chains: Sequence[Chain]) -> str:
    """Describe whether the chains have finished, and the number of ranks that they last ran on."""
    states: list[str] = []
    ranks: set[Any] = set()
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


def fixed(x: float, digits: int) -> str:
    """Format a number with `digits` decimals; - if it is not finite."""
    return f"{x:,.{digits}f}" if np.isfinite(x) else "-"


def plain_table(*columns: str, last: str = "") -> Any:
    """Table whose first column is text and whose others are numbers, except for a last one without a name. last:
    heading of the last column."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    for i, name in enumerate(columns):
        words = i == 0 or (i == len(columns) - 1 and not name)
        table.add_column(name, justify="left" if words else "right", no_wrap=not words, overflow="fold")
    if last:
        table.columns[-1].header = last
    return table


def captioned(table: Any, caption: str) -> Any:
    """Add a caption below the table."""
    table.caption, table.caption_justify = caption or None, "left"
    return table


def scalar_table(
    scalars: Sequence[Scalar],
    summaries: Mapping[str, ScalarSummary],
    remarks: Mapping[str, str],
    unjudged: Collection[str] = (),
) -> Any:
    """A line for each scalar that has a label and a summary. unjudged: scalars whose ESS and R-hat are left out."""
    table = plain_table("after burn-in", "mean", "sd", "5 %", "95 %", "ESS", "R-hat", "")
    for scalar in shown(scalars):
        if scalar.label and scalar.name in summaries:
            cells = _cells(scalar, summaries[scalar.name], scalar.name not in unjudged)
            unit = "" if scalar.unit == "nats" else scalar.unit  # nats are not written out
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
    """Mean in each chain, as a column of `chain_table`."""
    return [fixed(c[scalar.name].mean, scalar.form.digits) for c in chains]


def sds(scalar: Scalar, chains: Sequence[Mapping[str, ScalarSummary]]) -> list[str]:
    """Standard deviation in each chain, as a column of `chain_table`."""
    return [fixed(c[scalar.name].sd, scalar.form.digits) for c in chains]


def warnings_in_words(warnings: Sequence[str]) -> Any:
    from mpibayes.terminal import Text

    text = Text()
    for i, warning in enumerate(warnings):
        begin = text.line if i else text.append
        begin("warning: ", style="bold yellow").append(warning)
    return text


def commands_in_words(commands: Sequence[Command]) -> list[Any]:
    """Each command after its description, on whole lines whatever the width."""
    from mpibayes.terminal import Text

    return [
        part
        for words, command in commands
        for part in (Text(f"To {words}:"), Text(f"  {command}", style="cyan", no_wrap=True))
    ]


def sentence(text: str) -> str:
    """Turn a text into a sentence: a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}." if text and text[-3:] != "..." else text


def warned(warnings: Sequence[str]) -> list[str]:
    """Turn the warnings into sentences of a verdict, at most WARNED."""
    sentences = list(map(sentence, warnings[:WARNED]))
    left = len(warnings) - len(sentences)
    return [*sentences, f"{counted(left, 'more warning')} in report.txt."] if left else sentences


def use_it(run: Any, sound: str, best: Chain | None = None) -> tuple[list[str], list[Command]]:
    """Next steps with a sound result, and their commands; none with another. best: the only chain to use."""
    if best is None and sound != GOOD:
        return [], []
    of, where = ("", run.chains[0].home) if best is None else (f" of {best.name}, the best chain", best.folder)
    command = shlex.join(["mpibayes", "predict", str(where), "NEW.csv", "-o", "OUT.csv"])
    return [f"Use the predictions{of}."], [("score new rows", command)]


def finite(value: Any) -> Any:
    """Replace NaN and infinity by None for JSON."""
    return None if isinstance(value, float) and not np.isfinite(value) else value


def machine_scalars(scalars: Mapping[str, ScalarSummary]) -> dict[str, Any]:
    return {key: {name: finite(v) for name, v in asdict(s).items()} for key, s in scalars.items()}


def settled_json(judgement: Judgement) -> dict[str, Any]:
    """Entry of summary.json for the judgement on settling."""
    return {
        "judged_after_cycle": judgement.cycle,
        "problems": {what: list(why) for what, why in judgement.problems.items()},
        "after_cycles": dict(judgement.after),
    }
