"""What user code holds of a block does not change when the array is written, unless it was given as the array's own
memory, where all writes are seen; blocks that nobody holds are written in place. Decided by ownership, the same on
every version of Python."""

from __future__ import annotations

import gc
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import peak_nbytes

import distarray as dx
from distarray.kernels.buffers import POOL
from distarray.kernels.loans import foreign, is_lent, is_ours, lend

SHAPE = (160, 128)  # 160 KiB: above what the interpreter recycles
TEAMS: dict[str, dict[str, Any]] = {
    "one block": {},
    "planned": {"team": (1,), "sharding": None},
    "tiles": {"team": (2,), "sharding": ("x", None)},
}


def made(name: str) -> Any:
    """An array whose blocks our own kernels made."""
    where = dict(TEAMS[name])
    if "team" in where:
        where["team"] = dx.Team(where["team"], ("x",))
        if where["sharding"] is None:
            where["sharding"] = (("x",), None)
    x = dx.asarray(np.arange(160 * 128.0).reshape(SHAPE), **where)
    x = x * 1.0
    x.persist()
    return x


def raw(memory: Any) -> np.ndarray:
    return np.asarray(memory)


_kept: list[Any] = []


def keeping(block: np.ndarray) -> np.ndarray:
    _kept.append(block)
    return block + 1


def giving(block: np.ndarray) -> np.ndarray:
    result = np.array(block)
    _kept.append(result)
    return result


def tile_kernel(c: np.ndarray, ranges: Any) -> None:
    _kept.append(c)
    c += 1


def through_map_blocks(x: Any) -> tuple[Any, list[Any]]:
    dx.map_blocks(keeping, x, dtype="f8").persist()
    return x, list(_kept)


def result_of_map_blocks(x: Any) -> tuple[Any, list[Any]]:
    y = dx.map_blocks(giving, x, dtype="f8").persist()
    return y, list(_kept)


def chunks_of_map_blocks(x: Any) -> tuple[Any, list[Any]]:
    y = dx.map_blocks(lambda b, block_id=None: giving(b), x, dtype="f8").persist()
    return y, list(_kept)


def through_map_tiles(x: Any) -> tuple[Any, list[Any]]:
    over = {"x": "i"} if x.team is not None and "x" in x.team.axes else {}
    dx.map_tiles(tile_kernel, x, names=("ij",), over=over)
    return x, list(_kept)


def through_overlap(x: Any) -> tuple[Any, list[Any]]:
    dx.map_overlap(keeping, x, depth=0, boundary="none", dtype="f8").persist()
    return x, list(_kept)


def through_blockwise(x: Any) -> tuple[Any, list[Any]]:
    dx.blockwise(keeping, "ij", x, "ij", dtype="f8").persist()
    return x, list(_kept)


def through_gufunc(x: Any) -> tuple[Any, list[Any]]:
    dx.apply_gufunc(keeping, "()->()", x, output_dtypes="f8").persist()
    return x, list(_kept)


