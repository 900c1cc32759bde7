"""Linear algebra on matrices that are cut on both axes: every residual of the workload is within its bound."""

from __future__ import annotations

import pytest
from benchmarks import w8_linear_algebra as w8
from benchmarks.systems import SYSTEMS


def check(size: str, grid: str, programs: list[str]) -> None:
    system = SYSTEMS["distarray"]
    on_host, placed = w8.inputs(size), w8.operands(system, size, grid)
    assert tuple(len(bounds) - 1 for bounds in placed[0].sharding.boundaries(placed[0].shape)) == w8.GRIDS[grid]
    for program in programs:
        result = w8.run(system, program, placed)
        for name, (residual, limit) in w8.residuals(program, on_host, result).items():
            assert residual <= limit, f"{program} on {grid}: {name} is {residual:.2g}, above {limit:.2g}"


@pytest.mark.parametrize("grid", w8.GRIDS)
@pytest.mark.parametrize("program", w8.PROGRAMS)
def test_residuals_are_in_bound_at_the_smallest_size(program, grid):
    check("XS", grid, [program])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("grid", w8.GRIDS)
def test_residuals_are_in_bound_at_size_s(grid):
    check("S", grid, list(w8.PROGRAMS))


def test_a_wrong_factor_is_out_of_bound():
    given = w8.inputs("XS")
    q, r = w8.run(SYSTEMS["numpy"], "qr", given)
    q[3, 4] += 1e-8
    assert any(residual > limit for residual, limit in w8.residuals("qr", given, (q, r)).values())
