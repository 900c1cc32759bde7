"""The executor on a Dask cluster: sends the tasks of a plan to the workers that serve a team.

Every task runs where it is told (strict restrictions), an evaluation is one message to the scheduler, and results come
straight from the workers. What is kept survives the loss of any one worker (`lineage`), and after a loss the ranks of
the lost worker are served by others (`placement`, `scheduler_plugin`).
"""

from __future__ import annotations

import asyncio
import itertools
import math
import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dask._task_spec import Task, TaskRef
from dask.typing import Key
from distributed.client import Future
from distributed.utils_comm import gather_from_workers

from distarray.errors import BlocksLostError
from distarray.kernels.devices import backend_for, check_here
from distarray.lower.bundling import bundle_of, key_behind
from distarray.runtime import attached, progress
from distarray.runtime.bundles import BundledTile, futures_behind
from distarray.runtime.clients import placement_of
from distarray.runtime.device_ranks import DeviceRanks
from distarray.runtime.lineage import Lineage, send
from distarray.runtime.member_tasks import SentTemplates
from distarray.runtime.pressure import room_made
from distarray.runtime.task_graph import MemberRun, TaskGraph, longest_chain, read_from_outside, taken_out
from distarray.runtime.wire import EMBED_NBYTES, Packed, pack, unpack
from distarray.sharding.team import Team

#: Attempts to bring host data to two workers while workers are being lost.
_ATTEMPTS = 12
#: Above the tasks of evaluations: host data is being waited for.
_PUT_PRIORITY = 10


def failed_key(error: BaseException) -> Key | None:
    """Return the key of the task that raised an error that `ClusterExecutor.fetch` or `wait` raised; else None."""
    key: Key | None = getattr(error, "_distarray_key", None)
    return key


def _arrived(device: str, member: int, packed: Packed) -> Any:
    """Return a block of host data on the device of its member."""
    return backend_for(device, member).adopt(unpack(packed))


def _to_host(device: str, member: int, block: Any) -> Any:
    return backend_for(device, member).to_host(block)


def _label(device: str, member: int) -> str:
    return backend_for(device, member).label


def _problem(device: str) -> tuple[type[Exception], str] | None:
    try:
        check_here(device)
    except (ImportError, RuntimeError, ValueError) as error:
        return type(error), str(error)
    return None


