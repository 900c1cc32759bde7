"""Loans: what somebody outside sees of a block, and whether a block is ours to write.

Blocks are written in place where nobody can notice. Who has a block is known, never guessed from reference counts,
which differ between versions of Python:

* a `Stored` says whether our own kernels made its blocks (`exported` is false), and which of them another `Stored` has
  too (`shared`);
* every door through which a block leaves to code that is not ours is `lend`: what it gives has a loan as its base, and
  so has every view, memoryview or DLPack capsule made of it. The block is ours again when the last of them is gone;
  until then what is written to the array is written elsewhere, or there, if it was given as the memory of the array;
* memory of another library that an array is made of without a copy is `foreign_memory`: its owner may write it;
* a block that came in, from a user's function or from another library, is a view of what came in: its memory is
  another array's, which somebody may have kept.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from distarray.forks import free_in_child
from distarray.kernels.buffers import POOL, SMALLEST, Lease
from distarray.kernels.slices import copy_by_threads
from distarray.types import HostArray, Shape


class _Loan:
    """A _Loan lives as long as somebody outside can reach the memory of a block."""

    __slots__ = ("__weakref__", "block", "is_handed_out", "is_writeable")

    def __init__(self, block: HostArray) -> None:
        self.block = block  # keeps its memory, and its ``id``
        self.is_writeable = False
        self.is_handed_out = False


class _Sight:
    """A _Sight is the base of a lent array: an object with an ``__array_interface__`` becomes the base of all views."""

    __slots__ = ("__array_interface__", "loan")

    def __init__(self, interface: dict[str, Any], loan: _Loan) -> None:
        self.__array_interface__ = interface
        self.loan = loan


#: The loans of now, by the ``id`` of their block.
_loans: dict[int, weakref.ref[_Loan]] = {}
#: Arrays on the memory of others, by their ``id``.
_foreign: dict[int, weakref.ref[HostArray]] = {}
#: Whether a kernel has begun to write blocks, by their ``id``, of those that are watched.
_watched: dict[int, bool] = {}
#: Reentrant: a finalizer may lend too.
_lock = free_in_child(threading.RLock())


def lend(block: Any, *, writeable: bool = False, stays: bool = False) -> Any:
    """Return the elements of a block, or of a part of one, for code that is not ours: while it lives, we do not write
    them, unless they stay the array's.

    Arrays of other backends are given as they are: we never write them in place.

    Parameters
    ----------
    writeable
        Whether they may be written there. What is read-only stays so.
    stays
        Whether what is written to the array later is to be seen there, as with numpy's own arrays.
    """
    if not isinstance(block, np.ndarray):
        return block
    if not stays and is_handed_out(block):
        block = block.copy()  # the array is written there, and what is only shown does not change
    root = owner(block)
    with _lock:
        loan = _loan_of(root)
        if loan is None:
            loan = _Loan(root)
            _loans[id(root)] = weakref.ref(loan, _ended(id(root)))
        loan.is_writeable |= writeable
        loan.is_handed_out |= stays
    interface = dict(block.__array_interface__)
    interface["data"] = (interface["data"][0], not (writeable and block.flags.writeable))
    return np.asarray(_Sight(interface, loan))


def _ended(number: int) -> Any:
    def end(reference: weakref.ref[_Loan]) -> None:
        # Called while the block still lives, so no other block has its number; but another loan may have begun.
        with _lock:
            if _loans.get(number) is reference:
                del _loans[number]

    return end


def foreign_memory(block: HostArray) -> None:
    """Note that somebody else has the memory of an array for as long as it lives, and may write it at any time."""
    root = owner(block)
    number = id(root)
    _foreign[number] = weakref.ref(root, lambda _: _foreign.pop(number, None))


def is_any_outside() -> bool:
    """Return whether there may be a block of which somebody outside sees the memory: cheap, and mostly false."""
    return bool(_loans or _foreign)


def owner(array: HostArray) -> HostArray:
    """Return the array whose memory an array is a view of; itself if its memory is its own."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _loan_of(block: HostArray) -> _Loan | None:
    """Return the loan of the memory of a block, if somebody outside sees it."""
    known = _loans.get(id(owner(block)))
    return None if known is None else known()


def is_lent(block: HostArray, *, to_write: bool = False) -> bool:
    """Return whether somebody outside sees the memory of a block now; `to_write`: and may write it."""
    if not _loans and not _foreign:
        return False
    if id(owner(block)) in _foreign:
        return True
    loan = _loan_of(block)
    return loan is not None and (loan.is_writeable or not to_write)


