"""Calls at the edge of what numpy takes, each with numpy's value and dtype, or its kind of error."""

import pickle
import warnings
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import pytest

import distarray as dx
from distarray.testing import force_tiles

SPANS = np.array([1, 2, 3], "m8[s]")
DATES = np.array(["2020-01-01", "2020-01-03"], "M8[D]")


def _set(x, index, value):
    x[index] = value
    return x


def _set_flat(x, index, value):
    x.flat[index] = value
    return x


class Index(NamedTuple):
    """An index of rows and columns."""

    rows: Any
    columns: Any


def _subtracted(x, y):
    x[:0] -= y
    return x


class OfNumpy:
    """An array of one number for numpy, and no number for Python."""

    def __array__(self, dtype=None, copy=None):
        return np.array(3.7, dtype)


def _endless():
    endless = [1.0]
    endless.append(endless)
    return endless


def _masked(x, value):
    x[x == x] = value
    return x


CALLS = {
    # nested lists have no more axes than what they are written to
    "deeper than a slice": lambda xp, a: _set(a(np.zeros(5)), slice(2, 4), [[1, 2]]),
    "deeper than a row": lambda xp, a: _set(a(np.zeros((5, 5))), 2, [[[1]]]),
    "complex and deeper": lambda xp, a: _set(a(np.zeros(5, bool)), slice(2, 4), [[1j]]),
    "an array may be deeper": lambda xp, a: _set(a(np.zeros(5)), slice(2, 4), np.array([[[1, 2]]])),
    "at positions": lambda xp, a: _set(a(np.zeros(5)), [2, 3], [[1, 2]]),
    "what has an array, at positions": lambda xp, a: _set(a(np.zeros(3)), [0, 1], OfNumpy()),
    "what has an array, in a slice": lambda xp, a: _set(a(np.zeros(3)), slice(2), OfNumpy()),
    "mask of a number": lambda xp, a: _masked(a(np.array(3)), [[1]]),
    "mask of a number, flat": lambda xp, a: _masked(a(np.array(3)), [1]),
    # a single date is no number, an array of one is, as at integer arrays
    **{
        f"{date!r} in {dtype} at {index}": (
            lambda xp, a, date=date, dtype=dtype, index=index: _set(a(np.zeros(3, dtype)), index, date)
        )
        for date in (np.datetime64("2021"), np.timedelta64(3, "s"), *(np.array(y, "M8[Y]") for y in ("2021", ["2021"])))
        for dtype in ("i8", "f8", "?", "c16", "m8[ms]", "M8[D]")
        for index in (0, slice(2), ..., [0, 1])
    },
    # a number has the axis that it would have, and no other
    "argpartition of a number": lambda xp, a: xp.argpartition(a(3.0), 0, axis=0),
    "argpartition of a number, axis 1": lambda xp, a: xp.argpartition(a(3.0), 0, axis=1),
    "packbits of a number": lambda xp, a: xp.packbits(a(np.uint8(1)), axis=0),
    "packbits of a number, axis 1": lambda xp, a: xp.packbits(a(np.uint8(1)), axis=1),
    # time spans stay time spans
    "cumsum of spans": lambda xp, a: xp.cumsum(a(SPANS), dtype="m8[s]"),
    "cumsum of spans as others": lambda xp, a: xp.cumsum(a(SPANS), dtype="m8[ms]"),
    "cumsum of spans as f8": lambda xp, a: xp.cumsum(a(SPANS), dtype="f8"),
    "cumprod of spans": lambda xp, a: xp.cumprod(a(SPANS), dtype="m8[s]"),
    "sum of spans as u1": lambda xp, a: xp.sum(a(SPANS), dtype="u1"),
    "sum of spans as f4": lambda xp, a: xp.sum(a(SPANS), dtype="f4"),
    "mean of spans as f4": lambda xp, a: xp.mean(a(SPANS), dtype="f4"),
    "sum of spans as others": lambda xp, a: xp.sum(a(SPANS), dtype="m8[ms]"),
    "sum of numbers as spans": lambda xp, a: xp.sum(a([1.5]), dtype="m8[s]"),
    "nansum of spans": lambda xp, a: xp.nansum(a(SPANS)),
    "norm of spans": lambda xp, a: xp.linalg.norm(a(SPANS)),
    "norm of dates": lambda xp, a: xp.linalg.norm(a(DATES)),
    "matrix norm of dates": lambda xp, a: xp.linalg.matrix_norm(a(DATES.reshape(1, 2))),
    "matrix norm of a vector": lambda xp, a: xp.linalg.matrix_norm(a([1.0, 2.0])),
    "interp at dates": lambda xp, a: xp.interp(a(DATES), a([1.0, 2.0]), a([1.0, 2.0])),
    "interp between dates": lambda xp, a: xp.interp(a([1.0]), a(DATES), a([1.0, 2.0])),
    "interp of dates": lambda xp, a: xp.interp(a([1.0]), a([1.0, 2.0]), a(DATES)),
    "interp at complex": lambda xp, a: xp.interp(a([1j]), a([1.0, 2.0]), a([1.0, 2.0])),
    "interp of complex": lambda xp, a: xp.interp(a([1.5]), a([1.0, 2.0]), a([1j, 2.0])),
    "interp of bools": lambda xp, a: xp.interp(a([True]), a([0, 2]), a([True, False])),
    "dates among numbers": lambda xp, a: xp.isin(a(DATES), a([1, 2])),
    "dates among spans": lambda xp, a: xp.isin(a(DATES), a(SPANS)),
    "dates not among spans": lambda xp, a: xp.isin(a(DATES), a(SPANS), invert=True),
    "spans among numbers": lambda xp, a: xp.isin(a(SPANS), a([1, 2])),
    # the axis of a number
    "argsort 0-d": lambda xp, a: xp.argsort(a(3.0), axis=0),
    "argsort 0-d, last": lambda xp, a: xp.argsort(a(3.0)),
    "argsort 0-d, axis 1": lambda xp, a: xp.argsort(a(3.0), axis=1),
    "sort 0-d": lambda xp, a: xp.sort(a(3.0), axis=0),
    "lexsort 0-d": lambda xp, a: xp.lexsort((a(3.0), a(2.0))),
    "lexsort 0-d, axis 1": lambda xp, a: xp.lexsort((a(3.0), a(2.0)), axis=1),
    "squeeze 0-d": lambda xp, a: xp.squeeze(a(3.0), axis=0),
    "squeeze 0-d, last": lambda xp, a: xp.squeeze(a(3.0), axis=-1),
    "squeeze 0-d, axis 1": lambda xp, a: xp.squeeze(a(3.0), axis=1),
    "take 0-d": lambda xp, a: xp.take(a(3.0), 0, axis=0),
    "take 0-d, axis 1": lambda xp, a: xp.take(a(3.0), 0, axis=1),
    "average 0-d": lambda xp, a: xp.average(a(3.0), axis=0, weights=a(2.0)),
    # positional parameters
    "searchsorted, side": lambda xp, a: xp.searchsorted(a([1, 2, 2, 3]), 2, "right"),
    "eye, k": lambda xp, a: xp.eye(3, 4, 1, "i4"),
    "tensordot, axes": lambda xp, a: xp.tensordot(a([[1.0, 2.0]]), a([[3.0], [4.0]]), 1),
    "isin, invert": lambda xp, a: xp.isin(a([1, 2]), a([2, 3]), False, True),
    "fft, n": lambda xp, a: xp.fft.fft(a([1.0, 2.0, 3.0]), 2),
    "fftn, s": lambda xp, a: xp.fft.fftn(a([[1.0, 2.0, 3.0]]), (1, 2), (0, 1)),
    "fftshift, axes": lambda xp, a: xp.fft.fftshift(a([[1.0, 2.0, 3.0]]), 1),
    "svd, full": lambda xp, a: xp.linalg.svd(a([[2.0, 0.0]]), False, False),
    "zeros_like, dtype": lambda xp, a: xp.zeros_like(a([1.0]), "i2"),
    "full_like, dtype": lambda xp, a: xp.full_like(a([1.0]), 7, "i2"),
} | {
    f"{name} along a list": lambda xp, a, name=name: getattr(xp, name)(a([[3, 1, 2]]), axis=[0])
    for name in (
        "sum", "max", "any", "all", "prod", "mean", "std", "count_nonzero", "ptp", "squeeze", "flip", "median",
        "average",
    )
} | {
    f"{name} along {axis}": lambda xp, a, name=name, axis=axis: getattr(xp, name)(a([3.0, 1.0, 2.0]), axis=axis)
    for name in ("sum", "max", "any", "mean", "average", "std", "argmax", "cumsum", "sort", "flip", "expand_dims")
    for axis in (True, False, np.True_)
} | {
    "take along False": lambda xp, a: xp.take(a([1.0]), [0], axis=False),
    "concatenate along False": lambda xp, a: xp.concatenate([a([1.0])], axis=False),
    # what is multiplied by a number that is not there
    "cross of 2 and 3": lambda xp, a: xp.cross(a([1.0, 2.0]), a([3.0, np.nan, 5.0])),
    "cross of 3 and 2": lambda xp, a: xp.cross(a([1.0, np.inf, 3.0]), a([3.0, 4.0])),
    "cross, axisc": lambda xp, a: xp.cross(a(np.arange(6.0).reshape(2, 3)), a(np.arange(4.0).reshape(2, 2)), axisc=0),
    # casts that lose something are refused, or numpy's
    "einsum, narrower": lambda xp, a: xp.einsum("ij->i", a(np.arange(12).reshape(3, 4) * 20), dtype="i1"),
    "einsum, wider": lambda xp, a: xp.einsum("ij->i", a(np.arange(12).reshape(3, 4)), dtype="f8"),
    "concatenate spans and dates": lambda xp, a: xp.concatenate([a(SPANS), a(DATES)]),
    "stack spans and dates": lambda xp, a: xp.stack([a(SPANS[:2]), a(DATES)]),
    "histogram of spans in numbers": lambda xp, a: xp.histogram(a(SPANS), bins=2, range=(0, 5))[0],
    "full of what does not fit": lambda xp, a: xp.full(2, 1e10, dtype="i4"),
    "full of nan": lambda xp, a: xp.full(2, np.nan, dtype="i4"),
    "full of a large integer": lambda xp, a: xp.full(2, 300, dtype="i1"),
    "full_like of what does not fit": lambda xp, a: xp.full_like(a(np.zeros(2, "i4")), 1e10),
    "sums of spans along an axis": lambda xp, a: xp.apply_along_axis(
        xp.sum, 0, a(np.arange(6).astype("m8[h]").reshape(3, 2))
    ),
    "histogramdd without axes": lambda xp, a: xp.histogramdd(a(np.zeros((5, 0))), bins=3)[0],
    "quantile of nothing": lambda xp, a: xp.quantile(a(np.zeros(0, bool)), 0.3),
    "nanpercentile of no complex numbers": lambda xp, a: xp.nanpercentile(a(np.zeros((5, 0), complex)), 40, axis=1),
    "item with too many": lambda xp, a: a(np.ones((3, 2))).item(1, 2, 3),
    "nanargmin of a number": lambda xp, a: xp.nanargmin(a(3.0), axis=0),
    "bincount of an empty list": lambda xp, a: xp.bincount([]),
    "bincount of nothing, weighted": lambda xp, a: xp.bincount(a(np.zeros(0, "i8")), a(np.zeros(0)), 3),
    # ends of a vector by integers, and no quantile at all
    **{
        f"{name} {q} by {method}": lambda xp, a, name=name, q=q, method=method: getattr(xp, name)(
            a(np.array([4, -3, -4, -3, 5.0])), q, method=method
        )
        for name in ("quantile", "nanquantile")
        for q in (0, 1, [], [0, 1])
        for method in ("weibull", "averaged_inverted_cdf", "interpolated_inverted_cdf", "lower", "linear")
    },
    "no quantile of nothing": lambda xp, a: xp.quantile(a(np.zeros((2, 0, 3), "u1")), [], axis=1, method="lower"),
    "no weighted quantile": lambda xp, a: xp.quantile(
        a(np.ones((3, 4))), [], axis=0, keepdims=True, method="inverted_cdf", weights=a(np.ones((3, 4)))
    ),
    # of an update that is wrong twice, numpy says that the result does not cast
    "update that neither casts nor fits": lambda xp, a: _subtracted(a(np.ones((4, 5), "i4")), a(np.ones((4, 5)))),
    "bincount of no floats": lambda xp, a: xp.bincount(a(np.zeros(0))),
    **{
        f"write at {index}": lambda xp, a, index=index: _set(a(np.zeros((2, 4, 2))), index, [5, 6])
        for index in (
            np.array(1), (np.array(1), 2), (..., np.array(1), slice(None)), (np.array(0), None), np.array(True),
            (np.array(0), np.array(1), np.array(1)),
        )
    },
    # of numbers numpy's scalars tell more than its arrays
    **{
        f"{name} of a {x.dtype}": lambda xp, a, name=name, x=x: getattr(a(x).max(), name)()
        for x in (np.array([1.5, 2.25]), np.array([3, 7]), np.array([2.5], "f2"), np.array([3], "u1"))
        for name in ("is_integer", "as_integer_ratio", "hex", "bit_count")
        if hasattr(x.dtype.type, name)
    },
    "numerator": lambda xp, a: a([3, 7]).max().numerator,
    "denominator": lambda xp, a: a([3, 7]).max().denominator,
    "integers of time": lambda xp, a: a(SPANS).max().is_integer(),
    # the method takes what the function takes
    "clip, unsafe": lambda xp, a: a([1, 2, 3]).clip(1.5, 2.5, a([0, 0, 0]), casting="unsafe"),
    "clip, cast": lambda xp, a: a([1, 2, 3]).clip(1.5, 2.5, a([0, 0, 0])),
    "clip, dtype": lambda xp, a: a([1, 2, 3]).clip(2, dtype="f4"),
    "clip, where": lambda xp, a: a([1, 2, 3]).clip(2, out=a([7, 7, 7]), where=[True, False, True]),
    "clip, no such option": lambda xp, a: a([1, 2, 3]).clip(2, bogus=1),
    # a cast that keeps every value, or says so
    **{
        f"{values} as {dtype}, same value": lambda xp, a, values=values, dtype=dtype: a(values).astype(
            dtype, casting="same_value"
        )
        for values, dtype in (
            ([1.0, 2.5], "i8"), ([1.0, 2.0], "i8"), ([np.nan, 1.0], "f4"), ([np.nan, 1.0], "i4"), ([1e300], "f4"),
            ([1 + 0j], "f8"), ([1 + 1j], "f8"), ([-1], "u8"), ([2**53 + 1], "f8"), ([300], "u1"), ([0, 7], "?"),
            (DATES, "M8[s]"), (DATES, "M8[D]"), ([[1, 2], [3, 4]], "f2"),
        )
        if np.lib.NumpyVersion(np.__version__) >= "2.4.0"
    },
    # tolerances that are none
    **{
        f"{name} within {tolerances}": lambda xp, a, name=name, tolerances=tolerances: getattr(xp, name)(
            a([1.0, np.inf]), a([1.0, 2.0]), *tolerances
        )
        for name in ("isclose", "allclose")
        for tolerances in (
            (np.inf,), (0.1, np.nan), (np.float32("inf"), 1), (0, 1), (-np.inf, np.inf), (np.array([1, np.nan]), 0)
        )
    },
    # modes by number, as numpy's old callers have them
    **{
        f"{name} by {mode!r}": lambda xp, a, name=name, mode=mode: getattr(xp, name)(a([1.0, 2, 3]), a([1, 0.5]), mode)
        for name in ("convolve", "correlate")
        for mode in (0, 1, 2, 3, -1, np.int64(1), "v", None, 1.5)
    },
    # ranges that a float cannot count
    **{
        f"arange{bounds}": lambda xp, a, bounds=bounds: xp.arange(*bounds)
        for bounds in (
            (0, 1, np.inf), (0, 1, -np.inf), (0, -1, -np.inf), (0, -1, np.inf), (0, 0, np.inf), (0, np.inf),
            (0, -np.inf), (0, np.nan), (0, 2e-16, 1e308), (0, 1, 1e300),
        )
    },
    # the unit is that of the values where the dtype has none
    **{
        f"arange of {bounds} as {dtype}": lambda xp, a, bounds=bounds, dtype=dtype: xp.arange(*bounds, dtype=dtype)
        for dtype, *bounds in (
            ("M8", "1969-05", "1970-05", 2), ("M8", "2020-01-01", 5), ("M8", np.datetime64("2020-01"), "2020-01-05"),
            ("M8", "2020-01-01", 5, np.timedelta64(12, "h")), ("m8", np.timedelta64(3, "s"), 10, 2), ("m8", 3, 10),
            ("m8", np.timedelta64(3, "h")), ("M8", 3, 10),
        )
    },
    # a number that does not fit is no other number
    "r_, too large": lambda xp, a: xp.r_[a(np.arange(3, dtype="i1")), 255],
    "r_, negative": lambda xp, a: xp.r_[a(np.arange(3, dtype="u1")), -1],
    "r_, fitting": lambda xp, a: xp.r_[a(np.arange(3, dtype="i1")), 25, True],
    "broadcast of too many": lambda xp, a: xp.broadcast(*[a([1])] * 65).shape,
    "broadcast of many": lambda xp, a: xp.broadcast(*[a([1])] * 64).shape,
    "signature of no text": lambda xp, a: xp.add(a([1]), 1, signature=b"\xff\xff->i"),
    # lists of labels
    **{
        f"einsum by {labels!r}": lambda xp, a, labels=labels: xp.einsum(a(np.arange(9.0).reshape(3, 3)), *labels)
        for labels in (
            (np.array([0, 0]),), (np.array([0, 1]), np.array([1])), (range(2), [1, 0]), (np.array([0.5, 1]),), ("ij",),
        )
    },
    # truth values are no extents, and no axes among others
    "reshape to True": lambda xp, a: xp.reshape(a([[1]]), (True, -1)),
    "zeros of True": lambda xp, a: xp.zeros((True, 2)),
    "broadcast to True": lambda xp, a: xp.broadcast_to(a([1, 2]), (True, 2)),
    "resize to True": lambda xp, a: xp.resize(a([1, 2]), (True, 2)),
    "transpose by truth values": lambda xp, a: a(np.ones((2, 3))).transpose(True, False),
    "item at True": lambda xp, a: a([1, 2]).item(True),
    "repeat along True": lambda xp, a: xp.repeat(a(np.ones((2, 2))), 2, True),
    **{
        f"{name} along (True,)": lambda xp, a, name=name: getattr(xp, name)(a(np.ones((2, 1))), axis=(True,))
        for name in ("sum", "std", "count_nonzero", "squeeze", "flip", "expand_dims")
    },
    # what a flat iterator takes
    **{
        f"flat at {index!r}": lambda xp, a, index=index: a(np.arange(9).reshape(3, 3)).flat[index]
        for index in (None, (None, 1), np.True_, [True, True], [True, 1], (1,), (), ..., [])
    },
    **{
        f"written flat at {index!r}": lambda xp, a, index=index: _set_flat(a(np.arange(9).reshape(3, 3)), index, 5)
        for index in (None, np.True_, [True, True], [True, 1], (1,), (), ..., [])
    },
    "argpartition at no place": lambda xp, a: xp.argpartition(a(-np.arange(12).reshape(3, 4)), np.zeros(0, int), 0),
    "partition at no place": lambda xp, a: xp.partition(a([3, 1, 2]), np.zeros(0, int)),
    "partition at True": lambda xp, a: xp.partition(a([3, 1, 2]), True),
    "choose of several": lambda xp, a: a([0, 1]).choose(a([1, 2]), a([4, 5])),
    "choose of one sequence": lambda xp, a: a([0, 1]).choose([[1, 2], [4, 5]], mode="clip"),
    "choose into": lambda xp, a: a([0, 1]).choose(a([[1, 2], [4, 5]]), out=a([7, 7])),
    "conj into": lambda xp, a: a([1j, 2.0]).conj(a([0j, 0j])),
    "conj of real numbers into": lambda xp, a: a([1.0, 2.0]).conjugate(a([0.0, 0.0])),
    "fortran flag": lambda xp, a: [a(np.ones((2, 3))).flags.fortran, a(np.ones((2, 3))).T.flags["FORTRAN"]],
    **{
        f"searchsorted by {sorter}": lambda xp, a, sorter=sorter: xp.searchsorted(
            a([3, 1, 2]), a(np.arange(5)), sorter=a(sorter)  # numpy looks at those that it meets
        )
        for sorter in ([1, 2, 0], [-1, 1, 2], [3, 1, 2], [1, 2, -9])
    },
    **{
        f"{name} of a list": lambda xp, a, name=name: getattr(xp, name)([1, 2], [0, 1], [5])
        for name in ("put", "place", "putmask")
    },
    "copyto a list": lambda xp, a: xp.copyto([1, 2], a([3, 4])),
    "index of a class of tuples": lambda xp, a: a(np.arange(9).reshape(3, 3))[Index([1, 2], [1, 0])],
    "write at a class of tuples": lambda xp, a: _set(a(np.arange(9).reshape(3, 3)), Index([1, 2], slice(1)), 9),
    # more axes than any array of numpy's has
    **{
        f"{name} of 65 axes": lambda xp, a, make=make: make(xp, a([1.0]), (1,) * 65)
        for name, make in {
            "reshape": lambda xp, x, shape: x.reshape(shape),
            "broadcast": lambda xp, x, shape: xp.broadcast_to(x, shape),
            "expand_dims": lambda xp, x, shape: xp.expand_dims(x, tuple(range(64))),
            "new axes": lambda xp, x, shape: x[(None,) * 64],
            "new axes at a mask": lambda xp, x, shape: x[(None,) * 64 + ([True],)],
            "a list": lambda xp, x, shape: x.reshape(shape[1:])[[[0]]],
            "stack": lambda xp, x, shape: xp.stack([x.reshape(shape[1:])] * 2),
            "outer": lambda xp, x, shape: xp.add.outer(x, x.reshape(shape[1:])),
            "kron": lambda xp, x, shape: xp.kron(x.reshape(shape[1:]), x.reshape(shape[1:])),
            "zeros": lambda xp, x, shape: xp.zeros(shape),
            "full_like": lambda xp, x, shape: xp.full_like(x, 1, shape=shape),
            "tile": lambda xp, x, shape: xp.tile(x, shape),
            "meshgrid": lambda xp, x, shape: xp.meshgrid(*[x] * 65)[0],
            "indices": lambda xp, x, shape: xp.indices(shape),
            "ndmin": lambda xp, x, shape: xp.array(x, ndmin=65),
        }.items()
    },
    # only -0.0 adds up to it
    **{
        f"{dtype} -0.0 and {other} summed with {options}": lambda xp, a, dtype=dtype, other=other, options=options: (
            xp.copysign(1, xp.add.reduce(a(np.array([[-0.0, -0.0], [-0.0, other]], dtype)), **options))
        )
        for dtype in ("f8", "f4", "f2")
        for other in (-0.0, 0.0, 3)
        for options in (
            {}, {"axis": None}, {"initial": -0.0}, {"initial": None}, {"initial": 0.0}, {"axis": None, "initial": -0.0},
            {"axis": None, "initial": None}, {"axis": (), "initial": -0.0}, {"axis": 1, "initial": None},
            {"initial": -0.0, "keepdims": True}, {"initial": -0.0, "where": [True, False]},
            {"initial": -0.0, "where": False},
        )
    },
    "no numbers summed with -0.0": lambda xp, a: xp.copysign(1, xp.sum(a(np.zeros((0, 2))), axis=0, initial=-0.0)),
    "integers summed with -0.0": lambda xp, a: xp.copysign(1, xp.sum(a([[0, 0]]), dtype="f8", axis=0, initial=-0.0)),
    # a list that holds itself has no end
    **{
        f"{name} of a list that holds itself": lambda xp, a, call=call: call(xp, a([1.0, 2.0]), _endless())
        for name, call in {
            "asarray": lambda xp, x, endless: xp.asarray(endless),
            "sum": lambda xp, x, endless: xp.sum(endless),
            "stack": lambda xp, x, endless: xp.stack(endless),
            "concatenate": lambda xp, x, endless: xp.concatenate(endless),
            "where": lambda xp, x, endless: xp.where(endless, x, x),
            "einsum": lambda xp, x, endless: xp.einsum("i", endless),
            "index": lambda xp, x, endless: x[endless],
            "write": lambda xp, x, endless: _set(x, slice(None), endless),
        }.items()
    },
    **{
        f"clip between {limits}": lambda xp, a, limits=limits: xp.clip(a([1.0, 2.0, 3.0, 4.0]), **limits)
        for limits in (
            {"a_min": 1, "a_max": 3, "min": 2, "max": 3}, {"min": 2}, {"a_min": 2, "a_max": 3}, {"min": 2, "max": 3},
        )
    },
    **{
        f"arange by names, {bounds}": lambda xp, a, bounds=bounds: xp.arange(**bounds)
        for bounds in (
            {"stop": 3}, {"start": 3, "stop": 9}, {"stop": 9, "step": 3}, {"stop": 3, "dtype": "f4"}, {},
            {"start": 9, "stop": 3, "step": -2}, {"step": 2}, {"stop": np.timedelta64(3, "s")},
            {"stop": "2020-01-01", "dtype": "M8[D]"},
        )
    },
    "64 axes": lambda xp, a: xp.expand_dims(a([1.0]), tuple(range(63)))[..., None][0],
}  # fmt: skip

