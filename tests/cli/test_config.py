"""The configuration: all mistakes at once, where they are, what was expected; what is read back is what was written."""

import tomllib
from pathlib import Path

import pytest

from mpibayes.errors import ConfigError
from mpibayes.hpc import registry
from mpibayes.hpc.config.against_table import check_columns
from mpibayes.hpc.config.load import load
from mpibayes.hpc.config.resolved import as_dict, continued, difference, resolved_toml
from mpibayes.hpc.config.section import parse_duration
from mpibayes.hpc.crosscat.family import Family
from mpibayes.hpc.crosscat.keys import SECTIONS, Anneal, Model, Output, Sampler, priors
from mpibayes.hpc.crosscat.start import strategy
from mpibayes.io.rows import Column

MINIMAL = '[data]\ntable = "t.h5"\n'
REGRESSION = '[model]\nfamily = "regression"\n'
FAMILIES = '"auto", "mixture", "crosscat", "regression", "ibp" or "svi"'
ANNEAL = '[sampler]\nstrategy = "anneal"\n[anneal]\n'


@pytest.fixture
def write(tmp_path):
    def put(text, name="run.toml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return put


def problems(path, *overrides):
    with pytest.raises(ConfigError) as caught:
        load(path, overrides)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_defaults(write, tmp_path):
    config = load(write(MINIMAL))
    assert config.table == tmp_path / "t.h5"
    assert (config.heldout_fraction, config.heldout_path, config.data.unseen) == (None, None, "error")
    model, sampler, anneal = config.of(Model), config.of(Sampler), config.of(Anneal)
    assert (model.concentration, model.discount, model.likelihood) == ("auto", 0.0, True)
    assert (sampler.sweeps_per_cycle, sampler.opening, sampler.init) == (1, "auto", "auto")
    assert (sampler.strategy, sampler.split_merge) == ("auto", "auto")
    assert (anneal.schedule, anneal.passes, anneal.start_rows, anneal.seconds) == ("linear", 10.0, "auto", None)
    assert anneal.strata == "none"
    assert (sampler.init_clusters, sampler.hyper_every) == (64, 1)
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
        (ANNEAL + 'schedule = "constant"\nstrata = "clusters"', 'anneal.schedule = "constant" has no use for it'),
        (ANNEAL + 'strata = ""', '"clusters", or the name of'),
        (ANNEAL + 'strata = "clusters"\n[model]\nlikelihood = false', "needs model.likelihood = true"),
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
        '[sampler]\nstrategy = "anneal"\n[anneal]\nschedule = "geometric"\npasses = 3\nstart_rows = 5\nstrata = "sex"',
        '[sampler]\nstrategy = "anneal"\n[anneal]\nschedule = [[2, 0.1], [10, 1]]\nstrata = "clusters"',
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
            said = (f"\n{key} = ", f"\n# {key} = (not set)", f"\n# {key} = (not used: ")
            assert any(words in text for words in said), (name, key)


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
        write(MINIMAL + '[sampler]\nstrategy = "prior+gibbs"\ninit = "random"\n[anneal]\nstrata = "sex"\npasses = 3\n')
    )
    for words in ("3 problems", "run.toml:5: sampler.init", "run.toml:7: anneal.strata", "run.toml:8: anneal.passes"):
        assert words in text, text
    config = load(write(MINIMAL), ["anneal.seconds=none"])  # takes a value back, and gives none
    assert config.of(Anneal).seconds is None


def test_strata_against_the_table(write):
    columns = [
        Column("age", "real", "reals", 0),
        Column("sex", "categorical", "codes8", 0, ("F", "M")),
        Column("owner", "boolean", "codes8", 1, ("no", "yes")),
    ]
    for name in ("none", "clusters", "sex", "owner"):
        check_columns(load(write(MINIMAL + ANNEAL + f'strata = "{name}"\n[columns.sex]\nuse = false')), columns, 100)
    for name, words in (
        ("sexx", 'the table has no column "sexx"; did you mean sex?'),
        ("SEX", "did you mean sex?"),
        ("cluster", "did you mean clusters?"),
        ("zip", 'expected "none", "clusters", or one of sex, owner'),
        ("age", 'column age is real; expected "none", "clusters", or one of sex, owner'),
    ):
        with pytest.raises(ConfigError) as caught:
            check_columns(load(write(MINIMAL + ANNEAL + f'strata = "{name}"')), columns, 100)
        assert "run.toml:6: anneal.strata: " in str(caught.value) and words in str(caught.value)


def decided(config, n_rows):
    return continued(config, Family.decided(config, n_rows))


