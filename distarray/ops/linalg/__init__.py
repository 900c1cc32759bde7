"""Linear algebra: the standard's ``linalg`` and numpy's beyond it.

Stacks of matrices are worked on matrix by matrix, in parallel over their leading axes. A single matrix that is cut, on
one axis or on both, is worked on by all members (`panels`, `orthogonal`) where an algorithm for that is known to be
worth it; each function says when it brings a matrix to one member. Norms, ranks, powers and the pseudo-inverse are
composed. Shapes and dtypes are numpy's, and so are the errors, raised at the call; matrices that only their elements
show to be singular or indefinite fail when the operation runs, which is at the call too (`may_raise`).
"""

from numpy.linalg import LinAlgError

from distarray.ops.linalg.eigenvalues import eig, eigh, eigvals, eigvalsh
from distarray.ops.linalg.least_squares import lstsq
from distarray.ops.linalg.matrices import EighResult, EigResult, QRResult, SlogdetResult, SVDResult
from distarray.ops.linalg.norms import cond, matrix_norm, matrix_rank, norm, vector_norm
from distarray.ops.linalg.orthogonal import qr
from distarray.ops.linalg.positive import cholesky
from distarray.ops.linalg.products import cross, matrix_power, multi_dot, outer, trace
from distarray.ops.linalg.singular import pinv, svd, svdvals
from distarray.ops.linalg.systems import det, inv, slogdet, solve

__all__ = [
    "EigResult", "EighResult", "LinAlgError", "QRResult", "SVDResult", "SlogdetResult", "cholesky", "cond", "cross",
    "det", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "matrix_norm", "matrix_power",
    "matrix_rank", "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "trace",
    "vector_norm",
]  # fmt: skip
