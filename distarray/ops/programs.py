"""Operations that need values before they can be bound: generators over nodes.

How many elements a mask picks, where the parts of a sorted array begin, which rows a factorisation swaps: what follows
depends on them. Such an operation is a generator: it yields `Ask`, receives host arrays, and returns what it made. The
array layer says how they run (`array.driven`); tests run them with numpy; nothing here imports what evaluates.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias

from distarray import config
from distarray.expr.expr import Expr
from distarray.sharding.sharding import Sharding
from distarray.types import HostArray

__all__ = ["Ask", "Program", "row_cut", "run"]


class Ask(NamedTuple):
    """What a program wants computed before it goes on.

    Parameters
    ----------
    values
        Nodes whose values it receives, small ones.
    kept
        Nodes to be computed with them, which stay where they lie until the program is over.
    """

    values: tuple[Expr, ...]
    kept: tuple[Expr, ...] = ()


#: A program yields `Ask`, receives one host array for each of its values, and returns what it made.
Program: TypeAlias = Generator[Ask, tuple[HostArray, ...], Any]


#: Runs a program; the array layer assigns it.
driver: Callable[[str, Program], Any] | None = None


def run(name: str, program: Program) -> Any:
    """What a program returns.

    Raises
    ------
    ValueError
        If it asks for anything and the option ``data-dependent`` says ``raise``.
    """
    assert driver is not None, f"{name}: no array layer is there to compute what the program asks for"
    return driver(name, program)


def row_cut(node: Expr) -> Sharding | None:
    """How an array is cut along axis 0 for work on its tiles; None where it is one tile.

    As it lies, where only axis 0 of it is cut; else evenly over all places of its team. An array up to ``block-bytes``
    is one tile, unless it lies in several.
    """
    known = node.memo.sharding if node.memo is not None else node.pin
    if known is not None and known.n_tiles > 1 and known.parts[0] == known.n_tiles:
        return known.with_layout("C")
    if node.env.team is None or not node.ndim:
        return None
    if (known is None or known.n_tiles == 1) and node.nbytes <= config.get("block-bytes"):
        return None
    mesh = node.env.team.mesh
    cut = Sharding(mesh, (tuple(reversed(mesh.names)), *[()] * (node.ndim - 1)))
    return cut if cut.n_tiles > 1 else None
