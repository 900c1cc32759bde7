# Written by docs/stub.py from the tables in __init__.py.
# ruff: noqa
# fmt: off
from numpy import (
    base_repr as base_repr, binary_repr as binary_repr, bool_ as bool_, complex128 as complex128,
    complex64 as complex64, complexfloating as complexfloating, datetime64 as datetime64, double as double,
    dtype as dtype, e as e, errstate as errstate, euler_gamma as euler_gamma, float16 as float16,
    float32 as float32, float64 as float64, floating as floating,
    format_float_positional as format_float_positional, format_float_scientific as format_float_scientific,
    generic as generic, get_printoptions as get_printoptions, geterr as geterr, index_exp as index_exp,
    inf as inf, int16 as int16, int32 as int32, int64 as int64, int8 as int8, intc as intc,
    integer as integer, intp as intp, issubdtype as issubdtype, mintypecode as mintypecode, nan as nan,
    ndindex as ndindex, newaxis as newaxis, number as number, pi as pi, printoptions as printoptions,
    s_ as s_, set_printoptions as set_printoptions, seterr as seterr, single as single,
    timedelta64 as timedelta64, typename as typename, uint16 as uint16, uint32 as uint32, uint64 as uint64,
    uint8 as uint8, uintp as uintp
)
from distarray import (
    config as config, fft as fft, linalg as linalg, random as random, special as special, testing as testing
)
from distarray.array.array import (
    DistArray as DistArray
)
from distarray.array.conversion import (
    array as array
)
from distarray.array.along_axis import (
    apply_along_axis as apply_along_axis, apply_over_axes as apply_over_axes, put_along_axis as put_along_axis
)
from distarray.array.bits import (
    packbits as packbits, unpackbits as unpackbits
)
from distarray.array.blockwise import (
    blockwise as blockwise, map_blocks as map_blocks
)
from distarray.array.calibration import (
    calibrate as calibrate
)
from distarray.array.capabilities import (
    ArrayNamespaceInfo as ArrayNamespaceInfo
)
from distarray.array.collections import (
    compute as compute, explain as explain, persist as persist, progress as progress, wait as wait
)
from distarray.array.conversion import (
    asanyarray as asanyarray, asarray as asarray, ascontiguousarray as ascontiguousarray,
    asfortranarray as asfortranarray, astype as astype, copy as copy, from_blocks as from_blocks,
    frombuffer as frombuffer, fromiter as fromiter, scatter as scatter
)
from distarray.array.covariance import (
    corrcoef as corrcoef, cov as cov
)
from distarray.array.creation import (
    arange as arange, empty as empty, empty_like as empty_like, eye as eye, fromfunction as fromfunction,
    full as full, full_like as full_like, identity as identity, indices as indices, ones as ones,
    ones_like as ones_like, tri as tri, vander as vander, zeros as zeros, zeros_like as zeros_like
)
from distarray.array.dlpack import (
    from_dlpack as from_dlpack
)
from distarray.array.dtype_functions import (
    can_cast as can_cast, common_type as common_type, finfo as finfo, iinfo as iinfo,
    iscomplexobj as iscomplexobj, isdtype as isdtype, isrealobj as isrealobj,
    min_scalar_type as min_scalar_type, promote_types as promote_types, result_type as result_type
)
from distarray.array.environment import (
    current_device as current_device, current_team as current_team, use as use
)
from distarray.array.functions import (
    allclose as allclose, array_equal as array_equal, array_equiv as array_equiv, choose as choose,
    copyto as copyto, delete as delete, fill_diagonal as fill_diagonal, insert as insert,
    isscalar as isscalar, iterable as iterable, ndim as ndim, place as place, put as put, putmask as putmask,
    resize as resize, select as select, shape as shape, size as size
)
from distarray.array.gufunc import (
    apply_gufunc as apply_gufunc, as_gufunc as as_gufunc, gufunc as gufunc
)
from distarray.array.histograms import (
    bincount as bincount, digitize as digitize, histogram as histogram, histogram2d as histogram2d,
    histogram_bin_edges as histogram_bin_edges, histogramdd as histogramdd
)
from distarray.array.index_tricks import (
    diag_indices as diag_indices, diag_indices_from as diag_indices_from, ix_ as ix_,
    mask_indices as mask_indices, ravel_multi_index as ravel_multi_index, tril_indices as tril_indices,
    tril_indices_from as tril_indices_from, triu_indices as triu_indices,
    triu_indices_from as triu_indices_from, unravel_index as unravel_index
)
from distarray.array.indexing import (
    argwhere as argwhere, compress as compress, extract as extract, flatnonzero as flatnonzero,
    nonzero as nonzero
)
from distarray.array.map_tiles import (
    map_tiles as map_tiles
)
from distarray.array.nan_reductions import (
    nanmax as nanmax, nanmean as nanmean, nanmin as nanmin, nanprod as nanprod, nanstd as nanstd,
    nansum as nansum, nanvar as nanvar
)
from distarray.array.nans import (
    nan_to_num as nan_to_num, nanargmax as nanargmax, nanargmin as nanargmin, nancumprod as nancumprod,
    nancumsum as nancumsum
)
from distarray.array.numpy_signatures import (
    all as all, amax as amax, amin as amin, any as any, argmax as argmax, argmin as argmin,
    argsort as argsort, around as around, clip as clip, concat as concat, concatenate as concatenate,
    count_nonzero as count_nonzero, cumprod as cumprod, cumsum as cumsum, diff as diff, max as max,
    mean as mean, min as min, prod as prod, ptp as ptp, repeat as repeat, round as round, sort as sort,
    stack as stack, std as std, sum as sum, take as take, take_along_axis as take_along_axis, tile as tile,
    trace as trace, tril as tril, triu as triu, var as var, where as where
)
from distarray.array.overlap import (
    map_overlap as map_overlap
)
from distarray.array.pieces import (
    block as block, piecewise as piecewise, trim_zeros as trim_zeros
)
from distarray.array.planning import (
    plan as plan, plan_cost as plan_cost
)
from distarray.array.polynomials import (
    poly as poly, polyadd as polyadd, polyder as polyder, polydiv as polydiv, polyfit as polyfit,
    polyint as polyint, polymul as polymul, polysub as polysub, polyval as polyval, roots as roots
)
from distarray.array.printing import (
    array2string as array2string, array_repr as array_repr, array_str as array_str
)
from distarray.array.repr import (
    visualize_sharding as visualize_sharding
)
from distarray.array.requirements import (
    asarray_chkfinite as asarray_chkfinite, require as require
)
from distarray.array.sequences import (
    geomspace as geomspace, linspace as linspace, logspace as logspace
)
from distarray.array.sets import (
    UniqueAllResult as UniqueAllResult, UniqueCountsResult as UniqueCountsResult,
    UniqueInverseResult as UniqueInverseResult, in1d as in1d, intersect1d as intersect1d, isin as isin,
    setdiff1d as setdiff1d, setxor1d as setxor1d, union1d as union1d, unique as unique,
    unique_all as unique_all, unique_counts as unique_counts, unique_inverse as unique_inverse,
    unique_values as unique_values
)
from distarray.array.signals import (
    convolve as convolve, correlate as correlate, gradient as gradient, interp as interp,
    trapezoid as trapezoid, unwrap as unwrap
)
from distarray.array.sliding import (
    coarsen as coarsen, sliding_window_view as sliding_window_view
)
from distarray.array.tensors import (
    cross as cross, einsum_path as einsum_path
)
from distarray.array.tree_reduction import (
    reduction as reduction
)
from distarray.array.views import (
    array_split as array_split, atleast_1d as atleast_1d, atleast_2d as atleast_2d, atleast_3d as atleast_3d,
    broadcast_arrays as broadcast_arrays, broadcast_to as broadcast_to, diag as diag, diagonal as diagonal,
    dsplit as dsplit, expand_dims as expand_dims, flip as flip, fliplr as fliplr, flipud as flipud,
    hsplit as hsplit, imag as imag, isfortran as isfortran, matrix_transpose as matrix_transpose,
    may_share_memory as may_share_memory, meshgrid as meshgrid, moveaxis as moveaxis,
    permute_dims as permute_dims, ravel as ravel, real as real, real_if_close as real_if_close,
    reshape as reshape, rollaxis as rollaxis, rot90 as rot90, shares_memory as shares_memory, split as split,
    squeeze as squeeze, swapaxes as swapaxes, transpose as transpose, unstack as unstack, vsplit as vsplit
)
from distarray.array.windows import (
    bartlett as bartlett, blackman as blackman, hamming as hamming, hanning as hanning, i0 as i0,
    kaiser as kaiser
)
from distarray.array.writes import (
    at as at
)
from distarray.errors import (
    BlocksLostError as BlocksLostError, ClusterGoneError as ClusterGoneError,
    DeletedArrayError as DeletedArrayError, EnvironmentMismatchError as EnvironmentMismatchError,
    MemoryBudgetError as MemoryBudgetError, NotSupportedError as NotSupportedError,
    ShardingError as ShardingError, UnreachableBlocksError as UnreachableBlocksError,
    WorkerPausedError as WorkerPausedError
)
from distarray.io.dask import (
    from_dask as from_dask, to_dask_array as to_dask_array
)
from distarray.io.npy import (
    load as load, save as save
)
from distarray.ops.contractions import (
    dot as dot, inner as inner, kron as kron, matmul as matmul, matvec as matvec, outer as outer,
    tensordot as tensordot, vdot as vdot, vecdot as vecdot, vecmat as vecmat
)
from distarray.ops.differences import (
    ediff1d as ediff1d
)
from distarray.ops.einsums import (
    einsum as einsum
)
from distarray.ops.elementwise import (
    abs as abs, absolute as absolute, acos as acos, acosh as acosh, add as add, angle as angle,
    arccos as arccos, arccosh as arccosh, arcsin as arcsin, arcsinh as arcsinh, arctan as arctan,
    arctan2 as arctan2, arctanh as arctanh, asin as asin, asinh as asinh, atan as atan, atan2 as atan2,
    atanh as atanh, bitwise_and as bitwise_and, bitwise_count as bitwise_count,
    bitwise_invert as bitwise_invert, bitwise_left_shift as bitwise_left_shift, bitwise_not as bitwise_not,
    bitwise_or as bitwise_or, bitwise_right_shift as bitwise_right_shift, bitwise_xor as bitwise_xor,
    cbrt as cbrt, ceil as ceil, conj as conj, conjugate as conjugate, copysign as copysign, cos as cos,
    cosh as cosh, deg2rad as deg2rad, degrees as degrees, divide as divide, divmod as divmod, equal as equal,
    exp as exp, exp2 as exp2, expm1 as expm1, fabs as fabs, fix as fix, float_power as float_power,
    floor as floor, floor_divide as floor_divide, fmax as fmax, fmin as fmin, fmod as fmod, frexp as frexp,
    gcd as gcd, greater as greater, greater_equal as greater_equal, heaviside as heaviside, hypot as hypot,
    invert as invert, isclose as isclose, iscomplex as iscomplex, isfinite as isfinite, isinf as isinf,
    isnan as isnan, isnat as isnat, isneginf as isneginf, isposinf as isposinf, isreal as isreal, lcm as lcm,
    ldexp as ldexp, left_shift as left_shift, less as less, less_equal as less_equal, log as log,
    log10 as log10, log1p as log1p, log2 as log2, logaddexp as logaddexp, logaddexp2 as logaddexp2,
    logical_and as logical_and, logical_not as logical_not, logical_or as logical_or,
    logical_xor as logical_xor, maximum as maximum, minimum as minimum, mod as mod, modf as modf,
    multiply as multiply, negative as negative, nextafter as nextafter, not_equal as not_equal,
    positive as positive, pow as pow, power as power, rad2deg as rad2deg, radians as radians,
    reciprocal as reciprocal, remainder as remainder, right_shift as right_shift, rint as rint, sign as sign,
    signbit as signbit, sin as sin, sinc as sinc, sinh as sinh, spacing as spacing, sqrt as sqrt,
    square as square, subtract as subtract, tan as tan, tanh as tanh, true_divide as true_divide,
    trunc as trunc
)
from distarray.ops.joining import (
    append as append, column_stack as column_stack, dstack as dstack, hstack as hstack, roll as roll,
    row_stack as row_stack, vstack as vstack
)
from distarray.ops.manipulation import (
    broadcast_shapes as broadcast_shapes, diagflat as diagflat
)
from distarray.ops.quantiles import (
    median as median, nanmedian as nanmedian, nanpercentile as nanpercentile, nanquantile as nanquantile,
    percentile as percentile, quantile as quantile
)
from distarray.ops.reductions import (
    average as average, cumulative_prod as cumulative_prod, cumulative_sum as cumulative_sum
)
from distarray.ops.repetition import (
    pad as pad
)
from distarray.ops.searching import (
    searchsorted as searchsorted
)
from distarray.ops.segments import (
    segment_max as segment_max, segment_mean as segment_mean, segment_min as segment_min,
    segment_prod as segment_prod, segment_reduce as segment_reduce, segment_sum as segment_sum
)
from distarray.ops.sorting import (
    argpartition as argpartition, lexsort as lexsort, partition as partition, sort_complex as sort_complex,
    topk as topk
)
from distarray.planner.cache import (
    plan_cache_clear as plan_cache_clear, plan_cache_info as plan_cache_info
)
from distarray.sharding.mesh import (
    Mesh as Mesh
)
from distarray.sharding.sharding import (
    Sharding as Sharding
)
from distarray.sharding.team import (
    Team as Team
)
from distarray.version import __version__ as __version__

