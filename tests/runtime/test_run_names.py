"""Names of runs: no two processes that compute on one cluster give the same one."""

from __future__ import annotations

import multiprocessing
import sys

import pytest

from distarray.runtime.run_names import new_run


@pytest.mark.skipif(sys.platform == "win32", reason="no process is a fork there")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_forks_of_one_process_name_their_runs_differently() -> None:
    context = multiprocessing.get_context("fork")
    ends = []
    for _ in range(2):
        here, there = context.Pipe()
        process = context.Process(target=lambda end=there: end.send(new_run()))
        process.start()
        ends.append((here, process))
    names = [here.recv() if here.poll(30) else None for here, _ in ends]
    for _, process in ends:
        process.join(30)
    prefixes = {str(name).partition("-")[0] for name in (*names, new_run())}
    assert len(prefixes) == 3
