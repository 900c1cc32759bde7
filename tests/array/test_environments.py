"""Team and device belong to an array's type: mixing is refused, moves are explicit, compute follows data."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing import counting

T4 = dx.Team((4,), ("R",))
T3 = dx.Team((3,), ("R",))
VALUES = np.arange(12.0)
#: Where the other operand lives, by what differs.
ELSEWHERE = {
    "another team": {"team": T3, "device": "cpu"},
    "another device": {"team": T4, "device": "strict"},
    "no team": {"team": None, "device": "cpu"},
}


def here(values: Any = VALUES) -> dx.DistArray:
    return dx.asarray(values, team=T4)


@pytest.fixture(params=ELSEWHERE)
def elsewhere(request: pytest.FixtureRequest) -> Callable[..., dx.DistArray]:
    where = ELSEWHERE[request.param]
    return lambda values=VALUES: dx.asarray(values, **where)


@pytest.fixture(params=[0, None], ids=["window 0", "default window"])
def any_window(request: pytest.FixtureRequest) -> Iterator[None]:
    with dx.config.set({} if request.param is None else {"window": request.param}):
        yield


def _iadd(x: Any, y: Any) -> None:
    x += y


def _isub(x: Any, y: Any) -> None:
    x -= y


def _imul(x: Any, y: Any) -> None:
    x *= y


def _itruediv(x: Any, y: Any) -> None:
    x /= y


def _ipow(x: Any, y: Any) -> None:
    x **= y


def _imod(x: Any, y: Any) -> None:
    x %= y


def _ifloordiv(x: Any, y: Any) -> None:
    x //= y


def _imatmul(x: Any, y: Any) -> None:
    square = x.reshape(3, 4)[:, :3]
    square @= y.reshape(3, 4)[:, :3]


def _set(x: Any, y: Any) -> None:
    x[...] = y


def _set_slice(x: Any, y: Any) -> None:
    x[2:7] = y[2:7]


def _set_element(x: Any, y: Any) -> None:
    x[3] = y[3]


def _set_by_mask(x: Any, y: Any) -> None:
    x[y > 4] = 1.0


def _set_by_index(x: Any, y: Any) -> None:
    x[y.astype("int64")] = 1.0


def _set_through_a_view(x: Any, y: Any) -> None:
    x.reshape(3, 4).T[1] = y[:3]


MIXED: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "reflected": lambda x, y: y - x,
    "comparison": lambda x, y: x < y,
    "function": lambda x, y: dx.hypot(x, y),
    "ufunc": lambda x, y: np.arctan2(x, y),
    "unary with out=": lambda x, y: np.negative(x, out=y),
    "reduction with out=": lambda x, y: x.reshape(3, 4).sum(axis=0, out=y[:4]),
    "binary with out=": lambda x, y: np.add(x, x, out=y),
    "where": lambda x, y: dx.where(x > 3, x, y),
    "where condition": lambda x, y: dx.where(y > 3, x, x),
    "clip": lambda x, y: dx.clip(x, y, None),
    "iadd": _iadd,
    "isub": _isub,
    "imul": _imul,
    "itruediv": _itruediv,
    "ipow": _ipow,
    "imod": _imod,
    "ifloordiv": _ifloordiv,
    "imatmul": _imatmul,
    "setitem": _set,
    "setitem slice": _set_slice,
    "setitem element": _set_element,
    "setitem of a view": _set_through_a_view,
    "setitem by mask": _set_by_mask,
    "setitem by index": _set_by_index,
    "at set": lambda x, y: x.at[1:4].set(y[1:4]),
    "at add": lambda x, y: x.at[1:4].add(y[1:4]),
    "at index": lambda x, y: x.at[y.astype("int64")].add(1.0),
    "mask": lambda x, y: x[y > 4],
    "index": lambda x, y: x[y.astype("int64")],
    "take": lambda x, y: dx.take(x, y.astype("int64")),
    "matmul": lambda x, y: x @ y,
    "vecdot": lambda x, y: dx.vecdot(x, y),
    "tensordot": lambda x, y: dx.tensordot(x, y, axes=1),
    "einsum": lambda x, y: dx.einsum("i,j->ij", x, y),
    "concat": lambda x, y: dx.concat([x, x, y]),
    "stack": lambda x, y: dx.stack([x, y]),
    "searchsorted": lambda x, y: dx.searchsorted(x, y),
    "copyto": lambda x, y: dx.copyto(x, y),
}


@pytest.mark.parametrize("operation", MIXED)
def test_mixed_environments_raise_at_the_call_and_change_nothing(
    operation: str, elsewhere: Callable[..., dx.DistArray], any_window: None
) -> None:
    """B-1, B-49: no task, no transfer, no version changed."""
    x, y = here(), elsewhere()
    x.persist(), y.persist()
    versions = x._base.version, y._base.version
    with counting() as c, pytest.raises(dx.EnvironmentMismatchError) as caught:
        MIXED[operation](x, y)
    # Casts and comparisons of one array alone are operations of their own; under window 0 they may have run.
    if dx.config.get("window"):
        assert c.tasks == 0
    assert c.messages == 0
    assert (x._base.version, y._base.version) == versions
    assert isinstance(caught.value, ValueError)
    assert "to_team" in str(caught.value)
    assert "to_device" in str(caught.value)
    np.testing.assert_array_equal(np.asarray(x), VALUES)
    np.testing.assert_array_equal(np.asarray(y), VALUES)


@pytest.mark.parametrize("operation", ["add", "iadd", "setitem", "concat", "where", "matmul", "ufunc"])
def test_nothing_is_submitted_by_a_refused_operation(operation: str, elsewhere: Callable[..., dx.DistArray]) -> None:
    """B-1: at window 0, where everything else runs at once."""
    condition = here(VALUES > 3)
    with dx.config.set(window=0):
        x, y = here(), elsewhere()
        x.persist(), y.persist(), condition.persist()
        run = (lambda x, y: dx.where(condition, x, y)) if operation == "where" else MIXED[operation]
        with counting() as c, pytest.raises(dx.EnvironmentMismatchError):
            run(x, y)
    assert (c.tasks, c.evaluations, c.messages) == (0, 0, 0)


def test_the_message_names_the_operation_and_where_each_operand_lives() -> None:
    """B-1."""
    a, b, c = here(), dx.asarray(VALUES, team=T3), here()
    with pytest.raises(dx.EnvironmentMismatchError) as caught:
        dx.where(a > 1, b, c)
    text = str(caught.value)
    assert text.startswith("where")
    for number, team in enumerate(("R=4", "R=3", "R=4")):
        assert f"operand {number}" in text
        assert team in text
    assert "to_team" in text
    assert "to_device" in text


@pytest.mark.parametrize("literal", [2, 2.5, 1j, np.float32(2), [1.0] * 12, np.arange(12), (3,) * 12], ids=repr)
def test_literals_adopt_the_environment_of_the_array(literal: Any) -> None:
    """B-1: Python and NumPy scalars, lists and NumPy arrays have none of their own."""
    x = here()
    result = x * literal
    expected = VALUES * (literal if np.isscalar(literal) else np.asarray(literal))
    assert result.team == T4
    assert result.device == "cpu"
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(result), expected)


def test_a_literal_array_is_read_at_the_call() -> None:
    """B-1: a later change of it by its owner does not show."""
    x, literal = here(), np.ones(12)
    result = x + literal
    literal[:] = 100
    np.testing.assert_array_equal(np.asarray(result), VALUES + 1)


@pytest.mark.parametrize("use_it", [lambda x, v: x + v, lambda x, v: x.__setitem__(slice(None), v)], ids=["+", "[]="])
def test_a_literal_of_any_size_is_an_operand(use_it: Callable[[Any, Any], Any]) -> None:
    """B-1: as `asarray` takes it."""
    x, literal = here(), np.arange(12.0)
    with dx.config.set(literal_max_bytes=64):
        made = use_it(x, literal)
    np.testing.assert_array_equal(np.asarray(x if made is None else made), (0 if made is None else VALUES) + literal)


@pytest.mark.parametrize(("limit", "made_by"), [(32, "read_store"), (2**20, "source")])
def test_memory_maps_above_the_limit_are_read_by_tasks(tmp_path: Path, limit: int, made_by: str) -> None:
    """B-1: smaller ones are read at the call, as any literal; assignment casts as of any."""
    path = tmp_path / "v.npy"
    np.save(path, np.arange(12, dtype="i4"))
    mapped = np.load(path, mmap_mode="r")
    x, y = here(), here()
    with dx.config.set(literal_max_bytes=limit, eager_bytes=0):
        made = x + mapped
        y[...] = mapped
    assert [operand.op.name for operand in made._node().operands][1] == made_by
    np.testing.assert_array_equal(np.asarray(made), VALUES + np.arange(12))
    np.testing.assert_array_equal(np.asarray(y), np.arange(12.0))


# ------------------------------------------------------------------------------------------------ no team


def test_without_a_team_everything_works_and_no_task_is_made() -> None:
    """B-2: creators, arithmetic, views, writes, reductions, sorting, products."""
    with dx.use(team=None), counting() as c:
        x = dx.reshape(dx.arange(12.0), (3, 4))
        assert x.team is None
        assert "team=None" in repr(x)
        y = dx.sort(dx.flip(x, axis=1), axis=1)
        y[1:, ::2] += x[:-1, 1::2]
        z = dx.concat([y @ x.T, dx.ones((3, 3))])
        got = np.asarray(z)
        assert z.team is None
        total, where = float(z.sum()), int(dx.argmax(z))
    a = np.arange(12.0).reshape(3, 4)
    b = np.sort(np.flip(a, axis=1), axis=1)
    b[1:, ::2] += a[:-1, 1::2]
    expected = np.concatenate([b @ a.T, np.ones((3, 3))])
    np.testing.assert_allclose(got, expected, rtol=1e-14)
    assert (total, where) == (expected.sum(), expected.argmax())
    assert (c.tasks, c.messages) == (0, 0)


@pytest.mark.cluster
def test_without_a_team_nothing_goes_to_the_cluster(cluster4: Any) -> None:
    """B-2."""
    known = set(cluster4.cluster.scheduler.tasks)
    x = dx.arange(1000.0, team=None)
    assert float((x * 2 + 1).sum()) == (np.arange(1000.0) * 2 + 1).sum()
    assert not {k for k in set(cluster4.cluster.scheduler.tasks) - known if "dx-" in str(k)}


# -------------------------------------------------------------------------------------- compute follows data


def _task_members(count: Any) -> list[int]:
    return sorted(m for key, m in count.members.items())


def test_compute_follows_data() -> None:
    """B-3: each block task runs on the member that owns the part, of the team of its operands."""
    x = dx.asarray(np.arange(48.0).reshape(12, 4), team=T4, sharding=("R", None))
    x.persist()
    with counting() as c:
        y = (x * 2 + 1).persist()
    assert _task_members(c) == [0, 1, 2, 3]
    assert c.messages == 0
    assert y.team == T4
    assert y.sharding == x.sharding
    owners = {key[-1]: m for key, m in c.members.items()}
    assert owners == {0: 0, 1: 1, 2: 2, 3: 3}


def test_a_result_that_needs_other_parts_is_computed_where_it_is_owned() -> None:
    """B-3: with transfers, the member of a task owns the result's part, and receives what it lacks."""
    x = dx.asarray(np.arange(12.0), team=T4, sharding=("R",))
    out = dx.zeros(12, team=T4, sharding=("R",))
    x.persist(), out.persist()
    with counting() as c:
        out[1:] = x[:-1] * 2
        out.persist()
    assert {(t.source, t.destination) for t in c.transfers} == {(0, 1), (1, 2), (2, 3)}
    tiles = [m for key, m in c.members.items() if "piece" not in str(key[0])]
    assert set(tiles) == {0, 1, 2, 3}
    np.testing.assert_array_equal(np.asarray(out)[1:], np.arange(11.0) * 2)


