"""numpy's ufuncs on DistArrays: every one of them, every method, every option, against numpy, errors included."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from helpers import some
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray.testing import force_tiles

UFUNCS = {u.__name__: u for u in vars(np).values() if isinstance(u, np.ufunc)}
BINARY = {name: u for name, u in UFUNCS.items() if (u.nin, u.nout, u.signature) == (2, 1, None)}
SINGLE = {name: u for name, u in UFUNCS.items() if u.nout == 1 and u.signature is None}
DTYPES = "? B i f d D m8[s]".split()
#: How tiles are cut and joined does not depend on the dtype; these have the kernels that differ.
FEW_DTYPES = "? i d".split()
TOLERANCE = {"e": 5e-3, "f": 1e-5, "F": 1e-5}
#: Along a contiguous axis numpy's reduce and reduceat of these forget the running result (numpy 2.4).
WRONG_IN_NUMPY = {"arctan2", "power", "ldexp"}

Call = Callable[..., Any]


def sample(dtype: str, shape: tuple[int, ...] = (7, 5), seed: int = 0) -> np.ndarray:
    rng, d = np.random.default_rng(seed), np.dtype(dtype)
    if d.kind in "biumM":
        return rng.integers(-3 if d.kind == "i" else 0 if d.kind == "b" else 1, 6, shape).astype(d)
    x = rng.normal(size=shape) * 2
    return (x + 1j * rng.normal(size=shape) if d.kind == "c" else x).astype(d)


def host(value: Any) -> list[np.ndarray]:
    return [np.asarray(v) for v in (value if isinstance(value, tuple) else (value,))]


def outcome(call: Call, args: tuple[Any, ...]) -> Any:
    try:
        return host(call(*args))
    except Exception as error:  # which one is compared
        return error


def assert_as_numpy(what: str, call: Call, *args: Any, reference: Call | None = None) -> None:
    """`call` gives the same of DistArrays as of numpy's arrays: values, dtypes, shapes, or the class of the error."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = outcome(reference or call, tuple([a.copy() if isinstance(a, np.ndarray) else a for a in args]))
        made = outcome(call, tuple([dx.asarray(a) if isinstance(a, np.ndarray) else a for a in args]))
    if isinstance(expected, Exception) or isinstance(made, Exception):
        assert isinstance(expected, Exception), f"{what}: {made!r}, but numpy gives {expected}"
        assert isinstance(made, Exception), f"{what}: no error, but numpy raises {expected!r}"
        public = [t for t in type(expected).__mro__ if t.__module__ in ("builtins", "numpy.exceptions")]
        assert isinstance(made, public[0]), f"{what}: {made!r}, but numpy raises {expected!r}"
        return
    assert len(made) == len(expected), what
    for a, b in zip(made, expected):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), what
        tolerance = TOLERANCE.get(b.dtype.char, 1e-12)
        if b.dtype.kind in "fc":
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=what)
        else:
            np.testing.assert_array_equal(a, b, err_msg=what)


@pytest.fixture(params=[None, 3], ids=["small", "tiles"])
def tiles(request: pytest.FixtureRequest) -> Iterator[int | None]:
    """In one small block, and in three uneven tiles along each axis."""
    with nullcontext() if request.param is None else force_tiles(request.param):
        yield request.param


def dtypes(tiles: int | None) -> list[str]:
    return DTYPES if tiles is None else FEW_DTYPES


def operands(ufunc: np.ufunc, dtype: str) -> list[np.ndarray]:
    shape = (4, 4) if ufunc.signature else (7, 5)
    second = sample("i" if ufunc is np.ldexp else dtype, shape, 1)
    return [sample(dtype, shape), second][: ufunc.nin]


# --------------------------------------------------------------------------------------------------- every ufunc


@pytest.mark.parametrize("name", sorted(UFUNCS))
def test_call_is_numpys(name: str, tiles: int | None) -> None:
    for dtype in dtypes(tiles):
        assert_as_numpy(f"{name}, {dtype}", UFUNCS[name], *operands(UFUNCS[name], dtype))


@pytest.mark.parametrize("name", some(sorted(BINARY)))
def test_reduce_is_numpys(name: str, tiles: int | None) -> None:
    ufunc, mask = BINARY[name], sample("?", seed=5)
    for dtype in dtypes(tiles):
        x = sample(dtype)
        for axis in (0, (0, 1), None, ()):
            assert_as_numpy(f"{name}, {dtype}, {axis}", lambda a: ufunc.reduce(a, axis=axis, keepdims=axis == 0), x)
        for start in ({}, {"initial": 1}):
            assert_as_numpy(f"{name}, {dtype}, where", lambda a, m: ufunc.reduce(a, where=m, **start), x, mask)
            assert_as_numpy(f"{name}, {dtype}, nothing", lambda a: ufunc.reduce(a, **start), x[:0])
        if name not in WRONG_IN_NUMPY:
            assert_as_numpy(f"{name}, {dtype}, rows", lambda a: ufunc.reduce(a, axis=-1, initial=1), x)
            assert_as_numpy(f"{name}, {dtype}, f4", lambda a: ufunc.reduce(a[:, 0], dtype="f4"), x)


