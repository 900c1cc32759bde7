"""Assignment of jobs to workers so that most of what they need is there: the placement step of the planner."""

from __future__ import annotations

from typing import Any

import numpy as np

#: Jobs beyond which they are assigned one after the other, each to the best worker that has room.
MAX_EXACT = 192


def assign(gain: Any, capacity: int) -> Any:
    """Return a worker for every job: the greatest total gain with at most `capacity` jobs on each.

    Parameters
    ----------
    gain
        What is gained by having a job (column) on a worker (row), not negative.
    capacity
        Jobs on one worker; there is room for all.

    Returns
    -------
    array
        The worker of each job; where gains are equal, jobs in order go to workers in order.

    Notes
    -----
    The Hungarian method with shortest augmenting paths (Jonker and Volgenant 1987). SciPy has it too, but importing
    `scipy.optimize` takes longer than planning does.

    Examples
    --------
    >>> assign(np.array([[3.0, 2.0], [2.0, 0.0]]), 1)
    array([1, 0])
    """
    gain = np.asarray(gain, float)
    n_jobs = gain.shape[1]
    if not n_jobs:
        return np.zeros(0, np.intp)
    if not gain.any():
        return np.arange(n_jobs) // capacity
    if n_jobs > MAX_EXACT:
        return _one_after_the_other(gain, capacity)
    # workers that could run several jobs are several columns
    cost = np.repeat(gain.max() - gain.T, capacity, axis=1)
    return _hungarian(cost) // capacity


def _one_after_the_other(gain: Any, capacity: int) -> Any:
    room = np.full(len(gain), capacity)
    chosen = np.zeros(gain.shape[1], np.intp)
    for job, column in enumerate(gain.T):
        worker = int(np.argmax(np.where(room > 0, column, -1.0)))
        chosen[job] = worker
        room[worker] -= 1
    return chosen


def _hungarian(cost: Any) -> Any:
    """Return the column of each row with the least total cost; there are at least as many columns as rows."""
    n, m = cost.shape
    u, v = np.zeros(n), np.zeros(m)
    row_of = np.full(m, -1)
    for start in range(n):
        reached = np.full(m, np.inf)
        came_from = np.full(m, -1)
        done = np.zeros(m, bool)
        row, column = start, -1
        while True:
            slack = cost[row] - u[row] - v
            slack[done] = np.inf
            closer = slack < reached
            reached[closer] = slack[closer]
            came_from[closer] = column
            open_reach = np.where(done, np.inf, reached)
            delta = open_reach.min()
            nearest = np.flatnonzero(open_reach == delta)
            free = nearest[row_of[nearest] < 0]
            # potentials of what has been reached
            u[start] += delta
            u[row_of[done]] += delta
            v[done] -= delta
            reached[~done] -= delta
            column = int(free[0]) if len(free) else int(nearest[0])
            if len(free):
                break
            done[column] = True
            row = int(row_of[column])
        while column >= 0:
            before = int(came_from[column])
            row_of[column] = start if before < 0 else row_of[before]
            column = before
    column_of = np.empty(n, np.intp)
    taken = np.flatnonzero(row_of >= 0)
    column_of[row_of[taken]] = taken
    return column_of
