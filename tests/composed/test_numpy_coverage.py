"""numpy's namespaces, walked: every function that dispatches is called and compared, or refuses and names the way out.

`CALLS` is the table: a row is a way of calling a function of numpy, under its name (before the comma). Each is called
on a numpy array and on a DistArray of several tiles; nothing of the size of the array may come to this process.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.composed.histograms import FEW_COUNTS
from distarray.composed.numpy_alternatives import ALTERNATIVES, NO_ARRAYS, OTHERS
from distarray.composed.numpy_protocol import implementation
from distarray.testing import force_tiles
from distarray.testing.assertions import assert_close

Call = Callable[[Any], Any]

#: Distinct elements of both signs, none of them zero.
X = np.random.default_rng(5).permutation(768).reshape(8, 6, 16) / 4 - 96.125
#: What a call may bring here: counts, extremes, corners; less than a mask of the array.
FETCHED_NBYTES = X.nbytes // 10
#: Calls that look at samples, whose number does not grow with the array: they may bring a third of so small a one.
WITH_SAMPLES = {"histogram, auto", "histogram_bin_edges", "histogram_bin_edges, auto", "intersect1d"}

MODULES: dict[str, ModuleType] = {"numpy": np, "numpy.linalg": np.linalg, "numpy.fft": np.fft}
DISPATCHED = type(np.sum)  # what numpy makes of a function that asks its arguments for __array_function__


def ints(x: Any) -> Any:
    return x.astype(np.int64)


def masked(x: Any) -> Any:
    """With nan in some places."""
    return np.where(x % 5 < 1, np.nan, x)


def regular(x: Any) -> Any:
    """A matrix that can be inverted."""
    return x[0, :, :6] + np.diag(np.full(6, 500.0))


def definite(x: Any) -> Any:
    """A symmetric positive definite matrix."""
    return x[0] @ x[0].T + np.diag(np.arange(1000.0, 1006.0))


def after(write: Callable[[Any], Any], x: Any) -> Any:
    """A copy of `x` that was written to."""
    y = np.copy(x)
    write(y)
    return y


def octets(x: Any) -> Any:
    return (ints(x) % 256).astype(np.uint8)


def printed(function: Call, x: Any) -> str:
    """The text of the corners of an array."""
    with np.printoptions(threshold=100, edgeitems=2):
        return function(x)


def saved(x: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.npy")
        np.save(path, x)
        return np.load(path)


def through_text(x: Any) -> Any:
    np.savetxt(stream := io.StringIO(), x, "%.17g")
    return np.loadtxt(io.StringIO(stream.getvalue()), like=x)


def archived(save: Call, x: Any) -> Any:
    save(stream := io.BytesIO(), x, b=x + 1)
    stream.seek(0)
    found = np.load(stream)
    return found["arr_0"], found["b"]


def from_numbers(x: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        x[0].tofile(path := os.path.join(folder, "x"))
        made = np.fromfile(path, dtype=x.dtype, like=x)
        return made.persist() if isinstance(made, dx.DistArray) else made


def ordered(x: Any) -> Any:
    return np.sort(x.ravel())


#: Functions of one float array, called on all of it.
PLAIN = """
    all amax amin angle any argmax argmin around atleast_1d atleast_2d atleast_3d average copy count_nonzero fix
    diagonal ediff1d flatnonzero flip fliplr flipud imag iscomplex iscomplexobj isneginf isposinf isreal isrealobj
    matrix_transpose max mean median min min_scalar_type nan_to_num nanargmax nanargmin nancumsum nanmax nanmean
    nanmedian nanmin nanprod nanstd nansum nanvar ndim nonzero ones_like prod ptp ravel real real_if_close round shape
    sinc size sort squeeze std sum trace transpose tril triu unstack unwrap var zeros_like cumsum
    common_type block
