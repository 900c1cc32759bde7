"""Passes: what ran at a call whose result could not be bound before, so that `explain` of the result can tell.

A sort makes its runs and asks for splitters before there is a node of the result: a plan of the result knows nothing of
them, though they may need more memory than all that is left to do. They are noted with the nodes that came of them.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from distarray.expr.expr import Expr

if TYPE_CHECKING:
    from distarray.lower.template import Lowered


class Pass(NamedTuple):
    """A Pass is tasks that ran before a result was bound: `explain` lists them with the plan.

    Parameters
    ----------
    operations
        In the order in which they came.
    tasks, messages, moved_bytes
        That were handed out, and what was to be sent between members.
    peak_bytes
        Most bytes of blocks that a member was predicted to hold.
    """

    operations: tuple[str, ...]
    tasks: int
    messages: int
    moved_bytes: int
    peak_bytes: int


_known: weakref.WeakKeyDictionary[Expr, tuple[Pass, ...]] = weakref.WeakKeyDictionary()


def pass_of(lowered: Lowered, peak_bytes: int) -> Pass:
    """Return what the tasks of a plan amount to, for which a member holds so many bytes of blocks at most."""
    operations = tuple(dict.fromkeys(name for name, _ in lowered.kernels))
    moved = sum([t.nbytes for t in lowered.transfers])
    return Pass(operations, len(lowered.members), len(lowered.transfers), moved, peak_bytes)


def keep(made: Any, found: Sequence[Pass]) -> None:
    """Say that nodes came of these passes: a node, or nodes in tuples and lists."""
    if isinstance(made, Expr):
        _known[made] = tuple(found)
    elif isinstance(made, (tuple, list)):
        for item in made:
            keep(item, found)


def passes_of(nodes: Iterable[Expr]) -> tuple[Pass, ...]:
    """Return the passes that nodes came of, each once, in their order."""
    found = {id(p): p for node in nodes for p in _known.get(node, ())}
    return tuple(found.values())
