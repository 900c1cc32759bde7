"""A zarr store, larger than the workers' memory, read, reduced, standardised and written anew: systems in turn.

    python asv_bench/zarr_cluster.py                                  # 256 MiB on 4 workers of 512 MiB
    python asv_bench/zarr_cluster.py --size M --rounds 0              # 6 GiB, one run of each system
    python asv_bench/zarr_cluster.py --kill 0.5                       # a worker is killed when half is written
    python asv_bench/zarr_cluster.py --systems distarray,cubed --folder /scratch

The store is made in a folder of its own, which is deleted at the end, and so is each result once every element was
compared with numpy's. The table is that of ``cluster.py``. With ``--kill`` one worker gets SIGKILL in each run as soon
as so much of the result's chunks is written; what the lost one had held at most stands above the table, and workers
that were lost beside it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.cluster_meter import Job, MeteredCluster


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="M/24", help="XS, S, M/24 (default: 256 MiB), M (6 GiB) or G (12 GiB)")
    parser.add_argument("--workers", type=int, default=4, help="processes, with one thread each (default: 4)")
    parser.add_argument("--memory", default="512MiB", help="limit of each worker (default: 512MiB)")
    parser.add_argument("--rounds", type=int, default=1, help="timed runs after the first; with 0 that one counts")
    parser.add_argument("--seconds", type=float, default=3600, help="a run that takes longer is given up")
    parser.add_argument("--systems", help="names, with commas (default: all that are installed)")
    parser.add_argument("--kill", type=float, help="kill a worker when this share of the result is written")
    parser.add_argument("--folder", help="where the store is to lie (default: that of temporary files)")
    return parser.parse_args(argv)


def _resident_peak() -> int:
    from benchmarks.cluster_meter import status_bytes

    return status_bytes("VmHWM")


class Pipelines:
    """The pipeline by one system after the other on one store and cluster, each job with its kill."""

    def __init__(self, cluster: MeteredCluster, folder: str, args: argparse.Namespace) -> None:
        from benchmarks.zarr_pipelines import moments

        self.cluster, self.folder, self.args = cluster, folder, args
        self.known = moments(folder)

    def job(self, name: str) -> Job:
        from benchmarks.cluster_meter import Job
        from benchmarks.zarr_pipelines import check

        def checked(results: Any) -> None:
            check(self.folder, "y", self.known)

        return Job(name, lambda: None, lambda operands: self._run(name), lambda results: None, checked)

    def _run(self, name: str) -> None:
        from benchmarks.cluster_meter import report
        from benchmarks.zarr_pipelines import PIPELINES

        shutil.rmtree(os.path.join(self.folder, "y"), ignore_errors=True)
        before = set(self.cluster.client.run(os.getpid).values())
        over = threading.Event()
        killer = threading.Thread(target=self._kill, args=(name, over))
        killer.start()
        try:
            PIPELINES[name](self.folder, "y")
        finally:
            over.set()
            killer.join()
        lost = len(before - set(self.cluster.client.run(os.getpid).values())) - bool(self.args.kill)
        if lost:
            report(f"{name}: {lost} workers more than were killed are not those that were there")

    def _kill(self, name: str, over: threading.Event) -> None:
        from benchmarks.cluster_meter import report
        from benchmarks.zarr_pipelines import chunks_written, n_chunks

        if self.args.kill is None:
            return
        wanted = self.args.kill * n_chunks(self.args.size)
        while chunks_written(self.folder, "y") < wanted:
            if over.wait(0.05):
                report(f"{name}: the run ended before a worker was killed")
                return
        client = self.cluster.client
        address, process = next(iter(client.run(os.getpid).items()))
        (peak,) = client.run(_resident_peak, workers=[address]).values()
        os.kill(process, signal.SIGKILL)
        report(f"{name}: killed a worker, whose resident memory was at most {peak / 2**20:.1f} MiB")


def main(argv: list[str] | None = None) -> int:
    args = _arguments(argv)
    from benchmarks.cluster_meter import MeteredCluster, interleaved_on, report, table
    from benchmarks.zarr_pipelines import PIPELINES, source

    names = args.systems.split(",") if args.systems else list(PIPELINES)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        began = time.perf_counter()
        source(folder, args.size)
        report(f"the store was made in {time.perf_counter() - began:.0f} s")
        with MeteredCluster(args.workers, args.memory) as cluster:
            pipelines = Pipelines(cluster, folder, args)
            runs = interleaved_on(cluster, [pipelines.job(name) for name in names], args.rounds, args.seconds, report)
    for run in runs.values():
        run.costs = run.costs or [run.warm_up] if run.warm_up is not None else []
    killed = "" if args.kill is None else f", one killed at {args.kill:.0%}"
    print(f"zarr pipeline: {args.workers} workers of {args.memory}{killed}, size {args.size}")
    print(table(runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
