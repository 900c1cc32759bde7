"""What numpy's own function has to the bit is computed by it, where arrays are small and here: gathers, scatters, and
functions that move elements, compare or count them, or round each by itself in numpy's own way.

Nothing is summed, so results do not depend on who computes them; but their shapes or errors depend on elements, which
nodes look at in evaluations of their own, and that takes up to a hundred times as long as numpy. Where arrays are
larger or elsewhere, where options say otherwise, and where something is wrong or warned of, there is no answer here:
the operation goes its way through nodes, which say what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, TypeAlias

import numpy as np

from distarray import config, hooks
from distarray.array.environment import forced_parts
from distarray.array.handle import AnyHandle, Handle
from distarray.array.lifetime import is_alone
from distarray.array.versions import Base, block_type
from distarray.dtypes import FOREIGN
from distarray.expr.expr import GET, SOURCE
from distarray.expr.indexing import Basic, parse_index
from distarray.expr.lens import Affine, Lens
from distarray.expr.op import Op
from distarray.kernels.listening import heard
from distarray.kernels.loans import is_ours, owned
from distarray.kernels.masks import compressed
from distarray.ops.indexing import TAKE
from distarray.runtime import counters, small
from distarray.types import HostArray

#: Bytes of all operands together: with more of them the work takes longer than the way through nodes.
MOST_NBYTES = 1 << 20
#: The same of `_SLOW` functions.
MOST_SLOW_NBYTES = 1 << 18
_NONE: Mapping[str, Any] = {}
#: Types of arguments that hold no array.
_PLAIN = frozenset({bool, int, float, complex, str, type(None), slice, type(Ellipsis), type, type(np._NoValue)})


class _ElsewhereError(Exception):
    """An _ElsewhereError says that an argument is no small array that is here, nor a plain value."""


#: An array of an argument, None where it is numpy's own, and its elements.
_Seen: TypeAlias = tuple[Handle | None, HostArray]


def _here(value: Any, seen: list[_Seen]) -> Any:
    """Return an argument with blocks in the places of arrays, which are added to `seen`, as numpy's are."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, Handle):
        block = value._ready()
        if block is None:
            raise _ElsewhereError
        seen.append((value, block))
        return block
    if kind is np.ndarray:
        if value.dtype.kind in FOREIGN:  # as of larger arrays: there are none of texts and objects
            raise _ElsewhereError
        seen.append((None, value))
        return value
    if kind is list or kind is tuple:
        if any(type(each) is str or each is None for each in value):  # as arrays of texts and objects
            raise _ElsewhereError
        return kind([_here(each, seen) for each in value])
    if isinstance(value, np.generic | np.dtype):
        return value
    raise _ElsewhereError


def _first(seen: Sequence[_Seen]) -> Handle | None:
    """Return the first array of ours, if they all live where it does; None if not, or if options forbid."""
    found: Handle | None = None
    for x, _ in seen:
        if x is None:
            continue
        if found is None:
            found, env = x, x._base.type.env
        elif x._base.type.env is not env:
            return None
    return None if forced_parts.get() is not None or config.get("data-dependent") == "raise" else found


def _gathered(
    args: Sequence[Any], options: Mapping[str, Any], seen: list[_Seen], most: int = MOST_NBYTES
) -> tuple[list[Any], dict[str, Any], Handle] | None:
    """Return the arguments of numpy's function with blocks in the places of arrays, which are added to `seen`, and the
    first array of ours; None where they are not here, or have more than `most` bytes.
    """
    try:
        given = [_here(value, seen) for value in args]
        named = {name: _here(value, seen) for name, value in options.items()}
    except (_ElsewhereError, RecursionError):  # a list that holds itself is an error of numpy's
        return None
    nbytes = sum([block.nbytes for _, block in seen])
    x = _first(seen)
    if x is None or nbytes > most or not small.is_eager(nbytes, x._base.type.env):
        return None
    return given, named, x


#: Functions that sort by NumPy's default.
_SORTS = (np.unique, np.union1d, np.intersect1d, np.setdiff1d, np.setxor1d)
#: Functions that look at each element many times, or at it among all others: threads share that work.
_SLOW = frozenset(
    {
        *(*_SORTS, np.isin, np.lexsort, np.searchsorted, np.digitize, np.interp),
        *(np.histogram, np.histogram2d, np.histogramdd),
    }
)
#: Functions whose half precision is not ours: NumPy's default sort leaves such numbers out of order (`kernels.sorting`)
#: and its sums along other axes than the last round to half precision at each step (`kernels.monoids`).
_OTHER_HALVES = frozenset({*_SORTS, np.nansum, np.nanprod})


