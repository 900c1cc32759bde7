"""What the array API standard lets one ask of a namespace: dtypes, as numpy has them, and devices."""

from __future__ import annotations

from typing import Any

import numpy as np

from distarray.arguments import MAX_NDIM
from distarray.array.environment import check_device, current_device, current_team


class Devices(tuple[str, ...]):
    """Devices are a tuple, as the standard has them from 2025.12 on, to which what took them for the list that they
    were before (SciPy's tests) may still add a list.
    """

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        return list(self) + other if isinstance(other, list) else super().__add__(other)

    def __radd__(self, other: Any) -> Any:
        return other + list(self) if isinstance(other, list) else NotImplemented


class ArrayNamespaceInfo:
    """An ArrayNamespaceInfo is the standard's inspection, which ``__array_namespace_info__()`` returns."""

    def capabilities(self) -> dict[str, bool | int]:
        """Return the optional features of the standard, and the largest number of axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": MAX_NDIM}

    def default_device(self) -> str:
        """Return the device of arrays that are made without saying where."""
        return current_device()

    def default_dtypes(self, *, device: str | None = None) -> dict[str, Any]:
        """Return the dtypes that functions choose by themselves."""
        return dict(np.__array_namespace_info__().default_dtypes())

    def dtypes(self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None) -> dict[str, Any]:
        """Return the standard's dtypes of a kind, by name.

        Raises
        ------
        ValueError
            If there is no such kind.
        """
        numpys: Any = np.__array_namespace_info__()
        return dict(numpys.dtypes(kind=kind))

    def devices(self) -> Devices:
        """Return the devices that arrays can have now; the fake one only if it is the default."""
        found = ["cpu"]
        try:
            found.append(check_device("cuda", current_team()))
        except (RuntimeError, ValueError, ImportError):
            pass
        if current_device() not in found:
            found.append(current_device())
        return Devices(found)
