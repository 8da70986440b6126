"""The scalars of the trace of an Indian buffet process."""

from mpibayes.hpc.scalar import FINE, NATS, SCORES, WHOLE, Scalar

FEATURES = "features"  # `Scalar.judged`
SCALARS = (
    Scalar(
        "log_joint", NATS, "nats", place=3, log="logp", status="log joint", label="log joint", title="Log joint",
        column="log joint", judged=FEATURES,
    ),
    Scalar(
        "n_features", WHOLE, place=1, log="K", status="features", label="features K", title="Number of features",
        column="K", judged=FEATURES,
    ),
    # On average over the rows.
    Scalar(
        "features_of_row", FINE, place=2, log="of_row", status="features a row", label="features of a row",
        title="Features of a row", column="of a row", judged=FEATURES,
    ),
    Scalar("lone_features", WHOLE, place=7, label="features of one row"),
    Scalar("mass", place=4, log="alpha", status="mass alpha", label="mass alpha"),
    Scalar("concentration", place=5, label="concentration c"),
    # Of columns with a variance each: the root of their mean.
    Scalar("noise_sd", FINE, place=6, log="noise", status="noise", label="noise sd"),
    Scalar("feature_sd", FINE, place=8, label="loadings' sd"),
    Scalar(
        "heldout_lpd", FINE, "nats a row", place=9, log="heldout", status="held-out score",
        label="held-out, each draw", title="Held-out", judged=SCORES,
    ),
    Scalar("heldout_lpd_averaged", FINE, "nats a row", statistic=True),  # of all draws so far
    Scalar("seconds", statistic=True, timing=True),
)  # fmt: skip
BY_FAMILY = {"ibp": SCALARS}
