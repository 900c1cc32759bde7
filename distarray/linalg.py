"""Linear algebra: the array API standard's functions and numpy's."""

import numpy as np

from distarray.composed import tensors as _tensors
from distarray.composed.numpy_arguments import spell_module
from distarray.composed.tensors import tensordot, tensorinv, tensorsolve
from distarray.composed.views import matrix_diagonal as diagonal
from distarray.composed.views import matrix_transpose
from distarray.ops.contractions import matmul, vecdot
from distarray.ops.linalg import *  # noqa: F403  # the names stand once, where the functions do
from distarray.ops.linalg import __all__ as _OPERATIONS

__all__ = [*_OPERATIONS, "diagonal", "matmul", "matrix_transpose", "tensordot", "tensorinv", "tensorsolve", "vecdot"]

matrix_power = _tensors.matrix_power  # whose first power is the array itself

spell_module(globals(), np.linalg)
