"""Tasks cut into one program for each member: who is given, sends and receives what."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from member_graphs import Call, Ref, graphs, read_of

from distarray.lower.member_programs import MemberProgram, SlotRef, has_messages, member_programs


def simulated(programs: dict[int, MemberProgram], blocks: dict[Any, int]) -> tuple[dict[Any, int], int]:
    """Run programs, each strictly in its order, and return what is kept and how many messages were sent."""
    slots = {m: dict(enumerate(blocks[key] for key in p.given)) for m, p in programs.items()}
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
def test_programs_make_what_the_tasks_make_and_never_wait_for_each_other(
    graph: tuple[dict[Any, Call], dict[Any, int], list[Any], dict[Any, int | None]],
) -> None:
    tasks, members, keep, holders = graph
    programs = member_programs(tasks, members, keep, read_of, holders.get)
    blocks = {key: 100 * n for n, key in enumerate(holders)}
    values = dict(blocks)
    for key, task in tasks.items():
        values[key] = task.func(*[values[a.key] if isinstance(a, Ref) else a for a in task.args])
    found, n_sent = simulated(programs, blocks)
    assert found == {key: values[key] for key in keep}
    # One message for each value and member that reads it, and has not made it or had it before.
    crossings = {
        (read, members[key])
        for key, task in tasks.items()
        for read in task.dependencies
        if (owner := members.get(read, holders.get(read))) is not None and owner != members[key]
    }
    assert n_sent == len(crossings) == sum(len(p.received) for p in programs.values())
    assert has_messages(tasks, members) == any(read in tasks for read, _ in crossings)


@given(graphs())
def test_blocks_are_given_to_who_has_them_or_else_to_who_reads_them(
    graph: tuple[dict[Any, Call], dict[Any, int], list[Any], dict[Any, int | None]],
) -> None:
    tasks, members, keep, holders = graph
    programs = member_programs(tasks, members, keep, read_of, holders.get)
    for key, holder in holders.items():
        readers = {members[k] for k, task in tasks.items() if key in task.dependencies}
        given_to = {m for m, p in programs.items() if key in p.given}
        assert given_to == (readers if holder is None or not readers else {holder})
