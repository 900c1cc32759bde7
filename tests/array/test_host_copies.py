"""What leaves an array for numpy: its memory where that is one block, else what cannot be written; copies on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing import counting, force_tiles
from distarray.testing.assertions import assert_equal

VALUES = np.arange(12.0).reshape(3, 4)


def small() -> dx.DistArray:
    return dx.asarray(VALUES) + 0


def in_tiles() -> dx.DistArray:
    with force_tiles(3):
        x: dx.DistArray = (dx.asarray(VALUES) + 0).persist()
    return x


Make = Callable[[], dx.DistArray]
EVERY = pytest.mark.parametrize("make", [small, in_tiles])
#: What numpy shows of an array as its memory.
SEEN: dict[str, Callable[[Any], Any]] = {
    "all": lambda a: a,
    "part": lambda a: a[1:, ::2],
    "turned": lambda a: a[::-1].T,
    "reshaped": lambda a: a.reshape(2, 6),
    "element": lambda a: a[1, 2, ...],
    "diagonal blocks": lambda a: a[:, None, :3],
}


@pytest.mark.parametrize("seen", SEEN)
def test_asarray_of_one_block_is_its_memory(seen: str) -> None:
    """Both ways: code that fills a buffer it made of an array has filled the array, as with numpy's own."""
    x, host = small(), VALUES.copy()
    x.persist()
    alias, before = x[:2], x + 1
    for array in (x, host):
        view = np.asarray(SEEN[seen](array))
        assert view.flags.writeable
        view[...] = 7 + view
    assert_equal(x, host)
    assert_equal(alias, host[:2])
    assert_equal(before, VALUES + 1)
    assert_equal(x + 1, host + 1)


def test_what_is_defined_before_and_computed_after_a_write_outside_reads_the_old_elements() -> None:
    x = small()
    doubled = x * 2
    host = np.asarray(x)
    tripled = x * 3
    host[...] = 0
    assert_equal(doubled, VALUES * 2)
    assert_equal(tripled, VALUES * 3)
    assert_equal(x, np.zeros((3, 4)))


#: Writes to an array, whole or in part, of each way that they take.
WRITES: dict[str, Callable[[Any], Any]] = {
    "update": lambda a: a.__iadd__(1),
    "update of a view": lambda a: a[1:, ::2].__imul__(3),
    "number": lambda a: a.__setitem__(1, 5),
    "its own elements": lambda a: a.__setitem__(slice(1, None), a[:-1]),
    "turned": lambda a: a.__setitem__(..., a[::-1]),
    "element": lambda a: a.__setitem__((1, 2), 9),
    "integer arrays": lambda a: a.__setitem__(np.array([0, 2]), 4),
    "mask": lambda a: a.__setitem__(a > 3, 0),
    "out=": lambda a: np.sqrt(a, out=a),
    "fill": lambda a: a.fill(2),
    "sort": lambda a: a[:, ::-1].sort(axis=1),
    "at": lambda a: np.add.at(a, np.array([0, 0]), 1),
}


@pytest.mark.parametrize("eager", [0, None])
@pytest.mark.parametrize("write", WRITES)
def test_memory_that_was_seen_stays_the_arrays(write: str, eager: int | None) -> None:
    """What is written to the array is seen there, and what is written there later is the array's."""
    with dx.config.set({} if eager is None else {"eager_bytes": eager}):
        x, host = small().persist(), VALUES.copy()
        rows, all_rows = np.asarray(x[:2]), host[:2]
        for _ in range(2):
            pending, expected = x * 2, host * 2
            WRITES[write](x), WRITES[write](host)
            np.testing.assert_array_equal(rows, all_rows)
            rows[0] += 7
            all_rows[0] += 7
            assert_equal(x, host)
            assert_equal(x[::-1] + 0, host[::-1] + 0)
            assert_equal(pending, expected)
        assert np.shares_memory(rows, x)


@pytest.mark.parametrize("write", WRITES)
def test_a_tile_that_was_seen_stays_the_arrays(write: str) -> None:
    host = np.arange(30.0).reshape(10, 3)
    x = dx.asarray(host.copy(), team=dx.Team((3,), ("r",)), sharding=("r", None))
    for member in (0, 2):
        tile = x.local(member)
        seen = host[tile.global_slices]
        WRITES[write](x), WRITES[write](host)
        np.testing.assert_array_equal(tile, seen)
        tile[0] += 7
        seen[0] += 7
        assert_equal(x, host)


def test_a_write_that_fails_leaves_memory_that_was_seen_as_it_is() -> None:
    x = small()
    host = np.asarray(x)
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        x /= 0 * VALUES
    np.testing.assert_array_equal(host, VALUES)
    assert_equal(x, VALUES)


def test_copies_do_not_share_what_is_seen() -> None:
    x = small()
    y = x.copy()
    np.asarray(x)[...] = 0
    z = x.copy()
    np.asarray(x)[...] = 1
    assert_equal(y, VALUES)
    assert_equal(z, np.zeros((3, 4)))


