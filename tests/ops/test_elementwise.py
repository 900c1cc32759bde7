"""Elementwise functions: the table tests itself against numpy, on every dtype."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.expr.op import CATALOGUE
from distarray.ops import elementwise

DTYPES = "? b B h H i I l L e f d F D".split()
DATES = ["M8[D]", "m8[s]"]
OWN = {"astype", "clip", "frexp", "modf", "round", "where"}
#: numpy's name, where the operation has another
NUMPY = {"power": "power"}
MAPS = sorted(
    name
    for name, op in CATALOGUE.items()
    if op.kind == "map" and hasattr(elementwise, name) and hasattr(np, name) and name not in OWN
)
UNARY = [name for name in MAPS if name in ("real", "imag") or getattr(np, name).nin == 1]
BINARY = [name for name in MAPS if name not in UNARY]

ALIASES = """absolute arccos arccosh arcsin arcsinh arctan arctan2 arctanh bitwise_not conjugate degrees invert
left_shift mod power radians right_shift true_divide""".split()


def sample(dtype: str, seed: int = 0, n: int = 70) -> np.ndarray:
    """Values of every size and sign, with what is special to the dtype in front."""
    rng = np.random.default_rng(seed)
    d = np.dtype(dtype)
    if d.kind == "b":
        return rng.integers(0, 2, n).astype(d)
    if d.kind in "iu":
        info = np.iinfo(d)
        x = rng.integers(max(info.min, -20), 20, n).astype(d)
        x[:3] = [0, info.max, info.min]
        return x
    if d.kind in "mM":
        x = rng.integers(0, 1000, n).astype(d)
        x[0] = "NaT"
        return x
    x = rng.standard_normal(n) * 3
    x[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0]
    if d.kind == "c":
        z = x.astype(d)
        z.imag = rng.permutation(x)
        return z
    return x.astype(d)


def outcome(call):
    with np.errstate(all="ignore"):
        try:
            return call()
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            return type(error)


def compare(kit, ours, theirs):
    expected = outcome(theirs)
    if isinstance(expected, type):
        with pytest.raises((TypeError, ValueError, AttributeError)):
            ours()
        return
    if expected.dtype.kind not in "biufcmM" or expected.dtype.itemsize > 16:
        with pytest.raises(TypeError):
            ours()
        return
    with np.errstate(all="ignore"):
        kit.assert_same(ours(), expected)


@pytest.mark.parametrize("dtype", DTYPES + DATES)
@pytest.mark.parametrize("name", UNARY)
def test_unary_is_numpys(kit, name, dtype):
    x = sample(dtype)
    compare(kit, lambda: getattr(elementwise, name)(kit.node(x)), lambda: getattr(np, name)(x))


@pytest.mark.parametrize("dtype", DTYPES + DATES)
@pytest.mark.parametrize("name", BINARY)
def test_binary_is_numpys(kit, name, dtype):
    x, y = sample(dtype), sample(dtype, 1)
    if name in ("pow", "power") and x.dtype.kind in "iu":
        y = np.abs(y % 7).astype(y.dtype)
    if name in ("bitwise_left_shift", "bitwise_right_shift") and x.dtype.kind in "iu":
        y = np.abs(y % 7).astype(y.dtype)
    compare(kit, lambda: getattr(elementwise, name)(kit.node(x), kit.node(y)), lambda: getattr(np, name)(x, y))


@pytest.mark.parametrize("other", [*DTYPES, True, 3, 2.5, 1j])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["add", "divide", "less", "maximum"])
def test_promotion_is_numpys(kit, name, dtype, other):
    """B-8: mixed dtypes and weak Python scalars."""
    x = sample(dtype)
    y = sample(other, 1) if isinstance(other, str) else other
    boxed = kit.node(y) if isinstance(other, str) else y
    compare(kit, lambda: getattr(elementwise, name)(kit.node(x), boxed), lambda: getattr(np, name)(x, y))
    compare(kit, lambda: getattr(elementwise, name)(boxed, kit.node(x)), lambda: getattr(np, name)(y, x))


@pytest.mark.parametrize(("a", "b"), [((3, 1), (4,)), ((), (2, 3)), ((0, 1), (1, 5)), ((1,), ()), ((2, 1, 3), (4, 1))])
def test_operands_broadcast(kit, a, b):
    x, y = np.arange(np.prod(a), dtype=float).reshape(a), np.arange(np.prod(b)).reshape(b) + 1
    kit.assert_same(elementwise.subtract(kit.node(x), kit.node(y)), np.subtract(x, y))


def test_operands_that_do_not_broadcast_are_an_error_at_the_call(kit):
    x, y = np.ones((2, 3)), np.ones((2,))
    kit.assert_same_error(lambda: elementwise.add(kit.node(x), kit.node(y)), lambda: np.add(x, y))


def test_host_data_is_a_literal(kit):
    x = np.arange(3.0)
    kit.assert_same(elementwise.add(kit.node(x), [1, 2, 3]), x + [1, 2, 3])
    kit.assert_same(elementwise.add(np.float32(2), kit.node(x)), np.float32(2) + x)


def test_integer_that_does_not_fit_is_an_error_at_the_call(kit):
    x = np.ones(2, np.uint8)
    kit.assert_same_error(lambda: elementwise.add(kit.node(x), 300), lambda: np.add(x, 300))


@pytest.mark.parametrize("alias", ALIASES)
def test_alias_is_the_standards_function(alias):
    standard = getattr(elementwise, alias)
    numpys, x = getattr(np, alias), np.ones(1)
    if standard.__name__ in ("deg2rad", "rad2deg"):  # two ufuncs of numpy with the same loop
        assert numpys(x) == getattr(np, standard.__name__)(x)
    else:
        assert numpys is getattr(np, standard.__name__)


def test_integer_power_by_negative_scalar_raises_at_the_call(kit):
    x = np.arange(1, 4)
    kit.assert_same_error(lambda: elementwise.pow(kit.node(x), -1), lambda: x**-1)
    kit.assert_same(elementwise.pow(kit.node(x), 2), x**2)
    kit.assert_same(elementwise.pow(2, kit.node(x.astype("u8"))), 2 ** x.astype("u8"))


def test_integer_power_that_may_fail_says_so(kit):
    x, y = np.arange(1, 4), np.array([1, 2, -1])
    powered = elementwise.pow(kit.node(x), kit.node(y))
    assert powered.op.may_raise
    kit.assert_same_error(lambda: kit.evaluate(powered), lambda: x**y)
    assert not elementwise.pow(kit.node(x), 2.0).op.may_raise


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("low", "high"), [(None, None), (1, None), (None, 4), (1, 4), (0.5, 2.5)])
def test_clip(kit, dtype, low, high):
    x = sample(dtype)
    if x.dtype.kind == "b":
        x = x.astype(np.int8)
    compare(kit, lambda: elementwise.clip(kit.node(x), low, high), lambda: np.clip(x, low, high))


def test_clip_by_arrays_broadcasts(kit):
    x, low = np.arange(12.0).reshape(3, 4), np.array([2, 3, 4, 5])
    kit.assert_same(elementwise.clip(kit.node(x), kit.node(low)), np.clip(x, low, None))
    kit.assert_same(elementwise.clip(kit.node(x), min=low, max=kit.node(low + 2)), np.clip(x, low, low + 2))


@pytest.mark.parametrize("decimals", [0, 2, -1])
@pytest.mark.parametrize("dtype", ["i", "l", "f", "d", "D"])
def test_round(kit, dtype, decimals):
    x = sample(dtype)
    compare(kit, lambda: elementwise.round(kit.node(x), decimals), lambda: np.round(x, decimals))


@pytest.mark.parametrize("new", DTYPES)
@pytest.mark.parametrize("old", DTYPES)
def test_astype(kit, old, new):
    x = sample(old)
    x[~np.isfinite(x)] = 3
    if x.dtype.kind in "iu" and new == "e":
        x = (x % 100).astype(old)  # what fits: numpy warns of the rest
    x = abs(x) if np.dtype(new).kind in "bu" and x.dtype.kind == "f" else x
    if x.dtype.kind == "c" and np.dtype(new).kind == "u":
        x = (abs(x) + 1j).astype(old)
    if np.dtype(old).kind == "c" and np.dtype(new).kind not in "cb":
        with pytest.warns(np.exceptions.ComplexWarning):
            cast = elementwise.astype(kit.node(x), new)
        kit.assert_same(cast, x.real.astype(new))
    else:
        kit.assert_same(elementwise.astype(kit.node(x), new), x.astype(new))


def test_astype_without_copy_is_the_same_array_b35(kit):
    """B-35"""
    x = kit.node(np.arange(3.0))
    assert elementwise.astype(x, "f8", copy=False) is x


@pytest.mark.parametrize("a", [*DTYPES, 1, 2.5])
@pytest.mark.parametrize("b", ["b", "f", "D", True, 1.5])
def test_where(kit, a, b):
    c = sample("?")
    x = sample(a) if isinstance(a, str) else a
    y = sample(b, 1) if isinstance(b, str) else b
    args = [kit.node(v) if isinstance(v, np.ndarray) else v for v in (c, x, y)]
    compare(kit, lambda: elementwise.where(*args), lambda: np.where(c, x, y))


@pytest.mark.parametrize("name", ["modf", "frexp"])
@pytest.mark.parametrize("dtype", ["e", "f", "d"])
def test_two_results(kit, name, dtype):
    x = sample(dtype)
    x = x[np.isfinite(x)]
    kit.assert_same(getattr(elementwise, name)(kit.node(x)), getattr(np, name)(x))


def test_divmod(kit):
    x, y = sample("d"), sample("d", 1)
    with np.errstate(all="ignore"):
        kit.assert_same(elementwise.divmod(kit.node(x), kit.node(y)), np.divmod(x, y))


@pytest.mark.parametrize("dtype", ["i", "f", "d", "F", "D"])
@pytest.mark.parametrize("name", ["isreal", "iscomplex", "angle", "sinc", "nan_to_num"])
def test_composition_is_numpys(kit, name, dtype):
    x = sample(dtype)
    x = x if name != "sinc" else x[np.isfinite(x)]
    with np.errstate(all="ignore"):
        ours, theirs = getattr(elementwise, name)(kit.node(x)), getattr(np, name)(x)
        kit.assert_same(ours, theirs, rtol=1e-6 if dtype in "fF" else 1e-14, atol=1e-30)


@pytest.mark.parametrize("name", ["isposinf", "isneginf"])
def test_infinities_by_sign(kit, name):
    x = sample("d")
    kit.assert_same(getattr(elementwise, name)(kit.node(x)), getattr(np, name)(x))
    z = sample("D")
    kit.assert_same_error(lambda: getattr(elementwise, name)(kit.node(z)), lambda: getattr(np, name)(z))


def test_nan_to_num_takes_values(kit):
    x = sample("d")
    kit.assert_same(
        elementwise.nan_to_num(kit.node(x), nan=7, posinf=8, neginf=-9), np.nan_to_num(x, nan=7, posinf=8, neginf=-9)
    )


@pytest.mark.parametrize("equal_nan", [False, True])
@pytest.mark.parametrize("other", [np.nan, 1.0, 1 + 1e-9, np.inf, 0])
def test_isclose(kit, other, equal_nan):
    x = sample("d")
    for a, b in ((x, other), (other, x), (x, np.roll(x, 1)), (x, x * (1 + 1e-7))):
        boxed = [kit.node(v) if isinstance(v, np.ndarray) else v for v in (a, b)]
        with np.errstate(all="ignore"):
            kit.assert_same(elementwise.isclose(*boxed, equal_nan=equal_nan), np.isclose(a, b, equal_nan=equal_nan))


def test_isclose_of_infinities_is_no_invalid_value(kit):
    x = np.array([np.inf, 1.0])
    for y in (x, x[::-1].copy()):
        kit.assert_same(elementwise.isclose(kit.node(x), kit.node(y), rtol=0.0), np.isclose(x, y, rtol=0.0))


def test_isclose_of_integers_does_not_overflow(kit):
    x, y = np.array([-128, 127, 5], np.int8), np.array([127, 127, 5], np.int8)
    kit.assert_same(elementwise.isclose(kit.node(x), kit.node(y)), np.isclose(x, y))


def test_integer_operands_of_float_functions_promote_as_numpys(kit):
    for dtype in ("b", "h", "i"):
        assert elementwise.sin(kit.node(np.ones(2, dtype))).dtype == np.sin(np.ones(2, dtype)).dtype


@pytest.mark.parametrize("values", [[np.int8(1), np.int8(3)], [np.float32(1.5)], np.int8(2), [1, 2], 3])
@pytest.mark.parametrize(
    "call",
    [
        lambda xp, x: xp.maximum(x, 1),
        lambda xp, x: xp.multiply(2, x),
        lambda xp, x: xp.clip(x, 1, 4),
        lambda xp, x: xp.power(x, 2),
        lambda xp, x: xp.where([True], x, 2),
        lambda xp, x: xp.hypot(x, 1.5),
    ],
)
def test_python_numbers_are_weak_beside_host_data_too(call: Any, values: Any) -> None:
    expected = np.asarray(call(np, values))
    made = call(dx, values)
    assert made.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(made), expected)


@pytest.mark.parametrize("mode", ["ignore", "print", "warn"])
def test_tolerances_that_are_none_are_told_as_numpys_state_says(mode, kit, capsys):
    x = np.array([1.0, 2.0])
    with np.errstate(invalid="raise"), pytest.raises(FloatingPointError, match="atol: inf"):
        elementwise.isclose(kit.node(x), 1.0, atol=np.inf)
    for isclose, operand in ((np.isclose, x), (elementwise.isclose, kit.node(x))):
        with np.errstate(invalid=mode), nullcontext() if mode != "warn" else pytest.warns(RuntimeWarning, match="rtol"):
            isclose(operand, 1.0, rtol=np.nan)
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2 * (mode == "print") and len({*said}) <= 1