""".split()  # fmt: skip

CALLS: dict[str, Call] = {
    **{name: lambda x, name=name: getattr(np, name)(x) for name in PLAIN},
    **{
        name: lambda x, name=name: printed(getattr(np, name), x)
        for name in ("array2string", "array_repr", "array_str")
    },
    # ------------------------------------------------------------------------------------------- questions
    "allclose": lambda x: (np.allclose(x, x + 1e-9), np.allclose(x, x + 1, atol=0.1)),
    "array_equal": lambda x: (np.array_equal(x, x), np.array_equal(x, x[0])),
    "array_equal, nan": lambda x: (np.array_equal(masked(x), masked(x), True), np.array_equal(masked(x), masked(x))),
    "array_equiv": lambda x: (np.array_equiv(x[:1], x[0]), np.array_equiv(x, x[0])),
    "can_cast": lambda x: np.can_cast(x, np.complex64),
    "isclose": lambda x: np.isclose(x, x + 1e-9),
    "isclose, tolerances": lambda x: np.isclose(masked(x), x + 1, rtol=0, atol=1.0, equal_nan=True),
    "may_share_memory": lambda x: np.may_share_memory(x, x),
    "shares_memory": lambda x: (np.shares_memory(x[0], x[1]), np.shares_memory(x, x[1])),
    "result_type": lambda x: np.result_type(x, np.complex64),
    "real_if_close, complex": lambda x: (np.real_if_close(x + 1e-15j), np.real_if_close(x + 1e-3j, tol=1e-2)),
    "size, axis": lambda x: np.size(x, 1),
    # ------------------------------------------------------------------------------------------ reductions
    "all, axis": lambda x: np.all(x < 60, axis=(0, 2), keepdims=True),
    "any, where": lambda x: np.any(x > 80, axis=0, where=x < 85),
    "argmax, keepdims": lambda x: np.argmax(x, axis=1, keepdims=True),
    "argmin, axis": lambda x: np.argmin(x, 2),
    "average, weights": lambda x: np.average(x, 1, np.arange(1.0, 7.0)),
    "average, returned": lambda x: np.average(x, axis=0, weights=x**2, returned=True),
    "average, keepdims": lambda x: np.average(x, axis=(0, 2), keepdims=True),
    "count_nonzero, axis": lambda x: np.count_nonzero(x > 0, 1, keepdims=True),
    "cumprod": lambda x: np.cumprod(x / 50, 1),
    "cumsum, axis, dtype": lambda x: np.cumsum(ints(x), axis=1, dtype="f4"),
    "cumulative_prod": lambda x: np.cumulative_prod(x / 50, axis=2, include_initial=True),
    "cumulative_sum": lambda x: np.cumulative_sum(x, axis=0),
    "max, initial": lambda x: np.max(x, initial=300.0),
    "max, where": lambda x: np.max(x, axis=1, where=x > 0, initial=-1.0),
    "mean, positions": lambda x: np.mean(x, (0, 1), "f4", None, True),
    "mean, where": lambda x: np.mean(x, axis=0, where=x > -80),
    "median, axes": lambda x: np.median(x, axis=(0, 2), keepdims=True),
    "nanargmax, axis": lambda x: np.nanargmax(masked(x), axis=1, keepdims=True),
    "nanargmin, axis": lambda x: np.nanargmin(masked(x), 2),
    "nancumprod": lambda x: np.nancumprod(masked(x) / 50, axis=1),
    "nancumsum, axis": lambda x: np.nancumsum(masked(x), axis=0, dtype="f4"),
    "nanmax, axis": lambda x: np.nanmax(masked(x), axis=1),
    "nanmean, axis": lambda x: np.nanmean(masked(x), axis=(0, 1), keepdims=True),
    "nanmean, where": lambda x: np.nanmean(masked(x), axis=0, where=x < 80),
    "nanmedian, axis": lambda x: np.nanmedian(masked(x), axis=1),
    "nanmin, initial": lambda x: np.nanmin(masked(x), axis=1, initial=-95.0),
    "nanpercentile": lambda x: np.nanpercentile(masked(x), [10, 50], axis=1),
    "nanprod, axis": lambda x: np.nanprod(masked(x) / 50, axis=1),
    "nanquantile": lambda x: np.nanquantile(masked(x), 0.3, axis=2, keepdims=True),
    "nanstd, ddof": lambda x: np.nanstd(masked(x), axis=1, ddof=1),
    "nansum, axis": lambda x: np.nansum(masked(x), axis=0, keepdims=True),
    "nanvar, axis": lambda x: np.nanvar(masked(x), axis=(0, 2)),
    "percentile": lambda x: np.percentile(x, [10, 50], axis=1),
    "percentile, method": lambda x: np.percentile(x, 30, 0, method="lower"),
    "prod, where": lambda x: np.prod(x / 50, axis=0, where=x > 0),
    "ptp, axis": lambda x: np.ptp(x, axis=1, keepdims=True),
    "quantile": lambda x: np.quantile(x, [[0.1, 0.7]], axis=2),
    "std, ddof": lambda x: np.std(x, axis=1, ddof=1),
    "sum, positions": lambda x: np.sum(x, 0),
    "sum, where, initial": lambda x: np.sum(x, axis=1, where=x > 0, initial=3.0),
    "trace, axes": lambda x: np.trace(x, 1, 0, 2),
    "var, correction": lambda x: np.var(x, correction=1),
    # ----------------------------------------------------------------------------------- shapes and pieces
    "append": lambda x: (np.append(x, x[:1], axis=0), np.append(x, 3.0)),
    "array_split": lambda x: np.array_split(x, 4, axis=1),
    "block, nested": lambda x: np.block([[x[0], x[1]], [np.ones((6, 16)), x[2]]]),
    "broadcast_arrays": lambda x: np.broadcast_arrays(x[:, :, :1], x[0]),
    "broadcast_to": lambda x: np.broadcast_to(x, (2, 8, 6, 16)),
    "column_stack": lambda x: np.column_stack([x[0, :, 0], x[0, :, 1:3]]),
    "concat": lambda x: np.concat([x, x], axis=2),
    "concatenate": lambda x: np.concatenate([x, x], 1),
    "concatenate, dtype": lambda x: np.concatenate([x, ints(x)], axis=None, dtype="f4"),
    "delete": lambda x: np.delete(x, 1, axis=1),
    "delete, positions": lambda x: np.delete(x, [1, -1], axis=2),
    "diagflat": lambda x: np.diagflat(x[0, :2], 1),
    "diag": lambda x: (np.diag(x[0], 1), np.diag(x[0, 0], -2)),
    "diagonal, axes": lambda x: np.diagonal(x, 1, 1, 2),
    "dsplit": lambda x: np.dsplit(x, [3, 5]),
    "dstack": lambda x: np.dstack([x[0], x[1]]),
    "expand_dims": lambda x: np.expand_dims(x, (0, 2)),
    "flip, axis": lambda x: np.flip(x, 1),
    "hsplit": lambda x: np.hsplit(x, 3),
    "hstack": lambda x: np.hstack([x[0], x[1]]),
    "insert": lambda x: np.insert(x, [1, 3], 9.0, axis=2),
    "insert, one position": lambda x: np.insert(x[0], 1, 9.0, axis=0),
    "insert, a slice of one": lambda x: np.insert(x[0, 0], slice(1, 0, -1), [9.0, 8.0]),
    "meshgrid": lambda x: np.meshgrid(x[0, 0], x[0, 1]),
    "meshgrid, sparse": lambda x: np.meshgrid(x[0, 0], x[0, 1], indexing="ij", sparse=True),
    "moveaxis": lambda x: np.moveaxis(x, 0, -1),
    "pad": lambda x: np.pad(x, 1),
    "pad, edge": lambda x: np.pad(x, [(0, 2), (1, 0), (2, 2)], "edge"),
    "pad, values": lambda x: np.pad(x, ((1, 2),), constant_values=((3, 4),)),
    "pad, reflect": lambda x: np.pad(x, 2, mode="reflect"),
    "permute_dims": lambda x: np.permute_dims(x, (2, 0, 1)),
    "ravel, F": lambda x: np.ravel(x, "F"),
    "repeat": lambda x: np.repeat(x, 2, 0),
    "repeat, counts": lambda x: np.repeat(x, [0, 1, 2, 3, 0, 0, 1, 1], axis=0),
    "reshape": lambda x: np.reshape(x, (32, 24)),
    "reshape, negative": lambda x: np.reshape(x, (-7, 2)),
    "reshape, F": lambda x: np.reshape(x, (6, -1), order="F"),
    "resize": lambda x: np.resize(x, (3, 5)),
    "roll": lambda x: np.roll(x, 1, 0),
    "roll, axes": lambda x: np.roll(x, (1, -2), axis=(0, 2)),
    "rollaxis": lambda x: np.rollaxis(x, 2, 1),
    "rot90": lambda x: np.rot90(x, 1, (1, 2)),
    "split": lambda x: np.split(x, 2),
    "squeeze, axis": lambda x: np.squeeze(x[:, :1], axis=1),
    "stack": lambda x: np.stack([x, x], axis=1),
    "swapaxes": lambda x: np.swapaxes(x, 0, 2),
    "tile": lambda x: np.tile(x, (2, 1)),
    "transpose, axes": lambda x: np.transpose(x, (1, 0, 2)),
    "tril, k": lambda x: np.tril(x, -1),
    "trim_zeros": lambda x: np.trim_zeros(np.where(abs(x[0, 0]) > 40, x[0, 0], 0.0)),
    "unstack, axis": lambda x: np.unstack(x, axis=1),
    "vsplit": lambda x: np.vsplit(x, [1, 2]),
    "vstack": lambda x: np.vstack([x[0], x[1]]),
    # ------------------------------------------------------------------------------- elements and positions
    "apply_along_axis": lambda x: np.apply_along_axis(np.cumsum, 1, x),
    "apply_along_axis, numbers": lambda x: np.apply_along_axis(lambda v, k: int(v.sum() > k), 2, x, 3),
    "apply_along_axis, matrices": lambda x: np.apply_along_axis(np.diag, 0, x),
    "apply_over_axes": lambda x: np.apply_over_axes(np.sum, x, [0, 2]),
    "argwhere": lambda x: np.argwhere(x > 80),
    "choose": lambda x: np.choose(ints(x) % 2, [x, -x]),
    "choose, mode by number": lambda x: np.choose(ints(x), (x, 0.0, 1.0), mode=1),
    "choose, mode": lambda x: np.choose(ints(x), (x, 0.0, 1.0), mode="wrap"),
    "compress": lambda x: np.compress([True, False, True], x, axis=1),
    "copyto": lambda x: after(lambda y: np.copyto(y, 3, where=y > 0), x),
    "diag_indices_from": lambda x: np.diag_indices_from(x[0, :, :6]),
    "extract": lambda x: np.extract(x > 60, x),
    "fill_diagonal": lambda x: after(lambda y: np.fill_diagonal(y, [1.0, 2.0]), x[0]),
    "flatnonzero, condition": lambda x: np.flatnonzero(x > 70),
    "isin": lambda x: np.isin(x, [0.5, 1.5], invert=True),
    "ix_": lambda x: np.ix_(ints(x[0, 0]), x[0, 0] > 0),
    "nonzero, condition": lambda x: np.nonzero(x > 70),
    "piecewise": lambda x: np.piecewise(x, [x < -50, x > 50], [-1.0, lambda v: v - 50, 7]),
    "place": lambda x: after(lambda y: np.place(y, y > 50, [1.0, 2.0, 3.0]), x),
    "put": lambda x: after(lambda y: np.put(y, [0, 7, -1], [1.0, 2.0]), x),
    "put_along_axis": lambda x: after(lambda y: np.put_along_axis(y, np.argmax(y, 1, keepdims=True), 0.0, 1), x),
    "putmask": lambda x: after(lambda y: np.putmask(y, y > 50, [1.0, 2.0]), x),
    "ravel_multi_index": lambda x: np.ravel_multi_index((ints(x[0]) % 4, ints(x[1]) % 6), (4, 6), order="F"),
    "ravel_multi_index, mode": lambda x: np.ravel_multi_index((ints(x), ints(-x)), (4, 6), mode=("wrap", "clip")),
    "select": lambda x: np.select([x > 30, x > 1], [x, 2 * x], default=-1),
    "take": lambda x: np.take(x, [0, 1], 2),
    "take, mode by number": lambda x: [np.take(x, [[-200, 900]], mode=m) for m in (0, 1, np.str_("clip"))],
    "take, no mode": lambda x: np.take(x, [[1], [0]], 1, mode=None),
    "take, mode": lambda x: np.take(x, [[-200, 900]], mode="clip"),
    "take_along_axis": lambda x: np.take_along_axis(x, np.argsort(x, axis=1), axis=1),
    "tril_indices_from": lambda x: np.tril_indices_from(x[0], 1),
    "triu_indices_from": lambda x: np.triu_indices_from(x[0], k=-1),
    "unravel_index": lambda x: np.unravel_index(abs(ints(x)), (10, 20), order="F"),
    "where": lambda x: np.where(x > 3, x, 0),
    "where, one argument": lambda x: np.where(x > 80),
    # ------------------------------------------------------------------------------------------ order, sets
    "argpartition": lambda x: np.take_along_axis(x, np.argpartition(x, 3, axis=2), 2)[..., 3],
    "argsort": lambda x: np.argsort(x, axis=1, kind="stable"),
    "in1d": lambda x: MODULES["numpy"].in1d(x, [0.5, 1.5]),  # of older versions
    "intersect1d": lambda x: np.intersect1d(ints(x[0]), ints(-x[1])),
    "lexsort": lambda x: np.lexsort((x[0, 0], ints(x[0, 1]) % 3)),
    "partition": lambda x: np.partition(x, 3, axis=2)[..., 3],
    "searchsorted": lambda x: np.searchsorted(np.sort(x[0, 0]), x[1], "right"),
    "setdiff1d": lambda x: np.setdiff1d(ints(x[0]), ints(x[1])),
    "setxor1d": lambda x: np.setxor1d(ints(x[0, 0]) % 5, ints(x[1, 0]) % 7),
    "sort, axis": lambda x: np.sort(x, 0),
    "sort, all": lambda x: np.sort(x, axis=None, kind="stable"),
    "sort_complex": lambda x: np.sort_complex(x[0, 0] + 1j * x[0, 1]),
    "union1d": lambda x: np.union1d(ints(x[0, 0]), ints(x[0, 1])),
    "unique, nan as they are": lambda x: np.unique(np.where(x > 60, np.nan, x), equal_nan=np.asarray(x[0, 0, 0] < -1)),
    "unique": lambda x: np.unique(x // 40),
    "unique, counts": lambda x: np.unique(x[0] // 40, return_counts=True),
    "unique_all": lambda x: np.unique_all(x[0, 0] // 40),
    "unique_counts": lambda x: np.unique_counts(x[0, 0] // 40),
    "unique_inverse": lambda x: np.unique_inverse(x[0, 0] // 40),
    "unique_values": lambda x: ordered(np.unique_values(x // 40)),
    # ---------------------------------------------------------------------------------- counts and statistics
    "bincount": lambda x: np.bincount(abs(ints(x[0, 0]))),
    "bincount, weights": lambda x: np.bincount(abs(ints(x)).ravel() % 7, x.ravel(), minlength=9),
    "corrcoef": lambda x: np.corrcoef(x[0]),
    "corrcoef, columns": lambda x: np.corrcoef(x[0], x[1], rowvar=False),
    "cov": lambda x: np.cov(x[0]),
    "cov, weights": lambda x: np.cov(x[0], x[1], fweights=np.arange(1, 17), aweights=np.arange(16) / 8),
    "digitize": lambda x: np.digitize(x, [1, 5, 7]),
    "digitize, falling": lambda x: np.digitize(x, [70, 5, 0.5], right=True),
    "histogram": lambda x: np.histogram(x, 5),
    "histogram, range": lambda x: np.histogram(x, 4, (-30, 80)),
    "histogram, weights": lambda x: np.histogram(x, [-50.0, 0.0, 30.0], weights=x**2, density=True),
    "histogram, auto": lambda x: np.histogram(x, "auto"),
    "histogram2d": lambda x: np.histogram2d(x[0, 0], x[0, 1], [3, 4]),
    "histogram2d, weights": lambda x: np.histogram2d(x[0, 0], x[0, 1], 3, density=True, weights=x[0, 2] ** 2),
    "histogram_bin_edges": lambda x: np.histogram_bin_edges(x, "fd"),
    **{
        f"histogram_bin_edges, {how}": lambda x, how=how: np.histogram_bin_edges(x, how, range=(-60, 60))
        for how in ("auto", "doane", "rice", "scott", "sqrt", "sturges")
    },
    "histogramdd": lambda x: np.histogramdd(x[0, :, :3], bins=(2, [-100.0, 0.0, 50.0, 100.0], 2)),
    # ------------------------------------------------------------------------- functions of a variable, signals
    "convolve": lambda x: np.convolve(x[0, 0], x[0, 1, :2]),
    "convolve, same": lambda x: np.convolve(x[0, 0], x[0, 1, :2], "same"),
    "correlate": lambda x: np.correlate(x[0, 0], x[0, 1, :3]),
    "correlate, shorter first": lambda x: np.correlate(x[0, 0, :3], x[0, 1] * 1j, "same"),
    "diff": lambda x: np.diff(x, 1, 0),
    "diff, ends": lambda x: np.diff(x, n=2, axis=1, prepend=0.0, append=x[:, :1]),
    "ediff1d, ends": lambda x: np.ediff1d(x[0], to_begin=-1.0, to_end=[5.0, 6.0]),
    "gradient": lambda x: np.gradient(x**2, axis=1),
    "gradient, all": lambda x: np.gradient(x, 2.0, 1.0, 0.5, edge_order=2),
    "gradient, uneven": lambda x: np.gradient(x**2, np.arange(16.0) ** 2, axis=2, edge_order=2),
    "i0": lambda x: np.i0(x / 10),
    "interp": lambda x: np.interp(x, [0, 5, 30], [1, 2, 0]),
    "interp, ends": lambda x: np.interp(x, [0, 5, 30], [1, 2, 0], left=-1, right=-2),
    "interp, period": lambda x: np.interp(x, [300, 20, 70], [1, 2, 0], period=90),
    "poly": lambda x: np.poly(x[0, 0] / 50),
    "polyadd": lambda x: np.polyadd(x[0, 0], x[0, 1, :3]),
    "polyder": lambda x: np.polyder(x[0, 0], 2),
    "polydiv": lambda x: np.polydiv(x[0, 0], x[0, 1, :3]),
    "polyfit": lambda x: np.polyfit(x[0, 0] / 90, x[0, 1], 3),
    "polyfit, weights": lambda x: np.polyfit(x[0, 0] / 90, x[:2, 1].T, 2, w=x[1, 0] ** 2, cov=True)[1],
    "polyint": lambda x: np.polyint(x[0, 0], 2, k=[1.0, 2.0]),
    "polymul": lambda x: np.polymul(x[0, 0], x[0, 1, :3]),
    "polysub": lambda x: np.polysub(x[0, 0, :2], x[0, 1]),
    "polyval": lambda x: np.polyval([1.0, -2.0, 3.0], x),
    "polyval, coefficients": lambda x: np.polyval(x[0, 0, :4] / 90, x[1] / 90),
    "roots": lambda x: np.sort_complex(np.roots(x[0, 0])),
    "sinc, zero": lambda x: np.sinc(x - 0.5),
    "trapezoid": lambda x: np.trapezoid(x, axis=1),
    "trapezoid, distances": lambda x: np.trapezoid(x, dx=x[:1, 1:] / 90, axis=1),
    "trapezoid, positions beside": lambda x: np.trapezoid(x, x=x[0] ** 2, axis=-2),
    "trapezoid, positions": lambda x: np.trapezoid(x, x=np.arange(16.0) ** 2),
    "unwrap, period": lambda x: np.unwrap(ints(x), axis=1, period=12),
    "vander": lambda x: np.vander(x[0, 0] / 50, 3),
    # -------------------------------------------------------------------------------------------- products
    "cross": lambda x: np.cross(x[0, :, :3], x[1, :, :3]),
    "cross, axes": lambda x: np.cross(x[0, :3, :6], x[1, :, :3], axisa=0, axisc=0),
    "dot": lambda x: np.dot(x[0], x[1].T),
    "einsum": lambda x: np.einsum("ijk,ijk->k", x, x),
    "einsum, labels": lambda x: np.einsum(x[0], [0, 1], x[1], [2, 1], [0, 2]),
    "einsum, casting": lambda x: np.einsum("ijk,ijk->k", x, x, dtype="f4", casting="same_kind"),
    "einsum_path": lambda x: np.einsum_path("ij,kj,kl->il", x[0], x[1], x[2], optimize="greedy"),
    "inner": lambda x: np.inner(x[0], x[1]),
    "kron": lambda x: np.kron(x[0, :2], x[1, :2]),
    "outer": lambda x: np.outer(x[0, 0], x[0, 1]),
    "tensordot": lambda x: np.tensordot(x, x, axes=([0, 1], [0, 1])),
    "vdot": lambda x: np.vdot(x, x * 1j),
    # ------------------------------------------------------------------------------------------ dtypes, bits
    "angle, degrees": lambda x: np.angle(x * 1j, deg=True),
    "astype": lambda x: np.astype(x, np.int32),
    "clip": lambda x: np.clip(x, 2, 5),
    "clip, keywords": lambda x: np.clip(x, a_min=-30, a_max=x[0]),
    "imag, complex": lambda x: np.imag(x * 1j),
    "nan_to_num, values": lambda x: np.nan_to_num(np.where(x > 80, np.inf, masked(x)), nan=1.0, posinf=7.0),
    "packbits": lambda x: np.packbits(x > 0),
    "packbits, axis": lambda x: np.packbits(ints(x) % 3, axis=1, bitorder="little"),
    "round, decimals": lambda x: np.round(x / 3, 1),
    "unpackbits": lambda x: np.unpackbits(octets(x)),
    "unpackbits, count": lambda x: np.unpackbits(octets(x[0]), axis=0, count=-3, bitorder="little"),
    "unpackbits, more": lambda x: np.unpackbits(octets(x), axis=1, count=60),
    # ----------------------------------------------------------------------------------------------- creation
    "empty_like": lambda x: np.zeros_like(np.empty_like(x, dtype="i4", shape=(3, 2))),
    "full_like": lambda x: np.full_like(x, 3, dtype=int),
    "geomspace": lambda x: np.geomspace(x[0, 0], 3 * x[0, 0], 7),
    "linspace": lambda x: np.linspace(x[0, 0, 0], 1000.0, 7, endpoint=False),
    "linspace, arrays": lambda x: np.linspace(x[0], 3.0, 4, retstep=True, axis=1),
    "linspace, arrays, no steps": lambda x: [np.shape(np.linspace(x[0], 3.0, n, retstep=True)[1]) for n in (0, 1)],
    "logspace": lambda x: np.logspace(x[0, 0] / 90, 3.0, 7, base=2.0, axis=-1),
    "ones_like, shape": lambda x: np.ones_like(x, "c8", shape=(2, 3)),
    "zeros_like, dtype": lambda x: np.zeros_like(x, dtype=bool),
    "save": saved,
    "savetxt": lambda x: through_text(x[0]),
    "loadtxt": lambda x: through_text(x[0, :1]),
    "genfromtxt": lambda x: np.genfromtxt(["1,2", "3,"], delimiter=",", like=x),
    "savez": lambda x: archived(np.savez, x),
    "savez_compressed": lambda x: archived(np.savez_compressed, x),
    "fromfile": from_numbers,
    "arange": lambda x: np.arange(2, 9, 3, like=x),
    "array": lambda x: np.array([[1, 2], [3, 4]], ndmin=3, like=x),
    "asanyarray": lambda x: np.asanyarray([1.0, 2.0], dtype="f4", like=x),
    "asarray": lambda x: np.asarray([1, 2], like=x),
    "ascontiguousarray": lambda x: np.ascontiguousarray(3.0, like=x),
    "asfortranarray": lambda x: np.asfortranarray([[1, 2], [3, 4]], like=x),
    "empty": lambda x: np.zeros_like(np.empty((2, 3), like=x)),
    "eye": lambda x: np.eye(3, 4, 1, dtype=int, like=x),
    "frombuffer": lambda x: np.frombuffer(b"abcd", dtype=np.uint8, like=x),
    "fromfunction": lambda x: np.fromfunction(lambda i, j: i * 10 + j, (3, 4), like=x),
    "fromiter": lambda x: np.fromiter(range(5), dtype="f8", count=3, like=x),
    "full": lambda x: np.full((2, 3), 7, order="F", like=x),
    "identity": lambda x: np.identity(3, like=x),
    "ones": lambda x: np.ones((2, 3), "i2", like=x),
    "require": lambda x: np.require([1, 2, 3], "f4", ["C", "W"], like=x),
    "tri": lambda x: np.tri(3, M=4, k=1, like=x),
    "zeros": lambda x: np.zeros((2, 3), like=x),
    # --------------------------------------------------------------------------------------- linear algebra
    "linalg.cholesky": lambda x: np.linalg.cholesky(definite(x)),
    "linalg.cond": lambda x: np.linalg.cond(regular(x)),
    "linalg.cross": lambda x: np.linalg.cross(x[0, :, :3], x[1, :, :3]),
    "linalg.det": lambda x: np.linalg.det(regular(x) / 500),
    "linalg.diagonal": lambda x: np.linalg.diagonal(x, offset=1),
    "linalg.eig": lambda x: np.sort_complex(np.linalg.eig(regular(x)).eigenvalues),
    "linalg.eigh": lambda x: np.linalg.eigh(definite(x), "U").eigenvalues,
    "linalg.eigvals": lambda x: np.sort_complex(np.linalg.eigvals(regular(x))),
    "linalg.eigvalsh": lambda x: np.linalg.eigvalsh(definite(x)),
    "linalg.inv": lambda x: np.linalg.inv(regular(x)),
    "linalg.lstsq": lambda x: np.linalg.lstsq(x[0].T, x[1].T, rcond=None),
    "linalg.matmul": lambda x: np.linalg.matmul(x[0], x[1].T),
    "linalg.matrix_norm": lambda x: np.linalg.matrix_norm(x, ord=1, keepdims=True),
    "linalg.matrix_power": lambda x: np.linalg.matrix_power(regular(x) / 500, 3),
    "linalg.matrix_rank": lambda x: np.linalg.matrix_rank(x[0]),
    "linalg.matrix_transpose": lambda x: np.linalg.matrix_transpose(x),
    "linalg.multi_dot": lambda x: np.linalg.multi_dot([x[0], x[1].T, x[2]]),
    "linalg.norm": lambda x: np.linalg.norm(x[0]),
    "linalg.norm, axis": lambda x: np.linalg.norm(x, 1, axis=1, keepdims=True),
    "linalg.outer": lambda x: np.linalg.outer(x[0, 0], x[0, 1]),
    "linalg.pinv": lambda x: np.linalg.pinv(x[0]),
    "linalg.qr": lambda x: abs(np.linalg.qr(x[0].T, "reduced").R),
    "linalg.slogdet": lambda x: np.linalg.slogdet(regular(x)),
    "linalg.solve": lambda x: np.linalg.solve(regular(x), x[0]),
    "linalg.svd": lambda x: np.linalg.svd(x[0], False).S,
    "linalg.svdvals": lambda x: np.linalg.svdvals(x[0]),
    "linalg.tensordot": lambda x: np.linalg.tensordot(x, x, axes=((0, 1), (0, 1))),
    "linalg.tensorinv": lambda x: np.linalg.tensorinv(regular(x).reshape(2, 3, 6)),
    "linalg.tensorsolve": lambda x: np.linalg.tensorsolve(regular(x).reshape(2, 3, 6), x[0, :, 0].reshape(2, 3)),
    "linalg.trace": lambda x: np.linalg.trace(x, offset=-1, dtype="f4"),
    "linalg.vecdot": lambda x: np.linalg.vecdot(x, x[0]),
    "linalg.vector_norm": lambda x: np.linalg.vector_norm(x, axis=(0, 2), ord=2),
    # ------------------------------------------------------------------------------------------ transforms
    **{f"fft.{name}": lambda x, name=name: getattr(np.fft, name)(x, 5, 1, "ortho") for name in ("fft", "ifft", "rfft")},
    **{f"fft.{name}": lambda x, name=name: getattr(np.fft, name)(x + 1j, axis=0) for name in ("hfft", "irfft")},
    "fft.ihfft": lambda x: np.fft.ihfft(x),
    **{f"fft.{name}": lambda x, name=name: getattr(np.fft, name)(x) for name in ("fft2", "fftn", "ifft2", "ifftn")},
    **{f"fft.{name}": lambda x, name=name: getattr(np.fft, name)(x, axes=(0, 2)) for name in ("rfft2", "rfftn")},
    "fft.irfft2": lambda x: np.fft.irfft2(x + 1j, s=(4, 6), axes=(1, 2)),
    "fft.irfftn": lambda x: np.fft.irfftn(x + 1j, s=(4, 6), axes=(1, 2)),
    "fft.fftshift": lambda x: np.fft.fftshift(x, 1),
    "fft.ifftshift": lambda x: np.fft.ifftshift(x, axes=(0, 2)),
}  # fmt: skip

#: Ufuncs that want other operands than floats of one shape.
UFUNCS: dict[str, Call] = {
    "isnat": lambda x: np.isnat(ints(x).astype("M8[s]")),
    "ldexp": lambda x: np.ldexp(x, ints(x) % 5),
    "matmul": lambda x: np.matmul(x, x[0].T),
    "matvec": lambda x: np.matvec(x, x[0, 0]),
    "vecdot": lambda x: np.vecdot(x, x[0]),
    "vecmat": lambda x: np.vecmat(x[0, :, 0], x),
    **{name: lambda x, name=name: getattr(np, name)(abs(ints(x)) % 9, ints(x[0]) % 4) for name in (
        "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "gcd", "lcm",
        "left_shift", "right_shift",
    )},
    **{name: lambda x, name=name: getattr(np, name)(ints(x)) for name in (
        "bitwise_count", "bitwise_invert", "bitwise_not", "invert",
    )},
}  # fmt: skip


def callables(module: ModuleType) -> Iterator[tuple[str, Any]]:
    for name in sorted(dir(module)):
        function = getattr(module, name)
        if not name.startswith("_") and callable(function) and not isinstance(function, type):
            yield name, function


def dispatches(function: Any) -> bool:
    """Whether arrays decide what a function of numpy does: as its arguments, or as ``like=``."""
    return isinstance(function, DISPATCHED | np.ufunc) or "\nlike : " in (function.__doc__ or "").replace("    ", "")


def walk(module: ModuleType) -> list[str]:
    return [name for name, function in callables(module) if dispatches(function)]


def full_name(row: str) -> str:
    """numpy's dotted name of the function that a row calls."""
    return "numpy." + row.split(",")[0]


