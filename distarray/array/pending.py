"""New nodes: which are computed at the call, which wait, and which are made apart from what others write."""

from __future__ import annotations

import numpy as np

from distarray import config
from distarray.array import window
from distarray.array.access import cast, copied
from distarray.array.environment import parse_pin
from distarray.deferral import errors_wait
from distarray.expr.expr import GET, ITEM, Expr
from distarray.kernels.loans import is_lent
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


def apart(node: Expr) -> Expr:
    """Return a node for a new base, or version: computed now if it reads what others may write, and in memory of its
    own.
    """
    if node.memo is None:
        if node.op.repeatable or not _reads_what_others_write(node):
            return node
        window.run(node)
    return copied(node) if _is_written_outside(node) else node


def _reads_what_others_write(node: Expr) -> bool:
    """Return whether a new node reads memory that somebody outside may write, which waits for nobody.

    What is pending and has a handle was asked when it was new: nothing behind it has to be looked at.
    """
    seen: set[int] = set()
    waiting = list(node.nodes())
    while waiting:
        operand = waiting.pop()
        if id(operand) in seen:
            continue
        seen.add(id(operand))
        if operand.memo is None:
            if not operand.is_live:
                waiting += operand.nodes()
        elif _is_written_outside(operand):
            return True
    return False


def _is_written_outside(node: Expr) -> bool:
    """Return whether somebody outside may write the memory of a computed node."""
    memo = node.memo
    if memo is None or (node.env.is_cluster and not memo.on_client):
        return False
    return any(isinstance(block, np.ndarray) and is_lent(block, to_write=True) for block in memo.present)


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
            return type(first) is Expr and first.memo is None and first.op.may_raise and runs_at_once(first)
        op = first.op if type(first) is Expr else op
    elif op is TAKE or op is TAKE_PUT:
        # Positions that came with the call were checked then.
        at = 1 if op is TAKE else 2
        if all(o.memo is not None or is_position(o) for o in node.operands[at:] if type(o) is Expr):
            return False
    if not op.may_raise and (node.errstate is None or "raise" not in node.errstate):
        return False
    return not errors_wait()


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
