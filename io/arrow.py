"""pyarrow without what takes long to load and no verb of the command needs, in a process of the command.

For every list and array that it converts, pyarrow checks whether it is an object of pandas, and imports pandas to do so
if that is installed. On a small table this takes longer than everything else before the first cycle. No verb of the
command has objects of pandas. And its module of functions writes the documentation of 280 of them, of which a run calls
thirty: here each is made when it is first called. A user's process may have pandas, and is left alone.
"""

from __future__ import annotations

import sys
from importlib import import_module
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


class FunctionsAsAsked:
    """A finder of `pyarrow.compute` that makes its functions when they are asked for."""

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "pyarrow.compute":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            inner = import_module("pyarrow._compute")
            if not hasattr(inner, "function_registry"):  # another version of pyarrow
                load(module)
                return
            given, known = inner.function_registry, inner.function_registry()
            names = {{"and": "and_", "or": "or_"}.get(of, of): of for of in known.list_functions()}
            inner.function_registry = lambda: Few(known)
            try:
                load(module)
            finally:
                inner.function_registry = given

            def made(name: str):
                if name not in names:
                    raise AttributeError(f"module 'pyarrow.compute' has no attribute {name!r}")
                setattr(module, name, module._wrap_function(names[name], known.get_function(names[name])))
                return getattr(module, name)

            if hasattr(module, "_wrap_function"):
                module.__getattr__ = made  # type: ignore[method-assign]
            else:  # another version of pyarrow
                load(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class Few:
    """A registry of functions that lists those that the module itself names at its import."""

    def __init__(self, known):
        self.known, self.get_function = known, known.get_function

    def list_functions(self) -> list[str]:
        return [name for name in ("utf8_zero_fill",) if name in self.known.list_functions()]


def keep_pandas_out() -> None:
    """Let this process use pyarrow without pandas, and its functions as they are asked for. Call it before either is
    imported."""
    sys.meta_path[:0] = [WithoutPandas(), FunctionsAsAsked()]