def test_strict_blocks_stay_on_the_device_of_their_member() -> None:
    """B-3, B-10: member i has device i mod 2, in operands and results alike."""
    x = dx.asarray(VALUES, team=T4, sharding=("R",), device="strict")
    y = (x * 2)[1:] + x[:-1]
    y.persist()
    assert len(set(x.devices)) == 2
    assert x.devices == (x.devices[0], x.devices[1]) * 2
    for member in range(4):
        assert x.local(member).device == (x * 2).local(member).device
        assert (x.local(member).device == x.local(0).device) == (member % 2 == 0)
    np.testing.assert_array_equal(np.asarray(y), VALUES[1:] * 2 + VALUES[:-1])


# ------------------------------------------------------------------------------------ data-dependent shapes


def test_data_dependent_shapes_are_known_and_elements_stay_deferred() -> None:
    """B-9."""
    x = here()
    picked = x[x > 4]
    (where,) = dx.nonzero(x > 4)
    values = dx.unique_values(dx.concat([x, x]))
    everything = dx.unique_all(x)
    assert type(len(picked)) is int
    assert picked.shape == (7,)
    assert where.shape == (7,)
    assert values.shape == (12,)
    assert everything.counts.shape == (12,)
    np.testing.assert_array_equal(np.asarray(picked), VALUES[VALUES > 4])
    np.testing.assert_array_equal(np.asarray(where), np.nonzero(VALUES > 4)[0])
    np.testing.assert_array_equal(np.asarray(values), VALUES)


