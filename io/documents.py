"""TOML and JSON texts from outside, parsed within limits: any text quickly gives a document or a ValueError.

Python's parsers fail on deep nesting with a RecursionError, take time quadratic in the parts of a dotted key, and make
numbers of any length, which then fit neither a float nor a message.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

MOST_PARTS = 32  # of a dotted key; the longest valid one has 4
MOST_LEVELS = 32  # of nested lists and tables; the deepest valid one has 6
MOST_BITS = 1023  # of an integer: beyond, it exceeds double precision
LINE = re.compile(r"\s*\(at line (\d+), column (\d+)\)")  # as tomllib ends its messages

KEY_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""  # of a dotted key: bare, or in quotes
_TOKENS = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|' + r"'''.*?'''|" + rf"#[^\n]*+|(?P<key>{KEY_PART}(?:[ \t]*+\.[ \t]*+{KEY_PART})*+)",
    re.DOTALL,
)


class TooMuch(ValueError):
    """Document beyond the limits; `line` of the text, if known."""

    def __init__(self, message: str, line: int | None = None):
        super().__init__(message)
        self.line = line


def toml(text: str) -> dict[str, Any]:
    """Parse TOML. Raises tomllib.TOMLDecodeError if it is invalid, TooMuch if it is beyond the limits."""
    _check_keys(text)
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise TooMuch(_deep("lists and tables")) from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as error:  # from int(), which accepts 4,300 digits
        digits = re.search(r"[0-9_]{4000,}", text)
        raise TooMuch(_large() if digits else str(error), digits and _line(text, digits.start())) from None
    check_values(document)
    return document


def json_value(data: str | bytes) -> Any:
    """Parse JSON. Raises ValueError if it is invalid or beyond the limits."""
    try:
        value = json.loads(data)
    except RecursionError:
        raise TooMuch(_deep("lists and objects")) from None
    except ValueError as error:
        if "integer string conversion" in str(error):
            raise TooMuch(_large()) from None
        raise
    check_values(value)
    return value


def json_text(value: Any) -> str:
    """Write JSON in UTF-8 that `json_value` reads back unchanged, including file names that are not UTF-8."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def where(error: ValueError, text: str) -> tuple[int | None, str]:
    """Line of a problem raised by `toml`, if known, and its message without the line."""
    if isinstance(error, TooMuch):
        return error.line, str(error)
    message = str(error)
    if match := LINE.search(message):
        return int(match[1]), message.replace(match[0], f" (column {match[2]})")
    return (text.count("\n") + 1 if "at end of document" in message else 1), message


def _check_keys(text: str) -> None:
    for token in _TOKENS.finditer(text):
        if token["key"] and token["key"].count(".") >= MOST_PARTS:
            parts = sum(1 for _ in re.finditer(KEY_PART, token["key"]))
            if parts > MOST_PARTS:
                words = f"a key of {parts:,} parts; expected {MOST_PARTS} at most, as columns.age.use has 3"
                raise TooMuch(words, _line(text, token.start()))


def check_values(document: Any) -> None:
    """Raise TooMuch for nesting and integers beyond the limits. It keeps its own stack: Python's is short."""
    stack: list[tuple[tuple[Any, ...], Any]] = [((), [document])]
    while stack:
        path, within = stack.pop()
        for key, value in within.items() if isinstance(within, dict) else enumerate(within):
            if isinstance(value, int) and value.bit_length() > MOST_BITS:
                raise TooMuch(": ".join(filter(None, (".".join(map(str, (*path, key)[1:])), _large()))))
            if isinstance(value, dict | list | tuple):
                if len(path) > MOST_LEVELS:
                    raise TooMuch(_deep("lists and tables"))
                stack.append(((*path, key), value))


def _deep(what: str) -> str:
    return f"{what} within each other more than {MOST_LEVELS} deep"


def _large() -> str:
    return "a whole number of more than 300 digits"


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
