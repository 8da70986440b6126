"""The family of `model.family = "auto"`: a mixture or a cross-categorization, by the size of the table alone.

Views pay from few rows on: of bfi (28 columns), held-out scores of views are 0.2 nats a row better than those of one
partition on 60 rows, 0.7 on 150 and 1 on 2,800 (docs/crosscat.md). Two columns have hardly any views to tell apart, and
on 22 to 33 rows of 102 columns views are worse by 1 to 4 nats a row.
"""

from __future__ import annotations

from mpibayes.hpc.config.config import Config
from mpibayes.hpc.crosscat.given_priors import GammaPrior
from mpibayes.hpc.crosscat.keys import Model
from mpibayes.text import counted

FEWEST_ROWS, FEWEST_COLUMNS = 50, 3  # of a table on which views pay


def family_for(config: Config, n_rows: int, n_columns: int) -> str:
    """Return the family for a table of so many rows and used columns.

    A gamma prior of the concentration leaves the mixture alone: moves of views integrate the concentration out.
    """
    small = n_rows < FEWEST_ROWS or n_columns < FEWEST_COLUMNS
    return "mixture" if small or isinstance(config.of(Model).concentration, GammaPrior) else "crosscat"


def in_words(family: str, n_rows: int, n_columns: int) -> str:
    """Describe the choice."""
    what = {"crosscat": "views of the columns, each with clusters of its own", "mixture": "one partition of the rows"}
    size = f"{counted(n_rows, 'row')} and {counted(n_columns, 'column')}"
    return f'model.family = "auto": {family}, {what[family]}, for {size}'
