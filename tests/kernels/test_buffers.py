"""The pool lends memory again when, and only when, no array refers to it any more."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

from distarray.kernels import buffers
from distarray.kernels.buffers import ALIGNMENT, SMALLEST, BufferPool

BIG = SMALLEST // 8  # float64


class _Clock:
    """Stands where a module has `time`: only sleeping takes time."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def address(x: np.ndarray[Any, Any]) -> int:
    return int(x.ctypes.data)


def test_memory_of_a_dead_array_is_lent_again() -> None:
    pool = BufferPool()
    x = pool.take((BIG,), "f8")
    where = address(x)
    assert pool.lent_nbytes >= x.nbytes
    del x
    assert pool.lent_nbytes == 0
    assert pool.idle_nbytes >= 8 * BIG
    assert address(pool.take((BIG // 2, 4), "f4")) == where


@pytest.mark.parametrize(
    "export",
    [
        lambda x: x[3:9].T,
        lambda x: x.reshape(-1)[::-1].view("i8"),
        memoryview,
        np.from_dlpack,
        lambda x: np.broadcast_to(x[0], (3, 4)),
        lambda x: np.frombuffer(x.reshape(-1), "u1"),
    ],
)
def test_memory_is_never_lent_while_a_view_lives(export: Any) -> None:
    pool = BufferPool()
    x = pool.take((BIG // 4, 4), "f8")
    x[...] = 1
    view = export(x)
    del x
    others = [pool.take((BIG // 4, 4), "f8") for _ in range(3)]
    for other in others:
        other[...] = 7
    assert not (np.asarray(view) == 7).any()
    lent = pool.lent_nbytes
    del view, other
    gc.collect()
    assert pool.lent_nbytes < lent


@pytest.mark.parametrize("shape", [(), (0, 5), (3,), (3, 4, 5), (200, 300, 5)])
@pytest.mark.parametrize("dtype", ["f8", "c16", "?", "M8[s]", "f2"])
def test_shape_dtype_and_layout_are_as_asked(shape: tuple[int, ...], dtype: str) -> None:
    pool = BufferPool()
    for layout in ("C", "F", tuple(range(len(shape)))[::-1], (*range(1, len(shape)), *([0] if shape else []))):
        x = pool.take(shape, dtype, layout)
        assert x.shape == shape
        assert x.dtype == np.dtype(dtype)
        assert x.flags.writeable
        if layout in ("C", "F"):
            assert x.flags.c_contiguous if layout == "C" else x.flags.f_contiguous
        else:
            assert x.transpose(layout).flags.c_contiguous
        if x.nbytes >= SMALLEST:
            assert address(x) % ALIGNMENT == 0


def test_idle_memory_is_bounded_and_can_be_trimmed() -> None:
    pool = BufferPool(limit=3 * 8 * BIG)
    arrays = [pool.take((BIG,), "f8") for _ in range(6)]
    arrays.clear()
    assert 0 < pool.idle_nbytes <= 3 * 8 * BIG
    pool.trim()
    assert pool.idle_nbytes == 0
    huge = pool.take((4 * BIG,), "f8")
    del huge
    assert pool.idle_nbytes == 0  # larger than the limit: freed


def test_threads_share_a_pool() -> None:
    pool = BufferPool()
    wrong: list[int] = []

    def work(k: int) -> None:
        for i in range(200):
            x = pool.take((BIG + 1000 * (i % 3),), "f8")
            x[:] = k
            view = x[::7]
            del x
            if (view != k).any():
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert pool.lent_nbytes == 0


@pytest.mark.parametrize(("others", "idle"), [(0, 4), (5, 4), (22, 2), (24, 0), (40, 0)])
def test_less_lies_idle_where_memory_is_tight(monkeypatch: pytest.MonkeyPatch, others: int, idle: int) -> None:
    """A tenth of the memory, or what is left up to three fifths of it (here: 24 of 40 blocks)."""
    pool = BufferPool()
    monkeypatch.setattr(
        "distarray.kernels.buffers.resident_nbytes",
        lambda: others * 8 * BIG + pool._idle_nbytes + pool._lent_nbytes,
    )
    pool.memory = 8 * BIG * 40
    blocks = [pool.take((BIG,), "f8") for _ in range(6)]
    del blocks
    assert pool.idle_nbytes == idle * 8 * BIG
    pool.memory = None
    blocks = [pool.take((BIG,), "f8") for _ in range(6)]
    del blocks
    assert pool.idle_nbytes == 6 * 8 * BIG


def test_fresh_memory_waits_while_the_process_is_full_and_others_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker would be ended by its nanny otherwise; idle memory goes first, and what is lent again is not fresh."""
    pool = BufferPool()
    lent = pool.take((BIG,), "f8")
    idle = pool.take((2 * BIG,), "f8")
    del idle
    pool.full = 10 * SMALLEST
    used = iter([12, 11, 10, 9, 5, 5])
    looked: list[int] = []

    def resident() -> int:
        looked.append(next(used))
        return looked[-1] * SMALLEST

    monkeypatch.setattr(buffers, "resident_nbytes", resident)
    monkeypatch.setattr(buffers, "LOOK_SECONDS", 0.0)
    other = pool.take((BIG,), "f8")
    assert looked == [12, 11, 10, 9]
    assert pool._granted_nbytes() == SMALLEST
    assert pool.idle_nbytes == 0
    del lent
    again = pool.take((BIG,), "f8")
    assert looked == [12, 11, 10, 9]
    assert other.size == again.size == BIG


def test_fresh_memory_is_there_all_the_same_if_nobody_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = BufferPool()
    pool.full = SMALLEST
    monkeypatch.setattr(buffers, "resident_nbytes", lambda: 2 * SMALLEST)
    monkeypatch.setattr(buffers, "PATIENCE_SECONDS", 0.05)
    assert pool.take((BIG,), "f8").size == BIG


def test_what_one_thread_is_granted_counts_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages count as resident when they are written to: two threads that ask at once would both be granted the last."""
    pool = BufferPool()
    pool.full = 3 * SMALLEST
    monkeypatch.setattr(buffers, "resident_nbytes", lambda: SMALLEST)
    monkeypatch.setattr(buffers, "PATIENCE_SECONDS", 10.0)
    clock = _Clock()
    monkeypatch.setattr(buffers, "time", clock)
    held = [pool.take((BIG,), "f8"), pool.take((BIG,), "f8")]
    assert clock.seconds == 0
    held.append(pool.take((BIG,), "f8"))
    assert buffers.GRANTED_SECONDS <= clock.seconds < 2 * buffers.GRANTED_SECONDS


def test_what_a_task_was_granted_counts_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many short tasks, one after the other, never wait for what the ones before were granted."""
    pool = BufferPool()
    pool.full = 4 * SMALLEST
    monkeypatch.setattr(buffers, "resident_nbytes", lambda: SMALLEST)
    clock = _Clock()
    monkeypatch.setattr(buffers, "time", clock)
    for _ in range(100):
        with pool.room_for(2 * SMALLEST):
            assert pool._granted_nbytes() == 2 * SMALLEST
            one = pool.take((BIG,), "f8")  # a part of that
            assert pool._granted_nbytes() == 2 * SMALLEST
            other = pool.take((2 * BIG,), "f8")  # more than that
            assert pool._granted_nbytes() == 3 * SMALLEST
        assert pool._granted_nbytes() == 0
        del one, other
        pool.trim()
    assert clock.seconds == 0
    with pool.room_for(SMALLEST):
        with pytest.raises(ZeroDivisionError), pool.room_for(0):
            made = pool.take((BIG,), "f8")
            assert pool._granted_nbytes() == 2 * SMALLEST
            _ = 1 / 0
        assert made.size == BIG and pool._granted_nbytes() == SMALLEST
    assert pool._granted_nbytes() == 0


def test_a_lease_that_an_interrupt_left_without_memory_ends_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    bare = buffers._leases(SMALLEST).from_buffer(bytearray(SMALLEST))
    del bare
    assert capfd.readouterr().err == ""
