"""Op: a named operation and the family that decides how it is bound, cut and lowered.

An `Op` is a row of the catalogue (`CATALOGUE`). What differs per operation is written in its row; what is the same
for a family is written once, keyed by `Op.kind`. Kernels are looked up by `Op.name` in the execution layer.
"""

from __future__ import annotations

import sys
from dataclasses import astuple, dataclass
from importlib import import_module
from typing import Literal, get_args

__all__ = ["CATALOGUE", "Kind", "Op", "declare"]

#: The families. `planner` and `execution` have one rule for each, never one for an operation:
#: source    blocks that exist
#: create    made from the global index alone (zeros, arange, random ...)
#: map       elementwise over broadcast operands; Python scalars are run-time parameters
#: reduce    a monoid over some axes
#: get       read through an affine lens
#: reshape   same elements in C order, other shape
#: put       a new version of operand 0, written through an affine lens with operand 1
#: contract  sum of products over labelled loops (einsum)
#: block     a kernel on whole blocks, cut only where its ShardingRule allows
#: item      one result of an operation that has several
#: take      elements at integer-array positions
#: take_put  a new version written at integer-array positions
#: tiles     a kernel on each tile of axis 0, with boundaries known at run time
#: windows   a kernel on each tile of a grid known at run time, whose tiles may read boxes that overlap
#: fold      a kernel on whole blocks that gives partial results, combined in a tree over the reducing loops of its rule
#: crossing  the elements of operand 0, which lives in another environment: between two plans, part of none
Kind = Literal[
    "source",
    "create",
    "map",
    "reduce",
    "get",
    "reshape",
    "put",
    "contract",
    "block",
    "item",
    "take",
    "take_put",
    "tiles",
    "windows",
    "fold",
    "crossing",
]

#: Every declared operation by name.
CATALOGUE: dict[str, Op] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """An Op is the row of one operation in the catalogue.

    Parameters
    ----------
    name
        The array API standard's name where it has one, else numpy's.
    kind
        Its family.
    rule
        ShardingRule notation, for ``block`` and ``fold`` operations.
    monoid
        Name of the monoid, for ``reduce`` operations.
    may_raise
        Whether a kernel may fail on legal shapes and dtypes (``cholesky`` of an indefinite matrix): such operations are
        evaluated at the call.
    repeatable
        Whether computing it again is free of cost worth keeping (constants, ``arange``): never kept.
    is_identity
        Whether it leaves every element as it is, unless it changes the dtype.
    home
        The module that declares it: modules of operations are loaded when they are first used.
    """

    name: str
    kind: Kind
    rule: str = ""
    monoid: str = ""
    may_raise: bool = False
    repeatable: bool = False
    is_identity: bool = False
    home: str = ""

    def __repr__(self) -> str:
        return f"Op({self.name})"

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        # Ops are compared by identity, so a pickled Op is found again by name.
        return _lookup, (self.name, self.home)


def _lookup(name: str, home: str) -> Op:
    if name not in CATALOGUE:
        import_module(home)
    return CATALOGUE[name]


def declare(
    name: str,
    kind: Kind,
    *,
    rule: str = "",
    monoid: str = "",
    may_raise: bool = False,
    repeatable: bool = False,
    is_identity: bool = False,
) -> Op:
    """Add a row to the catalogue and return it; names are unique.

    A module that was interrupted while it was loaded is loaded again: its rows are those that are there.
    """
    assert kind in get_args(Kind), kind
    frame = sys._getframe(1)
    while frame.f_code.co_name != "<module>" and frame.f_back is not None:
        frame = frame.f_back  # a family's function, or a comprehension
    op = Op(name, kind, rule, monoid, may_raise, repeatable, is_identity, str(frame.f_globals["__name__"]))
    known = CATALOGUE.setdefault(name, op)
    assert astuple(known) == astuple(op), f"operation {name!r} is declared twice"
    return known
