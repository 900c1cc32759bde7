"""The one door from plans to tasks (`calls` makes those that only call a function on blocks that are there).

`lower` walks the stages of a plan twice. The first pass resolves every cut and collects what every tile reads: all
reads of a plan are known before the first task is made, so that all that one member needs of a tile elsewhere travels
in one piece. The second makes the tasks, in an order in which they can run, and `fuse` joins those that only hand a
block on. What comes out is a `Template`, remembered by geometry, which the runtime fills in for every run
(`runtime.instantiate`). Nothing here knows Dask, clients or locks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from distarray.caches import LRUCache
from distarray.expr.expr import Environment
from distarray.kernels import tasks
from distarray.lower import block_kernels, collectives, copies, gather, halo_tasks, programs, reshapes
from distarray.lower.bundling import Output
from distarray.lower.fuse import fuse
from distarray.lower.loop_tiles import loop_tiles
from distarray.lower.messages import Key
from distarray.lower.records import Draft
from distarray.lower.route import Located
from distarray.lower.site import Site
from distarray.lower.state import Lowering
from distarray.lower.template import Template
from distarray.planner.graph import Graph
from distarray.planner.loops import Loops, base_reading, reading, stage_loops
from distarray.planner.plan import Plan, Stage, StageKind
from distarray.planner.shardings import resolve_cut, result_shardings
from distarray.sharding.dealing import dealt, n_elements
from distarray.sharding.sharding import Sharding


class Passes(NamedTuple):
    """A Passes is the row that says how the stages of one kind are lowered, in two passes.

    Parameters
    ----------
    first_pass
        Says what every tile reads.
    second_pass
        Makes the tasks.
    """

    first_pass: Callable[[Lowering, Draft], None]
    second_pass: Callable[[Lowering, Draft], None]


def _nothing(low: Lowering, draft: Draft) -> None:
    """Do nothing: the results of this stage are made by the stage that it reads."""


def _kernels(run: Callable[..., Any], finish: block_kernels.FinishOf | None = None) -> Passes:
    """Return the row of a family whose tiles run one kernel each."""
    return Passes(loop_tiles, partial(block_kernels.second_pass, run=run, finish=finish))


_MOVE = Passes(loop_tiles, collectives.second_pass)
#: Of chains of halo stages, of which the first pass is one for all (`halo_tasks.first_pass`).
_GROWN = Passes(loop_tiles, halo_tasks.second_pass)

#: By kind of stage.
PASSES: dict[StageKind, Passes] = {
    "program": Passes(loop_tiles, programs.second_pass),
    "contract": _kernels(tasks.run_contract, block_kernels.finish_of_contraction),
    "block": _kernels(tasks.run_block),
    "fold": _kernels(tasks.run_fold, block_kernels.finish_of_fold),
    "tiles": _kernels(tasks.run_tiles),
    "windows": _kernels(tasks.run_tiles),
    "reshape": Passes(reshapes.first_pass, reshapes.second_pass),
    "take": Passes(gather.first_pass_of_reads, gather.second_pass_of_reads),
    "take_put": Passes(gather.first_pass_of_writes, gather.second_pass_of_writes),
    "item": Passes(_nothing, _nothing),
}


def _passes(draft: Draft) -> Passes:
    """Return the two passes that lower a stage."""
    return _MOVE if draft.moves is not None else _GROWN if draft.grown is not None else PASSES[draft.stage.kind]


def lower(
    plan: Plan,
    graph: Graph,
    env: Environment,
    site: Site,
    inplace: Mapping[int, int],
    held: Mapping[int, frozenset[int]],
) -> Template:
    """Return the tasks of a plan for the nodes at hand, remembered by their geometry.

    Parameters
    ----------
    plan, graph
        From the planner (or its cache); their keys agree.
    env
        Team and device of all nodes.
    inplace
        Results that may take over the blocks of a node that nobody needs afterwards.
    held
        By such a node the numbers of the blocks that somebody else has.
    """
    geometry = _geometry(graph, site, inplace, held)

    def make() -> Template:
        tried = _tried_as(plan, geometry)
        return _TRIED.pop(tried, None) or _template(Lowering(plan, graph, env, site, inplace, held))

    return _TEMPLATES.get((plan.serial, geometry), make, site.n_templates)


def lower_once(plan: Plan, graph: Graph, env: Environment, site: Site) -> Template:
    """Return the tasks of a plan that is only tried: of all of these the latest is remembered, since it may run."""
    template = _template(Lowering(plan, graph, env, site, {}, {}))
    _TRIED.clear()
    _TRIED[_tried_as(plan, _geometry(graph, site, {}, {}))] = template
    return template


_TEMPLATES: LRUCache[Template] = LRUCache()
#: The latest plan that was only tried.
_TRIED: dict[Any, Template] = {}


def _tried_as(plan: Plan, geometry: Any) -> Any:
    """Return all that decides the tasks of a plan; other plans may be made of the same stages."""
    return plan.stages, plan.outputs, plan.beside, geometry


def _geometry(graph: Graph, site: Site, inplace: Mapping[int, int], held: Mapping[int, frozenset[int]]) -> Any:
    """Return what decides the tasks of a plan beside the plan: extents, boundaries and lenses."""
    facts: list[Any] = [graph.key, site.overlap, site.rates, site.n_threads, site.bundle]
    facts += [tuple(inplace.items()), tuple(held.items())]
    for node in graph.nodes:
        memo = node.memo
        if memo is not None:
            facts.append((node.shape, memo.on_client, memo.sharding))
        elif node.op.kind in ("get", "put"):
            facts.append((node.shape, node.runtime))
        elif node.op.family.is_tiled:
            facts.append((node.shape, node.runtime.geometry))
        else:
            facts.append(node.shape)
    return tuple(facts)


def _template(low: Lowering) -> Template:
    try:
        _walk(low)
    finally:
        # Messages call back into the lowering: such a cycle would keep all blocks alive until a garbage collection.
        del low.routes, low.messages
    fuse(low.template)
    _sum_up(low.template)
    return low.template


def _walk(low: Lowering) -> None:
    """Make the tasks of all stages, in two passes."""
    low.locate_sources()
    low.wanted = copies.wanted(low.plan, low.graph)
    drafts, stages = low.out.drafts, low.plan.stages
    for steps in _chains(stages):
        begun = []
        for step in steps:
            low.begin(step)
            begun.append(_draft(low, stages[step]))
        drafts += begun
        if len(steps) > 1 and halo_tasks.first_pass(low, begun, steps):
            continue
        for step, draft in zip(steps, begun, strict=True):
            low.begin(step)
            _passes(draft).first_pass(low, draft)
    for step, draft in enumerate(drafts):
        low.begin(step)
        _passes(draft).second_pass(low, draft)
        copies.complete(low, draft)
    low.drop_unread()
    _finish(low)


def _sum_up(template: Template) -> None:
    """Note what all tasks come to."""
    out, depths = template.lowered, dict[Key, int]()
    for key, recipe in template.recipes.items():
        read, member = recipe.reads(), out.members[key]
        depths[key] = 1 + max([depths[k] for k in read], default=0)
        out.has_messages = out.has_messages or any(out.members[k] != member for k in read)
    out.depth = max(depths.values(), default=0)
    total = Counter(out.made)
    for t in out.transfers:
        total[t.source] += t.nbytes
        total[t.destination] += t.nbytes
    out.most_nbytes = max(total.values(), default=0)


def _finish(low: Lowering) -> None:
    """Note what the tasks make, and what they cost."""
    for i in low.plan.outputs:
        at = low.located[i]
        node = low.graph.nodes[i]
        sizes = [n * node.dtype.itemsize for n in n_elements(at.sharding, node.shape)]
        low.out.outputs[i] = Output(at.sharding, at.refs[: len(sizes)], sizes)
    low.out.bundle_nbytes = low.site.bundle
    low.out.transfers = low.messages.transfers
    low.out.packed_bytes = low.messages.packed_bytes
    for draft in low.out.drafts:
        for tile in draft.tiles:
            if all(tile.box) and tile.is_last:
                for i in draft.stage.nodes:
                    low.out.kernels[low.graph.nodes[i].op.name, tile.index] += 1


# --------------------------------------------------------------------------------------------------- first pass


def _chains(stages: Sequence[Stage]) -> list[list[int]]:
    """Return the numbers of stages, those of one chain of halo stages together."""
    found: list[list[int]] = []
    for number, stage in enumerate(stages):
        if stage.chain >= 0 and found and stages[number - 1].chain == stage.chain:
            found[-1].append(number)
        else:
            found.append([number])
    return found


def _draft(low: Lowering, stage: Stage) -> Draft:
    """Return how a stage is cut, and where its results will lie."""
    if stage.family.is_item:
        return _draft_item(low, stage)
    nodes = low.graph.nodes
    loops = stage_loops(stage, nodes)
    readings = [reading(a, loops, p, nodes, low.lying(a.node)) for p, a in enumerate(stage.reads)]
    base = base_reading(stage, low.graph, lambda i: low.located[i].sharding)
    sharding = resolve_cut(stage.cut, loops, readings, nodes, base, low.mesh, low.lying)
    draft = Draft(stage, loops, sharding, readings, [])
    _place_results(low, draft)
    draft.inplace = stage.written in low.inplace
    if low.has_overlap and any(r.node == draft.base for r in readings):
        draft.inplace = False  # the border reads what the core would have overwritten
    draft.moves = collectives.moves_of(low, draft)
    return draft


def _place_results(low: Lowering, draft: Draft) -> None:
    """Note how each result of a stage is cut; the second pass notes which tasks make its tiles."""
    stage, nodes = draft.stage, low.graph.nodes
    lies: dict[int, Sharding | None] = {}
    if stage.written >= 0:
        draft.base = low.graph.base(stage.written)
        lies[draft.base] = low.located[draft.base].sharding
    found = result_shardings(stage, draft.sharding, draft.loops, low.graph, lies, low.mesh)
    for i, types in found.items():
        node = nodes[i]
        if isinstance(node.dtype, tuple):
            low.several[i] = [
                Located(sharding, shape, dtype, [None] * len(dealt(sharding).places))
                for sharding, shape, dtype in zip(types, node.shapes, node.dtypes, strict=True)
            ]
            low.located[i] = low.several[i][0]
        else:
            low.locate(i, types[0])
    draft.copied = copies.copied_results(low, stage, draft.loops, found)


def _draft_item(low: Lowering, stage: Stage) -> Draft:
    i = stage.nodes[0]
    which: int = low.graph.nodes[i].params.number
    low.located[i] = low.several[stage.reads[0].node][which]
    return Draft(stage, Loops(()), low.located[i].sharding, [], [])
