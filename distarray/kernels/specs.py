"""Specifications of tasks: the small records that say what a tile reads, computes and gives.

Lowering makes them, and the functions of `tasks` are told by them: what all tiles of a stage share is one `StageSpec`,
what a tile has of its own a `TileSpec`. They travel to workers with the task, and hold no arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from math import prod
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from distarray.expr.errstates import modes_to_hear
from distarray.expr.lens import Affine
from distarray.kernels.folds import FOLD
from distarray.kernels.loans import reshaped
from distarray.kernels.monoids import MONOIDS, finish_reduction
from distarray.kernels.program import Program, shared_program
from distarray.kernels.reporting import Source

Array: TypeAlias = Any  # of any backend

#: The program that copies the elements of its one operand, on all threads where it is large.
COPY = shared_program(1, (), (0,), ())


class Part(NamedTuple):
    """A Part is a box of an operand inside one argument.

    Parameters
    ----------
    arg
        Number of the argument.
    sub
        Which array of it, where the argument is a piece of several arrays; -1 where it is an array.
    lens
        From that array to the operand's box.
    """

    arg: int
    sub: int
    lens: Affine

    def read(self, args: Sequence[Any]) -> Array:
        block = args[self.arg]
        if self.sub >= 0:
            block = block[self.sub]
        return self.lens.read(block)


class Read(NamedTuple):
    """A Read is an operand's region: one part, or several and where each goes."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    parts: tuple[Part, ...]
    places: tuple[tuple[slice, ...], ...]

    def assemble(self, args: Sequence[Any], backend: Any) -> Array:
        if 0 in self.shape:
            # An empty box of a view reads an empty box of its source, of which no other extent need fit.
            return backend.empty(self.shape, self.dtype)
        if len(self.parts) == 1:
            return self.parts[0].read(args)
        out = backend.empty(self.shape, self.dtype)
        for part, place in zip(self.parts, self.places, strict=True):
            out[place] = part.read(args)
        return out

    def along(self, axis: int, loop: slice, args: Sequence[Any]) -> Array:
        """Return a slice of the operand that lies in one of its parts, as a view of that; all of it if `axis` is -1."""
        if axis < 0 or len(self.parts) == 1:
            begin, part = 0, self.parts[0]
        else:
            begin, part = next(
                (place[axis].start, part)
                for place, part in zip(self.places, self.parts, strict=True)
                if place[axis].start <= loop.start < place[axis].stop
            )
        block = part.read(args)
        if axis < 0:
            return block
        return block[(slice(None),) * axis + (slice(loop.start - begin, loop.stop - begin),)]

    def order_of(self, other: Read) -> tuple[int, ...] | None:
        """Return the order of axes in which this operand is the other one, element for element; None if it is not."""
        n, wanted = len(self.shape), [*zip(self.parts, self.places, strict=True)]
        if len(other.shape) != n or not all(other.places):
            return None
        for order in (tuple(range(n)), tuple(reversed(range(n)))):
            turned = [
                (part._replace(lens=part.lens.permuted(order)), tuple([place[a] for a in order]))
                for part, place in zip(other.parts, other.places, strict=True)
            ]
            if wanted == turned:
                return order
        return None


class LoopSlices(NamedTuple):
    """LoopSlices cut an aggregated loop so that in each of them every operand lies in one array.

    Parameters
    ----------
    axes
        Per operand the axis along which the loop runs; -1 if it does not depend on it.
    slices
        Of the loop, in order.
    nbytes
        What partial results are held at a time, beside one, while they are combined (`monoids.Pairs`).
    """

    axes: tuple[int, ...]
    slices: tuple[slice, ...]
    nbytes: int


class Region(NamedTuple):
    """A Region is a box of a tile in which every operand is one slice of one block or piece: the program runs on it as
    it lies.
    """

    place: tuple[slice, ...] | None
    shape: tuple[int, ...]
    start: tuple[int, ...]
    operands: tuple[Part, ...]


class WrittenBox(NamedTuple):
    """A WrittenBox is where a tile writes into a tile of a base.

    Parameters
    ----------
    arg
        Number of the argument that is the base's tile.
    lens
        From that to the written box.
    is_inplace
        Whether the base's tile itself is written.
    is_most
        Whether the box is most of the tile.
    """

    arg: int
    lens: Affine
    is_inplace: bool
    is_most: bool


