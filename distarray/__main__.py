"""The command line: what there is to compute with and what may be wrong with it, how expressions are cut, arrays moved
and ONNX models annotated.

Each subcommand is a function that gets the parsed arguments and returns what is printed, with an exit status if it has
one to say. What it refuses is one line on stderr, nothing on stdout, and exit status 2: `main` sees to that for all of
them. A model that breaks rules is an answer: on stdout, with exit status 1.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from distarray.errors import OnnxShardingError
from distarray.tables import format_nbytes, format_seconds, format_table

#: Distributions whose versions matter when something goes wrong: what computes, what schedules, what is optional.
PACKAGES = (
    *("numpy", "scipy", "dask", "distributed", "array-api-compat", "opt_einsum"),
    *("array-api-strict", "cupy", "cupy-cuda12x", "cupy-cuda13x", "zarr", "xarray", "onnx"),
)

Rows = list[tuple[str, str]]


def versions() -> Rows:
    """Return the name and version of the interpreter, of this package and of those that it may use; missing ones are
    left out.
    """
    from distarray.runtime.inspection import packages
    from distarray.version import __version__

    python = f"{platform.python_version()} on {platform.platform()}"
    return [("distarray", __version__), ("python", python), *packages(PACKAGES).items()]


def devices() -> Rows:
    """Return device strings that can be used in this process, and why others cannot."""
    from distarray.expr.expr import Environment
    from distarray.runtime.clients import n_threads
    from distarray.runtime.memory import memory_limit

    n = n_threads()
    limit = format_nbytes(memory_limit(Environment(None)))
    rows = [("cpu", f"{n} thread{'s' * (n != 1)}, up to {limit} of arrays in one process")]
    try:
        from distarray.kernels.cupy_backend import gpu_count

        count = gpu_count()
    except (ImportError, RuntimeError) as error:
        rows.append(("cuda", f"none: {error}"))
    else:
        rows += [(f"cuda:{i}", "found by CuPy") for i in range(count)]
    return rows


def team() -> Rows:
    """Return the team and the device that new arrays get."""
    from distarray.array.environment import current_device, current_team

    current = current_team()
    if current is None:
        return [("team", "None: arrays are not distributed"), ("device", current_device())]
    where = "threads of this process" if current.client is None else "workers of the active Dask client"
    return [("team", f"{current!r}, {current.size} {where}"), ("device", current_device())]


def rates() -> Rows:
    """Return what the planner takes messages, transfers, tasks and computing to cost where new arrays are made."""
    from distarray import config
    from distarray.array.environment import environment
    from distarray.runtime.known_rates import origin, rates_for

    env = environment()
    known = rates_for(env)
    texts = {
        "latency": f"{format_seconds(known.latency)} per message",
        "bandwidth": f"{format_nbytes(known.bandwidth)} per second into a member, {known.bandwidth_own:.0%} its own",
        "compute": f"{known.compute:.3g} operations on elements per second, {known.compute_own:.0%} its own",
        "gemm": f"{_fastest(known.gemm):.3g} of a product of matrices, {known.gemm_own:.0%} its own",
        "generic": f"{_fastest(known.generic):.3g} of other contractions, {known.generic_own:.0%} its own",
        "task": f"{format_seconds(known.task)} per task",
    }
    if known.node_bandwidth is not None:
        texts["node_bandwidth"] = f"{format_nbytes(known.node_bandwidth)} per second from a process on its node"
    said = config.get("calibration") or {}
    where = origin(env)
    return [(name, f"{text} ({'option' if name in said else where})") for name, text in texts.items()]


def _fastest(rate: Any) -> float:
    """Return the rate of large kernels."""
    return float(rate[-1][1] if isinstance(rate, tuple) else rate)


def info(args: argparse.Namespace) -> str:
    """Return versions, devices, the current team, its rates, and the options that were changed."""
    from distarray.runtime.inspection import changed_options

    sections = {
        "versions": versions,
        "devices": devices,
        "new arrays": team,
        "rates": rates,
        "options changed": changed_options,
    }
    texts = []
    for title, rows_of in sections.items():
        try:
            rows = rows_of()
        except Exception as error:  # what is wrong with one section is what the others help to find out
            rows = [("error", f"{type(error).__name__}: {error}")]
        lines = [(f"  {name}", text) for name, text in rows] or [("  none", "")]
        texts.append(f"{title}\n{format_table(['', ''], lines)}")
    return "\n\n".join(texts)


def doctor(args: argparse.Namespace) -> tuple[str, int]:
    """Return what may be wrong here, or with a cluster, and 1 if something is."""
    from distarray.diagnostics.doctor import Diagnosis
    from distarray.runtime.inspection import gathered, gathered_at

    found = Diagnosis(gathered() if args.scheduler is None else gathered_at(args.scheduler, args.timeout))
    return found.to_json() if args.json else found.text(sys.stdout), int(found.worst == "error")


def plan(args: argparse.Namespace) -> str:
    """Return how every operation of a graph file is cut."""
    from distarray.diagnostics.plan_commands import planned

    return planned(
        args.graph,
        as_json=args.json,
        p=args.parts,
        objective=args.objective,
        splits=args.splits,
        repart=args.repart,
        search=args.search,
        kernels=args.kernels,
        memory_limit=args.memory,
    )


def reshard(args: argparse.Namespace) -> str:
    """Return the plan of a redistribution, or of a file of them."""
    from distarray.diagnostics.plan_commands import batch, single

    options = {"mode": args.mode, "memory": args.memory, "itemsize": args.itemsize}
    if args.problems is not None:
        if args.mesh or args.source or args.target:
            raise ValueError("--problems stands for --mesh, --source and --target; give one or the other")
        return batch(args.problems, as_json=args.json, **options)
    if args.mesh and args.source and args.target:
        return single(args.mesh, args.source, args.target, as_json=args.json, **options)
    raise ValueError("give --mesh, --source and --target, or --problems")


def onnx(args: argparse.Namespace) -> str:
    """Return what is wrong with the annotations of a model, its forms, what moves, its outputs, or planned ones."""
    from distarray.io.onnx.report import annotated, reported

    files = dict(_named_file(text) for text in args.input)
    if args.action == "annotate":
        return annotated(args.model, args.team, args.output, args.memory, args.size, files=files, as_json=args.json)
    return reported(args.action, args.model, args.configuration, team_size=args.team, files=files, as_json=args.json)


def _named_file(text: str) -> tuple[str, str]:
    name, is_said, path = text.partition("=")
    if not (name and is_said and path):
        raise ValueError(f"--input {text}: write the name of the input and its file, such as x=FILE.npy")
    return name, path


class _Parser(argparse.ArgumentParser):
    """A _Parser says in one line what is wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def parser() -> argparse.ArgumentParser:
    """Return what the command line accepts."""
    top = _Parser("python -m distarray", description="Distributed arrays on Dask.", allow_abbrev=False)
    commands = top.add_subparsers(title="commands", dest="command", required=True)
    command = commands.add_parser("info", help="versions, devices, the current team and its rates, changed options")
    command.set_defaults(run=info)
    command = commands.add_parser("doctor", help="what may be wrong here, or with a cluster, and what to do about it")
    command.add_argument("--scheduler", metavar="ADDRESS", help="of the cluster to look at, such as tcp://host:8786")
    command.add_argument("--timeout", type=float, default=10, metavar="SECONDS", help="to reach it (default: 10)")
    command.add_argument("--json", action="store_true", help="all that was found as JSON")
    command.set_defaults(run=doctor)
    _add_plan(commands)
    command = commands.add_parser("reshard", help="plan the collectives that take an array from one type to another")
    command.add_argument("--mesh", metavar="x=4,y=6", help="names and sizes of the mesh axes")
    command.add_argument("--source", metavar="TYPE", help="such as '[3{x}12, 2{y}12]': minor axes first")
    command.add_argument("--target", metavar="TYPE")
    command.add_argument("--problems", metavar="FILE", help="a JSON list of {id, mesh, src, dst}")
    command.add_argument("--mode", default="paper", help="paper, fused, direct or auto (default: %(default)s)")
    command.add_argument("--memory", type=int, metavar="BYTES", help="per member, source and target included")
    command.add_argument("--itemsize", type=int, metavar="N", help="bytes of an element (default: the dtype's, or 8)")
    command.add_argument("--json", action="store_true", help="plans as JSON")
    command.set_defaults(run=reshard)
    command = commands.add_parser("onnx", help="check, complete, plan or run an ONNX model with sharding annotations")
    command.add_argument("action", choices=("check", "infer", "annotate", "draw", "plan", "run"))
    command.add_argument("model", metavar="MODEL.onnx")
    command.add_argument("--configuration", metavar="NAME", help="(default: the only one)")
    command.add_argument("--team", type=int, metavar="N", help="threads that run it, or devices to annotate for")
    command.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="x=FILE.npy",
        help="of run; of plan its shape; annotate measures",
    )
    command.add_argument("-o", "--output", metavar="OUT.onnx", help="where the annotated model is written")
    command.add_argument("--memory", type=int, metavar="BYTES", help="that a device may hold, to annotate for")
    command.add_argument("--size", action="append", metavar="SYMBOL=N", help="to annotate with for a symbolic size")
    command.add_argument("--json", action="store_true", help="what is found as JSON")
    command.set_defaults(run=onnx)
    commands.metavar = f"{{{','.join(commands.choices)}}}"  # errors name it
    return top


