"""One member program on threads: order, slots that are freed, messages, errors and ends."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from member_graphs import MemberGraph, graphs

from distarray.kernels import buffers
from distarray.lower.credits import held_at_steps, peaks, with_credits
from distarray.lower.member_programs import Credits, MemberProgram, member_programs
from distarray.lower.step_graph import KernelCall, SlotRef
from distarray.runtime import execution as module
from distarray.runtime.execution import Execution, StoppedError, nbytes_of
from distarray.runtime.permits import Permits


class Observer:
    """Notes what an execution holds in its slots, and the messages to it."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.messages: list[tuple[int, int, list[Any]]] = []
        self.lock = threading.Lock()

    def holds(self, nbytes: int) -> None:
        with self.lock:
            self.now += nbytes
            self.most = max(self.most, self.now)

    def received(self, nbytes: int, slot: int, readers: Sequence[KernelCall]) -> None:
        self.messages.append((nbytes, slot, [r.key for r in readers]))


class Silent:
    """Carries no messages."""

    def send(self, number: int, member: int, value: Any, left: Callable[[], None] | None) -> None: ...
    def grant(self, number: int, member: int) -> None: ...


class Carrier:
    """Carries the messages of one program of a team; what has credit leaves late."""

    def __init__(self, team: Team, member: int) -> None:
        self.team = team
        self.member = member

    def send(self, number: int, member: int, value: Any, left: Callable[[], None] | None) -> None:
        execution = self.team.executions[member]

        def carried() -> None:
            execution.receive(number, value)
            execution.receive(number, "twice")  # is dropped
            if left is not None:
                left()

        carried() if left is None else self.team.pool.submit(carried)

    def grant(self, number: int, member: int) -> None:
        self.team.pool.submit(self.team.executions[member].grant, number, self.member)


class Team:
    """Runs programs beside each other, and carries their messages."""

    def __init__(self, programs: dict[int, MemberProgram], graph: MemberGraph, n_threads: int) -> None:
        self.pool = ThreadPoolExecutor(32)
        self.observers = {member: Observer() for member in programs}
        self.over = {member: threading.Event() for member in programs}
        self.executions = {
            member: Execution(
                program,
                graph.given(program.given),
                n_threads,
                nullcontext(),
                lambda function: self.pool.submit(function) and None,
                Carrier(self, member),
                self.over[member].set,
                (self.observers[member],),
            )
            for member, program in programs.items()
        }

    def run(self) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for execution in self.executions.values():
            execution.begin()
        for member, event in self.over.items():
            assert event.wait(20), "every program ends"
            if (error := self.executions[member].error) is not None:
                raise error
            found |= self.executions[member].results
        self.pool.shutdown()
        return found


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(1, 3))
def test_programs_on_threads_make_what_the_tasks_make(graph: MemberGraph, n_threads: int) -> None:
    programs = member_programs(graph.recipes, graph.members, graph.keep, graph.holders)
    assert Team(programs, graph, n_threads).run() == graph.results()


@settings(max_examples=100, deadline=None)
@given(graphs(), st.integers(1, 3), st.integers(0, 3))
def test_programs_with_credits_hold_no_more_than_is_known_before(
    graph: MemberGraph, n_threads: int, ahead: int
) -> None:
    programs = with_credits(graph.recipes, graph.members, graph.keep, graph.holders, ahead)
    given = {n: 0 for p in programs.values() for n, _ in p.sent.values()}
    known = peaks(held_at_steps(programs, graph.sizes(), given, n_threads))
    team = Team(programs, graph, n_threads)
    assert team.run() == graph.results(has_waits=False)
    for member, seen in team.observers.items():
        assert seen.most <= known[member] and seen.now == 0


def alone(steps: Sequence[KernelCall], results: dict[Any, int], n_threads: int = 1, **options: Any) -> Execution:
    return Execution(
        MemberProgram(steps=list(steps), results=results),
        (),
        n_threads,
        options.pop("permit", nullcontext()),
        options.pop("start", lambda function: threading.Thread(target=function).start()),
        Silent(),
        options.pop("finish", lambda: None),
        **options,
    )


@pytest.mark.parametrize("has_credits", [True, False])
def test_steps_whose_memory_is_known_before_wait_for_no_room(
    monkeypatch: pytest.MonkeyPatch, has_credits: bool
) -> None:
    waits: list[int] = []
    pool = buffers.BufferPool()
    monkeypatch.setattr(module, "POOL", pool)
    monkeypatch.setattr(buffers, "looks_for_room", lambda most, granted: waits.append(most) or iter(()))
    pool.full = 1

    def step() -> int:
        with pool.room_for(buffers.SMALLEST):
            return pool.take((buffers.SMALLEST,), "u1").size

    over = threading.Event()
    credits = Credits(granted=((),), sends=(), awaited=(0,)) if has_credits else None
    program = MemberProgram(steps=[KernelCall("made", step, ())], results={"made": 0}, credits=credits)
    execution = Execution(
        program, (), 1, nullcontext(), lambda f: threading.Thread(target=f).start(), Silent(), over.set
    )
    execution.begin()
    assert over.wait(20) and execution.error is None
    assert execution.results == {"made": buffers.SMALLEST}
    assert bool(waits) is not has_credits


