"""Names of runs: no two processes that compute on one cluster give the same one."""

from __future__ import annotations

import multiprocessing
import sys
import time
import warnings
from typing import Any

import numpy as np
import pytest

import distarray as dx
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


@pytest.mark.cluster
@pytest.mark.timeout(120)
def test_floating_point_events_are_told_to_the_process_that_computes(process_cluster: Any) -> None:
    """The scheduler tells all clients: one warned of what another divided, or called its own function for it."""

    def divides() -> bool:
        from distributed import worker_client

        with worker_client() as client:
            x = dx.asarray(np.zeros(3_000), team=dx.Team((3,), ("r",), client=client), sharding=("r",))
            return bool(np.isinf(np.asarray(1 / x)).all())

    team = dx.current_team()
    assert team is not None
    called: list[Any] = []
    with np.errstate(all="call", call=lambda *said: called.append(said)), warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        assert process_cluster.submit(divides).result(60)
        np.asarray(np.log(dx.asarray(np.zeros(3_000) - 1, team=team, sharding=(team.axes,))))
        end = time.monotonic() + 20
        while not called and time.monotonic() < end:  # what the other one met was told before
            time.sleep(0.01)
    assert [said[0] for said in called] == ["invalid value"]
    assert not given
