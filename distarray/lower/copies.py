"""Copies of tiles: blocks that other members have of an array that lies at all of its owners (`Sharding.is_copied`).

A member makes its copy itself where less comes to it so than the copy has bytes: of operands that it has as well,
nothing comes. All others are sent the tile when it is made, once, and keep it. From then on whoever reads the tile
reads the block that is near (`Located.near`). A new version of an array has copies of its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from distarray.expr.expr import calls_functions
from distarray.expr.lens import Affine
from distarray.kernels import tasks
from distarray.lower.combining import of_result
from distarray.lower.recipes import Leaf, is_key
from distarray.lower.records import Copied, Draft, Tile
from distarray.lower.route import Located, Want
from distarray.lower.state import Lowering
from distarray.planner.graph import Graph
from distarray.planner.loops import Loops
from distarray.planner.plan import Plan, Stage
from distarray.sharding.boxes import Box
from distarray.sharding.dealing import dealt

#: What a tile reads: number of the source, lens, and box of the view.
Read: TypeAlias = tuple[int, Affine, Box]


def wanted(plan: Plan, graph: Graph) -> set[int]:
    """Return the nodes that are read for results with copies: who makes a copy may make these too."""
    found = {i for i, node in enumerate(graph.nodes) if node.memo is None and node.pin and node.pin.is_copied}
    for stage in reversed(plan.stages) if found else ():
        if not found.isdisjoint(stage.nodes):
            found.update(graph.read_by(stage))
    return found


def copied_results(low: Lowering, stage: Stage, loops: Loops, results: Iterable[int]) -> list[Copied]:
    """Return the results of a stage that have copies or may have some, and the loop that each of their axes is."""
    found: list[Copied] = []
    for i in results:
        several = low.several.get(i) or [low.located[i]]
        if not (i in low.wanted or any(at.copies for at in several)):
            continue
        combine = next((c for c in stage.combines if c.node == i), None)
        if i == stage.written:
            axes: Sequence[tuple[int | None, ...] | None] = [None]
        elif combine is not None:
            axes = [of_result(low, combine, range(len(loops.extents)), None)]
        else:
            axes = loops.results or [tuple(range(len(loops.extents)))]
        found += [Copied(at, of, _owners(at)) for at, of in zip(several, axes, strict=True)]
    return found


def _owners(at: Located) -> Mapping[int, tuple[int, ...]]:
    found: defaultdict[int, tuple[int, ...]] = defaultdict(tuple)
    for number, member in dealt(at.sharding.with_copies()).copies:
        found[number] += (member,)
    return found


def makers(low: Lowering, draft: Draft, index: Sequence[int], reads: Sequence[Read]) -> list[int]:
    """Return the members that make a tile of the loops again, to have copies of results that it makes.

    Parameters
    ----------
    index
        Of the tile; the member that it is of is none of them.
    reads
        What it reads.
    """
    if not draft.copied or not _is_repeatable(low, draft):
        return []
    nbytes: Counter[int] = Counter()
    numbers = []
    for at, axes, owners in draft.copied:
        number = -1 if axes is None else at.sharding.number([0 if loop is None else index[loop] for loop in axes])
        numbers.append(number)
        for member in owners.get(number, ()):
            nbytes[member] += at.nbytes(number)
    found = [member for member, made in nbytes.items() if _received(low, reads, member) < made]
    for (at, _, owners), number in zip(draft.copied, numbers, strict=True):
        for member in found:
            if member in owners.get(number, ()) and (number, member) not in at.copies:
                at.add_copy(number, member)
    return found


def begin_version(low: Lowering, draft: Draft) -> None:
    """Let the new version that a stage writes have copies where the old one has some."""
    at, below = low.located[draft.stage.written], low.located[draft.base]
    if below.copies:
        at.copies, at.members = dict(below.copies), list(below.members)


def writers(low: Lowering, draft: Draft, tile: tuple[int, ...], reads: Sequence[Read]) -> list[int]:
    """Return the members that write a tile again, since they have copies of the old version; others have none then,
    unless they are sent what is new.
    """
    at, below = low.located[draft.stage.written], low.located[draft.base]
    said, number = dealt(at.sharding).copies, at.sharding.number(tile)
    found = []
    for member in at.sharding.members(tile) if below.copies else ():
        if (number, member) not in below.copies:
            continue
        if _is_repeatable(low, draft) and _received(low, reads, member) < at.nbytes(number):
            found.append(member)
        elif (number, member) not in said:
            del at.copies[number, member]
    return found


def _received(low: Lowering, reads: Sequence[Read], member: int) -> int:
    return sum([low.located[node].far(lens, box, member) for node, lens, box in reads])


def again(draft: Draft, tile: Tile, member: int, wants: list[Want]) -> Tile:
    """Return a tile as another member makes it; its number is one that no other tile of the stage has."""
    number = draft.sharding.n_tiles * (1 + member) + tile.number
    return Tile(tile.index, number, tile.box, member, wants, is_again=True)


def _is_repeatable(low: Lowering, draft: Draft) -> bool:
    """Return whether a tile may be made more than once: it is all of its results, and calls no function of the user."""
    stage = draft.stage
    if stage.family.is_tiled or stage.cut.waves:
        return False
    summed = {*draft.loops.reduced, *[a for c in stage.combines for a in c.axes]}
    if any(draft.sharding.parts[a] > 1 for a in summed):
        return False
    return not any(calls_functions(low.graph.nodes[i]) for i in stage.nodes)


def complete(low: Lowering, draft: Draft) -> None:
    """Send the tiles of a stage to the members that are to have copies, and have not made them."""
    for at, *_ in draft.copied:
        tiles = list(at.sharding.tiles()) if at.copies else []
        for (number, member), copy in at.copies.items():
            if at.refs[copy] is None:
                at.refs[copy] = _sent(low, at, tiles[number], member, copy)


def _sent(low: Lowering, at: Located, tile: tuple[int, ...], member: int, copy: int) -> Any:
    """Return the task that keeps a tile where a copy is to be; the block itself if it is an array of this process."""
    number = at.sharding.number(tile)
    ref = at.refs[number]
    if not (type(ref) is Leaf or (type(ref) is tuple and is_key(ref))):
        return ref
    nbytes, box = at.nbytes(number), at.box(tile)
    low.messages.carry(ref, at.members[number], member, len(box[0]) if box else 1, nbytes)
    low.count_made(nbytes, member)
    return low.emit("copy", "copy", tasks.kept, (low.env.device, member, ref), member, copy)