def call_by_numpy(
    function: Callable[..., Any],
    args: Sequence[Any],
    options: Mapping[str, Any] = _NONE,
    bound: Callable[..., int] | None = None,
) -> Any:
    """Return numpy's ``function(*args, **options)``, its arrays boxed; None where it is not computed at the call.

    Parameters
    ----------
    bound
        From the arguments, the bytes that the result may take; None: about as many as the operands.
    """
    seen: list[_Seen] = []
    most = MOST_SLOW_NBYTES if function in _SLOW else MOST_NBYTES
    if "out" in options or (found := _gathered(args, options, seen, most)) is None:
        return None
    given, named, x = found
    if function in _OTHER_HALVES and any(block.dtype == np.float16 for _, block in seen):
        return None
    try:
        if bound is not None and bound(*given, **named) > small.SMALL_NBYTES:
            return None
        value, met = heard(partial(function, *given, **named), ())
    except Exception:
        return None  # the way through nodes says what is wrong
    if met:
        return None
    if counters.active:
        counters.count_evaluation(is_inline=True)
    return _boxed(value, x, seen)


def _boxed(value: Any, x: Handle, seen: Sequence[_Seen]) -> Any:
    """Return what numpy's function returns of some blocks, each array as a handle that lives where `x` does, an
    argument as itself; None for what is none.
    """
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in FOREIGN:
        return None
    if isinstance(value, np.ndarray):
        blocks = []
        for handle, block in seen:
            if value is block and handle is not None:
                return handle
            blocks.append(block)
        return _as_it_lies(x, value, blocks, SOURCE)
    if isinstance(value, np.generic):
        return x._of(np.asarray(value), GET, block_type(value.dtype, (), x._base.type.env))
    if isinstance(value, tuple | list):
        parts = [_boxed(each, x, seen) for each in value]
        return None if any(part is None for part in parts) else type(value)(parts)
    return None


def _as_it_lies(x: AnyHandle, value: Any, blocks: Sequence[HostArray], op: Op) -> AnyHandle:
    """Return a handle on an array that numpy made of some blocks, or a number, in the order of axes that it has in
    memory where that is its own.
    """
    env = x._base.type.env
    if is_ours(value) and not value.flags.c_contiguous:
        return x._of_any_order(value, op, env)
    return x._of(owned(value, blocks), op, block_type(value.dtype, value.shape, env))


# ------------------------------------------------------------------------------------------ indices with arrays

#: Types of the items of an index that hold no array and pick nothing by themselves.
BASIC = frozenset({int, slice, type(None), type(Ellipsis)})
_INTEGERS = frozenset({int})


def are_integers(index: Any) -> bool:
    """Return whether an index is made of Python's integers alone, one at least."""
    kind = type(index)
    if kind is tuple:
        return len(index) > 0 and type(index[0]) is int and _INTEGERS.issuperset(map(type, index))
    return kind is int


def may_have_arrays(index: Any) -> bool:
    """Return whether an index is, or holds, something else than integers, slices, ``...`` and new axes."""
    kind = type(index)
    return kind not in BASIC and not (kind is tuple and BASIC.issuperset(map(type, index)))


def _index_array(item: Any, seen: list[_Seen]) -> HostArray | None:
    """Return an item of an index as an array of integers or a mask, which is added to `seen`; None where it is none, or
    not here.
    """
    if isinstance(item, Handle):
        x, item = item, item._ready()
        if item is not None:
            seen.append((x, item))
    elif type(item) is list and item and _INTEGERS.issuperset(map(type, item)):
        item = np.array(item)
    if type(item) is not np.ndarray or not (item.dtype.kind in "iu" or (item.dtype.kind == "b" and item.ndim)):
        return None
    return item


