"""Export for other programs: kept labels and features as text, traces and other tables as CSV, draws as a netCDF file
for ArviZ.

The text forms have the same bytes for the same chain, on any number of ranks, straight through or resumed (CSV:
`timings=False`).
"""

from __future__ import annotations

import csv
import io
import itertools
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from mpibayes.errors import ConfigError
from mpibayes.io import generations
from mpibayes.io.draws import FOLDER as LABELS
from mpibayes.io.draws import iterate_draws
from mpibayes.io.files import chain_directories, reading, replacing, writing
from mpibayes.io.inference import Draws, inference_image
from mpibayes.io.segments import list_segments, require
from mpibayes.io.trace import MERGED, Axes, read_axes, read_kinds, read_trace
from mpibayes.text import counted

FORMS = ("labels", "features", "csv", "arviz")
STDOUT = "-"


@dataclass(frozen=True)
class Exported:
    """Outcome of an export."""

    paths: list[Path] = field(default_factory=list)  # empty: standard output
    notes: list[str] = field(default_factory=list)  # remarks for the user


def export(
    run_dirs: str | Path | Sequence[str | Path],
    to: str,
    out: str | Path | None = None,
    burn_in: int | Sequence[int] | None = None,
    timings: bool = True,
    kept: tuple[Draws, Axes] | None = None,
) -> Exported:
    """Write the draws of one or several chains in the form `to`; a directory with chain-1, ... stands for all of them.

    labels  one kept draw per line: the labels of the training rows separated by blanks, clusters numbered by first
            appearance in the line; with several views the view of each column, ` | `, and the labels in each view, the
            first view being that of the first column; several chains: a file each, `out` with .chain-<n> before its
            suffix
    features  one kept draw per line: a string of 0 and 1 per feature, marking its training rows in table order; the
            strings in descending order, `-` if there are none; several chains as with labels
    csv     one line per cycle: cycle, then a column per scalar, timings last (omitted with timings=False); floats in
            the shortest form that reads back exactly; several chains: a first column `chain`, 1, 2, ...
    arviz   see `inference`: burn-in in separate groups; chains are cut to their common cycles
    out     a file, or "-" for standard output; None: standard output for text, `trace.h5` in the first directory given
            for arviz
    burn_in number of initial cycles to leave out of each chain, or for each of run_dirs
    kept    for arviz: further kept arrays of each chain's draws, and their axes

    Files are written to temporary names and renamed over existing ones. Raises ConfigError (no such run,
    nothing kept, output not writable), CheckpointError (a damaged segment, a full disk).
    """
    if to not in FORMS:
        raise ConfigError(f"--to {to}: no such form; expected one of {', '.join(FORMS)}")
    given = [run_dirs] if isinstance(run_dirs, (str, Path)) else list(run_dirs)
    if not given:
        raise ConfigError("nothing to export: name the directory of a run")
    each = [burn_in] * len(given) if burn_in is None or isinstance(burn_in, int) else burn_in
    chains: dict[Path, int] = {}  # cycle after which draws are written
    for run_dir, cycles in zip(given, each, strict=True):
        if cycles is not None and cycles < 0:
            raise ConfigError(f"burn-in of {cycles} cycles: expected a number of cycles, 0 or more")
        chains |= dict.fromkeys(chain_directories(run_dir), -1 if cycles is None else cycles)
    if to in TEXTS:
        return _export_texts(chains, to, out)
    if to == "csv":
        return _export_csv(chains, out, timings)
    return _export_arviz(chains, Path(given[0]) / MERGED if out is None else out, kept)


def canonical_labels(labels: np.ndarray) -> np.ndarray:
    """Number the clusters of a partition by first appearance, int64 (N,): [7, 2, 7, 5] -> [0, 1, 0, 2]."""
    labels = np.asarray(labels)
    if labels.size == 0:
        return labels.astype(np.int64)
    first = np.full(int(labels.max()) + 1, labels.size, dtype=np.int64)
    first[labels[::-1]] = np.arange(labels.size - 1, -1, -1)  # repeated indices keep the last assignment: the first row
    number = np.empty(first.size, dtype=np.int64)
    number[np.argsort(first, kind="stable")] = np.arange(first.size)
    return number[labels]


