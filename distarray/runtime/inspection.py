"""What there is to compute with, gathered as plain data: this process, the scheduler and workers of a client, options.

Everything here is JSON: `diagnostics.doctor` says what it means. What cannot be found out is its error.
"""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np

from distarray import config
from distarray.expr.expr import Environment
from distarray.kernels.compiler import COMPILER
from distarray.runtime.clients import n_threads, team_for_client
from distarray.runtime.known_rates import rates_for
from distarray.runtime.memory import available_nbytes
from distarray.runtime.wire import PLUGIN, TOPIC
from distarray.version import __version__

#: Distributions whose versions matter where processes work together.
REQUIRED = (
    "numpy",
    "scipy",
    "dask",
    "distributed",
    "array-api-compat",
    "opt_einsum",
    "cloudpickle",
    "msgpack",
    "tornado",
)
#: Those that add something, with the extra that brings them.
OPTIONAL = {
    "distributed": "distributed",
    "cupy-cuda12x": "cuda12",
    "cupy-cuda13x": "cuda13",
    "numba": "compiled",
    "zarr": "zarr",
    "xarray": "xarray",
    "onnx": "onnx",
    "graphviz": "viz",
    "matplotlib": "viz",
    "bokeh": "viz",
    "array-api-strict": "strict",
}

Facts = dict[str, Any]


def packages(names: Any) -> dict[str, str]:
    """Return the versions of distributions that are installed here."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def changed_options() -> list[tuple[str, str]]:
    """Return options whose values differ from those that distarray ships with; of values that are not allowed, the
    error.
    """
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


def _blas() -> list[Facts]:
    """Return the libraries of linear algebra that are loaded, and their threads as far as that can be known."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        built: Any = np.show_config(mode="dicts")
        blas = built.get("Build Dependencies", {}).get("blas", {})
        return [{"name": blas.get("name", "unknown"), "version": blas.get("version"), "threads": None}]
    return [
        {"name": pool["internal_api"], "version": pool.get("version"), "threads": pool["num_threads"]}
        for pool in threadpool_info()
        if pool.get("user_api") == "blas"
    ]


def _gpus() -> Facts:
    """Return how many GPUs CuPy finds here, with the versions of driver and runtime; or why it finds none."""
    try:
        from distarray.kernels.cupy_backend import cuda_versions, gpu_count

        return {"count": gpu_count(), **cuda_versions()}
    except (ImportError, RuntimeError) as error:
        return {"count": 0, "error": str(error)}


def _here() -> Facts:
    """Return what is known of the process that calls it."""
    return {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": {"distarray": __version__, **packages(REQUIRED)},
        "namesake": packages(("distarray",)).get("distarray"),
        "cores": n_threads(),
        "memory": available_nbytes(),
        "blas": _blas(),
        "gpus": _gpus(),
        "compiled": {"count": COMPILER.n_compiled, "failures": list(COMPILER.failures)},
    }


def _of_worker(dask_worker: Any) -> Facts:
    memory_limit = dask_worker.memory_manager.memory_limit
    return {
        **_here(),
        "process": os.getpid(),
        "threads": dask_worker.state.nthreads,
        "memory_limit": memory_limit or None,
        "has_plugin": PLUGIN in dask_worker.plugins,
    }


def _of_scheduler(dask_scheduler: Any) -> Facts:
    return {**_here(), "address": dask_scheduler.address, "has_plugin": TOPIC in dask_scheduler.plugins}


def _attempted(gather: Callable[[], Any]) -> Any:
    """Return what a function gathers; its error as data: one part that fails is what the others help to find out."""
    try:
        return gather()
    except Exception as error:  # of whatever class
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}


def gathered(client: Any = None, *, is_measured: bool = True) -> Facts:
    """Return all that is known of this process and of the cluster of a client.

    Parameters
    ----------
    client
        A ``distributed.Client``, or None.
    is_measured
        Whether to measure what a message between workers costs: a second or two. Otherwise it is what the planner takes
        it to be.
    """
    record: Facts = {
        "client": _here(),
        "extras": packages(OPTIONAL),
        "options": changed_options(),
        "scheduler": None,
        "workers": {},
        "rates": None,
    }
    if client is None:
        return record
    record["scheduler"] = _attempted(lambda: client.run_on_scheduler(_of_scheduler))
    found = _attempted(lambda: client.run(_of_worker, on_error="return"))
    if "error" in found and not isinstance(found["error"], dict):
        found = {"all": found}
    record["workers"] = {
        address: {"error": f"{type(facts).__name__}: {facts}"} if isinstance(facts, BaseException) else facts
        for address, facts in found.items()
    }
    if len(record["workers"]) > 1 and not any("error" in facts for facts in record["workers"].values()):
        record["rates"] = _attempted(lambda: _rates(client, is_measured))
    return record


def gathered_at(address: str, seconds: float) -> Facts:
    """Return what `gathered` does of the cluster of a scheduler, which has some seconds to answer.

    Raises
    ------
    OSError
        If it does not.
    ImportError
        If distributed is not installed here.
    """
    try:
        from distributed import Client
    except ImportError:
        said = 'a cluster needs distributed; install it with: python -m pip install "dask-distarray[distributed]"'
        raise ImportError(said) from None

    with Client(address, timeout=seconds, set_as_default=False) as client:
        return gathered(client)


def _rates(client: Any, is_measured: bool) -> Facts:
    from distarray.runtime.calibrate import measured_links

    env = Environment(team_for_client(client))
    if is_measured:
        return {"origin": "measured now", **measured_links(env)}
    known = rates_for(env)
    return {"origin": "what the planner assumes", "latency": known.latency, "bandwidth": known.bandwidth}
