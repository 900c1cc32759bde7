"""Sorting along an axis, and what is made of it: orders by several keys, partitions, the first few.

Many rows are sorted whole, each by one member (`block` operations: the planner cuts the other axes). A vector that is
cut, and fewer rows than there are places, are sorted across their tiles: `distarray.ops.runs`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from distarray.arguments import host_array, integer, naming, normalize_axis, refuse_loose_axis, shown
from distarray.expr.affine import Affine
from distarray.expr.bind import bind, bind_get, bind_reshape, bind_tiles, unbox
from distarray.expr.expr import Expr
from distarray.expr.op import declare
from distarray.ops.creation import full
from distarray.ops.elementwise import as_scalar, astype
from distarray.ops.families import Array, by_numpy, one_array
from distarray.ops.indexing import along, take, take_along_axis
from distarray.ops.joining import stack
from distarray.ops.manipulation import moveaxis, slice_at, sliced
from distarray.ops.programs import WHOLE_NBYTES, Program, run, together, vector_cut
from distarray.ops.runs import sorted_vector
from distarray.sharding.sharding import Sharding
from distarray.types import HostArray, Shape

#: params: (descending, stable)
SORT = declare("sort", "block", rule="... i -> ... i | i: whole")
ARGSORT = declare("argsort", "block", rule="... i -> ... i | i: whole")
#: params: (places that get the element which stands there in order,)
PARTITION = declare("partition", "block", rule="... i -> ... i | i: whole")
ARGPARTITION = declare("argpartition", "block", rule="... i -> ... i | i: whole")
#: params: (rule,); operands: the keys, of which the last one goes first
LEXSORT = declare("lexsort", "block")
#: params: (how many, descending)
TOP_ROWS = declare("top_rows", "block", rule="... i -> ... j | i: whole, j: whole")
TOP_TILES = declare("top_tiles", "tiles")


def few_rows(node: Expr, axis: int) -> Sharding | None:
    """Return how the vectors along `axis` are cut if there are fewer of them than places; else None: each stays
    whole.
    """
    rows = prod(node.shape) // max(node.shape[axis], 1)
    if not rows or not node.shape[axis] or (rows > 1 and rows >= node.env.size):
        return None
    return vector_cut(node, axis)


def rows_of(moved: Expr) -> list[Expr]:
    """Return the vectors along the last axis, row-major."""
    if moved.ndim == 1:
        return [moved]
    *lead, n = moved.shape
    return [
        bind_get(moved, Affine((n,), (*[(None, i, 0) for i in at], (0, 0, 1)))) for at in product(*map(range, lead))
    ]


def _across(
    rows: Sequence[Expr], lead: Shape, make: Callable[[Expr], Program]
) -> Generator[Any, tuple[HostArray, ...], Expr]:
    """Return a program: what `make` gives for each vector, put together again."""
    made = yield from together([make(row) for row in rows])
    nodes: list[Expr] = [first for first, *_ in made]
    if not lead:
        return nodes[0]
    return bind_reshape(stack(nodes), (*lead, *nodes[0].shape))


def _sorted(name: str, x: Array, axis: int | None, descending: bool, stable: bool) -> Array:
    node, box = one_array(name, x)
    if name == "argsort":
        refuse_loose_axis(axis)
    node, axis = along(node, axis, of_numbers=name == "argsort")  # as numpy, which sorts no number, but ranks one
    moved = moveaxis(node, axis, -1)
    cut = few_rows(node, axis)
    if cut is None:
        op, dtype = (SORT, node.dtype) if name == "sort" else (ARGSORT, np.dtype(np.intp))
        made = bind(op, (moved,), moved.shape, dtype, (bool(descending), bool(stable)))
        return box(moveaxis(made, -1, axis))
    wanted = "keys" if name == "sort" else "order"
    program = _across(
        rows_of(moved), moved.shape[:-1], lambda row: sorted_vector(row, cut, wanted, descending=bool(descending))
    )
    return box(moveaxis(run(name, program), -1, axis))


def sort(x: Array, /, *, axis: int | None = -1, descending: bool = False, stable: bool = True) -> Array:
    """Return the elements of `x` in order along `axis`, of the flattened array if None; nan last, first if
    `descending`.

    Along an axis that is cut, or is long and has fewer rows beside it than there are places, the tiles are sorted where
    they lie at the call, and the result, cut evenly whatever the keys, is merged when it is needed
    (docs/explanation/sorting.md).
    """
    return _sorted("sort", x, axis, descending, stable)


def argsort(x: Array, /, *, axis: int | None = -1, descending: bool = False, stable: bool = True) -> Array:
    """Return the indices that sort `x` along `axis`; equal elements keep their order if `stable`. As `sort` across
    tiles.
    """
    return _sorted("argsort", x, axis, descending, stable)


def sort_complex(a: Array) -> Array:
    """Return the elements in order along the last axis, as complex numbers: by the real, then by the imaginary part."""
    node, box = one_array("sort_complex", a)
    result = np.sort_complex(np.empty(0, node.dtype)).dtype
    return astype(box(sort(node)), result, copy=False)


@by_numpy(np.lexsort)
def lexsort(keys: Any, axis: int = -1) -> Array:
    """Return the indices that sort by several keys, the last one first.

    Vectors of more than 64 MiB that are cut are sorted one after the other, from the first key to the last; all others
    are sorted as NumPy does it, where they are whole.

    Parameters
    ----------
    keys
        Arrays of one shape, or one array whose rows are the keys.
    """
    if not isinstance(keys, tuple | list):
        node, box = one_array("lexsort", keys)
        if not node.ndim or not node.shape[0]:
            raise TypeError("need sequence of keys with len > 0 in lexsort")
        keys = [box(slice_at(node, 0, i)) for i in range(node.shape[0])]
    if not keys:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    operands = unbox("lexsort", keys)
    nodes = [node for node in operands.nodes if type(node) is Expr]
    if len({node.shape for node in nodes}) != 1 or len(nodes) != len(keys):
        raise ValueError("all keys need to be the same shape")
    if not nodes[0].ndim:
        normalize_axis(axis, 1)
        return operands.box(as_scalar(full((), 0, np.dtype(np.intp), operands.env)))
    axis = normalize_axis(axis, nodes[0].ndim)
    is_little = sum([key.nbytes for key in nodes]) <= WHOLE_NBYTES
    if operands.env.device == "cpu" and (is_little or all(few_rows(key, axis) is None for key in nodes)):
        term = " ".join([*[f"i{a}" for a in range(nodes[0].ndim - 1)], "n"])
        keys = [moveaxis(key, axis, -1) for key in nodes]
        rule = f"{', '.join([term] * len(keys))} -> {term} | n: whole"
        made = bind(LEXSORT, keys, keys[0].shape, np.dtype(np.intp), (rule,))
        return operands.box(moveaxis(made, -1, axis))
    order = argsort(nodes[0], axis=axis)
    for key in nodes[1:]:
        if key.ndim == 1:
            order = take(order, argsort(take(key, order, axis=0)), axis=0)
        else:
            step = argsort(take_along_axis(key, order, axis=axis), axis=axis)
            order = take_along_axis(order, step, axis=axis)
    return operands.box(order)


# --------------------------------------------------------------------------------------------------- partitions


def _partitioned(name: str, a: Array, kth: Any, axis: int | None, kind: Any, order: Any) -> Array:
    if not (isinstance(kind, str) and kind == "introselect") or order is not None:
        # numpy's errors: there is one kind, and an order is that of fields
        with naming(kind=kind, order=order):
            np.zeros(1).partition(0, kind=kind, order=order)
    node, box = one_array(name, a)
    if name == "argpartition":
        refuse_loose_axis(axis)
    node, axis = along(node, axis, of_numbers=name == "argpartition")
    n = node.shape[axis]
    places = host_array(kth, "kth", kinds="iub")
    if not places.size and not hasattr(kth, "dtype"):
        raise TypeError(f"Partition index must be integer: kth={shown(kth)}")
    if places.dtype.kind == "b":
        raise ValueError(f"kth={shown(kth)}: Booleans unacceptable as partition index")
    if places.ndim > 1:
        raise ValueError(f"kth={shown(kth)}: object too deep for desired array")
    places = places.reshape(-1)
    outside = places[(places < -n) | (places >= n)] if node.size else places[:0]
    if outside.size:
        raise ValueError(f"kth(={int(outside.flat[0])}) out of bounds ({n})")
    if not places.size or not node.size:  # nothing has a place to stand at, so all stays where it is
        standing = full(node.shape, 0, np.dtype(np.intp), node.env)
        return box(node if name == "partition" else _sorted("argsort", standing, axis, False, True))
    if few_rows(node, axis) is not None:
        # Its tiles have to be sorted to select; from there it is one merge to the whole order, which is a partition.
        return _sorted("sort" if name == "partition" else "argsort", box(node), axis, False, True)
    op, dtype = (PARTITION, node.dtype) if name == "partition" else (ARGPARTITION, np.dtype(np.intp))
    moved = moveaxis(node, axis, -1)
    at = tuple(sorted({int(p) % n for p in places}))
    made = bind(op, (moved,), moved.shape, dtype, runtime=(at,))
    return box(moveaxis(made, -1, axis))


@by_numpy(np.partition)
def partition(a: Array, kth: Any, axis: int | None = -1, kind: Any = "introselect", order: Any = None) -> Array:
    """Return the elements with those at `kth` where they stand in order, smaller ones before them and larger ones
    behind.

    In what order the others are is open, as in numpy, whose `kind` and `order` leave no choice. A vector across tiles
    is sorted.
    """
    return _partitioned("partition", a, kth, axis, kind, order)


@by_numpy(np.argpartition)
def argpartition(a: Array, kth: Any, axis: int | None = -1, kind: Any = "introselect", order: Any = None) -> Array:
    """Return the indices that partition along `axis`; see `partition`."""
    return _partitioned("argpartition", a, kth, axis, kind, order)


def topk(x: Array, k: int, /, *, axis: int | None = -1, largest: bool = True) -> tuple[Array, Array]:
    """Return the `k` largest elements along `axis`, largest first, and their indices; with ``largest=False`` the
    smallest, smallest first.

    Of equal elements the first ones count. nan counts as largest, as it does where arrays are sorted. Where the axis is
    cut, each tile gives its own `k`, and the result is chosen among these. Neither tiles nor rows are sorted.

    Raises
    ------
    ValueError
        If there are fewer than `k` elements.
    """
    node, box = one_array("topk", x)
    node, axis = along(node, axis, of_numbers=False)
    k = integer(k, "k")
    if not 0 <= k <= node.shape[axis]:
        raise ValueError(
            f"topk: k={k} is no number from 0 to {node.shape[axis]}, the extent of axis {axis}; for the smallest say "
            "largest=False"
        )
    moved = moveaxis(node, axis, -1)
    cut = few_rows(node, axis)
    if cut is None:
        values, order = _top_of_rows(moved, k, largest)
    else:
        pairs = [_top_of_vector(row, cut, k, largest) for row in rows_of(moved)]
        values, order = (bind_reshape(stack(nodes), (*moved.shape[:-1], k)) for nodes in zip(*pairs, strict=True))
    return box(moveaxis(values, -1, axis)), box(moveaxis(order, -1, axis))


def _top_of_rows(moved: Expr, k: int, largest: bool) -> tuple[Expr, Expr]:
    first = bind(TOP_ROWS, (moved,), (*moved.shape[:-1], k), np.dtype(np.intp), (k, bool(largest)))
    return take_along_axis(moved, first), first


def _top_of_vector(row: Expr, cut: Sharding, k: int, largest: bool) -> tuple[Expr, Expr]:
    bounds = cut.boundaries(row.shape)[0]
    found = np.cumsum([0, *(min(k, n) for n in np.diff(bounds).tolist())]).tolist()
    results = [((found[-1],), row.dtype, found), ((found[-1],), np.int64, found)]
    keys, stood = bind_tiles(TOP_TILES, [(row, bounds)], results, cut, (k, bool(largest)))
    # Tiles one after the other, each stably: of equal elements the first ones stay first.
    first = sliced(argsort(keys, descending=largest), 0, 0, k)
    return take(keys, first, axis=0), take(stood, first, axis=0)
