"""Routes: what tiles need of arrays that stay cut as they are, and the pieces that carry it between members.

Lowering asks in two passes. In the first, every tile of every stage says which box of which source tile it reads
(`Routes.want`). All that one member wants of one tile of another member becomes one piece: the union of the boxes,
element for element (B-25), copied once, so that its parent may be freed. The pieces that one member
needs of another at the same time, of however many tiles and arrays, travel as one pack: one task and one message. In
the second pass (`Routes.parts`) each read is answered with slices of blocks that are at hand and of pieces.

Where much arrives at a member whose tiles follow each other in turns, what is read in one turn and not in another is a
piece of its own. It is packed when the sender has made its own tile of the turn before the last: so two turns are
under way, however many there are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from distarray.expr.expr import Expr
from distarray.expr.lens import Affine
from distarray.kernels.specs import Generate, Part
from distarray.lower.messages import Key, Messages, in_packs, key_of
from distarray.lower.recipes import ClientBox
from distarray.sharding.boxes import Box, contains, intersect_boxes, relative, size, tile_box, union
from distarray.sharding.dealing import dealt, n_elements
from distarray.sharding.sharding import Sharding
from distarray.union_find import UnionFind


@dataclass(slots=True)
class Located:
    """A Located says where the blocks of a node are while its readers are lowered.

    Parameters
    ----------
    sharding, shape, dtype
        Its type.
    refs
        Per block, those of the tiles first (`dealt`): a key, or the array itself.
    members
        Per block, who has it.
    copies
        By number of a tile and another member than its own the block that is its copy there.
    on_client
        Whether the one block is an array of this process: it travels with the tasks that read it.
    create
        The node, if it is made on the spot wherever it is read.
    shared
        Numbers of the tiles whose block is that of an older version too: a write leaves tiles that it does not touch as
        they are.
    frames
        By number of the tile the elements that its block has, where these are others than those of the tile.
    """

    sharding: Sharding
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    refs: list[Any]
    on_client: bool = False
    create: Expr | None = None
    boundaries: tuple[tuple[int, ...], ...] = ()
    members: list[int] = field(default_factory=list)
    shared: set[int] = field(default_factory=set)
    frames: dict[int, Box] = field(default_factory=dict)
    copies: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.boundaries = self.sharding.boundaries(self.shape)
        if not self.on_client and self.create is None:
            found = dealt(self.sharding)
            self.members, self.copies = [member for member, _ in found.places], dict(found.copies)

    def near(self, number: int, member: int) -> int:
        """Return the block of a tile that a member reads: its own copy if it has one, else the tile where it lies."""
        return self.copies.get((number, member), number)

    def add_copy(self, number: int, member: int) -> None:
        """Note that a member makes a tile for itself, beside the one whose tile it is."""
        self.copies[number, member] = len(self.refs)
        self.refs.append(None)
        self.members.append(member)

    def note(self, number: int, member: int, ref: Any, *, is_again: bool) -> None:
        """Note what a member has made of a tile; where it has made it again, that is its copy, if it is to have one."""
        block = self.copies.get((number, member), -1 if is_again else number)
        if block >= 0:
            self.refs[block] = ref

    def nbytes(self, number: int) -> int:
        """Return the bytes of a block."""
        return n_elements(self.sharding, self.shape)[number] * self.dtype.itemsize

    def far(self, lens: Affine, box: Box, member: int) -> int:
        """Return the bytes that a member would be sent if it read a box of a view."""
        if self.on_client or self.create is not None:
            return 0
        found = [
            size(source)
            for tile, source, _ in lens.fragments(box, self.boundaries)
            if self.members[self.near(self.sharding.number(tile), member)] != member
        ]
        return sum(found) * self.dtype.itemsize

    def box(self, tile: Sequence[int]) -> Box:
        """Return the elements of the block of a tile."""
        if self.frames:
            return self.frames[self.sharding.number(tile)]
        return tile_box(self.boundaries, tile)


@dataclass(slots=True)
class Want:
    """A Want is the box of an operand that one tile reads, resolved to fragments.

    Parameters
    ----------
    node, lens, box
        What is read: a box of the view that the lens makes of a node.
    fragments
        By source tile: its index, its number, the box in it, and the box in the operand.
    member
        Rank of the reader.
    parcelled
        Numbers of the source tiles that are not read where they lie: of other members, and of those that are written
        in place meanwhile.
    grown
        The grown blocks of a chain of halo stages, where it reads these.
    """

    node: int
    lens: Affine
    box: Box
    fragments: list[tuple[tuple[int, ...], int, Box, Box]]
    member: int
    parcelled: frozenset[int] = frozenset()
    grown: Located | None = None


#: When something is read first: number of the stage, and which of the tiles of its member.
Turn: TypeAlias = tuple[int, int]


@dataclass(slots=True)
class _Parcel:
    """A _Parcel is what one member is sent of one tile: the union of the boxes that it reads, or the whole block.

    Parameters
    ----------
    node, number
        Which tile, of which array.
    boxes
        What is read of it, and when first.
    union
        All of that, each element once.
    is_whole
        Whether the block travels as it is.
    pack
        The parcels that travel with it, itself included.
    ref
        The block, or the pack; None before it is made.
    first
        Number of its first box in the pack; -1 if that is one box alone.
    """

    node: int
    number: int
    boxes: dict[Box, Turn]
    union: list[Box]
    is_whole: bool
    pack: list[_Parcel] = field(default_factory=list)
    ref: Any = None
    first: int = 0

    @property
    def size(self) -> int:
        """Return the number of its elements."""
        return sum(map(size, self.union))

    @property
    def turn(self) -> Turn:
        """Return when it is read first."""
        return min(self.boxes.values())


@dataclass(slots=True)
class _Wanted:
    """A _Wanted collects the boxes of one tile that a member reads and does not have, and later the parcels that carry
    them.

    Parameters
    ----------
    frame
        The box of the tile.
    is_copied
        Whether the source may be overwritten while a parcel is read: then even a whole tile is copied.
    last
        The last stage that reads it there.
    """

    frame: Box
    boxes: dict[Box, Turn] = field(default_factory=dict)
    is_copied: bool = False
    last: int = -1
    parcels: list[_Parcel] = field(default_factory=list)


class Routes:
    """Routes hold all reads of one evaluation, and send what a member needs of another once.

    Parameters
    ----------
    located
        By number of the node; grows while stages are lowered.
    messages
        By which pieces are sent.
    large
        Bytes of a node from which on those that arrive at a member come turn by turn.
    """

    def __init__(self, located: dict[int, Located], messages: Messages, large: int) -> None:
        self._located = located
        self._messages = messages
        self._large = large
        #: By node, tile and member that reads it.
        self._wanted: dict[tuple[int, int, int], _Wanted] = {}
        self._is_packed = False
        #: By node and member: bytes that are wanted in all, and the number of turns in which.
        self._arriving: Counter[tuple[int, int]] = Counter()
        self._n_turns: dict[tuple[int, int], int] = {}
        #: By member, of the stage that is lowered: its tiles in the order of their turns.
        self._made: defaultdict[int, list[Key]] = defaultdict(list)

    # ------------------------------------------------------------------------------------------ first pass

    def want(self, node: int, lens: Affine, box: Box, member: int, *, turn: int = 0, private: int = -1) -> Want:
        """Say that a tile on `member` reads `box` of the view that `lens` makes of a node.

        Parameters
        ----------
        turn
            How many tiles of the stage the member makes before this one, if they follow each other.
        private
            Number of the one source tile that may be read directly although others of this member are written in
            place meanwhile; -1: all tiles of the member are read directly.
        """
        at = self._located[node]
        if at.on_client or at.create is not None:
            return Want(node, lens, box, [], member)
        fragments = []
        copied = set()
        for tile, source, view in lens.fragments(box, at.boundaries):
            number = at.near(at.sharding.number(tile), member)
            fragments.append((tile, number, source, view))
            if at.members[number] != member or (private >= 0 and number != private):
                wanted = self._wanted.get((node, number, member))
                if wanted is None:
                    wanted = self._wanted[node, number, member] = _Wanted(at.box(tile))
                wanted.last = self._messages.stage
                if source not in wanted.boxes:
                    wanted.boxes[source] = self._messages.stage, turn
                    self._arriving[node, member] += size(source) * at.dtype.itemsize
                    if turn:
                        self._n_turns[node, member] = max(turn + 1, self._n_turns.get((node, member), 1))
                wanted.is_copied |= private >= 0
                copied.add(number)
        return Want(node, lens, box, fragments, member, frozenset(copied))

    # ----------------------------------------------------------------------------------------- second pass

    def parts(self, want: Want, args: Arguments) -> list[tuple[Part, Box]]:
        """Return where the region is: parts of arguments and the operand boxes that they hold; `args` grows as
        needed.
        """
        at = want.grown or self._located[want.node]
        lens, box = want.lens, want.box
        if at.create is not None:
            hull = tuple([range(r.start, r.stop) for r in lens.source_box(box)])
            arg = args.generate(_generate(at.create, ~want.node, hull))
            return [(Part(arg, -1, lens.restricted(box, hull)), box)]
        if at.on_client:
            hull = tuple([range(r.start, r.stop) for r in lens.source_box(box)])
            slices = tuple([slice(r.start, r.stop) for r in hull])
            arg = args.value(("client", want.node, hull), ClientBox(want.node, slices))
            return [(Part(arg, -1, lens.restricted(box, hull)), box)]
        out = []
        for tile, number, source, view in want.fragments:
            frame = at.box(tile)
            if number not in want.parcelled:
                arg = args.ref(at.refs[number])
                out.append((Part(arg, -1, lens.restricted(view, frame)), view))
                continue
            parcel = self._arrived(want.node, number, want.member, source)
            arg = args.ref(parcel.ref)
            args.remote.add(arg)
            if parcel.is_whole:
                out.append((Part(arg, -1, lens.restricted(view, frame)), view))
                continue
            for k, part in enumerate(parcel.union, parcel.first):
                if contains(part, source):
                    out.append((Part(arg, k, lens.restricted(view, part)), view))
                    break
            else:
                for k, part in enumerate(parcel.union, parcel.first):
                    common = intersect_boxes(part, source)
                    if common is None or not all(common):
                        continue
                    inside = lens.view_box(common)
                    seen = None if inside is None else intersect_boxes(inside, view)
                    if seen is not None and all(seen):
                        out.append((Part(arg, k, lens.restricted(seen, part)), seen))
        return out

    def prepare(self, want: Want) -> None:
        """Emit the packs that a read needs, before anything changes their sources in place."""
        for _, number, source, _ in want.fragments:
            if number in want.parcelled:
                self._arrived(want.node, number, want.member, source)

    def made(self, member: int, key: Key) -> None:
        """Say that a member makes its next tile."""
        self._made[member].append(key)

    def begin(self) -> None:
        """Come to a stage, in either pass."""
        self._made.clear()

    def _n_pieces(self, node: int, member: int) -> int:
        """Return the most parcels in which a member is sent what it reads of one tile: above one only if the array is
        large and its tiles come in turns.
        """
        n_turns, nbytes = self._n_turns.get((node, member), 1), self._arriving[node, member]
        return min(n_turns, 2 * nbytes // self._large) if nbytes > self._large else 1

    def _pack(self) -> None:
        """Divide all that is wanted into parcels, and say which of them travel together: those that a member needs of
        another from the same turn on and up to the same stage. Parcels that come turn by turn go with those of their
        array.
        """
        self._is_packed = True
        together: defaultdict[Any, list[_Parcel]] = defaultdict(list)
        for (node, number, member), wanted in self._wanted.items():
            at = self._located[node]
            source, n_pieces = at.members[number], self._n_pieces(node, member)
            for boxes in _by_turns(wanted.boxes, n_pieces):
                parts = union(list(boxes))
                is_all = sum(map(size, parts)) == size(wanted.frame)
                is_whole = is_all and source != member and not wanted.is_copied
                parcel = _Parcel(node, number, boxes, parts, is_whole)
                wanted.parcels.append(parcel)
                if is_whole or source == member:
                    parcel.pack = [parcel]
                else:
                    streamed = node if n_pieces > 1 else -1
                    together[source, member, parcel.turn, wanted.last, streamed].append(parcel)
        for parcels in together.values():
            for several in in_packs((p, p.size * self._located[p.node].dtype.itemsize) for p in parcels):
                for parcel in several:
                    parcel.pack = several

    def _arrived(self, node: int, number: int, member: int, wanted: Box) -> _Parcel:
        """Return the parcel with a box; its pack has a task by now."""
        if not self._is_packed:
            self._pack()
        parcels = self._wanted[node, number, member].parcels
        parcel = parcels[0] if len(parcels) == 1 else next(p for p in parcels if wanted in p.boxes)
        if parcel.ref is None:
            self._send(parcel.pack, member)
        return parcel

    def _send(self, parcels: Sequence[_Parcel], member: int) -> None:
        """Emit the task that packs parcels, unless it is a block that travels as it is, and count the message."""
        first = parcels[0]
        at, frame = self._located[first.node], self._wanted[first.node, first.number, member].frame
        source = at.members[first.number]
        if first.is_whole:
            first.ref, first.first = at.refs[first.number], 0
            n_rows = len(frame[0]) if frame else 0
            self._messages.carry(first.ref, source, member, n_rows, first.size * at.dtype.itemsize)
            return
        boxes: list[tuple[Any, tuple[slice, ...]]] = []
        rows = nbytes = 0
        for parcel in parcels:
            at, frame = self._located[parcel.node], self._wanted[parcel.node, parcel.number, member].frame
            parcel.first = len(boxes)
            boxes += [(at.refs[parcel.number], relative(b, frame)) for b in parcel.union]
            rows += _n_rows(parcel.union) if frame else 0
            nbytes += parcel.size * at.dtype.itemsize
        key = self._messages.pack(boxes, source, member, rows, nbytes, self._waits(first, member, source))
        if len(boxes) == 1:
            first.first = -1
        for parcel in parcels:
            parcel.ref = key

    def _waits(self, parcel: _Parcel, member: int, source: int) -> Sequence[Key]:
        """Return the tile that a sender makes before a parcel of a turn: that of the turn before the last."""
        made, turn = self._made[source], parcel.turn[1]
        if turn < 2 or not made or self._n_pieces(parcel.node, member) < 2:
            return ()
        return (made[min(turn - 2, len(made) - 1)],)


def _n_rows(boxes: Sequence[Box]) -> int:
    """Return the rows of disjoint boxes, each once."""
    if len(boxes) == 1:
        return len(boxes[0][0])
    return sum(len(rows) for (rows,) in union([(b[0],) for b in boxes]))


def _by_turns(boxes: Mapping[Box, Turn], n_pieces: int) -> list[dict[Box, Turn]]:
    """Return the boxes by when they are read first, in at most so many parts; those that overlap are in one."""
    if n_pieces < 2:
        return [dict(boxes)]
    together = UnionFind[Turn]()  # for turns that go together the first of them stands
    for a, b in _overlapping(list(boxes)):
        together.union(*sorted((together.find(boxes[a]), together.find(boxes[b]))))
    apart: dict[Turn, dict[Box, Turn]] = {together.find(turn): {} for turn in sorted(boxes.values())}
    for box, turn in boxes.items():
        apart[together.find(turn)][box] = turn
    n_pieces = min(n_pieces, len(apart))
    parts: list[dict[Box, Turn]] = [{} for _ in range(n_pieces)]
    for number, found in enumerate(apart.values()):
        parts[number * n_pieces // len(apart)].update(found)
    return parts


def _overlapping(boxes: Sequence[Box]) -> Iterator[tuple[Box, Box]]:
    """Yield the pairs of boxes with common elements: a sweep along the axis that tells most of them apart."""
    n_axes = len(boxes[0])
    axis = max(range(n_axes), key=lambda a: len({box[a].start for box in boxes}), default=-1)
    if axis < 0:
        return  # without axes there is one box
    open_: list[Box] = []
    for box in sorted(boxes, key=lambda box: box[axis].start):
        open_ = [b for b in open_ if b[axis].stop > box[axis].start]
        yield from ((b, box) for b in open_ if intersect_boxes(b, box) is not None)
        open_.append(box)


def _generate(node: Expr, number: int, box: Box) -> Generate:
    bounds = tuple([(r.start, r.stop) for r in box])
    return Generate(node.op.name, bounds, node.shape, node.dtype, node.params, None, number)


class Arguments:
    """An Arguments numbers the arguments of one task, each once: references and host data first, then operands
    generated in the task.
    """

    def __init__(self) -> None:
        self.given: list[Any] = []
        self.generated: list[Generate] = []
        self.remote: set[int] = set()
        self._number: dict[Any, int] = {}
        self._generated: dict[Any, int] = {}

    def ref(self, ref: Any) -> int:
        """Return the number of a block or piece."""
        return self.value(key_of(ref), ref)

    def value(self, name: Any, value: Any) -> int:
        """Return the number of an argument known by `name`."""
        number = self._number.get(name)
        if number is None:
            number = self._number[name] = len(self.given)
            self.given.append(value)
        return number

    def generate(self, g: Generate) -> int:
        """Return the number of a generated operand, counted from the end until `settle`."""
        key = (g.node, g.box)
        number = self._generated.get(key)
        if number is None:
            number = self._generated[key] = len(self.generated)
            self.generated.append(g)
        return -1 - number

    def settle(self, part: Part) -> Part:
        """Return the part with its final argument number: generated operands come after the given ones."""
        return part if part.arg >= 0 else part._replace(arg=len(self.given) - 1 - part.arg)
