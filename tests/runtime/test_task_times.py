"""Clocks around tasks: what they write down, and that they stay out of the way."""

import time
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.runtime import clocks
from distarray.runtime.clocks import Span
from distarray.runtime.task_times import busy_seconds, measuring


def computing(stage: int, member: int, start: float, stop: float) -> Span:
    return Span(stage, member, False, start, stop)


def waiting(stage: int, member: int, start: float, stop: float) -> Span:
    return Span(stage, member, True, start, stop)


def test_the_busiest_member_counts_and_what_overlaps_once() -> None:
    spans = [
        *(computing(0, 0, 0, 2), computing(0, 0, 1, 3)),  # two threads of a member
        computing(0, 1, 0, 2.5),
        *(computing(1, 0, 10, 11), computing(1, 1, 10, 11), computing(1, 1, 12, 13)),
    ]
    assert busy_seconds(spans) == {0: 3, 1: 2}
    assert busy_seconds([]) == {}


def test_waiting_for_data_counts_beside_computing() -> None:
    # the clocks differ, and the model hides no transfer either
    spans = [waiting(0, 0, 100, 102), waiting(0, 0, 101, 104), computing(0, 0, 1, 2), computing(0, 1, 0, 4)]
    assert busy_seconds(spans) == {0: 5}


def lying(shape: tuple[int, ...], team: dx.Team) -> Any:
    return (dx.asarray(np.arange(float(np.prod(shape))).reshape(shape), team=team, sharding=("R", None)) + 0).persist()


def test_every_task_of_the_block_is_measured_and_none_after_it() -> None:
    team = dx.Team((3,), ("R",), members=range(3))
    x = lying((7, 5), team)
    with measuring() as spans:
        y = (x + x.sum(axis=0)).persist()
    assert {(s.stage, s.member) for s in spans} == {(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)}
    assert not any(s.is_transfer for s in spans)
    n = len(spans)
    (y * 2).persist()
    assert len(spans) == n
    assert not clocks._spans


def test_values_and_errors_are_those_without_clocks() -> None:
    x = lying((6, 6), dx.Team((3,), ("R",), members=range(3)))
    with measuring():
        assert np.array_equal(np.asarray(x @ x), np.asarray(x) @ np.asarray(x))
        with pytest.raises(np.linalg.LinAlgError):
            np.asarray(dx.linalg.cholesky(-x))
    assert not clocks._spans


def test_what_runs_inside_a_task_belongs_to_the_stage_of_the_task() -> None:
    team = dx.Team((2,), ("R",), members=range(2))
    x = lying((4, 4), team)

    def inner(block: Any) -> Any:
        with dx.config.set(block_bytes=0):
            return np.asarray((dx.asarray(block) + 1).sum(axis=0, keepdims=True) + block)

    with measuring() as spans:
        x.map_blocks(inner, dtype=x.dtype).persist()
    assert {s.stage for s in spans} == {0}
    assert len([s for s in spans if s.member == 0]) == 1


def test_a_task_that_is_run_again_later_just_runs() -> None:
    assert clocks._run("gone", 0, 0, True, divmod, 7, 3) == (2, 1)


def test_a_device_is_waited_for() -> None:
    class Device:
        n_waits = 0

        def synchronize(self) -> None:
            Device.n_waits += 1

    class Block:
        device = Device()

    clocks.start("test")
    for result in (Block(), [Block(), Block()], np.zeros(3), None):
        assert clocks._run("test", 4, 1, True, lambda r=result: r) is result
    assert Device.n_waits == 3
    assert [(s.stage, s.member) for s in clocks.stop("test")] == [(4, 1)] * 4


def late_at_the_first(block: Any, block_info: Any = None) -> Any:
    if block_info[0]["chunk-location"][0] == 0:
        time.sleep(0.3)
    return block


@pytest.mark.cluster
def test_workers_tell_what_they_waited_for(cluster4: Any) -> None:
    team = dx.Team((4,), ("R",), client=cluster4)
    x = lying((8, 8), team)
    dx.wait(x)
    with measuring(cluster4) as spans, dx.config.set(errors="deferred"):
        y = dx.map_blocks(late_at_the_first, x, dtype=x.dtype).reshard((None, "R"), mode="direct").persist()
        dx.wait(y)
    assert {s.member for s in spans} == {0, 1, 2, 3}
    # Each member is sent something by every other one, and the first is late.
    waited = {m: sum(s.stop - s.start for s in spans if s.is_transfer and s.member == m) for m in range(1, 4)}
    assert all(seconds > 0.1 for seconds in waited.values())
    assert all(s.stop >= s.start for s in spans)
    assert not clocks._spans
