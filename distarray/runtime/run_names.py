"""Names of runs: of the tasks of each evaluation, so that no key is ever used twice."""

from __future__ import annotations

import itertools
import uuid

_runs = itertools.count()
_process = uuid.uuid4().hex[:8]


def new_run() -> str:
    """Return a name for tasks that no others have had or will have."""
    return f"{_process}-{next(_runs)}"
