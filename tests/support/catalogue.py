"""All operations on nodes under one roof, by name: the public functions of the modules of ``distarray.ops``."""

from importlib import import_module

from distarray.ops import linalg, special

HOMES = (
    "contractions", "creation", "differences", "einsums", "elementwise", "indexing", "joining", "manipulation",
    "padding", "quantiles", "reductions", "repetition", "searching", "segments", "sorting",
)  # fmt: skip

__all__ = ["linalg", "special"]
for home in HOMES:
    module = import_module(f"distarray.ops.{home}")
    for name in module.__all__:
        vars()[name] = getattr(module, name)
        __all__.append(name)
