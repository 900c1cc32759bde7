"""What moving and computing cost: the rates of the model, and the one decision on tasks that they make.

The defaults are those of workers on one ordinary network; the option ``calibration`` overrides them by name.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from distarray.lazy import options

#: A transfer is worth hiding if that saves this share of the time in which its tile is computed.
WORTHWHILE = 0.05
#: Bytes of the elements for which rates of computing are given; others are faster or slower in proportion.
ITEMSIZE = 8

#: What a kernel does: a product of matrices that BLAS computes, another join that is aggregated, or elements alone.
KernelKind: TypeAlias = Literal["gemm", "join", "map"]
#: Node and process of a member: anything that tells them apart.
Location: TypeAlias = tuple[Hashable, Hashable]
#: (operations of one kernel, operations per second), in ascending order: large blocks are computed faster.
RateTable: TypeAlias = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates are what moving and computing cost on the members of a team.

    Rates of computing are those of one member when it runs one kernel, with all threads that the kernel uses, and are
    measured with float64. A table is interpolated over the logarithm of the operations of a kernel and constant beyond
    its ends; a number stands for a table with this one rate. All rates hold while the other members do the same. How
    much faster a member is while they do nothing is said by ``compute_own`` and the like: from 1, no faster, as members
    with cores and links of their own, to 0 where they share all there is, as many times as there are members.

    Parameters
    ----------
    latency
        Seconds per message: what a block of no size takes from one member to another.
    bandwidth
        Bytes per second into a member from a member on another node. Zero: unknown, moving costs nothing.
    compute
        Elementwise operations per second of a member: one function of one element, and reductions of one array.
    task
        Seconds per task, whichever member runs it: one scheduler hands them all out, one after the other.
    exchange
        Seconds from the end of a step to the begin of one at another member that reads what it made, beside bytes: a
        message between member programs.
    step
        Seconds per step of a member program, beside what its kernel takes.
    node_bandwidth
        Bytes per second into a member from another process on its node; None: as `bandwidth`. Between members of one
        process nothing is moved.
    gemm
        Floating point operations per second of a product of matrices, two for each scalar product, by their number.
    generic
        The same for other joins that are aggregated, such as ``max`` of ``|x - y|``, and for products that have no two
        free dimensions (a matrix times a vector).
    compute_own, gemm_own, generic_own, bandwidth_own
        The part of it that is a member's own (`busy_seconds`).
    """

    latency: float = 4e-4
    bandwidth: float = 1e9
    compute: float = 1e9
    task: float = 2e-4
    exchange: float = 1e-3
    step: float = 5e-5
    node_bandwidth: float | None = None
    gemm: RateTable | float = ((1e4, 5e8), (1e6, 6e9), (1e8, 2.5e10))
    generic: RateTable | float = 1e9
    compute_own: float = 1.0
    gemm_own: float = 1.0
    generic_own: float = 1.0
    bandwidth_own: float = 0.25

    @property
    def byte_seconds(self) -> tuple[float, float]:
        """Return the seconds per byte between processes of one node, and between nodes; zero where it is unknown."""
        near = self.bandwidth if self.node_bandwidth is None else self.node_bandwidth
        return 1 / near if near else 0.0, 1 / self.bandwidth if self.bandwidth else 0.0

    def transfer_seconds(self, messages: Any, nbytes: Any) -> Any:
        """Return the seconds in which so many messages and bytes come into a member from members on other nodes."""
        return self.latency * messages + (nbytes / self.bandwidth if self.bandwidth else 0.0)

    def flop_seconds(self, kind: KernelKind, flops: Any, itemsize: int = ITEMSIZE) -> Any:
        """Return the seconds of kernels of so many operations each.

        Parameters
        ----------
        kind
            What the kernels do.
        flops
            Operations of each kernel: a number or an array.
        itemsize
            Bytes of the elements: those of 4 are computed twice as fast as those of 8.

        Examples
        --------
        >>> float(Rates(gemm=1e10).flop_seconds("gemm", 2e9)), float(Rates().flop_seconds("map", 1e6, 4))
        (0.2, 0.0005)
        """
        flops = np.asarray(flops, float)
        table = {"gemm": self.gemm, "join": self.generic, "map": self.compute}[kind]
        if isinstance(table, tuple):
            sizes, rates = np.array(table, float).T
            rate = np.interp(np.log(np.maximum(flops, 1.0)), np.log(sizes), rates)
        else:
            rate = np.float64(table)
        with np.errstate(divide="ignore", invalid="ignore"):
            seconds = flops * (itemsize / ITEMSIZE) / rate
        return np.where(rate > 0, seconds, 0.0)  # an unknown rate costs nothing

    def busy_seconds(self, kind: KernelKind, seconds: Any) -> Seconds:
        """Return the seconds until all members have computed: of the busiest, which is faster while others have nothing
        to do.

        Parameters
        ----------
        kind
            What they compute.
        seconds
            That each would need while all compute: an array (.., members).

        Examples
        --------
        One of four members computes. With a core of its own it takes as long as ever; on one core for all, a fourth:

        >>> one = np.array([4.0, 0.0, 0.0, 0.0])
        >>> [float(Rates(gemm_own=own).busy_seconds("gemm", one).total) for own in (1.0, 0.0)]
        [4.0, 1.0]
        """
        return blended(seconds, {"gemm": self.gemm_own, "join": self.generic_own, "map": self.compute_own}[kind])


