"""Topics of documents as a run: what is made of it, and bad input; test_family_runs.py has ranks and stops."""

import csv
import json

import numpy as np
import pytest

from mpibayes.hpc.svi.lda.draws import Posterior
from mpibayes.hpc.svi.lda.report.summarise import coherences
from mpibayes.io.draws import iterate_draws
from mpibayes.io.sparse import SparseTable
from mpibayes.io.table import table_from_arrays, write_table
from tests.page.checks import parts_of, problems
from tests.run.conftest import everything, mpibayes, ran, sets
from tests.sparse_tables import write_sparse
from tests.svi.lda_cases import corpus, sparse

CONFIG = """
[data]
table = "news.h5"
heldout = 0.1
[model]
family = "svi"
likelihood = "lda"
topics = 6
learn_alpha = true
[step]
local = "cvb0, then vb"
batch = 60
noise = "svi+"
effective = {growing = 2}
switch = 8
warm = 20
[run]
seed = 5
shards = 5
cycles = 24
[output]
kept = 4
"""
PLAIN = CONFIG.split("[step]")[0] + "[run]\ncycles = 12\nchains = 2\n"
SAMPLED = ('step.local="gibbs"', "model.learn_alpha=false")  # documents draw by their number in the table
WORDS = [f"wörd{i}" for i in range(60)]


def make(place):
    write_sparse(place / "news.h5", corpus(d=200)[0], 60, column_ids=WORDS, names=("document", "word", "count"))
    write_table(place / "dense.h5", *table_from_arrays([("x", "real", np.arange(9.0), None)]))
    (place / "run.toml").write_text(CONFIG)
    (place / "plain.toml").write_text(PLAIN)
    return place


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make(tmp_path_factory.mktemp("lda"))


def test_sampled_topics_say_which_new_documents_have(place):
    ran(place, "sampled", *sets(*SAMPLED))
    done = mpibayes(place, "predict", "sampled", "news.h5", "-o", "sampled.csv")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("local", ["cvb0, then vb", "gibbs"])
def test_shards_do_not_matter_without_noise(place, local):
    """Expected counts are summed exactly."""
    quiet = CONFIG.replace('noise = "svi+"\neffective = {growing = 2}\n', "").replace("learn_alpha = true\n", "")
    (place / "quiet.toml").write_text(quiet)
    outs = [f"{local[:5]}-{shards}" for shards in (1, 7)]
    for out in outs:
        ran(place, out, *sets(f"run.shards={out[-1]}", f'step.local="{local}"'), config="quiet.toml")
    one, seven = ([arrays["lam"].tobytes() for _, arrays in iterate_draws(place / out)] for out in outs)
    assert one == seven


def test_what_is_made_of_a_run(place, small_pictures):
    text = ran(place, "plain", config="plain.toml").stdout
    assert "local step cvb0 in 6 cycles, then vb, warm after cycle 10" in text and "an approximation" in text
    done = mpibayes(place, "report", "plain")
    assert done.returncode == 0 and "An approximation" in done.stdout and "of 2 chains" in done.stdout, done.stderr
    page = (place / "plain" / "report" / "report.html").read_text()
    assert problems(page) == [] and [part["part"] for part in parts_of(page)] == ["browse", "traces"]
    done = mpibayes(place, "report", "plain", "--full")
    assert done.returncode == 0, done.stderr
    for words in ("the best of 2", "perplexity", "coherence", "approximation", "not the posterior", "wörd"):
        assert words in (place / "plain" / "report" / "report.txt").read_text(), words
    folder = place / "plain" / "report"
    assert {p.name for p in folder.iterdir()} >= {"report.txt", "summary.json", "topics.csv", "bound.png", "topics.png"}
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["approximation"] and len(summary["topics"]) == 6 and summary["perplexity"] > 1
    assert abs(sum(t["share"] for t in summary["topics"]) - 1) < 1e-9
    run = Posterior([place / "plain"])
    best = max(run.last(), key=lambda kept: kept.bound)
    assert summary["best"]["bound"] == best.bound == run.best().bound
    done = mpibayes(place, "export", "plain", "--to", "topics", "-o", "topics.csv")
    assert done.returncode == 0, done.stderr
    with open(place / "topics.csv") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 6 * 60 and lines[0]["word"] == summary["topics"][0]["words"][0]
    assert abs(sum(float(line["probability"]) for line in lines[:60]) - 1) < 1e-4