def test_sums_of_half_floats_with_initial_are_rounded_once(tiles: int | None) -> None:
    half = np.array([[3e4, 4e4], [1.0, 2.0]], np.float16)
    assert_as_numpy("half floats", lambda a: np.sum(a, axis=1, initial=-2e4), half)


@pytest.mark.parametrize("mask", [np.int8(1), np.float64(0), 1, 0.5, None, np.array([1, 0, 1, 1, 1])], ids=repr)
def test_numbers_of_any_dtype_are_masks_and_arrays_are_not(mask: Any, tiles: int | None) -> None:
    x = sample("f8")
    for name in ("sum", "prod", "all", "nansum"):
        assert_as_numpy(name, lambda a: getattr(np, name)(a, where=mask), x)
    assert_as_numpy("max", lambda a: np.max(a, axis=0, where=mask, initial=0), x)
    assert_as_numpy("copyto", lambda a: np.copyto(a, 7.0, where=mask) or a, x)


@pytest.mark.parametrize("name", ["arctan2", "power", "subtract", "divide"])
def test_reduce_goes_from_the_first_element_to_the_last(name: str, tiles: int | None) -> None:
    ufunc, x = BINARY[name], np.abs(sample("d")) + 0.5
    row = functools.partial(functools.reduce, ufunc)
    assert_as_numpy(name, lambda a: ufunc.reduce(a, axis=1), x, reference=lambda a: row(a.T))
    assert_as_numpy(name, lambda a: ufunc.reduce(a[0]), x, reference=lambda a: row(a[0]))
    assert_as_numpy(
        name, lambda a: ufunc.reduceat(a[0], [0, 2]), x, reference=lambda a: np.array([row(a[0, :2]), row(a[0, 2:])])
    )


@pytest.mark.parametrize("n_tiles", [1, 3])
@pytest.mark.parametrize(
    "call",
    [
        lambda xp, x: xp.power.reduce(x),
        lambda xp, x: xp.power.reduce(x, keepdims=True, where=x < 9, initial=2),
        lambda xp, x: xp.power.accumulate(x),
        lambda xp, x: xp.power.reduceat(x, [0, 2]),
        lambda xp, x: np.power.outer(x, x).sum() if xp is np else dx.einsum("i,j->", x, x, join="pow"),
        lambda xp, x: np.power.outer(x, x).max(0) if xp is np else dx.einsum("i,j->j", x, x, join=np.power, agg="max"),
        lambda xp, x: xp.searchsorted(x, 1, sorter=xp.asarray([0, 9, 1])),
        lambda xp, x: xp.searchsorted(x, 1, sorter=xp.asarray([0, 9, 1]) - 0),
    ],
)
def test_what_fails_fails_at_the_call(call: Call, n_tiles: int) -> None:
    host = np.array([2, -1, 3])
    with pytest.raises(ValueError, match=r"power|[Ss]orter") as expected:
        call(np, host)
    with dx.config.set(eager_bytes=0), force_tiles(n_tiles):
        x = dx.asarray(host)
        with pytest.raises(expected.type):
            call(dx, x)
        with dx.config.set(errors="deferred"):
            waits = call(dx, x)
        with pytest.raises(expected.type):
            np.asarray(waits)


def test_host_data_that_were_given_a_cut_are_accumulated_in_their_tiles() -> None:
    host = np.arange(40.0)
    with dx.config.set(eager_bytes=0):
        made = dx.cumsum(dx.asarray(host, team=dx.Team((4,), ("T",)), sharding=("T",)))
        assert made.__dx_node__().op.name == "tile_scan"
        np.testing.assert_array_equal(np.asarray(made), np.cumsum(host))


@pytest.mark.parametrize("method", ["reduce", "accumulate", "reduceat"])
def test_least_multiples_that_exceed_their_dtype_are_numpys(method: str, tiles: int | None) -> None:
    x = np.random.default_rng(1).integers(1, 120, 13).astype(np.int8)
    for a in (x, x[:, None] + np.arange(3, dtype=np.int8)):
        index = [[0, 5, 12, 3]] if method == "reduceat" else []
        assert_as_numpy(method, lambda a, index=index: getattr(np.lcm, method)(a, *index), a)


