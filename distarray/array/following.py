"""Arrays that nobody told where to live: they follow the cluster.

The default team is that of the workers there are (`placement`), so arrays that were made before and after a worker
joined live on different teams. Each stays where it is; where they meet in an operation, those on the older team move to
the newer one, once and for good, so that a user who never named a team need not know of any. A team that somebody named
follows nothing: mixing it with another one is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from distarray import hooks
from distarray.array import window
from distarray.errors import EnvironmentMismatchError
from distarray.expr.crossing import crossing, graph, is_crossing
from distarray.expr.expr import Environment, Expr
from distarray.runtime import rehome
from distarray.runtime.retention import streams


def meet(args: Sequence[Any], nodes: Sequence[Any], env: Environment | None) -> tuple[list[Any], Environment] | None:
    """Return the operands of several environments in one; None if one of them does not move by itself.

    Parameters
    ----------
    args, nodes
        What was given, and the nodes of those that are arrays.
    env
        Where the result has to be. None: with the operand on the newest team.
    """
    if env is None:
        envs = [n.env for n in nodes if type(n) is Expr]
        if all(e == envs[0] for e in envs):
            return list(nodes), envs[0]
        alive = [e for e in envs if not rehome.is_gone(e)]
        if alive and all(e == alive[0] for e in alive):
            env = alive[0]  # what has lost its cluster goes where the others live, if it follows
        elif not all(_follows(e) for e in envs):
            return None
        else:
            # Between two clusters nothing moves unasked: `follow` refuses.
            env = max(alive, key=_generation) if alive else rehome.new_environment(envs[0].device)
    found: list[Any] = []
    for a, n in zip(args, nodes, strict=True):
        there = follow(a, n, env) if type(n) is Expr else n
        if there is None:
            return None
        found.append(there)
    return found, env


def follow(a: Any, node: Expr, env: Environment) -> Expr | None:
    """Return the node of an operand in another environment, if both follow the cluster.

    An array goes there for good if the team there is newer than its own; to an older one only its value goes.
    """
    if node.env == env and not rehome.is_gone(node.env):
        return node
    if not (_follows(node.env) and (not env.is_cluster or _follows(env))):
        return None
    if node.env.device != env.device:
        return None
    if rehome.is_gone(node.env):
        rehome.healed(graph([node]), node.env, env)
        return node
    if node.env.client is not env.client:
        return None
    base = getattr(a, "_base", None)
    if base is None or _generation(env) < _generation(node.env):
        return moved(node, env)
    while (version := base.current).env != env:
        base.restore(version, moved(version, env))  # again if another thread wrote to it meanwhile
    result: Expr = a._node()
    return result


def settled(a: Any, node: Expr, env: Environment, name: str, role: str) -> Expr:
    """Return the node of an operand where an array lives that it is used with; `name` and `role` say what it is for.

    Raises
    ------
    EnvironmentMismatchError
        If it lives elsewhere, and does not follow.
    """
    there = follow(a, node, env)
    if there is None:
        raise EnvironmentMismatchError(
            f"{name}: the array lives in {env}, {role} in {node.env}; move one with x.to_team(...) or x.to_device(...)"
        )
    return there


def _follows(env: Environment) -> bool:
    return env.team is not None and env.team.generation > 0


def _generation(env: Environment) -> int:
    assert env.team is not None
    return env.team.generation


def moved(node: Expr, env: Environment) -> Expr:
    """Return a node of the same elements in another environment.

    What is made from nothing, and what is too large to be stored, is computed there; else what is pending is computed
    where it is (on a cluster without waiting for it), and its blocks move.
    """
    rehome.healed(graph([node]), node.env)
    if node.memo is None and streams(node) and (found := _copied(node, env)) is not None:
        return found
    there = crossing(node, env, None if node.pin is None else rehome.same_cut(node.pin, node, env))
    window.observe((there,))
    return there


def _copied(node: Expr, env: Environment) -> Expr | None:
    """Return a pending node in another environment, on copies of what it needs; None where it is bound to its team."""
    order = graph([node])
    if rehome.bound_to_team(order, env) is not None:
        return None
    there: dict[int, Expr] = {}
    for n in order:
        pin = None if n.pin is None else rehome.same_cut(n.pin, n, env)
        found = n.unsettled()
        if found is None or is_crossing(n):
            source = n if found is None else found[0][0]
            assert type(source) is Expr
            there[id(n)] = crossing(source, env, pin)
            continue
        operands = tuple([there[id(o)] if type(o) is Expr else o for o in found[0]])
        there[id(n)] = Expr(n.op, operands, n.shape, n.dtype, env, n.params, found[1], pin, n.origin, n.errstate)
    return there[id(node)]


hooks.meet = meet
