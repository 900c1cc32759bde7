"""What compiled programs win over the interpreter, and what NumPy and JAX take: the table of the design page, measured.

    python asv_bench/compiled.py                          # eleven operations and four loops, n = 1024 to 4096
    python asv_bench/compiled.py --sizes 1024 var Jacobi  # some of them

On one core and by CPU time, so that neither threads nor other programs of the machine decide: medians of interleaved
rounds. Results of the interpreter and of compiled programs are compared bit by bit before anything is timed. Needs
Numba; JAX takes part where it is installed.
"""

from __future__ import annotations

import argparse
import os

if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before any library counts the cores

import numpy as np


def main() -> None:
    from benchmarks.compiled_programs import BEHIND, LOOPS, OTHERS, times

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only what has one of these in its name (default: all)")
    parser.add_argument("--sizes", default="1024,2048,4096", help="extents of the square arrays")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    print("| program | n | interpreter / compiled | of NumPy's time: interpreter, compiled | of JAX's |")
    print("|---|---|---|---|---|")
    gains: dict[int, list[float]] = {}
    for name in (*BEHIND, *OTHERS, *LOOPS):
        if args.words and not any(word in name for word in args.words):
            continue
        for n in map(int, args.sizes.split(",")):
            found = {each: float(np.median(taken)) for each, taken in times(name, n, args.rounds).items()}
            gain = found["interpreter"] / found["compiled"]
            if name in BEHIND:
                gains.setdefault(n, []).append(gain)
            both = [found["interpreter"], found["compiled"]]
            of = [
                ", ".join(f"{s / found[peer]:.2f}" for s in both) if peer in found else "-" for peer in ("numpy", "jax")
            ]
            print(f"| {name} | {n} | {gain:.2f} | {of[0]} | {of[1]} |", flush=True)
    for n, of_operations in gains.items():
        mean = np.exp(np.mean(np.log(of_operations)))
        print(f"n = {n}: {mean:.2f} in geometric mean over {len(of_operations)} operations in which JAX was ahead")


if __name__ == "__main__":
    main()
