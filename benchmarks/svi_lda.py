"""Topics: speed of the local step, perplexity of held-out documents beside other programs, efficiency of ranks, memory.

python benchmarks/svi_lda.py speed FOLDER                    of the data folder: text_kos; documents a CPU second
python benchmarks/svi_lda.py perplexity FOLDER NAME [PEER..] kos, ap, bbc, bbc/8 (in pieces of 8 words) or dblp;
                                                             tomotopy, tomotopy-fixed, scikit-learn, gensim
python benchmarks/svi_lda.py synthetic [PEER ...]            21,000 documents of 50 known topics
python benchmarks/svi_lda.py course FOLDER                   kos: variational Bayes alone, cycle by cycle
python benchmarks/svi_lda.py noise FOLDER                    kos: SVI+ beside batches and all documents, 20 starts
mpirun -n 2 python benchmarks/svi_lda.py ranks               seconds of a cycle, 100,000 documents; with -n 1 beside it
python benchmarks/svi_lda.py memory                          resident bytes a (document, word) pair

All programs see the same nine tenths of the documents, with 50 topics and eta 0.05; alpha 0.1, or what each makes of
it. Each gives words' probabilities in topics, and these are scored alike (`heldout.HeldOut`): every other distinct word
of a held-out document is seen, topics are found from these with the program's own alpha, the others are scored. Topics
are found by the linear step, as the program does, by variational Bayes, and as the mean of Gibbs' sampler, which has no
error but that of sampling; then, for comparison, by the first two with alpha 0.1 for all.
"""

import lzma
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

from mpibayes.hpc.data.rows import heldout_rows
from mpibayes.hpc.parallel.comm import serial, world
from mpibayes.hpc.svi.lda import family, heldout
from mpibayes.hpc.svi.lda.ascent import Ascent, Settings
from mpibayes.hpc.svi.lda.family import BATCH, CYCLES, PASSES, alpha_of, cycles_of, is_large
from mpibayes.hpc.svi.lda.local import Documents, Local, unit_of
from mpibayes.hpc.svi.lda.model import State, first
from mpibayes.hpc.svi.noise import Noise
from mpibayes.hpc.svi.schedule import Constant, Decay
from mpibayes.io.sparse import SparseRows
from mpibayes.kernels.svi.lda import padded

TOPICS, ALPHA, ETA, HELD = 50, 0.1, 0.05, 0.1
ESTIMATES = {"linear": Local("linear", True, 1e-3, 200), "vb": Local("vb", True, 1e-3, 200)}
STARTS = 20
SWEEPS, SKIPPED = 100, 20  # of Gibbs' sampler of topics of a held-out document


# --- documents --------------------------------------------------------------------------------------------------------


def rows_of(documents):
    """SparseRows of {word: count} of each document."""
    lengths = [len(d) for d in documents]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    pairs = [(w, c) for d in documents for w, c in sorted(d.items())]
    words, counts = (np.array(column) for column in zip(*pairs))
    return SparseRows(starts, words.astype(np.int32), counts.astype(np.float32))


def text(path):
    return lzma.open(path, "rt", encoding="utf-8").read().splitlines()


def corpus(folder, name):
    """(rows, words there are)."""
    name, _, pieces = name.partition("/")
    if name == "kos":
        lines = text(folder / "text_kos" / "docword.kos.txt.xz")
        d, v = int(lines[0]), int(lines[1])
        documents = [{} for _ in range(d)]
        for line in lines[3:]:
            i, w, c = map(int, line.split())
            documents[i - 1][w - 1] = c
        return rows_of(documents), v
    if name == "ap":
        pairs = [[p.split(":") for p in line.split()[1:]] for line in text(folder / "text_ap" / "ap.dat.xz")]
        return rows_of([{int(w): int(c) for w, c in part} for part in pairs]), 10_473
    place = folder / {"bbc": "text_bbc_news", "dblp": "text_dblp"}[name]
    number = {word: i for i, word in enumerate(text(place / "vocabulary.txt.xz"))}
    lines = (line.split("\t")[0].split() for line in text(place / "corpus.tsv.xz"))
    documents = [[number[w] for w in line if w in number] for line in lines]
    if pieces:
        n = int(pieces)
        documents = [words[i : i + n] for words in documents for i in range(0, len(words), n)]
    return rows_of([Counter(words) for words in documents]), len(number)


