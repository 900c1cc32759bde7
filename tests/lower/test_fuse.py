"""Tasks that only hand a block on are one task."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.kernels import tasks
from distarray.kernels.specs import Link
from distarray.lower.fuse import fuse
from distarray.lower.recipes import Recipe
from distarray.lower.template import Template
from distarray.testing import counting

TEAM = dx.Team((3,), ("R",))


def rows(n: int, team: dx.Team = TEAM) -> dx.DistArray:
    return dx.asarray(np.arange(float(n)), team=team, sharding=(team.axes[0],)).persist()


def writes(x: Any) -> None:
    for i in range(12):
        x[i] = 2 * i
    x[2:7] += 1
    x[1:2] = x[2:3]
    x[:] *= 2


def expected() -> np.ndarray:
    a = np.arange(12.0)
    writes(a)
    return a


def test_a_windows_writes_to_one_tile_are_one_task() -> None:
    x = rows(12)
    writes(x)
    with counting() as c:
        x.persist()
    assert c.by_class["tile"] == 3
    np.testing.assert_array_equal(np.asarray(x), expected())


@pytest.mark.cluster
def test_a_windows_writes_to_one_tile_are_one_task_on_a_cluster(cluster4: Any) -> None:
    x = rows(12, dx.current_team())
    old = x + 0
    old.persist()
    writes(x)
    with counting() as c:
        x.persist()
    assert c.by_class["tile"] == 4
    np.testing.assert_array_equal(np.asarray(x), expected())
    np.testing.assert_array_equal(np.asarray(old), np.arange(12.0))


def test_a_kernel_and_the_operations_on_its_result_are_one_task_per_tile() -> None:
    x = rows(12)
    with dx.config.set(errors="deferred"), counting() as c:
        y = (dx.map_blocks(np.sort, x, dtype="f8") + 1).persist()
    assert c.tasks == 3
    np.testing.assert_array_equal(np.asarray(y), np.arange(12.0) + 1)


def test_a_result_that_is_held_is_not_fused_away() -> None:
    x = rows(12)
    with dx.config.set(errors="deferred"), counting() as c:
        y = dx.map_blocks(np.sort, x, dtype="f8")
        (y + 1).persist()
        np.testing.assert_array_equal(np.asarray(y), np.arange(12.0))
    assert c.tasks == 6


def test_a_write_that_reads_elsewhere_sees_the_old_values() -> None:
    a = np.arange(12.0)
    x = rows(12)
    for z in (a, x):
        z[1:4] = 7
        z[1:4] = z[0:3] + z[1:4]
        z[0:3] = z[1:4]
    np.testing.assert_array_equal(np.asarray(x), a)


def chain_of(*args: tuple[Any, ...], members: tuple[int, ...] | None = None, **after: Any) -> Template:
    """Tasks ``t0, t1, ..`` with these arguments."""
    template = Template()
    for n, given in enumerate(args):
        key = (f"dx-t{n}", n, 0)
        template.recipes[key] = Recipe("tile", lambda *a: sum(a), given)
        template.lowered.members[key] = members[n] if members else 0
    template.lowered.counts["tile"] = len(args)
    return template


T0, T1, T2 = ("dx-t0", 0, 0), ("dx-t1", 1, 0), ("dx-t2", 2, 0)


@pytest.mark.parametrize(
    ("template", "n_tasks"),
    [
        (chain_of((1,), (T0, 2), (T1, 3)), 1),
        (chain_of((1,), (T0, T0), (T1, T1)), 1),
        (chain_of((1,), (T0,), (T0,)), 3),  # two readers
        (chain_of((1,), (2,), (T0, T1)), 3),  # another task to wait for
        (chain_of((1,), (T0,), (T1,), members=(0, 1, 1)), 2),  # elsewhere
    ],
)
def test_what_is_fused(template: Template, n_tasks: int) -> None:
    def run(t: Template) -> Any:
        results: dict[Any, Any] = {}
        for key, (_, function, args, _) in t.recipes.items():
            links = {a[0].key for a in args if type(a) is tuple and a and type(a[0]) is Link}
            assert not links.intersection(results)
            results[key] = function(*[results.get(a, a) if type(a) is tuple and type(a[0]) is str else a for a in args])
        return results[T2]

    value = run(template)
    fuse(template)
    assert len(template.recipes) == template.lowered.counts["tile"] == n_tasks
    assert list(template.lowered.members) == list(template.recipes)
    assert run(template) == value


@pytest.mark.parametrize(
    ("n_tiles", "is_early", "n_tasks"),
    [
        (2, True, 6),
        (2, False, 10),
        (1, True, 4),  # another thread might make both at once
    ],
)
def test_what_is_made_long_before_is_waited_for(n_tiles: int, is_early: bool, n_tasks: int) -> None:
    """A sum of two results is formed by the task that makes the later one, where that waits for others anyway."""
    template = Template()
    for tile in range(n_tiles):
        early, elsewhere, later, total, other = [(f"dx-s{stage}", stage, tile) for stage in range(5)]
        args = {elsewhere: (3,), early: (2,), later: (elsewhere, 4), total: (early, later)}
        if not is_early:  # it waits for another member too
            args = {other: (1,), **args, early: (other, 2)}
        for key, given in args.items():
            template.recipes[key] = Recipe("tile", lambda *a: sum(a), given)
            template.lowered.members[key] = int(key in (elsewhere, other))
    template.lowered.counts["tile"] = len(template.recipes)
    fuse(template)
    assert len(template.recipes) == n_tasks
    assert all(("dx-s3", 3, tile) in template.recipes for tile in range(n_tiles))


def test_what_others_wait_for_stays_before_them() -> None:
    template = chain_of((1,), (T0,), (5,))
    template.lowered.after = {T1: {T2}}  # the reader waits for something else
    fuse(template)
    assert len(template.recipes) == 3
    template = chain_of((1,), (T0,), (5,))
    template.lowered.after = {T2: {T0}}  # a writer waits for the task that would be fused
    fuse(template)
    assert len(template.recipes) == 3
    template = chain_of((5,), (1,), (T1,))
    template.lowered.after = {T1: {T0}, T2: {T1}}  # what the first of a chain waits for, the chain does
    fuse(template)
    assert template.lowered.after == {T2: {T0}}


def test_who_waits_for_a_task_waits_for_what_it_is_fused_to() -> None:
    template = chain_of((1,), (T0, 2), (5,))
    template.recipes[T2] = template.recipes[T2]._replace(waits=(T0,))
    fuse(template)
    assert list(template.recipes) == [T1, T2]
    assert template.recipes[T2].waits == (T1,)
    template = chain_of((1,), (T0, 2), (T1, 5))
    template.recipes[T2] = template.recipes[T2]._replace(waits=(T0,))  # it is fused to it
    fuse(template)
    assert [recipe.waits for recipe in template.recipes.values()] == [()]


def test_the_longest_way_comes_first() -> None:
    t = [(f"dx-t{n}", n, 0) for n in range(4)]
    template = chain_of((1,), (2,), (t[1],), (t[0], t[2]), members=(0, 1, 2, 3))
    fuse(template)
    assert list(template.recipes) == [t[1], t[2], t[0], t[3]]


def test_partial_results_are_combined_as_soon_as_they_are_there() -> None:
    t = [(f"dx-t{n}", n, 0) for n in range(5)]
    template = chain_of((1,), (2,), (t[0], t[1]), (t[0], t[1]), (t[3],), members=(0, 1, 2, 3, 2))
    template.recipes[t[3]] = template.recipes[t[3]]._replace(kind="combine")
    template.lowered.counts["combine"] = 0
    fuse(template)
    assert list(template.recipes) == [t[0], t[1], t[3], t[2], t[4]]


def test_waves_of_what_is_summed_come_one_after_the_other() -> None:
    template = Template()
    parts = [("dx-part", 0, n) for n in range(6)]  # three waves of two results
    sums = [("dx-sum", 0, n) for n in range(4)]
    made = dict.fromkeys(parts, ("tile", ()))
    made |= {sums[n]: ("combine", (parts[n], parts[n + 2])) for n in (0, 1)}
    made |= {sums[n + 2]: ("combine", (sums[n], parts[n + 4])) for n in (0, 1)}
    for key, (kind, args) in made.items():
        template.recipes[key] = Recipe(kind, lambda *a: sum(a), args)
        template.lowered.members[key] = len(template.lowered.members)
    stage = SimpleNamespace(cut=SimpleNamespace(waves=((2, 3),)))
    template.lowered.drafts = [SimpleNamespace(loops=SimpleNamespace(reduced=(2,)), stage=stage)]  # type: ignore[list-item]
    fuse(template)
    p, s = parts, sums
    assert list(template.recipes) == [p[0], p[1], p[2], s[0], p[3], s[1], p[4], s[2], p[5], s[3]]


def test_a_piece_of_a_tile_that_is_overwritten_is_taken_before() -> None:
    a = np.arange(5.0)
    x = dx.asarray(a, team=dx.Team((2,), ("R",)), sharding=dx.Sharding(dx.Mesh(("R", "%1"), (2, 3)), (("%1",),)))
    x = x.copy()
    for z in (a, x):
        z[2] = -1
        z[::-1] = z + 0
    np.testing.assert_array_equal(np.asarray(x), a)
    for z in (a, x):
        z[4] = 7
        z[::-1] = z
    np.testing.assert_array_equal(np.asarray(x), a)


def test_a_chain_frees_what_lies_between() -> None:
    import weakref

    class Block:
        pass

    seen: list[weakref.ref[Block]] = []

    def make() -> Block:
        block = Block()
        seen.append(weakref.ref(block))
        return block

    def after(block: Block) -> Block:
        return make()

    def last(block: Block) -> list[bool]:
        return [ref() is not None for ref in seen]

    links = (Link((), make, 0, ()), Link((), after, 1, ((0, 0),), (0,)), Link((), last, 1, ((0, 1),), (1,)))
    assert tasks.run_fused(links, None, None) == [False, True]


def test_tasks_that_do_not_wait_for_each_other_are_left_as_they_are() -> None:
    """A hundred thousand tiles of one operation are not walked through."""
    recipes = {("dx-add", 0, n): Recipe("tile", tasks.run_program, (n,)) for n in range(5)}
    template = Template(dict(recipes))
    template.lowered.members = dict.fromkeys(recipes, 0)
    before = template.recipes
    fuse(template)
    assert template.recipes is before and before == recipes
