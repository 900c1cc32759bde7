"""A pool of big blocks of memory, so that results do not pay for fresh pages.

The pages of a new big array are mapped and cleared one by one when they are first written: about half of the time of
a memory-bound chain. The pool keeps the memory of arrays that died and lends it again.

Nothing is ever given back by hand. The memory of a lent array belongs to a `Lease`, which is the ``base`` of the array
and of every view of it; when the last of them dies, so does the lease, and its memory returns. What a user still
holds, through whatever view, memoryview or DLPack capsule, is therefore never lent twice.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from distarray.forks import free_in_child

Array = np.ndarray[Any, np.dtype[Any]]

#: Below this malloc recycles by itself, and a lease costs more than the pages.
SMALLEST = 1 << 18
#: Bytes of what may wait to be lent again as it is, without being counted as idle; and how many of them.
HANDED_ON, MOST_HANDED_ON = 4 << 20, 4
#: Bytes; a cache line, and the longest vector register.
ALIGNMENT = 64
#: Seconds for which a thread waits for room that nobody makes, and between two looks: dask's own are 0.1 s apart.
PATIENCE_SECONDS = 0.5
LOOK_SECONDS = 0.02
#: Seconds until memory that was granted is surely resident: pages are, once they are written to.
GRANTED_SECONDS = 0.1
_STATM = Path("/proc/self/statm")


def resident_nbytes() -> int:
    """Return the bytes of this process in memory; 0 where the system does not say (it is read from ``/proc``)."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def looks_for_room(most: int, granted: Callable[[], int] = lambda: 0) -> Iterator[float]:
    """Yield the seconds until the next look, as long as this process has more in memory and others make room in it.

    Parameters
    ----------
    most
        Bytes that it is to have in memory, at most.
    granted
        Bytes that count as if they were there.
    """
    least = used = resident_nbytes() + granted()
    since = time.monotonic()
    while used > most and time.monotonic() - since < PATIENCE_SECONDS:
        yield LOOK_SECONDS
        used = resident_nbytes() + granted()
        if used < least:
            least, since = used, time.monotonic()


