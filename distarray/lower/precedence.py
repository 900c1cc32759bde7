"""What waits for what among the tasks of a run on a cluster.

It says in which orders a worker may come to its own tasks, and what others have done by then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from distarray.lower.messages import Key
from distarray.lower.template import Lowered


class Between(NamedTuple):
    """A Between says between which tasks of one worker a task of another runs: after the last that it needs, before the
    first that needs it.

    Parameters
    ----------
    position
        Of each task of the worker.
    after
        By other tasks, the last of the worker's that they cannot do without: -1 if there is none.
    before
        The first of the worker's that cannot do without them, or one behind the last.
    readers
        Of each result.
    """

    position: Mapping[Key, int]
    after: Mapping[Key, int]
    before: Mapping[Key, int]
    readers: Mapping[Key, Sequence[Key]]

    def soonest(self, key: Any) -> int:
        """Return how many tasks the worker has run when a result may be there."""
        own = self.position.get(key)
        return own + 1 if own is not None else self.after.get(key, -1) + 1

    def latest_end(self, key: Key) -> int:
        """Return how many tasks the worker has run when a result of its own is surely read by all."""
        ends = [self.position[r] + 1 if r in self.position else self.before[r] for r in self.readers.get(key, ())]
        return max([self.position[key] + 1, *ends])


class Precedence:
    """A Precedence is what waits for what among the tasks of a run, as each worker sees it."""

    def __init__(self, lowered: Lowered, members: Mapping[Key, int]) -> None:
        self._tasks = lowered.tasks
        self._members = members
        self._readers: defaultdict[Key, list[Key]] = defaultdict(list)
        #: How many times data go from one member to another before a task can run.
        self._hops: dict[Key, int] = {}
        for key, task in lowered.tasks.items():
            hops = 0
            for d in task.dependencies:
                self._readers[d].append(key)
                if d in self._hops:
                    hops = max(hops, self._hops[d] + (self._members[d] != self._members[key]))
            self._hops[key] = hops

    def orders(self, member: int) -> list[list[Key]]:
        """Return the orders in which a member may run its tasks: that of the plan, and by what waits for fewest
        others.
        """
        planned = [key for key in self._tasks if self._members[key] == member]
        eager = sorted(planned, key=self._hops.__getitem__)
        return [planned] if eager == planned else [planned, eager]

    def times(self, position: Mapping[Key, int]) -> Between:
        """Return what others can do when the tasks of a member run in these places."""
        after: dict[Key, int] = {}
        for key, task in self._tasks.items():
            known = [position.get(d, after.get(d, -1)) for d in task.dependencies]
            after[key] = max(known, default=-1)
        before: dict[Key, int] = {}
        for key in reversed(self._tasks):
            found = [position.get(r, before.get(r, len(position))) for r in self._readers.get(key, ())]
            before[key] = min(found, default=len(position))
        return Between(position, after, before, self._readers)
