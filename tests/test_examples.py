"""The example programs, on the data that ships with them: the same figures everywhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from helpers import module_at

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
#: The 1797 x 64 images are 0.9 MB: above this they are cut.
BLOCK_BYTES = 64 * 1024


@pytest.fixture(scope="module")
def classify() -> ModuleType:
    module: ModuleType = module_at(EXAMPLES / "classify.py")
    return module


@pytest.fixture(scope="module")
def expected(classify: ModuleType) -> dict[str, Any]:
    figures: dict[str, Any] = classify.run(np, *classify.load())
    return figures


def assert_same_figures(figures: dict[str, Any], expected: dict[str, Any]) -> None:
    assert figures.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(figures[name], value, rtol=1e-10, atol=0, err_msg=name)


def run_script(*arguments: str, json_file: Path) -> tuple[str, dict[str, Any]]:
    """What ``classify.py`` prints, and the figures it writes."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "classify.py"), *arguments, "--json", str(json_file)],
        capture_output=True,
        text=True,
        timeout=250,
        # A script has its own folder on the path, not the one it is started from.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(json_file.read_text())


def test_figures_are_those_of_the_digits(expected: dict[str, Any]) -> None:
    assert (expected["rows"], expected["columns_that_vary"]) == (1797, 61)
    # What others report for the digits: 12 % and 9.6 % of the variance in the first components after scaling.
    np.testing.assert_allclose(expected["variance_share"][:2], [0.120339161, 0.095610544], rtol=1e-8)
    assert sum(expected["kmeans_sizes"]) == 1797
    assert expected["kmeans_purity"] > 0.6
    assert expected["test_accuracy"] > 0.9
    # 898 images were held back, and the mistaken ones are those off the diagonal.
    confusion = np.array(expected["confusion"])
    assert confusion.sum() == 898
    assert confusion.sum() - np.trace(confusion) == expected["mistaken_images"]


def test_the_script_prints_and_writes_the_figures(expected: dict[str, Any], tmp_path: Path) -> None:
    text, figures = run_script("--numpy", json_file=tmp_path / "figures.json")
    assert_same_figures(figures, expected)
    assert f"inertia {expected['kmeans_inertia']:.8f}" in text


def test_threads_give_the_figures_of_numpy(classify: ModuleType, expected: dict[str, Any]) -> None:
    import distarray as dx

    # More members than this machine may have threads.
    with dx.config.set(block_bytes=BLOCK_BYTES), dx.use(dx.Team(4, "T")), dx.testing.counting() as counted:
        pixels, digits = classify.load()
        steps: list[tuple[str, int]] = []
        figures = classify.run(dx, pixels, digits, on_step=lambda *step: steps.append(step))
    assert_same_figures(figures, expected)
    assert set(counted.members.values()) == {0, 1, 2, 3}  # otherwise nothing was distributed
    assert counted.transfers
    assert steps[-1] == ("newton", expected["newton_steps"])
    assert ("kmeans", expected["kmeans_iterations"]) in steps


def test_one_block_gives_the_figures_of_numpy(classify: ModuleType, expected: dict[str, Any]) -> None:
    import distarray as dx

    assert_same_figures(classify.run(dx, *classify.load()), expected)


def test_the_script_runs_on_threads_and_explains_itself(expected: dict[str, Any], tmp_path: Path) -> None:
    text, figures = run_script(json_file=tmp_path / "figures.json")
    assert_same_figures(figures, expected)
    assert "peak" in text  # of the explanation: bytes per member


@pytest.mark.cluster
@pytest.mark.slow
def test_the_script_runs_on_a_cluster_of_four_processes(expected: dict[str, Any], tmp_path: Path) -> None:
    _, figures = run_script("--cluster", "4", json_file=tmp_path / "figures.json")
    assert_same_figures(figures, expected)


@pytest.mark.cluster
def test_a_killed_worker_changes_no_figure(classify: ModuleType, expected: dict[str, Any]) -> None:
    from distributed import Client, LocalCluster

    import distarray as dx

    killed: list[int] = []

    with (
        LocalCluster(n_workers=3, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        dx.config.set(block_bytes=BLOCK_BYTES),
    ):

        def kill_one(name: str, step: int) -> None:
            if name == "kmeans" and step == 5:
                victim = client.run(os.getpid)[min(client.scheduler_info()["workers"])]
                killed.append(victim)
                os.kill(victim, signal.SIGKILL)

        figures = classify.run(dx, *classify.load(), on_step=kill_one)
        assert killed
        assert killed[0] not in client.run(os.getpid).values()
    assert_same_figures(figures, expected)
