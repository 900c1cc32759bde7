"""Forked processes: what threads of the parent hold is free there."""

from __future__ import annotations

import ast
import io
import multiprocessing
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray import forks
from distarray.diagnostics import progress_bars
from distarray.runtime.members import LOCK

PACKAGE = Path(dx.__file__).parent


@pytest.fixture
def held_elsewhere() -> Iterator[None]:
    """Have another thread hold all locks of the package that live as long as the process does."""
    is_held, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as stack:
            for lock in list(forks._locks):
                stack.enter_context(lock)
            is_held.set()
            is_over.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert is_held.wait(30)
    yield
    is_over.set()
    thread.join(30)


def answer_of_child(lock: AbstractContextManager[Any], target: Callable[..., None], *args: Any) -> Any:
    """Return what a process sends that is forked while a lock is taken."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    with lock:
        process = context.Process(target=target, args=(*args, there))
        process.start()
    try:
        assert here.poll(30)
        return here.recv()
    finally:
        process.kill()
        process.join(30)


def compute(end: Any) -> None:
    x = dx.asarray(np.arange(400_000.0), team=dx.Team((2,), ("x",)))
    with dx.config.set(eager_bytes=0, block_bytes=0):
        y = x * 2
        y[1:] += x[:-1]
        end.send((float(y.sum()), float(dx.random.default_rng(0).random(5).sum()) >= 0))


@pytest.mark.skipif(sys.platform == "win32", reason="no process is a fork there")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
@pytest.mark.usefixtures("held_elsewhere")
def test_a_forked_process_waits_for_no_thread_of_its_parent() -> None:
    found = answer_of_child(nullcontext(), compute)
    x = np.arange(400_000.0)
    assert found == (pytest.approx(2 * x.sum() + x[:-1].sum()), True)


def show(end: Any) -> None:
    with dx.progress(bar="plain", file=io.StringIO()):
        end.send(True)


@pytest.mark.skipif(sys.platform == "win32", reason="no process is a fork there")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_progress_is_shown_in_a_process_that_is_forked_while_it_begins_to_be_shown() -> None:
    assert answer_of_child(progress_bars._display._lock, show)


def leave(lock: Any, end: Any) -> None:
    lock.release()
    end.send(lock.acquire(blocking=False))


@pytest.mark.skipif(sys.platform == "win32", reason="no process is a fork there")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_who_forks_inside_of_a_lock_can_leave_it() -> None:
    assert answer_of_child(LOCK, leave, LOCK)


def test_all_locks_of_modules_are_free_in_forked_processes() -> None:
    bare = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in ("Lock", "RLock"):
                bare.append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert not bare
