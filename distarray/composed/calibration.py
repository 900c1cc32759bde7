"""``dx.calibrate``: measure what computing and moving cost here, for the planner."""

from __future__ import annotations

from typing import Any

from distarray.array.environment import TeamLike, environment
from distarray.errors import warn_user
from distarray.runtime.calibrate import measured
from distarray.runtime.clients import team_for_client
from distarray.runtime.known_rates import Calibration, store_path
from distarray.runtime.known_rates import store as store_calibration


def calibrate(where: TeamLike | Any = "current", *, device: str | None = None, store: bool = True) -> Calibration:
    """Measure messages, transfers, tasks and kernels, and plan with what was found from now on.

    Takes up to a few seconds, in which nothing else should run there. What was measured holds for clusters like this
    one: as many workers of the same kind, with the same versions; it is found again by later processes. The option
    ``calibration`` overrides single rates.

    Parameters
    ----------
    where
        A team, a Dask client (all its workers), None (this process, one thread), or ``"current"``: where new arrays are
        made.
    device
        Of the blocks; by default that of new arrays.
    store
        Whether to plan with what was found, and to keep it in a file; otherwise it is only returned.

    Returns
    -------
    Calibration
        With ``rates`` by name, of which some are tables over the operations of a kernel; prints as text.

    Warns
    -----
    UserWarning
        If the file that keeps it, ``distarray/calibration.json`` in Dask's configuration folder, cannot be written. It
        holds for this process then.

    Examples
    --------
    >>> import distarray as dx
    >>> found = dx.calibrate(None, store=False)
    >>> sorted(name for name in found.rates if not name.endswith("_own"))
    ['bandwidth', 'compute', 'elementwise', 'gemm', 'generic', 'latency', 'task']
    """
    team = team_for_client(where) if hasattr(where, "scheduler_info") else where
    found = measured(environment(team, device))
    if store and not store_calibration(found):
        warn_user(f"{store_path()} cannot be written: the rates hold for this process", UserWarning)
    return found
