"""The rates of the model, and where it splits a tile in core and border."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.planner.rates import Rates, current_rates, hides_a_transfer
from distarray.testing import counting

#: A transfer of 2 messages and 1 MB that takes 1.8 ms, beside 10 operations on a million elements, which take 10 ms.
CASE: dict[str, Any] = {
    "rates": Rates(),
    "messages": 2,
    "nbytes": 1_000_000,
    "n_core": 900_000,
    "n_elements": 1_000_000,
    "n_operations": 10,
}


def test_bytes_cost_nothing_where_the_bandwidth_is_unknown() -> None:
    """Moves are explained by it too, whatever the option ``calibration`` says."""
    assert Rates(latency=0.5, bandwidth=4.0).transfer_seconds(2, 8) == 3.0
    assert Rates(latency=0.5, bandwidth=0.0).transfer_seconds(2, 8) == 1.0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"n_core": 10_000}, False),  # 0.1 ms of core: less than a task costs
        ({"n_operations": 0, "n_core": 100_000, "n_elements": 200_000}, False),  # a copy: nothing to compute meanwhile
        ({"messages": 0, "nbytes": 100_000}, False),  # comes in 0.1 ms
        ({"n_core": 90_000_000, "n_elements": 100_000_000}, False),  # 1.8 ms of a second
        ({"rates": Rates(task=2e-3)}, False),
        ({"rates": Rates(latency=1.0), "n_core": 90_000_000, "n_elements": 100_000_000}, True),
        ({"rates": Rates(bandwidth=1e12, latency=0.0)}, False),
        ({"rates": Rates(compute=1e12)}, False),
        ({"rates": Rates(bandwidth=0.0)}, False),
    ],
)
def test_a_core_is_split_off_where_that_hides_more_than_it_costs(change: dict[str, Any], expected: bool) -> None:
    """B-26."""
    assert hides_a_transfer(**(CASE | change)) is expected


def test_more_to_hide_never_makes_it_worse() -> None:
    for messages in range(0, 40, 3):
        gains = [hides_a_transfer(**(CASE | {"messages": messages, "nbytes": 10**k})) for k in range(10)]
        assert gains == sorted(gains)


def test_calibration_overrides_by_name() -> None:
    assert current_rates() == Rates()
    with dx.config.set(calibration={"latency": 0.5}):
        assert current_rates() == replace(Rates(), latency=0.5)
    assert current_rates() == Rates()
    with pytest.raises(ValueError, match="no rate 'bandwith'; known are"):
        dx.config.set(calibration={"bandwith": 1.0})


def tiles(team: dx.Team | None, **options: Any) -> int:
    """Tasks on tiles of a stencil on 4 members."""
    a = np.random.default_rng(0).random((64, 8))
    x = dx.asarray(a, team=team, sharding=("R", None)) * 1.0
    y = dx.zeros((64, 8), team=team, sharding=("R", None)) + 0.0
    x.persist()
    y.persist()
    with dx.config.set(**options), counting() as c:
        y[2:-2] = x[:-4] + x[2:-2] + x[4:]
        y.persist()
    np.testing.assert_array_equal(np.asarray(y)[2:-2], a[:-4] + a[2:-2] + a[4:])
    return c.by_class["tile"]


SLOW = {"latency": 1.0, "compute": 100.0}


def test_in_this_process_nothing_is_hidden() -> None:
    team = dx.Team((4,), ("R",), members=(0, 1, 2, 3))
    assert tiles(team, calibration=SLOW) == 4
    assert tiles(team, overlap="always") == 8


@pytest.mark.cluster
def test_on_a_cluster_the_model_decides(cluster4: Any) -> None:
    """B-26: 4 tiles, of which each has a core and a border where the network is said to be slow."""
    team = dx.Team((4,), ("R",), cluster4)
    assert tiles(team) == 4  # a few kilobytes
    assert tiles(team, calibration=SLOW) == 8
    assert tiles(team, calibration=SLOW, overlap=False) == 4
    assert tiles(team, overlap="always") == 8
