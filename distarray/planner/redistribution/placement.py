"""Where the places of a redistribution are: on which member of a team each lies, and on which node each member.

Several places may lie on one member (wave axes, or meshes finer than the team); what they exchange costs nothing. Links
between members come in classes, nearest first: one member, one node, the network.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from distarray.errors import ShardingError
from distarray.planner.rates import Rates
from distarray.planner.redistribution.places import IntArray

__all__ = ["MEMBER", "NETWORK", "NODE", "FloatArray", "Placement", "link_rates", "placed"]

FloatArray: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

#: Classes of links: within a member, between members of one node, between nodes.
MEMBER: Final = 0
NODE: Final = 1
NETWORK: Final = 2


@dataclass(frozen=True, slots=True)
class Placement:
    """On which member each place lies.

    Parameters
    ----------
    src, dst
        Member of every place of the source and of the target, by number.
    nodes
        Node of every member, by number; ``()`` if each has one of its own.
    """

    src: tuple[int, ...]
    dst: tuple[int, ...]
    nodes: tuple[int, ...] = ()

    @property
    def n_members(self) -> int:
        """Number of members, those without places included."""
        return 1 + max((*self.src, *self.dst, len(self.nodes) - 1))

    @property
    def most_places(self) -> int:
        """Places of the member that has most of them, at either end."""
        return int(max(np.bincount(self.src).max(), np.bincount(self.dst).max()))

    def links(self, a: IntArray, b: IntArray) -> IntArray:
        """The class of the link between members, elementwise."""
        if not self.nodes:
            return np.where(a == b, MEMBER, NETWORK)
        node = np.array(self.nodes, np.int64)
        return np.where(a == b, MEMBER, np.where(node[a] == node[b], NODE, NETWORK))


def placed(
    n_src: int,
    n_dst: int,
    members: Sequence[int] | None,
    dst_members: Sequence[int] | None,
    nodes: Sequence[Hashable] | None,
) -> Placement | None:
    """The placement that these say; None for one place on each member, all with links of one class.

    Parameters
    ----------
    n_src, n_dst
        Places of source and target.
    members, dst_members
        Member of every place of the source and of the target. Without the latter, targets with as many places lie as
        the source does, others on members of their own.
    nodes
        Something that tells the nodes of members apart, by the number of the member.

    Raises
    ------
    ShardingError
        If a place has no member, or a member no node.

    Examples
    --------
    >>> placed(4, 4, None, None, None)
    >>> placed(4, 4, [0, 0, 1, 1], None, ["a", "b"])
    Placement(src=(0, 0, 1, 1), dst=(0, 0, 1, 1), nodes=(0, 1))
    """
    src = _checked(members, n_src, "members") if members is not None else tuple(range(n_src))
    if dst_members is not None:
        dst = _checked(dst_members, n_dst, "dst_members")
    elif n_src == n_dst:
        dst = src
    else:
        first = max(src) + 1
        dst = tuple(range(first, first + n_dst))
    numbers: dict[Hashable, int] = {}
    where = tuple([numbers.setdefault(node, len(numbers)) for node in nodes or ()])
    if nodes is not None and len(where) <= max((*src, *dst)):
        raise ShardingError(f"nodes says where {len(where)} members are, but there is a member {max((*src, *dst))}")
    if len(numbers) == len(where):
        where = ()
    if not where and src == dst == tuple(range(n_src)):
        return None
    return Placement(src, dst, where)


def _checked(members: Sequence[int], n: int, name: str) -> tuple[int, ...]:
    found = tuple([int(m) for m in members])
    if len(found) != n or any(m < 0 for m in found):
        raise ShardingError(f"{name} must say the member, a number from 0, of each of {n} places, not {list(found)}")
    return found


def link_rates(rates: Rates) -> tuple[FloatArray, FloatArray]:
    """Seconds per message and per byte, by the class of the link. A bandwidth of 0 is unknown, and not counted."""
    latency = rates.node_latency if rates.node_latency is not None else rates.latency
    bandwidth = rates.node_bandwidth if rates.node_bandwidth is not None else rates.bandwidth
    per_byte = [1 / b if b else 0.0 for b in (bandwidth, rates.bandwidth)]
    return np.array([0.0, latency, rates.latency]), np.array([0.0, *per_byte])
