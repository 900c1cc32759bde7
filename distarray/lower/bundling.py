"""What is kept of a run of member programs, under which keys: one key for each kept array and member.

Where a member has one tile of an array, the key is that of the block. Where it has several, they are a *bundle*: one
value, with one key, so that what a client and a scheduler do does not depend on the number of tiles. A tile of a bundle
has a key too, which follows from that of the bundle; a task of that name exists while somebody reads it alone.

A new version of an array, of which a member has made some tiles anew, is a bundle of all its tiles there: those that
were not touched are referred to. So an older version that nobody needs any more leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from distarray.lower.messages import Key
from distarray.lower.recipes import Leaf, is_key
from distarray.sharding.dealing import dealt
from distarray.sharding.sharding import Sharding

#: Nodes, by number, and members of which the blocks there come in a bundle.
Bundled: TypeAlias = frozenset[tuple[int, int]]

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
        By number of a result and member the key of the bundle of its tiles there; None where they are by themselves.
    renewed
        Numbers of nodes, and members, of which a bundle refers to blocks.
    nbytes
        By key; filled in where it is first asked for.
    """

    keys: list[Key] = field(default_factory=list)
    bundles: dict[Key, BundleSpec] = field(default_factory=dict)
    by_member: dict[int, dict[int, Key | None]] = field(default_factory=dict)
    renewed: set[tuple[int, int]] = field(default_factory=set)
    nbytes: dict[Key, int] = field(default_factory=dict)

    @property
    def all_keys(self) -> list[Key]:
        """Return all keys that are kept."""
        return [*self.keys, *self.bundles]


def kept_of(
    outputs: Mapping[int, tuple[Sharding, Sequence[Any]]],
    members: Mapping[Key, int],
    holders: Mapping[int, tuple[int, ...]],
) -> Kept:
    """Return under which keys results are kept.

    Parameters
    ----------
    outputs
        By number of a result its sharding and, per tile, the key of a task, a block from before or an array.
    members
        Rank of each task's member.
    holders
        By number of a node the members that have its blocks.
    """

    def is_at(member: int, ref: Any) -> bool:
        if type(ref) is Leaf:
            return bool(holders.get(ref.node)) and holders[ref.node][ref.number] == member
        return members[ref] == member if type(ref) is tuple else True

    found = Kept()
    keys: dict[Key, None] = {}
    for i, (sharding, refs) in outputs.items():
        found.by_member[i] = {}
        for member, numbers in dealt(sharding).tiles.items():
            here = tuple([refs[n] for n in numbers])
            made = [ref for ref in here if type(ref) is tuple and is_key(ref)]
            key: Key | None = None
            if len(here) > 1 and made and all(is_at(member, ref) for ref in here):
                key = (f"{BUNDLE}{made[0][0].removeprefix('dx-')}", i, member)
                found.bundles[key] = BundleSpec(member, here)
                found.renewed.update([(ref.node, member) for ref in here if type(ref) is Leaf])
            else:
                keys.update(dict.fromkeys(made))
            found.by_member[i][member] = key
    found.keys = list(keys)
    return found


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


def given_from(refs: Sequence[Any], member: int, bundled: Bundled, shardings: Mapping[int, Sharding]) -> Given:
    """Return how the program of a member finds what it is given.

    Parameters
    ----------
    refs
        What it is given, in its order.
    bundled
        What comes in bundles.
    shardings
        Of the nodes of which something does, by number.
    """
    args: list[Any] = []
    places: list[tuple[int, int]] = []
    known: dict[int, int] = {}  # by node the argument that is its bundle
    for ref in refs:
        if type(ref) is not Leaf or (ref.node, member) not in bundled:
            places.append((len(args), -1))
            args.append(ref)
            continue
        owner, number = dealt(shardings[ref.node]).places[ref.number]
        assert owner == member, "what a program is given lies at its member"
        if ref.node not in known:
            known[ref.node] = len(args)
            args.append(ref)
        places.append((known[ref.node], number))
    return Given(tuple(args), tuple(places), sum([number >= 0 for _, number in places]))
