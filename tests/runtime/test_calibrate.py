"""Rates: measured, kept under the signature of the environment, found again, overridden."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from helpers import some

import distarray as dx
from distarray import __main__ as command
from distarray.array.environment import environment
from distarray.planner.rates import Rates, current_rates
from distarray.runtime import calibrate, clients
from distarray.runtime import known_rates as stored
from distarray.runtime.calibrate import measured
from distarray.runtime.known_rates import Calibration, forget, rates_for, signature, store, store_path

HERE = environment(None)
SLOW = {"latency": 0.25, "bandwidth": 1e6, "compute": 1e5, "task": 0.5}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user who has calibrated nothing."""
    monkeypatch.setattr("dask.config.PATH", str(tmp_path))
    forget()
    yield tmp_path
    forget()


def calibration(**changes: Any) -> Calibration:
    name = signature(HERE)
    assert name is not None
    return replace(Calibration(name, SLOW, "2026-01-01", 0.5), **changes)


def assert_measured(found: Calibration, names: set[str]) -> None:
    """These rates of the model, and nothing that cannot be."""
    rates = {name: rate for name, rate in found.rates.items() if not isinstance(rate, tuple)}
    assert set(rates) == names | {"compute_own", "gemm_own", "generic_own"}
    assert all(0 <= rate < math.inf for rate in rates.values())
    assert all(rate <= 1 for name, rate in rates.items() if name.endswith("_own"))
    assert rates["task"] > 0
    assert rates["compute"] > 1e6
    tables = {name: rate for name, rate in found.rates.items() if isinstance(rate, tuple)}
    assert set(tables) == {"elementwise", "gemm", "generic"}
    for table in tables.values():
        sizes = [n for n, _ in table]
        assert sizes == sorted(set(sizes))
        assert all(rate > 0 for _, rate in table)
    assert found.seconds < 30  # 1 to 4 on a machine with nothing else to do


def as_rates(found: Calibration) -> Rates:
    return Rates(**{name: rate for name, rate in found.rates.items() if name != "elementwise"})  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------- measuring


@pytest.mark.parametrize("size", some([None, 2]))
def test_a_process_measures_itself(size: int | None) -> None:
    team = None if size is None else dx.Team((size,), ("T",), members=tuple(range(size)))
    found = measured(environment(team))
    assert_measured(found, {"task", "latency", "bandwidth", "bandwidth_own", "compute"})
    assert found.signature == signature(environment(team))
    assert "in one process" in found.signature
    assert "elementwise" in str(found)


def test_kernels_are_measured_on_the_device_of_the_blocks() -> None:
    pytest.importorskip("array_api_strict")
    found = measured(environment(None, "strict:1"))
    assert found.signature.endswith("strict:1")
    assert found.rates["compute"] > 1e6


def slept(seconds: float) -> Any:
    """A kernel that takes a while and no core."""
    return lambda backend, n: (int(seconds * 1e5), lambda: time.sleep(seconds))


def took_turns(seconds: float) -> Any:
    """A kernel that one member runs at a time."""
    lock = threading.Lock()

    def call() -> None:
        with lock:
            time.sleep(seconds)

    return lambda backend, n: (int(seconds * 1e5), call)