DATA_DEPENDENT: dict[str, Callable[[Any], Any]] = {
    "mask": lambda x: x[x > 4],
    "nonzero": lambda x: dx.nonzero(x),
    "argwhere": lambda x: dx.argwhere(x),
    "unique_values": lambda x: dx.unique_values(x),
    "unique_counts": lambda x: dx.unique_counts(x),
    "unique_inverse": lambda x: dx.unique_inverse(x),
    "unique_all": lambda x: dx.unique_all(x),
}


@pytest.mark.parametrize("operation", DATA_DEPENDENT)
def test_data_dependent_shapes_can_be_forbidden(operation: str) -> None:
    """B-9."""
    x = here()
    x.persist()
    with (
        dx.config.set(data_dependent="raise"),
        counting() as c,
        pytest.raises(ValueError, match="data-dependent"),
    ):
        DATA_DEPENDENT[operation](x)
    assert c.tasks == 0


def test_a_write_by_mask_needs_no_counts() -> None:
    """B-9: so it is allowed where counts are not."""
    x = here()
    with dx.config.set(data_dependent="raise"):
        x[x > 4] = -1.0
    np.testing.assert_array_equal(np.asarray(x), np.where(VALUES > 4, -1, VALUES))


# ------------------------------------------------------------------------------------------------- the end


