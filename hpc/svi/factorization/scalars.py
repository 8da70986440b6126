"""Scalars of the trace of a factorization."""

from mpibayes.hpc.scalar import FINE, NATS, WHOLE, Scalar

SCALARS = (
    # Over all ratings; NaN in cycles that visit only part of the users and are not kept.
    Scalar(
        "bound", NATS, "nats", place=1, log="bound", status="bound", label="bound", title="Lower bound of log p(table)",
        column="bound",
    ),
    # The bound estimated from the users of the next cycle's batch.
    Scalar("bound_of_batch", NATS, "nats", place=6, log="of_batch", label="bound, from the batch"),
    # Residual standard deviation of a rating.
    Scalar("rating_sd", FINE, place=2, log="rating_sd", status="rating sd", label="sd of a rating"),
    Scalar("step_size", FINE, place=5, log="step_size", status="step size", label="step size", statistic=True),
    # Users and items whose noise was reduced in this cycle.
    Scalar("guarded", WHOLE, place=4, log="guarded", status="guarded", label="guarded parts", statistic=True),
    # Over the held-out ratings, in cycles that are kept.
    Scalar("rmse", FINE, place=3, log="rmse", status="RMSE", label="RMSE, held out", title="RMSE, held out"),
    Scalar("heldout_lpd", FINE, "nats a rating", place=7, log="heldout", label="held-out", title="Held-out"),
    Scalar("seconds", statistic=True, timing=True),
)  # fmt: skip
BY_FAMILY = {"svi factorization": SCALARS}
