"""Instructions of elementwise programs: what the planner writes, and what kernels run."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeAlias

from distarray.types import DType


@dataclass(frozen=True, slots=True)
class RuntimeScalar:
    """A RuntimeScalar is an operand that is the `index`-th run-time scalar of a program: no part of a plan, filled in
    for every run.
    """

    index: int


#: The number of a register, or a scalar.
Operand: TypeAlias = int | RuntimeScalar


@dataclass(frozen=True, slots=True)
class Instruction:
    """An Instruction is one elementwise step of a program: a function of registers and scalars into a register.

    Parameters
    ----------
    function
        Name of the operation.
    inputs
        Registers ``0 .. n_inputs - 1`` are the inputs of the program, register ``n_inputs + k`` is the result of
        instruction ``k``.
    dtype
        Of the result: the one that numpy gives these operands.
    params
        Static parameters of the function.
    """

    function: str
    inputs: tuple[Operand, ...]
    dtype: DType
    params: tuple[Hashable, ...] = ()

    @property
    def registers(self) -> tuple[int, ...]:
        """Return the inputs that are registers."""
        return tuple([i for i in self.inputs if not isinstance(i, RuntimeScalar)])
