"""Cost of a cycle: seconds by phase, bytes on the wire, from rows, columns, levels, clusters, shards and ranks.

Compute is linear in a few counts (rows x columns x lanes for the sweep, levels x clusters for the draws, ...); its
coefficients are in `cost_constants.py`, fitted to measured cycles by `benchmarks/scaling.py fit`. Messages follow the
usual latency-bandwidth model of MPI's collectives (Thakur, Rabenseifner & Gropp 2005, International Journal of High
Performance Computing Applications 19): t = rounds x latency + bytes / bandwidth, in two steps, between the ranks of a
node and between nodes. benchmarks/scaling.md compares both with measurements.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpibayes.hpc.crosscat.cost.cost_constants import SECONDS
from mpibayes.hpc.parallel.shards import busiest

LANES = 16  # clusters worked on together
NEAR_BYTES = 1 << 20  # look-ups cost more in a table of log probabilities larger than the second-level cache
RING_BYTES = 512 << 10  # MPICH's Allgather of more bytes uses a ring, whose rounds grow with the ranks
FULL_PASS = 0.3  # counting all rows costs as much as updating counts for this share of them (0.58 and 1.9 ns a cell)
ADD_S = 2.5e-10  # per byte that a rank adds in a reduction (int32, from memory)


@dataclass(frozen=True)
class Coefficients:
    """Cost of drawing an outcome's coefficients in each cycle (docs/math.md 2.16). own, shared: number of coefficients
    per cluster, and global; passes: number of gradients; row_s, root_s: seconds per row, and on root per draw; n_eta:
    number of linear predictors of a row, of which all have the same predictors; weighs_rows: True for a second sum of
    squares, with one more."""

    own: int
    shared: int
    passes: int
    row_s: float
    root_s: float
    n_eta: int = 1
    weighs_rows: bool = False

    def messages(self, clusters: int, shards: int) -> tuple[float, float, float]:
        """Return the bytes of all shards' gradients, of the coefficients, and of all shards' sums of squares."""
        q, numbers = (self.own + self.shared) // self.n_eta, clusters * self.own + self.shared
        squares = 8.0 * shards * clusters * (self.n_eta + q * (q + 1) // 2)
        squares += 8.0 * shards * clusters * (1 + (q + 1) * (q + 2) // 2) * self.weighs_rows
        return 8.0 * shards * (clusters + 1 + numbers), 8.0 * (numbers + 2 * self.own + 1), squares

    def message_seconds(self, clusters: int, shards: int, ranks: int, net: Network) -> float:
        """Return the seconds until root has every gradient, and all ranks have the coefficients."""
        gradient, given, squares = self.messages(clusters, shards)
        each = gather(gradient, ranks, net) + broadcast(given, ranks, net)
        return self.passes * each + broadcast(given, ranks, net) + gather(squares, ranks, net)


@dataclass(frozen=True)
class Problem:
    """A table and a chain on it. columns: number of categorical columns; level_rows: their levels in total, counting a
    level for missing in each."""

    rows: int
    columns: int
    level_rows: int
    clusters: int
    shards: int
    reals: int = 0
    counts: int = 0
    widest: int = 0  # level rows of the column with the most; 0: all equal
    moved: float = 0.1  # share of rows that change cluster in a cycle
    moves_every: int = 4  # cycles between rounds of split and merge moves; 0: no moves
    coefficients: Coefficients | None = None
    sizes: tuple[int, ...] = ()  # of the shards; (): all of one length

    @property
    def lanes(self) -> int:
        return LANES * -(-self.clusters // LANES)


@dataclass(frozen=True)
class Network:
    """Latency and bandwidth between nodes, and between the ranks of a node."""

    name: str
    latency_s: float
    bytes_per_s: float
    ranks_per_node: int = 64
    node_latency_s: float = 1e-6
    node_bytes_per_s: float = 4e9


ONE_NODE = Network("one node", 2e-6, 10e9, ranks_per_node=1 << 30)


@dataclass(frozen=True)
class Design:
    """Division of labour among ranks. The defaults are this program; other values are alternatives compared with it."""

    divided: bool = True  # hyperparameters and parameters are drawn by columns on all ranks, not on root
    tree: bool = True  # floating moments are merged up a tree over shards, and anchors by a minimum; not gathered
    changed_rows: bool = True  # counts are updated for rows that moved, not recounted
    slim: bool = True  # a sweep's summary is a few numbers, not a few per shard


def levels_of(n: int) -> int:
    """Return the number of rounds of a binary tree over n."""
    return max(n - 1, 0).bit_length()


def reduce_everywhere(n: float, ranks: int, net: Network) -> float:
    """Return the seconds of an Allreduce of n bytes."""
    local, nodes = _split(ranks, net)
    return _allreduce(n, local, net.node_latency_s, net.node_bytes_per_s) + _allreduce(
        n, nodes, net.latency_s, net.bytes_per_s
    )


def broadcast(n: float, ranks: int, net: Network) -> float:
    """Return the seconds of a Bcast of n bytes."""
    local, nodes = _split(ranks, net)
    return _bcast(n, local, net.node_latency_s, net.node_bytes_per_s) + _bcast(n, nodes, net.latency_s, net.bytes_per_s)


def gather(n: float, ranks: int, net: Network) -> float:
    """Return the seconds of a gather of n bytes in total to root: one message per rank, received one by one."""
    local, nodes = _split(ranks, net)
    inside, outside = n / nodes * (local - 1) / local, n * (nodes - 1) / nodes
    return (
        (local - 1) * net.node_latency_s + inside / net.node_bytes_per_s
        + (nodes > 1) * (net.latency_s + local * (nodes - 1) * GATHER_S + outside / net.bytes_per_s)
    )  # fmt: skip


GATHER_S = 5e-7  # root's work per message received


def gather_everywhere(n: float, ranks: int, net: Network) -> float:
    """Return the seconds of an Allgatherv of n bytes in total."""
    local, nodes = _split(ranks, net)
    return _allgather(n / nodes, local, net.node_latency_s, net.node_bytes_per_s) + _allgather(
        n, nodes, net.latency_s, net.bytes_per_s
    ) + (nodes > 1) * _bcast(n, local, net.node_latency_s, net.node_bytes_per_s)  # fmt: skip


def _split(ranks: int, net: Network) -> tuple[int, int]:
    local = min(ranks, net.ranks_per_node)
    return local, -(-ranks // local)


def _allreduce(n, p, latency, rate):
    rounds = levels_of(p)
    doubling = rounds * (latency + n / rate + n * ADD_S)
    halving = 2 * rounds * latency + (p - 1) / p * n * (2 / rate + ADD_S)
    return min(doubling, halving)


def _bcast(n, p, latency, rate):
    rounds = levels_of(p)
    return min(rounds * (latency + n / rate), (rounds + p - 1) * latency + 2 * (p - 1) / p * n / rate)


def _allgather(n, p, latency, rate):
    return (p - 1 if n > RING_BYTES else levels_of(p)) * latency + (p - 1) / p * n / rate


def features(
    phase: str, problem: Problem, rows: float, shards: float, design: Design = Design(), ranks: int = 1
) -> dict[str, float]:
    """Return the regressors of a phase's time on one rank. rows, shards: of the rank; of the run for a phase on root.

    The phase "crowd" is the interpreter's work on each rank that grows with the number of ranks.
    """
    p = problem
    cells, table = p.level_rows * p.clusters, 4 * p.level_rows * p.lanes
    numeric = (p.reals + p.counts) * p.clusters
    if phase == "sweep":
        return {
            "row": rows,
            "row x lane": rows * p.lanes,
            "row x column": rows * p.columns,
            "row x column x lane": rows * p.columns * p.lanes,
            "row x column x lane, far": rows * p.columns * p.lanes * (table > NEAR_BYTES),
            "row x real x lane": rows * p.reals * p.lanes,
            "row x count x lane": rows * p.counts * p.lanes,
        }
    if phase == "collapsed shard":  # extra cost of its sweep: few clusters, scored by other densities
        return {
            "row": rows, "row x column": rows * p.columns, "row x column, far": rows * p.columns * (table > NEAR_BYTES),
            "row x real": rows * p.reals, "row x count": rows * p.counts,
        }  # fmt: skip
    if phase == "statistics":
        changed = p.moved if design.changed_rows else FULL_PASS
        return {
            "row": rows,
            "changed row x column": rows * changed * p.columns,
            "row x numeric column": rows * (p.reals + p.counts),
            "shard x level x cluster": shards * cells,
        }
    if phase == "order":
        return {"shard": shards, "row": rows, "shard x level x cluster": shards * cells}
    if phase in ("hyperparameters", "draw", "log joint"):
        return {"cycle": 1.0, "column": p.columns, "level x cluster": cells, "numeric x cluster": numeric}
    if phase in ("reduction", "other"):
        return {"cycle": 1.0, "shard": shards, "level x cluster": cells}
    if phase == "crowd":
        return {"rank": ranks, "shard": p.shards}
    if phase == "moves":
        return {"round": 1.0, "row": rows, "row x column": rows * p.columns, "level x cluster": cells}
    raise KeyError(phase)


COMPUTE = (
    "sweep", "collapsed shard", "statistics", "order", "hyperparameters", "draw", "log joint", "reduction", "other",
    "moves",
)  # fmt: skip
DIVIDED = ("hyperparameters", "draw", "log joint")


def compute_seconds(
    phase: str, problem: Problem, rows: float, shards: float, design: Design = Design(), ranks: int = 1
) -> float:
    """Return one rank's processor seconds in a phase of a cycle (of a round, for moves)."""
    coefficients = SECONDS[phase]
    counts = features(phase, problem, rows, shards, design, ranks)
    return sum(coefficients.get(name, 0.0) * x for name, x in counts.items())


