"""Formatting of numbers, durations and foreign names in messages and reports."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence


def counted(n: int, noun: str, plural: str = "") -> str:
    """Format a number and the noun it counts.

    >>> counted(1, "row"), counted(12000, "row"), counted(2, "class", "classes")
    ('1 row', '12,000 rows', '2 classes')
    """
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def enumerated(words: Sequence[str], last: str = "and") -> str:
    """Join words in a sentence.

    >>> enumerated(["a"]), enumerated(["a", "b"]), enumerated(["a", "b", "c"], "or")
    ('a', 'a and b', 'a, b or c')
    """
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def span(values: Sequence[int], noun: str = "") -> str:
    """Format the range of some numbers, with the noun they count, if given.

    >>> span([7, 7]), span([7, 12], "cycle")
    ('7', '7 to 12 cycles')
    """
    low, high = min(values), max(values)
    text = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    return f"{text} {noun}{'s' * (high != 1)}" if noun else text


def every(n: int, noun: str = "cycle") -> str:
    """Frequency in words: "every cycle", or "every 4 cycles"."""
    return f"every {noun if n == 1 else counted(n, noun)}"


def visible(text: object) -> str:
    r"""Escape unprintable characters, so that a text is one line and cannot control a terminal.

    >>> visible("Zürich"), visible("\x1b[31mred\u202e\n")
    ('Zürich', '\\x1b[31mred\\u202e\\n')
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def visible_lines(text: str) -> str:
    """`visible` for a text of our own that has line breaks."""
    return "\n".join(map(visible, text.split("\n")))


def whole_number(text: str) -> int | None:
    """Integer written with 1 to 18 digits 0 to 9, else None: `isdigit` accepts digits and lengths that `int` rejects.

    >>> whole_number("17"), whole_number("-1"), whole_number("²"), whole_number("9" * 5000)
    (17, None, None, None)
    """
    return int(text) if len(text) <= 18 and text.isascii() and text.isdigit() else None


def is_unicode(text: str) -> bool:
    """False if a text contains a lone surrogate, Python's form of a byte of an argument that is not UTF-8."""
    return not any("\ud800" <= c <= "\udfff" for c in text)


def toml_string(text: str) -> str:
    r"""Write a TOML string that reads back unchanged and has only printable characters.

    >>> toml_string('5" \x1b')
    '"5\\" \\u001b"'
    """

    def escaped(c: str) -> str:
        if c in '"\\':
            return "\\" + c
        return c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}"

    return f'"{"".join(map(escaped, text))}"'


def option(name: str, value: str) -> str:
    """Format an option for a shell.

    >>> option("kind", "zip code=categorical")
    "--kind 'zip code=categorical'"
    >>> option("missing", "Don't know")
    '--missing "Don\'t know"'
    """
    legible = "'" in value and not set('"$`\\!') & set(value)  # nothing that a shell reads within double quotes
    return f"--{name} " + (f'"{value}"' if legible else shlex.quote(value))


def near(name: str, known: Iterable[str]) -> str:
    """Suggest a known name: ' (did you mean ...?)' if one is near `name`; otherwise an empty text."""
    import difflib

    known = list(known)
    matches = difflib.get_close_matches(name.lower(), [k.lower() for k in known], 1, 0.6)
    if not matches:
        return ""
    return f" (did you mean '{next(k for k in known if k.lower() == matches[0])}'?)"


def import_again(column: str, kind: str) -> str:
    """Advice for a column that should be of another kind.

    >>> import_again("zip code", "categorical")
    "import the table again with --kind 'zip code=categorical' --force"
    """
    return f"import the table again with {option('kind', f'{column}={kind}')} --force"


def percent(p: float) -> str:
    """Format a share: 0 %, 0.03 %, 7.1 %, 24 %, 99.7 %, 100 %."""
    x = 100.0 * float(p)
    if 0 < x < 0.01:
        return "<0.01 %"
    if x >= 99.95 or x == 0 or 9.95 <= x < 99.0:
        return f"{x:.0f} %"
    return f"{x:.2g} %" if x < 9.95 else f"{x:.1f} %"


