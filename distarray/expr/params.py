"""The static parameters of the families of operations that more than their kernels read: one record each.

A record is a tuple, so it is part of the key of a plan as it is. What a family without a record has as parameters are
the arguments of its kernels, which nothing else looks at.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple, TypeAlias

#: Labels of the axes of an operand, or of a result: small integers.
Labels: TypeAlias = tuple[int, ...]


class ReduceParams(NamedTuple):
    """ReduceParams are the parameters of a ``reduce``.

    Attributes
    ----------
    axes
        The axes that go.
    keepdims
        Whether they stay with one element.
    extra
        What the last step needs beside the partial results: the correction of ``var`` and ``std``.
    """

    axes: tuple[int, ...]
    keepdims: bool
    extra: tuple[Hashable, ...] = ()


class ContractParams(NamedTuple):
    """ContractParams are the parameters of a ``contract``: a loop over all labels.

    Attributes
    ----------
    operands
        Labels of each operand, all different within one.
    result
        Labels of the result.
    join
        What is done with elements that meet: ``PRODUCT``, or a `Join`.
    monoid
        By which the labels go that the result lacks.
    pinned
        The mesh axes of these labels, where the user said how the loop is cut.
    name
        By which numpy tells of floating-point events.
    """

    operands: tuple[Labels, ...]
    result: Labels
    join: Any
    monoid: str
    pinned: tuple[tuple[str, ...], ...] = ()
    name: str = "einsum"


class WindowProductParams(NamedTuple):
    """WindowProductParams are the parameters of a ``window_product``: a sum of products with the windows of an array.

    Attributes
    ----------
    rule
        The ShardingRule.
    window, axes
        Extents of the windows, and the axis that each of them slides along.
    labels
        Labels of the windows, those within a window last, and of the other operand.
    result
        Labels of the result.
    dtype
        Of the result, as text.
    known_as
        The function of numpy that tells of floating-point events.
    """

    rule: str
    window: tuple[int, ...]
    axes: tuple[int, ...]
    labels: tuple[Labels, Labels]
    result: Labels
    dtype: str
    known_as: str


class IndexParams(NamedTuple):
    """IndexParams are the parameters of a ``take`` or ``take_put`` at integer arrays, which broadcast.

    Attributes
    ----------
    axes
        The axes that they index.
    position
        Where their broadcast axes stand in what is read or written.
    n_index
        How many these are.
    mode
        What a value that is written does to what stands there: ``set``, or the name of numpy's function that joins
        them. One of a single operand leaves the values alone.
    """

    axes: tuple[int, ...]
    position: int
    n_index: int
    mode: str = "set"


class ItemParams(NamedTuple):
    """ItemParams are the parameters of an ``item``: which result of an operation of several it is."""

    number: int


class SlidingParams(NamedTuple):
    """SlidingParams are the parameters of ``sliding_window_view``: the extents of the windows, and the axis that each
    slides along.
    """

    window: tuple[int, ...]
    axes: tuple[int, ...]
