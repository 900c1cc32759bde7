# Written by docs/stub.py from the tables in __init__.py.
# ruff: noqa
# fmt: off
from numpy import (
    False_, True_, base_repr, binary_repr, bool_, byte, cdouble, complex128, complex64, complexfloating,
    csingle, datetime64, double, dtype, e, errstate, euler_gamma, float16, float32, float64, floating,
    format_float_positional, format_float_scientific, generic, get_printoptions, geterr, half, index_exp,
    inexact, inf, int16, int32, int64, int8, int_, intc, integer, intp, isscalar, issubdtype, long, longlong,
    mask_indices, mintypecode, nan, ndindex, newaxis, number, pi, printoptions, s_, set_printoptions, seterr,
    short, signedinteger, single, timedelta64, typecodes, typename, ubyte, uint, uint16, uint32, uint64,
    uint8, uintc, uintp, ulong, ulonglong, unsignedinteger, ushort
)
from distarray import (
    config, emath, fft, io, linalg, polynomial, random, special, testing
)
from distarray.array.array import (
    DistArray
)
from distarray.composed.conversion import (
    array
)
from distarray.composed.along_axis import (
    apply_along_axis, apply_over_axes, put_along_axis
)
from distarray.composed.bits import (
    packbits, unpackbits
)
from distarray.composed.blockwise import (
    blockwise, map_blocks
)
from distarray.composed.calibration import (
    calibrate
)
from distarray.composed.capabilities import (
    ArrayNamespaceInfo
)
from distarray.composed.collections import (
    compute, explain, persist, progress, wait
)
from distarray.composed.conversion import (
    asanyarray, asarray, asarray_chkfinite, ascontiguousarray, asfortranarray, astype, copy, from_blocks,
    from_dlpack, frombuffer, fromiter, require, scatter
)
from distarray.composed.covariance import (
    corrcoef, cov
)
from distarray.composed.creation import (
    arange, empty, empty_like, eye, fromfunction, full, full_like, identity, indices, ones, ones_like, tri,
    vander, zeros, zeros_like
)
from distarray.composed.dtype_functions import (
    can_cast, common_type, finfo, iinfo, iscomplexobj, isdtype, isrealobj, min_scalar_type, promote_types,
    result_type
)
from distarray.array.environment import (
    current_device, current_team, use
)
from distarray.composed.functions import (
    allclose, array_equal, array_equiv, choose, copyto, delete, fill_diagonal, insert, iterable, ndim, place,
    put, putmask, resize, select, shape, size
)
from distarray.composed.gufunc import (
    apply_gufunc, as_gufunc, gufunc
)
from distarray.composed.histograms import (
    bincount, digitize, histogram, histogram2d, histogram_bin_edges, histogramdd
)
from distarray.composed.index_objects import (
    c_, mgrid, ogrid, r_
)
from distarray.composed.index_tricks import (
    diag_indices, diag_indices_from, ix_, ravel_multi_index, tril_indices, tril_indices_from, triu_indices,
    triu_indices_from, unravel_index
)
from distarray.composed.iteration import (
    broadcast, ndenumerate, nditer
)
from distarray.composed.nonzero import (
    argwhere, compress, extract, flatnonzero, nonzero
)
from distarray.composed.map_tiles import (
    map_tiles
)
from distarray.composed.nans import (
    nan_to_num, nanargmax, nanargmin, nancumprod, nancumsum, nanmax, nanmean, nanmin, nanprod, nanstd, nansum,
    nanvar
)
from distarray.composed.numpy_signatures import (
    all, amax, amin, any, argmax, argmin, argsort, around, clip, concat, concatenate, cumprod, cumsum, diff,
    dot, max, mean, min, prod, ptp, round, sort, stack, std, sum, take, trace, var, where
)
from distarray.composed.overlap import (
    map_overlap
)
from distarray.composed.pieces import (
    block, piecewise, trim_zeros
)
from distarray.composed.planning import (
    plan, plan_cost
)
from distarray.composed.polynomials import (
    poly, polyadd, polyder, polydiv, polyfit, polyint, polymul, polysub, polyval, roots
)
from distarray.composed.printing import (
    array2string, array_repr, array_str
)
from distarray.array.repr import (
    visualize_sharding
)
from distarray.composed.sequences import (
    geomspace, linspace, logspace
)
from distarray.composed.sets import (
    UniqueAllResult, UniqueCountsResult, UniqueInverseResult, in1d, intersect1d, isin, setdiff1d, setxor1d,
    union1d, unique, unique_all, unique_counts, unique_inverse, unique_values
)
from distarray.composed.signals import (
    convolve, correlate, gradient, interp, trapezoid, unwrap
)
from distarray.composed.sliding import (
    coarsen, sliding_window_view
)
from distarray.composed.tensors import (
    cross, einsum, einsum_path, tensordot
)
from distarray.composed.tree_reduction import (
    reduction
)
from distarray.composed.views import (
    array_split, atleast_1d, atleast_2d, atleast_3d, broadcast_arrays, broadcast_to, diag, diagonal, dsplit,
    expand_dims, flip, fliplr, flipud, hsplit, imag, isfortran, matrix_transpose, may_share_memory, meshgrid,
    moveaxis, permute_dims, ravel, real, real_if_close, reshape, rollaxis, rot90, shares_memory, split,
    squeeze, swapaxes, transpose, unstack, vsplit
)
from distarray.composed.vectorized import (
    frompyfunc, vectorize
)
from distarray.composed.windows import (
    bartlett, blackman, hamming, hanning, i0, kaiser
)
from distarray.array.writes import (
    at
)
from distarray.diagnostics.doctor import (
    doctor
)
from distarray.errors import (
    BlocksLostError, ClusterGoneError, DeletedArrayError, EnvironmentMismatchError, MemoryBudgetError,
    NotSupportedError, ShardingError, StateError, UnreachableBlocksError, WorkerPausedError
)
from distarray.io.dask import (
    from_dask, from_delayed, to_dask_array
)
from distarray.io.hdf5 import (
    from_hdf5, to_hdf5
)
from distarray.io.npy import (
    load, save, savez, savez_compressed
)
from distarray.io.parquet import (
    from_parquet
)
from distarray.io.raw import (
    fromfile, tofile
)
from distarray.io.states import (
    load_state, save_state
)
from distarray.io.stores import (
    from_store
)
from distarray.io.text import (
    genfromtxt, loadtxt, savetxt
)
from distarray.io.xarray_view import (
    to_xarray
)
from distarray.io.zarr import (
    from_zarr, to_zarr
)
from distarray.ops.contractions import (
    inner, kron, matmul, matvec, outer, vdot, vecdot, vecmat
)
from distarray.ops.differences import (
    ediff1d
)
from distarray.ops.elementwise import (
    abs, absolute, acos, acosh, add, angle, arccos, arccosh, arcsin, arcsinh, arctan, arctan2, arctanh, asin,
    asinh, atan, atan2, atanh, bitwise_and, bitwise_count, bitwise_invert, bitwise_left_shift, bitwise_not,
    bitwise_or, bitwise_right_shift, bitwise_xor, cbrt, ceil, conj, conjugate, copysign, cos, cosh, deg2rad,
    degrees, divide, divmod, equal, exp, exp2, expm1, fabs, fix, float_power, floor, floor_divide, fmax, fmin,
    fmod, frexp, gcd, greater, greater_equal, heaviside, hypot, invert, isclose, iscomplex, isfinite, isinf,
    isnan, isnat, isneginf, isposinf, isreal, lcm, ldexp, left_shift, less, less_equal, log, log10, log1p,
    log2, logaddexp, logaddexp2, logical_and, logical_not, logical_or, logical_xor, maximum, minimum, mod,
    modf, multiply, negative, nextafter, not_equal, positive, pow, power, rad2deg, radians, reciprocal,
    remainder, right_shift, rint, sign, signbit, sin, sinc, sinh, spacing, sqrt, square, subtract, tan, tanh,
    true_divide, trunc
)
from distarray.ops.families import (
    ufunc
)
from distarray.ops.indexing import (
    take_along_axis
)
from distarray.ops.joining import (
    append, column_stack, dstack, hstack, roll, row_stack, vstack
)
from distarray.ops.manipulation import (
    broadcast_shapes, diagflat, tril, triu
)
from distarray.ops.quantiles import (
    median, nanmedian, nanpercentile, nanquantile, percentile, quantile
)
from distarray.ops.reductions import (
    average, count_nonzero, cumulative_prod, cumulative_sum
)
from distarray.ops.padding import (
    pad
)
from distarray.ops.repetition import (
    repeat, tile
)
from distarray.ops.searching import (
    searchsorted
)
from distarray.ops.segments import (
    segment_max, segment_mean, segment_min, segment_prod, segment_reduce, segment_sum
)
from distarray.ops.sorting import (
    argpartition, lexsort, partition, sort_complex, topk
)
from distarray.planner.cache import (
    plan_cache_clear, plan_cache_info
)
from distarray.sharding.mesh import (
    Mesh
)
from distarray.sharding.sharding import (
    Sharding
)
from distarray.sharding.team import (
    Team
)
from numpy import (
    exceptions, lib, show_config, typing
)
from distarray.version import __version__