def test_delete_frees_the_blocks_and_every_later_use_raises() -> None:
    """B-11."""
    x = dx.zeros((64, 64), team=T4, sharding=("R", None)) + 1
    x.persist()
    view = x[3:, ::2]
    blocks = [weakref.ref(b.values) for b in x.blocks]
    x.delete()
    gc.collect()
    assert [b() for b in blocks] == [None] * 4
    for use_it in (
        lambda: x + 1, lambda: x.shape, lambda: x[0], lambda: np.asarray(view), lambda: view.sum(),
        lambda: float(x[0, 0]), lambda: x.__setitem__(0, 1), lambda: view.T, lambda: x.local(0), x.delete,
        lambda: x.to_team(None), lambda: x.copy(), lambda: x.reshape(-1), lambda: dx.concat([x, x]),
        lambda: x.compute(), lambda: len(view), lambda: dx.shares_memory(x, view),
    ):  # fmt: skip
        with pytest.raises(dx.DeletedArrayError) as caught:
            use_it()
        assert isinstance(caught.value, RuntimeError)


def test_delete_keeps_what_was_made_from_the_array() -> None:
    """B-11: pending operations have their values, copies live on."""
    x = here()
    later, same = x + 1, x.copy()
    x.delete()
    np.testing.assert_array_equal(np.asarray(later), VALUES + 1)
    np.testing.assert_array_equal(np.asarray(same), VALUES)


