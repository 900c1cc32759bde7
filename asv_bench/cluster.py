"""Workloads on one cluster of this machine: several systems in turn, what each took, moved and held.

    python asv_bench/cluster.py W1 P4                                    # at S, 4 workers of 512 MiB
    python asv_bench/cluster.py P1 --size M/8 --workers 4 --memory 512MiB --rounds 5
    python asv_bench/cluster.py W3 --size M/16 --memory 3GiB --release   # blocks may go as soon as they are read
    python asv_bench/cluster.py P1 --inside                              # making the operands counts as well
    python asv_bench/cluster.py P1 --systems dask.array-grid,distarray-grid     # both start from the same blocks
    python asv_bench/cluster.py "P2.*float32" --systems distarray,dask.array-grid --no-baselines

Words are regular expressions, looked for in the names of workloads. A line of a table is a system: median seconds of
the rounds; the ratio distarray / system round by round (or `--reference` / system) with what holds 90 % of them;
seconds until the program came back; seconds of the first run; tasks; and MiB: moved between all workers, and of the
worker that had most of it in store and resident, before the run and at the peak (`benchmarks.cluster_meter`). The
results of the first run are checked; a system that gives wrong ones, fails or takes too long is shown with the reason.
Below stands what distarray predicted. Options of distarray come from the environment: at small sizes
``DASK_DISTARRAY__BLOCK_BYTES=0`` cuts arrays that would stay one block in this process.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.cluster_meter import MeteredCluster
    from benchmarks.workloads import Workload

SYSTEMS = ("numpy", "dask.array", "dask.array-grid", "dask-array", "distarray")


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="regular expressions: only workloads with one of these (default: all)")
    parser.add_argument("--size", default="S", help="XS, S (default), M/16, M/8 or M")
    parser.add_argument("--workers", type=int, default=4, help="processes, with one thread each (default: 4)")
    parser.add_argument("--memory", default="512MiB", help="limit of each worker (default: 512MiB)")
    parser.add_argument("--rounds", type=int, default=5, help="timed runs of each system (default: 5)")
    parser.add_argument("--seconds", type=float, default=600, help="a run that takes longer is given up (default: 600)")
    parser.add_argument("--systems", help=f"names, with commas (default: {','.join(SYSTEMS)}, numpy up to S)")
    parser.add_argument("--reference", help="the system that others are compared with (default: the first distarray)")
    parser.add_argument("--no-baselines", action="store_true", help="only the planner's cuts for distarray")
    parser.add_argument("--inside", action="store_true", help="operands are made inside the clock, for every system")
    parser.add_argument("--release", action="store_true", help="nobody holds the operands once the program runs")
    return parser.parse_args(argv)


def _workloads(args: argparse.Namespace) -> Iterator[tuple[Workload, tuple[str, ...]]]:
    """Those asked for, and the systems that the file of each names for it; none where it leaves that to us."""
    import benchmarks

    for module in sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__)):
        if not re.match(r"[wp]\d", module):
            continue
        file: Any = importlib.import_module(f"benchmarks.{module}")
        if not hasattr(file, "workload"):
            continue
        for variant, sizes in file.VARIANTS.items():
            if args.size not in sizes:
                continue
            made = file.workload(variant, args.size)
            if not args.words or any(re.search(word, made.name, re.IGNORECASE) for word in args.words):
                inside = dataclasses.replace(made, inside=True) if args.inside else made
                yield inside, getattr(file, "DISTRIBUTED_SYSTEMS", ())


def compare(cluster: MeteredCluster, workload: Workload, names: list[str], args: argparse.Namespace) -> None:
    """Run a workload on systems and print the table."""
    from benchmarks.cluster_meter import interleaved_on, report, table
    from benchmarks.systems import DISTRIBUTED, DistArray
    from benchmarks.workloads import job, place, predicted

    chosen: list[tuple[str, str | None]] = [(name, None) for name in names]
    ours = args.reference or next((name for name in names if name.startswith("distarray")), "")
    if not args.no_baselines and ours:
        chosen += [(ours, baseline) for baseline in workload.baselines]
    jobs = [job(workload, name, args.workers, baseline, release=args.release) for name, baseline in chosen]
    runs = interleaved_on(cluster, jobs, args.rounds, args.seconds, report)

    where = "operands made inside the clock" if workload.inside else "operands placed before"
    print(f"\n{workload.name}: {args.workers} workers of {args.memory}, size {args.size}, {where}")
    if workload.note:
        print(workload.note)
    print(table(runs, ours))
    for one, (name, baseline) in zip(jobs, chosen, strict=True):
        system = DISTRIBUTED[name]
        if not isinstance(system, DistArray) or runs[one.name].failure:
            continue
        told = predicted(system, workload, place(system, workload, args.workers, baseline), baseline)
        print(
            f"{one.name}: planned in {told.plan_seconds:.3f} s ({told.planner}), predicted {told.tasks} tasks, "
            f"{told.bytes_moved / 2**20:.1f} MiB moved, peak {told.peak / 2**20:.1f} MiB"
        )
    sys.stdout.flush()


def main(argv: list[str] | None = None) -> int:
    args = _arguments(argv)
    from benchmarks.cluster_meter import MeteredCluster
    from benchmarks.workloads import MEMORY

    found = list(_workloads(args))
    with MeteredCluster(args.workers, args.memory) as cluster:
        for workload, own in found:
            default = [name for name in own or SYSTEMS if name != "numpy" or args.size not in MEMORY]
            names = args.systems.split(",") if args.systems else default
            compare(cluster, workload, names, args)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
