"""Small words of messages."""

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


def import_again(column: str, kind: str) -> str:
    """What to do where a column should be of another kind than the table has it.

    >>> import_again("zip code", "categorical")
    "import the table again with --kind 'zip code=categorical' --force"
    """
    return f"import the table again with --kind {shlex.quote(f'{column}={kind}')} --force"
