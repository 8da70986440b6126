"""The family of `model.family = "auto"`: a mixture or a cross-categorization, by the size of the table alone.

Views pay off even with few rows: on 60 rows of bfi (28 columns), views have better held-out scores than one partition
by 0.3 nats per row, and on 38 rows of 85 traits of animals by 1.3 and 3.2 in two splits. On 40 rows of narrow tables
there is no difference, on 22 rows of 102 columns views are worse by 1.7 and 2.0, and two columns leave hardly any views
to distinguish (docs/crosscat.md).
"""

from __future__ import annotations

from mpibayes.hpc.config.config import Config
from mpibayes.hpc.crosscat.given_priors import GammaPrior
from mpibayes.hpc.crosscat.keys import Model
from mpibayes.text import counted

FEWEST_ROWS, FEWEST_COLUMNS = 40, 3  # least rows and columns for which views pay off


def family_for(config: Config, n_rows: int, n_columns: int) -> str:
    """Return the family for a table with n_rows rows and n_columns used columns.

    A gamma prior of the concentration rules out views, whose moves integrate the concentration out on a grid.
    """
    small = n_rows < FEWEST_ROWS or n_columns < FEWEST_COLUMNS
    return "mixture" if small or isinstance(config.of(Model).concentration, GammaPrior) else "crosscat"


def in_words(family: str, n_rows: int, n_columns: int) -> str:
    """Describe the choice."""
    what = {"crosscat": "views of the columns, each with its own clusters", "mixture": "one partition of the rows"}
    size = f"{counted(n_rows, 'row')} and {counted(n_columns, 'column')}"
    return f'model.family = "auto": {family} ({what[family]}), for {size}'
