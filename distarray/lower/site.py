"""Site: what lowering is told of where its tasks will run. It asks nobody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from distarray.planner.plan import UNBOUNDED
from distarray.planner.rates import Rates


@dataclass(frozen=True, slots=True)
class Site:
    """A Site describes the members that tasks are made for, so that lowering asks no runtime.

    Parameters
    ----------
    is_cluster
        Whether they are workers of a cluster, between which blocks travel as messages; else threads of one process.
    memory
        Byte budget of a member.
    large
        Bytes on a member from which on what passes through it comes in turns.
    rates
        What moving and computing cost there.
    n_threads
        Threads that a member of a cluster has for its tiles, or a process for those of all its members.
    overlap
        Whether tiles may be split in core and border, so that transfers run beside work: on a cluster where the rates
        predict a gain, never, or always.
    n_templates
        How many templates are remembered.
    bundle
        Bytes of blocks that are kept under one key at most: they go to disk together, and come back together.
    """

    is_cluster: bool
    memory: int
    large: int
    rates: Rates
    n_threads: int = 1
    overlap: bool | Literal["always"] = True
    n_templates: int = 512
    bundle: int = UNBOUNDED
