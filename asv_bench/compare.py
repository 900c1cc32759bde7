"""The goals and what this machine makes of them, in one run.

    python asv_bench/compare.py                  # all goals
    python asv_bench/compare.py elementwise M2   # those whose name holds one of these words
    python asv_bench/compare.py --size XS        # a quick pass: shows that the benchmarks work, not how fast

A ratio is ours / theirs (below 1: distarray is faster), the median of interleaved rounds with the interval that holds
90 % of them; counts and bests have no interval. With ``--check`` the exit status is 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only goals whose name holds one of these (default: all)")
    parser.add_argument("--size", default=os.environ.get("DISTARRAY_BENCH_SIZE", "S"), help="XS, S (default) or M")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    args = parser.parse_args(argv)

    import benchmarks

    names = sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    modules = [importlib.import_module(f"benchmarks.{name}") for name in names]

    missed = 0
    print(f"{'goal (ours / theirs)':52} {'measured [90 %]':28} {'at most':>8}  met")
    for module in modules:
        for goal in module.goals(args.size) if hasattr(module, "goals") else ():
            if args.words and not any(word.lower() in goal.name.lower() for word in args.words):
                continue
            measured = goal.measure()
            met = measured.median <= goal.at_most
            missed += not met
            print(f"{goal.name:52} {measured!s:28} {goal.at_most:8.3g}  {'yes' if met else 'NO'}", flush=True)
    return 1 if args.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
