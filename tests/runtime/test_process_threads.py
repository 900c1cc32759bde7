"""The threads of this process that help: a few of them, one piece of work each, and none is lost."""

from __future__ import annotations

import sys
import threading
import time
from contextvars import ContextVar

import numpy as np
import pytest

import distarray as dx
from distarray.kernels import ready
from distarray.kernels.inside import as_task
from distarray.runtime import process_threads
from distarray.runtime.clients import n_threads
from distarray.runtime.process_threads import ProcessThreads, forsake, helpers_for, threads_of

SECONDS = 20


def wait_until(holds) -> None:
    since = time.monotonic()
    while not holds():
        assert time.monotonic() - since < SECONDS
        time.sleep(0.001)


def n_free(threads: ProcessThreads) -> int:
    return sum([thread.is_waiting and thread.given is None for thread in threads._threads])


def test_work_is_done_elsewhere_in_the_context_of_who_gave_it() -> None:
    variable: ContextVar[int] = ContextVar("variable", default=0)
    variable.set(5)
    found: list[tuple[int, int]] = []
    over = threading.Event()

    def work() -> None:
        found.append((threading.get_ident(), variable.get()))
        variable.set(6)
        over.set()

    assert ProcessThreads(2).start(work)
    assert over.wait(SECONDS)
    ((thread, value),) = found
    assert thread != threading.get_ident()
    assert value == variable.get() == 5


def test_so_many_work_at_a_time_and_others_are_refused_or_wait() -> None:
    threads, go, done = ProcessThreads(3), threading.Event(), []
    for _ in range(2):
        assert threads.start(lambda: go.wait(SECONDS))
    assert not threads.start(lambda: done.append("refused"))
    for k in range(5):
        assert threads.start(lambda k=k: done.append(k), waits=True)
    assert not done
    go.set()
    wait_until(lambda: len(done) == 5)
    assert sorted(done) == list(range(5))
    wait_until(lambda: n_free(threads) == 2)
    assert len(threads._threads) == 2


def test_one_that_has_raised_something_helps_again() -> None:
    threads = ProcessThreads(2)
    for error in (ValueError, SystemExit, KeyboardInterrupt):

        def work(error: type[BaseException] = error) -> None:
            raise error

        wait_until(lambda: threads.start(work))
        wait_until(lambda: n_free(threads) == 1)


def test_threads_that_are_forsaken_end_when_their_work_is_over() -> None:
    forsaken, go, own = threads_of(4), threading.Event(), []
    for _ in range(3):
        assert forsaken.start(lambda: (own.append(threading.get_ident()), go.wait(SECONDS)), waits=True)
    wait_until(lambda: len(own) == 3)
    forsake(forsaken)
    others = threads_of(4)
    assert others is not forsaken
    assert others is threads_of(4)
    assert sys._current_frames().keys() >= set(own)
    go.set()
    wait_until(lambda: sys._current_frames().keys().isdisjoint(own))
    assert others.start(go.set)
    forsake(forsaken)
    assert threads_of(4) is others


def test_where_there_can_be_no_more_threads_nobody_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args) -> None:
        raise RuntimeError("can't start new thread")

    threads, done = ProcessThreads(2), []
    with monkeypatch.context() as patch:
        patch.setattr(process_threads, "start_new_thread", fail)
        assert not threads.start(lambda: done.append(1))
    assert threads.start(lambda: done.append(2))
    wait_until(lambda: done == [2])


def test_many_threads_that_give_work_lose_none() -> None:
    threads, done = ProcessThreads(4), []

    def give() -> None:
        for _ in range(500):
            threads.start(lambda: done.append(1), waits=True)

    givers = [threading.Thread(target=give) for _ in range(4)]
    for giver in givers:
        giver.start()
    for giver in givers:
        giver.join(SECONDS)
    wait_until(lambda: len(done) == 2000)
    wait_until(lambda: n_free(threads) == len(threads._threads) <= 3)


class _StopError(Exception):
    """What a handler of signals raises."""


