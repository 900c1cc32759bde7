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


def wrapped(text: str) -> list[str]:
    """Return a text as indented lines."""
    return wrap(text, 110, initial_indent="    ", subsequent_indent="    ")


def imports(module: str, names: Iterable[str]) -> Iterator[str]:
    """Yield the lines that import names of a module as public ones."""
    pairs = ", ".join([f"{name}@as@{name}" for name in sorted(names)])
    yield from [f"from {module} import (", *[row.replace("@", " ") for row in wrapped(pairs)], ")"]


def stub() -> str:
    """Return the stub as it should be."""
    lines = ["# Written by docs/stub.py from the tables in __init__.py.", "# ruff: noqa", "# fmt: off"]
    lines += imports("numpy", distarray._NUMPY.split())
    lines += imports("distarray", ("config", *distarray._MODULES))
    lines += imports("distarray.array.array", ["DistArray"])
    lines += imports("distarray.array.conversion", ["array"])
    for module, names in distarray._HOMES.items():
        lines += imports(module, names.split())
    lines += ["from distarray.version import __version__ as __version__", ""]
    lines += [
        "bool = bool_",
        "ndarray = DistArray",
        "__array_api_version__: str",
        "",
        "def __array_namespace_info__() -> ArrayNamespaceInfo: ...",
    ]
    quoted = ", ".join([f'"{name}"' for name in distarray.__all__])
    lines += ["__all__ = [", *wrapped(quoted), "]"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    STUB.write_text(stub())
