"""Op: a named operation and the family that decides how it is bound, cut and lowered.

An `Op` is a row of the catalogue (`CATALOGUE`). What differs per operation is written in its row; what is the same
for a family is a row of `FAMILIES`. Kernels are looked up by `Op.name`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from importlib import import_module
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from distarray.expr.params import ContractParams, IndexParams, ItemParams, ReduceParams

Kind = Literal[
    "source", "create", "map", "reduce", "get", "reshape", "put", "contract", "block", "item", "take", "take_put",
    "tiles", "windows", "fold", "crossing",
]  # fmt: skip


class Family(NamedTuple):
    """A Family is what the layers ask of all operations of a kind.

    Attributes
    ----------
    params
        The record of its static parameters; None where nothing but its kernels reads them.
    is_fused
        Whether it runs in register programs, with others in one pass; else a stage is one operation.
    is_created
        Whether it is made from the global index alone, wherever it is read.
    is_item
        Whether it is one result of an operation that has several: nothing is computed for it.
    is_view
        Whether its result shows elements of operand 0 where they lie.
    is_new
        Whether its result is always an array of its own, never an operand or a part of one.
    is_write
        Whether it is a new version of operand 0: always kept, and made in place where nobody reads the old one.
    is_contraction
        Whether it joins operands over labelled loops, so that its cut decides what moves.
    is_summed
        Whether its kernels give partial results, which are combined over the loops that the result lacks.
    is_gather
        Whether it reads operand 0 at positions that other operands hold: every tile asks all that may have them.
    is_tiled
        Whether it has tiles of its own, known at run time: the planner cuts no loop of it, and its team stays.
    has_whole_axes
        Whether its kernels may need axes whole, however long these are.
    is_safe
        Whether its kernels cannot fail midway, so that a failed evaluation leaves all blocks as they were.
    has_late
        Whether its run-time parameter holds arguments of its kernels that vary from run to run.
    is_at_once
        Whether it is computed when it is made, where arrays are small and here: see ``eager-bytes``.
    makes_scalars
        Whether numpy has a scalar where its result has no axes.
    """

    params: type[tuple[Any, ...]] | None = None
    is_fused: bool = False
    is_created: bool = False
    is_item: bool = False
    is_view: bool = False
    is_new: bool = False
    is_write: bool = False
    is_contraction: bool = False
    is_summed: bool = False
    is_gather: bool = False
    is_tiled: bool = False
    has_whole_axes: bool = False
    is_safe: bool = False
    has_late: bool = False
    is_at_once: bool = False
    makes_scalars: bool = False


#: The families. Planner, lowering and kernels have one rule for each, never one for an operation.
FAMILIES: dict[Kind, Family] = {
    # blocks that exist
    "source": Family(),
    # made from the global index alone (zeros, arange, random ...)
    "create": Family(is_created=True, is_safe=True),
    # elementwise over broadcast operands; Python scalars are run-time parameters
    "map": Family(is_fused=True, is_new=True, is_safe=True, is_at_once=True, makes_scalars=True),
    # a monoid over some axes
    "reduce": Family(ReduceParams, is_fused=True, is_new=True, is_safe=True, is_at_once=True, makes_scalars=True),
    # read through an affine lens
    "get": Family(is_view=True, is_safe=True, makes_scalars=True),
    # same elements in C order, other shape
    "reshape": Family(is_view=True, is_safe=True, is_at_once=True),
    # written through an affine lens with operand 1
    "put": Family(is_fused=True, is_write=True, is_safe=True, is_at_once=True),
    # a join over labelled loops, aggregated over those that the result lacks (einsum)
    "contract": Family(
        ContractParams,
        is_contraction=True,
        is_summed=True,
        is_safe=True,
        has_late=True,
        is_at_once=True,
        makes_scalars=True,
    ),
    # a kernel on whole blocks, cut only where its ShardingRule allows
    "block": Family(has_whole_axes=True, has_late=True, is_at_once=True, makes_scalars=True),
    # one result of an operation that has several
    "item": Family(ItemParams, is_item=True, is_safe=True, makes_scalars=True),
    # elements at integer-array positions
    "take": Family(IndexParams, is_gather=True, is_at_once=True, makes_scalars=True),
    # written at integer-array positions
    "take_put": Family(IndexParams, is_write=True, is_at_once=True),
    # a kernel on each tile of axis 0, with boundaries known at run time
    "tiles": Family(is_tiled=True),
    # a kernel on each tile of a grid known at run time, whose tiles may read boxes that overlap
    "windows": Family(is_tiled=True, has_late=True),
    # a kernel on whole blocks that gives partial results, combined in a tree over the reducing loops of its rule
    "fold": Family(is_summed=True, has_late=True, is_at_once=True, makes_scalars=True),
    # the elements of operand 0, which lives in another environment: between two plans, part of none
    "crossing": Family(),
}

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
        Names its family.
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
    is_drawn
        Whether it makes random numbers from nothing, at the cost of some passes: a few are kept from the start.
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
    is_drawn: bool = False
    home: str = ""
    family: Family = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "family", FAMILIES[self.kind])

    def __repr__(self) -> str:
        return f"Op({self.name})"

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        # Ops are compared by identity, so a pickled Op is found again by name.
        return _lookup, (self.name, self.home)


def _lookup(name: str, home: str) -> Op:
    if name not in CATALOGUE:
        import_module(home)
    return CATALOGUE[name]


_facts = attrgetter("name", "kind", "rule", "monoid", "may_raise", "repeatable", "is_identity", "is_drawn", "home")


def declare(
    name: str,
    kind: Kind,
    *,
    rule: str = "",
    monoid: str = "",
    may_raise: bool = False,
    repeatable: bool = False,
    is_identity: bool = False,
    is_drawn: bool = False,
) -> Op:
    """Add a row to the catalogue and return it; names are unique.

    A module that was interrupted while it was loaded is loaded again: its rows are those that are there.
    """
    frame = sys._getframe(1)
    while frame.f_code.co_name != "<module>" and frame.f_back is not None:
        frame = frame.f_back  # a family's function, or a comprehension
    home = str(frame.f_globals["__name__"])
    op = Op(name, kind, rule, monoid, may_raise, repeatable, is_identity, is_drawn, home)
    known = CATALOGUE.setdefault(name, op)
    assert known is op or _facts(known) == _facts(op), f"operation {name!r} is declared twice"
    return known
