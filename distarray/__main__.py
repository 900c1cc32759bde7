"""The command line: ``python -m distarray info`` says what there is to compute with.

Each subcommand is a function that gets the parsed arguments and returns the exit status: 0, or 2 for input that cannot
be, with one line on stderr.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence
from importlib import metadata

from distarray.diagnostics.table import format_nbytes, format_table

__all__ = ["main"]

#: Distributions whose versions matter when something goes wrong: what computes, what schedules, what is optional.
PACKAGES = (
    *("numpy", "scipy", "dask", "distributed", "array-api-compat", "opt_einsum"),
    *("array-api-strict", "cupy", "cupy-cuda12x", "cupy-cuda13x", "zarr", "xarray", "onnx"),
)

Rows = list[tuple[str, str]]


def versions() -> Rows:
    """Name and version of the interpreter, of this package and of those that it may use; missing ones are left out."""
    from distarray.version import __version__

    rows = [("distarray", __version__), ("python", f"{platform.python_version()} on {platform.platform()}")]
    for name in PACKAGES:
        try:
            rows.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return rows


def devices() -> Rows:
    """Device strings that can be used in this process, and why others cannot."""
    from distarray.execution.memory import memory_limit, n_threads
    from distarray.expr.expr import Environment

    n = n_threads()
    limit = format_nbytes(memory_limit(Environment(None)))
    rows = [("cpu", f"{n} thread{'s' * (n != 1)}, up to {limit} of arrays in one process")]
    try:
        from distarray.execution.cupy_backend import gpu_count

        count = gpu_count()
    except (ImportError, RuntimeError) as error:
        rows.append(("cuda", f"none: {error}"))
    else:
        rows += [(f"cuda:{i}", "found by CuPy") for i in range(count)]
    return rows


def team() -> Rows:
    """The team and the device that new arrays get."""
    from distarray.array.environment import current_device, current_team

    current = current_team()
    if current is None:
        return [("team", "None: arrays are not distributed"), ("device", current_device())]
    where = "threads of this process" if current.client is None else "workers of the active Dask client"
    return [("team", f"{current!r}, {current.size} {where}"), ("device", current_device())]


def changed_options() -> Rows:
    """Options whose values differ from those that distarray ships with; of values that are not allowed, the error."""
    from distarray import config

    rows = []
    for name in config.names():
        default = config.parse_option(name, config._DEFAULTS[name])
        try:
            value = config.get(name)
        except ValueError as error:
            rows.append((name, f"not valid: {error}"))
            continue
        if value != default:
            rows.append((name, f"{value!r} (default {default!r})"))
    return rows


def info(args: argparse.Namespace) -> int:
    """Print versions, devices, the current team and the options that were changed."""
    sections = {"versions": versions, "devices": devices, "new arrays": team, "options changed": changed_options}
    texts = []
    for title, rows_of in sections.items():
        try:
            rows = rows_of()
        except Exception as error:  # what is wrong with one section is what the others help to find out
            rows = [("error", f"{type(error).__name__}: {error}")]
        lines = [(f"  {name}", text) for name, text in rows] or [("  none", "")]
        texts.append(f"{title}\n{format_table(['', ''], lines)}")
    print("\n\n".join(texts))
    return 0


def parser() -> argparse.ArgumentParser:
    """What the command line accepts."""
    top = argparse.ArgumentParser("python -m distarray", description="Distributed arrays on Dask.", allow_abbrev=False)
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    command = commands.add_parser("info", help="versions, devices, the current team, options that were changed")
    command.set_defaults(run=info)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; the exit status. argparse itself exits with 2 where the arguments cannot be."""
    args = parser().parse_args(argv)
    status: int = args.run(args)
    return status


if __name__ == "__main__":
    sys.exit(main())
