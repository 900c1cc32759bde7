"""distarray: NumPy arrays that live across a team of workers.

The names of the array API standard, NumPy's spellings beside them, and what is distarray's own. With ``import distarray
as dx`` in place of ``import numpy as np`` a script runs on the threads of this process; with a Dask ``Client`` active,
on its workers.

Every name stands here once. ``__init__.pyi`` says the same to type checkers and editors; ``docs/stub.py`` writes it.
"""

from __future__ import annotations

from functools import cache as _cache
from typing import Any as _Any

import numpy as _np

from distarray import config as config
from distarray import hooks as _hooks
from distarray.array.array import DistArray
from distarray.composed.conversion import array as array  # before the others, for it hides the folder of this name
from distarray.lazy import attach as _attach
from distarray.version import __version__ as __version__

ndarray = DistArray
#: The names that are made here.
_OWN = "DistArray __array_api_version__ __array_namespace_info__ __version__ array bool config ndarray"

#: Dtypes, constants and functions that are numpy's.
_NUMPY = (
    "False_ True_ base_repr binary_repr bool_ byte cdouble complex128 complex64 complexfloating csingle datetime64 "
    "double dtype e errstate euler_gamma float16 float32 float64 floating format_float_positional "
    "format_float_scientific generic get_printoptions geterr half index_exp inexact inf int16 int32 int64 "
    "int8 int_ intc integer intp isscalar issubdtype long longlong mask_indices mintypecode nan ndindex newaxis number "
    "pi printoptions s_ set_printoptions seterr short signedinteger single timedelta64 typecodes typename ubyte "
    "uint uint16 uint32 uint64 uint8 uintc uintp ulong ulonglong unsignedinteger ushort"
)

#: Where the other names live: they are loaded at their first use.
_HOMES = {
    "distarray.composed.along_axis": "apply_along_axis apply_over_axes put_along_axis",
    "distarray.composed.bits": "packbits unpackbits",
    "distarray.composed.blockwise": "blockwise map_blocks",
    "distarray.composed.calibration": "calibrate",
    "distarray.composed.capabilities": "ArrayNamespaceInfo",
    "distarray.composed.collections": "compute explain persist progress wait",
    "distarray.composed.conversion": (
        "asanyarray asarray asarray_chkfinite ascontiguousarray asfortranarray astype copy from_blocks from_dlpack "
        "frombuffer fromiter require scatter"
    ),
    "distarray.composed.covariance": "corrcoef cov",
    "distarray.composed.creation": (
        "arange empty empty_like eye fromfunction full full_like identity indices ones ones_like tri vander "
        "zeros zeros_like"
    ),
    "distarray.composed.dtype_functions": (
        "can_cast common_type finfo iinfo iscomplexobj isdtype isrealobj min_scalar_type promote_types result_type"
    ),
    "distarray.array.environment": "current_device current_team use",
    "distarray.composed.functions": (
        "allclose array_equal array_equiv choose copyto delete fill_diagonal insert iterable ndim place "
        "put putmask resize select shape size"
    ),
    "distarray.composed.gufunc": "apply_gufunc as_gufunc gufunc",
    "distarray.composed.histograms": "bincount digitize histogram histogram2d histogram_bin_edges histogramdd",
    "distarray.composed.index_objects": "c_ mgrid ogrid r_",
    "distarray.composed.index_tricks": (
        "diag_indices diag_indices_from ix_ ravel_multi_index tril_indices tril_indices_from "
        "triu_indices triu_indices_from unravel_index"
    ),
    "distarray.composed.iteration": "broadcast ndenumerate nditer",
    "distarray.composed.nonzero": "argwhere compress extract flatnonzero nonzero",
    "distarray.composed.map_tiles": "map_tiles",
    "distarray.composed.nans": (
        "nan_to_num nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmin nanprod nanstd nansum nanvar"
    ),
    "distarray.composed.numpy_signatures": (
        "all amax amin any argmax argmin argsort around clip concat concatenate cumprod cumsum "
        "diff dot max mean min prod ptp round sort stack std sum take trace var where"
    ),
    "distarray.composed.overlap": "map_overlap",
    "distarray.composed.pieces": "block piecewise trim_zeros",
    "distarray.composed.planning": "plan plan_cost",
    "distarray.composed.polynomials": "poly polyadd polyder polydiv polyfit polyint polymul polysub polyval roots",
    "distarray.composed.printing": "array2string array_repr array_str",
    "distarray.array.repr": "visualize_sharding",
    "distarray.composed.sequences": "geomspace linspace logspace",
    "distarray.composed.sets": (
        "UniqueAllResult UniqueCountsResult UniqueInverseResult in1d intersect1d isin setdiff1d setxor1d union1d "
        "unique unique_all unique_counts unique_inverse unique_values"
    ),
    "distarray.composed.signals": "convolve correlate gradient interp trapezoid unwrap",
    "distarray.composed.sliding": "coarsen sliding_window_view",
    "distarray.composed.tensors": "cross einsum einsum_path tensordot",
    "distarray.composed.tree_reduction": "reduction",
    "distarray.composed.views": (
        "array_split atleast_1d atleast_2d atleast_3d broadcast_arrays broadcast_to diag diagonal dsplit "
        "expand_dims flip fliplr flipud hsplit imag isfortran matrix_transpose may_share_memory meshgrid "
        "moveaxis permute_dims ravel real real_if_close reshape rollaxis rot90 shares_memory split squeeze "
        "swapaxes transpose unstack vsplit"
    ),
    "distarray.composed.vectorized": "frompyfunc vectorize",
    "distarray.composed.windows": "bartlett blackman hamming hanning i0 kaiser",
    "distarray.array.writes": "at",
    "distarray.diagnostics.doctor": "doctor",
    "distarray.errors": (
        "BlocksLostError ClusterGoneError DeletedArrayError EnvironmentMismatchError MemoryBudgetError "
        "NotSupportedError ShardingError StateError UnreachableBlocksError WorkerPausedError"
    ),
    "distarray.io.dask": "from_dask from_delayed to_dask_array",
    "distarray.io.hdf5": "from_hdf5 to_hdf5",
    "distarray.io.npy": "load save savez savez_compressed",
    "distarray.io.parquet": "from_parquet",
    "distarray.io.raw": "fromfile tofile",
    "distarray.io.states": "load_state save_state",
    "distarray.io.stores": "from_store",
    "distarray.io.text": "genfromtxt loadtxt savetxt",
    "distarray.io.xarray_view": "to_xarray",
    "distarray.io.zarr": "from_zarr to_zarr",
    "distarray.ops.contractions": "inner kron matmul matvec outer vdot vecdot vecmat",
    "distarray.ops.differences": "ediff1d",
    "distarray.ops.elementwise": (
        "abs absolute acos acosh add angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan "
        "atan2 atanh bitwise_and bitwise_count bitwise_invert bitwise_left_shift bitwise_not bitwise_or "
        "bitwise_right_shift bitwise_xor cbrt ceil conj conjugate copysign cos cosh deg2rad degrees divide "
        "divmod equal exp exp2 expm1 fabs fix float_power floor floor_divide fmax fmin fmod frexp gcd greater "
        "greater_equal heaviside hypot invert isclose iscomplex isfinite isinf isnan isnat isneginf isposinf "
        "isreal lcm ldexp left_shift less less_equal log log10 log1p log2 logaddexp logaddexp2 logical_and "
        "logical_not logical_or logical_xor maximum minimum mod modf multiply negative nextafter not_equal "
        "positive pow power rad2deg radians reciprocal remainder right_shift rint sign signbit sin sinc sinh "
        "spacing sqrt square subtract tan tanh true_divide trunc"
    ),
    "distarray.ops.families": "ufunc",
    "distarray.ops.indexing": "take_along_axis",
    "distarray.ops.joining": "append column_stack dstack hstack roll row_stack vstack",
    "distarray.ops.manipulation": "broadcast_shapes diagflat tril triu",
    "distarray.ops.quantiles": "median nanmedian nanpercentile nanquantile percentile quantile",
    "distarray.ops.reductions": "average count_nonzero cumulative_prod cumulative_sum",
    "distarray.ops.padding": "pad",
    "distarray.ops.repetition": "repeat tile",
    "distarray.ops.searching": "searchsorted",
    "distarray.ops.segments": "segment_max segment_mean segment_min segment_prod segment_reduce segment_sum",
    "distarray.ops.sorting": "argpartition lexsort partition sort_complex topk",
    "distarray.planner.cache": "plan_cache_clear plan_cache_info",
    "distarray.sharding.mesh": "Mesh",
    "distarray.sharding.sharding": "Sharding",
    "distarray.sharding.team": "Team",
    "numpy": "exceptions lib show_config typing",
}
_MODULES = ("emath", "fft", "io", "linalg", "polynomial", "random", "special", "testing")

