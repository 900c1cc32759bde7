"""What is said of the loops of an operation is true of its kernel: parts of a loop make the parts of the result."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from every_operation import catalogue, node

from distarray.expr.bind import bind
from distarray.expr.expr import Expr, postorder
from distarray.expr.op import CATALOGUE
from distarray.kernels.interpret import interpret
from distarray.kernels.tables import PLACED
from distarray.planner.loops import Loops, node_loops

#: Kinds of operations whose kernels get whole blocks, and whose loops are those of a rule, of labels or of indices.
KINDS = ("block", "fold", "take", "contract")


@cache
def operations() -> dict[str, Expr]:
    nodes = [(name, x) for name, target in catalogue().items() for x in postorder([target])]
    return {f"{name}: {x.op.name}": x for name, x in nodes if x.op.kind in KINDS}


def values_of(x: Expr) -> tuple[Any, ...]:
    """Return the blocks of all results of a node."""
    made = interpret(postorder([x]), {id(x)})[id(x)]
    return made if isinstance(made, tuple) else (made,)


def of_part(x: Expr, loops: Loops, values: list[Any], loop: int, start: int, stop: int) -> tuple[Any, ...]:
    """Return what the kernel of a node makes of the parts of its operands that belong to a part of a loop."""
    assert loops.operands is not None
    whole = loops.extents[loop]
    parts = []
    for number, (value, runs) in enumerate(zip(values, loops.operands, strict=True)):
        for axis, along in enumerate(runs):
            _, behind = loops.halo[number][axis] if loops.halo else (0, 0)
            if along == loop and value.shape[axis] == whole + behind:  # an axis of one element broadcasts
                value = np.take(value, range(start, stop + behind), axis=axis)
        parts.append(node(value))
    operands = [parts.pop(0) if type(o) is Expr else o for o in x.operands]
    shapes = tuple(
        tuple(stop - start if along == loop else loops.extents[along] for along in axes) for axes in loops.results
    )
    shape = shapes if isinstance(x.dtype, tuple) else shapes[0]
    return values_of(bind(x.op, operands, shape, x.dtype, x.params, x.runtime))


def cuts(loops: Loops) -> Iterator[tuple[int, int]]:
    """Yield each loop that may be cut and that a result has, with each place where it can be cut in two."""
    for loop, extent in enumerate(loops.extents):
        if loop not in loops.whole and any(loop in axes for axes in loops.results):
            for at in range(1, extent):
                yield loop, at


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of values outside of a function's domain
@pytest.mark.parametrize("name", operations())
def test_parts_of_a_loop_make_the_parts_of_the_result(name: str) -> None:
    x = operations()[name]
    if x.op.name in PLACED:
        pytest.skip("what the kernel makes depends on where a part begins")
    loops = node_loops(x)
    values = [np.asarray(values_of(o)[0]) for o in x.operands if type(o) is Expr]
    expected = values_of(x)
    for loop, at in cuts(loops):
        first = of_part(x, loops, values, loop, 0, at)
        second = of_part(x, loops, values, loop, at, loops.extents[loop])
        for whole, a, b, axes in zip(expected, first, second, loops.results, strict=True):
            if loop in axes:
                np.testing.assert_allclose(np.concatenate([a, b], axes.index(loop)), whole, rtol=1e-12, err_msg=name)
            else:
                np.testing.assert_allclose(a, whole, rtol=1e-12)
                np.testing.assert_allclose(b, whole, rtol=1e-12)


def test_each_operation_that_has_a_rule_is_among_them() -> None:
    met = {x.op.name for x in operations().values()}
    assert not {name for name, op in CATALOGUE.items() if op.kind in KINDS} - met
