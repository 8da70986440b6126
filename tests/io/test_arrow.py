"""pyarrow in a process of the command does not import pandas."""

import subprocess
import sys

import pytest

pytest.importorskip("pandas")
LOADS = """
import sys
{first}
import pyarrow as pa
assert pa.array([1, None]).to_pylist() == [1, None]
print("pandas" in sys.modules)
import pandas
print(pandas.Series([1]).sum())
"""


@pytest.mark.parametrize(
    ("first", "loaded"),
    [("from mpibayes.io.arrow import keep_pandas_out; keep_pandas_out()", "False"), ("", "True")],
)
def test_pandas_stays_out_but_can_be_imported(first, loaded):
    command = [sys.executable, "-c", LOADS.format(first=first)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.split() == [loaded, "1"]
