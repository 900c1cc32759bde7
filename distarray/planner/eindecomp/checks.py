"""Checks of graphs that programs made: those from files are checked as they are read (`graph_files`)."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from distarray.errors import ShardingError
from distarray.planner.eindecomp.eingraph import EinGraph, EinOp
from distarray.sharding.cuts import MAX_PARTS


def is_integer(value: Any, least: int) -> bool:
    """Return whether it is an integer, and at least `least`; to Python a bool is one too, in a plan it is a mistake."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= least)


def check_p(p: Any) -> None:
    """Check a number of workers, for which kernels are to be made.

    Raises
    ------
    ShardingError
        If it is no integer, or none that can be.
    """
    if not is_integer(p, 1):
        raise ShardingError(f"p = {p!r}: the number of kernels must be an integer, and at least one")
    if p > MAX_PARTS:
        raise ShardingError(f"p = {p}: the number of kernels is at most {MAX_PARTS}")


def check_graph(graph: EinGraph) -> None:
    """Check that operations fit their inputs, and that what is prescribed of cuts can be.

    Raises
    ------
    ShardingError
        If not: names the operation or input.
    """
    known = {u: array.shape for u, array in graph.inputs.items()}
    for v, op in graph.ops.items():
        if v in known or len(op.inputs) != len(op.terms):
            raise ShardingError(f"op {v!r}: {len(op.terms)} terms and {len(op.inputs)} inputs, or its name is taken")
        for u, term in zip(op.inputs, op.terms):
            if u not in known:
                raise ShardingError(f"op {v!r}: there is no input {u!r} before it")
            if known[u] != tuple([op.extents.get(x) for x in term]):
                raise ShardingError(f"op {v!r}: {u!r} has the shape {known[u]}, which its labels {term} do not have")
        _check_cut(v, op)
        known[v] = op.shape
    for u, array in graph.inputs.items():
        if array.parts is not None and len(array.parts) != len(array.shape):
            raise ShardingError(f"input {u!r}: layout {array.layout} does not fit the shape {array.shape}")


def _check_cut(v: str, op: EinOp) -> None:
    """Check what is prescribed of the cut of an operation."""
    fixed = op.fixed or {}
    for x in (*op.whole, *fixed):
        if x not in op.labels:
            raise ShardingError(f"op {v!r} has no label {x!r}, of which the cut is prescribed")
    for x, k in fixed.items():
        if k < 1 or (k > 1 and x in op.whole):
            raise ShardingError(f"op {v!r}: label {x!r} cannot have {k} parts")


def check_workers(graph: EinGraph, p: int) -> None:
    """Check that blocks whose workers are given have them among `p`.

    Raises
    ------
    ShardingError
        If not: names the input.
    """
    for u, array in graph.inputs.items():
        workers = array.workers
        if workers is None:
            continue
        if array.parts is None or len(workers) != prod(array.parts):
            raise ShardingError(f"input {u!r}: workers are given for {len(workers)} blocks, and it has others")
        if not all(0 <= w < p for w in workers):
            raise ShardingError(f"input {u!r} lies on workers {sorted(set(workers))}, and there are {p}")
