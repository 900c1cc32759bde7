"""Blocks that are still to be made when their array exists already: by tasks of somebody else, at their first use.

On a cluster these tasks are sent along with those of the first evaluation that reads the blocks, and only those that it
reads; or they are steps of its member programs, where not all blocks fit at once (`member_runs`). In this process all
blocks are made before an evaluation takes the lock: making them may run code of the user.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from dask._task_spec import DataNode, execute_graph
from dask.sizeof import sizeof

from distarray.expr.expr import Environment, Expr, LazyBlocks, Others, postorder
from distarray.runtime.members import executor_for
from distarray.runtime.shipping import shipped
from distarray.runtime.wire import EMBED_NBYTES

if TYPE_CHECKING:
    from dask._task_spec import Task

Key: TypeAlias = Any  # dask's: a string or a tuple


class Promise(NamedTuple):
    """A Promise is a block that the task of this key is to make."""

    key: Key


class Sources(NamedTuple):
    """Sources are tasks that make blocks, by key, in any order; and the members of those that are bound to one."""

    tasks: Mapping[Key, Task]
    members: Mapping[Key, int]


#: Blocks that are to be made in this process.
_here: weakref.WeakSet[PromisedBlocks] = weakref.WeakSet()
#: Whether there have been any: only graphs of Dask make them, and every evaluation asks.
_has_been = False


class PromisedBlocks(LazyBlocks):
    """PromisedBlocks are the blocks of an array, some of them still to be made; looking at one of these makes all.

    Parameters
    ----------
    env
        Where they are to be.
    keys
        Of each.
    make
        Makes the blocks of all numbers in this process; or the `Sources` of some, on a cluster.
    """

    def __init__(self, env: Environment, keys: Sequence[Key], make: Callable[[Sequence[int]], Any]) -> None:
        self.env = env
        #: The blocks that there are, and promises.
        self._handles: list[Any] = [Promise(key) for key in keys]
        self.make: Callable[[Sequence[int]], Any] | None = make
        #: By number of a block that is made alone the tasks that do it; None before somebody asks.
        self._alone: dict[int, dict[Key, Task]] | None = None
        self._lock = threading.RLock()
        self._is_here = not env.is_cluster
        if self._is_here:
            global _has_been
            _has_been = True
            _here.add(self)

    def __len__(self) -> int:
        return len(self._handles)

    @property
    def handles(self) -> Sequence[Any]:
        return self._handles

    def __getitem__(self, number: Any) -> Any:  # an integer, or a slice
        if self.make is not None:
            self.make_all()
        return self._handles[number]

    def promised(self) -> dict[Key, int]:
        """Return numbers of the blocks that are still to be made, by key."""
        return {block.key: i for i, block in enumerate(self._handles) if type(block) is Promise}

    def made_alone(self) -> Collection[int]:
        """Return the numbers of blocks that are made by tasks that make no other block, of nothing that is there."""
        if self._alone is None:
            self._alone = {} if self.make is None else _tasks_of_each(self.make(()).tasks, self.promised())
        return self._alone.keys()

    def maker(self, number: int) -> Any:
        """Return what makes a block that is made alone: a function without arguments, as it travels."""
        assert self._alone is not None
        (found,) = shipped([partial(_made, self._alone[number], self._handles[number].key)])
        return found

    def make_all(self) -> None:
        """Make what is still to be made; on a cluster without waiting for it."""
        # First, since it may wait for who evaluates, and who evaluates for the lock.
        executor = None if self._is_here else executor_for(self.env)
        with self._lock:
            if self.make is None:
                return
            numbers = self.promised()
            if executor is None:
                found = dict(zip(numbers, self.make(list(numbers.values())), strict=True))
            else:
                sources = self.make(list(numbers.values()))
                tasks = _first_needed({}, sources.tasks, numbers)
                found = executor.submit(tasks, sources.members, list(numbers))
            self.settle(found)

    def settle(self, found: Mapping[Key, Any]) -> None:
        """Note blocks that were made."""
        with self._lock:
            self._handles = [
                found.get(block.key, block) if type(block) is Promise else block for block in self._handles
            ]
            if not self.promised():
                self.make = self._alone = None  # and what they hold
                _here.discard(self)


def _tasks_of_each(tasks: Mapping[Key, Any], wanted: Mapping[Key, int]) -> dict[int, dict[Key, Any]]:
    """Return, by the number of each wanted result that shares no task with another, the tasks that make it.

    Small data may be shared; what refers to anything else than these tasks is left out.
    """
    found: dict[int, dict[Key, Any]] = {}
    owners: dict[Key, int] = {}
    shared: set[int] = set()
    for wanted_key, number in wanted.items():
        own = found[number] = {}
        stack = [wanted_key]
        while stack:
            key = stack.pop()
            task = tasks.get(key)
            if key in own:
                continue
            if task is None:
                shared.add(number)
            elif type(task) is DataNode and sizeof(task.value) <= EMBED_NBYTES:
                own[key] = task
            elif (first := owners.setdefault(key, number)) != number:
                shared |= {first, number}
            else:
                own[key] = task
                stack.extend(task.dependencies)
    return {number: own for number, own in found.items() if number not in shared}


def _made(tasks: dict[Key, Any], key: Key) -> Any:
    return execute_graph(tasks, keys={key})[key]


def promised_of(node: Expr) -> PromisedBlocks | None:
    """Return the blocks of a node, if some of them are still to be made."""
    blocks = None if node.memo is None else node.memo.blocks
    return blocks if isinstance(blocks, PromisedBlocks) and blocks.make is not None else None


def make_here(targets: Iterable[Expr]) -> None:
    """Make the blocks in this process that targets read. Not under the lock."""
    if _has_been and _here:
        for node in postorder(targets):
            if node.memo is not None and isinstance(node.memo.blocks, PromisedBlocks) and node.memo.blocks in _here:
                node.memo.blocks.make_all()


def read_once(nodes: Iterable[Expr], others: Others) -> set[int]:
    """Return the ``id`` of nodes whose promised blocks nobody needs but who evaluates them now.

    Parameters
    ----------
    others
        What is pending elsewhere; None: that cannot be told, and it may need all of them.
    """
    dead = {id(node) for node in nodes if not node.is_live}
    pending = others() if dead else ()
    return set() if pending is None else dead.difference(map(id, postorder(pending)))


class Joined(NamedTuple):
    """A Joined is an evaluation with the tasks that make what it reads."""

    tasks: Mapping[Key, Task]
    members: Mapping[Key, int]
    keep: Sequence[Key]
    blocks: Sequence[PromisedBlocks]

    def settle(self, found: Mapping[Key, Any]) -> None:
        """Note the promised blocks that are being made."""
        for blocks in self.blocks:
            blocks.settle(found)


def joined(
    nodes: Iterable[Expr],
    tasks: Mapping[Key, Task],
    members: Mapping[Key, int],
    keep: Sequence[Key],
    read: Collection[Key],
    others: Others = tuple,
) -> Joined:
    """Return the tasks of an evaluation on a cluster, and those that make the promised blocks that it reads.

    Parameters
    ----------
    nodes
        Of the evaluation.
    keep
        Keys of results that are kept. Blocks of what is live, or pending elsewhere, are kept too.
    read
        Keys that it reads; those that its tasks depend on are among them in any case.
    """
    waiting = [(node, blocks) for node in nodes if (blocks := promised_of(node)) is not None]
    if not waiting:
        return Joined(tasks, members, keep, ())
    asked = {*keep, *read}.union(*[task.dependencies for task in tasks.values()])
    once = read_once([node for node, _ in waiting], others)
    sources: dict[Key, Task] = {}
    bound, kept = dict(members), dict.fromkeys(keep)
    for node, blocks in waiting:
        numbers = {key: number for key, number in blocks.promised().items() if key in asked}
        assert blocks.make is not None
        made = blocks.make(list(numbers.values()))
        sources |= made.tasks
        bound |= made.members
        if id(node) not in once:
            kept |= dict.fromkeys(numbers)
    ordered = _first_needed(tasks, sources, {**kept, **dict.fromkeys(read)})
    return Joined(ordered, bound, list(kept), [blocks for _, blocks in waiting])


def _first_needed(tasks: Mapping[Key, Task], sources: Mapping[Key, Task], wanted: Collection[Key]) -> dict[Key, Task]:
    """Return the tasks in an order in which they can run, and each source that they or `wanted` need before its first
    reader.
    """
    ordered: dict[Key, Task] = {}

    def add(root: Key) -> None:
        stack = [(root, False)]
        while stack:
            key, is_ready = stack.pop()
            if key in ordered or key not in sources:
                continue
            if is_ready:
                ordered[key] = sources[key]
                continue
            stack.append((key, True))
            stack.extend((parent, False) for parent in sources[key].dependencies)

    for key, task in tasks.items():
        for parent in task.dependencies:
            add(parent)
        ordered[key] = task
    for key in wanted:
        add(key)
    return ordered