def test_topics_of_new_documents(place):
    ran(place, "plain", config="plain.toml")
    law = Posterior([place / "plain"]).law(Posterior([place / "plain"]).best())
    of = law.word_given_topic / law.word_given_topic.sum(axis=1, keepdims=True)
    top = [WORDS[i] for i in of.argmax(axis=0).tolist()]  # the word that most says that it is the topic
    lines = [f"doc{k},{word},{9 + k}\n" for k, word in enumerate(top)] + ["doc0,unknown,2\n", "lost,never,1\n"]
    (place / "new.csv").write_text("document,word,count\n" + "".join(lines))
    done = mpibayes(place, "predict", "plain", "new.csv", "-o", "p.csv", "--force")
    assert done.returncode == 0, done.stderr
    assert "2 words of new.csv are not in the run's table: 4.2% of all words are left out" in done.stdout + done.stderr
    with open(place / "p.csv") as file:
        result = list(csv.DictReader(file))
    assert [int(line["topic"]) for line in result[:6]] == [1, 2, 3, 4, 5, 6]
    assert [line["document"] for line in result] == [*(f"doc{k}" for k in range(6)), "lost"]
    assert [int(line["words"]) for line in result] == [9, 10, 11, 12, 13, 14, 0]
    for line in result:
        assert abs(sum(float(line[f"p_{k}"]) for k in range(1, 7)) - 1) < 1e-6
    done = mpibayes(place, "predict", "plain", "new.csv", "-o", "p2.csv", "--unseen", "error")
    assert done.returncode == 3 and "the word 'unknown' is not in the run's table" in done.stderr
    assert not (place / "p2.csv").exists()


def test_defaults_fit_the_length_of_documents(place):
    """All documents of a small table; sampled topics of short ones, with an alpha that does not outweigh them. An alpha
    and a local step of a run hold when it goes on, also where its file does not say."""
    long, short = (corpus(d=5100 if length < 10 else 40, length=length)[0] for length in (120, 4))
    usual = '[data]\ntable = "{}.h5"\n[model]\nfamily = "svi"\nlikelihood = "lda"\ntopics = 50\n'
    for name, rows, change, words in (
        ("long", long, (), ("alpha 0.1", "all documents", "60 cycles", "local step cvb0")),
        ("short", short, (), ("alpha 0.0249", "256 documents", "399 cycles", "local step gibbs of 6 sweeps")),
        ("short", short, ("step.batch=all",), ("alpha 0.0498", "all documents", "200 cycles", "local step cvb0")),
        ("short", short, ("model.learn_alpha=true",), ("all documents", "local step cvb0 in 100 cycles, then vb")),
    ):
        if not (place / f"{name}.h5").exists():
            write_sparse(place / f"{name}.h5", rows, 60)
        (place / f"{name}.toml").write_text(usual.format(name))
        done = mpibayes(place, "check", f"{name}.toml", *sets(*change))
        assert done.returncode == 0 and all(word in done.stdout for word in words), done.stdout + done.stderr
    old = ("model.alpha=0.02", 'step.local="linear"', "model.topics=4")
    ran(place, "before", *sets(*old, "run.cycles=6"), config="long.toml")
    ran(place, "before", *sets("model.topics=4", "run.cycles=12"), config="long.toml")
    ran(place, "whole", *sets(*old, "run.cycles=12"), config="long.toml")
    before, whole = (everything(place, out)[1] for out in ("before", "whole"))
    assert (
        {key: before[key] for key in whole if key[0] == 12} == {key: whole[key] for key in whole if key[0] == 12} != {}
    )
    assert mpibayes(place, "report", "whole", "--full").returncode == 0
    text = " ".join((place / "whole" / "report" / "report.txt").read_text().split())
    assert "steps with linear do not aim at it" in text and "local step linear" in text and "alpha 0.02," in text


