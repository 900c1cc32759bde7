"""One command that shows that distarray works on a GPU, and how fast.

    python asv_bench/gpu.py --wheels wheels --out results          # with a folder of wheels (docs/contributing.md)
    python asv_bench/gpu.py --only matmul,chain --again            # some parts, though they are in the results
    python asv_bench/gpu.py --device stand-in                      # no GPU: CuPy played by numpy, and small arrays
    python asv_bench/gpu.py --device strict                        # no GPU, no compiler: what the strict device has

It needs numpy, CuPy and pytest, and what of Dask and the rest is not installed as wheels: these go into a scratch
environment, beside what the interpreter has. Each part runs in a process of its own with a limit of its own; what it
finds is written line by line, and after each part stands in ``gpu.json`` and ``gpu.md``. A part that is in the results
is not run again. The whole stops at ``--seconds``; the next call goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
#: What a line may be; `failed` is a test that failed, or a measurement that misses its goal.
OUTCOMES = ("passed", "failed", "measured", "skipped")


class Part(NamedTuple):
    """What one process does.

    Attributes
    ----------
    seconds
        Its limit on a GPU; elsewhere it has `PATIENCE` times as long.
    tests
        Arguments of pytest; none: a function of `benchmarks.on_gpu` of the part's name.
    needs
        Modules without which the part is skipped.
    """

    seconds: int
    tests: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


#: Without a GPU each kernel waits for a compiler of the host.
PATIENCE = 4

_PYTEST = ("pytest", "hypothesis")
PARTS: dict[str, Part] = {
    "machine": Part(60),
    "matmul": Part(60),
    "chain": Part(60),
    "reductions": Part(60),
    "overhead": Part(60),
    "workloads": Part(120),
    "memory": Part(60),
    "kernels": Part(120, ("tests/gpu/test_kernels.py", "tests/kernels/test_backends.py"), _PYTEST),
    "blocks": Part(60, ("tests/gpu/test_blocks.py", "tests/array/test_environments.py"), _PYTEST),
    "cluster": Part(60, ("tests/gpu/test_on_cluster.py",), (*_PYTEST, "distributed")),
    "programs": Part(90, ("tests/array/test_programs_b60.py", "tests/array/test_strict.py"), _PYTEST),
    "functions": Part(180, ("tests/gpu/test_functions.py",), _PYTEST),
    "array-api": Part(120, (), (*_PYTEST, "pytest_jsonreport", "ndindex")),
}


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheels", type=Path, help="folder of wheels that are installed into a scratch environment")
    parser.add_argument("--out", type=Path, default=Path("gpu-results"), help="folder of the results")
    parser.add_argument("--only", default="", help=f"parts, with commas, of {','.join(PARTS)}")
    parser.add_argument("--again", action="store_true", help="run parts that are in the results")
    parser.add_argument("--device", default="cuda", choices=("cuda", "stand-in", "strict"))
    parser.add_argument("--seconds", type=float, help="the whole stops here (default: 460; longer without a GPU)")
    parser.add_argument("--suite", type=Path, help="clone of data-apis/array-api-tests, for the part array-api")
    parser.add_argument("--run", help=argparse.SUPPRESS)  # the part that this process is
    args = parser.parse_args(argv)
    args.patience = 1 if args.device == "cuda" else PATIENCE
    if args.seconds is None:
        args.seconds = 460 * args.patience
    unknown = set(filter(None, args.only.split(","))) - PARTS.keys()
    if unknown:
        parser.error(f"--only names {', '.join(sorted(unknown))}; the parts are {', '.join(PARTS)}")
    return args


# ------------------------------------------------------------------------------------------------ the environment


def environment(wheels: Path | None, folder: Path) -> str:
    """The interpreter of a scratch environment with the wheels and all that this one sees; this one without wheels."""
    if wheels is None:
        return sys.executable
    import venv

    files = sorted(str(f) for f in wheels.glob("*.whl"))
    if not files:
        raise SystemExit(f"--wheels {wheels} has no wheel; docs/contributing.md says how to get them")
    venv.EnvBuilder(system_site_packages=True, with_pip=False).create(folder)
    python = folder / "bin" / "python"
    # Of an interpreter that is an environment itself the new one would see the base alone.
    (site,) = folder.glob("lib/python*/site-packages")
    seen = [p for p in sys.path if p.endswith("site-packages")]
    (site / "outer.pth").write_text("\n".join(seen) + "\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--find-links", str(wheels), *files], check=True)
    return str(python)


def _child_environment(args: argparse.Namespace) -> dict[str, str]:
    # A wheel of distarray would be found behind the checkout: what is tested is what the tests belong to.
    paths = [str(ROOT), str(ROOT / "asv_bench"), str(ROOT / "tests" / "support"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONUNBUFFERED": "1",
        "DISTARRAY_GPU": "" if args.device == "cuda" else args.device,
        # JAX would take three quarters of the memory.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }


# ------------------------------------------------------------------------------------------------ the parts, run


def run_part(name: str, python: str, args: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """What a part found: its lines, also those of a part that crashed or was stopped."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "lines"
        command = [python, str(Path(__file__).resolve()), "--run", name, "--device", args.device]
        command += ["--suite", str(args.suite.resolve())] if args.suite else []
        environ = {**_child_environment(args), "DISTARRAY_GPU_LINES": str(lines)}
        with open(args.out / "gpu.log", "a", encoding="utf-8") as log:
            log.write(f"\n== {name}\n")
            log.flush()
            process = subprocess.Popen(
                command, cwd=ROOT, env=environ, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                end = {0: ""}.get(code := process.wait(seconds), f"the process ended with status {code}; see gpu.log")
            except subprocess.TimeoutExpired:
                _kill(process)
                end = f"stopped after {seconds:.0f} s"
        found = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()] if lines.exists() else []
    if end:
        found.append({"line": name, "outcome": "failed", "why": end})
    return {"seconds": round(time.monotonic() - began, 1), "device": args.device, "lines": found}


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a part and what it started: its session is its own."""
    import signal

    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def note(line: str, outcome: str, **more: Any) -> None:
    """Add a line to what this part found."""
    assert outcome in OUTCOMES
    with open(os.environ["DISTARRAY_GPU_LINES"], "a", encoding="utf-8") as file:
        file.write(json.dumps({"line": line, "outcome": outcome, **more}) + "\n")


def run_here(name: str, args: argparse.Namespace) -> int:
    """Be the process of a part."""
    import importlib.util

    part = PARTS[name]
    missing = [module for module in part.needs if importlib.util.find_spec(module) is None]
    if missing:
        note(name, "skipped", why=f"{', '.join(missing)} not installed")
        return 0
    if name == "array-api":
        return _suite(args)
    if part.tests:
        return _tests(part)
    from benchmarks import on_gpu

    return on_gpu.run(name, args.device, note)


class _Recorder:
    """A plugin of pytest that counts, and writes down what failed at once."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.counts[report.outcome] += 1
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            told = str(report.longrepr if crash is None else crash.message).split()
            note(report.nodeid.rpartition("::")[2], "failed", why=" ".join(told)[:400])
        elif report.skipped and isinstance(report.longrepr, tuple):
            self.reasons[str(report.longrepr[2]).removeprefix("Skipped: ")] += 1


