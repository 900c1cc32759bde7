"""The transform along the last axis: of whole rows, or of rows that are too long for one member.

Rows of a matrix with as many rows as there are places are transformed whole, each place its share. A few long rows,
a vector above all, are cut themselves. Then a row of ``n = n1 * n2`` elements is a matrix (Bailey's "four-step"
algorithm, 1990): transform its columns, multiply by roots of unity, transform its rows, and read it column by column.
A length without such factors is brought to one that has them (Bluestein 1970): the transform is a convolution with a
chirp, which may be of any length from ``2 n - 1`` on.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from distarray import config
from distarray.dtypes import as_dtype
from distarray.expr.bind import bind, bind_create, bind_reshape
from distarray.expr.expr import Expr
from distarray.expr.op import declare
from distarray.ops.creation import zeros
from distarray.ops.elementwise import astype, conj, multiply, real
from distarray.ops.joining import concat
from distarray.ops.manipulation import flip, sliced, swapaxes
from distarray.ops.programs import over_all_places
from distarray.types import DType

#: params: (name of the function, n, norm)
FFT = declare("fft", "block", rule="... i -> ... j | i: whole, j: whole")
#: Roots of unity, row * column of n; runtime: the sign of the exponent.
TWIDDLE = declare("fft_twiddle", "create", repeatable=True)
#: runtime: (n, sign)
CHIRP = declare("fft_chirp", "create", repeatable=True)

#: In one process, rows up to this size are transformed whole.
WHOLE_ROW_NBYTES = 256 << 20

_SIGN = {"fft": -1, "ifft": 1}
_SWAPPED = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


def transform(name: str, x: Expr, n: int, norm: str) -> Expr:
    """Return the transform `name` of length `n` along the last axis, whichever way fits.

    Parameters
    ----------
    x
        Cut to `n` elements, or padded with zeros.
    """
    if not x.shape[-1]:
        x = _fitted(x, 1)  # NumPy's irfft and hfft of nothing return what was in memory
    places = _places(x)
    if not places or n < places * places:
        length = n // 2 + 1 if name in ("rfft", "ihfft") else n
        return bind(FFT, (x,), (*x.shape[:-1], length), result_dtype(name, x.dtype), (name, n, norm))
    base = "fft" if name in ("fft", "rfft", "hfft") else "ifft"
    if name in ("irfft", "hfft"):
        made = real(_long(base, _whole_spectrum(x, n), norm, places))
        return astype(made, result_dtype(name, x.dtype), copy=False)
    made = _long(base, _fitted(x, n), norm, places)
    return made if name == base else sliced(made, -1, 0, n // 2 + 1)


@lru_cache(maxsize=256)
def result_dtype(name: str, dtype: DType) -> DType:
    """Return what numpy's function gives; its TypeError where it gives nothing."""
    return as_dtype(getattr(np.fft, name)(np.ones(2, dtype)).dtype)


def _places(x: Expr) -> int:
    """Return how many members share an array that has fewer rows than these; 0 where rows are transformed whole.

    The members of one process share its memory, and there moving elements three times takes longer than working with
    one thread: rows are cut only where one of them with its transform and scratch would be too much.
    """
    team = x.env.team
    if team is None or x.nbytes <= x.env.block_nbytes:
        return 0
    if team.client is None and x.nbytes <= min(WHOLE_ROW_NBYTES, (config.get("memory-limit") or math.inf) // 4):
        return 0
    rows = math.prod(x.shape[:-1])
    return team.size if 0 < rows < team.size else 0


def _fitted(x: Expr, n: int) -> Expr:
    have = x.shape[-1]
    if n <= have:
        return sliced(x, -1, 0, n)
    rest = zeros((*x.shape[:-1], n - have), x.dtype, x.env)
    return concat([x, rest], axis=-1)


def _whole_spectrum(x: Expr, n: int) -> Expr:
    """Return all `n` coefficients of a spectrum with Hermitian symmetry, of which `x` is the first half."""
    half = _fitted(x, n // 2 + 1)
    n_rest = n - half.shape[-1]
    rest = conj(flip(sliced(half, -1, 1, n_rest), axis=-1))
    return concat([half, rest], axis=-1)


def _long(name: str, x: Expr, norm: str, places: int) -> Expr:
    """Return ``fft`` or ``ifft`` of cut rows."""
    factors = _factors(x.shape[-1])
    return _four_step(name, x, norm, factors) if min(factors) >= places else _bluestein(name, x, norm)


def _four_step(name: str, x: Expr, norm: str, factors: tuple[int, int]) -> Expr:
    # j = j1 * n2 + j2 and k = k1 + n1 * k2: w**(j * k) is w1**(j1 * k1) * w**(j2 * k1) * w2**(j2 * k2)
    dtype = result_dtype(name, x.dtype)
    lead, (n1, n2) = x.shape[:-1], factors
    matrix = bind_reshape(x, (*lead, n1, n2))
    columns = bind(FFT, (swapaxes(matrix, -1, -2),), (*lead, n2, n1), dtype, (name, n1, norm))
    twiddle = bind_create(TWIDDLE, (n1, n2), dtype, x.env, (), _SIGN[name])
    turned = multiply(swapaxes(columns, -1, -2), twiddle)
    rows = bind(FFT, (turned,), (*lead, n1, n2), dtype, (name, n2, norm))
    return bind_reshape(swapaxes(rows, -1, -2), x.shape)


def _bluestein(name: str, x: Expr, norm: str) -> Expr:
    # j * k = (j**2 + k**2 - (k - j)**2) / 2: a product by a chirp, a convolution with it, a product by it
    dtype = result_dtype(name, x.dtype)
    n = x.shape[-1]
    around = _smooth_product(2 * n - 1)
    sign = _SIGN[name]
    chirp = bind_create(CHIRP, (n,), dtype, x.env, (), (n, sign))
    other = bind_create(CHIRP, (math.prod(around),), dtype, x.env, (), (n, -sign))
    padded = _fitted(multiply(x, chirp), math.prod(around))
    spectrum = multiply(_four_step("fft", padded, "backward", around), _four_step("fft", other, "backward", around))
    convolved = sliced(_four_step("ifft", spectrum, "backward", around), -1, 0, n)
    scale = {"backward": 1.0, "ortho": n**-0.5, "forward": 1.0 / n}[norm if sign < 0 else _SWAPPED[norm]]
    made: Expr = multiply(multiply(convolved, chirp), scale)
    # Not as the first part of the convolution lies, which leaves half of the members without an element.
    if x.env.team is not None:
        made = made.with_pin(over_all_places(x, x.ndim, x.ndim - 1))
    return made


@lru_cache(maxsize=256)
def _factors(n: int) -> tuple[int, int]:
    """Return the factors of `n` that are nearest to each other, the smaller one first.

    >>> _factors(96), _factors(97)
    ((8, 12), (1, 97))
    """
    small = next(d for d in range(math.isqrt(n), 0, -1) if n % d == 0)
    return small, n // small


def _smooth_product(least: int) -> tuple[int, int]:
    """Return two factors without primes above 5, near to each other, whose product is at least `least`.

    >>> _smooth_product(193)
    (15, 15)
    """
    first = _smooth(math.isqrt(least - 1) + 1)
    return first, _smooth(-(-least // first))


def _smooth(least: int) -> int:
    """Return the smallest number from `least` on without prime factors above 5."""
    while True:
        rest = least
        for p in (2, 3, 5):
            while rest % p == 0:
                rest //= p
        if rest == 1:
            return least
        least += 1