def _export_texts(chains: Mapping[Path, int], what: str, out: str | Path | None) -> Exported:
    """Write a line for each kept draw; what: a key of TEXTS."""
    line = TEXTS[what]

    def write(file: BinaryIO, chain: Path, after: int) -> None:
        for _, draw in iterate_draws(chain, after + 1):
            file.write((line(draw) + "\n").encode())

    for chain, after in chains.items():
        _require_run(chain)
        if kept := generations.kept(chain, LABELS):
            require(chain / LABELS, kept)
        segments = list_segments(chain / LABELS)
        if not segments:
            raise ConfigError(
                f"{chain}: no {what} are kept here yet. They reach the disk at checkpoints; output.labels says "
                "how many cycles lie between two of them."
            )
        _require_draws(chain, segments[-1].last, after)
    if len(chains) == 1:
        return _write(out, lambda file: write(file, *next(iter(chains.items()))))
    if out is None or str(out) == STDOUT:
        raise ConfigError(
            f"{what} of {len(chains)} chains cannot share standard output. Name a file (each chain gets one, with "
            f".chain-<n> in its name), or export one chain: {next(iter(chains))}"
        )
    done = Exported()
    for path, (chain, after) in zip(a_file_each(Path(out), len(chains)), chains.items(), strict=True):
        done.paths.extend(_write(path, lambda file, a=chain, b=after: write(file, a, b)).paths)
    return done


def a_file_each(out: Path, n_chains: int) -> list[Path]:
    """Paths of the draws of each of several chains."""
    return [out.with_name(f"{out.stem}.chain-{n}{out.suffix}") for n in range(1, n_chains + 1)]


def _line_of_labels(draw: Mapping[str, np.ndarray]) -> str:
    parts = [draw["labels"]]
    if "views" in draw:  # views numbered in the order of their labels
        parts = [draw["views"], *draw["labels"][: int(draw["views"].max()) + 1]]
        order = np.unique(parts[0], return_index=True)[1].argsort()
        parts[1:] = [parts[1 + v] for v in order.tolist()]
    return " | ".join(map(labels_as_text, parts))


def _line_of_features(draw: Mapping[str, np.ndarray]) -> str:
    """Line of a draw of features, kept as bits with the first row in a byte's highest bit: see `hpc/ibp/draws.py`."""
    bits = np.unpackbits(draw["features"][: int(draw["count"])].astype(np.uint8), axis=1, count=int(draw["n_rows"]))
    strings = sorted((bytes(rows + ord("0")).decode() for rows in bits), reverse=True)
    return " ".join(strings) or "-"


TEXTS = {"labels": _line_of_labels, "features": _line_of_features}


def labels_as_text(labels: np.ndarray) -> str:
    """Labels separated by blanks, clusters numbered by first appearance."""
    labels = canonical_labels(labels)
    words = [str(k) for k in range(int(labels.max(initial=-1)) + 1)]
    return " ".join([words[k] for k in labels.tolist()])


def _export_csv(chains: Mapping[Path, int], out: str | Path | None, timings: bool) -> Exported:
    first = next(iter(chains))
    axes, kinds = read_axes(first), read_kinds(first)
    traces = [_in_columns(trace, axes) for trace in _traces(chains)]
    names = sorted(traces[0], key=lambda name: name in kinds["timing"])
    names = [name for name in names if timings or name not in kinds["timing"]]
    return _write(out, lambda file: _write_csv(file, traces, names, kinds["whole"]))


def _in_columns(trace: dict[str, np.ndarray], axes: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, np.ndarray]:
    """Split each array of the trace into a column per element, named theta[age] or theta[bird,age]."""
    columns = {}
    for name, values in trace.items():
        if name not in axes:
            columns[name] = values
            continue
        flat = values.reshape(len(values), -1)
        places = itertools.product(*axes[name].values())
        columns |= {f"{name}[{','.join(place)}]": flat[:, i] for i, place in enumerate(places)}
    return columns


def _write_csv(file: BinaryIO, traces: list[dict[str, np.ndarray]], names: list[str], whole: Collection[str]) -> None:
    several = len(traces) > 1
    file.write(csv_line(["chain"] * several + names).encode())
    for n, trace in enumerate(traces, 1):
        columns = [_texts(trace[name], name in whole) for name in names]
        for i in range(0, len(trace["cycle"]), 4096):
            rows = zip(*(column[i : i + 4096] for column in columns), strict=True)
            prefix = f"{n}," if several else ""
            file.write("".join(f"{prefix}{','.join(row)}\n" for row in rows).encode())


def csv_line(cells: Sequence[object]) -> str:
    """Format a line of CSV. Names may need quotes; a carriage return is quoted only if the line terminator has one."""
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="\r\n").writerow(cells)
    return line.getvalue().removesuffix("\r\n") + "\n"


def _texts(values: np.ndarray, whole: bool) -> list[str]:
    if whole:
        return [str(int(v)) if np.isfinite(v) else repr(v) for v in values.tolist()]
    return [repr(v) for v in values.tolist()]  # repr of a Python float is the shortest text that reads back exactly


