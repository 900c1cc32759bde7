"""The threads of this process take steps themselves: Ctrl-C is answered at once, and what failed keeps no blocks."""

import gc
import operator
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest

import distarray as dx
from distarray import config
from distarray.lower.member_programs import MemberProgram
from distarray.lower.step_graph import KernelCall, SlotRef
from distarray.runtime import prepare, running
from distarray.runtime.executors import run_program
from distarray.runtime.process_threads import ProcessThreads

TEAM = dx.Team((2,), ("T",))


@contextmanager
def interrupted(when: Callable[[], object]) -> Iterator[list[float]]:
    """Press Ctrl-C once `when` returns; seconds that the answer takes.

    Again after two seconds: Python loses an interrupt that falls into a finalizer or a callback of the collector.
    """
    main = threading.main_thread().ident
    assert main is not None
    rung, took, answered = [0.0], [], threading.Event()

    def ring() -> None:
        when()
        while not answered.is_set():
            rung[0] = time.perf_counter()
            signal.pthread_kill(main, signal.SIGINT)
            answered.wait(2)

    thread = threading.Thread(target=ring)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        try:
            yield took
        finally:
            took.append(time.perf_counter() - rung[0])
            answered.set()
            thread.join()  # comes too late if there was nothing to interrupt


def lying(n: int = 1000) -> dx.DistArray:
    return (dx.arange(float(n), team=TEAM, sharding=("T",)) + 0).persist()


def test_ctrl_c_does_not_wait_for_kernels_that_run() -> None:
    n = 400_000
    x = lying(n)
    started, released = threading.Event(), threading.Event()

    def kernel(block: Any) -> Any:
        started.set()
        released.wait(20)
        return block

    try:
        with config.set(errors="deferred"), interrupted(lambda: started.wait(30)) as took:
            np.asarray(x.map_blocks(kernel, dtype="f8"))
        assert took[0] < 1
        # Kernels that were left alone have threads of their own.
        assert float((x * 2).sum()) == n * (n - 1)
    finally:
        released.set()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # interrupts that Python loses
@pytest.mark.parametrize("after", [0.2, 0.6, 1.2])
def test_ctrl_c_is_answered_while_something_large_is_planned(after: float) -> None:
    with config.set(memory_limit="8 MiB"), interrupted(lambda: threading.Event().wait(after)) as took:
        float((dx.arange(10**10, team=TEAM) % 7 * 2).sum())
    assert took[0] < 1
    assert int(dx.arange(10, team=TEAM).sum()) == 45


