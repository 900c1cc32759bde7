"""distarray: NumPy arrays that live across a team of workers.

The names of the array API standard, NumPy's spellings beside them, and what is distarray's own. With ``import distarray
as dx`` in place of ``import numpy as np`` a script runs on the threads of this process; with a Dask ``Client`` active,
on its workers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING
from typing import Any as _Any

import numpy as _np

from distarray import config
from distarray.array.array import DistArray
from distarray.array.blockwise import map_blocks, map_tiles
from distarray.array.capabilities import ArrayNamespaceInfo
from distarray.array.collections import compute, explain, persist
from distarray.array.conversion import (
    array,
    asanyarray,
    asarray,
    ascontiguousarray,
    asfortranarray,
    astype,
    copy,
    from_blocks,
    from_dlpack,
    frombuffer,
    fromiter,
    scatter,
)
from distarray.array.creation import (
    arange,
    empty,
    empty_like,
    eye,
    fromfunction,
    full,
    full_like,
    geomspace,
    identity,
    indices,
    linspace,
    logspace,
    ones,
    ones_like,
    tri,
    vander,
    zeros,
    zeros_like,
)
from distarray.array.dtype_functions import can_cast, finfo, iinfo, isdtype, promote_types, result_type
from distarray.array.environment import current_device, current_team, use
from distarray.array.functions import (
    allclose,
    array_equal,
    array_equiv,
    bincount,
    choose,
    convolve,
    copyto,
    corrcoef,
    correlate,
    cov,
    delete,
    digitize,
    fill_diagonal,
    gradient,
    histogram,
    insert,
    interp,
    isscalar,
    iterable,
    ndim,
    place,
    put,
    putmask,
    resize,
    select,
    shape,
    size,
    trapezoid,
    tril_indices,
    triu_indices,
    unravel_index,
)
from distarray.array.indexing import argwhere, compress, extract, flatnonzero, nonzero
from distarray.array.numpy_signatures import (
    all,
    amax,
    amin,
    any,
    argmax,
    argmin,
    argsort,
    around,
    clip,
    concat,
    concatenate,
    count_nonzero,
    cumprod,
    cumsum,
    diff,
    max,
    mean,
    min,
    prod,
    repeat,
    round,
    sort,
    stack,
    std,
    sum,
    take,
    take_along_axis,
    tile,
    trace,
    tril,
    triu,
    var,
    where,
)
from distarray.array.repr import visualize_sharding
from distarray.array.sets import (
    UniqueAllResult,
    UniqueCountsResult,
    UniqueInverseResult,
    in1d,
    intersect1d,
    isin,
    setdiff1d,
    setxor1d,
    union1d,
    unique,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from distarray.array.views import (
    array_split,
    atleast_1d,
    atleast_2d,
    atleast_3d,
    broadcast_arrays,
    broadcast_to,
    diagonal,
    dsplit,
    expand_dims,
    flip,
    fliplr,
    flipud,
    hsplit,
    imag,
    matrix_transpose,
    may_share_memory,
    meshgrid,
    moveaxis,
    permute_dims,
    ravel,
    real,
    reshape,
    rollaxis,
    rot90,
    shares_memory,
    split,
    squeeze,
    swapaxes,
    transpose,
    unstack,
    vsplit,
)
from distarray.array.writes import at
from distarray.errors import (
    DeletedArrayError,
    EnvironmentMismatchError,
    MemoryBudgetError,
    NotSupportedError,
    ShardingError,
)
from distarray.io.dask import from_dask, to_dask_array
from distarray.io.npy import load, save
from distarray.ops import (
    abs,
    absolute,
    acos,
    acosh,
    add,
    angle,
    append,
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctan2,
    arctanh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    average,
    bitwise_and,
    bitwise_count,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_not,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    broadcast_shapes,
    cbrt,
    ceil,
    column_stack,
    conj,
    conjugate,
    copysign,
    cos,
    cosh,
    cumulative_prod,
    cumulative_sum,
    deg2rad,
    degrees,
    diag,
    diagflat,
    divide,
    divmod,
    dot,
    dstack,
    ediff1d,
    einsum,
    equal,
    exp,
    exp2,
    expm1,
    fabs,
    fix,
    float_power,
    floor,
    floor_divide,
    fmax,
    fmin,
    fmod,
    frexp,
    gcd,
    greater,
    greater_equal,
    heaviside,
    hstack,
    hypot,
    inner,
    invert,
    isclose,
    iscomplex,
    isfinite,
    isinf,
    isnan,
    isnat,
    isneginf,
    isposinf,
    isreal,
    kron,
    lcm,
    ldexp,
    left_shift,
    less,
    less_equal,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    logaddexp2,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    matmul,
    matvec,
    maximum,
    median,
    minimum,
    mod,
    modf,
    multiply,
    nan_to_num,
    nanmax,
    nanmean,
    nanmin,
    nanprod,
    nanstd,
    nansum,
    nanvar,
    negative,
    nextafter,
    not_equal,
    outer,
    pad,
    percentile,
    positive,
    pow,
    power,
    ptp,
    quantile,
    rad2deg,
    radians,
    reciprocal,
    remainder,
    right_shift,
    rint,
    roll,
    searchsorted,
    sign,
    signbit,
    sin,
    sinc,
    sinh,
    spacing,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    tensordot,
    true_divide,
    trunc,
    vdot,
    vecdot,
    vecmat,
    vstack,
)
from distarray.planner.cache import plan_cache_clear, plan_cache_info
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from distarray.sharding.team import Team
from distarray.version import __version__

if TYPE_CHECKING:
    from distarray import fft, linalg, random, testing

# dtypes and constants are numpy's
int8 = _np.int8
int16 = _np.int16
int32 = _np.int32
int64 = _np.int64
uint8 = _np.uint8
uint16 = _np.uint16
uint32 = _np.uint32
uint64 = _np.uint64
float16 = _np.float16
float32 = _np.float32
float64 = _np.float64
complex64 = _np.complex64
complex128 = _np.complex128
dtype = _np.dtype
datetime64 = _np.datetime64
timedelta64 = _np.timedelta64
intp = _np.intp
uintp = _np.uintp
single = _np.single
double = _np.double
intc = _np.intc
generic = _np.generic
number = _np.number
integer = _np.integer
floating = _np.floating
complexfloating = _np.complexfloating
bool_ = _np.bool_
errstate = _np.errstate
ndindex = _np.ndindex
s_ = _np.s_
index_exp = _np.index_exp
get_printoptions = _np.get_printoptions
set_printoptions = _np.set_printoptions
printoptions = _np.printoptions
geterr = _np.geterr
seterr = _np.seterr
e = _np.e
inf = _np.inf
nan = _np.nan
newaxis = _np.newaxis
pi = _np.pi
euler_gamma = _np.euler_gamma
bool = _np.bool_
ndarray = DistArray

__array_api_version__ = "2025.12"

#: Loaded when first used.
_LAZY = ("fft", "linalg", "random", "testing")


def __array_namespace_info__() -> ArrayNamespaceInfo:
    """The standard's inspection: capabilities, dtypes, devices."""
    return ArrayNamespaceInfo()


