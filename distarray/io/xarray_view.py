"""What xarray holds of a DistArray: a view of the same elements, of a class that is no Dask collection.

xarray asks every chunk manager whether a type is its own, and Dask's claims all Dask collections. So a DistArray goes
into xarray by ``x.to_xarray(...)``, as an `XarrayView`: the same base and the same expression, without Dask's protocol.
Whatever is computed with a view is a view again, and waits until its values are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any

import numpy as np

from distarray.array.array import DistArray
from distarray.array.chunks import Chunks
from distarray.array.methods import Methods
from distarray.array.operators import Operators
from distarray.composed.views import as_distarray
from distarray.deferral import waiting
from distarray.lazy import import_extra

try:
    from xarray.core.indexing import ExplicitIndexer, ExplicitlyIndexed
except ImportError:  # without xarray there is nobody to hold a view
    ExplicitIndexer, ExplicitlyIndexed = (), object

_NOT_INTO_DASK = (
    "a DistArray in xarray is no input of dask.array, which would bring it here once for each chunk: say "
    "chunked_array_type='distarray', or xarray.set_options(chunk_manager='distarray') where xarray chunks by itself; "
    "dx.asarray(view).to_dask_array() is its dask.array"
)


class PlannedChunks(Sequence[tuple[int, ...]]):
    """PlannedChunks are the chunks of a view, planned when somebody looks at them: xarray often only asks if there are
    any.
    """

    __slots__ = ("_array", "_found")

    def __init__(self, array: DistArray) -> None:
        self._array = array
        self._found: Chunks | None = None

    def found(self) -> Chunks:
        """Return the chunks as a tuple."""
        if self._found is None:
            x = self._array
            sharding = x.sharding
            self._found = tuple(
                [
                    _regular(n, own) if is_regular else own
                    for n, own, is_regular in zip(x.shape, x.chunks, [b is None for b in sharding.bounds], strict=True)
                ]
            )
        return self._found

    def __len__(self) -> int:
        return self._array.ndim

    def __getitem__(self, index: Any) -> Any:
        return self.found()[index]

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        return iter(self.found())

    def __eq__(self, other: object) -> bool:
        return self.found() == (other.found() if isinstance(other, PlannedChunks) else other)

    def __hash__(self) -> int:
        return hash(self.found())

    def __repr__(self) -> str:
        return repr(self.found())


def _regular(n: int, chunks: tuple[int, ...]) -> tuple[int, ...]:
    """Return chunks of one extent but for the last, at most as many: an even cut as files have it.

    >>> _regular(10, (2, 3, 2, 3))
    (3, 3, 3, 1)
    """
    size = max(1, *chunks)
    return tuple([b - a for a, b in pairwise([*range(0, n, size), n])]) or (0,)


def viewed(made: Any) -> Any:
    """Return what was computed with views: its arrays as views."""
    if isinstance(made, DistArray):
        return made if type(made) is XarrayView else made._seen_as(XarrayView)
    if type(made) in (list, tuple):
        return type(made)(map(viewed, made))
    return type(made)(*map(viewed, made)) if isinstance(made, tuple) else made


def gives_views(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method whose results are views, and wait until values are asked for."""

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        with waiting():
            return viewed(method(self, *args, **kwargs))

    return call


