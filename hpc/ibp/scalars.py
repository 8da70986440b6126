"""The scalars of the trace of an Indian buffet process."""

import math

from mpibayes.hpc.scalar import FINE, NATS, SCORES, WHOLE, Scalar

FEATURES = "features"  # `Scalar.judged`
COMMON = 0.005  # least share of the rows that have a common feature: rarer ones come and go


def common_rows(n_rows: int) -> int:
    """Least number of rows that have a common feature."""
    return max(1, math.ceil(COMMON * n_rows))


SCALARS = (
    Scalar(
        "log_joint", NATS, "nats", place=4, log="logp", status="log joint", label="log joint", title="Log joint",
        column="log joint", judged=FEATURES,
    ),
    Scalar(
        "n_features", WHOLE, place=1, log="K", status="features", label="features K", title="Number of features",
        column="K",
    ),
    Scalar(
        "common_features", WHOLE, place=2, log="common", status="common features", label="common features",
        title="Number of common features", column="common", judged=FEATURES,
    ),
    # Averages over the rows.
    Scalar(
        "features_of_row", FINE, place=3, log="of_row", status="features a row", label="features of a row",
        title="Features of a row", column="of a row", judged=FEATURES,
    ),
    Scalar("lone_features", WHOLE, place=8, label="features of one row"),
    Scalar("mass", place=5, log="alpha", status="mass alpha", label="mass alpha"),
    Scalar("concentration", place=6, label="concentration c"),
    # With a variance for each column: the root of their mean.
    Scalar("noise_sd", FINE, place=7, log="noise", status="noise", label="noise sd"),
    Scalar("feature_sd", FINE, place=9, label="loadings' sd"),
    Scalar(
        "heldout_lpd", FINE, "nats a row", place=10, log="heldout", status="held-out score",
        label="held-out, each draw", title="Held-out", judged=SCORES,
    ),
    Scalar("heldout_lpd_averaged", FINE, "nats a row", statistic=True),  # average of all draws so far
    Scalar(
        "heldout_cell_lpd", FINE, "nats a cell", place=11, log="heldout_cell", status="held-out cells",
        label="held-out cells, each draw", title="Held-out cells",
    ),
    Scalar("heldout_cell_lpd_averaged", FINE, "nats a cell", statistic=True),
    # Of the averaged predictive means, in standard deviations of the columns.
    Scalar("heldout_cell_rmse", FINE, statistic=True),
    Scalar("seconds", statistic=True, timing=True),
)  # fmt: skip
BY_FAMILY = {"ibp": SCALARS}
