"""What every tile of a plan is put together from: run on data, and the elements that move."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import pytest

from distarray.planner.redistribution import plan
from distarray.planner.redistribution.transfers import (
    Layer,
    Movement,
    StoredTile,
    exchange_of,
    layers_of,
    schedule,
    traffic,
)
from distarray.testing.redistributions import Case, small_cases


def boxes(layer: Layer, tile: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple([slice(b[t], b[t + 1]) for b, t in zip(layer.boundaries, tile, strict=True)])


def executed(movements: list[Movement], source: Layer, held: dict[tuple[int, ...], int], whole: Any) -> Any:
    """Run the movements: only what a block is said to hold is read of it."""
    stored = {StoredTile(0, d): (boxes(source, t), whole[boxes(source, t)].copy()) for t, d in held.items()}
    for movement in movements:
        for assembly in movement.assemblies:
            target = boxes(movement.made, assembly.tile)
            made = np.full([s.stop - s.start for s in target], -1, whole.dtype)
            for cell, name in zip(product(*assembly.parts), assembly.sources, strict=True):
                read = boxes(movement.read, cell)
                box, values = stored[name]
                common = [slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(target, read, strict=True)]
                place = tuple([slice(c.start - t.start, c.stop - t.start) for c, t in zip(common, target, strict=True)])
                inside = [slice(c.start - b.start, c.stop - b.start) for c, b in zip(common, box, strict=True)]
                assert all(i.start >= 0 for i in inside)
                made[place] = values[tuple(inside)]
            stored[StoredTile(movement.step + 1, assembly.device)] = target, made
    return stored


def movements_of(case: Case, mode: Any) -> tuple[list[Movement], Layer, dict[tuple[int, ...], int], Any]:
    found = plan(case.shape, case.src, case.dst, mode=mode)
    layers = layers_of(case.shape, found.trace)
    held = {tile: case.src.place(tile) for tile in case.src.tiles()}
    wanted = [case.dst.place(tile) for tile in case.dst.tiles()]
    return schedule(layers, found.steps, held, wanted), layers[0], held, found


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize("mode", ["paper", "fused", "direct"])
def test_tiles_are_put_together_from_blocks_that_exist(mode: str, uneven: bool) -> None:
    for case in small_cases(60, seed=3, uneven=uneven):
        whole = np.arange(np.prod(case.shape, dtype=int)).reshape(case.shape)
        movements, source, held, _ = movements_of(case, mode)
        stored = executed(movements, source, held, whole)
        for tile in case.dst.tiles():
            if movements:
                _, values = stored[StoredTile(movements[-1].step + 1, case.dst.place(tile))]
            else:
                _, values = stored[StoredTile(0, held[tile])]
            assert np.array_equal(values, whole[case.dst.tile_slices(case.shape, tile)]), (case, mode)


@pytest.mark.parametrize("mode", ["paper", "fused", "direct"])
def test_without_replicas_the_elements_that_move_are_those_of_the_plan(mode: str) -> None:
    # bytes counted are bytes planned
    seen = 0
    for case in small_cases(200, seed=5):
        if case.src.n_replicas > 1 or case.dst.n_replicas > 1:
            continue
        movements, *_, found = movements_of(case, mode)
        for movement in movements:
            _, received = traffic(movement, lambda d: d, lambda d: d)
            expected = found.trace[movement.step + 1].received
            assert [received[d] for d in range(len(expected))] == expected.tolist(), (case, mode)
        seen += bool(movements)
    assert seen > 20


def test_an_exchange_leads_between_any_two_cuts() -> None:
    rng = random.Random(0)
    for _ in range(50):
        shape = tuple(rng.randint(0, 9) for _ in range(rng.randint(1, 3)))
        layers = []
        for _ in range(2):
            cuts = [tuple(sorted([0, n, *[rng.randint(0, n) for _ in range(rng.randint(0, 3))]])) for n in shape]
            tiles = list(product(*[range(len(c) - 1) for c in cuts]))
            layers.append(Layer(tuple(cuts), dict(enumerate(tiles))))
        whole = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        source, target = layers
        stored = executed(exchange_of(source, target), source, {t: d for d, t in source.tiles.items()}, whole)
        for device, tile in target.tiles.items():
            assert np.array_equal(stored[StoredTile(1, device)][1], whole[boxes(target, tile)])
