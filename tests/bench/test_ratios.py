"""Interleaved times and their ratios, on a clock that only the programs move."""

import pytest
from benchmarks.ratios import Ratio, interleaved, ratio


class Clock:
    def __init__(self):
        self.now = 0.0
        self.calls = []

    def __call__(self):
        return self.now

    def program(self, name, seconds):
        def run():
            self.calls.append(name)
            self.now += seconds

        return run


def test_times_are_seconds_per_call():
    clock = Clock()
    programs = {"quick": clock.program("quick", 0.25), "slow": clock.program("slow", 2.0)}
    assert interleaved(programs, rounds=3, shortest=1.0, clock=clock) == {"quick": [0.25] * 3, "slow": [2.0] * 3}


def test_every_round_runs_each_program_and_turns_the_order():
    clock = Clock()
    names = ["a", "b", "c"]
    interleaved({name: clock.program(name, 1.0) for name in names}, rounds=3, shortest=1.0, clock=clock)
    assert clock.calls[-9:] == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]


def test_quick_programs_are_repeated_until_the_clock_sees_them():
    clock = Clock()
    interleaved({"quick": clock.program("quick", 0.001)}, rounds=1, shortest=0.1, clock=clock)
    before = len(clock.calls)
    assert before > 100
    taken = interleaved({"quick": clock.program("quick", 0.001)}, rounds=1, shortest=0.1, clock=clock)
    assert taken["quick"] == pytest.approx([0.001])


def test_a_ratio_is_the_median_of_the_rounds_quotients():
    # The slow third round hits both programs, and the ratio not at all.
    assert ratio([1.0, 2.0, 50.0], [2.0, 4.0, 100.0]) == Ratio(0.5, 0.5, 0.5)
    assert ratio([1.0, 2.0, 9.0], [1.0, 1.0, 1.0]).median == 2.0
