"""Calls: a function that is called with each block of a result, where the block lies, as writers of files need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from distarray.lower.bundling import Output
from distarray.lower.messages import Key
from distarray.lower.recipes import Leaf, Recipe
from distarray.lower.template import Lowered, Template
from distarray.sharding.dealing import dealt
from distarray.sharding.sharding import Sharding

#: What the names of these tasks begin with.
CALL = "dx-call"


def of_blocks(sharding: Sharding) -> Template:
    """Return a template that makes nothing: its result is the first node, which is there before and lies so."""
    members = tuple([member for member, _ in dealt(sharding).places])
    template = Template(holders={0: members})
    refs = [Leaf(0, number) for number in range(len(members))]
    template.lowered = Lowered(outputs={0: Output(sharding, refs, [0] * len(refs))})
    return template


def calling(
    template: Template, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]], device: str
) -> Template:
    """Return the tasks of a template of one result, and those that call a function with each block of it.

    The blocks are not kept; what the calls return is, and takes the place of the result. Copies are passed by.

    Parameters
    ----------
    function
        Called as ``function(block, *arguments[number], device, member)``.
    """
    fixed = template.lowered
    ((i, (sharding, refs, _)),) = fixed.outputs.items()
    members = dict(fixed.members)
    calls: dict[Key, Recipe] = {}
    # A call comes right after the task that makes its block, so that this is gone before the next one is made.
    after: defaultdict[Any, list[Key]] = defaultdict(list)
    tiles = zip(sharding.tiles(), refs[: sharding.n_tiles], arguments, strict=True)
    for number, (tile, ref, given) in enumerate(tiles):
        key: Key = (CALL, 0, number)
        members[key] = sharding.member(tile)
        calls[key] = Recipe("call", function, (ref, *given, device, members[key]))
        after[ref if type(ref) is tuple else None].append(key)
    recipes: dict[Key, Recipe] = {}
    for made, recipe in template.recipes.items():
        recipes[made] = recipe
        recipes |= {key: calls[key] for key in after.pop(made, ())}
    recipes |= {key: calls[key] for key in after[None]}
    # What functions return is no block.
    outputs = {i: Output(sharding.with_copies(False), list(calls), [0] * len(calls))}
    called = replace(fixed, members=members, outputs=outputs, depth=fixed.depth + 1)
    return Template(recipes, template.specs, template.chains, template.holders, called)