def test_nothing_is_copied_where_the_memory_is_seen() -> None:
    x = dx.zeros((1000, 100)) + 1
    first, again = np.asarray(x), np.asarray(x)
    assert np.shares_memory(first, again)
    assert np.shares_memory(np.asarray(x, copy=False), first)
    assert np.shares_memory(np.asarray(x[5:]), first)


def test_a_part_of_what_is_pending_computes_no_more_than_the_part() -> None:
    x = dx.random.default_rng(1).standard_normal((1000, 100)) + 1
    with counting() as c:
        host = np.asarray(x[5])
    assert not host.flags.writeable
    assert c.allocated_bytes <= 2 * x[:8].nbytes


def test_code_that_asks_whether_it_got_a_copy_is_told() -> None:
    x, y = small(), small()
    host = np.asarray(x)
    for ask in (np.may_share_memory, np.shares_memory):
        assert ask(host, x) and ask(x[1:], host) and ask(x, host[:1])
        assert not ask(host, y) and not ask(np.array(x), x) and not ask(x[1:], host[:1]) and not ask(x, VALUES)
    x += 1
    assert np.shares_memory(host, x)
    x = in_tiles()
    host = np.asarray(x)
    assert np.may_share_memory(host, x) and np.may_share_memory(x, host)  # who asks would write, and cannot
    assert not np.shares_memory(host, x) and not np.may_share_memory(np.array(x), x)


@pytest.mark.parametrize("generator", [np.random.default_rng, np.random.RandomState])
def test_numpys_generators_permute_arrays_of_several_blocks(generator: Any) -> None:
    for host in (np.arange(9), VALUES):
        with force_tiles(3), dx.config.set(eager_bytes=0):
            x = dx.asarray(host)
            permuted = generator(3).permutation(x)
        np.testing.assert_array_equal(permuted, generator(3).permutation(host))
        assert_equal(x, host)


def test_estimators_that_work_in_place_on_a_copy_leave_the_array_alone() -> None:
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    x = small()
    for made in (preprocessing.StandardScaler(), preprocessing.MinMaxScaler()):
        expected = made.fit_transform(VALUES.copy())
        np.testing.assert_allclose(made.fit_transform(x), expected)
        assert_equal(x, VALUES)


def test_of_several_blocks_nothing_is_copied_twice() -> None:
    x = in_tiles()
    blocks = x.__dx_node__().memo.blocks
    pending = x + 1  # reads the blocks as they are now
    assert not np.asarray(x).flags.writeable
    assert x.__dx_node__().memo.blocks is blocks
    assert_equal(pending, VALUES + 1)


@pytest.mark.parametrize("dtype", [None, "f8", "f4"])
def test_asarray_of_several_blocks_is_read_only(dtype: Any) -> None:
    """Code that writes into it would write into nothing that anybody sees: it is told so."""
    x = in_tiles()
    for host in (np.asarray(x, dtype), x.__array__(dtype), np.asarray(x[1:], dtype)):
        assert not host.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            host[...] = 7
    np.testing.assert_array_equal(np.asarray(x), VALUES)
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(x, copy=False)


def test_what_is_no_memory_of_the_array_is_read_only() -> None:
    x = small()
    for host in (np.asarray(x, "f4"), np.asarray(dx.broadcast_to(x, (2, 3, 4)))):
        assert not host.flags.writeable


def test_compiled_code_writes_into_the_array_or_not_at_all() -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    x = small()
    ndimage.correlate(VALUES, np.full((1, 1), 2.0), output=np.asarray(x))
    assert_equal(x, VALUES * 2)
    np.add(VALUES, 1, out=np.asarray(x))
    assert_equal(x, VALUES + 1)
    with pytest.raises((ValueError, RuntimeError), match=r"read-only|not writeable"):
        ndimage.correlate(VALUES, np.ones((1, 1)), output=np.asarray(in_tiles()))
    with pytest.raises(ValueError, match="read-only"):
        np.add(VALUES, 1, out=np.asarray(in_tiles()))


@EVERY
@pytest.mark.parametrize(
    "copied",
    [
        lambda x: np.array(x),
        lambda x: np.array(x, dtype="f4"),
        lambda x: np.asarray(x, copy=True),
        lambda x: x.compute(),
        lambda x: x.__array__(copy=True),
        lambda x: np.array(x[0, 0]),
    ],
)
def test_what_is_copied_is_the_callers(make: Make, copied: Callable[[Any], Any]) -> None:
    x = make()
    for _ in range(2):  # what was written to the first copy is not in the second one
        host = copied(x)
        assert host.flags.writeable
        np.testing.assert_array_equal(host, VALUES if host.ndim else VALUES[0, 0])
        host[...] = -1
    np.testing.assert_array_equal(np.asarray(x), VALUES)