bool = bool_
ndarray = DistArray
__array_api_version__: str

def __array_namespace_info__() -> ArrayNamespaceInfo: ...
__all__ = [
    "ArrayNamespaceInfo", "BlocksLostError", "ClusterGoneError", "DeletedArrayError", "DistArray",
    "EnvironmentMismatchError", "MemoryBudgetError", "Mesh", "NotSupportedError", "Sharding", "ShardingError",
    "Team", "UniqueAllResult", "UniqueCountsResult", "UniqueInverseResult", "UnreachableBlocksError",
    "WorkerPausedError", "__array_api_version__", "__array_namespace_info__", "__version__", "abs",
    "absolute", "acos", "acosh", "add", "all", "allclose", "amax", "amin", "angle", "any", "append",
    "apply_along_axis", "apply_gufunc", "apply_over_axes", "arange", "arccos", "arccosh", "arcsin", "arcsinh",
    "arctan", "arctan2", "arctanh", "argmax", "argmin", "argpartition", "argsort", "argwhere", "around",
    "array", "array2string", "array_equal", "array_equiv", "array_repr", "array_split", "array_str",
    "as_gufunc", "asanyarray", "asarray", "asarray_chkfinite", "ascontiguousarray", "asfortranarray", "asin",
    "asinh", "astype", "at", "atan", "atan2", "atanh", "atleast_1d", "atleast_2d", "atleast_3d", "average",
    "bartlett", "base_repr", "binary_repr", "bincount", "bitwise_and", "bitwise_count", "bitwise_invert",
    "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "blackman",
    "block", "blockwise", "bool", "bool_", "broadcast_arrays", "broadcast_shapes", "broadcast_to",
    "calibrate", "can_cast", "cbrt", "ceil", "choose", "clip", "coarsen", "column_stack", "common_type",
    "complex128", "complex64", "complexfloating", "compress", "compute", "concat", "concatenate", "config",
    "conj", "conjugate", "convolve", "copy", "copysign", "copyto", "corrcoef", "correlate", "cos", "cosh",
    "count_nonzero", "cov", "cross", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum",
    "current_device", "current_team", "datetime64", "deg2rad", "degrees", "delete", "diag", "diag_indices",
    "diag_indices_from", "diagflat", "diagonal", "diff", "digitize", "divide", "divmod", "dot", "double",
    "dsplit", "dstack", "dtype", "e", "ediff1d", "einsum", "einsum_path", "empty", "empty_like", "equal",
    "errstate", "euler_gamma", "exp", "exp2", "expand_dims", "explain", "expm1", "extract", "eye", "fabs",
    "fft", "fill_diagonal", "finfo", "fix", "flatnonzero", "flip", "fliplr", "flipud", "float16", "float32",
    "float64", "float_power", "floating", "floor", "floor_divide", "fmax", "fmin", "fmod",
    "format_float_positional", "format_float_scientific", "frexp", "from_blocks", "from_dask", "from_dlpack",
    "frombuffer", "fromfunction", "fromiter", "full", "full_like", "gcd", "generic", "geomspace",
    "get_printoptions", "geterr", "gradient", "greater", "greater_equal", "gufunc", "hamming", "hanning",
    "heaviside", "histogram", "histogram2d", "histogram_bin_edges", "histogramdd", "hsplit", "hstack",
    "hypot", "i0", "identity", "iinfo", "imag", "in1d", "index_exp", "indices", "inf", "inner", "insert",
    "int16", "int32", "int64", "int8", "intc", "integer", "interp", "intersect1d", "intp", "invert",
    "isclose", "iscomplex", "iscomplexobj", "isdtype", "isfinite", "isfortran", "isin", "isinf", "isnan",
    "isnat", "isneginf", "isposinf", "isreal", "isrealobj", "isscalar", "issubdtype", "iterable", "ix_",
    "kaiser", "kron", "lcm", "ldexp", "left_shift", "less", "less_equal", "lexsort", "linalg", "linspace",
    "load", "log", "log10", "log1p", "log2", "logaddexp", "logaddexp2", "logical_and", "logical_not",
    "logical_or", "logical_xor", "logspace", "map_blocks", "map_overlap", "map_tiles", "mask_indices",
    "matmul", "matrix_transpose", "matvec", "max", "maximum", "may_share_memory", "mean", "median",
    "meshgrid", "min", "min_scalar_type", "minimum", "mintypecode", "mod", "modf", "moveaxis", "multiply",
    "nan", "nan_to_num", "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmean",
    "nanmedian", "nanmin", "nanpercentile", "nanprod", "nanquantile", "nanstd", "nansum", "nanvar", "ndarray",
    "ndim", "ndindex", "negative", "newaxis", "nextafter", "nonzero", "not_equal", "number", "ones",
    "ones_like", "outer", "packbits", "pad", "partition", "percentile", "permute_dims", "persist", "pi",
    "piecewise", "place", "plan", "plan_cache_clear", "plan_cache_info", "plan_cost", "poly", "polyadd",
    "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub", "polyval", "positive", "pow", "power",
    "printoptions", "prod", "progress", "promote_types", "ptp", "put", "put_along_axis", "putmask",
    "quantile", "rad2deg", "radians", "random", "ravel", "ravel_multi_index", "real", "real_if_close",
    "reciprocal", "reduction", "remainder", "repeat", "require", "reshape", "resize", "result_type",
    "right_shift", "rint", "roll", "rollaxis", "roots", "rot90", "round", "row_stack", "s_", "save",
    "scatter", "searchsorted", "segment_max", "segment_mean", "segment_min", "segment_prod", "segment_reduce",
    "segment_sum", "select", "set_printoptions", "setdiff1d", "seterr", "setxor1d", "shape", "shares_memory",
    "sign", "signbit", "sin", "sinc", "single", "sinh", "size", "sliding_window_view", "sort", "sort_complex",
    "spacing", "special", "split", "sqrt", "square", "squeeze", "stack", "std", "subtract", "sum", "swapaxes",
    "take", "take_along_axis", "tan", "tanh", "tensordot", "testing", "tile", "timedelta64", "to_dask_array",
    "topk", "trace", "transpose", "trapezoid", "tri", "tril", "tril_indices", "tril_indices_from",
    "trim_zeros", "triu", "triu_indices", "triu_indices_from", "true_divide", "trunc", "typename", "uint16",
    "uint32", "uint64", "uint8", "uintp", "union1d", "unique", "unique_all", "unique_counts",
    "unique_inverse", "unique_values", "unpackbits", "unravel_index", "unstack", "unwrap", "use", "vander",
    "var", "vdot", "vecdot", "vecmat", "visualize_sharding", "vsplit", "vstack", "wait", "where", "zeros",
    "zeros_like"
]
