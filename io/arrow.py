"""pyarrow without pandas, in a process of the command.

For every list and array that it converts, pyarrow checks whether it is an object of pandas, and imports pandas to do so
if that is installed. On a small table this takes longer than everything else before the first cycle. No verb of the
command has objects of pandas. A user's process may have them, and is left alone.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


class WithoutPandas:
    """Import finder that makes pyarrow look for pandas once, right after its own import, and find none."""

    looking = False

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == "pandas" and self.looking:
            raise ModuleNotFoundError("pyarrow does without it here", name=name)
        if name != "pyarrow" or self.looking:
            return None
        self.looking = True
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            self.looking = False
            return spec
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            try:
                load(module)
                module.array([])  # looks for it
            finally:
                sys.meta_path.remove(self)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def keep_pandas_out() -> None:
    """Let this process use pyarrow without pandas. Call it before either is imported."""
    sys.meta_path.insert(0, WithoutPandas())
