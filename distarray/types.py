"""Names for the types that the public functions share.

``*Like`` is raw input, parsed once where it enters; the rest is what functions return. Types that name a concept of a
layer (``ShardingLike``, ``TeamLike``) live with that layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

Shape: TypeAlias = tuple[int, ...]
ShapeLike: TypeAlias = SupportsIndex | Sequence[SupportsIndex]

Axes: TypeAlias = tuple[int, ...]
#: One axis, several, or None for all.
AxesLike: TypeAlias = SupportsIndex | Sequence[SupportsIndex] | None

#: dtypes are values here: which one an array has is not known to the type checker.
DType: TypeAlias = np.dtype[Any]
DTypeLike: TypeAlias = npt.DTypeLike | None
HostArray: TypeAlias = npt.NDArray[Any]

Casting: TypeAlias = Literal["no", "equiv", "safe", "same_kind", "unsafe"]

#: ``1048576``, ``"1 MiB"``.
NBytesLike: TypeAlias = int | str