def _add_plan(commands: Any) -> None:
    command = commands.add_parser("plan", help="cut every operation of a graph file so that it costs least")
    command.add_argument("graph", metavar="GRAPH.json", help="operations as einsums over named arrays")
    command.add_argument("--parts", type=int, metavar="P", help="kernels per operation (default: the file's p)")
    command.add_argument("--splits", choices=("pow2", "any"), help="(default: the file's parts, else by objective)")
    command.add_argument("--objective", choices=("paper", "time"), default="time", help="(default: %(default)s)")
    command.add_argument("--search", choices=("exact", "linearised", "tree"), default="exact")
    command.add_argument("--repart", choices=("paper", "worst", "jax", "cpp"), default="paper")
    command.add_argument("--kernels", choices=("equal", "upto"), help="(default: equal for paper, upto for time)")
    command.add_argument("--memory", type=int, metavar="BYTES", help="per worker")
    command.add_argument("--json", action="store_true", help="the plan as JSON")
    command.set_defaults(run=plan)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; the exit status. argparse itself exits with 2 where the arguments cannot be."""
    args = parser().parse_args(argv)
    try:
        found = args.run(args)
    except OnnxShardingError as error:  # what was asked for: the table of what is wrong
        print(error)
        return 1
    except (ValueError, MemoryError, OSError, OverflowError, ImportError) as error:
        print(f"python -m distarray {args.command}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    text, status = found if isinstance(found, tuple) else (found, 0)
    try:
        print(text, flush=True)
    except BrokenPipeError:  # who reads has seen enough, as `head` does; without this Python complains when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
