"""Fusing tasks: what runs on one member, one after the other, with nothing to wait for in between, is one task.

Stages are fused by the planner, which joins operations whose loops agree. What is left are tasks that only hand blocks
on: a window's writes to one tile, a kernel and the operations on its result, a tile of attention from its scores to its
output. As one task they cost the scheduler one message, and the blocks in between never leave the task: they are freed
as soon as they are read, however many tiles follow; and a later write takes over the block that an earlier one made, on
a cluster too, where the task is repeated as a whole.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from distarray.kernels import tasks
from distarray.kernels.specs import Link, TileSpec
from distarray.lower.messages import Key
from distarray.lower.recipes import Recipe, is_key
from distarray.lower.template import Template

#: Records among the arguments of a task, before those that the records count.
_N_RECORDS = 2


@dataclass(slots=True, eq=False)
class _Group:
    """A _Group is tasks of a member that can run one after the other as soon as the first of them can.

    Parameters
    ----------
    waits
        What the first of them waits for, and what the member has made long before.
    level
        Tasks of the longest chain that ends with the first of them.
    stages
        Stages of which it has a tile: tiles of one stage may run side by side.
    """

    waits: set[Key]
    level: int
    keys: set[Key] = field(default_factory=set)
    stages: set[int] = field(default_factory=set)


def fuse(template: Template) -> None:
    """Fuse the tasks of a template that delay nothing as one task, and of which only the last one is read elsewhere.

    Afterwards the tasks stand in an order in which few results wait for their readers.
    """
    recipes, out = template.recipes, template.lowered
    reads = {key: _keys(recipe) for key, recipe in recipes.items()}
    has_order = out.after or template.chains or _in_waves(template)
    if not has_order and not any(read or recipes[key].waits for key, read in reads.items()):
        out.members = {key: out.members[key] for key in recipes}
        return  # where no task waits for another, of which there may be very many
    sinks = _sinks(reads, template, _groups(reads, template))
    recipes = {key: _waiting(key, recipe, sinks) for key, recipe in recipes.items()}
    order = _depth_first(template, recipes)
    parts: defaultdict[Key, list[Key]] = defaultdict(list)
    for key in order:
        parts[sinks[key]].append(key)
    absorbed = {key for key, sink in sinks.items() if key != sink}
    for key in absorbed:
        out.counts[recipes[key].kind] -= 1
    after: defaultdict[Key, set[Key]] = defaultdict(set)
    for key, waits in out.after.items():
        if left := {sinks[k] for k in waits} - {sinks[key]}:
            after[sinks[key]].update(left)
    out.after = dict(after)
    template.recipes = {
        key: recipes[key] if len(parts[key]) == 1 else _joined(parts[key], recipes)
        for key in order
        if key not in absorbed
    }
    out.members = {key: out.members[key] for key in template.recipes}


def _keys(recipe: Recipe) -> list[Key]:
    """Return what a task reads of other tasks."""
    return [a for a in recipe.args if type(a) is tuple and is_key(a)]


def _depth_first(template: Template, recipes: Mapping[Key, Recipe]) -> list[Key]:
    """Return the tasks in an order in which they can run: what a task reads comes right before it, if it has not come
    yet.

    Of what it reads that with most tasks one after the other before it comes first, since little else is there by then.
    Partial results are combined as soon as they are there.
    """
    after = template.lowered.after
    needs = {k: [*_keys(recipe), *recipe.waits, *after.get(k, ())] for k, recipe in recipes.items()}
    has_readers = {k for read in needs.values() for k in read}
    levels: dict[Key, int] = {}
    for key, before in needs.items():
        levels[key] = 1 + max([levels.get(k, 0) for k in before], default=0)
        before.sort(key=lambda k: -levels.get(k, 0))
    for key, previous in _in_waves(template).items():
        needs[key].insert(0, previous)
    combines: defaultdict[Key, list[Key]] = defaultdict(list)
    for key, recipe in recipes.items():
        if recipe.kind == "combine":
            for k in needs[key]:
                combines[k].append(key)
    found: dict[Key, None] = {}
    for last in needs:
        stack = [last] if last not in has_readers else []
        while stack:
            key = stack[-1]
            left = [k for k in needs[key] if k not in found] if key not in found else []
            if left:
                stack.extend(reversed(left))
            elif stack.pop() not in found:
                found[key] = None
                stack += [k for k in combines[key] if all(before in found for before in needs[k])]
    return list(found)


def _in_waves(template: Template) -> dict[Key, Key]:
    """Return, for each tile of a stage that streams over a reduced loop, the tile that runs before it.

    One wave of all its results comes after the other, so that what a wave reads is read no more after it.
    """
    lowered = template.lowered
    streamed = {
        number
        for number, draft in enumerate(lowered.drafts)
        if any(loop in draft.loops.reduced for loop, _ in draft.stage.cut.waves)
    }
    tiles: defaultdict[int, list[Key]] = defaultdict(list)  # in turns, see `drafts`
    for key, recipe in template.recipes.items():
        if recipe.kind == "tile" and key[1] in streamed:
            tiles[key[1]].append(key)
    return {key: before for keys in tiles.values() for before, key in pairwise(keys)}


def _waiting(key: Key, recipe: Recipe, sinks: Mapping[Key, Key]) -> Recipe:
    """Return a task that waits for the tasks that those it waited for are fused to."""
    return recipe._replace(waits=tuple(dict.fromkeys(sinks[k] for k in recipe.waits if sinks[k] != sinks[key])))


def _groups(reads: Mapping[Key, Sequence[Key]], template: Template) -> dict[Key, _Group]:
    """Return the group of each task."""
    members, after = template.lowered.members, template.lowered.after
    stages = {key: key[1] if recipe.kind == "tile" else -1 for key, recipe in template.recipes.items()}
    n_tiles = Counter((stage, members[key]) for key, stage in stages.items())
    of: dict[Key, _Group] = {}
    levels: dict[Key, int] = {}
    for key, read in reads.items():
        waits = {*read, *template.recipes[key].waits, *after.get(key, ())}
        stage, member = stages[key], members[key]
        levels[key] = 1 + max((levels[k] for k in waits if k in levels), default=0)
        early: set[Key] = set()
        here = [k for k in waits if k in of and members[k] == member]
        near = list(dict.fromkeys(of[k] for k in here))
        # chains side by side become one only if other tiles keep other threads busy
        if len(near) > 1 and all(n_tiles[s, member] > 1 for group in near for s in group.stages):
            near = _merged(near, of)
            if len(near) > 1 and stage >= 0:
                near = [max(near, key=lambda group: group.level)]
                early = {k for k in here if levels[k] < near[0].level}
        group = near[0] if len(near) == 1 else None
        if (
            group is None
            or stage in group.stages
            or not all(k in group.keys or k in group.waits or k in early for k in waits)
        ):
            group = _Group(waits, levels[key])
        group.waits |= early
        group.keys.add(key)
        if stage >= 0:
            group.stages.add(stage)
        of[key] = group
    return of


def _merged(groups: list[_Group], of: dict[Key, _Group]) -> list[_Group]:
    """Return the groups joined to one if all wait for the same tasks and none share a stage; otherwise return them
    unchanged.
    """
    first, *others = groups
    n_stages = sum(len(group.stages) for group in groups)
    if any(group.waits != first.waits for group in others) or len(set().union(*[g.stages for g in groups])) < n_stages:
        return groups
    for group in others:
        first.keys |= group.keys
        first.stages |= group.stages
        of.update(dict.fromkeys(group.keys, first))
    return [first]


def _sinks(reads: Mapping[Key, Sequence[Key]], template: Template, of: Mapping[Key, _Group]) -> dict[Key, Key]:
    """Return the task that each one is fused to: that of all its readers, if they are in its group and it is not
    kept.
    """
    out = template.lowered
    kept = {ref for output in out.outputs.values() for ref in output.refs if type(ref) is tuple}
    # Who writes in place waits for readers of the old block as if it read what they make.
    users: defaultdict[Key, set[Key]] = defaultdict(set)
    is_read: set[Key] = set()
    for key, read in reads.items():
        is_read.update(read)
        for k in (*read, *out.after.get(key, ())):
            users[k].add(key)
    sinks: dict[Key, Key] = {}
    for key in reversed(list(reads)):
        if key in template.chains:
            sinks[key] = sinks[template.chains[key]]
            continue
        found = {sinks.get(user, user) for user in users[key]}
        together = all(user in of[key].keys for user in users[key])
        sinks[key] = found.pop() if len(found) == 1 and together and key in is_read and key not in kept else key
    return sinks


def _joined(keys: Sequence[Key], recipes: Mapping[Key, Recipe]) -> Recipe:
    """Return one task for several, in their order."""
    number = {key: n for n, key in enumerate(keys)}
    last: dict[Key, int] = {}
    n_reads: defaultdict[Key, int] = defaultdict(int)
    for n, key in enumerate(keys):
        for a in {a for a in _keys(recipes[key]) if a in number}:
            last[a] = n
            n_reads[a] += 1
    links, given = [], []
    alone: dict[Key, bool] = {}  # whether what it makes is read once, and is no view of what is read elsewhere
    for n, key in enumerate(keys):
        _, function, args, _ = recipes[key]
        made = {i: a for i, a in enumerate(args) if type(a) is tuple and is_key(a) and a in number}
        places = tuple([(i, number[a]) for i, a in made.items()])
        dropped = tuple([number[a] for a in dict.fromkeys(made.values()) if last[a] == n])
        alone[key] = n_reads[key] == 1 and all(alone[a] for a in made.values()) and bool(made or not _is_view(args))
        own = {i for i, a in made.items() if alone[a]}
        links.append(Link(key, function, len(args), places, dropped))
        given += _in_place([None if i in made else a for i, a in enumerate(args)], own)
    waits = tuple(dict.fromkeys(k for key in keys for k in recipes[key].waits))
    return Recipe(recipes[keys[-1]].kind, tasks.run_fused, (tuple(links), *given), waits)


def _is_view(args: Sequence[object]) -> bool:
    """Return whether what a task makes may be a view of what it is given."""
    return any(type(a) is TileSpec and a.is_view for a in args)


def _in_place(args: Sequence[object], own: Collection[int]) -> list[object]:
    """Return the arguments of a link; a write takes over a block if that is its own."""
    given = list(args)
    for i, a in enumerate(given):
        write = a.write if type(a) is TileSpec else None
        if type(a) is not TileSpec or write is None or write.is_inplace or write.arg + _N_RECORDS not in own:
            continue
        elsewhere = any(p.arg == write.arg and p.lens != write.lens for r in a.regions for p in r.operands) or any(
            p.arg == write.arg for r in (*a.assembled, *a.reads) for p in r.parts
        )
        if not (elsewhere and write.is_most):
            given[i] = replace(a, write=write._replace(is_inplace=True), hazard=elsewhere)
    return given
