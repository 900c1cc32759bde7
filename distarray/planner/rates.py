"""What moving and computing cost: the rates of the model, and the one decision on tasks that they make.

The defaults are those of workers on one ordinary network; the option ``calibration`` overrides them by name.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from distarray import config

__all__ = ["Rates", "current_rates", "hides_a_transfer"]

#: A transfer is worth hiding if that saves this share of the time in which its tile is computed.
WORTHWHILE = 0.05


@dataclass(frozen=True, slots=True)
class Rates:
    """What moving and computing cost on the members of a team.

    Parameters
    ----------
    latency
        Seconds per message.
    bandwidth
        Bytes per second into a member.
    compute
        Elementwise operations per second of a member: one function of one element.
    task
        Seconds per task.
    """

    latency: float = 4e-4
    bandwidth: float = 1e9
    compute: float = 1e9
    task: float = 2e-4


_DEFAULT = Rates()
_NAMES = frozenset(field.name for field in fields(Rates))


def current_rates() -> Rates:
    """The rates that hold now: the defaults and what ``calibration`` says of them."""
    known = config.get("calibration")
    if not known:
        return _DEFAULT
    return replace(_DEFAULT, **{name: rate for name, rate in known.items() if name in _NAMES})


def hides_a_transfer(rates: Rates, messages: int, nbytes: int, n_core: int, n_elements: int, n_operations: int) -> bool:
    """Whether to compute the core of a tile as a task of its own, while what the rest needs is on its way.

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
    hidden = min(rates.latency * messages + nbytes / rates.bandwidth, n_core * seconds_per_element)
    return hidden > max(rates.task, WORTHWHILE * n_elements * seconds_per_element)
