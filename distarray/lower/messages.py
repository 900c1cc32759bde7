"""Messages: the one way in which elements go from one member to another, whoever needs them.

A block that is needed whole, and a partial result, travel as they are. Boxes of blocks travel in packs: all that a
member needs of another at a time is one task and one message, however many blocks it is of. What is sent is counted
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from distarray.kernels import tasks
from distarray.planner.redistribution import PIECE_LIMIT

Key: TypeAlias = tuple[Any, ...]  # what Dask takes as a key
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Transfer:
    """A Transfer is one message: what a member sends to another in one go.

    Parameters
    ----------
    source, destination
        Ranks.
    rows
        Indices along the first axis of the array of which elements are sent, each counted once.
    nbytes
        Of all that is sent.
    stage
        Number of the stage that reads it first.
    """

    source: int
    destination: int
    rows: int
    nbytes: int
    stage: int = -1


class Messages:
    """Messages are all that one lowering sends between members; what they cost is counted.

    Parameters
    ----------
    emit
        ``emit(name, function, args, member, waits) -> key`` adds a task.
    device
        Of all members.
    """

    def __init__(self, emit: Callable[..., Key], device: str) -> None:
        self._emit = emit
        self._device = device
        self.transfers: list[Transfer] = []
        self.packed_bytes = 0
        #: Number of the stage that a pass has come to.
        self.stage = -1
        self._carried: set[tuple[Any, int]] = set()

    def carry(self, ref: Any, source: int, member: int, rows: int, nbytes: int) -> None:
        """Count the message that brings a block or a partial result to another member as it is: once for each."""
        if source != member and (key_of(ref), member) not in self._carried:
            self._carried.add((key_of(ref), member))
            self.transfers.append(Transfer(source, member, rows, nbytes, self.stage))

    def pack(
        self,
        boxes: Sequence[tuple[Any, tuple[Any, ...]]],
        source: int,
        member: int,
        rows: int,
        nbytes: int,
        waits: Sequence[Key] = (),
    ) -> Key:
        """Return the task that copies boxes of blocks of one member for another, and count its message.

        Parameters
        ----------
        boxes
            Blocks, and what is taken of each: slices.
        rows, nbytes
            Of all boxes together.
        waits
            Tasks of the sender that come before it.
        """
        refs = [ref for ref, _ in boxes]
        key = self._emit("pack", tasks.pack, (tuple([b for _, b in boxes]), self._device, source, *refs), source, waits)
        self.packed_bytes += nbytes
        if source != member:
            self.transfers.append(Transfer(source, member, rows, nbytes, self.stage))
        return key


def in_packs(items: Iterable[tuple[T, int]]) -> list[list[T]]:
    """Return items with their bytes in the groups in which they travel: in order, of `PIECE_LIMIT` bytes at most."""
    packs: list[list[T]] = []
    room = -1
    for item, nbytes in items:
        if not packs or nbytes > room:
            packs.append([])
            room = PIECE_LIMIT
        packs[-1].append(item)
        room -= nbytes
    return packs


def key_of(ref: Any) -> Any:
    """Return a hashable name of a reference: keys are themselves, arrays their address."""
    return ref if isinstance(ref, tuple) else id(ref)
