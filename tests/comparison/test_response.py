"""A regression against a mixture: both are scored by the response alone, given the rest of the row."""

import numpy as np
import pytest

from mpibayes.hpc.comparison.common import columns_of, rows_of
from mpibayes.hpc.comparison.scores import DRAWS, log_scores
from mpibayes.hpc.crosscat.draws import Posterior as Mixture
from mpibayes.hpc.query.asking import Asking
from mpibayes.hpc.regression.draws import Posterior as Regression
from tests.crosscat.report.runs import make_run, planted, write_planted
from tests.run.conftest import mpibayes

N = 80
CONFIG = """
[data]
table = "t.h5"
heldout = 0.2
[model]
family = "regression"
likelihood = "logistic"
[regression]
response = "flag"
predictors = ["colour", "dust"]
missing = "indicator"
[run]
cycles = 120
burn_in = 60
"""


@pytest.mark.thorough
def test_scores_of_the_response(tmp_path):
    table = write_planted(tmp_path / "t.h5", n=N)
    (tmp_path / "reg.toml").write_text(CONFIG)
    done = mpibayes(tmp_path, "run", "reg.toml", "-o", "reg")
    assert done.returncode == 0, done.stderr
    runs = [Mixture([make_run(tmp_path / "mix", table, 20, 8, heldout=0.2)]), Regression([tmp_path / "reg"])]
    for run in runs:
        run.read_traces()
    rows, columns = rows_of(runs, "ab"), columns_of(runs, "ab")
    assert columns.names == ["flag"] and columns.response == "flag" and len(rows.numbers) == 16
    mixture, regression = (log_scores(run, "", rows, columns, {}) for run in runs)

    # of the mixture what a query says, by other code
    asking = Asking(tmp_path / "mix", draws=DRAWS)
    recorded = runs[0].data.recorded_at(rows.numbers)
    others = [c.name for c in asking.columns if c.name != "flag"]
    expected, *_ = asking.log_p(asking.known(recorded, ["flag"]), asking.known(recorded, others))
    np.testing.assert_allclose(mixture, expected, rtol=0, atol=1e-4)

    # of the regression the definition
    cells = {name: values[rows.numbers] for name, _, values, _ in planted(n=N)[0]}
    design, p = runs[1].design, []
    for draw in runs[1].draws(DRAWS):
        eta = draw.linear(design.build(runs[1].data.recorded_at(rows.numbers), response=False).x)[:, 0]
        p.append(1.0 / (1.0 + np.exp(-np.where(cells["flag"] == 1, eta, -eta))))
    np.testing.assert_allclose(regression, np.log(np.mean(p, axis=0)), rtol=0, atol=1e-6)
