"""Tax filers of the Current Population Survey, of which imputation.py takes cells out.

The table is cps.csv.gz of the package taxcalc, 280,005 rows of 68 columns, most of which are dollar amounts that few
have. 24 columns are made of it: age, wages, property and state tax as numbers, and 20 of at most 7 levels, among them
whether there is an amount at all.

    pip download --no-deps taxcalc && tar xzf taxcalc-*.tar.gz --strip-components 2 --wildcards '*/taxcalc/cps.csv.gz'
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from acs import Study, coded

PRESENT = {
    "MEDICAID": "mcaid_ben", "MEDICARE": "mcare_ben", "SNAP": "snap_ben", "SSI": "ssi_ben", "HOUSING": "housing_ben",
    "WIC": "wic_ben", "SOCSEC": "e02400", "PENSION": "e01500", "DIVIDENDS": "e00600", "UNEMPLOYED": "e02300",
}  # fmt: skip
IN_THIRDS = {"INTEREST": "e00300", "MORTGAGE": "e19200"}  # none, and thirds of the amount
NORTHEAST, MIDWEST = {9, 23, 25, 33, 34, 36, 42, 44, 50}, {17, 18, 19, 20, 26, 27, 29, 31, 38, 39, 46, 55}
WEST = {2, 4, 6, 8, 15, 16, 30, 32, 35, 41, 49, 53, 56}
INCOMES = [-1, 1, 4, 6, 8, 10, 99]  # bounds of six classes, in the table's own bins of adjusted gross income


def population(path: Path) -> pd.DataFrame:
    raw = pd.read_csv(path)
    table = pd.DataFrame(
        {"AGE": raw["age_head"], "WAGES": raw["e00200"], "HOMETAX": raw["e18500"], "STATETAX": raw["e18400"]}
    )
    regions = {**dict.fromkeys(NORTHEAST, 1), **dict.fromkeys(MIDWEST, 2), **dict.fromkeys(WEST, 3)}
    columns = {
        "MARS": raw["MARS"], "SIZE": raw["XTOT"], "CHILDREN": raw["nu18"].clip(upper=3), "EIC": raw["EIC"],
        "REGION": raw["fips"].map(regions).fillna(4), "YEAR": raw["FLPDYR"], "BUSINESS": np.sign(raw["e00900"]),
        "INC": pd.cut(raw["agi_bin"], INCOMES, labels=False),
    }  # fmt: skip
    columns |= {name: raw[of] > 0 for name, of in PRESENT.items()}
    for name, of in IN_THIRDS.items():
        columns[name] = pd.qcut(raw[of].where(raw[of] > 0), 3, labels=False).fillna(-1)
    return table.assign(**{name: coded(x) for name, x in columns.items()})


def children_and_property(table: pd.DataFrame) -> np.ndarray:
    return np.column_stack([table["CHILDREN"] != "v0", np.log1p(table["HOMETAX"].to_numpy())]).astype(float)


CPS = Study(
    numbers=["AGE", "WAGES"],
    categories=["MARS", "SIZE", "INC", "SNAP", "MEDICAID", "SOCSEC", "INTEREST"],
    strong=[  # the six of 21 pairs with the most mutual information
        ("MARS", "SIZE"), ("MARS", "INC"), ("SIZE", "INC"), ("INC", "INTEREST"), ("INC", "SNAP"), ("MARS", "INTEREST"),
    ],
    drivers=children_and_property,
    linear={"MARS": (1, 2, 3), "SOCSEC": (1,), "INC": (1, 2, 3, 4, 5)},
    logistic={"MARS": (1, 2, 3), "INC": (1, 2, 3, 5)},
    response="SNAP",
    links={
        "links": "forest",
        "named": [
            ("SIZE", "MARS", "CHILDREN"), ("MARS", "INC", "CHILDREN"), ("SNAP", "INC", "CHILDREN"),
            ("INTEREST", "INC", "MARS"), ("MEDICAID", "SNAP", "CHILDREN"), ("INC", "HOMETAX"), ("SOCSEC", "MEDICARE"),
        ],
    },
)  # fmt: skip
