"""Blocks that programs make themselves: what others promised is a step where a program reads it, and gone after that.

A program has all that it is given from its start. Where that is too much to be there at once, blocks that others' tasks
would make, each by tasks of its own, are made by steps: what a program is given is then how to make them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from distarray.kernels.tasks import make
from distarray.lower.messages import Key
from distarray.lower.recipes import Leaf, Recipe


def with_making(
    recipes: Mapping[Key, Recipe],
    members: Mapping[Key, int],
    holders: Mapping[int, tuple[int, ...]],
    made: Collection[Leaf],
) -> tuple[Mapping[Key, Recipe], Mapping[Key, int], dict[Key, Leaf]]:
    """Return tasks of which some make blocks that the others read.

    Parameters
    ----------
    recipes, members, holders
        As for `member_programs.member_programs`.
    made
        The blocks. What a program is given of each is what `kernels.tasks.make` takes.

    Returns
    -------
    recipes, members
        Each block is made before its first reader, as a part of the stage of that.
    blocks
        By new key the block.
    """
    if not made:
        return recipes, members, {}
    keys: dict[Leaf, Key] = {}
    found: dict[Key, Recipe] = {}
    places = dict(members)
    for key, recipe in recipes.items():
        for a in recipe.args:
            if type(a) is Leaf and a in made and a not in keys:
                keys[a] = own = (f"dx-made{a.node}", key[1], a.number)
                found[own] = Recipe("piece", make, (a,))
                places[own] = holders[a.node][a.number]
        found[key] = recipe._replace(args=tuple([keys[a] if type(a) is Leaf and a in keys else a for a in recipe.args]))
    return found, places, {key: leaf for leaf, key in keys.items()}
