"""Which evaluations run as member programs, and how far these let messages come ahead.

Where all that a member reads, makes and sends would fit even if it never freed any of it, memory is no matter, and
messages come as they are made. Else they come with credits, as many turns ahead as fits: what a member then holds is
known before (`lower.credits`). Where no member needs anything of another, programs are run only if they are fewer Dask
tasks, with those that would take tiles out of bundles, or make a bundle anew.

Blocks that are still to be made by others' tasks are given to programs if all of them fit at once; else steps make
those that can be made by themselves (`lower.template`). What fits in no way runs as one task for each tile: there Dask
brings what a task needs, and takes it to disk meanwhile.

What a user lets a redistribution hold is one more bound: with credits what its steps make and receive is known, as is
what all of them do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from distarray.expr.expr import Environment, Others
from distarray.kernels.tasks import MADE_BY_READ
from distarray.lower.credits import Programs, Sizes, held_at_steps, peaks
from distarray.lower.footprint import Need, footprint
from distarray.lower.liveness import Liveness, sizes_of
from distarray.lower.member_programs import MemberProgram
from distarray.lower.messages import Key
from distarray.lower.recipes import Leaf, Unsent
from distarray.lower.template import Lowered, Template
from distarray.planner.graph import Graph
from distarray.planner.redistributing import wishes
from distarray.runtime.budget import most_beside_disk, most_in_memory
from distarray.runtime.bundles import holdings
from distarray.runtime.held import has_room, peaks_of, standing_of
from distarray.runtime.instantiate import Instance
from distarray.runtime.members import executor_for
from distarray.runtime.memory import n_tasks_at_once
from distarray.runtime.promised import Promise, read_once
from distarray.sharding.dealing import n_elements

#: Turns that messages may come ahead of the first step that reads them: the first of these that fits.
AHEAD = (2, 1, 0)


class _Tried(NamedTuple):
    """A _Tried is the programs of a template with credits.

    Parameters
    ----------
    programs
        By member.
    held
        By member the bytes that its program holds while each of its steps runs, beside what it is given.
    peak
        The most of these.
    is_bounded
        Whether redistributions keep to what they may hold.
    """

    programs: Mapping[int, MemberProgram]
    held: Mapping[int, Sequence[int]]
    peak: Mapping[int, int]
    is_bounded: bool


class _Bounded(NamedTuple):
    """A _Bounded is a redistribution for which the user says the most bytes that a member may hold: the number of its
    stage, what it takes on each member, and the bytes.
    """

    stage: int
    needs: Mapping[int, Need]
    most: int

    @property
    def fits_at_once(self) -> bool:
        """Return whether members may hold all of it, copies included, without ever freeing any."""
        return max([need.bytes_in(1) for need in self.needs.values()], default=0) <= self.most


#: Of templates with credits: sizes, and what was tried by turns ahead, promised blocks that are made, and threads.
_PACED: WeakKeyDictionary[Template, tuple[Sizes, dict[tuple[int, frozenset[Leaf], int], _Tried]]] = WeakKeyDictionary()


def programs_of(instance: Instance, others: Others = tuple) -> Programs | None:
    """Return the programs that a run is; None where each of its tasks is a task of Dask."""
    env, graph, template = instance.env, instance.graph, instance.template
    if not env.is_cluster or not _gains(instance):
        return None
    if makes_little(template.lowered, graph, env) and all(bounded.fits_at_once for bounded in _bounded(instance)):
        return Programs(template.programs, None, {})
    found = _fitting(instance, frozenset())
    if found is None and (made := _made_alone(instance, others)):
        found = _fitting(instance, made)
    return found


def memory_of(instance: Instance, programs: Programs | None) -> Liveness:
    """Return what members hold for a run: where programs keep to credits, what these say."""
    found = peaks_of(instance.lowered, instance.graph, instance.env)
    if programs is None or not programs.peak:
        return found
    members = {*found.peak, *programs.peak}
    return replace(found, peak={m: programs.peak.get(m, found.peak.get(m, 0)) for m in members})


def _gains(instance: Instance) -> bool:
    """Return whether a run as programs is fewer Dask tasks, or has messages that would be Dask's otherwise."""
    template = instance.template
    is_renewed = not template.kept.renewed.isdisjoint([(i, member) for i, member, _ in instance.bundled])
    return template.lowered.has_messages or is_renewed or template.n_saved_by_programs + instance.n_taken > 0


