"""How much memory the tasks of an evaluation need on each member: a walk that makes and frees what they make.

In this process members are threads: the walk takes the tasks in the order in which `lower` lists them, and frees a
result after its last reader, as executors do.

On a cluster no order is sure but that of what waits for what, and the walk is one of each worker by itself, told by its
own tasks. Whatever others may have done by then has arrived: all that a task reads, as soon as all of it may be there.
Whatever others need not have done yet still lies here: a piece goes when a task here runs that could not before it was
read. A worker that waits for others goes on with what it has: so its tasks come once in the order of the plan, and once
with those first that wait for the fewest others. What nobody needs any more goes while the next task runs, since it is
the scheduler that says so. Where a worker has several threads, as many tasks as may run besides count with what the
largest ones need.

Blocks that were there before stay, also those of other arrays, and copies that are kept for the loss of a worker; sizes
that depend on data count with their bound. No task runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappush, heapreplace, nlargest
from itertools import islice
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from distarray.expr.joins import PRODUCT
from distarray.kernels import tasks
from distarray.kernels.products import matrix_product
from distarray.kernels.specs import Finish, Link, StageSpec, TileSpec
from distarray.kernels.tables import SCRATCH
from distarray.lower.calls import CALL
from distarray.lower.credits import Sizes
from distarray.lower.messages import Key
from distarray.lower.precedence import Precedence
from distarray.lower.recipes import Unsent
from distarray.lower.template import Lowered
from distarray.planner.graph import Graph
from distarray.sharding.dealing import dealt, n_elements
from distarray.sharding.sharding import Sharding


@dataclass(frozen=True, slots=True)
class Liveness:
    """A Liveness says how many bytes of blocks each member holds over one evaluation.

    Parameters
    ----------
    resident
        By member: blocks that are there before and stay, host data that are sent first and their copies included.
    peak
        By member: the most at any time, `resident` included.
    stage_peak
        By number of the stage: the most on any member while a task of the stage runs, and no other.
    largest, stage_largest
        By member: the most that its tasks make at a time, and what they read and make; by number of the stage that of
        one task.
    sent
        By member, for each array of host data that is sent first, the largest first: what the member holds when it has
        come, and what comes to it, copies of others' blocks included.
    """

    resident: Mapping[int, int]
    peak: Mapping[int, int]
    stage_peak: Mapping[int, int]
    largest: Mapping[int, tuple[int, int]]
    sent: Mapping[int, Sequence[tuple[int, int]]]
    stage_largest: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def worst(self) -> tuple[int, int]:
        """Return the bytes of the member that holds most at any time, and the stage at which most is held."""
        return max(self.peak.values(), default=0), max(self.stage_peak, key=self.stage_peak.__getitem__, default=0)


class _MadeArray(NamedTuple):
    """A _MadeArray is an array that a task makes."""

    nbytes: int
    itemsize: int


def _array(shape: Sequence[int], dtype: np.dtype[Any]) -> _MadeArray:
    return _MadeArray(prod(shape) * dtype.itemsize, dtype.itemsize)


def _partial(finish: Finish, shape: Sequence[int]) -> _MadeArray:
    """Return a partial result over a tile of this shape, all arrays of its state as one."""
    kept = tuple(1 if axis in finish.axes else n for axis, n in enumerate(shape))
    return _MadeArray(prod(kept) * finish.itemsize, finish.accumulator.itemsize)


class Standing(NamedTuple):
    """A Standing is what is known of the workers of a cluster before an evaluation: what they hold.

    Parameters
    ----------
    held
        Bytes by member, of all arrays and copies of this client.
    spares
        By member the one that gets the copies of its blocks.
    is_copied
        Whether what is made and kept gets copies at once.
    serving
        Of members that one worker serves, the one that stands for all of them; nothing of the others.
    uncopied
        Bytes up to which a block of host data gets no copy: it travels with the tasks.
    """

    held: Mapping[int, int] = MappingProxyType({})
    spares: Mapping[int, int] = MappingProxyType({})
    is_copied: bool = False
    serving: Mapping[int, int] = MappingProxyType({})
    uncopied: int = 0

    def copied_to(self, member: int, nbytes: int, sharding: Sharding, number: int) -> int | None:
        """Return the member that gets a copy of a block of host data that is sent to another; None if none does: of
        small blocks, and those that are copies of tiles.
        """
        return self.spares.get(member) if nbytes > self.uncopied and number < sharding.n_tiles else None


def _largest_before(values: Iterable[int], n: int) -> list[tuple[int, ...]]:
    """Return for each value the `n` largest of those before it.

    >>> _largest_before([3, 1, 2, 5], 2)
    [(), (3,), (1, 3), (2, 3)]
    """
    heap: list[int] = []
    found = []
    for value in values:
        found.append(tuple(heap))
        if len(heap) < n:
            heappush(heap, value)
        elif value > heap[0]:
            heapreplace(heap, value)
    return found


class _Made(NamedTuple):
    """A _Made says how many bytes a task needs while it runs, stage by stage if it is fused, and which blocks its
    result keeps.

    Parameters
    ----------
    numbers
        Of the blocks that are new, and that its result refers to.
    needs
        (Stage, bytes beside what lies there before it) at each of the tasks that it was fused of.
    """

    numbers: tuple[int, ...]
    needs: tuple[tuple[int, int], ...]

    @property
    def most(self) -> int:
        return max([nbytes for _, nbytes in self.needs], default=0)


class _Simulation:
    def __init__(self, lowered: Lowered, graph: Graph, *, is_cluster: bool, n_threads: int, standing: Standing) -> None:
        self._lowered = lowered
        self._is_cluster = is_cluster
        self._n_threads = n_threads
        self._standing = standing
        at = standing.serving
        self._members = {key: at.get(m, m) for key, m in lowered.members.items()} if at else lowered.members
        self._tiles: dict[int, dict[int, Any]] = {}
        self._peak: defaultdict[int, int] = defaultdict(int)
        self._stage_peak: defaultdict[int, int] = defaultdict(int)
        #: Blocks of nodes that are stored before, by their key: (member, size).
        self._stored: dict[Any, tuple[int, _MadeArray]] = {}
        #: What each result refers to: numbers of blocks. A projection refers to blocks of its parent.
        self._holds: dict[Key, tuple[int, ...]] = {}
        self._blocks: list[_MadeArray] = []
        #: Results that refer to a block.
        self._references: list[int] = []
        #: Of parts that together are no more than one of them may be: what each counts with where all of them come.
        self._coming: dict[Any, int] = {}
        here: Counter[int] = Counter()
        beside: Counter[int] = Counter()
        sent: list[Counter[int]] = []
        for node in graph.nodes:
            memo = node.memo
            if memo is None or memo.on_client or isinstance(node.dtype, tuple):
                continue
            coming: Counter[int] = Counter()
            sizes, places = n_elements(memo.sharding, node.shape), dealt(memo.sharding).places
            for n, (home, _), ref in zip(sizes, places, memo.handles, strict=True):
                member = at.get(home, home)
                block = _array((n,), node.dtype)
                self._stored[_name(getattr(ref, "key", ref))] = member, block
                if is_cluster and type(ref) is Unsent:
                    coming[member] += block.nbytes
                    if (spare := standing.copied_to(member, block.nbytes, memo.sharding, ref.number)) is not None:
                        coming[spare] += block.nbytes
                elif is_cluster and isinstance(ref, tuple):  # tasks of others make it when it is read
                    beside[member] += block.nbytes
                else:
                    here[member] += block.nbytes
            if coming:
                sent.append(coming)
        # Blocks of the graph are among those that the client knows of, if they are on a cluster.
        members = {*here, *beside, *standing.held, *[m for coming in sent for m in coming]}
        self._resident = {m: max(here[m], standing.held.get(m, 0)) + beside[m] for m in members}
        self._sent: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for coming in sorted(sent, key=lambda coming: -coming.total()):
            for m, nbytes in coming.items():
                self._resident[m] += nbytes
                self._sent[m].append((self._resident[m], nbytes))
        self._kept = {ref for output in lowered.outputs.values() for ref in output.refs if isinstance(ref, tuple)}
        self._made = {key: self._task(key) for key in lowered.tasks}

    def sizes(self) -> Sizes:
        """Return what each task makes, and what it needs for that."""
        results = {key: self._size_of(key) for key in self._made}
        return Sizes(results, {key: made.most for key, made in self._made.items()}, self._coming)

    def run(self) -> Liveness:
        n_tasks = Counter(self._members.values())
        if self._is_cluster:
            precedence = Precedence(self._lowered, self._members)
            for member in n_tasks:
                for order in precedence.orders(member):
                    self._at_worker(member, order, precedence)
        else:
            self._in_process()
        made_at: dict[int, list[int]] = {m: [] for m in n_tasks}
        used_at: dict[int, list[int]] = {m: [] for m in n_tasks}
        by_stage: dict[int, tuple[int, int]] = {}
        for key, made in self._made.items():
            used = made.most + sum(map(self._size_of, self._read_by(key)))
            made_at[self._members[key]].append(made.most)
            used_at[self._members[key]].append(used)
            before = by_stage.get(key[1], (0, 0))
            by_stage[key[1]] = max(before[0], made.most), max(before[1], used)
        members = sorted(set(self._resident) | set(self._peak))
        peak = {m: max(self._resident.get(m, 0), self._peak[m]) for m in members}
        n = self._n_threads
        at_once = {m: (sum(nlargest(n, made_at[m])), sum(nlargest(n, used_at[m]))) for m in n_tasks}
        return Liveness(self._resident, peak, dict(self._stage_peak), at_once, self._sent, by_stage)

    def _in_process(self) -> None:
        """Run the tasks one after the other, in the order of the plan."""
        lowered = self._lowered
        live = Counter(self._resident)
        uses = Counter(d for task in lowered.tasks.values() for d in task.dependencies)
        for key, task in lowered.tasks.items():
            member = self._members[key]
            self._run(key, member, live[member])
            live[member] += self._size(self._made[key].numbers)
            ended = [key] if not uses[key] else []
            for d in task.dependencies:
                uses[d] -= 1
                if not uses[d]:
                    ended.append(d)
            for d in ended:
                if d not in self._kept and d in self._members:
                    live[self._members[d]] -= self._drop(d)

    def _at_worker(self, member: int, order: Sequence[Key], precedence: Precedence) -> None:
        """Run the tasks of a worker, in an order, while others do as little or as much as they can."""
        references = list(self._references)
        position = {key: n for n, key in enumerate(order)}
        times = precedence.times(position)
        changes: Counter[int] = Counter()
        ends: defaultdict[int, list[Key]] = defaultdict(list)
        arrivals: dict[Any, tuple[int, int]] = {}
        for n, key in enumerate(order):
            remote = [d for d in self._read_by(key) if self._member(d) != member]
            start = max([times.soonest(d) for d in self._lowered.tasks[key].dependencies], default=0)
            for d in remote:
                first, last = arrivals.get(d, (start, n))
                arrivals[d] = min(first, start), max(last, n)
            if key not in self._kept:
                ends[times.latest_end(key) + 1].append(key)
        for d, (first, last) in arrivals.items():
            nbytes = self._coming.get(d) or self._size_of(d)
            changes[first] += nbytes
            changes[last + 2] -= nbytes
        live = self._resident.get(member, 0) + self._copied_to(member)
        beside = self._beside(order)
        for n, key in enumerate(order):
            live += changes[n] - sum([self._drop(ended) for ended in ends[n]])
            self._run(key, member, live, beside[n])
            live += self._size(self._made[key].numbers)
        self._references = references

    def _beside(self, order: Sequence[Key]) -> list[int]:
        """Return for each task of a worker what others may need that run on its other threads meanwhile.

        Of those that come before it what they make counts already, and stays; what they need only while they run may
        be there still.
        """
        n_others = min(self._n_threads, len(order)) - 1
        if not n_others:
            return [0] * len(order)
        made = [self._made[key] for key in order]
        later = reversed(_largest_before([m.most for m in reversed(made)], n_others))
        before = _largest_before([m.most - self._size(m.numbers) for m in made], n_others)
        return [sum(nlargest(n_others, a + b)) for a, b in zip(later, before, strict=True)]

    def _copied_to(self, member: int) -> int:
        """Return the bytes of copies that a worker gets of what others make."""
        if not self._standing.is_copied:
            return 0
        members, spares = self._members, self._standing.spares
        return sum([self._size_of(key) for key in self._kept if spares.get(members[key]) == member])

    def _run(self, key: Key, member: int, before: int, beside: int = 0) -> None:
        """Note what a member holds while a task runs, and others beside it."""
        for stage, nbytes in self._made[key].needs:
            self._stage_peak[stage] = max(self._stage_peak[stage], before + nbytes)
        self._peak[member] = max(self._peak[member], before + self._made[key].most + beside)

    def _task(self, key: Key) -> _Made:
        """Return what a task makes, and what it needs for that; `_holds` is told of its result."""
        task = self._lowered.tasks[key]
        args = [getattr(a, "key", a) for a in task.args]
        own: dict[Key, list[int]] = {}
        live, needs = 0, []
        for link, function, given, dropped in _links(key, task.func, args):
            first = len(self._blocks)
            self._make(link, function, given)
            own[link] = list(range(first, len(self._blocks)))
            live += self._size(own[link])
            needs.append((link[1], live + self._scratch(given) + self._beside_result(function, given)))
            for before in dropped:
                live -= self._drop(before)
        numbers = [n for made in own.values() for n in made if self._references[n]]
        return _Made(tuple(numbers), tuple(needs))

    def _read_by(self, key: Key) -> list[Any]:
        """Return the results and blocks that a task reads: those of host data too that are still to be sent."""
        task = self._lowered.tasks[key]
        return [*task.dependencies, *{a for a in task.args if type(a) is Unsent}]

    def _member(self, key: Any) -> int:
        found = self._members.get(key)
        return self._stored[key][0] if found is None and key in self._stored else -1 if found is None else found

    def _size(self, numbers: Sequence[int]) -> int:
        return sum([self._blocks[n].nbytes for n in numbers])

    def _blocks_of(self, ref: Any) -> list[_MadeArray]:
        """Return the arrays behind an argument: a result, a block that is stored, or data of this process."""
        if isinstance(ref, tuple) and ref in self._holds:
            return [self._blocks[n] for n in self._holds[ref]]
        stored = self._stored.get(_name(ref))
        if stored is not None:
            return [stored[1]]
        return [_MadeArray(int(ref.nbytes), int(ref.dtype.itemsize))] if hasattr(ref, "nbytes") else []

    def _size_of(self, ref: Any) -> int:
        return sum(b.nbytes for b in self._blocks_of(ref))

    def _make(self, key: Key, function: Callable[..., Any], args: Sequence[Any]) -> None:
        numbers: list[int] = []
        # A worker counts what it has in store by key: one memory under two keys is there twice, once it was on disk.
        if function is tasks.project and not self._is_stored(args[1]):
            held = self._holds.get(args[1], ())
            numbers += held[args[0] : args[0] + 1]
        elif function is tasks.run_program and args[1].into >= 0:
            numbers += self._holds[args[2 + args[1].into]]  # more of a tile, filled into the same blocks
        elif function is tasks.run_mosaic and args[1].turn:
            numbers += self._holds[args[-1]]
        else:
            for made in self._results(key, function, args):
                if isinstance(made, int):
                    numbers.append(made)
                    continue
                numbers.append(len(self._blocks))
                self._blocks.append(made)
                self._references.append(0)
        for n in numbers:
            self._references[n] += 1
        self._holds[key] = tuple(numbers)

    def _is_stored(self, key: Any) -> bool:
        """Return whether a result lies in the store of a worker, and not only within a task."""
        return self._is_cluster and key in self._lowered.tasks

    def _drop(self, key: Any) -> int:
        """Let go of a result; the bytes of the blocks that nobody refers to now."""
        freed = 0
        for n in self._holds.get(key, ()):
            self._references[n] -= 1
            if not self._references[n]:
                freed += self._blocks[n].nbytes
        return freed

    def _results(self, key: Key, function: Callable[..., Any], args: Sequence[Any]) -> Sequence[_MadeArray | int]:
        """Return the arrays that a task makes, from its records; numbers are blocks that it takes over."""
        if key[0].startswith(CALL):  # a function that is called with a block, and returns nothing
            return []
        if function is tasks.run_program:
            return self._of_program(args[0], args[1], args[2:])
        if function is tasks.project:
            return self._blocks_of(args[1])[args[0] : args[0] + 1]
        if function is tasks.together:
            return [self._taken_over(a) for a in args]
        if function is tasks.pack:
            boxes, _, _, *refs = args
            itemsize = max([b.itemsize for b in self._blocks_of(refs[0])], default=0)
            return [_MadeArray(sum([self._n_cut(box, r) for box, r in zip(boxes, refs, strict=False)]), itemsize)]
        if function is tasks.run_mosaic:
            return [_array(args[1].whole, args[0].stores[0])]
        if function is tasks.combine_partials:
            spec, _, k, shape, first, *_ = args
            return [_array(shape, spec.finishes[k].dtype)] if shape is not None else self._blocks_of(first)
        if function in (tasks.run_contract, tasks.run_block, tasks.run_fold, tasks.run_tiles):
            return self._of_kernel(key, args[0])
        if function is tasks.take_join:  # each element is in one of the parts
            self._coming.update({part: -(-self._size_of(part) // len(args[2:])) for part in args[2:]})
        if function in (tasks.run_reshape, tasks.run_take, tasks.take_join):
            return [_array(args[1].shape, args[0].stores[0])]
        if function is tasks.take_part:  # values and their positions: at most all of the tile
            block = _array(args[1].shape, args[0].stores[0])
            _, at, n_index, _ = args[0].params
            n_positions = prod(args[1].shape[at : at + n_index]) * len(args[2])
            return [_MadeArray(block.nbytes + n_positions * 8, block.itemsize)]
        if function is tasks.put_part:
            spec, record, boxes = args[:3]
            n_index = len(record.reads) // len(boxes) - 1
            return [_MadeArray(prod(record.shape) * (spec.stores[0].itemsize + 8 * n_index), spec.stores[0].itemsize)]
        if function in (tasks.put_join, tasks.put_here):
            return [self._taken_over(args[3])] if args[2] else self._blocks_of(args[3])
        # A task of a kind that this file does not know makes about as much as it reads.
        return [b for a in args for b in self._blocks_of(a)]

    def _n_cut(self, box: Sequence[Any], ref: Any) -> int:
        """Return the bytes of a box of a block: of slices, or an ellipsis for all of it."""
        blocks = self._blocks_of(ref)
        if box == (Ellipsis,):
            return sum([b.nbytes for b in blocks])
        n = prod(len(range(s.start, s.stop, s.step or 1)) for s in box)
        return n * max([b.itemsize for b in blocks], default=0)

    def _taken_over(self, ref: Any) -> _MadeArray | int:
        """Return the block of an argument, as the block of a result: nothing new, and resident if it was there
        before.
        """
        held = self._holds.get(ref) if isinstance(ref, tuple) else None
        if held:
            return held[0]
        blocks = self._blocks_of(ref)
        is_counted = _name(ref) in self._stored  # else it is data of this process, which become a block of the member
        nbytes = 0 if is_counted else sum([b.nbytes for b in blocks])
        return _MadeArray(nbytes, max([b.itemsize for b in blocks], default=0))

    def _of_program(self, spec: StageSpec, tile: TileSpec, given: Sequence[Any]) -> list[_MadeArray | int]:
        made = [
            self._taken_over(given[arg]) if arg >= 0 else _array(tile.shape, dtype)
            for dtype, arg in zip(spec.stores, tile.reuse or (-1,) * len(spec.stores), strict=True)
        ]
        for finish, shape in zip(spec.finishes, tile.finish, strict=True):
            made.append(_partial(finish, tile.shape) if shape is None else _array(shape, finish.dtype))
        if tile.write is not None:
            base = given[tile.write.arg]
            made.append(self._taken_over(base) if tile.write.is_inplace else self._blocks_of(base)[0])
        return made

    def _of_kernel(self, key: Key, spec: StageSpec) -> list[_MadeArray]:
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

    def _beside_result(self, function: Callable[..., Any], args: Sequence[Any]) -> int:
        """Return what a kernel has beside its result while it makes it."""
        if function is tasks.run_contract:
            along = args[1].along
            return self._copied(*args) + (0 if along is None else along.nbytes)
        if function is tasks.run_block and (scratch := SCRATCH.get(args[0].name)) is not None:
            first = args[1].reads[0]
            return scratch(first.shape, first.dtype, args[0].params)
        return _partials_held(*args[:2]) if function is tasks.run_program else 0

    def _copied(self, spec: StageSpec, tile: TileSpec, *given: Any) -> int:
        """Return the bytes of the operands of a matrix product, and of its result, that are copied to be matrices."""
        labels, result, join, _ = spec.params[:4]
        if join != PRODUCT:
            return 0  # it works box by box
        product = matrix_product(labels, result, *[read.shape for read in tile.reads])
        nbytes = 0
        for n, read in enumerate(tile.reads):
            if not read.parts:
                continue  # an operand without elements, of which there is no tile
            own, (part, *others) = prod(read.shape) * read.dtype.itemsize, read.parts
            is_whole = bool(others) or part.arg >= len(given) or self._size_of(given[part.arg]) == own
            is_half = read.dtype == np.float16
            nbytes += own * (2 if is_half else product.is_copied(n, read.shape, is_whole=is_whole))
        made = prod(product.shape) * spec.stores[0].itemsize
        return nbytes + made * (product.order is not None)

    def _scratch(self, args: Sequence[Any]) -> int:
        """Return what a task makes for itself alone: generated and assembled operands, parts of results, and what was
        sent along with it.
        """
        nbytes = 0
        for a in args:
            if isinstance(a, TileSpec) and a.is_made:
                continue
            if isinstance(a, StageSpec):
                nbytes += 0 if a.parts is None else a.parts.nbytes
            elif isinstance(a, TileSpec):
                nbytes += sum(prod(stop - start for start, stop in g.box) * g.dtype.itemsize for g in a.generated)
                together = (*a.assembled, *a.reads) if a.along is None else a.assembled
                nbytes += sum(prod(r.shape) * r.dtype.itemsize for r in together if len(r.parts) > 1)
            elif self._is_cluster and isinstance(a, np.ndarray):
                nbytes += a.nbytes
        return nbytes


def _partials_held(spec: StageSpec, tile: TileSpec) -> int:
    """Return the bytes of partial results of regions, beside one: of those on top of each other as many are held as two
    has to be doubled to be their number (`monoids.Pairs`), those that lie side by side are copied.
    """
    if len(tile.regions) < 2:
        return 0
    found = 0
    for finish in spec.finishes:
        cells = Counter([tuple([s for a, s in enumerate(r.start) if a not in finish.axes]) for r in tile.regions])
        found += max(cells.values()).bit_length() * _partial(finish, tile.shape).nbytes
    return found


def _links(
    key: Key, function: Callable[..., Any], args: list[Any]
) -> Iterator[tuple[Key, Callable[..., Any], list[Any], list[Key]]]:
    """Yield what a task does: the links that it was fused of (`lower.fuse`), and those whose results go after each."""
    if function is not tasks.run_fused:
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
    """Return arrays by identity, keys by value."""
    return ref if isinstance(ref, (tuple, str)) else id(ref)


#: Where nothing is known beside the graph.
_UNKNOWN = Standing()


def liveness(
    lowered: Lowered, graph: Graph, *, is_cluster: bool, n_threads: int = 1, standing: Standing = _UNKNOWN
) -> Liveness:
    """Return the bytes that the tasks of an evaluation need on each member.

    Parameters
    ----------
    lowered, graph
        What would run, and the nodes that it computes.
    is_cluster
        Whether members are processes of their own: what one sends to another is then there twice.
    n_threads
        Tasks that a member runs at a time.
    standing
        What lies on the workers of a cluster already.
    """
    return _Simulation(lowered, graph, is_cluster=is_cluster, n_threads=n_threads, standing=standing).run()


def sizes_of(lowered: Lowered, graph: Graph) -> Sizes:
    """Return what each task on a cluster makes, and what it needs for that."""
    return _Simulation(lowered, graph, is_cluster=True, n_threads=1, standing=_UNKNOWN).sizes()
