"""Special functions: elementwise functions of ``scipy.special``, computed where the blocks lie.

SciPy's own functions find these in its array API mode (``SCIPY_ARRAY_API=1``), and its ufuncs find them in any mode:
``scipy.special.erf(x)`` of a DistArray is ``distarray.special.erf(x)``.
"""

from distarray.ops.special import *  # noqa: F403  # the names stand once, in the table
from distarray.ops.special import __all__ as _TABLE

__all__ = [*_TABLE]
