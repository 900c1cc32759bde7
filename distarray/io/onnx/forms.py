"""Forms: how the elements of a tensor lie on devices, whatever words a spec said it with.

An axis is cut by *entries* ``(size, shards)``. One entry is the plain cut; several are an axis made by fusing axes,
whose index splits row-major into theirs, the first slowest. ``()`` is whole. The boundaries within an entry are those
of `distarray.sharding.cuts`. The owners of a shard are a set of devices: several hold replicas. Everything works with
entries and shards; no element is ever counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import gcd, prod
from typing import Any, TypeAlias

from distarray.sharding.cuts import boundaries

#: Elements of an axis: a number, a symbol, or None where nobody knows.
Size: TypeAlias = int | str | None
AxisCut: TypeAlias = tuple[tuple[Size, int], ...]
Owners: TypeAlias = frozenset[int]


def n_shards(cut: AxisCut) -> int:
    """Return into how many shards an axis is cut."""
    return prod([shards for _, shards in cut])


@lru_cache(maxsize=4096)
def flat_pieces(cut: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Return the same cut in pieces that are as small as can be, what reshapes deal out.

    They are (g, g): every index its own shard; (n, 1): whole; (1, k): all in the last of k shards; and (n, k) without a
    common factor. Two identities of ``floor(i * n / k)`` lead there: (g, g)(n, k) = (g n, g k), and (1, k) may stand on
    either side of (n, 1).

    >>> flat_pieces(((2, 2), (4, 1))) == flat_pieces(((8, 2),)), flat_pieces(((2, 1), (4, 2))), flat_pieces(((9, 6),))
    (True, ((2, 1), (2, 2), (2, 1)), ((3, 3), (3, 2)))
    """
    if any(n == 0 for n, _ in cut):
        return ((0, n_shards(cut)),)
    pieces: list[tuple[int, int]] = []
    for n, k in cut:
        g = gcd(n, k)
        for piece in ((g, g), (n // g, k // g)):
            if piece == (1, 1):
                continue
            carried = [pieces.pop()] if piece[0] == 1 and pieces and pieces[-1][1] == 1 else []
            if pieces and _kind(pieces[-1]) == _kind(piece) != "coprime":
                last = pieces.pop()
                piece = (last[0] * piece[0], last[1] * piece[1])
            pieces += [piece, *carried]
    return tuple(pieces)


def _kind(piece: tuple[int, int]) -> str:
    n, k = piece
    if n == k:
        return "each"
    return "whole" if k == 1 else "last" if n == 1 else "coprime"


def is_identical(a: AxisCut, b: AxisCut) -> bool:
    """Return whether two cuts of one axis have equally many shards that hold the same elements (S-10).

    Where a size is not known yet, plain cuts into equally many shards are identical.
    """
    if a == b:
        return True
    count = n_shards(a)
    if count != n_shards(b):
        return False
    if count == 1:
        return True
    known_a, known_b = _known(a), _known(b)
    if known_a is None or known_b is None:
        return len(a) == len(b) == 1
    if len(a) == len(b) == 1:
        return known_a == known_b
    return _runs(known_a) == _runs(known_b)


@lru_cache(maxsize=4096)
def _runs(cut: tuple[tuple[int, int], ...]) -> list[tuple[int, tuple[tuple[int, int], ...]] | None]:
    """Return the elements of each shard as a start and (stride, count) pairs, the smallest stride first; None: empty.

    Strides that continue each other are one, so equal sets are written alike, whatever made them.
    """
    found: list[tuple[int, tuple[tuple[int, int], ...]] | None] = []
    strides = [prod([n for n, _ in cut[i + 1 :]]) for i in range(len(cut))]
    for at in product(*(range(k) for _, k in cut)):
        ranges = [(i * n // k, (i + 1) * n // k) for i, (n, k) in zip(at, cut, strict=True)]
        if any(start == stop for start, stop in ranges):
            found.append(None)
            continue
        runs: list[tuple[int, int]] = []
        for (start, stop), stride in zip(reversed(ranges), reversed(strides), strict=True):
            if runs and runs[-1][0] * runs[-1][1] == stride:
                runs[-1] = (runs[-1][0], runs[-1][1] * (stop - start))
            elif stop - start > 1:
                runs.append((stride, stop - start))
        first = sum(start * stride for (start, _), stride in zip(ranges, strides, strict=True))
        found.append((first, tuple(runs)))
    return found


def _known(cut: AxisCut) -> tuple[tuple[int, int], ...] | None:
    entries = tuple((n, k) for n, k in cut if isinstance(n, int))
    return entries if len(entries) == len(cut) else None


def simplified(cut: AxisCut) -> AxisCut:
    """Return the same cut with as few entries as can say it; ``()`` if the axis is whole.

    >>> simplified(((2, 1), (2, 2), (2, 1))), simplified(((2, 2), (4, 1)))
    (((2, 1), (4, 2)), ((8, 2),))
    """
    known = _known(cut)
    if n_shards(cut) == 1:
        return ()
    if known is None:
        return cut
    found: list[tuple[int, int]] = []
    for n, k in flat_pieces(known):
        # (g, g)(n, k) = (g n, g k), and (m, l)(n, 1) = (m n, l) where l divides m
        if found and (found[-1][0] == found[-1][1] or (k == 1 and found[-1][0] % found[-1][1] == 0)):
            last = found.pop()
            n, k = last[0] * n, last[1] * k
        found.append((n, k))
    return tuple(found)


def shard_ranges(cut: AxisCut, at: int) -> list[range]:
    """Return what a shard has along each entry of a cut."""
    ranges = []
    for n, k in reversed(cut):
        at, own = divmod(at, k)
        edges = boundaries(int(n or 0), k)
        ranges.append(range(edges[own], edges[own + 1]))
    return ranges[::-1]


@lru_cache(maxsize=64)
def everywhere(num_devices: int) -> Owners:
    """Return the set of all devices of a configuration."""
    return frozenset(range(num_devices))


@dataclass(frozen=True, slots=True)
class TensorForm:
    """A TensorForm says of a tensor how each axis is cut and which devices hold each shard.

    Parameters
    ----------
    shape
        Size of each axis; None if not even the rank is known.
    cuts
        Entries of each axis.
    owners
        Per shard the devices that hold it, row-major over the shards of each axis.
    """

    shape: tuple[Size, ...] | None
    cuts: tuple[AxisCut, ...]
    owners: tuple[Owners, ...]

    @classmethod
    def whole(cls, shape: Sequence[Size] | None, owners: Owners) -> TensorForm:
        """Return the form of a tensor that every one of `owners` holds whole."""
        return cls(None if shape is None else tuple(shape), ((),) * len(shape or ()), (owners,))

    def with_shape(self, shape: Sequence[Size]) -> TensorForm:
        """Return the form of a tensor of another shape, of which more is known, or said in symbols."""
        cuts = self.cuts if len(self.cuts) == len(shape) else ((),) * len(shape)
        cuts = tuple([((n, cut[0][1]),) if len(cut) == 1 else cut for n, cut in zip(shape, cuts, strict=True)])
        return TensorForm(tuple(shape), cuts, self.owners)

    @property
    def grid(self) -> tuple[int, ...]:
        """Return the number of shards along each axis."""
        return tuple([n_shards(cut) for cut in self.cuts])

    @property
    def devices(self) -> Owners:
        """Return all devices that hold something."""
        return frozenset().union(*self.owners)

    def is_same(self, other: TensorForm) -> bool:
        """Return whether every device holds the same elements, shard by shard."""
        return (
            self.owners == other.owners
            and len(self.cuts) == len(other.cuts)
            and all(map(is_identical, self.cuts, other.cuts))
        )

    def shares(self) -> TensorForm:
        """Return the form in which the owners of a shard have a part of it each, as a reduce-scatter leaves sums.

        Shards are cut further along their longest axis that is cut once at most; if there is none, the first owner has
        all of its shard.
        """
        n = max(map(len, self.owners))
        plain = [axis for axis, cut in enumerate(self.cuts) if len(cut) <= 1]
        if n == 1 or not plain or self.shape is None:
            return TensorForm(self.shape, self.cuts, tuple([frozenset([min(owners)]) for owners in self.owners]))
        sizes = [size if isinstance(size, int) else 0 for size in self.shape]
        axis = max(plain, key=lambda a: sizes[a] / self.grid[a])
        cuts = list(self.cuts)
        cuts[axis] = ((self.shape[axis], self.grid[axis] * n),)
        inner = prod(self.grid[axis + 1 :])
        rows = [self.owners[start : start + inner] for start in range(0, len(self.owners), inner)]
        owners = [frozenset([sorted(own)[r % len(own)]]) for row in rows for r in range(n) for own in row]
        return TensorForm(self.shape, tuple(cuts), tuple(owners))

    def is_uneven(self) -> bool:
        """Return whether some cut of a known size makes shards of several sizes, or empty ones (S-8)."""
        return any(isinstance(n, int) and (n % k or k > n) for cut in self.cuts for n, k in cut if k > 1)

    def to_json(self, name: str) -> dict[str, Any]:
        """Return the canonical form as JSON; with ``axis_layout`` only if an axis is fused."""
        grid = self.grid
        found: dict[str, Any] = {
            "name": name,
            "grid": list(grid),
            "owners": [sorted(owners) for owners in self.owners],
            "shape": None if self.shape is None else list(self.shape),
        }
        if any(len(cut) > 1 for cut in self.cuts):
            assert self.shape is not None
            entries = [cut or ((n, 1),) for cut, n in zip(self.cuts, self.shape, strict=True)]
            found["axis_layout"] = [[[n, k] for n, k in cut] for cut in entries]
        return found
