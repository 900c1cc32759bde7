"""Small arrays that lie on workers come home to the client when their values are read one after the other.

A number of what workers have takes a message to a worker, and one back: some ten milliseconds, in which this process
computes with small arrays for a thousand steps. So what is read again comes here, once, and what is made of it is
computed here from then on (`distarray.runtime.small`). It goes to workers again with the first plan that they run.
"""

from __future__ import annotations

import weakref

from distarray import config
from distarray.expr.expr import Expr, late_params, postorder
from distarray.kernels.inside import is_inside_task
from distarray.runtime import small
from distarray.runtime.observations import fetch
from distarray.runtime.reading import STAYS_NBYTES

#: What a value that was read was computed from, or what was computed for it: if it is read again it may come home.
_read: weakref.WeakSet[Expr] = weakref.WeakSet()
#: What came home.
_home: weakref.WeakSet[Expr] = weakref.WeakSet()


def bring_home(target: Expr) -> None:
    """Bring what a pending node needs of workers here, if this was read before and all is small.

    Arrays of up to `STAYS_NBYTES` come when they are first needed so, larger ones when they are needed again. Those of
    one node have `small.SMALL_NBYTES` together at most, and all that came and still live ``literal-max-bytes``. Nothing
    comes whose cut somebody said, nothing where ``block-bytes`` is said, and nothing for steps that take longer than a
    message.

    Parameters
    ----------
    target
        Whose value is about to be read here.
    """
    env = target.env
    if not env.is_cluster or config.get("block-bytes") is not None or is_inside_task():
        return
    order = postorder((target,))
    away = [n for n in order if n.memo is not None and not n.memo.on_client]
    nbytes = sum([n.nbytes for n in away])
    if not away or nbytes > small.SMALL_NBYTES or any(n.env is not env for n in order):
        return
    ids = {id(n) for n in away}
    if not (all(map(_may_come, away)) and small.is_small(order, env, coming=ids) and all(map(_is_sooner_here, order))):
        return
    if any(n.nbytes > STAYS_NBYTES and n not in _read for n in away):
        _read.update([n for n in order if n.memo is not None or n.is_live])
        return
    if sum([n.nbytes for n in list(_home)]) + nbytes <= config.get("literal-max-bytes"):
        for node in away:
            memo = node.stored
            value = fetch(node)
            if node.memo is memo:
                node.memo = small.stored(value, env)
            _home.add(node)


def _may_come(node: Expr) -> bool:
    """Return whether an evaluated node is an array of numbers, of which nobody said where it lies."""
    is_free = node.pin is None and not node.stored.sharding.is_copied
    return is_free and not isinstance(node.dtype, tuple) and not node.dtype.hasobject


def _is_sooner_here(node: Expr) -> bool:
    """Return whether a step, if it is one, takes no longer than a message to a worker and back."""
    if node.memo is not None:
        return True
    return not any(map(callable, late_params(node))) and small.is_light(node, small.SENT_NBYTES)
