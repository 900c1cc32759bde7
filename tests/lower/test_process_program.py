"""The program of a process: what waits for what, what is freed when, and what varies from run to run."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distarray.kernels.specs import StageSpec
from distarray.lower.member_programs import MemberProgram, process_program
from distarray.lower.parameters import Parameters
from distarray.lower.recipes import Leaf, Recipe


def key(n: int) -> Any:
    return "dx-made", 0, n


def added(*args: Any) -> Any:
    return sum(args, 1)


@st.composite
def recipes(draw: st.DrawFn) -> tuple[dict[Any, Recipe], list[Any], dict[Any, set[Any]]]:
    """Tasks that read blocks and each other, those that are kept, and further waits."""
    made: dict[Any, Recipe] = {}
    after: dict[Any, set[Any]] = {}
    for n in range(draw(st.integers(1, 12))):
        earlier = st.sampled_from([*made, Leaf(0, 0), Leaf(0, 1), 7]) if made else st.sampled_from([Leaf(0, 0), 7])
        made[key(n)] = Recipe("tile", added, tuple(draw(st.lists(earlier, max_size=4))))
        if n and draw(st.booleans()):
            after[key(n)] = draw(st.sets(st.sampled_from(list(made)[:-1]), max_size=2))
    keep = draw(st.lists(st.sampled_from(list(made)), unique=True))
    return made, keep, after


def run(program: MemberProgram, order: Any, is_freed_by_use: bool) -> dict[Any, Any]:
    """Run the steps in an order, and free values as the program says."""
    first = len(program.given)
    values: dict[int, Any] = dict(enumerate(10 * (leaf.number + 1) for leaf in program.given))
    uses, missing = list(program.graph.uses), list(program.graph.missing)
    for n in order:
        assert not missing[n]
        values[first + n] = program.steps[n].function(
            *[values[a.number] if hasattr(a, "number") else a for a in program.steps[n].args]
        )
        for reader in program.graph.readers[len(program.given) + n]:
            missing[reader] -= 1
        if not is_freed_by_use:
            for slot in program.graph.freed[n]:
                del values[slot]
            continue
        for slot in program.graph.reads[n]:
            uses[slot] -= 1
            if not uses[slot]:
                del values[slot]
        if not uses[first + n]:
            del values[first + n]
    unread = {slot for slot in range(first) if not program.graph.uses[slot]}
    assert values.keys() - unread == set(program.results.values())
    return {name: values[slot] for name, slot in program.results.items()}


@given(recipes(), st.randoms(use_true_random=False))
def test_values_live_as_long_as_somebody_reads_them(made: Any, random: Any) -> None:
    tasks, keep, after = made
    program = process_program(tasks, {k: n % 3 for n, k in enumerate(tasks)}, keep, after)
    assert program.members == [n % 3 for n in range(len(tasks))]
    assert program is not None
    expected: dict[Any, Any] = {}
    for k, recipe in tasks.items():
        expected[k] = added(
            *[10 * (a.number + 1) if type(a) is Leaf else expected[a] if type(a) is tuple else a for a in recipe.args]
        )
    wanted = {k: expected[k] for k in keep}
    assert run(program, range(len(tasks)), False) == wanted
    # in any order in which nothing waits
    missing, ready, order = list(program.graph.missing), [n for n, m in enumerate(program.graph.missing) if not m], []
    while ready:
        n = ready.pop(random.randrange(len(ready)))
        order.append(n)
        for reader in program.graph.readers[len(program.given) + n]:
            missing[reader] -= 1
            if not missing[reader]:
                ready.append(reader)
    assert sorted(order) == list(range(len(tasks)))
    for k, waits in after.items():
        assert all(order.index(list(tasks).index(w)) < order.index(list(tasks).index(k)) for w in waits)
    assert run(program, order, True) == wanted


def test_a_process_with_nothing_to_do_has_an_empty_program() -> None:
    program = process_program({}, {}, [], {})
    assert not program.steps
    assert not program.results
    assert program.graph.filled(Parameters((), (), {}, {})) == []


def test_only_what_varies_is_filled_in() -> None:
    varying = StageSpec(None, number=0, node=0)
    fixed = StageSpec(None, name="fixed")
    tasks = {
        key(0): Recipe("tile", operator.add, (varying, 1)),
        key(1): Recipe("tile", operator.add, (fixed, key(0))),
    }
    program = process_program(tasks, dict.fromkeys(tasks, 0), [key(1)], {})
    first, second = program.graph.filled(Parameters(((5,),), (None,), {0: ()}, {}))
    assert first.args == (StageSpec(None, scalars=(5,), number=0, node=0), 1)
    assert second is program.steps[1]
    assert program.steps[0].args[0] is varying
    # nothing to fill in: the record itself
    first, _ = program.graph.filled(Parameters(((),), (None,), {0: ()}, {}))
    assert first.args[0] is varying


@pytest.mark.parametrize("dtype", ["f8", "i4"])
def test_a_run_in_threads_and_one_inline_give_the_same(dtype: str) -> None:
    from distarray.lower.step_graph import KernelCall, SlotRef
    from distarray.runtime.executors import run_program

    start = np.arange(50_000).astype(dtype)
    steps = [KernelCall(key(n), np.add, (SlotRef(0), n)) for n in range(6)]
    steps += [KernelCall(key(6 + n), np.multiply, (SlotRef(1 + n), SlotRef(2 + n))) for n in range(5)]
    program = MemberProgram([Leaf(0, 0)], steps=steps, results={key(6 + n): 7 + n for n in range(5)}, members=[0] * 11)
    found = [run_program(program, steps, [start], dict, 3, is_inline=inline) for inline in (True, False)]
    for n in range(5):
        expected = (start + n) * (start + n + 1)
        assert all(np.array_equal(f[key(6 + n)], expected) and f[key(6 + n)].dtype == dtype for f in found)
