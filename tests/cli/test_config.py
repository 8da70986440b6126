"""The configuration: all mistakes at once, where they are, what was expected; what is read back is what was written."""

import tomllib
from pathlib import Path

import pytest

from mpibayes.errors import ConfigError
from mpibayes.hpc.config.against_table import check_columns
from mpibayes.hpc.config.load import load
from mpibayes.hpc.config.resolved import as_dict, difference, resolved_toml
from mpibayes.hpc.crosscat.keys import SECTIONS, Model, Output, priors
from mpibayes.hpc.crosscat.sampler_keys import Anneal, Sampler
from mpibayes.io.rows import Column
from tests.cli.conftest import problems

MINIMAL = '[data]\ntable = "t.h5"\n'
REGRESSION = '[model]\nfamily = "regression"\n'
FAMILIES = '"auto", "mixture", "crosscat", "regression", "ibp" or "svi"'
ANNEAL = '[sampler]\nstrategy = "anneal"\n[anneal]\n'


def test_defaults(write, tmp_path):
    config = load(write(MINIMAL))
    assert config.table == tmp_path / "t.h5"
    assert (config.heldout_fraction, config.heldout_path, config.data.unseen) == (None, None, "error")
    model, sampler, anneal = config.of(Model), config.of(Sampler), config.of(Anneal)
    assert (model.concentration, model.discount, model.likelihood) == ("auto", 0.0, True)
    assert (sampler.sweeps_per_cycle, sampler.opening, sampler.init) == (1, "auto", "auto")
    assert (sampler.strategy, sampler.split_merge) == ("auto", "auto")
    assert (anneal.schedule, anneal.passes, anneal.start_rows, anneal.seconds) == ("linear", 10.0, "auto", None)
    assert (sampler.init_clusters, sampler.hyper_every) == ("auto", 1)
    assert (config.run.seed, config.run.shards, config.run.cycles, config.run.chains) == (0, "auto", 1000, 1)
    assert (config.burn_in, config.run.checkpoint_minutes, config.run.max_time) == (200, 5.0, None)
    assert (config.output.thin, config.of(Output).labels) == (1, 10)
    assert priors(config) == {} and config.unused == frozenset()


def test_a_configuration_cannot_be_changed(write):
    config = load(write(MINIMAL))
    with pytest.raises((AttributeError, TypeError, ValueError)):
        config.run.seed = 2
    with pytest.raises((AttributeError, TypeError)):
        config.run = None


def test_all_problems_at_once_with_lines(write):
    text = problems(
        write(
            "[data]\n"  # 1
            'tabel = "a.h5"\n'  # 2
            "heldout = 0.9\n"  # 3
            "[model]\n"  # 4
            "discount = true\n"  # 5
            "[sampler]\n"  # 6
            "cycles = 3\n"  # 7
            "[run]\n"  # 8
            "shards = 2.5\n"  # 9
            "burnin = 3\n"  # 10
            '[columns."my col"]\n'  # 11
            "prior = {dirichlet = [1, 0]}\n"  # 12
            "us = false\n"  # 13
            "[rum]\n"  # 14
        ),
        "run.seed=-1",
        "nonsense",
    )
    for expected in (
        "11 problems",
        "run.toml:2: data.tabel: unknown key; did you mean data.table?",
        "run.toml:3: data.heldout: got 0.9, expected a fraction in (0, 0.5]",
        "run.toml:5: model.discount: got true, expected a number in [0, 1)",
        "run.toml:7: sampler.cycles: unknown key; did you mean run.cycles?",
        'run.toml:9: run.shards: got 2.5, expected "auto" or a whole number',
        "run.toml:10: run.burnin: unknown key; did you mean run.burn_in?",
        'run.toml:12: columns."my col".prior: got {dirichlet = [1, 0]}',
        'run.toml:13: columns."my col".us: unknown key; did you mean use?',
        "run.toml:14: rum: unknown section; did you mean [run]?",
        "--set run.seed: got -1, expected a whole number from 0",
        "--set nonsense: expected key=value",
    ):
        assert expected in text, expected
    assert "data.table: this key is required" not in text


