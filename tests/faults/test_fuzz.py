"""Random and mutated input to the readers of configurations, of tables and of CSV text.

Whatever they are given, they return, or raise an MpibayesError whose message is not empty. 1,600 examples by default,
the same ones in every run, and 19,200 with `--long`.
"""

import faulthandler
import tomllib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mpibayes.errors import MpibayesError
from mpibayes.hpc import registry
from mpibayes.hpc.config.load import load
from mpibayes.hpc.config.resolved import as_dict, difference, resolved_toml
from mpibayes.io.ingest import import_table
from mpibayes.io.table import Table, table_from_arrays, write_table
from mpibayes.text import toml_string

VALID = """[data]
table = "table.h5"
heldout = 0.1
[model]
concentration = {gamma = [1.0, 2.0]}
[columns.height]
prior = {mean = 40, kappa = 0.1, nu = 3, variance = 200}
[sampler]
strategy = "anneal"
[anneal]
schedule = [[2, 0.1], [10, 1.0]]
[run]
cycles = 50
max_time = "3h50m"
[output]
thin = 2
"""
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")

SECTIONS = [item for family in registry.FAMILIES for item in registry.keys_of(family).SECTIONS.items()]
KEYS = [f"{section}.{key}" for section, model in SECTIONS for key in model.model_fields]
KEYS += ["columns.x.prior", "columns.x.use", "columns.'a b'.prior.dirichlet", "columns.x.prior.mean", "model.x.y.z"]
WORDS = ["auto", "learn", "none", "one", "all", "anneal", "linear", "seconds", "labels", "3h50m", "02:00:00", "", "\0"]
SCALARS = st.one_of(
    st.integers(),
    st.integers(-3, 10),
    st.floats(),
    st.booleans(),
    st.sampled_from(WORDS),
    st.text(max_size=8),
    st.dates(),
    st.times(),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["gamma", "dirichlet", "mean", "kappa", "nu", "variance", "x"]), inner)
    ),
    max_leaves=6,
)


def toml(value) -> str:
    """A value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return toml_string(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + "}"
    return value.isoformat() if hasattr(value, "isoformat") else repr(value)


@st.composite
def mutations(draw, data: bytes):
    """The same bytes with some of them changed, cut out, doubled or put in."""
    result = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(result) - 1)))
        stop = at + draw(st.sampled_from([1, 1, 2, 8, 40, 1000]))
        new = draw(st.binary(max_size=8) | st.just(bytes(result[at:stop]) * 2) | st.just(b""))
        result[at : draw(st.sampled_from([at, at + len(new), stop]))] = new
    return bytes(result)


@pytest.fixture
def examples(request):
    """Decorator for a number of examples to try: `examples(300)`."""
    factor = 12 if request.config.getoption("--long") else 1
    if factor > 1:  # the limit of pytest's settings is for hangs of short tests
        faulthandler.cancel_dump_traceback_later()
    return lambda n: settings(
        max_examples=n * factor, suppress_health_check=list(HealthCheck), deadline=None, derandomize=True
    )


def survives(step, *args, **options):
    """Result of the step, or None after an MpibayesError, which must have a message; any other error is a failure."""
    try:
        return step(*args, **options)
    except MpibayesError as error:
        assert str(error).strip() and error.exit_code in (2, 3, 4, 5)
        return None


def read(path, overrides=()):
    config = survives(load, path, overrides)
    if config is not None:
        text = resolved_toml(config)
        tomllib.loads(text)
        path.with_name("again.toml").write_text(text)
        again = load(path.with_name("again.toml"))  # what was understood is understood again, alike
        lines = difference(as_dict(config), as_dict(again))
        assert [line for line in lines if not line.startswith('run.burn_in: was "auto"')] == []


@pytest.mark.thorough
def test_documents_of_known_keys_and_any_values(tmp_path, examples):
    @examples(200)
    @given(st.lists(st.tuples(st.sampled_from(KEYS), VALUES), max_size=6, unique_by=lambda pair: pair[0]))
    def check(pairs):
        lines = [f"{key} = {toml(value)}" for key, value in pairs]
        if not any(key == "data.table" for key, _ in pairs):
            lines.insert(0, 'data.table = "table.h5"')
        (tmp_path / "run.toml").write_text("\n".join(lines) + "\n", encoding="utf-8", errors="replace")
        read(tmp_path / "run.toml")

    check()


def test_any_bytes_and_mutated_files(tmp_path, examples):
    @examples(200)
    @given(mutations(VALID.encode()) | st.binary(max_size=60))
    def check(data):
        (tmp_path / "run.toml").write_bytes(data)
        read(tmp_path / "run.toml")

    check()


@pytest.mark.thorough
def test_any_overrides(tmp_path, examples):
    (tmp_path / "run.toml").write_text(VALID)
    item = st.one_of(
        st.text(max_size=20),
        st.builds("{}={}".format, st.sampled_from(KEYS), st.text(max_size=12)),
        st.builds(lambda key, value: f"{key}={toml(value)}", st.sampled_from(KEYS), VALUES),
    )

    @examples(150)
    @given(st.lists(item, min_size=1, max_size=3))
    def check(overrides):
        read(tmp_path / "run.toml", overrides)

    check()


def test_mutated_tables(tmp_path, examples):
    path = tmp_path / "table.h5"
    columns = [
        ("colour", "categorical", [0, 1, 2, -1] * 20, ["red", "green", "blue"]),
        ("height", "real", [1.5, 2.0, float("nan"), 3.0] * 20, None),
        ("visits", "count", [0.0, 4.0, 2.0, 1.0] * 20, None),
    ]
    right = write_table(path, *table_from_arrays(columns))
    rows, whole = right.read(), path.read_bytes()

    @examples(150)
    @given(mutations(whole))
    def check(data):
        path.unlink()  # a new file: what a process knows of the old one does not count
        path.write_bytes(data)
        table = survives(Table.open, path)
        result = table and survives(table.read)
        if result:
            assert table.fingerprint == right.fingerprint and table.columns == right.columns
            assert all((getattr(result, b).tobytes() == getattr(rows, b).tobytes()) for b in vars(rows))

    check()


@pytest.mark.thorough
def test_any_csv(tmp_path, examples):
    source, table = tmp_path / "any.csv", tmp_path / "any.h5"
    cells = st.one_of(
        st.sampled_from(["", "NA", "?", "1", "0", "-1", "1e308", "1e999", "0x10", '"', '""', "a b", "é", "\0", "'"]),
        st.integers().map(str),
        st.floats().map(str),
        st.text(max_size=6),
    )
    lines = st.integers(1, 4).flatmap(
        lambda n: st.lists(st.lists(cells, min_size=n, max_size=n + (n == 3)), max_size=12)
    )
    texts = st.builds(
        lambda rows, mark, end: end.join(mark.join(row) for row in rows).encode("utf-8", "replace"),
        lines,
        st.sampled_from([",", ";", "\t", "|", " "]),
        st.sampled_from(["\n", "\r\n", "\r"]),
    )
    good = b"name,height,visits\nann,1.5,3\nbob,2.25,4\ncid,,7\n" * 3

    @examples(200)
    @given(texts | mutations(good) | st.binary(max_size=80), st.sampled_from([None, True, False]))
    def check(data, header):
        source.write_bytes(data)
        done = survives(import_table, source, table, header=header, overwrite=True)
        if done is not None:
            assert len(Table.open(table).read()) == done.rows > 0

    check()
    assert not list(tmp_path.glob(".*tmp*")), "left-overs of imports that failed"
