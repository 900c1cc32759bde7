"""What is computed without a plan has the bits of a plan; and what takes longer than one is planned."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.kernels import sliced
from distarray.runtime import evaluate, flights, small
from distarray.testing import counting

REDUCTIONS = ["sum", "mean", "var", "std", "prod", "max", "argmax", "any"]


def bits(monkeypatch: pytest.MonkeyPatch, brief: int, nbytes: int, make: Callable[[], Any]) -> bytes:
    monkeypatch.setattr(small, "BRIEF_NBYTES", brief)
    monkeypatch.setattr(small, "SMALL_NBYTES", nbytes)
    with dx.config.set(eager_bytes=nbytes), np.errstate(all="ignore"):
        for _ in range(2):
            make()  # at the call it is made ready first
        return np.asarray(make()).tobytes()


@pytest.mark.parametrize("dtype", ["f8", "i8", "c16"])
@pytest.mark.parametrize("shape", [(600, 700), (3, 100_001), (100_001, 3)])
def test_reductions_of_what_is_large_are_those_of_a_plan_to_the_bit(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], dtype: str
) -> None:
    host = (np.random.default_rng(0).standard_normal(shape) * 10).astype(dtype)
    x = dx.asarray(host)
    for name in REDUCTIONS:
        for axis in (None, 0, 1):
            if not (dtype == "c16" and "max" in name):

                def make(name: str = name, axis: int | None = axis) -> Any:
                    return getattr(dx, name)(x * x, axis=axis)

                planned = bits(monkeypatch, 0, 0, make)
                assert bits(monkeypatch, 1 << 30, 0, make) == planned, (name, axis)
                assert bits(monkeypatch, 0, 1 << 30, make) == planned, (name, axis)


@pytest.mark.parametrize(
    ("make", "is_brief"),
    [
        (lambda x: x.sum(), True),
        (lambda x: x.max(axis=0), True),
        (lambda x: dx.sum((x - 1) * x), True),
        (lambda x: dx.exp(x).sum(), True),
        (lambda x: dx.sqrt(dx.sum(x * x, axis=1)), True),
        (lambda x: dx.pad(x, 1), True),
        (lambda x: dx.concatenate([x, x, x]), True),
        (lambda x: dx.sort(x, axis=0)[0], False),
        (lambda x: x @ x, False),
    ],
    ids=["sum", "max", "chain", "slow function", "norm", "new array", "joined", "sort", "product"],
)
def test_quick_steps_on_arrays_of_some_megabytes_are_no_tasks(make: Callable[[Any], Any], is_brief: bool) -> None:
    x = dx.asarray(np.random.default_rng(0).random((1000, 1000))).persist()
    with counting() as counts:
        make(x).persist()
    assert (counts.evaluations, counts.tasks > 0) == (1, not is_brief)


@pytest.mark.parametrize("shape", [(786_432, 1), (1, 786_432), (75_000, 1, 8)])
@pytest.mark.parametrize("axis", [0, -1])
def test_sums_along_turned_axes_have_the_same_bits_however_often_and_wherever(shape, axis):
    a = np.random.default_rng(1).standard_normal(shape).astype("f4")
    found = []
    for eager in (True, False):
        with dx.config.set({} if eager else {"eager_bytes": 0}):
            x, y = dx.asarray(a), dx.asarray(a).persist()
            found += [np.asarray(z.T.sum(axis=axis)) for z in (x, y, y, y)]  # the third call is a ready one
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_two_threads_compute_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    barrier = threading.Barrier(2)
    interpreter = small.interpreter()
    computed = interpreter.computed

    def meeting(*args: Any) -> Any:
        barrier.wait(20)  # alone each of them would wait for ever
        return computed(*args)

    arrays = [dx.asarray(np.full((800, 800), k + 1.0)) for k in range(2)]
    assert arrays[0].nbytes > small.SMALL_NBYTES
    monkeypatch.setattr(interpreter, "computed", meeting)
    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(lambda x: float(dx.sum(x * x)), arrays)] == [640_000, 2_560_000]


def test_what_is_brief_and_nobody_elses_is_computed_where_one_looks_without_an_evaluation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a = np.random.default_rng(0).random((900, 800))
    x = dx.asarray(a)
    assert x.nbytes > small.SMALL_NBYTES
    square = x * x
    evaluated: list[Any] = []
    whole = evaluate.evaluate
    monkeypatch.setattr(evaluate, "evaluate", lambda *args: (evaluated.append(args), whole(*args)))
    total = dx.sum(x * x)
    with counting() as counts:
        assert float(total) == float(total) == pytest.approx((a * a).sum(), rel=1e-13)
    assert (counts.evaluations, counts.inline, len(evaluated)) == (1, 1, 0)
    np.testing.assert_array_equal(np.asarray(x * 2), a * 2)
    assert not evaluated
    assert float(square.sum()) == float(total)
    assert len(evaluated) == 1  # which has kept what there is a handle of
    assert square._base.current.memo is not None
    monkeypatch.setattr(flights, "are_others", lambda: True)  # one of them may write into what is read here
    assert float(dx.max(x + 1)) == a.max() + 1
    assert len(evaluated) == 2


def test_what_is_looked_at_warns_and_raises_as_evaluations_do() -> None:
    x = dx.asarray(np.zeros((900, 800)))
    with pytest.warns(RuntimeWarning, match="invalid value encountered in divide") as told:
        assert np.isnan(float(dx.sum(x / x)))
    assert len(told) == 1
    assert told[0].filename == __file__
    with np.errstate(all="raise"), pytest.raises(FloatingPointError, match="invalid value encountered in divide"):
        float(dx.sum(x / x))
    x += 1
    assert float(dx.sum(x / x)) == x.size


def test_reductions_of_some_megabytes_are_made_at_the_call() -> None:
    a = np.random.default_rng(0).random((900, 800))
    x = dx.asarray(a)
    for _ in range(2):
        made = x.max(axis=0)
        assert made._base.block is not None
    np.testing.assert_array_equal(np.asarray(made), a.max(axis=0))


PASSES: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda x, y: dx.sum(x * y),
    "sum along rows": lambda x, y: dx.sum((x - y) ** 2, axis=1),
    "mean along columns": lambda x, y: dx.mean(x * 2 - y, axis=0),
    "index": lambda x, y: dx.argmax(x * y, axis=1),
    "count": lambda x, y: dx.count_nonzero(x > y),
    "variance": lambda x, y: dx.var(x + y),
    "no reduction": lambda x, y: x * y - 1,
    "given twice": lambda x, y: (x + y) * (x + y) + x,
    "row and column": lambda x, y: dx.sum((x + y[0]) * y[:, :1] - 2.5, axis=0),
    "view": lambda x, y: dx.max(x[1:, ::-1] - y[:-1]),
    "after a reduction": lambda x, y: dx.sqrt(dx.sum(x * x, axis=0)) + 1,
    "several reductions": lambda x, y: (x - x.min()) / (x.max() - x.min()),
    "read by two": lambda x, y: (x + y).sum(axis=0) - (x * 2).max(axis=0) + (y - x.mean(axis=0))[0],
    "number": lambda x, y: x.sum() - (y * y).sum() / 3,
    "cast": lambda x, y: (x * 3).astype("f4") + dx.float32(1),
}


@pytest.mark.parametrize("name", PASSES)
def test_what_is_computed_in_one_pass_is_what_its_steps_give(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "BRIEF_NBYTES", 1 << 30)
    rng = np.random.default_rng(3)
    x, y = (dx.asarray(rng.standard_normal((1201, 800))) for _ in range(2))
    interpreter = small.interpreter()
    passes_of, found = interpreter.passes_of, []
    monkeypatch.setattr(interpreter, "passes_of", lambda *args: found.append(passes_of(*args)) or found[-1])
    in_passes = np.asarray(PASSES[name](x, y))
    assert [len(passes) > 0 for passes in found] == [True]
    monkeypatch.setattr(interpreter, "passes_of", lambda *args: {})
    np.testing.assert_array_equal(in_passes, np.asarray(PASSES[name](x, y)), strict=True)


def test_a_pass_is_shared_with_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    if small.helpers_for(dx.asarray(0.0)._env) is None:
        pytest.skip("this process has one core")
    together, rounds = threading.Barrier(2), []
    perform = sliced.perform

    def meeting(*args: Any) -> Any:
        if len(rounds) < 2:
            rounds.append(1)
            together.wait(20)  # alone it would wait for ever
        return perform(*args)

    monkeypatch.setattr(sliced, "perform", meeting)
    x = dx.asarray(np.ones((900, 800)))
    assert float(dx.sum(x * x)) == 720_000


def test_a_pass_that_meets_something_warns_and_raises_as_its_steps_do() -> None:
    x = dx.asarray(np.linspace(0, 1, 720_000).reshape(900, 800))
    with pytest.warns(RuntimeWarning, match="divide by zero encountered in divide") as caught:
        assert float(dx.max(1 / x)) == np.inf
    assert caught[0].filename == __file__
    assert len(caught) == 1
    with np.errstate(divide="ignore"):
        assert float(dx.max(1 / x)) == np.inf
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError, match="divide by zero encountered in divide"):
        float(dx.max(1 / x))