@pytest.mark.cluster
def test_delete_returns_the_memory_of_every_worker(cluster4: Any) -> None:
    """B-11."""

    def stored() -> int:
        return sum(len(w.data) for w in cluster4.cluster.workers.values())

    def settles_at(level: int) -> bool:
        import time

        for _ in range(100):
            if stored() == level:
                return True
            time.sleep(0.02)
        return False

    gc.collect()
    before = stored()
    x = dx.asarray(np.arange(4000.0), team=dx.Team((4,), ("R",)), sharding=("R",)) + 1
    x.persist()
    x.compute()
    assert stored() > before
    x.delete()
    assert settles_at(before)


# ------------------------------------------------------------------------------------------------- devices


@pytest.mark.parametrize("device", ["gpu", "cpu:0", "cuda:", "cuda:-1", "strict:3", "CPU", "", "cuda:x", 0, ("cpu",)])
@pytest.mark.parametrize(
    "call",
    [
        lambda d: dx.zeros(3, device=d),
        lambda d: dx.asarray([1.0], device=d),
        lambda d: dx.arange(3, device=d),
        lambda d: dx.zeros_like(here(), device=d),
        lambda d: here().to_device(d),
        lambda d: dx.use(device=d).__enter__(),
        lambda d: dx.scatter(np.ones(4), device=d),
        lambda d: dx.from_dlpack(np.ones(4), device=d),
    ],
    ids=["zeros", "asarray", "arange", "zeros_like", "to_device", "use", "scatter", "from_dlpack"],
)
def test_unknown_devices_are_refused_at_the_call(call: Callable[[Any], Any], device: Any) -> None:
    """B-14."""
    with pytest.raises(ValueError, match="cpu, cuda"):
        call(device)


def test_a_gpu_that_is_not_there_is_an_error_that_names_what_is_missing() -> None:
    """B-14: never a silent fall back to the host."""
    try:
        import cupy

        if cupy.cuda.runtime.getDeviceCount():
            pytest.skip("there is a GPU")
    except Exception:  # whatever CuPy raises without a driver, or that it is not installed
        pass
    for call in (lambda: dx.zeros(3, device="cuda"), lambda: here().to_device("cuda:0")):
        with pytest.raises((ImportError, RuntimeError, ValueError), match=r"(?i)cupy|gpu|cuda"):
            call()


def test_device_is_a_string_and_devices_one_for_each_member() -> None:
    """B-14."""
    assert here().device == "cpu"
    assert here().devices == ("cpu",) * 4
    strict = dx.asarray(VALUES, team=T4, device="strict")
    assert strict.device == "strict"
    assert strict.devices == ("strict:1", "strict:2", "strict:1", "strict:2")
    pinned = dx.asarray(VALUES, team=T3, device="strict:2")
    assert pinned.devices == ("strict:2",) * 3
    assert 'device="strict:2"' in repr(pinned)


@pytest.mark.parametrize("other", ["strict:1", "strict:2"])
def test_devices_with_another_mapping_are_other_environments(other: str) -> None:
    """B-10: equal only if the mapping of members to devices is."""
    a, b = dx.asarray(VALUES, team=T4, device="strict"), dx.asarray(VALUES, team=T4, device=other)
    with pytest.raises(dx.EnvironmentMismatchError):
        a + b


@pytest.mark.gpu
def test_members_have_gpus_in_turn() -> None:
    """B-10."""
    import cupy

    n = cupy.cuda.runtime.getDeviceCount()
    x = dx.asarray(VALUES, team=T4, sharding=("R",), device="cuda")
    assert x.devices == tuple(f"cuda:{i % n}" for i in range(4))
    for member in range(4):
        assert x.local(member).device.id == member % n
    np.testing.assert_array_equal(np.asarray(x * 2), VALUES * 2)


# --------------------------------------------------------------------------------------------------- moves

DTYPES = ["bool", "i1", "u8", "f4", "f8", "c8", "c16"]


