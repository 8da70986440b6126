"""Scalars of the trace of a mixture, and of a cross-categorization, which counts the clusters of all views."""

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
_OF_ONE_VIEW = ("concentration", "discount")
_OF_VIEWS = (
    Scalar(
        "n_views", WHOLE, place=1, log="V", status="views", label="views V", title="Number of views", column="V",
        judged=CLUSTERS,
    ),
    Scalar("view_concentration", place=4, log="alpha", status="concentration of views", label="concentration of views"),
    Scalar("view_discount", place=5, log="d", status="discount of views", label="discount of views"),
    Scalar("columns_moved", WHOLE, statistic=True),
    Scalar("view_moves_tried", WHOLE, statistic=True),
    Scalar("view_moves", WHOLE, place=8, log="viewmoves", of="view_moves_tried", statistic=True),
)  # fmt: skip
BY_FAMILY = {
    "mixture": SCALARS,
    "crosscat": (SCALARS[0], *_OF_VIEWS, *(s for s in SCALARS[1:] if s.name not in _OF_ONE_VIEW)),
}
# Numbers of tried and accepted moves of each kind.
MOVES = tuple(name for scalar in SCALARS if scalar.of for name in (scalar.of, scalar.name))
# Numbers of moves of columns and views.
OF_COLUMNS = ("view_moves_tried", "view_moves", "columns_moved")
