"""New nodes: which are computed at the call, and which wait."""

from __future__ import annotations

from distarray import config
from distarray.array import window
from distarray.array.access import cast
from distarray.array.environment import parse_pin
from distarray.deferral import errors_wait
from distarray.expr.errstates import errstate, is_heard_at_once
from distarray.expr.expr import GET, ITEM, Expr
from distarray.ops.indexing import TAKE, TAKE_PUT, is_position


def defer(node: Expr) -> None:
    """List a new node as pending, or compute it now where that is asked for."""
    if node.op.repeatable:
        # Nothing of it is worth running ahead of whoever reads it.
        return
    if runs_at_once(node):
        # Not listed: what fails here lives on in its traceback, and must not be tried again by a full window.
        window.run(node)
        return
    window.register(node)
    if config.get("window") == 0:
        window.flush()


def runs_at_once(node: Expr) -> bool:
    """Return whether a node is computed at the call, so that ``try`` catches what its kernel raises."""
    op = node.op
    if op is ITEM or op is GET:
        operands = node.operands
        if not operands:  # another thread has computed it
            return False
        first = operands[0]
        if op is GET:
            # of an operation that worked with its axes in another order
            if type(first) is not Expr or first.memo is not None:
                return False
            return (first.op.may_raise or _is_to_raise(first)) and runs_at_once(first)
        op = first.op if type(first) is Expr else op
    elif op is TAKE or op is TAKE_PUT:
        # Positions that came with the call were checked then.
        at = 1 if op is TAKE else 2
        is_computed = op is TAKE_PUT and node.params.mode != "set"
        known = all(o.memo is not None or is_position(o) for o in node.operands[at:] if type(o) is Expr)
        if known and not (is_computed and node.is_to_raise):
            return False
    return (op.may_raise or _is_to_raise(node)) and not errors_wait()


def _is_to_raise(node: Expr) -> bool:
    """Return whether numpy is to raise of elements of a node, or of what the same call made for it alone."""
    if node.is_to_raise:
        return True
    if not is_heard_at_once(errstate()):
        return False
    made, seen = [node], {id(node)}
    for n in made:
        for o in n.nodes():
            if o.memo is None and not o.is_live and id(o) not in seen:
                if o.is_to_raise:
                    return True
                seen.add(id(o))
                made.append(o)
    return False


def in_forced_tiles(node: Expr) -> Expr:
    """Return `node` in the tiles that `distarray.testing.force_tiles` asks for, unless its cut was asked for
    already.
    """
    pin = None if node.pin is not None else parse_pin(None, None, node.shape, node.dtype, node.env)
    if pin is None:
        return node
    if node.memo is None and runs_at_once(node):
        window.run(node)
    return cast(node, node.dtype).with_pin(pin)
