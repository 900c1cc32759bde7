"""Tasks of several members that are made up, for what cuts them into member programs and runs these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

import distarray as dx
from distarray.lower import lower
from distarray.lower.credits import Sizes
from distarray.lower.recipes import ClientBox, Leaf, Recipe, is_key
from distarray.lower.site import Site
from distarray.lower.template import Template
from distarray.planner.rates import Rates
from distarray.runtime.planning import plan_of


def template_of(n: int, step: Callable[[Any], Any]) -> tuple[Template, Any]:
    """Return what a step on a matrix of so many members is lowered to as on a cluster, and its graph."""
    team = dx.Team((n,), ("x",))
    m = (dx.asarray(np.random.default_rng(0).random((2 * n, 2 * n)), team=team, sharding=("x", None)) + 0).persist()
    plan, graph, env = plan_of([step(m).__dx_node__()])
    return lower.lower(plan, graph, env, Site(True, 1 << 30, 1 << 28, Rates()), {}, {}), graph


class MemberGraph(NamedTuple):
    """Tasks in an order in which they can run, their members, what is kept, and the blocks from before."""

    recipes: dict[Any, Recipe]
    members: dict[Any, int]
    keep: list[Any]
    holders: dict[int, tuple[int, ...]]
    blocks: Mapping[Any, int]

    def value_of(self, argument: Any, made: Mapping[Any, int]) -> Any:
        """Return what an argument stands for, where tasks have made this."""
        if type(argument) in (Leaf, ClientBox):
            return self.blocks[repr(argument)]
        return made[argument] if isinstance(argument, tuple) and is_key(argument) else argument

    def sizes(self) -> Sizes:
        found = {key: size_of(recipe.args[0]) for key, recipe in self.recipes.items()}
        return Sizes(found, found)

    def given(self, refs: list[Any]) -> list[int]:
        return [self.blocks[repr(ref)] for ref in refs]

    def results(self, *, has_waits: bool = True) -> dict[Any, int]:
        """Return what the tasks make that is kept; they add up what they wait for too, if they get it."""
        made: dict[Any, int] = {}
        for key, recipe in self.recipes.items():
            read = (*recipe.args, *recipe.waits) if has_waits else recipe.args
            made[key] = recipe.function(*[self.value_of(a, made) for a in read])
        return {key: made[key] for key in self.keep}


class Sized(int):
    """A number that says that it takes memory."""

    nbytes: int


def total(n: int, *args: int) -> Sized:
    """Return the sum of what a task reads, of a size that its number tells."""
    made = Sized(n + sum(args) + 1)
    made.nbytes = size_of(n)
    return made


def size_of(n: int) -> int:
    return 1 + 7 * n % 11


@st.composite
def graphs(draw: st.DrawFn) -> MemberGraph:
    n_members = draw(st.integers(1, 4))
    nodes = range(draw(st.integers(0, 3)))
    before: list[Any] = [Leaf(node, number) for node in nodes for number in range(2)]
    before += [ClientBox(9, (slice(0, n), slice(None))) for n in range(draw(st.integers(0, 2)))]
    member = st.integers(0, n_members - 1)
    holders = {node: draw(st.sampled_from([(), (draw(member), draw(member))])) for node in nodes}
    recipes: dict[Any, Recipe] = {}
    members: dict[Any, int] = {}
    for n in range(draw(st.integers(1, 12))):
        known = [*before, *recipes]
        args = draw(st.lists(st.sampled_from(known), max_size=3)) if known else []
        args.insert(0, n)  # an argument that is no reference
        waits = draw(st.lists(st.sampled_from(list(recipes)), max_size=1)) if recipes else []
        kind = draw(st.sampled_from(["tile", "piece", "combine"]))
        recipes["dx-t", n, 0] = Recipe(kind, total, tuple(args), tuple(waits))
        members["dx-t", n, 0] = draw(member)
    keep = draw(st.lists(st.sampled_from(list(recipes)), unique=True, max_size=4))
    return MemberGraph(recipes, members, keep, holders, {repr(ref): 100 * n for n, ref in enumerate(before)})
