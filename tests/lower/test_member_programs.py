"""Tasks cut into one program for each member: who is given, sends and receives what, and what a run fills in."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
from hypothesis import given
from member_graphs import MemberGraph, graphs

from distarray.kernels.specs import StageSpec, TileSpec
from distarray.lower.member_programs import MemberProgram, member_programs
from distarray.lower.parameters import Parameters
from distarray.lower.recipes import Leaf
from distarray.lower.step_graph import KernelCall, SlotRef


def programs_of(graph: MemberGraph) -> dict[int, MemberProgram]:
    return member_programs(graph.recipes, graph.members, graph.keep, graph.holders)


def simulated(programs: dict[int, MemberProgram], graph: MemberGraph) -> tuple[dict[Any, int], int]:
    """Run programs, each strictly in its order, and return what is kept and how many messages were sent."""
    slots = {m: dict(enumerate(graph.given(p.given))) for m, p in programs.items()}
    pending = {m: list(enumerate(p.steps, p.first_step)) for m, p in programs.items()}
    sent = 0

    def send(member: int, slot: int) -> None:
        nonlocal sent
        number, destinations = programs[member].sent.get(slot, (0, []))
        for to in destinations:
            place = len(programs[to].given) + programs[to].received.index(number)
            assert place not in slots[to], "a message comes once"
            slots[to][place] = slots[member][slot]
            sent += 1

    for member, filled in slots.items():
        for slot in list(filled):
            send(member, slot)
    while any(pending.values()):
        moved = False
        for member, steps in pending.items():
            while steps and all(a.number in slots[member] for a in steps[0][1].args if type(a) is SlotRef):
                slot, step = steps.pop(0)
                slots[member][slot] = step.function(
                    *[slots[member][a.number] if type(a) is SlotRef else a for a in step.args]
                )
                send(member, slot)
                moved = True
        assert moved, "some program can always go on"
    return {key: slots[m][slot] for m, p in programs.items() for key, slot in p.results.items()}, sent


@given(graphs())
def test_programs_make_what_the_tasks_make_and_never_wait_for_each_other(graph: MemberGraph) -> None:
    programs = programs_of(graph)
    found, n_sent = simulated(programs, graph)
    assert found == graph.results()
    # One message for each value and member that reads it, and has not made it or had it before.
    owners: dict[Any, int] = dict(graph.members)
    owners |= {Leaf(node, n): m for node, held in graph.holders.items() for n, m in enumerate(held)}
    crossings = {
        (str(read), graph.members[key])
        for key, recipe in graph.recipes.items()
        for read in (*recipe.args, *recipe.waits)
        if isinstance(read, tuple) and type(read).__name__ != "ClientBox" and read in owners
        if owners[read] != graph.members[key]
    }
    assert n_sent == len(crossings) == sum(len(p.received) for p in programs.values())


@given(graphs())
def test_blocks_are_given_to_who_has_them_or_else_to_who_reads_them(graph: MemberGraph) -> None:
    programs = programs_of(graph)
    for name in graph.blocks:
        readers = {graph.members[key] for key, r in graph.recipes.items() if any(repr(a) == name for a in r.args)}
        given_to = {m for m, p in programs.items() for ref in p.given if repr(ref) == name}
        leaf = next((ref for p in programs.values() for ref in p.given if repr(ref) == name), None)
        held = graph.holders.get(leaf.node, ()) if isinstance(leaf, Leaf) else ()
        assert given_to == ({held[leaf.number]} if held and isinstance(leaf, Leaf) else readers)


def test_a_run_fills_in_its_parameters_and_leaves_the_program_as_it_is() -> None:
    spec = StageSpec(None, where=(("add", "here"),), params=(1,), number=0, node=3)
    steps = [KernelCall(("dx-add", 0, n), len, (spec, TileSpec(0, (n,)), SlotRef(n))) for n in range(2)]
    program: MemberProgram = pickle.loads(pickle.dumps(MemberProgram(steps=steps)))
    one = program.filled(Parameters(((2.5,),), (None,), {3: (np.int64(7),)}, {}), "a")
    two = program.filled(Parameters(((4.0,),), ((("add", "there"),),), {3: ()}, {}), "b")
    first, second = (step.args[0] for step in one.steps)
    assert first is second, "what tasks share stays shared"
    assert (first.scalars, first.params, first.where) == ((2.5,), (1, 7), spec.where)
    assert two.steps[0].args[0].where == (("add", "there"),)
    assert [step.key for step in two.steps] == [("dx-add-b", 0, 0), ("dx-add-b", 0, 1)]
    assert program.steps[0].args[0].scalars == (), "the program serves other runs"
    assert one.graph is two.graph, "what waits for what is found once"