@pytest.mark.parametrize("line", range(12))
@pytest.mark.parametrize("does", ["raises", "gives work"])
def test_a_signal_in_the_middle_loses_no_thread(line: int, does: str) -> None:
    """It comes at each line of `start`, and of what that calls, in turn."""
    threads, done = ProcessThreads(3), []
    threads.start(lambda: done.append("first"))
    wait_until(lambda: n_free(threads) == 1)
    left = [line]

    def come(frame, event, arg):
        if event == "line" and frame.f_code.co_filename == process_threads.__file__:
            left[0] -= 1
            if left[0] == -1:
                if does == "raises":
                    raise _StopError
                sys.settrace(None)
                threads.start(lambda: done.append("by the handler"), waits=True)
        return come

    sys.settrace(come)
    try:
        threads.start(lambda: done.append("by the user"))
    except _StopError:
        pass
    finally:
        sys.settrace(None)
    go = threading.Event()
    for _ in range(2):
        wait_until(lambda: threads.start(lambda: go.wait(SECONDS)))
    go.set()
    wait_until(lambda: n_free(threads) == len(threads._threads) == 2)


LARGE = (640, 800)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that compute parts of functions which are called."""
    monkeypatch.setattr(process_threads, "process_threads", lambda env: 3)
    used: list[int] = []
    two_work = threading.Event()
    called = ready.interpret.called

    def noted(*args):
        if len(args) == 5:
            used.append(threading.get_ident())
            if len(set(used)) > 1:
                two_work.set()
            two_work.wait(30)  # on a machine that does other things, too
        return called(*args)

    monkeypatch.setattr(ready.interpret, "called", noted)
    return used


@pytest.mark.parametrize("name", ["exp", "sin", "tanh", "cbrt", "hypot"])
@pytest.mark.parametrize("kind", ["C", "F", "view", "row", "column", "one row", "floats", "number"])
def test_functions_that_take_long_are_computed_by_several_threads(shared: list[int], name: str, kind: str) -> None:
    a = np.random.default_rng(0).standard_normal(LARGE)
    b = {
        "F": np.asfortranarray(a),
        "view": np.random.default_rng(1).standard_normal((800, 1280)).T[::2],
        "row": a[0],
        "column": a[:, :1].copy(),
        "one row": a[:1],
        "floats": a.astype("f4"),
        "number": np.float64(2.5),
    }.get(kind, a[::-1])
    function, theirs = getattr(dx, name), getattr(np, name)
    first = b if b.shape == LARGE else a
    ours, second = dx.asarray(first) + 0, dx.asarray(b)
    made = function(ours, second) if name == "hypot" else function(ours)
    wanted = theirs(first + 0, b) if name == "hypot" else theirs(first + 0)
    np.testing.assert_array_equal(np.asarray(made), wanted, strict=True)
    assert np.asarray(made).strides == wanted.strides
    assert len(set(shared)) > 1
    assert len(shared) == 3


def test_what_several_threads_meet_is_told_once_at_the_line(shared: list[int]) -> None:
    x = dx.asarray(np.zeros(LARGE)) + 0
    with pytest.warns(RuntimeWarning, match="divide by zero encountered in log") as caught:
        dx.log(x)
    assert [w.filename for w in caught] == [__file__]
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide by zero encountered in log"):
        dx.log(x)
    assert len(shared) == 6


def test_events_come_in_numpys_order(shared: list[int]) -> None:
    a = np.ones(LARGE)
    a[0, 0], a[-1, -1] = -1, 0
    x = dx.asarray(a) + 0
    for _ in range(5):
        with np.errstate(all="raise"), pytest.raises(FloatingPointError, match="divide by zero encountered in log"):
            dx.log(x)


def test_nobody_helps_inside_of_a_task_or_one_member_alone() -> None:
    env = dx.asarray(np.zeros(3))._env
    assert env.team is not None
    n = min(env.team.size, n_threads())
    assert (helpers_for(env) is not None) == (n > 1)
    assert as_task(helpers_for, env) is None
    assert helpers_for(dx.zeros(3, team=dx.Team((1,), ("R",)))._env) is None
