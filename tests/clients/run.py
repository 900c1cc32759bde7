"""Run another library's own tests on our arrays, and compare with what another namespace passes.

    python tests/clients/run.py CLIENT [--clone FOLDER] [--namespace numpy] [--every 8] [--tiles 3]
                                       [--results FILE] [--against FILE] [PYTEST ...]

CLIENT is ``numpy``, ``scikit-learn``, ``scipy`` or ``dask`` (their installed packages hold their tests), or
``array-api-extra``, ``cupynumeric`` or ``cupy`` (a clone of data-apis/array-api-extra, nv-legate/cupynumeric or
cupy/cupy holds them). What became of each test is written to the file of ``--results``; with ``--against`` such a
file of a run with another ``--namespace``, the exit status says whether every test that passed there passes here, but
for those that `reasons.txt` explains. Further arguments go to pytest: ``-k fft``, a file of tests. A client that is
not installed is skipped, with exit status 0.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

HERE = Path(__file__).resolve().parent
RANK = ("passed", "skipped", "failed")


@dataclass(frozen=True)
class Client:
    """A library whose own tests take an array namespace."""

    #: Modules that must be there.
    needs: tuple[str, ...]
    #: What pytest is to collect.
    tests: tuple[str, ...]
    #: The folder of a clone that holds them, and the one to be on the path; None where the package has its tests.
    folders: tuple[str, str] | None = None
    #: What pytest is told besides, whatever it collects.
    options: tuple[str, ...] = ()


#: Of NumPy's tests those of arrays and functions of them. Several folders have files of one name.
NUMPY_PARTS = ("_core", "lib", "linalg", "fft", "random", "polynomial")
NUMPY_OPTIONS = ("--timeout", "60", f"--rootdir={Path(numpy.__file__).parent}")
#: Of CuPy's tests those of arrays and functions of them, without kernels, memory and streams of GPUs.
CUPY_PARTS = tuple(
    f"cupy_tests/{part}_tests"
    for part in (
        "binary core creation fft functional indexing io lib linalg logic manipulation math misc padding polynomial "
        "sorting statistics"
    ).split()
)
CUPY_INSIDE = (
    "bfloat16 cache callback carray core cub_reduction cuda_array_interface function gufuncs include internal mdspan "
    "ndarray_cuda_array_interface raw scan structured syncdetect userkernel"
)
CUPY_OPTIONS = (
    *("--timeout", "60", "-m", "not multi_gpu", "--ignore-glob=*fusion_tests*"),
    *(f"--ignore-glob=*/test_{name}.py" for name in CUPY_INSIDE.split()),
)
#: Of Dask's tests those of arrays and functions of them, without those of graphs and of other arrays in chunks.
DASK_PARTS = (
    "array_core array_function atop creation fft gufunc linalg map_blocks overlap percentiles random rechunk "
    "reductions reshape routines slicing ufunc wrap"
).split()
DASK_OPTIONS = ("--timeout", "60", f"--rootdir={Path(numpy.__file__).parents[1]}")
CLIENTS = {
    "scikit-learn": Client(("sklearn",), ("--pyargs", "sklearn")),
    "scipy": Client(("scipy",), ("--pyargs", "scipy", "-m", "array_api_backends")),
    "array-api-extra": Client(("array_api_compat",), ("main",), ("tests", "src")),
    "numpy": Client(("numpy",), ("--pyargs", *[f"numpy.{part}" for part in NUMPY_PARTS]), options=NUMPY_OPTIONS),
    "dask": Client(
        ("dask",), ("--pyargs", *[f"dask.array.tests.test_{part}" for part in DASK_PARTS]), options=DASK_OPTIONS
    ),
    "cupynumeric": Client(("scipy",), (".",), ("tests/integration", "tests/integration")),
    "cupy": Client(("scipy",), CUPY_PARTS, ("tests", "tests"), CUPY_OPTIONS),
}


@dataclass(frozen=True)
class Outcome:
    """What became of a test: passed, skipped or failed, and the error that it ended with."""

    outcome: str
    reason: str = ""


def run_suite(name: str, clone: Path | None, request: Mapping[str, Any], arguments: list[str]) -> None:
    """Run a client's tests with pytest; the plugin `backend` writes what became of each to ``request["results"]``."""
    client = CLIENTS[name]
    # Elsewhere than here: the settings of our pyproject.toml are not theirs.
    here = Path(request["results"]).parent
    folder, path = (clone / part for part in client.folders) if client.folders and clone else (here, HERE)
    environment = {
        **os.environ,
        "SCIPY_ARRAY_API": "1",
        "NPY_AVAILABLE_MEM": "2 GB",
        "PYTHONPATH": os.pathsep.join(map(str, (HERE, path, HERE.parents[1], os.environ.get("PYTHONPATH", "")))),
        "DISTARRAY_CLIENT": json.dumps({**request, "client": name}),
    }
    tests = () if any(argument.partition("::")[0].endswith(".py") for argument in arguments) else client.tests
    command = [
        *(sys.executable, "-m", "pytest", *tests, "-p", "backend", "-p", "no:cacheprovider", "-q"),
        # Locals are arrays, and tracebacks of thousands of failures take longer to print than the tests to run.
        *(
            "--tb=no",
            "--no-showlocals",
            "--no-header",
            "--continue-on-collection-errors",
            *client.options,
            *arguments,
        ),
    ]
    subprocess.run(command, cwd=folder, env=environment, check=False, stdin=subprocess.DEVNULL)