@pytest.mark.parametrize("name", sorted(BINARY))
def test_accumulate_is_numpys(name: str, tiles: int | None) -> None:
    ufunc = BINARY[name]
    for dtype in dtypes(tiles):
        x = sample(dtype)
        assert_as_numpy(f"{name}, {dtype}, axis 0", ufunc.accumulate, x)
        assert_as_numpy(f"{name}, {dtype}, axis -1", lambda a: ufunc.accumulate(a, axis=-1), x)
        assert_as_numpy(f"{name}, {dtype}, one axis", ufunc.accumulate, x[:, 0])


@pytest.mark.parametrize("name", some(sorted(BINARY.keys() - WRONG_IN_NUMPY)))
@pytest.mark.parametrize(
    "at", [[0, 3, 5], [0, 4, 1, 5, 2, 6], [6, 6, 0], [], [0, 7]], ids=["rising", "overlapping", "equal", "none", "bad"]
)
def test_reduceat_is_numpys(name: str, at: list[int], tiles: int | None) -> None:
    ufunc, index = BINARY[name], np.array(at, int)
    for dtype in "i", "d", "m8[s]":
        x = sample(dtype)
        assert_as_numpy(f"{name}, {dtype}", lambda a: ufunc.reduceat(a, index, axis=0), x)
        assert_as_numpy(f"{name}, {dtype}, one axis", lambda a: ufunc.reduceat(a, index), x[:, 0])


@pytest.mark.parametrize("name", some(sorted(SINGLE)))
def test_at_is_numpys(name: str, tiles: int | None) -> None:
    ufunc = SINGLE[name]

    def repeated(x: Any, *value: Any) -> Any:
        ufunc.at(x[::2], (np.array([0, 2, 2, 1, 0]), slice(1, 4)), *value)
        return x

    def several(x: Any, *value: Any) -> Any:
        ufunc.at(x, slice(1, 3), *[v[:1, :1] for v in value])
        ufunc.at(x, x[:, 0] > 0, *[v[:1, :1] for v in value])
        return x

    for dtype in ("?", "i", "d") if tiles is None else ("i",):
        x, value = sample(dtype), [sample(dtype, (5, 3), 1)][: ufunc.nin - 1]
        assert_as_numpy(f"{name}, {dtype}, repeated", repeated, x, *value)
        assert_as_numpy(f"{name}, {dtype}, several", several, x, *value)


@pytest.mark.parametrize("name", some(sorted(BINARY)))
def test_outer_is_numpys(name: str, tiles: int | None) -> None:
    ufunc = BINARY[name]
    for dtype in "B", "f":
        x, y = sample(dtype, (4,)), sample("i" if name == "ldexp" else dtype, (3, 2), 1)
        assert_as_numpy(f"{name}, {dtype}", ufunc.outer, x, y)
        assert_as_numpy(f"{name}, {dtype}, number", lambda a: ufunc.outer(a, 2), x)
        assert_as_numpy(f"{name}, {dtype}, list", lambda a: ufunc.outer([1, 2], a), y)


# ------------------------------------------------------------------------------------------------------- options

