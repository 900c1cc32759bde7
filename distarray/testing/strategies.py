"""Hypothesis strategies for the types of the pure layers: meshes, shapes, shardings, teams, rules.

Extents of 0 and 1, axes shorter than their number of parts, mesh axes of size 1 and wave axes are all drawn often: that
is where cuts go wrong. Everything shrinks to the empty mesh and the rank-0 array.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from distarray.sharding.mesh import Mesh
from distarray.sharding.rule import ShardingRule
from distarray.sharding.sharding import MONOIDS, Sharding
from distarray.sharding.team import Team

__all__ = ["dtypes", "layouts", "meshes", "owned_meshes", "rules", "sharded", "shapes", "shardings", "teams"]

_DTYPES = (
    *("bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"),
    *("M8[ns]", "m8[s]", "M8[25us]"),
)


def dtypes() -> st.SearchStrategy[np.dtype[Any]]:  # Any: of whatever scalar
    """Draw dtypes that a DistArray may have."""
    return st.sampled_from([np.dtype(name) for name in _DTYPES])


@st.composite
def meshes(draw: st.DrawFn, max_axes: int = 3, max_places: int = 64, waves: bool = True) -> Mesh:
    """Draw meshes of at most `max_places` places, with sizes of 1 among them, and with wave axes if `waves`."""
    sizes: list[int] = []
    for _ in range(draw(st.integers(0, max_axes))):
        sizes.append(draw(st.integers(1, max(1, min(8, max_places // prod(sizes))))))
    names = ["x", "y", "z", *(f"axis_{i}" for i in range(3, max_axes))][: len(sizes)]
    if waves and sizes and draw(st.booleans()):
        names[draw(st.integers(0, len(sizes) - 1))] = "%1"
    return Mesh(tuple(names), tuple(sizes))


@st.composite
def owned_meshes(draw: st.DrawFn, n_members: int, max_axes: int = 3, max_places: int = 12) -> Mesh:
    """Draw meshes that list the owner of each place, of so many members: in any order, some twice, others not at
    all.
    """
    mesh = draw(meshes(max_axes, max_places, waves=False))
    owners = draw(st.lists(st.integers(0, n_members - 1), min_size=mesh.size, max_size=mesh.size))
    return Mesh(mesh.names, mesh.sizes, tuple(owners))


def shapes(min_dims: int = 0, max_dims: int = 3, max_side: int = 20) -> st.SearchStrategy[tuple[int, ...]]:
    """Draw shapes, with extents 0 and 1 among them."""
    return st.lists(st.integers(0, max_side), min_size=min_dims, max_size=max_dims).map(tuple)


def layouts(ndim: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Draw orders of the axes of a block."""
    return st.permutations(range(ndim)).map(tuple)


@st.composite
def shardings(
    draw: st.DrawFn,
    mesh: Mesh,
    shape: Sequence[int],
    *,
    explicit: bool = True,
    unreduced: bool = True,
    permuted: bool = True,
) -> Sharding:
    """Draw shardings of an array of this shape on `mesh`.

    Parameters
    ----------
    mesh
        Each of its axes cuts an array axis, replicates, or (if `unreduced`) holds addends.
    shape
        Extents, for explicit boundaries.
    explicit, unreduced, permuted
        Whether to draw explicit boundaries, unreduced axes, layouts other than C.
    """
    axes: list[list[str]] = [[] for _ in shape]
    addends: list[tuple[str, str]] = []
    for name in draw(st.permutations(mesh.names)):
        role = draw(st.integers(-2 if unreduced else -1, len(shape) - 1))
        if role >= 0:
            axes[role].append(name)
        elif role == -2:
            addends.append((name, draw(st.sampled_from(MONOIDS))))
    bounds: list[tuple[int, ...] | None] = []
    for n, names in zip(shape, axes, strict=True):
        inner = prod(map(mesh.axis_size, names)) - 1
        if explicit and draw(st.booleans()):
            cuts = sorted(draw(st.lists(st.integers(0, n), min_size=inner, max_size=inner)))
            bounds.append((0, *cuts, n))
        else:
            bounds.append(None)
    layout = draw(layouts(len(shape))) if permuted else ()
    return Sharding(mesh, tuple(map(tuple, axes)), tuple(addends), tuple(bounds), layout)


@st.composite
def sharded(
    draw: st.DrawFn, *, explicit: bool = True, unreduced: bool = True, permuted: bool = True
) -> tuple[tuple[int, ...], Sharding]:
    """Draw a shape, and a sharding for it on some mesh."""
    shape = draw(shapes())
    mesh = draw(meshes())
    return shape, draw(shardings(mesh, shape, explicit=explicit, unreduced=unreduced, permuted=permuted))


@st.composite
def teams(draw: st.DrawFn, max_size: int = 12) -> Team:
    """Draw teams of threads of this process."""
    mesh = draw(meshes(max_places=max_size, waves=False))
    return Team(mesh.sizes, mesh.names, members=range(mesh.size))


@st.composite
def rules(draw: st.DrawFn, max_operands: int = 3, max_results: int = 2) -> ShardingRule:
    """Draw rules with every kind of term and clause."""
    words = st.sampled_from([*"ijkmn", "row", "b_2", "1"])

    def term(allow_lead: bool) -> tuple[str, ...]:
        loops = draw(st.lists(words, max_size=4, unique_by=lambda word: word if word != "1" else object()))
        return ("...", *loops) if allow_lead and draw(st.booleans()) else tuple(loops)

    lead = draw(st.booleans())
    operands = tuple(term(lead) for _ in range(draw(st.integers(0, max_operands))))
    results = tuple(term(lead) for _ in range(draw(st.integers(1, max_results))))
    inputs = {loop for t in operands for loop in t} - {"1"}
    outputs = {loop for t in results for loop in t} - {"1"}
    if draw(st.booleans()) and operands:  # axes with halos around loops, which other axes run over
        others = {loop for t in (*operands[1:], *results) for loop in t} - {"1", "..."}
        halo = draw(st.sampled_from(["-2", "+1", "-1+3"]))
        operands = (tuple([loop + halo if loop in others else loop for loop in operands[0]]), *operands[1:])
    kinds: dict[str, str] = {}
    for loop in sorted(inputs | outputs):
        choices = ["", "whole"]
        if loop in inputs and not all(loop in t for t in results):
            choices += MONOIDS
        elif loop not in inputs and loop != "...":
            choices.append(f"new({draw(st.integers(0, 9))})")
        if kind := draw(st.sampled_from(choices)):
            kinds[loop] = kind
    return ShardingRule(operands, results, kinds)