def _export_arviz(chains: Mapping[Path, int], out: str | Path, kept: tuple[Draws, Axes] | None) -> Exported:
    if str(out) == STDOUT:
        raise ConfigError("a file for ArviZ cannot go to standard output: name a file")
    first, burn_in = next(iter(chains)), max(chains.values())
    traces = _traces(dict.fromkeys(chains, -1))
    aligned = _aligned(traces)
    for chain in chains:
        _require_draws(chain, int(aligned[0]["cycle"][-1]), burn_in)
    notes, n = [], len(aligned[0]["cycle"])
    longest = max(len(trace["cycle"]) for trace in traces)
    if longest > n:
        notes.append(f"the chains were cut to the {counted(n, 'cycle')} that all of them have; one has {longest}")
    more = (_aligned(kept[0]), kept[1]) if kept else ((), {})
    image = inference_image(aligned, read_axes(first), read_kinds(first), burn_in, *more)
    return Exported(_write(out, lambda file: file.write(image)).paths, notes)


def _aligned(chains: Draws) -> Draws:
    """Draws at the cycles common to all chains."""
    common = chains[0]["cycle"]
    for draws in chains[1:]:
        common = np.intersect1d(common, draws["cycle"], assume_unique=True)
    if len(common) == 0:
        raise ConfigError(f"the {len(chains)} chains have no cycle in common to stack them by; export them one by one")
    places = [np.searchsorted(draws["cycle"], common) for draws in chains]
    return [{name: values[at] for name, values in draws.items()} for draws, at in zip(chains, places)]


def _traces(chains: Mapping[Path, int]) -> list[dict[str, np.ndarray]]:
    traces = []
    for chain, after in chains.items():
        _require_run(chain)
        trace = read_trace(chain, after)
        if not trace:
            segments = list_segments(chain / "trace")
            if segments:
                _require_draws(chain, segments[-1].last, after)
            raise ConfigError(
                f"{chain}: no cycle is kept here yet. Traces reach the disk at checkpoints; try again after the first."
            )
        traces.append(trace)
    if any(list(trace) != list(traces[0]) for trace in traces):
        raise ConfigError("the chains keep different scalars, so they cannot share a file; export them one by one")
    return traces


def write_csv_lines(out: str | Path | None, head: Sequence[str], blocks: Iterable[Sequence[Sequence[str]]]) -> Exported:
    """Write CSV from blocks of columns; see `export` for `out`. Raises ConfigError."""

    def fill(file: BinaryIO) -> None:
        file.write(csv_line(head).encode())
        for columns in blocks:
            file.write("".join(map(csv_line, zip(*columns, strict=True))).encode())

    return _write(out, fill)


def write_lines(out: str | Path | None, lines: Iterable[tuple[int, str]], n_chains: int, what: str) -> Exported:
    """Write lines of text, each given with the number of its chain, from 0, chains in sequence: one file, or one per
    chain. Raises ConfigError."""
    if n_chains > 1 and (out is None or str(out) == STDOUT):
        raise ConfigError(f"{what} of {n_chains} chains cannot share standard output; name a file with -o")
    files = [out] if n_chains == 1 else a_file_each(Path(out or STDOUT), n_chains)
    done, by_chain = Exported(), {chain: list(of) for chain, of in itertools.groupby(lines, key=lambda line: line[0])}
    for chain, path in enumerate(files):
        text = "".join(f"{line}\n" for _, line in by_chain.get(chain, ()))
        done.paths.extend(_write(path, lambda file, text=text: file.write(text.encode())).paths)
    return done


def _require_run(chain: Path) -> None:
    with reading(chain, ConfigError):
        started = any((chain / name).exists() for name in ("status.json", "trace", LABELS, "checkpoints"))
    if not started:
        raise ConfigError(
            f"{chain}: no run was started in this directory. Expected the directory of a run, the -o of `mpibayes run`."
        )


def _require_draws(chain: Path, last: int, after: int) -> None:
    if last <= after:
        raise ConfigError(
            f"{chain}: a burn-in of {counted(after, 'cycle')} leaves nothing; the last cycle kept here is {last}. "
            "Give a smaller one with --burn-in, or continue the run"
        )


def _write(out: str | Path | None, fill) -> Exported:
    if out is None or str(out) == STDOUT:
        with _standard_output() as file:
            fill(file)
        return Exported()
    path = Path(out)
    with writing(path), replacing(path) as file:
        fill(file)
    return Exported([path])


@contextmanager
def _standard_output() -> Iterator[BinaryIO]:
    sys.stdout.flush()
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError:  # the reader, e.g. `head`, has closed the pipe; avoid another flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
