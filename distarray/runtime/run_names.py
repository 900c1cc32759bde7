"""Names of runs: of the tasks of each evaluation, so that no key is ever used twice."""

from __future__ import annotations

import itertools
import re
import uuid

from distarray.forks import in_child

_runs = itertools.count()
_process = uuid.uuid4().hex[:8]
_RUN = re.compile(r"-([0-9a-f]{8})-\d+(?![0-9a-f])")


def new_run() -> str:
    """Return a name for tasks that no others have had or will have."""
    return f"{_process}-{next(_runs)}"


def is_of_another(name: str) -> bool:
    """Return whether a name of tasks is that of a run of another process.

    >>> is_of_another(f"dx-add-{new_run()}"), is_of_another("dx:sum@model.py:41-00112233-7"), is_of_another("sum-3")
    (False, True, False)
    """
    runs = _RUN.findall(name) if name.startswith(("dx-", "dx:")) else []
    return bool(runs) and runs[-1] != _process


def _rename() -> None:
    """Give a process that is a fork of one in which this was loaded, as workers of a fork server are, names of its own.

    Two of them that compute on one cluster would give one key to different tasks else, and get each other's results.
    """
    global _process
    _process = uuid.uuid4().hex[:8]


in_child(_rename)
