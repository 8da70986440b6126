"""What the documentation site takes from the program when it is built: its commands and every key of the configuration;
and formulas as MathML, which browsers show without a script.

In a page, ```{every-key}``` and ```{every-command}``` become the Markdown that the functions of these names write.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc

import click

from mpibayes.hpc.cli import CONTEXT, cli
from mpibayes.hpc.config import keys
from mpibayes.hpc.config.section import Section
from mpibayes.hpc.registry import ROOMS, keys_of
from mpibayes.text import toml_string

BY_ROOM = {room: [name for name, of in ROOMS.items() if of == room] for room in dict.fromkeys(ROOMS.values())}


def every_key() -> str:
    """Markdown: a heading for what all families share, then one for the families of each room, with their own keys."""
    lines = ["## All families", ""]
    for name, section in keys.SECTIONS.items():
        if section is not keys.Model:  # which families fill
            lines += _table(f"[{name}]", _rows(section, None))
    for name, section in keys.NAMED.items():
        lines += _table(f"[{name}.NAME]", _rows(section, None))
    for families in BY_ROOM.values():
        room = keys_of(families[0])
        lines += ["## " + " and ".join(map(_kind, families)), ""]
        for sections, shared, form in ((room.SECTIONS, keys.SECTIONS, "[{}]"), (room.NAMED, keys.NAMED, "[{}.NAME]")):
            for name, section in sections.items():
                lines += _table(form.format(name), _rows(section, shared.get(name)))
    return "\n".join(lines)


def _kind(name: str) -> str:
    """A family's name, and the likelihood that has keys of its own, as the registry has them."""
    family, _, likelihood = name.partition(" ")
    return f"`{family}`" + (f', `likelihood = "{likelihood}"`' if likelihood else "")


def _rows(section: type[Section], shared: type[Section] | None) -> Iterator[str]:
    """A row of a table for each key, without those that are the same in the section that all families share."""
    for name, info in section.model_fields.items():
        known = shared.model_fields.get(name) if shared else None
        if known is None or (known.default, known.description) != (info.default, info.description):
            start = "required" if info.is_required() else f"`{_value(info.default)}`"
            marks = info.json_schema_extra
            change = " May differ when a run is continued." if marks["may_change"] else ""
            about = info.description[:1].upper() + info.description[1:]
            yield f"| `{name}` | {start} | {_cell(about)}.{change} | {_cell(marks['expected'])} |"


def _value(default: object) -> str:
    """A default as TOML has it."""
    if default is None:
        return '"none"'
    if isinstance(default, bool):
        return str(default).lower()
    return toml_string(default) if isinstance(default, str) else str(default)


def _cell(text: str) -> str:
    """Text of a table's cell; brackets and bars stand for themselves."""
    for mark in "\\|[]<*_":
        text = text.replace(mark, "\\" + mark)
    return text


def _table(head: str, rows: Iterator[str]) -> list[str]:
    rows = list(rows)
    return [f"### `{head}`", "", "| key | default | | values |", "| --- | --- | --- | --- |", *rows, ""] if rows else []


def every_command(command: click.Command = cli, parent: click.Context | None = None, level: int = 2) -> str:
    """Markdown: what `--help` says of a command, and of its own commands below it."""
    name = f"{parent.info_name} {command.name}" if parent else "mpibayes"
    within = click.Context(command, info_name=name, **CONTEXT)  # click keeps the help option, with its `-h`
    usage = " ".join([within.info_name, *command.collect_usage_pieces(within)])
    lines = ["#" * level + f" `{within.info_name}`", "", "```text", usage, "```", "", *_paragraphs(command.help or "")]
    options = [p for p in command.get_params(within) if isinstance(p, click.Option) and "--help" not in p.opts]
    if options:
        lines += ["| option | |", "| --- | --- |"]
        for names, about in (record for o in options if (record := o.get_help_record(within))):
            lines.append(f"| `{names.replace('|', chr(92) + '|')}` | {_cell(about)} |")
    lines += ["", *_paragraphs(command.epilog or "")]
    if isinstance(command, click.Group):
        each = filter(None, (command.get_command(within, one) for one in command.list_commands(within)))
        lines += [every_command(one, within, level + (parent is not None)) for one in each]
    return "\n".join(lines)


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of a docstring; those that click leaves as they are (marked \\b) become code below their head."""
    for part in cleandoc(text).replace("\b\n", "\b").split("\n\n"):
        if not part.startswith("\b"):
            yield from (_cell(part), "")
        else:
            head, _, rest = part[1:].partition("\n")
            yield from (_cell(head), "", "```text", cleandoc("\n" + rest), "```", "")


# --- the site ---------------------------------------------------------------------------------------------------------


def setup(app):
    from docutils import nodes
    from docutils.statemachine import StringList
    from latex2mathml.converter import convert
    from sphinx.util.docutils import SphinxDirective

    def directive(write):
        class Written(SphinxDirective):
            def run(self):
                node = nodes.Element()
                node.document = self.state.document
                self.state.nested_parse(StringList(write().splitlines(), "the code"), 0, node, match_titles=True)
                return node.children

        return Written

    def inline(self, node):
        self.body.append(convert(node.astext()))
        raise nodes.SkipNode

    def display(self, node):
        self.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
        raise nodes.SkipNode

    app.add_directive("every-key", directive(every_key))
    app.add_directive("every-command", directive(every_command))
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True}
