"""Weak collections that several threads use."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary


def alive(weak: WeakSet[Any] | WeakValueDictionary[Any, Any]) -> list[Any]:
    """Return what is alive in a weak set, or the values that are in a weak dictionary; other threads may add to it.

    A loop over the collection itself is an error then: between two of its turns another thread runs.

    >>> class Node: ...
    >>> node, other = Node(), Node()
    >>> weak = WeakSet([node, other])
    >>> del other
    >>> alive(weak) == [node]
    True
    """
    references = weak.valuerefs() if isinstance(weak, WeakValueDictionary) else list(weak.data)  # type: ignore[attr-defined]  # not in its stubs
    return [found for reference in references if (found := reference()) is not None]


def values(weak: WeakKeyDictionary[Any, Any]) -> list[Any]:
    """Return the values of a dictionary whose keys are weak, as `alive` does."""
    return list(weak.data.values())  # type: ignore[attr-defined]  # not in its stubs
