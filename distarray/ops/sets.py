"""Sets: the distinct elements of an array, and membership.

Distinct elements are found in the sorted vector: those that differ from the one before. Their number in each tile comes
to the host (B-9); they themselves, where each stands first, how often, and which of them stands where, stay deferred.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from distarray.expr.bind import bind, bind_reshape, bind_tiles, unbox
from distarray.expr.expr import Expr, source
from distarray.expr.op import declare
from distarray.ops.counting import counted
from distarray.ops.creation import full, operand_node
from distarray.ops.differences import diff
from distarray.ops.elementwise import astype, equal, greater, logical_and, logical_not, logical_or, subtract
from distarray.ops.families import Array, by_numpy, one_array
from distarray.ops.indexing import take
from distarray.ops.manipulation import moveaxis, slice_at, sliced
from distarray.ops.marks import chosen, counts_of, places_of, ranks_of, scattered
from distarray.ops.programs import Ask, is_one_tile, row_cut, run, vector_cut
from distarray.ops.reductions import max as _max
from distarray.ops.reductions import min as _min
from distarray.ops.runs import merged_ahead, merged_evenly, sorted_runs, sorted_vector
from distarray.ops.searching import searchsorted
from distarray.ops.sorting import argsort, lexsort, sort
from distarray.sharding import cuts
from distarray.sharding.sharding import Sharding
from distarray.types import DType, HostArray

#: params: (whether nan are equal,); operands: what is in order, and the same one place earlier, if that counts
FIRST_TILES = declare("first_tiles", "tiles")

#: params: (whether the set, the first operand, is in order,)
ISIN = declare("isin", "block", rule="i, ... -> ... | i: whole")

#: Elements of a set up to which membership is a chain of comparisons.
FEW = 8

#: Integers of a set up to which each tile puts them in order by itself, if it has to: mostly it has not.
MANY = 1 << 20

#: Numbers from the least to the largest of a vector of integers up to which they are counted, and not sorted.
MOST_COUNTED = 1 << 16

#: Bytes of what is distinct in tiles up to which it comes to this process, which is one look in place of four or more.
FEW_NBYTES = 4 << 20

#: Elements of a slice up to which slices in several tiles are put in order by one sort for each: of more of them the
#: plan takes longer than to bring a small array together.
MOST_KEYS = 64

#: A program that returns distinct elements, and what is known of them, by name.
_Distinct: TypeAlias = Generator[Ask, tuple[HostArray, ...], dict[str, Expr]]

#: What can be known of distinct elements beside themselves.
FACTS = ("indices", "inverse", "counts")


def _firsts(keys: Expr, bounds: Sequence[int], cut: Sharding | None, equal_nan: bool) -> Expr:
    """Return which elements, or rows, differ from the one before; the first one does."""
    before = sliced(keys, 0, 0, max(keys.shape[0] - 1, 0))
    earlier = [max(b - 1, 0) for b in bounds]
    operands = [(keys, bounds), (before, earlier)]
    (mask,) = bind_tiles(FIRST_TILES, operands, [(keys.shape[:1], np.bool_, bounds)], cut, (equal_nan,))
    return mask


def _of_vector(row: Expr, facts: Collection[str], equal_nan: bool) -> _Distinct:
    """Return a program: the distinct elements of a vector, in order."""
    cut = vector_cut(row)
    if cut is not None and not facts:
        return (yield from _of_tiles(row, cut, equal_nan))
    has_order = "indices" in facts or "inverse" in facts
    nodes = yield from sorted_vector(row, cut, "both" if has_order else "keys")
    return (yield from _of_sorted(nodes[0], nodes[-1] if has_order else None, facts, equal_nan, cut))


def _of_tiles(row: Expr, cut: Sharding, equal_nan: bool) -> _Distinct:
    """Return a program: the distinct elements of a vector in several tiles. Where each tile has most of its elements
    more than once, only those that are distinct there go on to be merged, or come to this process if they are few.
    """
    runs = sorted_runs(row, cut)
    (first,) = bind_tiles(
        FIRST_TILES, [(runs.keys, runs.bounds)], [(row.shape, np.bool_, runs.bounds)], cut, (equal_nan,)
    )
    asked, ahead = counts_of(first, runs.bounds, cut), merged_ahead(runs, "keys")
    (counts,) = yield Ask((asked,), kept=(*runs.nodes, first), ahead=ahead)
    if 2 * int(counts.sum()) <= row.size:
        (row,) = chosen(first, runs.nodes, counts, runs.bounds, cut)
        if row.nbytes <= max(FEW_NBYTES, row.env.block_nbytes):
            return (yield from _of_small(row, (), None, equal_nan))
        bounds = tuple(np.cumsum([0, *counts]).tolist())
        cut = Sharding(cut.mesh, cut.axes, (), (bounds,))
        runs = runs._replace(keys=row, bounds=bounds, cut=cut)
    (keys,) = yield from merged_evenly(runs, "keys")
    return (yield from _of_sorted(keys, None, (), equal_nan, cut))


def _of_rows(rows: Expr, facts: Collection[str]) -> _Distinct:
    """Return a program: the distinct rows of a matrix, in lexicographic order: one stable sort for each column."""
    m = rows.shape[1]
    columns = [slice_at(rows, 1, i) for i in reversed(range(m))]
    cut = row_cut(rows)
    order = lexsort(columns)
    keys = take(rows, order, axis=0)
    if cut is not None:
        cut = Sharding(cut.mesh, cut.axes)
        keys = keys.with_pin(cut)
    return (yield from _of_sorted(keys, order, facts, False, cut))


def _of_sorted(
    keys: Expr, order: Expr | None, facts: Collection[str], equal_nan: bool, cut: Sharding | None
) -> _Distinct:
    n = keys.shape[0]
    bounds = cuts.boundaries(n, 1 if cut is None else cut.n_tiles)
    first = _firsts(keys, bounds, cut, equal_nan)
    kept = (keys, first) if order is None else (keys, order, first)
    (counts,) = yield Ask((counts_of(first, bounds, cut),), kept=kept)
    found = {"values": keys}
    if "indices" in facts and order is not None:
        found["indices"] = order
    made = dict(zip(found, chosen(first, list(found.values()), counts, bounds, cut)))
    if "counts" in facts:
        made["counts"] = diff(places_of(first, counts, bounds, cut), append=n)
    if "inverse" in facts and order is not None:
        ranks = ranks_of(first, counts, bounds, cut)
        if keys.env.device.startswith("strict"):  # the standard has no writes at integer positions
            made["inverse"] = take(ranks, argsort(order), axis=0)
        else:
            made["inverse"] = scattered(order, ranks, n, cut)
    return made


def _of_integers(row: Expr, facts: Collection[str], by_order: _Distinct) -> _Distinct:
    """Return a program: the distinct elements of a vector of integers. Where the least and the largest are close, it is
    counted how often each in between is there; `by_order` is the program for all others.
    """
    ends = (_min(row), _max(row))
    low, high = map(int, (yield Ask(ends, kept=(row,))))
    n = high - low + 1
    if n > MOST_COUNTED:
        return (yield from by_order)
    numbers = row if row.dtype == np.uint64 else astype(row, np.dtype(np.int64), copy=False)
    offsets = astype(subtract(numbers, low), np.dtype(np.intp), copy=False)
    (counts,) = yield Ask((counted(offsets, None, n),), kept=(row,))
    (present,) = np.nonzero(counts)
    elements = present.astype(np.uint64 if row.dtype == np.uint64 else np.int64)
    elements += elements.dtype.type(low)
    found = {"values": source(elements.astype(row.dtype), row.env)}
    if "counts" in facts:
        found["counts"] = source(counts[present], row.env)
    if "inverse" in facts:
        found["inverse"] = take(source(np.cumsum(counts > 0) - 1, row.env), offsets)
    return found


def _of_small(node: Expr, facts: Collection[str], axis: int | None, equal_nan: bool) -> _Distinct:
    """Return a program: what is small is looked at in this process."""
    (host,) = yield Ask((node,))
    asked = [fact in facts for fact in FACTS]
    # NumPy's sort of half precision numbers leaves many of them out of order (see `kernels.sorting`).
    numbers = host.astype(np.float32) if host.dtype == np.float16 else host
    made: Any = np.unique(numbers, *asked, axis=axis, equal_nan=equal_nan)  # type: ignore[call-overload]  # literal flags
    names = ["values", *[fact for fact in FACTS if fact in facts]]
    values, *others = made if any(asked) else (made,)
    parts = values.astype(host.dtype, copy=False), *others
    return {fact: source(np.ascontiguousarray(part), node.env) for fact, part in zip(names, parts, strict=True)}


def distinct(
    name: str, x: Array, facts: Collection[str] = (), *, axis: int | None = None, equal_nan: bool = False
) -> dict[str, Array]:
    """Return the distinct elements in order, as ``values``, and what else is asked for. Computes how many there are.

    Parameters
    ----------
    facts
        Of `FACTS`: where each stands first in the flattened array (``indices``), which of them stands at each place of
        it (``inverse``), and how often (``counts``).
    axis
        The axis whose slices are the elements; the array is flattened if None.
    equal_nan
        Whether all nan are one element; else each is one of its own.
    """
    node, box = one_array(name, x)
    is_small = node.env.device == "cpu" and node.nbytes <= node.env.block_nbytes
    if is_small and not is_one_tile(node):
        is_small = axis is not None and node.size > node.shape[axis] * MOST_KEYS
    if is_small or axis is None:
        row = node if axis is not None or node.ndim == 1 else bind_reshape(node, (node.size,))
        program = _of_small(node, facts, axis, equal_nan) if is_small else _of_vector(row, facts, equal_nan)
        if axis is None and node.dtype.kind in "biu" and node.size > MOST_COUNTED and "indices" not in facts:
            program = _of_integers(row, facts, program)
        found = run(name, program)
    else:
        moved = moveaxis(node, axis, 0)
        n, m = moved.shape[0], prod(moved.shape[1:])
        # slices without elements are all equal: as if each had the same one
        rows = bind_reshape(moved, (n, m)) if m else full((n, 1), 0, node.dtype, node.env)
        found = run(name, _of_rows(rows, facts))
        values = sliced(found["values"], 1, 0, m)
        found["values"] = moveaxis(bind_reshape(values, (values.shape[0], *moved.shape[1:])), 0, axis)
    return {fact: box(value) for fact, value in found.items()}


def compressed(name: str, mask: Array, *arrays: Array) -> tuple[Array, ...]:
    """Return the elements of vectors where a mask is true; they stay where the mask lies. Computes their number."""
    operands = unbox(name, (mask, *arrays))
    nodes: list[Any] = operands.nodes  # arrays, checked by the callers
    # a mask has few bytes: the arrays say whether there are several tiles
    cut = next((c for c in map(vector_cut, (*nodes[1:], nodes[0])) if c is not None), None)
    bounds = (0, nodes[0].size) if cut is None else cut.boundaries(nodes[0].shape)[0]

    def program() -> Generator[Ask, tuple[HostArray, ...], tuple[Expr, ...]]:
        (counts,) = yield Ask((counts_of(nodes[0], bounds, cut),), kept=(nodes[0],))
        return chosen(nodes[0], nodes[1:], counts, bounds, cut)

    return tuple([operands.box(node) for node in run(name, program())])


def _are_comparable(one: DType, other: DType, *, are_few: bool) -> bool:
    """Return whether elements of one dtype may be equal to some of another one; numpy's error if it neither compares
    them one by one, as it does those of few, nor joins them.
    """
    first, second = np.empty(0, one), np.empty(0, other)
    if not are_few:
        np.concatenate((first, second))
    _ = first == second
    try:
        np.equal(first, second)
    except TypeError:
        return False
    return True


@by_numpy(np.isin)
def isin(x1: Array, x2: Array, /, *, invert: bool = False) -> Array:
    """Return where the elements of `x1` are among those of `x2`; nan is in nothing."""
    operands = unbox("isin", (x1, x2))
    x, among = [operand_node(n, operands.env) for n in operands.nodes]
    flat = bind_reshape(among, (among.size,))
    are_few = flat.size < 10 * x.size**0.145  # for numpy
    if (are_few and not flat.size) or not _are_comparable(x.dtype, flat.dtype, are_few=are_few) or not flat.size:
        found: Any = full(x.shape, False, np.dtype(np.bool_), operands.env)
    elif flat.size <= FEW:
        each = [slice_at(flat, 0, i) for i in range(flat.size)]
        found = equal(x, each[0])
        for other in each[1:]:
            found = logical_or(found, equal(x, other))
    else:
        # in one dtype, as numpy compares them
        common = np.result_type(x.dtype, flat.dtype)
        flat, sought = astype(flat, common, copy=False), astype(x, common, copy=False)
        is_sorted = common.kind not in "biu" or flat.size > MANY
        table = sort(flat) if is_sorted else flat
        if vector_cut(table) is None:
            found = bind(ISIN, (table, sought), x.shape, np.dtype(np.bool_), (is_sorted,))
        else:
            table = table if is_sorted else sort(table)
            at, behind = (searchsorted(table, sought, side=side) for side in ("left", "right"))
            found = logical_and(greater(behind, at), equal(x, x))
    return operands.box(logical_not(found) if invert else found)
