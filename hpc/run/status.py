"""The state of a run in one small file, `status.json`, written by root and read from any node.

Fields: state (one of AT_WORK, stopped, finished, failed), family, cycle, cycles, the scalars that the
family shows (`Scalar.place`; active_rows is fewer than rows while an annealed chain grows), rows, seconds_per_cycle,
rows_per_second, eta_s, elapsed_s, last_checkpoint, ranks, shards, grown (number of growths of its table), the writer's
host, place, pid, started, job and restarts (as in LOCK), before (how the previous start ended: state, last_checkpoint,
host, job, updated, message), updated (ISO time), message. Any of them may be missing or null: early in a run not all
are known.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mpibayes.errors import ConfigError, DataError, MpibayesError
from mpibayes.hpc.registry import ROOMS, scalars_of
from mpibayes.hpc.run.identity import GROWN, PENDING, PROVENANCE, RESOLVED, read_provenance, read_resolved
from mpibayes.hpc.run.lock import lives, owner_of, place, this_process
from mpibayes.hpc.scalar import ACTIVE_ROWS, Scalar, shown
from mpibayes.io.documents import json_value
from mpibayes.io.files import chain_directories, read_regular, reason, storing, write_text
from mpibayes.io.finished import n_finished
from mpibayes.text import counted, duration

NAME = "status.json"
# A running program writes its status every 10 seconds, or once a cycle where cycles are longer.
SEARCHING = "searching"  # for a start, as `message` says
STARTING = "starting"  # to work on more rows, before a status is written
AT_WORK = (STARTING, SEARCHING, "running", "waiting")  # states of a run whose process exists
SILENT_S = 300.0
SILENT_CYCLES = 3.0
TURNS = "no chain has begun yet"
CLOCKS_S = 5.0  # larger than differences between clocks of a cluster's hosts
WHOLE = ("cycle", "cycles", "rows", ACTIVE_ROWS, "ranks", "shards", "grown")
NUMBERS = ("seconds_per_cycle", "rows_per_second", "eta_s", "elapsed_s")
TEXTS = ("state", "family", "host", "updated", "message")
HARMLESS = "The run itself does not depend on it and will write it anew."


def write_status(run_dir: str | Path, status: dict[str, Any]) -> None:
    """Replace the run's status in one step; `updated` is filled in when absent, NaN and infinity become null.

    Raises CheckpointError.
    """
    values = {"updated": datetime.now(UTC).isoformat(timespec="seconds")} | status
    path = Path(run_dir) / NAME
    with storing(path):
        write_text(path, json.dumps({k: _finite(v) for k, v in values.items()}, indent=1, allow_nan=False) + "\n")


def read_status(run_dir: str | Path) -> dict[str, Any]:
    """Return one chain's status. Raises ConfigError if no run was started here, DataError if the file is damaged."""
    path = Path(run_dir) / NAME
    try:
        status = json_value(read_regular(path))
    except FileNotFoundError:
        raise ConfigError(
            f"{run_dir}: no run was started in this directory (it has no {NAME}). Expected the directory of a run (the "
            "-o of `mpibayes run`)."
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {reason(error)}") from error
    except ValueError as error:
        raise DataError(f"{path}: damaged, not a JSON text ({error}). {HARMLESS}") from error
    if not isinstance(status, dict):
        raise DataError(f"{path}: damaged, not a JSON object. {HARMLESS}")
    for names, kind, words in ((WHOLE, int, "whole number"), (NUMBERS, int | float, "number"), (TEXTS, str, "text")):
        for name in names:
            value = status.get(name)
            if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
                raise DataError(f"{path}: damaged: {name} should be a {words}, or null. {HARMLESS}")
    return status


def is_stopped(run_dir: str | Path) -> bool:
    """True if a chain was stopped at a checkpoint before its last cycle, according to its status."""
    try:
        return read_status(run_dir).get("state") == "stopped"
    except MpibayesError:
        return False


def at_work(run_dir: str | Path) -> bool:
    """True if a chain's process may still exist, according to its status. Never fails."""
    try:
        status = read_status(run_dir)
    except MpibayesError:
        return False
    return status.get("state") in AT_WORK and liveness(status)[0] is not False


def cycles_done(run_dir: str | Path) -> int:
    """Number of cycles at a chain's last checkpoint, according to its status; 0 if unknown. Never fails."""
    try:
        done = read_status(run_dir).get("last_checkpoint")
    except MpibayesError:
        return 0
    return done if isinstance(done, int) else 0


def ending(run_dir: str | Path) -> dict[str, Any] | None:
    """Ending of a chain's last start, recorded by the next one; None if there was none. Never fails. A chain whose next
    turn begins in the same process has not ended."""
    try:
        last = read_status(run_dir)
    except MpibayesError:
        return None
    before = {name: last.get(name) for name in ("state", "last_checkpoint", "host", "job", "updated", "message")}
    if before["state"] in AT_WORK:
        here = this_process()
        if all(last.get(name) == here[name] for name in ("place", "pid", "started")):
            return last.get("before")
        before |= {"state": "died", "message": "it ended without a message"}
    return before


def liveness(status: dict[str, Any], now: datetime | None = None) -> tuple[bool | None, float | None]:
    """Return (alive, seconds since its last update).

    A run that neither searches, runs nor waits for its turn is not alive. In the run's own place (`lock.place`) its
    process is looked up; elsewhere a long silence by the two hosts' clocks means no. None if unknown, as for a chain
    that waits or searches.
    """
    try:
        updated = datetime.fromisoformat(status["updated"])
        age = ((now or datetime.now(UTC)) - (updated if updated.tzinfo else updated.astimezone())).total_seconds()
    except (KeyError, TypeError, ValueError, OverflowError):  # OverflowError: a local time at the edge of the calendar
        age = None
    if status.get("state") not in AT_WORK:
        return False, age
    if _is_here(status):
        return lives(status.get("pid"), status.get("started")), age
    if age is None or status["state"] != "running":
        return None, age
    return age < max(SILENT_S, SILENT_CYCLES * (status.get("seconds_per_cycle") or 0.0)), age


def show_status(run_dir: str | Path, as_json: bool = False, console: Any = None) -> None:
    """Print the status of a run, or of all its chains; a chain without status is "not started" if others have one.

    as_json: print one object, the fields above with `directory`, `alive` (true, false, null) and `age_s`; several
    chains: {"chains": [object, ...]}. Raises ConfigError if no run was started here, DataError if a file is damaged.
    """
    from mpibayes.terminal import Console

    console = console or Console()
    directories = _directories(Path(run_dir))
    several = directories != [Path(run_dir)]
    rows = []
    came, pending = _rows_came(Path(run_dir))
    for directory in directories:
        if pending or ((several or came) and not (directory / NAME).exists()):
            status: dict[str, Any] = {"state": "not started", **came}
        elif (directory / RESOLVED).exists() and not (directory / NAME).exists():
            status = {"state": "not started", "message": TURNS}
        else:
            status = read_status(directory)
        alive, age = liveness(status)
        age = None if age is None else round(age, 1)
        rows.append({"directory": str(directory), **status, "alive": alive, "age_s": age})
    if several and not came and all(row["state"] == "not started" for row in rows):
        raise ConfigError(f"{run_dir}: none of its {len(rows)} chains has started yet")
    if as_json:
        console.file.write(json.dumps({"chains": rows} if several else rows[0], indent=1) + "\n")
    elif several:
        _show_several(run_dir, rows, console)
    else:
        _show_one(rows[0], console)


def _directories(run_dir: Path) -> list[Path]:
    """Directories of all chains of a run in which one has begun, also of those that have none yet; else `run_dir`."""
    directories, n = chain_directories(run_dir), 0
    with suppress(MpibayesError):  # settings that are missing or damaged hide no chain that has begun
        n = read_resolved(run_dir)["run"]["chains"] if directories != [run_dir] else 0
    return directories if len(directories) >= n else [run_dir / f"chain-{i + 1}" for i in range(n)]


def _rows_came(run_dir: Path) -> tuple[dict[str, Any], bool]:
    """Return the fields of a chain without a status since its run's last growth, {} without a growth; and True if the
    start that adds the rows has not finished that: the directory's files are then of the earlier rows. That start is at
    work, or died, if it holds the directory."""
    record = read_provenance(run_dir) if (run_dir / PROVENANCE).is_file() else {}
    times, pending = len(record.get(GROWN, ())), PENDING in record
    if not times:
        return {}, False
    fields: dict[str, Any] = {"grown": times}
    words = []
    if owner := owner_of(run_dir):
        fields |= owner | {"state": STARTING}
        if liveness(fields)[0] is False:
            fields["state"] = "died"
            words.append(f"process {owner.get('pid', '?')} is gone; the same command continues")
    if pending:
        again = "" if owner else "; run the same command again"
        words += [
            f"{'A' if words else 'a'} start that adds rows has not finished{again}",
            f"The run of the rows before is {run_dir / GROWN / str(times)}",
        ]
    return fields | {"message": ". ".join(words)}, pending


def _show_one(row: dict[str, Any], console: Any) -> None:
    from rich.table import Table

    from mpibayes.terminal import Text

    table = Table.grid(padding=(0, 2))
    for name, text in _lines(row):
        table.add_row(Text(name, style="bold"), Text(text))
    console.print(Text(row["directory"], style="bold"))
    console.print(table)


def _show_several(run_dir: str | Path, rows: list[dict[str, Any]], console: Any) -> None:
    from rich.table import Table

    from mpibayes.terminal import Text

    columns = [s for s in next(filter(None, map(_scalars, rows)), []) if s.column]
    heads = ("chain", "state", "cycle", *(s.column for s in columns), "s/cycle", "left", "updated")
    table = Table(*heads, box=None, pad_edge=False)
    for row in rows:
        table.add_row(
            Text(Path(row["directory"]).name),
            Text(_state(row)),
            _progress(row, percent=False),
            *(_value(row, s) for s in columns),
            _number(row.get("seconds_per_cycle"), ".3g"),
            duration(row.get("eta_s"), words=True) if row["alive"] else "-",
            _ago(row),
        )
    console.print(Text(str(run_dir), style="bold"))
    console.print(table)
    for row in rows:
        if message := _message(row):
            console.print(Text(f"{Path(row['directory']).name}: {message}"))


def _lines(row: dict[str, Any]) -> list[tuple[str, str]]:
    rate = _number(row.get("seconds_per_cycle"), ".3g", " s a cycle")
    if row.get("rows_per_second") is not None:
        rate += f", {row['rows_per_second']:,.0f} rows a second"
    checkpoint = row.get("last_checkpoint")
    lines = [
        ("state", _state(row)),
        ("cycle", _progress(row)),
        ("rate", rate),
        ("left", duration(row.get("eta_s"), words=True) if row["alive"] else "-"),
        ("elapsed", duration(row.get("elapsed_s"), words=True)),
        *((s.status, _value(row, s)) for s in _scalars(row) if s.status),
        ("checkpoint", f"cycle {checkpoint}" if isinstance(checkpoint, int) else str(checkpoint or "-")),
        ("rows appended", f"{counted(row['grown'], 'time')}; cycles count from the last" if row.get("grown") else "-"),
        ("where", _where(row)),
        ("updated", _ago(row)),
        ("message", _message(row) or "-"),
        ("before", _before(row.get("before"))),
    ]
    return [(name, text) for name, text in lines if text != "-"]


def _state(row: dict[str, Any]) -> str:
    state = str(row.get("state", "unknown"))
    if state not in AT_WORK or row["alive"]:
        return state
    if row["alive"] is None:
        return f"{state} (unknown whether it still is)" if state == "running" else state
    if _is_here(row):
        return f"died: process {row.get('pid', '?')} is gone; the same command {_next(row)}"
    silence = duration(row["age_s"], words=True)
    return f"running, but silent for {silence}: it may have died on {row.get('host', 'its host')}"


def _next(row: dict[str, Any]) -> str:
    """Describe where a chain that died goes on."""
    if row.get("last_checkpoint"):
        return "continues from the last checkpoint"
    n = n_finished(Path(row["directory"]))
    kept = counted(n, "finished search is", "finished searches are")
    return f"starts it again; {kept} kept" if n else "starts it anew"


def _message(row: dict[str, Any]) -> str:
    """A chain's last message, unless it tells what a process does that is gone."""
    message, state = row.get("message") or "", row.get("state")
    if state in AT_WORK and row["alive"] is False:
        return ""
    return f"waits {message}" if state == "waiting" and message else message


def _is_here(status: dict[str, Any]) -> bool:
    """True if the run was started where its process can be looked up."""
    return status.get("place") is not None and status["place"] == place()


def _progress(row: dict[str, Any], percent: bool = True) -> str:
    cycle, cycles = row.get("cycle"), row.get("cycles")
    if cycle is None:
        return "-"
    if not cycles:
        return f"{cycle}"
    return f"{cycle} of {cycles}" + (f" ({100 * cycle / cycles:.1f} %)" if percent else "")


def _scalars(row: dict[str, Any]) -> list[Scalar]:
    """Scalars of the chain's family, as shown to people; [] if it is unknown."""
    name = row.get("family")
    return shown(scalars_of(name)) if name in ROOMS else []


def _value(row: dict[str, Any], scalar: Scalar) -> str:
    if scalar.name == ACTIVE_ROWS:
        return _rows(row)
    unit = scalar.unit.removeprefix("nats")  # nats are not written out
    return _number(row.get(scalar.name), scalar.form.status, unit)


def _rows(row: dict[str, Any]) -> str:
    """Number of active rows, shown only while not all are active."""
    active, rows = row.get(ACTIVE_ROWS), row.get("rows")
    if active is None or rows is None or active >= rows:
        return "-"
    return f"{active:,} of {rows:,} are in; no draws count yet"


def _where(row: dict[str, Any]) -> str:
    parts = [f"{row[key]} {key if row[key] != 1 else key[:-1]}" for key in ("ranks", "shards") if row.get(key)]
    if row.get("host"):
        parts.append(f"{row['host']}, process {row.get('pid', '?')}")
    if row.get("job"):
        parts.append(f"job {row['job']}" + (f", restart {row['restarts']}" if row.get("restarts") else ""))
    return ", ".join(parts) or "-"


def _before(last: Any) -> str:
    """Ending of the previous start, of interest when a job was requeued."""
    if not isinstance(last, dict) or not last.get("state"):
        return "-"
    parts = [f"{last['state']} at checkpoint {last.get('last_checkpoint', '?')}", f"on {last.get('host', '?')}"]
    parts += [f"job {last['job']}"] if last.get("job") else []
    parts += [str(last["updated"])] if last.get("updated") else []
    return ", ".join(parts) + (f": {last['message']}" if last.get("message") else "")


def _ago(row: dict[str, Any]) -> str:
    age = row["age_s"]
    if age is not None and age < -CLOCKS_S:
        ahead, host = duration(-age, words=True), row.get("host", "its host")
        return f"{ahead} from now, by the clock of {host}, which is ahead of the one here"
    return "-" if age is None else f"{duration(age, words=True)} ago"


def _number(value: Any, form: str, unit: str = "") -> str:
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return "-" if value is None else str(value)
    return f"{int(value) if form == 'd' else value:{form}}{unit}"


def _finite(value: Any) -> Any:
    if hasattr(value, "item"):  # a NumPy scalar
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