if np.lib.NumpyVersion(np.__version__) >= "2.4.0":
    CALLS |= {
        "no more axes than ndmax": lambda xp, a: xp.array(a([[1, 2]]), ndmax=2),
        "an array of more axes than ndmax": lambda xp, a: xp.array(a([[1, 2]]), ndmax=1),
        "a list of more axes than ndmax": lambda xp, a: xp.array([a([1, 2])], ndmax=1),
        "more axes in ndmin than in ndmax": lambda xp, a: xp.array(a([1, 2]), ndmin=3, ndmax=2),
        "ndmin that no array has": lambda xp, a: xp.array(a([1, 2]), ndmin=65),
        "negative ndmax": lambda xp, a: xp.array([1, 2], ndmax=-1),
    }


@pytest.mark.parametrize("n_tiles", [1, 3])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_edge_call(call, n_tiles):
    with force_tiles(n_tiles) if n_tiles > 1 else nullcontext():
        _compare(call)


def _compare(call):
    with warnings.catch_warnings(record=True) as expected_warnings:
        warnings.simplefilter("always")
        try:
            expected = np.asarray(call(np, np.array))
        except (TypeError, ValueError, IndexError, OverflowError) as error:
            kinds = [kind for kind in type(error).__mro__ if kind.__module__ == "builtins"]
            with pytest.raises(kinds[0]):
                np.asarray(call(dx, lambda values: dx.asarray(np.array(values))))
            return
    with warnings.catch_warnings(record=True) as found_warnings:
        warnings.simplefilter("always")
        found = np.asarray(call(dx, lambda values: dx.asarray(np.array(values))))
    # NumPy 2.5 says of time spans without a unit that they will go.
    categories, found_categories = [
        {w.category for w in given if not str(w.message).startswith("The 'generic' unit")}
        for given in (expected_warnings, found_warnings)
    ]
    assert found_categories == categories
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-12) if expected.dtype.kind in "fc" else (
        np.testing.assert_array_equal(found, expected)
    )


