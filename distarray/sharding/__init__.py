"""Where elements live: meshes, teams, cuts, layouts, the distributed type and the rules of operations.

A pure layer: it imports neither Dask nor CuPy, knows no expression and moves nothing.
"""

from distarray.sharding.cuts import boundaries, check_boundaries, largest_part, owner, part_of, parts_of
from distarray.sharding.layout import (
    Layout,
    LayoutLike,
    c_layout,
    drop_axes,
    layout_name,
    layout_of,
    layout_strides,
    parse_layout,
    permute_layout,
)
from distarray.sharding.mesh import Mesh, is_wave
from distarray.sharding.rule import ShardingRule
from distarray.sharding.sharding import MONOIDS, Sharding
from distarray.sharding.spec import (
    ShardingLike,
    format_type,
    from_json,
    parse_mesh,
    parse_sharding,
    parse_type,
    swap_axis_order,
    to_json,
)
from distarray.sharding.team import Team

__all__ = [
    "MONOIDS",
    "Layout",
    "LayoutLike",
    "Mesh",
    "Sharding",
    "ShardingLike",
    "ShardingRule",
    "Team",
    "boundaries",
    "c_layout",
    "check_boundaries",
    "drop_axes",
    "format_type",
    "from_json",
    "is_wave",
    "largest_part",
    "layout_name",
    "layout_of",
    "layout_strides",
    "owner",
    "parse_layout",
    "parse_mesh",
    "parse_sharding",
    "parse_type",
    "part_of",
    "parts_of",
    "permute_layout",
    "swap_axis_order",
    "to_json",
]
