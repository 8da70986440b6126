"""Census records of which benchmarks take cells out, or make synthetic ones: the American Community Survey.

The 2018 and 2019 national extracts that SDNist hands out, acs_pums_nist/national2018.90pct.csv.xz and the same of 2019:
the age, the density, and 14 columns of at most 7 levels. `Study` says what is asked of such a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

LEVELS = 7
CATEGORIES = [
    "SEX", "MSP", "HISP", "RAC1P", "NOC", "NPF", "HOUSING_TYPE", "OWN_RENT", "INDP_CAT", "EDU", "INC", "POV", "DREM",
    "DPHY",
]  # fmt: skip
Levels = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Study:
    """A population of records, the columns that lack cells, and what is estimated from them.

    strong: pairs of categories whose shares are reported apart. drivers: two float columns (n, 2) that say how often
    cells are missing, covariates of both regressions. linear: levels by frequency that have dummy variables in a linear
    regression of the first number; logistic: of a logistic one of `response`, which has that number besides.
    """

    numbers: Sequence[str]
    categories: Sequence[str]
    strong: Sequence[tuple[str, str]]
    drivers: Callable[[pd.DataFrame], np.ndarray]
    linear: Levels
    logistic: Levels
    response: str
    links: Mapping[str, object]

    @property
    def gaps(self) -> list[str]:
        return [*self.numbers, *self.categories]


def coded(x: pd.Series) -> pd.Series:
    """Levels by frequency, v0 to v6, the rarest together."""
    code = x.map({level: min(i, LEVELS - 1) for i, level in enumerate(x.value_counts().index)})
    return code.map(lambda v: f"v{v}")


def population(folder: Path) -> pd.DataFrame:
    """AGEP and DENSITY as numbers, the other columns as codes 0..6; N, which says that a question does not apply, is a
    level."""
    parts = [
        pd.read_csv(folder / "acs_pums_nist" / f"national{year}.90pct.csv.xz", dtype=str, keep_default_na=False)
        for year in (2018, 2019)
    ]
    raw = pd.concat(parts, ignore_index=True)
    raw["INC"] = [x if x == "N" else str(int(x) // 2) for x in raw["PINCP_DECILE"]]
    raw["POV"] = [x if x == "N" else str(min(int(float(x)) // 100, 4)) for x in raw["POVPIP"]]
    table = pd.DataFrame({"AGEP": raw["AGEP"].astype(int), "DENSITY": raw["DENSITY"].astype(float)})
    for name in CATEGORIES:
        table[name] = coded(raw[name])
    return table


def mixture_population(n: int = 50_000, n_clusters: int = 8) -> pd.DataFrame:
    """Rows of a mixture whose columns, of the same names and kinds, are independent in each of its clusters."""
    g = np.random.default_rng(39)
    z = g.choice(n_clusters, size=n, p=g.dirichlet(np.full(n_clusters, 4.0)))
    age = g.normal(np.linspace(10, 80, n_clusters)[g.permutation(n_clusters)][z], 6.0).round()

    def codes(levels: int) -> np.ndarray:
        p = g.dirichlet(np.full(levels, 0.7), size=n_clusters).cumsum(axis=1)
        return (g.random(n)[:, None] > p[z, :-1]).sum(axis=1)

    table = pd.DataFrame({"AGEP": age, "DENSITY": np.geomspace(10.0, 50_000.0, 20).round(1)[codes(20)]})
    for name in CATEGORIES:
        table[name] = [f"v{v}" for v in codes(2 if name == "SEX" else 5)]
    return table


def sex_and_density(table: pd.DataFrame) -> np.ndarray:
    return np.column_stack([table["SEX"] == "v1", np.log(table["DENSITY"].to_numpy() + 1.0)]).astype(float)


NAMED = [("POV", "INC"), ("OWN_RENT", "POV"), ("INC", "INDP_CAT"), ("MSP", "OWN_RENT"), ("DPHY", "MSP"), ("EDU", "INC")]
EXPLAINING = [("INDP_CAT", "SEX"), ("DENSITY", "OWN_RENT")]  # pairs of gaps with what says where they are
GAPS = ["MSP", "OWN_RENT", "EDU", "INC", "POV", "DPHY", "INDP_CAT"]
CROSSED = [
    ("POV", "INC", "FIFTH"), ("OWN_RENT", "POV", "FIFTH"), ("INC", "INDP_CAT", "SEX"), ("MSP", "OWN_RENT", "SEX"),
    ("DPHY", "MSP", "SEX"), ("EDU", "INC", "FIFTH"), ("INDP_CAT", "SEX", "FIFTH"),
]  # fmt: skip
BANDED = [
    ("AGEP", "AGEB"), ("MSP", "AGEB", "SEX"), ("INDP_CAT", "AGEB", "SEX"), ("INC", "INDP_CAT", "SEX"),
    ("EDU", "INC", "AGEB"), ("POV", "INC", "FIFTH"), ("OWN_RENT", "POV", "FIFTH"), ("DPHY", "POV", "AGEB"),
]  # fmt: skip
REVERSED = [
    ("AGEP", "AGEB"), ("MSP", "AGEB", "SEX"), ("INDP_CAT", "AGEB", "SEX"), ("INC", "INDP_CAT", "SEX"),
    ("EDU", "INC", "AGEB"), ("POV", "INC"), ("OWN_RENT", "POV", "AGEB"), ("DPHY", "POV", "AGEB"), ("FIFTH", "OWN_RENT"),
]  # fmt: skip
LINKS = {
    "links": "forest",
    "named": NAMED,
    "explained": [*NAMED, *EXPLAINING],
    "gaps": [(name, "SEX" if name in ("INDP_CAT", "MSP") else "DENSITY") for name in GAPS],
    "crossed": CROSSED,
    "crossed+age": [*CROSSED, ("AGEP", "MSP")],
    "binned": [*([n if n != "FIFTH" else "DENSITY" for n in link] for link in CROSSED), ("AGEP", "MSP")],
    "banded": BANDED,
    "reversed": REVERSED,
    "tied": [("MSP", "OWN_RENT", "AGEB") if link[0] == "MSP" else link for link in REVERSED],
}  # by the method; fmt: skip
ACS = Study(
    numbers=["AGEP"],
    categories=GAPS,
    strong=[
        ("INC", "POV"), ("OWN_RENT", "POV"), ("INC", "INDP_CAT"), ("EDU", "INC"), ("MSP", "OWN_RENT"), ("MSP", "DPHY"),
    ],
    drivers=sex_and_density,
    linear={"OWN_RENT": (1,), "MSP": (1, 2), "DPHY": (1,), "EDU": (1, 2, 3), "POV": (1, 2, 3, 4)},
    logistic={"POV": (1, 2, 3, 4), "MSP": (1, 3, 4)},
    response="DPHY",
    links=LINKS,
)  # fmt: skip
