"""Names of runs: of the tasks of each evaluation, so that no key is ever used twice."""

from __future__ import annotations

import itertools
import os
import uuid

_runs = itertools.count()
_process = uuid.uuid4().hex[:8]


def new_run() -> str:
    """Return a name for tasks that no others have had or will have."""
    return f"{_process}-{next(_runs)}"


def _rename() -> None:
    """Give a process that is a fork of one in which this was loaded, as workers of a fork server are, names of its own.

    Two of them that compute on one cluster would give one key to different tasks else, and get each other's results.
    """
    global _process
    _process = uuid.uuid4().hex[:8]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_rename)