OPTIONS: dict[str, Call] = {
    "out of several results": lambda x, y: np.modf(x, out=(x, y)),
    "out, the first of two": lambda x, y: (np.modf(x, x), x),
    "out, the second of two": lambda x, y: (np.divmod(x, 2, out=(None, y)), y),
    "out, a list": lambda x, y: np.modf(x, out=[x, y]),
    "out, too few": lambda x, y: np.modf(x, out=(x,)),
    "out, an operand": lambda x, y: (np.add(x, y, out=x), x),
    "out, a view": lambda x, y: (np.add(x[:3], y[4:], out=x[4:]), x),
    "out, overlapping": lambda x, y: (np.add(x[1:], y[:-1], out=x[:-1]), x),
    "out, reversed": lambda x, y: (np.sqrt(np.abs(x), out=x[::-1]), x),
    "out, transposed": lambda x, y: (np.subtract(x, y, out=y.T.T), y),
    "out is larger": lambda x, y: np.add(x[0], 1, out=y),
    "out is smaller": lambda x, y: np.add(x, 1, out=y[0]),
    "out casts": lambda x, y: np.add(x, y, out=y.astype("f4")),
    "out does not cast": lambda x, y: np.add(x, y, out=y.astype("i4")),
    "out casts to anything": lambda x, y: np.add(x, y, out=y.astype("i4"), casting="unsafe"),
    "out of host operands": lambda x, y: np.add([1.0, 2, 3, 4, 5], 1, out=x),
    "where and out": lambda x, y: np.divide(x, y, out=x, where=y > 0),
    "where of fewer axes": lambda x, y: np.negative(x, out=y, where=[True, False, True, True, False]),
    "where of more axes": lambda x, y: np.add(x[0], 1, out=x, where=y > 0),
    "where of the host": lambda x, y: np.multiply(x, 2, out=y, where=np.arange(5) > 2),
    "where, no booleans": lambda x, y: np.add(x, y, out=x, where=np.arange(5)),
    "where and numbers": lambda x, y: np.divide(2, x, out=y, where=x > 0),
    "where and dates": lambda x, y: np.divide(x.astype("m8[s]"), y, out=x.astype("m8[s]"), where=y > 0),
    "where and booleans": lambda x, y: np.logical_not(x > 0, out=x, where=y > 0),
    "where of several results": lambda x, y: np.modf(np.abs(x), out=(x, y), where=y > 0),
    "where, shape": lambda x, y: np.add(x, 1, where=(y > 0)[None]) * 0,
    "dtype": lambda x, y: np.add(x, 1, dtype="f4"),
    "dtype of the result only": lambda x, y: np.less(x, y, dtype=bool),
    "dtype without loop": lambda x, y: np.less(x, y, dtype="f4"),
    "dtype of two results": lambda x, y: np.divmod(x, 2, dtype="f4"),
    "dtype that does not cast": lambda x, y: np.add(x, y, dtype="i4"),
    "dtype, any cast": lambda x, y: np.add(x, 1.5, dtype="i4", casting="unsafe"),
    "signature, text": lambda x, y: np.add(x, 1, signature="ff->f"),
    "signature, tuple": lambda x, y: np.add(x, 1, signature=(None, None, "f4")),
    "sig": lambda x, y: np.frexp(x, sig="f->fi"),
    "signature without loop": lambda x, y: np.add(x, 1, signature="fd->f"),
    "signature and dtype": lambda x, y: np.add(x, 1, signature="ff->f", dtype="f4"),
    "casting, none": lambda x, y: np.add(x.astype("i4"), y, casting="no"),
    "casting, none needed": lambda x, y: np.add(x, y, casting="no"),
    "casting, no rule": lambda x, y: np.add(x, y, casting="maybe"),
    "order, subok": lambda x, y: np.add(x, y, order="F", subok=False),
    "no order": lambda x, y: np.add(x, y, order="Q"),
    "no option": lambda x, y: np.add(x, y, foo=1),
    "no shape": lambda x, y: np.add(x, y[:, :2]),
    "host operands": lambda x, y: np.add(np.ones(5), x) + np.float32(2) * y,
    "scalars": lambda x, y: np.power(2, np.abs(x)),
    "matmul, axes": lambda x, y: np.matmul(x, y, axes=[(0, 1), (1, 0), (1, 0)]),
    "matmul, axes of a vector": lambda x, y: np.matmul(x, y[0], axes=[(0, 1), 0, 0]),
    "matmul, not all axes": lambda x, y: np.matmul(x, y, axes=[(0, 1)]),
    "matmul, no list of axes": lambda x, y: np.matmul(x, y, axes=(0, 1)),
    "matmul, wrong axes": lambda x, y: np.matmul(x, y.T, axes=[(0, 1), (0, 1), 0]),
    "matmul, axis": lambda x, y: np.matmul(x, y, axis=0),
    "matmul, keepdims": lambda x, y: np.matmul(x, y, keepdims=True),
    "matmul, where": lambda x, y: np.matmul(x, y, where=True),
    "matmul, dtype": lambda x, y: np.matmul(x, y.T, dtype="f4"),
    "matmul, out": lambda x, y: (np.matmul(x.T, y, out=x[:5]), x),
    "vecdot, axis": lambda x, y: np.vecdot(x, y, axis=0),
    "vecdot, keepdims": lambda x, y: np.vecdot(x, y, axis=0, keepdims=True),
    "vecdot, axes": lambda x, y: np.vecdot(x, y.T, axes=[0, 1]),
    "vecdot, axes and keepdims": lambda x, y: np.vecdot(x, y, axes=[0, 0], keepdims=True),
    "vecmat": lambda x, y: np.vecmat(x[:, 0], y),
    "matvec, axes": lambda x, y: np.matvec(x, y, axes=[(1, 0), 0, 0]),
}  # fmt: skip


@pytest.mark.parametrize("call", OPTIONS.values(), ids=OPTIONS)
def test_option_is_numpys(call: Call, tiles: int | None) -> None:
    assert_as_numpy("option", call, sample("d"), sample("d", seed=1))


