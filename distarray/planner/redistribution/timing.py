"""Seconds of a plan: latency and bandwidth (section 4.3 of the specification)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from distarray.planner.rates import Rates
from distarray.planner.redistribution.places import IntArray
from distarray.planner.redistribution.steps import (
    AllGather,
    AllPermute,
    AllReduce,
    AllToAll,
    DynSlice,
    ReduceScatter,
    Step,
)
from distarray.planner.redistribution.trace import Moment

__all__ = ["messages", "plan_seconds"]


def messages(step: Step, before: Moment, after: Moment) -> IntArray:
    """Messages that every device receives in a step."""
    n_devices = len(after.received)
    if isinstance(step, DynSlice):
        return np.zeros(n_devices, np.int64)
    if isinstance(step, AllToAll | AllGather | ReduceScatter):
        return np.full(n_devices, step.n - 1)
    if isinstance(step, AllReduce):
        return np.full(n_devices, 2 * (step.n - 1))
    if isinstance(step, AllPermute):
        moved: IntArray = (step.perm != np.arange(n_devices)).astype(np.int64)
        return moved
    return _distinct_sources(before.box, after.box)


def _distinct_sources(before: tuple[IntArray, IntArray], after: tuple[IntArray, IntArray]) -> IntArray:
    """Of how many distinct tiles of others every device needs elements: one message for each."""
    start, stop = before
    tiles, owner = np.unique(np.concatenate([start, stop], axis=1), axis=0, return_inverse=True)
    rank = start.shape[1]
    lo = np.maximum(after[0][:, None, :], tiles[None, :, :rank])
    hi = np.minimum(after[1][:, None, :], tiles[None, :, rank:])
    touched = (hi > lo).all(axis=2)
    touched[np.arange(len(start)), owner.ravel()] = False
    found: IntArray = touched.sum(axis=1)
    return found


def plan_seconds(steps: Sequence[Step], trace: Sequence[Moment], itemsize: int, rates: Rates) -> float:
    """Predicted seconds of a plan: for each step the slowest device, and a task per device and step."""
    total = 0.0
    for step, (before, after) in zip(steps, pairwise(trace)):
        here = rates.latency * messages(step, before, after) + itemsize / rates.bandwidth * after.received
        total += float(here.max(initial=0.0)) + rates.task * len(after.received)
    return total
