"""Operations that need values before they can be bound: generators over nodes.

How many elements a mask picks, where the parts of a sorted array begin, which rows a factorisation swaps: what follows
depends on them. Such an operation is a generator: it yields `Ask`, receives host arrays, and returns what it made. The
array layer says how they run (`array.driven`); tests run them with numpy; nothing here imports what evaluates.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Sequence
from typing import Any, NamedTuple, TypeAlias

from distarray import hooks
from distarray.deferral import errors_wait
from distarray.expr.bind import Box, identity
from distarray.expr.expr import ITEM, Expr, lying, postorder
from distarray.sharding.sharding import Sharding
from distarray.types import HostArray

#: A vector up to this size may be whole at every place, however small what is cut.
WHOLE_NBYTES = 64 * 2**20
#: Bytes of results that are computed at the call, whoever will look at them.
SMALL = 1 << 20


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


def boxed(name: str, box: Box, nodes: Sequence[Expr], *, shared: bool = False) -> list[Any]:
    """Return results of an operation that may fail, boxed; computed now, all of them together.

    Bare nodes stay pending, for whoever goes on with them, and so do results where the option ``errors`` says so.

    Parameters
    ----------
    shared
        Whether several results share work that no node of theirs stands for. Looked at one after the other, they would
        each do it again, so that is done now in any case; what only one of them needs beside it waits.
    """
    if box is not identity and (shared or not errors_wait()):
        asked(name, kept=tuple(_shared(nodes) if shared else nodes))
    return [box(node) for node in nodes]


def _shared(results: Sequence[Expr]) -> list[Expr]:
    """Return what is computed at the call of results that share work: results of operations that have several, what is
    small, and such results as would do again what is done for these.
    """
    items = [node for node in postorder(results, ITEM) if node.op is ITEM]
    done = {id(node) for node in postorder([o for item in items for o in item.nodes()]) if node.operands}
    small = [result for result in results if result.nbytes <= SMALL]
    beside = [_small_operands(result, done) for result in results if result.nbytes > SMALL]
    if not beside or None in beside:
        return list(results)
    return [*items, *small, *(node for nodes in beside for node in nodes or ())]


def _small_operands(result: Expr, done: Container[int]) -> list[Expr] | None:
    """Return the small nodes that a large result reads beside results of operations that have several; None where it
    reads what is done already, or may raise.
    """
    if result.op is ITEM:
        return []
    found: list[Expr] = []
    large, seen = [result], set[int]()
    while large:
        node = large.pop()
        if node.op.may_raise or id(node) in done:
            return None
        for operand in node.nodes():
            if operand.memo is not None or not operand.operands or operand.op is ITEM or id(operand) in seen:
                continue
            seen.add(id(operand))
            (found if operand.nbytes <= SMALL else large).append(operand)
    return found


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
