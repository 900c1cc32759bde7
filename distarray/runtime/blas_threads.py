"""BLAS has one thread in the process of a worker, so that the threads of workers and those of BLAS do not take each
other's cores: a worker computes products of large tiles by all of its threads itself (`lower.block_kernels`).

Dask's nannies start workers with the variables that say so. A worker that no nanny started is told here.
"""

from __future__ import annotations

import os
from typing import Any

from distributed.client import Client
from distributed.scheduler import Scheduler

#: Variables that BLAS reads when it is loaded, which Dask's nannies set.
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

#: What gives the libraries of this process their threads back, and the variables that were set here.
_limited: list[Any] = []


def limit(worker: Any) -> None:
    """Let BLAS have one thread in the process of a worker, if it is the worker's own and nobody said otherwise.

    Nothing is done where a nanny started it, where the process has a client or a scheduler too, where one of the
    variables is set, and where ``threadpoolctl`` is not installed.
    """
    is_shared = any(Scheduler._instances) or any(Client._instances) or any(o is not worker for o in worker._instances)
    if _limited or worker.nanny is not None or is_shared or any(name in os.environ for name in VARIABLES):
        return
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:  # a worker with Dask alone: `dx.doctor` shows the threads of all workers
        return
    _limited.append(threadpool_limits(1, user_api="blas"))
    os.environ.update(dict.fromkeys(VARIABLES, "1"))  # for a library that is loaded later


def unlimit() -> None:
    """Undo what `limit` did in this process, if it did anything."""
    while _limited:
        _limited.pop().restore_original_limits()
        for name in VARIABLES:
            os.environ.pop(name, None)
