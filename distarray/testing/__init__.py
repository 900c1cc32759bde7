"""For tests of distarray and of code that uses it: exact counts, and proof that nothing is copied to the host.

`strategies` (hypothesis) and `assertions` are modules of their own, imported when they are asked for.
"""

from distarray.execution.backends import no_host_copies
from distarray.execution.counters import Counters, counting

__all__ = ["Counters", "counting", "no_host_copies"]