REDUCTIONS: dict[str, Call] = {
    "axis, keepdims": lambda x, m: np.add.reduce(x, 1, keepdims=True),
    "positions": lambda x, m: np.add.reduce(x, 0, "f4", None, True, 5, m),
    "bad axis": lambda x, m: np.maximum.reduce(x, axis=2),
    "no axis": lambda x, m: np.maximum.reduce(x, axis=1.5),
    "same axis": lambda x, m: np.add.reduce(x, axis=(0, -2)),
    "number": lambda x, m: np.add.reduce(x[0, 0], axis=0),
    "number, by functions": lambda x, m: tuple(f(x[0, 0], axis=-1) for f in (np.max, np.argmin, np.sum)),
    "number, another axis": lambda x, m: np.sum(x[0, 0], axis=1),
    "number, mean": lambda x, m: np.mean(x[0, 0], axis=0),
    "transposed": lambda x, m: tuple(f(x.T, axis=0) for f in (np.sum, np.max, np.var, np.argmax, np.all)),
    "transposed, all": lambda x, m: (x.T.sum(), x.T.argmax(), x.T.std()),
    "number, accumulated": lambda x, m: np.add.accumulate(x[0, 0]),
    "initial, None": lambda x, m: np.add.reduce(x, initial=None),
    "initial, None of nothing": lambda x, m: np.add.reduce(x[:0], initial=None),
    "initial, None and where": lambda x, m: np.add.reduce(x, initial=None, where=m),
    "initial, an array": lambda x, m: np.add.reduce(x, initial=[1, 2]),
    "initial of integers": lambda x, m: np.sum(x.astype("i4"), initial=1.5),
    "initial, complex": lambda x, m: np.sum(x, initial=1j),
    "initial out of range": lambda x, m: np.max(np.abs(x).astype("u1"), initial=-1),
    "initial, ours": lambda x, m: np.max(x, initial=x[0, 0]),
    "where without identity": lambda x, m: np.maximum.reduce(x, where=m),
    "where of fewer axes": lambda x, m: np.add.reduce(x, where=m[0]),
    "where of more axes": lambda x, m: np.add.reduce(x[0], where=m),
    "where, no booleans": lambda x, m: np.add.reduce(x, where=np.arange(5)),
    "where, a list": lambda x, m: np.sum(x, where=[1, 0, 1, 1, 0]),
    "out": lambda x, m: (np.add.reduce(x, axis=0, out=x[0]), x),
    "out casts to anything": lambda x, m: np.add.reduce(x, axis=0, out=x[0].astype("i4")),
    "out of another shape": lambda x, m: np.add.reduce(x, axis=0, out=x),
    "out of logical": lambda x, m: np.any(x, axis=0, out=x[0]),
    "out of an index": lambda x, m: np.argmax(x, axis=0, out=x[0].astype("i8")),
    "out of an index, floats": lambda x, m: np.argmax(x, axis=0, out=x[0]),
    "accumulate, out": lambda x, m: (np.maximum.accumulate(x, axis=0, out=x), x),
    "accumulate, out of integers": lambda x, m: np.add.accumulate(x, out=x.astype("i4")),
    "accumulate, dtype": lambda x, m: np.add.accumulate(x, dtype="f4", axis=1),
    "accumulate, small integers": lambda x, m: np.add.accumulate(x.astype("i1")),
    "accumulate, all axes": lambda x, m: np.add.accumulate(x, axis=None),
    "accumulate, tuple": lambda x, m: np.add.accumulate(x, axis=(1,)),
    "reduceat, axis": lambda x, m: np.add.reduceat(x, [0, 2, 1], 1),
    "reduceat, out": lambda x, m: np.add.reduceat(x, [0, 2], axis=0, out=x[:2]),
    "reduceat, dtype": lambda x, m: np.add.reduceat(x, [0, 2], dtype="f4"),
    "reduceat, two axes": lambda x, m: np.add.reduceat(x, [[0, 2]]),
    "reduceat, floats": lambda x, m: np.add.reduceat(x, [0.0, 2.0]),
    "reduceat, negative": lambda x, m: np.add.reduceat(x, [-1]),
    "reduceat, our indices": lambda x, m: np.add.reduceat(x, np.flatnonzero(m[:, 0])),
    "reduceat, number": lambda x, m: np.add.reduceat(x[0, 0], [0]),
    "unary": lambda x, m: np.sin.reduce(x),
    "unary, accumulated": lambda x, m: np.sin.accumulate(x),
    "unary, outer": lambda x, m: np.sin.outer(x, x),
    "several results": lambda x, m: np.divmod.reduce(x),
    "several results, at": lambda x, m: np.modf.at(x, [0]),
    "vectors": lambda x, m: np.vecdot.reduce(x),
    "vectors, at": lambda x, m: np.matmul.at(x, [0], x),
    "vectors, outer": lambda x, m: np.matmul.outer(x, x),
    "not reorderable": lambda x, m: np.subtract.reduce(x, axis=(0, 1)),
    "at, no value": lambda x, m: np.add.at(x, [0]),
    "at, a value too many": lambda x, m: np.negative.at(x, [0], 1),
    "at, out of bounds": lambda x, m: np.add.at(x, [0, 9], 1),
    "at, shape": lambda x, m: np.add.at(x, [0, 1], np.ones((3, 5))),
    "at, casts to anything": lambda x, m: (lambda k: (np.add.at(k, [0, 0], 1.5), k)[1])(x.astype("i4")),
    "outer, out": lambda x, m: np.add.outer(x[:, 0], x[0], out=x),
    "outer, dtype": lambda x, m: np.add.outer(x[:, 0], x[0], dtype="f4"),
}  # fmt: skip