def bits(dtype: str) -> np.ndarray:
    raw = np.random.default_rng(3).integers(0, 256, 24 * 16, dtype="u1")
    if dtype == "bool":
        return (raw[:24] > 99).reshape(6, 4)
    return raw.view(dtype)[:24].reshape(6, 4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_moves_do_not_change_a_bit(dtype: str) -> None:
    """B-38: between teams, to no team, and back; NaN payloads and signed zeros included."""
    values = bits(dtype)
    x = dx.asarray(values, team=T4, sharding=("R", None))
    there = x.to_team(T3, (None, "R"))
    assert there.team == T3
    assert there.sharding.n_tiles == 3
    alone = there.to_team(None)
    assert alone.team is None
    for moved in (there, alone, alone.to_team(T4)):
        assert moved.dtype == values.dtype
        assert np.asarray(moved).tobytes() == values.tobytes()
    assert np.asarray(x).tobytes() == values.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("team", [None, dx.Team((1,), ("R",)), T3, T4], ids=repr)
def test_moves_between_host_and_device(dtype: str, team: dx.Team | None) -> None:
    """B-44, B-38."""
    values = bits(dtype)
    x = dx.asarray(values, team=team)
    there = x.to_device("strict")
    assert (there.device, there.team) == ("strict", x.team)
    back = there.to_device("cpu")
    assert (back.device, back.team) == ("cpu", x.team)
    assert np.asarray(back).tobytes() == values.tobytes() == np.asarray(there).tobytes()
    doubled = (there != 0).to_device("cpu")
    np.testing.assert_array_equal(np.asarray(doubled), values != 0)


def test_a_move_to_where_an_array_is_is_the_array() -> None:
    """B-38: 0 bytes."""
    x = here()
    x.persist()
    with counting() as c:
        assert x.to_team(T4) is x
        assert x.to_team(dx.Team((4,), ("R",))) is x
        assert x.to_device("cpu") is x
    assert (c.tasks, c.messages, c.allocated_bytes, c.fetched_bytes) == (0, 0, 0, 0)


def test_an_array_stays_where_it_is_when_the_current_team_changes() -> None:
    x = here()
    with dx.use(T3, "strict"):
        assert (x + 1).team == T4
        assert (x + 1).device == "cpu"
        made = dx.zeros(5)
        assert (made.team, made.device) == (T3, "strict")
        assert dx.current_team() == T3
        assert dx.current_device() == "strict"
        with pytest.raises(dx.EnvironmentMismatchError):
            made + x[:5]
    assert dx.current_device() == "cpu"


def test_like_creators_keep_the_environment_and_the_cut() -> None:
    """B-38 names the only moves; creators of likes keep team, device, cut and layout."""
    x = dx.zeros((6, 8), team=T4, sharding=(None, "R"), layout="F", device="strict")
    for made in (dx.zeros_like(x), dx.ones_like(x), dx.empty_like(x), dx.full_like(x, 3.0)):
        assert (made.team, made.device, made.layout) == (T4, "strict", "F")
        assert made.sharding == x.sharding
    assert dx.zeros_like(x, device="cpu").device == "cpu"
    assert dx.zeros_like(x, team=None).team is None
    assert dx.zeros_like(x, team=None, sharding=None).device == "strict"


# ----------------------------------------------------------------------------------------------- sub-teams


def test_sub_teams_are_real_teams() -> None:
    """B-48: arrays live and compute on them, and they differ from each other and from the whole."""
    grid = dx.Team((2, 3), ("R", "C"))
    first, second = grid.split("R")
    assert first.axes == ("C",)
    assert first.size == 3
    assert first != second
    a = dx.asarray(VALUES, team=first, sharding=("C",))
    b = dx.asarray(VALUES, team=second, sharding=("C",))
    assert a.sharding.n_tiles == 3
    np.testing.assert_array_equal(np.asarray(a[1:] * 2 - a[:-1]), VALUES[1:] * 2 - VALUES[:-1])
    with pytest.raises(dx.EnvironmentMismatchError):
        a + b
    with pytest.raises(dx.EnvironmentMismatchError):
        a + dx.asarray(VALUES, team=grid)
    np.testing.assert_array_equal(np.asarray(a + b.to_team(first)), 2 * VALUES)
    column = grid.split("C")[2]
    assert column.members == (2, 5)
    assert float(dx.asarray(VALUES, team=column).sum()) == VALUES.sum()


@pytest.mark.cluster
def test_tasks_of_a_sub_team_run_on_its_workers_only(cluster4: Any) -> None:
    """B-48."""
    low, high = dx.Team((2, 2), ("R", "C")).split("R")
    assert not set(low.members) & set(high.members)
    x = dx.asarray(np.arange(1000.0), team=high, sharding=("C",)) * 2
    x.compute()
    held = {key: set(where) for key, where in cluster4.who_has().items() if where}
    where = set().union(*held.values())
    assert where
    assert where <= {str(m) for m in high.members}


def test_arrays_travel_in_pickles_with_their_team() -> None:
    x = dx.asarray(VALUES, team=T3, sharding=("R",))
    again = pickle.loads(pickle.dumps(x))
    assert again.team == T3
    assert again.sharding == x.sharding
    np.testing.assert_array_equal(np.asarray(again + x), 2 * VALUES)


# ----------------------------------------------------------------------------------------------- bad input

BAD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "unknown mesh axis": (lambda: dx.zeros((8, 8), team=T4, sharding=("Q", None)), ValueError, "Q"),
    "axis used twice": (lambda: dx.zeros((8, 8), team=T4, sharding=("R", "R")), ValueError, "R"),
    "too many entries": (lambda: dx.zeros((8,), team=T4, sharding=("R", None)), ValueError, "1|2"),
    "cut without a team": (lambda: dx.zeros((8,), team=None, sharding=("R",)), ValueError, "team"),
    "layout of other axes": (lambda: dx.zeros((8, 8), team=T4, layout=(0, 2)), ValueError, r"\(0, 2\)"),
    "layout too long": (lambda: dx.zeros((8, 8), team=T4, layout=(0, 1, 2)), ValueError, "2"),
    "layout repeats": (lambda: dx.zeros((8, 8), team=T4, layout=(1, 1)), ValueError, r"\(1, 1\)"),
    "layout unknown": (lambda: dx.zeros((8, 8), team=T4, layout="X"), ValueError, "X"),
    "team of another type": (lambda: dx.zeros(3, team=4), TypeError, "team=4"),
    "to_team of another type": (lambda: here().to_team(3), TypeError, "team=3"),
    "too few members": (lambda: dx.Team((4,), ("R",), members=(0, 1)), ValueError, "4"),
    "axis names": (lambda: dx.Team((2, 2), ("R",)), ValueError, "2"),
    "repeated axis names": (lambda: dx.Team((2, 2), ("R", "R")), ValueError, "R"),
    "negative extent": (lambda: dx.zeros((3, -1), team=T4), ValueError, "negative"),
    "reshape": (lambda: here().reshape(5, 3), ValueError, r"12.*\(5, ?3\)"),
    "broadcast": (lambda: here() + here(VALUES[:5]), ValueError, r"\(12,\).*\(5,\)"),
    "broadcast_to": (lambda: dx.broadcast_to(here(), (5, 3)), ValueError, r"12"),
    "matmul": (lambda: here() @ here(VALUES[:5]), ValueError, "12.*5|5.*12"),
    "concat axis": (lambda: dx.concat([here(), here()], axis=1), IndexError, "1"),
    "concat extents": (lambda: dx.concat([here(np.ones((2, 3))), here(np.ones((2, 4)))]), ValueError, "3.*4"),
    "sum axis": (lambda: here().sum(axis=1), IndexError, "1"),
    "sum axis twice": (lambda: here(np.ones((2, 3))).sum(axis=(0, 0)), ValueError, "duplicate|twice|repeated"),
    "transpose axes": (lambda: dx.permute_dims(here(), (1, 0)), ValueError, "axes"),
    "squeeze": (lambda: dx.squeeze(here(), axis=0), ValueError, "12"),
    "index too many": (lambda: here()[1, 2], IndexError, "1"),
    "index out of bounds": (lambda: here()[12], IndexError, "12"),
    "index array out of bounds": (lambda: here()[[3, 12]], IndexError, "12"),
    "mask of another shape": (lambda: here()[np.ones(5, bool)], IndexError, "12.*5|5.*12"),
    "float index": (lambda: here()[1.0], IndexError, "integer"),
    "setitem shape": (lambda: here().__setitem__(slice(0, 3), np.ones(4)), ValueError, r"\(4,\).*\(3,\)"),
    "iadd shape": (lambda: here().__iadd__(np.ones((2, 12))), ValueError, r"\(2, ?12\)|\(12,\)"),
    "iadd cast": (lambda: here(np.arange(3)).__iadd__(1.5), TypeError, "float64.*int64|int64"),
    "bitwise of floats": (lambda: here() & 1, TypeError, "bitwise_and"),
    "objects": (lambda: dx.asarray([object()]), TypeError, "object"),
    "unknown dtype": (lambda: dx.zeros(3, dtype="U5"), TypeError, "U5|str"),
    "argmax of nothing": (lambda: dx.argmax(here(np.ones(0))), ValueError, "empty"),
    "max of nothing": (lambda: dx.max(here(np.ones(0))), ValueError, "zero-size|identity"),
    "float of many": (lambda: float(here()), TypeError, "scalar|size-1|length-1"),
    "bool of many": (lambda: bool(here()), ValueError, "ambiguous"),
    "local of a stranger": (lambda: here().local(4), IndexError, "4"),
    "astype casting": (lambda: here().astype("int64", casting="safe"), TypeError, "safe"),
    "root of gather": (lambda: here().gather(root=7), ValueError, "7"),
    "out of gather, shape": (lambda: here().gather(out=np.empty(5)), ValueError, r"5.*12|12"),
    "out of gather, dtype": (lambda: here().gather(out=np.empty(12, "f4")), TypeError, "float32"),
    "split axis": (lambda: T4.split("Q"), ValueError, "Q"),
    "linspace count": (lambda: dx.linspace(0, 1, -1), ValueError, "-1"),
    "arange step": (lambda: dx.arange(0, 1, 0), (ValueError, ZeroDivisionError), "step|zero"),
    "roll axis": (lambda: dx.roll(here(), 1, axis=3), IndexError, "3"),
    "sort axis": (lambda: dx.sort(here(), axis=2), IndexError, "2"),
    "expand_dims axis": (lambda: dx.expand_dims(here(), axis=4), IndexError, "4"),
    "stack shapes": (lambda: dx.stack([here(), here(VALUES[:3])]), ValueError, "shape"),
    "tensordot extents": (lambda: dx.tensordot(here(), here(VALUES[:5]), axes=1), ValueError, "12|5|shape"),
    "ndim of mT": (lambda: here().mT, ValueError, "ndim"),
    "at shape": (lambda: here().at[:3].set(np.ones(4)), ValueError, r"\(4,\).*\(3,\)"),
    "unknown option": (lambda: dx.config.set(windows=3), ValueError, "windows"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_raises_at_the_call_with_the_numbers_and_submits_nothing(case: str) -> None:
    """B-16, C-15: numpy's class of error."""
    call, kind, text = BAD[case]
    with counting() as c, pytest.raises(kind, match=text):
        call()
    assert (c.tasks, c.messages) == (0, 0)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.is_busday(x),
        lambda x: np.fromstring("1 2", sep=" ", like=x),
    ],
    ids=["is_busday", "fromstring"],
)
def test_a_numpy_function_that_is_not_implemented_says_the_way_out_and_gathers_nothing(
    call: Callable[[Any], Any],
) -> None:
    x = here()
    x.persist()
    with counting() as c, pytest.raises(TypeError, match="compute") as caught:
        call(x)
    assert isinstance(caught.value, dx.NotSupportedError)
    assert c.fetched_bytes == 0
    assert c.messages == 0