def _most_picked(block: HostArray, index: Any, arrays: Sequence[HostArray]) -> int:
    """Return a bound on the elements that an index with arrays picks from a block."""
    if len(arrays) == 1 and arrays[0].dtype.kind == "b":
        return block.size
    if type(index) is not tuple:
        return arrays[0].size * (block.size // max(block.shape[0], 1)) if block.ndim else arrays[0].size
    is_one_shape = all(array.shape == arrays[0].shape for array in arrays)
    n = arrays[0].size if is_one_shape else prod([array.size for array in arrays])
    if n * block.nbytes <= MOST_NBYTES:
        return n * block.size
    parsed = parse_index(index, block.shape)
    return prod(parsed.affine.shape if type(parsed) is Basic or parsed.shape is None else parsed.shape)


def pick(x: Handle, index: Any, *others: Handle) -> tuple[Any, Any] | None:
    """Return an index with arrays as numpy takes it, and what it picks; None where that is not computed at the call, or
    does not live where `others` do.
    """
    block = x._ready()
    if block is None:
        return None
    seen: list[_Seen] = [(each, block) for each in (x, *others)]
    items, arrays = [], []
    for item in index if type(index) is tuple else (index,):
        if type(item) not in BASIC:
            array = _index_array(item, seen)
            if array is None:
                return None
            arrays.append(array)
            item = array
        items.append(item)
    # A mask beside other arrays stands for as many positions as it has true elements, which nobody knows before.
    if not arrays or (len(arrays) > 1 and any(array.dtype.kind == "b" for array in arrays)) or _first(seen) is None:
        return None
    try:
        # To read at positions takes as long as there are positions, however large the array is.
        nbytes = _most_picked(block, index, arrays) * block.itemsize
        if any(array.dtype.kind == "b" for array in arrays):
            nbytes = max(nbytes, block.nbytes)
        if not small.is_eager(nbytes, x._base.type.env):
            return None
        is_mask = len(items) == 1 and arrays[0].dtype.kind == "b" and arrays[0].shape == block.shape[: arrays[0].ndim]
        made = compressed(block, arrays[0]) if is_mask else block[tuple(items)]
    except Exception:
        return None  # the way through nodes says what is wrong
    if made.ndim and not all(array.ndim for array in arrays):
        return None  # what numbers pick may be a view
    return tuple(items), made


def get_by_numpy(x: AnyHandle, index: Any) -> AnyHandle | None:
    """Return ``x[index]``, a copy, of an index with arrays; None where it is not computed at the call."""
    found = pick(x, index)
    if found is None:
        return None
    if counters.active:
        counters.count_evaluation(is_inline=True)
    made = found[1]
    is_number = isinstance(made, np.generic)  # an index with an ellipsis makes an array without axes
    return _as_it_lies(x, made, (), TAKE if is_number or made.ndim else SOURCE)


# ----------------------------------------------------------------------------------------------------- in place


def update_by_numpy(
    function: Callable[..., Any], x: Handle, args: Sequence[Any], options: Mapping[str, Any] = _NONE
) -> bool:
    """Let numpy's function write into an array, its first argument, where that and all others are small and here;
    return whether that was done.

    It writes into a copy of the elements, which takes their place: where it fails, nothing has changed.
    """
    base, lens = x._base, x._lens
    since, link = base.version, only_link(base, lens)
    block = x._ready()
    if block is None or link is None or x._readonly:
        return False
    if (found := _gathered(args, options, [(x, block)])) is None:
        return False
    given, named, _ = found
    if block.dtype.kind != "c" and _is_complex([*given, *named.values()]):
        return False  # numpy warns of it
    made = np.array(block, order="C")
    try:
        _, met = heard(partial(function, made, *given, **named), ())
    except Exception:
        return False  # the way through nodes says what is wrong
    if met or not base.write(link, made, since, is_alone):
        return False
    if counters.active:
        counters.count_evaluation(is_inline=True)
    return True


def _is_complex(value: Any) -> bool:
    if type(value) is list or type(value) is tuple:
        return any(map(_is_complex, value))
    return isinstance(value, complex | np.complexfloating) or (type(value) is np.ndarray and value.dtype.kind == "c")


def only_link(base: Base, lens: Lens) -> Affine | None:
    """Return a lens as one affine link; None if it is more than that."""
    link = lens[0] if lens else Affine.identity(base.shape)
    return link if len(lens) < 2 and type(link) is Affine else None


hooks.call_by_numpy = call_by_numpy