def wire_bytes(problem: Problem, ranks: int, design: Design = Design()) -> dict[str, float]:
    """Return the bytes of a cycle's collectives by content: the length of the buffer that a rank sends or receives."""
    p = problem
    if ranks == 1:
        return {}
    table = 4.0 * p.level_rows * p.clusters
    moments = 8.0 * 3 * p.reals * p.clusters
    of, drawn = p.coefficients, {}
    if of is not None:
        gradient, given, squares = of.messages(p.clusters, p.shards)
        drawn["coefficients"] = of.passes * gradient + (1 + of.passes) * given + squares
    return drawn | {
        "counts": table + 4.0 * (2 + p.counts) * p.clusters,
        "anchors": 8.0 * p.clusters * (1 if design.tree else p.shards),
        "moments": moments * (levels_of(ranks) if design.tree else p.shards),
        "parameters": table + 8.0 * (3 * p.reals + 2 * p.counts + 2) * p.clusters,
        "news": 24.0 if design.slim else 24.0 * p.shards + 8.0 * p.shards,
    }


def message_seconds(problem: Problem, ranks: int, net: Network, design: Design = Design()) -> dict[str, float]:
    """Return the seconds of a cycle's collectives, counted from the arrival of the last rank."""
    if ranks == 1:
        return {}
    n = wire_bytes(problem, ranks, design)
    if design.tree:
        anchors = reduce_everywhere(n["anchors"], ranks, net)
        each = n["moments"] / levels_of(ranks)
        moments = levels_of(ranks) * (net.latency_s + each / net.bytes_per_s + MERGE_S) if each else 0.0
    else:
        anchors = gather(n["anchors"], ranks, net)
        moments = gather(n["moments"], ranks, net) if n["moments"] else 0.0
        merged = problem.shards * (MERGE_S + 3e-9 * 3 * problem.reals * problem.clusters)
        moments += merged if problem.reals else 0.0
    spread = gather_everywhere if design.divided else broadcast
    of = problem.coefficients
    drawn = {} if of is None else {"coefficients": of.message_seconds(problem.clusters, problem.shards, ranks, net)}
    return drawn | {
        "reduction": reduce_everywhere(n["counts"], ranks, net) + anchors + moments,
        "broadcast": spread(n["parameters"], ranks, net),
        "news": reduce_everywhere(n["news"], ranks, net),
    }


