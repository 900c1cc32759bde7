"""Crossings: arrays that are to be in another environment, and are not there yet.

An operation has one environment, and so has a plan. A pending crossing is the one node whose operand lives elsewhere:
an expression that has crossings is several graphs, one beneath the other, each of one environment, in which the
crossings are leaves. Before a graph is run, what its crossings read is run where it lives, and brought over: from then
on a crossing is a stored array like any other (`distarray.runtime.crossings`).

Walks that ask what is needed go through crossings (`postorder`); those that ask what is planned stop there (`graph`).
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from distarray.expr.expr import Environment, Expr, Stored, postorder, user_frame
from distarray.expr.op import declare
from distarray.sharding.sharding import Sharding

CROSSING = declare("to_team", "crossing", is_identity=True)

#: Those of the whole process that are pending: as a rule none, and then nobody walks to find them.
_pending: weakref.WeakSet[Expr] = weakref.WeakSet()
#: Whether there has been one: most programs move nothing, and every evaluation asks.
_has_been = False


def crossing(source: Expr, env: Environment, pin: Sharding | None = None) -> Expr:
    """Return the elements of a node in another environment; nothing runs.

    Parameters
    ----------
    pin
        How it is to lie there, in one copy; None keeps the cut as far as the teams have the same shape.
    """
    pin = None if pin is None else pin.with_copies(False)
    node = Expr(CROSSING, (source,), source.shape, source.dtype, env, pin=pin, origin=user_frame())
    note_pending(node)
    return node


def note_pending(node: Expr) -> None:
    """Note a node that is made: it may be a pending crossing."""
    global _has_been
    if node.op is CROSSING and node.memo is None:
        _has_been = True
        _pending.add(node)


def carry_out(node: Expr, stored: Stored) -> None:
    """Set the memo of a crossing."""
    node.settle(stored)
    _pending.discard(node)


def are_pending() -> bool:
    """Return whether there is a pending crossing at all."""
    return _has_been and bool(_pending)


def is_crossing(node: Expr) -> bool:
    """Return whether a node is a crossing that is still to be carried out."""
    return node.op is CROSSING and node.memo is None


def graph(targets: Iterable[Expr]) -> list[Expr]:
    """Return what is planned together with `targets`: all that they need, operands before users, up to pending
    crossings.
    """
    return postorder(targets, CROSSING)


def levels(targets: Iterable[Expr]) -> list[list[Expr]]:
    """Return the pending crossings that nodes need, in steps: each step needs only crossings of those before it."""
    if not are_pending():
        return []
    depth: dict[int, int] = {}
    found: list[list[Expr]] = []
    for node in postorder(targets):
        below = 0 if node.memo is not None else max([depth[id(o)] for o in node.operands if type(o) is Expr], default=0)
        if is_crossing(node):
            if below == len(found):
                found.append([])
            found[below].append(node)
            below += 1
        depth[id(node)] = below
    return found