def is_handed_out(block: Any) -> bool:
    """Return whether somebody outside has the memory of a block that stays the array's: what is written to the array is
    written there, as to an array of numpy's.
    """
    loan = _loan_of(block) if _loans and isinstance(block, np.ndarray) else None
    return loan is not None and loan.is_handed_out


def is_ours(block: Any) -> bool:
    """Return whether a block that the caller alone has may be written: nobody outside sees its memory, which is its
    own.
    """
    if type(block) is not np.ndarray:
        return False
    base: Any = block.base  # numpy's types do not know that it may be anything
    return (base is None or isinstance(base, Lease)) and block.flags.writeable and not is_lent(block)


def may_overwrite(block: Any) -> bool:
    """Return whether a kernel may write a block that nothing else reads, which it begins now if so: see `is_ours`."""
    if not is_ours(block):
        return False
    if id(block) in _watched:
        _watched[id(block)] = True
    return True


def watch(blocks: Iterable[Any]) -> None:
    """Have it noted which blocks are written, until somebody asks (`were_overwritten`)."""
    _watched.update(dict.fromkeys(map(id, blocks), False))


def were_overwritten(blocks: Iterable[Any]) -> bool:
    """Return whether some blocks that were watched were written; they are watched no more."""
    return True in [_watched.pop(id(block), False) for block in blocks]


def copied(block: HostArray) -> HostArray:
    """Return a copy in C order, in memory that is recycled where it is large."""
    if block.nbytes < SMALLEST or block.dtype.hasobject:
        return np.array(block, order="C")
    out = POOL.take(block.shape, block.dtype)
    copy_by_threads(block, out)
    return out


def owned(value: Any, blocks: Sequence[HostArray], *, is_own: bool = False, is_only: bool = False) -> HostArray:
    """Return what was made of blocks in C order, in memory that nobody else has.

    Parameters
    ----------
    is_own
        Whether it always is.
    is_only
        Whether nothing else that was made with it is kept.
    """
    if type(value) is not np.ndarray or not value.flags.c_contiguous:
        return copied(np.asarray(value))
    if is_own or (is_ours(value) and all(value is not block for block in blocks)):
        return value
    alone = _alone(value, blocks) if is_only else None
    return copied(value) if alone is None else alone


def _alone(value: HostArray, blocks: Sequence[HostArray]) -> HostArray | None:
    """Return what sees all of the memory of a new array, its axes in another order, as an array of its own (`is_ours`),
    which a view is not; None of anything else.
    """
    made: Any = owner(value)
    lease = made.base
    if not isinstance(lease, Lease) or made.nbytes != value.nbytes or not (is_ours(made) and value.flags.writeable):
        return None  # constants of a program are read-only
    others: list[Any] = [owner(block).base for block in blocks]
    if any(other is lease for other in others):
        return None  # what was there before
    buffer: Any = lease  # numpy's types do not know that it may be anything
    return np.ndarray(value.shape, value.dtype, buffer)


def reshaped(xp: Any, block: Any, shape: Shape) -> Any:  # of any backend
    """Return new memory with another shape: where it can be, as an array that is `is_ours` as it was, which the view is
    not that ``reshape`` makes.
    """
    if type(block) is not np.ndarray:
        return xp.reshape(block, shape)
    lease: Any = block.base  # numpy's types do not know that it may be anything
    if isinstance(lease, Lease) and block.flags.c_contiguous:
        buffer: Any = lease
        return np.ndarray(shape, block.dtype, buffer)
    return block.reshape(shape).copy() if block.nbytes < SMALLEST else block.reshape(shape)


def is_memory(seen: Any, block: Any) -> bool:
    """Return whether what a lens gave of a block is the block's memory, not a copy; of no elements it is both."""
    return not isinstance(seen, np.ndarray) or not seen.size or np.may_share_memory(seen, block)


def is_parted(block: Any) -> bool:
    """Return whether the memory of a block may be handed out as an array's: nobody else has it, but who gave it without
    a copy.
    """
    return not isinstance(block, np.ndarray) or is_ours(block) or id(owner(block)) in _foreign


def foreign(block: Any) -> Any:
    """Return a block that came from code that is not ours and may have kept it: as a view, which is never written in
    place.
    """
    return block.view() if isinstance(block, np.ndarray) else block
