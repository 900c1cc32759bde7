"""Outcomes of programs: what a run stores and reduces, and what floating point said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from distarray.kernels.monoids import MONOIDS, Partial
from distarray.kernels.namespaces import Block
from distarray.types import DType

#: What is done of each kind of event, as ``numpy.errstate`` takes it.
ErrModes = Mapping[str, Literal["ignore", "warn", "raise", "call", "print", "log"]]


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


def reduction_cost(dtype: DType) -> int:
    """Return the cost of an element that is reduced, see `threads.HELPED`: a sum takes twice as long as to read."""
    return 2 * dtype.itemsize


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


class Noted:
    """A Noted notes the floating-point events of a run with the name of the function that the thread calls.

    numpy reports once per call: that is once per slice.
    """

    def __init__(self, errstate: ErrModes) -> None:
        self.modes = {kind: mode if mode in ("ignore", "raise") else "call" for kind, mode in errstate.items()}
        self.events: dict[FloatingPointEvent, None] = {}

    def by(self, current: list[str]) -> np.errstate:
        """Return the state in which a thread runs that says in `current` what it calls."""

        def note(kind: str, _flag: int) -> None:
            self.events[FloatingPointEvent(kind, current[0])] = None

        return np.errstate(call=note, **self.modes)  # type: ignore[arg-type]  # the modes are the literals numpy wants
