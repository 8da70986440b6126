"""Where the report says not to use a result yet, an answer says so, too, from the command line and in Python."""

import warnings

import pytest

import mpibayes as mb
from mpibayes.hpc.cli import main
from mpibayes.hpc.crosscat.draws import Posterior
from mpibayes.hpc.crosscat.report.summarise import summarise
from mpibayes.hpc.crosscat.report.verdict import verdict
from mpibayes.hpc.report.document import BAD
from tests.crosscat.report.runs import make_run, planted, write_planted

FEW = "[model]\nconcentration = 1e-30\n"  # a new cluster costs 69 nats: a chain in one cluster stays there


def runs(folder, kind):
    """Two chains: "stuck", one of which is in one cluster for good; or "free"."""
    table = write_planted(folder / "a.h5")
    if kind == "stuck":
        return make_run(folder / "stuck", table, 30, chains=2, starts=("one", planted()[1]), split_merge=0, text=FEW)
    return make_run(folder / "free", table, 30, chains=2)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["stuck", "free"])
def test_a_line_where_the_report_says_not_to_use_it(tmp_path, capsys, kind):
    run = runs(tmp_path, kind)
    bad = verdict(summarise(Posterior([run]))).sound == BAD
    assert bad == (kind == "stuck") == Posterior([run]).contradicted()
    capsys.readouterr()
    assert main(["query", str(run), "logp", "--of", "colour=red"]) == 0
    text = capsys.readouterr()[1].splitlines()
    line = f"mpibayes: warning: the chains of {run} do not agree: do not use this answer yet; what to do: "
    assert text == ([f"{line}mpibayes report {run}"] if bad else [])


@pytest.mark.parametrize("kind", ["stuck", "free"])
def test_a_warning_in_python_once_a_run(tmp_path, kind):
    run = mb.open(runs(tmp_path, kind), draws=10)
    with warnings.catch_warnings(record=True) as result:
        warnings.simplefilter("always")
        run.logp(of={"colour": "red"})
        run.conditional("height")
        run.clusters()
    disagree = [w for w in result if issubclass(w.category, mb.ChainsDisagree)]
    assert len(disagree) == (kind == "stuck") and issubclass(mb.ChainsDisagree, mb.MpibayesWarning)
    assert all("do not agree" in str(w.message) and w.filename == __file__ for w in disagree)


def test_of_partitions_that_traces_do_not_tell_apart(tmp_path, monkeypatch):
    """Chains of one log joint and other clusters: the partitions are looked at, and a look at the traces alone is
    rejected."""
    from mpibayes.hpc.crosscat.report import agreement

    run = Posterior([runs(tmp_path, "stuck")])
    monkeypatch.setattr(agreement, "gap_of", lambda summaries, r_hat: 0.0)
    assert run.contradicted()
    monkeypatch.setattr(agreement, "worst", lambda of: "same")
    assert not run.contradicted()


def test_one_chain_that_climbs_is_called_so(tmp_path, capsys, monkeypatch):
    from mpibayes.hpc.crosscat.report import agreement

    run = make_run(tmp_path / "one", write_planted(tmp_path / "a.h5"), 30)
    assert not Posterior([run]).contradicted()
    monkeypatch.setattr(agreement, "climb", lambda log_joint: 500.0)
    assert main(["query", str(run), "logp", "--of", "colour=red"]) == 0
    assert f"the chain of {run} still climbs: do not use this answer yet" in capsys.readouterr()[1]
