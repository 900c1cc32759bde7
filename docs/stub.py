"""The stub that tells type checkers and editors which names ``distarray`` has.

``python docs/stub.py`` writes ``distarray/__init__.pyi`` from the tables in ``distarray/__init__.py``, the one place
where public names are listed; a test asks whether it is up to date.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import wrap

import distarray

STUB = Path(distarray.__file__).parent / "__init__.pyi"


def wrapped(items: Iterable[str]) -> list[str]:
    """Return items of a list as indented lines."""
    return wrap(", ".join(items), 110, initial_indent="    ", subsequent_indent="    ")


def imports(module: str, names: Iterable[str]) -> Iterator[str]:
    """Yield the lines that import names of a module."""
    yield from [f"from {module} import (", *wrapped(sorted(names)), ")"]


def stub() -> str:
    """Return the stub as it should be."""
    lines = ["# Written by docs/stub.py from the tables in __init__.py.", "# ruff: noqa", "# fmt: off"]
    lines += imports("numpy", distarray._NUMPY.split())
    lines += imports("distarray", ("config", *distarray._MODULES))
    lines += imports("distarray.array.array", ["DistArray"])
    lines += imports("distarray.composed.conversion", ["array"])
    for module, names in distarray._HOMES.items():
        lines += imports(module, names.split())
    lines += ["from distarray.version import __version__", ""]
    lines += [
        "bool = bool_",
        "ndarray = DistArray",
        "__array_api_version__: str",
        "",
        "def __array_namespace_info__() -> ArrayNamespaceInfo: ...",
    ]
    lines += ["__all__ = [", *wrapped([f'"{name}"' for name in distarray.__all__]), "]"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    STUB.write_text(stub())
