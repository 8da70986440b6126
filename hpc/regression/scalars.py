"""Scalars of a regression's trace. All describe the sampler; the draws themselves are the coefficients."""

from mpibayes.hpc.scalar import FINE, NATS, RATE, WHOLE, Scalar

# Likelihood evaluations, for the coefficients and for the brightness of rows.
QUERIES = ("queries_theta", "queries_z")
SCALARS = (
    Scalar(
        "lp", NATS, "nats", place=3, log="lp", status="log p(theta, z)", label="log p(coefficients, z)",
        title="Log p(coefficients, brightness)", column="log p(theta, z)", statistic=True,
    ),
    # log p(theta | data) up to a constant; NaN except in some cycles.
    Scalar(
        "log_posterior", NATS, "nats", place=1, status="log posterior", label="log posterior", title="Log posterior",
        statistic=True,
    ),
    Scalar("acceptance_rate", RATE, place=4, log="accept", status="acceptance", label="acceptance", statistic=True),
    Scalar("step_size", FINE, place=5, label="step size", statistic=True),
    Scalar(
        "n_bright", WHOLE, place=2, log="bright", status="bright rows", label="bright rows", title="Bright rows",
        column="bright", statistic=True,
    ),
    *(Scalar(name, WHOLE, statistic=True) for name in QUERIES),
    Scalar("seconds", statistic=True, timing=True),
)  # fmt: skip
BY_FAMILY = {"regression": SCALARS}