@pytest.mark.parametrize("call", REDUCTIONS.values(), ids=REDUCTIONS)
def test_option_of_a_method_is_numpys(call: Call, tiles: int | None) -> None:
    assert_as_numpy("option", call, sample("d"), sample("?", seed=5))


# ----------------------------------------------------------------------------- numpy's reductions, by three ways

#: Options of numpy's functions that are methods too; all are tried as ``np.f(x)``, ``dx.f(x)`` and ``x.f()``.
SIGNATURES: dict[str, tuple[dict[str, Any], ...]] = {
    **dict.fromkeys(
        ("sum", "prod"),
        ({}, {"axis": 0, "dtype": "f4"}, {"axis": (0, 1), "keepdims": True}, {"initial": 3, "axis": 1}),
    ),
    **dict.fromkeys(("max", "min"), ({}, {"axis": 0}, {"axis": 1, "initial": 1, "keepdims": True}, {"axis": 5})),
    **dict.fromkeys(("any", "all"), ({}, {"axis": 0, "keepdims": True}, {"axis": (1, 0)})),
    **dict.fromkeys(("argmax", "argmin"), ({}, {"axis": 0}, {"axis": 1, "keepdims": True}, {"axis": 2})),
    "mean": ({}, {"axis": 0, "dtype": "f4"}, {"axis": (0, 1), "keepdims": True}),
    **dict.fromkeys(
        ("std", "var"), ({}, {"axis": 0, "ddof": 1}, {"axis": 1, "correction": 1, "keepdims": True}, {"dtype": "f4"})
    ),
    **dict.fromkeys(("cumsum", "cumprod"), ({}, {"axis": 0}, {"axis": 1, "dtype": "f4"}, {"axis": 2})),
}
MASKED = ("sum", "prod", "max", "min", "any", "all", "mean", "std", "var")


@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_reduction_is_numpys_as_function_and_method(name: str, tiles: int | None) -> None:
    for dtype in ("?", "i1", "u4", "f2", "d", "D") if tiles is None else ("i1", "d"):
        x, mask = sample(dtype), sample("?", seed=5)
        for options in SIGNATURES[name]:
            if dtype == "D" and "dtype" in options:
                continue  # numpy leaves out the imaginary part here, and there not
            reference = lambda a: getattr(np, name)(a, **options)
            for way in (
                reference,
                lambda a: getattr(dx, name)(a, **options),
                lambda a: getattr(a, name)(**options),
            ):
                assert_as_numpy(f"{name}, {dtype}, {options}", way, x, reference=reference)
            if name in MASKED:
                chosen = options | ({"initial": 1} if name in ("max", "min") else {})
                reference = lambda a, m: getattr(np, name)(a, where=m, **chosen)
                for way in (reference, lambda a, m: getattr(a, name)(where=m, **chosen)):
                    assert_as_numpy(f"{name}, {dtype}, {options}, where", way, x, mask, reference=reference)


