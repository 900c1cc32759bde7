"""Machine: what lowering is told of where its tasks will run. It asks nobody."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Machine"]


@dataclass(frozen=True, slots=True)
class Machine:
    """The members that tasks are made for.

    Parameters
    ----------
    is_cluster
        Whether they are workers of a cluster, between which blocks travel as messages; else threads of one process.
    memory
        Byte budget of a member.
    large
        Bytes on a member from which on what passes through it comes in turns.
    """

    is_cluster: bool
    memory: int
    large: int