@pytest.mark.parametrize(
    "change, init, of_chains",
    [
        ([], "one", ["one"]),
        (["run.chains=3"], "overdispersed", ["one", "overdispersed", "overdispersed"]),
        (["sampler.init=random", "run.chains=2"], "random", ["random", "random"]),
        (["sampler.init=overdispersed"], "overdispersed", ["overdispersed"]),
        (["sampler.strategy=prior+gibbs"], "prior", ["prior"]),
        (["sampler.strategy=sequential+gibbs", "run.chains=2"], "sequential", ["sequential", "sequential"]),
        (["sampler.strategy=anneal"], "sequential", ["sequential"]),
        (["sampler.strategy=anneal", "sampler.init=one"], "one", ["one"]),
        (["sampler.strategy=anneal", "anneal.schedule=constant"], "prior", ["prior"]),
        (["sampler.strategy=anneal", "anneal.schedule=sequential"], "sequential", ["sequential"]),
    ],
)
def test_how_chains_start(write, change, init, of_chains):
    change = ["model.family=mixture", *change]
    config = decided(load(write(MINIMAL), change), 50_000)
    assert config.of(Sampler).init == init
    assert [strategy.initial_of_chain(config, i) for i in range(config.run.chains)] == of_chains
    again = load(write(resolved_toml(config), "config.resolved.toml"))  # as the report reads it
    assert as_dict(again) == as_dict(config)
    assert difference(tomllib.loads(resolved_toml(config)), as_dict(load(write(MINIMAL), change))) == []


def test_what_auto_comes_to_when_annealing(write):
    given = load(write(MINIMAL), ["sampler.strategy=anneal"])
    for n_rows, start_rows in ((1, 1), (7, 1), (400, 100), (50_000, 1000)):
        assert strategy.start_rows(given, n_rows) == start_rows
    config = decided(given, 50_000)
    growth = strategy.growth_cycles(config, 50_000)
    assert config.of(Anneal).start_rows == 1000 and 10 < growth < 100
    assert config.burn_in == growth + (1000 - growth) // 5  # 20 cycles for each of 4 shards are fewer
    assert (
        decided(load(write(MINIMAL), ["sampler.strategy=anneal", "run.cycles=150"]), 50_000).burn_in
        == growth + (150 - growth) // 2
    )
    settings = strategy.annealing(config, 50_000)
    assert (settings.schedule, settings.passes, settings.start_rows, settings.seconds) == ("linear", 10.0, 1000, None)
    clock = decided(load(write(MINIMAL + ANNEAL + 'schedule = "seconds"\nseconds = "1h"')), 50_000)
    assert strategy.growth_cycles(clock, 50_000) is None and clock.burn_in == 500 + 100
    assert "not reproducible from the seed alone" in strategy.growth_in_words(clock, 50_000)
    assert decided(load(write(MINIMAL)), 50_000).burn_in == 200
    for text in ('schedule = "constant"', 'schedule = "sequential"'):
        plain = decided(load(write(MINIMAL + ANNEAL + text)), 50_000)
        assert strategy.annealing(plain, 50_000) is None and plain.burn_in == 200


def test_a_chain_has_to_outlast_its_annealed_start(write):
    growth = strategy.growth_cycles(load(write(MINIMAL), ["sampler.strategy=anneal"]), 50_000)
    path = write(MINIMAL + '[sampler]\nstrategy = "anneal"\n[run]\ncycles = 20\nburn_in = 3\n')
    with pytest.raises(ConfigError) as caught:
        strategy.check_length(load(path), 50_000)
    text = str(caught.value)
    assert f"run.toml:6: run.cycles: got 20, but 50,000 rows are added until cycle {growth}" in text
    assert f"{2 * growth} would do" in text and "run.toml:7: run.burn_in: got 3" in text
    strategy.check_length(load(path, [f"run.cycles={growth + 1}", f"run.burn_in={growth}"]), 50_000)
    strategy.check_length(load(path, ["sampler.strategy=auto"]), 50_000)
    strategy.check_length(load(path, ["anneal.schedule=constant"]), 50_000)


def test_a_run_of_an_older_version_goes_on(write):
    """Its resolved file says init = "random", which was the default, and does not know of strategies."""
    old = resolved_toml(load(write(MINIMAL), ["sampler.init=random"])).replace("[anneal]", "").splitlines()
    old = [line for line in old if not line.startswith(("strategy", "split_merge", "# schedule"))]
    stored = tomllib.loads("\n".join(old))
    config = continued(load(write(MINIMAL)), stored)
    assert config.of(Sampler).init == "random" and difference(stored, as_dict(config)) == []


