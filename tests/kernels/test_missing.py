"""Rows that lack number cells, few or most of them, get the twin's labels, whatever rows they are scored with."""

import numpy as np
import pytest

from mpibayes.kernels import mixture
from mpibayes.kernels.mixture import twin

from .tables import random_parameters, random_table

COLUMNS = {
    "reals": {"n_reals": 9},
    "more reals than bits of a word": {"n_reals": 67},
    "counts": {"n_tallies": 5},
    "both": {"n_reals": 5, "n_tallies": 11, "levels8": (3, 4)},
}
MISSING = {"none": (0.0, 0.0), "few": (0.1, 0.1), "most": (0.85, 0.85), "all": (1.0, 1.0), "few or most": (0.0, 0.9)}


def table(rng, n, columns, missing):
    """n rows, each with one of the two shares of its number cells missing."""
    rows, prior = random_table(rng, n, **COLUMNS[columns], missing=0.0, scale=0.5)
    share = rng.choice(MISSING[missing], size=(n, 1))
    for cells in (rows.reals, rows.tallies):
        cells[rng.random(cells.shape) < share] = np.nan
    return rows, prior


def labels(module, rows, prior, parameters, row0=0):
    """Labels that one sweep draws from instantiated clusters alone."""
    z = np.zeros(len(rows), np.int32)
    module.sweep(rows, z, row0, 11, 2, 0, 0, module.Instantiated(**parameters), None, prior, True)
    return z


@pytest.mark.quick(every=5)
@pytest.mark.parametrize("n, n_clusters", [(1, 20), (8, 1), (13, 16), (21, 83)])
@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("columns", COLUMNS)
def test_labels_are_the_twins(columns, missing, n, n_clusters):
    rng = np.random.default_rng([2, n, n_clusters])
    rows, prior = table(rng, n, columns, missing)
    parameters = random_parameters(rng, prior, n_clusters, n_clusters, [])
    assert np.array_equal(*(labels(module, rows, prior, parameters) for module in (mixture, twin)))


@pytest.mark.parametrize("columns", COLUMNS)
def test_a_label_does_not_depend_on_the_rows_around(columns):
    rng = np.random.default_rng(3)
    rows, prior = table(rng, 37, columns, "few or most")
    parameters = random_parameters(rng, prior, 40, 40, [])
    alone = [labels(mixture, rows.take([i]), prior, parameters, row0=i)[0] for i in range(37)]
    assert labels(mixture, rows, prior, parameters).tolist() == alone


@pytest.mark.parametrize("missing", ["few", "most"])
@pytest.mark.parametrize("columns, term, sign", [("reals", "constant", 1), ("counts", "rate", -1)])
def test_terms_of_missing_cells_would_be_noticed(columns, term, sign, missing):
    """Clusters that hardly differ but in these terms; a program that counts them for missing cells, here as part of the
    clusters' weights, draws other labels."""
    rng = np.random.default_rng(4)
    rows, prior = table(rng, 200, columns, missing)
    rows.reals *= 0.1
    parameters = random_parameters(rng, prior, 16, 16, [])
    parameters["location"] *= 0.1
    parameters["rate"] = rng.uniform(4, 6, size=parameters["rate"].shape)
    parameters["log_rate"] = np.log(parameters["rate"])
    lacking = np.isnan(rows.reals if columns == "reals" else rows.tallies)
    wrong = []
    for i in range(len(rows)):
        log_weight = parameters["log_weight"] + sign * parameters[term][lacking[i], :16].sum(axis=0)
        wrong += labels(mixture, rows.take([i]), prior, parameters | {"log_weight": log_weight}, row0=i).tolist()
    assert (labels(mixture, rows, prior, parameters) != wrong).sum() >= 5
