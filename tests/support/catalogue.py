"""All operations on nodes under one roof, by name: the public functions of the modules of ``distarray.ops``."""

from importlib import import_module

from distarray.ops import linalg, special

HOMES = (
    "bits", "contractions", "creation", "differences", "einsums", "elementwise", "indexing", "joining",
    "manipulation", "padding", "quantiles", "reductions", "repetition", "searching", "segments", "sorting",
)  # fmt: skip

__all__ = ["linalg", "special"]
for home in HOMES:
    public = {name: f for name, f in vars(import_module(f"distarray.ops.{home}")).items() if not name.startswith("_")}
    vars().update({name: f for name, f in public.items() if getattr(f, "__module__", "").startswith("distarray.ops")})
