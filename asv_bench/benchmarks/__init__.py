"""Benchmarks: one file per workload; each holds its program once, written against an array namespace ``xp``.

Claims are ratios measured in one run (`ratios`), on seeded inputs (`inputs`), of systems that run the same text
(`systems`). ``DISTARRAY_BENCH_SIZE`` chooses the size (`sizes`). ``asv run`` records everything over time;
``python asv_bench/compare.py`` compares everyday programs (`everyday`) with peers, or prints with ``--goals`` claims
and what this machine makes of them.
"""
