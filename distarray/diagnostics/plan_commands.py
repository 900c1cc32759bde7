"""Plans on the command line: how the operations of a graph file are cut, and how an array gets another sharding."""

from __future__ import annotations

import json
from typing import Any

from distarray.arguments import MAX_COUNT, shown
from distarray.errors import ShardingError
from distarray.planner import eindecomp, redistribution
from distarray.planner.eindecomp import EinGraph, parse_graph
from distarray.planner.redistribution import Redistribution
from distarray.sharding.mesh import Mesh
from distarray.sharding.spec import from_json, mesh_from_json, parse_mesh, parse_type


def planned(path: str, *, as_json: bool, **options: Any) -> str:
    """Return the plan of the graph in a file, as JSON or as a table.

    Parameters
    ----------
    path
        Of the graph file.
    **options
        Of `distarray.planner.eindecomp.plan`.

    Raises
    ------
    ShardingError
        If file, graph or options cannot be.
    MemoryBudgetError
        If the memory does not suffice.
    """
    found = eindecomp.plan(read_graph(path), **options)
    return json.dumps(found.to_json()) if as_json else found.explain()


def read_graph(path: str) -> EinGraph:
    """Return the graph in a file.

    Raises
    ------
    ShardingError
        If the file is no graph file; names the file.
    """
    data = read_json(path)
    try:
        return parse_graph(data)
    except (ValueError, TypeError, AttributeError) as error:  # values of another kind than a graph has there
        raise ShardingError(f"{path}: {error}") from None


def read_json(path: str) -> Any:  # whatever the file says
    """Return what a JSON file holds.

    Raises
    ------
    OSError
        If it cannot be read.
    ShardingError
        If it is no JSON, or nested too deeply; names the file.
    """
    with open(path, encoding="utf-8") as file:
        try:
            return json.load(file)
        except (ValueError, RecursionError) as error:
            raise ShardingError(f"{path}: no JSON: {error}") from None


def single(
    mesh: str, source: str, target: str, *, mode: str, memory: int | None, itemsize: int | None, as_json: bool
) -> str:
    """Return the plan of one redistribution, types in text.

    Raises
    ------
    ShardingError
        If a text cannot be read or the types are not of one array.
    MemoryBudgetError
        If `memory` does not suffice.
    """
    found = _plan(parse_mesh(mesh), source, target, mode, memory, itemsize)
    return json.dumps(found.to_json()) if as_json else found.explain()


def batch(path: str, *, mode: str, memory: int | None, itemsize: int | None, as_json: bool) -> str:
    """Return the plans of the problems in a JSON file, in their order.

    Raises
    ------
    ShardingError
        If the file or a problem is not of the form; names the ``id`` of the problem.
    """
    problems = read_json(path)
    if not isinstance(problems, list):
        raise ShardingError(f"{path}: a list of problems is expected, not {type(problems).__name__}")
    plans = []
    for problem in problems:
        if not isinstance(problem, dict) or not {"id", "mesh", "src", "dst"} <= problem.keys():
            raise ShardingError(f"{path}: {shown(problem)} is no problem; it needs id, mesh, src and dst")
        try:
            mesh = mesh_from_json(problem["mesh"])
            plans.append((problem["id"], _plan(mesh, problem["src"], problem["dst"], mode, memory, itemsize)))
        except (ValueError, MemoryError) as error:
            raise type(error)(f"problem {str(problem['id'])[:80]}: {error}") from None
    if as_json:
        return json.dumps([{"id": name, **found.to_json()} for name, found in plans])
    return "\n\n".join(f"{name}: {found.explain()}" for name, found in plans)


def _plan(mesh: Mesh, source: Any, target: Any, mode: Any, memory: int | None, itemsize: int | None) -> Redistribution:
    if itemsize is not None and not 1 <= itemsize <= MAX_COUNT:
        raise ShardingError(f"itemsize {itemsize}: an element has at least one byte, and at most {MAX_COUNT}")
    if memory is not None and memory < 0:
        raise ShardingError(f"memory {memory}: bytes are not negative")
    dtype, shape, src = _type(source, mesh)
    other, dst_shape, dst = _type(target, mesh)
    if shape != dst_shape:
        raise ShardingError(f"the source is of shape {shape}, the target of shape {dst_shape}: they are not one array")
    if dtype is not None and other is not None and dtype != other:
        raise ShardingError(f"the source is of dtype {dtype}, the target of dtype {other}")
    known = dtype or other
    size = itemsize or (known.itemsize if known is not None else 8)
    return redistribution.plan(shape, src, dst, mode=mode, memory=memory, itemsize=size)


def _type(given: Any, mesh: Mesh) -> Any:
    return parse_type(given, mesh) if isinstance(given, str) else from_json(given, mesh)