bool = bool_
ndarray = DistArray
__array_api_version__: str

def __array_namespace_info__() -> ArrayNamespaceInfo: ...
__all__ = [
    "ArrayNamespaceInfo", "BlocksLostError", "ClusterGoneError", "DeletedArrayError", "DistArray",
    "EnvironmentMismatchError", "False_", "MemoryBudgetError", "Mesh", "NotSupportedError", "Sharding",
    "ShardingError", "StateError", "Team", "True_", "UniqueAllResult", "UniqueCountsResult",
    "UniqueInverseResult", "UnreachableBlocksError", "WorkerPausedError", "__array_api_version__",
    "__array_namespace_info__", "__version__", "abs", "absolute", "acos", "acosh", "add", "all", "allclose",
    "amax", "amin", "angle", "any", "append", "apply_along_axis", "apply_gufunc", "apply_over_axes", "arange",
    "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin",
    "argpartition", "argsort", "argwhere", "around", "array", "array2string", "array_equal", "array_equiv",
    "array_repr", "array_split", "array_str", "as_gufunc", "asanyarray", "asarray", "asarray_chkfinite",
    "ascontiguousarray", "asfortranarray", "asin", "asinh", "astype", "at", "atan", "atan2", "atanh",
    "atleast_1d", "atleast_2d", "atleast_3d", "average", "bartlett", "base_repr", "binary_repr", "bincount",
    "bitwise_and", "bitwise_count", "bitwise_invert", "bitwise_left_shift", "bitwise_not", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "blackman", "block", "blockwise", "bool", "bool_", "broadcast",
    "broadcast_arrays", "broadcast_shapes", "broadcast_to", "byte", "c_", "calibrate", "can_cast", "cbrt",
    "cdouble", "ceil", "choose", "clip", "coarsen", "column_stack", "common_type", "complex128", "complex64",
    "complexfloating", "compress", "compute", "concat", "concatenate", "config", "conj", "conjugate",
    "convolve", "copy", "copysign", "copyto", "corrcoef", "correlate", "cos", "cosh", "count_nonzero", "cov",
    "cross", "csingle", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "current_device",
    "current_team", "datetime64", "deg2rad", "degrees", "delete", "diag", "diag_indices", "diag_indices_from",
    "diagflat", "diagonal", "diff", "digitize", "divide", "divmod", "doctor", "dot", "double", "dsplit",
    "dstack", "dtype", "e", "ediff1d", "einsum", "einsum_path", "emath", "empty", "empty_like", "equal",
    "errstate", "euler_gamma", "exceptions", "exp", "exp2", "expand_dims", "explain", "expm1", "extract",
    "eye", "fabs", "fft", "fill_diagonal", "finfo", "fix", "flatnonzero", "flip", "fliplr", "flipud",
    "float16", "float32", "float64", "float_power", "floating", "floor", "floor_divide", "fmax", "fmin",
    "fmod", "format_float_positional", "format_float_scientific", "frexp", "from_blocks", "from_dask",
    "from_delayed", "from_dlpack", "from_hdf5", "from_parquet", "from_store", "from_zarr", "frombuffer",
    "fromfile", "fromfunction", "fromiter", "frompyfunc", "full", "full_like", "gcd", "generic", "genfromtxt",
    "geomspace", "get_printoptions", "geterr", "gradient", "greater", "greater_equal", "gufunc", "half",
    "hamming", "hanning", "heaviside", "histogram", "histogram2d", "histogram_bin_edges", "histogramdd",
    "hsplit", "hstack", "hypot", "i0", "identity", "iinfo", "imag", "in1d", "index_exp", "indices", "inexact",
    "inf", "inner", "insert", "int16", "int32", "int64", "int8", "int_", "intc", "integer", "interp",
    "intersect1d", "intp", "invert", "io", "isclose", "iscomplex", "iscomplexobj", "isdtype", "isfinite",
    "isfortran", "isin", "isinf", "isnan", "isnat", "isneginf", "isposinf", "isreal", "isrealobj", "isscalar",
    "issubdtype", "iterable", "ix_", "kaiser", "kron", "lcm", "ldexp", "left_shift", "less", "less_equal",
    "lexsort", "lib", "linalg", "linspace", "load", "load_state", "loadtxt", "log", "log10", "log1p", "log2",
    "logaddexp", "logaddexp2", "logical_and", "logical_not", "logical_or", "logical_xor", "logspace", "long",
    "longlong", "map_blocks", "map_overlap", "map_tiles", "mask_indices", "matmul", "matrix_transpose",
    "matvec", "max", "maximum", "may_share_memory", "mean", "median", "meshgrid", "mgrid", "min",
    "min_scalar_type", "minimum", "mintypecode", "mod", "modf", "moveaxis", "multiply", "nan", "nan_to_num",
    "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin",
    "nanpercentile", "nanprod", "nanquantile", "nanstd", "nansum", "nanvar", "ndarray", "ndenumerate", "ndim",
    "ndindex", "nditer", "negative", "newaxis", "nextafter", "nonzero", "not_equal", "number", "ogrid",
    "ones", "ones_like", "outer", "packbits", "pad", "partition", "percentile", "permute_dims", "persist",
    "pi", "piecewise", "place", "plan", "plan_cache_clear", "plan_cache_info", "plan_cost", "poly", "polyadd",
    "polyder", "polydiv", "polyfit", "polyint", "polymul", "polynomial", "polysub", "polyval", "positive",
    "pow", "power", "printoptions", "prod", "progress", "promote_types", "ptp", "put", "put_along_axis",
    "putmask", "quantile", "r_", "rad2deg", "radians", "random", "ravel", "ravel_multi_index", "real",
    "real_if_close", "reciprocal", "reduction", "remainder", "repeat", "require", "reshape", "resize",
    "result_type", "right_shift", "rint", "roll", "rollaxis", "roots", "rot90", "round", "row_stack", "s_",
    "save", "save_state", "savetxt", "savez", "savez_compressed", "scatter", "searchsorted", "segment_max",
    "segment_mean", "segment_min", "segment_prod", "segment_reduce", "segment_sum", "select",
    "set_printoptions", "setdiff1d", "seterr", "setxor1d", "shape", "shares_memory", "short", "show_config",
    "sign", "signbit", "signedinteger", "sin", "sinc", "single", "sinh", "size", "sliding_window_view",
    "sort", "sort_complex", "spacing", "special", "split", "sqrt", "square", "squeeze", "stack", "std",
    "subtract", "sum", "swapaxes", "take", "take_along_axis", "tan", "tanh", "tensordot", "testing", "tile",
    "timedelta64", "to_dask_array", "to_hdf5", "to_xarray", "to_zarr", "tofile", "topk", "trace", "transpose",
    "trapezoid", "tri", "tril", "tril_indices", "tril_indices_from", "trim_zeros", "triu", "triu_indices",
    "triu_indices_from", "true_divide", "trunc", "typecodes", "typename", "typing", "ubyte", "ufunc", "uint",
    "uint16", "uint32", "uint64", "uint8", "uintc", "uintp", "ulong", "ulonglong", "union1d", "unique",
    "unique_all", "unique_counts", "unique_inverse", "unique_values", "unpackbits", "unravel_index",
    "unsignedinteger", "unstack", "unwrap", "use", "ushort", "vander", "var", "vdot", "vecdot", "vecmat",
    "vectorize", "visualize_sharding", "vsplit", "vstack", "wait", "where", "zeros", "zeros_like"
]
