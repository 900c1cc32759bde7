"""What is looked at when something is first planned for a cluster, and what follows from it."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.planner.rates import Rates
from distarray.runtime import first_look, known_rates
from distarray.runtime.clients import placement_of
from distarray.runtime.known_rates import Calibration, forget, origin, rates_for, signature, store
from distarray.runtime.placement import Placement

DEFAULT_GEMM: Any = Rates().gemm
#: What a look gives.
NAMES = {"compute", "compute_own", "gemm", "gemm_own", "exchange", "latency", "bandwidth", "node_bandwidth"}


@pytest.fixture(autouse=True)
def first_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Who says no rates and has calibrated nothing."""
    monkeypatch.setattr("dask.config.PATH", str(tmp_path))
    forget()
    with dx.config.set(calibration=None):
        yield
    forget()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the looks of a test gave."""
    found: list[Any] = []
    look = first_look.look
    monkeypatch.setattr(first_look, "look", lambda *args: found.append(look(*args)) or found[-1])
    return found


def of_team(*shape: int) -> Any:
    team = dx.Team(shape, tuple("abc"[: len(shape)]))
    return dx.zeros((8, 8), team=team)._env


@pytest.mark.cluster
def test_a_cluster_is_looked_at_once_and_others_like_it_never(cluster4: Any, looks: list[Any]) -> None:
    env = of_team(4)
    rates = rates_for(env)
    assert rates_for(of_team(4)) == rates_for(of_team(2, 2)) == rates_for(env) == rates
    (found,) = looks
    assert found.keys() == NAMES
    assert rates == replace(Rates(), **found)
    assert origin(env) == "measured at first use"
    x = dx.zeros((8, 8), team=env.team, sharding=("a", None))
    assert "by rates measured at first use" in str((x + 1).explain())
    assert not list(Path(known_rates.store_path()).parent.glob("*"))  # nothing is kept on disk


@pytest.mark.cluster
def test_rates_are_powers_of_two_and_shares_are_quarters(cluster4: Any, looks: list[Any]) -> None:
    rates = rates_for(of_team(4))
    alone = {
        "latency": rates.latency,
        "compute": rates.compute / (rates.compute_own + (1 - rates.compute_own) / 4),
        "bandwidth": rates.bandwidth / (rates.bandwidth_own + (1 - rates.bandwidth_own) / 4),
    }
    for name, rate in alone.items():
        assert abs(math.log2(rate) - round(math.log2(rate))) < 1e-9, name
    assert {4 * rates.compute_own, 4 * rates.gemm_own} <= {0, 1, 2, 3, 4}
    assert isinstance(rates.gemm, tuple)
    ratios = [rate / default for (_, rate), (_, default) in zip(rates.gemm, DEFAULT_GEMM, strict=True)]
    np.testing.assert_allclose(ratios, ratios[0])


@pytest.mark.cluster
def test_nothing_is_looked_at_where_rates_are_said_or_known_or_there_is_one_worker(
    cluster4: Any, looks: list[Any]
) -> None:
    env = of_team(4)
    with dx.config.set(calibration={}):
        assert rates_for(env) == Rates()
    name = signature(env)
    assert name is not None
    store(Calibration(name, {"latency": 1.0}, "2026-01-01"))
    assert rates_for(env) == replace(Rates(), latency=1.0)
    assert rates_for(of_team(1)) == Rates()
    assert rates_for(dx.zeros(3, team=None)._env) == rates_for(of_team(1))
    assert not looks


@pytest.mark.cluster
def test_of_many_workers_a_few_are_asked(cluster4: Any, looks: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    ask = placement_of(cluster4).ask
    monkeypatch.setattr(first_look, "MOST_ASKED", 2)
    monkeypatch.setattr(
        Placement, "ask", lambda _, *args, of, **more: asked.append(len(of)) or ask(*args, of=of, **more)
    )
    assert rates_for(of_team(4)) == replace(Rates(), **looks[0])
    assert max(asked) == 2


@pytest.mark.cluster
def test_a_worker_that_does_not_answer_leaves_the_default_rates(
    cluster4: Any, looks: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent() -> None:
        await asyncio.sleep(2)

    monkeypatch.setattr(first_look, "PATIENCE", 0.3)
    monkeypatch.setattr(first_look, "_computed", silent)
    env = of_team(4)
    assert rates_for(env) == rates_for(env) == Rates()
    assert origin(env) == "not calibrated"
    assert looks == [None]  # who plans again does not wait again


@pytest.mark.cluster
def test_a_look_that_fails_is_told_of_and_leaves_the_default_rates(
    cluster4: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(first_look, "ECHO", "no-such-message")
    with caplog.at_level("INFO", "distarray"):
        assert rates_for(of_team(4)) == Rates()
    assert "4 members like 4 workers" in caplog.text


@pytest.mark.cluster
def test_members_that_share_a_core_are_seen(cluster4: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock stands for the core."""
    core = threading.Lock()

    def taken(call: Any, seconds: float) -> tuple[float, float]:
        n, start = 0, time.perf_counter()
        while time.perf_counter() < start + 0.05:
            with core:
                time.sleep(0.002)
            n += 1
        return 1e-5, (time.perf_counter() - start) / n

    monkeypatch.setattr(first_look, "seconds_of", taken)
    rates = rates_for(of_team(4))
    assert rates.compute_own <= 0.5
    assert rates.gemm_own <= 0.5
