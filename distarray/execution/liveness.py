"""How much memory the tasks of an evaluation need on each member: a walk that makes and frees what they make.

The walk takes the tasks in the order in which `lower` lists them, one at a time on each member, and frees a result
after its last reader, as executors do. What a task reads of other members comes as soon as all that it reads is made,
and goes after its last reader at the member. Where a member has several threads, as many tasks as may run besides count
with what the largest one needs. Blocks that were there before stay, and sizes that depend on data count with their
bound. No task runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod
from typing import Any, NamedTuple

import numpy as np

from distarray.execution import tasks
from distarray.execution.lower import Lowered
from distarray.execution.monoids import MONOIDS
from distarray.execution.route import Key
from distarray.execution.tasks import Finish, Link, StageSpec, TileSpec
from distarray.planner.graph import Graph

__all__ = ["Liveness", "liveness"]


@dataclass(frozen=True, slots=True)
class Liveness:
    """Bytes of blocks over one evaluation.

    Parameters
    ----------
    resident
        By member: blocks that are there before and stay.
    peak
        By member: the most at any time, `resident` included.
    stage_peak
        By number of the stage: the most on any member while a task of the stage runs, and no other.
    """

    resident: Mapping[int, int]
    peak: Mapping[int, int]
    stage_peak: Mapping[int, int]


class _Block(NamedTuple):
    """An array that a task makes."""

    nbytes: int
    itemsize: int


def _array(shape: Sequence[int], dtype: np.dtype[Any]) -> _Block:
    return _Block(prod(shape) * dtype.itemsize, dtype.itemsize)


def _partial(finish: Finish, shape: Sequence[int]) -> _Block:
    """A partial result over a tile of this shape, all arrays of its state as one."""
    kept = tuple(1 if axis in finish.axes else n for axis, n in enumerate(shape))
    one = _array(kept, finish.accumulator)
    return _Block(one.nbytes * MONOIDS[finish.monoid].n_arrays, one.itemsize)


class _Fetches:
    """What members fetch of others, and when: all that a task reads, as soon as the last of it is there."""

    def __init__(self) -> None:
        self._waiting: defaultdict[Key, list[Key]] = defaultdict(list)
        self._n_missing: dict[Key, int] = {}
        self._remote: dict[Key, list[tuple[Any, int]]] = {}
        self._n_readers: Counter[tuple[Any, int]] = Counter()

    def expect(self, key: Key, member: int, needed: Sequence[Key], remote: Sequence[Any]) -> None:
        """A task at a member: what it waits for, and what of all that it reads lies elsewhere."""
        self._n_missing[key] = len(needed)
        for d in needed:
            self._waiting[d].append(key)
        self._remote[key] = [(d, member) for d in remote]
        self._n_readers.update(self._remote[key])

    def started(self) -> list[tuple[Any, int]]:
        """What is fetched before any task has run."""
        return self._fetched([key for key, n in self._n_missing.items() if not n])

    def made(self, key: Key) -> list[tuple[Any, int]]:
        """What is fetched once a task has run."""
        ready = []
        for reader in self._waiting.pop(key, ()):
            self._n_missing[reader] -= 1
            if not self._n_missing[reader]:
                ready.append(reader)
        return self._fetched(ready)

    def _fetched(self, ready: Sequence[Key]) -> list[tuple[Any, int]]:
        return [at for key in ready for at in self._remote[key]]

    def is_read(self, d: Any, member: int) -> bool:
        """A task at a member has read a result; whether it was fetched, and that was the last one there to read it."""
        at = d, member
        if at not in self._n_readers:
            return False
        self._n_readers[at] -= 1
        return not self._n_readers[at]


class _Walk:
    def __init__(self, lowered: Lowered, graph: Graph, *, is_cluster: bool, n_threads: int) -> None:
        self._lowered = lowered
        self._is_cluster = is_cluster
        n_tasks = Counter(lowered.members.values())
        #: By member how many tasks may run beside another.
        self._n_beside = {m: min(n_threads, n) - 1 for m, n in n_tasks.items()}
        #: By member the most that one task needs, beside what lies there.
        self._largest: Counter[int] = Counter()
        self._before = 0
        self._tiles: dict[int, dict[int, Any]] = {}
        self._live: Counter[int] = Counter()
        self._peak: dict[int, int] = {}
        self._stage_peak: defaultdict[int, int] = defaultdict(int)
        #: Blocks of nodes that are stored before, by their key: (member, size).
        self._stored: dict[Any, tuple[int, _Block]] = {}
        #: Bytes that were fetched, by result and member, until they are read for the last time.
        self._arrived: dict[tuple[Any, int], int] = {}
        #: What each result refers to: numbers of blocks. A projection refers to blocks of its parent.
        self._holds: dict[Key, tuple[int, ...]] = {}
        self._blocks: list[_Block] = []
        self._at: list[int] = []
        self._references: list[int] = []
        for node in graph.nodes:
            memo = node.memo
            if memo is None or memo.on_client or isinstance(node.dtype, tuple):
                continue
            for tile, ref in zip(memo.sharding.tiles(), memo.blocks, strict=True):
                member = memo.sharding.member(tile)
                block = _array(memo.sharding.shard_shape(node.shape, tile), node.dtype)
                self._live[member] += block.nbytes
                self._stored[_name(getattr(ref, "key", ref))] = member, block
        self._resident = dict(self._live)

    def run(self) -> Liveness:
        lowered = self._lowered
        kept = {ref for _, refs in lowered.outputs.values() for ref in refs if isinstance(ref, tuple)}
        uses: Counter[Any] = Counter()
        fetches = _Fetches()
        for key, task in lowered.tasks.items():
            uses.update(task.dependencies)
            if self._is_cluster:
                member = lowered.members[key]
                fetches.expect(
                    key,
                    member,
                    [d for d in task.dependencies if d in lowered.tasks],
                    [d for d in task.dependencies if self._member(d) != member],
                )
        for at in fetches.started():
            self._arrive(at)
        for key, task in lowered.tasks.items():
            member = lowered.members[key]
            self._before = self._live[member]
            args = [getattr(a, "key", a) for a in task.args]
            for link, function, given, dropped in _links(key, task.func, args):
                self._make(link, function, given, member)
                self._note(member, link[1], self._scratch(given))
                for before in dropped:
                    self._drop(before)
            for d in task.dependencies:
                uses[d] -= 1
                if not uses[d] and d not in kept:
                    self._drop(d)
                if fetches.is_read(d, member):
                    self._live[member] -= self._arrived.pop((d, member))
            for at in fetches.made(key):
                self._arrive(at)
            if not uses[key] and key not in kept:
                self._drop(key)
        members = set(self._resident) | set(self._peak)
        peak = {
            m: max(self._resident.get(m, 0), self._peak.get(m, 0)) + self._n_beside.get(m, 0) * self._largest[m]
            for m in sorted(members)
        }
        return Liveness(self._resident, peak, dict(self._stage_peak))

    def _arrive(self, at: tuple[Any, int]) -> None:
        if at in self._arrived:
            return
        key, member = at
        self._arrived[at] = self._size(key)
        self._live[member] += self._arrived[at]
        self._peak[member] = max(self._peak.get(member, 0), self._live[member])

    def _note(self, member: int, stage: int, scratch: int) -> None:
        now = self._live[member] + scratch
        self._largest[member] = max(self._largest[member], now - self._before)
        self._peak[member] = max(self._peak.get(member, 0), now)
        self._stage_peak[stage] = max(self._stage_peak[stage], now)

    def _member(self, key: Any) -> int:
        found = self._lowered.members.get(key)
        return self._stored[key][0] if found is None and key in self._stored else -1 if found is None else found

    def _blocks_of(self, ref: Any) -> list[_Block]:
        """The arrays behind an argument: a result, a block that is stored, or data of this process."""
        if isinstance(ref, tuple) and ref in self._holds:
            return [self._blocks[n] for n in self._holds[ref]]
        stored = self._stored.get(_name(ref))
        if stored is not None:
            return [stored[1]]
        return [_Block(int(ref.nbytes), int(ref.dtype.itemsize))] if hasattr(ref, "nbytes") else []

    def _size(self, ref: Any) -> int:
        return sum(b.nbytes for b in self._blocks_of(ref))

    def _make(self, key: Key, function: Callable[..., Any], args: Sequence[Any], member: int) -> None:
        numbers: list[int] = []
        if function is tasks.project:
            held = self._holds.get(args[1], ())
            numbers += held[args[0] : args[0] + 1]
        elif function is tasks.run_program and args[1].into >= 0:
            numbers += self._holds[args[2 + args[1].into]]  # the rest of a tile, filled into the same blocks
        else:
            for made in self._results(key, function, args):
                if isinstance(made, int):
                    numbers.append(made)
                    continue
                numbers.append(len(self._blocks))
                self._blocks.append(made)
                self._at.append(member)
                self._references.append(0)
                self._live[member] += made.nbytes
        for n in numbers:
            self._references[n] += 1
        self._holds[key] = tuple(numbers)

    def _drop(self, key: Any) -> None:
        for n in self._holds.get(key, ()):
            self._references[n] -= 1
            if not self._references[n]:
                self._live[self._at[n]] -= self._blocks[n].nbytes

    def _results(self, key: Key, function: Callable[..., Any], args: Sequence[Any]) -> Sequence[_Block | int]:
        """The arrays that a task makes, from its records; numbers are blocks that it takes over."""
        if function is tasks.run_program:
            return self._of_program(args[0], args[1], args[2:])
        if function in (tasks.extract, tasks.pack):
            boxes, _, _, first, *others = args
            itemsize = max([b.itemsize for b in self._blocks_of(first)], default=0)
            refs = [first, *others] if function is tasks.pack else [first] * len(boxes)
            return [_Block(sum([self._n_cut(box, r) for box, r in zip(boxes, refs, strict=False)]), itemsize)]
        if function is tasks.run_mosaic:
            return [_array(args[1].shape, args[0].stores[0])]
        if function is tasks.combine_partials:
            finish, shape, _, _, first, *_ = args
            return [_array(shape, finish.dtype)] if shape is not None else self._blocks_of(first)
        if function in (tasks.run_contract, tasks.run_block, tasks.run_fold, tasks.run_tiles):
            return self._of_kernel(key, args[0])
        if function in (tasks.run_reshape, tasks.run_take, tasks.take_join):
            return [_array(args[1].shape, args[0].stores[0])]
        if function is tasks.take_part:  # positions and values: at most all of the tile
            block = _array(args[1].shape, args[0].stores[0])
            return [_Block(block.nbytes + prod(args[1].shape) * 8, block.itemsize)]
        if function is tasks.put_part:
            spec, record = args[0], args[1]
            n_index = len(record.reads) - 1
            return [_Block(prod(record.shape) * (spec.stores[0].itemsize + 8 * n_index), spec.stores[0].itemsize)]
        if function is tasks.put_join:
            return [self._taken_over(args[3])] if args[2] else self._blocks_of(args[3])
        # A task of a kind that this file does not know makes about as much as it reads.
        return [b for a in args for b in self._blocks_of(a)]

    def _n_cut(self, box: Sequence[Any], ref: Any) -> int:
        """Bytes of a box of a block: of slices, or an ellipsis for all of it."""
        blocks = self._blocks_of(ref)
        if box == (Ellipsis,):
            return sum([b.nbytes for b in blocks])
        n = prod(len(range(s.start, s.stop, s.step or 1)) for s in box)
        return n * max([b.itemsize for b in blocks], default=0)

    def _taken_over(self, ref: Any) -> _Block | int:
        """The block of an argument, as the block of a result: nothing new, and resident if it was there before."""
        held = self._holds.get(ref) if isinstance(ref, tuple) else None
        return held[0] if held else _Block(0, max([b.itemsize for b in self._blocks_of(ref)], default=0))

    def _of_program(self, spec: StageSpec, tile: TileSpec, given: Sequence[Any]) -> list[_Block | int]:
        made = [
            self._taken_over(given[arg]) if arg >= 0 else _array(tile.shape, dtype)
            for dtype, arg in zip(spec.stores, tile.reuse or (-1,) * len(spec.stores), strict=True)
        ]
        for finish, shape in zip(spec.finishes, tile.finish, strict=True):
            made.append(_partial(finish, tile.shape) if shape is None else _array(shape, finish.dtype))
        if tile.write is not None:
            arg, _, inplace, _ = tile.write
            made.append(self._taken_over(given[arg]) if inplace else self._blocks_of(given[arg])[0])
        return made

    def _of_kernel(self, key: Key, spec: StageSpec) -> list[_Block]:
        draft = self._lowered.drafts[key[1]]
        tiles = self._tiles.get(key[1])
        if tiles is None:
            tiles = self._tiles[key[1]] = {t.number: t for t in draft.tiles}
        box = tiles[key[2]].box
        shapes = [[len(box[a]) for a in axes] for axes in draft.loops.results]
        if draft.loops.windows is not None:
            shapes = [[b[r.start + 1] - b[r.start] for r, b in zip(box, draft.loops.windows.bounds, strict=True)]]
        if draft.loops.tiling is not None:
            (tile,) = box[0]
            for shape, bounds in zip(shapes, draft.loops.tiling.results, strict=True):
                shape[0] = bounds[tile + 1] - bounds[tile]
        return [_array(shape, dtype) for shape, dtype in zip(shapes, spec.stores, strict=True)]

    def _scratch(self, args: Sequence[Any]) -> int:
        """What a task makes for itself alone: generated and assembled operands, and what was sent along with it."""
        nbytes = 0
        for a in args:
            if isinstance(a, TileSpec):
                nbytes += sum(prod(stop - start for start, stop in g.box) * g.dtype.itemsize for g in a.generated)
                nbytes += sum(prod(r.shape) * r.dtype.itemsize for r in (*a.assembled, *a.reads) if len(r.parts) > 1)
            elif self._is_cluster and isinstance(a, np.ndarray):
                nbytes += a.nbytes
        return nbytes


def _links(
    key: Key, function: Callable[..., Any], args: list[Any]
) -> Iterator[tuple[Key, Callable[..., Any], list[Any], list[Key]]]:
    """What a task does: the links that it was fused of (`execution.fuse`), and those whose results go after each."""
    if function is not tasks.run_chain:
        yield key, function, args, []
        return
    links: Sequence[Link] = args[0]
    given = iter(args[1:])
    # The last link makes the result of the task; the others have keys that no task has.
    names = [*[link.key for link in links[:-1]], key]
    for name, link in zip(names, links, strict=True):
        here = list(islice(given, link.n_args))
        for i, n in link.places:
            here[i] = names[n]
        yield name, link.function, here, [names[n] for n in link.dropped]


def _name(ref: Any) -> Any:
    """Arrays by identity, keys by value."""
    return ref if isinstance(ref, (tuple, str)) else id(ref)


def liveness(lowered: Lowered, graph: Graph, *, is_cluster: bool, n_threads: int = 1) -> Liveness:
    """The bytes that the tasks of an evaluation need on each member.

    Parameters
    ----------
    lowered, graph
        What would run, and the nodes that it computes.
    is_cluster
        Whether members are processes of their own: what one sends to another is then there twice.
    n_threads
        Tasks that a member runs at a time.
    """
    return _Walk(lowered, graph, is_cluster=is_cluster, n_threads=n_threads).run()
