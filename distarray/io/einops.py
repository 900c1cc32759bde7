"""einops on DistArrays: importing this module makes ``einops.rearrange`` and its like take them.

    import distarray.io.einops

einops finds a backend for a type among the subclasses of its own base class, so what it needs is one more of them; it
asks for no other registration. Without this module ``einops.array_api`` works, whose functions need no backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from einops._backends import AbstractBackend  # where its documentation of custom backends points

from distarray.array.array import DistArray
from distarray.composed.conversion import asarray
from distarray.composed.creation import arange
from distarray.composed.numpy_signatures import concat, stack
from distarray.composed.views import broadcast_to, expand_dims
from distarray.ops.einsums import einsum
from distarray.ops.repetition import tile
from distarray.types import HostArray, Shape


class DistArrayBackend(AbstractBackend):  # type: ignore[misc]  # einops says nothing about its types
    """A DistArrayBackend is what einops asks of a library of arrays. Everything is lazy and stays where it lies."""

    framework_name = "distarray"

    def is_appropriate_type(self, tensor: object) -> bool:
        """Return whether this is an array of ours."""
        return isinstance(tensor, DistArray)

    def from_numpy(self, x: HostArray) -> DistArray:
        """Return a host array in the current environment."""
        return asarray(x)

    def to_numpy(self, x: DistArray) -> HostArray:
        """Return the whole array in this process: what ``einops.asnumpy`` is for."""
        return x.compute()

    def arange(self, start: int, stop: int) -> DistArray:
        """Return consecutive integers."""
        return arange(start, stop)

    def stack_on_zeroth_dimension(self, tensors: list[DistArray]) -> DistArray:
        """Return a list of arrays as one."""
        stacked: DistArray = stack(tensors)
        return stacked

    def tile(self, x: DistArray, repeats: Shape) -> DistArray:
        """Return copies of an array side by side, `repeats` of them along each axis."""
        tiled: DistArray = tile(x, repeats)
        return tiled

    def add_axes(self, x: DistArray, n_axes: int, pos2len: dict[int, int]) -> DistArray:
        """Return `x` repeated along new axes at these positions of the `n_axes` that there will be: a broadcast
        view.
        """
        wide = expand_dims(x, axis=tuple(pos2len))
        return broadcast_to(wide, tuple(pos2len.get(axis, n) for axis, n in enumerate(wide.shape)))

    def concat(self, tensors: Sequence[DistArray], axis: int) -> DistArray:
        """Return arrays one after the other."""
        joined: DistArray = concat(tensors, axis=axis)
        return joined

    def add_axis(self, x: DistArray, new_position: int) -> DistArray:
        """Return `x` with an axis of extent 1: a view."""
        return expand_dims(x, axis=new_position)

    def is_float_type(self, x: DistArray) -> bool:
        """Return whether means may be taken."""
        return bool(x.dtype.kind == "f")

    def einsum(self, pattern: str, *x: DistArray) -> Any:
        """Return a sum of products."""
        return einsum(pattern, *x)