def _tests(part: Part) -> int:
    import importlib.util

    import pytest

    recorder = _Recorder()
    options = ["-q", "-m", "gpu", "--import-mode=importlib", "-p", "no:cacheprovider", "-o", "addopts=", "--tb=short"]
    options += ["-p", "no:benchmark"]  # with xdist it warns, and warnings are errors
    if importlib.util.find_spec("pytest_timeout") is None:
        options += ["-W", "ignore::pytest.PytestConfigWarning"]
    if importlib.util.find_spec("xdist") is not None and (os.cpu_count() or 1) >= 8 and "distributed" not in part.needs:
        options += ["-n", "6"]
    status = pytest.main([*options, *part.tests], plugins=[recorder])
    counts = recorder.counts
    for reason, n in recorder.reasons.most_common():
        note(f"{n} tests", "skipped", why=reason)
    n_run = counts["passed"] + counts["failed"]
    if n_run or counts["skipped"] == 0:
        outcome = "failed" if counts["failed"] or not n_run else "passed"
        note(f"{counts['passed']} of {n_run} tests", outcome, why=", ".join(part.tests))
    return 0 if status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) else int(status)


def _suite(args: argparse.Namespace) -> int:
    """A tenth of the array API's suite, with one example per test."""
    if args.suite is None:
        note("array-api", "skipped", why="no --suite")
        return 0
    if args.device == "stand-in":
        note("array-api", "skipped", why="the suite runs in a process where nothing stands in for CuPy")
        return 0
    command = [sys.executable, str(ROOT / "tests" / "array_api_suite.py"), str(args.suite), "--examples", "5"]
    chosen = "test_operators or test_statistical or test_sorting or test_linalg or test_manipulation"
    done = subprocess.run(
        [*command, "--device", args.device, "-k", chosen], cwd=ROOT, capture_output=True, text=True, check=False
    )
    print(done.stdout, done.stderr)
    *_, told = [line for line in done.stdout.splitlines() if "passed=" in line] or ["nothing was run"]
    note(told, "passed" if done.returncode == 0 else "failed", why=chosen)
    return 0


