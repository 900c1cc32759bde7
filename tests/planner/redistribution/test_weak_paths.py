"""Weak paths: they lower at their own cost, and what a sequence costs without its permutes is the cost of one."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any

import numpy as np
import pytest

from distarray.planner.redistribution import plan
from distarray.planner.redistribution.aligned import common_parts, lower_aligned
from distarray.planner.redistribution.permuted import lower_permuted
from distarray.planner.redistribution.places import places_of
from distarray.planner.redistribution.problem import Parts, Problem
from distarray.planner.redistribution.synthesize import source_tiles, target_tiles
from distarray.planner.redistribution.trace import moments
from distarray.planner.redistribution.weak import Elements, Path, Space, by_cost, cheapest
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from distarray.testing.redistribution_verifier import verify
from distarray.testing.redistributions import Case, family, small_cases


def some_path(rng: random.Random, space: Space) -> Path | None:
    """A weak path in normal form, at random."""
    parts = rng.choice([p for p in space.starts() if space.is_legal(p)])
    slices = tuple([(i, k // s) for i, (k, s) in enumerate(zip(parts, space.src)) if k != s])
    moves, cost = [], 0
    valley = space.tile(parts)
    for _ in range(12):
        if not space.missing(parts) and rng.random() < 0.7:
            break
        choices = list(space.moves(parts))
        if not choices:
            break
        i, j, n, after = rng.choice(choices)
        moves.append((i, j, n))
        cost += space.tile(parts)
        parts = after
    if space.missing(parts):
        return None
    gathers, more = Elements(space).gathers(parts)
    return Path(slices, tuple(moves), gathers, cost + more, valley)


def test_a_weak_path_lowers_at_its_own_cost() -> None:
    """R-5: whatever the path, its steps cost as much, and one permute at the valley does the rest."""
    rng = random.Random(0)
    n_lowered = 0
    for case in small_cases(100, seed=21):
        problem = Problem.of(*case)
        path = some_path(rng, Space(problem))
        if path is None:
            continue
        n_lowered += 1
        src, dst = source_tiles(problem), target_tiles(problem)
        steps = lower_permuted(src, problem.src_parts, dst, problem.dst_parts, path)
        trace = moments(problem, src, steps)
        of_permute = sum([m.cost for s, m in zip(steps, trace[1:]) if s.op == "allpermute"])
        assert of_permute in (0, path.valley)
        assert sum([m.cost for m in trace]) == path.cost + of_permute
        assert verify(*case, [s.to_json() for s in steps], mode="paper") == []
    assert n_lowered > 60


def test_paths_that_lower_without_a_permute_cost_what_they_say() -> None:
    """R-5."""
    n_lowered = 0
    for case in small_cases(60, seed=22):
        problem = Problem.of(*case)
        space, places = Space(problem), places_of(problem.sizes)
        for path in list(by_cost(space, Elements(space), common_parts(problem), (3 * problem.bound, 0)))[:5]:
            steps = lower_aligned(problem, places, path)
            if steps is None:
                continue
            n_lowered += 1
            assert "allpermute" not in [s.op for s in steps]
            assert sum([m.cost for m in moments(problem, source_tiles(problem), steps)]) == path.cost
            assert verify(*case, [s.to_json() for s in steps], mode="paper") == []
    assert n_lowered > 40


# ----------------------------------------------------------------------------------------------- legal sequences


def weak_cost(ends: tuple[Parts, Parts], shape: Parts, n_devices: int, height: int) -> float:
    """The cost of the cheapest weak path below a height: any operations in any order, each over one prime axis or more.

    A search of its own, with none of the shortcuts of the one that is tested.
    """
    src, dst = ends

    def tile(parts: Parts) -> int:
        return math.prod(shape) // math.prod(parts)

    def following(parts: Parts) -> Iterator[tuple[Parts, int]]:
        for i, k in enumerate(parts):
            for n in range(2, n_devices + 1):
                if k % n == 0:
                    less = replaced(parts, i, k // n)
                    yield less, tile(less)
                    for j in range(len(parts)):
                        if j != i and shape[j] % (parts[j] * n) == 0:
                            yield replaced(less, j, parts[j] * n), tile(parts)
                if shape[i] % (k * n) == 0 and n_devices % (math.prod(parts) * n) == 0:
                    yield replaced(parts, i, k * n), 0

    heap, best = [(0, src)], {src: 0}
    while heap:
        cost, parts = heappop(heap)
        if parts == dst:
            return cost
        if cost > best[parts]:
            continue
        for after, more in following(parts):
            if tile(after) <= height and cost + more < best.get(after, math.inf):
                best[after] = cost + more
                heappush(heap, (cost + more, after))
    raise AssertionError("every weak type can be reached")


def replaced(parts: Parts, i: int, k: int) -> Parts:
    return (*parts[:i], k, *parts[i + 1 :])


def some_sequence(rng: random.Random, sizes: tuple[int, ...], shape: Parts) -> tuple[Case, list[Any], list[int]]:
    """Types, legal collectives at random from the one to the other, permutes among them, and the cost of each."""
    mesh = Mesh(tuple("abcdef"[: len(sizes)]), sizes)
    size = dict(zip(mesh.names, sizes))
    dims: list[list[str]] = [[] for _ in shape]
    for name in mesh.names:
        if rng.random() < 0.6:
            dims[rng.randrange(len(shape))].append(name)
    first = Sharding(mesh, tuple(map(tuple, dims)))
    steps: list[Any] = []
    costs: list[int] = []
    now = first

    def tile(sharding: Sharding) -> int:
        return math.prod(shape) // math.prod(sharding.parts)

    for _ in range(rng.randint(2, 7)):
        i, j = rng.randrange(len(shape)), rng.randrange(len(shape))
        used = {a for axes in now.axes for a in axes}
        free = [a for a in mesh.names if a not in used]
        op = rng.choice(["dynslice", "allgather", "alltoall", "allpermute"])
        axes = [list(names) for names in now.axes]
        if op == "dynslice" and free:
            axes[i].insert(0, rng.choice(free))
        elif op == "allgather" and axes[i]:
            axes[i] = axes[i][rng.randint(1, len(axes[i])) :]
        elif op == "alltoall" and axes[i] and i != j:
            n = rng.randint(1, len(axes[i]))
            axes[i], axes[j] = axes[i][n:], axes[i][:n] + axes[j]
        elif op == "allpermute":
            swap = dict(zip(mesh.names, mesh.names))
            for p in set(sizes):
                same = [a for a in mesh.names if size[a] == p]
                swap.update(zip(same, rng.sample(same, len(same))))
            axes = [[swap[a] for a in names] for names in axes]
        after = Sharding(mesh, tuple(map(tuple, axes)))
        if after == now or any(s % k for s, k in zip(shape, after.parts)):
            continue
        steps += plan(shape, now, after, mode="paper").to_json()["steps"]
        costs.append({"dynslice": 0, "allgather": tile(after)}.get(op, tile(now)))
        now = after
    return Case(shape, first, now), steps, costs


def without_permutes(problem: Problem, steps: list[Any]) -> tuple[int, int]:
    """Cost and height of the weak path that is left, each step of which is checked."""
    shape, parts = problem.shape, list(problem.src_parts)
    tiles = [math.prod(shape) // math.prod(parts)]
    cost = 0
    for step in steps:
        if step["op"] == "allpermute":
            continue
        if step["op"] != "dynslice":
            from_ = step["dim"] if step["op"] == "allgather" else step["src_dim"]
            assert parts[from_] % step["n"] == 0
            parts[from_] //= step["n"]
        if step["op"] != "allgather":
            parts[step["dim"] if step["op"] == "dynslice" else step["dst_dim"]] *= step["n"]
        assert all(s % k == 0 for s, k in zip(shape, parts))
        assert problem.n_devices % math.prod(parts) == 0
        tiles.append(math.prod(shape) // math.prod(parts))
        cost += {"dynslice": 0, "allgather": tiles[-1]}.get(step["op"], tiles[-2])
    assert tuple(parts) == problem.dst_parts
    return cost, max(tiles)


@pytest.mark.parametrize(
    ("sizes", "shape"), [((2, 2, 2), (16, 8, 8)), ((2, 3, 2), (36, 24)), ((2, 2, 3), (12, 12, 12))]
)
def test_a_legal_sequence_without_its_permutes_is_a_weak_path(sizes: tuple[int, ...], shape: Parts) -> None:
    """R-5: of no greater cost; so the cheapest weak path below its height costs no more either."""
    rng = random.Random(1)
    n_permutes = 0
    for _ in range(30):
        case, steps, costs = some_sequence(rng, sizes, shape)
        assert all("larger than the bound" in flaw for flaw in verify(*case, steps))
        n_permutes += [step["op"] for step in steps].count("allpermute")
        problem = Problem.of(*case)
        cost, height = without_permutes(problem, steps)
        assert cost <= sum(costs)
        ends = problem.src_parts, problem.dst_parts
        assert weak_cost(ends, shape, problem.n_devices, max(height, problem.bound)) <= cost
    assert n_permutes > 4


@pytest.mark.parametrize("name", ["A", "E"])
def test_the_cost_lies_between_the_cheapest_weak_path_and_the_bound_of_the_paper(name: str) -> None:
    """R-4: W <= cost <= min over weak paths of (path cost + valley) <= W + target."""
    for case in family(name, 20, seed=4):
        problem = Problem.of(*case)
        space = Space(problem)
        found = plan(*case, mode="paper").cost
        with_permute = cheapest(space, Elements(space))
        assert with_permute is not None
        least = weak_cost((problem.src_parts, problem.dst_parts), problem.shape, problem.n_devices, problem.bound)
        assert least <= found <= with_permute.cost + with_permute.valley
        assert found <= least + space.tile(space.dst)


def test_maps_on_the_way_are_uniform_and_the_last_is_the_target() -> None:
    """R-3, beside what the verifier says: offsets by device."""
    for case in small_cases(30, seed=23):
        for mode in ("paper", "fused", "direct"):
            found = plan(*case, mode=mode)  # type: ignore[arg-type]  # one of the modes
            for moment in found.trace:
                _, counts = np.unique(moment.tiles, axis=0, return_counts=True)
                assert len(counts) == math.prod(moment.parts)
                assert len(set(counts.tolist())) == 1
            start, stop = found.trace[-1].box
            for d in range(case.dst.mesh.size):
                box = case.dst.tile_box(case.shape, case.dst.tile(d))
                assert tuple(zip(start[d].tolist(), stop[d].tolist())) == box