def exists(name: str) -> bool:
    """Whether this version of numpy has a function."""
    module, _, own = name.rpartition(".")
    return hasattr(MODULES[module], own)


def rows() -> dict[str, Call]:
    """The table, and a row for each ufunc that floats are enough for."""
    found = {row: call for row, call in (CALLS | UFUNCS).items() if exists(full_name(row))}
    for name, function in callables(np):
        if isinstance(function, np.ufunc) and name not in found:
            # of one operand, or of two that broadcast; nan where there is no value is compared too
            found[name] = lambda x, f=function: f(x / 60, x[::-1] / 50) if f.nin == 2 else f(x / 60)
    return found


ROWS = rows()


NAMES = {full_name(row) for row in ROWS}


def assert_same(made: Any, expected: Any) -> None:
    """Assert that results are equal: arrays, numbers, text, and sequences of them."""
    if isinstance(made, dx.DistArray):
        assert_close(made, expected, rtol=1e-6, atol=1e-9)
    elif isinstance(expected, tuple | list):
        assert isinstance(made, tuple | list)
        assert len(made) == len(expected)
        for one, other in zip(made, expected):
            assert_same(one, other)
    elif isinstance(expected, np.ndarray):
        # positions that follow from shapes alone
        assert isinstance(made, np.ndarray)
        np.testing.assert_array_equal(made, expected, strict=True)
    else:
        assert made == expected
        assert type(made) is type(expected) or isinstance(expected, np.bool)