def test_check(place):
    done = mpibayes(place, "check", "run.toml", "--ranks", "2")
    assert done.returncode == 0, done.stderr
    for words in ("a sparse table", "60 (word)", "latent Dirichlet allocation, 6 topics", "approximation", "passes"):
        assert words in done.stdout, words


@pytest.mark.parametrize(
    "changes, code, words",
    [
        (
            ("data.table=dense.h5",),
            2,
            "a typed table, of columns (mpibayes import), but the model, svi with likelihood lda",
        ),
        (("data.heldout=news.h5",), 2, "data.heldout: got a file, expected a fraction"),
        (('step.local="linear"',), 2, 'model.learn_alpha: it is learned from the local step "vb" alone'),
        (('step.local="gibbs"',), 2, 'model.learn_alpha: it is learned from the local step "vb" alone'),
        (
            ("model.components=3",),
            2,
            'model.likelihood = "lda" has no use for it; take it out, or set model.likelihood',
        ),
        (("step.effective=none",), 2, "step.effective"),
        (('run.until="settled"',), 2, "run.until"),
        (("columns.x.use=false",), 2, "columns.x: a sparse table has no columns"),
    ],
)
def test_refused(place, changes, code, words):
    done = mpibayes(place, "check", "run.toml", *sets(*changes))
    assert done.returncode == code and words in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_a_dense_model_refuses_a_sparse_table(place):
    (place / "dense.toml").write_text('[data]\ntable = "news.h5"\n')
    for verb in ("check", "run"):
        done = mpibayes(place, verb, "dense.toml")
        assert done.returncode == 2 and "a sparse table, of counts or ratings" in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_ratings_are_no_counts(place):
    rows = corpus(d=20)[0]
    rows.values[0] = 0.5
    write_sparse(place / "ratings.h5", rows, 60)
    done = mpibayes(place, "check", "run.toml", *sets("data.table=ratings.h5"))
    assert done.returncode == 2 and "its values are not counts: they go from 0.5" in done.stderr, done.stderr


def test_coherence(tmp_path):
    """Compare with the definition, pair by pair."""
    counts = np.array([[1, 1, 0, 0], [2, 1, 0, 1], [0, 0, 1, 1], [0, 1, 1, 0], [1, 1, 0, 0.0]])
    write_sparse(tmp_path / "t.h5", sparse(counts), 4)
    there = counts > 0

    def npmi(i, j):
        both = (there[:, i] & there[:, j]).mean()
        return np.log(both / (there[:, i].mean() * there[:, j].mean())) / -np.log(both) if both else -1.0

    words = np.array([[0, 1, 3], [0, 2, 1]])
    expected = [np.mean([npmi(a[i], a[j]) for i, j in ((0, 1), (0, 2), (1, 2))]) for a in words]
    np.testing.assert_allclose(coherences(SparseTable.open(tmp_path / "t.h5"), words), expected)


@pytest.mark.thorough
def test_topics_are_not_compared_row_by_row(place):
    """Words are held out, not documents: the report of two models says so, and has what each says."""
    for out, topics in (("few", 3), ("more", 6)):
        ran(place, out, *sets(f"model.topics={topics}", "run.cycles=6"), config="plain.toml")
    done = mpibayes(place, "report", "few", "more", "-o", "both")
    assert done.returncode == 0, done.stderr
    assert "Held-out scores of few and more cannot be compared" in " ".join(done.stdout.split())
    summary = json.loads((place / "both" / "summary.json").read_text())
    assert "single entries are held out" in summary["not_comparable"]
    assert summary["settings"] == {"model.topics": ["3", "6"]} and all(run["found"] for run in summary["runs"])
    assert problems((place / "both" / "report.html").read_text()) == []