# ------------------------------------------------------------------------------------------------ the results


def table(results: dict[str, Any]) -> str:
    """All lines of all parts, in Markdown."""
    rows = [("part", "line", "outcome", "ours", "beside", "ratio", "goal", "")]
    for name in PARTS:
        if name not in results:
            continue
        for line in results[name]["lines"]:
            found = [line.get(key, "") for key in ("ours", "beside", "ratio", "goal", "why")]
            cells = [f"{c:.2f}" if type(c) is float else str(c).replace("|", "/") for c in found]
            rows.append((name, line["line"], line["outcome"], *cells))
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    text = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in rows]
    return "\n".join([text[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *text[1:]])


def write(out: Path, results: dict[str, Any]) -> None:
    """Write both files, each at once: who reads them never sees half of one."""
    devices = sorted({part["device"] for part in results.values()})
    text = f"# distarray on {', '.join(devices)}\n\n{table(results)}\n"
    if devices != ["cuda"]:
        text += "\nNo GPU was used for these lines: they show that the path runs, and say nothing of speed.\n"
    for name, content in (("gpu.json", json.dumps(results, indent=1)), ("gpu.md", text)):
        (out / f"{name}.part").write_text(content, encoding="utf-8")
        os.replace(out / f"{name}.part", out / name)


def main(argv: list[str] | None = None) -> int:
    args = _arguments(argv)
    if args.run:
        return run_here(args.run, args)
    began = time.monotonic()
    args.out.mkdir(parents=True, exist_ok=True)
    known = args.out / "gpu.json"
    results: dict[str, Any] = json.loads(known.read_text(encoding="utf-8")) if known.exists() else {}
    wanted = [name for name in PARTS if not args.only or name in args.only.split(",")]
    todo = [n for n in wanted if args.again or results.get(n, {}).get("device") != args.device]
    left_out = []
    with tempfile.TemporaryDirectory(prefix="distarray-gpu-") as folder:
        python = environment(args.wheels, Path(folder) / "env") if todo else sys.executable
        for name in todo:
            left = args.seconds - (time.monotonic() - began)
            if left < 5:
                left_out.append(name)
                continue
            results[name] = run_part(name, python, args, min(PARTS[name].seconds * args.patience, left))
            write(args.out, results)
            print(f"{name}: {results[name]['seconds']} s", flush=True)
    print(table({name: results[name] for name in wanted if name in results}))
    if left_out:
        print(f"not run within {args.seconds:.0f} s: {', '.join(left_out)}; the same command goes on there")
    outcomes = Counter(line["outcome"] for name in wanted for line in results.get(name, {"lines": []})["lines"])
    print(", ".join(f"{outcomes[outcome]} {outcome}" for outcome in OUTCOMES), f"({args.device})")
    return 1 if outcomes["failed"] or left_out else 0


if __name__ == "__main__":
    sys.exit(main())
