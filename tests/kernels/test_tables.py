"""Kernels: whole blocks against numpy, parts of tiles against whole blocks, and all of them on the strict device."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray.errors import NotSupportedError
from distarray.expr.op import CATALOGUE
from distarray.expr.params import IndexParams
from distarray.kernels import tables
from distarray.kernels.devices import backend_for
from distarray.kernels.products import contract
from distarray.kernels.tables import (
    BLOCK,
    CREATE,
    PLACED,
    SCRATCH,
    put_apply,
    put_part,
    put_whole,
    take,
    take_join,
    take_part,
)
from distarray.ops import linalg
from distarray.ops.creation import ArangeValues, LinspaceValues
from distarray.testing import no_host_copies

FEW = settings(max_examples=150, derandomize=True, deadline=None)
CPU = backend_for("cpu")


def strict():
    pytest.importorskip("array_api_strict")
    return backend_for("strict:1")


@pytest.mark.parametrize(("kind", "table"), [("block", BLOCK), ("create", CREATE)])
def test_every_operation_of_the_catalogue_has_its_kernel(kind, table):
    for name, op in CATALOGUE.items():
        if op.kind == kind:
            assert callable(PLACED.get(name) or table[name])


# ----------------------------------------------------------------------------------------------- contractions


@st.composite
def contractions(draw):
    """Labels of two operands and the result: batch, summed and free labels in any order."""
    groups = {name: draw(st.integers(0, 2)) for name in ("batch", "summed", "left", "right")}
    labels, start = {}, 0
    for name, n in groups.items():
        labels[name] = list(range(start, start + n))
        start += n
    sizes = [draw(st.sampled_from([0, 1, 2, 3])) for _ in range(start)]
    a = draw(st.permutations(labels["batch"] + labels["summed"] + labels["left"]))
    b = draw(st.permutations(labels["batch"] + labels["summed"] + labels["right"]))
    result = draw(st.permutations(labels["batch"] + labels["left"] + labels["right"]))
    return tuple(a), tuple(b), tuple(result), sizes


@FEW
@given(contractions(), st.sampled_from(["i1", "i8", "f2", "f4", "f8", "c16", "?"]))
def test_contract_is_einsum(drawn, dtype):
    a, b, result, sizes = drawn
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 3, [sizes[v] for v in own]).astype(dtype) for own in (a, b))
    got = contract(np, (a, b), result, x, y, dtype=np.dtype(dtype))
    expected = np.einsum(x, a, y, b, result)
    assert (got.shape, got.dtype) == (expected.shape, np.dtype(dtype))
    np.testing.assert_array_equal(got, expected)


def test_contract_of_half_floats_adds_in_single():
    x = np.full((1, 4096), 1, np.float16)
    assert contract(np, ((0, 1), (2, 1)), (0, 2), x, x, dtype=x.dtype).item() == 4096


@pytest.mark.parametrize("dtype", ["i1", "i8", "f2", "f4", "f8", "c16", "?"])
@pytest.mark.parametrize("n", [1, 3, 65])
@pytest.mark.parametrize("last", [0, 1, 2])
def test_inner_products_are_einsums(dtype, n, last):
    order = [i for i in (1, 0, 2) if i != last] + [last]
    x, y = (np.random.default_rng(seed).integers(0, 2, (5, n, 4)).astype(dtype) for seed in (0, 1))
    x = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
    for text, result in (("abc,abc->ac", (0, 2)), ("abc,abc->ca", (2, 0)), ("abc,abc->a", (0,)), ("abc,abc->", ())):
        got = contract(np, ((0, 1, 2), (0, 1, 2)), result, x, y, dtype=np.dtype(dtype))
        assert (got.dtype, got.shape) == (x.dtype, np.einsum(text, x, y).shape)
        np.testing.assert_array_equal(got, np.einsum(text, x, y))


def test_contract_reads_transposed_blocks_in_place(monkeypatch):
    """BLAS takes either order: a transpose is no copy."""
    x, y = np.arange(6.0).reshape(3, 2), np.arange(12.0).reshape(4, 3)
    seen = []
    monkeypatch.setattr(np, "matmul", lambda a, b, f=np.matmul, **out: seen.append((a, b)) or f(a, b, **out))
    got = contract(np, ((1, 0), (2, 1)), (0, 2), x, y, dtype=x.dtype)
    np.testing.assert_array_equal(got, x.T @ y.T)
    assert np.shares_memory(seen[0][0], x)
    assert np.shares_memory(seen[0][1], y)


# ---------------------------------------------------------------------------------------- integer-array reads

SHAPE = (5, 4, 6)


@st.composite
def gathers(draw, negative=True):
    """A subset of the axes, the place of the index axes, and index arrays that broadcast."""
    axes = tuple(sorted(draw(st.sets(st.integers(0, 2), min_size=1, max_size=3))))
    position = draw(st.integers(0, 3 - len(axes)))
    lead = draw(st.sampled_from([(), (3,), (2, 3), (0,)]))
    index = []
    for a in axes:
        shape = draw(st.sampled_from([lead, lead, lead[1:], tuple(1 for _ in lead)]))
        low = -SHAPE[a] if negative else 0
        size = int(np.prod(shape))
        values = draw(st.lists(st.integers(low, SHAPE[a] - 1), min_size=size, max_size=size))
        index.append(np.array(values, np.int64).reshape(shape))
    n_index = max(i.ndim for i in index)
    return axes, position, n_index, index


def by_loops(x, axes, position, index):
    """What a gather means, written out."""
    arrays = np.broadcast_arrays(*index)
    rest = [a for a in range(x.ndim) if a not in axes]
    front = x.transpose(*axes, *rest)
    picked = np.empty((*arrays[0].shape, *(x.shape[a] for a in rest)), x.dtype)
    for at in np.ndindex(arrays[0].shape):
        picked[at] = front[tuple(int(i[at]) for i in arrays)]
    n = arrays[0].ndim
    order = (*range(n, n + position), *range(n), *range(n + position, picked.ndim))
    return picked.transpose(order)


@FEW
@given(gathers())
def test_take_is_a_loop_over_positions(drawn):
    axes, position, n_index, index = drawn
    x = np.arange(120.0).reshape(SHAPE)
    np.testing.assert_array_equal(
        take(np, x, index, IndexParams(axes, position, n_index)), by_loops(x, axes, position, index)
    )


@FEW
@given(gathers(negative=False), st.data())
def test_parts_of_a_read_join_to_the_whole(drawn, data):
    axes, position, n_index, index = drawn
    params = IndexParams(axes, position, n_index)
    x = np.arange(120.0).reshape(SHAPE)
    expected = by_loops(x, axes, position, index)
    cuts = [sorted({0, data.draw(st.integers(0, n)), n}) for n in SHAPE]
    parts = []
    for box in np.ndindex(*(len(c) - 1 for c in cuts)):
        bounds = [(c[i], c[i + 1]) for c, i in zip(cuts, box)]
        tile = x[tuple(slice(lo, hi) for lo, hi in bounds)]
        parts.append(take_part(np, tile, index, [lo for lo, _ in bounds], params))
    got = take_join(CPU, expected.shape, expected.dtype, parts, params)
    np.testing.assert_array_equal(got, expected)


def test_position_that_no_tile_has_is_an_error():
    params = IndexParams((0,), 0, 1)
    part = take_part(np, np.arange(5.0), [np.array([0, 9])], [0], params)
    with pytest.raises(IndexError):
        take_join(CPU, (2,), np.dtype(float), [part], params)


# --------------------------------------------------------------------------------------- integer-array writes

UFUNC = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "negative": np.negative,
}


def written(x, value, axes, position, index, mode):
    """What a write means, written out: in C order of the index arrays."""
    new = x.copy()
    arrays = np.broadcast_arrays(*index)
    rest = [a for a in range(x.ndim) if a not in axes]
    front = new.transpose(*axes, *rest)
    n = arrays[0].ndim
    shape = [x.shape[a] for a in rest]
    full = np.broadcast_to(value, (*shape[:position], *arrays[0].shape, *shape[position:]))
    values = full.transpose(*range(position, position + n), *range(position), *range(position + n, full.ndim))
    for at in np.ndindex(arrays[0].shape):
        key = tuple(int(i[at]) for i in arrays)
        operands = (front[key], values[at])
        front[key] = values[at] if mode == "set" else UFUNC[mode](*operands[: UFUNC[mode].nin])
    return new


@FEW
@given(gathers(), st.sampled_from(["set", *UFUNC]), st.booleans())
def test_whole_write_is_a_loop_over_positions(drawn, mode, scalar):
    axes, position, n_index, index = drawn
    x = 1 + np.arange(120.0).reshape(SHAPE)
    shape = by_loops(x, axes, position, index).shape
    value = np.asarray(2.0) if scalar else 1 + np.arange(np.prod(shape, dtype=int)).reshape(shape) % 5
    new = x.copy()
    put_whole(np, new, value, index, IndexParams(axes, position, n_index, mode))
    np.testing.assert_allclose(new, written(x, value, axes, position, index, mode), rtol=1e-12)


@FEW
@given(gathers(negative=False), st.sampled_from(["set", "add", "maximum"]), st.data())
def test_parts_of_a_write_make_the_whole(drawn, mode, data):
    """Tiles of the base and chunks of the values along the first index axis, in order."""
    axes, position, n_index, index = drawn
    params = IndexParams(axes, position, n_index, mode)
    x = np.arange(120.0).reshape(SHAPE)
    shape = by_loops(x, axes, position, index).shape
    value = 100 + np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(float)
    lead = np.broadcast_arrays(*index)
    rest = [a for a in range(3) if a not in axes]
    full = [np.broadcast_to(i.reshape((*i.shape, *(1,) * (len(rest) - position))), shape) for i in lead]
    cuts = [sorted({0, data.draw(st.integers(0, n)), n}) for n in SHAPE]
    chunk_axis = position if n_index else None
    points = sorted({0, shape[position] // 2, shape[position]}) if n_index else [0, 1]
    new = x.copy()
    loop_of = {a: k if k < position else k + n_index for k, a in enumerate(rest)}
    for tile in np.ndindex(*(len(c) - 1 for c in cuts)):
        frame = tuple(range(c[i], c[i + 1]) for c, i in zip(cuts, tile))
        block = new[tuple(slice(r.start, r.stop) for r in frame)].copy()
        for low, high in pairwise(points):
            box = [range(n) for n in shape]
            if chunk_axis is not None:
                box[chunk_axis] = range(low, high)
            for a, loop in loop_of.items():
                box[loop] = frame[a]
            key = tuple(slice(r.start, r.stop) for r in box)
            here = [i[(*key, ...)] for i in full]
            part = put_part(np, value[(*key, ...)], here, (frame, tuple(box)), params, is_whole=False)
            put_apply(np, block, part, params)
        new[tuple(slice(r.start, r.stop) for r in frame)] = block
    np.testing.assert_array_equal(new, written(x, value, axes, position, index, mode))


def test_failed_write_changes_nothing():
    x = np.arange(5.0)
    with pytest.raises(IndexError):
        put_whole(np, x, np.ones(2), [np.array([0, 9])], IndexParams((0,), 0, 1))
    np.testing.assert_array_equal(x, np.arange(5.0))


def test_last_of_repeated_positions_is_found_without_order():
    at, values = tables._last_ones(
        np, (4, 3), [np.array([1, 1, 0, 1]), np.array([2, 2, 0, 2])], np.array([10, 11, 12, 13])
    )
    assert sorted(zip(at[0].tolist(), at[1].tolist(), values.tolist())) == [(0, 0, 12), (1, 2, 13)]


# -------------------------------------------------------------------------------------------------- strict device

F8 = np.dtype(float)
CREATED = [
    ("empty", ((0, 2), (1, 3)), None),
    ("full", ((0, 2), (1, 3)), np.float64(2.5)),
    ("full", ((0, 2), (1, 3)), np.float64(0)),
    ("eye", ((0, 2), (1, 3)), 1),
    ("tri", ((0, 2), (1, 3)), 0),
    ("arange", ((0, 4),), ArangeValues(np.float64(0.5), np.float64(2))),
    ("linspace", ((1, 5),), LinspaceValues(np.float64(0), np.float64(1), np.float64(0.25), 0, 5, True, "<f8")),
]


@pytest.mark.parametrize(("name", "box", "runtime"), CREATED, ids=[c[0] for c in CREATED])
def test_creation_stays_on_its_device_b15(name, box, runtime):
    """B-15"""
    backend = strict()
    shape = tuple(hi for _, hi in box)
    with no_host_copies():
        made = CREATE[name](backend, box, shape, F8, (), runtime)
    assert made.device == backend.device
    if name != "empty":
        np.testing.assert_array_equal(backend.to_host(made), CREATE[name](CPU, box, shape, F8, (), runtime))


RNG = np.random.default_rng(0)
MATRIX = RNG.standard_normal((2, 4, 3))
SQUARE = RNG.standard_normal((2, 3, 3)) + 4 * np.eye(3)
POSITIVE = SQUARE @ SQUARE.swapaxes(-1, -2)
ROW = np.sort(RNG.standard_normal(7))
STRICT = [
    ("accumulate", (MATRIX,), ("a i b -> a i b | i: whole", "add", "<f8", 1)),
    ("accumulate", (MATRIX,), ("a i b -> a i b | i: whole", "multiply", "<f8", 1)),
    ("accumulate", (MATRIX,), ("a i b -> a i b | i: whole", "hypot", "<f8", 1)),
    ("accumulate_in_order", (MATRIX,), ("a i b -> a i b | i: whole", "subtract", "<f8", 1)),
    ("reduce_in_order", (MATRIX,), ("... i -> ... | i: whole", "subtract", "<f8", None)),
    ("reduce_in_order", (MATRIX, MATRIX > 0), ("... i, ... i -> ... | i: whole", "subtract", "<f8", np.float64(2))),
    ("tile_totals", (MATRIX,), ("maximum", "<f8", (0, 0))),
    ("tile_scan", (MATRIX, MATRIX, np.arange(len(MATRIX))), ("add", "<f8", (2, 0))),
    ("sort", (MATRIX,), (True, True)),
    ("argsort", (MATRIX,), (False, True)),
    ("top_rows", (MATRIX,), (1, True)),
    ("searchsorted", (ROW, MATRIX), ("right",)),
    ("isin", (ROW, np.concatenate([ROW[2:5], ROW * 2]).reshape(2, 5)), (True,)),
    ("sorter", (np.arange(7)[::-1].copy(),), (7,)),
    ("searchsorted_by", (ROW[::-1].copy(), np.arange(7)[::-1].copy(), MATRIX), ("left",)),
    ("packbits", (RNG.random((3, 5, 8)) > 0.5,), ("little",)),
    ("unpackbits", (RNG.integers(0, 256, (3, 5), dtype=np.uint8),), ("big",)),
    ("take_along_axis", (MATRIX, np.array([[[0, -1], [1, 1], [2, 0], [0, 0]]] * 2)), ()),
    ("cholesky", (POSITIVE,), (False,)),
    ("cholesky", (POSITIVE,), (True,)),
    ("det", (SQUARE,), ()),
    ("slogdet", (SQUARE,), ()),
    ("inv", (SQUARE,), ()),
    ("solve", (SQUARE, MATRIX[:, :3]), ()),
    ("qr", (MATRIX,), ("complete",)),
    ("qr_r", (MATRIX,), ("r",)),
    ("svd", (MATRIX,), (False,)),
    ("svdvals", (MATRIX,), ()),
    ("eigh", (POSITIVE,), ("L",)),
    ("eigvalsh", (POSITIVE,), ("U",)),
]


@pytest.mark.parametrize(("name", "blocks", "params"), STRICT, ids=[f"{s[0]}-{s[2]}" for s in STRICT])
def test_block_kernel_stays_on_its_device_b15(name, blocks, params):
    """B-15: the same kernel, written to the standard, on blocks that refuse to become NumPy arrays."""
    backend = strict()
    adopted = [backend.adopt(b) for b in blocks]
    with no_host_copies():
        result = BLOCK[name](backend.xp, *adopted, params=params)
    expected = BLOCK[name](np, *blocks, params=params)
    several = isinstance(expected, tuple)
    for got, want in zip(result if several else (result,), expected if several else (expected,)):
        np.testing.assert_allclose(backend.to_host(got), want, rtol=1e-12, atol=1e-12)


#: What the standard lacks, hence the strict device; a shrinking list.
NOT_ON_STRICT = {"median", "quantile", "lstsq", "eig", "eigvals", "reduceat_in_order"}


def test_block_kernels_that_are_not_on_strict_are_counted_b15():
    """B-15"""
    own = {name for name, op in CATALOGUE.items() if op.kind == "block"} & set(vars(linalg)) | {s[0] for s in STRICT}
    assert own - {s[0] for s in STRICT} <= NOT_ON_STRICT


def test_contract_and_take_stay_on_their_device_b15():
    """B-15"""
    backend = strict()
    x, y = MATRIX, SQUARE
    index = [np.array([0, -1, 1]), np.array([[2], [0]])]
    with no_host_copies():
        product = contract(backend.xp, ((0, 1, 2), (0, 2, 3)), (0, 3, 1), backend.adopt(x), backend.adopt(y), dtype=F8)
        picked = take(backend.xp, backend.adopt(x), [backend.adopt(i) for i in index], IndexParams((0, 2), 1, 2))
    np.testing.assert_allclose(backend.to_host(product), np.einsum("bij,bjk->bki", x, y))
    np.testing.assert_array_equal(backend.to_host(picked), by_loops(x, (0, 2), 1, index))
    with pytest.raises(NotSupportedError, match="not on strict"):
        put_whole(backend.xp, backend.adopt(x), backend.adopt(x[0]), [backend.adopt(index[0])], ((0,), 0, 1, "set"))


def test_kernels_of_other_files_are_found_by_several_threads_at_once() -> None:
    code = """
