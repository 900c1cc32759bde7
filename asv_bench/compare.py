"""distarray beside its peers on this machine, in one run; or what it claims.

    python asv_bench/compare.py                     # everyday programs on all libraries that are installed
    python asv_bench/compare.py --quick             # the same in about a minute, on smaller arrays
    python asv_bench/compare.py --peers numpy,jax loops "v = A @ v"     # some peers, some groups or programs
    python asv_bench/compare.py --cluster 4         # single operations on arrays that lie on workers
    python asv_bench/compare.py --goals M2 sort     # ratios that the project claims, and what this machine gives

A ratio is ours / theirs (below 1: distarray is faster), the median of interleaved rounds with the interval that holds
90 % of them. Results are compared with numpy's before anything is timed; what a library cannot run is listed with its
reason. The table goes to the screen, and with ``--out DIR`` to ``compare.md``, ``compare.json`` and ``compare.svg``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import pkgutil
import platform
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

OURS = "distarray"
#: Peers that compute on the workers of a cluster.
ON_CLUSTERS = ("dask.array", "dask-array")
#: Seconds in which a cluster lets go of results that nobody holds.
PAUSE = 0.15


@dataclass(frozen=True)
class Row:
    """A program of one size: seconds per run of each system, and of each that cannot run it why."""

    group: str
    program: str
    n: int
    seconds: dict[str, float]
    ratios: dict[str, Any]  # of `benchmarks.ratios.Ratio`, by peer
    refused: dict[str, str]


def main(argv: list[str] | None = None) -> int:
    args = _parsed(argv)
    if args.goals:
        return _goals(args)
    rows = []
    with _cluster(args.cluster):
        for row in measured(args):
            rows.append(row)
            print(_line(row, args.peers), flush=True)
    if not rows:
        print(f"no group or program has one of {args.words} in its name", file=sys.stderr)
        return 2
    text = markdown(rows, args.peers)
    print("\n" + text[text.index("## Geometric means") :])
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "compare.md").write_text(text)
        (args.out / "compare.json").write_text(json.dumps(as_json(rows), indent=1) + "\n")
        if (why := picture(rows, args.peers, args.out / "compare.svg")) is not None:
            print(why, file=sys.stderr)
    return 0


def _parsed(argv: list[str] | None) -> argparse.Namespace:
    from benchmarks.systems import IN_PROCESS

    installed = [name for name in IN_PROCESS if name != OURS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only what has one of these in its name (default: all)")
    parser.add_argument("--size", default=os.environ.get("DISTARRAY_BENCH_SIZE", "S"), help="XS, S (default) or M")
    parser.add_argument("--quick", action="store_true", help="smaller arrays and fewer rounds: about a minute")
    parser.add_argument(
        "--peers", default=",".join(installed), help=f"of {', '.join(installed)} (default: all of them)"
    )
    parser.add_argument("--cluster", type=int, metavar="N", help="operations on a cluster of N workers of 2 GiB")
    parser.add_argument("--patience", type=int, default=30, help="seconds for a peer's first run (default: 30, 3)")
    parser.add_argument("--rounds", type=int, help="how often each is timed (default: 7, with --quick 3)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write compare.md, compare.json and compare.svg there")
    parser.add_argument("--goals", action="store_true", help="the project's claims in place of the comparison")
    parser.add_argument("--check", action="store_true", help="with --goals: exit with 1 if one is missed")
    args = parser.parse_args(argv)
    args.peers = [name for name in args.peers.split(",") if name]
    if unknown := set(args.peers) - set(installed):
        parser.error(f"--peers {', '.join(sorted(unknown))}: installed are {', '.join(installed)}")
    if args.cluster:
        args.peers = [name for name in args.peers if name in ON_CLUSTERS]
    if args.quick:
        args.size, args.patience = "quick", 3
    if args.rounds is None:
        args.rounds = 3 if args.quick else 7
    return args


# ------------------------------------------------------------------------------------------------------ measuring


def measured(args: argparse.Namespace) -> Iterable[Row]:
    """Yield what every program that is asked for takes on each system."""
    from benchmarks.sizes import of_size

    for name, program in _programs(args).items():
        if args.words and not any(word.lower() in f"{program.group} {name}".lower() for word in args.words):
            continue
        extents = of_size(program.extents, args.size)
        if args.size == "quick" and "quick" not in program.extents:
            extents = extents[:: max(1, len(extents) // 2)][:2]  # the smallest, and one in the middle
        for n in extents:
            yield _measured(name, program, n, args)


def _programs(args: argparse.Namespace) -> dict[str, Any]:
    from benchmarks import cluster_operations, everyday

    return cluster_operations.PROGRAMS if args.cluster else everyday.PROGRAMS


@contextmanager
def _cluster(n_workers: int | None) -> Iterator[None]:
    """Have a cluster of so many worker processes of one thread; None: no cluster."""
    if not n_workers:
        yield
        return
    from distributed import Client, LocalCluster

    workers = LocalCluster(
        n_workers=n_workers, threads_per_worker=1, processes=True, memory_limit="2GiB", dashboard_address=None
    )
    with workers, Client(workers):
        yield


def _measured(name: str, program: Any, n: int, args: argparse.Namespace) -> Row:
    from benchmarks.everyday import operands_of, ran
    from benchmarks.ratios import interleaved, ratio
    from benchmarks.systems import IN_PROCESS

    expected = ran(program, IN_PROCESS["numpy"], operands_of(program, n, IN_PROCESS["numpy"]))
    runs: dict[str, Callable[[], object]] = {}
    refused: dict[str, str] = {}
    for each in (OURS, *args.peers):
        system = IN_PROCESS[each]
        try:
            with _patience(args.patience), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what peers say of their own chunks
                operands = operands_of(program, n, system, args.cluster)
                found = ran(program, system, operands)
                _check(found, expected)
                del found  # what is held need not be computed again
        except Exception as error:  # whatever a library says: it does not take part in this row
            if each == OURS:
                raise
            refused[each] = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"[:160]
        else:
            runs[each] = lambda system=system, operands=operands: ran(program, system, operands)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Dask has results under names of what makes them: asked for again before they are gone they are no work.
        how = {"shortest": 0.0, "pause": PAUSE} if args.cluster else {}
        times = interleaved(runs, args.rounds, **how)
    seconds = {each: float(np.median(taken)) for each, taken in times.items()}
    ratios = {each: ratio(times[OURS], times[each]) for each in times if each != OURS}
    return Row(program.group, name, n, seconds, ratios, refused)


def _check(found: Sequence[Any], expected: Sequence[Any]) -> None:
    """Raise AssertionError where a library has other values than NumPy."""
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-6, atol=1e-9)


@contextmanager
def _patience(seconds: int) -> Iterator[None]:
    """Raise TimeoutError inside after a while; of libraries that plan for ever."""

    def late(*_: object) -> None:
        raise TimeoutError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def means(rows: Sequence[Row], peer: str) -> float | None:
    """Return the geometric mean of the ratios to a peer, or None if it ran nothing."""
    logs = [math.log(row.ratios[peer].median) for row in rows if peer in row.ratios]
    return math.exp(sum(logs) / len(logs)) if logs else None


# -------------------------------------------------------------------------------------------------------- writing


def _line(row: Row, peers: Sequence[str]) -> str:
    shown = [f"{peer} {row.ratios[peer]!s}" if peer in row.ratios else f"{peer} -" for peer in peers]
    return f"{row.group:12}{row.program:26} {row.n:>7}  {row.seconds[OURS] * 1e3:9.3f} ms  / " + "   ".join(shown)


def markdown(rows: Sequence[Row], peers: Sequence[str]) -> str:
    """Return all tables as Markdown."""
    lines = [
        "# distarray beside its peers",
        "",
        "Time of distarray over that of the peer, below 1 is faster: median of rounds, and what holds 90 % of them.",
        f"{_machine()}.",
    ]
    groups = list(dict.fromkeys(row.group for row in rows))
    for group in groups:
        lines += [
            "",
            f"## {group.capitalize()}",
            "",
            f"| program | n | ms | {' | '.join(peers)} |",
            "|---" * (3 + len(peers)) + "|",
        ]
        for row in rows:
            if row.group == group:
                cells = [str(row.ratios.get(peer, "-")) for peer in peers]
                lines.append(f"| {row.program} | {row.n} | {row.seconds[OURS] * 1e3:.3g} | {' | '.join(cells)} |")
    lines += ["", "## Geometric means", "", f"| group | {' | '.join(peers)} |", "|---" * (1 + len(peers)) + "|"]
    for group in [*groups, "all"]:
        chosen = [row for row in rows if group in (row.group, "all")]
        cells = ["-" if (mean := means(chosen, peer)) is None else f"{mean:.2f}" for peer in peers]
        lines.append(f"| {group} | {' | '.join(cells)} |")
    reasons = {(peer, row.program): why for row in rows for peer, why in row.refused.items()}
    if reasons:
        lines += ["", "## What did not run", "", "| peer | program | reason |", "|---|---|---|"]
        lines += [f"| {peer} | {program} | {why.replace('|', '/')} |" for (peer, program), why in reasons.items()]
    return "\n".join(lines) + "\n"


def _machine() -> str:
    import distarray

    return (
        f"{os.cpu_count()} CPUs ({platform.machine()}), Python {platform.python_version()}, NumPy {np.__version__}, "
        f"distarray {distarray.__version__}"
    )


def as_json(rows: Sequence[Row]) -> dict[str, Any]:
    """Return everything as plain data."""
    return {"machine": _machine(), "rows": [asdict(row) for row in rows]}


def picture(rows: Sequence[Row], peers: Sequence[str], path: Path) -> str | None:
    """Draw the ratios of all rows, a dot for each peer; return why not if Matplotlib is not installed."""
    try:
        import matplotlib as mpl
    except ImportError:
        return "no picture: pip install matplotlib"
    mpl.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 1 + 0.22 * len(rows)), layout="constrained")
    for peer in peers:
        places = [(row.ratios[peer].median, -i) for i, row in enumerate(rows) if peer in row.ratios]
        if places:
            axes.plot(*zip(*places, strict=True), "o", label=f"{peer}, mean {means(rows, peer):.2f}", alpha=0.7)
    axes.axvline(1, color="0.5", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlabel("time of distarray / time of the peer")
    axes.set_yticks([-i for i in range(len(rows))], [f"{row.program}, {row.n}" for row in rows], fontsize=7)
    if axes.lines[:-1]:  # the last one is the line of equal times
        axes.legend()
    figure.savefig(path)
    pyplot.close(figure)
    return None


# ---------------------------------------------------------------------------------------------------------- goals


def _goals(args: argparse.Namespace) -> int:
    import benchmarks

    names = sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    modules = [importlib.import_module(f"benchmarks.{name}") for name in names]
    missed = 0
    print(f"{'goal (ours / theirs)':52} {'measured [90 %]':28} {'at most':>8}  met")
    for module in modules:
        for goal in module.goals(args.size) if hasattr(module, "goals") else ():
            if args.words and not any(word.lower() in goal.name.lower() for word in args.words):
                continue
            found = goal.measure()
            met = found.median <= goal.at_most
            missed += not met
            print(f"{goal.name:52} {found!s:28} {goal.at_most:8.3g}  {'yes' if met else 'NO'}", flush=True)
    return 1 if args.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
