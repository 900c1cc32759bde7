"""The tasks of a plan for one geometry, as records: what lowering makes.

A loop over fixed slices lowers once: its tasks are kept as a `Template` in which blocks are named by node and tile
(`route.Leaf`). `runtime.instantiate` fills in what varies from run to run and makes tasks of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from distarray.kernels.specs import StageSpec
from distarray.lower.messages import Key, Transfer
from distarray.sharding.sharding import Sharding

if TYPE_CHECKING:
    from distarray.lower.records import Draft

__all__ = ["Lowered", "Recipe", "Template", "is_key"]


@dataclass(slots=True)
class Lowered:
    """A Lowered is the tasks of one evaluation, with their members and with what they transfer.

    Parameters
    ----------
    tasks
        The runtime's, in an order in which they can run.
    members
        Rank of the member that runs each.
    after
        Tasks that must wait for others although they read nothing of them: writes in place wait for all readers.
    outputs
        By number of the node: its sharding and, per tile, a key or an array.
    transfers
        Messages between members.
    counts
        Tasks by class: tiles, projections, pieces, combines.
    made
        By member the bytes of blocks that its tasks make.
    drafts
        Per stage of the plan how its loops were cut and what its tiles read: what `explain` adds up.
    """

    tasks: dict[Key, Any] = field(default_factory=dict)
    members: dict[Key, int] = field(default_factory=dict)
    after: dict[Key, set[Key]] = field(default_factory=dict)
    outputs: dict[int, tuple[Sharding, list[Any]]] = field(default_factory=dict)
    transfers: list[Transfer] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    kernels: Counter[tuple[str, Any]] = field(default_factory=Counter)
    made: Counter[int] = field(default_factory=Counter)
    packed_bytes: int = 0
    allocated_bytes: int = 0
    drafts: list[Draft] = field(default_factory=list)

    @property
    def most_nbytes(self) -> int:
        """Return the bytes that a member makes, sends and receives, at most, if it never frees any."""
        total = Counter(self.made)
        for t in self.transfers:
            total[t.source] += t.nbytes
            total[t.destination] += t.nbytes
        return max(total.values(), default=0)


class Recipe(NamedTuple):
    """A Recipe is a task whose arguments are still named by what they are: keys without a run, `Leaf` and `ClientBox`.

    `waits` are tasks that come before it although it reads nothing of them, so that not too much is under way: its
    function gets their results last, and leaves them alone.
    """

    kind: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    waits: tuple[Key, ...] = ()


@dataclass(slots=True)
class Template:
    """A Template is the tasks of a plan for one geometry: all but blocks, scalars, late parameters and the run's name.

    A loop over fixed slices lowers once; what varies from turn to turn is filled in by `runtime.instantiate`.

    Parameters
    ----------
    specs
        The record of each stage that its tasks share, and the number of the stage.
    chains
        Tasks that are one with another, the last of them: of a member in a chain of halo stages.
    lowered
        Everything that does not vary.
    """

    recipes: dict[Key, Recipe] = field(default_factory=dict)
    specs: list[tuple[StageSpec, int]] = field(default_factory=list)
    chains: dict[Key, Key] = field(default_factory=dict)
    lowered: Lowered = field(default_factory=Lowered)


def is_key(a: tuple[Any, ...]) -> bool:
    return len(a) >= 3 and isinstance(a[0], str) and a[0].startswith("dx-")
