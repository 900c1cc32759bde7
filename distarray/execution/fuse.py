"""Fusing tasks: what runs on one member, one after the other, with nothing to wait for in between, is one task.

Stages are fused by the planner, which joins operations whose loops agree. What is left are chains of tasks that only
hand a block on: a window's writes to one tile, a kernel and the operations on its result. As one task they cost the
scheduler one message, and the blocks in between never leave the task: a later write of a chain takes over the block
that an earlier one made, on a cluster too, where the task is repeated as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from distarray.execution import tasks
from distarray.execution.route import Key
from distarray.execution.tasks import Link, TileSpec
from distarray.execution.template import Recipe, Template, is_key

__all__ = ["fuse"]


def fuse(template: Template) -> None:
    """Fuse the linear chains of tasks of a template."""
    recipes, out = template.recipes, template.lowered
    kept = {ref for _, refs in out.outputs.values() for ref in refs if type(ref) is tuple}
    reads = {key: [a for a in recipe.args if type(a) is tuple and is_key(a)] for key, recipe in recipes.items()}
    readers = Counter(read for found in reads.values() for read in set(found))
    # Who writes in place waits for readers of the old block: these stay where they are, before it.
    readers.update(w for key, waits in out.after.items() for w in waits if w not in reads[key])
    follows: dict[Key, Key] = {}  # the only reader of a task -> the task that it is fused with
    for key, found in reads.items():
        for before in set(found):
            if (
                readers[before] == 1
                and before not in kept
                and out.members[before] == out.members[key]
                and _waits_for_nothing_more(key, before, reads, out.after)
            ):
                follows[key] = before
                break
    if not follows:
        return
    absorbed = set(follows.values())
    last: dict[Key, Key] = {}
    fused: dict[Key, Recipe] = {}
    for key, recipe in recipes.items():
        if key in absorbed:
            continue
        chain = [key]
        while chain[-1] in follows:
            chain.append(follows[chain[-1]])
        chain.reverse()
        last.update(dict.fromkeys(chain, key))
        fused[key] = recipe if len(chain) == 1 else _joined(chain, recipes)
    for key in absorbed:
        out.counts[recipes[key].kind] -= 1
    out.members = {key: out.members[key] for key in fused}
    after: dict[Key, set[Key]] = {}
    for key, waits in out.after.items():
        if waits - absorbed:
            after.setdefault(last[key], set()).update(waits - absorbed)
    out.after = after
    template.recipes = fused


def _waits_for_nothing_more(
    key: Key, before: Key, reads: Mapping[Key, Collection[Key]], after: Mapping[Key, Collection[Key]]
) -> bool:
    """Whether a task could run as soon as the one before it: fusing the two then delays nothing."""
    early = {before, *reads[before], *after.get(before, ())}
    return early.issuperset(reads[key]) and early.issuperset(after.get(key, ()))


def _joined(chain: list[Key], recipes: Mapping[Key, Recipe]) -> Recipe:
    links, given = [], []
    for n, key in enumerate(chain):
        _, function, args = recipes[key]
        places = tuple([i for i, a in enumerate(args) if n and a == chain[n - 1]])
        args = tuple([None if i in places else a for i, a in enumerate(args)])
        links.append(Link(key, function, len(args), places))
        given += _in_place(args, places)
    return Recipe(recipes[chain[-1]].kind, tasks.run_chain, (tuple(links), *given))


def _in_place(args: tuple[object, ...], places: tuple[int, ...]) -> list[object]:
    """The arguments of a link; a write takes over the block that only the link before it has."""
    given = list(args)
    for i, a in enumerate(given):
        # arguments after the two records are what the record counts
        if type(a) is TileSpec and a.write is not None and a.write[0] + 2 in places and not a.write[2]:
            base, lens, _, whole = a.write
            elsewhere = any(p.arg == base and p.lens != lens for r in a.regions for p in r.operands) or any(
                p.arg == base for r in (*a.assembled, *a.reads) for p in r.parts
            )
            given[i] = replace(a, write=(base, lens, True, whole), hazard=elsewhere)
    return given
