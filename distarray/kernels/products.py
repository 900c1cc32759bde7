"""Sums of products of two blocks: matrix products, and inner products of vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from distarray.kernels.buffers import POOL
from distarray.kernels.loans import reshaped
from distarray.kernels.namespaces import Block, Namespace, astype
from distarray.types import DType, HostArray


def contract(
    xp: Namespace, labels: Sequence[Sequence[int]], result: Sequence[int], *blocks: Block, dtype: DType
) -> Block:
    """Return the sum of products of two blocks, as one (batched) matrix product.

    Parameters
    ----------
    labels
        Per block the label of each axis: distinct, of equal extents wherever they meet, each in both blocks or in the
        result.
    result
        Labels of the result.
    dtype
        Of the result.
    """
    a, b = blocks
    product = matrix_product(tuple(map(tuple, labels)), tuple(result), tuple(a.shape), tuple(b.shape))
    if xp is np and a.dtype == b.dtype == dtype and product.is_inner(a):
        return np.einsum(product.inner, a, b, out=POOL.take([a.shape[labels[0].index(v)] for v in result], dtype))
    x, y = (_arranged(xp, block, *form) for block, form in zip(blocks, product.operands, strict=True))
    # numpy has no BLAS for half floats, and sums them in single
    half = xp is np and a.dtype == b.dtype == np.float16
    if half:
        x, y = x.astype(np.float32), y.astype(np.float32)
    if xp is np and product.is_summed and x.dtype == y.dtype == dtype:
        z = np.matmul(x, y, out=POOL.take((*x.shape[:-1], y.shape[-1]), dtype))  # no new pages, as large ones would be
    else:
        z = astype(xp, xp.matmul(x, y) if product.is_summed else xp.multiply(x, y), dtype)
    z = reshaped(xp, z, product.shape)
    return z if product.order is None else xp.permute_dims(z, product.order)


class MatrixProduct(NamedTuple):
    """A MatrixProduct says how a sum of products of two blocks is a (batched) matrix product.

    Attributes
    ----------
    operands
        Per block the order of its axes, None if they are in it, and the shape as matrices: batch, rows, columns.
    is_summed
        Whether the product sums at all.
    shape
        Of the result, with the axes of the batch first, then the rows', then the columns'.
    order
        Of these axes in the result, or None.
    merged
        Per block the axes that become rows, and those that become columns.
    inner
        As text for ``numpy.einsum``, if it is a batch of inner products of vectors; else empty.
    summed
        The summed axes of the first block.
    """

    operands: tuple[tuple[tuple[int, ...] | None, tuple[int, ...]], ...]
    is_summed: bool
    shape: tuple[int, ...]
    order: tuple[int, ...] | None
    merged: tuple[tuple[tuple[int, ...], ...], ...]
    inner: str
    summed: tuple[int, ...]

    def is_inner(self, block: HostArray) -> bool:
        """Return whether numpy's loops over a batch of inner products are faster than a call of BLAS for each: where
        the elements of one do not follow each other in the first block, and for integers, which BLAS has not.
        """
        if not self.inner or block.dtype == np.float16 or block.dtype.kind not in "iufc":
            return False
        last = min(range(block.ndim), key=lambda axis: abs(block.strides[axis]))
        return block.dtype.kind in "iu" or last not in self.summed

    def is_copied(self, n: int, shape: Sequence[int], *, is_whole: bool) -> bool:
        """Return whether a block of this shape is copied to be matrices: where several axes become one, a part of an
        array may have to be, an array that is whole only if they do not lie side by side in it.
        """
        for axes in self.merged[n]:
            long = [a for a in axes if shape[a] != 1]
            between = shape[long[0] : long[-1] + 1] if long else ()
            if len(long) > 1 and not (
                is_whole and long == sorted(long) and math.prod(between) == math.prod([shape[a] for a in long])
            ):
                return True
        return False


@lru_cache(maxsize=4096)
def matrix_product(
    labels: tuple[tuple[int, ...], ...],
    result: tuple[int, ...],
    left_shape: tuple[int, ...],
    right_shape: tuple[int, ...],
) -> MatrixProduct:
    """Return how a sum of products of two blocks of these shapes is a matrix product; see `contract`."""
    left, right = labels
    batch = [v for v in left if v in right and v in result]
    summed = [v for v in left if v in right and v not in result]
    rows = [v for v in left if v not in right]
    columns = [v for v in right if v not in left]
    size = dict(zip((*left, *right), (*left_shape, *right_shape)))

    def matrices(own: Sequence[int], first: Sequence[int], second: Sequence[int]) -> Any:
        order = _unless_sorted([own.index(v) for v in (*batch, *first, *second)])
        return order, (*[size[v] for v in batch], *[math.prod([size[v] for v in vs]) for vs in (first, second)])

    made = [*batch, *rows, *columns]
    return MatrixProduct(
        (matrices(left, rows, summed), matrices(right, summed, columns)),
        bool(summed),
        tuple([size[v] for v in made]),
        _unless_sorted([made.index(v) for v in result]),
        tuple(
            [
                tuple([tuple([own.index(v) for v in vs]) for vs in pair])
                for own, pair in ((left, (rows, summed)), (right, (summed, columns)))
            ]
        ),
        _as_text(labels, result) if batch and summed and not rows and not columns and len(size) <= 26 else "",
        tuple([left.index(v) for v in summed]),
    )


def _as_text(labels: tuple[tuple[int, ...], ...], result: tuple[int, ...]) -> str:
    """Return labels as ``numpy.einsum`` takes them."""
    letters = {label: chr(ord("a") + i) for i, label in enumerate(dict.fromkeys([*labels[0], *labels[1]]))}
    first, second, out = ("".join([letters[label] for label in own]) for own in (*labels, result))
    return f"{first},{second}->{out}"


def _unless_sorted(order: Sequence[int]) -> tuple[int, ...] | None:
    return None if list(order) == sorted(order) else tuple(order)


def _arranged(xp: Namespace, block: Block, axes: tuple[int, ...] | None, shape: tuple[int, ...]) -> Block:
    if axes is not None:
        block = xp.permute_dims(block, axes)
    return block if block.shape == shape else xp.reshape(block, shape)
