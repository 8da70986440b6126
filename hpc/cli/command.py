"""The command `mpibayes`: its verbs, messages and the exit code.

`run`, `query`, `complete` and `synthesize` use MPI. A verb is loaded when it is called, and imports what it needs then,
so that `mpibayes --help` is fast and works on a login node without an MPI library.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence

import click

from mpibayes import __version__
from mpibayes.errors import EXIT_INTERNAL, CheckpointError, MpibayesError
from mpibayes.hpc.cli.group import Commands, ReaderLeft
from mpibayes.hpc.parallel.launcher import launcher_rank, launcher_size, ranks_missing_here
from mpibayes.hpc.run import signals
from mpibayes.io.files import DISK, cannot_write
from mpibayes.memory import lack_of_memory, limit_too_low
from mpibayes.text import visible, visible_lines

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
INTERRUPTED = 130

EXIT_CODES = """
\b
Exit codes:
  0   done
  2   configuration or usage
  3   data: a table or input file cannot be used
  4   checkpoint or disk: no generation of the run is usable, or disk or memory is full or fails
  5   numerical failure
  70  internal error (please report it; MPIBAYES_DEBUG=1 shows the traceback of any error)
  75  stopped early at a checkpoint: run the same command again to continue
  130 interrupted
"""


@click.group(cls=Commands, context_settings=CONTEXT, epilog=EXIT_CODES)
@click.version_option(__version__, prog_name="mpibayes")
@click.pass_context
def cli(ctx):
    """Find the groups of rows of a table, the columns that go together, and how sure you can be of both.

    \b
    From a file to an answer:
      mpibayes run people.csv                         imports it, and runs two chains
      mpibayes report runs/people                     what was found, as a page and in words
    Step by step:
      mpibayes import people.csv people.h5            a typed table: categories, numbers, counts, missing cells
      mpibayes check run.toml --ranks 8               checks the configuration; predicts time and memory
      mpirun -n 8 mpibayes run run.toml -o runs/a     starts or continues: the same command every time
      mpibayes status runs/a                          progress, from any node
      mpibayes query runs/a conditional age           answers a question about the table

    \b
    The shortest run.toml:
      [data]
      table = "people.h5"
    """
    if ctx.invoked_subcommand not in ("run", "query", "complete", "synthesize", "doctor") and launcher_rank() > 0:
        ctx.exit(0)  # other verbs use no MPI: under a launcher one copy is enough
    if words := limit_too_low():
        if launcher_rank() > 0:
            time.sleep(3.0)
            if ranks_missing_here(os.getpid()):  # root, or another rank of this host, has reported it
                ctx.exit(CheckpointError.exit_code)
        raise CheckpointError(words)
    if ctx.invoked_subcommand != "run" and launcher_size() > 1:
        signals.act()


cli.verbs = (
    "import", "run", "check", "schema", "submit", "doctor", "status", "report", "export", "predict", "complete",
    "synthesize", "query", "simulate",
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code. A user's mistake is reported in one message, without a traceback."""
    return _guarded(lambda: cli.main(args=argv, prog_name="mpibayes", standalone_mode=False))


def _guarded(command: Callable[[], int | None]) -> int:
    try:
        code = command()
        sys.stdout.flush()
        return int(code) if isinstance(code, int) else 0
    except click.ClickException as error:
        # Every rank sees the same mistake in the command line; root reports it.
        if launcher_rank() > 0:
            return 0
        hint = ""
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f"\n  try: {error.ctx.command_path} --help"
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            print(error.format_message(), file=sys.stderr)
            return 2
        message = error.format_message().replace(":\n\t", ": ").replace(",\n\t", ", ")  # click lists choices in lines
        print(f"mpibayes: error: {visible_lines(message)}{hint}", file=sys.stderr)
        return 2
    except MpibayesError as error:
        if os.environ.get("MPIBAYES_DEBUG"):
            traceback.print_exc()
        print(f"mpibayes: error: {error}", file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, click.exceptions.Abort):
        if launcher_rank() == 0:
            print("mpibayes: interrupted", file=sys.stderr)
        return INTERRUPTED
    except (BrokenPipeError, ReaderLeft):
        # `mpibayes report ... | head`: the reader has closed the pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())  # or Python would complain at exit
        return 0
    except Exception as error:
        if isinstance(error, OSError) and error.errno in DISK:  # standard output, a temporary folder
            place = error.filename or "standard output, or a temporary folder"
            print(f"mpibayes: error: {cannot_write(place, error)}", file=sys.stderr)
            return CheckpointError.exit_code
        if memory := lack_of_memory(error):
            print(f"mpibayes: error: {memory}", file=sys.stderr)
            return CheckpointError.exit_code
        print(visible_lines(traceback.format_exc()), file=sys.stderr)
        print(visible(f"mpibayes: internal error: {type(error).__name__}: {error}"), file=sys.stderr)
        print("  This is a fault of mpibayes, not yours. Please report it with the lines above.", file=sys.stderr)
        return EXIT_INTERNAL