def held_as_programs(instance: Instance) -> Liveness | None:
    """Return what workers would hold if a run were programs that let messages come as late as they can, no more than
    that; None if it is to be none.
    """
    if not _gains(instance):
        return None
    tried = [frozenset[Leaf](), _made_alone(instance, tuple)]
    return min([_held(instance, made) for made in dict.fromkeys(tried)], key=lambda found: found.worst[0])


def _held(instance: Instance, made: frozenset[Leaf]) -> Liveness:
    recipes, at = instance.template.recipes, executor_for(instance.env).serving()
    found = _with_credits(instance, min(AHEAD), made)
    lying = Counter(standing_of(instance.env).held)
    total = _coming(instance, made) + _copies(instance) + _at_workers(found.peak, at) + lying
    stage_peak: dict[int, int] = {}
    for member, program in found.programs.items():
        beside = total[at.get(member, member)] - found.peak[member]
        for step, nbytes in zip(program.steps, found.held[member], strict=True):
            if step.key in recipes:  # else it makes what others promised
                for stage in recipes[step.key].stages(step.key):
                    stage_peak[stage] = max(stage_peak.get(stage, 0), beside + nbytes)
    return Liveness(lying, total, stage_peak, {}, {})


def _bounded(instance: Instance) -> list[_Bounded]:
    """Return the redistributions for which the user says how much they may hold."""
    found = []
    for n, draft in enumerate(instance.template.lowered.drafts):
        if draft.moves is not None and (most := wishes(draft.stage, instance.graph.nodes).memory) is not None:
            found.append(_Bounded(n, footprint(draft.moves), most))
    return found


def makes_little(lowered: Lowered, graph: Graph, env: Environment) -> bool:
    """Return whether members could hold all that tasks read, make and send, without ever freeing any of it."""
    given = sum([node.nbytes for node in graph.nodes if node.memo is not None])
    return has_room(env, given + MADE_BY_READ * lowered.most_nbytes)


def _made_alone(instance: Instance, others: Others) -> frozenset[Leaf]:
    """Return the promised blocks that programs may make: each by tasks of its own, and nobody else needs it."""
    if not instance.promised:
        return frozenset()
    nodes = instance.graph.nodes
    once = read_once([nodes[i] for i in instance.promised], others)
    free = {i: blocks.made_alone() for i, blocks in instance.promised.items() if id(nodes[i]) in once}
    found = {ref for ref in _given(instance) if ref.node in free and ref.number in free[ref.node]}
    return frozenset(found - instance.passed_on)


def _given(instance: Instance) -> set[Leaf]:
    """Return the blocks that programs are given."""
    return {ref for program in instance.template.programs.values() for ref in program.given if type(ref) is Leaf}


def _fitting(instance: Instance, made: frozenset[Leaf]) -> Programs | None:
    """Return the programs that let messages come furthest ahead of those that fit, and make some promised blocks.

    They fit in memory beside all that members hold; or, if that may lie on disk, they and what they read are little.
    """
    env = instance.env
    limit, little, serving = most_in_memory(env), most_beside_disk(env), executor_for(env).serving()
    held, read = standing_of(env).held, _read(instance, made)
    coming = _coming(instance, made) + _copies(instance)
    for ahead in AHEAD:
        tried = _with_credits(instance, ahead, made)
        own = coming + _at_workers(tried.peak, serving)
        peak, used = own + Counter(held), own + read
        fits = limit is None or max(peak.values(), default=0) <= limit or max(used.values(), default=0) <= little
        if tried.is_bounded and fits:
            return Programs(tried.programs, ahead, peak, made)
    return None


def _at_workers(by_member: Mapping[int, int], serving: Mapping[int, int]) -> Counter[int]:
    """Return bytes of members by those that stand for their workers."""
    found: Counter[int] = Counter()
    for member, nbytes in by_member.items():
        found[serving.get(member, member)] += nbytes
    return found


def _with_credits(instance: Instance, ahead: int, made: frozenset[Leaf]) -> _Tried:
    """Return the programs of a run with credits, tried once for its template."""
    known = _PACED.get(instance.template)
    if known is None:
        known = _PACED[instance.template] = _sizes(instance), {}
    sizes, tried = known
    at = ahead, made, n_tasks_at_once(instance.env)
    if at not in tried:
        tried[at] = _tried(instance, sizes, *at)
    return tried[at]


