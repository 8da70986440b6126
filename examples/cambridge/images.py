"""Writes a table of made images of 6 x 6 pixels: four pictures that overlay one another, and noise.

    python images.py images.csv --rows 1000

Every row has each of a cross, a ring, a staircase and a T with probability 1/2; its pixels are the sum of what it has,
and normal noise of standard deviation 0.5. After the images of Griffiths & Ghahramani (2011), with pictures of our own.
"""

from __future__ import annotations

import argparse
import csv

import numpy as np

PICTURES = (
    ("010000", "111000", "010000", "000000", "000000", "000000"),
    ("000111", "000101", "000111", "000000", "000000", "000000"),
    ("000000", "000000", "000000", "100000", "110000", "111000"),
    ("000000", "000000", "000000", "000111", "000010", "000010"),
)
NOISE = 0.5


def images(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(pixels (n, 36), which pictures each row has (n, 4))."""
    stream = np.random.default_rng(seed)
    pictures = np.array([[float(pixel) for line in lines for pixel in line] for lines in PICTURES])
    has = stream.random((n_rows, len(pictures))) < 0.5
    return has @ pictures + NOISE * stream.standard_normal((n_rows, pictures.shape[1])), has


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("file", help="CSV file to write")
    words.add_argument("--rows", type=int, default=1000)
    words.add_argument("--seed", type=int, default=1)
    given = words.parse_args()
    pixels, _ = images(given.rows, given.seed)
    with open(given.file, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow([f"pixel_{i}_{j}" for i in range(1, 7) for j in range(1, 7)])
        out.writerows([f"{x:.9g}" for x in row] for row in pixels)


if __name__ == "__main__":
    main()
