"""Waits that a signal may end at any point: what is raised then is what its handler raised, and no lock is left taken.

`threading.Condition.wait` gives the lock back before it waits, and takes it again afterwards. A signal that comes
beside its precautions leaves the lock released, and then the ``with`` block around it fails with RuntimeError, which
the user sees in place of KeyboardInterrupt. The ``with`` block has to name the lock itself: that of a condition is
taken by a function of Python, and a signal that comes before it returns leaves the lock taken for ever.
"""

from __future__ import annotations

import threading

#: After which a thread that waits looks for itself: a signal that comes just before it begins to wait does not wake it,
#: and may have ended unheard what it waits for.
LOOK_SECONDS = 0.2


class Condition(threading.Condition):
    """A Condition is a `threading.Condition` with a reentrant lock, whose waits signals may end."""

    def wait(self, timeout: float | None = LOOK_SECONDS) -> bool:
        """Wait until notified, at most some seconds; return whether it was. The lock is held again in any case."""
        try:
            return super().wait(timeout)
        except BaseException:
            if not self._is_owned():  # type: ignore[attr-defined]  # documented for locks of others
                self.acquire()
            raise
