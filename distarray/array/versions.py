"""The versions of written arrays until they are known to be good: a write that fails is taken back.

A write makes the next version of a base, which is computed later. Until that has worked, the base remembers the
versions before it, back to the last one that is known to be good. When an observation fails, the bases whose current
version it needed fall back to their newest good version: the observation raises once, and then all aliases see the
array as it was before the failed write. What was written after the failed write was built on it and goes with it.

On a cluster a version is only known to be good when its blocks are there, so the old ones would be kept for longer:
versions are remembered there with the option ``errors="deferred"`` alone. Otherwise what may fail is waited for at the
call.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from distarray import config
from distarray.execution import evaluate as evaluation
from distarray.execution.retention import streams
from distarray.expr.expr import Expr, postorder

if TYPE_CHECKING:
    from distarray.array.base import Base

__all__ = ["forget_settled", "remember", "restore", "still_needed"]

#: Bases with a version that may still fail.
_unsettled: weakref.WeakSet[Base] = weakref.WeakSet()
_lock = threading.Lock()
#: Bytes of arrays that fit any memory limit.
SMALL = 1 << 20
#: Families whose results are stored however large they are, or made where they are read.
_STORED = frozenset({"put", "take_put", "create"})


def remember(base: Base, following: Expr) -> None:
    """Note the current version of `base`, which `following` is about to replace."""
    current, op = base.expr, following.op
    assert current is not None
    if following.memo is not None or op.repeatable or _is_never_stored(following) or not _is_remembered(current):
        base.history = []
    elif base.history and not _is_good(current):
        base.history.append(current)
    else:
        base.history = [current]
        with _lock:
            _unsettled.add(base)


def _is_never_stored(version: Expr) -> bool:
    """Whether a version streams: it would never be settled, and what came before it held for good."""
    return version.op.kind not in _STORED and version.nbytes > SMALL and streams(version)


def _is_remembered(version: Expr) -> bool:
    return not evaluation.is_cluster(version.env) or config.get("errors") == "deferred"


def _is_good(version: Expr) -> bool:
    """Whether it is known that a version can be had."""
    if version.memo is None:
        return version.op.repeatable
    return evaluation.state_of(version) == "finished"


def forget_settled() -> None:
    """Let go of what came before versions that are good."""
    for base in _bases():
        if base.expr is None or _is_good(base.expr):
            base.history = []
            _unsettled.discard(base)


def still_needed(targets: Sequence[Expr]) -> list[Expr]:
    """Versions that a base may fall back to, and that an evaluation of `targets` must leave as they are.

    Those of a base whose current version is computed in it are not: blocks are only overwritten where nothing can fail.
    """
    bases = _bases()
    if not bases:
        return []
    here = {id(node) for node in postorder(targets)}
    return [version for base in bases if id(base.expr) not in here for version in base.history]


def restore(compute: Callable[[Expr], None], failed: Sequence[Expr] | None = None) -> None:
    """After a failure, take back the writes that it spoils.

    Parameters
    ----------
    compute
        Computes a version, and raises if that fails.
    failed
        Nodes whose evaluation failed. None: blocks turned out to have failed on a cluster.
    """
    bases = _bases()
    spoiled = {id(node) for node in postorder(failed or ()) if node.memo is None} if bases else set()
    for base in bases:
        version = base.expr
        if version is not None and (id(version) in spoiled or (failed is None and _has_failed(version))):
            _fall_back(base, compute)


def _bases() -> list[Base]:
    if not _unsettled:
        return []
    with _lock:
        return list(_unsettled)


def _has_failed(version: Expr) -> bool:
    return version.memo is not None and evaluation.state_of(version) == "failed"


def _fall_back(base: Base, compute: Callable[[Expr], None]) -> None:
    """Let the newest good version be the current one. Which is good is found by computing them.

    The current one is asked first: what failed may be what was to be made of it.
    """
    current = base.expr
    assert current is not None
    for version in (current, *reversed(base.history)):
        try:
            compute(version)
        except Exception:
            continue
        base.history = []
        _unsettled.discard(base)
        if version is not current:
            base.become(version)
        return
