"""Plan: what the planner decides about a set of pending nodes, as frozen records.

A plan names nodes by their number in the canonical walk (`planner.graph`), never by their values, extents or
positions, so that it can be run again for another set of nodes with the same key. `lower` turns a plan and the
actual nodes into tasks.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from distarray.expr.instructions import Instruction, Operand
from distarray.expr.op import FAMILIES, Family, Kind
from distarray.sharding.mesh import Mesh

#: What plans say of who made them that have all stages at one member (`planner.alone`).
ALONE = "one member"
#: Partial results that one combining task takes.
FAN_IN = 8
#: Bytes, where there is no limit to them.
UNBOUNDED = 1 << 62


def combining_tree(n_partials: Any) -> tuple[Any, Any]:
    """Return the levels of the tree that combines so many partial results of one block, and its tasks.

    >>> levels, tasks = combining_tree(np.array([1, 2, 8, 9, 64, 65]))
    >>> levels.tolist(), tasks.tolist()
    ([0, 1, 1, 2, 2, 3], [0, 1, 1, 3, 9, 12])
    """
    left = np.asarray(n_partials)
    levels, tasks = np.zeros_like(left), np.zeros_like(left)
    while (left > 1).any():
        merged = -(-left // FAN_IN)
        levels, tasks = levels + (left > 1), tasks + np.where(left > 1, merged, 0)
        left = merged
    return levels, tasks


#: What a stage does with the regions that it reads, one row for each in `lower.lower.PASSES`: a family of operations
#: whose stages have one operation, or a program of those that are fused.
StageKind: TypeAlias = Kind | Literal["program"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits say how large blocks and tiles may be, and what a member may hold, in bytes.

    Parameters
    ----------
    block
        An array up to this size stays one block.
    tile
        No tile that the planner chooses is larger: longer axes get wave axes.
    member
        What a member may have at once.
    """

    block: int
    tile: int
    member: int = UNBOUNDED


@dataclass(frozen=True, slots=True)
class Access:
    """An Access says which node a stage reads, and through which views.

    Parameters
    ----------
    node
        Number of the node that is read: stored, or created on the spot.
    path
        Numbers of the nodes between it and the stage, outward: a ``get`` node composes its lens, any other node
        broadcasts to its shape.
    """

    node: int
    path: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Combine:
    """A Combine is a reduction in the pass of its stage: `register` reduced over `axes` into node number `node`."""

    node: int
    register: int
    monoid: str
    axes: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Whole:
    """A Whole leaves all loops in one tile."""


