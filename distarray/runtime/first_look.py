"""First look: what the members of a cluster compute and send in a second, measured when it is first planned for.

`dx.calibrate()` takes seconds and measures everything as it will be used. A look takes some dozens of milliseconds of a
few workers, and is enough to see whether members have cores of their own and how long a message takes: so whether few
members, or one, are faster than all. What a member has alone is rounded to powers of two, and what is its own of that
to quarters, so that a cluster has the same plans the next time.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from distarray.planner.rates import Rates, RateTable, own_part

#: Name of the message that a worker answers with so many bytes.
ECHO = "distarray-echo"
#: Elements of an addition, and rows of square matrices that are multiplied.
ELEMENTS, ROWS = 1 << 16, 256
#: Seconds for which these are repeated: the fastest addition counts, and all products, during which members that share
#: a core have their turns of a few milliseconds.
BRIEF, TURNS = 2e-3, 2e-2
#: Messages there and back, and bytes that come back; the fastest counts.
TIMES, NBYTES = 5, 1 << 20
#: Seconds until a thread that waits goes on: there is one at each end of an exchange.
WOKEN = 1e-4
#: Seconds after which a worker counts as one that does not answer: a task of the user's may keep it busy.
PATIENCE = 2.0
#: Workers that are asked; on a large cluster others are like them.
MOST_ASKED = 16
#: Times by which a rate may differ from the default one.
MOST = 32

_DEFAULT = Rates()


def look(ask: Callable[..., dict[str, Any]], hosts: Mapping[str, str]) -> dict[str, float | RateTable] | None:
    """Return rates of the workers at some addresses, by the names of `Rates`; None if one does not answer.

    Parameters
    ----------
    ask
        Asks workers (`Placement.ask`).
    hosts
        By address of the worker the host that it runs on. There are two at least.
    """
    addresses = sorted(hosts)
    n = len(addresses)
    ask = partial(ask, seconds=PATIENCE)
    alone, together = ask(_computed, of=addresses[:1]), ask(_computed, of=addresses)
    pairs: dict[bool, tuple[str, str]] = {}
    for a, b in combinations(addresses, 2):
        pairs.setdefault(hosts[a] == hosts[b], (a, b))
    links = {is_near: ask(_sent, b, of=[a]).get(a) for is_near, (a, b) in pairs.items()}
    sent = {is_near: found for is_near, found in links.items() if found is not None}
    if len(alone) < 1 or len(together) < n or len(sent) < len(pairs):
        return None
    ((added, multiplied),) = alone.values()
    crowding = max(multiplied * n / sum(rate for _, rate in together.values()), 1.0)
    own = round(4 * own_part(min(crowding, n), n)) / 4
    # What a member has while all others compute, or send, too, of what it has alone.
    part, share = (mine + (1 - mine) / n for mine in (own, _DEFAULT.bandwidth_own))
    seconds, far = sent.get(False) or sent[True]
    rates: dict[str, float | RateTable] = {
        "compute": part * _rounded(added, _DEFAULT.compute),
        "compute_own": own,
        "gemm": _in_proportion(_DEFAULT.gemm, 2 * ROWS**3, multiplied, part),
        "gemm_own": own,
        "exchange": _rounded(seconds + 2 * WOKEN, _DEFAULT.exchange),
        "latency": _rounded(seconds / 2, _DEFAULT.latency),
        "bandwidth": share * _rounded(far, _DEFAULT.bandwidth),
    }
    if True in sent:
        rates["node_bandwidth"] = share * _rounded(sent[True][1], _DEFAULT.bandwidth)
    return rates


def _rounded(rate: float, default: float) -> float:
    """Return a rate as a power of two, and not too far from the default one: what is so was disturbed."""
    return 2.0 ** round(math.log2(min(max(rate, default / MOST), default * MOST)))


def _in_proportion(table: RateTable | float, operations: float, rate: float, part: float) -> RateTable:
    """Return a part of a table of rates times a power of two: with this rate for so many operations, or about it."""
    assert isinstance(table, tuple)
    sizes, rates = np.array(table).T
    factor = _rounded(rate / float(np.interp(math.log(operations), np.log(sizes), rates)), 1.0)
    return tuple([(n, r * factor * part) for n, r in table])


# ------------------------------------------------------------------------------------------------- what workers run


async def _computed() -> tuple[float, float]:
    """Return the operations per second of additions and of products of matrices, computed in a thread."""
    return await asyncio.get_running_loop().run_in_executor(None, _rates_now)


def _rates_now() -> tuple[float, float]:
    """Return what `_computed` does, in this thread."""
    a, b, out = (np.ones(ELEMENTS) for _ in range(3))
    x, y, z = (np.ones((ROWS, ROWS)) for _ in range(3))
    fastest, _ = seconds_of(lambda: np.add(a, b, out=out), BRIEF)
    _, mean = seconds_of(lambda: np.matmul(x, y, out=z), TURNS)
    return ELEMENTS / fastest, 2 * ROWS**3 / mean


def seconds_of(call: Callable[[], Any], seconds: float) -> tuple[float, float]:
    """Return the seconds that a call takes at best, and on the average, while it is repeated for some seconds."""
    call()
    n, best = 0, math.inf
    start = now = time.perf_counter()
    while now < start + seconds:
        before = time.perf_counter()
        call()
        now = time.perf_counter()
        n, best = n + 1, min(best, now - before)
    return best, (now - start) / n


async def _sent(other: str, dask_worker: Any) -> tuple[float, float]:
    """Return the seconds of a message to another worker and back, and the bytes per second that come with one."""
    ask = getattr(dask_worker.rpc(other), ECHO)
    small, large = [[await _seconds(ask, nbytes) for _ in range(TIMES)] for nbytes in (1, NBYTES)]
    return min(small), NBYTES / max(min(large) - min(small), NBYTES / 1e12)


async def _seconds(ask: Callable[..., Any], nbytes: int) -> float:
    start = time.perf_counter()
    answer = await ask(nbytes=nbytes)
    seconds = time.perf_counter() - start
    # Within a process it comes as it was wrapped; both have `data`.
    if getattr(getattr(answer, "data", None), "nbytes", -1) != nbytes:
        raise RuntimeError(f"a worker that does not know the message {ECHO!r} answered {answer!r}")
    return seconds
