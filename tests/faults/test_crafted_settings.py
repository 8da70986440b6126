"""A config.resolved.toml whose checksum is right and whose content is not: one message, whoever reads it."""

import re
import shutil

import pytest

from mpibayes.hpc.run.identity import RESOLVED, write_resolved
from tests.faults.cases import mpibayes
from tests.faults.small import half_way

COMMANDS = (
    "report run -o OUT --burn-in 2",
    "export run --to csv -o OUT",
    "export run --to clusters -o OUT --burn-in 0",
    "query run similarity --row 1 --burn-in 0",
    "submit run.toml -o run --dry-run",
    "predict run table.csv -o OUT --burn-in 0",
)
VALUES = {
    "family": ("5", '"nope"', '["mixture"]', "{a = 1}"),
    "seed": ("1" + "0" * 290, "-1", "2020-01-01", "[1]"),
    "cycles": ('"a"', "1" + "0" * 200),
    "burn_in": ("[1]", "1" + "0" * 100),
    "shards": ("[3]", "1000000000000"),
    "concentration": ("inf", "[[1]]", '"nope"'),
    "table": ("5", '"\\u0000"', '"/tmp"'),
    "heldout": ("nan", "1e300", '"no.csv"'),
}
ABOVE = (
    "columns = 5",
    "columns.colour = 5",
    "columns.colour.prior = [[1]]",
    "blocks.b.columns = [1, 2]",
    "model = [1]",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = half_way(tmp_path_factory.mktemp("crafted") / "place")
    text = (place / "run" / RESOLVED).read_text()
    (place / "settings").write_text(text[: text.index("# run ")])
    return place


def crafted(text):
    for key, values in VALUES.items():
        for value in values:
            yield f"{key} = {value}", re.sub(rf"(?m)^{key} = .*$", lambda _, k=key, v=value: f"{k} = {v}", text)
    yield from ((line, f"{line}\n{text}") for line in ABOVE)
    yield "deep", f"{text}[columns.colour]\nprior = {'[' * 30}{']' * 30}\n"
    yield "empty", ""


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.thorough
def test_settings_that_cannot_be(place, monkeypatch, command):
    monkeypatch.chdir(place)
    for name, text in crafted((place / "settings").read_text()):
        write_resolved(place / "run", text)
        code, words = mpibayes(*command.split())
        assert code in (0, 2, 3, 4) and "Traceback" not in words, (name, code, words)
        assert words.count("mpibayes: error") == (code != 0), (name, words)
        if (place / "OUT").is_dir():
            shutil.rmtree(place / "OUT")
        (place / "OUT").unlink(missing_ok=True)
