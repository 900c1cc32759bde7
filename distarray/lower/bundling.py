"""What is kept of a run of member programs, under which keys: one key for each kept array and member.

Where a member has one tile of an array, the key is that of the block. Where it has several, they are a *bundle*: one
value, with one key, so that what a client and a scheduler do does not depend on the number of tiles. A tile of a bundle
has a key too, which follows from that of the bundle; a task of that name exists while somebody reads it alone.

A bundle is no larger than what a worker can easily take to disk and back as a whole (`Site.bundle`): more tiles are
kept in several bundles, and those that are large each by itself.

A new version of an array, of which a member has made some tiles anew, refers to those that were not touched. So an
older version that nobody needs any more leaves nothing behind.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from distarray.lower.messages import Key
from distarray.lower.recipes import Leaf, is_key
from distarray.sharding.dealing import dealt
from distarray.sharding.sharding import Sharding

#: Numbers of nodes, and members that have blocks of them in bundles, with the bounds of these: see `part_of`.
Bundled: TypeAlias = frozenset[tuple[int, int, tuple[int, ...]]]

#: What the names of bundles begin with.
BUNDLE = "dx-tiles-"


def tile_key(bundle: Key, number: int) -> Key:
    """Return the key of one tile of a bundle."""
    return (*bundle, number)


def bundle_of(key: Key) -> tuple[Key, int] | None:
    """Return the key of the bundle that a tile is of, and its number there; None of what is no such tile.

    >>> bundle_of(tile_key(("dx-tiles-add-1", 2, 0), 5)), bundle_of(("dx-tiles-add-1", 2, 0)), bundle_of("x")
    ((('dx-tiles-add-1', 2, 0), 5), None, None)
    """
    if type(key) is not tuple or len(key) != 4 or not isinstance(key[0], str) or not key[0].startswith(BUNDLE):
        return None
    return key[:3], key[3]


def key_behind(key: Key) -> Key:
    """Return the key under which a block is kept: that of its bundle, if it is in one."""
    found = bundle_of(key)
    return key if found is None else found[0]


class Output(NamedTuple):
    """An Output is a result of a plan.

    Parameters
    ----------
    sharding
        How it is cut.
    refs
        By tile the key of the task that makes it, the block from before that it is, or an array.
    nbytes
        By tile its bytes.
    """

    sharding: Sharding
    refs: list[Any]
    nbytes: Sequence[int]


def part_of(bounds: Sequence[int], n: int) -> int:
    """Return which bundle a tile is in, of the bounds of bundles among the tiles of a member.

    >>> [part_of((0, 3, 4, 9), n) for n in (0, 2, 3, 4, 8)]
    [0, 0, 1, 2, 2]
    """
    return bisect_right(bounds, n) - 1


class BundleSpec(NamedTuple):
    """A BundleSpec says what a bundle is made of.

    Parameters
    ----------
    member
        Rank of who has it.
    refs
        By tile the key of the task that makes it, the block from before that it is, or an array without elements.
    """

    member: int
    refs: tuple[Any, ...]


class KeptTiles(NamedTuple):
    """KeptTiles are tiles that a member has of a result, kept under one key or each under its own.

    Parameters
    ----------
    key
        Of their bundle; None where each is by itself.
    numbers
        Of the tiles.
    """

    key: Key | None
    numbers: tuple[int, ...]


@dataclass
class Kept:
    """A Kept is what a template keeps when it runs as member programs.

    Parameters
    ----------
    keys
        Of blocks that are kept by themselves.
    bundles
        By key.
    by_member
        By number of a result and member its tiles there.
    renewed
        Numbers of nodes, and members, of which a bundle refers to blocks.
    nbytes
        By key of a block or bundle.
    """

    keys: list[Key] = field(default_factory=list)
    bundles: dict[Key, BundleSpec] = field(default_factory=dict)
    by_member: dict[int, dict[int, tuple[KeptTiles, ...]]] = field(default_factory=dict)
    renewed: set[tuple[int, int]] = field(default_factory=set)
    nbytes: dict[Key, int] = field(default_factory=dict)

    @property
    def all_keys(self) -> list[Key]:
        """Return all keys that are kept."""
        return [*self.keys, *self.bundles]


def kept_of(
    outputs: Mapping[int, Output], members: Mapping[Key, int], holders: Mapping[int, tuple[int, ...]], most: int
) -> Kept:
    """Return under which keys results are kept.

    Parameters
    ----------
    outputs
        The results, by number.
    members
        Rank of each task's member.
    holders
        By number of a node the members that have its blocks.
    most
        Bytes of a bundle.
    """

    def is_at(member: int, ref: Any) -> bool:
        if type(ref) is Leaf:
            return bool(holders.get(ref.node)) and holders[ref.node][ref.number] == member
        return members[ref] == member if type(ref) is tuple else True

    found = Kept()
    keys: dict[Key, None] = {}
    for i, output in outputs.items():
        found.by_member[i] = {}
        for member, tiles in dealt(output.sharding).tiles.items():
            kept = []
            for numbers in _runs(tiles, output.nbytes, most):
                here = tuple([output.refs[n] for n in numbers])
                made = {
                    ref: output.nbytes[n]
                    for n, ref in zip(numbers, here, strict=True)
                    if type(ref) is tuple and is_key(ref)
                }
                key: Key | None = None
                if len(here) > 1 and made and all(is_at(member, ref) for ref in here):
                    key = (f"{BUNDLE}{next(iter(made))[0].removeprefix('dx-')}", i, len(found.bundles))
                    found.bundles[key] = BundleSpec(member, here)
                    found.nbytes[key] = sum([output.nbytes[n] for n in numbers])
                    found.renewed.update([(ref.node, member) for ref in here if type(ref) is Leaf])
                else:
                    found.nbytes.update(made)
                    keys.update(dict.fromkeys(made))
                kept.append(KeptTiles(key, numbers))
            found.by_member[i][member] = tuple(kept)
    found.keys = list(keys)
    return found


def _runs(tiles: tuple[int, ...], nbytes: Sequence[int], most: int) -> Iterator[tuple[int, ...]]:
    """Yield tiles of a member, as many at a time as are not larger together, and one at least."""
    first, total = 0, 0
    for n, tile in enumerate(tiles):
        total += nbytes[tile]
        if total > most and n > first:
            yield tiles[first:n]
            first, total = n, nbytes[tile]
    yield tiles[first:]


class Given(NamedTuple):
    """A Given says how a program finds the blocks that it is given among the arguments of its task.

    Parameters
    ----------
    args
        Blocks and bundles, in the order in which the task gets them: what stands for a bundle is one of its blocks.
    places
        By block its argument, and its number in the bundle that this is, or -1 where it is the block.
    n_bundled
        How many blocks are in bundles.
    """

    args: tuple[Any, ...]
    places: tuple[tuple[int, int], ...]
    n_bundled: int

    def blocks(self, values: Sequence[Any]) -> list[Any]:
        """Return the blocks, of the arguments of a task."""
        return [values[n] if number < 0 else values[n][number] for n, number in self.places]


def given_from(
    refs: Sequence[Any], member: int, bounds: Mapping[int, tuple[int, ...]], shardings: Mapping[int, Sharding]
) -> Given:
    """Return how the program of a member finds what it is given.

    Parameters
    ----------
    refs
        What it is given, in its order.
    bounds
        By number of a node the bounds of the bundles that the member has of it.
    shardings
        Of the nodes of which something does, by number.
    """
    args: list[Any] = []
    places: list[tuple[int, int]] = []
    known: dict[tuple[int, int], int] = {}  # by node and part the argument that is the bundle
    for ref in refs:
        if type(ref) is Leaf and ref.node in bounds:
            owner, n = dealt(shardings[ref.node]).places[ref.number]
            assert owner == member, "what a program is given lies at its member"
            part = part_of(bounds[ref.node], n)
            first, end = bounds[ref.node][part : part + 2]
            if end - first > 1:
                if (ref.node, part) not in known:
                    known[ref.node, part] = len(args)
                    args.append(ref)
                places.append((known[ref.node, part], n - first))
                continue
        places.append((len(args), -1))
        args.append(ref)
    return Given(tuple(args), tuple(places), sum([number >= 0 for _, number in places]))
