"""For tests of distarray and of code that uses it: exact counts, and proof that nothing is copied to the host.

`strategies` (hypothesis) and `assertions` are modules of their own, imported when they are asked for.
"""

from distarray.execution.backends import no_host_copies
from distarray.execution.counters import Counters, counting
from distarray.testing.tiles import force_tiles

__all__ = ["Counters", "counting", "force_tiles", "no_host_copies"]