def test_what_may_change(write):
    first = load(write(MINIMAL))
    stored = tomllib.loads(resolved_toml(first, {"run.shards": 4, "sampler.opening": "one"}))
    longer = load(write(MINIMAL), ["run.cycles=5000", "run.checkpoint_minutes=1", "run.max_time=1h"])
    assert difference(stored, as_dict(longer)) == []
    held = continued(longer, stored)
    assert (held.burn_in, held.run.shards, held.of(Sampler).opening, held.run.cycles) == (200, 4, "one", 5000)


@pytest.mark.parametrize(
    "change, line",
    [
        ("run.seed=3", "run.seed: was 0, is now 3"),
        ("run.shards=8", 'run.shards: was "auto", is now 8'),
        ("run.chains=2", "run.chains: was 1, is now 2"),
        ("run.burn_in=7", "run.burn_in: was 200, is now 7"),
        ("output.thin=2", "output.thin: was 1, is now 2"),
        ("output.labels=2", "output.labels: was 10, is now 2"),
        ("model.discount=0.5", "model.discount: was 0.0, is now 0.5"),
        ("sampler.init=one", 'sampler.init: was "auto", is now "one"'),
        ("sampler.strategy=anneal", 'sampler.strategy: was "auto", is now "anneal"'),
        ("sampler.split_merge=0", 'sampler.split_merge: was "auto", is now 0'),
        ("data.heldout=0.1", "data.heldout: was not set, is now 0.1"),
        ("columns.a.use=false", "columns.a.use: was not set, is now false"),
        ("columns.a.prior={shape=1, rate=1}", "columns.a.prior: was not set, is now {shape = 1.0, rate = 1.0}"),
    ],
)
def test_what_may_not_change(write, change, line):
    stored = tomllib.loads(resolved_toml(load(write(MINIMAL))))
    assert difference(stored, as_dict(load(write(MINIMAL), [change]))) == [line]


def test_a_moved_table(write, tmp_path):
    stored = tomllib.loads(resolved_toml(load(write(MINIMAL))))
    moved = as_dict(load(write(MINIMAL), ["data.table=u.h5"]))
    assert difference(stored, moved) == [f'data.table: was "{tmp_path}/t.h5", is now "{tmp_path}/u.h5"']
    assert difference(stored, moved, same_table=True) == []


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("3h50m", 13800), ("90m", 5400), ("3600", 3600), (3600, 3600), ("1-02:00:00", 93600), ("02:00:00", 7200),
        ("90:00", 5400), ("1d", 86400), ("1.5h", 5400), ("2-0", 172800), ("1-12:30", 131400), ("45 s", 45),
        ("1d 2h", 93600), ("10min", 600),
    ],
)  # fmt: skip
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5", "0", "3h3h", "1:2:3:4", "h", True, "inf", float("nan")])
def test_no_durations(text):
    with pytest.raises(ValueError, match="length of time"):
        parse_duration(text)


@pytest.mark.parametrize("family", registry.FAMILIES)
def test_every_key_is_explained(family):
    keys = registry.keys_of(family)
    for name, section in [*keys.SECTIONS.items(), *keys.NAMED.items()]:
        for key, info in section.model_fields.items():
            assert info.description and info.json_schema_extra["expected"], (name, key)


@pytest.mark.parametrize(
    "lines",
    [
        'likelihood = "logistic"\n[regression]\nresponse = "y"\nprior = "flat"',
        'likelihood = "softmax"\n[regression]\nresponse = "y"\npredictors = ["a", "b"]\nprior_scale = "heldout"',
        'likelihood = "student-t"\n[regression]\nresponse = "y"\nscale = 0.5\n[firefly]\nbounds = "untuned"\nxi = 2',
    ],
)
def test_resolved_regressions_are_read_back(write, lines):
    config = load(write(MINIMAL + REGRESSION + lines + "\n"), ["data.heldout=0.1", "run.burn_in=7"])
    text = resolved_toml(config)
    again = load(write(text, "config.resolved.toml"))
    assert as_dict(again) == as_dict(config) and config.run.cycles == 20_000
    assert difference(tomllib.loads(text), as_dict(config)) == []
    assert "\n[sampler]" not in text and "concentration" not in text and "output.labels" not in text


# --- families ---------------------------------------------------------------------------------------------------------