@pytest.mark.parametrize(
    ("kernel", "least_own", "most_own", "slowest", "fastest"),
    [(slept, 0.6, 1.0, 3e4, 1e5), (took_turns, 0.0, 0.3, 3e3, 5e4)],
)
def test_members_that_share_a_core_are_told_from_those_that_do_not(
    kernel: Any, least_own: float, most_own: float, slowest: float, fastest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five thousand operations in 50 ms are 1e5 a second; by four who take turns, each does a fourth of that."""
    monkeypatch.setattr(calibrate, "_KERNELS", {"gemm": (kernel(0.05), (512,))})
    monkeypatch.setattr(calibrate, "REPEAT", 0.5)
    for module in (calibrate, clients):
        monkeypatch.setattr(module, "n_threads", lambda: 4)
    found = calibrate._Bench(environment(dx.Team((4,), ("T",), members=range(4)))).kernels("gemm")
    assert least_own <= found["gemm_own"] <= most_own
    ((_, rate),) = found["gemm"]
    assert slowest <= rate <= fastest


@pytest.mark.cluster
def test_a_cluster_measures_its_links_and_finds_the_rates_again(process_cluster: Any) -> None:
    """The public function, on three worker processes; a client stands for all its workers."""
    found = dx.calibrate(process_cluster)
    assert_measured(
        found, {"task", "latency", "bandwidth", "bandwidth_own", "node_bandwidth", "compute", "exchange", "step"}
    )
    assert "3 workers of 2 threads, 3 processes, 1 hosts, tcp" in found.signature
    team = dx.Team((3,), ("x",), process_cluster)
    assert rates_for(environment(team)) == as_rates(found)
    forget()  # as another process would
    assert rates_for(environment(team)) == as_rates(found)
    part = dx.Team((2,), ("x",), process_cluster)
    assert rates_for(environment(part)) == Rates()  # another cluster, as far as rates go
    assert rates_for(HERE) == Rates()


@pytest.mark.cluster
def test_workers_that_do_not_answer_have_the_default_rates(cluster4: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And calibration says so."""
    store(calibration())

    async def gone(function: Any, *args: Any, workers: list[str], **options: Any) -> dict[str, Any]:
        return dict.fromkeys(workers, OSError("gone"))

    team = dx.Team((2,), ("x",), cluster4)
    monkeypatch.setattr(cluster4, "_run", gone)
    assert signature(environment(team)) is None
    assert rates_for(environment(team)) == Rates()
    with pytest.raises(RuntimeError, match="nothing is calibrated"):
        dx.calibrate(team)


@pytest.mark.cluster
def test_one_worker_says_nothing_about_messages(cluster4: Any) -> None:
    found = dx.calibrate(dx.Team((1,), ("x",), cluster4), store=False)
    assert_measured(found, {"task", "compute"})
    assert not store_path().exists()


# ----------------------------------------------------------------------------------------------------- kept and found


def test_what_is_stored_holds_here_and_in_later_processes() -> None:
    assert rates_for(HERE) == Rates()
    found = dx.calibrate(None)
    assert rates_for(HERE) == as_rates(found)
    forget()
    assert rates_for(HERE) == as_rates(found)
    (kept,) = json.loads(store_path().read_text())["calibrations"]
    assert kept["signature"] == found.signature
    assert stored._load()[found.signature] == found
    assert rates_for(HERE).gemm == found.rates["gemm"]


def test_options_override_what_was_measured_by_name() -> None:
    store(calibration())
    assert rates_for(HERE) == Rates(**SLOW)
    with dx.config.set(calibration={"latency": 0.5}):
        assert rates_for(HERE) == Rates(**{**SLOW, "latency": 0.5})
    assert current_rates() == Rates()  # nothing is planned for an environment here


def test_rates_of_another_environment_do_not_hold() -> None:
    store(calibration(signature="4 workers of another kind"))
    assert rates_for(HERE) == Rates()
    store(calibration())
    assert rates_for(HERE) == Rates(**SLOW)
    assert len(json.loads(store_path().read_text())["calibrations"]) == 2


@pytest.mark.parametrize(
    ("what", "value"), [("numpy", "9.9"), ("cores", None), ("distributed", "1.0"), ("device", "strict:1")]
)
def test_the_signature_changes_with_what_the_rates_depend_on(
    what: str, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = signature(HERE)
    env = HERE
    if what == "numpy":
        monkeypatch.setattr("numpy.__version__", value)
    elif what == "distributed":
        monkeypatch.setattr(stored.metadata, "version", lambda name: value)
    elif what == "cores":
        monkeypatch.setattr(stored, "_machine", lambda: "another machine")
    else:
        env = replace(HERE, device=value)
    assert signature(env) != before


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"format": 1}',
        '{"format": 1, "calibrations": [{"signature": "a"}]}',
        '{"format": 1, "calibrations": [{"signature": "a", "date": "", "seconds": 0, "rates": [1]}]}',
        '{"format": 1, "calibrations": [{"signature": "a", "date": "", "seconds": 0, "rates": {"task": -1}}]}',
        '{"format": 1, "calibrations": [{"signature": "a", "date": "", "seconds": 0, "rates": {"task": NaN}}]}',
        '{"format": 1, "calibrations": [{"signature": "a", "date": "", "seconds": 0, "rates": {"gemm": [[1]]}}]}',
    ],
)
def test_a_file_that_is_corrupted_is_told_of_once_and_written_anew(text: str) -> None:
    store(calibration())
    store_path().write_text(text)
    forget()
    with pytest.warns(UserWarning, match="cannot be read"):
        assert rates_for(HERE) == Rates()
    assert rates_for(HERE) == Rates()
    assert store(calibration())
    forget()
    assert rates_for(HERE) == Rates(**SLOW)


def test_a_file_of_another_format_is_passed_over() -> None:
    store(calibration())
    store_path().write_text(store_path().read_text().replace('"format": 1', '"format": 2'))
    forget()
    assert rates_for(HERE) == Rates()


def test_a_folder_that_cannot_be_written_is_told_of(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own_folder / "distarray").write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="cannot be written"):
        found = dx.calibrate(None)
    assert rates_for(HERE) == as_rates(found)


def test_the_file_lies_beside_options_and_is_none(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dask

    store(calibration())
    assert "calibrations" not in dask.config.collect(paths=[str(own_folder)], env={})
    options = own_folder / "options.yaml"
    options.write_text("")
    monkeypatch.setattr("dask.config.PATH", str(options))
    assert store_path().parents[1] == own_folder
    assert os.listdir(store_path().parent) == ["calibration.json"]


# ------------------------------------------------------------------------------------------------------ where they hold


@pytest.mark.cluster
def test_evaluation_plans_with_the_rates_of_its_cluster(cluster4: Any) -> None:
    """A stencil has a border to hide where its network is slow: as with the option, see tests/planner/test_rates.py."""
    team = dx.Team((4,), ("R",), cluster4)

    def tiles() -> int:
        x = dx.zeros((64, 8), team=team, sharding=("R", None)).persist()
        y = dx.zeros((64, 8), team=team, sharding=("R", None)) + 0.0
        y.persist()
        with dx.testing.counting() as c:
            y[2:-2] = x[:-4] + x[2:-2] + x[4:]
            y.persist()
        return int(c.by_class["tile"])

    assert tiles() == 4
    name = signature(environment(team))
    assert name is not None
    store(Calibration(name, {"latency": 1.0, "compute": 100.0}))
    assert tiles() == 8


def test_info_shows_the_rates_and_where_they_come_from() -> None:
    assert all("not calibrated" in text for _, text in command.rates())
    env = environment()
    name = signature(env)
    assert name is not None
    store(Calibration(name, SLOW, date="2026-01-01"))
    with dx.config.set(calibration={"task": 0.125}):
        texts = dict(command.rates())
    assert texts["latency"] == "250 ms per message (calibrated 2026-01-01)"
    assert texts["task"] == "125 ms per task (option)"


def test_rates_cost_nothing_to_those_who_never_calibrated() -> None:
    """No signature is made, which would ask the workers."""
    with mock.patch.object(stored, "signature", side_effect=AssertionError):
        assert rates_for(HERE) == Rates()
