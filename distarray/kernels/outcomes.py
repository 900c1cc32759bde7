"""Outcomes of programs: what a run stores and reduces, and what floating point said of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from distarray.kernels.monoids import MONOIDS, Partial
from distarray.kernels.namespaces import Block
from distarray.types import DType


@dataclass(frozen=True, slots=True)
class Reduction:
    """A Reduction is one register reduced over axes of the box.

    Parameters
    ----------
    register
        What is reduced.
    monoid
        Key of `monoids.MONOIDS`.
    axes
        Reduced axes, ascending. They keep extent 1 in the partial.
    dtype
        Of the result, and so of the accumulator (`Monoid.state`).
    """

    register: int
    monoid: str
    axes: tuple[int, ...]
    dtype: DType

    def is_total(self, shape: tuple[int, ...]) -> bool:
        """Return whether one number comes out of a box of `shape`."""
        return len(self.axes) == len(shape) and MONOIDS[self.monoid].n_arrays == 1


class FloatingPointEvent(NamedTuple):
    """A FloatingPointEvent is what numpy would have warned about: ``"divide by zero"``, ``"overflow"`` ... and the
    function's name.
    """

    kind: str
    function: str

    def __str__(self) -> str:
        return f"{self.kind} encountered in {self.function}"


class Outcome(NamedTuple):
    """An Outcome is what one run of a program made.

    Attributes
    ----------
    outputs
        One block per output register, contiguous unless given.
    partials
        One per reduction; None if the box is empty and the monoid has no identity.
    events
        Floating point events of kinds whose mode is neither ``ignore`` nor ``raise``, each once, in order.
    """

    outputs: list[Block]
    partials: list[Partial | None]
    events: tuple[FloatingPointEvent, ...] = ()
