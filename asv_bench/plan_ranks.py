"""Does the planner's model rank plans as a cluster does? Plans good and bad of one workload, predicted and measured.

    python asv_bench/plan_ranks.py P1                               # 4 workers
    python asv_bench/plan_ranks.py "W1.*inner" --rounds 7
    python asv_bench/plan_ranks.py "P1.*square" --default-rates     # as on a cluster that is not calibrated

Words are regular expressions, looked for in the names of workloads. Each is run with every plan of
`benchmarks.told_plans` and with the one that the search finds, in turn, on operands that always lie alike. First the
cluster is calibrated, for this run alone. A line of a table is a plan: the seconds that the model says of its stages;
the median seconds of the rounds, with what holds all of them; and MiB moved between workers, predicted and counted.
Below stands Spearman's rank correlation of the seconds, which is to be 0.9 at least: of the medians, and of the fastest
rounds, which what else goes on on the machine disturbs less. The seconds themselves need not agree: the model knows of
no overlap.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from benchmarks.cluster_meter import MeteredCluster, Runs
    from benchmarks.told_plans import Told
    from benchmarks.workloads import Workload

#: Files of workloads whose plans can be told by names alone (products and sums), and sizes of about a second.
SIZES = {"p1_matrix_chain": "M/16", "w1_matrix_chain": "S"}


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="regular expressions: only workloads with one of these (default: all)")
    parser.add_argument("--size", help=f"XS, S, M/16 or M/8 (default: {', '.join(sorted(set(SIZES.values())))})")
    parser.add_argument("--plans", default="", help="a regular expression: only plans with it in their name")
    parser.add_argument("--workers", type=int, default=4, help="processes, with one thread each (default: 4)")
    parser.add_argument("--memory", default="2GiB", help="limit of each worker (default: 2GiB)")
    parser.add_argument("--rounds", type=int, default=5, help="timed runs of each plan (default: 5)")
    parser.add_argument("--seconds", type=float, default=120, help="a run that takes longer is given up (default: 120)")
    parser.add_argument("--default-rates", action="store_true", help="do not calibrate")
    return parser.parse_args(argv)


def _workloads(args: argparse.Namespace) -> Iterator[Workload]:
    for name, usual in SIZES.items():
        file: Any = importlib.import_module(f"benchmarks.{name}")
        size = args.size or usual
        for variant, sizes in file.VARIANTS.items():
            if size in sizes:
                made = file.workload(variant, size)
                if not args.words or any(re.search(word, made.name, re.IGNORECASE) for word in args.words):
                    yield made


def table(told: Mapping[str, Told], runs: Mapping[str, Runs]) -> str:
    """A line for each plan, the fastest first, and the rank correlation."""
    from scipy.stats import spearmanr

    done = sorted((name for name in told if runs[name].costs), key=lambda name: runs[name].median("wall"))
    lines = [("plan", "predicted s", "measured s", "[all rounds]", "predicted MiB", "counted MiB")]
    for name in done:
        walls = [cost.wall for cost in runs[name].costs]
        lines.append(
            (
                name,
                f"{told[name].seconds:.3f}",
                f"{runs[name].median('wall'):.3f}",
                f"[{min(walls):.3f}, {max(walls):.3f}]",
                f"{told[name].bytes_moved / 2**20:.1f}",
                f"{runs[name].median('bytes_moved') / 2**20:.1f}",
            )
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    text = ["  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    text += [f"{name}: cannot run: {run.failure}" for name, run in runs.items() if not run.costs]
    if len(done) > 1:
        predicted = [told[name].seconds for name in done]
        medians = [runs[name].median("wall") for name in done]
        fastest = [min(cost.wall for cost in runs[name].costs) for name in done]
        ranks = [spearmanr(predicted, measured).statistic for measured in (medians, fastest)]
        text.append(
            f"rank correlation of predicted and measured seconds, {len(done)} plans: "
            f"{ranks[0]:.3f}, with the fastest rounds {ranks[1]:.3f}"
        )
    return "\n".join(text)


def compare(cluster: MeteredCluster, workload: Workload, args: argparse.Namespace) -> None:
    """Run a workload with all plans and print the table."""
    from benchmarks.cluster_meter import interleaved_on, report
    from benchmarks.told_plans import SEARCHED, TOLD, told_job, told_of

    names = [name for name in (*TOLD, SEARCHED) if re.search(args.plans, name)]
    told = told_of(workload, names, args.workers)
    runs = interleaved_on(
        cluster, [told_job(workload, name, args.workers) for name in names], args.rounds, args.seconds, report
    )
    print(f"\n{workload.name}: {args.workers} workers of {args.memory}")
    print(table(told, runs))
    sys.stdout.flush()


@contextlib.contextmanager
def own_rates() -> Iterator[None]:
    """What is measured in the block holds in it, and what was measured before does not."""
    from distarray.runtime.known_rates import forget

    with tempfile.TemporaryDirectory() as folder, mock.patch("dask.config.PATH", folder):
        forget()
        try:
            yield
        finally:
            forget()


def main(argv: list[str] | None = None) -> int:
    args = _arguments(argv)
    from benchmarks.cluster_meter import MeteredCluster

    import distarray as dx

    found = list(_workloads(args))
    with MeteredCluster(args.workers, args.memory) as cluster, own_rates(), dx.config.set(block_bytes=0):
        if not args.default_rates:
            print(dx.calibrate(cluster.client))
        for workload in found:
            compare(cluster, workload, args)
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
