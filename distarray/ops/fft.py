"""Fourier transforms over any axes, cut or not.

A transform over several axes is one after the other, so an array that is cut along each of them in turn is resharded
between the steps; the planner says how. Along one axis `fft_lengths` decides what is transformed whole. Kernels are
those of the block's namespace; dtypes are asked of numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from distarray.arguments import choice, integer, integers, normalize_axis, sequence, shown
from distarray.errors import warn_user
from distarray.expr.expr import Expr
from distarray.ops.families import Array, one_array, ready_made
from distarray.ops.fft_lengths import result_dtype, transform
from distarray.ops.joining import roll
from distarray.ops.manipulation import moveaxis
from distarray.types import AxesLike

__all__ = [
    "fft", "fft2", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "irfft", "irfft2",
    "irfftn", "rfft", "rfft2", "rfftn",
]  # fmt: skip

#: Lengths of several transforms, or the axes that they are along; None: all.
Several: TypeAlias = Sequence[int] | None

_NORMS = ("backward", "ortho", "forward")


def _along(name: str, x: Array, n: int | None, axis: int, norm: str | None) -> Array:
    node, box = one_array(name, x)
    axis = normalize_axis(axis, node.ndim)
    norm = "backward" if norm is None else norm
    choice(norm, _NORMS, "norm")
    extent = node.shape[axis]
    if n is None:
        n = 2 * (extent - 1) if name in ("irfft", "hfft") else extent
    n = integer(n, "n", truths=name in ("rfft", "ihfft"))  # numpy takes their truth values
    if n < 1:
        raise ValueError(f"Invalid number of FFT data points ({n}) specified.")
    result_dtype(name, node.dtype)  # numpy's TypeError
    moved: Expr = moveaxis(node, axis, -1)
    return box(moveaxis(transform(name, moved, n, norm), -1, axis))


@ready_made(1)
def fft(x: Array, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """Return the discrete Fourier transform along `axis`, of the first `n` elements or padded with zeros to `n`."""
    return _along("fft", x, n, axis, norm)


@ready_made(1)
def ifft(x: Array, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """Return the inverse of `fft`."""
    return _along("ifft", x, n, axis, norm)


@ready_made(1)
def rfft(x: Array, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """Return the first half of the transform of real numbers: the other half is its conjugate."""
    return _along("rfft", x, n, axis, norm)


@ready_made(1)
def irfft(x: Array, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """Return the inverse of `rfft`; `n` real numbers, ``2 * (m - 1)`` by default."""
    return _along("irfft", x, n, axis, norm)


@ready_made(1)
def hfft(x: Array, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """Return the transform of a signal with Hermitian symmetry, of which `x` is the first half: real numbers."""
    return _along("hfft", x, n, axis, norm)


@ready_made(1)
def ihfft(x: Array, /, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """Return the inverse of `hfft`."""
    return _along("ihfft", x, n, axis, norm)


def _steps(name: str, x: Array, s: Several, axes: Several) -> list[tuple[int | None, int]]:
    """Return (length, axis) of the transforms along several axes, in the order of the axes.

    Lengths are those of the axes of `x`, also of an axis that comes twice; None for what `irfft` makes of the last one.
    """
    node, _ = one_array(name, x)
    lengths: list[int | None] | None = (
        None if s is None else [n if n is None else integer(n, "s") for n in sequence(s, "s", "integers")]
    )
    if lengths is not None and axes is None:
        warn_user(
            "`axes` should not be `None` if `s` is not `None` (Deprecated in NumPy 2.0): pass the axes of the lengths",
            DeprecationWarning,
        )
    if lengths is not None and None in lengths:
        warn_user(
            "Passing an array containing `None` values to `s` is deprecated in NumPy 2.0: -1 is the length of an axis",
            DeprecationWarning,
        )
    if axes is None:
        n_axes = node.ndim if lengths is None else len(lengths)
        chosen = [normalize_axis(a, node.ndim, "axes") for a in range(-n_axes, 0)]
    else:
        chosen = [normalize_axis(a, node.ndim, "axes") for a in sequence(axes, "axes", "integers")]
    if not chosen and name in ("rfftn", "irfftn"):
        raise IndexError(f"{name}: axes={shown(axes)} are none, and the last of them is one of real numbers")
    if lengths is None:
        lengths = [node.shape[a] for a in chosen]
        if name == "irfftn":
            lengths[-1:] = [None]
    if len(lengths) != len(chosen):
        raise ValueError(f"Shape and axes have different lengths: s={shown(s)} and axes={chosen}")
    # numpy: -1 is the whole axis
    return [(node.shape[a] if n == -1 else n, a) for n, a in zip(lengths, chosen)]


@ready_made(1)
def fftn(x: Array, /, s: Several = None, axes: Several = None, norm: str = "backward") -> Array:
    """Return `fft` along several axes, all by default; `s` are the lengths."""
    for n, axis in reversed(_steps("fftn", x, s, axes)):
        x = fft(x, n=n, axis=axis, norm=norm)
    return x


@ready_made(1)
def ifftn(x: Array, /, s: Several = None, axes: Several = None, norm: str = "backward") -> Array:
    """Return the inverse of `fftn`."""
    for n, axis in reversed(_steps("ifftn", x, s, axes)):
        x = ifft(x, n=n, axis=axis, norm=norm)
    return x


@ready_made(1)
def rfftn(x: Array, /, s: Several = None, axes: Several = None, norm: str = "backward") -> Array:
    """Return `rfft` along the last of several axes, then `fft` along the others."""
    *others, (n, axis) = _steps("rfftn", x, s, axes)
    x = rfft(x, n=n, axis=axis, norm=norm)
    for n, axis in reversed(others):
        x = fft(x, n=n, axis=axis, norm=norm)
    return x


@ready_made(1)
def irfftn(x: Array, /, s: Several = None, axes: Several = None, norm: str = "backward") -> Array:
    """Return the inverse of `rfftn`."""
    *others, (n, axis) = _steps("irfftn", x, s, axes)
    for m, other in others:
        x = ifft(x, n=m, axis=other, norm=norm)
    return irfft(x, n=n, axis=axis, norm=norm)


@ready_made(1)
def fft2(x: Array, /, s: Several = None, axes: Sequence[int] = (-2, -1), norm: str = "backward") -> Array:
    """Return `fftn` along two axes."""
    return fftn(x, s=s, axes=axes, norm=norm)


@ready_made(1)
def ifft2(x: Array, /, s: Several = None, axes: Sequence[int] = (-2, -1), norm: str = "backward") -> Array:
    """Return `ifftn` along two axes."""
    return ifftn(x, s=s, axes=axes, norm=norm)


@ready_made(1)
def rfft2(x: Array, /, s: Several = None, axes: Sequence[int] = (-2, -1), norm: str = "backward") -> Array:
    """Return `rfftn` along two axes."""
    return rfftn(x, s=s, axes=axes, norm=norm)


@ready_made(1)
def irfft2(x: Array, /, s: Several = None, axes: Sequence[int] = (-2, -1), norm: str = "backward") -> Array:
    """Return `irfftn` along two axes."""
    return irfftn(x, s=s, axes=axes, norm=norm)


@ready_made(1)
def fftshift(x: Array, /, axes: AxesLike = None) -> Array:
    """Return `x` with the element of frequency zero in the middle of each axis."""
    return _shifted("fftshift", x, axes, 1)


@ready_made(1)
def ifftshift(x: Array, /, axes: AxesLike = None) -> Array:
    """Return the inverse of `fftshift`."""
    return _shifted("ifftshift", x, axes, -1)


def _shifted(name: str, x: Array, axes: AxesLike, sign: int) -> Array:
    node, _ = one_array(name, x)
    # an axis that comes twice is shifted twice
    chosen = tuple(normalize_axis(a, node.ndim) for a in (range(node.ndim) if axes is None else integers(axes, "axes")))
    # An odd axis has one element more before its middle than behind it.
    shifts = tuple(node.shape[a] // 2 if sign > 0 else -(node.shape[a] // 2) for a in chosen)
    return roll(x, shifts, axis=chosen)
