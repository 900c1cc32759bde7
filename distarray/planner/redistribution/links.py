"""Where the places of a redistribution are: on which member of a team each lies, and in which process each member.

Several places may lie on one member (wave axes, or meshes finer than the team); what they exchange costs nothing. Links
between members come in classes, nearest first: one process, where a message is sent but nothing moves, one node, the
network.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from distarray.errors import ShardingError
from distarray.planner.rates import Location, Rates
from distarray.planner.redistribution.places import IntArray

FloatArray: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

#: Classes of links: within a member; between members of one process, of one node, of different nodes.
MEMBER: Final = 0
PROCESS: Final = 1
NODE: Final = 2
NETWORK: Final = 3


@dataclass(frozen=True, slots=True)
class MemberMap:
    """A MemberMap says on which member each place of the source and of the target lies.

    Parameters
    ----------
    src, dst
        Member of every place of the source and of the target, by number.
    nodes, processes
        Node and process of every member, by number; ``()`` if each has a node of its own.
    """

    src: tuple[int, ...]
    dst: tuple[int, ...]
    nodes: tuple[int, ...] = ()
    processes: tuple[int, ...] = ()

    @property
    def n_members(self) -> int:
        """Return the number of members, those without places included."""
        return 1 + max((*self.src, *self.dst, len(self.nodes) - 1))

    @property
    def most_places(self) -> int:
        """Return the places of the member that has most of them, at either end."""
        return int(max(np.bincount(self.src).max(), np.bincount(self.dst).max()))

    def links(self, a: IntArray, b: IntArray) -> IntArray:
        """Return the class of the link between members, elementwise."""
        if not self.nodes:
            return np.where(a == b, MEMBER, NETWORK)
        node, process = np.array(self.nodes, np.int64), np.array(self.processes, np.int64)
        found = np.where(node[a] == node[b], NODE, NETWORK)
        return np.where(a == b, MEMBER, np.where(process[a] == process[b], PROCESS, found))


def placed(
    n_src: int,
    n_dst: int,
    members: Sequence[int] | None,
    dst_members: Sequence[int] | None,
    locations: Sequence[Location] | None,
) -> MemberMap | None:
    """Return the placement that these say; None for one place on each member, all with links of one class.

    Parameters
    ----------
    n_src, n_dst
        Places of source and target.
    members, dst_members
        Member of every place of the source and of the target. Without the latter, targets with as many places lie as
        the source does, others on members of their own.
    locations
        Of every member, by its number.

    Raises
    ------
    ShardingError
        If a place has no member, or a member no location.

    Examples
    --------
    >>> placed(4, 4, None, None, None)
    >>> placed(4, 4, [0, 0, 1, 1], None, [("a", 1), ("b", 1)])
    MemberMap(src=(0, 0, 1, 1), dst=(0, 0, 1, 1), nodes=(), processes=())
    >>> placed(2, 2, None, None, [("a", 1), ("a", 2)])
    MemberMap(src=(0, 1), dst=(0, 1), nodes=(0, 0), processes=(0, 1))
    """
    if members is None and dst_members is None and locations is None and n_src == n_dst:
        return None
    src = _checked(members, n_src, "members") if members is not None else tuple(range(n_src))
    if dst_members is not None:
        dst = _checked(dst_members, n_dst, "dst_members")
    elif n_src == n_dst:
        dst = src
    else:
        first = max(src) + 1
        dst = tuple(range(first, first + n_dst))
    last = max((*src, *dst), default=0)
    if locations is not None and len(locations) <= last:
        raise ShardingError(f"locations are given for {len(locations)} members, but there is a member {last}")
    nodes, processes = _numbered([node for node, _ in locations or ()]), _numbered(locations or ())
    if len(set(nodes)) == len(nodes):
        nodes = processes = ()  # all links are alike
    if not nodes and src == dst == tuple(range(n_src)):
        return None
    return MemberMap(src, dst, nodes, processes)


def _numbered(names: Sequence[Hashable]) -> tuple[int, ...]:
    numbers: dict[Hashable, int] = {}
    return tuple([numbers.setdefault(name, len(numbers)) for name in names])


def _checked(members: Sequence[int], n: int, name: str) -> tuple[int, ...]:
    found = tuple([int(m) for m in members])
    if len(found) != n or any(m < 0 for m in found):
        raise ShardingError(f"{name} must say the member, a number from 0, of each of {n} places, not {list(found)}")
    return found


def link_rates(rates: Rates) -> tuple[FloatArray, FloatArray]:
    """Return the seconds per message and per byte, by the class of the link."""
    return np.array([0.0, *[rates.latency] * 3]), np.array([0.0, 0.0, *rates.byte_seconds])