def test_an_unknown_family_is_reported_with_all_else(write):
    text = problems(
        write(
            MINIMAL + '[model]\nfamily = "mixtures"\ndiscount = 0.5\n[run]\ncycles = 0\nseeds = 3\n[sampler]\n'
            'init = "two"\n[firefly]\nq = 2\n[rum]\n'
        )
    )
    for expected in (
        f'run.toml:4: model.family: got "mixtures", expected {FAMILIES}',
        "run.toml:7: run.cycles: got 0",
        "run.toml:8: run.seeds: unknown key; did you mean run.seed?",
        'run.toml:10: sampler.init: got "two"',
        "run.toml:12: firefly.q: got 2",
        "run.toml:13: rum: unknown section; did you mean [run]?",
        "6 problems",
    ):
        assert expected in text, (expected, text)


@pytest.mark.parametrize(
    "model, words",
    [
        (
            'family = "logistic"',
            f'model.family: got "logistic", expected {FAMILIES}; did you mean '
            'family = "regression" and likelihood = "logistic"?',
        ),
        ("family = 3", 'model.family: got 3, expected "auto", "mixture", "crosscat", "regression", "ibp" or "svi"'),
        ("family = []", 'model.family: got [], expected "auto", "mixture", "crosscat", "regression", "ibp" or "svi"'),
        ('family = "regression"', 'model.likelihood: this key is required: "logistic", "softmax" or "student-t"'),
        (
            'family = "regression"\nlikelihood = true',
            'model.likelihood: got true, expected "logistic", "softmax" or "student-t"; it is a value for '
            'model.family = "mixture", "crosscat" or "ibp"',
        ),
        (
            'likelihood = "logistic"',
            'model.likelihood: got "logistic", expected true or false; it is a value for model.family = "regression"',
        ),
        (
            'family = "mixture"\nlikelihood = "logit"',
            'model.likelihood: got "logit", expected true or false',
        ),
        (
            'family = "regression"\nlikelihood = "softmax"\ndiscount = 0.5',
            'model.discount: given, but model.family = "regression" has no use for it; take it out, or set '
            'model.family = "mixture" or "crosscat"',
        ),
    ],
)
def test_family_and_likelihood(write, model, words):
    response = '[regression]\nresponse = "y"\n' if "regression" in model else ""
    text = problems(write(f"{MINIMAL}[model]\n{model}\n{response}"))
    assert any(line.endswith(words) for line in text.splitlines()) and "one problem" in text, text


def test_a_wrong_key_of_the_command_line_is_placed_there(write):
    path = write(MINIMAL)
    assert "--set cycles: unknown key; did you mean run.cycles?" in problems(path, "cycles=10")
    assert '--set model: expected a section [model], got "logistic"' in problems(path, "model=logistic")


def test_what_another_family_has(write):
    """Sections, once each where the file has them; keys of sections that both have; keys of columns."""
    text = problems(
        write(
            MINIMAL + REGRESSION + 'likelihood = "logistic"\n[sampler]\nopening = "some"\n[output]\nlabels = 3\n'
            "[columns.a]\nprior = {shape = 1, rate = 1}\n"
        ),
        "anneal.passes=3",
    )
    no_use = 'given, but model.family = "regression" has no use for it; take it out, or set model.family = "mixture"'
    mixtures, both = f'{no_use} or "crosscat"', f'{no_use}, "crosscat" or "ibp"'
    for expected in (
        f"run.toml:6: sampler: {both}",
        f"run.toml:9: output.labels: {both}",
        f"run.toml:11: columns.a.prior: {mixtures}",
        f"--set anneal.passes: {mixtures}",
        "run.toml: regression.response: this key is required: the name of the column to explain",
        "5 problems",
    ):
        assert expected in text, (expected, text)
    text = problems(write(MINIMAL + '[regression]\nresponse = "y"\n[output]\nlog_posterior = 0\n'))
    for key in ("run.toml:3: regression", "run.toml:6: output.log_posterior"):
        assert f'{key}: given, but model.family = "auto" has no use for it' in text, text
    assert 'set model.family = "regression"' in text and "2 problems" in text
    assert "scale: unknown key; did you mean regression.scale?" in problems(write("scale = 3\n" + MINIMAL + REGRESSION))
    assert "unknown section; did you mean [firefly]?" in problems(write(MINIMAL + "[firefl]\nq = 0.1\n"))


