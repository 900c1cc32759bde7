"""Retention: which results of an evaluation are kept, because a live handle still refers to them."""

from __future__ import annotations

from collections.abc import Sequence

from distarray import config, hooks
from distarray.expr.expr import GET, Environment, Expr
from distarray.runtime.memory import memory_limit, room_nbytes

#: Bytes that fit anywhere.
FITS = 1 << 28


def retained(nodes: Sequence[Expr], env: Environment) -> set[int]:
    """Return the pending nodes whose results are kept although nobody asked for them: a live handle still refers to
    them.

    Never kept: constants, and lenses, for which what they show is kept. Always kept: written bases, but for those that
    nothing could hold. The rest as long as it fits the memory limit; what a kernel makes from nothing goes first, then
    what is largest: a handle on an array larger than memory streams.
    """
    live = _live(nodes)
    if not live or config.get("retain") == "none":
        return {id(n) for n in live if n.op.family.is_write}
    room = safe_nbytes(env)
    kept = set()
    for n in sorted(live, key=lambda n: (not n.op.family.is_write, n.op.family.is_created, n.nbytes)):
        room -= n.nbytes * (n.pin.n_replicas if n.pin is not None and n.pin.is_copied else 1)
        if room >= 0 or n.op.family.is_write:
            kept.add(id(n))
    return kept


def written(nodes: Sequence[Expr]) -> set[int]:
    """Return those of the pending nodes whose results are kept in any case: written bases."""
    return {id(n) for n in _live(nodes) if n.op.family.is_write}


def _live(nodes: Sequence[Expr]) -> list[Expr]:
    """Return the pending nodes that live handles refer to, and that can be kept."""
    shown = {id(n): n for n in map(_shown, nodes) if n is not None}
    return [n for n in shown.values() if n.memo is None and not n.op.repeatable and not is_beyond_memory(n)]


def _shown(node: Expr) -> Expr | None:
    """Return what is kept for a live handle on a node: what a lens shows, or what it sees of it where that is less;
    None if there is no such handle.
    """
    if not node.is_live:
        return None
    source = node
    while source.op is GET and (pending := source.unsettled()) is not None:
        (inner,), _ = pending
        assert type(inner) is Expr
        source = inner
    return node if source.memo is None and source.nbytes > node.nbytes else source


def safe_nbytes(env: Environment) -> int:
    """Return the bytes that the members of an environment are sure to have room for: half of their limits."""
    return memory_limit(env) * env.size // 2


def streams(node: Expr) -> bool:
    """Return whether a pending result is computed anew wherever it is read rather than kept: it would not fit in
    memory.
    """
    if node.op.family.is_write:
        return is_beyond_memory(node)
    return node.op.family.is_created or node.nbytes > safe_nbytes(node.env)


def is_beyond_memory(node: Expr) -> bool:
    """Return whether a result is larger than all that its members have: it can be read in parts, and never be held."""
    nbytes = node.nbytes
    return nbytes > FITS and nbytes > room_nbytes(node.env)


hooks.is_beyond_memory = is_beyond_memory
