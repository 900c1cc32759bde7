"""Evaluation: from pending nodes to stored blocks, in one atomic step for each environment.

One thread at a time plans; kernels of this process run without the lock, so that threads compute side by side
(`flights`).

`evaluate` collects what its targets need, keeps the results of all nodes that a live handle still refers to, and goes
one of two ways: arrays that are one small block each are plain calls (`interpret`); everything else is planned (or
its plan is found in the cache), lowered to tasks and handed to the executor of its team. Memos are set only when all of
an environment is submitted, so an interrupt leaves everything there as it was.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextvars import copy_context

from distarray.errors import BlocksLostError, MemoryBudgetError
from distarray.expr import crossing
from distarray.expr.expr import Environment, Expr, Others, Stored, postorder
from distarray.kernels.inside import is_inside_task
from distarray.kernels.reporting import gathering
from distarray.runtime import counters, flights, small
from distarray.runtime.flights import Flight
from distarray.runtime.members import locked
from distarray.runtime.memory import memory_limit
from distarray.runtime.promised import make_here, promised_of
from distarray.runtime.reading import tell_of_failure
from distarray.runtime.rehome import healed, revive
from distarray.runtime.retention import retained, written

#: Share of the memory of a member, as one over a number, that results may take which a run hands on to the next one
#: though nobody asked for them: whoever sets a limit does not notice.
HANDED_ON = 64


def evaluate(targets: Sequence[Expr], others: Others = tuple) -> None:
    """Compute `targets`, and keep the results of all that they need and a live handle refers to.

    Parameters
    ----------
    targets
        Nodes; afterwards each has a memo.

    Raises
    ------
    Exception
        What a kernel raised, of its own class, with the operation and the user's line in its notes. Nothing has
        changed then but what was evaluated before, in another environment.
    """
    make_here(targets)
    # In a context of its own: no interrupt can leave a floating-point state that kernels need in the user's thread.
    if is_inside_task():
        copy_context().run(_evaluate, targets, others)
    else:
        gathering(_evaluate, targets, others)


def _evaluate(targets: Sequence[Expr], others: Others) -> None:
    flight: Flight | None = None
    try:
        while True:
            with locked():
                flight = _begun(targets, others)
            if flight is None:
                return
            flight.run()
    finally:
        if flight is not None:
            flight.is_over = True  # an interrupt may come before it begins


def _begun(targets: Sequence[Expr], others: Others) -> Flight | None:
    """Evaluate what is small or on a cluster; return the first run of this process that is ready, None when all is
    there.
    """
    if crossing.are_pending():
        settle(targets, others)
    by_env: dict[Environment, list[Expr]] = {}
    for t in targets:
        if t.memo is None:
            by_env.setdefault(t.env, []).append(t)
    for env, group in by_env.items():
        flight = _begun_in(env, group, others)
        if flight is not None:
            return flight
    return None


def check(targets: Sequence[Expr]) -> None:
    """Check that members can hold what computing `targets`, of one environment, needs; nothing runs.

    Raises
    ------
    MemoryBudgetError
        If they cannot.
    """
    if crossing.levels(targets):
        from distarray.runtime import crossings

        with locked():
            return crossings.check(targets)
    env, order = targets[0].env, postorder(targets)
    if small.is_small(order, env):
        return None
    from distarray.runtime import prepare

    with locked():
        return prepare.check(env, order, {id(t) for t in targets})


def settle(targets: Sequence[Expr], others: Others = tuple) -> None:
    """Carry out the crossings that pending nodes need; with the lock held.

    Step by step what crossings read is evaluated where it lives, and moved. On a cluster nobody waits in between: the
    tasks of a move refer to those that make what is moved.

    Raises
    ------
    MemoryBudgetError
        If members cannot hold what one of the graphs or moves needs; nothing has run then.
    """
    steps = crossing.levels(targets)
    if not steps:
        return
    # Rare: who moves no arrays does not load it.
    from distarray.runtime import crossings

    crossings.heal(steps)
    crossings.check(targets)

    beside = crossings.beside(targets, others)
    for step in steps:
        evaluate(crossings.sources_of(step), beside)
        for node in step:
            if node.memo is None:  # else another thread carried it out while this one waited
                crossing.carry_out(node, _moved(node))


def _moved(node: Expr) -> Stored:
    """Return the memo of a crossing whose operand is evaluated; blocks that are lost are made once more if they can
    be.
    """
    from distarray.runtime.moves import moved

    (source,) = node.nodes()
    try:
        return moved(source, node.env, node.pin)
    except BlocksLostError:
        if not revive(source):
            tell_of_failure()
            raise
    evaluate((source,))
    return moved(source, node.env, node.pin)


def _begun_in(env: Environment, targets: Sequence[Expr], others: Others) -> Flight | None:
    order = postorder(targets)
    if not is_inside_task():
        if flights.wait_for(order, env):
            targets = [t for t in targets if t.memo is None]
            return _begun_in(env, targets, others) if targets else None
        others = flights.beside(others)
    aimed = {id(t) for t in targets}
    kept, beginning = retained(order, aimed, env, others)
    wanted = aimed | kept
    if small.is_small(order, env):
        beginning.remember()
        return small.begun(env, order, wanted, others)
    if env.is_cluster:
        healthy = healed(order, env)
        if healthy is not env:
            return _begun_in(healthy, targets, others)
        if first := first_apart(order, wanted):
            # What fails there must not take with it what else is made; nobody waits in between.
            _begun_in(env, first, lambda: None if (found := others()) is None else [*found, *targets])
            targets = [t for t in targets if t.memo is None]
            return _begun_in(env, targets, others) if targets else None
    # Planning and lowering are imported when they are first needed: small arrays never need them.
    from distarray.runtime import running

    if counters.active:
        counters.count_evaluation(is_inline=False)
    try:
        begun = running.begun(env, order, wanted, others)
    except MemoryBudgetError:
        # What nobody asked for is kept where there is room for it.
        least = aimed | written(order, aimed)
        if least == wanted:
            raise
        begun = running.begun(env, order, least, others)
    beginning.remember()
    return begun


def first_apart(order: Sequence[Expr], wanted: Collection[int], done: Collection[int] = ()) -> list[Expr]:
    """Return the nodes that are to be evaluated before the others, in a run of their own; none if one run does for all.

    A run of the workers fails as a whole, by a task of Dask that was to make what it reads, or by a function of the
    user's that is called there. So nodes that are kept share one only with those that need the same of these.

    Parameters
    ----------
    done
        ``id`` of the pending nodes that count as evaluated: those of runs that are only foreseen.
    """
    if not any(map(_may_fail, order)):
        return []
    risks: dict[int, frozenset[int]] = {}
    apart: dict[frozenset[int], list[Expr]] = {}
    for node in order:
        is_there = node.memo is not None or id(node) in done
        below = () if is_there else [risks[id(o)] for o in node.nodes()]
        is_risk = id(node) not in done and _may_fail(node)
        risks[id(node)] = frozenset({id(node)} if is_risk else ()).union(*below)
        if id(node) in wanted and not is_there:
            apart.setdefault(risks[id(node)], []).append(node)
    if len(apart) < 2:
        return []
    first = min(apart.items(), key=lambda item: len(item[0]))[1]
    return [*first, *_handed_on(order, first, done)]


def _handed_on(order: Sequence[Expr], first: Sequence[Expr], done: Collection[int]) -> list[Expr]:
    """Return the results that a first run makes on its way and that are kept for those after it, which would make them
    again: the triangle of a matrix, beside its orthogonal factor. They are small beside the memory of a member, even
    if one has them all: runs that make them again may do so in parts.
    """
    pending = {id(node) for node in order if node.memo is None and id(node) not in done}
    made = {id(node) for node in postorder(first)} & pending
    found: dict[int, Expr] = {id(node): node for node in first}
    room = memory_limit(first[0].env) // HANDED_ON
    for node in order:
        if id(node) not in pending or id(node) in made:
            continue
        for operand in node.nodes():
            is_worth_it = not (operand.op.family.is_view or operand.op.family.is_created or operand.op.kind == "map")
            read = node if node.op.family.is_item else operand
            if id(operand) in made and is_worth_it and id(read) not in found and read.nbytes <= room:
                found[id(read)] = read
                room -= read.nbytes
                made.add(id(read))
    return list(found.values())[len(first) :]


def _may_fail(node: Expr) -> bool:
    """Return whether somebody else's code makes a node, or numpy is to raise of its elements."""
    if node.memo is None:
        return node.op.may_raise or node.is_to_raise
    return promised_of(node) is not None