OTHERS: dict[str, Call] = {
    "ptp": lambda x, m: np.ptp(x, 0, None, True),
    "ptp, out": lambda x, m: np.ptp(x, axis=0, out=x[0]),
    "count_nonzero": lambda x, m: np.count_nonzero(m, axis=0, keepdims=True),
    "average": lambda x, m: np.average(x, axis=0, weights=np.arange(1, 8), returned=True, keepdims=True),
    "cumulative_sum": lambda x, m: np.cumulative_sum(x, axis=1, include_initial=True),
    "cumulative_prod": lambda x, m: np.cumulative_prod(x, axis=0, dtype="f4", include_initial=True),
    "cumulative_sum, out": lambda x, m: np.cumulative_sum(x, axis=0, out=x),
    "sum, out": lambda x, m: (np.sum(x, axis=0, out=x[0]), x),
    "mean, out of integers": lambda x, m: np.mean(x, axis=0, out=x[0].astype("i4")),
    "var, mean": lambda x, m: np.var(x, axis=0, mean=x.mean(axis=0, keepdims=True)),
    "std, mean, where": lambda x, m: np.std(x, axis=1, mean=x.mean(axis=1, keepdims=True), where=m, ddof=1),
    "var, two corrections": lambda x, m: np.var(x, ddof=1, correction=1),
    "mean of dates": lambda x, m: np.mean(x.astype("m8[s]"), axis=0, where=x > -9),
    "max of nothing": lambda x, m: np.max(x[:0], axis=0),
    "max of nothing, initial": lambda x, m: np.max(x[:0], axis=0, initial=3),
    "sum of nothing": lambda x, m: np.sum(x[:0], axis=0, where=m[:0]),
    "argmax of nothing": lambda x, m: np.argmax(x[:0], axis=0),
}  # fmt: skip

NAN = ("nansum", "nanprod", "nanmax", "nanmin", "nanmean", "nanvar", "nanstd")


@pytest.mark.parametrize("call", OTHERS.values(), ids=OTHERS)
def test_other_reduction_is_numpys(call: Call, tiles: int | None) -> None:
    assert_as_numpy("reduction", call, sample("d"), sample("?", seed=5))


@pytest.mark.parametrize("name", NAN)
def test_reduction_without_nan_is_numpys(name: str, tiles: int | None) -> None:
    starts = {"initial": 0.5} if name in ("nanmax", "nanmin") else {}
    for dtype in ("i", "f", "d", "D") if tiles is None else ("d",):
        x, mask = sample(dtype), sample("?", seed=5)
        if x.dtype.kind in "fc":
            x[::2, 1:3], x[:, 4] = np.nan, np.nan
        for options in ({}, {"axis": 0}, {"axis": (0, 1), "keepdims": True}):
            assert_as_numpy(f"{name}, {dtype}", lambda a: getattr(np, name)(a, **options), x)
            assert_as_numpy(
                f"{name}, {dtype}, where",
                lambda a, m: getattr(np, name)(a, where=m, **options, **starts),
                x,
                mask,
            )
        if name in ("nanvar", "nanstd"):
            assert_as_numpy(f"{name}, {dtype}, ddof", lambda a: getattr(np, name)(a, axis=1, ddof=2), x)
            assert_as_numpy(f"{name}, {dtype}, correction", lambda a: getattr(np, name)(a, axis=0, correction=1), x)


# ----------------------------------------------------------------------------------------------------- operators

OPERATORS: dict[str, Call] = {
    "list on the right": lambda x, y: x[0] + [1, 2, 3, 4, 5],
    "list on the left": lambda x, y: [1, 2, 3, 4, 5] * x[0],
    "array on the left": lambda x, y: np.arange(5) - x,
    "number of numpy on the left": lambda x, y: np.float32(2) / x,
    "divmod": lambda x, y: divmod(x, y),
    "divmod of a number": lambda x, y: divmod(7, y),
    "pow, three arguments": lambda x, y: pow(x, 2, 3),
    "abs": lambda x, y: abs(x),
    "round": lambda x, y: round(x),
    "in place, matmul": lambda x, y: x.__imatmul__(np.eye(5)),
    "in place, matmul of another shape": lambda x, y: x.__imatmul__(np.ones((5, 2))),
    "in place, cast": lambda x, y: x.astype("i4").__iadd__(y),
    "in place, small cast": lambda x, y: x.astype("f4").__iadd__(y),
    "in place, bits of floats": lambda x, y: x.__iand__(1),
    "in place, larger": lambda x, y: x[0].__iadd__(y),
    "in place, subtract of booleans": lambda x, y: (x > 0).__isub__(True),
    "in place, overflow": lambda x, y: x.astype("u1").__iadd__(300),
    "text": lambda x, y: x + "a",
    "None": lambda x, y: x + None,
    "comparison of text": lambda x, y: x == "a",
    "order of text": lambda x, y: x < "a",
    "shift": lambda x, y: (x.astype("i4") << 2) >> 1,
    "negative of booleans": lambda x, y: -(x > 0),
}  # fmt: skip