@pytest.mark.cluster
def test_of_an_array_of_a_cluster_there_are_copies(cluster4: Any) -> None:
    small, on_workers = dx.asarray(np.arange(3.0)) + 1, (dx.ones((400, 300)) + 1).persist()
    for x in (small, on_workers):
        for _ in range(2):  # what is small has stayed here after the first one
            assert not np.asarray(x).flags.writeable


OF_THEIR_OWN = {
    "copy": lambda v: v.copy(),
    "positive": lambda v: +v,
    "conj": np.conj,
    "asarray": lambda v: dx.asarray(v, copy=True),
    "astype": lambda v: v.astype(v.dtype),
    "assignment": lambda v: _assigned(v),
}


def _assigned(value: dx.DistArray) -> dx.DistArray:
    made = dx.empty_like(value)
    made[...] = value
    return made


@pytest.mark.parametrize("name", OF_THEIR_OWN)
def test_memory_of_an_array_made_of_a_view_is_not_what_the_view_reads(name: str) -> None:
    """Both begin as one node, which the view remembers."""
    host = np.arange(300_000.0)
    x = dx.asarray(host) * 1
    with dx.config.set(eager_bytes=0):
        view = x[10:]
        made = OF_THEIR_OWN[name](view)
        memory = np.asarray(made)
        memory[:] = 7
        np.testing.assert_array_equal(np.asarray(view * 1), host[10:])
        np.testing.assert_array_equal(np.asarray(view.copy()), host[10:])
        np.testing.assert_array_equal(np.asarray(made), np.full(len(memory), 7.0))


@pytest.mark.parametrize("seen", [lambda v: v.local(0), np.asarray, lambda v: np.from_dlpack(v, copy=False)])
def test_a_reshaped_view_of_a_block_of_another_layout_is_its_memory(seen: Callable[[Any], Any]) -> None:
    """A result may lie in whatever layout was cheapest; nobody asked for one."""
    with dx.config.set(eager_bytes=0):
        host = np.random.default_rng(0).permutation(np.arange(60.0)).reshape(10, 6)
        x = dx.asarray(host.copy(), team=dx.Team((1,), ("r",)))
        x.sort(axis=0)
        host.sort(axis=0)
        x.persist()
        flat, expected = x.reshape(-1), host.reshape(-1)
        memory = seen(flat)
        memory[7] = expected[7] = -1
        assert_equal(x, host)
        x[3] = host[3] = -2
        np.testing.assert_array_equal(memory, expected)


def test_a_reshaped_view_of_an_array_in_the_layout_that_was_asked_for_is_a_copy() -> None:
    x = dx.asarray(VALUES).with_layout("F").persist()
    assert not x.reshape(-1).local(0).flags.writeable
    np.testing.assert_array_equal(x.reshape(-1).local(0), VALUES.reshape(-1))


def test_a_copy_of_a_part_of_host_data_is_made_before_the_part_is_written_in_place() -> None:
    """Both run in one evaluation, on two threads; the copy reads a box of the block that the write takes over."""
    with dx.config.set(eager_bytes=0):
        for seed in range(10):
            host = np.random.default_rng(seed).integers(-50, 50, (382, 420)).astype("c16")
            x = dx.asarray(host)
            x.persist()
            view, expected = x[23:268:2, 136:342], host[23:268:2, 136:342].copy()
            copy = view.copy()
            view[1:] = view[:-1]
            dx.persist(copy, x)
            np.testing.assert_array_equal(np.array(copy), expected)
            expected[1:] = expected[:-1].copy()
            np.testing.assert_array_equal(np.array(view), expected)


def test_memory_of_no_elements_can_be_written() -> None:
    np.asarray(dx.zeros((0, 3)))[...] = 1
    np.asarray(dx.ones(5)[2:2])[...] = 1


@pytest.mark.parametrize("eager_nbytes", [0, 1 << 20])
@pytest.mark.parametrize("shape", [(2, 4), (3, 5), (7, 4), (2, 3, 4)], ids=str)
def test_memory_that_was_handed_out_stays_the_arrays_when_it_is_cut(shape: tuple[int, ...], eager_nbytes: int) -> None:
    """Also where parts of it, columns, would be copies."""
    a = np.arange(float(np.prod(shape))).reshape(shape)
    with dx.config.set(block_bytes=48, eager_bytes=eager_nbytes), dx.use(team=dx.Team((3,), ("R",))):
        x = dx.asarray(a.copy())
        h = np.asarray(x, copy=False)
        np.sqrt(x)
        for each in (a, h):
            each[...] = 7
        assert float(x.max()) == 7
        for each in (a, x):
            each[[0, -1]] = 2
            each += 1
        np.testing.assert_array_equal(h, a)
        np.testing.assert_array_equal(np.asarray(x + 0), a)
        np.multiply(x, x, out=h)
        assert float(x.sum()) == (a * a).sum()
        theirs = np.zeros(shape)
        shared = dx.from_dlpack(theirs)
        np.asarray(shared + 1)
        theirs[...] = 3
        assert float(shared.max()) == 3