__array_api_version__ = "2025.12"


def _public(name: str, value: _Any) -> _Any:
    """Return a public function as it is called here: with numpy's arguments too, where numpy has it."""
    from distarray.composed.numpy_arguments import spelled

    return spelled(getattr(_np, name, None), value, __name__)


array = _public("array", array)
vars().update({_name: getattr(_np, _name) for _name in _NUMPY.split()}, bool=_np.bool_)
_loaded = _attach(__name__, _HOMES, _MODULES, _public)
__all__ = sorted([*_MODULES, *" ".join([_OWN, _NUMPY, *_HOMES.values()]).split()])


@_cache  # an import statement of a loaded module takes longer
def _numpy_protocol() -> _Any:
    """Return the module of numpy's protocols, which is loaded when numpy asks for it."""
    from distarray.composed import numpy_protocol

    return numpy_protocol


def _lazily_read(value: _Any, env: _Any) -> _Any:
    """Return the node of others' data that tasks read, or None."""
    from distarray.io.operands import lazily_read

    return lazily_read(value, env)


def _nested(items: _Any) -> _Any:
    """Return nested sequences that hold arrays as one, or None."""
    from distarray.composed.conversion import nested

    return nested(items)


_hooks.nested = _nested
_hooks.numpy_protocol = _numpy_protocol
_hooks.lazily_read = _lazily_read


def __array_namespace_info__() -> _Any:
    """Return the standard's inspection: capabilities, dtypes, devices."""
    from distarray.composed.capabilities import ArrayNamespaceInfo

    return ArrayNamespaceInfo()


def __getattr__(name: str) -> _Any:
    try:
        return _loaded(name)
    except AttributeError:
        from distarray.composed.numpy_alternatives import not_here

        raise not_here(__name__, name) from None


def __dir__() -> list[str]:
    return list(__all__)
