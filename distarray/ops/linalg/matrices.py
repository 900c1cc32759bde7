"""What the functions of linear algebra have in common: operands that are matrices, dtypes, results of several parts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from distarray.dtypes import as_dtype
from distarray.expr.bind import Box, bind, bind_create
from distarray.expr.expr import ITEM, Expr
from distarray.expr.op import Op
from distarray.expr.params import ItemParams
from distarray.ops.creation import EYE
from distarray.ops.elementwise import astype
from distarray.ops.families import Array, one_array
from distarray.types import DType, Shape

#: The clause of rules of kernels on whole matrices.
WHOLE = "i: whole, j: whole"


class EigResult(NamedTuple):
    """An EigResult has eigenvalues and, as columns, eigenvectors of general matrices; complex."""

    eigenvalues: Array
    eigenvectors: Array


class EighResult(NamedTuple):
    """An EighResult has ascending eigenvalues and, as columns, eigenvectors of symmetric or Hermitian matrices."""

    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    """A QRResult has orthonormal columns and an upper triangle."""

    Q: Array
    R: Array


class SlogdetResult(NamedTuple):
    """A SlogdetResult has sign and logarithm of the modulus of determinants."""

    sign: Array
    logabsdet: Array


class SVDResult(NamedTuple):
    """An SVDResult has left singular vectors, descending singular values, right singular vectors as rows."""

    U: Array
    S: Array
    Vh: Array


@lru_cache(maxsize=1024)
def float_dtype(*dtypes: DType) -> DType:
    """Return the dtype in which numpy does linear algebra; its TypeError for half floats and dates."""
    return as_dtype(np.linalg.solve(*(np.ones((1, 1), d) for d in (*dtypes, *dtypes)[:2])).dtype)


def real_dtype(dtype: DType) -> DType:
    """Return the dtype of the parts of a complex number; a real one as it is."""
    return np.empty(0, dtype).real.dtype


def complex_dtype(dtype: DType) -> DType:
    """Return the complex dtype of this precision."""
    return np.result_type(dtype, np.complex64)


def matrices(name: str, x: Array, *, square: bool = False) -> tuple[Expr, Box]:
    """Return the operand in a floating dtype, checked to be matrices, and how to box results.

    Raises
    ------
    LinAlgError
        If it has fewer than two axes, or is not square and should be.
    """
    node, box = one_array(name, x)
    check_matrices(node, square=square)
    cast = astype(node, float_dtype(node.dtype), copy=False)
    assert type(cast) is Expr
    return cast, box


def check_matrices(node: Expr, *, square: bool) -> None:
    """Raise numpy's LinAlgError where an operand has fewer than two axes, or is not square and should be."""
    if node.ndim < 2:
        raise LinAlgError(f"{node.ndim}-dimensional array given. Array must be at least two-dimensional")
    if square and node.shape[-1] != node.shape[-2]:
        raise LinAlgError(f"Last 2 dimensions of the array must be square, but they are {node.shape[-2:]}")


def identity_of(node: Expr) -> Expr:
    """Return the identity that the square matrices in a stack have."""
    return bind_create(EYE, node.shape[-2:], node.dtype, node.env, (), 0)


def several(
    op: Op, operands: Sequence[Expr], shapes: Sequence[Shape], dtypes: Sequence[DType], params: tuple[Any, ...] = ()
) -> list[Expr]:
    """Return the results of an operation that has several: one node, and a projection for each."""
    node = bind(op, operands, tuple(shapes), tuple(dtypes), params)
    return [bind(ITEM, (node,), shape, dtype, ItemParams(i)) for i, (shape, dtype) in enumerate(zip(shapes, dtypes))]
