"""Several arrays at once: computed, kept or explained by one plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from distarray import config
from distarray.array import window
from distarray.array.array import DistArray

if TYPE_CHECKING:
    from distarray.diagnostics.explain import Explanation

__all__ = ["compute", "explain", "persist"]


def _arrays(value: Any) -> Iterable[DistArray]:
    if isinstance(value, DistArray):
        yield value
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from _arrays(item)
    elif isinstance(value, dict):
        yield from _arrays(list(value.values()))


def _replaced(value: Any) -> Any:
    if isinstance(value, DistArray):
        return value._host()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_replaced, value))
    if isinstance(value, list | tuple | set):
        return type(value)(map(_replaced, value))
    if isinstance(value, dict):
        return {key: _replaced(item) for key, item in value.items()}
    return value


def compute(*args: Any, **options: Any) -> tuple[Any, ...]:
    """The arguments with their arrays as numpy arrays, computed together.

    Parameters
    ----------
    *args
        Arrays, and lists, tuples, sets and dicts of them; anything else comes back as it is.
    **options
        Options of `distarray.config` for this evaluation.
    """
    with config.set(options):
        window.observe([x.__dx_node__() for x in _arrays(args)])
        result: tuple[Any, ...] = _replaced(args)
        return result


def persist(*args: Any, **options: Any) -> tuple[Any, ...]:
    """Compute arrays together and keep them where they lie; returns the arguments."""
    with config.set(options):
        window.observe([x.__dx_node__() for x in _arrays(args)])
    return args


def explain(*args: Any, analyze: bool = False) -> Explanation:
    """How arrays would be computed together; see `DistArray.explain`."""
    from distarray.diagnostics.explain import explain as explain_nodes

    nodes = [x.__dx_node__() for x in _arrays(args)]
    return explain_nodes(nodes, analyze=analyze, others=window.pending_beside(nodes))
