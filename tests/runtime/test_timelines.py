"""Timelines: what a program did when, in few rows, and all seconds of it."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distarray.kernels import tasks
from distarray.kernels.specs import Link
from distarray.kernels.tasks import wrapped
from distarray.runtime import timelines
from distarray.runtime.timelines import ROWS, Activity, Timeline, shown


class Clock:
    """Tells the time, and goes on by what a step takes."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def step(self, seconds: float, value: Any = None) -> Any:
        self.now += seconds
        return value


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timelines, "time", clock)
    return clock


def key(name: str, stage: int = 0, tile: int = 0) -> tuple[Any, ...]:
    return (f"dx-{name}-5f-1", stage, tile)


def spans(rows: list[Activity]) -> list[tuple[str, bool, float]]:
    return [(row.name, row.is_wait, round(row.stop - row.start, 6)) for row in rows]


def test_steps_of_a_stage_are_one_row_and_waits_stand_between(clock: Clock) -> None:
    line = Timeline()
    with line.lane() as noted:
        for tile in range(3):
            assert noted(key("add", 0, tile), 0, clock.step)(1, tile) == tile
        clock.now += 2  # nothing to read yet
        noted(key("sum", 1), 0, clock.step)(0.5)
    assert spans(line.rows()) == [("dx:add", False, 3), ("dx:sum", True, 2), ("dx:sum", False, 0.5)]
    assert line.rows(10.0)[0][-2:] == (110.0, 113.0)
    assert line.seconds() == {"dx:add": 3, "wait": 2, "dx:sum": 0.5}


def test_tasks_that_were_fused_have_rows_of_their_own(clock: Clock) -> None:
    links = [
        Link(("dx-real", 2, 0), partial(clock.step, 1), 1, ()),
        Link(("dx-sort", 3, 0), partial(clock.step, 2), 1, ((0, 0),)),
    ]
    line = Timeline()
    with line.lane() as noted:
        function, args = wrapped(key("sort", 3), tasks.run_fused, (links, "block", None), noted)
        assert function(*args) == "block"
    assert spans(line.rows()) == [("dx:real", False, 1), ("dx:sort", False, 2)]


def test_each_thread_has_the_first_lane_that_is_free(clock: Clock) -> None:
    line = Timeline()
    with line.lane() as first:
        with line.lane() as second:
            second(key("b"), 0, clock.step)(1)
        with line.lane() as third:
            third(key("c"), 0, clock.step)(1)
        first(key("a"), 0, clock.step)(1)
    assert {(row.name, row.lane) for row in line.rows()} == {("dx:a", 0), ("dx:b", 1), ("dx:c", 1)}


#: A step: which stage, seconds that it takes, seconds that it waits before.
STEPS = st.lists(st.tuples(st.integers(0, 3), st.floats(1e-6, 10), st.sampled_from([0.0, 1e-5, 0.01, 1.0])))


@given(STEPS)
def test_rows_do_not_overlap_and_no_second_is_lost(steps: list[tuple[int, float, float]]) -> None:
    clock, expected = Clock(), defaultdict(float)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timelines, "time", clock)
        line = Timeline()
        with line.lane() as noted:
            for stage, seconds, wait in steps:
                clock.now += wait
                noted(key(f"op{stage}", stage), 0, clock.step)(seconds)
                expected[f"dx:op{stage}"] += seconds
                expected["wait"] += wait
    assert line.seconds() == pytest.approx(expected)
    rows = line.rows()
    assert all(a.stop <= b.start for a, b in pairwise(rows)) and all(row.start <= row.stop for row in rows)
    # Nothing that takes long is missing: what no row covers are waits, each too short to be drawn.
    covered = sum([row.stop - row.start for row in rows])
    assert covered >= sum(expected.values()) - sum([min(w, 0.02 * (clock.now - 100)) for _, _, w in steps]) - 1e-6


def test_a_program_of_many_short_steps_has_few_rows(clock: Clock) -> None:
    line = Timeline()
    with line.lane() as noted:
        for n in range(20_000):
            clock.now += 0.001
            noted(key(f"op{n % 5}", n % 5), 0, clock.step)(0.002)
    assert len(line.rows()) < 1000
    assert line.seconds()["dx:op0"] == pytest.approx(8)


def test_only_the_task_stream_keeps_rows() -> None:
    row = Activity("dx:add", 1, 0, False, 1.0, 2.0)
    wait = row._replace(is_wait=True, start=0.5, stop=1.0)

    plugin = pytest.importorskip("distributed.diagnostics.task_stream").TaskStreamPlugin

    class Task:
        metadata: dict[str, Any] | None = None

    class Scheduler:
        def __init__(self, **plugins: Any) -> None:
            self.tasks = {"key": Task()}
            self.plugins = plugins

    for stream in (None, plugin(Scheduler(), maxlen=10)):
        scheduler = Scheduler(**({} if stream is None else {"task-stream": stream}))
        scheduler.tasks["key"].metadata = {ROWS: [wait, row], "user": 1}
        facts = {"metadata": {ROWS: [wait, row]}, "worker": "a", "status": "OK", "thread": 7}
        shown(scheduler, "key", facts)
        assert scheduler.tasks["key"].metadata == {"user": 1} and facts["metadata"] == {}
        if stream is not None:
            (told,) = stream.collect()
            assert stream.index == 1 and told["key"] == ("dx:add", 1)
            assert [s["action"] for s in told["startstops"]] == ["transfer", "compute"]
            assert (told["worker"], told["thread"]) == ("a", 0)
    shown(Scheduler(), "key", {})  # a task of which nothing is told