@pytest.mark.parametrize(
    "line, words",
    [
        ('[model]\nconcentration = "lern"', '"learn", a number above -discount'),
        ("[model]\nconcentration = -0.5\ndiscount = 0.5", "above -discount = -0.5"),
        ('[model]\nconcentration = 0\ndiscount = "learn"', "above 0"),
        ("[model]\nconcentration = 0", "above -discount"),
        ("[model]\nconcentration = nan", "model.concentration"),
        ("[model]\nconcentration = {gamma = [1, 1]}\ndiscount = 0.5", "Escobar and West"),
        ("[model]\nconcentration = {gamma = [1, 0]}", "{gamma = [shape, rate]}, each a number above 0"),
        ("[model]\nconcentration = {gamma = [1]}", "model.concentration"),
        ("[model]\nconcentration = {gama = [1, 1]}", "model.concentration"),
        ("[model]\nconcentration = true", "model.concentration"),
        ("[model]\ndiscount = 1.0", "[0, 1)"),
        ('[model]\nlikelihood = "no"', "true or false"),
        ('[sampler]\nopening = "all"\n[model]\ndiscount = 0.5', "exact for discount = 0 alone"),
        ('[sampler]\nopening = "all"\n[model]\ndiscount = "learn"', "exact for discount = 0 alone"),
        ('[sampler]\ninit = "labels"', "init_labels"),
        ('[sampler]\ninit_labels = "x.txt"', 'set sampler.init = "labels"'),
        ("[sampler]\nsweeps_per_cycle = 0", "a whole number from 1 to "),
        ('[sampler]\nstrategy = "annealing"', '"anneal", "sequential+gibbs"'),
        ("[sampler]\nsplit_merge = -1", "a whole number from 0 to "),
        ('[sampler]\nsplit_merge = "never"', "a whole number from 0 to "),
        ('[sampler]\nstrategy = "prior+gibbs"\ninit = "one"', 'but sampler.strategy = "prior+gibbs" says how'),
        ('[sampler]\nstrategy = "sequential+gibbs"\ninit = "prior"', 'got "prior", but sampler.strategy'),
        ("[sampler]\npasses = 3", "did you mean anneal.passes?"),
        ("[aneal]\npasses = 3", "did you mean [anneal]?"),
        ("[anneal]\npasses = 3", 'run.toml:4: anneal.passes: given, but sampler.strategy = "auto" has no use for it'),
        (ANNEAL + "passes = 0.5", "anneal.passes: got 0.5, expected a number from 1 to 1e6"),
        (ANNEAL + "start_rows = 0", "a whole number from 1 to "),
        (ANNEAL + 'schedule = "cubic"', '"geometric", "constant"'),
        (ANNEAL + "schedule = []", "[[passes, fraction], ...]"),
        (ANNEAL + "schedule = [[2, 0.5]]", "anneal.schedule: got [[2, 0.5]], expected"),
        (ANNEAL + "schedule = [[2, 0.5], [1, 1.0]]", "both rising"),
        (ANNEAL + "schedule = [[1, 0.5], [2, 0.5], [3, 1.0]]", "both rising"),
        (ANNEAL + "schedule = [[0, 0.0], [3, 1.0]]", "both rising"),
        (ANNEAL + "schedule = [[0.5, 1.0]]", "after 1 pass or later"),
        (ANNEAL + 'schedule = "seconds"', 'anneal.schedule: "seconds" needs anneal.seconds'),
        (ANNEAL + 'seconds = "10m"', 'set anneal.schedule = "seconds" to use it'),
        (ANNEAL + 'schedule = "seconds"\nseconds = "soon"', "a length of time"),
        (ANNEAL + 'schedule = "seconds"\nseconds = 60\npasses = 3', 'anneal.schedule = "seconds" has no use for it'),
        (ANNEAL + "schedule = [[3, 1.0]]\npasses = 3", "anneal.schedule = [[3.0, 1.0]] has no use for it"),
        (ANNEAL + 'schedule = "constant"\nstart_rows = 5', 'anneal.schedule = "constant" has no use for it'),
        ("[run]\nseed = 1.0", "run.seed"),
        ("[run]\nseed = true", "run.seed"),
        ("[run]\ncycles = 0", "a whole number from 1 to "),
        ("[run]\nshards = 0", "run.shards"),
        ("[run]\ncheckpoint_minutes = 0", "above 0"),
        ('[run]\nmax_time = "3 weeks"', "a length of time"),
        ("[output]\nlabels = 0", "a whole number from 1 to "),
        ("[output]\nthin = -1", "a whole number from 1 to "),
        ("[columns.a]\nprior = {mean = 0, kappa = 1}", "{mean, kappa, nu, variance}"),
        ("[columns.a]\nprior = {mean = 0, kappa = 1, nu = 1, variance = 0}", "columns.a.prior"),
        ("[columns.a]\nprior = {shape = 1, rate = 1, dirichlet = [1]}", "columns.a.prior"),
        ("[columns.a]\nprior = {dirichlet = []}", "columns.a.prior"),
        ("[columns.a]\nprior = 3", "columns.a.prior"),
        ("[columns]\na = 3", "[columns.a]"),
        ("[colums.a]\nuse = false", "did you mean [columns]?"),
    ],
)
def test_one_mistake(write, line, words):
    text = problems(write(MINIMAL + line + "\n"))
    assert words in text and "one problem" in text


