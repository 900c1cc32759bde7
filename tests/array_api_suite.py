"""Run the conformance suite of the array API standard on distarray, and compare with what NumPy passes.

    python tests/array_api_suite.py CLONE [--examples 100] [--tiles 3] [--workers 2] [--device strict] [PYTEST ...]

CLONE is a clone of data-apis/array-api-tests (commit 55fcc60) with its submodule; it is not part of the project, and
needs pytest, pytest-json-report, hypothesis >= 6.151 and ndindex >= 1.8 beside distarray. Further arguments go to
pytest: ``-k linalg``, ``-n 2``. The exit status says whether all tests of ``data/array_api_suite.txt`` that were run
have passed. No test is skipped or expected to fail.

The file is its own pytest plugin: that is how tiles, cluster and device get into the suite's tests.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
OPTIONS = "DISTARRAY_ARRAY_API_OPTIONS"
RANK = ("passed", "skipped", "failed")


# ------------------------------------------------------------------------------------------------------- the plugin


def _options() -> dict[str, Any]:
    options: dict[str, Any] = json.loads(os.environ[OPTIONS])
    return options


def pytest_configure(config: pytest.Config) -> None:
    """One cluster for the whole run, as the default of every test: the workers are threads of this process."""
    n_workers = _options()["workers"]
    if n_workers:
        from distributed import Client, LocalCluster

        cluster = LocalCluster(n_workers=n_workers, threads_per_worker=1, processes=False, dashboard_address=None)
        client = Client(cluster)
        config.add_cleanup(cluster.close)
        config.add_cleanup(client.close)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Every test with arrays in so many tiles, on that device."""
    import distarray as dx
    from distarray.testing import force_tiles, no_host_copies

    options = _options()
    with ExitStack() as stack:
        if options["tiles"]:
            stack.enter_context(force_tiles(options["tiles"]))
        if options["device"]:
            stack.enter_context(dx.use(device=options["device"]))
            stack.enter_context(no_host_copies())
        yield


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what became of a test: the worst of its phases."""
    if "PYTEST_XDIST_WORKER" not in os.environ and (report.when == "call" or report.outcome != "passed"):
        with open(_options()["results"], "a", encoding="utf-8") as file:
            file.write(json.dumps([report.nodeid, report.outcome]) + "\n")


# ------------------------------------------------------------------------------------------------------- the command


def run_suite(clone: Path, examples: int, options: dict[str, Any], arguments: list[str]) -> dict[str, str]:
    """What became of each test, by its id."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        results.touch()
        environment = {
            **os.environ,
            "ARRAY_API_TESTS_MODULE": "distarray",
            "ARRAY_API_TESTS_VERSION": "2025.12",
            "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent), os.environ.get("PYTHONPATH", "")]),
            OPTIONS: json.dumps({**options, "results": str(results)}),
        }
        selected = [] if any(a.startswith("array_api_tests") for a in arguments) else ["array_api_tests/"]
        command = [
            *(sys.executable, "-m", "pytest", *selected, "-p", "array_api_suite", "-p", "no:cacheprovider", "-q"),
            *("--max-examples", str(examples), "--disable-deadline", "--derandomize", "--tb=short", *arguments),
        ]
        subprocess.run(command, cwd=clone, env=environment, check=False)
        found: dict[str, str] = {}
        for line in results.read_text(encoding="utf-8").splitlines():
            test, outcome = json.loads(line)
            found[test] = max(outcome, found.get(test, outcome), key=RANK.index)
        return found


def numpy_passes() -> list[str]:
    """The ids of the tests that NumPy passes."""
    lines = (HERE / "data" / "array_api_suite.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clone", type=Path)
    parser.add_argument("--examples", type=int, default=100, help="hypothesis examples per test")
    parser.add_argument("--tiles", type=int, default=0, help="tiles per axis of every array (force_tiles)")
    parser.add_argument("--workers", type=int, default=0, help="workers of a local cluster")
    parser.add_argument("--device", default="", help="a device such as strict, with copies to the host forbidden")
    known, arguments = parser.parse_known_args()
    options = {"tiles": known.tiles, "workers": known.workers, "device": known.device}
    found = run_suite(known.clone, known.examples, options, arguments)
    counts = Counter(found.values())
    print(" ".join(f"{outcome}={counts[outcome]}" for outcome in RANK), f"total={len(found)}")
    expected = numpy_passes()
    missing = [test for test in expected if found.get(test) != "passed" and (test in found or not arguments)]
    print(f"of the {len(expected)} tests that NumPy passes, {len(missing)} did not pass or run")
    for test in missing:
        print(f"  {found.get(test, 'not run')}: {test}")
    return 1 if missing or not found else 0


if __name__ == "__main__":
    sys.exit(main())