@pytest.mark.parametrize("call", OPERATORS.values(), ids=OPERATORS)
def test_operator_is_numpys(call: Call, tiles: int | None) -> None:
    assert_as_numpy("operator", call, sample("d"), sample("d", seed=1))


# ------------------------------------------------------------------------------------------------ what is our own


def test_where_without_out_computes_nothing_that_would_warn() -> None:
    x, y = sample("d"), sample("d", seed=1)
    y[y < 0] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = np.divide(dx.asarray(x), dx.asarray(y), where=y > 0)
        logarithm = np.log(dx.asarray(y), out=dx.zeros((7, 5)), where=y > 0)
        np.testing.assert_array_equal(made.compute()[y > 0], (x[y > 0] / y[y > 0]))
        np.testing.assert_array_equal(logarithm.compute(), np.log(y, out=np.zeros((7, 5)), where=y > 0))


def test_an_out_that_does_not_fit_leaves_the_others_alone() -> None:
    x, fits, wrong = dx.ones((2, 3)), dx.zeros((2, 3)), dx.zeros((4, 3))
    with pytest.raises(ValueError, match="shape"):
        np.modf(x, out=(fits, wrong))
    assert not fits.any()


def test_host_data_is_taken_to_where_the_array_lives() -> None:
    rows, keep = sample("d"), [True, False, True, True, False]
    x = dx.asarray(rows, team=dx.Team((2,), ("T",)))
    for call in (
        lambda a: np.sum(a, where=keep),
        lambda a: a.mean(axis=1, where=keep),
        lambda a: a.var(where=np.array(keep), mean=np.zeros((1, 1))),
        lambda a: np.subtract.reduce(a, where=keep, initial=0),
        lambda a: np.matmul(np.ones((5, 7)), a, axes=[(0, 1), (0, 1), (1, 0)]),
        lambda a: np.add(1, 2, out=a, where=keep),
        lambda a: np.add.outer([1, 2], a),
    ):
        made = call(x)
        assert made.team is x.team
        np.testing.assert_allclose(made.compute(), call(rows), rtol=1e-12)


def test_a_ufunc_of_python_functions_names_the_way_out() -> None:
    function = np.frompyfunc(lambda a: a + 1, 1, 1)
    with pytest.raises(TypeError, match=r"distarray|dx\."):
        function(dx.ones(3))


def test_another_type_that_knows_ufuncs_goes_first() -> None:
    class Quantity:
        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> str:
            return f"theirs, {method}"

    x = dx.ones((2, 2))
    assert np.add(x, Quantity()) == "theirs, __call__"
    assert np.add.outer(x, Quantity()) == "theirs, outer"
    assert x * Quantity() == "theirs, __call__"


@settings(max_examples=40)
@given(
    values=st.lists(st.integers(-5, 5), min_size=1, max_size=12),
    index=st.lists(st.integers(0, 11), max_size=6),
    name=st.sampled_from(["add", "maximum", "bitwise_xor", "gcd", "subtract"]),
    parts=st.sampled_from([1, 3]),
)
def test_segments_and_scans_of_any_cut_are_numpys(values: list[int], index: list[int], name: str, parts: int) -> None:
    x, at = np.array(values), [i % len(values) for i in index]
    ufunc = UFUNCS[name]
    with force_tiles(parts):
        assert_as_numpy(name, lambda a: ufunc.reduceat(a, np.array(at, int)), x)
        assert_as_numpy(name, ufunc.accumulate, x)


def test_scan_of_a_cut_axis_moves_one_row_per_tile_only() -> None:
    rows = sample("d", (3000,))
    with force_tiles(3), dx.testing.counting() as c:
        y = np.maximum.accumulate(dx.asarray(rows)).persist()
        assert y.sharding.parts == (3,)
    assert c.bytes_moved < rows.nbytes // 100
    np.testing.assert_array_equal(y.compute(), np.maximum.accumulate(rows))


@pytest.mark.cluster
def test_methods_of_ufuncs_on_a_cluster_are_numpys(cluster4: Any) -> None:
    rows, at = sample("d", (37,)), np.array([0, 9, 30, 4])

    def update(x: Any) -> Any:
        np.multiply.at(x, at, 2)
        return x

    for call in (
        np.maximum.accumulate,
        np.subtract.accumulate,
        np.hypot.reduce,
        lambda x: np.add.reduceat(x, at),
        lambda x: np.sum(x, where=x > 0, initial=1),
        update,
    ):
        team = dx.Team((4,), ("T",))
        made = call(dx.asarray(rows, team=team, sharding=("T",)))
        np.testing.assert_allclose(made.compute(), call(rows.copy()), rtol=1e-12)
