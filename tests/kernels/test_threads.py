"""Threads that help with kernels: every part once, the same bits, and nobody waits for a thread that never comes."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_programs import assert_same_bits, programs, values

from distarray import hooks
from distarray.expr.instructions import Instruction
from distarray.kernels import fourier, products, random, sliced, sorting, threads
from distarray.kernels import program as program_module
from distarray.kernels.backends import NUMPY
from distarray.kernels.inside import as_task, is_inside_task
from distarray.kernels.outcomes import Reduction
from distarray.kernels.parts import filled, in_parts
from distarray.kernels.program import Program
from distarray.kernels.specs import Parting

PROPERTY = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


class Pool:
    """Helpers of a thread pool; as many as `n_free` come at once."""

    def __init__(self, n_threads: int, n_free: int) -> None:
        self.n_threads = n_threads
        self._free = threading.Semaphore(n_free)
        self._pool = ThreadPoolExecutor(n_threads)
        self.n_started = 0
        self.errors: list[BaseException] = []

    def start(self, work: Callable[[], None]) -> bool:
        if not self._free.acquire(blocking=False):
            return False
        self.n_started += 1
        self._pool.submit(copy_context().run, self._help, work)
        return True

    def _help(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # it must not
            self.errors.append(error)
        finally:
            self._free.release()

    def close(self) -> None:
        self._pool.shutdown()
        assert not self.errors


@pytest.fixture
def helped(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    """Three helpers, who are asked however little there is to do."""
    pool = Pool(4, 3)
    monkeypatch.setattr(hooks, "find_helpers", lambda: pool)
    monkeypatch.setattr(threads, "HELPED", 1)
    yield pool
    pool.close()


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_module, "WHOLE", 4)
    for name in ("REDUCED_SLICE", "SMALLEST_SLICE", "LARGEST_SLICE"):
        monkeypatch.setattr(sliced, name, 64)


def alone(monkeypatch: pytest.MonkeyPatch, function: Callable[[], Any]) -> Any:
    """Return what a function gives in a thread that nobody helps."""
    with monkeypatch.context() as patch:
        patch.setattr(hooks, "find_helpers", None)
        return function()


# ----------------------------------------------------------------------------------------------------------- parts


def test_every_part_is_run_once_and_in_several_threads(helped: Pool) -> None:
    together = threading.Barrier(4)
    seen: list[int] = []

    def part(k: int) -> None:
        together.wait(10)  # it ends only if four of them run at the same time
        seen.append(k)

    threads.run_parts([lambda k=k: part(k) for k in range(8)])  # type: ignore[misc]
    assert sorted(seen) == list(range(8))


def test_nobody_waits_for_a_thread_that_does_not_come(helped: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[Callable[[], None]] = []
    monkeypatch.setattr(helped, "start", lambda work: late.append(work) or True)
    seen: list[int] = []
    threads.run_parts([lambda k=k: seen.append(k) for k in range(5)])  # type: ignore[misc]
    assert seen == list(range(5))
    assert len(late) == 4
    for work in late:
        work()
    assert seen == list(range(5)), "who comes late has nothing to do"


def test_the_first_error_is_raised_when_all_that_has_begun_is_over(helped: Pool) -> None:
    running = threading.Semaphore(0)
    ended: list[int] = []

    def fails() -> None:
        running.acquire()
        raise ZeroDivisionError("no")

    def takes_long() -> None:
        running.release()
        time.sleep(0.1)
        ended.append(1)

    with pytest.raises(ZeroDivisionError, match="no"):
        threads.run_parts([fails, takes_long, *[lambda: None] * 100])
    assert ended == [1]


def test_of_several_errors_the_one_of_the_first_part_is_raised(helped: Pool) -> None:
    together = threading.Barrier(4)

    def part(k: int) -> None:
        if k < 4:
            together.wait(10)
        if k in (1, 2, 3, 5):
            time.sleep((4 - k) * 0.02 if k < 4 else 0)
            raise ValueError(str(k))

    for _ in range(3):
        with pytest.raises(ValueError, match="1"):
            threads.run_parts([lambda k=k: part(k) for k in range(8)])  # type: ignore[misc]


def test_parts_see_the_floating_point_state_and_are_parts_of_a_task(helped: Pool) -> None:
    found: list[Any] = []
    together = threading.Barrier(3)

    def part() -> None:
        together.wait(10)
        found.append((np.geterr()["divide"], threading.get_ident(), is_inside_task()))

    with np.errstate(divide="raise"):
        threads.run_parts([part] * 3)
    assert [state for state, _, _ in found] == ["raise"] * 3
    assert sorted(inside for _, ident, inside in found) == [False, True, True]
    assert len({ident for _, ident, _ in found}) == 3


# --------------------------------------------------------------------------------------------------------- kernels


@given(data=st.data())
@PROPERTY
def test_random_programs_have_the_same_bits(
    helped: Pool, small_slices: None, monkeypatch: pytest.MonkeyPatch, data: st.DataObject
) -> None:
    with np.errstate(all="ignore"):
        program, inputs, scalars, shape, _ = data.draw(programs())
        expected = alone(monkeypatch, lambda: program.run(inputs, scalars, shape))
        actual = program.run(inputs, scalars, shape)
    for a, e in zip(actual.outputs, expected.outputs, strict=True):
        assert_same_bits(a, e)


def test_a_run_has_the_threads_that_are_there_now(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones(1 << 20)
    program = Program(1, (Instruction("exp", (0,), x.dtype), Instruction("sin", (1,), x.dtype)), (2,))
    numbers = []
    find = sliced.run_parts
    monkeypatch.setattr(sliced, "run_parts", lambda parts: (numbers.append(len(parts)), find(parts)))
    for n in (2, 4):
        pool = Pool(n, n - 1)
        threads.helped_by(pool, program.run, [x], (), x.shape)
        pool.close()
    assert numbers == [2, 4]


@given(
    data=st.data(), monoid=st.sampled_from(["sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "moments"])
)
@PROPERTY
def test_reductions_have_the_same_bits(
    helped: Pool, small_slices: None, monkeypatch: pytest.MonkeyPatch, data: st.DataObject, monoid: str
) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 24), min_size=1, max_size=3)))
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    if monoid in ("argmax", "argmin") and len(axes) not in (1, len(shape)):
        axes = axes[:1]
    x = values("f8", shape, data.draw(st.integers(0, 99)), special=False)
    dtype = {"any": bool, "argmax": "i8", "argmin": "i8"}.get(monoid, "f8")
    program = Program(
        1, (Instruction("add", (0, 0), np.dtype("f8")),), (1,), (Reduction(1, monoid, axes, np.dtype(dtype)),)
    )

    def run() -> Any:
        return program.run([x], [], shape, origin=(0,) * len(shape), extents=shape)

    expected, actual = alone(monkeypatch, run), run()
    assert_same_bits(actual.outputs[0], expected.outputs[0])
    one, other = (o.partials[0] if type(o.partials[0]) is tuple else (o.partials[0],) for o in (actual, expected))
    for a, e in zip(one, other, strict=True):
        assert_same_bits(a, e)


def test_slices_are_taken_by_several_threads_and_their_events_are_named(helped: Pool) -> None:
    x = np.ones(1 << 20)
    x[-1] = 0
    program = Program(1, (Instruction("reciprocal", (0,), x.dtype), Instruction("sqrt", (1,), x.dtype)), (2,))
    for _ in range(3):
        outcome = program.run([x], [], x.shape, errstate={"divide": "warn", "invalid": "warn"})
        assert [e[:2] for e in outcome.events] == [("divide by zero", "reciprocal")]
    assert helped.n_started
    with pytest.raises(FloatingPointError):
        program.run([x], [], x.shape, errstate={"divide": "raise"})


def test_the_first_slice_that_fails_says_why(helped: Pool) -> None:
    x = np.ones(1 << 20)
    x[5], x[-5], x[1 << 19] = -1, 0, 0
    program = Program(1, (Instruction("log", (0,), x.dtype),), (1,))
    for _ in range(20):
        with pytest.raises(FloatingPointError, match="invalid value"):
            program.run([x], [], x.shape, errstate={"divide": "raise", "invalid": "raise"})


@pytest.mark.parametrize("name", ["random_bits", "random_normal", "random_uniform"])
@pytest.mark.parametrize("box", [((0, 7), (0, 1000)), ((3, 5), (10, 999)), ((2, 3), (0, 1000)), ((0, 7), (5, 5))])
def test_random_numbers_have_the_same_bits(
    helped: Pool, monkeypatch: pytest.MonkeyPatch, name: str, box: tuple[tuple[int, int], ...]
) -> None:
    dtype = np.dtype("u8" if name == "random_bits" else "f8")

    def run() -> Any:
        return random.CREATE[name](NUMPY, box, (7, 1000), dtype, (), 99)

    np.testing.assert_array_equal(run(), alone(monkeypatch, run))


@pytest.mark.parametrize("shape", [(1,), (4099,), (1, 4099)])
@pytest.mark.parametrize("dtype", ["f8", "i2", "c16", "?", "M8[s]"])
@pytest.mark.parametrize("params", [(False, True), (False, False), (True, True)])
def test_one_row_is_sorted_by_several_threads(
    helped: Pool, shape: tuple[int, ...], dtype: str, params: tuple[bool, bool]
) -> None:
    x = values("i8" if dtype == "M8[s]" else dtype, shape, special=dtype == "f8").astype(dtype)
    before = x.copy()
    found = sorting.sort(np, x, params=params)
    expected = np.sort(x, axis=-1, kind="stable")
    if params[0]:
        expected = np.sort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(x, before)


# ------------------------------------------------------------------------------------------------ kernels in parts


@pytest.mark.parametrize("n", [1, 2, 3, 7, 50])
def test_kernels_in_parts_give_what_they_give_at_once(helped: Pool, n: int) -> None:
    a, b = np.random.default_rng(0).random((2, 30, 20))
    whole = np.sort(a, axis=-1)
    np.testing.assert_array_equal(
        in_parts(Parting(n, (0,), (0,), 0), [a], lambda blocks: sorting.sort(np, blocks[0], params=(False, True))),
        whole,
    )
    # The elements that a kernel gives lie in memory as those of its operand do.
    turned = in_parts(Parting(n, (0,), (0,), 0), [a.T], lambda blocks: np.copy(blocks[0], order="K"))
    assert turned.flags.f_contiguous or n > 20  # a row alone lies in any order
    np.testing.assert_array_equal(turned, a.T)

    def product(blocks: Any) -> Any:
        return products.contract(np, [(0, 1), (1, 2)], (0, 2), *blocks, dtype=np.dtype("f8"))

    by_rows = in_parts(Parting(n, (0, -1), (0,), 0), [a, b.T], product)
    by_columns = in_parts(Parting(n, (-1, 1), (1,), 0), [a, b.T], product)
    for found in (by_rows, by_columns):
        np.testing.assert_allclose(found, a @ b.T, rtol=1e-13)
    values_and_places = in_parts(
        Parting(n, (1,), (0, 0), 0), [a], lambda blocks: (blocks[0].max(axis=0), blocks[0].argmax(axis=0))
    )
    np.testing.assert_array_equal(values_and_places[0], a.max(axis=0))
    np.testing.assert_array_equal(values_and_places[1], a.argmax(axis=0))


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_transforms_fill_the_block_that_they_are_given(helped: Pool, name: str, n: int) -> None:
    x = np.random.default_rng(0).random((24, 10, 16))
    x = (x if name in ("rfft", "ihfft") else x + 1j).transpose(1, 0, 2)
    whole = getattr(np.fft, name)(x)
    for parting in (None, Parting(n, (1,), (1,), 0)):
        out = NUMPY.empty(whole.shape, whole.dtype, NUMPY.layout_of(x))
        made = filled(
            parting, [x], lambda blocks, o, _: fourier.FILL["fft"](o, *blocks, params=(name, None, None)), out
        )
        assert made is out
        np.testing.assert_array_equal(out, whole)


@pytest.mark.parametrize("leaves", [as_task, partial(threads.helped_by, None)], ids=["as_task", "helped_by"])
def test_an_interrupt_leaves_a_thread_as_it_was(leaves: Callable[..., Any]) -> None:
    """Python calls handlers of signals where a function begins, or a loop goes on."""

    def work(n: int) -> int:
        return n and work(n - 1)

    def interrupted(at: int) -> bool:
        left = iter(range(at, -1, -1))

        def maybe(frame: Any, _event: str, _arg: Any) -> None:
            if frame.f_code is not interrupted.__code__ and next(left, None) == 0:
                raise KeyboardInterrupt

        try:
            sys.setprofile(maybe)
            leaves(work, 3)
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
        return False

    before = threads._thread.helpers
    at = 0
    while interrupted(at):
        assert not is_inside_task()
        assert threads._thread.helpers is before
        at += 1
    assert at > 8
