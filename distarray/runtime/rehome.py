"""Arrays whose blocks or whose cluster are gone: what can be had again goes to where arrays are made now.

A pending expression needs no blocks, small host data is in this process, what a kernel makes from nothing can be made
again, and of host data that was sent to workers this process keeps up to ``literal-max-bytes``. All else is lost with
the workers, and says so.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from distarray import config, hooks
from distarray.errors import BlocksLostError, ClusterGoneError, EnvironmentMismatchError
from distarray.expr.expr import Environment, Expr, Stored
from distarray.runtime.connections import is_open
from distarray.sharding.mesh import is_wave
from distarray.sharding.sharding import Sharding
from distarray.weak import values


def new_environment(device: str) -> Environment:
    """Return where new arrays on a device are made: in this process, if there is no array layer that says otherwise."""
    if hooks.new_arrays_environment is None:
        return Environment(None, device)
    env: Environment = hooks.new_arrays_environment(device)
    return env


#: Host data whose blocks are on workers, by node.
_hosts: weakref.WeakKeyDictionary[Expr, Any] = weakref.WeakKeyDictionary()


def keep_host(node: Expr, array: Any) -> None:
    """Keep the host data of a node whose blocks were sent to workers, as far as all that is kept is little."""
    if sum(kept.nbytes for kept in values(_hosts)) + array.nbytes <= config.get("literal-max-bytes"):
        _hosts[node] = array


def is_gone(env: Environment) -> bool:
    """Return whether the members of an environment were workers of a client that has lost them all."""
    return env.is_cluster and not is_open(env.client)


def revive(node: Expr) -> bool:
    """Let an evaluated node whose blocks are lost be what it was before it had any, and return whether it can be."""
    memo = node.memo
    if memo is None or memo.on_client:
        return True
    host = _hosts.get(node) if memo.home_copy is None else memo.home_copy
    if host is not None:
        node.memo = Stored(Sharding.whole(memo.sharding.mesh, node.ndim), (host,), on_client=True, exported=True)
    elif node.op.family.is_created:
        node.memo = None
    return host is not None or node.op.family.is_created


def _is_lost(node: Expr) -> bool:
    memo = node.memo
    if memo is None or memo.on_client or not len(memo.blocks) or not node.env.is_cluster:
        return False
    # A restart cancels all Futures: one tells. Blocks that are not made yet, or not read yet, stay so.
    return is_gone(node.env) or getattr(memo.handles[0], "status", "") == "cancelled"


def healed(order: Sequence[Expr], env: Environment, to: Environment | None = None) -> Environment:
    """Return where nodes, operands before users, can be evaluated: their environment, or another one if its client is
    gone.

    They, and what is lost and can be had again, are changed in place: nothing else could become of them.

    Parameters
    ----------
    to
        Where they go if the client is gone. None: where new arrays are made, if their team is one that follows the
        cluster.

    Raises
    ------
    BlocksLostError
        If blocks are needed that cannot be had again. ClusterGoneError, its subclass: if the client is gone.
    """
    for node in order:
        if _is_lost(node) and not revive(node):
            raise _error(node)
    envs = {id(node.env): node.env for node in order}
    gone = {i for i, e in envs.items() if is_gone(e)}
    for i, e in envs.items():
        if e != env and i not in gone and not is_gone(env):
            raise EnvironmentMismatchError(
                f"an operation in {env} needs an array in {e}; move one with x.to_team(...) or x.to_device(...)"
            )
    if not gone:
        return env
    if not is_gone(env):
        to = env
    elif to is None:
        if env.team is None or not env.team.generation:
            raise ClusterGoneError(
                f"the client of {env.team!r} is closed, or has lost its scheduler; make the team again on a new "
                "client, and move the array there by x.to_team(team)"
            )
        to = new_environment(env.device)
    here = [node for node in order if id(node.env) in gone]
    bound = bound_to_team(here, to)
    if bound is not None:
        raise ClusterGoneError(
            f"{bound.op.name}: the client of {bound.env.team!r} is gone, and {to.team!r} has not its shape, to which "
            "the operation is bound; compute it again from its operands"
        )
    mesh = to.mesh
    for node in here:
        if node.pin is not None:
            node.pin = same_cut(node.pin, node, to)
        if node.memo is not None:
            node.memo = replace(node.memo, sharding=Sharding.whole(mesh, node.ndim), on_client=True)
        node.env = to
    return to


def same_cut(sharding: Sharding, node: Expr, env: Environment) -> Sharding:
    """Return the cut of an array in another environment, if nobody says another one.

    Between meshes of equal sizes every tile stays what it is. On another number of members all of them cut the axis
    that had most parts; an array of one tile stays one, unless it is larger than ``block-bytes``.
    """
    mesh, there = sharding.mesh, env.mesh
    if not env.is_cluster or mesh.owners is None:
        sharding = sharding.with_copies(False)
    if mesh.owners is not None and mesh.n_members <= there.size:
        return sharding
    plain = [i for i, name in enumerate(mesh.names) if not is_wave(name)]
    if mesh.owners is None and tuple(mesh.sizes[i] for i in plain) == there.sizes:
        names = dict(zip([mesh.names[i] for i in plain], there.names))
        renamed = mesh.renamed([names.get(name, name) for name in mesh.names])
        axes = tuple(tuple(names.get(name, name) for name in cut) for cut in sharding.axes)
        return Sharding(renamed, axes, (), sharding.bounds, sharding.layout)
    axes_there: list[tuple[str, ...]] = [()] * node.ndim
    if sharding.n_tiles > 1:
        axes_there[max(range(node.ndim), key=sharding.parts.__getitem__)] = tuple(reversed(there.names))
    elif node.ndim and node.nbytes > env.block_nbytes:
        axes_there[max(range(node.ndim), key=node.shape.__getitem__)] = tuple(reversed(there.names))
    return Sharding(there, tuple(axes_there), layout=sharding.layout)


def bound_to_team(order: Sequence[Expr], env: Environment) -> Expr | None:
    """Return a pending node that can only be computed on a team of the shape that its own has; None if another one will
    do.
    """
    return next((n for n in order if n.memo is None and n.op.family.is_tiled and n.env.mesh != env.mesh), None)


def _error(node: Expr) -> BlocksLostError:
    name = f"the array of {node.op.name}, {node.dtype}{list(node.shape)}"
    if is_gone(node.env):
        return ClusterGoneError(
            f"{name}, was held by the workers of a client that is closed or has lost its scheduler; compute it again "
            "from its sources"
        )
    return BlocksLostError(
        f"{name}, is lost: the cluster was restarted, or every worker that held a copy was lost; compute it again from "
        "its sources"
    )