@dataclass(frozen=True, slots=True, eq=False)
class Seconds:
    """Seconds are a predicted time in two addends: what the busiest member needs of its own, and what all wait for
    because they share it.

    Parameters
    ----------
    own
        Of the busiest, with what is its own: other members may do something else meanwhile.
    shared
        With what all members share: whatever else is to be done waits.
    """

    own: Any = 0.0
    shared: Any = 0.0

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(self.own + other.own, self.shared + other.shared)

    @property
    def total(self) -> Any:
        """Return the seconds until all are done, if nothing else is to be done."""
        return self.own + self.shared


def blended(load: Any, own: float) -> Seconds:
    """Return what the most loaded of members takes of something of which a part is its own, and the rest is shared by
    all.

    Parameters
    ----------
    load
        Of each: an array (.., members).
    own
        The part, from 0 to 1.
    """
    load = np.asarray(load)
    return Seconds(load.max(axis=-1) * own, load.mean(axis=-1) * (1 - own))


def own_part(crowding: float, n_members: int) -> float:
    """Return the part of something that is a member's own, where using it alone is so many times as fast as with all
    others.

    It is what `blended` needs to say so of one member alone: ``own + (1 - own) / n_members = 1 / crowding``.

    >>> own_part(1.0, 4), own_part(4.0, 4), own_part(2.0, 3)
    (1.0, 0.0, 0.25)
    """
    if n_members < 2 or crowding <= 1:  # or disturbed when it was alone
        return 1.0
    return max((n_members / crowding - 1) / (n_members - 1), 0.0)


#: What was measured where something is planned now, by the names of `Rates`; tables as tuples (`runtime.known_rates`).
MEASURED: ContextVar[Mapping[str, Any]] = ContextVar("distarray_measured_rates")

_DEFAULT = Rates()
_NAMES = frozenset(field.name for field in fields(Rates))


def current_rates() -> Rates:
    """Return the rates that hold now: the defaults, what was measured, and what ``calibration`` says, in this order."""
    said = options().get("calibration") or {}
    known = {**MEASURED.get({}), **said}
    if not known:
        return _DEFAULT
    return replace(_DEFAULT, **{name: rate for name, rate in known.items() if name in _NAMES})


def hides_a_transfer(rates: Rates, messages: int, nbytes: int, n_core: int, n_elements: int, n_operations: int) -> bool:
    """Return whether to compute the core of a tile as a task of its own, while what the rest needs is on its way.

    The two tasks hide the shorter one of the transfer and the core, and cost one task more:

        hidden = min(latency * messages + nbytes / bandwidth, n_core * n_operations / compute)

    It pays if `hidden` is more than the task costs and more than a share of the tile's own time (`WORTHWHILE`). So a
    core that is tiny is not split off, nor one whose halo comes at once.

    Parameters
    ----------
    messages, nbytes
        What the tile waits for.
    n_core, n_elements
        Elements of the tile that need nothing of it, and all.
    n_operations
        Functions of the program that is run on them.

    Examples
    --------
    A megabyte of halo beside 10 operations on a million elements, and on a thousand:

    >>> hides_a_transfer(Rates(), 2, 1 << 20, 990_000, 1_000_000, 10)
    True
    >>> hides_a_transfer(Rates(), 2, 1 << 20, 500, 1_000, 10)
    False
    """
    if not rates.bandwidth or not rates.compute:
        return False  # said to be unknown
    seconds_per_element = max(n_operations, 1) / rates.compute
    hidden = min(float(rates.transfer_seconds(messages, nbytes)), n_core * seconds_per_element)
    return hidden > max(rates.task, WORTHWHILE * n_elements * seconds_per_element)
