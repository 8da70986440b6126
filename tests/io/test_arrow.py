"""pyarrow in a process of the command does not import pandas, and makes its functions as they are asked for."""

import subprocess
import sys

import pytest

from mpibayes.io.formats.apart import PROGRAM

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
    [(PROGRAM.replace("answer(sys.argv[1])", ""), "False"), ("", "True")],
    ids=["in the reader of other formats", "elsewhere"],
)
def test_pandas_stays_out_but_can_be_imported(first, loaded):
    pytest.importorskip("pandas")
    command = [sys.executable, "-c", LOADS.format(first=first)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.split() == [loaded, "1"]


ASKS = """
import sys
from mpibayes.io.arrow import keep_pandas_out
keep_pandas_out()
import pyarrow as pa
import pyarrow.compute as pc
before = len(vars(pc))
from pyarrow.compute import and_, utf8_trim
assert pc.utf8_zfill is pc.utf8_zero_fill
texts = utf8_trim(pa.array(["a ", "bc"]), " ")
print(pc.utf8_length(texts).to_pylist(), and_(pa.array([True]), pa.scalar(False)).to_pylist(), len(vars(pc)) - before)
print(pc.fill_null(pa.array([1, None]), 2).to_pylist(), hasattr(pc, "no_function"))
import pyarrow._compute as inner
print({name for name in ("add", "is_in", "or_", "cast") if not callable(getattr(pc, name))})
print(len(inner.function_registry().list_functions()) > 100)
"""


def test_functions_are_made_as_they_are_asked_for():
    done = subprocess.run([sys.executable, "-c", ASKS], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.splitlines() == ["[1, 2] [False] 3", "[1, 2] False", "set()", "True"]
