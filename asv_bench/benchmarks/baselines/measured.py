"""What XLA and Shardy themselves emit, where jax is installed: for the strategies here are descriptions of theirs.

``DISTARRAY_BENCH_JAX`` names the interpreter that has jax; this one if unset.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distarray.sharding.sharding import Sharding
from distarray.testing.redistributions import Case

__all__ = ["interpreter", "measured"]

WORKER = Path(__file__).with_name("jax_worker.py")


def interpreter() -> str | None:
    """The Python that has jax; None if none is known."""
    named = os.environ.get("DISTARRAY_BENCH_JAX")
    if named:
        return named
    return sys.executable if importlib.util.find_spec("jax") else None


def measured(system: str, cases: Sequence[Case], python: str) -> list[dict[str, Any] | None]:
    """Cost, peak and collectives of every problem; None where the compiler aborted.

    Parameters
    ----------
    system
        ``xla`` or ``shardy``.
    python
        An interpreter that has jax.
    """
    found: list[dict[str, Any] | None] = []
    while len(found) < len(cases):
        problems = [_problem(case) for case in cases[len(found) :]]
        done = subprocess.run(
            [python, str(WORKER), system],
            input=json.dumps(problems),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
        )
        found += map(json.loads, done.stdout.splitlines())
        if len(found) < len(cases):
            found.append(None)  # the one that was being compiled
    return found


def _problem(case: Case) -> dict[str, Any]:
    def major_first(sharding: Sharding) -> list[list[str]]:
        return [list(reversed(axes)) for axes in sharding.axes]

    mesh = [[name, size] for name, size in zip(case.src.mesh.names, case.src.mesh.sizes)]
    return {"mesh": mesh, "shape": case.shape, "src": major_first(case.src), "dst": major_first(case.dst)}
