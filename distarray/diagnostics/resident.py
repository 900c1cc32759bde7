"""The most memory that processes used for a while: their resident set, watched by a thread of their own.

The memory of blocks that died lies idle in a pool, resident but free (`kernels.buffers`); it is not in use.
`watch_peak` watches this process, or every worker of a client. Nothing is imported from Dask: the workers are asked to
run `start` and `stop`, which every worker can import from here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from distarray.forks import free_in_child
from distarray.kernels.buffers import POOL, resident_nbytes
from distarray.runtime.clients import asked

#: Seconds between two looks; a look costs some ten microseconds.
INTERVAL = 0.002


def used_nbytes() -> int:
    """Return the bytes of this process in memory that do not lie idle in the pool; 0 where the system does not say."""
    resident = resident_nbytes()
    return resident and resident - POOL.idle_nbytes


class _Lookout:
    """A _Lookout is a thread that looks at the memory in use until it is told to stop."""

    def __init__(self) -> None:
        self.first = self.most = used_nbytes()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="resident-watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._done.wait(INTERVAL):
            self.most = max(self.most, used_nbytes())

    def stop(self) -> int:
        self._done.set()
        self._thread.join()
        return max(self.most, used_nbytes()) - self.first


_watches: dict[str, _Lookout] = {}
_lock = free_in_child(threading.Lock())


def start(name: str) -> None:
    """Begin to watch this process; workers that share a process share the watch."""
    with _lock:
        if name not in _watches:
            _watches[name] = _Lookout()


def stop(name: str) -> tuple[int, int]:
    """Return (process id, bytes by which the memory in use grew at most); the growth is 0 if another call has it
    already.
    """
    with _lock:
        watch = _watches.pop(name, None)
    return os.getpid(), 0 if watch is None else watch.stop()


@dataclass(slots=True)
class ResidentPeak:
    """A ResidentPeak is what `watch_peak` found.

    Parameters
    ----------
    growth
        For each process, by its id, by how many bytes the memory in use exceeded that at the start, at most. It is
        filled when the block ends.
    by_member
        For each worker, by its address, the growth of its process, which several workers may share. Without a client
        the one key is None, for this process.
    """

    growth: dict[int, int] = field(default_factory=dict)
    by_member: dict[Any, int] = field(default_factory=dict)

    @property
    def most(self) -> int | None:
        """Return the growth of the process that grew most; None if nothing could be measured."""
        return max(self.growth.values()) if self.growth else None


@contextmanager
def watch_peak(client: Any = None) -> Iterator[ResidentPeak]:
    """Watch the memory in use of this process, or of the workers of a Dask client, during a ``with`` block."""
    peak = ResidentPeak()
    name = f"watch-{os.getpid()}-{id(peak)}"
    asked(client, start, name)
    try:
        yield peak
    finally:
        found = asked(client, stop, name)
        for process, growth in found.values():
            peak.growth[process] = max(growth, peak.growth.get(process, 0))
        peak.by_member = {member: peak.growth[process] for member, (process, _) in found.items()}
        if not any(peak.growth.values()) and not resident_nbytes():
            peak.growth.clear()
