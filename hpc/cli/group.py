"""A group of commands that suggests the nearest name for an unknown command, and whose reader may close the pipe."""

from __future__ import annotations

import contextlib
import difflib
import keyword
from collections.abc import Sequence
from importlib import import_module

import click


class ReaderLeft(Exception):
    """Standard output was closed by its reader."""


@contextlib.contextmanager
def reader_may_leave():
    """Raise ReaderLeft for a BrokenPipeError, which click would turn into exit code 1, and for rich's exit with 1."""
    try:
        yield
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        raise ReaderLeft from error


class Commands(click.Group):
    """A group that suggests the nearest command for an unknown one. verbs: its commands, each in a file of this room
    (import_.py has `import`), which is loaded when the command is asked for."""

    verbs: Sequence[str] = ()

    def get_command(self, ctx, cmd_name):
        if cmd_name in self.verbs and cmd_name not in self.commands:
            name = cmd_name + "_" * keyword.iskeyword(cmd_name)
            self.add_command(getattr(import_module(f"mpibayes.hpc.cli.{name}"), name))
        return super().get_command(ctx, cmd_name)

    def make_context(self, *args, **more):
        with reader_may_leave():  # this call prints --help and --version
            return super().make_context(*args, **more)

    def invoke(self, ctx):
        with reader_may_leave():
            return super().invoke(ctx)

    def resolve_command(self, ctx, args):
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), 1, 0.5)
            hint = f"did you mean '{near[0]}'?" if near else f"commands are {', '.join(self.list_commands(ctx))}"
            raise click.UsageError(f"there is no command '{args[0]}'; {hint}", ctx) from error

    def list_commands(self, ctx):
        return list(self.verbs or self.commands)  # in the order of use, not alphabetical