#: One place writes text and archives; it has a piece of an array at a time.
WRITTEN_HERE = {"savetxt", "savez", "savez_compressed"}


@pytest.mark.filterwarnings("ignore:.*in1d:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of slices with nothing but nan, by both
@pytest.mark.parametrize("tiles", [None, 2], ids=["small", "tiles"])
@pytest.mark.parametrize("row", ROWS)
def test_function_is_numpys_and_gathers_nothing(row: str, tiles: int | None) -> None:
    with np.errstate(all="ignore"), nullcontext() if tiles is None else force_tiles(tiles):
        expected = ROWS[row](X)
        x = dx.asarray(X)
        with dx.testing.counting() as c:
            made = ROWS[row](x)
        if tiles is not None:
            allowed = {**dict.fromkeys(WITH_SAMPLES, X.nbytes // 3), **dict.fromkeys(WRITTEN_HERE, 2 * X.nbytes)}
            allowed["bincount"] = FEW_COUNTS  # a result that is small, whatever the array is
            assert c.fetched_bytes <= allowed.get(row, FETCHED_NBYTES)
        assert_same(made, expected)


@pytest.mark.parametrize("namespace", MODULES)
def test_every_function_that_dispatches_has_a_row_or_a_way_out(namespace: str) -> None:
    missing = [
        name
        for name in (f"{namespace}.{n}" for n in walk(MODULES[namespace]))
        if name not in NAMES and name not in ALTERNATIVES
    ]
    assert not missing


@pytest.mark.parametrize("namespace", MODULES)
def test_every_other_function_is_here_or_has_a_way_out_or_needs_none(namespace: str) -> None:
    ours = {"numpy": dx, "numpy.linalg": dx.linalg, "numpy.fft": dx.fft}[namespace]
    names = [n for n, function in callables(MODULES[namespace]) if not dispatches(function)]
    missing = [
        n
        for n in names
        if not hasattr(ours, n) and f"{namespace}.{n}" not in ALTERNATIVES and f"{namespace}.{n}" not in NO_ARRAYS
    ]
    assert not missing


def test_every_class_and_module_is_here_or_has_a_way_out() -> None:
    of_numpys_own = {"ScalarType", "core", "ctypeslib", "f2py", "little_endian", "sctypeDict"}
    names = {n for n in dir(np) if not n.startswith("_")} - {n for n, _ in callables(np)} - of_numpys_own
    assert [n for n in sorted(names) if not hasattr(dx, n) and f"numpy.{n}" not in OTHERS] == []
    with pytest.raises(AttributeError, match=r"no attribute 'matrix'; use dx.asarray"):
        _ = dx.matrix
    with pytest.raises(
        AttributeError, match=r"'distarray.random' has no attribute 'set_bit_generator'; use dx.random.default_rng"
    ):
        _ = dx.random.set_bit_generator
    with pytest.raises(AttributeError, match=r"no attribute 'from_array'; use dx.asarray"):
        _ = dx.from_array
    with pytest.raises(AttributeError, match=r"has no attribute 'foo'$"):
        _ = dx.random.foo


def test_what_has_a_way_out_is_not_implemented() -> None:
    for name in filter(exists, (*ALTERNATIVES, *NO_ARRAYS)):
        module, _, own = name.rpartition(".")
        assert implementation(getattr(MODULES[module], own)) is None, name
        assert module != "numpy" or not hasattr(dx, own), name


def test_at_least_300_functions_of_numpy_are_implemented() -> None:
    names = walk(np)
    implemented = [name for name in names if f"numpy.{name}" in NAMES]
    assert len(implemented) >= 300
    assert len(names) - len(implemented) <= 15


DAYS = np.arange("2024-01-01", "2024-01-19", dtype="M8[D]").reshape(3, 6)

#: A call of each function that dispatches and is not implemented.
REFUSED: dict[str, Call] = {
    "busday_count": lambda x: np.busday_count(x, x[0]),
    "busday_offset": lambda x: np.busday_offset(x, 1, roll="forward"),
    "datetime_as_string": np.datetime_as_string,
    "fromstring": lambda x: np.fromstring("1 2", sep=" ", like=x),
    "is_busday": np.is_busday,
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusal_names_the_way_out(name: str) -> None:
    with pytest.raises(dx.NotSupportedError) as caught:
        REFUSED[name](dx.asarray(DAYS))
    assert f"numpy.{name} is not implemented for DistArray; use {ALTERNATIVES[f'numpy.{name}']}, or " in str(
        caught.value
    )


def test_every_function_with_a_way_out_is_refused() -> None:
    names = {f"numpy.{name}" for name in walk(np)}
    assert {f"numpy.{name}" for name in REFUSED} == names & {*ALTERNATIVES}


def test_ways_out_for_calendars_work() -> None:
    x, y = dx.asarray(DAYS), dx.asarray(DAYS[0])
    with force_tiles(2):
        assert_close(dx.map_blocks(np.is_busday, x, dtype=bool), np.is_busday(DAYS))
        assert_close(dx.map_blocks(np.busday_count, x, y, dtype="int64"), np.busday_count(DAYS, DAYS[0]))
        made = dx.map_blocks(np.busday_offset, x, offsets=1, roll="forward", dtype=x.dtype)
        np.testing.assert_array_equal(made.compute(), np.busday_offset(DAYS, 1, roll="forward"))


def test_missing_name_says_the_way_out() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'fromregex'; use dx\.asarray\(np\.fromregex\(\.\.\.\)\)"):
        dx.fromregex
    with pytest.raises(AttributeError, match=r"no attribute 'no_such_thing'$"):
        dx.no_such_thing