def test_a_value_is_let_go_of_after_its_last_reader() -> None:
    class Value:
        pass

    made: list[weakref.ref[Value]] = []

    def make() -> Value:
        value = Value()
        made.append(weakref.ref(value))
        return value

    def use(value: Value) -> str:
        return "used"

    def look(text: str) -> bool:
        return made[0]() is None

    over = threading.Event()
    steps = [
        KernelCall(("a", 0, 0), make, ()),
        KernelCall(("b", 0, 0), use, (SlotRef(0),)),
        KernelCall(("c", 0, 0), look, (SlotRef(1),)),
    ]
    execution = alone(steps, {"c": 2}, finish=over.set)
    execution.begin()
    assert over.wait(5)
    assert execution.results == {"c": True}


def test_steps_that_are_ready_run_beside_each_other_as_far_as_there_are_threads() -> None:
    most, now = 0, 0
    lock = threading.Lock()

    def step() -> None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.02)
        with lock:
            now -= 1

    for n_threads, expected in ((1, 1), (3, 3)):
        most = 0
        over = threading.Event()
        alone([KernelCall(("s", n, 0), step, ()) for n in range(9)], {}, n_threads, finish=over.set).begin()
        assert over.wait(5)
        assert most == expected
    most = 0
    over = threading.Event()
    permit = threading.BoundedSemaphore(2)  # shared with others
    alone([KernelCall(("s", n, 0), step, ()) for n in range(9)], {}, 3, permit=permit, finish=over.set).begin()
    assert over.wait(5)
    assert most == 2


def test_an_error_ends_it_and_names_the_task() -> None:
    ran: list[int] = []

    def fail() -> None:
        raise ZeroDivisionError("no")

    over = threading.Event()
    steps = [KernelCall(("dx-f", 3, 1), fail, ()), KernelCall(("dx-g", 4, 0), ran.append, (SlotRef(0),))]
    execution = alone(steps, {"g": 1}, finish=over.set)
    execution.begin()
    assert over.wait(5)
    with pytest.raises(ZeroDivisionError, match="no") as raised:
        raise execution.error or AssertionError
    assert raised.value._distarray_key == ("dx-f", 3, 1)  # type: ignore[attr-defined]
    assert not ran and not execution.results


def test_what_waits_for_a_message_can_be_stopped() -> None:
    over = threading.Event()
    program = MemberProgram(received=[7], steps=[KernelCall(("a", 0, 0), abs, (SlotRef(0),))], results={"a": 1})
    threads: list[threading.Thread] = []

    def start(function: Callable[[], None]) -> None:
        threads.append(threading.Thread(target=function))
        threads[-1].start()

    execution = Execution(program, (), 1, nullcontext(), start, Silent(), over.set)
    execution.begin()
    time.sleep(0.02)
    assert not execution.is_over
    execution.stop(StoppedError("enough"))
    assert over.wait(5) and isinstance(execution.error, StoppedError)
    threads[0].join(5)
    assert not threads[0].is_alive()
    execution.receive(7, 1)  # too late
    assert not execution.results


def test_an_observer_is_told_of_slots_and_messages() -> None:
    seen, over = Observer(), threading.Event()
    steps = [KernelCall(("a", 0, 0), np.negative, (SlotRef(0),)), KernelCall(("b", 0, 0), np.sum, (SlotRef(1),))]
    program = MemberProgram(received=[5], steps=steps, results={"b": 2})
    start = lambda function: threading.Thread(target=function).start()
    execution = Execution(program, (), 1, nullcontext(), start, Silent(), over.set, [seen])
    execution.begin()
    execution.receive(5, np.ones(10))
    assert over.wait(5)
    assert seen.messages == [(80, 0, [("a", 0, 0)])]
    assert seen.most == 160 and seen.now == 0
    assert nbytes_of(([np.ones(2)], 3, np.ones(1, "f4"))) == 20


def test_a_step_that_secedes_gives_its_permit_back() -> None:
    permits, log = Permits(1), []
    inside, go = threading.Event(), threading.Event()

    def secedes() -> None:
        with permits:
            permits.remove(threading.current_thread())
            inside.set()
            go.wait(5)
            again = threading.Event()
            permits._rejoin_list.append((threading.current_thread(), again))
            permits.submit(lambda: None)
            assert again.is_set()
            log.append("again")

    thread = threading.Thread(target=secedes)
    thread.start()
    assert inside.wait(5)
    with permits:  # its own is free meanwhile
        go.set()
        time.sleep(0.02)
        assert not log
    thread.join(5)
    assert log == ["again"]
    with permits, pytest.raises(AssertionError):
        assert permits._free.acquire(timeout=0.01)  # there is one
    with pytest.raises(KeyError):
        permits.remove(threading.current_thread())  # of a thread that has none
