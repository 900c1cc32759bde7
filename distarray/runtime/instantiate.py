"""From a plan to one run of it: the template is looked up or made, and filled in.

What varies from run to run is filled in: the blocks, the parameters (`lower.parameters`) and the name of the run. Keys
are unique per evaluation: a key that named other work before would return the old value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from dask._task_spec import Task, TaskRef

from distarray import config
from distarray.caches import collected_later
from distarray.expr.expr import Environment
from distarray.lower import lower
from distarray.lower.bundling import Bundled, Given, Output, given_from
from distarray.lower.credits import Programs
from distarray.lower.messages import Key
from distarray.lower.parameters import Filler, Parameters, parameters_of
from distarray.lower.recipes import ClientBox, Leaf, is_key, named
from distarray.lower.site import Site
from distarray.lower.template import Lowered, Template
from distarray.planner.graph import Graph
from distarray.planner.plan import Plan
from distarray.runtime.bundles import BundledBlocks, HeldTiles
from distarray.runtime.donation import withheld
from distarray.runtime.known_rates import rates_for
from distarray.runtime.memory import STREAMED, bundle_nbytes, memory_limit, n_threads_of
from distarray.runtime.promised import Promise, PromisedBlocks, promised_of
from distarray.runtime.shipping import shipped
from distarray.sharding.dealing import dealt
from distarray.sharding.sharding import Sharding


class Instance:
    """An Instance is one run of a template: with blocks, parameters and a name.

    Parameters
    ----------
    template
        All that does not vary.
    graph, env
        The nodes at hand, and their team and device.
    run
        Names this evaluation: unique in the scheduler's lifetime.
    """

    def __init__(self, template: Template, graph: Graph, env: Environment, run: str) -> None:
        self.template = template
        self.graph = graph
        self.env = env
        self.run = run
        self._blocks: list[Any] = [None if node.memo is None else node.memo.handles for node in graph.nodes]

    @cached_property
    def parameters(self) -> Parameters:
        """Return what varies, as it travels."""
        return parameters_of(self.template.specs, self.graph.nodes, shipped if self.env.is_cluster else tuple)

    def named(self, key: Key) -> Key:
        """Return the key of a task of this run, by its key in the template."""
        return named(key, self.run)

    def given(self, ref: Leaf | ClientBox) -> Any:
        """Return a block, or what stands for it on a cluster: a reference to its key, which lives as long as its
        memo.
        """
        blocks = self._blocks[ref.node]
        assert blocks is not None, "leaves are of memoised nodes"
        if isinstance(ref, ClientBox):
            return blocks[0][ref.slices]
        found = blocks[ref.number]
        key = getattr(found, "key", None)
        return found if key is None else TaskRef(key)

    @cached_property
    def promised(self) -> dict[int, PromisedBlocks]:
        """Return by number of a node its blocks, if some of them are still to be made by tasks of others."""
        found = [(i, promised_of(node)) for i, node in enumerate(self.graph.nodes)]
        return {i: blocks for i, blocks in found if blocks is not None}

    @cached_property
    def passed_on(self) -> frozenset[Leaf]:
        """Return the blocks, still to be made by tasks of others, that are blocks of results as they are."""
        promised = self.promised
        refs = [ref for output in self.template.lowered.outputs.values() for ref in output.refs] if promised else []
        found = [ref for ref in refs if type(ref) is Leaf and ref.node in promised]
        return frozenset([ref for ref in found if type(promised[ref.node].handles[ref.number]) is Promise])

    @cached_property
    def bundled(self) -> Bundled:
        """Return of which nodes members have bundles, and their bounds."""
        found = [(i, blocks) for i, blocks in enumerate(self._blocks) if isinstance(blocks, BundledBlocks)]
        return frozenset([(i, member, bounds) for i, blocks in found for member, bounds in blocks.bundled])

    def given_to(self, programs: Programs) -> Mapping[int, Given]:
        """Return by member how its program finds the blocks that it is given."""

        def find() -> dict[int, Given]:
            nodes = enumerate(self.graph.nodes)
            shardings = {i: node.memo.sharding for i, node in nodes if node.memo is not None}
            bounds: defaultdict[int, dict[int, tuple[int, ...]]] = defaultdict(dict)
            for i, member, at in self.bundled:
                bounds[member][i] = at
            with collected_later():
                return {
                    member: given_from(program.given, member, bounds[member], shardings)
                    for member, program in programs.by_member.items()
                }

        return self.template.given_as(programs.form, self.bundled, find)

    def arguments(self, given: Mapping[int, Given], made: Collection[Leaf] = frozenset()) -> dict[int, tuple[Any, ...]]:
        """Return by member what the task of its program gets: blocks, what stands for keys of blocks and bundles, or
        how to make a block that others promised.
        """
        return {member: tuple([self._argument(ref, made) for ref in found.args]) for member, found in given.items()}

    def _argument(self, ref: Leaf | ClientBox, made: Collection[Leaf]) -> Any:
        if type(ref) is Leaf and ref in made:
            return self.promised[ref.node].maker(ref.number)
        if type(ref) is Leaf and isinstance(blocks := self._blocks[ref.node], BundledBlocks):
            bundle, _, n_blocks = blocks.part(ref.number)
            if n_blocks > 1:
                return TaskRef(bundle.key)
        return self.given(ref)

    @property
    def n_taken(self) -> int:
        """Return how many tiles would have to be taken out of bundles, each by a task, if it did not run as
        programs.
        """
        if not self.bundled:
            return 0
        given = self.given_to(Programs(self.template.programs, None, {}))
        return sum([found.n_bundled for found in given.values()])

    @cached_property
    def read(self) -> set[Key]:
        """Return the keys of blocks and bundles from before that it reads as member programs."""
        arguments = self.arguments(self.given_to(Programs(self.template.programs, None, {})))
        return {arg.key for args in arguments.values() for arg in args if type(arg) is TaskRef}

    def held(self, i: int, found: Mapping[Key, Any]) -> Sequence[Any]:
        """Return what stands for the blocks of a result of member programs.

        Parameters
        ----------
        found
            Futures of all keys that are kept.
        """
        sharding, refs, _ = self.template.lowered.outputs[i]
        at = {}
        for member, kept in self.template.kept.by_member[i].items():
            bounds, held = [0], []
            for key, numbers in kept:
                begun = bounds[-1]
                bundle = found[self.named(key)] if key is not None else self._bundle_before(sharding, refs, numbers)
                if bundle is not None:
                    held.append(bundle)
                    bounds.append(begun + len(numbers))
                else:
                    results = [self._result(refs[n]) for n in numbers]
                    held += [found[r] if type(r) is tuple else r for r in results]
                    bounds += range(begun + 1, begun + len(numbers) + 1)
            at[member] = HeldTiles(tuple(bounds), tuple(held))
        blocks = BundledBlocks(dealt(sharding), at)
        return blocks if blocks.bundled else list(blocks)

    def _bundle_before(self, sharding: Sharding, refs: Sequence[Any], numbers: Sequence[int]) -> Any:
        """Return the bundle from before that is of these tiles of a result; None if there is no such one."""
        first = refs[numbers[0]]
        if type(first) is not Leaf or not isinstance(blocks := self._blocks[first.node], BundledBlocks):
            return None
        memo = self.graph.nodes[first.node].memo
        bundle, begun, n_blocks = blocks.part(first.number)
        is_same = memo is not None and memo.sharding == sharding and (begun, n_blocks) == (0, len(numbers))
        return bundle if is_same and all(refs[n] == Leaf(first.node, n) for n in numbers) else None

    @cached_property
    def outputs(self) -> dict[int, Output]:
        """Return the results by number of the node, with the keys of this run."""
        outputs = self.template.lowered.outputs
        return {i: o._replace(refs=list(map(self._result, o.refs))) for i, o in outputs.items()}

    def _result(self, ref: Any) -> Any:
        if type(ref) is Leaf:
            found = self._blocks[ref.node][ref.number]
            return found.key if type(found) is Promise else found
        return self.named(ref) if type(ref) is tuple and is_key(ref) else ref

    @cached_property
    def lowered(self) -> Lowered:
        """Return the tasks, each with all that it needs."""
        fixed, fill = self.template.lowered, Filler(self.parameters)
        names = {key: self.named(key) for key in self.template.recipes}

        def filled(a: Any) -> Any:
            kind = type(a)
            if kind is tuple and is_key(a):
                return TaskRef(names[a])
            if kind is Leaf or kind is ClientBox:
                return self.given(a)
            return fill(a)

        made: dict[Key, Task] = {}
        for key, (_, function, args, waits) in self.template.recipes.items():
            new = names[key]
            made[new] = Task(new, function, *[filled(a) for a in (*args, *waits)])
        return replace(
            fixed,
            tasks=made,
            members=dict(zip(made, fixed.members.values(), strict=True)),
            after={names[k]: {names[w] for w in waits} for k, waits in fixed.after.items()},
            outputs=self.outputs,
        )


def instance_of(
    plan: Plan, graph: Graph, env: Environment, run: str, inplace: Mapping[int, int] = MappingProxyType({})
) -> Instance:
    """Return one run of a plan for the nodes at hand.

    Parameters
    ----------
    plan, graph
        From the planner (or its cache); their keys agree.
    env
        Team and device of all nodes.
    run
        Names this evaluation: unique in the scheduler's lifetime.
    inplace
        Results that may take over the blocks of a node that nobody needs afterwards. Empty on a cluster, where tasks
        are retried.
    """
    held = {i: withheld(memo) for i in inplace.values() if (memo := graph.nodes[i].memo) is not None}
    return Instance(lower.lower(plan, graph, env, _site(env), inplace, held), graph, env, run)


def instance_once(plan: Plan, graph: Graph, env: Environment) -> Instance:
    """Return a run of a plan that is only tried: see `lower.lower_once`."""
    return Instance(lower.lower_once(plan, graph, env, _site(env)), graph, env, "trial")


def _site(env: Environment) -> Site:
    limit = memory_limit(env)
    overlap, n_kept = config.get("overlap"), config.get("plan-cache-size")
    # Kernels of other devices have threads of their own.
    n_threads = n_threads_of(env) if env.device == "cpu" else 1
    large = max(1, limit // STREAMED)
    return Site(env.is_cluster, limit, large, rates_for(env), n_threads, overlap, n_kept, bundle_nbytes(env))