def simulated(d=21_000, v=5_000, k=TOPICS, length=100, seed=0):
    """(rows, words, topics (V, K)) of documents of known topics."""
    rng = np.random.default_rng(seed)
    beta = rng.dirichlet(np.full(v, ETA), k)
    words = []
    for _ in range(d):
        z = rng.multinomial(rng.poisson(length), rng.dirichlet(np.full(k, ALPHA)))
        part = [rng.choice(v, n, p=beta[j]).tolist() for j, n in enumerate(z) if n]
        words.append(Counter(word for subset in part for word in subset))
    return rows_of(words), v, beta.T


class Held:
    """Held-out documents in memory, as `HeldOut` asks for them."""

    def __init__(self, rows):
        out = heldout_rows(len(rows), HELD)
        self.train = rows.take(np.setdiff1d(np.arange(len(rows)), out))
        self.rows, self.heldout = rows.take(out), np.arange(len(out))

    def heldout_of(self, start, stop):
        return self.rows.take(slice(start, stop))

    def score(self, p, alpha=ALPHA):
        """Perplexity with words' probabilities in topics (V, K) and an alpha (K,), or one, by each estimate."""
        q, result = State(np.ascontiguousarray(p * 1e6 + 1e-9, np.float64), np.full(p.shape[1], alpha)), {}
        held = heldout.HeldOut(serial(), self, 1, len(p), p.shape[1])
        scored = lambda theta: heldout.log_probability_of(held.others[0], theta, q.lam)  # noqa: E731
        for name, local in ESTIMATES.items():
            documents = held.documents
            documents.room.weigh(*weights(q))
            documents.steps(q, local, documents.texts[0], None, None, documents.gamma[0])
            result[name] = scored(heldout.proportions(documents.gamma[0]))
        result["sampled"] = scored(sampled(heldout.halves(self.rows)[0], q))
        return {name: float(np.exp(-log / held.n_words[0])) for name, log in result.items()}


def weights(q):
    """Words' probabilities in topics as they are, whatever the estimate: of programs that give no lambda."""
    p = q.lam / q.lam.sum(axis=0)
    scale = np.zeros(padded(p.shape[1]), np.float32)
    scale[: p.shape[1]] = 1.0
    return np.ascontiguousarray(p), scale, None, True


def sampled(rows, q):
    """Mean of theta given some words of each document, (D, K): by Gibbs' sampler of words' topics, the documents' first
    words at once, then their second ones."""
    rng, p = np.random.default_rng(0), q.lam / q.lam.sum(axis=0)
    times = rows.values.astype(int)
    document, word = np.repeat(rows.row_of(), times), np.repeat(rows.columns, times)
    place = np.arange(len(word)) - np.searchsorted(document, document)
    order = np.argsort(place, kind="stable")
    rounds = np.split(order, np.flatnonzero(np.diff(place[order])) + 1)
    count, z, total = np.zeros((len(rows), len(q.alpha))), np.zeros(len(word), int), np.zeros((len(rows), len(q.alpha)))
    for sweep in range(SWEEPS):
        for at in rounds:
            d = document[at]
            if sweep:
                count[d, z[at]] -= 1
            law = ((count[d] + q.alpha) * p[word[at]]).cumsum(axis=1)
            z[at] = (law < rng.random(len(at))[:, None] * law[:, -1:]).sum(axis=1)
            count[d, z[at]] += 1
        if sweep >= SKIPPED:
            total += count + q.alpha
    return total / total.sum(axis=1, keepdims=True)


# --- programs ---------------------------------------------------------------------------------------------------------


def ascent(rows, v, comm=None, **given):
    settings = Settings(**({"topics": TOPICS, "alpha": ALPHA, "eta": ETA, "shards": 4} | given))
    return Ascent(
        comm or serial(), lambda a, b: rows.take(slice(a, b)), len(rows), v, float(rows.values.sum()), settings
    )  # fmt: skip