@pytest.mark.parametrize(
    "line",
    [
        "[model]\nconcentration = -0.25\ndiscount = 0.5",
        "[model]\nconcentration = {gamma = [1, 0.5]}",
        '[model]\nconcentration = 1\ndiscount = "learn"',
        '[model]\nconcentration = "learn"\ndiscount = "learn"',
        '[sampler]\nopening = "all"',
        '[sampler]\ninit = "labels"\ninit_labels = "old/run"',
        "[run]\nmax_time = 02:00:00",
        '[columns."a.b c"]\nprior = {mean = 0, kappa = 1, nu = 2, variance = 3.5}',
        "[columns.n]\nprior = {shape = 1, rate = 2}\nuse = true",
        "[columns.x]\nuse = false\nprior = {dirichlet = [0.5, 0.5]}",
        '[sampler]\nstrategy = "anneal"\ninit = "one"\nsplit_merge = 3',
        '[sampler]\nstrategy = "anneal"\n[anneal]\nschedule = "geometric"\npasses = 3\nstart_rows = 5',
        '[sampler]\nstrategy = "anneal"\n[anneal]\nschedule = [[2, 0.1], [10, 1]]',
        '[sampler]\nstrategy = "anneal"\n[anneal]\nschedule = "seconds"\nseconds = "1h30m"',
        '[sampler]\nstrategy = "anneal"\n[anneal]\nschedule = "constant"',
        '[sampler]\nstrategy = "prior+gibbs"',
    ],
)
def test_resolved_is_read_back(write, line):
    config = load(write(MINIMAL + line + "\n"), ["data.heldout=0.1", "run.burn_in=7"])
    text = resolved_toml(config)
    again = load(write(text, "config.resolved.toml"))
    assert as_dict(again) == as_dict(config)
    assert difference(tomllib.loads(text), as_dict(config)) == []
    assert resolved_toml(again).splitlines()[1:] == text.splitlines()[1:]
    assert "\n[regression]" not in text and "\n[firefly]" not in text
    for name, section in SECTIONS.items():
        for key in section.model_fields:
            lines = (f"\n{key} = ", f"\n# {key} = (not set)", f"\n# {key} = (not used: ")
            assert any(words in text for words in lines), (name, key)


def test_overrides(write, tmp_path):
    path = write(MINIMAL + "[run]\nseed = 1\n[model]\nconcentration = {gamma = [1, 2]}\n[columns.a]\nuse = false\n")
    config = load(
        path,
        [
            "run.seed=3", "data.heldout=held out.csv", "run.max_time=1-02:00:00", "model.concentration=2",
            "columns.a.prior={shape=1, rate=2}", 'columns."b c".use=false', "sampler.init=one", "data.table = \"u.h5\"",
        ],
    )  # fmt: skip
    assert config.run.seed == 3
    assert config.heldout_path == tmp_path / "held out.csv"
    assert config.run.max_time == 93600
    assert config.of(Model).concentration == 2.0
    assert priors(config) == {"a": {"shape": 1.0, "rate": 2.0}} and config.unused == {"a", "b c"}
    assert config.of(Sampler).init == "one"
    assert config.table == tmp_path / "u.h5"
    assert load(path, ["data.heldout=0.25", "data.heldout=none"]).data.heldout is None
    assert load(path, ["run.max_time=02:00:00"]).run.max_time == 7200
    assert config.where(("run", "seed")) == "--set run.seed"
    assert config.where(("columns", "a", "use")) == f"{path}:8: columns.a.use"


