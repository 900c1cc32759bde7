"""What to do instead of a function of numpy that distarray does not have: the way out in every refusal.

`ALTERNATIVES` names an expression for each function that has arrays among its arguments and no implementation here,
`OTHERS` one for each class and module; `NO_ARRAYS` says why a function of numpy needs none: it is about numpy itself,
or about numbers and text. Together with the implementations they cover numpy's namespaces; a test walks them.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Text has no places that a task could begin at.
_TEXT = "dx.asarray(np.{0}(...)), which reads in this process"

#: The way out for each function without an implementation, by numpy's dotted name.
ALTERNATIVES: Mapping[str, str] = {
    "numpy.fromregex": _TEXT.format("fromregex"),
    "numpy.fromstring": _TEXT.format("fromstring"),
    # calendars and text: no kernel, and no dtype for the text
    "numpy.busday_count": 'dx.map_blocks(np.busday_count, x, y, dtype="int64")',
    "numpy.busday_offset": "dx.map_blocks(np.busday_offset, x, offsets=1, roll=..., dtype=x.dtype)",
    "numpy.is_busday": "dx.map_blocks(np.is_busday, x, dtype=bool)",
    "numpy.datetime_as_string": "dx.astype(x, 'int64'), since there are no arrays of text",
    # names that newer versions of numpy lack
    "numpy.trapz": "dx.trapezoid",
    # classes of numpy's own that are no ndarray
    "numpy.asmatrix": "dx.asarray(x) and the operator @",
    "numpy.bmat": "dx.block",
    "numpy.nested_iters": "dx.fromfunction, or dx.map_blocks",
}

_NO_TEXT = "numbers, or codes of text: values, codes = numpy.unique(text, return_inverse=True)"
_FIELDS = "a dict of an array for each field"
_STREAM = "dx.random.default_rng(seed): random numbers here are functions of a seed and a position"

#: The way out for each class and module of numpy that is not here.
OTHERS: Mapping[str, str] = {
    **dict.fromkeys(("numpy.bytes_", "numpy.character", "numpy.char", "numpy.str_", "numpy.strings"), _NO_TEXT),
    **dict.fromkeys(("numpy.rec", "numpy.recarray", "numpy.record", "numpy.void"), _FIELDS),
    **dict.fromkeys(("numpy.float128", "numpy.longdouble"), "dx.float64"),
    **dict.fromkeys(("numpy.complex256", "numpy.clongdouble"), "dx.complex128"),
    "numpy.object_": "dtypes of numbers, truth values and times",
    "numpy.flexible": "dtypes of numbers, truth values and times",
    "numpy.busdaycalendar": "np.busdaycalendar, in the function that dx.map_blocks calls",
    "numpy.flatiter": "x.ravel(), or dx.ndenumerate(x)",
    "numpy.ma": "dx.where(mask, x, fill), and dx.nansum and its like for what is not there",
    "numpy.matrix": "dx.asarray(x) and the operator @",
    "numpy.memmap": "np.memmap, which dx.asarray takes and tasks read, or dx.fromfile",
    "numpy.poly1d": "dx.polyval(coefficients, x), and dx.polynomial.Polynomial",
    **dict.fromkeys(("numpy.random.get_bit_generator", "numpy.random.set_bit_generator"), _STREAM),
}

#: The way out for names of ``dask.array`` that distarray does not have.
DASKS: Mapping[str, str] = {
    "argtopk": "values, indices = dx.topk(x, k)",
    "from_array": "dx.asarray(x), or dx.from_zarr, dx.from_hdf5 or dx.from_store for files; x.rechunk(chunks) cuts",
    "from_npy_stack": "dx.concatenate of dx.load for each file",
    "isnull": "dx.isnan(x)",
    "notnull": "~dx.isnan(x)",
    "rechunk": "x.rechunk(chunks), or leave it out",
    "store": "x.to_zarr, dx.to_hdf5 or dx.save",
    "to_npy_stack": "dx.save",
    "unify_chunks": "nothing: the planner brings blocks together",
}

_NUMPYS_STATE = "numpy's own state or build"

#: Why a function of numpy needs no implementation.
NO_ARRAYS: Mapping[str, str] = {
    "numpy.datetime_data": "a question about a dtype: np.datetime_data(x.dtype)",
    **dict.fromkeys(("numpy.getbufsize", "numpy.geterrcall", "numpy.setbufsize", "numpy.seterrcall"), _NUMPYS_STATE),
    **dict.fromkeys(("numpy.get_include", "numpy.info", "numpy.show_runtime"), _NUMPYS_STATE),
    **dict.fromkeys(("numpy.test", "numpy.linalg.test", "numpy.fft.test"), _NUMPYS_STATE),
}


def not_here(module: str, name: str) -> AttributeError:
    """Return the error for a name that a module of ours lacks, with a way out where numpy's module, or
    ``dask.array``, has the name.
    """
    full = module.replace("distarray", "numpy", 1) + f".{name}"
    instead = ALTERNATIVES.get(full) or OTHERS.get(full) or (DASKS.get(name) if module == "distarray" else None)
    return AttributeError(f"module {module!r} has no attribute {name!r}" + (f"; use {instead}" if instead else ""))


def way_out(name: str) -> str:
    """Return what to use instead of a function of numpy, by its dotted name."""
    return ALTERNATIVES.get(name, "distarray.map_blocks")