def through_reduction(x: Any) -> tuple[Any, list[Any]]:
    def chunk(block: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
        _kept.append(block)
        return block.sum(axis=axis, keepdims=keepdims)

    dx.reduction(x, chunk, lambda b, axis, keepdims: b.sum(axis=axis, keepdims=keepdims), axis=0, dtype="f8").persist()
    return x, list(_kept)


def through_local(x: Any) -> tuple[Any, list[Any]]:
    return x, [x.local(k) for k in range(1 if x.team is None else x.team.size)]


def view_of_local(x: Any) -> tuple[Any, list[Any]]:
    return x, [x.local(0)[3:9].T]


def memoryview_of_local(x: Any) -> tuple[Any, list[Any]]:
    return x, [memoryview(np.asarray(x.local(0)))]


def through_a_view(x: Any) -> tuple[Any, list[Any]]:
    return x, [x[10:60:2].local(0)]


def through_dlpack(x: Any) -> tuple[Any, list[Any]]:
    if x.team is not None and x.team.size > 1:
        pytest.skip("several blocks have no capsule")
    return x, [np.from_dlpack(x, copy=False)]


def through_blocks(x: Any) -> tuple[Any, list[Any]]:
    return x, [b.values for b in x.iter_blocks()]


def through_asarray(x: Any) -> tuple[Any, list[Any]]:
    return x, [np.asarray(x)]


def through_pickle(x: Any) -> tuple[Any, list[Any]]:
    buffers: list[Any] = []
    pickle.dumps(x, protocol=5, buffer_callback=buffers.append)
    return x, [np.frombuffer(b.raw()) for b in buffers]


def through_dask(x: Any) -> tuple[Any, list[Any]]:
    return x, [x.to_dask_array().compute(scheduler="sync")]


def through_a_graph(x: Any) -> tuple[Any, list[Any]]:
    graph = dict(x.__dask_graph__())
    found = [getattr(task, "value", None) for task in graph.values()]
    return x, [v for v in found if isinstance(v, np.ndarray)]


def through_a_persisted_collection(x: Any) -> tuple[Any, list[Any]]:
    import dask

    (y,) = dask.persist(x, scheduler="sync")
    return x, [y]


def another_team(x: Any) -> tuple[Any, list[Any]]:
    return x, [x.to_team(dx.Team((2,), ("y",)) if x.team is None else None)]


def a_copy(x: Any) -> tuple[Any, list[Any]]:
    return x, [x.copy()]


def memory_of_the_user(x: Any) -> tuple[Any, list[Any]]:
    host = np.asarray(x)
    y = dx.asarray(host, copy=False)
    return y, [host]


def memory_through_dlpack(x: Any) -> tuple[Any, list[Any]]:
    host = np.asarray(x)
    return dx.from_dlpack(host), [host]


def blocks_of_the_user(x: Any) -> tuple[Any, list[Any]]:
    host = np.asarray(x)
    team = dx.Team((2,), ("x",))
    parts = [np.array(host[:80]), np.array(host[80:])]
    return dx.from_blocks(parts, SHAPE, team=team, sharding=("x", None)), parts


#: What these give is the memory of the array, as numpy's own arrays are.
MEMORY: list[Callable[[Any], tuple[Any, list[Any]]]] = [
    through_local, view_of_local, memoryview_of_local, through_a_view, through_dlpack, through_asarray
]  # fmt: skip
DOORS: list[Callable[[Any], tuple[Any, list[Any]]]] = [
    through_map_blocks, result_of_map_blocks, chunks_of_map_blocks, through_map_tiles, through_overlap,
    through_blockwise, through_gufunc, through_reduction, through_blocks, through_pickle, through_dask, through_a_graph,
    through_a_persisted_collection, another_team, a_copy, memory_of_the_user, memory_through_dlpack,
    blocks_of_the_user,
]  # fmt: skip


def write_element(x: Any) -> None:
    x[11, 3] = -1


def write_rows(x: Any) -> None:
    x[5:150] = -2


def write_all(x: Any) -> None:
    x += 1


def write_at(x: Any) -> None:
    np.add.at(x, np.array([3, 120]), 5)


def write_chain(x: Any) -> None:
    v = x[::2]
    v *= 3
    x[1] = 7
    x -= 1


WRITES = [write_element, write_rows, write_all, write_at, write_chain]


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    _kept.clear()
    yield
    _kept.clear()


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("team", TEAMS)
def test_what_is_held_of_a_block_does_not_change_when_the_array_is_written(
    team: str, door: Callable[[Any], tuple[Any, list[Any]]], write: Callable[[Any], None]
) -> None:
    x, held = door(made(team))
    before = [raw(h).copy() for h in held]
    expected = np.array(x)
    for _ in range(2):
        write(x)
        write(expected)
        np.testing.assert_array_equal(np.asarray(x), expected)
        for h, b in zip(held, before, strict=True):
            np.testing.assert_array_equal(raw(h), b)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("door", MEMORY)
@pytest.mark.parametrize("team", TEAMS)
def test_what_is_held_of_an_arrays_memory_is_the_array(
    team: str, door: Callable[[Any], tuple[Any, list[Any]]], write: Callable[[Any], None]
) -> None:
    if team == "tiles" and door is through_asarray:
        pytest.skip("of several blocks it is a copy that cannot be written")
    x, held = door(made(team))
    expected = np.array(x)
    for turn in range(2):
        write(x)
        write(expected)
        again = door(x)[1]
        for h, a in zip(held, again, strict=True):
            np.testing.assert_array_equal(raw(h), raw(a))
            assert np.shares_memory(raw(h), raw(a))
        np.testing.assert_array_equal(np.array(x), expected)
        place = raw(held[0])
        if place.flags.writeable:
            at = np.flatnonzero(expected == place.flat[0])
            place[(0,) * place.ndim] = -1000 - turn
            expected.flat[at[0]] = -1000 - turn
            assert (np.array(x) == -1000 - turn).sum() == 1


SHOWN: list[Callable[[Any], Any]] = [
    lambda x: dx.map_blocks(keeping, x, dtype="f8").persist(),
    lambda x: [_kept.append(b.values) for b in x.iter_blocks()],
]


@pytest.mark.parametrize("shown", SHOWN)
@pytest.mark.parametrize("is_first", [False, True], ids=["shown", "handed out"])
def test_what_was_only_shown_does_not_change_when_the_memory_is_handed_out(shown: Any, is_first: bool) -> None:
    x = made("planned")
    if is_first:
        memory = np.asarray(x)
        shown(x)
    else:
        shown(x)
        memory = np.asarray(x)
    before = [np.array(block) for block in _kept]
    x += 1
    memory[0] = 7
    del memory
    x += 5
    x[3] = 2
    x.persist()
    for block, values in zip(_kept, before, strict=True):
        np.testing.assert_array_equal(block, values)


@pytest.mark.parametrize("out", [np.asarray, lambda x: x.local(0), lambda x: np.from_dlpack(x, copy=False)])
def test_what_a_function_gave_and_kept_is_not_handed_out(out: Callable[[Any], Any]) -> None:
    x = dx.map_blocks(giving, made("planned"), dtype="f8").persist()
    (kept,) = _kept
    before = kept.copy()
    memory = out(x)
    x[0] = 1
    memory[1] = 9
    np.testing.assert_array_equal(kept, before)
    np.testing.assert_array_equal(np.array(x)[:2], memory[:2])


@pytest.mark.parametrize("team", TEAMS)
def test_deferred_writes_after_a_user_function_leave_what_it_kept(team: str) -> None:
    with dx.config.set(errors="deferred"):
        x = made(team)
        y = dx.map_blocks(giving, dx.map_blocks(keeping, x, dtype="f8"), dtype="f8")
        x[3:] = 5
        y[2:100] += 1
        z = dx.map_blocks(giving, y * 2, dtype="f8") + 1
        seen = np.asarray(y), np.asarray(x), np.asarray(z)
    base = np.arange(160 * 128.0).reshape(SHAPE)
    other = base + 1
    other[2:100] += 1
    np.testing.assert_array_equal(seen[0], other)
    np.testing.assert_array_equal(seen[1][3:], np.full((157, 128), 5.0))
    np.testing.assert_array_equal(seen[2], other * 2 + 1)
    for block in _kept:
        rows = {tuple(r[:2]) for r in np.asarray(block).tolist()}
        sources = [base, base + 1, other * 2]
        assert rows <= {tuple(r[:2]) for source in sources for r in source.tolist()}


@pytest.mark.parametrize("team", TEAMS)
def test_memory_that_local_gave_is_the_arrays_and_stays_so(team: str) -> None:
    x = made(team)
    first = x.local(0)
    first[...] = 5
    assert np.shares_memory(x.local(0), first)
    assert float(x[0, 0]) == 5


@pytest.mark.parametrize("team", ["tiles"])
def test_local_does_not_give_a_block_that_another_version_has_too(team: str) -> None:
    """A write to one tile leaves the others to both versions; writing such a block would change the old one."""
    x = made(team)
    old = x.copy()
    x[0, 0] = -1  # the first tile alone
    np.asarray(x)
    x.local(1)[...] = 5
    np.testing.assert_array_equal(np.asarray(old), np.arange(160 * 128.0).reshape(SHAPE))
    assert float(x[159, 0]) == 5


def test_arrays_of_one_pickle_do_not_share_what_local_gives() -> None:
    x = made("one block")
    a, b = pickle.loads(pickle.dumps((x, x.copy())))
    a.local(0)[...] = 5
    np.testing.assert_array_equal(np.asarray(b), np.arange(160 * 128.0).reshape(SHAPE))


# ------------------------------------------------------------------------------------------------ still in place


def addresses(x: Any) -> list[int]:
    return [block.__array_interface__["data"][0] for block in x._node().memo.blocks]


@pytest.mark.parametrize("write", [write_element, write_rows, write_all])
@pytest.mark.parametrize("team", TEAMS)
def test_blocks_that_nobody_holds_are_written_in_place(team: str, write: Callable[[Any], None]) -> None:
    x = made(team)
    limit = "2 MiB" if write is not write_all else "128 KiB"  # what is computed at the call takes the place of all
    for _ in range(3):
        before = addresses(x)
        with dx.config.set(eager_bytes=limit):
            write(x)
        x.persist()
        assert addresses(x) == before


@pytest.mark.parametrize("door", [through_blocks, through_map_blocks])
def test_blocks_are_written_in_place_again_when_what_was_held_is_gone(door: Any) -> None:
    x = made("one block")
    x, held = door(x)
    before = addresses(x)
    x[3] = 1
    x.persist()
    assert addresses(x) != before  # held
    x, held = door(x)
    del held
    _kept.clear()
    before = addresses(x)
    x[3] = 2
    x.persist()
    assert addresses(x) == before


def test_a_tile_that_two_versions_have_is_copied_once() -> None:
    x = made("tiles")
    old = x.copy()
    x[0] = 1
    x.persist()
    assert addresses(x)[1] == addresses(old)[1]
    del old
    x[159] = 1  # the tile that both had
    x.persist()
    before = addresses(x)
    x += 1
    x.persist()
    assert addresses(x) == before


def test_in_place_updates_allocate_no_second_array() -> None:
    x = dx.zeros((1024, 1024), team=dx.Team((2,), ("x",)), sharding=("x", None))
    x += 1
    x.persist()
    gc.collect()
    POOL.trim()

    def update() -> None:
        nonlocal x
        for _ in range(3):
            x += 1
            x.persist()
            x[1:-1] = 2
            x.persist()

    _, peak = peak_nbytes(update)
    assert peak < 3 << 20


def test_whether_a_block_is_ours_is_known_without_reference_counts() -> None:
    block = np.zeros((64, 64))
    names = [block] * 5
    assert is_ours(block) and len(names) == 5
    seen = lend(block[3:5])
    assert is_lent(block) and not is_ours(block) and not seen.flags.writeable
    part = seen[0]
    del seen
    assert is_lent(block)
    del part
    assert not is_lent(block) and is_ours(block)
    assert not is_lent(block, to_write=True)
    mine = lend(block, writeable=True)
    mine[0] = 1
    assert block[0, 0] == 1 and is_lent(block, to_write=True)
    assert not is_ours(foreign(np.zeros(3)))
    assert not is_ours(np.zeros(3)[1:])


def test_nothing_in_the_package_counts_references() -> None:
    package = Path(dx.__file__).parent
    for file in package.rglob("*.py"):
        assert not re.search(r"\.(getrefcount|get_referrers)\b", file.read_text()), file
