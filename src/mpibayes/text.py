"""Small words of messages, and what other people's words look like in them."""

from __future__ import annotations

import shlex


def counted(n: int, noun: str, plural: str = "") -> str:
    """A number and what it counts.

    >>> counted(1, "row"), counted(12000, "row"), counted(2, "class", "classes")
    ('1 row', '12,000 rows', '2 classes')
    """
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def every(n: int, noun: str = "cycle") -> str:
    """How often: "every cycle", or "every 4 cycles"."""
    return f"every {noun if n == 1 else counted(n, noun)}"


def visible(text: object) -> str:
    r"""A text in one line that cannot steer a terminal: what is not printable is escaped.

    >>> visible("Zürich"), visible("\x1b[31mred\u202e\n")
    ('Zürich', '\\x1b[31mred\\u202e\\n')
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def visible_lines(text: str) -> str:
    """The same of a text of our own that has line breaks."""
    return "\n".join(map(visible, text.split("\n")))


def is_unicode(text: str) -> bool:
    """False for half a surrogate pair, which is what Python makes of a byte in arguments that is not UTF-8."""
    return not any("\ud800" <= c <= "\udfff" for c in text)


def toml_string(text: str) -> str:
    r"""A TOML string that is read back the same and can be looked at.

    >>> toml_string('5" \x1b')
    '"5\\" \\u001b"'
    """

    def escaped(c: str) -> str:
        if c in '"\\':
            return "\\" + c
        return c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}"

    return f'"{"".join(map(escaped, text))}"'


def import_again(column: str, kind: str) -> str:
    """What to do where a column should be of another kind than the table has it.

    >>> import_again("zip code", "categorical")
    "import the table again with --kind 'zip code=categorical' --force"
    """
    return f"import the table again with --kind {shlex.quote(f'{column}={kind}')} --force"