def __getattr__(name: str) -> _Any:  # a module
    if name in _LAZY:
        return importlib.import_module(f"distarray.{name}")
    raise AttributeError(f"module 'distarray' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "__array_api_version__", "__array_namespace_info__", "__version__", "abs", "absolute", "acos", "acosh", "add",
    "all", "allclose", "amax", "amin", "angle", "any", "append", "arange", "arccos", "arccosh", "arcsin", "arcsinh",
    "arctan", "arctan2", "arctanh", "argmax", "argmin", "argsort", "argwhere", "around", "array", "array_equal",
    "array_equiv", "array_split", "ArrayNamespaceInfo", "asanyarray", "asarray", "ascontiguousarray",
    "asfortranarray", "asin", "asinh", "astype", "at", "atan", "atan2", "atanh", "atleast_1d", "atleast_2d",
    "atleast_3d", "average", "bincount", "bitwise_and", "bitwise_count", "bitwise_invert", "bitwise_left_shift",
    "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "bool", "bool_", "broadcast_arrays",
    "broadcast_shapes", "broadcast_to", "can_cast", "cbrt", "ceil", "choose", "clip", "column_stack", "complex128",
    "complex64", "complexfloating", "compress", "compute", "concat", "concatenate", "config", "conj", "conjugate",
    "convolve", "copy", "copysign", "copyto", "corrcoef", "correlate", "cos", "cosh", "count_nonzero", "cov",
    "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "current_device", "current_team", "datetime64",
    "deg2rad", "degrees", "delete", "DeletedArrayError", "diag", "diagflat", "diagonal", "diff", "digitize",
    "DistArray", "divide", "divmod", "dot", "double", "dsplit", "dstack", "dtype", "e", "ediff1d", "einsum", "empty",
    "empty_like", "EnvironmentMismatchError", "equal", "errstate", "euler_gamma", "exp", "exp2", "expand_dims",
    "explain", "expm1", "extract", "eye", "fabs", "fft", "fill_diagonal", "finfo", "fix", "flatnonzero", "flip",
    "fliplr", "flipud", "float16", "float32", "float64", "float_power", "floating", "floor", "floor_divide", "fmax",
    "fmin", "fmod", "frexp", "from_blocks", "from_dask", "from_dlpack", "frombuffer", "fromfunction", "fromiter",
    "full", "full_like", "gcd", "generic", "geomspace", "get_printoptions", "geterr", "gradient", "greater",
    "greater_equal", "heaviside", "histogram", "hsplit", "hstack", "hypot", "identity", "iinfo", "imag", "in1d",
    "index_exp", "indices", "inf", "inner", "insert", "int16", "int32", "int64", "int8", "intc", "integer", "interp",
    "intersect1d", "intp", "invert", "isclose", "iscomplex", "isdtype", "isfinite", "isin", "isinf", "isnan", "isnat",
    "isneginf", "isposinf", "isreal", "isscalar", "iterable", "kron", "lcm", "ldexp", "left_shift", "less",
    "less_equal", "linalg", "linspace", "load", "log", "log10", "log1p", "log2", "logaddexp", "logaddexp2",
    "logical_and", "logical_not", "logical_or", "logical_xor", "logspace", "map_blocks", "map_tiles", "matmul",
    "matrix_transpose",
    "matvec", "max", "maximum", "may_share_memory", "mean", "median", "MemoryBudgetError", "Mesh", "meshgrid", "min",
    "minimum", "mod", "modf", "moveaxis", "multiply", "nan", "nan_to_num", "nanmax", "nanmean", "nanmin", "nanprod",
    "nanstd", "nansum", "nanvar", "ndarray", "ndim", "ndindex", "negative", "newaxis", "nextafter", "nonzero",
    "not_equal", "NotSupportedError", "number", "ones", "ones_like", "outer", "pad", "percentile", "permute_dims",
    "persist", "pi", "place", "plan_cache_clear", "plan_cache_info", "positive", "pow", "power", "printoptions",
    "prod", "promote_types", "ptp", "put", "putmask", "quantile", "rad2deg", "radians", "random", "ravel", "real",
    "reciprocal", "remainder", "repeat", "reshape", "resize", "result_type", "right_shift", "rint", "roll",
    "rollaxis", "rot90", "round", "s_", "save", "scatter", "searchsorted", "select", "set_printoptions", "setdiff1d",
    "seterr", "setxor1d", "shape", "Sharding", "ShardingError", "shares_memory", "sign", "signbit", "sin", "sinc",
    "single", "sinh", "size", "sort", "spacing", "split", "sqrt", "square", "squeeze", "stack", "std", "subtract",
    "sum", "swapaxes", "take", "take_along_axis", "tan", "tanh", "Team", "tensordot", "testing", "tile",
    "timedelta64", "to_dask_array", "trace", "transpose", "trapezoid", "tri", "tril", "tril_indices", "triu",
    "triu_indices", "true_divide", "trunc", "uint16", "uint32", "uint64", "uint8", "uintp", "union1d", "unique",
    "unique_all", "unique_counts", "unique_inverse", "unique_values", "UniqueAllResult", "UniqueCountsResult",
    "UniqueInverseResult", "unravel_index", "unstack", "use", "vander", "var", "vdot", "vecdot", "vecmat",
    "visualize_sharding", "vsplit", "vstack", "where", "zeros", "zeros_like",
]  # fmt: skip
