"""Recipes: tasks whose arguments are named by what they are, so that they can be filled in for every run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

from distarray.kernels.tasks import run_fused
from distarray.lower.messages import Key
from distarray.sharding.dealing import dealt
from distarray.sharding.sharding import Sharding


class Leaf(NamedTuple):
    """A Leaf is a block of an evaluated node, by the number of the node and of the tile: filled in for every run."""

    node: int
    number: int


class Unsent(NamedTuple):
    """An Unsent stands, where a plan is tried, for a block of host data that is to be sent to a cluster first.

    Parameters
    ----------
    name
        Of the array: which of those that are to be sent it is.
    number
        Of the block.
    """

    name: int
    number: int


def unsent_blocks(cut: Sharding, name: int) -> list[Unsent]:
    """Return what stands for the blocks, copies included, of host data that are to be cut so."""
    return [Unsent(name, number) for number in range(len(dealt(cut).places))]


class ClientBox(NamedTuple):
    """A ClientBox is a box of host data that travels with a task."""

    node: int
    slices: tuple[slice, ...]


#: What a task is for: to make a tile of a stage, to combine partial results, to keep a tile of another member, to make
#: a part of what is sent or put together, to take one of several results out of a tuple, to call a function on a block.
TaskKind: TypeAlias = Literal["tile", "combine", "copy", "piece", "project", "call"]


class Recipe(NamedTuple):
    """A Recipe is a task whose arguments are still named by what they are: keys without a run, `Leaf` and `ClientBox`.

    `waits` are tasks that come before it although it reads nothing of them, so that not too much is under way: its
    function gets their results last, and leaves them alone.
    """

    kind: TaskKind
    function: Callable[..., Any]
    args: tuple[Any, ...]
    waits: tuple[Key, ...] = ()

    def reads(self) -> list[Key]:
        """Return the tasks that it reads, or waits for."""
        return [*[a for a in self.args if type(a) is tuple and is_key(a)], *self.waits]

    def stages(self, key: Key) -> list[int]:
        """Return the numbers of the stages that the task of a key is of: several, if it was fused of their tasks."""
        return [link.key[1] for link in self.args[0]] if self.function is run_fused else [key[1]]


def named(key: Key, run: str) -> Key:
    """Return the key of a task in a run of this name."""
    return (f"{key[0]}-{run}", *key[1:])


def is_key(a: tuple[Any, ...]) -> bool:
    """Return whether an argument that is a tuple is the key of another task."""
    return len(a) >= 3 and isinstance(a[0], str) and a[0].startswith("dx-")
