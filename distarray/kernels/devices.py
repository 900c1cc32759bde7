"""Device strings, and the backend that each means on a member. CuPy is imported when a GPU is first asked for."""

from __future__ import annotations

import os
import re
import socket
import weakref
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from distarray.lazy import loaded

if TYPE_CHECKING:
    from distarray.kernels.backends import Backend


#: Of the workers in this process.
_ranks: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

_DEVICE = re.compile(r"(cpu)|(cuda)(?::(\d+))?|(strict)(?::([12]))?")


@dataclass(frozen=True, slots=True)
class Device:
    """A Device is what a device string says when it is parsed.

    Attributes
    ----------
    kind
        ``"cpu"``, ``"cuda"`` or ``"strict"``.
    index
        The number after the colon, or None: then each member has its own.
    """

    kind: str
    index: int | None


@lru_cache(maxsize=64)
def parse_device(text: str) -> Device:
    """Read a device string: ``cpu``, ``cuda``, ``cuda:<j>``, ``strict``, ``strict:1`` or ``strict:2``.

    Raises
    ------
    ValueError
        If it is none of these.

    Examples
    --------
    >>> parse_device("cuda:3")
    Device(kind='cuda', index=3)
    """
    match = _DEVICE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"device={text!r} is no device; use cpu, cuda, cuda:<j>, strict, strict:1 or strict:2")
    index = match[3] or match[5]
    return Device(match[1] or match[2] or match[4], None if index is None else int(index))


def backend_for(device: str, member: int = 0) -> Backend:
    """Return the backend of one member.

    Parameters
    ----------
    device
        Device string.
    member
        Rank in the team. ``"strict"`` has even members on the first fake device and odd ones on the second. ``"cuda"``
        gives the members in this process GPUs in turn; a worker of a cluster has its own (`worker_rank`).

    Raises
    ------
    ValueError
        If `device` is no device string, or names a GPU that is not there.
    ImportError
        If the library of the blocks is missing.
    RuntimeError
        If CuPy finds no GPU.
    """
    from distarray.kernels.backends import NUMPY  # late: who imports the package has no block yet

    if device == "cpu":
        return NUMPY
    parsed = parse_device(device)
    index = parsed.index
    if parsed.kind == "strict":
        return _strict(member % 2 + 1 if index is None else index)
    if index is not None:
        return _cupy(index, False)
    rank = worker_rank()
    return _cupy(member if rank is None else rank, True)


def worker_rank() -> int | None:
    """Return the rank of the worker whose task this thread runs, among those that see its GPUs; None where it runs
    none.

    A worker asks the scheduler when a task of its own first needs a GPU (`runtime.device_ranks`), and keeps the answer.
    """
    if loaded("distributed.worker") is None:
        return None
    from distributed.utils import sync, thread_state
    from distributed.worker import get_worker

    if getattr(thread_state, "key", None) is None:
        return None
    worker = get_worker()
    rank = _ranks.get(worker)
    if rank is None:
        group = [socket.gethostname(), os.environ.get("CUDA_VISIBLE_DEVICES", "")]
        ask = worker.scheduler.distarray_device_rank
        rank = _ranks[worker] = sync(worker.loop, ask, address=worker.address, group=group)
    return rank


def n_devices(device: str) -> int | None:
    """Return the GPUs of this process that a device string means; None where members need none of their own.

    Raises
    ------
    ImportError, RuntimeError
        If CuPy or a GPU is missing.
    """
    parsed = parse_device(device)
    if parsed.kind != "cuda":
        return None
    from distarray.kernels.cupy_backend import gpu_count

    return gpu_count() if parsed.index is None else 1


@lru_cache(maxsize=64)
def device_nbytes(device: str) -> int:
    """Return the bytes of memory of a GPU of this process."""
    backend: Any = backend_for(device)
    return int(backend.device.mem_info[1])


def hold_pools(device: str, n_members: int, limit: int | None) -> None:
    """Bound what the GPUs of this process give its members: `limit` bytes for each; None takes our bound away."""
    if not device.startswith("cuda"):
        return
    served = Counter(backend_for(device, member) for member in range(n_members))
    for backend, n in served.items():
        backend.hold(None if limit is None else n * limit)  # type: ignore[attr-defined]  # CuPy's alone has a pool


def check_here(device: str) -> None:
    """Check that blocks on a device can be made in this process. Raises as `backend_for` does; starts nothing."""
    parsed = parse_device(device)
    if parsed.kind == "cuda":
        _cupy(parsed.index or 0, parsed.index is None)
    else:
        backend_for(device)


@lru_cache(maxsize=8)
def _strict(index: int) -> Backend:
    from distarray.kernels.backends import StrictBackend

    return StrictBackend(index)


@lru_cache(maxsize=64)
def _cupy(index: int, wraps: bool) -> Backend:
    from distarray.kernels.cupy_backend import CupyBackend, gpu_count

    count = gpu_count()
    if not wraps and index >= count:
        raise ValueError(f"device='cuda:{index}' names GPU {index}, but CuPy finds {count} here")
    return CupyBackend(index % count)