def test_ctrl_c_does_not_wait_for_long_chains_of_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not done in place, so they may be interrupted anywhere."""
    seen: list[dict[int, int]] = []
    instance_of = running.instance_of

    def spy(plan: Any, graph: Any, env: Any, run: str, inplace: Any) -> Any:
        seen.append(inplace)
        return instance_of(plan, graph, env, run, inplace)

    monkeypatch.setattr(running, "instance_of", spy)
    for limit in (prepare.INPLACE_NBYTES, 1 << 20):
        monkeypatch.setattr(prepare, "INPLACE_NBYTES", limit)
        x = dx.asarray(np.arange(400_000.0), team=TEAM, sharding=("T",))
        x += 1
        x.persist()
        for _ in range(20):
            x += 1
        x[1:] *= 2
        assert float(x[-1]) == 2 * (399_999 + 21)
    assert seen[-1] == {}
    assert any(seen)


@pytest.mark.parametrize("n_parts", [1, 2])
@pytest.mark.parametrize("error", [MemoryError, ValueError])
def test_blocks_are_free_after_an_error_without_a_garbage_collection(n_parts: int, error: type[Exception]) -> None:
    def kernel(block: Any) -> Any:
        raise error("no room")

    team = dx.Team((n_parts,), ("T",))
    gc.collect()
    gc.disable()
    try:
        x = (dx.arange(200_000.0, team=team, sharding=("T",)) + 0).persist()
        memo = x.__dx_node__().memo
        assert memo is not None
        blocks = [weakref.ref(block) for block in memo.blocks]
        assert len(blocks) == n_parts
        for ask in (lambda y: np.asarray(y + 1), lambda y: float(y.sum())):
            with config.set(errors="deferred"):
                y = (x * 2).map_blocks(kernel, dtype="f8")
            try:
                ask(y)
            except error:
                pass
            else:
                pytest.fail("the kernel did not raise")
            del y
        del x, memo
        assert [block() for block in blocks] == [None] * n_parts
    finally:
        gc.enable()


def test_a_traceback_that_is_kept_keeps_no_results() -> None:
    """As an interactive session keeps the last one."""
    made: list[weakref.ref[Any]] = []

    def first(block: Any) -> Any:
        found = block + 1
        made.append(weakref.ref(found))
        return found

    def second(block: Any) -> Any:
        if block[0]:
            raise MemoryError("no room")
        return block

    x = lying(200_000)
    with config.set(errors="deferred"), pytest.raises(MemoryError) as kept:
        np.asarray(x.map_blocks(first, dtype="f8").map_blocks(second, dtype="f8"))
    assert made
    assert sum(ref() is not None for ref in made) <= 1  # what the kernel that raised was given
    assert kept.value is not None
    assert sys.exc_info() == (None, None, None)


# ------------------------------------------------------------------------------------------ threads take steps


def program_of(functions: list[Callable[..., Any]], reads: list[list[int]]) -> tuple[MemberProgram, list[KernelCall]]:
    """A program whose steps read others; the last is kept."""
    steps = [
        KernelCall(("dx-step", 0, n), f, tuple(map(SlotRef, slots)))
        for n, (f, slots) in enumerate(zip(functions, reads))
    ]
    return MemberProgram(steps=steps, results={steps[-1].key: len(steps) - 1}, members=[0] * len(steps)), steps


def test_a_chain_of_steps_never_wakes_another_thread() -> None:
    used = set()

    def step(*args: Any) -> int:
        used.add(threading.get_ident())
        return sum(args) + 1

    n_threads = 4
    program, steps = program_of([step] * 20, [[n - 1] if n else [] for n in range(20)])
    with mock.patch.object(ProcessThreads, "start") as start:
        assert run_program(program, steps, (), dict, n_threads) == {("dx-step", 0, 19): 20}
    assert used == {threading.get_ident()}
    start.assert_not_called()


def test_steps_that_can_run_run_side_by_side_and_the_caller_works_too() -> None:
    together = threading.Barrier(3, timeout=20)
    used = set()

    def step(*args: Any) -> int:
        used.add(threading.get_ident())
        together.wait()
        return 1

    n_threads = 3
    program, steps = program_of([step] * 6 + [lambda *args: sum(args)], [[]] * 6 + [list(range(6))])
    for _ in range(5):
        assert list(run_program(program, steps, (), dict, n_threads).values()) == [6]
    assert threading.get_ident() in used
    assert len(used) == 3


def test_a_run_that_fails_waits_for_what_runs_and_leaves_the_threads_to_the_next() -> None:
    started, log = threading.Event(), []

    def slow() -> None:
        started.set()
        time.sleep(0.2)
        log.append("over")

    def fails() -> None:
        started.wait(20)
        raise ValueError("no")

    n_threads = 2
    for functions in ([slow, fails], [fails, slow]):
        started.clear()
        log.clear()
        program, steps = program_of([*functions, lambda *args: 0], [[], [], [0, 1]])
        with pytest.raises(ValueError, match="no"):
            run_program(program, steps, (), dict, n_threads)
        assert log == ["over"]
    program, steps = program_of([lambda: 1, lambda: 2, operator.add], [[], [], [0, 1]])
    assert list(run_program(program, steps, (), dict, n_threads).values()) == [3]


def test_runs_inside_of_steps_and_of_several_threads_share_the_threads() -> None:
    """Whoever asks works too, so a run never waits for a thread."""
    n_threads = 2
    program, steps = program_of([lambda: 1] * 4 + [lambda *args: sum(args)], [[]] * 4 + [[0, 1, 2, 3]])

    def inner() -> int:
        (found,) = run_program(program, steps, (), dict, n_threads).values()
        return int(found)

    outer, calls = program_of([inner] * 4 + [lambda *args: sum(args)], [[]] * 4 + [[0, 1, 2, 3]])
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(run_program, outer, calls, (), dict, n_threads) for _ in range(20)]
        assert [list(run.result(20).values()) for run in runs] == [[16]] * 20


def test_a_function_that_ends_its_thread_ends_the_run() -> None:
    n_threads = 2
    for order in ([0, 1], [1, 0]):
        functions: list[Any] = [[lambda: time.sleep(0.05), sys.exit][n] for n in order]
        program, steps = program_of([*functions, lambda *args: 0], [[], [], [0, 1]])
        with pytest.raises(SystemExit):
            run_program(program, steps, (), dict, n_threads)