class BufferPool:
    """Lends arrays whose memory is recycled when the last array on it dies.

    Parameters
    ----------
    limit
        Bytes that may lie idle in the pool; beyond them the longest unused are freed.

    Attributes
    ----------
    memory
        What this process may use; None where nobody says. Up to a tenth of it lies idle, as long as three fifths of it
        are not resident: above that a worker spills and pauses, idle or not. Data that come from elsewhere come beside
        what lies idle: a worker that is full up to where it pauses stays below where it is ended.
    full
        Bytes of this process in memory above which it may soon be ended; None where nobody would. Who needs memory that
        would exceed it waits, as long as others make room: a worker writes blocks to disk now and then, and tasks that
        follow each other at once can make more in between than is left.

    Notes
    -----
    Sizes are rounded up to three significant bits, so at most a fourth of a buffer is unused. Safe for use from
    several threads, and from finalizers that run while a lock is held.
    """

    def __init__(self, limit: int = 1 << 30) -> None:
        self.limit = limit
        self.memory: int | None = None
        self.full: int | None = None
        self._idle: OrderedDict[int, _Memory] = OrderedDict()  # by address, the longest unused first
        self._by_size: dict[int, list[int]] = {}  # addresses, the most recently used (still in cache) last
        self._idle_nbytes = 0
        self._lent_nbytes = 0
        # A finalizer may run at any allocation, one made under the lock included, so it only appends here.
        self._returned: deque[_Memory] = deque()
        self._lock = free_in_child(threading.Lock())
        #: What tasks were granted, and threads without one; and by thread what its task was.
        self._grants: set[_Grant] = set()
        self._outside = _Grant()
        self._own = threading.local()
        #: Who has it may wait for room.
        self._turn = free_in_child(threading.Lock())

    def take(self, shape: Sequence[int], dtype: DTypeLike, layout: str | Sequence[int] = "C") -> Array:
        """Return an array whose elements are not initialised.

        Parameters
        ----------
        shape, dtype
            Of the array.
        layout
            ``"C"``, ``"F"``, or the axes from outermost to innermost; ``()`` is ``"C"`` too.
        """
        dtype = np.dtype(dtype)
        extents = tuple(shape)
        nbytes = math.prod(extents) * dtype.itemsize
        if layout == "C" and nbytes >= SMALLEST:  # what is asked for over and over
            return np.ndarray(extents, dtype, self.lease(nbytes))
        natural = tuple(range(len(extents)))
        axes = natural if layout in ("C", ()) else natural[::-1] if layout == "F" else tuple(int(a) for a in layout)
        if nbytes < SMALLEST:
            if axes == natural:
                return np.empty(extents, dtype)
            return np.empty([extents[a] for a in axes], dtype).transpose([axes.index(a) for a in natural])
        strides, step = [0] * len(extents), dtype.itemsize
        for axis in reversed(axes):
            strides[axis], step = step, step * extents[axis]
        return np.ndarray(extents, dtype, self.lease(nbytes), strides=strides)

    @contextmanager
    def room_for(self, nbytes: int) -> Iterator[None]:
        """Wait for room for a task, and keep it until the task has ended: what it made is resident then, or gone.

        What the thread leases meanwhile is a part of it.
        """
        before, grant = getattr(self._own, "grant", None), _Grant()
        self._own.grant = grant
        try:
            if nbytes >= SMALLEST:
                self._wait(nbytes, grant)
            yield
        finally:
            self._own.grant = before
            self._grants.discard(grant)

    @contextmanager
    def room_is_known(self) -> Iterator[None]:
        """Let this thread wait for no room: it was found out before that all that it makes fits."""
        self._own.is_known = True
        try:
            yield
        finally:
            self._own.is_known = False

    def _wait_to_lease(self, nbytes: int) -> None:
        """Wait for room for new memory, but for what the task of this thread has."""
        grant = getattr(self._own, "grant", None) or self._outside
        if nbytes > grant.left:
            self._wait(nbytes - grant.left, grant)
        grant.lease(nbytes)

    def _wait(self, nbytes: int, grant: _Grant) -> None:
        """Wait while so many bytes more would be too many for this process (`full`), and others still make room.

        Threads wait one after the other, and what one was granted counts for the next.
        """
        if self.full is None or getattr(self._own, "is_known", False):
            return
        with self._turn:
            for seconds in looks_for_room(self.full - nbytes, self._granted_nbytes):
                self.trim()
                time.sleep(seconds)
            grant.left += nbytes
            self._grants.add(grant)

    def _granted_nbytes(self) -> int:
        """Return the bytes that threads were granted and may not have written to."""
        return sum([grant.nbytes for grant in list(self._grants)])

    def trim(self, nbytes: int = 0) -> None:
        """Free idle memory, the longest unused first, until at most `nbytes` lie idle."""
        with self._lock:
            self._collect()
            self._trim(nbytes)

    @property
    def idle_nbytes(self) -> int:
        """Return the bytes that wait to be lent again."""
        with self._lock:
            self._collect()
            return self._idle_nbytes

    @property
    def lent_nbytes(self) -> int:
        """Return the bytes of memory under arrays that live."""
        with self._lock:
            self._collect()
            return self._lent_nbytes

    def lease(self, nbytes: int) -> Any:
        """Return memory of so many bytes, at least `SMALLEST`, to make an array on."""
        size, kind = _lent_for(nbytes)
        memory = self._memory(size)
        lease = kind.from_address(memory.address)
        lease.memory = memory  # first: an interrupt may come in between
        lease.pool = self
        return lease

    def _memory(self, size: int) -> _Memory:
        try:
            memory = self._returned.pop()
        except IndexError:
            pass
        else:
            if memory.nbytes == size:  # what has just died is in cache
                return memory
            self._returned.append(memory)
        with self._lock:
            self._collect()
            self._lent_nbytes += size
            if addresses := self._by_size.get(size):
                memory = self._idle.pop(addresses.pop())
                self._idle_nbytes -= size
                return memory
        if self.full is not None:
            self._wait_to_lease(size)
        raw = np.empty(size + ALIGNMENT, np.uint8)
        return _Memory(raw, raw.ctypes.data + -raw.ctypes.data % ALIGNMENT, size)

    def _collect(self) -> None:
        while True:
            try:
                memory = self._returned.popleft()
            except IndexError:  # who takes one does so without the lock
                break
            self._lent_nbytes -= memory.nbytes
            if memory.nbytes > self.limit:
                continue
            self._idle[memory.address] = memory
            self._by_size.setdefault(memory.nbytes, []).append(memory.address)
            self._idle_nbytes += memory.nbytes
        self._trim(self._allowed())

    def _allowed(self) -> int:
        """Return the bytes that may lie idle now."""
        memory = self.memory  # read once: who leaves a cluster forgets it
        if memory is None or self._idle_nbytes <= memory // 64:
            return self.limit
        room = memory * 3 // 5 - (resident_nbytes() - self._idle_nbytes)
        return min(self.limit, memory // 10, max(room, memory // 64))

    def _trim(self, nbytes: int) -> None:
        while self._idle_nbytes > nbytes:
            address, memory = self._idle.popitem(last=False)
            self._by_size[memory.nbytes].remove(address)
            self._idle_nbytes -= memory.nbytes

    def _return(self, memory: _Memory) -> None:
        self._returned.append(memory)
        nbytes = memory.nbytes
        if nbytes <= HANDED_ON and nbytes <= self.limit // 64 and len(self._returned) <= MOST_HANDED_ON:
            return  # the next array of its size has it
        # Collected at once if nobody is at it (this thread may be), so that what exceeds the limit is freed now, not at
        # the next take. An interrupt between a call of `acquire` and the next instruction would leave the lock taken.
        if not self._lock.locked():
            with self._lock:
                self._collect()


class _Grant:
    """A _Grant is the room that a task was granted.

    Attributes
    ----------
    left
        Bytes that no memory was leased for.
    """

    __slots__ = ("_leased", "left")

    def __init__(self) -> None:
        self.left = 0
        self._leased: deque[tuple[float, int]] = deque()

    def lease(self, nbytes: int) -> None:
        """Note that memory is leased."""
        self.left = max(0, self.left - nbytes)
        self._leased.append((time.monotonic(), nbytes))

    @property
    def nbytes(self) -> int:
        """Return the bytes of it that may not be resident yet."""
        while self._leased and self._leased[0][0] < time.monotonic() - GRANTED_SECONDS:
            self._leased.popleft()
        return self.left + sum([nbytes for _, nbytes in list(self._leased)])


@dataclass(frozen=True, slots=True, eq=False)
class _Memory:
    """Aligned bytes inside `owner`."""

    owner: Array
    address: int
    nbytes: int


class Lease:
    """Owner of lent memory: the base of every array on it.

    It is an array of `ctypes`, for numpy makes an object of that kind the base of all views, while chains of its own
    arrays are collapsed; and an array on it is made in a third of the time that ``__array_interface__`` takes.
    """

    __slots__ = ()

    pool: BufferPool
    memory: _Memory

    def __del__(self) -> None:
        pool: BufferPool | None = getattr(self, "pool", None)
        if pool is not None:  # else an interrupt came before it was given
            pool._return(self.memory)


@lru_cache(maxsize=256)
def _leases(nbytes: int) -> Any:
    """Return the class of leases of so many bytes."""
    return type("Lease", (Lease, ctypes.c_char * nbytes), {"__slots__": ("memory", "pool")})


def _size_class(nbytes: int) -> int:
    """Return `nbytes` rounded up to three significant bits.

    >>> _size_class(1 << 20) == 1 << 20, _size_class((1 << 20) + 1) == 5 << 18
    (True, True)
    """
    step = 1 << max(nbytes.bit_length() - 3, 0)
    return -(-nbytes // step) * step


@lru_cache(maxsize=1024)
def _lent_for(nbytes: int) -> tuple[int, Any]:
    """Return the bytes that are lent to who needs `nbytes`, and the class of their leases."""
    size = _size_class(nbytes)
    return size, _leases(size)


#: The pool of this process.
POOL = BufferPool()