import threading, sys
from distarray.kernels import tables
sys.setswitchinterval(1e-6)
start = threading.Barrier(8)
found = []
def look():
    start.wait()
    found.append(tables.CREATE["read_store"])
    found.append(tables.BLOCK["qr"])
threads = [threading.Thread(target=look) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert len(found) == 16, found
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(KeyError):
        tables.BLOCK["nonsense"]


def test_what_a_transform_has_beside_its_result_depends_on_its_length():
    """By Bluestein's method, for lengths with a large prime factor, NumPy has several times as many rows."""
    few, many = (SCRATCH["fft"]((3, n), np.dtype("f8"), ("rfft", None, None)) for n in (659_880, 659_881))
    assert (few, many) == (3 * 16 * 659_880, 16 * 16 * 659_881)
    assert SCRATCH["fft"]((3, 0), np.dtype("c16"), ("fft", None, None)) == 0
    assert SCRATCH["fft"]((3, 9), np.dtype("c16"), ("irfft", None, None)) == 3 * 16 * 16
    assert SCRATCH["fft"]((3, 9), np.dtype("f8"), ("fft", 5, None)) == 3 * 16 * 5
    assert SCRATCH["fft"]((3, 9), np.dtype("f4"), ("fft", 5, None)) == (3 + 5 * 3) * 16 * 5  # rows that are cast
