"""Base: storage with versions, and reading and writing one of its versions through a lens.

A view and its base share one `Base`, which names the node of the current version. Reading through a view is a node on
that version; writing makes a new version, which every alias sees and no pending expression does. Everything here is
functional: that a new version may take over the buffers of the old one is found out when it is evaluated.
"""

from __future__ import annotations

from typing import Any

from distarray.array import versions
from distarray.errors import DeletedArrayError
from distarray.expr.bind import bind, bind_get, bind_map, bind_put, bind_reshape
from distarray.expr.expr import Expr, Scalar, Slot, Stored
from distarray.expr.lens import Affine, Lens, Reshape, Sliding
from distarray.ops.creation import constant
from distarray.ops.elementwise import ASTYPE, COMPLEX, imag, real
from distarray.ops.lenses import broadcast_lens
from distarray.ops.sliding import read_windows
from distarray.types import DType, Shape

__all__ = ["Base", "cast", "copied", "put", "read"]


class Base:
    """Storage with versions: what views alias.

    Attributes
    ----------
    expr
        Node of the current version; None after ``delete()``.
    slot
        Keeps the result of that node: see `Expr.hold`.
    version
        Number of the current version; views compare it to know whether what they read is up to date.
    history
        Versions before a current one that may still fail, oldest first: see `versions`.
    """

    __slots__ = ("__weakref__", "expr", "history", "slot", "version")

    def __init__(self, expr: Expr) -> None:
        self.expr: Expr | None = expr
        self.slot: Slot | None = expr.hold(by_base=True)
        self.version = 0
        self.history: list[Expr] = []

    @property
    def current(self) -> Expr:
        """Return the node of the current version.

        Raises
        ------
        DeletedArrayError
            After ``delete()``.
        """
        if self.expr is None:
            raise DeletedArrayError("the array was deleted by x.delete(), which is the last use of it and of its views")
        return self.expr

    def advance(self, since: Expr, expr: Expr, slot: Slot) -> bool:
        """Let `expr` be the version after `since`; False, and nothing happens, if another one came in between.

        A write of any thread is made from a version. It counts only as the next one of that version, else it is made
        again from the newest one, so that no write is lost and none counts twice.

        Parameters
        ----------
        slot
            Of `expr`: its writer held it, and listed the node as pending, before anybody could see it.
        """
        is_remembered = versions.is_remembered(since, expr)
        with versions.lock:
            if self.expr is not since:
                return False
            versions.remember(self, is_remembered)
            self._become(expr, slot)
        return True

    def restore(self, since: Expr, expr: Expr) -> bool:
        """Let an earlier version, or the same elements elsewhere, take the place of `since` where that is current."""
        slot = None if expr is since else expr.hold(by_base=True)
        with versions.lock:
            if self.expr is not since:
                return False
            versions.forget(self)
            if slot is not None:
                self._become(expr, slot)
        return True

    def _become(self, expr: Expr, slot: Slot) -> None:
        self.expr = expr
        self.slot = slot
        self.version += 1

    def drop(self) -> None:
        """Forget the storage: every later use raises."""
        with versions.lock:
            self.expr = None
            self.slot = None
            self.history = []
            self.version += 1

    def __reduce__(self) -> tuple[Any, ...]:
        from distarray.array.pickling import reduce_base

        return reduce_base(self)


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
    return _put_component(expr, link.part, rest, value)  # type: ignore[union-attr]  # a Component


def _put_component(expr: Expr, part: str, rest: Lens, value: Expr | Scalar) -> Expr:
    parts = {"real": real(expr), "imag": imag(expr)}
    parts[part] = put(parts[part], rest, value)
    combined: Expr = bind(COMPLEX, (parts["real"], parts["imag"]), expr.shape, expr.dtype)
    return combined if combined.shape else cast(combined, expr.dtype)


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


def copied(expr: Expr) -> Expr:
    """Return a computed node in memory of its own, with the elements of one whose blocks are here."""
    memo = expr.memo
    assert memo is not None
    fresh = cast(expr, expr.dtype)
    fresh.settle(Stored(memo.sharding, [_copied(block) for block in memo.blocks], memo.on_client, exported=False))
    return fresh


def _copied(block: Any) -> Any:  # of any backend
    return block.copy() if hasattr(block, "copy") else block.__array_namespace__().asarray(block, copy=True)


def cast(expr: Expr, dtype: DType) -> Expr:
    """Return a new node with the elements of `expr` as `dtype`; of a complex number its real part."""
    result: Expr = bind_map(ASTYPE, (expr,), (dtype.str,))
    return result
