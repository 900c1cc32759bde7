"""Evaluations of one small block each in this process, or of few and quick steps: plain calls, and nothing to plan.

They wait for nothing: an operation on arrays of up to ``eager-bytes`` that are here is computed when it is made, by
`distarray.array.at_call` and, of whatever kind it is, by `at_once`. To list it, to find it again and to see what else
needs it costs ten times what it computes, and takes longer than fusion could save.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from functools import cache, lru_cache
from math import prod
from typing import Any

import numpy as np

from distarray import config, hooks
from distarray.deferral import errors_wait
from distarray.expr.affine import Affine
from distarray.expr.expr import GET, Environment, Expr, Others, Stored, calls_functions, late_params
from distarray.expr.joins import PRODUCT
from distarray.kernels.threads import helped_by
from distarray.runtime import counters, flights
from distarray.runtime.clients import has_blocks
from distarray.runtime.donation import commit, donated, overwriting
from distarray.runtime.flights import Flight
from distarray.runtime.interrupts import interrupts_deferred
from distarray.runtime.members import locked
from distarray.runtime.process_threads import helpers_for
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from distarray.types import HostArray

#: Larger arrays gain more by a pass in slices, and by threads, than a plan and a program take.
SMALL_NBYTES = 4 << 20
#: Bytes that one thread reads and makes in the time that a plan and its tasks take. What n threads do together takes
#: 1 / n of the time, so up to n / (n - 1) times as many bytes are passed over faster by one thread without a plan.
BRIEF_NBYTES = 9 << 20
#: Bytes up to which operations on data of a cluster's client are computed here also where workers may need the
#: results, and up to which what is made from nothing is kept.
SENT_NBYTES = 128 << 10
#: Products of numbers up to which larger operands of a contraction are read at the call: BLAS has its own threads.
MOST_PRODUCTS = 1 << 24
#: Bytes that are read and made from which on other threads go on meanwhile: some hundred microseconds.
APART_NBYTES = 1 << 20
#: Options that say what is computed when it is made.
OPTIONS = ("eager-bytes", "block-bytes", "memory-limit")
#: Steps up to which an operation made of several is computed at once.
_MOST_STEPS = 32


def most_nbytes(env: Environment) -> int:
    """Return the bytes of the largest array that plain calls are made for."""
    if not env.is_cluster or config.get("block-bytes") is not None:
        return min(env.block_nbytes, SMALL_NBYTES)
    limit: int | None = config.get("memory-limit")
    return SMALL_NBYTES if limit is None else min(SMALL_NBYTES, max(1, limit // 8))


def is_small(
    order: Sequence[Expr], env: Environment, spread: Collection[int] = (), coming: Collection[int] = ()
) -> bool:
    """Return whether every array is one small block in this process (`most_nbytes`), or made in few and quick steps.

    Parameters
    ----------
    spread
        ``id`` of the nodes that are computed on all threads, as a plan has them, and of what is read there alone.
    coming
        ``id`` of the nodes whose blocks workers have that may come here.

    Notes
    -----
    Where others could compute it, they do what takes long for so many bytes (sorts, decompositions, functions of the
    user's) from ``block-bytes`` on.
    """
    if env.device != "cpu":
        return False
    most, block, is_larger, has_copies = most_nbytes(env), env.block_nbytes, False, False
    limit = min(block, most)
    in_process = not env.is_cluster
    for node in order:
        memo = node.memo
        if id(node) in coming or (memo is not None and memo.home_copy is not None):
            has_copies = True
        elif memo is not None:
            if node.pin is not None and memo.on_client and not _is_anywhere(node.pin):
                return False  # to be placed as the user asked
            if not memo.on_client and not (in_process and _is_anywhere(memo.sharding)):
                return False
            if type(memo.blocks[0]) is not np.ndarray:
                return False
        elif node.pin is not None and not (in_process and _is_anywhere(node.pin)):
            return False
        if type(node.dtype) is tuple:
            if node.nbytes > limit:
                return False
        else:
            n = node.dtype.itemsize
            for s in node.shape:
                n *= s
            if n > most and node.op.kind != "get":
                is_larger |= id(node) not in spread
                if n > block:
                    return False
        if limit < most and not is_light(node, limit):
            return False
    if has_copies and any(map(_is_of_tiles, order)):
        return False
    return not is_larger or _is_brief(order, env)


def _is_of_tiles(node: Expr) -> bool:
    """Return whether a step, if it is one, is made of tiles as they lie, with each of which a function is called."""
    return node.memo is None and (node.op.family.is_tiled or calls_functions(node))


def _is_brief(order: Sequence[Expr], env: Environment) -> bool:
    """Return whether plain calls, by one thread, are sooner over than a plan is found and its tasks are handed out."""
    return sum(map(_passed_nbytes, order)) <= _most_brief_nbytes(env) and all(map(_is_quick, order))


def _passed_nbytes(node: Expr) -> int:
    """Return the bytes of a node that are read, or made."""
    if node.op is GET or node.op.name == "empty":
        return 0
    if node.op.kind == "put" and node.memo is None:
        lens: Affine = node.runtime
        nbytes: int = prod(lens.shape) * node.dtype.itemsize
        return nbytes
    return node.nbytes


def _is_of_something_new(step: Expr) -> bool:
    """Return whether what a step writes into is made from nothing, for this alone."""
    base = step
    while base.memo is None and base.op.family.is_write and type(base.operands[0]) is Expr:
        base = base.operands[0]
    return base.memo is None and base.op.family.is_created


def _most_brief_nbytes(env: Environment) -> int:
    n = max(env.size, 2)
    return min(env.block_nbytes, BRIEF_NBYTES * n // (n - 1))


def _is_quick(node: Expr) -> bool:
    """Return whether a step, if it is one, takes about as long as to read and to write."""
    family = node.op.family
    is_free = family.is_view or (family.is_created and node.op.repeatable)
    if node.memo is not None or is_free or family.is_gather:
        return True
    return family.is_fused and (node.op.kind != "map" or interpreter().is_quick_map(node))


def is_light(node: Expr, limit: int) -> bool:
    """Return whether a step takes no longer than a message to a worker and back: it goes through memory once, or is of
    `limit` bytes at most, and of no more.
    """
    if node.op.family.is_fused or node.op.family.is_created or _is_quick(node):
        return True
    return node.nbytes <= limit and all(o.nbytes <= limit or _has_few_products(node) for o in node.nodes())


def _is_anywhere(sharding: Sharding) -> bool:
    """Return whether a type is one block, of no member in particular."""
    return sharding.n_tiles == 1 and sharding.mesh.owners is None


def at_once(node: Expr) -> tuple[HostArray, Callable[[], None]] | None:
    """Return the elements of a pending node where all that this needs is here and small; None elsewhere.

    Nothing else is computed: what it needs and is neither computed nor constant must be a part of it, of which nobody
    else has a handle. The pending node stays as it is, since other threads may see it.

    Returns
    -------
    ndarray
        Nothing else refers to it.
    callable
        Warns of what was met on the way: to be called when the elements are where they should, for warnings may be
        errors.

    Raises
    ------
    Exception
        What a kernel raises.
    """
    env = node.env
    if node.pin is not None or env.device != "cpu" or not (node.op is GET or may_be_at_once(node)):
        return None
    if not is_eager(node.nbytes, env):
        return None
    if node.op is GET and (block := block_of(node)) is not None:  # a number, mostly
        return np.array(block, order="C"), _silent

    def may_be_part(o: Expr) -> bool:
        is_of_workers = env.is_cluster and o.op.family.is_created and o.nbytes > SENT_NBYTES  # made from nothing there
        return is_eager(o.nbytes, env) and not is_of_workers

    if (found := _computation(node, is_room_for, may_be_part)) is None:
        return None
    if counters.active:
        counters.count_evaluation(is_inline=True)
    return interpreter().computed(*found)  # type: ignore[no-any-return]  # a module that is loaded late


def _computation(
    node: Expr, may_read: Callable[[Expr, Expr], bool], may_be_part: Callable[[Expr], bool]
) -> tuple[list[Expr], dict[int, HostArray]] | None:
    """Return the steps by which a pending node is computed, and by ``id`` of what they read its elements.

    None where that is not all here, where a step may not read it, or where what is pending is needed by others or may
    not be a part of it.
    """
    values: dict[int, HostArray] = {}
    steps = [node]
    for step in steps:
        for o in step.operands:
            if type(o) is not Expr or id(o) in values:
                continue
            if (block := block_of(o)) is not None:
                if not may_read(step, o):
                    return None
                values[id(o)] = block
            elif len(steps) < _MOST_STEPS and _is_part(o) and may_be_part(o):
                steps.append(o)
            else:
                return None
    return steps[::-1], values


def is_settled_alone(node: Expr) -> bool:
    """Compute a pending node that somebody looks at, where all that it needs is here, small or brief, and needed by
    nobody else; return whether that was done. What an evaluation does besides takes as long as such a node.
    """
    env = node.env
    if (found := _computation_alone(node)) is None:
        return False
    steps, values, passes = found
    helpers = helpers_for(env)
    try:
        compute, given = interpreter().computed, (steps, values, passes)
        block, warn = compute(*given) if helpers is None else helped_by(helpers, compute, *given)
    except Exception:
        return False  # an evaluation raises it where it is met, or warns of it
    if warn.args[0]:
        return False
    if counters.active:
        counters.count_evaluation(is_inline=True)
    with locked():
        if node.memo is None:
            node.settle(stored(block, env))
    return True


def is_made_alone(node: Expr) -> bool:
    """Return whether a look at a pending node computes that and nothing else: see `is_settled_alone`."""
    return _computation_alone(node) is not None


def _computation_alone(node: Expr) -> tuple[list[Expr], dict[int, HostArray], dict[int, Any]] | None:
    """Return the steps by which a pending node is computed alone, what they read, and the passes that they take; None
    where it is not computed so.
    """
    env = node.env
    if env.is_cluster or env.device != "cpu":
        return None
    with locked():
        # No run of another thread writes into what is read here: who begins one later sees that this thread reads.
        if flights.are_others() or not _may_be_settled(node):
            return None
        if (found := _computation(node, _is_only_read, _may_be_settled)) is None:
            return None
        steps, values = found
        read = {id(o): o for step in steps for o in step.nodes() if id(o) in values}
        passes = interpreter().passes_of(steps, values)
        spread = {id(node) for nodes in passes.values() for node in nodes}
        spread.update([id(step) for step in steps if _is_copied(step) or step.op.name == "empty"])
        read_apart = {id(o) for step in steps if id(step) not in spread for o in step.nodes()}
        spread.update(read.keys() - read_apart)
        if not is_small([*read.values(), *steps], env, spread):
            return None
    return steps, values, passes


def _is_copied(step: Expr) -> bool:
    """Return whether a step writes an array into another as it is, on all threads where that is long."""
    value = step.operands[1] if step.op.kind == "put" else None
    return type(value) is Expr and value.dtype == step.dtype


def _is_only_read(step: Expr, operand: Expr) -> bool:
    """Return whether an evaluation would not write into an operand that is here, since others need it."""
    return operand.memo is None or operand.is_live or operand.shape != step.shape or step.shape == ()


def _may_be_settled(step: Expr) -> bool:
    """Return whether a pending node is computed by a plain call as by an evaluation, wherever its operands are."""
    family = step.op.family
    if step.memo is not None or step.pin is not None or (family.is_write and not _is_of_something_new(step)):
        return False
    return step.op is GET or family.is_created or may_be_at_once(step)


def _silent() -> None:
    pass


def stored(block: HostArray, env: Environment) -> Stored:
    """Return the memo of a node whose elements were computed here."""
    return Stored(_whole(env.mesh, block.ndim), (block,), True, False)


def is_eager(nbytes: int, env: Environment) -> bool:
    """Return whether operations on arrays of so many bytes that are here are computed when they are made."""
    return nbytes <= found_in(env)[MOST]  # type: ignore[no-any-return]  # a number of bytes


#: Key of the bytes of the largest array that is computed when it is made.
MOST = "most"


def found_in(env: Environment) -> dict[Any, Any]:
    """Return what was found of an environment and follows from `OPTIONS`.

    It is a dict that holds `MOST`, and to which callers add what they find (`array.at_call` its calls that are ready);
    after an option changed it is a new one.

    Of a cluster other things hold while nothing but data of the client's is there, and while some of it may meet what
    workers have (`_may_be_sent`).
    """
    known = env.found.options
    if not known:
        known = env.found.options = tuple([config.Derived(*OPTIONS) for _ in range(1 + env.is_cluster)])
    may_be_sent = len(known) > 1 and _may_be_sent(env)
    found = known[may_be_sent].found()
    if not found:
        most = most_nbytes(env) if env.is_cluster else env.block_nbytes
        if may_be_sent:
            most = min(most, SENT_NBYTES)
        found[MOST] = min(config.get("eager-bytes") or -1, most)
    return found


def _may_be_sent(env: Environment) -> bool:
    """Return whether what is made of the client's data may be needed at workers: what they have, or what waits, may
    read it. Then it is better made there, of data that are sent once.
    """
    return has_blocks(env.client) or (hooks.is_waiting is not None and hooks.is_waiting(env))


@cache
def interpreter() -> Any:
    """Return the module of plain calls: kernels take a quarter of the package's time to load, an import does without
    them.
    """
    from distarray.kernels import interpret

    return interpret


def _is_part(node: Expr) -> bool:
    """Return whether a pending node may be computed with the one that reads it: nobody has a handle of it, or it is
    never kept; and nobody said how it is cut.
    """
    if node.memo is not None or (node.pin is not None and node.pin.n_tiles > 1):
        return False
    return node.op.repeatable or (not node.is_live and (node.op is GET or may_be_at_once(node)))


def is_room_for(step: Expr, operand: Expr) -> bool:
    """Return whether an operation on an operand that is here may be computed at the call: it is small, or what is done
    with it takes no longer than a plan.
    """
    nbytes, env = operand.nbytes, step.env
    if env.is_cluster and not is_light(step, env.block_nbytes):
        return False  # where others could compute it
    if nbytes <= SMALL_NBYTES or _has_few_products(step):
        return True
    return step.op.kind == "reduce" and nbytes <= _most_brief_nbytes(env)


def _has_few_products(step: Expr) -> bool:
    if not step.op.family.is_contraction or step.params.join != PRODUCT:
        return False
    extents = {label: n for o, own in zip(step.nodes(), step.params.operands) for label, n in zip(own, o.shape)}
    return prod(extents.values()) <= MOST_PRODUCTS


def may_be_at_once(node: Expr) -> bool:
    """Return whether an operation may be computed when it is made."""
    op = node.op
    if op.is_drawn:
        return not node.env.is_cluster and node.nbytes <= SENT_NBYTES
    if not op.family.is_at_once or type(node.dtype) is tuple:
        return False
    # What the user's functions do is done when somebody wants it.
    return not op.may_raise or (not late_params(node) and not errors_wait())


def is_made_at_once(node: Expr) -> bool:
    """Return whether a node is made from nothing, and so small that it is better kept than made for each operation."""
    return node.nbytes <= SENT_NBYTES and _is_made_here(node) and is_eager(node.nbytes, node.env)


def is_made_to_be_written(node: Expr) -> bool:
    """Return whether a node is made from nothing, and one block of this process: it may be written line by line."""
    env = node.env
    if not _is_made_here(node) or node.op.is_drawn or env.is_cluster or config.get("memory-limit") is not None:
        return False
    return node.nbytes <= env.block_nbytes and is_eager(1, env)


def _is_made_here(node: Expr) -> bool:
    op = node.op
    is_made = op.repeatable and op.family.is_created and node.memo is None and node.pin is None
    return is_made and node.env.device == "cpu"


def block_of(node: Expr) -> HostArray | None:
    """Return the elements of a computed node, or of a view of one, as one NumPy array that lies in this process; None
    where there is no such array.
    """
    memo, lens = node.memo, None
    if memo is None:
        if node.op is not GET or (pending := node.unsettled()) is None:
            return None
        (source,), lens = pending
        assert type(source) is Expr
        node, memo = source, source.memo
        if memo is None:
            return None
    if memo.home_copy is not None:
        return memo.home_copy if lens is None else lens.read(memo.home_copy)
    blocks = memo.blocks
    if type(blocks) not in (tuple, list) or len(blocks) != 1 or (node.pin is not None and node.pin.n_tiles > 1):
        return None
    block = blocks[0]
    if type(block) is not np.ndarray or node.env.device != "cpu" or not (memo.on_client or not node.env.is_cluster):
        return None
    return block if lens is None else lens.read(block)


def begun(env: Environment, order: Sequence[Expr], wanted: set[int], others: Others) -> Flight | None:
    """Evaluate nodes that `is_small` holds for, or return that as what is to run, where it takes longer than to hand it
    out; see `running.begun`.
    """
    free = donated(order, wanted, others)
    if counters.active:
        counters.count_evaluation(is_inline=True)
    if not env.is_cluster and sum([n.nbytes for n in order]) > APART_NBYTES:
        return Flight(
            order,
            lambda: _computed(env, order, wanted, free),
            lambda results: _commit(results, order, free),
            overwrites=bool(free),
        )
    with interrupts_deferred() if free else nullcontext():
        with overwriting(order if free else ()):
            made = _computed(env, order, wanted, free)
        _commit(made, order, free)
    return None


def _computed(
    env: Environment, order: Sequence[Expr], wanted: set[int], free: Collection[int]
) -> list[tuple[Expr, Stored]]:
    values = interpreter().interpret(order, wanted, free)
    mesh = env.mesh
    results = []
    for node in order:
        value = values.get(id(node))
        if value is not None and node.memo is None:
            several = isinstance(value, tuple)
            whole = _whole(mesh, 0 if several else len(node.shape))
            results.append((node, Stored(whole, value if several else (value,), True, False)))
    return results


def _commit(results: Sequence[tuple[Expr, Stored]], order: Sequence[Expr], free: Collection[int]) -> None:
    if len(results) == 1 and results[0][0].op.family.is_new and not free:
        results[0][0].settle(results[0][1])  # no other array can have its block
    else:
        commit(results, order, free)


@lru_cache(maxsize=256)
def _whole(mesh: Mesh, ndim: int) -> Sharding:
    return Sharding.whole(mesh, ndim)
