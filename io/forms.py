"""Forms of numbers: decimal commas, groups of three digits, currencies, per cent; and their parsing.

A form is inferred from a column's first cells and applies to all of it: cells in another form are not numbers. A plain
number (`encode.NUMBER`) has no form.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

BLANKS = " \u00a0\u202f"  # between groups: space, no-break space, narrow no-break space
UNITS = ("%", "$", "€", "£", "¥", "EUR", "USD", "GBP", "CHF", "JPY")
SIGNS = "+-\u2212"
BRACKETS = r"^([$€£¥]?)\(([^()]*)\)$"
INFINITE = r"(?i)^[+-]?inf(inity)?$"


@dataclass(frozen=True)
class Form:
    """decimal: "." or ","; thousands: "" for none, ",", ".", " " (any blank) or "'"; unit: "" or one of UNITS.
    brackets: True if negative numbers may be in brackets, as in accounting."""

    decimal: str = "."
    thousands: str = ""
    unit: str = ""
    brackets: bool = False

    def pattern(self) -> str:
        """Regular expression for numbers in this form, with sign and digits as groups."""
        group = f"[{BLANKS}]" if self.thousands == " " else re.escape(self.thousands)
        grouped = rf"\d{{1,3}}(?:{group}\d{{3}})+|" if self.thousands else ""
        digits = rf"(?:{grouped}\d+)(?:{re.escape(self.decimal)}\d*)?"
        unit = re.escape(self.unit)
        before, after = (rf"(?:{unit}[{BLANKS}]*)?", rf"(?:[{BLANKS}]*{unit})?") if self.unit else ("", "")
        return rf"^{before}([{SIGNS}]?){before}({digits}){after}$"

    def plain(self, texts: pa.StringArray) -> pa.StringArray:
        """Convert texts to plain numbers; "" for a text not in this form; infinite numbers stay."""
        pattern = self.pattern()
        if self.brackets:
            texts = pc.replace_substring_regex(texts, BRACKETS, r"-\1\2")
        ours = pc.or_(pc.match_substring_regex(texts, pattern), pc.match_substring_regex(texts, INFINITE))
        plain = pc.replace_substring_regex(texts, pattern, r"\1\2")
        plain = pc.replace_substring(plain, "\u2212", "-")
        if self.thousands:
            group = f"[{BLANKS}]" if self.thousands == " " else re.escape(self.thousands)
            plain = pc.replace_substring_regex(plain, group, "")
        if self.decimal != ".":
            plain = pc.replace_substring(plain, self.decimal, ".")
        return pc.if_else(ours, plain, pa.scalar("", pa.string()))

    def written(self, plain: str) -> str:
        """Format a plain number without exponent in this form, without groups."""
        sign, digits = ("-", plain[1:]) if plain.startswith("-") else ("", plain)
        digits = digits.replace(".", self.decimal)
        if self.unit in ("$", "€", "£", "¥"):
            return f"{sign}{self.unit}{digits}"
        return f"{sign}{digits}{'' if self.unit == '%' else ' ' * bool(self.unit)}{self.unit}"

    def in_words(self) -> str:
        parts = ["decimal commas"] if self.decimal == "," else []
        if self.thousands:
            groups = {",": "commas", ".": "points", " ": "blanks", "'": "apostrophes"}[self.thousands]
            parts.append(f"{groups} between thousands")
        parts += ["brackets for minus"] if self.brackets else []
        unit = {"": [], "%": ["in per cent"]}.get(self.unit, [f"in {self.unit}"])
        return " ".join(["numbers", *(["with " + " and ".join(parts)] if parts else []), *unit])


@dataclass(frozen=True)
class NumbersLike(Form):
    """Numbers of a file that all have at least `decimals` decimals, and at most `most`, if this is given."""

    decimals: int = 0
    most: int | None = None

    def written(self, plain: str) -> str:
        if self.most is not None:
            plain = f"{round(float(plain), self.most) + 0.0:.{self.most}f}"  # no -0
        whole, _, decimals = plain.partition(".")
        decimals = (decimals if self.most is None else decimals.rstrip("0")).ljust(self.decimals, "0")
        return super().written(f"{whole}.{decimals}" if decimals else whole)


def decimals_of(form: Form | None, texts: pa.StringArray) -> tuple[int, int]:
    """Return the least and the largest number of decimals of the numbers among the texts; 0 and 0 without numbers."""
    plain = texts if form is None else form.plain(texts)
    matches = (re.fullmatch(r"[+-]?\d*(?:\.(\d*))?", text) for text in plain.to_pylist() if text)
    numbers = [len(match[1] or "") for match in matches if match] or [0]
    return min(numbers), max(numbers)


def form_of(
    texts: Sequence[str], decimal: str | None = None, thousands: str | None = None
) -> tuple[Form | None, Form | None]:
    """Form in which all the texts are numbers, and a second one if both fit ("1,234"); None: plain, or none fits.

    decimal, thousands: given by the user. Of forms that fit, the one with the fewest marks is taken.
    """
    texts = [text for text in texts if not re.match(INFINITE, text)]
    if not texts:
        return None, None
    if any(re.match(BRACKETS, text) for text in texts):
        bare = [re.sub(BRACKETS, r"-\1\2", text) for text in texts]
        form, other = form_of(bare, decimal, thousands)
        fits = form is not None or all(re.match(Form().pattern(), text) for text in bare)
        return (
            (replace(form or Form(), brackets=True), other and replace(other, brackets=True)) if fits else (None, None)
        )
    unit = next((u for u in UNITS if all(u in text for text in texts)), "")
    forms = [
        Form(d, t, unit)
        for d, t in ((".", ""), (",", ""), (",", "."), (".", ","), (",", " "), (".", " "), (".", "'"), (",", "'"))
        if (decimal or d) == d and (not thousands or (t in ("", thousands) and d != thousands))
    ]
    fit: list[Form] = []
    for form in forms:
        if all(re.match(form.pattern(), text) for text in texts) and _needed(form, texts):
            fit.append(form)
            if form == Form():  # the first, and nothing else counts
                break
    if not fit or fit[0] == Form():
        minus = any("\u2212" in text for text in texts)
        return (fit[0] if fit and minus else None), None
    commas = [form for form in fit if "," in (form.decimal, form.thousands) and form.thousands in ("", ",")]
    other = commas[1] if len(commas) > 1 and commas[0] == fit[0] else None
    return fit[0], other


def _needed(form: Form, texts: Sequence[str]) -> bool:
    """True if every mark of a form occurs."""
    groups = set(BLANKS if form.thousands == " " else form.thousands)
    return (form.decimal == "." or form.thousands == "." or any("," in text for text in texts)) and (
        not groups or any(groups & set(text) for text in texts)
    )


def settled(form: Form, other: Form | None, clear: Collection[Form], delimiter: str | None) -> tuple[Form, bool]:
    """Choose between two forms of "1,234" by the file's unambiguous columns, else by its delimiter; also return True if
    that was a guess."""
    if other is None:
        return form, False
    if any(f.decimal == "," for f in clear):
        return form, False
    if any(f.thousands == "," for f in clear):
        return other, False
    return (form if delimiter == ";" else other), True
