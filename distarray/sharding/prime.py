"""Meshes of prime axes: the finest grid that a mesh refines to, and shardings carried between the two.

A planner that wants to cut a team of four members two by two needs two mesh axes where the team may have one. Every
axis of a mesh splits into axes of prime sizes without any place changing its number, so a cut of the coarse mesh is a
cut of the fine one: `refined` rewrites it, and `coarsened` goes back where the cut allows it. Types that say the same
then compare equal, and what users see are the axes that they named.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import isqrt, prod

from distarray.errors import ShardingError
from distarray.sharding.mesh import Mesh, is_wave
from distarray.sharding.sharding import Sharding


@lru_cache(maxsize=4096)
def prime_factors(n: int) -> tuple[int, ...]:
    """Return the prime factors of a positive integer, ascending.

    >>> prime_factors(12), prime_factors(1)
    ((2, 2, 3), ())
    """
    found = []
    q = 2
    while q * q <= n:
        while n % q == 0:
            found.append(q)
            n //= q
        q += 1
    return (*found, n) if n > 1 else tuple(found)


@lru_cache(maxsize=4096)
def divisors(n: int) -> tuple[int, ...]:
    """Return all divisors of a positive integer, ascending.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    small = [d for d in range(1, isqrt(n) + 1) if n % d == 0]
    return tuple(small + [n // d for d in reversed(small) if d * d < n])


@lru_cache(maxsize=256)
def _prime_axes(mesh: Mesh) -> tuple[tuple[tuple[str, int], ...], ...]:
    """Return per axis of a mesh the axes (name, size) that it splits into, major first; wave axes stay whole."""
    joint = "_"
    while any(f"{name}{joint}" in other for name in mesh.names for other in mesh.names):
        joint += "_"
    axes: list[tuple[tuple[str, int], ...]] = []
    for name, size in zip(mesh.names, mesh.sizes, strict=True):
        factors = prime_factors(size)
        if is_wave(name) or len(factors) < 2:
            axes.append(((name, size),))
        else:
            axes.append(tuple([(f"{name}{joint}{i + 1}", q) for i, q in enumerate(factors)]))
    return tuple(axes)


@lru_cache(maxsize=256)
def prime_mesh(mesh: Mesh) -> Mesh:
    """Return the mesh of the same places whose axes, but for wave axes, have prime sizes (or size 1).

    >>> prime_mesh(Mesh(("x", "y"), (4, 3)))
    Mesh(x_1=2, x_2=2, y=3)
    """
    flat = [axis for axes in _prime_axes(mesh) for axis in axes]
    return Mesh(tuple([name for name, _ in flat]), tuple([size for _, size in flat]), mesh.owners)


def _split(mesh: Mesh) -> dict[str, tuple[str, ...]]:
    """Return the prime axes of each axis of a mesh, minor first, as the names of a cut stand."""
    found = zip(mesh.names, _prime_axes(mesh), strict=True)
    return {name: tuple([part for part, _ in reversed(axes)]) for name, axes in found}


@lru_cache(maxsize=4096)
def refined(sharding: Sharding) -> Sharding:
    """Return the same type on the prime mesh.

    >>> refined(Sharding(Mesh(("x",), (4,)), (("x",), ()))).axes
    (('x_2', 'x_1'), ())
    """
    mesh = sharding.mesh
    fine = prime_mesh(mesh)
    if fine == mesh:
        return sharding
    split = _split(mesh)
    axes = tuple([tuple([part for name in names for part in split[name]]) for names in sharding.axes])
    unreduced = tuple([(part, monoid) for name, monoid in sharding.unreduced for part in split[name]])
    return Sharding(fine, axes, unreduced, sharding.bounds, sharding.layout)


@lru_cache(maxsize=4096)
def coarsened(sharding: Sharding, mesh: Mesh) -> Sharding:
    """Return the same type on `mesh` (with the type's wave axes) if its prime mesh is that of the type; else as it is.

    Parameters
    ----------
    sharding
        Nothing of it may be unreduced.
    mesh
        A mesh without wave axes.

    Examples
    --------
    >>> team = Mesh(("x",), (4,))
    >>> fine = prime_mesh(team)
    >>> coarsened(Sharding(fine, (("x_2", "x_1"), ())), team).axes, coarsened(Sharding(fine, (("x_1",), ())), team).axes
    ((('x',), ()), (('x_1',), ()))
    """
    fine = sharding.mesh
    if fine == mesh:
        return sharding
    if fine.owners is not None:
        return sharding
    waves = [(name, size) for name, size in zip(fine.names, fine.sizes, strict=True) if is_wave(name)]
    coarse = Mesh(mesh.names + tuple([n for n, _ in waves]), mesh.sizes + tuple([n for _, n in waves]))
    if prime_mesh(coarse) != fine:
        return sharding
    runs = {axes[-1][0]: (name, len(axes)) for name, axes in zip(coarse.names, _prime_axes(coarse), strict=True)}
    parts = _split(coarse)
    cut = []
    for names in sharding.axes:
        joined = _joined(names, runs, parts)
        if joined is None:
            return sharding
        cut.append(joined)
    return Sharding(coarse, tuple(cut), (), sharding.bounds, sharding.layout)


def _joined(
    names: Sequence[str], runs: dict[str, tuple[str, int]], parts: dict[str, tuple[str, ...]]
) -> tuple[str, ...] | None:
    """Return prime axes, minor first, as axes of the coarse mesh; None if some of one stand apart from the others."""
    found = []
    at = 0
    while at < len(names):
        name, n = runs.get(names[at], ("", 0))
        if not n or tuple(names[at : at + n]) != parts[name]:
            return None
        found.append(name)
        at += n
    return tuple(found)


# ----------------------------------------------------------------------------------------------- so many parts


@lru_cache(maxsize=256)
def smaller_mesh(mesh: Mesh, n: int) -> Mesh:
    """Return a mesh of the first `n` places of another, in prime axes whose names that one does not have.

    >>> smaller_mesh(Mesh(("x",), (7,)), 6)
    Mesh(g1=3, g2=2)
    """
    letter = "g"
    while any(name.startswith(letter) for name in mesh.names):
        letter += "g"
    factors = sorted(prime_factors(n), reverse=True)
    return Mesh(tuple([f"{letter}{i + 1}" for i in range(len(factors))]), tuple(factors))


def realised(parts: Sequence[int], mesh: Mesh) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Yield the ways to deal axes of a mesh out to loops so that they have these parts.

    >>> list(realised((2, 1, 2), Mesh(("a", "b"), (2, 2))))
    [(('a',), (), ('b',)), (('b',), (), ('a',))]
    """
    ways: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((), tuple(parts))]
    for size in mesh.sizes:  # each axis goes to a loop that still needs it, or to none
        ways = [
            ((*way, i), (*left[:i], left[i] // size, *left[i + 1 :]) if i >= 0 else left)
            for way, left in ways
            for i in (*range(len(parts)), -1)
            if i < 0 or (left[i] > 1 and left[i] % size == 0)
        ]
    for way, left in ways:
        if all(n == 1 for n in left):
            yield dealt_out(mesh.names, way, len(parts))


def dealt_out(names: Sequence[str], way: Sequence[int], n: int) -> tuple[tuple[str, ...], ...]:
    """Return which of these axes cut each of `n` loops, minor first, if axis `k` cuts loop ``way[k]``."""
    return tuple([tuple([names[k] for k in reversed(range(len(names))) if way[k] == i]) for i in range(n)])


def parted(parts: Sequence[int], mesh: Mesh) -> Sharding:
    """Return a type with so many parts along each axis, each at a place of its own: places that are left over have
    none.

    Raises
    ------
    ShardingError
        If there are more tiles than places.

    Examples
    --------
    >>> parted((2, 2), Mesh(("x",), (4,))).axes, parted((3, 2), Mesh(("x",), (7,))).mesh
    ((('x_1',), ('x_2',)), Mesh(g1=3, g2=2))
    """
    n = prod(parts)
    if n > mesh.size:
        raise ShardingError(f"{n} parts are more than the {mesh.size} members of the team")
    grid = prime_mesh(mesh) if n == mesh.size else smaller_mesh(mesh, n)
    return coarsened(Sharding(grid, next(realised(parts, grid))), mesh)
