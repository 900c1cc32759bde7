"""Calls of a model's own functions: whether they end, and before anybody writes them out.

A file of a few lines can say functions that call each other for ever, or so often that nothing could run them: ten that
each call the next one ten times are 10^10 nodes. Whatever writes functions out, ONNX's shape inference too, is asked
only after `check_functions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Any, TypeAlias

from distarray.io.onnx.violations import Refusal

#: Functions that may be running inside each other.
MAX_CALL_DEPTH = 64
#: Nodes that a model may have when its functions are written out.
MAX_CALLED_NODES = 1_000_000

#: Domain, name and overload of a function.
_Key: TypeAlias = tuple[str, str, str]


def check_functions(model: Any) -> None:
    """Check that the functions of a ModelProto can be written out; the cost is that of reading them once.

    Raises
    ------
    Refusal
        If one calls itself, by others too, or calls are nested too deeply, or there would be too many nodes.
    """
    bodies = own_functions(model)
    if not bodies:
        return
    calls = {key: [call_key(node) for node in nodes_of(body)] for key, body in bodies.items()}
    own = {key: [k for k in called if k in calls] for key, called in calls.items()}
    try:
        order = tuple(TopologicalSorter(own).static_order())
    except CycleError as error:
        names = sorted({name for _, name, _ in error.args[1]})
        text = f"function {names[0]!r}: the function calls itself, by {' and '.join(names)}"
        raise Refusal("W-4", "endless-model", text) from None
    sizes: dict[_Key, tuple[int, int]] = {}  # nodes and depth
    for key in order:
        nodes = min(sum([sizes.get(k, (1, 0))[0] for k in calls[key]]), MAX_CALLED_NODES + 1)
        depth = 1 + max([sizes.get(k, (1, 0))[1] for k in calls[key]], default=0)
        if depth > MAX_CALL_DEPTH:
            text = f"function {key[1]!r}: {depth} functions call each other in turn; at most {MAX_CALL_DEPTH} may"
            raise Refusal("W-4", "endless-model", text)
        sizes[key] = nodes, depth
    if sum([sizes.get(call_key(node), (1, 0))[0] for node in nodes_of(model.graph)]) > MAX_CALLED_NODES:
        text = (
            f"the model has more than {MAX_CALLED_NODES} nodes when its functions are written out; so many are not run"
        )
        raise Refusal("W-4", "endless-model", text)


def own_functions(model: Any) -> dict[_Key, Any]:
    """Return the functions of a ModelProto by what calls them."""
    # The overload is there from IR version 10 on.
    return {(domain_of(f.domain), f.name, getattr(f, "overload", "")): f for f in model.functions}


def opsets_of(proto: Any) -> dict[str, int]:
    """Return the version of each domain that a model or function imports."""
    return {domain_of(entry.domain): entry.version for entry in proto.opset_import}


def domain_of(name: str) -> str:
    """Return a domain by one name: that of ONNX's own operators has two."""
    return "" if name == "ai.onnx" else name


def call_key(node: Any) -> _Key:
    """Return what a node calls: domain, name and overload, those of an operator or of a function."""
    return domain_of(node.domain), node.op_type, getattr(node, "overload", "")


def subgraphs(node: Any) -> list[Any]:
    """Return the graphs that a node has in its attributes."""
    return [graph for a in node.attribute for graph in [*([a.g] if a.HasField("g") else []), *a.graphs]]


def nodes_of(body: Any) -> Iterator[Any]:
    """Yield the nodes of a graph or function, those of subgraphs too."""
    waiting = [body]
    while waiting:
        for node in waiting.pop().node:
            yield node
            waiting += subgraphs(node)
