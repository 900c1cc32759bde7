"""Running operations that need values before they can be bound (`ops.programs`)."""

from __future__ import annotations

from typing import Any

from distarray import config
from distarray.array import window
from distarray.expr.expr import Slot, postorder
from distarray.ops.programs import Program
from distarray.runtime import evaluate, observations, passes
from distarray.runtime.counters import counting


def drive(name: str, program: Program) -> Any:
    """Return what a program returns; computes what it asks for.

    Raises
    ------
    MemoryBudgetError
        If what it says to be ahead does not fit.
    ValueError
        If it asks for values and the option ``data-dependent`` says ``raise``.
    """
    found: list[passes.Pass] = []
    kept: list[Slot] = []  # what was computed for the program stays as long as it runs
    try:
        ask = next(program)
        while True:
            if ask.values and config.get("data-dependent") == "raise":
                raise ValueError(
                    f"{name}: how the result is made depends on data, and the option data-dependent is 'raise'; set "
                    "it to 'counts'"
                )
            if ask.ahead:
                evaluate.check(ask.ahead)
            if not kept:  # nor is what it reads overwritten, by its own steps or by other threads
                kept += [node.hold() for node in postorder((*ask.values, *ask.kept)) if node.memo is not None]
            kept += [node.hold() for node in (*ask.values, *ask.kept)]
            with counting() as counted:
                if ask.values:
                    window.observe((*ask.values, *ask.kept))
                elif ask.kept:
                    window.run(*ask.kept)  # nothing will be looked at, but what fails is to be raised here
            found += counted.passes
            ask = program.send(tuple([observations.fetch(node) for node in ask.values]))
    except StopIteration as stop:
        if found:
            passes.keep(stop.value, found)
        return stop.value
    finally:
        program.close()