@pytest.mark.parametrize(
    "likelihood, keys, problems",
    [
        (
            "logistic",
            'response = "sik"\npredictors = ["agee", "JOB", "zzz", "cost"]\n[columns.cost]\nuse = false',
            [
                'run.toml:7: regression.response: the table has no column "sik"; did you mean sick?',
                'run.toml:8: regression.predictors: the table has no column "agee"; did you mean age?',
                'run.toml:8: regression.predictors: the table has no column "JOB"; did you mean job?',
                'run.toml:8: regression.predictors: the table has no column "zzz"; it has sick, age, job, one, two',
                'run.toml:8: regression.predictors: "cost" has use = false in [columns.cost]',
            ],
        ),
        ("logistic", 'response = "job"', ['3 levels; logistic needs two: likelihood = "softmax"?']),
        ("logistic", 'response = "age"', ['likelihood = "student-t"']),
        ("softmax", 'response = "cost"', ['likelihood = "student-t"']),
        ("softmax", 'response = "one"', ["has one level ('only')"]),
        ("student-t", 'response = "job"', ['likelihood = "softmax"?']),
        ("student-t", 'response = "sick"', ['likelihood = "logistic"?']),
        ("student-t", 'response = "two"', ["response 'two' is constant (2)"]),
    ],
)
def test_response_and_predictors_against_the_table(write, likelihood, keys, problems):
    columns = [
        Column("sick", "boolean", "codes8", 0, ("no", "yes")),
        Column("age", "real", "reals", 0, minimum=1.0, maximum=9.0),
        Column("job", "categorical", "codes8", 1, ("a", "b", "c")),
        Column("cost", "count", "tallies", 0, minimum=0.0, maximum=9.0),
        Column("one", "categorical", "codes8", 2, ("only",)),
        Column("two", "real", "reals", 1, minimum=2.0, maximum=2.0),
    ]
    config = load(write(f'{MINIMAL}{REGRESSION}likelihood = "{likelihood}"\n[regression]\n{keys}\n'))
    with pytest.raises(ConfigError) as caught:
        check_columns(config, columns, 100)
    text = str(caught.value)
    assert all(problem in text for problem in problems) and len(caught.value.problems) == len(problems), text


@pytest.mark.parametrize(
    "likelihood, more, words",
    [
        ("logistic", "scale = 1.0", 'regression.scale: given, but model.likelihood = "logistic" has none'),
        ("softmax", "degrees_of_freedom = 3", 'model.likelihood = "softmax" has none; take it out'),
        ("student-t", 'prior = "flat"\nprior_scale = 3', 'regression.prior = "flat" has none; take it out'),
        ("softmax", "intercept = false\nintercept_scale = 3", "regression.intercept = false has none; take it out"),
        ("logistic", 'prior = "flat"\nintercept_scale = 3', 'regression.prior = "flat" has none; take it out'),
        ("logistic", "predictors = []\nprior_scale = 3", "regression.predictors = [] has none; take it out"),
        ("student-t", 'scale = "heldout"', 'regression.scale: "heldout" needs rows to choose by: set data.heldout'),
        ("logistic", 'predictors = ["x", "y"]', 'regression.predictors: "y" is the response itself'),
        ("logistic", 'prior = "flat"\n[firefly]\ninit = "prior"', "firefly.init: got"),
        (
            "logistic",
            "[firefly]\nxi = 2",
            'firefly.xi: given, but firefly.bounds = "tuned" with model.likelihood = "logistic" has no use',
        ),
        (
            "softmax",
            '[firefly]\nbounds = "untuned"\nxi = 2',
            'model.likelihood = "softmax" has no use for it; take it out',
        ),
    ],
)
def test_rules_of_a_regression(write, likelihood, more, words):
    text = f'{REGRESSION}likelihood = "{likelihood}"\n[regression]\nresponse = "y"\n{more}\n'
    said = problems(write(MINIMAL + text))
    assert words in said and "one problem" in said


def test_two_families_differ_in_the_keys_that_both_have(write):
    regression = load(write(MINIMAL + REGRESSION + 'likelihood = "softmax"\n[regression]\nresponse = "y"\n'))
    mixture = load(write(MINIMAL), ["run.burn_in=4000"])
    assert difference(as_dict(mixture), as_dict(regression)) == [
        'model.family: was "auto", is now "regression"',
        'model.likelihood: was true, is now "softmax"',
    ]


@pytest.mark.parametrize(
    "change, model_differs",
    [
        ("run.seed=3", False),
        ("data.unseen=missing", False),
        ("sampler.opening=all", False),
        ("output.thin=2", False),
        ("data.heldout=0.1", True),
        ("model.discount=0.5", True),
        ("columns.a.use=false", True),
        ('blocks.a.columns=["x", "y"]', True),
    ],
)
def test_what_the_model_is(write, change, model_differs):
    """Chains that were started, kept or seeded otherwise are chains of one model."""
    first, other = (as_dict(load(write(MINIMAL), changes)) for changes in ([], [change]))
    assert len(difference(first, other)) == 1
    assert len(difference(first, other, model_alone=True)) == model_differs
