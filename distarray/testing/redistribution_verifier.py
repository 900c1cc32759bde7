"""Checking a plan, whoever made it: code of its own, which shares nothing with the planner but the types.

The verifier takes the problem from the caller and only the steps from the plan. What it accepts gives the right tile on
every device; what it rejects it gives a reason for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil, prod
from typing import Any

import numpy as np

from distarray.sharding.sharding import Sharding

__all__ = ["verify"]

_NORMAL = {"dynslice": 0, "reduce_scatter": 0, "all_reduce": 0, "alltoall": 1, "allpermute": 1, "allgather": 2}


class _Flaw(Exception):
    """A _Flaw is what is wrong with a step."""


def verify(
    shape: Sequence[int],
    src: Sharding,
    dst: Sharding,
    steps: Sequence[Mapping[str, Any]],
    *,
    mode: str = "",
    cost: int | None = None,
    peak: int | None = None,
    crosses: bool = False,
) -> list[str]:
    """Return what is wrong with a plan; empty if nothing is.

    Parameters
    ----------
    shape, src, dst
        The problem.
    steps
        In the JSON form of a plan.
    mode
        ``paper`` plans must be in normal form with at most one permute, directly before the gathers.
    cost, peak
        What the plan says of itself; recomputed and compared.
    crosses
        Whether the target is another team's, though it has as many places.

    Notes
    -----
    An exchange with ``"mesh"`` leads to the devices of the target, if that is another team's; all that follows is
    about these. Where the target stays a partial result, no step may bring a device elements of another addend.

    It checks that every step is one of the collectives with groups, indices and permutations as its typing asks, that
    every map on the way is uniform, that the last one is the target's, and that no tile is larger than the larger one
    of the ends, also where sizes do not divide.
    """
    try:
        walk = _Replay(tuple(shape), src, dst)
        for number, step in enumerate(steps):
            try:
                walk.take(step)
            except _Flaw as flaw:
                return [f"step {number}: {flaw}"]
            except (KeyError, TypeError, ValueError, IndexError) as error:
                return [f"step {number}: {step.get('op')} is malformed: {error!r}"]
        if crosses and not walk.is_across:
            return ["the target is another team's, and no exchange leads there"]
        return list(walk.flaws_at_end(list(steps), mode, cost, peak))
    except _Flaw as flaw:
        return [str(flaw)]


def _type_boxes(sharding: Sharding) -> tuple[list[list[int]], list[int], list[Any]]:
    """Return per device the number of its part along each dimension, the part counts, and explicit boundaries."""
    names, sizes = sharding.mesh.names, sharding.mesh.sizes
    devices = []
    for d in range(prod(sizes)):
        rest, coordinates = d, {}
        for name, size in zip(reversed(names), reversed(sizes)):
            coordinates[name] = rest % size
            rest //= size
        tile = []
        for axes in sharding.axes:
            t, weight = 0, 1
            for name in axes:
                t += weight * coordinates[name]
                weight *= sizes[names.index(name)]
            tile.append(t)
        devices.append(tile)
    counts = [prod(sizes[names.index(name)] for name in axes) for axes in sharding.axes]
    return devices, counts, list(sharding.bounds)


class _Replay:
    def __init__(self, shape: tuple[int, ...], src: Sharding, dst: Sharding) -> None:
        self.shape = shape
        if len(shape) != src.ndim or len(shape) != dst.ndim:
            raise _Flaw("the types have another rank than the array")
        self.tiles, self.parts, self.bounds = _type_boxes(src)
        self.target, self.target_parts, self.target_bounds = _type_boxes(dst)
        self.n = len(self.tiles)
        self.dst_mesh = [[name, size] for name, size in zip(dst.mesh.names, dst.mesh.sizes)]
        #: Whether the devices are those of the target's team.
        self.is_across = False
        #: For an exchange to any boxes: the boxes, else None.
        self.boxes: list[tuple[tuple[int, int], ...]] | None = None
        #: Which addend of a partial sum each device holds, and how many there are: of those that the target reduces,
        #: and of those that it keeps.
        reduced = [name for name, monoid in src.unreduced if (name, monoid) not in dst.unreduced]
        self.addends, self.n_addends = self._addends(src, reduced)
        self.kept, self.n_kept = self._addends(src, [name for name, _ in dst.unreduced])
        if dst.unreduced and src.mesh != dst.mesh:
            raise _Flaw("partial results move within one mesh only")
        #: Whether all sizes divide: then a step may only cut evenly.
        self.divides = all(s % k == 0 for s, k in zip((*shape, *shape), (*self.parts, *self.target_parts)))
        self.sizes = [self._largest()]
        self.costs: list[int] = []
        self.bound = max(self.sizes[0], self._size_of(self.target_parts, self.target_bounds))

    def _addends(self, src: Sharding, left: list[str]) -> tuple[list[int], int]:
        names, sizes = src.mesh.names, src.mesh.sizes
        found = []
        for d in range(self.n):
            coordinates = dict(zip(names, np.unravel_index(d, sizes), strict=True))
            a = 0
            for name in reversed(left):
                a = a * sizes[names.index(name)] + int(coordinates[name])
            found.append(a)
        return found, prod(sizes[names.index(name)] for name in left)

    # ------------------------------------------------------------------------------------------------ facts

    def _cut(self, i: int, t: int, parts: Sequence[int], bounds: Sequence[Any]) -> tuple[int, int]:
        if bounds and bounds[i] is not None:
            return bounds[i][t], bounds[i][t + 1]
        s, k = self.shape[i], parts[i]
        return t * s // k, (t + 1) * s // k

    def box(self, d: int) -> tuple[tuple[int, int], ...]:
        if self.boxes is not None:
            return self.boxes[d]
        return tuple(self._cut(i, t, self.parts, self.bounds) for i, t in enumerate(self.tiles[d]))

    def _largest(self) -> int:
        return max(prod(b - a for a, b in self.box(d)) for d in range(self.n))

    def _size_of(self, parts: Sequence[int], bounds: Sequence[Any]) -> int:
        widths = []
        for i, (s, k) in enumerate(zip(self.shape, parts)):
            explicit = bounds[i] if bounds else None
            widths.append(ceil(s / k) if explicit is None else max(b - a for a, b in pairwise(explicit)))
        return prod(widths)

    # ------------------------------------------------------------------------------------------------ steps

    def take(self, step: Mapping[str, Any]) -> None:
        op = step.get("op")
        if op not in (*_NORMAL, "exchange"):
            raise _Flaw(f"{op!r} is no step")
        before = self.sizes[-1]
        if self.boxes is not None and op not in ("exchange", "allgather"):
            raise _Flaw(f"{op} on tiles that no regular cut makes")
        getattr(self, f"_{op}")(step)
        self._check_uniform()
        after = self._largest()
        self.sizes.append(after)
        factor = {"dynslice": 0, "allgather": after, "exchange": after, "all_reduce": 2 * before}
        self.costs.append(factor.get(str(op), before))

    def _dim(self, step: Mapping[str, Any], key: str = "dim") -> int:
        dim = step[key]
        if type(dim) is not int or not 0 <= dim < len(self.shape):
            raise _Flaw(f"{step['op']}: there is no dimension {dim}")
        if self.bounds and self.bounds[dim] is not None:
            raise _Flaw(f"{step['op']}: dimension {dim} is explicitly cut")
        return dim

    def _factor(self, step: Mapping[str, Any]) -> int:
        n = step["n"]
        if type(n) is not int or n < 2:
            raise _Flaw(f"{step['op']}: n = {n}")
        return n

    def _refines(self, step: Mapping[str, Any], dim: int, n: int) -> None:
        s, k = self.shape[dim], self.parts[dim]
        if self.divides and (s // k) % n:
            raise _Flaw(f"{step['op']}: {n} does not divide the tile size {s // k} of dimension {dim}")
        held = prod(self.parts) * self.n_addends * self.n_kept
        if held * n > self.n * (n if step["op"] in ("alltoall", "reduce_scatter") else 1):
            raise _Flaw(f"{step['op']}: more tiles than devices")

    def _dynslice(self, step: Mapping[str, Any]) -> None:
        dim, n = self._dim(step), self._factor(step)
        self._refines(step, dim, n)
        index = step["index"]
        if len(index) != self.n or any(type(i) is not int or not 0 <= i < n for i in index):
            raise _Flaw(f"dynslice: index must say a slice 0..{n - 1} for each of {self.n} devices")
        for tile, i in zip(self.tiles, index):
            tile[dim] = tile[dim] * n + i
        self.parts[dim] *= n

    def _groups(self, step: Mapping[str, Any], n: int) -> list[list[int]]:
        groups = step["groups"]
        if sorted(d for g in groups for d in g) != list(range(self.n)):
            raise _Flaw(f"{step['op']}: the groups are no partition of the devices")
        if any(len(g) != n for g in groups):
            raise _Flaw(f"{step['op']}: a group has other than {n} devices")
        if any(len({self.kept[d] for d in g}) > 1 for g in groups):
            raise _Flaw(f"{step['op']}: a group holds different addends of a result that stays partial")
        return [list(g) for g in groups]

    def _adjacent(self, step: Mapping[str, Any], dim: int, n: int, groups: Sequence[Sequence[int]]) -> None:
        if self.parts[dim] % n:
            raise _Flaw(f"{step['op']}: dimension {dim} is in {self.parts[dim]} parts, no multiple of {n}")
        for g in groups:
            first = self.tiles[g[0]]
            if first[dim] % n:
                raise _Flaw(f"{step['op']}: group {g} does not begin at a multiple of {n}")
            for m, d in enumerate(g):
                expected = [t + m if i == dim else t for i, t in enumerate(first)]
                if self.tiles[d] != expected or self.addends[d] != self.addends[g[0]]:
                    raise _Flaw(f"{step['op']}: group {g} does not hold {n} adjacent tiles in order")

    def _allgather(self, step: Mapping[str, Any]) -> None:
        dim, n = self._dim(step), self._factor(step)
        groups = self._groups(step, n)
        if self.boxes is not None:
            self._gather_boxes(dim, groups, self.boxes)
            return
        self._adjacent(step, dim, n, groups)
        for tile in self.tiles:
            tile[dim] //= n
        self.parts[dim] //= n

    def _gather_boxes(
        self, dim: int, groups: Sequence[Sequence[int]], boxes: list[tuple[tuple[int, int], ...]]
    ) -> None:
        """Gather tiles that no regular cut names, because some are empty."""
        made = list(boxes)
        for g in groups:
            here = [boxes[d] for d in g]
            for a, b in pairwise(here):
                if a[dim][1] != b[dim][0] or any(x != y for i, (x, y) in enumerate(zip(a, b)) if i != dim):
                    raise _Flaw(f"allgather: group {list(g)} does not hold adjacent tiles in order")
            union = tuple((x[0], here[-1][i][1]) if i == dim else x for i, x in enumerate(here[0]))
            for d in g:
                made[d] = union
        self._as_tiles(made)

    def _alltoall(self, step: Mapping[str, Any]) -> None:
        i, j, n = self._dim(step, "src_dim"), self._dim(step, "dst_dim"), self._factor(step)
        if i == j:
            raise _Flaw("alltoall: the dimensions are the same")
        groups = self._groups(step, n)
        self._adjacent(step, i, n, groups)
        self._refines(step, j, n)
        index = step.get("index")
        for g in groups:
            kept = list(range(n)) if index is None else [index[d] for d in g]
            if sorted(kept) != list(range(n)):
                raise _Flaw(f"alltoall: index is no permutation in group {g}")
            for d, m in zip(g, kept):
                self.tiles[d][i] //= n
                self.tiles[d][j] = self.tiles[d][j] * n + m
        if index is not None and len(index) != self.n:
            raise _Flaw(f"alltoall: index has {len(index)} entries for {self.n} devices")
        self.parts[i] //= n
        self.parts[j] *= n

    def _allpermute(self, step: Mapping[str, Any]) -> None:
        perm = step["perm"]
        if sorted(perm) != list(range(self.n)):
            raise _Flaw("allpermute: perm is no bijection")
        if any(self.kept[d] != self.kept[p] for d, p in enumerate(perm)):
            raise _Flaw("allpermute: a device gets another addend of a result that stays partial")
        self.tiles = [list(self.tiles[p]) for p in perm]
        self.addends = [self.addends[p] for p in perm]

    def _exchange(self, step: Mapping[str, Any]) -> None:
        if self.n_addends > 1:
            raise _Flaw("exchange: the array is not reduced yet")
        if "mesh" in step:
            self._cross(step)
        offsets = step["offsets"]
        extents = step.get("extents") or [step["shape"]] * self.n
        if len(offsets) != self.n or len(extents) != self.n:
            raise _Flaw(f"exchange: offsets and extents must have {self.n} entries")
        boxes = []
        for o, e in zip(offsets, extents):
            box = tuple((a, a + b) for a, b in zip(o, e, strict=True))
            if len(box) != len(self.shape) or any(a < 0 or a > b or b > s for (a, b), s in zip(box, self.shape)):
                raise _Flaw(f"exchange: {box} is no box of an array of shape {self.shape}")
            boxes.append(box)
        largest = [max((b[i][1] - b[i][0] for b in boxes), default=0) for i in range(len(self.shape))]
        if largest != list(step["shape"]):
            raise _Flaw(f"exchange: the largest tile has shape {largest}, not {step['shape']}")
        self.bounds = []
        self._as_tiles(boxes)

    def _cross(self, step: Mapping[str, Any]) -> None:
        if self.is_across:
            raise _Flaw("exchange: the devices are those of the target already")
        if [list(axis) for axis in step["mesh"]] != self.dst_mesh:
            raise _Flaw(f"exchange: the mesh of the target is {self.dst_mesh}, not {step['mesh']}")
        self.is_across, self.n = True, len(self.target)
        self.addends = self.kept = [0] * self.n

    def _as_tiles(self, boxes: list[tuple[tuple[int, int], ...]]) -> None:
        """Remember the boxes that devices hold; as tiles too where just one regular cut makes them."""
        self.boxes = boxes
        parts = []
        for i, s in enumerate(self.shape):
            candidates = [k for k in range(1, self.n + 1) if self.n % k == 0]
            edges = {b[i] for b in boxes}
            fitting = [k for k in candidates if edges == {(t * s // k, (t + 1) * s // k) for t in range(k)}]
            if len(fitting) != 1:
                return
            parts += fitting
        chosen = parts
        tiles = []
        for b in boxes:
            tile = []
            for i, (s, k) in enumerate(zip(self.shape, chosen)):
                found = [t for t in range(k) if (t * s // k, (t + 1) * s // k) == b[i]]
                if len(found) != 1:
                    return  # empty tiles: which number a device has cannot be told
                tile.append(found[0])
            tiles.append(tile)
        self.tiles, self.parts, self.boxes = tiles, chosen, None

    def _same_tile(self, step: Mapping[str, Any], n: int) -> list[list[int]]:
        groups = self._groups(step, n)
        if self.n_addends % n:
            raise _Flaw(f"{step['op']}: {n} does not divide the {self.n_addends} addends")
        for g in groups:
            if any(self.tiles[d] != self.tiles[g[0]] for d in g):
                raise _Flaw(f"{step['op']}: group {g} does not hold addends of one tile")
        return groups

    def _summed(self, groups: Sequence[Sequence[int]], n: int) -> None:
        """Number the addends anew after a sum over groups: devices that summed the same ones have the same."""
        held: dict[frozenset[int], int] = {}
        classes = [frozenset(self.addends[d] for d in g) for g in groups]
        if any(len(c) != n for c in classes):
            raise _Flaw("a group has an addend twice")
        distinct = set(classes)
        if sum(len(c) for c in distinct) != self.n_addends:
            raise _Flaw("the groups do not sum all addends, each once")
        for c in sorted(distinct, key=min):
            held[c] = len(held)
        for g, c in zip(groups, classes):
            for d in g:
                self.addends[d] = held[c]
        self.n_addends //= n

    def _reduce_scatter(self, step: Mapping[str, Any]) -> None:
        dim, n = self._dim(step), self._factor(step)
        groups = self._same_tile(step, n)
        self._refines(step, dim, n)
        self._summed(groups, n)
        for g in groups:
            for m, d in enumerate(g):
                self.tiles[d][dim] = self.tiles[d][dim] * n + m
        self.parts[dim] *= n

    def _all_reduce(self, step: Mapping[str, Any]) -> None:
        n = self._factor(step)
        self._summed(self._same_tile(step, n), n)

    def _check_uniform(self) -> None:
        if self.boxes is not None:
            return
        counts: dict[tuple[int, ...], int] = {}
        for tile, addend, kept in zip(self.tiles, self.addends, self.kept):
            at = (*tile, addend, kept)
            counts[at] = counts.get(at, 0) + 1
        if len(counts) != prod(self.parts) * self.n_addends * self.n_kept or len(set(counts.values())) > 1:
            raise _Flaw("the map is not uniform: a tile is missing or on more devices than another")

    # -------------------------------------------------------------------------------------------------- end

    def flaws_at_end(
        self, steps: list[Mapping[str, Any]], mode: str, cost: int | None, peak: int | None
    ) -> Iterator[str]:
        if self.n != len(self.target):
            yield f"the target lies on {len(self.target)} devices, and the plan ends on {self.n}"
            return
        for d in range(self.n):
            wanted = tuple(self._cut(i, t, self.target_parts, self.target_bounds) for i, t in enumerate(self.target[d]))
            if self.box(d) != wanted:
                yield f"device {d} ends with {self.box(d)}; the target says {wanted}"
                break
        if self.n_addends != 1:
            yield f"{self.n_addends} addends are left"
        if max(self.sizes) > self.bound:
            yield f"a tile of {max(self.sizes)} elements is larger than the bound {self.bound}"
        if peak is not None and peak != max(self.sizes):
            yield f"the peak is {max(self.sizes)}, not {peak}"
        if cost is not None and cost != sum(self.costs):
            yield f"the cost is {sum(self.costs)}, not {cost}"
        if mode == "paper":
            yield from _not_normal([str(s["op"]) for s in steps])


def _not_normal(ops: list[str]) -> Iterator[str]:
    unknown = [op for op in ops if op not in _NORMAL]
    if unknown:
        yield f"{unknown[0]} is no step of a paper plan"
        return
    ranks = [_NORMAL[op] for op in ops]
    if ranks != sorted(ranks):
        yield "not in normal form: slices, then all-to-alls, then gathers"
    if ops.count("allpermute") > 1:
        yield "more than one permute"
    if "allpermute" in ops and "alltoall" in ops[ops.index("allpermute") :]:
        yield "the permute is not directly before the gathers"
