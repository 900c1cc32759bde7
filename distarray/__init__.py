"""distarray: NumPy arrays that live across a team of workers.

The names of the array API standard, NumPy's spellings beside them, and what is distarray's own. With ``import distarray
as dx`` in place of ``import numpy as np`` a script runs on the threads of this process; with a Dask ``Client`` active,
on its workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import Any as _Any

import numpy as _np

from distarray import config
from distarray.array.array import DistArray
from distarray.array.conversion import (
    array,
    asanyarray,
    asarray,
    ascontiguousarray,
    asfortranarray,
    astype,
    copy,
    from_blocks,
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
    identity,
    indices,
    ones,
    ones_like,
    tri,
    vander,
    zeros,
    zeros_like,
)
from distarray.array.environment import current_device, current_team, use
from distarray.array.views import (
    array_split,
    atleast_1d,
    atleast_2d,
    atleast_3d,
    broadcast_arrays,
    broadcast_to,
    diag,
    diagonal,
    dsplit,
    expand_dims,
    flip,
    fliplr,
    flipud,
    hsplit,
    imag,
    isfortran,
    matrix_transpose,
    may_share_memory,
    meshgrid,
    moveaxis,
    permute_dims,
    ravel,
    real,
    real_if_close,
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
    BlocksLostError,
    ClusterGoneError,
    DeletedArrayError,
    EnvironmentMismatchError,
    MemoryBudgetError,
    NotSupportedError,
    ShardingError,
    UnreachableBlocksError,
    WorkerPausedError,
)
from distarray.lazy import attach as _attach
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from distarray.sharding.team import Team
from distarray.version import __version__

if TYPE_CHECKING:  # loaded at their first use: see _HOMES
    from distarray import fft, linalg, random, special, testing
    from distarray.array.along_axis import apply_along_axis, apply_over_axes, put_along_axis
    from distarray.array.bits import packbits, unpackbits
    from distarray.array.blockwise import blockwise, map_blocks
    from distarray.array.calibration import calibrate
    from distarray.array.capabilities import ArrayNamespaceInfo
    from distarray.array.collections import compute, explain, persist, progress, wait
    from distarray.array.covariance import corrcoef, cov
    from distarray.array.dlpack import from_dlpack
    from distarray.array.dtype_functions import (
        can_cast,
        common_type,
        finfo,
        iinfo,
        iscomplexobj,
        isdtype,
        isrealobj,
        min_scalar_type,
        promote_types,
        result_type,
    )
    from distarray.array.functions import (
        allclose,
        array_equal,
        array_equiv,
        choose,
        copyto,
        delete,
        fill_diagonal,
        insert,
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
    )
    from distarray.array.gufunc import apply_gufunc, as_gufunc, gufunc
    from distarray.array.histograms import bincount, digitize, histogram, histogram2d, histogram_bin_edges, histogramdd
    from distarray.array.index_tricks import (
        diag_indices,
        diag_indices_from,
        ix_,
        mask_indices,
        ravel_multi_index,
        tril_indices,
        tril_indices_from,
        triu_indices,
        triu_indices_from,
        unravel_index,
    )
    from distarray.array.indexing import argwhere, compress, extract, flatnonzero, nonzero
    from distarray.array.map_tiles import map_tiles
    from distarray.array.nan_reductions import nanmax, nanmean, nanmin, nanprod, nanstd, nansum, nanvar
    from distarray.array.nans import nan_to_num, nanargmax, nanargmin, nancumprod, nancumsum
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
        ptp,
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
    from distarray.array.overlap import map_overlap
    from distarray.array.pieces import block, piecewise, trim_zeros
    from distarray.array.planning import plan, plan_cost
    from distarray.array.polynomials import (
        poly,
        polyadd,
        polyder,
        polydiv,
        polyfit,
        polyint,
        polymul,
        polysub,
        polyval,
        roots,
    )
    from distarray.array.printing import array2string, array_repr, array_str
    from distarray.array.repr import visualize_sharding
    from distarray.array.requirements import asarray_chkfinite, require
    from distarray.array.sequences import geomspace, linspace, logspace
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
    from distarray.array.signals import convolve, correlate, gradient, interp, trapezoid, unwrap
    from distarray.array.sliding import coarsen, sliding_window_view
    from distarray.array.tensors import cross, einsum_path
    from distarray.array.tree_reduction import reduction
    from distarray.array.windows import bartlett, blackman, hamming, hanning, i0, kaiser
    from distarray.io.dask import from_dask, to_dask_array
    from distarray.io.npy import load, save
    from distarray.ops.contractions import (
        dot,
        inner,
        kron,
        matmul,
        matvec,
        outer,
        tensordot,
        vdot,
        vecdot,
        vecmat,
    )
    from distarray.ops.einsums import einsum
    from distarray.ops.elementwise import (
        abs,
        absolute,
        acos,
        acosh,
        add,
        angle,
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
        bitwise_and,
        bitwise_count,
        bitwise_invert,
        bitwise_left_shift,
        bitwise_not,
        bitwise_or,
        bitwise_right_shift,
        bitwise_xor,
        cbrt,
        ceil,
        conj,
        conjugate,
        copysign,
        cos,
        cosh,
        deg2rad,
        degrees,
        divide,
        divmod,
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
        hypot,
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
        maximum,
        minimum,
        mod,
        modf,
        multiply,
        negative,
        nextafter,
        not_equal,
        positive,
        pow,
        power,
        rad2deg,
        radians,
        reciprocal,
        remainder,
        right_shift,
        rint,
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
        true_divide,
        trunc,
    )
    from distarray.ops.manipulation import (
        append,
        broadcast_shapes,
        column_stack,
        diagflat,
        dstack,
        ediff1d,
        hstack,
        pad,
        roll,
        row_stack,
        vstack,
    )
    from distarray.ops.quantiles import median, nanmedian, nanpercentile, nanquantile, percentile, quantile
    from distarray.ops.reductions import average, cumulative_prod, cumulative_sum
    from distarray.ops.searching import searchsorted
    from distarray.ops.segments import segment_max, segment_mean, segment_min, segment_prod, segment_reduce, segment_sum
    from distarray.ops.sorting import argpartition, lexsort, partition, sort_complex, topk
    from distarray.planner.cache import plan_cache_clear, plan_cache_info

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
issubdtype = _np.issubdtype
mintypecode = _np.mintypecode
typename = _np.typename
base_repr = _np.base_repr
binary_repr = _np.binary_repr
format_float_positional = _np.format_float_positional
format_float_scientific = _np.format_float_scientific
e = _np.e
inf = _np.inf
nan = _np.nan
newaxis = _np.newaxis
pi = _np.pi
euler_gamma = _np.euler_gamma
bool = _np.bool_
ndarray = DistArray

__array_api_version__ = "2025.12"

#: Where the names live that are loaded at their first use.
_HOMES = {
    "distarray.array.along_axis": "apply_along_axis apply_over_axes put_along_axis",
    "distarray.array.bits": "packbits unpackbits",
    "distarray.array.blockwise": "blockwise map_blocks",
    "distarray.array.calibration": "calibrate",
    "distarray.array.capabilities": "ArrayNamespaceInfo",
    "distarray.array.collections": "compute explain persist progress wait",
    "distarray.array.covariance": "corrcoef cov",
    "distarray.array.dlpack": "from_dlpack",
    "distarray.array.dtype_functions": (
        "can_cast common_type finfo iinfo iscomplexobj isdtype isrealobj min_scalar_type promote_types result_type"
    ),
    "distarray.array.functions": (
        "allclose array_equal array_equiv choose copyto delete fill_diagonal insert isscalar iterable ndim "
        "place put putmask resize select shape size"
    ),
    "distarray.array.gufunc": "apply_gufunc as_gufunc gufunc",
    "distarray.array.histograms": "bincount digitize histogram histogram2d histogram_bin_edges histogramdd",
    "distarray.array.index_tricks": (
        "diag_indices diag_indices_from ix_ mask_indices ravel_multi_index tril_indices tril_indices_from "
        "triu_indices triu_indices_from unravel_index"
    ),
    "distarray.array.indexing": "argwhere compress extract flatnonzero nonzero",
    "distarray.array.map_tiles": "map_tiles",
    "distarray.array.nan_reductions": "nanmax nanmean nanmin nanprod nanstd nansum nanvar",
    "distarray.array.nans": "nan_to_num nanargmax nanargmin nancumprod nancumsum",
    "distarray.array.numpy_signatures": (
        "all amax amin any argmax argmin argsort around clip concat concatenate count_nonzero cumprod cumsum "
        "diff max mean min prod ptp repeat round sort stack std sum take take_along_axis tile trace tril triu "
        "var where"
    ),
    "distarray.array.overlap": "map_overlap",
    "distarray.array.pieces": "block piecewise trim_zeros",
    "distarray.array.planning": "plan plan_cost",
    "distarray.array.polynomials": "poly polyadd polyder polydiv polyfit polyint polymul polysub polyval roots",
    "distarray.array.printing": "array2string array_repr array_str",
    "distarray.array.repr": "visualize_sharding",
    "distarray.array.requirements": "asarray_chkfinite require",
    "distarray.array.sequences": "geomspace linspace logspace",
    "distarray.array.sets": (
        "UniqueAllResult UniqueCountsResult UniqueInverseResult in1d intersect1d isin setdiff1d setxor1d "
        "union1d unique unique_all unique_counts unique_inverse unique_values"
    ),
    "distarray.array.signals": "convolve correlate gradient interp trapezoid unwrap",
    "distarray.array.sliding": "coarsen sliding_window_view",
    "distarray.array.tensors": "cross einsum_path",
    "distarray.array.tree_reduction": "reduction",
    "distarray.array.windows": "bartlett blackman hamming hanning i0 kaiser",
    "distarray.io.dask": "from_dask to_dask_array",
    "distarray.io.npy": "load save",
    "distarray.ops.contractions": "dot inner kron matmul matvec outer tensordot vdot vecdot vecmat",
    "distarray.ops.einsums": "einsum",
    "distarray.ops.elementwise": (
        "abs absolute acos acosh add angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh "
        "atan atan2 atanh bitwise_and bitwise_count bitwise_invert bitwise_left_shift bitwise_not bitwise_or "
        "bitwise_right_shift bitwise_xor cbrt ceil conj conjugate copysign cos cosh deg2rad degrees divide "
        "divmod equal exp exp2 expm1 fabs fix float_power floor floor_divide fmax fmin fmod frexp gcd greater "
        "greater_equal heaviside hypot invert isclose iscomplex isfinite isinf isnan isnat isneginf isposinf "
        "isreal lcm ldexp left_shift less less_equal log log10 log1p log2 logaddexp logaddexp2 logical_and "
        "logical_not logical_or logical_xor maximum minimum mod modf multiply negative nextafter "
        "not_equal positive pow power rad2deg radians reciprocal remainder right_shift rint sign signbit sin "
        "sinc sinh spacing sqrt square subtract tan tanh true_divide trunc"
    ),
    "distarray.ops.manipulation": (
        "append broadcast_shapes column_stack diagflat dstack ediff1d hstack pad roll row_stack vstack"
    ),
    "distarray.ops.quantiles": "median nanmedian nanpercentile nanquantile percentile quantile",
    "distarray.ops.reductions": "average cumulative_prod cumulative_sum",
    "distarray.ops.searching": "searchsorted",
    "distarray.ops.segments": "segment_max segment_mean segment_min segment_prod segment_reduce segment_sum",
    "distarray.ops.sorting": "argpartition lexsort partition sort_complex topk",
    "distarray.planner.cache": "plan_cache_clear plan_cache_info",
}


_loaded = _attach(__name__, _HOMES, ("fft", "linalg", "random", "special", "testing"))


def __array_namespace_info__() -> ArrayNamespaceInfo:
    """The standard's inspection: capabilities, dtypes, devices."""
    from distarray.array.capabilities import ArrayNamespaceInfo

    return ArrayNamespaceInfo()