@pytest.mark.parametrize(("shape", "axis"), [((0,), None), ((0, 3), 0), ((2, 0), 1)])
def test_the_median_of_nothing_warns_once(shape, axis):
    told = []
    for xp in (np, dx):
        with warnings.catch_warnings(record=True) as met:
            warnings.simplefilter("always")
            np.asarray(xp.median(xp.asarray(np.zeros(shape)), axis=axis))
        told.append([w for w in map(str, [w.message for w in met]) if "empty" in w])
    assert told[0] == told[1]


@pytest.mark.parametrize("name", ["index", "coords", "base"])
def test_what_a_flat_iterator_tells_is_not_set(name):
    for flat in (np.zeros(3).flat, dx.zeros(3).flat):
        next(flat)
        assert flat.index == 1
        with pytest.raises(AttributeError):
            setattr(flat, name, 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda xp: xp.asarray(np.array(71, "u8"))[None],
        lambda xp: xp.reshape(xp.asarray(np.array(71, "u8")), (1, 1))[0],
        lambda xp: xp.full((3,), 71, dtype="u8"),
        lambda xp: xp.asarray(np.array([71], "u8")),
    ],
    ids=["0-d with an axis", "0-d reshaped", "constant", "vector"],
)
def test_an_index_makes_a_number_of_everything(make):
    found = []
    for xp in (np, dx):
        x = make(xp)
        with pytest.warns(np.exceptions.ComplexWarning):
            x[-1] -= 2 - 1j
        number = x[-1]
        number -= 0.5
        found.append((np.asarray(x).tolist(), float(number), str(number.dtype)))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "diagonal", [lambda xp, a: xp.diag(a), lambda xp, a: xp.linalg.diagonal(a)], ids=["diag", "linalg"]
)
def test_diagonals_are_views_that_are_not_written(diagonal):
    for xp in (np, dx):
        a = xp.asarray(np.arange(9.0).reshape(3, 3))
        seen = diagonal(xp, a)
        a[1, 1] = 99
        np.testing.assert_array_equal(np.asarray(seen), [0, 99, 8])
        with pytest.raises(ValueError, match="read-only"):
            seen[0] = 1


@pytest.mark.parametrize("options", [{}, {"eager_bytes": 0}], ids=["at once", "later"])
def test_what_is_made_of_pickled_arrays_is_numpys(options):
    with dx.config.set(options):
        x = pickle.loads(pickle.dumps(dx.asarray(np.arange(6.0)) * 2))
        made = [x.copy(), dx.roll(x, 1), x.reshape(2, 3).copy(), dx.fft.ifft(dx.fft.fft(x)).real]
        h = np.arange(6.0) * 2
        for found, expected in zip(made, [h, np.roll(h, 1), h.reshape(2, 3), h], strict=True):
            np.testing.assert_allclose(np.asarray(found), expected, atol=1e-14)


def test_an_array_that_lies_elsewhere_is_no_number():
    """A number is replaced by ``y += 1``; an array is written."""
    y = dx.asarray(np.array(3.0)).reshard(())
    other = y
    y += 1
    assert float(other) == 4
