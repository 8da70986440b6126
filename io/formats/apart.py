"""Readers of other programs' formats in a separate process. A damaged file can make such a library crash, loop, or take
all memory; there that ends only the process, and here it gives one message. The result is an unnamed Arrow file, which
the import can then read repeatedly.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from mpibayes import errors
from mpibayes.errors import CheckpointError, DataError, MpibayesError
from mpibayes.io.files import reason
from mpibayes.io.formats.kinds import Kind
from mpibayes.io.formats.typed import Asked, Typed, understanding, with_labels

CPU_S, CPU_S_PER_MB = 60, 60  # processor time; real files take below a second per megabyte
BYTES, BYTES_PER_BYTE = 2 << 30, 100  # memory
# pandas, which the reader does not need, would take longer to load than all the rest
PROGRAM = f"""
import sys
from mpibayes.io.arrow import keep_pandas_out
keep_pandas_out()
from {__name__} import answer
answer(sys.argv[1])
"""


def look(path: Path, kind: Kind, asked: Asked) -> Typed:
    """Read a file with `kind`'s module. Raises its errors, and DataError if the process fails."""
    file = tempfile.TemporaryFile(prefix="mpibayes-")  # noqa: SIM115
    try:
        about = _converted(path, kind, asked, file.fileno())
        with understanding(path):
            types = pa.ipc.open_file(file).schema.types
    except BaseException:
        file.close()
        raise
    labels, orders = ({int(i): of for i, of in about[key].items()} for key in ("labels", "orders"))

    def read(positions: Sequence[int]) -> Iterator[pa.RecordBatch]:
        with understanding(path):
            reader = pa.ipc.open_file(file)
            for k in range(reader.num_record_batches):
                batch = reader.get_batch(k)
                columns = [
                    with_labels(batch.column(i), labels[i]) if i in result.as_labels else batch.column(i)
                    for i in positions
                ]
                yield pa.record_batch(columns, [str(i) for i in positions])

    fields = {key: about[key] for key in ("title", "names", "notes", "lines_above", "header", "n_rows")}
    result = Typed(types=types, read=read, labels=labels, as_labels=set(about["as_labels"]), orders=orders, **fields)
    weakref.finalize(result, file.close)
    return result


def _converted(path: Path, kind: Kind, asked: Asked, fd: int) -> dict[str, Any]:
    """Have the process write the columns to `fd`; return the rest of its result. Raises its errors."""
    words = {"path": str(path), "name": kind.name, "variant": kind.variant, "asked": asdict(asked), "fd": fd}
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, json.dumps(words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        pass_fds=[fd],
        env=os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"},
        check=False,
    )
    about = _answer(path, kind, done)
    if error := about.get("error"):
        raise getattr(errors, error[0])(*error[1:])
    return about


def _answer(path: Path, kind: Kind, done: subprocess.CompletedProcess) -> dict[str, Any]:
    """Parse the last line printed by the process. Raises DataError if there is none."""
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        pass
    how = "failed"
    if done.returncode < 0:
        how = f"was ended by {signal.Signals(-done.returncode).name}"
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            how += ", having taken too much " + ("time" if done.returncode == -signal.SIGXCPU else "memory")
    raise DataError(f"{path}: cannot be read as {kind.title}: its reader {how}; the file seems to be damaged")


def answer(words: str) -> None:
    """Read a file, write its columns, and print the rest; runs in the separate process."""
    asked = json.loads(words)
    path, megabytes = Path(asked["path"]), os.path.getsize(asked["path"]) / 1e6
    _limit(resource.RLIMIT_CPU, int(CPU_S + CPU_S_PER_MB * megabytes))
    _limit(resource.RLIMIT_DATA, int(BYTES + BYTES_PER_BYTE * 1e6 * megabytes))
    try:
        module = importlib.import_module(f"mpibayes.io.formats.{asked['name']}")
        content = module.look(path, asked["variant"], Asked(**asked["asked"]))
        _write(path, content, asked["fd"])
    except MpibayesError as error:
        result: dict[str, Any] = {"error": [type(error).__name__, error.message, error.problems]}
    except MemoryError:
        result = {"error": ["DataError", f"{path}: needs more memory than there is; save it as CSV"]}
    else:
        kept = ("title", "names", "labels", "orders", "lines_above", "header", "n_rows")
        result = {key: getattr(content, key) for key in kept}
        result |= {"notes": list(content.notes), "as_labels": sorted(content.as_labels)}
    print(json.dumps(result), flush=True)


def _write(path: Path, content: Typed, fd: int) -> None:
    schema = pa.schema([pa.field(str(i), of) for i, of in enumerate(content.types)])
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    batches = content.read(range(len(schema)))
    with os.fdopen(fd, "wb") as file, pa.ipc.new_file(file, schema, options=options) as writer:
        for batch in batches:
            try:
                writer.write_batch(pa.record_batch(batch.columns, schema=schema))
            except OSError as error:
                place = f"{tempfile.gettempdir()}: the columns of {path} cannot be kept there"
                raise CheckpointError(f"{place}: {reason(error)}; name a larger place with TMPDIR") from error


def _limit(what: int, most: int) -> None:
    soft, hard = resource.getrlimit(what)
    known = [limit for limit in (most, soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(what, (min(known), hard))
