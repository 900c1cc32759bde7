"""What members count while tasks run: what came in from others, and the most bytes of blocks that they held.

A meter counts where things happen, and knows no plan: on a cluster the workers' own logs of transfers and their stores,
in this process the arrays that tasks return and read. `explain(analyze=True)` puts it beside what was predicted, and
`distarray.testing.peaks` gives it to tests. Nobody who does not measure pays for it.
"""

from __future__ import annotations

import threading
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from distarray.kernels import loans, tasks
from distarray.kernels.buffers import Lease
from distarray.lower.bundling import bundle_of
from distarray.lower.member_programs import MemberProgram
from distarray.lower.messages import Key
from distarray.lower.step_graph import KernelCall, SlotRef
from distarray.planner.graph import Graph
from distarray.runtime.clients import placement_of
from distarray.runtime.watching import StepObserver
from distarray.runtime.wire import PLUGIN, is_program


class Arrival(NamedTuple):
    """An Arrival is a result, or a block, that came to a member from another one.

    Parameters
    ----------
    nbytes
        As the member counts them.
    readers
        The tasks there that it came for, and the number of the stage of each; nothing if none of them is known.
    """

    nbytes: int
    readers: tuple[tuple[Key, int], ...]


@dataclass(slots=True)
class Count:
    """A Count is what one member counted while a meter ran: bytes of blocks, and arrivals.

    Parameters
    ----------
    before
        Bytes of blocks at the start.
    most
        Of blocks at any time, those on their way to the member included.
    arrivals
        One for each block and message from another member.
    """

    before: int = 0
    most: int = 0
    arrivals: list[Arrival] = field(default_factory=list)


def _readers(
    key: Key, function: Callable[..., Any] | None, args: Sequence[Any], is_read: Callable[[Any], bool]
) -> list[tuple[Callable[..., Any] | None, int]]:
    """Return the function of a task that reads an argument, and its stage; of one that was fused those of the links
    that do.
    """
    if function is not tasks.run_fused:
        return [(function, key[1])] if len(key) > 1 and isinstance(key[1], int) else []
    links, *rest = args
    given = iter(rest)
    of_links = [(link, list(islice(given, link.n_args))) for link in links]
    found = [(link.function, link.key[1]) for link, own in of_links if any(map(is_read, own))]
    return found or [(function, key[1])]


def _stages_of_task(task: Any, read: Key) -> list[int]:
    """Return the stages in which a Dask task reads a result."""
    function, args = getattr(task.run_spec, "func", None), getattr(task.run_spec, "args", ())
    return [stage for _, stage in _readers(task.key, function, args, lambda a: getattr(a, "key", None) == read)]


# -- on the workers of a cluster ----------------------------------------------------------------------------------


class _Log(deque[Any]):
    """A _Log is a worker's log of transfers, which also tells a meter of each."""

    def __init__(self, log: deque[Any], tell: Callable[[Mapping[str, Any]], None]) -> None:
        super().__init__(log, log.maxlen)
        self._tell = tell

    def append(self, entry: Any) -> None:
        self._tell(entry)
        super().append(entry)


