"""Guess the encoding of bytes that are not UTF-8, for a hint: each letter, sign and quote is judged by its neighbours.
A wrong encoding gives capitals within words, signs between letters, and letters of several scripts.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

CANDIDATES = ("cp1252", "mac_roman", "cp1250", "cp1251", "koi8_r", "cp850")  # ties go to the first
PLACES = 2_000  # distinct places judged, at most
QUOTES = "’‘“”„«»–—…°"
UNMARKED = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")


def likely(data: bytes) -> str:
    """Encoding of CANDIDATES in which the bytes make most sense; the first if they make none."""
    spots = re.findall(rb"(?<![\x80-\xff])[\x00-\x7f]?[\x80-\xff]+[\x00-\x7f]?", data)
    places = Counter(spots).most_common(PLACES)
    return max(CANDIDATES, key=lambda encoding: sum(_sense(place, encoding) * n for place, n in places))


def unmarked(head: bytes) -> str:
    """UTF-16 or UTF-32 variant of a file without a byte order mark; "" if it is in neither."""
    head = head[: len(head) // 4 * 4]
    for encoding in UNMARKED if b"\0" in head else ():
        text = head.decode(encoding, "replace")
        readable = sum(c.isprintable() or c.isspace() for c in text)
        if readable > 0.98 * len(text) and re.search(r"[\r\n]", text) and text.count("\ufffd") < 2:
            return encoding
    return ""


def _sense(place: bytes, encoding: str) -> float:
    """Score the fit of bytes to their neighbours: about 1 per plausible character, below 0 for implausible ones."""
    try:
        text = place.decode(encoding)
    except UnicodeDecodeError:
        return -3.0 * len(place)
    around = f" {text} "
    return sum(_fits(c, around[i], around[i + 2]) for i, c in enumerate(text) if ord(c) > 127)


def _fits(c: str, before: str, after: str) -> float:
    kind, beside = unicodedata.category(c), [x for x in (before, after) if x.isalpha()]
    if kind in ("Lu", "Ll"):
        if any(_script(x) != _script(c) for x in beside):
            return -2.0
        crowded = 0.5 * sum(not x.isascii() for x in beside) if _script(c) == "LATIN" else 0.0
        if kind == "Ll":
            return (1.0 if beside else 0.2) - crowded - (c in "ﬁﬂ")
        if before.islower() or (before.isupper() and after.islower()):
            return -2.0
        return (1.0 if beside else -0.5) - crowded
    if kind == "Sc":
        return -1.0 if beside else 1.0
    if kind in ("Cc", "Cn", "Co"):
        return -3.0
    if len(beside) == 2:
        return 1.0 if c == "’" else -1.5
    if c in QUOTES or (c in "¿¡" and after.isalpha()):
        return 1.0 if beside else 0.5
    return 0.2 if kind in ("No", "Zs", "Po", "So") else -0.5


def _script(c: str) -> str:
    return unicodedata.name(c, "").partition(" ")[0]
