"""The memory order of blocks is part of the type: said, kept, and never seen in values."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing import counting

T3 = dx.Team((3,), ("R",))
T24 = dx.Team((2, 4), ("R", "C"))
ORDERS_3D = list(itertools.permutations(range(3)))


def cube() -> np.ndarray:
    return np.arange(5.0 * 4 * 6).reshape(5, 4, 6)


def orders(x: dx.DistArray) -> set[tuple[int, ...]]:
    """The axes of each block from outermost to innermost, by its strides; blocks must be contiguous."""
    found = set()
    for block in x.blocks:
        values = np.asarray(block.values)
        if 0 in values.shape or 1 in values.shape:
            continue
        order = tuple(sorted(range(values.ndim), key=lambda axis: -values.strides[axis]))
        assert values.transpose(order).flags.c_contiguous
        found.add(order)
    return found


# -------------------------------------------------------------------------------------------------- the type


@pytest.mark.parametrize("layout", ORDERS_3D, ids=str)
def test_blocks_have_the_strides_that_the_layout_says(layout: tuple[int, ...]) -> None:
    """C-1: outermost first; "C" and "F" are names for two of them."""
    for x in (
        dx.asarray(cube(), team=T3, sharding=("R", None, None), layout=layout),
        dx.zeros((5, 4, 6), team=T3, sharding=(None, "R", None), layout=layout),
        dx.asarray(cube(), team=T3, sharding=("R", None, None)).with_layout(layout),
        dx.scatter(cube(), team=T3, sharding=(None, None, "R"), layout=layout),
    ):
        assert x.layout == {(0, 1, 2): "C", (2, 1, 0): "F"}.get(layout, layout)
        assert orders(x) == {layout}
        assert ("order=" in repr(x)) == (x.layout != "C")


@pytest.mark.parametrize(("shape", "layout"), [((), "F"), ((7,), "F"), ((7,), (0,)), ((), ())])
def test_arrays_of_rank_0_and_1_are_always_c(shape: tuple[int, ...], layout: Any) -> None:
    """C-15."""
    assert dx.zeros(shape, team=T3, layout=layout).layout == "C"


def test_the_layout_of_a_view_is_that_of_its_base_seen_through_it() -> None:
    """C-4: permuting the axes permutes it and moves nothing; a materialised view lies in that order."""
    x = dx.asarray(cube(), team=T3, sharding=("R", None, None), layout=(2, 0, 1))
    x.persist()
    with counting() as c:
        views = {
            "permuted": (dx.permute_dims(x, (1, 2, 0)), (1, 2, 0)),
            "transposed": (x.T, (0, 2, 1)),
            "sliced": (x[1:, ::2, ::-1], (2, 0, 1)),
            "row": (x[2], (1, 0)),
        }
    assert (c.tasks, c.messages, c.allocated_bytes) == (0, 0, 0)
    for name, (view, layout) in views.items():
        assert view.layout == {(0, 1, 2): "C", (1, 0): "F"}.get(layout, layout), name
    assert x.reshape(20, 6).layout == "C"
    np.testing.assert_array_equal(np.asarray(views["permuted"][0]), cube().transpose(1, 2, 0))


@pytest.mark.parametrize("layout", ["C", "F", (1, 2, 0), (0, 2, 1)], ids=str)
def test_results_have_the_layout_of_the_first_operand(layout: Any) -> None:
    """C-4: all operands equal: that one; elementwise results, writes and likes keep it."""
    x = dx.asarray(cube(), team=T3, sharding=("R", None, None), layout=layout)
    for made in (x * 2 + 1, x + x, dx.zeros_like(x), dx.sqrt(x).persist()):
        made.persist()
        assert made.layout == x.layout
        assert orders(made) == orders(x)
    y = dx.asarray(cube(), team=T3, sharding=("R", None, None), layout="C")
    mixed = (x + y).persist()
    assert mixed.layout == x.layout
    x[1:3] += 5
    x.persist()
    assert orders(x) == orders(made)


@pytest.mark.parametrize("layout", ORDERS_3D, ids=str)
def test_reductions_drop_axes_and_keep_the_order_of_the_rest(layout: tuple[int, ...]) -> None:
    """C-4."""
    x = dx.asarray(cube(), team=T3, sharding=("R", None, None), layout=layout)
    for axis in range(3):
        made = x.sum(axis=axis).persist()
        rest = [a for a in layout if a != axis]
        expected = tuple(sorted(range(2), key=lambda a: rest.index([b for b in range(3) if b != axis][a])))
        assert made.layout == {(0, 1): "C", (1, 0): "F"}[expected]
        np.testing.assert_allclose(np.asarray(made), cube().sum(axis=axis))


FUNCTIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "chain": lambda xp, a, b: (a * 2 + b) / (1 + b),
    "stencil": lambda xp, a, b: a[1:] - b[:-1],
    "reversed": lambda xp, a, b: a[::-1, :, ::-2] + b[:, ::-1, ::2],
    "sum": lambda xp, a, b: xp.sum(a * b, axis=1),
    "var": lambda xp, a, b: xp.var(a - b, axis=(0, 2)),
    "argmax": lambda xp, a, b: xp.argmax(b, axis=2),
    "matmul": lambda xp, a, b: a @ xp.permute_dims(b, (0, 2, 1)),
    "tensordot": lambda xp, a, b: xp.tensordot(a, b, axes=((1, 2), (1, 2))),
    "concat": lambda xp, a, b: xp.concat([a, b], axis=1),
    "roll": lambda xp, a, b: xp.roll(a, 2, axis=0) + b,
    "reshape": lambda xp, a, b: xp.reshape(a, (10, 12)) + xp.reshape(b.T, (10, 12)),
    "sort": lambda xp, a, b: xp.sort(a - b * 3, axis=1),
    "cumulative_sum": lambda xp, a, b: xp.cumulative_sum(a, axis=0) + b,
    "mask": lambda xp, a, b: a[b > 30],
    "integers": lambda xp, a, b: a[[3, 0, 1]] + b[[0, 0, 4]],
    "where": lambda xp, a, b: xp.where(a > 50, a, -b),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("first", ["C", "F", (1, 2, 0), (2, 0, 1)], ids=str)
def test_values_do_not_depend_on_layouts(name: str, first: Any) -> None:
    """C-3: the same among operands, and mixed."""
    a, b = cube(), cube()[::-1] + 0.5
    expected = FUNCTIONS[name](np, a, b)
    for second in (first, "C", (0, 2, 1)):
        x = dx.asarray(a, team=T3, sharding=("R", None, None), layout=first)
        y = dx.asarray(b, team=T3, sharding=(None, "R", None), layout=second)
        np.testing.assert_allclose(np.asarray(FUNCTIONS[name](dx, x, y)), expected, rtol=1e-13, atol=1e-12)


@pytest.mark.parametrize("source", ORDERS_3D, ids=str)
def test_moves_between_layouts_are_exact(source: tuple[int, ...]) -> None:
    """C-1: with_layout is local to each member; a new cut at the same time moves what it must."""
    x = dx.asarray(cube(), team=T3, sharding=("R", None, None), layout=source)
    x.persist()
    for target in ORDERS_3D:
        with counting() as c:
            y = x.with_layout(target).persist()
        assert c.messages == 0
        assert orders(y) == {target}
        np.testing.assert_array_equal(np.asarray(y), cube())
        z = y.reshard((None, None, "R")).persist()
        np.testing.assert_array_equal(np.asarray(z), cube())


# ---------------------------------------------------------------------------------------- scatter and gather

DTYPES = ["bool", "i1", "u4", "i8", "f2", "f4", "f8", "c8", "c16", "M8[ns]", "m8[s]"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (7,), (0, 3), (5, 4), (1, 9), (3, 2, 4)], ids=str)
@pytest.mark.parametrize("layout", ["C", "F"])
def test_gather_of_scatter_is_the_array(dtype: str, shape: tuple[int, ...], layout: str) -> None:
    """C-19: bitwise, for all dtypes, for 0-d and empty arrays; C-5: sources and targets of any strides."""
    raw = np.random.default_rng(0).integers(0, 2, (*shape, np.dtype(dtype).itemsize), dtype="u1")
    host = raw.view(dtype)[..., 0]
    sharding = ("R", "C")[: len(shape)] + (None,) * (len(shape) - 2)
    x = dx.scatter(host, team=T24, sharding=sharding if shape else None, layout=layout)
    assert x.shape == shape
    assert x.dtype == host.dtype
    assert x.gather().tobytes() == host.tobytes()
    for order in "CF":
        got = x.gather(order=order)
        assert got.tobytes() == host.tobytes()
        assert got.flags[f"{order}_CONTIGUOUS"]
    if shape:
        wide = np.zeros((*shape[:-1], 2 * shape[-1]), host.dtype)
        out = wide[..., ::-2]
        assert x.gather(out=out) is out
        assert np.ascontiguousarray(out).tobytes() == host.tobytes()
        assert dx.scatter(host[..., ::-1], team=T24, sharding=sharding).gather().tobytes() == host[..., ::-1].tobytes()


def test_uneven_tiles_are_computed() -> None:
    """C-15, C-17: extents that the mesh axis does not divide follow the cut rule, with no option."""
    a = np.arange(70.0).reshape(7, 10)
    x = dx.scatter(a, team=T24, sharding=("R", "C"))
    assert x.sharding.boundaries((7, 10)) == ((0, 3, 7), (0, 2, 5, 7, 10))
    for block in x.blocks:
        np.testing.assert_array_equal(block.values, a[block.global_slices])
    assert [b.member for b in x.blocks] == list(range(8))


def test_type_notation_and_shardings_are_accepted() -> None:
    """C-14: and what they say is checked against the array."""
    a = np.arange(64.0 * 32).reshape(64, 32)
    x = dx.scatter(a, team=T24, sharding="[32{R}64, 8{C}32]")
    assert x.sharding == dx.scatter(a, team=T24, sharding=("R", "C")).sharding
    assert dx.zeros((64, 32), team=T24, sharding=x.sharding).sharding == x.sharding
    both = dx.zeros((64, 32), team=T24, sharding=(("C", "R"), None), layout="F")
    assert "f64[8{C,R}64, 32] order=F" in repr(both)


HOST = np.arange(64.0 * 32).reshape(64, 32)
SCATTERED = dx.scatter(HOST, team=T24, sharding=("R", "C"))

MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "scatter, extra axis": (lambda: dx.scatter(HOST, team=T24, sharding=("R", "C", None)), ValueError, "3|2"),
    "scatter, an axis too many": (lambda: dx.scatter(HOST, team=T24, sharding=("R", None, None)), ValueError, "3|2"),
    "scatter, tile for whole": (
        lambda: dx.scatter(HOST[:32, :8], team=T24, sharding="[32{R}64, 8{C}32]"), ValueError, "64|32"
    ),
    "scatter, whole for tile": (
        lambda: dx.scatter(HOST, team=T24, sharding="[64{R}128, 32{C}128]"), ValueError, "64|128"
    ),
    "gather, extra axis": (lambda: SCATTERED.gather(out=np.empty((1, 64, 32))), ValueError, r"\(1, 64.*\(64, 32\)"),
    "gather, missing axis": (lambda: SCATTERED.gather(out=np.empty(64 * 32)), ValueError, r"\(2048,\).*\(64, 32\)"),
    "gather, tile for whole": (lambda: SCATTERED.gather(out=np.empty((32, 8))), ValueError, r"\(32, 8\).*\(64, 32\)"),
    "gather, axes swapped": (lambda: SCATTERED.gather(out=np.empty((32, 64))), ValueError, r"\(32, 64\).*\(64, 32\)"),
    "team too small": (lambda: dx.scatter(HOST, team=T3, sharding=("R", "C")), ValueError, "C"),
    "sharding of another mesh": (lambda: dx.scatter(HOST, team=T3, sharding=SCATTERED.sharding), ValueError, "R"),
    "out of another dtype": (lambda: SCATTERED.gather(out=np.empty((64, 32), "f4")), TypeError, "float32.*float64"),
    "out that is read-only": (lambda: SCATTERED.gather(out=np.broadcast_to(0.0, (64, 32))), ValueError, "read-only"),
    "out that is no array": (lambda: SCATTERED.gather(out=[[0.0]]), TypeError, "list"),
    "root that is no member": (lambda: dx.scatter(HOST, team=T24, sharding=("R", "C"), root=8), ValueError, "8"),
    "array of another device": (
        lambda: SCATTERED + dx.scatter(HOST, team=T24, sharding=("R", "C"), device="strict"),
        dx.EnvironmentMismatchError,
        "strict",
    ),
    "mesh axis twice": (lambda: dx.zeros((8, 8), team=T24, sharding=("R", "R")), ValueError, "R"),
    "mesh axis twice on one axis": (lambda: dx.zeros((8, 8), team=T24, sharding=(("R", "R"), None)), ValueError, "R"),
    "no such mesh axis": (lambda: dx.zeros((8, 8), team=T24, sharding=("Z", None)), ValueError, "Z"),
    "no permutation": (lambda: dx.zeros((8, 8), team=T24, layout=(0, 0)), ValueError, r"\(0, 0\)"),
    "permutation of another rank": (lambda: SCATTERED.with_layout((0, 1, 2)), ValueError, r"\(0, 1, 2\)"),
    "no layout": (lambda: SCATTERED.with_layout("K"), ValueError, "K"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_of_scatter_gather_and_cuts_are_refused_before_any_task(mistake: str) -> None:
    """C-14, C-15."""
    call, kind, text = MISTAKES[mistake]
    with counting() as c, pytest.raises(kind, match=text):
        call()
    assert (c.tasks, c.messages) == (0, 0)


def test_blocks_can_be_visited_in_any_order() -> None:
    """C-10: equal values whatever the order."""
    seen = {}
    for visit in (("R", "C"), ("C", "R")):
        out = np.zeros_like(HOST)
        seen[visit] = []
        for block in SCATTERED.iter_blocks(visit=visit):
            out[block.global_slices] = block.values
            seen[visit].append(block.member)
        np.testing.assert_array_equal(out, HOST)
    assert seen["R", "C"] == list(range(8))
    assert seen["C", "R"] == [0, 4, 1, 5, 2, 6, 3, 7]


def test_local_blocks_share_memory_and_know_their_place() -> None:
    """C-8."""
    x = dx.scatter(HOST, team=T24, sharding=("R", "C"), layout="F")
    alias = x[::-1]
    pending = x + 1
    part = x.local(5)
    assert part.global_slices == (slice(32, 64), slice(8, 16))
    assert part.flags.f_contiguous
    part[...] = -1.0
    expected = HOST.copy()
    expected[32:, 8:16] = -1.0
    np.testing.assert_array_equal(np.asarray(x), expected)
    np.testing.assert_array_equal(np.asarray(alias), expected[::-1])
    np.testing.assert_array_equal(np.asarray(pending), HOST + 1)


def test_a_part_that_is_sent_is_copied_alone_and_repeated_elements_once() -> None:
    """C-6: a piece has the bytes that travel, whatever the size of its block."""
    x = dx.scatter(np.arange(8000.0).reshape(8, 1000), team=T3, sharding=("R", None))
    column = dx.scatter(np.arange(8.0).reshape(8, 1), team=T3, sharding=("R", None))
    x.persist(), column.persist()
    with counting() as c:
        (x[1:, :5] * x[:-1, :5]).persist()
    assert c.packed_bytes == c.bytes_moved == 2 * 5 * 8
    with counting() as c:
        (x[1:] * dx.broadcast_to(column[:-1], (7, 1000))).persist()
    assert c.packed_bytes == c.bytes_moved == 2 * 8


def test_offsets_beyond_32_bits_are_planned_right() -> None:
    """C-7: 2**37 bytes, of which none exists."""
    from distarray.diagnostics.predict import rehearse

    shape = (1 << 20, 1 << 14)
    x = dx.asarray(np.broadcast_to(np.float64(1), shape), copy=False, team=T3, sharding=("R", None))
    y = x[1:] - x[:-1]
    found = rehearse([y.__dx_node__()], y._env)
    assert found is not None
    moved = sorted((t.source, t.destination, t.rows, t.nbytes) for t in found.instance.lowered.transfers)
    assert moved == [(0, 1, 1, 8 << 14), (1, 2, 1, 8 << 14)]
    sharding, *_ = next(iter(found.instance.lowered.outputs.values()))
    rows = [sharding.tile_slices(y.shape, tile)[0] for tile in sharding.tiles()]
    assert (rows[0].start, rows[-1].stop) == (0, (1 << 20) - 1)


@pytest.mark.cluster
def test_blocks_that_arrived_can_be_written(process_cluster: Any) -> None:
    """C-13: never an error about read-only memory, in any layout."""
    team = dx.Team((3,), ("R",))
    for layout in ("C", "F", (1, 2, 0)):
        a = cube()
        x = dx.scatter(a, team=team, sharding=("R", None, None), layout=layout)
        y = x.reshard((None, "R", None))
        for z in (x, y, x.with_layout("C")):
            b = a.copy()
            z[1:4, 2] = -1.0
            z += 2
            z[:, :, ::2] = z[:, :, 1::2]
            b[1:4, 2] = -1.0
            b += 2
            b[:, :, ::2] = b[:, :, 1::2]
            np.testing.assert_array_equal(z.gather(), b)
