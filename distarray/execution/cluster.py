"""The executor on a Dask cluster: sends the tasks of a plan to the workers that serve a team.

Every task runs where it is told (strict restrictions), an evaluation is one message to the scheduler, and results come
straight from the workers. What is kept survives the loss of any one worker (`lineage`), and after a loss the ranks of
the lost worker are served by others (`placement`, `scheduler_plugin`).
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
import weakref
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from dask._task_spec import Task, TaskRef
from dask.typing import Key
from distributed.client import Future
from distributed.utils import sync
from distributed.utils_comm import gather_from_workers

from distarray import config
from distarray.errors import BlocksLostError
from distarray.execution.lineage import Lineage, send
from distarray.execution.placement import placement_of
from distarray.execution.scheduler_plugin import Graph
from distarray.execution.wire import pack, unpack
from distarray.sharding.team import Team

__all__ = ["BlocksLostError", "ClusterExecutor", "failed_key"]

#: Host blocks up to this size travel inside the graph: one message, and dask can make them again at any time.
EMBED_NBYTES = 64 * 1024
#: Attempts to bring host data to two workers while workers are being lost.
_ATTEMPTS = 8
#: Between looks at who was lost while blocks are on their way.
_LOOK_SECONDS = 0.25
#: Above the tasks of evaluations: host data is being waited for.
_PUT_PRIORITY = 10

_lineages: weakref.WeakKeyDictionary[Any, Lineage] = weakref.WeakKeyDictionary()


def failed_key(error: BaseException) -> Key | None:
    """The key of the task that raised an error that `ClusterExecutor.fetch` or `wait` raised; else None."""
    key: Key | None = getattr(error, "_distarray_key", None)
    return key


def _keep(block: Any) -> Any:
    return block


class ClusterExecutor:
    """Runs tasks on the workers that serve a team.

    Parameters
    ----------
    client
        A running, synchronous ``distributed.Client``.
    team
        The team; its members are homes (see `placement`). Executors of several teams may share a client, and refer to
        each other's keys.

    Notes
    -----
    All methods may be called from any thread but the client's event loop. An interrupt (Ctrl-C) while a method waits
    leaves all Futures as they were. What nobody keeps is cancelled: the scheduler stops and frees it as soon as the
    Futures of its results are dropped.
    """

    def __init__(self, client: Any, team: Team) -> None:
        self.client = client
        self.team = team
        self.placement = placement_of(client)
        self._homes = tuple(str(member) for member in team.members)
        lineage = _lineages.get(client)
        if lineage is None:
            lineage = _lineages[client] = Lineage(self.placement)
        self._lineage = lineage
        self._copy_name = f"dx-put-{uuid.uuid4().hex}"
        self._counter = itertools.count()

    def submit(self, tasks: Mapping[Key, Task], members: Mapping[Key, int], keep: Collection[Key]) -> dict[Key, Future]:
        """Start tasks, each on the worker that serves its member; one message, returns at once.

        Parameters
        ----------
        tasks
            By key; keys are new in every call. A task may refer to (`TaskRef`) keys of `tasks`, and to keys kept by
            earlier calls whose Futures are still held.
        members
            Rank of each task in the team.
        keep
            Keys whose results stay until their Future is dropped. The other results are freed once they are used.

        Returns
        -------
        dict of Key to Future
            One entry per key of `keep`.
        """
        futures = send(self.client, Graph(tasks, members, self._homes), list(keep))
        homes = {key: self._homes[members[key]] for key in futures}
        self._lineage.extend(tasks, futures, homes, config.get("lineage-interval"))
        return futures

    def put(self, blocks: Mapping[Key, Any], members: Mapping[Key, int]) -> dict[Key, Future]:
        """Bring host data to members so that no single worker holds the only copy.

        Small blocks travel inside the graph. Larger ones go to another worker first, as data, and the member reads them
        from there; the call returns when both have them.

        Parameters
        ----------
        blocks
            Arrays by key. They become the cluster's: workers in this process use the same memory, so they must not be
            written to afterwards.
        members
            Rank of each block in the team.
        """
        alone = self.placement.spare(self.placement.workers[0]) is None if self.placement.workers else True
        small = {key: block for key, block in blocks.items() if alone or block.nbytes <= EMBED_NBYTES}
        futures: dict[Key, Future] = {}
        if small:
            futures = self.submit({key: Task(key, _keep, block) for key, block in small.items()}, members, list(small))
        if large := {key: block for key, block in blocks.items() if key not in small}:
            futures |= self._sync(self._scatter, large, {key: self._homes[members[key]] for key in large})
        return futures

    def fetch(self, futures: Sequence[Future]) -> list[Any]:
        """Wait for results and bring them here, straight from the workers where they can be reached.

        Raises
        ------
        Exception
            What a task raised, of its own class; `failed_key` tells which task.
        BlocksLostError
            If workers were lost that together held every copy of a block.
        """
        results: list[Any] = self._sync(self._fetch, list(futures))
        return results

    def wait(self, futures: Iterable[Future]) -> None:
        """Wait until results are there. Raises as `fetch` does."""
        self._sync(self._settle, list(futures))

    def release(self, futures: Iterable[Future]) -> None:
        """Free results now, whoever else holds these Future objects."""
        for future in futures:
            future.release()

    def cut_lineage(self, futures: Iterable[Future]) -> None:
        """Cut the lineage of kept results, and wait for it; `submit` does so in the background now and then.

        The same Futures remain valid; their blocks now have a copy on a second worker.
        """
        records = [record for future in futures if (record := self._lineage.record(future.key)) is not None]
        self._sync(self._lineage.cut, self._lineage.held(records))

    def _sync(self, coroutine: Any, *args: Any) -> Any:
        return sync(self.client.loop, coroutine, *args)

    async def _settle(self, futures: Sequence[Future]) -> None:
        for future in futures:
            await future._state.wait()
            if future.status == "error":
                error = future._state.exception
                if failed_key(error) is None:
                    key = await self.client.scheduler.distarray_blame(key=future.key)
                    error._distarray_key = key or future.key
                raise error.with_traceback(future._state.traceback)
            if future.status == "cancelled":
                raise BlocksLostError(
                    f"block {future.key!r} is lost ({future._state.exception}): every worker that held a copy was lost "
                    "at the same time, or the cluster was restarted; compute it again from its sources"
                )

    async def _fetch(self, futures: Sequence[Future]) -> list[Any]:
        await self._settle(futures)
        by_key = {future.key: future for future in futures}
        # Where a block was told to be is where it is, unless a worker came or went: no need to ask the scheduler.
        guess: dict[Key, list[str]] = {}
        for key in by_key:
            record = self._lineage.record(key)
            if record is not None:
                guess[key] = [self.placement.address(record.home)]
        places = {address for (address,) in guess.values()}
        near = dict(zip(places, await asyncio.gather(*map(self.placement.reachable, places)), strict=True))
        guess = {key: place for key, place in guess.items() if near[place[0]]}
        found: dict[Key, Any] = {}
        if guess:
            found = await self._gather_near(guess)
        if rest := [future for key, future in by_key.items() if key not in found]:
            try:
                found.update(zip((future.key for future in rest), await self.client._gather(rest), strict=True))
            except Exception:
                await self._settle(rest)  # says in our words what became of them
                raise
        return [found[future.key] for future in futures]

    async def _gather_near(self, places: Mapping[Key, list[str]]) -> dict[Key, Any]:
        """Blocks straight from the workers that have them; none if one of these is lost meanwhile."""
        gathering = asyncio.ensure_future(gather_from_workers(places, rpc=self.client.rpc))
        try:
            while not (await asyncio.wait((gathering,), timeout=_LOOK_SECONDS))[0]:
                # distributed would try for half a minute to reach it.
                if any(address not in self.placement.workers for (address,) in places.values()):
                    return {}
            found: dict[Key, Any] = gathering.result()[0]
            return found
        finally:
            gathering.cancel()

    async def _scatter(self, blocks: Mapping[Key, Any], homes: Mapping[Key, str]) -> dict[Key, Future]:
        futures: dict[Key, Future] = {}
        todo = dict(blocks)
        error: BaseException | None = None
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(0.05 * 2**attempt)
                await self.placement.refresh()
            names: dict[Key, Key] = {key: (self._copy_name, next(self._counter)) for key in todo}
            groups: defaultdict[str, dict[Key, Any]] = defaultdict(dict)
            for key, block in todo.items():
                address = self.placement.address(homes[key])
                groups[self.placement.spare(address) or address][names[key]] = pack(block)
            # A worker may be lost at any point; then its blocks are sent again, elsewhere.
            sent = await asyncio.gather(
                *(self._scatter_to(address, group) for address, group in groups.items()), return_exceptions=True
            )
            copies: dict[Key, Future] = {}
            for outcome in sent:
                if isinstance(outcome, BaseException):
                    error = outcome
                else:
                    copies |= outcome
            arrived = {key: Task(key, unpack, TaskRef(names[key])) for key in todo if names[key] in copies}
            if arrived:
                order = sorted({homes[key] for key in arrived})
                graph = Graph(arrived, {key: order.index(homes[key]) for key in arrived}, order)
                here: dict[Key, Future] = {}
                for key, future in send(self.client, graph, list(arrived), _PUT_PRIORITY).items():
                    await future._state.wait()
                    if future.status == "finished":
                        here[key] = future
                        self._lineage.adopt(key, homes[key], future, copies[names[key]])
                        del todo[key]
                    else:
                        error = future._state.exception
                        # Futures of one key share a state: the next attempt would find it failed already.
                        future.release()
                await self.client.scheduler.distarray_adopt(pairs=[(key, names[key]) for key in here])
                futures |= here
            if not todo:
                return futures
        raise BlocksLostError(f"{len(todo)} blocks of host data could not be brought to two workers") from error

    async def _scatter_to(self, address: str, group: Mapping[Key, Any]) -> dict[Key, Future]:
        direct = await self.placement.reachable(address)
        futures: dict[Key, Future] = await self.client._scatter(
            dict(group), workers=[address], direct=direct, hash=False, timeout=5
        )
        return futures