def number(x: float) -> str:
    """Format a number: 0.042, 8.1, 34.2, 1,204."""
    x = float(x)
    if not math.isfinite(x):
        return "-"
    size = abs(x)
    if x == 0 or size < 5e-4:
        return "0" if x == 0 else f"{x:.1g}"
    if size >= 1e7:
        return f"{x / 1e6:.3g} million" if size < 9.995e8 else f"{x:.3g}"
    digits = 0 if size >= 100 else 1 if size >= 1 else 1 - math.floor(math.log10(size))
    text = f"{x:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def took(seconds: float) -> str:
    """Format seconds: 0.08s, 4.5s, 48s, 5m12s."""
    return f"{seconds:.2g}s" if seconds < 9.95 else duration(seconds)


def factor(mean: float, sd: float) -> str:
    """Format "187 ×/÷ 1.7": geometric mean and deviation, from the mean and deviation of logarithms."""
    if not math.isfinite(mean) or mean > 600:
        return "-"
    middle = number(math.exp(mean))
    return middle if not math.isfinite(sd) or sd > 600 else f"{middle} ×/÷ {_times(math.exp(sd))}"


def _times(x: float) -> str:
    """Format a factor of 1 or more, with two digits of the excess over 1 if that is small: 1.0032, 1.080, 1.7, 12."""
    beyond = x - 1.0
    return f"{x:.2g}" if beyond >= 0.095 or beyond < 1e-6 else f"{x:.{1 - math.floor(math.log10(beyond))}f}"


def spread(mean: float, sd: float) -> str:
    """Format 8.1 ± 5.0, to the digits that the spread makes meaningful. Four digits have no comma: they may be a
    year."""
    if not math.isfinite(sd):
        return number(mean)
    if sd == 0:
        return f"{number(mean)} throughout" if math.isfinite(mean) else "-"
    if 1e7 <= sd < 1e9 and abs(mean) < 1e9:
        return f"{spread(mean / 1e6, sd / 1e6)} million"
    if sd >= 1e7 or sd < 1e-4:
        return f"{mean:.3g} ± {sd:.2g}"
    digits = max(0, 1 - math.floor(math.log10(sd)))
    if abs(mean) > sd:
        digits = min(digits, max(0, 3 - math.floor(math.log10(abs(mean)))))
    if float(f"{sd:.{digits}f}") == 0.0:  # 12.88 ± 0.004, which are no equal numbers
        return f"{mean:.{digits}f} ± {sd:.1g}"
    return " ± ".join(f"{x:{',' if abs(x) >= 9_999.5 else ''}.{digits}f}" for x in (mean, sd))


def duration(seconds: float | None, words: bool = False) -> str:
    """Format seconds: 48s, 5m12s, 3h05m, 2d04h. words: 48 s, 5 min 12 s, 3 h 5 min, 2 d 4 h."""
    if seconds is None or not math.isfinite(seconds):
        return "-" if words else "?"
    s = max(0, round(seconds))
    units = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
    for size, unit, small, next_unit in units:
        if s >= size:
            n, rest = s // size, s % size // small
            return f"{n} {unit} {rest} {next_unit}" if words else f"{n}{unit[0]}{rest:02d}{next_unit[0]}"
    return f"{s} s" if words else f"{s}s"


def rate(per_second: float | None) -> str:
    """Format rows per second with a unit: 830rows/s, 21.3krows/s, 2.20Mrows/s."""
    if per_second is None or not math.isfinite(per_second):
        return "?rows/s"
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if per_second >= size:
            return f"{per_second / size:.3g}{unit}rows/s"
    return f"{per_second:.3g}rows/s"


def count(n: float) -> str:
    """Format a number of rows in three digits: 830, 12.3k, 2.2M, 1.05G."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= 0.9995 * size:
            return f"{n / size:.3g}{unit}"
    return f"{n:.0f}"
