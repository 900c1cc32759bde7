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
from typing import Any

import numpy as np

from distarray import config, hooks
from distarray.array.environment import forced_parts
from distarray.array.handle import AnyHandle, Handle
from distarray.array.versions import block_type
from distarray.expr.expr import GET, SOURCE
from distarray.expr.indexing import Advanced
from distarray.kernels.listening import heard
from distarray.ops.indexing import TAKE
from distarray.runtime import counters, small
from distarray.types import HostArray

#: Bytes of all operands together: with more of them the work takes longer than the way through nodes.
MOST_NBYTES = 1 << 18
#: Types of arguments that hold no array.
_PLAIN = frozenset({bool, int, float, complex, str, type(None), slice, type(Ellipsis), type, type(np._NoValue)})


class _ElsewhereError(Exception):
    """An _ElsewhereError says that an argument is no small array that is here, nor a plain value."""


def _here(value: Any, seen: list[Handle | HostArray]) -> Any:
    """Return an argument with blocks in the places of arrays, which are added to `seen`, as numpy's are."""
    kind = type(value)
    if kind in _PLAIN or isinstance(value, np.generic | np.dtype):
        return value
    if kind is np.ndarray:
        seen.append(value)
        return value
    if isinstance(value, Handle):
        block = value._here()
        if block is None:
            raise _ElsewhereError
        seen.append(value)
        return block
    if kind is list or kind is tuple:
        return kind([_here(each, seen) for each in value])
    raise _ElsewhereError


def _first(seen: Sequence[Handle | HostArray]) -> Handle | None:
    """Return the first array of ours, if they all live where it does; None if not, or if options forbid."""
    arrays = [x for x in seen if isinstance(x, Handle)]
    if not arrays or forced_parts.get() is not None or config.get("data-dependent") == "raise":
        return None
    env = arrays[0]._env
    return arrays[0] if all(x._env is env for x in arrays) else None


def call_by_numpy(
    function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any], bound: Callable[..., int] | None
) -> Any:
    """Return numpy's ``function(*args, **options)``, its arrays boxed; None where it is not computed at the call.

    Parameters
    ----------
    bound
        From the arguments, the bytes that the result may take; None: about as many as the operands.
    """
    seen: list[Handle | HostArray] = []
    try:
        given = [_here(value, seen) for value in args]
        named = {name: _here(value, seen) for name, value in options.items()}
    except _ElsewhereError:
        return None
    if (x := _first(seen)) is None or "out" in options:
        return None
    nbytes = sum([each.nbytes for each in seen])
    if nbytes > MOST_NBYTES or not small.is_eager(nbytes, x._env):
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
        small.count()
    return _boxed(value, x)


def _boxed(value: Any, x: Handle) -> Any:
    """Return what numpy's function returns, each array as a handle that lives where `x` does; None for what is none."""
    if isinstance(value, np.ndarray):
        return x._of(_own(value), SOURCE, block_type(value.dtype, value.shape, x._env))
    if isinstance(value, np.generic):
        return x._of(np.asarray(value), GET, block_type(value.dtype, (), x._env))
    if isinstance(value, tuple | list):
        parts = [_boxed(each, x) for each in value]
        return None if any(part is None for part in parts) else type(value)(parts)
    return None


def _own(value: HostArray) -> HostArray:
    """Return elements in C order, in memory that nobody else has."""
    is_own = value.base is None and value.flags.c_contiguous and value.flags.writeable
    return value if is_own else np.array(value, order="C")


def _items(index: Any, parsed: Advanced, seen: list[Handle | HostArray]) -> tuple[Any, ...] | None:
    """Return an index with arrays as numpy takes it, with blocks for arrays, which are added to `seen`; None where one
    is not here.
    """
    kinds = [array.dtype.kind for _, array in parsed.arrays]
    if not all(kind in "iub" for kind in kinds) or ("b" in kinds and len(kinds) > 1):
        return None
    try:
        return _here(index if type(index) is tuple else (index,), seen)  # type: ignore[no-any-return]  # a tuple, as it was
    except _ElsewhereError:
        return None


def pick(x: Handle, index: Any, parsed: Advanced, *others: Handle) -> tuple[Any, Any] | None:
    """Return an index as numpy takes it, and what it picks; None where that is not computed at the call, or does not
    live where `others` do.
    """
    seen: list[Handle | HostArray] = [x, *others]
    block = x._here()
    if block is None or (items := _items(index, parsed, seen)) is None or _first(seen) is None:
        return None
    shape = parsed.affine.shape if parsed.shape is None else parsed.shape
    if not small.is_eager(max(prod(shape) * block.itemsize, block.nbytes), x._env):
        return None
    try:
        return items, block[items]
    except Exception:
        return None


def get_by_numpy(x: AnyHandle, index: Any, parsed: Advanced) -> AnyHandle | None:
    """Return ``x[index]``, a copy, of an index with arrays; None where it is not computed at the call."""
    found = pick(x, index, parsed)
    if found is None:
        return None
    if counters.active:
        small.count()
    made = found[1]
    is_number = isinstance(made, np.generic)  # an index with an ellipsis makes an array without axes
    kind = block_type(made.dtype, made.shape, x._env)
    return x._of(_own(np.asarray(made)), TAKE if is_number or made.ndim else SOURCE, kind)


hooks.call_by_numpy = call_by_numpy
