"""How a block travels between processes when its axis order must survive, and which keys on a cluster are ours.

distributed sends C- and F-contiguous arrays without a copy and as they are; any other array it copies to C order. So a
block whose axes are permuted travels as its C-contiguous transpose beside the axis order, and nothing is copied.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

#: Host blocks up to this size travel inside the graph: one message, and dask can make them again at any time.
EMBED_NBYTES = 64 * 1024
#: The memory of a worker by what is little there: at most that is kept under one key, or is there twice when it comes.
SMALL_PARTS = 32
#: What the names of the tasks of member programs begin with, and those of the programs that workers have as data. What
#: follows the colon and comes before the first dash is how Dask's dashboard calls the task.
PROGRAM = "dx:"
TEMPLATE = "dx-template-"
#: What the names of all our tasks and data begin with.
PREFIXES = ("dx-", PROGRAM)
#: Topic under which the scheduler announces who serves whom.
TOPIC = "distarray-placement"
#: Name of the workers' plugin.
PLUGIN = "distarray-cut"


#: A block as it travels, and the axes that it was transposed by (None: it travels as it is).
Packed: TypeAlias = tuple[Any, tuple[int, ...] | None]


def is_ours(key: Any) -> bool:
    """Return whether a key on a cluster is that of a task or of data of ours.

    >>> is_ours(("dx-add-1", 0, 3)), is_ours(("sum-aggregate", 0)), is_ours(("dx:sum@a.py:3-1", 0))
    (True, False, True)
    """
    name = key[0] if isinstance(key, tuple) and key else key
    return isinstance(name, str) and name.startswith(PREFIXES)


def is_program(key: Any) -> bool:
    """Return whether a key is that of a member program: what it returns are blocks that have keys of their own."""
    return isinstance(key, tuple) and isinstance(key[0], str) and key[0].startswith(PROGRAM)


def pack(block: Any) -> Packed:
    """Return a block as it travels: as a view of its memory, never a copy.

    Examples
    --------
    >>> import numpy as np
    >>> block = np.zeros((2, 3, 4)).transpose(1, 0, 2)
    >>> sent, axes = pack(block)
    >>> sent.flags.c_contiguous, np.shares_memory(sent, block), unpack((sent, axes)).strides == block.strides
    (True, True, True)
    """
    if not isinstance(block, np.ndarray) or block.flags.forc:
        return block, None
    axes = tuple(sorted(range(block.ndim), key=lambda axis: -block.strides[axis]))
    turned = block.transpose(axes)
    return (turned, axes) if turned.flags.c_contiguous else (block, None)


def unpack(packed: Packed) -> Any:
    """Return the block that `pack` was given, with its strides."""
    block, axes = packed
    if axes is None:
        return block
    back = [0] * len(axes)
    for position, axis in enumerate(axes):
        back[axis] = position
    return block.transpose(back)
