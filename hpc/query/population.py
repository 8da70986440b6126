"""The line under an answer that says of whom it is: of the population that survey weights stand for, or of the rows."""

from __future__ import annotations

from mpibayes.io.table import Table


def in_words(table: Table, weighted: bool) -> str:
    """The line about the weights under an answer; "" for a table without."""
    if table.weight is None:
        return ""
    if weighted:
        return (
            f"of the population, by the weights of the rows ('{table.weight}'); --unweighted: of the rows as they are"
        )
    return f"of the rows as they are, without their weights ('{table.weight}')"
