"""A group of commands that suggests the nearest name for an unknown command, and whose reader may close the pipe."""

from __future__ import annotations

import contextlib
import difflib

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
    """A group that suggests the nearest command for an unknown one."""

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
        return list(self.commands)  # in the order of use, not alphabetical