@dataclass(frozen=True, slots=True)
class Written:
    """A Written cuts loops as the base that is written lies, seen through the lens."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """A Pinned cuts loops as the user asked for a node, given by its number."""

    node: int


@dataclass(frozen=True, slots=True)
class Followed:
    """A Followed cuts loops as operands lie: these, by their positions, the first one first."""

    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Along:
    """An Along cuts one loop over the whole mesh."""

    loop: int


class JoinedPiece(NamedTuple):
    """A JoinedPiece is a write into a created array, of what is made of an array that lies cut.

    Parameters
    ----------
    write
        Number of the node that writes.
    source
        Number of the node that lies cut.
    axis
        Of the source: what runs along the loop of the created array.
    """

    write: int
    source: int
    axis: int


@dataclass(frozen=True, slots=True)
class Assembled:
    """An Assembled cuts one loop of a created array as its pieces lie, which are written one after the other: every
    tile of a piece stays at its member, and members have tiles of each piece. Where they lie in different ways, or
    in too many rounds, it is cut over the whole mesh.
    """

    loop: int
    pieces: tuple[JoinedPiece, ...]


class Corner(NamedTuple):
    """A Corner is the members that have the tiles of a loop where not all have: of the others it has empty parts.

    Parameters
    ----------
    loop
        Number of the loop.
    coordinates
        Those of the members along the first axes of the mesh, which are the major ones of those that cut the loop.
    """

    loop: int
    coordinates: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Parts:
    """A Parts cuts every loop into a number of parts, over axes of a mesh.

    Parameters
    ----------
    parts
        Of each loop.
    axes
        Per loop the axes of `mesh` that cut it, minor first.
    mesh
        The team's mesh in prime axes, or one of fewer places; whoever owns its places is not said.
    order
        Positions of operands: blocks lie in memory as those of the first one.
    corner
        The members that have tiles; None: all.
    """

    parts: tuple[int, ...]
    axes: tuple[tuple[str, ...], ...]
    mesh: Mesh
    order: tuple[int, ...] = ()
    corner: Corner | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """A Cut is how the loops of a stage are cut, as a decision that holds for any extents.

    Parameters
    ----------
    rule
        How they are cut over the mesh.
    waves
        (loop, number) pairs: what a place has of a loop is cut further, into so many tiles that follow each other.
    """

    rule: Whole | Written | Pinned | Followed | Along | Assembled | Parts
    waves: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Stage:
    """A Stage is a group of operations that become one task for each tile of its loops.

    Parameters
    ----------
    kind
        See `StageKind`.
    nodes
        Numbers of the nodes that it computes, in program order. All of a program have the same loops.
    reads
        Operands.
    instructions
        The elementwise program; its first registers are the reads.
    scalars
        (node, operand position) of each run-time scalar.
    stores
        (register, node): results that are stored in full.
    combines
        Reductions.
    write
        (what is written, node): the new version of a base that the stage makes.
    inlined
        Nodes that its program computes for itself, in part, beside those that it is for.
    sources
        By instruction the node whose operation it is.
    cut
        How its loops are cut.
    chain
        Number of the chain of halo stages that it is in (`planner.halos`); -1 if it is in none.
    """

    kind: StageKind
    nodes: tuple[int, ...]
    reads: tuple[Access, ...]
    instructions: tuple[Instruction, ...] = ()
    scalars: tuple[tuple[int, int], ...] = ()
    stores: tuple[tuple[int, int], ...] = ()
    combines: tuple[Combine, ...] = ()
    write: tuple[Operand, int] | None = None
    inlined: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()
    cut: Cut = Cut(Whole())
    chain: int = -1

    @property
    def family(self) -> Family:
        """Return what layers ask of all stages of its kind; programs are made of operations that are fused."""
        return FAMILIES[self.kind] if self.kind != "program" else FAMILIES["map"]

    @property
    def is_separable(self) -> bool:
        """Return whether its tiles along a free loop need nothing of each other, and read what they are said to."""
        family = self.family
        return not (family.is_tiled or family.is_item or family.is_write)

    @property
    def written(self) -> int:
        """Return the number of the node that it makes as a new version of that node's first operand; -1 if none."""
        if self.write is not None:
            return self.write[1]
        return self.nodes[0] if self.family.is_write else -1


@dataclass(frozen=True, slots=True)
class Plan:
    """A Plan is the stages of an evaluation with their cuts, in an order in which they can run.

    Parameters
    ----------
    stages
        Operands before users.
    outputs
        Numbers of the nodes whose results are kept.
    planner
        Which planner made it.
    alternatives
        What else it considered, for people to read.
    is_provisional
        Whether a search might find a better one, at a price that one run does not repay.
    above
        Where no plan that was tried keeps to the memory limit: bytes that a member holds by this one, and the stage
        that makes it do so.
    beside
        Bytes that lay on a member when it was made, beside what it reads: what passes through in turns leaves room.
    serial
        Tells it from every other plan of this process; what is remembered of a plan is found by it.

    Notes
    -----
    A plan has no extents, so it has no bytes either: what it moves and holds for given nodes is what its lowering says
    (`diagnostics.explain`).
    """

    stages: tuple[Stage, ...]
    outputs: tuple[int, ...]
    planner: str = "propagation"
    alternatives: tuple[str, ...] = ()
    is_provisional: bool = False
    above: tuple[int, int] | None = None
    beside: int = 0
    serial: int = field(default_factory=itertools.count().__next__, init=False, compare=False)
