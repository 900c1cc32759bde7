"""What compiled programs win over the interpreter, and what JAX takes, in one run: the table of the design page.

    python asv_bench/compiled.py                      # eleven operations and three loops, n = 512 to 4096
    python asv_bench/compiled.py --sizes 512,1024 "x*0.5" var      # some of them

On one core and by CPU time, so that neither threads nor other programs of the machine decide: medians of interleaved
rounds. Results of the interpreter and of compiled programs are compared bit by bit before anything is timed. Needs
Numba; JAX takes part where it is installed.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable
from typing import Any

if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before any library counts the cores

import numpy as np

#: Those that lost to JAX when this was begun, those that did after, and loops.
OPERATIONS = (
    "20 times x*0.5 + y",
    "var, axis 0",
    "softmax",
    "rolling mean of 8",
    "zonal mean and anomaly",
    "sum((x - y)**2)",
    "where(x > 0, x, y)",
    "sqrt(x*x + y*y) * 2 - x",
    "mean, axis 0",
    "sum",
    "max, axis 1",
)
LOOPS = ("Jacobi in place", "sqrt(x*x + y*y) - 0.1*x", "shallow water", "game of life")


def measured(name: str, n: int, rounds: int) -> dict[str, float]:
    """Return seconds of the interpreter, of compiled programs and of JAX."""
    from benchmarks.everyday import PROGRAMS, operands_of, ran
    from benchmarks.ratios import interleaved
    from benchmarks.systems import IN_PROCESS

    from distarray import config
    from distarray.kernels import compiler

    compiler.ENOUGH_SECONDS = 0.0
    program = PROGRAMS[name]

    def with_option(value: bool) -> Callable[[], tuple[Any, ...]]:
        system = IN_PROCESS["distarray"]
        operands = operands_of(program, n, system)

        def run() -> tuple[Any, ...]:
            with config.set(compiled=value):
                return ran(program, system, operands)

        return run

    runs: dict[str, Callable[[], object]] = {"interpreter": with_option(False), "compiled": with_option(True)}
    for _ in range(2 * compiler.ENOUGH_RUNS):
        runs["compiled"]()
        compiler.COMPILER.wait()
    for x, y in zip(with_option(True)(), with_option(False)(), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
    for peer in ("numpy", "jax"):
        if peer in IN_PROCESS and not (peer == "jax" and program.writes):
            operands = operands_of(program, n, IN_PROCESS[peer])
            runs[peer] = lambda system=IN_PROCESS[peer], operands=operands: ran(program, system, operands)
    times = interleaved(runs, rounds, clock=time.process_time)
    return {each: float(np.median(taken)) for each, taken in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only what has one of these in its name (default: all)")
    parser.add_argument("--sizes", default="512,1024,2048,4096")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    print(f"{'':26} {'n':>5}  interpreter / compiled   of JAX: interpreter, compiled   of numpy: the same")
    won: dict[int, list[float]] = {}
    for name in (*OPERATIONS, *LOOPS):
        if args.words and not any(word in name for word in args.words):
            continue
        for n in map(int, args.sizes.split(",")):
            s = measured(name, n, args.rounds)
            gain = s["interpreter"] / s["compiled"]
            jax, numpy = (
                [s[each] / s[p] if p in s else math.nan for each in ("interpreter", "compiled")]
                for p in ("jax", "numpy")
            )
            print(
                f"{name:26} {n:5}  {gain:10.2f} {jax[0]:22.2f} {jax[1]:9.2f} {numpy[0]:19.2f} {numpy[1]:8.2f}",
                flush=True,
            )
            if not jax[0] <= 1:
                won.setdefault(n, []).append(gain)
    for n, gains in won.items():
        print(
            f"n = {n}: geometric mean over {len(gains)} rows where JAX is not slower: {np.exp(np.mean(np.log(gains))):.2f}"
        )


if __name__ == "__main__":
    main()