class _WorkerMeter:
    """A _WorkerMeter counts on one worker of a cluster: a plugin, told of every change of state."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._log = worker.transfer_incoming_log
        worker.transfer_incoming_log = _Log(self._log, self._arrived)
        self.count = Count(worker.state.nbytes, worker.state.nbytes)
        self._beside = 0
        #: Bytes of what the worker counts twice, and under which key it has them too.
        self._elsewhere: dict[Key, tuple[int, Key | None]] = {}
        self._lock = threading.Lock()
        self._transport = worker.plugins[PLUGIN].transport
        self._transport.observers.append(self)

    def transition(self, key: Key, start: str, finish: str, **kwargs: Any) -> None:
        with self._lock:
            if finish == "memory" and key not in self._elsewhere:
                is_elsewhere, other = self._elsewhere_of(key)
                if is_elsewhere:
                    self._elsewhere[key] = self._worker.state.tasks[key].get_nbytes(), other
                    self._beside -= self._elsewhere[key][0]
            elif start == "memory":
                for gone in [key, *[k for k, (_, other) in self._elsewhere.items() if other == key]]:
                    self._beside += self._elsewhere.pop(gone, (0, None))[0]
            self._look()

    def _elsewhere_of(self, key: Key) -> tuple[bool, Key | None]:
        """Return whether what has a key is memory of another one, and which: what a program returns is kept under keys
        of its own, a tile that was taken out of a bundle is there still, and a task may return what it was given.
        """
        if is_program(key):
            return True, None
        data = getattr(self._worker.data, "fast", self._worker.data)  # what is in memory, if some may be on disk
        place = bundle_of(key)
        if place is not None and place[0] in self._worker.data:
            return True, place[0]
        own = _owners(data.get(key))
        given = [d.key for d in self._worker.state.tasks[key].dependencies] if own else []
        other = next((k for k in given if own == _owners(data.get(k))), None)
        return other is not None, other

    def holds(self, nbytes: int) -> None:
        """Note what a member program holds in its slots."""
        with self._lock:
            self._beside += nbytes
            self._look()

    def received(self, nbytes: int, slot: int, readers: Sequence[KernelCall]) -> None:
        """Note a message to a member program."""

        def is_read(argument: Any) -> bool:
            return type(argument) is SlotRef and argument.number == slot

        found = [(r.key, stage) for r in readers for _, stage in _readers(r.key, r.function, r.args, is_read)]
        with self._lock:
            self.count.arrivals.append(Arrival(nbytes, tuple(found)))

    def _look(self) -> None:
        state = self._worker.state
        self.count.most = max(self.count.most, state.nbytes + state.transfer_incoming_bytes + self._beside)

    def teardown(self, worker: Any) -> None:
        """Do nothing: called where the worker ends before the measurement."""

    def _arrived(self, entry: Mapping[str, Any]) -> None:
        for key, nbytes in entry["keys"].items():
            readers = self._worker.state.tasks[key].dependents
            found = [(reader.key, stage) for reader in readers for stage in _stages_of_task(reader, key)]
            self.count.arrivals.append(Arrival(nbytes or 0, tuple(found)))

    def end(self) -> Count:
        log = self._worker.transfer_incoming_log
        self._worker.transfer_incoming_log = deque(log, log.maxlen)
        self._transport.observers.remove(self)
        return self.count


def start(name: str, dask_worker: Any) -> None:
    """Begin to count on a worker."""
    dask_worker.plugins[name] = _WorkerMeter(dask_worker)


def stop(name: str, dask_worker: Any) -> Count:
    """Return what a worker counted; nothing where it came after the start."""
    meter = dask_worker.plugins.pop(name, None)
    return Count() if meter is None else meter.end()


# -- in this process ----------------------------------------------------------------------------------------------


class Meter:
    """A Meter counts what the tasks of this process read and return, by rank of the member.

    Bytes of an array count as long as its memory lives, whoever holds it: views of one memory count once. Blocks that
    are there before may be parts of one memory, an array of the user's that is cut: each counts at its member.
    """

    def __init__(self) -> None:
        self.counts: dict[int, Count] = {}
        self._held: dict[int, int] = {}
        #: By `id` of the owner of memory the member whose block it is, as long as it lives, and its bytes; of memory of
        #: which parts were there before, those of each part.
        self._owners: dict[int, list[tuple[int, int]]] = {}
        #: By `id` of a block that was there before, as long as it lives, the members that have it.
        self._found: dict[int, set[int]] = {}
        self._lock = threading.RLock()  # memory may die at any allocation

    def of_run(self, program: MemberProgram, keys: Iterable[Key]) -> StepObserver:
        """Return what counts for this meter in one run of a program, of whose steps these are the keys."""
        return _MeteredRun(self, program, list(keys))

    def found(self, graph: Graph) -> None:
        """Note the blocks that are there before tasks run."""
        for node in graph.nodes:
            memo = node.memo
            if memo is None or memo.on_client:
                continue
            for tile, block in zip(memo.sharding.tiles(), memo.blocks, strict=True):
                member = memo.sharding.member(tile)
                self.count(member).before += self._find(member, block)

    def is_at(self, member: int, value: Any) -> bool:
        """Return whether a member has a block; and so it has what is no block."""
        if not hasattr(value, "nbytes"):
            return True
        if (at := self._found.get(id(value))) is not None:
            return member in at
        parts = self._owners.get(id(_owner(value)[0]))
        return parts is None or any(m == member for m, _ in parts)

    def count(self, member: int) -> Count:
        """Return what was counted for a member so far; it grows."""
        return self.counts.setdefault(member, Count())

    def hold(self, member: int, array: Any) -> None:
        """Count the memory of an array that a task has returned, if it is not counted already."""
        owner, nbytes = _owner(array)
        with self._lock:
            if id(owner) not in self._owners:
                self._add(member, owner, nbytes)

    def _find(self, member: int, block: Any) -> int:
        """Count a block that was there before, and return its bytes, none if they are counted already."""
        owner, nbytes = _owner(block)
        with self._lock:
            if id(block) not in self._found:
                self._found[id(block)] = {member}
                weakref.finalize(block, self._found.pop, id(block)).atexit = False
                left = nbytes - sum([n for _, n in self._owners.get(id(owner), ())])
                return self._add(member, owner, min(int(block.nbytes), left))
            self._found[id(block)].add(member)
            return 0

    def _add(self, member: int, owner: Any, nbytes: int) -> int:
        """Count bytes with a member for as long as their owner lives."""
        if id(owner) not in self._owners:
            self._owners[id(owner)] = []
            weakref.finalize(owner, self._died, id(owner)).atexit = False
        self._owners[id(owner)].append((member, nbytes))
        self._held[member] = self._held.get(member, 0) + nbytes
        count = self.count(member)
        count.most = max(count.most, self._held[member])
        return nbytes

    def _died(self, name: int) -> None:
        with self._lock:
            for member, nbytes in self._owners.pop(name):
                self._held[member] -= nbytes


class _MeteredRun:
    """A _MeteredRun counts for one meter what the steps of one run read and return."""

    def __init__(self, meter: Meter, program: MemberProgram, keys: Sequence[Key]) -> None:
        self._meter = meter
        self._steps = program.steps
        self._keys = keys
        self._members = program.members
        self._first = len(program.given)
        self._arrived: set[tuple[int, int]] = set()
        #: By slot and member the steps that read it there.
        self._reading: dict[tuple[int, int], list[int]] = {}
        for n, reads in enumerate(program.graph.reads):
            for slot in reads:
                self._reading.setdefault((slot, program.members[n]), []).append(n)

    def before(self, n: int, args: Sequence[Any]) -> None:
        """Note that a step is about to run with these arguments: what it reads of other members has come to its own."""
        step, member = self._steps[n], self._members[n]
        for given, value in zip(step.args, args, strict=True):
            is_slot = type(given) is SlotRef
            is_made = is_slot and given.number >= self._first
            maker = self._members[given.number - self._first] if is_made else None
            is_here = maker == member if is_made else self._meter.is_at(member, value)
            at = given.number if is_slot else -id(value), member
            if is_here or at in self._arrived or not self._readers_in(n, given):
                continue
            self._arrived.add(at)
            steps = self._reading[at] if is_slot else [n]
            readers = tuple([(self._keys[r], stage) for r in steps for stage in self._readers_in(r, given)])
            nbytes = sum(int(a.nbytes) for a in _arrays(value))
            self._meter.count(member).arrivals.append(Arrival(nbytes, readers))

    def _readers_in(self, n: int, given: Any) -> list[int]:
        """Return the stages in which a step reads an argument that comes from another member; those of redistributions
        read none: in one process their tiles are slices of it, where it lies.
        """
        step = self._steps[n]
        found = _readers(step.key, step.function, step.args, partial(_is_same, given))
        return [stage for function, stage in found if function is not tasks.run_mosaic]

    def after(self, n: int, value: Any) -> None:
        """Note that a step has returned."""
        for array in _arrays(value):
            self._meter.hold(self._members[n], array)


def _is_same(given: Any, argument: Any) -> bool:
    """Return whether two arguments of a step are one slot, or one block."""
    return argument is given or (type(argument) is SlotRef and type(given) is SlotRef and argument == given)


def _owners(value: Any) -> set[int]:
    """Return by `id` what owns the memory of the arrays of a result."""
    return {id(_owner(array)[0]) for array in _arrays(value)}


def _arrays(value: Any) -> Iterator[Any]:
    """Yield the arrays of a result: one, or several, nested."""
    if isinstance(value, tasks.Unfinished):
        value = tuple(value.blocks)
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _arrays(item)
    elif hasattr(value, "nbytes"):
        yield value


def _owner(array: Any) -> tuple[Any, int]:
    """Return what owns the memory of an array, and its bytes."""
    found: Any = loans.owner(array) if isinstance(array, np.ndarray) else array
    lease = getattr(found, "base", None)  # of what has memory of its own, or of a file, the array stands for it
    return lease if isinstance(lease, Lease) else found, int(found.nbytes)


#: Meters of this process that count.
active: list[Meter] = []


@contextmanager
def metering(client: Any = None) -> Iterator[dict[Any, Count]]:
    """Count on the workers of a Dask client, or on the members that are threads of this process.

    Yields
    ------
    dict
        What each member counted, by the address of the worker or the rank of the member: filled at the end of the
        block. Whoever evaluates has to wait for the results in the block.
    """
    found: dict[Any, Count] = {}
    if client is None:
        meter = Meter()
        active.append(meter)
        try:
            yield found
        finally:
            active.remove(meter)
            found.update(meter.counts)
        return
    name = f"distarray-meter-{uuid.uuid4().hex}"
    ask = placement_of(client).ask
    ask(start, name)
    try:
        yield found
    finally:
        found.update(ask(stop, name))
