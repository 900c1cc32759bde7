"""Plans of graph files on the command line: how every operation is cut."""

from __future__ import annotations

import json
from typing import Any

from distarray.diagnostics.files import read_json
from distarray.errors import ShardingError
from distarray.planner.eindecomp import EinGraph, parse_graph, plan


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
    found = plan(read_graph(path), **options)
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
