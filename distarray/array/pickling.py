"""Arrays as bytes: the expression as a flat list, so that chains of any length travel, with the blocks it stands on.

A base travels once, however many views of it are in one pickle. Blocks of this process travel with it; blocks of a
cluster by name (`runtime.arrivals`). Where a pickle is opened need not be where its arrays are used: distributed
opens what it sends to a task outside of the task, in the scheduler even. So a base that arrives becomes an expression
of the thread that first uses it.
"""

from __future__ import annotations

import copyreg
import threading
from dataclasses import replace
from typing import Any

from distarray.array.handle import Handle, handle_on
from distarray.array.versions import Base
from distarray.expr.crossing import note_pending
from distarray.expr.expr import Environment, Expr, Stored, postorder
from distarray.expr.lens import Lens
from distarray.forks import free_in_child
from distarray.kernels.loans import lend
from distarray.runtime.arrivals import environment_here, settle_here, undistributed

#: An operand in a record: the number of an earlier record, or a scalar.
Record = tuple[Any, ...]

_lock = free_in_child(threading.RLock())


def reduce_handle(x: Handle) -> tuple[Any, ...]:
    """Return what pickles a handle: what ``DistArray.__reduce__`` returns."""
    return handle_on, (type(x), x._base, x._lens, x._readonly)


def reduce_base(base: Base) -> tuple[Any, ...]:
    """Return what pickles a base. Pickle itself knows a base that it has met before."""
    for node in postorder([base.current]):
        if node.memo is not None:
            node.memo.is_named = True
    return _base, (flatten(base.current), base.order)


copyreg.pickle(Base, reduce_base)


class _ArrivingBase(Base):
    """An _ArrivingBase is a base that came in a pickle, until its node is asked for."""

    __slots__ = ("_records",)

    def __init__(self, records: list[Record], order: Lens) -> None:
        self._records: list[Record] | None = records
        self.order = order
        self.version = 0
        self.graphs = None
        self.history = ()

    def __getattr__(self, name: str) -> Any:
        # Only while these are not set: what is found costs nothing.
        if name not in ("_node", "_type", "block", "slot"):
            raise AttributeError(name)
        with _lock:
            if self._records is not None:
                Base.__init__(self, restore(self._records), self.order)
                self._records = None
        return getattr(self, name)

    def __reduce__(self) -> tuple[Any, ...]:
        with _lock:
            return reduce_base(self) if self._records is None else (_base, (self._records, self.order))


def is_arriving(base: Base) -> bool:
    """Return whether a base came in a pickle, and nobody has asked for its node."""
    return isinstance(base, _ArrivingBase) and base._records is not None


def records_of(base: Base) -> list[Record] | None:
    """Return the records of a base that came in a pickle, if nobody has asked for its node."""
    return base._records if isinstance(base, _ArrivingBase) else None


def _base(records: list[Record], order: Lens) -> Base:
    return _ArrivingBase(records, order)


def flatten(node: Expr) -> list[Record]:
    """Return a node and all it needs, operands first; operands are numbers of records."""
    order = postorder([node])
    number = {id(n): i for i, n in enumerate(order)}
    records = []
    for n in order:
        # Memoised nodes have dropped their operands.
        operands = tuple(("node", number[id(o)]) if type(o) is Expr else ("scalar", o) for o in n.operands)
        records.append(
            (
                n.op,
                operands,
                n.shape,
                n.dtype,
                n.env,
                n.params,
                n.runtime,
                n.pin,
                n.origin,
                n.errstate,
                _travelling(n.memo),
            )
        )
    return records


def _travelling(memo: Stored | None) -> Stored | None:
    """Return a memo whose blocks are out of our hands as long as a buffer of the pickle refers to them."""
    if memo is None or type(memo.blocks) not in (list, tuple):
        return memo
    return replace(memo, blocks=[lend(block, writeable=True) for block in memo.blocks])


def restore(records: list[Record]) -> Expr:
    """Return the last node of what `flatten` made, as a node of this thread: inside a task nothing is distributed."""
    nodes: list[Expr] = []
    environments: dict[int, Environment] = {}
    for op, operands, shape, dtype, arrived, params, runtime, pin, origin, errstate, memo in records:
        given = tuple(nodes[value] if kind == "node" else value for kind, value in operands)
        env = environments.get(id(arrived))
        if env is None:
            env = environments[id(arrived)] = environment_here(arrived)
        if pin is not None and env.team is None:
            pin = undistributed(pin)
        node = Expr(op, given, shape, dtype, env, params, runtime, pin, origin, errstate)
        if memo is not None:
            settle_here(memo, arrived, env)
        node.memo = memo
        note_pending(node)
        nodes.append(node)
    return nodes[-1]