class XarrayView(DistArray, ExplicitlyIndexed):  # type: ignore[misc]  # of a library without types
    """An XarrayView is a DistArray as xarray holds it: the same elements, and no Dask collection.

    Made by ``x.to_xarray(...)``; ``dx.asarray(view)`` is a plain DistArray of the same elements. Operations on views
    give views, also where the other operand is a DistArray, and wait: errors of kernels are raised when values are
    asked for.
    """

    __slots__ = ()

    #: `dask.is_dask_collection` is false.
    __dask_graph__ = None  # type: ignore[assignment]  # that is how a class says so

    @property
    def __array_namespace__(self) -> Any:
        # With a namespace xarray indexes as the standard does, without arrays of positions; without one as numpy.
        raise AttributeError("__array_namespace__")

    @property
    def _meta(self) -> Any:
        raise TypeError(_NOT_INTO_DASK)  # who asks is ``dask.array.from_array``

    @property
    def chunks(self) -> PlannedChunks:  # type: ignore[override]  # of the same entries
        """Return the extents of the chunks, planned when they are looked at.

        An even cut is said as stores want it: chunks of one extent but for the last.
        """
        return PlannedChunks(self._seen_as(DistArray))

    # xarray asks an array for the meaning of its indexers where the class says that it knows them. The adapter that it
    # would choose by itself serves all of them but arrays of positions that are chunked.

    def __getitem__(self, index: Any) -> XarrayView:
        key = (*index.tuple, Ellipsis) if isinstance(index, ExplicitIndexer) else index
        if isinstance(key, tuple) and all(
            part is Ellipsis or (type(part) is slice and part == slice(None)) for part in key
        ):
            return self  # xarray compares coordinates that are not the same object, which computes
        with waiting():
            return DistArray.__getitem__(self, key)

    def __setitem__(self, index: Any, value: Any) -> None:
        with waiting():
            DistArray.__setitem__(
                self, (*index.tuple, Ellipsis) if isinstance(index, ExplicitIndexer) else index, value
            )

    @property
    def oindex(self) -> Any:
        """Return what is indexed by xarray's indexers that go along one axis each."""
        from xarray.core.indexing import IndexCallable, NdArrayLikeIndexingAdapter

        adapter = NdArrayLikeIndexingAdapter(self)

        def get(index: Any) -> Any:
            if all(isinstance(part, slice) for part in index.tuple):
                raise TypeError(_NOT_INTO_DASK)  # its tasks read chunks so; other slices come as basic indexers
            if any(isinstance(part, DistArray) and not part.ndim for part in index.tuple):
                # xarray would take the axis for one that stays.
                raise TypeError("an index of one number is a DistArray, whose value xarray needs: take int(index)")
            return adapter._oindex_get(index)

        return IndexCallable(get, adapter._oindex_set)

    @property
    def vindex(self) -> Any:
        """Return what is indexed by xarray's indexers of points."""
        from xarray.core.indexing import IndexCallable, NdArrayLikeIndexingAdapter
        from xarray.core.nputils import NumpyVIndexAdapter

        points = NumpyVIndexAdapter(self)
        return IndexCallable(lambda index: points[index.tuple], NdArrayLikeIndexingAdapter(self)._vindex_set)

    def transpose(self, *axes: Any) -> XarrayView:
        """Return the axes in another order; the view itself if it is the same."""
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], tuple | list) else axes
        return self if list(order) == list(range(self.ndim)) else DistArray.transpose(self, *axes)

    def get_duck_array(self) -> XarrayView:
        """Return the view: there is nothing that xarray would have to read."""
        return self

    async def async_get_duck_array(self) -> XarrayView:
        """Return the view."""
        return self

    @gives_views
    def map_overlap(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Call ``distarray.map_overlap(func, view)``; without ``dtype=`` the function is tried out, as Dask does."""
        kwargs.setdefault("infer", kwargs.get("dtype") is None)
        return DistArray.map_overlap(self, func, *args, **kwargs)

    def rechunk(self, chunks: Any = "auto", *args: Any, **kwargs: Any) -> XarrayView:
        """Return the view cut into chunks; see `DistArray.rechunk`."""
        return self._seen_as(DistArray).rechunk(chunks, *args, **kwargs)._seen_as(XarrayView)

    @gives_views
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, /, *inputs: Any, **kwargs: Any) -> Any:
        written = (*kwargs.get("out", ()), *(inputs[:1] if method == "at" else ()))
        if any(isinstance(x, np.ndarray) for x in written):
            raise TypeError(
                f"{ufunc.__name__} would write a DistArray in xarray into an array of numpy, which brings it here; in "
                "a groupby or resample it is flox that does: say xarray.set_options(use_flox=False), or give "
                "flox.xarray.xarray_reduce a reduction of distarray.io.flox; else write view.compute()"
            )
        return DistArray.__array_ufunc__(self, ufunc, method, *inputs, **kwargs)

    @gives_views
    def __array_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        return DistArray.__array_function__(self, func, types, args, kwargs)

    def _repr_inline_(self, max_width: int) -> str:
        """Return what xarray shows in the line of a variable, beside shape and dtype. Plans and computes nothing."""
        known = self._known_sharding()
        where = "pending" if known is None else f"{known.n_tiles} tiles" if known.n_tiles > 1 else "1 tile"
        on = "" if self.team is None else f" on {self.team.size} members"
        return f"distarray<{where}{on}>"[:max_width]


#: Operators, reflected ones too: Python asks a subclass before its class only if it has its own. And numpy's methods.
_OWN = {
    *[name for name, value in vars(Operators).items() if callable(value)],
    *[name for name in vars(Methods) if not name.startswith("_") and name != "transpose"],
    "map_blocks",
}
for _name in sorted(_OWN):
    setattr(XarrayView, _name, gives_views(getattr(DistArray, _name)))


def to_xarray(x: Any, dims: Any = None, coords: Any = None, name: Any = None, attrs: Any = None) -> Any:
    """Return an ``xarray.DataArray`` of an array; nothing is copied or computed.

    Parameters
    ----------
    x
        A DistArray, or what `asarray` takes.
    dims, coords, name, attrs
        As for ``xarray.DataArray``. Coordinates along a dimension of their own name become indexes, which are numpy's:
        they are computed.

    Returns
    -------
    xarray.DataArray
        Of a view of `x`: what is written to one shows in the other.

    Examples
    --------
    >>> import distarray as dx
    >>> import pytest; _ = pytest.importorskip("xarray")
    >>> a = dx.to_xarray(dx.arange(6.0).reshape(2, 3), dims=("x", "y"))
    >>> a.mean("y").values.tolist()
    [1.0, 4.0]
    """
    xarray = import_extra("xarray", "to_xarray")
    given = {k: viewed(v) for k, v in coords.items()} if isinstance(coords, Mapping) else viewed(coords)
    return xarray.DataArray(viewed(as_distarray(x)), coords=given, dims=dims, name=name, attrs=attrs)
