"""Configurations that are written, and what is wrong with them."""

import pytest

from mpibayes.errors import ConfigError
from mpibayes.hpc.config.load import load


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
