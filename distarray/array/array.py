"""DistArray: what the user holds, a handle on a base seen through a lens.

Operations on handles build expressions, unless all that they read is small and in this process; this file gives them
numpy's meaning: what an index does, when work happens, and what other libraries see.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Self

import numpy as np

from distarray import config, hooks
from distarray.arguments import naming, shown
from distarray.array import elements, writes
from distarray.array.by_numpy import are_integers, get_by_numpy, may_have_arrays
from distarray.array.chunks import Chunked
from distarray.array.contraction_order import planned_cost
from distarray.array.dask_protocol import Collection
from distarray.array.driven import drive
from distarray.array.environment import environment, forced_parts, use
from distarray.array.handle import Handle, is_scalar
from distarray.array.indexing import picked, with_integers
from distarray.array.memory_layout import MemoryLayout
from distarray.array.methods import Methods
from distarray.array.namespace import namespace
from distarray.array.operators import PRIORITY, Operators
from distarray.array.pickling import reduce_handle
from distarray.array.versions import laid_out
from distarray.errors import warn_user
from distarray.expr.bind import bind_get
from distarray.expr.expr import GET
from distarray.expr.indexing import Advanced, Basic, Index, is_mask, known_index, parse_index
from distarray.expr.lens import Component, Link, Reshape, get
from distarray.ops import elementwise
from distarray.ops.creation import full_like
from distarray.runtime import small
from distarray.types import HostArray


class DistArray(Operators, MemoryLayout, Methods, Chunked, Collection):
    """An array that lives on a team; numpy's ndarray, deferred and distributed.

    Made by the creation functions (``dx.zeros``, ``dx.asarray`` ...), never by its constructor. Operations build
    expressions, and values are computed when something looks at them: ``float(x)``, ``print(x)``, ``np.asarray(x)``,
    ``x.compute()``. Small arrays of this process (``eager-bytes``) are computed at once, which changes no value.

    Examples
    --------
    >>> import distarray as dx
    >>> x = dx.arange(6.0)
    >>> v = x[::2]          # a view
    >>> v += 10             # seen through x too
    >>> print(x)
    [10.  1. 12.  3. 14.  5.]
    """

    __slots__ = ()

    def __init__(self, *_: Any, **__: Any) -> None:
        raise TypeError("DistArray has no constructor; use dx.asarray, dx.zeros, dx.arange and their like")

    @property
    def real(self) -> Self:
        """Return the real part; a view."""
        if self.dtype.kind != "c":
            return self
        return elementwise.real(self) if is_scalar(self) else self._view(Component("real"))

    @real.setter
    def real(self, value: Any) -> None:
        part = self._view(Component("real")) if self.dtype.kind == "c" else self
        part[...] = _as_part(value)

    @property
    def imag(self) -> Self:
        """Return the imaginary part; a view, and read-only zeros for real arrays."""
        if is_scalar(self):
            return elementwise.imag(self)  # type: ignore[no-any-return]  # boxed as it is
        if self.dtype.kind == "c":
            return self._view(Component("imag"))
        zeros: Self = full_like(self, 0)
        zeros._readonly = True
        return zeros

    @imag.setter
    def imag(self, value: Any) -> None:
        if self.dtype.kind != "c":
            raise TypeError("array does not have imaginary part to set")
        self._view(Component("imag"))[...] = _as_part(value)

    @property
    def flat(self) -> Flat:
        """Return the elements in one axis, C order. A view, also where a reshape makes none; of a part it is a copy."""
        flat = self._view(Reshape((self.size,)))._seen_as(Flat)
        flat._array, flat._index = self, 0
        return flat

    @flat.setter
    def flat(self, value: Any) -> None:
        self.flat[...] = value

    @property
    def at(self) -> writes.At[Self]:
        """Return what updates a copy: ``x.at[index].set(value)``, ``.add(value)`` ... return a new array."""
        return writes.At(self)

    # --------------------------------------------------------------------------------------------- indexing

    def __getitem__(self, index: Index) -> Self:
        if type(index) is not slice and are_integers(index) and (element := self._element_here(index)) is not None:
            return element
        parsed = known_index(index, self.shape)
        if parsed is None:
            if may_have_arrays(index):
                found = with_integers(index, self.ndim, computes=True)
                if found is not index:
                    return self[found]
                if (copied := get_by_numpy(self, index)) is not None:
                    return copied
            parsed = parse_index(index, self.shape)
        if type(parsed) is Basic:
            if parsed.is_view:
                return (self if self._base.shape else self._as_array())._view(parsed.affine)
            if (element := self._copied_here(parsed.affine)) is not None:
                return element
            made = bind_get(self.__dx_node__(), parsed.affine)
            if not made.shape and made.op is not GET:  # an index makes a number, also of what it had not to look into
                made = elementwise.as_scalar(made)
            return self._on(made)
        assert type(parsed) is Advanced
        return picked(self, parsed)

    def __setitem__(self, index: Index, value: Any) -> None:
        writes.assign(self, index, value)

    def __delitem__(self, index: Index) -> None:
        raise ValueError(
            f"cannot delete array elements: del x[{shown(index)}]; use dx.delete, which makes another array"
        )

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError("len() of unsized object")
        return shape[0]

    def __iter__(self) -> Iterator[Self]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        env = self._base.env
        if not self._lens and forced_parts.get() is None and small.is_eager(self.nbytes, env) and self._here() is None:
            self.persist()  # `arange(100)`, once, and not each element by itself
        return (self[i] for i in range(self.shape[0]))

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    # ----------------------------------------------------------------------------------------- observations

    def __bool__(self) -> bool:
        return bool(self._scalar(bool))

    def __int__(self) -> int:
        return int(self._scalar(int))

    def __float__(self) -> float:
        return float(self._scalar(float))

    def __complex__(self) -> complex:
        return complex(self._scalar(complex))

    def __index__(self) -> int:
        if self.dtype.kind not in "iu" or self.shape:
            raise TypeError("only integer scalar arrays can be converted to a scalar index")
        return int(self._scalar(int))

    def __trunc__(self) -> int:
        if self.shape:
            raise TypeError(f"type DistArray of shape {self.shape} doesn't define __trunc__ method")
        number: int = math.trunc(self.item())
        return number

    def __round__(self, ndigits: Any = None) -> Any:  # an int, or a number of this dtype, as of numpy's numbers
        if self.shape or self.dtype.kind not in "iuf":
            raise TypeError(
                f"type DistArray of dtype {self.dtype} and shape {self.shape} doesn't define __round__ method"
            )
        return round(self.item()) if ndigits is None else self.round(ndigits)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:
        _check_gather(self)
        is_number = is_scalar(self)  # of which numpy gives a copy
        if not copy and not is_number and (dtype is None or np.dtype(dtype) == self.dtype):
            from distarray.array.lifetime import own_memory

            if (seen := own_memory(self)) is not None:
                return seen
        if copy is False:
            raise ValueError(
                "a DistArray of several blocks, or of another process, cannot be seen as a numpy array without a copy; "
                "use x.local(member) for the block of one member of this process"
            )
        if self._lens and not copy and self._base in laid_out:
            host: HostArray = get(self._lens, np.asarray(self._of_base(())))
        else:
            host = self._host()
        if dtype is not None:
            host = host.astype(dtype, copy=False)
        if is_number:
            host = host.copy()
        elif not copy and host.size:
            # Nobody asked for a copy of their own: what is written here would not reach the array, so nothing can be.
            host.setflags(write=False)
        return host

    def compute(self, **options: Any) -> HostArray:
        """Return the value as a numpy array.

        Parameters
        ----------
        **options
            Options of `distarray.config` for this evaluation, such as ``memory_limit=``. Dask's own (``scheduler=``,
            ``optimize_graph=``) are accepted and mean nothing: the array knows its executor.
        """
        options = without_dasks(options)
        if options:
            with config.set(options):
                return self._host()
        return self._host()

    def to_numpy(self) -> HostArray:
        """Return the value as a numpy array, as `compute` does: libraries that draw ask for columns by this name."""
        return self._host()

    def persist(self, **options: Any) -> Self:
        """Compute and keep the value where it lies; returns the array itself."""
        with config.set(without_dasks(options)):
            self._compute_and_keep((self,))
        return self

    # ------------------------------------------------------------------------------------------ end of life

    def delete(self) -> None:
        """Free the blocks on all members now; later use of the array or of a view of it raises.

        Pending operations that read it are computed first.
        """
        from distarray.array.lifetime import delete

        delete(self._base)

    # ------------------------------------------------------------------------------------------ protocols

    def __array_namespace__(self, /, *, api_version: str | None = None) -> ModuleType:
        """Return the functions for this array: the module ``distarray``."""
        return namespace(api_version)

    #: numpy's arrays leave operators to us, and so do dask's.
    __array_priority__ = PRIORITY

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, /, *inputs: Any, **kwargs: Any) -> Any:
        assert hooks.numpy_protocol is not None
        return hooks.numpy_protocol().array_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        assert hooks.numpy_protocol is not None
        return hooks.numpy_protocol().array_function(self, func, types, args, kwargs)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        from distarray.array.dlpack import dlpack

        return dlpack(self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        from distarray.array.dlpack import dlpack_device

        return dlpack_device(self)

    def __copy__(self) -> Self:
        return self._copied("K")

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self._copied("K")

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce_handle(self)

    def __repr__(self) -> str:
        from distarray.array.repr import describe

        return describe(self)

    def __str__(self) -> str:
        from distarray.array.repr import text

        return text(self)

    def _repr_html_(self) -> str:
        from distarray.array.repr import html

        return html(self)

    def __format__(self, spec: str) -> str:
        if not self.shape:
            return format(elements.item(self.__dx_node__())[()], spec)
        if spec:
            raise TypeError("unsupported format string passed to DistArray.__format__")
        return str(self)


class Flat(DistArray):
    """A Flat is ``x.flat``, all elements of an array in one axis: a view, whose parts are copies as those of numpy's
    ``flatiter``. What is written to a part is repeated, or cut off, to be as long as that.
    """

    __slots__ = ("_array", "_index")

    _array: DistArray
    _index: int

    # What is made of it is an array, no Flat.
    _on = __dx_box__ = DistArray._on  # type: ignore[assignment]
    _of = DistArray._of  # type: ignore[assignment]

    def _view(self, link: Link, *, readonly: bool = False) -> DistArray:  # type: ignore[override]
        return self._seen_as(DistArray)._view(link, readonly=readonly)

    @property
    def base(self) -> DistArray:  # type: ignore[override]
        """Return the array whose elements they are."""
        return self._array

    @property
    def index(self) -> int:
        """Return the position of the element that `next` gives."""
        return self._index

    @property
    def coords(self) -> tuple[int, ...]:
        """Return the index in the array of the element that `next` gives."""
        return tuple(map(int, np.unravel_index(self.index, self._array.shape)))

    def __iter__(self) -> Self:  # type: ignore[override]
        return self

    def __next__(self) -> DistArray:
        if self._index >= self.size:
            raise StopIteration
        self._index += 1
        return self[self._index - 1]

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce_handle(self._seen_as(DistArray))

    def __getitem__(self, index: Index) -> DistArray:  # type: ignore[override]
        _check_flat(index)
        found = self._seen_as(DistArray)[index]
        return found.copy() if found._base is self._base else found

    def __setitem__(self, index: Index, value: Any) -> None:
        _check_flat(index)
        if isinstance(index, tuple) and not index:
            raise IndexError("Assigning to a flat iterator with a 0-D index is not supported; use x.flat[...] = value")
        seen = self._seen_as(DistArray)
        if not hasattr(value, "dtype") or isinstance(value, np.ndarray | np.generic):
            with naming(values=value):
                value = np.asarray(value, self.dtype)
        if are_integers(index):
            seen[index] = value
        elif value.size == 1:
            seen[index] = value.reshape(())
        elif value.size:
            shape = parse_index(index, seen.shape).shape
            if shape is None:  # how many a mask picks is to be counted
                shape = seen[index].shape
            if value.shape != shape:
                with use(self.team, self.device):
                    value = namespace().resize(value, shape)
            seen[index] = value


def _check_flat(index: Index) -> None:
    """Raise numpy's IndexError for an index that its ``flatiter`` does not take: a new axis, and truth values other
    than those of a mask.
    """
    for item in index if isinstance(index, tuple) else (index,):
        is_truth = type(item) is bool or (hasattr(item, "dtype") and is_mask(item) and not item.shape)
        if item is None or is_truth or (isinstance(item, list) and item and {bool}.issuperset(map(type, item))):
            raise IndexError(
                f"x.flat[{shown(index)}]: only integers, slices (`:`), ellipsis (`...`) and integer or boolean arrays "
                "are valid indices of a flat iterator"
            )


_DASKS = frozenset({"get", "num_workers", "optimize_graph", "pool", "scheduler", "traverse"})


def _as_part(value: Any) -> Any:
    """Return what is written where all real or imaginary parts are; NumPy before 2.5 casts lists and Python's numbers
    as it casts arrays.
    """
    is_cast = not hasattr(value, "dtype") and np.lib.NumpyVersion(np.__version__) < "2.5.0"
    return np.asarray(value) if is_cast else value


def without_dasks(options: dict[str, Any]) -> dict[str, Any]:
    """Return keywords of a ``compute`` without those of Dask's own, which mean nothing here."""
    return {key: value for key, value in options.items() if key not in _DASKS} if options else options


def _check_gather(x: Handle) -> None:
    """Warn or refuse where a host copy of the whole array is large."""
    n = x.nbytes
    limit = config.get("gather-max-bytes")
    if limit is not None and n > limit:
        raise MemoryError(
            f"np.asarray would gather {n} bytes into this process, above gather-max-bytes = {limit}; slice it, or use "
            "x.compute()"
        )
    warn = config.get("gather-warn-bytes")
    if warn is not None and n > warn:
        elements.check_room(x.__dx_node__())
        warn_user(f"gathering {n} bytes into this process (gather-warn-bytes = {warn})", UserWarning)


hooks.adopt = lambda: (environment(), DistArray._on)
hooks.drive = drive
hooks.planned_cost = planned_cost
