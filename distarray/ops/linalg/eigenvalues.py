"""Eigenvalues and eigenvectors: one matrix is always one member's work, stacks are cut along their leading axes."""

from __future__ import annotations

from distarray.arguments import choice
from distarray.expr.bind import bind
from distarray.expr.op import declare
from distarray.ops.families import Array, ready_made
from distarray.ops.linalg.matrices import (
    WHOLE,
    EighResult,
    EigResult,
    complex_dtype,
    matrices,
    real_dtype,
    several,
)
from distarray.ops.programs import boxed

#: params: (triangle that is read,)
EIGH = declare("eigh", "block", rule=f"... i j -> ... j, ... i j | {WHOLE}", may_raise=True)
EIGVALSH = declare("eigvalsh", "block", rule=f"... i j -> ... j | {WHOLE}", may_raise=True)
EIG = declare("eig", "block", rule=f"... i j -> ... j, ... i j | {WHOLE}", may_raise=True)
EIGVALS = declare("eigvals", "block", rule=f"... i j -> ... j | {WHOLE}", may_raise=True)


@ready_made(1)
def eigh(x: Array, /, UPLO: str = "L") -> EighResult:  # numpy's name
    """Return ascending eigenvalues and eigenvectors of symmetric or Hermitian matrices, of which one triangle is read.

    A matrix is brought to one member.

    Raises
    ------
    LinAlgError
        If a matrix is not square, or the iteration does not converge.
    MemoryBudgetError
        If a matrix does not fit the memory budget of a member.
    """
    node, box = matrices("eigh", x, square=True)
    shapes, dtypes = (node.shape[:-1], node.shape), (real_dtype(node.dtype), node.dtype)
    return EighResult(*boxed("eigh", box, several(EIGH, (node,), shapes, dtypes, (_triangle(UPLO),))))


@ready_made(1)
def eigvalsh(x: Array, /, UPLO: str = "L") -> Array:  # numpy's name
    """Return ascending eigenvalues of symmetric or Hermitian matrices, of which one triangle is read.

    A matrix is brought to one member.

    Raises
    ------
    LinAlgError
        If a matrix is not square, or the iteration does not converge.
    MemoryBudgetError
        If a matrix does not fit the memory budget of a member.
    """
    node, box = matrices("eigvalsh", x, square=True)
    return box(bind(EIGVALSH, (node,), node.shape[:-1], real_dtype(node.dtype), (_triangle(UPLO),)))


def _triangle(name: str) -> str:
    return choice(name, ("L", "U", "l", "u"), "UPLO").upper()


@ready_made(1)
def eig(x: Array, /) -> EigResult:
    """Return the eigenvalues and eigenvectors of general matrices.

    Complex, as the standard says: numpy returns real ones where all happen to be real, which no dtype can tell before.
    A matrix is brought to one member.

    Raises
    ------
    LinAlgError
        If a matrix is not square, or the iteration does not converge.
    MemoryBudgetError
        If a matrix does not fit the memory budget of a member.
    """
    node, box = matrices("eig", x, square=True)
    dtype = complex_dtype(node.dtype)
    return EigResult(*boxed("eig", box, several(EIG, (node,), (node.shape[:-1], node.shape), (dtype, dtype))))


@ready_made(1)
def eigvals(x: Array, /) -> Array:
    """Return the eigenvalues of general matrices; complex, see `eig`.

    A matrix is brought to one member.

    Raises
    ------
    LinAlgError
        If a matrix is not square, or the iteration does not converge.
    MemoryBudgetError
        If a matrix does not fit the memory budget of a member.
    """
    node, box = matrices("eigvals", x, square=True)
    return box(bind(EIGVALS, (node,), node.shape[:-1], complex_dtype(node.dtype)))
