"""The end of storage, and storage of one's own: ``delete()``, and blocks that are handed out to be written."""

from __future__ import annotations

import numpy as np

from distarray.array import elements, window
from distarray.array.access import copied
from distarray.array.handle import Handle
from distarray.array.outside import is_handed_out
from distarray.array.versions import Base, laid_out
from distarray.expr.expr import Expr, Stored, postorder
from distarray.expr.lens import Lens, Reshape, get
from distarray.kernels import loans
from distarray.kernels.loans import is_ours, lend
from distarray.types import HostArray


def _is_shared(base: Base) -> bool:
    """Return whether the version of `base` is another base's version too: copies share until one of them is written."""
    # Also where the other base is gone by now: nobody counts those that end.
    return base.slot is not None and base.slot.n_bases > 1


def delete(base: Base) -> None:
    """Free the blocks of `base` that no other array has; what is pending is computed first, since it may read them."""
    _ = base.current  # raises if it was deleted before
    window.flush()
    # Who still refers to the version reads it: another array, or an operation that another thread is about to define.
    base.drop()


def _is_read(version: Expr) -> bool:
    """Return whether what is pending in any thread may read a version: what was defined before it is written reads it
    then.
    """
    needed = window.pending_beside(())()
    return needed is None or any(node is version for node in postorder(needed))


def own_storage(base: Base, lens: Lens, *, placed: bool = True) -> Expr:
    """Return the version of `base`, computed, with blocks that no other version shares; so they may be handed out.

    Parameters
    ----------
    lens
        Of the view that is to be handed out: where nobody asked for another layout, the blocks get one that it sees.
    placed
        Whether host data go to the members that are to hold their parts.
    """
    while True:
        number = base.version
        version = base.current
        window.observe((version,))
        if placed:
            from distarray.runtime import hosts

            hosts.place(version)
        memo = version.stored
        if version.env.is_cluster and not memo.on_client:
            return version
        memo.is_given_up = True  # before others are asked what they read
        if is_handed_out(version):
            _part(memo)
            if base.touch(version):
                return version
            continue
        is_seen = version.pin is not None or not any(type(link) is Reshape for link in lens)
        is_seen = is_seen or all(not isinstance(b, np.ndarray) or b.flags.c_contiguous for b in memo.blocks)
        is_own = not _is_shared(base) and not _are_borrowed(memo) and all(map(loans.is_parted, memo.blocks))
        if is_seen and is_own and not _is_read(version) and base.touch(version):
            return version
        fresh = copied(version, in_c_order=not is_seen)
        if base.advance(version, number, fresh, fresh.hold(by_base=True)):
            return fresh


def _part(memo: Stored) -> None:
    """Copy the blocks that another array has too, but those that were handed out: these stay where they are."""
    parted = {k for k in memo.shared if not loans.is_handed_out(memo.blocks[k])}
    if parted:
        memo.blocks = [block.copy(order="K") if k in parted else block for k, block in enumerate(memo.blocks)]
        memo.shared -= parted


def is_alone(base: Base, version: Expr | None) -> bool:
    """Return whether nobody else has the elements of a base's version, or reads them now: they may be written in place.

    Parameters
    ----------
    version
        The node of the version, None where it has none: who begins to read it meanwhile waits (`Base.write`).
    """
    if version is None:
        return not window.is_read_beside()
    memo = version.memo
    if memo is None or memo.exported or _is_shared(base) or _are_borrowed(memo) or not all(map(is_ours, memo.blocks)):
        return False
    memo.is_given_up = True  # before others are asked what they read
    return not _is_read(version)


def own_memory(x: Handle) -> HostArray | None:
    """Return the memory of an array, to be read and written by anybody, as numpy's own arrays are; None where it is not
    one block of this process.

    A view of a part of what is pending has none yet, unless somebody has asked for strides: all of its base may be much
    more than was asked for. An array of a cluster has none, whether or not a copy of it has stayed here.
    """
    window.be_known()
    version = x._base.current
    if x._readonly or version.env.is_cluster or version.env.device != "cpu":
        return None
    if version.memo is None and not x._is_whole and x._base not in laid_out:
        return None
    if version.memo is None and version.nbytes > elements.FETCHED:
        elements.check_room(version)  # for a copy too, which several blocks need
    window.observe((version,))
    # Of several blocks nothing is to be had, and nothing to be copied for it.
    is_one = version.memo is not None and len(version.memo.blocks) == 1
    memo = own_storage(x._base, x._lens, placed=version.pin is not None).memo if is_one else None
    if memo is None or len(memo.blocks) != 1:
        return None
    seen = get(x._lens, memo.blocks[0])
    return lend(seen, writeable=True, stays=True) if loans.is_memory(seen, memo.blocks[0]) else None


def _are_borrowed(memo: Stored) -> bool:
    """Return whether a block is another array's too, or read-only memory that the user gave."""
    return bool(memo.shared) or any(isinstance(b, np.ndarray) and not b.flags.writeable for b in memo.blocks)
