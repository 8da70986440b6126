"""Scalars of the trace of latent Dirichlet allocation."""

from mpibayes.hpc.scalar import FINE, LOOKED_ROWS, NATS, REAL, WHOLE, Scalar

SCALARS = (
    # Over all documents; NaN in cycles that are not kept.
    Scalar(
        "bound", NATS, "nats", place=1, log="bound", status="bound", label="bound", title="Lower bound of log p(table)",
        column="bound",
    ),
    # Held-out documents by completion: exp of minus the mean log probability of the other half of their words.
    Scalar(
        "perplexity", REAL, place=2, log="perplexity", status="held-out perplexity", label="perplexity",
        title="Held-out perplexity",
    ),
    # Topics with an expected word or more.
    Scalar("topics_used", WHOLE, place=3, log="topics", status="topics", label="topics in use", column="topics"),
    # Average per local step of a document.
    Scalar("iterations", FINE, place=4, log="iterations", label="iterations a document", statistic=True),
    Scalar("step_size", FINE, place=5, log="step_size", status="step size", label="step size", statistic=True),
    # Topics whose noise was reduced in this cycle.
    Scalar("guarded", WHOLE, place=6, log="guarded", status="guarded", label="guarded topics", statistic=True),
    # Number of documents in the cycle's batch.
    Scalar(LOOKED_ROWS, WHOLE, statistic=True),
    Scalar("seconds", statistic=True, timing=True),
)  # fmt: skip
BY_FAMILY = {"svi lda": SCALARS}
