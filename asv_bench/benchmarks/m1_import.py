"""M1: what ``import distarray`` costs in a fresh process.

Goals: at most 1.25 x ``import numpy, dask``, both less an empty process, best of 10; and none of the heavy modules
that only some programs need.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .ratios import Goal, Ratio, exactly
from .sizes import SIZE, of_size

ROUNDS = {"XS": 2, "S": 10}
FORBIDDEN = ("dask.array", "distributed", "cupy", "xarray", "opt_einsum", "array_api_compat.numpy")
IMPORTS = {"nothing": "pass", "reference": "import numpy, dask", "distarray": "import distarray"}
CONFIGS = ("no config files", "config files")


def _environment(folder: Path) -> dict[str, str]:
    """The environment of a fresh process that finds the distarray of this one and reads the config in `folder`.

    Byte code is kept in `folder`, for all packages alike: a working copy may have none, which an installed one has.
    """
    spec = importlib.util.find_spec("distarray")
    assert spec is not None
    assert spec.origin is not None
    path = os.pathsep.join(filter(None, (str(Path(spec.origin).parents[1]), os.environ.get("PYTHONPATH"))))
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {
        **inherited,
        "PYTHONPATH": path,
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        "DASK_CONFIG": str(folder),
    }


def _write_config(folder: Path, config: str) -> None:
    if config == "config files":
        (folder / "dask.yaml").write_text("temporary-directory: null\n")
        (folder / "distarray.yaml").write_text("distarray:\n  window: 64\n")


def seconds(config: str = CONFIGS[0], rounds: int = 10) -> dict[str, float]:
    """Best wall seconds of a fresh process for each of `IMPORTS`, less those of the empty one."""
    with tempfile.TemporaryDirectory() as folder:
        _write_config(Path(folder), config)
        environment = _environment(Path(folder))
        best = dict.fromkeys(IMPORTS, float("inf"))
        for counted in range(-1, rounds):  # the first round writes the byte code
            for name, statement in IMPORTS.items():
                start = time.perf_counter()
                subprocess.run([sys.executable, "-c", statement], env=environment, check=True)
                if counted >= 0:
                    best[name] = min(best[name], time.perf_counter() - start)
    return {name: best[name] - best["nothing"] for name in ("reference", "distarray")}


def import_ratio(config: str = CONFIGS[0], rounds: int = 10) -> Ratio:
    """Seconds of ``import distarray`` over those of ``import numpy, dask``; of bests, so without an interval."""
    taken = seconds(config, rounds)
    return exactly(taken["distarray"] / taken["reference"])


def forbidden() -> list[str]:
    """Heavy modules that ``import distarray`` brought in."""
    with tempfile.TemporaryDirectory() as folder:
        statement = f"import distarray, sys; print(*(m for m in {FORBIDDEN!r} if m in sys.modules))"
        done = subprocess.run(
            [sys.executable, "-c", statement],
            env=_environment(Path(folder)),
            check=True,
            capture_output=True,
            text=True,
        )
    return done.stdout.split()


def goals(size: str = SIZE) -> list[Goal]:
    """Where the cost of the import is claimed."""
    rounds = of_size(ROUNDS, size)
    return [
        Goal(f"M1 import, {config} / numpy, dask", lambda c=config: import_ratio(c, rounds), 1.25) for config in CONFIGS
    ]


class Import:
    timeout = 600

    def track_forbidden_modules(self) -> int:
        return len(forbidden())


class ImportRatio:
    params = ([SIZE], list(CONFIGS))
    param_names = ("size", "config")
    timeout = 600

    def track_ratio(self, size: str, config: str) -> float:
        return import_ratio(config, of_size(ROUNDS, size)).median
