"""DLPack: other libraries take an array of ours without a copy.

A capsule describes one block of memory. An array that is cut over the members of a team has none, and is not brought
together for the asking (``x.compute()`` is the way to ask). Tiles of one member are another matter: how a member
arranges its shard is for us to say, so those of a small array are joined to one block, which is its storage from then
on. What is exported is therefore always the memory of the array itself, and ``copy=False`` holds.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from distarray.array import window
from distarray.array.handle import Handle
from distarray.array.lifetime import own_storage
from distarray.array.versions import Base
from distarray.expr.expr import Stored, source
from distarray.expr.lens import Lens, get
from distarray.kernels.backends import transport
from distarray.kernels.loans import is_memory, lend
from distarray.runtime import observations, reading
from distarray.sharding.mesh import is_wave
from distarray.types import HostArray


def dlpack(
    x: Handle, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
) -> Any:
    """Return the capsule of an array that is one shard, in this process.

    Writing to the memory of a capsule is writing to `x` and to every alias of it; what is pending is computed first.
    As with ``x.local(member)``, later writes to `x` do not reach a capsule.

    Parameters
    ----------
    copy
        None: a copy only of what is read-only, and of parts of an array that has several blocks. False: never. True:
        the consumer owns the memory.

    Raises
    ------
    BufferError
        If the array is cut over several members, if its one member keeps it in several tiles and it has more than
        64 KiB, if it lies in another process, or if ``copy=False`` and a copy cannot be avoided.
    """
    with transport():
        block = lend(_block(x, copy), writeable=True, stays=True)
        options = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        return block.__dlpack__(**{key: value for key, value in options.items() if value is not None})


def dlpack_device(x: Handle) -> tuple[int, int]:
    """Return DLPack's device: (1, 0) is this host's memory, (2, i) a GPU."""
    if x.device.startswith("cuda"):
        kind, number = _block(x, None).__dlpack_device__()
        return int(kind), int(number)
    return 1, 0


def _block(x: Handle, copy: bool | None) -> Any:
    """Return the elements of `x` as one array of the backend: the memory of its base, as far as `copy` allows."""
    window.flush()
    whole = _whole_block(x._base, x._lens)
    if whole is None and x._lens and copy is not False:
        # A part of an array in several blocks may be one block by itself.
        block = _whole_block(Base(x.__dx_node__()))
    else:
        block = None if whole is None else get(x._lens, whole)
    if block is None:
        raise BufferError(
            "an array of several blocks, or of another process, cannot be exported as one block: export "
            f"x.local(member), or x.compute() for a copy in this process, not {x!r}"
        )
    if copy is False and not is_memory(block, whole):
        raise BufferError("a reshaped view of a block of another layout cannot be exported without a copy")
    return _guarded(block, copy) if x._readonly and isinstance(block, np.ndarray) else block


def _guarded(block: HostArray, copy: bool | None) -> HostArray:
    """Return a block that is not to be written: a copy, as consumers of old versions cannot be told, or marked as
    such.
    """
    if copy is None:
        return block.copy()
    block = block.view()
    block.flags.writeable = False
    return block


def _whole_block(base: Base, lens: Lens = ()) -> Any:
    """Return the one block of a base in this process, or None."""
    # Large host data are cut over a team at their first use; one that asks for them in one block is no such use.
    version = own_storage(base, lens, placed=base.current.pin is not None)
    number = base.version
    memo = version.stored
    is_elsewhere = version.env.is_cluster and not memo.on_client
    if len(memo.blocks) == 1 and not is_elsewhere:
        return memo.blocks[0]
    if version.env.device != "cpu" or version.nbytes > reading.STAYS_NBYTES or _n_shards(memo) > 1:
        return None
    joined = source(observations.fetch(version), version.env)
    if not base.advance(version, number, joined, joined.hold(by_base=True)):
        return _whole_block(base, lens)  # another thread has written
    joined.stored.exported = False
    return joined.stored.blocks[0]


def _n_shards(memo: Stored) -> int:
    """Return the parts of the array on different members: tiles, but for those that are waves of one member."""
    names = [name for axes in memo.sharding.axes for name in axes if not is_wave(name)]
    return prod(map(memo.sharding.mesh.axis_size, names))
