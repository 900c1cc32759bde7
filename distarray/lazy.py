"""Public names are loaded at their first use, so that importing the package stays cheap (Scientific Python, SPEC 1).

A package says once where its names live; type checkers see plain imports under ``if TYPE_CHECKING``. With the
environment variable ``EAGER_IMPORT`` set, everything is loaded at once, so that a broken import shows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any


def loaded(name: str) -> ModuleType | None:
    """Return a module that somebody has imported; None if nobody has, or another thread is still at it.

    It is for those who ask whether a value is of a library that who has the value must have imported.

    Examples
    --------
    >>> loaded("sys").__name__, loaded("nobody.imports.this")
    ('sys', None)
    """
    module = sys.modules.get(name)
    if module is None:
        return None
    # importlib's own mark
    is_begun = getattr(getattr(module, "__spec__", None), "_initializing", False)
    return None if is_begun else module


@cache
def options() -> Any:
    """Return the module `config`, for those that are imported without it: options are dask's, and to plan and to lower
    needs no dask.
    """
    return import_module("distarray.config")


def import_extra(name: str, what: str, extra: str | None = None) -> ModuleType:
    """Return a library that the package does without, but not `what`; by default its extra has its name.

    Raises
    ------
    ModuleNotFoundError
        If it is not installed: says how to.
    """
    library = name.partition(".")[0]
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        text = f"{what} needs {library}, which is not installed: pip install 'dask-distarray[{extra or library}]'"
        raise ModuleNotFoundError(text, name=library) from None


def attach(
    package: str,
    homes: Mapping[str, str],
    modules: Collection[str] = (),
    finish: Callable[[str, Any], Any] = lambda _name, value: value,
) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package whose names live elsewhere.

    Parameters
    ----------
    package
        Its ``__name__``.
    homes
        Names, separated by spaces, by the module that they come from.
    modules
        Modules of the package that are names of it.
    finish
        Makes of a name and what it stands for what the package has under it.

    Examples
    --------
    >>> __getattr__ = attach("example", {"math": "floor ceil"})
    >>> __getattr__("floor")(1.5)
    1
    """
    home = {name: module for module, names in homes.items() for name in names.split()}

    def __getattr__(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        module = home.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = finish(name, getattr(import_module(module), name))
        if package in sys.modules:  # from now on it is found without coming here
            vars(sys.modules[package])[name] = value
        return value

    if os.environ.get("EAGER_IMPORT"):
        for name in (*modules, *home):
            __getattr__(name)
    return __getattr__