def _read(instance: Instance, made: frozenset[Leaf]) -> Counter[int]:
    """Return by member the bytes of blocks that its program is given, and does not make."""
    serving, nbytes = executor_for(instance.env).serving(), _nbytes(instance.graph)
    found: Counter[int] = Counter()
    for member, program in instance.template.programs.items():
        given = [ref for ref in program.given if type(ref) is Leaf and ref not in made]
        found[serving.get(member, member)] += sum([nbytes[ref] for ref in given])
    return found


def _coming(instance: Instance, made: frozenset[Leaf]) -> Counter[int]:
    """Return by member the bytes that come to it for a run, and stay: host data that are sent before or travel with its
    program, and what others' tasks make for it.
    """
    env, graph = instance.env, instance.graph
    standing = standing_of(env)
    found: Counter[int] = Counter()
    for node in graph.nodes:
        memo = node.memo
        if memo is None or memo.on_client:
            continue
        for member, nbytes, ref in holdings(node):
            if type(ref) is Unsent:
                found[member] += nbytes
                if (spare := standing.copied_to(member, nbytes, memo.sharding, ref.number)) is not None:
                    found[spare] += nbytes
    for member, program in instance.template.programs.items():
        found[member] += sum([b.nbytes for b in map(instance.given, program.given) if isinstance(b, np.ndarray)])
    sizes, promised = _nbytes(graph), instance.promised
    for ref in (_given(instance) | instance.passed_on) - made if promised else ():
        if ref.node in promised and type(promised[ref.node].handles[ref.number]) is Promise:
            found[instance.template.holders[ref.node][ref.number]] += sizes[ref]
    return found


def _copies(instance: Instance) -> Counter[int]:
    """Return by member the bytes of copies that it gets at once of what others make."""
    executor, fixed = executor_for(instance.env), instance.template.lowered
    found: Counter[int] = Counter()
    if executor.is_to_be_cut(instance.read, fixed.depth):
        spares, sizes = executor.spares(), instance.template.kept.nbytes
        for member, program in instance.template.programs.items():
            if (spare := spares.get(member)) is not None:
                found[spare] += sum([sizes[key] for key in program.kept_keys])
    return found


def kept_sizes(instance: Instance) -> dict[Key, int]:
    """Return the bytes of all blocks and bundles that a run keeps as member programs, by their keys."""
    return {instance.named(key): nbytes for key, nbytes in instance.template.kept.nbytes.items()}


def _tried(instance: Instance, sizes: Sizes, ahead: int, made: frozenset[Leaf], n_threads: int) -> _Tried:
    """Return the programs of a template with credits, and what they hold."""
    template, nbytes = instance.template, _nbytes(instance.graph)
    programs = template.with_credits(ahead, made)
    recipes, _, blocks = template.with_making(made)
    own = {key: nbytes[leaf] for key, leaf in blocks.items()}
    making = {key: MADE_BY_READ * n for key, n in own.items()}
    sizes = Sizes({**sizes.results, **own}, {**sizes.needs, **making}, sizes.coming)
    given = {
        program.sent[slot][0]: nbytes[ref]
        for program in programs.values()
        for slot, ref in enumerate(program.given)
        if slot in program.sent and isinstance(ref, Leaf)
    }
    is_bounded = True
    for stage, needs, most in _bounded(instance):
        keys = {key for key, recipe in recipes.items() if stage in recipe.stages(key)}
        moving = Counter(peaks(held_at_steps(programs, sizes, given, n_threads, keys)))
        moving.update({member: need.source for member, need in needs.items()})
        is_bounded = is_bounded and max(moving.values(), default=0) <= most
    held = held_at_steps(programs, sizes, given, n_threads)
    return _Tried(programs, held, peaks(held), is_bounded)


def _nbytes(graph: Graph) -> dict[Leaf, int]:
    """Return the bytes of all blocks that are there before."""
    found: dict[Leaf, int] = {}
    for i, node in enumerate(graph.nodes):
        if node.memo is not None and not isinstance(node.dtype, tuple):
            for number, n in enumerate(n_elements(node.memo.sharding, node.shape)):
                found[Leaf(i, number)] = n * node.dtype.itemsize
    return found


def _sizes(instance: Instance) -> Sizes:
    """Return what the tasks of a template need, by their keys there."""
    found = sizes_of(instance.lowered, instance.graph)
    of = {key: instance.named(key) for key in instance.template.recipes}
    results, needs = ({key: known[n] for key, n in of.items()} for known in (found.results, found.needs))
    return Sizes(results, needs, {key: found.coming[n] for key, n in of.items() if n in found.coming})