def outcomes(file: Path) -> dict[str, Outcome]:
    """What became of each test, by its id: the worst of its phases."""
    found: dict[str, Outcome] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        test, outcome, reason = json.loads(line)
        if test not in found or RANK.index(outcome) > RANK.index(found[test].outcome):
            found[test] = Outcome(outcome, reason)
    return found


def known_reasons(client: str) -> list[tuple[re.Pattern[str], str]]:
    """Patterns of ``test id: error``, and the reason in words, in the order in which they are tried."""
    rows = [line.split(" | ") for line in (HERE / "reasons.txt").read_text(encoding="utf-8").splitlines()]
    return [(re.compile(row[1]), row[2]) for row in rows if row[0] == client]


def explained(test: str, outcome: Outcome, reasons: list[tuple[re.Pattern[str], str]]) -> str:
    """The reason of a failure, or an empty string where nobody has written one down."""
    return next((reason for pattern, reason in reasons if pattern.search(f"{test}: {outcome.reason}")), "")


def report(client: str, found: Mapping[str, Outcome], against: Mapping[str, Outcome] | None) -> int:
    """Print counts, failures by reason, and those that nothing explains; return how many these are."""
    counts = Counter(outcome.outcome for outcome in found.values())
    print(" ".join(f"{outcome}={counts[outcome]}" for outcome in RANK), f"total={len(found)}")
    failed = {test: outcome for test, outcome in found.items() if outcome.outcome == "failed"}
    if against is not None:
        passed_there = {test for test, outcome in against.items() if outcome.outcome == "passed" and test in found}
        failed = {test: outcome for test, outcome in failed.items() if test in passed_there}
        print(f"of {len(passed_there)} tests that pass there, {len(failed)} fail here")
    reasons = known_reasons(client)
    by_reason = Counter(explained(test, outcome, reasons) for test, outcome in failed.items())
    unexplained = by_reason.pop("", 0)
    for reason, n in by_reason.most_common():
        print(f"  {n:4d}  {reason}")
    for test, outcome in failed.items():
        if not explained(test, outcome, reasons):
            print(f"  {test}: {outcome.reason[:200]}")
    return unexplained


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("--clone", type=Path, help="the folder of a clone, for clients whose package has no tests")
    parser.add_argument("--namespace", default="distarray", help="the module that the tests take as their namespace")
    parser.add_argument("--every", type=int, default=1, help="run one in so many tests")
    parser.add_argument("--tiles", type=int, default=0, help="tiles per axis of every array (force_tiles)")
    parser.add_argument("--results", type=Path, help="where to write what became of each test")
    parser.add_argument("--against", type=Path, help="such a file of another namespace")
    known, arguments = parser.parse_known_args()
    client = CLIENTS[known.client]
    absent = [module for module in client.needs if importlib.util.find_spec(module) is None]
    if absent or (client.folders and not known.clone):
        print(f"skipped: {known.client} needs", "--clone" if not absent else f"the modules {', '.join(absent)}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        results = (known.results or Path(folder) / "results").resolve()
        results.write_text("")
        request = {"namespace": known.namespace, "every": known.every, "tiles": known.tiles, "results": str(results)}
        run_suite(known.client, known.clone and known.clone.resolve(), request, arguments)
        found = outcomes(results)
    return 1 if not found or report(known.client, found, known.against and outcomes(known.against)) else 0


if __name__ == "__main__":
    sys.exit(main())
