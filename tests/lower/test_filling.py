"""A tile that a member cannot make at once is filled in turns: what comes from others goes before more of it comes."""

from __future__ import annotations

import os
import pickle
import signal
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.kernels import tasks
from distarray.kernels.specs import Mosaic, StageSpec
from distarray.kernels.tasks import Unfinished
from distarray.testing import counting, peaks

N = 2304  # 40 MiB, a third at each of three members


def laid(where: str) -> Any:
    names = dx.current_team().mesh.names
    cut = (names, None) if where == "rows" else (None, names)
    x = (dx.arange(float(N * N)).reshape(N, N) + 0).reshard(cut).persist()
    float(x[0, 0])
    return x


PROGRAMS: dict[str, Any] = {
    "reshard": (lambda x, names: x.reshard((None, names)), lambda a: a),
    "transpose": (lambda x, names: x.T.reshard((names, None)), lambda a: a.T),
    "arithmetic": (lambda x, names: (x.T * 2 + x).reshard((names, None)), lambda a: a.T * 2 + a),
    "created": (lambda x, names: (x.T + dx.arange(float(N))).reshard((names, None)), lambda a: a.T + np.arange(N)),
}


@pytest.mark.cluster
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_tile_that_was_asked_for_is_filled_in_turns_within_the_limit(process_cluster: Any, name: str) -> None:
    run, expected = PROGRAMS[name]
    names = dx.current_team().mesh.names
    with dx.config.set(block_bytes=0):
        x = laid("rows")
        each = x.nbytes // 3
        at_once = run(x, names).explain().peak_bytes
        assert at_once > 2.7 * each  # what is sent and received lies beside source and result
        with dx.config.set(memory_limit=int(2.6 * each)), counting() as counted, peaks() as found:
            y = run(x, names)
            assert y.explain().peak_bytes <= 2.6 * each
            y.persist()
            float(y[0, 0])
        assert y.sharding.n_tiles == 3
        np.testing.assert_array_equal(np.asarray(y), expected(np.arange(float(N * N)).reshape(N, N)))
        most = max(p.blocks for p in found.values())
        assert 2 * each <= most <= counted.predicted_peak <= 2.6 * each


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["reshard", "transpose"])
def test_where_source_and_result_do_not_fit_no_turns_are_enough(process_cluster: Any, name: str) -> None:
    run, _ = PROGRAMS[name]
    with dx.config.set(block_bytes=0):
        x = laid("rows")
        with dx.config.set(memory_limit=int(1.9 * x.nbytes / 3)), counting() as counted:
            with pytest.raises(dx.MemoryBudgetError, match="reshard"):
                run(x, dx.current_team().mesh.names).persist()
            assert counted.tasks == 0


def parts_of_a_tile() -> list[Mosaic]:
    halves = [(slice(0, 2), slice(0, 3)), (slice(2, 4), slice(0, 3))]
    return [
        Mosaic(0, (2, 3), (((0, 0, 2),), ((0, 0, 3),)), place=place, tile=(4, 3), turn=turn, n_turns=2)
        for turn, place in enumerate(halves)
    ]


def test_a_turn_that_runs_again_changes_nothing() -> None:
    stage = StageSpec(None, (), (np.dtype("f8"),), layout=(0, 1))
    first, last = parts_of_a_tile()
    upper, lower = np.full((2, 3), 1.0), np.full((2, 3), 2.0)
    begun = tasks.run_mosaic(stage, first, upper)
    whole = tasks.run_mosaic(stage, last, lower, begun)
    np.testing.assert_array_equal(tasks.run_mosaic(stage, last, lower, begun), whole)
    np.testing.assert_array_equal(whole, np.vstack([upper, lower]))


def test_what_is_unfinished_goes_on_from_disk() -> None:
    stage = StageSpec(None, (), (np.dtype("f8"),), layout=(0, 1))
    first, last = parts_of_a_tile()
    upper, lower = np.full((2, 3), 1.0), np.full((2, 3), 2.0)
    buffers: list[Any] = []
    text = pickle.dumps(tasks.run_mosaic(stage, first, upper), protocol=5, buffer_callback=buffers.append)
    resumed = pickle.loads(text, buffers=[bytes(b) for b in buffers])
    assert isinstance(resumed, Unfinished)
    np.testing.assert_array_equal(tasks.run_mosaic(stage, last, lower, resumed), np.vstack([upper, lower]))


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("name", ["reshard", "transpose"])
def test_a_worker_may_be_lost_between_the_turns(mortal_cluster: Any, name: str) -> None:
    run, expected = PROGRAMS[name]
    names = dx.current_team().mesh.names
    with dx.config.set(block_bytes=0):
        a = np.random.default_rng(0).random((N, N))
        x = dx.asarray(a).reshard((names, None)).persist()
        float(x[0, 0])
        held = max(dx.runtime.members.executor_for(x.__dx_node__().env).held().values())
        pids = mortal_cluster.run(os.getpid)
        with dx.config.set(memory_limit=held + int(2.1 * x.nbytes / 3)):
            with counting() as counted:
                y = run(x, names).persist()
            assert counted.tasks > 3 * 6  # turns of three members, and what is sent for them
            os.kill(sorted(pids.values())[1], signal.SIGKILL)
            np.testing.assert_array_equal(np.asarray(y), expected(a))