def __getattr__(name: str) -> _Any:  # functions and modules
    try:
        return _loaded(name)
    except AttributeError:
        from distarray.array.numpy_alternatives import ALTERNATIVES

        instead = ALTERNATIVES.get(f"numpy.{name}")
        if instead is None:
            raise
        raise AttributeError(f"module 'distarray' has no attribute {name!r}; use {instead}") from None


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "__array_api_version__", "__array_namespace_info__", "__version__", "abs", "absolute", "acos", "acosh", "add",
    "all", "allclose", "amax", "amin", "angle", "any", "append", "apply_along_axis", "apply_gufunc",
    "apply_over_axes", "arange",
    "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argpartition",
    "argsort", "argwhere", "around", "array", "array2string", "array_equal", "array_equiv", "array_repr",
    "array_split", "array_str", "ArrayNamespaceInfo", "as_gufunc", "asanyarray", "asarray", "asarray_chkfinite",
    "ascontiguousarray", "asfortranarray", "asin", "asinh", "astype", "at", "atan", "atan2", "atanh", "atleast_1d",
    "atleast_2d", "atleast_3d", "average", "bartlett", "base_repr", "binary_repr", "bincount", "bitwise_and",
    "bitwise_count", "bitwise_invert", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift",
    "bitwise_xor", "blackman", "block", "blockwise", "BlocksLostError", "bool", "bool_", "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to", "calibrate", "can_cast", "cbrt", "ceil", "choose", "clip", "ClusterGoneError", "coarsen",
    "column_stack", "common_type", "complex128",
    "complex64", "complexfloating", "compress", "compute", "concat", "concatenate", "config", "conj", "conjugate",
    "convolve", "copy", "copysign", "copyto", "corrcoef", "correlate", "cos", "cosh", "count_nonzero", "cov", "cross",
    "cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "current_device", "current_team", "datetime64",
    "deg2rad", "degrees", "delete", "DeletedArrayError", "diag", "diag_indices", "diag_indices_from", "diagflat",
    "diagonal", "diff", "digitize", "DistArray", "divide", "divmod", "dot", "double", "dsplit", "dstack", "dtype",
    "e", "ediff1d", "einsum", "einsum_path", "empty", "empty_like", "EnvironmentMismatchError", "equal", "errstate",
    "euler_gamma", "exp", "exp2", "expand_dims", "explain", "expm1", "extract", "eye", "fabs", "fft", "fill_diagonal",
    "finfo", "fix", "flatnonzero", "flip", "fliplr", "flipud", "float16", "float32", "float64", "float_power",
    "floating", "floor", "floor_divide", "fmax", "fmin", "fmod", "format_float_positional", "format_float_scientific",
    "frexp", "from_blocks", "from_dask", "from_dlpack", "frombuffer", "fromfunction", "fromiter", "full", "full_like",
    "gcd", "generic", "geomspace", "get_printoptions", "geterr", "gradient", "greater", "greater_equal", "gufunc",
    "hamming",
    "hanning", "heaviside", "histogram", "histogram2d", "histogram_bin_edges", "histogramdd", "hsplit", "hstack",
    "hypot", "i0", "identity", "iinfo", "imag", "in1d", "index_exp", "indices", "inf", "inner", "insert", "int16",
    "int32", "int64", "int8", "intc", "integer", "interp", "intersect1d", "intp", "invert", "isclose", "iscomplex",
    "iscomplexobj", "isdtype", "isfinite", "isfortran", "isin", "isinf", "isnan", "isnat", "isneginf", "isposinf",
    "isreal", "isrealobj", "isscalar", "issubdtype", "iterable", "ix_", "kaiser", "kron", "lcm", "ldexp",
    "left_shift", "less", "less_equal", "lexsort", "linalg", "linspace", "load", "log", "log10", "log1p", "log2",
    "logaddexp", "logaddexp2", "logical_and", "logical_not", "logical_or", "logical_xor", "logspace", "map_blocks",
    "map_overlap", "map_tiles", "mask_indices", "matmul", "matrix_transpose", "matvec", "max", "maximum",
    "may_share_memory", "mean", "median", "MemoryBudgetError", "Mesh", "meshgrid", "min", "min_scalar_type",
    "minimum", "mintypecode", "mod", "modf", "moveaxis", "multiply", "nan", "nan_to_num", "nanargmax", "nanargmin",
    "nancumprod", "nancumsum", "nanmax", "nanmean", "nanmedian", "nanmin", "nanpercentile", "nanprod", "nanquantile",
    "nanstd", "nansum", "nanvar", "ndarray", "ndim", "ndindex", "negative", "newaxis", "nextafter", "nonzero",
    "not_equal", "NotSupportedError", "number", "ones", "ones_like", "outer", "packbits", "pad", "partition",
    "percentile", "permute_dims", "persist", "pi", "piecewise", "place", "plan", "plan_cache_clear", "plan_cache_info",
    "plan_cost", "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub", "polyval",
    "positive", "pow",
    "power", "printoptions", "prod", "progress", "promote_types", "ptp", "put", "put_along_axis", "putmask", "quantile",
    "rad2deg", "radians", "random", "ravel", "ravel_multi_index", "real", "real_if_close", "reciprocal", "reduction",
    "remainder",
    "repeat", "require", "reshape", "resize", "result_type", "right_shift", "rint", "roll", "rollaxis", "roots",
    "rot90", "round", "row_stack", "s_", "save", "scatter", "searchsorted", "segment_max", "segment_mean",
    "segment_min", "segment_prod", "segment_reduce", "segment_sum", "select", "set_printoptions", "setdiff1d",
    "seterr", "setxor1d", "shape", "Sharding", "ShardingError", "shares_memory", "sign", "signbit", "sin", "sinc",
    "single", "sinh", "size", "sliding_window_view", "sort", "sort_complex", "spacing", "special", "split", "sqrt",
    "square", "squeeze",
    "stack", "std", "subtract", "sum", "swapaxes", "take", "take_along_axis", "tan", "tanh", "Team", "tensordot",
    "testing", "tile", "timedelta64", "to_dask_array", "topk", "trace", "transpose", "trapezoid", "tri", "tril",
    "tril_indices", "tril_indices_from", "trim_zeros", "triu", "triu_indices", "triu_indices_from", "true_divide",
    "trunc", "typename", "uint16", "uint32", "uint64", "uint8", "uintp", "union1d", "unique", "unique_all",
    "unique_counts", "unique_inverse", "unique_values", "UniqueAllResult", "UniqueCountsResult",
    "UniqueInverseResult", "unpackbits", "unravel_index", "UnreachableBlocksError",
    "unstack", "unwrap", "use", "vander", "var", "vdot",
    "vecdot", "vecmat", "visualize_sharding", "vsplit", "vstack", "wait", "where", "WorkerPausedError", "zeros",
    "zeros_like",
]  # fmt: skip