MERGE_S = 3e-5  # interpreter time of merging two sets of moments


@dataclass(frozen=True)
class Cycle:
    """Forecast of one cycle, on its slowest path."""

    seconds: dict[str, float]  # by phase; rounds of moves are spread over the cycles between them

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def efficiency(one: Cycle, many: Cycle, ranks: int) -> float:
    """Return the speed-up over one rank, per rank."""
    return one.total / (ranks * many.total)


def bottleneck(one: Cycle, many: Cycle, ranks: int) -> str:
    """Return the phase that costs the most efficiency: the one furthest above its time on one rank over `ranks`."""
    return max(many.seconds, key=lambda phase: many.seconds[phase] - one.seconds.get(phase, 0.0) / ranks)


def forecast(problem: Problem, ranks: int, net: Network = ONE_NODE, design: Design = Design()) -> Cycle:
    """Forecast the seconds of a cycle by phase, with shards shared evenly and the collapsed one on the busiest rank."""
    p, working = problem, min(ranks, problem.shards)
    shards = -(-p.shards // working)
    rows, shard = p.rows * shards / p.shards, p.rows / p.shards
    if p.sizes:
        rows, _ = busiest(p.sizes, p.rows, working)
    seconds = {}
    for phase in COMPUTE:
        seconds[phase] = compute_seconds(phase, p, rows, shards, design)
    if working > 1 and design.divided:
        seconds["crowd"] = compute_seconds("crowd", p, rows, shards, design, ranks)
    seconds["collapsed shard"] = compute_seconds("collapsed shard", p, shard, 1)
    if design.divided and working > 1:
        share = max(1 / working, (p.widest or p.level_rows / max(p.columns, 1)) / max(p.level_rows, 1))
        for phase in DIVIDED:
            fixed = SECONDS[phase].get("cycle", 0.0)
            seconds[phase] = fixed + (seconds[phase] - fixed) * share
    if p.coefficients is not None:
        seconds["coefficients"] = rows * p.coefficients.row_s + p.coefficients.root_s
    for phase, s in message_seconds(p, ranks, net, design).items():
        seconds[phase] = seconds.get(phase, 0.0) + s
    seconds["moves"] = seconds["moves"] / p.moves_every if p.moves_every else 0.0
    return Cycle(seconds)
