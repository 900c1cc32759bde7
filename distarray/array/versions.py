"""Base is storage with versions, which are kept until they are known to be good: a write that fails is taken back.

A view and its base share one `Base`, which names the node of the current version. A write makes the next version, which
is computed later. Until that has worked, the base remembers the
versions before it, back to the last one that is known to be good. When an observation fails, the bases whose current
version it needed fall back to their newest good version: the observation raises once, and then all aliases see the
array as it was before the failed write. What was written after the failed write was built on it and goes with it.

On a cluster a version is only known to be good when its blocks are there, so the old ones would be kept for longer:
versions are remembered there with the option ``errors="deferred"`` alone. Otherwise what may fail is waited for at the
call. What members cannot hold is refused when it is observed: nothing has run then, and what is pending still refers to
the versions before.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, TypeAlias

import numpy as np

from distarray.array.environment import forced_parts
from distarray.deferral import errors_wait
from distarray.dtypes import CANONICAL
from distarray.errors import DeletedArrayError, MemoryBudgetError
from distarray.expr.expr import PUT, Environment, Expr, Scalar, Slot, postorder
from distarray.expr.lens import Affine, Lens
from distarray.expr.op import Op
from distarray.forks import free_in_child
from distarray.kernels.loans import is_handed_out
from distarray.runtime import observations, small
from distarray.runtime.memory import is_limit_set
from distarray.runtime.retention import streams
from distarray.types import DType, HostArray, Shape

#: Orders the writes of all threads: held while a base goes from one version to the next, a few instructions that take
#: no other lock and run nothing. A finalizer may write to an array at any allocation, hence reentrant.
lock = free_in_child(threading.RLock())
#: Bases with a version that may still fail.
_unsettled: weakref.WeakSet[Base] = weakref.WeakSet()
#: Of bases whose members may have too little memory the versions before the current one, as long as something pending
#: is made of them.
_before: weakref.WeakKeyDictionary[Base, list[weakref.ref[Expr]]] = weakref.WeakKeyDictionary()
#: Bases that somebody has asked for strides: where one of their elements lies from the others is what he goes by then.
laid_out: weakref.WeakSet[Base] = weakref.WeakSet()
#: Bytes of arrays that fit any memory limit.
SMALL = 1 << 20

#: Elements, or what computes them: into the memory that it is given, or a new block.
Written: TypeAlias = HostArray | Scalar | Callable[[HostArray | None], HostArray]

_new = object.__new__
#: Types that are kept of an environment.
MOST_TYPES = 4096


class BlockType:
    """A BlockType is the dtype and the shape of elements, and where they live; equal ones are one object as a rule, so
    that what depends on them is found by its identity.
    """

    __slots__ = ("dtype", "env", "shape")

    def __init__(self, dtype: DType, shape: Shape, env: Environment) -> None:
        self.dtype, self.shape, self.env = CANONICAL[dtype], shape, env


def block_type(dtype: DType, shape: Shape, env: Environment) -> BlockType:
    """Return the type of blocks of a dtype and a shape that live in an environment."""
    types = env.found.types
    found: BlockType | None = types.get(key := (dtype, shape))
    if found is None:
        if len(types) >= MOST_TYPES:
            types.clear()
        found = types[key] = BlockType(dtype, shape, env)
    return found


class Base:
    """Storage with versions: what views alias.

    A version that was computed at the call (`at_call`) is a block, and has no node until somebody asks for one: nobody
    else has it then, so that it may be written in place, and to make a node takes longer than the arithmetic.

    Attributes
    ----------
    block
        Elements of the current version while it has no node: C-ordered, in this process, and nobody else's. None while
        it is written, with `lock` held.
    slot
        Keeps the result of the node, if there is one: see `Expr.hold`.
    version
        Number of the current version; views compare it to know whether what they read is up to date.
    graphs
        What Dask was given of the current version, by the lens that it is seen through; None if nothing was.
    history
        Versions before a current one that may still fail, oldest first.
    order
        How the array that owns it sees it: ``()``, or through a permutation where numpy has it in no C order.
    """

    __slots__ = ("__weakref__", "_node", "_op", "_type", "block", "graphs", "history", "order", "slot", "version")

    _op: Op
    #: None where nobody asked since the current version has a node.
    _type: BlockType | None

    def __init__(self, expr: Expr, order: Lens = ()) -> None:
        self._node: Expr | None = expr
        self._type = None
        self.block: HostArray | None = None
        self.slot: Slot | None = expr.hold(by_base=True)
        self.version = 0
        self.graphs: dict[Lens, Any] | None = None
        self.history: Sequence[Expr] = ()
        self.order = order

    @property
    def expr(self) -> Expr | None:
        """Return the node of the current version; None after ``delete()``."""
        return self._node or self._with_node()

    def _with_node(self) -> Expr | None:
        with lock:  # which who writes it has
            block = self.block
            if self._node is None and block is not None:
                env = self.type.env
                node = Expr(self._op, (), block.shape, block.dtype, env)
                node.memo = small.stored(block, env)
                self.slot = node.hold(by_base=True)
                # In this order: who reads them without the lock finds one of the two.
                self._node = node
                self.block = None
            return self._node

    @property
    def current(self) -> Expr:
        """Return the node of the current version.

        Raises
        ------
        DeletedArrayError
            After ``delete()``.
        """
        node = self.expr
        if node is None:
            raise DeletedArrayError("the array was deleted by x.delete(), which is the last use of it and of its views")
        return node

    @property
    def shape(self) -> Shape:
        """Return the shape of all versions."""
        block = self.block
        return self.current.shape if block is None else block.shape

    @property
    def dtype(self) -> DType:
        """Return the dtype of all versions."""
        block = self.block
        dtype: DType = self.current.dtype if block is None else block.dtype
        return dtype

    @property
    def env(self) -> Environment:
        """Return where the current version lives."""
        return self.current.env if self.block is None else self.type.env

    @property
    def type(self) -> BlockType:
        """Return the dtype and shape of all versions, and where the current one lives."""
        found = self._type
        if found is None:
            with lock:
                node = self.current  # of a version without a node the type is known
                found = self._type = block_type(node.dtype, node.shape, node.env)
        return found

    @property
    def op(self) -> Op:
        """Return the operation that made the current version."""
        return self.current.op if self.block is None else self._op

    def found(self) -> HostArray | None:
        """Return the elements of the current version where they are one computed array in this process, which is not to
        be written; else None.
        """
        while (block := self.block) is None:
            node = self._node
            if node is None:
                with lock:
                    if self.block is None and self._node is None:
                        return None
                continue
            block = small.block_of(node)
            if self._node is node:
                break
        return block

    def ready(self, is_written: bool = False) -> HostArray | None:
        """Return what `found` does, for an operation at the call; what is small and made from nothing is made for it,
        and stays: to make it again each time takes longer than such operations do. What is written to has to be stored
        in any case.
        """
        block, node = self.found(), self._node
        if block is not None or node is None or forced_parts.get() is not None:
            return block
        if not (small.is_made_at_once(node) or (is_written and small.is_made_to_be_written(node))):
            return None
        made, warn = small.interpreter().computed([node], {})
        if warn.args[0]:
            return None  # the operation tells it
        with lock:
            if self._node is not node or self.history:
                return None
            _ = self.type  # which the node knows
            self._op, self.slot = node.op, None
            # In this order: who reads them without the lock finds one of the two.
            self.block = made
            self._node = None
        return made  # type: ignore[no-any-return]  # a module that is loaded late

    def write(
        self,
        lens: Affine | None,
        value: Written,
        since: int,
        is_alone: Callable[[Base, Expr | None], bool],
    ) -> bool:
        """Write computed elements, if the others are here, and few or to stay in their place, and this is still the
        version with the number `since`; return whether that was done.

        Parameters
        ----------
        lens
            Where they are written; None: everywhere, and `value` is, or makes, a block that nobody else has.
        is_alone
            Whether nobody else reads the elements of the version, given by its node if it has one, so that they may be
            written in place: `lifetime.is_alone`.
        """
        if self.block is None:
            self.ready(is_written=True)
        with lock:
            node = self._node
            if self.version != since or (node is not None and node.pin is not None):  # it lies as the user said
                return False
            block = made = self.found()
            if block is None:
                return False
            is_large = not small.is_eager(block.nbytes, self.env)
            if is_large and (self.env.is_cluster or lens is None or not (callable(value) or _is_brief(lens, self))):
                return False
            _ = self.type  # which the node knows
            is_handed = is_handed_out(block) and (node is None or node.memo is not None)
            if is_handed and not block.flags.c_contiguous:
                return False
            if lens is not None and lens.read_indices().broadcast is not None:
                return False
            # Who begins to read it now waits for the lock.
            self._node = self.block = None
            try:
                if lens is not None:
                    if not (is_handed or (block.flags.c_contiguous and is_alone(self, node))):
                        if is_large:
                            self._node, self.block = node, None if node is not None else block
                            return False
                        made = np.array(block, order="C")
                    _fill(lens.writable(made), value)
                elif is_handed or (callable(value) and block.flags.c_contiguous and is_alone(self, node)):
                    _fill(block, value)
                else:
                    made = np.asarray(value(None) if callable(value) else value, order="C")
            except BaseException:
                self._node, self.block = node, None if node is not None else block
                raise
            self.block = made
            self._settle(PUT)
        return True

    def write_element(
        self, at: int | tuple[int, ...], value: Any, is_alone: Callable[[Base, Expr | None], bool]
    ) -> bool:
        """Write a number at a position of a version without a node, and do else what `write` does."""
        with lock:
            block = self.block
            if (
                block is None
                or is_handed_out(block)
                or not small.is_eager(1, self.type.env)
                or not is_alone(self, None)
            ):
                return False
            try:
                block[at] = value
            except IndexError:
                return False
            self._settle(PUT)
        return True

    def touch(self, since: Expr) -> bool:
        """Note that elements of a version are written that is to stay the current one: who has read it reads it anew;
        False, and nothing happens, if another one has come.
        """
        with lock:
            if self._node is not since:
                return False
            self._changed()
        return True

    def replace(self, since: Expr, number: int, block: HostArray, op: Op) -> bool:
        """Let computed elements be the version after `since`, as `advance` does."""
        with lock:
            if self._node is not since or self.version != number:
                return False
            _ = self.type  # which the node knows
            self.block, self._node = block, None
            self._settle(op)
        return True

    def _settle(self, op: Op) -> None:
        self._op = op
        self.slot = None
        self._changed()
        if self.history or _before:
            forget(self)

    def _changed(self) -> None:
        """Give the current version, or its elements, a number of their own."""
        self.version += 1
        self.graphs = None

    def advance(self, since: Expr, number: int, expr: Expr, slot: Slot) -> bool:
        """Let `expr` be the version after `since`; False, and nothing happens, if another one came in between.

        A write of any thread is made from a version. It counts only as the next one of that version, else it is made
        again from the newest one, so that no write is lost and none counts twice.

        Parameters
        ----------
        number
            Of the version, read before `since` was: elements that are written where they are change it, and not the
            node.
        slot
            Of `expr`: its writer held it, and listed the node as pending, before anybody could see it.
        """
        may_fail = is_remembered(since, expr)
        with lock:
            if self._node is not since or self.version != number:
                return False
            remember(self, may_fail)
            self._become(expr, slot)
        return True

    def restore(self, since: Expr, expr: Expr) -> bool:
        """Let an earlier version, or the same elements elsewhere, take the place of `since` where that is current."""
        slot = None if expr is since else expr.hold(by_base=True)
        with lock:
            if self._node is not since:
                return False
            forget(self)
            if slot is not None:
                self._become(expr, slot)
        return True

    def _become(self, expr: Expr, slot: Slot) -> None:
        self._node, self._type, self.block = expr, None, None
        self.slot = slot
        self._changed()

    def drop(self) -> None:
        """Forget the storage: every later use raises."""
        with lock:
            self._node = self.block = None
            self.slot = None
            self.history = ()
            self._changed()


def is_remembered(current: Expr, following: Expr) -> bool:
    """Return whether a version has to be remembered when `following` replaces it, which may fail then."""
    return not (
        following.memo is not None
        or following.op.repeatable
        or (current.memo is None and _is_never_stored(following))  # what is as large as what lies here can lie here
        or (current.env.team is not None and current.env.is_cluster and not errors_wait())
    )


def remember(base: Base, is_remembered: bool) -> None:
    """Note the current version of `base`, which is about to be replaced; with `lock` held."""
    current = base.expr
    assert current is not None
    if not is_remembered:
        base.history = ()
        if current.env.is_cluster or is_limit_set(current.env):
            known = _before.setdefault(base, [])
            if current.memo is not None:
                known.clear()
            known.append(weakref.ref(current))
    elif base.history and not _is_good(current):
        # Another list: who reads the history does so without the lock.
        base.history = [*base.history, current]
    else:
        base.history = [current]
        _unsettled.add(base)


def _fill(memory: HostArray, value: Written) -> None:
    """Write elements to memory, or have them computed there."""
    if callable(value):
        value(memory)
    else:
        memory[...] = value


def _is_brief(lens: Affine, base: Base) -> bool:
    """Return whether what is written of a large base is itself no large array."""
    return small.is_eager(prod(lens.shape) * base.type.dtype.itemsize, base.type.env)


def forget(base: Base) -> None:
    """Let go of what came before the current version of `base`, which is good; with `lock` held."""
    base.history = ()
    _unsettled.discard(base)
    _before.pop(base, None)


def _is_never_stored(version: Expr) -> bool:
    """Return whether a version streams: it would never be settled, and what came before it held for good."""
    return not version.op.family.is_created and version.nbytes > SMALL and streams(version)


def _is_good(version: Expr) -> bool:
    """Return whether it is known that a version can be had."""
    if version.memo is None:
        return version.op.repeatable
    return observations.state_of(version) == "finished"


def _has_failed(node: Expr) -> bool:
    """Return whether blocks of a node, which is evaluated, turned out to have failed."""
    return node.memo is not None and observations.state_of(node) == "failed"


def forget_settled() -> None:
    """Let go of what came before versions that are good: current ones, and those to fall back to."""
    if _before:
        with lock:
            for base in [b for b in _before if b.expr is None or b.expr.memo is not None]:
                del _before[base]
    for base in _bases():
        with lock:
            if base.expr is None or _is_good(base.expr):
                forget(base)
            elif n_before := max([k for k, version in enumerate(base.history) if _is_good(version)], default=0):
                base.history = base.history[n_before:]


def still_needed(targets: Sequence[Expr]) -> list[Expr]:
    """Return versions that a base may fall back to, and that an evaluation of `targets` must leave as they are.

    Those of a base whose current version is computed in it are not: blocks are only overwritten where nothing can fail.
    """
    bases = _bases()
    if not bases:
        return []
    here = {id(node) for node in postorder(targets)}
    return [version for base in bases if id(base.expr) not in here for version in base.history]


def restore(
    compute: Callable[[Expr], None], failed: Sequence[Expr] | None = None, error: Exception | None = None
) -> None:
    """After a failure, take back the writes that it spoils.

    Parameters
    ----------
    compute
        Computes a version, and raises if that fails.
    failed
        Nodes whose evaluation failed. None: blocks turned out to have failed on a cluster.
    error
        What it failed with.
    """
    bases = _bases()
    if not bases and not _before:
        return
    is_refused = isinstance(error, MemoryBudgetError)
    spoiled = {id(node) for node in postorder(failed or ()) if node.memo is None}
    for base in bases:
        version = base.expr
        if version is None:
            continue
        if id(version) in spoiled or (failed is None and any(map(_has_failed, postorder([version])))):
            _fall_back(base, compute, is_refused=is_refused)
    if is_refused:
        assert error is not None
        with lock:
            written = list(_before.items())
        for base, before in written:
            # What is read of a version may be made of the versions before it.
            if base.expr is None or spoiled.isdisjoint(map(id, postorder([base.expr]))):
                continue
            if _fall_back_to_pending(base, before, compute):
                error.add_note("an array is as it was before the writes that do not fit")


def _bases() -> list[Base]:
    if not _unsettled:
        return []
    with lock:
        return list(_unsettled)


def _fall_back_to_pending(base: Base, before: Sequence[weakref.ref[Expr]], compute: Callable[[Expr], None]) -> bool:
    """Let the newest version that members can hold be the current one; return whether it is another one.

    The current one is asked first: what was refused may be what was to be made of it. Of the others what is written
    later needs more, so they are searched by halves.
    """
    current = base.expr
    assert current is not None
    chain = [*[version for ref in list(before) if (version := ref()) is not None], current]
    good, n_good, n_left, asked = None, 0, len(chain), len(chain) - 1
    while n_good < n_left:
        if _can_be_had(chain[asked], compute, is_refused=True):
            good, n_good = chain[asked], asked + 1
        else:
            n_left = asked
        asked = (n_good + n_left) // 2
    return good is not None and good is not current and base.restore(current, good)


def _can_be_had(version: Expr, compute: Callable[[Expr], None], *, is_refused: bool) -> bool:
    """Return whether a version can be had, which is computed to see that where it is not known.

    Where a write was refused for want of memory, what waits for no write is as it was before all of them, and can be
    read as it could then: in parts, where it is larger than all memory.
    """
    if _is_good(version):
        return True
    if is_refused and not any(node.memo is None and node.op.family.is_write for node in postorder([version])):
        return True
    try:
        compute(version)
    except Exception:
        return False
    return True


def _fall_back(base: Base, compute: Callable[[Expr], None], *, is_refused: bool) -> None:
    """Let the newest good version be the current one. Which is good is found by computing them.

    The current one is asked first: what failed may be what was to be made of it.
    """
    while (current := base.expr) is not None:
        for version in (current, *reversed(base.history)):
            if not _can_be_had(version, compute, is_refused=is_refused):
                continue
            if base.restore(current, version):
                return
            break  # another thread has written on: what it wrote may be good
        else:
            return
