"""What plans are made for: workers, the links between them, and what computing costs on them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from distarray.errors import ShardingError
from distarray.planner.eindecomp.eingraph import EinOp
from distarray.planner.rates import Location, Rates


@dataclass(frozen=True)
class Machine:
    """A Machine is the workers that a plan by time is made for, and the rates at which they work.

    Parameters
    ----------
    p
        Their number.
    rates
        What moving and computing cost.
    places
        (node, process) of each worker: between workers of one process nothing moves, those of one node have links of
        their own. None: every worker is on a node of its own.
    """

    p: int
    rates: Rates = field(default_factory=Rates)
    places: tuple[Location, ...] | None = None

    def __post_init__(self) -> None:
        if self.places is not None and len(self.places) != self.p:
            raise ShardingError(f"places of {len(self.places)} workers are given, and there are {self.p}")

    @cached_property
    def byte_seconds(self) -> Any:
        """Return the seconds per byte from one worker (row) to another; None if all links are alike."""
        if self.places is None:
            return None
        near, far = self.rates.byte_seconds
        return np.array([[0.0 if a == b else near if a[0] == b[0] else far for b in self.places] for a in self.places])

    @cached_property
    def mean_byte_seconds(self) -> float:
        """Return the seconds per byte into a worker, from any other one."""
        if self.byte_seconds is None or self.p == 1:
            return self.rates.byte_seconds[1]
        return float(self.byte_seconds.sum()) / (self.p * (self.p - 1))

    @cached_property
    def message_seconds(self) -> float:
        """Return the seconds of a message into a worker, from any other one: nothing from those in its process."""
        if self.places is None or self.p == 1:
            return self.rates.latency
        near = sum([n * (n - 1) for n in Counter(self.places).values()])
        return self.rates.latency * (1 - near / (self.p * (self.p - 1)))

    def kernel_seconds(self, op: EinOp, points: Any) -> Any:
        """Return the seconds of kernels with so many points of all loops."""
        return self.rates.flop_seconds(op.kernel_kind, points * op.point_flops, op.itemsize)
