"""Promised blocks in member programs: given where all of them fit at once, made by steps where they do not."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from dask._task_spec import DataNode, Task, TaskRef
from helpers import eventually
from on_workers import kinds_of_tasks, left_at_scheduler, waits_for

import distarray as dx
from distarray.errors import MemoryBudgetError
from distarray.runtime.promised import _tasks_of_each
from distarray.testing import counting, peaks
from distarray.testing.assertions import assert_close

pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

A = np.random.default_rng(0).random((512, 256))
CHUNK = (8, 256)
NBYTES = 8 * 256 * 8
#: Of four members, each of which has sixteen chunks.
LITTLE = 6 * NBYTES


def noted(block: Any, folder: str) -> Any:
    """Return a block, and leave a file."""
    Path(folder, uuid4().hex).touch()
    return block + 1


def lazy(folder: Path) -> dx.DistArray:
    return dx.from_dask(da.from_array(A, chunks=CHUNK).map_blocks(noted, str(folder), dtype=A.dtype, meta=A[:0]))


STREAMED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "total": (lambda x: x.sum(), lambda a: a.sum()),
    "of rows, without messages": (lambda x: x.max(axis=1), lambda a: a.max(axis=1)),
    "of columns": (lambda x: x.mean(axis=0), lambda a: a.mean(axis=0)),
    "product": (lambda x: x[:, :8].T @ x[:, :8], lambda a: a[:, :8].T @ a[:, :8]),
    "several in one pass": (lambda x: x.var() + x.min(), lambda a: a.var() + a.min()),
}


@pytest.mark.cluster
@pytest.mark.parametrize("name", STREAMED)
def test_a_graph_larger_than_memory_streams_through_programs(cluster4: Any, tmp_path: Path, name: str) -> None:
    ours, numpys = STREAMED[name]
    dx.zeros(3)  # the team
    with dx.config.set(block_bytes=0, memory_limit=LITTLE):
        y = ours(lazy(tmp_path))
        told = y.explain()
        assert told.programs == 4 and told.peak_bytes <= LITTLE
        assert not list(tmp_path.iterdir()), "nothing runs before it is asked for"
        before = cluster4.run_on_scheduler(kinds_of_tasks)["all"]
        with peaks() as found:
            dx.wait(y.persist())
        assert cluster4.run_on_scheduler(kinds_of_tasks)["all"] - before <= 4 * (1 + 1) + 1
        assert max(p.blocks - p.before for p in found.values()) <= told.peak_bytes
        assert len(list(tmp_path.iterdir())) == 64, "each chunk is made once"
        assert_close(y, numpys(A + 1))


@pytest.mark.cluster
def test_blocks_that_fit_at_once_are_given_to_programs_with_credits(cluster4: Any, tmp_path: Path) -> None:
    with dx.config.set(block_bytes=0, memory_limit=6 * A.nbytes // 4):
        x = lazy(tmp_path)
        y = x.reshard((None, dx.current_team().mesh.names[0]))
        assert y.explain().programs == 4
        assert_close(y, A + 1)
        assert_close(x, A + 1)
    assert len(list(tmp_path.iterdir())) == 64, "what a handle refers to is kept"


@pytest.mark.cluster
@pytest.mark.parametrize("holder", ["handle", "pending"])
def test_what_somebody_else_needs_is_not_made_by_steps(cluster4: Any, tmp_path: Path, holder: str) -> None:
    """It would have to be made again for them: on one member it does not fit, so it is refused."""
    with dx.config.set(block_bytes=0, memory_limit=LITTLE):
        x = lazy(tmp_path)
        other = x if holder == "handle" else x * 2
        y = x.sum()
        del x
        with pytest.raises(MemoryBudgetError, match=f"memory-limit of {LITTLE}"):
            y.persist()
    assert not list(tmp_path.iterdir())
    np.testing.assert_allclose(float(y), (A + 1).sum())
    assert_close(other, (A + 1) if holder == "handle" else (A + 1) * 2)
    assert len(list(tmp_path.iterdir())) == 64


@pytest.mark.cluster
def test_an_error_of_a_step_that_makes_a_block_is_its_own(cluster4: Any) -> None:
    def fails(block: Any) -> Any:
        raise ZeroDivisionError("on purpose")

    # What lies at members beside the blocks counts against the limit.
    eventually(lambda: cluster4.run_on_scheduler(kinds_of_tasks)["all"] == 0)
    with dx.config.set(block_bytes=0, memory_limit=LITTLE):
        y = dx.from_dask(da.from_array(A, chunks=CHUNK).map_blocks(fails, dtype=A.dtype, meta=A[:0])).sum()
        assert y.explain().programs == 4
        with pytest.raises(ZeroDivisionError, match="on purpose"):
            float(y)
    del y
    eventually(lambda: cluster4.run_on_scheduler(left_at_scheduler) == (0, 0, 0))


@pytest.mark.cluster
def test_a_run_that_makes_blocks_begins_anew_when_a_worker_is_lost(mortal_cluster: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "go")
    with dx.config.set(block_bytes=0, memory_limit=9 * NBYTES):
        source = da.from_array(A, chunks=CHUNK).map_blocks(
            lambda block: waits_for(path, block), dtype=A.dtype, meta=A[:0]
        )
        y = dx.from_dask(source).sum(axis=0)
        assert y.explain().programs == 3
        y.persist()
        eventually(lambda: len(list(tmp_path.glob("*.here"))) == 3)
        os.kill(next(iter(mortal_cluster.run(os.getpid).values())), signal.SIGKILL)
        Path(path).touch()
        assert_close(y, A.sum(axis=0))


def task(key: str, *reads: str) -> Task:
    return Task(key, max, *map(TaskRef, reads), 1)


def test_blocks_are_made_alone_by_tasks_that_make_no_other() -> None:
    small, large = DataNode("small", np.ones(3)), DataNode("large", np.ones(100_000))
    tasks = [small, large, task("a0", "a1", "small"), task("a1", "small"), task("b0", "b1"), task("b1", "small")]
    tasks += [task("c0", "shared"), task("d0", "d1"), task("d1", "shared"), task("shared", "deep"), task("deep")]
    tasks += [task("e0", "large"), task("f0", "large"), task("g0", "of others"), task("h0", "deep")]
    wanted = {f"{name}0": number for number, name in enumerate("abcdefgh")}
    found = _tasks_of_each({t.key: t for t in tasks}, wanted)
    assert {n: sorted(own) for n, own in found.items()} == {0: ["a0", "a1", "small"], 1: ["b0", "b1", "small"]}
    alone = _tasks_of_each({t.key: t for t in tasks}, {"c0": 0})
    assert sorted(alone[0]) == ["c0", "deep", "shared"]


@pytest.mark.cluster
@pytest.mark.parametrize("kind", ["chunk", "function"])
def test_what_fails_takes_nothing_with_it_that_does_not_need_it(cluster4: Any, kind: str) -> None:
    """Arrays that are kept by the same evaluation are there afterwards, those of other graphs of Dask too."""

    def fails(block: Any) -> Any:
        raise RuntimeError("as was asked for")

    x = dx.asarray(A)
    x += 1
    u = dx.random.default_rng(0).random(A.shape) * 2
    good = dx.from_dask(da.from_array(A, chunks=(128, 256)))
    v = good * 3
    with dx.config.set(errors="deferred", block_bytes=0):
        if kind == "chunk":
            bad = dx.from_dask(da.ones(A.shape, chunks=(128, 256)).map_blocks(fails, dtype=A.dtype, meta=A[:0]))
        else:
            bad = dx.map_blocks(fails, dx.ones(A.shape) * 2, dtype=A.dtype)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="as was asked for"):
                np.asarray(x + u + v + bad)
        np.testing.assert_array_equal(np.asarray(x), A + 1)
        np.testing.assert_array_equal(np.asarray(v), A * 3)
        np.testing.assert_array_equal(np.asarray(good), A)
        np.testing.assert_array_equal(np.asarray(u), np.asarray(dx.random.default_rng(0).random(A.shape) * 2))


@pytest.mark.cluster
def test_what_may_fail_is_one_evaluation_and_the_rest_another(cluster4: Any) -> None:
    with dx.config.set(errors="deferred", block_bytes=0):
        x = dx.asarray(A)
        risky = dx.map_blocks(np.negative, x, dtype=A.dtype)
        safe = x * 2
        with counting() as counts:
            dx.compute(risky, safe)
    assert counts.evaluations == 2


def shifted(x: Any) -> None:
    x[1:] = x[:-1]


def zeroed(x: Any) -> None:
    x[[0, 1]] = 0


def added(x: Any) -> None:
    np.add.at(x, [0, 1, 1], x[[5, 3, 2]])


@pytest.mark.cluster
@pytest.mark.parametrize("write", [shifted, zeroed, added])
@pytest.mark.parametrize("chunks", [(8, 4), (4, 4), (2, 8), ((1, 2, 1, 4), (6, 2))], ids=str)
def test_chunks_that_a_write_leaves_as_they_are_are_made_with_it(
    process_cluster: Any, write: Callable[[Any], None], chunks: Any
) -> None:
    """The tiles of the new version that nothing was written to are the promised blocks themselves."""
    a = np.arange(64.0).reshape(8, 8)
    x = dx.from_dask(da.from_array(a.copy(), chunks=chunks))
    write(x)
    write(a)
    np.testing.assert_array_equal(np.asarray(x), a)
    np.testing.assert_array_equal(np.asarray(x + 1), a + 1)
