"""Checksums of a whole file at its end, behind the data that HDF5 reads.

HDF5 verifies neither contiguous datasets nor, in the file version that older readers know, its own tables of contents.
A flipped bit there means wrong data, or a crash. A sealed file is an HDF5 file followed by

    \\n{"piece": 1048576, "size": 4711, "apart": [[start, stop], ...], "crc32": [one a piece]}\\n
    mpibayes-seal <length of the line above with its first line feed, 16 digits> <its CRC-32, 8 hexadecimal digits>\\n

`size` is that of the HDF5 file; the byte ranges in `apart` are large data that are verified when read.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from mpibayes.io.documents import json_value
from mpibayes.io.files import open_regular

PIECE = 1 << 20
LAST = 41  # bytes of the last line, with the line feed before it


def append_seal(file: BinaryIO, apart: Sequence[tuple[int, int]] = ()) -> None:
    """Seal a file that is open for reading and writing."""
    file.seek(0)
    sums = []
    while piece := file.read(PIECE):
        sums.append(zlib.crc32(piece))
    file.write(_seal(file.tell(), sums, apart))


def _seal(size: int, sums: list[int], apart: Sequence[tuple[int, int]]) -> bytes:
    about = {"piece": PIECE, "size": size, "apart": [list(a) for a in apart], "crc32": sums}
    text = b"\n" + json.dumps(about).encode()
    return text + f"\nmpibayes-seal {len(text):016d} {zlib.crc32(text):08x}\n".encode()


@dataclass
class Seal:
    """Contents of a file's seal, and the pieces that this process has found intact."""

    path: Path
    about: dict[str, Any] | None  # None: the file has no seal
    _sound: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, path: Path) -> Seal:
        """Seal of a file, cached while the file is unchanged. Raises OSError; ValueError if damaged."""
        with open_regular(path) as file:
            now = os.fstat(file.fileno())
            key = (str(path), now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns)
            if key not in _known:
                if len(_known) >= 1024:
                    _known.clear()
                _known[key] = cls(path, _read(file, now.st_size))
            return _known[key]

    def require(self) -> None:
        """Raise ValueError if the file has no seal, which every file of ours has."""
        if self.about is None:
            raise ValueError("truncated: the checksums at its end are missing")

    def verify_contents(self) -> None:
        """Verify all but the data apart. Raises OSError; ValueError if damaged."""
        if self.about is not None:
            edge = 0
            for start, stop in [*sorted(self.about["apart"]), (self.about["size"],) * 2]:
                self.verify(edge, start)
                edge = stop

    def verify(self, start: int, stop: int) -> None:
        """Verify these bytes of the file, with all the pieces that contain them. Raises OSError; ValueError if
        damaged."""
        if self.about is None or stop <= start:
            return
        piece, size, sums = self.about["piece"], self.about["size"], self.about["crc32"]
        unread = [i for i in range(start // piece, min(-(-stop // piece), len(sums))) if i not in self._sound]
        if not unread:
            return
        with open_regular(self.path) as file:
            for i in unread:
                file.seek(i * piece)
                if zlib.crc32(file.read(min(piece, size - i * piece))) != sums[i]:
                    raise ValueError(f"the checksum of bytes {i * piece} to {min(size, (i + 1) * piece)} is wrong")
                self._sound.add(i)


_known: dict[tuple, Seal] = {}


def _read(file: BinaryIO, size: int) -> dict[str, Any] | None:
    file.seek(max(0, size - LAST))
    line = re.fullmatch(rb"\nmpibayes-seal (\d{16}) ([0-9a-f]{8})\n", file.read(LAST))
    if line is None:
        return None
    start = size - LAST - int(line[1])
    file.seek(max(0, start))
    text = file.read(int(line[1])) if start > 0 else b""
    if zlib.crc32(text) != int(line[2], 16):
        raise ValueError("the list of its checksums is damaged")
    return json_value(text)
