"""Operations that need values before they can be bound: generators over nodes.

How many elements a mask picks, where the parts of a sorted array begin, which rows a factorisation swaps: what follows
depends on them. Such an operation is a generator: it yields `Ask`, receives host arrays, and returns what it made. The
array layer says how they run (`array.driven`); tests run them with numpy; nothing here imports what evaluates.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeAlias

from distarray import hooks
from distarray.expr.expr import Expr, lying
from distarray.sharding.sharding import Sharding
from distarray.types import HostArray

#: A vector up to this size may be whole at every place, however small what is cut.
WHOLE_NBYTES = 64 * 2**20


class Ask(NamedTuple):
    """An Ask is what a program wants computed before it goes on.

    Parameters
    ----------
    values
        Nodes whose values it receives, small ones.
    kept
        Nodes to be computed with them, which stay where they lie until the program is over.
        Without values: what fails in computing them is raised, on a cluster too.
    ahead
        Nodes that need as much memory as all that will follow, whatever the values: where that cannot be had, the
        program is refused before anything runs. They are never computed.
    """

    values: tuple[Expr, ...]
    kept: tuple[Expr, ...] = ()
    ahead: tuple[Expr, ...] = ()


#: A program yields `Ask`, receives one host array for each of its values, and returns what it made.
Program: TypeAlias = Generator[Ask, tuple[HostArray, ...], Any]


def run(name: str, program: Program) -> Any:
    """Return what a program returns.

    Raises
    ------
    ValueError
        If it asks for values and the option ``data-dependent`` says ``raise``.
    """
    assert hooks.drive is not None, f"{name}: no array layer is there to compute what the program asks for"
    return hooks.drive(name, program)


def asked(name: str, *values: Expr, kept: tuple[Expr, ...] = ()) -> tuple[HostArray, ...]:
    """Return the values of nodes, computed at the call together with nodes that stay where they lie."""

    def program() -> Program:
        return (yield Ask(values, kept))

    return run(name, program())


def together(programs: Sequence[Program]) -> Generator[Ask, tuple[HostArray, ...], list[Any]]:
    """Yield a program that runs others side by side and returns what they return: they ask at the same time, hence
    once.
    """
    results: list[Any] = [None] * len(programs)
    waiting: dict[int, Ask] = {}

    def go_on(k: int, answers: tuple[HostArray, ...] | None) -> None:
        try:
            waiting[k] = programs[k].send(answers)  # type: ignore[arg-type]  # None starts it
        except StopIteration as stop:
            waiting.pop(k, None)
            results[k] = stop.value

    for k in range(len(programs)):
        go_on(k, None)
    while waiting:
        asks = list(waiting.items())
        values = tuple([v for _, ask in asks for v in ask.values])
        kept = tuple([node for _, ask in asks for node in ask.kept])
        answers = yield Ask(values, kept, tuple([node for _, ask in asks for node in ask.ahead]))
        start = 0
        for k, ask in asks:
            stop = start + len(ask.values)
            go_on(k, answers[start:stop])
            start = stop
    return results


def over_all_places(node: Expr, ndim: int, axis: int = 0) -> Sharding:
    """Return one axis of `ndim` cut evenly over all places of a node's team."""
    assert node.env.team is not None
    mesh = node.env.team.mesh
    return Sharding(mesh, (*[()] * axis, tuple(reversed(mesh.names)), *[()] * (ndim - axis - 1)))


def _even_cut(node: Expr, ndim: int) -> Sharding | None:
    """Return axis 0 of `ndim` cut evenly over all places of a node's team; None if that is one tile."""
    cut = over_all_places(node, ndim)
    return cut if cut.n_tiles > 1 else None


def is_one_tile(node: Expr) -> bool:
    """Return whether an array does not lie in several tiles: of what is pending, nobody knows yet."""
    known = lying(node)
    return known is None or known.n_tiles == 1


def row_cut(node: Expr) -> Sharding | None:
    """Return how an array is cut along axis 0 for work on its tiles; None where it is one tile.

    As it lies, where only axis 0 of it is cut; else evenly over all places of its team. An array up to ``block-bytes``
    is one tile, unless it lies in several.
    """
    known = lying(node)
    if known is not None and known.n_tiles > 1 and known.parts[0] == known.n_tiles:
        return known.with_layout("C")
    if node.env.team is None or not node.ndim:
        return None
    if (known is None or known.n_tiles == 1) and node.nbytes <= node.env.block_nbytes:
        return None
    return _even_cut(node, node.ndim)


def vector_cut(node: Expr, axis: int = 0) -> Sharding | None:
    """Return how the vectors of an array along `axis` are cut for work on their tiles; None where each is one tile.

    As the array lies, where only that axis of it is cut; else evenly over all places of its team. An array up to
    ``block-bytes`` is not cut, unless it lies so.
    """
    known = lying(node)
    if known is not None and known.parts[axis] > 1 and known.parts[axis] == known.n_tiles:
        return Sharding(known.mesh, (known.axes[axis],), (), (known.bounds[axis],))
    if node.env.team is None or node.nbytes <= node.env.block_nbytes:
        return None
    return _even_cut(node, 1)
