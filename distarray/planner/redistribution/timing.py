"""Seconds of a plan: latency and bandwidth."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from distarray.planner.rates import Rates
from distarray.planner.redistribution.links import NETWORK, FloatArray, MemberMap, link_rates
from distarray.planner.redistribution.places import IntArray
from distarray.planner.redistribution.senders import one_each, pieces
from distarray.planner.redistribution.steps import AllPermute, AllReduce, DynSlice, Exchange, Step
from distarray.planner.redistribution.trace import Moment


def messages(
    step: Step, before: Moment, after: Moment, placement: MemberMap | None, addends: IntArray | None = None
) -> IntArray:
    """Return messages that every member receives in a step; every place, without a placement."""
    if placement is None and not isinstance(step, Exchange):
        return _in_groups(step, len(after.received))
    where = placement or one_each(len(after.received))
    return np.bincount(pieces(step, before, after, where, addends).receiver, minlength=where.n_members)


def _in_groups(step: Step, n_devices: int) -> IntArray:
    if isinstance(step, DynSlice):
        return np.zeros(n_devices, np.int64)
    if isinstance(step, AllPermute):
        moved: IntArray = (step.perm != np.arange(n_devices)).astype(np.int64)
        return moved
    assert not isinstance(step, Exchange)
    return np.full(n_devices, (2 if isinstance(step, AllReduce) else 1) * (step.n - 1))


def plan_seconds(
    steps: Sequence[Step],
    trace: Sequence[Moment],
    itemsize: int,
    rates: Rates,
    placement: MemberMap | None = None,
    addends: IntArray | None = None,
) -> float:
    """Return predicted seconds of a plan: for each step the slowest member, and a task per place and step.

    A member is as slow as what it waits for, and what it receives or sends, whichever takes longer. In collectives
    of places that lie on a member each, all send as much as they receive.
    """
    total = 0.0
    for step, (before, after) in zip(steps, pairwise(trace)):
        total += rates.task * len(after.received)
        if isinstance(step, DynSlice):
            continue
        if placement is None and not isinstance(step, Exchange):
            latency, per_byte = (float(rate[NETWORK]) for rate in link_rates(rates))
            here = latency * _in_groups(step, len(after.received)) + per_byte * itemsize * after.received
        else:
            where = placement or one_each(len(after.received))
            here = _by_links(step, before, after, itemsize, rates, where, addends)
        total += float(here.max(initial=0.0))
    return total


def _by_links(
    step: Step,
    before: Moment,
    after: Moment,
    itemsize: int,
    rates: Rates,
    placement: MemberMap,
    addends: IntArray | None,
) -> FloatArray:
    """Return the seconds of every member in a step, each piece at the rates of its link."""
    sent = pieces(step, before, after, placement, addends)
    latency, per_byte = link_rates(rates)
    link = placement.links(sent.giver, sent.receiver)
    seconds = per_byte[link] * sent.size * itemsize
    n = placement.n_members
    waited = np.bincount(sent.receiver, latency[link], n)
    moved = np.maximum(np.bincount(sent.receiver, seconds, n), np.bincount(sent.giver, seconds, n))
    return np.asarray(waited + moved, np.float64)
