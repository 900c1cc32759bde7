"""Kernels of Fourier transforms: of whole rows, and the factors between the parts of a cut one, made where they lie."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distarray.kernels.namespaces import Block, Namespace, dtype_of, indices, is_strict
from distarray.kernels.slices import boxes, slice_extents
from distarray.sharding.prime import prime_factors
from distarray.types import DType


def _fft(xp: Namespace, x: Block, *, params: Any) -> Block:
    name, n, norm = params
    if name not in _OF_REAL and is_strict(xp) and xp.isdtype(x.dtype, "real floating"):
        x = xp.astype(x, xp.complex64 if x.dtype == xp.float32 else xp.complex128)
    return getattr(xp.fft, name)(x, n=n, axis=-1, norm=norm)


#: Rows of complex numbers that NumPy's transforms have beside their result, and lengths for which it is no matter.
_ROWS, _ROWS_BY_BLUESTEIN, _SHORT = 3, 16, 1000
#: The transforms of real numbers; the others are of complex ones, and only some libraries take real ones as such.
_OF_REAL = ("rfft", "ihfft")
#: The transforms that can be made where their numbers lie.
_IN_PLACE = ("fft", "ifft")
#: Bytes of the rows, as double complex numbers, that are transformed at a time where NumPy casts them, or the result.
_RUN_NBYTES = 1 << 18


def _is_cast(name: str, dtype: DType) -> bool:
    """Return whether numbers or results are cast in memory of NumPy's own, which computes most transforms of single
    precision in double.
    """
    if name in _IN_PLACE:  # `_fft_into` casts the others where the result will lie
        return dtype.kind in "fc" and np.result_type(dtype, np.complex64) == np.complex64
    return name == "hfft" or dtype != (np.float64 if name in _OF_REAL else np.complex128)


def _fft_into(out: Block, x: Block, *, params: Any) -> None:
    """Fill a block with what `_fft` gives; numpy's transforms do, and hold no more than a run of rows beside it."""
    name, n, norm = params
    transform, run = getattr(np.fft, name), out.shape[:-1]
    if 0 in run:
        return
    if _is_cast(name, x.dtype):
        run = slice_extents(run, max(1, _RUN_NBYTES // (16 * max(out.shape[-1], x.shape[-1]))))
    elif x.dtype != out.dtype and name in _IN_PLACE:
        m = min(x.shape[-1], out.shape[-1])
        out[..., :m], out[..., m:] = x[..., :m], 0
        x = out
    for box in boxes(out.shape[:-1], run, range(len(run))):
        place = out[box]
        made = transform(x[box], n=n, axis=-1, norm=norm, out=place)
        if made is not place:  # NumPy's hfft takes a block to fill, and leaves it alone
            place[...] = made


def scratch_nbytes(x_shape: Sequence[int], x_dtype: DType, params: Any) -> int:
    """Return the bytes that NumPy's transform of rows of a block has beside them and its result, about: rows that are
    cast, some rows of complex numbers, and by Bluestein's method, for lengths with a large prime factor, many (measured
    with NumPy 2.4).
    """
    name, n, _ = params
    length = x_shape[-1] if n is None else n
    if not length:
        return 0
    if name in ("irfft", "hfft") and n is None:
        length = 2 * (length - 1)
    largest = max(prime_factors(max(length, 1)), default=1)
    rows = 16 * length * (_ROWS_BY_BLUESTEIN if largest * largest > length > _SHORT else _ROWS)
    cast = min(_RUN_NBYTES, 16 * length * math.prod(x_shape[:-1])) if _is_cast(name, x_dtype) else 0
    return rows + 5 * cast


def _unit(xp: Namespace, turns: Block, n: int, sign: int) -> Block:
    """Return ``exp(sign * 2i * pi * turns / n)``; whole turns are taken off while numbers are exact."""
    angle = xp.astype(turns % n, xp.float64) * (sign * 2.0 * math.pi / n)
    return xp.astype(xp.cos(angle), xp.complex128) + xp.astype(xp.sin(angle), xp.complex128) * 1j


def _twiddle(backend: Any, box: Any, shape: Any, dtype: Any, params: Any, runtime: Any) -> Block:
    """Return ``exp(sign * 2i * pi * row * column / n)``, n = rows * columns; runtime: sign.

    A column is a multiple of a step plus a rest, so few angles are needed: the factors of both are multiplied.
    """
    xp = backend.xp
    (top, bottom), (left, right) = box
    n, width = shape[0] * shape[1], right - left
    step = math.isqrt(max(width - 1, 0)) + 1
    rows = xp.reshape(indices(backend, top, bottom), (-1, 1))
    coarse = _unit(xp, rows * xp.reshape(indices(backend, left, right, step), (1, -1)), n, runtime)
    fine = _unit(xp, rows * xp.reshape(indices(backend, 0, step), (1, -1)), n, runtime)
    made = xp.reshape(coarse[:, :, None] * fine[:, None, :], (bottom - top, -1)) if width else coarse
    return xp.astype(made[:, :width], dtype_of(xp, np.dtype(dtype)))


def _chirp(backend: Any, box: Any, shape: Any, dtype: Any, params: Any, runtime: Any) -> Block:
    """Return ``exp(sign * 1i * pi * j**2 / n)`` at j = position, or how far the end is; 0 from n on. runtime: (n,
    sign).
    """
    xp = backend.xp
    ((low, high),) = box
    n, sign = runtime
    position = indices(backend, low, high)
    j = position if shape[0] == n else xp.minimum(position, shape[0] - position)
    made = _unit(xp, j * j, 2 * n, sign)
    return xp.astype(xp.where(j < n, made, xp.zeros_like(made)), dtype_of(xp, np.dtype(dtype)))


#: As `tables.BLOCK`.
BLOCK: dict[str, Callable[..., Block]] = {"fft": _fft}
#: As `tables.FILL`.
FILL: dict[str, Callable[..., None]] = {"fft": _fft_into}
#: As `tables.CREATE`.
CREATE: dict[str, Callable[..., Block]] = {"fft_chirp": _chirp, "fft_twiddle": _twiddle}
