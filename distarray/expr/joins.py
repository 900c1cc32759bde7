"""Join: what a contraction does with the elements that meet, before it aggregates them.

A join is a few elementwise steps on registers, or one function of the user's. The layer of operations makes it of its
own elementwise functions, so that a join has one definition; kernels run its steps box by box.
"""

from __future__ import annotations

from dataclasses import dataclass

from distarray.expr.instructions import Instruction
from distarray.types import DType

#: The join of a product of two operands whose loops are those of matrix products: a kernel has BLAS for it.
PRODUCT = "multiply"


@dataclass(frozen=True)
class Join:
    """A Join says how one element is made of one element of each operand.

    Parameters
    ----------
    name
        As users know it.
    dtype
        Of the elements that it makes.
    steps
        A program of the operands, without scalars; the last instruction makes them.
    is_users
        Whether a function of the user's makes them instead, elementwise from arrays of one shape: the last parameter
        of the kernel.
    """

    name: str
    dtype: DType
    steps: tuple[Instruction, ...] = ()
    is_users: bool = False

    def __str__(self) -> str:
        return self.name
