"""A version of a base is read and written through a lens here.

Reading through a view is a node on the current version; writing makes a new version, which every alias sees and no
pending expression does. Everything here is functional: that a new version may take over the buffers of the old one is
found out when it is evaluated.
"""

from __future__ import annotations

from typing import Any

from distarray.expr.bind import bind, bind_get, bind_map, bind_put, bind_reshape
from distarray.expr.expr import Expr, Scalar, Stored
from distarray.expr.lens import Affine, Bits, Lens, Reshape, Sliding
from distarray.ops.creation import constant
from distarray.ops.elementwise import ASTYPE, COMPLEX, as_array, bits, imag, real
from distarray.ops.lenses import broadcast_lens
from distarray.ops.sliding import read_windows
from distarray.types import DType, Shape


def read(expr: Expr, lens: Lens) -> Expr:
    """Return the node of what `lens` sees of a version."""
    for i, link in enumerate(lens):
        if i and type(lens[i - 1]) is Sliding and type(link) is Affine:
            continue  # read with the windows that it picks
        if type(link) is Sliding:
            # A lens behind it decides which windows there have to be.
            then = lens[i + 1] if i + 1 < len(lens) else None
            expr = read_windows(expr, link, then if type(then) is Affine else None)
            continue
        if type(link) is Affine:
            expr = bind_get(expr, link)
        elif type(link) is Reshape:
            expr = bind_reshape(expr, link.shape)
        elif type(link) is Bits:
            expr = bits(expr, link.dtype)
        else:
            expr = real(expr) if link.part == "real" else imag(expr)  # type: ignore[union-attr]  # a Component
    return expr


def put(expr: Expr, lens: Lens, value: Expr | Scalar) -> Expr:
    """Return the version after `expr` in which what `lens` sees is `value`.

    Parameters
    ----------
    value
        Broadcasts to the shape of the view, and casts to its dtype without further question; a scalar has the dtype.
    """
    if not lens:
        return _whole(expr, value)
    link, rest = lens[0], lens[1:]
    if type(link) is Affine:
        if not rest:
            return bind_put(expr, link, _without_leading_ones(value, link.shape))
        return bind_put(expr, link, put(bind_get(expr, link), rest, value))
    if type(link) is Reshape:
        return bind_reshape(put(bind_reshape(expr, link.shape), rest, value), expr.shape)
    if type(link) is Bits:
        combined: Expr = as_array(bits(put(bits(expr, link.dtype), rest, value), expr.dtype.str))
        return combined
    parts, part = {"real": real(expr), "imag": imag(expr)}, link.part  # type: ignore[union-attr]  # a Component
    parts[part] = put(parts[part], rest, value)
    joined: Expr = as_array(bind(COMPLEX, (parts["real"], parts["imag"]), expr.shape, expr.dtype))
    return joined


def _whole(expr: Expr, value: Expr | Scalar) -> Expr:
    """Return a version that has nothing of `expr` but its shape, dtype and pin: no put, the value itself."""
    if type(value) is not Expr:
        return constant(expr.shape, value, expr.dtype, expr.env, expr.pin)
    value = _without_leading_ones(value, expr.shape)
    assert type(value) is Expr
    if value.dtype != expr.dtype:
        value = cast(value, expr.dtype)
    if value.shape != expr.shape:
        value = bind_get(value, broadcast_lens(value.shape, expr.shape))
    if expr.pin is not None and value.pin != expr.pin:
        # A base keeps the sharding that its owner asked for, whatever is written to it.
        value = cast(value, expr.dtype).with_pin(expr.pin)
    elif not expr.shape and value.op is not ASTYPE:
        # An array stays one: what an operation makes without axes is a scalar to updates in place.
        value = cast(value, expr.dtype)
    return value


def _without_leading_ones(value: Expr | Scalar, shape: Shape) -> Expr | Scalar:
    # numpy lets a value of more axes be assigned if the additional ones have extent 1
    if type(value) is Expr and value.ndim > len(shape):
        return bind_reshape(value, value.shape[value.ndim - len(shape) :])
    return value


def copied(expr: Expr, *, in_c_order: bool = False) -> Expr:
    """Return a computed node in memory of its own, with the elements of one whose blocks are here, and their layout
    unless C order is asked for.
    """
    memo = expr.stored
    sharding = memo.sharding.with_layout("C") if in_c_order else memo.sharding
    fresh = cast(expr, expr.dtype)
    blocks = [_copied(block, "C" if in_c_order else "K") for block in memo.blocks]
    fresh.settle(Stored(sharding, blocks, memo.on_client, exported=False))
    return fresh


def _copied(block: Any, order: str) -> Any:  # of any backend
    return block.copy(order=order) if hasattr(block, "copy") else block.__array_namespace__().asarray(block, copy=True)


def cast(expr: Expr, dtype: DType) -> Expr:
    """Return a new node with the elements of `expr` as `dtype`; of a complex number its real part."""
    result: Expr = bind_map(ASTYPE, (expr,), (dtype.str,))
    return result
