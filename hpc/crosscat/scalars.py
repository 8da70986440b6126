"""The scalars of a mixture's trace."""

from mpibayes.hpc.scalar import ACTIVE_ROWS, FINE, NATS, SCORES, SHARE, WHOLE, Scalar

CLUSTERS = "clusters"  # `Scalar.judged`
SCALARS = (
    Scalar(
        "log_joint", NATS, "nats", place=3, log="logp", status="log joint", label="log joint",
        title="Log joint", column="log joint", judged=CLUSTERS,
    ),
    Scalar(
        "n_clusters", WHOLE, place=1, log="K", status="clusters", label="clusters K", title="Number of clusters",
        column="K", judged=CLUSTERS,
    ),
    Scalar("concentration", place=4, log="alpha", status="concentration", label="concentration"),
    Scalar("discount", place=5, log="d", status="discount", label="discount"),
    Scalar("entropy", FINE, "nats", place=6, label="entropy of sizes", title="Entropy", judged=CLUSTERS),
    Scalar(
        "heldout_lpd", FINE, "nats a row", place=9, log="heldout", status="held-out score",
        label="held-out, each draw", title="Held-out", judged=SCORES,
    ),
    Scalar("heldout_lpd_averaged", FINE, "nats a row", statistic=True),  # of all draws so far
    Scalar("moved_fraction", SHARE, place=7, log="moved", status="rows moved", statistic=True),
    Scalar(ACTIVE_ROWS, WHOLE, place=2, log="rows", status="rows", statistic=True),
    Scalar("splits_tried", WHOLE, statistic=True),
    Scalar("splits", WHOLE, place=8, log="moves", of="splits_tried", statistic=True),
    Scalar("merges_tried", WHOLE, statistic=True),
    Scalar("merges", WHOLE, place=8, log="moves", of="merges_tried", statistic=True),
    Scalar("seconds", statistic=True, timing=True),
)  # fmt: skip
# Of each move: how often it was tried, and accepted.
MOVES = tuple(name for scalar in SCALARS if scalar.of for name in (scalar.of, scalar.name))
