"""The namespace of arrays is the module ``distarray``: methods find the functions of their names there."""

from __future__ import annotations

import sys
from types import ModuleType

_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")


def namespace(api_version: str | None = None) -> ModuleType:
    """Return the module ``distarray``, the namespace of its arrays.

    Raises
    ------
    ValueError
        For a version of the standard that is not known.
    """
    if api_version is not None and api_version not in _VERSIONS:
        raise ValueError(f"array API version {api_version!r} is not known; known are {', '.join(_VERSIONS)}")
    return sys.modules["distarray"]
