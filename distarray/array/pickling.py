"""Arrays as bytes: the expression as a flat list, so that chains of any length travel, with the blocks it stands on.

A base travels once, however many views of it are in one pickle. Blocks of this process travel with it; blocks of a
cluster as the references that their executor makes of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distarray.array.base import Base
from distarray.expr.expr import Expr, postorder

if TYPE_CHECKING:
    from distarray.array.array import DistArray

__all__ = ["flatten", "reduce_base", "reduce_handle", "restore"]

#: An operand in a record: the number of an earlier record, or a scalar.
_Record = tuple[Any, ...]


def reduce_handle(x: DistArray) -> tuple[Any, ...]:
    """What ``DistArray.__reduce__`` returns."""
    return _handle, (type(x), x._base, x._lens, x._readonly)


def reduce_base(base: Base) -> tuple[Any, ...]:
    """What ``Base.__reduce__`` returns. Pickle itself knows a base that it has met before."""
    return _base, (flatten(base.current),)


def _base(records: list[_Record]) -> Base:
    return Base(restore(records))


def _handle(kind: type[DistArray], base: Base, lens: Any, readonly: bool) -> DistArray:
    x = object.__new__(kind)
    x._base, x._lens, x._read, x._readonly = base, lens, None, readonly
    return x


def flatten(node: Expr) -> list[_Record]:
    """A node and all it needs, operands first; operands are numbers of records."""
    order = postorder([node])
    number = {id(n): i for i, n in enumerate(order)}
    records = []
    for n in order:
        # Memoised nodes have dropped their operands.
        operands = tuple(("node", number[id(o)]) if type(o) is Expr else ("scalar", o) for o in n.operands)
        records.append(
            (n.op, operands, n.shape, n.dtype, n.env, n.params, n.runtime, n.pin, n.origin, n.errstate, n.memo)
        )
    return records


def restore(records: list[_Record]) -> Expr:
    """The last node of what `flatten` made."""
    nodes: list[Expr] = []
    for op, operands, shape, dtype, env, params, runtime, pin, origin, errstate, memo in records:
        given = tuple(nodes[value] if kind == "node" else value for kind, value in operands)
        node = Expr(op, given, shape, dtype, env, params, runtime, pin, origin, errstate)
        if memo is not None:
            # The arrays of one pickle share it: none of them may overwrite its blocks.
            memo.exported = True
        node.memo = memo
        nodes.append(node)
    return nodes[-1]
