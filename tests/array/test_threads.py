"""Several Python threads on shared arrays: what numpy guarantees for disjoint views holds."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.array import window
from distarray.array.pending import runs_at_once
from distarray.array.versions import Base
from distarray.ops.indexing import is_position

N_THREADS = 8


@pytest.fixture(autouse=True)
def _threads_switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(work: Callable[[int], object], n: int = N_THREADS) -> None:
    """Call `work` in `n` threads that begin at once; the first failure is raised."""
    barrier = threading.Barrier(n)
    failures: list[BaseException] = []

    def run(k: int) -> None:
        try:
            barrier.wait()
            work(k)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]


TEAMS = {"one block": None, "tiles": ((2, 2), ("r", "c"))}


def team_of(name: str) -> dict[str, Any]:
    shape = TEAMS[name]
    return {} if shape is None else {"team": dx.Team(*shape)}


def cut_of(name: str) -> dict[str, Any]:
    return {} if TEAMS[name] is None else {**team_of(name), "sharding": ("r", "c")}


WRITES: dict[str, Callable[[Any, Any], object]] = {
    "iadd": lambda xp, v: v.__iadd__(1),
    "setitem of a view": lambda xp, v: v.__setitem__(slice(None), v + 1),
    "setitem and iadd": lambda xp, v: v.__setitem__((slice(None), 2), v[:, 2].__iadd__(1)),
    "integer arrays": lambda xp, v: v.__setitem__(np.array([0, 2, 4]), v[np.array([0, 2, 4])] + 1),
    "a mask": lambda xp, v: v.__setitem__(v < 1e9, v[v < 1e9] + 1),
    "out=": lambda xp, v: np.add(v, 1, out=v),
    "at": lambda xp, v: np.add.at(v, np.array([0, 0, 3]), 1),
    "copyto": lambda xp, v: xp.copyto(v, v + 1),
    "fill": lambda xp, v: v.fill(float(v[0, 0]) + 1),
    "sort": lambda xp, v: (v.sort(axis=0), v.__isub__(1)),
}


@pytest.mark.parametrize("turns", [5, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", WRITES)
@pytest.mark.parametrize("team", TEAMS)
def test_writes_of_threads_to_disjoint_views_are_all_there_once(team: str, kind: str, turns: int) -> None:
    write = WRITES[kind]
    start = np.random.default_rng(1).permutation(np.arange(64 * 6.0)).reshape(64, 6)
    expected = start.copy()
    for k in range(N_THREADS):
        for _ in range(turns):
            write(np, expected[8 * k : 8 * k + 8])
    x = dx.asarray(start, **cut_of(team))
    views = [x[8 * k : 8 * k + 8] for k in range(N_THREADS)]

    def work(k: int) -> None:
        for _ in range(turns):
            write(dx, views[k])

    together(work)
    np.testing.assert_array_equal(np.asarray(x), expected)


def test_a_write_between_two_steps_of_another_write_is_not_lost() -> None:
    """The next version of a base is made again where another one came in between; deterministic, without threads."""
    x = dx.asarray(np.arange(4.0))
    calls = 0

    def written(version: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            x[3] = 30
        from distarray.array.access import put

        view = x[:1]
        return put(version, view._lens, 10.0)

    x._advance(written)
    assert calls == 2
    assert x.tolist() == [10, 1, 2, 30]


def test_a_version_that_is_not_the_current_one_gets_no_next_one() -> None:
    first, second, third = (dx.asarray(np.arange(3.0) + k)._node() for k in range(3))
    base = Base(first)
    assert base.advance(first, 0, second, second.hold(by_base=True))
    assert not base.advance(first, 0, third, third.hold(by_base=True))
    assert base.current is second
    assert base.touch(second)  # its elements are written where they are
    assert not base.advance(second, 1, third, third.hold(by_base=True))
    assert base.advance(second, 2, third, third.hold(by_base=True))


def test_a_deleted_array_takes_no_write_that_was_under_way() -> None:
    x = dx.asarray(np.arange(4.0))

    def written(version: Any) -> Any:
        x.delete()
        return version

    with pytest.raises(RuntimeError, match="deleted"):
        x._advance(written)


# ------------------------------------------------------------------------------------------------ random programs


class Program:
    """Random statements of one thread on its parts of shared arrays, each on numpy too; what is read is compared."""

    def __init__(self, parts: list[Any], copies: list[np.ndarray], seed: int) -> None:
        self.parts, self.copies = parts, copies
        self.rng = np.random.default_rng(seed)
        self.kept: list[tuple[Any, np.ndarray]] = []

    def step(self) -> None:
        i = int(self.rng.integers(len(self.parts)))
        v, h = self.parts[i], self.copies[i]
        getattr(self, "do_" + str(self.rng.choice(STATEMENTS)))(v, h)

    def box(self, h: np.ndarray) -> tuple[slice, ...]:
        found = []
        for n in h.shape:
            a, b = sorted(self.rng.integers(0, n + 1, 2).tolist())
            found.append(slice(a, b, int(self.rng.integers(1, 3))))
        return tuple(found)

    def do_set(self, v: Any, h: np.ndarray) -> None:
        box, value = self.box(h), float(self.rng.integers(100))
        v[box] = value
        h[box] = value

    def do_set_element(self, v: Any, h: np.ndarray) -> None:
        at = tuple(int(self.rng.integers(n)) for n in h.shape)
        v[at] = h[at] = float(self.rng.integers(100))

    def do_update(self, v: Any, h: np.ndarray) -> None:
        box = self.box(h)
        v[box] += 1
        h[box] += 1

    def do_update_all(self, v: Any, h: np.ndarray) -> None:
        v *= 0.5
        h *= 0.5

    def do_at(self, v: Any, h: np.ndarray) -> None:
        index = self.rng.integers(0, len(h), 3)
        np.add.at(v, index, 2)
        np.add.at(h, index, 2)

    def do_rows(self, v: Any, h: np.ndarray) -> None:
        index = self.rng.permutation(len(h))[:3]
        v[index] = h[index] = self.rng.integers(0, 9, (len(index), *h.shape[1:]))

    def do_mask(self, v: Any, h: np.ndarray) -> None:
        v[v > 50] = 3.0
        h[h > 50] = 3.0

    def do_out(self, v: Any, h: np.ndarray) -> None:
        np.minimum(v, 60.0, out=v)
        np.minimum(h, 60.0, out=h)

    def do_sort(self, v: Any, h: np.ndarray) -> None:
        v.sort(axis=-1)
        h.sort(axis=-1)

    def do_transposed(self, v: Any, h: np.ndarray) -> None:
        v.T[1:] -= 1
        h.T[1:] -= 1

    def do_read(self, v: Any, h: np.ndarray) -> None:
        np.testing.assert_array_equal(np.asarray(v), h)

    def do_read_element(self, v: Any, h: np.ndarray) -> None:
        at = tuple(int(self.rng.integers(n)) for n in h.shape)
        assert float(v[at]) == h[at]

    def do_keep(self, v: Any, h: np.ndarray) -> None:
        self.kept.append((v * 2 + v[::-1], h * 2 + h[::-1]))

    def do_copy(self, v: Any, h: np.ndarray) -> None:
        self.kept.append((v.copy(), h.copy()))

    def do_look(self, v: Any, h: np.ndarray) -> None:
        for made, expected in self.kept:
            np.testing.assert_array_equal(np.asarray(made), expected)
        self.kept.clear()

    def do_write_kept(self, v: Any, h: np.ndarray) -> None:
        if self.kept:
            made, expected = self.kept[-1]
            made[1:] += 1
            expected[1:] += 1

    def do_delete(self, v: Any, h: np.ndarray) -> None:
        if self.kept:
            made, expected = self.kept.pop()
            np.testing.assert_array_equal(np.asarray(made), expected)
            made.delete()

    def do_reduce(self, v: Any, h: np.ndarray) -> None:
        np.testing.assert_allclose(float(v.sum()), h.sum())

    def do_persist(self, v: Any, h: np.ndarray) -> None:
        v.persist()

    def do_view(self, v: Any, h: np.ndarray) -> None:
        box = self.box(h)
        w, g = v[box], h[box]
        w += 1
        g += 1
        np.testing.assert_array_equal(np.asarray(w), g)

    def do_plan(self, v: Any, h: np.ndarray) -> None:
        assert (v + 1).sharding is not None


STATEMENTS = [name.removeprefix("do_") for name in vars(Program) if name.startswith("do_")]


def stress(seed: int, steps: int, where: dict[str, Any]) -> None:
    """All threads on their rows of the same arrays, twice; what they kept is still right when others have written."""
    starts = [np.random.default_rng(seed).permutation(np.arange(64 * 6.0)).reshape(64, 6), np.arange(80.0)]
    cuts = [where, {**where, "sharding": (("c", "r"),)} if "sharding" in where else where]
    arrays = [dx.asarray(start, **cut) for start, cut in zip(starts, cuts, strict=True)]
    hosts = [start.copy() for start in starts]

    def rows(array: Any, k: int) -> Any:
        n = len(array) // N_THREADS
        return array[n * k : n * k + n]

    programs = [
        Program([rows(x, k) for x in arrays], [rows(h, k) for h in hosts], 1000 * seed + k) for k in range(N_THREADS)
    ]

    def work(k: int) -> None:
        for _ in range(steps):
            programs[k].step()

    for _ in range(2):
        together(work)
        for x, h in zip(arrays, hosts, strict=True):
            x += 1
            h += 1
            np.testing.assert_array_equal(np.asarray(x), h)
    for program, x, h in zip(programs, arrays * N_THREADS, hosts * N_THREADS, strict=False):
        program.do_look(x, h)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("team", TEAMS)
def test_random_programs_of_threads_on_shared_arrays_are_numpys(team: str, seed: int) -> None:
    stress(seed, 12, cut_of(team))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
@pytest.mark.parametrize("team", TEAMS)
def test_many_random_programs_of_threads_on_shared_arrays_are_numpys(team: str, seed: int) -> None:
    stress(seed, 75, cut_of(team))


@pytest.mark.parametrize("window", [0, 3])
def test_random_programs_of_threads_are_numpys_with_any_window(window: int) -> None:
    with dx.config.set(window=window):
        stress(7, 8, cut_of("tiles"))


# ------------------------------------------------------------------------------------------------ on a cluster


@pytest.mark.cluster
def test_random_programs_of_threads_on_a_cluster_are_numpys(cluster4: Any) -> None:
    shape, axes = (2, 1), ("r", "c")
    stress(3, 4, {"team": dx.Team(shape, axes), "sharding": axes})


# ------------------------------------------------------------------------------------------------ what is in between


def test_a_version_that_another_thread_reads_is_not_overwritten_before_its_operation_is_listed() -> None:
    """A thread has read the current version for an operation that nobody knows yet, while this one goes on."""
    x = dx.asarray(np.arange(20_000.0)) * 1.0
    x.persist()
    begun, go_on = threading.Event(), threading.Event()
    found: list[np.ndarray] = []

    class Slow:
        """The second operand, which is asked for its elements when those of the first are known."""

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            begun.set()
            go_on.wait()
            return np.ones(1)

    def slow() -> None:
        found.append(np.asarray(dx.add(x, Slow())))

    thread = threading.Thread(target=slow)
    thread.start()
    begun.wait()
    x += 1
    x *= 2
    np.testing.assert_array_equal(np.asarray(x), (np.arange(20_000.0) + 1) * 2)
    go_on.set()
    thread.join()
    np.testing.assert_array_equal(found[0], np.arange(20_000.0) + 1)


@pytest.mark.parametrize("team", TEAMS)
def test_what_is_pending_in_a_thread_that_has_ended_keeps_its_values(team: str) -> None:
    x = dx.asarray(np.arange(64.0 * 6).reshape(64, 6), **cut_of(team)) * 1.0
    x.persist()
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend([x + 1, x[:8] * 2, x.T.sum(axis=0)]))
    thread.start()
    thread.join()
    a = np.arange(64.0 * 6).reshape(64, 6)
    x[0] = 77
    x += 1000
    np.testing.assert_array_equal(np.asarray(x)[1:], a[1:] + 1000)
    for y, expected in zip(found, (a + 1, a[:8] * 2, a.sum(axis=1)), strict=True):
        np.testing.assert_array_equal(np.asarray(y), expected)


def test_windows_of_threads_that_have_ended_are_forgotten() -> None:
    x = dx.asarray(np.arange(6.0))
    found: list[Any] = []
    before = len(window._all_windows())
    with dx.config.set(eager_bytes=0):
        for _ in range(3):
            thread = threading.Thread(target=lambda: found.append(x + 1))
            thread.start()
            thread.join()
    assert len(window._all_windows()) == before + 3
    for y in found:
        np.asarray(y)
    assert len(window._all_windows()) == before


def test_an_operation_that_failed_in_one_thread_stops_no_other_from_writing_in_place() -> None:
    x = dx.asarray(np.arange(700_000.0)) * 1.0
    with pytest.raises(ValueError, match="broadcast"):
        x + np.ones(3)
    dx.wait(x)
    places = set()

    def work() -> None:
        y = dx.asarray(np.arange(700_000.0)) * 2.0
        for _ in range(4):
            y += 1
            y.persist()
            places.add(y.__dx_node__().memo.blocks[0].ctypes.data)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(places) == 1


@pytest.mark.parametrize("lend", [lambda x: x.local(), np.from_dlpack], ids=["local", "dlpack"])
def test_memory_that_is_lent_for_writing_is_not_what_another_thread_has_still_to_read(lend: Any) -> None:
    x = dx.asarray(np.arange(6.0)) * 1.0
    found: list[Any] = []
    begun, end = threading.Event(), threading.Event()

    def work() -> None:
        found.append(x + 1)
        begun.set()
        end.wait()

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    lend(x)[:] = 0
    np.testing.assert_array_equal(np.asarray(found[0]), np.arange(6.0) + 1)
    np.testing.assert_array_equal(np.asarray(x), np.zeros(6))
    end.set()
    thread.join()


def test_a_node_whose_blocks_another_one_took_over_is_not_read_once_more() -> None:
    """A view remembers the node that read it, weakly: another thread may still have that in hand when it is asked."""
    host = np.arange(80.0)
    x = dx.asarray(host, team=dx.Team((2, 2), ("r", "c")), sharding=(("c", "r"),))
    x += 0
    view = x[40:50]
    in_hand = view.__dx_node__()
    view.persist()
    assert in_hand.memo is not None
    (view * 2 + view[::-1]).persist()
    assert in_hand.memo.is_given_up
    np.testing.assert_array_equal(np.asarray(view.copy()), host[40:50])
    np.testing.assert_array_equal(np.asarray(view), host[40:50])


def test_what_threads_run_is_asked_while_garbage_is_collected() -> None:
    """Without a guard the interpreter waits for itself within a second (CPython 3.11)."""
    before = gc.get_threshold()
    gc.set_threshold(5)
    try:

        def work(k: int) -> None:
            for _ in range(300):
                garbage: list[Any] = [threading.Event()]
                garbage.append(garbage)
                weakref.finalize(garbage[0], lambda: None)
                assert window._frames({threading.main_thread().ident or 0})

        together(work)
    finally:
        gc.set_threshold(*before)
    assert gc.isenabled()


def test_who_asks_what_threads_run_keeps_nothing_alive() -> None:
    """A frame that has itself among its locals would be garbage, with the locals of all who called it."""
    begun, end = threading.Event(), threading.Event()

    def work() -> None:
        dx.arange(3) + 1
        begun.set()
        end.wait()

    def ask() -> weakref.ref[threading.Event]:
        local = threading.Event()
        assert not window.is_read_beside()
        return weakref.ref(local)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    gc.disable()
    try:
        assert ask()() is None
    finally:
        gc.enable()
        end.set()
        thread.join()


@pytest.mark.parametrize("eager", [0, 1 << 20])
def test_threads_write_to_views_and_to_the_memory_that_was_handed_out(eager: int) -> None:
    with dx.config.set(eager_bytes=eager):
        x = (dx.asarray(np.zeros((64, 6))) * 1.0).persist()
        memory, views = np.asarray(x), [x[8 * k : 8 * k + 8] for k in range(N_THREADS)]

        def work(k: int) -> None:
            for turn in range(12):
                if turn % 3 == 0:
                    memory[8 * k : 8 * k + 8] += 1
                elif turn % 3 == 1:
                    views[k][...] += 1
                else:
                    views[k][np.arange(8)] = views[k] + 1

        together(work)
        np.testing.assert_array_equal(memory, np.full((64, 6), 12.0))
        np.testing.assert_array_equal(np.asarray(x), memory)


@pytest.mark.parametrize("team", TEAMS)
def test_updates_of_one_whole_array_by_several_threads_all_count(team: str) -> None:
    x = dx.asarray(np.zeros((64, 6)), **cut_of(team))
    views = [x, x[:], x[...], x.T]

    def work(k: int) -> None:
        for _ in range(20):
            views[k] += 1

    together(work, 4)
    np.testing.assert_array_equal(np.asarray(x), np.full((64, 6), 80.0))


def test_blocks_that_are_iterated_over_are_those_of_the_beginning() -> None:
    x = dx.asarray(np.arange(8.0), team=dx.Team((4,), ("r",)), sharding=("r",))
    found = []
    for _, _, values in x.iter_blocks():
        found += values.tolist()
        x += 100
    assert found == list(range(8))
    np.testing.assert_array_equal(np.asarray(x), np.arange(8.0) + 400)


def test_a_copy_of_a_view_is_deleted_while_another_thread_reads_the_view() -> None:
    x = dx.asarray(np.arange(12.0).reshape(4, 3))
    view = x[1:3]

    def work(k: int) -> None:
        for _ in range(30):
            if k % 2:
                copy = view.copy()
                np.asarray(copy)
                copy.delete()
            else:
                np.testing.assert_array_equal(np.asarray(view + 1), np.arange(3.0, 9.0).reshape(2, 3) + 1)

    together(work)


@pytest.mark.parametrize("made", [lambda x: x[1:3], lambda x: dx.nonzero(x)[0], lambda x: dx.linalg.svd(x)[0]])
def test_what_another_thread_has_settled_meanwhile_is_not_run(made: Callable[[dx.DistArray], dx.DistArray]) -> None:
    """A thread that saw no result finds no operands a moment later: those are read first, and the result then."""
    view = made(dx.asarray(np.arange(12.0).reshape(4, 3)))
    node = view.__dx_node__()
    before = node.unsettled()
    window.observe((node,))
    assert node.unsettled() is None
    assert before is None or before[0]
    assert not runs_at_once(node)
    assert not is_position(node)


def test_elements_of_one_array_are_read_by_several_threads() -> None:
    """Rows around an element are fetched together, and served to whoever asks."""
    host = np.arange(3000 * 100.0).reshape(3000, 100)
    x = dx.asarray(host, team=dx.Team((2,), ("x",))) * 1.0

    def work(k: int) -> None:
        rng = np.random.default_rng(k)
        for _ in range(40):
            i, j = int(rng.integers(3000)), int(rng.integers(100))
            assert float(x[i, j]) == host[i, j]

    together(work)


@pytest.mark.parametrize(
    "read",
    [np.array, np.asarray, lambda x: float(x[0]), lambda x: x + 1, list, lambda x: x.tolist()],
    ids=["copy", "memory", "number", "sum", "list", "tolist"],
)
def test_a_thread_that_reads_is_known_to_those_that_write(read: Callable[[Any], Any]) -> None:
    """Also one that has defined nothing: who writes in place looks whether it is reading."""
    x = dx.asarray(np.arange(4.0))
    x += 1  # the version is a block

    def work(_: int) -> None:
        read(x)
        assert threading.get_ident() in [w.thread for w in window._all_windows()]

    together(work, 1)


READ_TWICE: dict[str, Callable[[Any], Any]] = {
    "ptp": lambda x: float(dx.ptp(x)) == 0,
    "cov": lambda x: float(dx.cov(x)) == 0,
    "histogram": lambda x: int(dx.histogram(x, bins=3)[0].sum()) == x.size,
    "bincount": lambda x: int(dx.bincount(x.astype(int)).max()) == x.size,
}


@pytest.mark.parametrize("name", READ_TWICE)
def test_functions_of_several_passes_see_one_version(name: str) -> None:
    x = dx.asarray(np.zeros(3000))
    done = threading.Event()

    def work(k: int) -> None:
        if not k:
            try:
                for _ in range(60):
                    assert READ_TWICE[name](x)
            finally:
                done.set()
        n = 0
        while not done.is_set():
            n += 1
            x[:] = float(n % 1000)

    together(work, 2)


def test_one_graph_of_dask_is_made_by_several_threads() -> None:
    pytest.importorskip("dask.array")
    for _ in range(10):
        x = (dx.asarray(np.arange(64.0), team=dx.Team((4,), ("x",))) + 1).to_dask_array()
        together(lambda k, x=x: np.testing.assert_array_equal(x.compute(), np.arange(64.0) + 1))
