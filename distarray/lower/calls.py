"""Calls: a function that is called with each block of a result, where the block lies, as writers of files need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from distarray.lower.messages import Key
from distarray.lower.recipes import Leaf, Recipe
from distarray.lower.template import Lowered, Template
from distarray.sharding.sharding import Sharding

#: What the names of these tasks begin with.
CALL = "dx-call"


def of_blocks(sharding: Sharding) -> Template:
    """Return a template that makes nothing: its result is the first node, which is there before and lies so."""
    tiles = list(sharding.tiles())
    template = Template(holders={0: tuple([sharding.member(tile) for tile in tiles])})
    template.lowered = Lowered(outputs={0: (sharding, [Leaf(0, number) for number in range(len(tiles))])})
    return template


def calling(
    template: Template, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], device: str
) -> Template:
    """Return the tasks of a template of one result, and those that call a function with each block of it.

    The blocks are not kept; what the calls return is, and takes the place of the result.

    Parameters
    ----------
    function
        Called as ``function(block, *arguments[number], device, member)``.
    """
    fixed = template.lowered
    ((i, (sharding, refs)),) = fixed.outputs.items()
    recipes, members = dict(template.recipes), dict(fixed.members)
    keys: list[Key] = []
    for number, (tile, ref, given) in enumerate(zip(sharding.tiles(), refs, arguments, strict=True)):
        keys.append((CALL, 0, number))
        members[keys[-1]] = sharding.member(tile)
        recipes[keys[-1]] = Recipe("tile", function, (ref, *given, device, members[keys[-1]]))
    called = replace(fixed, members=members, outputs={i: (sharding, keys)}, depth=fixed.depth + 1)
    found = Template(recipes, template.specs, template.chains, template.holders, called)
    found.kept.nbytes.update(dict.fromkeys(found.kept.all_keys, 0))
    return found
