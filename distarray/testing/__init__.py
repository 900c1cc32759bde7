"""For tests of distarray and of code that uses it: exact counts, peaks of memory, and proof of no copy to the host.

`strategies` (hypothesis) and `assertions` are modules of their own, imported when they are asked for.
"""

from typing import NoReturn

import numpy as np

from distarray.runtime.counters import Counters, counting
from distarray.testing.host_copies import no_host_copies
from distarray.testing.memory_peaks import Peak, peaks
from distarray.testing.poison import poisoned_buffers
from distarray.testing.tiles import force_tiles

__all__ = ["Counters", "Peak", "counting", "force_tiles", "no_host_copies", "peaks", "poisoned_buffers"]


def __getattr__(name: str) -> NoReturn:
    instead = f"; use np.testing.{name}, which takes a DistArray" if hasattr(np.testing, name) else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{instead}")