def test_paths_start_at_the_file(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "run.toml").write_text('[data]\ntable = "../t.h5"\nheldout = "/x/h.csv"\n')
    config = load(tmp_path / "a" / "run.toml")
    assert config.table == tmp_path / "t.h5" and config.heldout_path == Path("/x/h.csv")
    labels = load(tmp_path / "a" / "run.toml", ["sampler.init=labels", "sampler.init_labels=old"])
    written = as_dict(labels)
    assert written["data"] == {"table": f"{tmp_path}/t.h5", "heldout": "/x/h.csv", "unseen": "error"}
    assert written["sampler"]["init_labels"] == f"{tmp_path}/a/old"
    assert "cannot be a path" in problems(
        tmp_path / "a" / "run.toml", "sampler.init=labels", 'sampler.init_labels="\\u0000"'
    )


def test_files_that_are_no_configuration(write, tmp_path):
    write(MINIMAL, "run.toml")
    assert "did you mean" in problems(tmp_path / "runn.toml")
    assert "folder" in problems(tmp_path)
    assert "run2.toml:3: not valid TOML" in problems(write('[data]\ntable = "x"\nseed = = 3\n', "run2.toml"))
    (tmp_path / "latin.toml").write_bytes(b'[data]\ntable = "\xe9"\n')
    assert "not UTF-8" in problems(tmp_path / "latin.toml")
    assert "data.table: this key is required" in problems(write("", "empty.toml"))
    assert "expected a section [run]" in problems(write('run = 3\n[data]\ntable="x"\n', "flat.toml"))


def test_columns_against_the_table(write):
    columns = [
        Column("age", "real", "reals", 0),
        Column("sex", "categorical", "codes8", 0, ("F", "M")),
        Column("children", "count", "tallies", 0),
        Column("owner", "boolean", "codes8", 1, ("no", "yes")),
    ]
    good = load(
        write(
            MINIMAL + "[columns.age]\nprior = {mean = 0, kappa = 1, nu = 1, variance = 1}\n"
            "[columns.sex]\nprior = {dirichlet = [1, 2]}\n"
            "[columns.owner]\nprior = {dirichlet = [1, 1]}\n[columns.children]\nprior = {shape = 1, rate = 1}\n"
        )
    )
    check_columns(good, columns, 100)
    bad = load(
        write(
            MINIMAL + "[columns.agee]\nuse = false\n[columns.sex]\nprior = {dirichlet = [1, 2, 3]}\n"
            "[columns.children]\nprior = {dirichlet = [1, 1]}\n[columns.zzz]\nuse = true\n"
        )
    )
    with pytest.raises(ConfigError) as caught:
        check_columns(bad, columns, 100)
    text = str(caught.value)
    assert "run.toml:3: columns.agee: the table has no such column; did you mean age?" in text
    assert "run.toml:6: columns.sex.prior: got 3 numbers, expected 2" in text and "F, M" in text
    assert "columns.children.prior: got {dirichlet = [1.0, 1.0]}, but the column is count" in text
    assert "expected {shape, rate}" in text
    assert "columns.zzz: the table has no such column; it has age, sex, children, owner" in text
    unused = load(write(MINIMAL + "".join(f"[columns.{c.name}]\nuse = false\n" for c in columns)))
    with pytest.raises(ConfigError, match="nothing is left to model"):
        check_columns(unused, columns, 100)


def test_all_problems_of_a_start_at_once(write):
    text = problems(
        write(MINIMAL + '[sampler]\nstrategy = "prior+gibbs"\ninit = "random"\n[anneal]\nstart_rows = 5\npasses = 3\n')
    )
    for words in (
        "3 problems",
        "run.toml:5: sampler.init",
        "run.toml:7: anneal.start_rows",
        "run.toml:8: anneal.passes",
    ):
        assert words in text, text
    config = load(write(MINIMAL), ["anneal.seconds=none"])  # takes a value back, and gives none
    assert config.of(Anneal).seconds is None


def test_a_key_of_an_earlier_version_is_accepted_and_noted(write):
    config = load(write(MINIMAL + ANNEAL + 'strata = "clusters"\n'))
    assert config.notes == (f"{config.path}:6: anneal.strata: has no effect any more: subsamples have no strata, which "
                            "did not raise the score; take it out",)  # fmt: skip
    assert load(write(MINIMAL + ANNEAL)).notes == () and "strata" not in vars(config.of(Anneal))
