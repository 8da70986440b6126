"""Scalars of the trace of variational inference."""

from mpibayes.hpc.scalar import FINE, NATS, WHOLE, Scalar

SCALARS = (
    # Over all rows; NaN in cycles that visit only part of them and are not kept.
    Scalar(
        "bound", NATS, "nats", place=1, log="bound", status="bound", label="bound", title="Lower bound of log p(table)",
        column="bound",
    ),
    # The bound estimated from the rows of the next cycle's batch.
    Scalar("bound_of_batch", NATS, "nats", place=6, log="of_batch", label="bound, from the batch"),
    # Components with the weight of at least one row.
    Scalar(
        "occupied", WHOLE, place=2, log="K", status="components", label="components in use", title="Components in use",
        column="K",
    ),
    Scalar("step_size", FINE, place=5, log="step_size", status="step size", label="step size", statistic=True),
    # Parts of the parameters whose noise was reduced in this cycle.
    Scalar("guarded", WHOLE, place=4, log="guarded", status="guarded", label="guarded parts", statistic=True),
    Scalar(
        "heldout_lpd", FINE, "nats a row", place=3, log="heldout", status="held-out score", label="held-out",
        title="Held-out",
    ),
    Scalar("seconds", statistic=True, timing=True),
)  # fmt: skip
BY_FAMILY = {"svi": SCALARS}
