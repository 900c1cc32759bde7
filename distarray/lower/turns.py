"""Turns and rounds: the order in which the tasks of all members run, and in which their messages leave.

A *turn* is a tile of each member that has one to make, with what is sent for it before. Within a turn, what one member
sends to others leaves in *rounds*: in round k each member sends to the one that is k further on, so that at any time
each is sent something by one other: the all-to-all of MPICH for long messages (Thakur, Rabenseifner and Gropp,
Optimization of Collective Communication Operations in MPICH, 2005). If all began with the first member, that would be
sent everything at once, and the next one only then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from distarray.lower.messages import Key
from distarray.lower.recipes import Recipe


def round_of(member: int, to: int, n_members: int) -> int:
    """Return the round in which a member sends something to another one.

    >>> [round_of(3, to, 4) for to in range(4)]
    [1, 2, 3, 0]
    """
    return (to - member) % n_members


def n_members_of(*members: Collection[int]) -> int:
    """Return how many members there are, by those that have something to do."""
    return 1 + max([max(some, default=0) for some in members], default=0)


def in_turns(recipes: Mapping[Key, Recipe], members: Mapping[Key, int], ahead: int | None) -> dict[Key, int]:
    """Return the turn of each task, in an order in which they can run: turn by turn, a tile of a member in each.

    Parameters
    ----------
    recipes, members
        As for `member_programs.member_programs`.
    ahead
        So many turns before a tile is made what is sent for it, at the earliest; None: as soon as it can be, as all
        else.
    """
    turns: dict[Key, int] = {}
    last: defaultdict[int, int] = defaultdict(lambda: -1)
    readers: defaultdict[Key, list[Key]] = defaultdict(list)
    for key, recipe in recipes.items():
        read = recipe.reads()
        turn = max([turns[k] + (recipes[k].kind == "tile") for k in read], default=0)
        if recipe.kind == "tile":
            turn = last[members[key]] = max(turn, last[members[key]] + 1)
        turns[key] = turn
        for k in read:
            readers[k].append(key)
    if ahead is not None:
        for key in reversed(list(recipes)):
            if recipes[key].kind == "piece" and key in readers:
                turns[key] = max(turns[key], min([turns[reader] for reader in readers[key]]) - ahead)
    n_members = n_members_of(members.values())
    places: dict[Key, tuple[int, bool, int, int, int]] = {}
    for number, (key, recipe) in enumerate(recipes.items()):
        turn, is_tile = turns[key], recipe.kind == "tile"
        # What is made of others of the same turn comes after them.
        before = [places[k][2] + 1 for k in recipe.reads() if turns[k] == turn and recipes[k].kind != "tile"]
        to = [round_of(members[key], members[reader], n_members) for reader in readers.get(key, ())]
        first = min(to, default=0)
        places[key] = turn, is_tile, max(before, default=0), 0 if is_tile else first, number
    return {key: turns[key] for key in sorted(recipes, key=places.__getitem__)}