class Generate(NamedTuple):
    """A Generate is an operand that is made on the spot from its global index box."""

    name: str
    box: tuple[tuple[int, int], ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    params: tuple[Any, ...]
    runtime: Any
    node: int = -1


class Parting(NamedTuple):
    """A Parting says how a kernel is computed in parts: along one loop, that each result has.

    Parameters
    ----------
    n
        How many parts.
    operands
        By operand the axis along which the loop runs; -1 if each part needs all of it.
    results
        By result the axis along which the loop runs.
    nbytes
        What parts hold at a time that were computed and are not yet in their place.
    halo
        By operand how many elements a part needs before and behind its own, as far as there are any; none if it is
        empty.
    loop
        The number of the loop.
    """

    n: int
    operands: tuple[int, ...]
    results: tuple[int, ...]
    nbytes: int
    halo: tuple[tuple[int, int], ...] = ()
    loop: int = 0


@dataclass(frozen=True, slots=True)
class StageSpec:
    """A StageSpec is what all tiles of a stage share.

    Parameters
    ----------
    program
        The elementwise program of a tile, or None where another function computes it.
    scalars
        Values of the run-time scalars, in the order of the program's slots.
    stores
        Dtype of each result that is stored in full.
    finishes
        How each reduction ends, in the order of the program's reductions.
    layout
        Order of the axes of a result in memory; empty for C order.
    device
        Device string.
    where
        The operations, the user's lines and numpy's floating-point states there, for errors and warnings.
    name, params
        Of the operation whose kernel runs, where there is no program.
    extents
        Of the loops of the stage.
    filled
        The run-time scalar that the written box is filled with; -1 if a result of the program is written.
    parts
        How the kernel of a tile is computed in parts, by several threads; None if it is not.
    number, node
        Of the record in its template, which is filled in for every run, and of the node whose late parameters it
        takes; -1 if it is all that there is.
    """

    program: Program | None
    scalars: tuple[Any, ...] = ()
    stores: tuple[np.dtype[Any], ...] = ()
    finishes: tuple[Finish, ...] = ()
    layout: tuple[int, ...] = ()
    device: str = "cpu"
    where: tuple[Source, ...] = ()
    name: str = ""
    params: Any = ()  # a tuple: see `Expr.params`
    extents: tuple[int, ...] = ()
    filled: int = -1
    parts: Parting | None = None
    number: int = -1
    node: int = -1

    @property
    def modes(self) -> Mapping[str, Any]:
        """Return numpy's floating-point state as `Program.run` takes it."""
        return modes_to_hear([state for _, _, state in self.where])


@dataclass(frozen=True, slots=True)
class Finish:
    """A Finish says how the partial results of a reduction become its result.

    Parameters
    ----------
    accumulator
        Dtype in which the monoid runs.
    dtype, operand
        Of the result, and of what is reduced.
    extents
        Of all loops.
    """

    name: str
    monoid: str
    axes: tuple[int, ...]
    accumulator: np.dtype[Any]
    dtype: np.dtype[Any]
    params: tuple[Any, ...]
    extents: tuple[int, ...]
    operand: np.dtype[Any]

    def __call__(self, partial: Any, shape: tuple[int, ...], backend: Any) -> Array:
        n = prod(self.extents[a] for a in self.axes)
        result = finish_reduction(self.name, self.monoid, partial, n, len(shape), self.dtype, self.params)
        return result if result.shape == shape else reshaped(backend.xp, result, shape)

    @property
    def itemsize(self) -> int:
        """Return the bytes of a partial result for each element of the result."""
        return MONOIDS[self.monoid].itemsize(self.accumulator, self.operand)

    @property
    def skips_empty_tiles(self) -> bool:
        """Return whether tiles without elements may be left out: a result of no partial results is known too."""
        return True

    def combine(self, partials: Sequence[Any], backend: Any) -> Any:
        """Return one partial result of several, in order."""
        adopted = [tuple(map(backend.adopt, p)) if isinstance(p, tuple) else backend.adopt(p) for p in partials]
        return MONOIDS[self.monoid].combine(adopted)

    def filled(self, late_of: Callable[[int], tuple[Any, ...]]) -> Finish:
        """Return the same record with what varies from run to run, by the number of the node that it finishes."""
        return self


@dataclass(frozen=True, slots=True)
class Folding(Finish):
    """A Folding says how the partial results of a fold become its result: by the row of its name in `folds.FOLD`.

    Parameters
    ----------
    node
        Number of the fold.
    """

    node: int = -1

    def __call__(self, partial: Any, shape: tuple[int, ...], backend: Any) -> Array:
        return FOLD[self.name].finish(backend.xp, partial, shape, self.dtype, self.params)

    @property
    def itemsize(self) -> int:
        """Return the bytes of an element as if it were the result: what a fold carries is known to its row only."""
        return self.accumulator.itemsize

    @property
    def skips_empty_tiles(self) -> bool:
        """Return whether any tile has elements: a fold of no elements is made of a tile that has none."""
        return all(self.extents[a] for a in self.axes)

    def combine(self, partials: Sequence[Any], backend: Any) -> Any:
        return FOLD[self.name].combine(backend, partials, self.params)

    def filled(self, late_of: Callable[[int], tuple[Any, ...]]) -> Folding:
        """Return the same record with the late parameters of the fold behind the static ones."""
        late = late_of(self.node)
        return replace(self, params=(*self.params, *late)) if late else self


def of_nothing(finish: Finish, shape: tuple[int, ...], backend: Any) -> Array:
    """Return a tile, of this shape, of the result of a reduction over no elements at all."""
    partial = MONOIDS[finish.monoid].identity(shape, finish.accumulator, backend.xp, backend.device)
    assert partial is not None, "reductions without an identity raise at the call"
    return finish(partial, shape, backend)


@dataclass(frozen=True, slots=True)
class TileSpec:
    """A TileSpec is what one tile of a stage needs.

    Parameters
    ----------
    member
        Rank of the member that computes it.
    shape
        Of the tile, in loops; where a kernel runs on whole blocks, of its first result.
    regions
        See `Region`; they cover the tile.
    assembled
        Operands put together first; they count as arguments after the given ones and the generated ones.
    generated
        Operands made on the spot; they count as arguments after the given ones.
    finish
        Shapes of the results of reductions that end in this tile; None where partial results go on.
    write
        Of a tile that writes.
    hazard
        Whether the program reads the tile that it writes in place, elsewhere than it writes.
    offset
        Where the tile begins; of a reshape the elements that it has in each group of axes.
    reads
        Operands of a kernel.
    along
        Of a contraction whose operands are not put together: how it goes along them.
    reuse
        Per stored result the argument whose block it takes over, or -1.
    into
        The argument that holds the `Unfinished` results of the task that computed another part of this tile, or -1. The
        regions of the two are disjoint.
    is_unfinished
        Whether another task goes on with the tile.
    is_made
        Whether the result is the one generated operand as it is: a new block, which nobody else has.
    is_view
        Whether the result may be a view of the one block that is read: nobody writes that while the result lives.
    """

    member: int
    shape: tuple[int, ...]
    regions: tuple[Region, ...] = ()
    assembled: tuple[Read, ...] = ()
    generated: tuple[Generate, ...] = ()
    finish: tuple[tuple[int, ...] | None, ...] = ()
    write: WrittenBox | None = None
    hazard: bool = False
    offset: tuple[int, ...] = ()
    reads: tuple[Read, ...] = ()
    along: LoopSlices | None = None
    reuse: tuple[int, ...] = ()
    into: int = -1
    is_unfinished: bool = False
    is_made: bool = False
    is_view: bool = False

    # There is one for each tile: that of dataclasses would look up its fields for each.
    def __reduce__(self) -> tuple[Any, ...]:
        return TileSpec, _of_tile(self)


_of_tile: Callable[[TileSpec], tuple[Any, ...]] = attrgetter(*[field.name for field in fields(TileSpec)])


class Mosaic(NamedTuple):
    """A Mosaic says how a tile is put together from blocks and packs; small, since it travels with every task.

    Parameters
    ----------
    member
        Rank of the member that makes it.
    shape
        Of the tile.
    axes
        Per axis, for each part along it: where it begins in the tile, where in its block, and how long it is. The
        parts come row-major over all axes.
    crops
        Per part the box of its block that is meant, or None; empty if all are meant whole.
    runs
        (argument, number, count): the parts in order, as arrays ``number``, ``number + 1`` .. of a pack, or as the
        argument itself if the number is -1; empty if each part is an argument.
    place, tile
        Where the tile of this shape lies in a larger one, of which it is a part; empty where it is all.
    turn, n_turns
        Which part it is, of how many: all but the first fill what the one before left unfinished, the last argument.
    """

    member: int
    shape: tuple[int, ...]
    axes: tuple[tuple[tuple[int, int, int], ...], ...]
    crops: tuple[tuple[slice, ...] | None, ...] = ()
    runs: tuple[tuple[int, int, int], ...] = ()
    place: tuple[slice, ...] = ()
    tile: tuple[int, ...] = ()
    turn: int = 0
    n_turns: int = 1

    @property
    def whole(self) -> tuple[int, ...]:
        """Return the shape of the tile, of which it fills all or a part."""
        return self.tile or self.shape

    def parts(self, args: Sequence[Any]) -> Iterable[Array]:
        """Return the arrays that the tile is put together from."""
        if not self.runs:
            return args
        return chain.from_iterable(
            [args[arg]] if number < 0 else args[arg][number : number + n] for arg, number, n in self.runs
        )


class Link(NamedTuple):
    """A Link is one of the tasks that were fused to one.

    Parameters
    ----------
    key
        Its key, had it been a task of its own.
    function
        What it calls.
    n_args
        How many of the arguments are its own.
    places
        Which of them are the result of an earlier link, and of which.
    dropped
        Links whose results nobody needs after it.
    """

    key: tuple[Any, ...]
    function: Callable[..., Any]
    n_args: int
    places: tuple[tuple[int, int], ...]
    dropped: tuple[int, ...] = ()