BATCHES = {"batch": Constant(BATCH), "rate": Decay(10.0, 0.5)}
CVB0 = {"first": "cvb0", "then": "cvb0"}
GIBBS = {"first": "gibbs", "then": "gibbs"}


def length_of(rows):
    return float(rows.values.sum()) / len(rows)


def defaults(rows):
    """What "auto" means."""
    alpha, n = alpha_of(length_of(rows), TOPICS), len(rows)
    if length_of(rows) < family.SHORT:
        size = family.sampled_batch(n)
        alpha = alpha_of(length_of(rows), TOPICS, sampled=True)
        return family.sampled_cycles(n, size), GIBBS | BATCHES | {"batch": Constant(size), "alpha": alpha}
    if not is_large(n, float(rows.values.sum())):
        return cycles_of(length_of(rows)), CVB0 | {"alpha": alpha}
    return max(CYCLES, -(-PASSES * n // BATCH)), CVB0 | BATCHES | {"alpha": alpha}


def ways(rows):
    """Other settings than the defaults: by name, cycles and settings."""
    t, given = defaults(rows)
    result = {"alpha 0.1": (t, given | {"alpha": ALPHA})} if given["alpha"] != ALPHA else {}
    if given["first"] == "gibbs":
        t, given = cycles_of(length_of(rows)), CVB0 | {"alpha": alpha_of(length_of(rows), TOPICS)}
        result["cvb0"] = t, given
    half = {"then": "vb", "switch": t // 2, "warm": t if "batch" in given else t * 9 // 10}
    result |= {"cvb0, then vb": (t, given | half), "linear, then vb": (t, given | half | {"first": "linear"})}
    result["vb"] = CYCLES, {"warm": CYCLES // 2, "alpha": given["alpha"]}
    if len(rows) > 5000:
        every = {"alpha": given["alpha"]} | CVB0
        if "batch" in given:
            result["all documents"] = cycles_of(length_of(rows)), every
        else:
            result["cvb0, batches"] = max(CYCLES, -(-PASSES * len(rows) // BATCH)), every | BATCHES
    else:
        result["20 cycles"] = 20, given
    return result


def own(rows, v, cycles, **given):
    """(words' probabilities in topics, alpha, CPU seconds, bound a word)."""
    began = time.process_time()
    chain = ascent(rows, v, **given)
    chain.start()
    for _ in range(cycles):
        chain.cycle()
    took = time.process_time() - began
    return chain.q.lam / chain.q.lam.sum(axis=0), chain.q.alpha, took, chain.evaluate() / float(rows.values.sum())


def tomotopy_fixed(rows, v):
    return tomotopy(rows, v, 0)


def tomotopy(rows, v, interval=10):
    """interval: sweeps between two updates of alpha, a number a topic; 0 for none."""
    import tomotopy

    model = tomotopy.LDAModel(k=TOPICS, alpha=ALPHA, eta=ETA, seed=1)
    model.optim_interval = interval
    for a, b in zip(rows.starts, rows.starts[1:]):
        words = np.repeat(rows.columns[a:b], rows.values[a:b].astype(int))
        if len(words):
            model.add_doc([str(w) for w in words.tolist()])
    began = time.process_time()
    model.train(200, workers=1)
    took = time.process_time() - began
    p = np.full((v, TOPICS), 1e-12)
    places = [int(w) for w in model.used_vocabs]
    for k in range(TOPICS):
        p[places, k] = model.get_topic_word_dist(k)
    return p, np.array(model.alpha), took


def scikit(rows, v):
    import scipy.sparse
    from sklearn.decomposition import LatentDirichletAllocation

    x = scipy.sparse.csr_matrix((rows.values, rows.columns, rows.starts), (len(rows), v))
    model = LatentDirichletAllocation(
        TOPICS, doc_topic_prior=ALPHA, topic_word_prior=ETA, learning_method="batch", max_iter=20, random_state=1
    )
    began = time.process_time()
    model.fit(x)
    return (model.components_ / model.components_.sum(axis=1)[:, None]).T, ALPHA, time.process_time() - began


def gensim(rows, v):
    from gensim.models import LdaModel

    cuts = zip(rows.starts, rows.starts[1:])
    texts = [list(zip(rows.columns[a:b].tolist(), rows.values[a:b].tolist())) for a, b in cuts]
    words = {i: str(i) for i in range(v)}
    began = time.process_time()
    model = LdaModel(
        texts, TOPICS, words, alpha=[ALPHA] * TOPICS, eta=ETA, passes=10, iterations=50, chunksize=2000, random_state=1
    )
    return model.get_topics().T, ALPHA, time.process_time() - began


PEERS = {"tomotopy": tomotopy, "tomotopy-fixed": tomotopy_fixed, "scikit-learn": scikit, "gensim": gensim}


def line(name, held, p, alpha, took, more=""):
    part, alike = held.score(p, alpha), held.score(p)
    numbers = [part["linear"], part["vb"], part["sampled"], alike["linear"], alike["vb"]]
    words = "".join(f"{x:9,.0f}" for x in numbers)
    print(f"{name:<28}{np.sum(np.full(TOPICS, alpha)):8.2f}{words}{took:9.2f} s  {more}", flush=True)


def compare(rows, v, peers, truth=None):
    held = Held(rows)
    train = held.train
    print(f"{len(train):,} documents of {length_of(train):.1f} words, {v:,} words, {len(rows.columns):,} pairs")
    heads = ("alpha K", "linear", "vb", "sampled", "linear*", "vb*", "CPU")
    print(f"{'':<28}{heads[0]:>8}" + "".join(f"{head:>9}" for head in heads[1:]) + "    * with alpha 0.1")
    if truth is not None:
        line("truth", held, truth, ALPHA, 0.0)
    for name, (n, how) in ({"default": defaults(train)} | ways(train)).items():
        p, alpha, took, bound = own(train, v, n, **how)
        line(f"{name} ({n} cycles)", held, p, alpha, took, f"bound {bound:.4f} a word")
    for peer in peers:
        p, alpha, took = PEERS[peer](train, v)
        line(peer, held, p, alpha, took)


def course(folder):
    """Variational Bayes alone with its defaults: perplexity, CPU seconds and bound as it goes on."""
    rows, v = corpus(folder, "kos")
    held = Held(rows)
    n = held.train.values.sum()
    chain, took = ascent(held.train, v, warm=CYCLES // 2), 0.0
    began = time.process_time()
    chain.start()
    for t in range(1, CYCLES + 1):
        chain.cycle()
        if t in (5, 10, 15, 20, 30, 40, 50, CYCLES):
            took += time.process_time() - began
            p = chain.q.lam / chain.q.lam.sum(axis=0)
            line(f"vb, cycle {t}", held, p, ALPHA, took, f"bound {chain.evaluate() / n:.4f} a word")
            began = time.process_time()


def speed(folder):
    """Documents a CPU second of the local step, in a pass of a chain that has made twenty."""
    rows, v = corpus(folder, "kos")
    ways = [("vb", True), ("vb", False), ("linear", True), ("linear", False), ("cvb0", False), ("gibbs", True)]
    for kind, cold in ways:
        chain = ascent(rows, v, first=kind, then=kind, switch=10**6, warm=10**6)
        chain.start()
        for _ in range(20):
            chain.cycle()
        documents = Documents([rows], v, TOPICS, unit_of(rows.values.sum()), True, None, kind == "gibbs")
        local = chain.settings.local(1)
        local.cold = cold
        documents.gamma = [np.concatenate(chain.documents.gamma)]
        sums, best, done = np.zeros((v, documents.room.weight.shape[1])), np.inf, 0
        documents.weigh(chain.q, local, [None])
        for _ in range(7):
            gamma, began = documents.gamma[0].copy(), time.process_time()
            done = documents.steps(chain.q, local, documents.texts[0], None, None, gamma, sums)
            best = min(best, time.process_time() - began)
        start = "cold" if cold else "warm"
        print(f"{kind}, {start}: {len(rows) / best:,.0f} documents/s, {done / len(rows):.1f} iterations")


def noise(folder):
    """Bounds a word of 20 starts: mean and standard error."""
    rows, v = corpus(folder, "kos")
    ways = {
        "all, vb": {"warm": 36}, "all, linear then vb": {"first": "linear", "switch": 20, "warm": 36},
        "batches of 500": {"batch": Constant(500), "rate": Decay(1.0, 0.6), "warm": 99},
        "svi+, 1000 as 500": {
            "batch": Constant(1000), "rate": Decay(1.0, 0.6), "noise": Noise("svi+"), "effective": Constant(500),
            "warm": 99,
        },
    }  # fmt: skip
    for name, given in ways.items():
        result, acted, took = [], 0, 0.0
        for seed in range(STARTS):
            began, chain = time.process_time(), ascent(rows, v, seed=seed, **given)
            chain.start()
            for _ in range(40):
                chain.cycle()
                acted += chain.guarded
            took += time.process_time() - began
            result.append(chain.evaluate() / rows.values.sum())
        share = acted / (40 * STARTS * TOPICS)
        print(
            f"{name}: {np.mean(result):.4f} +- {np.std(result) / STARTS**0.5:.4f}, best {max(result):.4f}, guard "
            f"{share:.1%}, {took / STARTS:.2f} s", flush=True,
        )  # fmt: skip


def ranks(d=100_000):
    comm, v = world(), 5_000
    rng = np.random.default_rng(0)
    words = np.sort(rng.integers(0, v, (d, 60)) ** 2 // v, axis=1)
    keep = np.concatenate([np.ones((d, 1), bool), np.diff(words, axis=1) > 0], axis=1)
    starts = np.concatenate([[0], np.cumsum(keep.sum(axis=1))]).astype(np.int64)
    rows = SparseRows(starts, words[keep].astype(np.int32), np.ones(starts[-1], np.float32))
    chain = ascent(rows, v, comm, shards=64, warm=99)
    chain.start()
    comm.barrier()
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(5):
        chain.cycle()
    wall, cpu = (time.perf_counter() - began) / 5, (time.process_time() - cpu) / 5
    if comm.rank == 0:
        print(f"{comm.size} ranks: {wall:.3f} s a cycle, {cpu:.3f} CPU s on root, {d / wall:,.0f} documents/s")


def memory(d=400_000, v=2_000, words=50):
    """What documents take while a chain runs: the process's peak with them, less that with few."""
    peaks = []
    for n in (1_000, d):
        rng = np.random.default_rng(0)
        starts = np.arange(n + 1, dtype=np.int64) * words
        columns = np.tile(np.arange(words, dtype=np.int32) * (v // words), n)
        columns += np.repeat(rng.integers(0, v // words, n), words).astype(np.int32)
        rows = SparseRows(starts, columns, np.ones(len(columns), np.float32))
        documents = Documents([rows], v, 10, unit_of(1.0 * len(columns)), False)
        q = first(v, 10, ALPHA, ETA, 1.0 * len(columns), rng)
        documents.look(q, Local("vb", True, 0.01, 3), [None], None)
        lines = Path("/proc/self/status").read_text().splitlines()
        now = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
        peaks.append(now * 1024)
    a_document = 8 + 4 * 10
    used = (peaks[1] - peaks[0]) / (d - 1_000)
    print(f"{used:.0f} bytes a document of {words} words, 10 topics: {(used - a_document) / words:.1f} bytes a pair")


if __name__ == "__main__":
    what, *words = sys.argv[1:] or ["speed", "."]
    if what in ("speed", "noise", "course"):
        {"speed": speed, "noise": noise, "course": course}[what](Path(words[0]))
    elif what == "perplexity":
        compare(*corpus(Path(words[0]), words[1]), words[2:])
    elif what == "synthetic":
        rows, v, truth = simulated()
        compare(rows, v, words, truth)
    else:
        {"ranks": ranks, "memory": memory}[what]()