class ClusterExecutor:
    """A ClusterExecutor runs tasks on the workers that serve a team.

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
        self.placement = placement_of(client)
        #: Of the members, in rank order. Nothing here refers to the team: it is remembered for as long as that lives.
        self.homes = tuple(str(member) for member in team.members)
        self._templates = SentTemplates(self.homes)
        self.placement.hold(self.homes, team)
        #: Devices that all members have; `members.check_device` fills it.
        self.checked: set[str] = set()
        if self.placement.lineage is None:
            self.placement.lineage = Lineage(self.placement)
        self._lineage: Lineage = self.placement.lineage
        self._copy_name = f"dx-put-{uuid.uuid4().hex}"
        self._counter = itertools.count()

    def submit(
        self,
        tasks: Mapping[Key, Task],
        members: Mapping[Key, int],
        keep: Collection[Key],
        nbytes: Mapping[Key, int] = MappingProxyType({}),
        places: Iterable[str] = (),
    ) -> dict[Key, Future]:
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
        nbytes
            Of these, as far as it is known: what `held` adds up.
        places
            Of the stores that tasks read: see `clients.keep_what_reads`.

        Returns
        -------
        dict of Key to Future
            One entry per key of `keep`.
        """
        graph = TaskGraph(tasks, members, self.homes)
        read = self._take_out(graph, read_from_outside(tasks))
        futures = send(self.placement.client, graph, keep)
        progress.sent(self, futures.values(), lambda: ({str(key[0]) for key in tasks}, len(tasks)))
        homes = {key: self.homes[members[key]] for key in futures}
        self._lineage.extend(futures, homes, read, longest_chain(tasks), nbytes, places=places)
        return futures

    def _take_out(self, graph: TaskGraph, read: Collection[Key]) -> set[Key]:
        """Add the tasks that take out of their bundles the tiles that are read, where these bundles are; return the
        keys of what is kept and read.
        """
        taken = taken_out(read)
        records = {key: self._lineage.record(key_behind(key)) for key in taken}
        graph.add(taken, {key: record.home for key, record in records.items() if record is not None})
        return set(map(key_behind, read))

    def run_programs(
        self,
        run: MemberRun,
        keep: Collection[Key],
        read: Collection[Key],
        nbytes: Mapping[Key, int],
        places: Iterable[str] = (),
    ) -> dict[Key, Future]:
        """Start a run as one program of each member, and tasks beside it; one message, returns at once.

        Parameters
        ----------
        keep, nbytes, places
            As for `submit`.
        read
            Keys of blocks and bundles that the programs are given.
        """
        graph, sent, new = self._templates.graph_of(run)
        outside = self._take_out(graph, {*read, *read_from_outside(run.tasks)} - run.tasks.keys())
        # Programs of which nothing is kept run for the others, and stay as long as anything of these.
        silent = [graph.program_key(p.member) for p in graph.programs if not p.results]
        futures = send(self.placement.client, graph, [*keep, *silent, *new])
        if new:
            sent.futures = {key: futures.pop(key) for key in new}
        stay = [futures.pop(key) for key in silent]
        programs = run.programs.by_member.values()
        progress.sent(self, futures.values(), lambda: ({run.name}, sum([len(p.steps) for p in programs])))
        members = {**run.members, **{key: p.member for p in graph.programs for key in p.results}}
        homes = {key: self.homes[members[key]] for key in futures}
        depth = longest_chain(run.tasks) + run.template.lowered.depth
        self._lineage.extend(futures, homes, outside, depth, nbytes, stay, places)
        return futures

    def serving(self) -> dict[int, int]:
        """Return, of members that one worker serves since others were lost, the first one; nothing of the others."""
        rank = self._rank_of()
        found = {n: rank[self.placement.address(home)] for n, home in enumerate(self.homes)}
        return found if len(rank) < len(self.homes) else {}

    def _rank_of(self) -> dict[str, int]:
        """Return by the address of a worker the first member that it serves."""
        return {self.placement.address(home): n for n, home in reversed(list(enumerate(self.homes)))}

    def _number_of(self) -> dict[str, int]:
        """Return by the address of a worker the first member that it serves; then those outside the team that get
        copies.
        """
        found = self._rank_of()
        for address in list(found):
            spare = self.placement.spare(address)
            if spare is not None and spare not in found:
                found[spare] = len(self.homes) + len(found)
        return found

    def held(self) -> Counter[int]:
        """Return the bytes that each member holds for this client, whoever asked for them, and of copies of others'
        blocks.

        What a worker holds counts at the first member that it serves (`serving`). Workers outside the team that get
        copies have the numbers after its members.
        """
        rank = self._number_of()
        found: Counter[int] = Counter()
        for address, nbytes in self._lineage.nbytes_at().items():
            if address in rank:
                found[rank[address]] += nbytes
        return found

    def spares(self) -> dict[int, int]:
        """Return by member the one that has the copies of its blocks, numbered as by `held`; nothing where there is one
        worker.
        """
        rank = self._number_of()
        found = [self.placement.spare(self.placement.address(home)) for home in self.homes]
        return {n: rank[spare] for n, spare in enumerate(found) if spare in rank}

    def is_to_be_cut(self, read: Collection[Key], n_tasks: int) -> bool:
        """Return whether what is made of these blocks, by so many tasks one after the other, will get copies at once,
        since its lineage would be too deep.
        """
        return self._lineage.is_to_be_cut(read, n_tasks)

    def put(self, blocks: Mapping[Key, Any], members: Mapping[Key, int], device: str = "cpu") -> dict[Key, Future]:
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
        device
            Where the members put them, once, when they arrive.
        """
        alone = self.placement.spare(self.placement.workers[0]) is None if self.placement.workers else True
        small = {key: block for key, block in blocks.items() if alone or block.nbytes <= EMBED_NBYTES}
        futures: dict[Key, Future] = {}
        if small:
            made = {key: Task(key, _arrived, device, members[key], (block, None)) for key, block in small.items()}
            futures = self.submit(made, members, list(small), {key: block.nbytes for key, block in small.items()})
        if large := {key: block for key, block in blocks.items() if key not in small}:
            members_of = {key: members[key] for key in large}
            # An interrupt must not stop it halfway: data would be on workers, and no Future would release them.
            futures |= self._sync(lambda: asyncio.shield(self._scatter(large, members_of, device)))
        return futures

    def on_host(self, futures: Sequence[Future], members: Sequence[int], device: str) -> list[Future]:
        """Return results as host arrays, made by the members that have them: this process need not have their
        device.
        """
        name = f"dx-host-{uuid.uuid4().hex}"
        tasks = {
            (name, i): Task((name, i), _to_host, device, member, TaskRef(future.key))
            for i, (future, member) in enumerate(zip(futures, members, strict=True))
        }
        found = self.submit(tasks, dict(zip(tasks, members)), list(tasks))
        return list(found.values())

    def check_device(self, device: str) -> None:
        """Check that each member can make blocks on a device: asked of the workers. Raises what one of them raises."""
        if device.startswith("cuda"):
            self.client.register_plugin(DeviceRanks())
        addresses = sorted({self.placement.address(home) for home in self.homes} & {*self.placement.workers})
        for address, problem in self.placement.ask(_problem, device, of=addresses).items():
            if problem is not None:
                kind, text = problem
                raise kind(f"device={device!r} cannot be had on worker {address}: {text}")

    def labels(self, device: str) -> tuple[str, ...]:
        """Return the device string of each member, in rank order."""
        name = f"dx-label-{uuid.uuid4().hex}"
        tasks = {(name, rank): Task((name, rank), _label, device, rank) for rank in range(len(self.homes))}
        found = self.submit(tasks, {key: rank for rank, key in enumerate(tasks)}, list(tasks))
        return tuple(self.fetch([found[key] for key in tasks]))

    def fetch(self, futures: Sequence[Future], at_a_time: int | None = None) -> list[Any]:
        """Wait for results and bring them here, straight from the workers where they can be reached.

        Parameters
        ----------
        at_a_time
            Bytes that each worker is asked for at a time, by all threads that say so: it may have to read them from
            disk first. None: all at once.

        Raises
        ------
        Exception
            What a task raised, of its own class; `failed_key` tells which task.
        BlocksLostError
            If workers were lost that together held every copy of a block.
        """
        reached = self._within_reach(futures, at_a_time)
        found = self._sync(self._fetch, list({id(future): future for future in reached}.values()), at_a_time)
        results = [found[future.key] for future in reached]
        return [
            result[block.number] if type(block) is BundledTile and future is block.bundle else result
            for block, future, result in zip(futures, reached, results, strict=True)
        ]

    def _within_reach(self, blocks: Sequence[Any], at_a_time: int | None) -> list[Future]:
        """Return, for each block, the Future that brings it here: of its bundle, where all of this is wanted and may
        come at once, or of a task that takes it out.
        """
        tiles = {b.key: b for b in blocks if type(b) is BundledTile and b.status != "cancelled"}
        wanted = Counter(map(key_behind, tiles))
        records = {key: self._lineage.record(key) for key in wanted}
        most = math.inf if at_a_time is None else at_a_time
        large = {key for key, record in records.items() if record is not None and record.nbytes > most}
        single = [k for k, t in tiles.items() if wanted[t.bundle.key] < t.n_blocks or t.bundle.key in large]
        taken: dict[Key, Future] = {}
        if single:
            graph = TaskGraph({}, {}, self.homes)
            self._take_out(graph, single)
            taken = send(self.placement.client, graph, single)
            for key, future in taken.items():
                if (record := records[key_behind(key)]) is not None:
                    self._lineage.adopt(key, record.home, future, None, "", record.nbytes // tiles[key].n_blocks)
        return [taken.get(block.key, block.bundle) if type(block) is BundledTile else block for block in blocks]

    def wait(self, futures: Iterable[Future]) -> None:
        """Wait until results are there. Raises as `fetch` does."""
        self._sync(self._settle, futures_behind(futures))

    def attach(self, keys: Sequence[Key]) -> list[Any]:
        """Return what stands for blocks that arrived by name: futures that their client has, else new ones; waits for
        nothing.
        """
        n_blocks = Counter(map(key_behind, keys))
        known = {key: self._lineage.future(key) for key in n_blocks}
        new = [key for key, future in known.items() if future is None]
        futures = {**known, **dict(zip(new, attached.attach(self.client, new), strict=True))}
        places = {key: place for key in keys if (place := bundle_of(key)) is not None}
        return [
            BundledTile(futures[places[key][0]], places[key][1], n_blocks[places[key][0]])
            if key in places
            else futures[key]
            for key in keys
        ]

    def _sync(self, coroutine: Any, *args: Any) -> Any:
        with attached.seceded():  # a task that uses an array of this process may wait for tasks that need its thread
            return self.placement.sync(coroutine, *args)

    async def _settle(self, futures: Sequence[Future]) -> None:
        await attached.settled(self.client, futures, self._blame)

    async def _blame(self, future: Future) -> None:
        """Have the error of a task say which task raised it."""
        error = future._state.exception
        if failed_key(error) is None:
            key = await self.client.scheduler.distarray_blame(key=future.key)
            error._distarray_key = key or future.key

    async def _fetch(self, futures: Sequence[Future], at_a_time: int | None) -> dict[Key, Any]:
        await self._settle(futures)
        if at_a_time is None:
            found = await self._gather(futures)
        else:
            found = {}
            async with self.placement.turn:
                for portion in self._portions(futures, at_a_time):
                    await self.placement.answers(room_made, (), self._holders(portion))
                    found |= await self._gather(portion)
        return found

    def _portions(self, futures: Sequence[Future], at_a_time: int) -> list[list[Future]]:
        """Return results in groups that have up to so many bytes of each worker, or one result."""
        portions: list[list[Future]] = []
        latest: dict[str, tuple[int, int]] = {}  # number and bytes of the portion of each worker
        for future in futures:
            record = self._lineage.record(future.key)
            home, nbytes = (record.home, record.nbytes) if record is not None else ("", at_a_time)
            n, asked = latest.get(home, (0, 0))
            if asked and asked + nbytes > at_a_time:
                n, asked = n + 1, 0
            latest[home] = n, asked + nbytes
            if n == len(portions):
                portions.append([])
            portions[n].append(future)
        return portions

    def _holders(self, futures: Sequence[Future]) -> set[str]:
        """Return the addresses of the workers that have been told to have these results."""
        records = [self._lineage.record(future.key) for future in futures]
        return {self.placement.address(r.home) for r in records if r is not None}

    async def _gather(self, futures: Sequence[Future]) -> dict[Key, Any]:
        """Return results that are there by key, straight from the workers where these can be reached."""
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
            found |= await attached.gathered(self.client, rest, self._blame)
        return found

    async def _gather_near(self, places: Mapping[Key, list[str]]) -> dict[Key, Any]:
        """Return the blocks straight from the workers that have them; none if one of these is lost meanwhile."""

        async def are_alive() -> bool:
            return all(address in self.placement.workers for (address,) in places.values())

        found = await attached.while_alive(gather_from_workers(places, rpc=self.client.rpc), are_alive)
        return {} if found is None else found[0]

    async def _scatter(self, blocks: Mapping[Key, Any], members: Mapping[Key, int], device: str) -> dict[Key, Future]:
        homes = {key: self.homes[member] for key, member in members.items()}
        futures: dict[Key, Future] = {}
        todo = dict(blocks)
        error: BaseException | None = None
        for attempt in itertools.count():
            if attempt:
                await asyncio.sleep(0.05 * 2 ** min(attempt, 5))
                await self.placement.refresh()
                await self.placement.some_workers()
            # Workers that take nothing are paused: who waits for this call sees to them.
            if attempt >= _ATTEMPTS and not isinstance(error, TimeoutError):
                break
            names: dict[Key, Key] = {key: (self._copy_name, next(self._counter)) for key in todo}
            groups: defaultdict[str, dict[Key, Any]] = defaultdict(dict)
            places: dict[Key, str] = {}
            for key, block in todo.items():
                address = self.placement.address(homes[key])
                places[key] = self.placement.spare(address) or address
                groups[places[key]][names[key]] = pack(block)
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
            arrived = {
                key: Task(key, _arrived, device, members[key], TaskRef(names[key]))
                for key in todo
                if names[key] in copies
            }
            if arrived:
                order = sorted({homes[key] for key in arrived})
                graph = TaskGraph(arrived, {key: order.index(homes[key]) for key in arrived}, order)
                here: dict[Key, Future] = {}
                for key, future in send(self.client, graph, list(arrived), _PUT_PRIORITY).items():
                    await future._state.wait()
                    if future.status == "finished":
                        here[key] = future
                        copy, nbytes = copies[names[key]], blocks[key].nbytes
                        self._lineage.adopt(key, homes[key], future, copy, places[key], nbytes)
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
