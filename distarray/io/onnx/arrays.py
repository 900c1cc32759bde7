"""Arrays as annotations say them: the spec of how a DistArray lies on its team."""

from __future__ import annotations

from typing import Any

from distarray.array.array import DistArray
from distarray.errors import ShardingError
from distarray.io.onnx.forms import TensorForm
from distarray.io.onnx.specs import write_spec

__all__ = ["form_of", "spec_of"]


def form_of(x: DistArray) -> TensorForm:
    """Return how an array lies, or will lie: devices are the ranks of its team's members. Nothing is run.

    Raises
    ------
    ShardingError
        If the array has no team, or its cuts are not where a spec can put them.
    """
    if x.team is None:
        raise ShardingError("an array without a team has no devices; give it one with x.to_team(team)")
    sharding = x.sharding
    if not sharding.is_regular:
        raise ShardingError(f"the boundaries {sharding.bounds} are none that a spec can say; use x.reshard(...) first")
    size = x.team.size
    return TensorForm(
        tuple(x.shape),
        tuple(((n, k),) if k > 1 else () for n, k in zip(x.shape, sharding.parts, strict=True)),
        tuple(frozenset(sharding.members(tile, size)) for tile in sharding.tiles()),
    )


def spec_of(x: DistArray, name: str) -> Any:
    """Return a ShardingSpecProto of how an array lies, for a tensor of this name. Nothing is run.

    Raises
    ------
    ShardingError
        As `form_of`.
    """
    from distarray.io.onnx.protobuf import spec_to_proto

    return spec_to_proto(write_spec(form_of(x)), name)
