"""What the functions of linear algebra have in common: operands that are matrices, dtypes, results of several parts."""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.linalg import LinAlgError

from distarray.deferral import errors_wait
from distarray.dtypes import as_dtype
from distarray.expr.bind import Box, bind, bind_create, identity
from distarray.expr.expr import ITEM, Expr, postorder
from distarray.expr.op import Op
from distarray.expr.params import ItemParams
from distarray.ops.creation import EYE
from distarray.ops.elementwise import astype
from distarray.ops.families import Array, one_array
from distarray.ops.programs import Ask, Program, run
from distarray.types import DType, Shape

#: Bytes of results that are computed at the call, whoever will look at them.
SMALL = 1 << 20
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


def boxed(name: str, box: Box, nodes: Sequence[Expr], *, shared: bool = False) -> list[Any]:
    """Return results of an operation that may fail, boxed; computed now, all of them together.

    Bare nodes stay pending, for whoever goes on with them, and so do results where the option ``errors`` says so.

    Parameters
    ----------
    shared
        Whether several results share work that no node of theirs stands for. Looked at one after the other, they would
        each do it again, so that is done now in any case; what only one of them needs beside it waits.
    """
    if box is not identity and (shared or not errors_wait()):
        run(name, _computed(tuple(_shared(nodes) if shared else nodes)))
    return [box(node) for node in nodes]


def _shared(results: Sequence[Expr]) -> list[Expr]:
    """Return what is computed at the call of results that share work: results of operations that have several, what is
    small, and such results as would do again what is done for these.
    """
    items = [node for node in postorder(results, ITEM) if node.op is ITEM]
    done = {id(node) for node in postorder([o for item in items for o in item.nodes()]) if node.operands}
    small = [result for result in results if result.nbytes <= SMALL]
    beside = [_small_operands(result, done) for result in results if result.nbytes > SMALL]
    if not beside or None in beside:
        return list(results)
    return [*items, *small, *(node for nodes in beside for node in nodes or ())]


def _small_operands(result: Expr, done: Container[int]) -> list[Expr] | None:
    """Return the small nodes that a large result reads beside results of operations that have several; None where it
    reads what is done already, or may raise.
    """
    if result.op is ITEM:
        return []
    found: list[Expr] = []
    large, seen = [result], set[int]()
    while large:
        node = large.pop()
        if node.op.may_raise or id(node) in done:
            return None
        for operand in node.nodes():
            if operand.memo is not None or not operand.operands or operand.op is ITEM or id(operand) in seen:
                continue
            seen.add(id(operand))
            (found if operand.nbytes <= SMALL else large).append(operand)
    return found


def _computed(nodes: tuple[Expr, ...]) -> Program:
    yield Ask((), nodes)
