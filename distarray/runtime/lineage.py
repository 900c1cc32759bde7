"""Lineage on a cluster: what dask would need to make a block again, kept bounded.

dask keeps the tasks that led to every live result, so that it can recompute what a lost worker held. A loop of ten
thousand steps would thus leave ten thousand steps in the scheduler. Here the lineage of a block is *cut* once it is
`interval` tasks deep: the block gets a copy under a second key on another worker (replicas of one key are undone
by dask's memory manager), the copy becomes plain data, and the block from then on is "read the copy".

Both are held until nothing that could be recomputed from them is left, so the loss of any one worker loses nothing:
either the block or its copy survives, and what was computed since is recomputed by dask. After a loss, missing copies
are made again. Two workers lost at the same moment may lose blocks for good (an error when they are asked for). On a
cluster of one worker there is no place for a copy: lineage is cut all the same, and the loss of the worker is final.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import uuid
import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dask._task_spec import Task, TaskRef
from dask.typing import Key
from distributed.client import Future
from distributed.spans import SpanMetadata

from distarray import config
from distarray.kernels.stores import meet
from distarray.runtime import attached
from distarray.runtime.connections import hurry
from distarray.runtime.placement import Placement
from distarray.runtime.task_graph import TaskGraph
from distarray.runtime.wire import pack
from distarray.weak import alive, values

logger = logging.getLogger(__name__)

#: A cut is tried again when a worker is lost meanwhile.
_ATTEMPTS = 5
#: Between looks at blocks that are being made again after a loss.
_PATIENCE_SECONDS = 0.2


def send(client: Any, graph: TaskGraph, keys: Collection[Key], priority: int = 0) -> dict[Key, Future]:
    """Send a graph to the scheduler in one message, and return Futures of `keys`, at once."""
    futures = client._graph_to_futures(
        graph,
        keys,
        span_metadata=SpanMetadata(collections=[{"type": "distarray"}]),
        user_priority=priority,
    )
    if client.scheduler_comm is not None:  # else the scheduler was lost meanwhile
        client.loop.add_callback(hurry, client.scheduler_comm)
    return {key: futures[key] for key in keys}


class BlockRecord:
    """A BlockRecord is what the client knows about a kept block: its home, depth, parents and copy.

    Lives as long as the caller's Future, and as the records of blocks computed from it whose lineage is not cut.
    """

    __slots__ = ("__weakref__", "beside", "copied_to", "depth", "held", "home", "key", "nbytes", "parents", "places")

    def __init__(self, key: Key, home: str, depth: int, parents: tuple[BlockRecord, ...], nbytes: int = 0) -> None:
        self.key = key
        self.home = home
        self.nbytes = nbytes
        #: Tasks one after the other since the lineage began.
        self.depth = depth
        self.parents = parents
        #: Futures of tasks that would have to run again to make the block again.
        self.beside: Sequence[Future] = ()
        #: After a cut: the block and its copy (None where there is no second worker).
        self.held: tuple[Future, Future | None] | None = None
        #: Address of the worker that was given the copy.
        self.copied_to: str | None = None
        #: Of the stores that would be read to make the block again.
        self.places: frozenset[str] = frozenset()


class Lineage:
    """A Lineage holds the records of the blocks of one client, and cuts what becomes too deep."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        # The caller's Future -> its record; and both by key. All weak: nothing here keeps a block alive.
        self._records: weakref.WeakKeyDictionary[Future, BlockRecord] = weakref.WeakKeyDictionary()
        self._futures: weakref.WeakValueDictionary[Key, Future] = weakref.WeakValueDictionary()
        self._by_key: weakref.WeakValueDictionary[Key, BlockRecord] = weakref.WeakValueDictionary()
        self._copy_name = f"dx-copy-{uuid.uuid4().hex}"
        self._counter = itertools.count()
        self._mending = False
        self._mend_again = False

    def record(self, key: Key) -> BlockRecord | None:
        """Return the record of a block that is held or still needed."""
        return self._by_key.get(key)

    def future(self, key: Key) -> Future | None:
        """Return the Future that a caller holds of a block."""
        return self._futures.get(key)

    @property
    def has_blocks(self) -> bool:
        """Return whether somebody holds a block that workers have."""
        return bool(self._records)

    def nbytes_at(self) -> Counter[str]:
        """Return the bytes of blocks that are held, and of their copies, by the address of the worker."""
        found: Counter[str] = Counter()
        for record in alive(self._by_key):
            if record.held is not None or record.key in self._futures:
                found[self._placement.address(record.home)] += record.nbytes
            if record.held is not None and record.copied_to is not None:
                found[record.copied_to] += record.nbytes
        return found

    def is_to_be_cut(self, read: Iterable[Key], n_tasks: int) -> bool:
        """Return whether blocks that are made of others, by so many tasks one after the other, get copies at once."""
        return bool(self._depth(self._parents(read), n_tasks) >= config.get("lineage-interval"))

    def _depth(self, parents: Iterable[BlockRecord], n_tasks: int) -> int:
        return n_tasks + max((record.depth for record in parents), default=0)

    def _parents(self, read: Iterable[Key]) -> tuple[BlockRecord, ...]:
        return tuple([record for key in read if (record := self._by_key.get(key)) is not None])

    def extend(
        self,
        futures: Mapping[Key, Future],
        homes: Mapping[Key, str],
        read: Iterable[Key],
        n_tasks: int,
        nbytes: Mapping[Key, int] = MappingProxyType({}),
        beside: Sequence[Future] = (),
        places: Iterable[str] = (),
    ) -> None:
        """Note a submission; cut what became too deep, in the background.

        Parameters
        ----------
        futures
            Of the blocks that are kept.
        homes
            Home of each of these.
        read
            Keys of the blocks that they are made of.
        n_tasks
            Tasks that run one after the other, at most.
        nbytes, places
            See `ClusterExecutor.submit`.
        beside
            Futures that are held as long as any of `futures`.
        """
        interval = config.get("lineage-interval")
        parents = self._parents(read)
        depth = self._depth(parents, n_tasks)
        all_places = frozenset(places).union(*[record.places for record in parents])
        for key, future in futures.items():
            record = BlockRecord(key, homes[key], depth, parents, nbytes.get(key, 0))
            record.beside = beside
            record.places = all_places
            self._add(future, record)
        if depth >= interval:
            # Also what is half as deep: used in every step, it would make every further result too deep at once.
            deep = [record for record in values(self._records) if 2 * record.depth >= interval]
            self._placement.spawn(self.cut, self.held(deep))
            for record in deep:
                record.depth = 0

    def _add(self, future: Future, record: BlockRecord) -> None:
        self._records[future] = record
        self._futures[record.key] = future
        self._by_key[record.key] = record

    def adopt(self, key: Key, home: str, future: Future, copy: Future | None, copied_to: str, nbytes: int) -> None:
        """Note a block that was born with a copy: host data that was scattered."""
        record = BlockRecord(key, home, 0, (), nbytes)
        if copy is not None:
            record.held = Future(key, future.client), copy
            record.copied_to = copied_to
        self._add(future, record)

    def keep_what_reads(self, place: str) -> None:
        """Cut the lineage of all blocks for which a store in a place would be read if they were lost, and wait for
        it.
        """
        found = [record for record in alive(self._by_key) if any(meet(place, p) for p in record.places)]
        if found:
            with attached.seceded():
                self._placement.sync(self.cut, self.held(found))

    def held(self, records: Iterable[BlockRecord]) -> list[tuple[BlockRecord, Future]]:
        """Return the records of blocks that are still on the cluster, each with a Future of ours, so that they stay
        there.
        """
        alive = []
        for record in records:
            future = self._futures.get(record.key) or (record.held[0] if record.held else None)
            if future is not None:
                alive.append((record, Future(record.key, future.client)))
        return alive

    async def cut(self, blocks: Iterable[tuple[BlockRecord, Future]]) -> None:
        """Cut the lineage of blocks, once they are computed. Runs in the client's event loop.

        Parameters
        ----------
        blocks
            From `held`. Those that fail are left alone.
        """
        todo = {record.key: (record, block) for record, block in blocks}
        for _ in range(_ATTEMPTS):
            for key, (_, block) in list(todo.items()):
                await block._state.wait()
                if block.status != "finished":
                    del todo[key]
            if not todo:
                return
            # A block need not be where its home is served now: a worker may have come back since.
            where = await self._placement.client.scheduler.who_has(keys=list(todo))
            copies, places = self._copy(
                {key: self._place(todo[key][0], addresses) for key, addresses in where.items() if addresses}
            )
            for copy in copies.values():
                await copy._state.wait()
            spares = len(self._placement.workers) > 1
            pairs = [(key, copies[key].key if key in copies else None) for key in todo if key in copies or not spares]
            for key in await self._placement.client.scheduler.distarray_cut(pairs=pairs):
                record, block = todo.pop(key)
                record.held = block, copies.get(key)
                record.copied_to = places.get(key)
                record.parents = record.beside = ()
                record.places = frozenset()
                record.depth = 0
        if todo:
            logger.warning("the lineage of %d blocks could not be cut; their recomputation goes on to grow", len(todo))

    def _place(self, record: BlockRecord, addresses: Sequence[str]) -> str:
        """Return where a block lies: its home where it is there, since others may have fetched it for a moment."""
        home = self._placement.address(record.home)
        return home if home in addresses else addresses[0]

    def _copy(self, blocks: Mapping[Key, str]) -> tuple[dict[Key, Future], dict[Key, str]]:
        """Start a copy of each block on another worker than the one given, and return the copies and where they will
        be.
        """
        names: dict[Key, Key] = {}
        places: dict[Key, str] = {}
        for key, address in blocks.items():
            if (spare := self._placement.spare(address)) is not None:
                names[key], places[key] = (self._copy_name, next(self._counter)), spare
        if not names:
            return {}, {}
        tasks = {name: Task(name, pack, TaskRef(key)) for key, name in names.items()}
        homes = sorted(set(places.values()))
        members = {name: homes.index(places[key]) for key, name in names.items()}
        futures = send(self._placement.client, TaskGraph(tasks, members, homes), list(tasks))
        return {key: futures[name] for key, name in names.items()}, places

    def placement_changed(self) -> None:
        """Make missing copies again: the placement calls it, in the event loop, when a worker was lost or joined."""
        if self._mending:
            self._mend_again = True
        elif any(record.held and record.held[1] for record in alive(self._by_key)):
            self._mending = True
            self._placement.spawn(self._mend)

    async def _mend(self) -> None:
        try:
            while True:
                self._mend_again = False
                bare, is_complete = await self._without_second_place()
                await self.cut(self.held(bare))
                if is_complete and not bare and not self._mend_again:
                    return
                await asyncio.sleep(_PATIENCE_SECONDS)
        finally:
            self._mending = False

    async def _without_second_place(self) -> tuple[Sequence[BlockRecord], bool]:
        """Return the records whose block and copy are not on two workers, and whether all could be judged.

        Those cannot whose block is being fetched or made again.
        """
        pairs = [(record, *record.held) for record in alive(self._by_key) if record.held]
        is_complete = all(block.status not in ("pending", "lost") for _, block, _ in pairs)
        keys = [future.key for _, *both in pairs for future in both if future is not None]
        if not keys or len(self._placement.workers) < 2:
            return (), is_complete
        where = await self._placement.client.scheduler.who_has(keys=keys)

        def stays(future: Future | None, place: str | None) -> set[str]:
            """Return who may be left with what others have fetched for a moment: dask drops replicas but one."""
            holders = set(where.get(future.key, ())) if future is not None else set()
            return {place} if place is not None and place in holders else holders

        def is_safe(record: BlockRecord, block: Future, copy: Future | None) -> bool:
            first = stays(block, self._placement.address(record.home))
            second = stays(copy, record.copied_to)
            return bool(first and second) and first.isdisjoint(second)

        bare = [record for record, *both in pairs if both[0].status == "finished" and not is_safe(record, *both)]
        return bare, is_complete
