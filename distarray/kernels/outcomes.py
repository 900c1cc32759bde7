"""Outcomes of programs: what a run stores and reduces, and what floating point said of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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


class Called(NamedTuple):
    """A Called is a function that a program calls.

    Attributes
    ----------
    function
        Its name.
    number
        Of the instruction that calls it, or of the reduction, which are counted behind the instructions; ``~n`` if it
        is called for what follows the first ``n``.
    """

    function: str
    number: int = ~0


NOTHING = Called("")


class FloatingPointEvent(NamedTuple):
    """A FloatingPointEvent is what numpy would have warned about: ``"divide by zero"``, ``"overflow"`` ..., the
    function's name, and the instruction (see `Called`).
    """

    kind: str
    function: str
    number: int = ~0

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
    """A Noted notes the floating-point events of a run with the function that the thread calls.

    numpy reports once per call: that is once per slice.
    """

    def __init__(self, errstate: ErrModes) -> None:
        self.modes = {kind: mode if mode in ("ignore", "raise") else "call" for kind, mode in errstate.items()}
        self.events: dict[FloatingPointEvent, None] = {}
        self._alone = -1

    @contextmanager
    def of(self, number: int) -> Iterator[None]:
        """Note what is met inside, by a program of one instruction, as met by that instruction of the whole one."""
        self._alone = number
        try:
            yield
        finally:
            self._alone = -1

    def by(self, current: list[Called]) -> np.errstate:
        """Return the state in which a thread runs that says in `current` what it calls."""

        def note(kind: str, _flag: int) -> None:
            function, number = current[0]
            self.events[FloatingPointEvent(kind, function, number if self._alone < 0 else self._alone)] = None

        return np.errstate(call=note, **self.modes)  # type: ignore[arg-type]  # the modes are the literals numpy wants
