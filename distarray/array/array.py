"""DistArray: what the user holds, a handle on a base seen through a lens.

Operations on handles only build expressions (`distarray.expr.bind`); here is what gives them numpy's meaning: which
handles alias, what an index does, when work happens. Making a handle costs about a microsecond.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from distarray import config, hooks
from distarray.arguments import shown
from distarray.array import elements, window, writes
from distarray.array.base import Base, put, read
from distarray.array.chunks import Chunked
from distarray.array.dask_protocol import Collection
from distarray.array.driven import drive
from distarray.array.environment import forced_parts
from distarray.array.methods import Methods
from distarray.array.operators import Operators
from distarray.array.pending import apart, defer, in_forced_tiles, runs_at_once
from distarray.expr.bind import bind_get, bind_reshape
from distarray.expr.expr import GET, Environment, Expr, lying
from distarray.expr.indexing import Advanced, Basic, Index, parse_index
from distarray.expr.lens import (
    Affine,
    Component,
    Lens,
    Link,
    Reshape,
    compose,
    layout_through,
    lens_shape,
    reshape_is_view,
)
from distarray.kernels.loans import is_any_outside
from distarray.ops import paths
from distarray.ops.elementwise import as_scalar
from distarray.ops.indexing import positions_of
from distarray.ops.lenses import matrix_transpose_lens, permute_lens
from distarray.sharding.layout import c_layout, layout_name
from distarray.sharding.sharding import Sharding
from distarray.sharding.team import Team
from distarray.types import DType, HostArray, Shape

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["DistArray"]

_new = object.__new__


class DistArray(Operators, Methods, Chunked, Collection):
    """An array that lives on a team; numpy's ndarray, deferred and distributed.

    Made by the creation functions (``dx.zeros``, ``dx.asarray`` ...), never by its constructor. Operations build
    expressions and run nothing; values are computed when something looks at them: ``float(x)``, ``print(x)``,
    ``np.asarray(x)``, ``x.compute()``.

    Examples
    --------
    >>> import distarray as dx
    >>> x = dx.arange(6.0)
    >>> v = x[::2]          # a view
    >>> v += 10             # seen through x too
    >>> print(x)
    [10.  1. 12.  3. 14.  5.]
    """

    __slots__ = ("__weakref__", "_base", "_dask", "_lens", "_read", "_readonly")

    _base: Base
    _lens: Lens
    #: (version of the base, the node that reads it through the lens), so that two reads make one node.
    _read: tuple[int, ref[Expr]] | None
    _readonly: bool

    def __init__(self) -> None:
        raise TypeError("DistArray has no constructor; use dx.asarray, dx.zeros, dx.arange and their like")

    # ------------------------------------------------------------------------------------- handles and nodes

    @classmethod
    def _on(cls, node: Expr) -> DistArray:
        """Return a new handle on `node`, which nothing else aliases; runs it at once if it may fail."""
        self = _new(cls)
        if forced_parts.get() is not None:
            node = in_forced_tiles(node)
        if is_any_outside():
            node = apart(node)
        self._base = Base(node)
        self._lens = ()
        self._read = None
        self._readonly = False
        if node.memo is None:
            defer(node)
        return self

    _boxed = _on
    __dx_box__ = _on

    def __dx_node__(self) -> Expr:
        """Return the node of the current value; called on entry of every operation."""
        window.enter()
        return self._node()

    def _node(self) -> Expr:
        base = self._base
        # Before the version is: another thread may write between the two, and then the node is read again.
        number = base.version
        version = base.expr
        if version is None:
            version = base.current  # which raises
        if not self._lens:
            return version
        seen = self._read
        if seen is not None and seen[0] == number:
            known = seen[1]()
            if known is not None and (known.memo is None or known.memo.blocks):  # else a copy that was deleted
                return known
        node = read(version, self._lens)
        if forced_parts.get() is not None:
            node = in_forced_tiles(node)
        if node is not version:
            # Weakly: what a handle read once must not keep the old version of its base.
            self._read = (number, ref(node))
        return node

    def _view(self, link: Link, *, readonly: bool = False) -> DistArray:
        """Return a handle on the same base that sees this one through `link`; no task, no bytes."""
        base = self._base
        view = _new(type(self))
        view._base = base
        view._lens = compose(base.current.shape, self._lens, link)
        view._read = None
        view._readonly = readonly or self._readonly
        return view

    def _alias(self) -> DistArray:
        """Return another handle on the same elements."""
        return self._view(Affine.identity(self.shape))

    def _reshaped(self, shape: Shape, copy: bool | None = None) -> DistArray:
        """Return the elements in C order with another shape: a view exactly where numpy makes one (B-35)."""
        base = self._base
        if copy is not True:
            if reshape_is_view(base.current.shape, self._lens, shape):
                return self._view(Reshape(shape))
            if copy is False:
                raise ValueError(
                    f"Unable to avoid creating a copy while reshaping: a view of shape {self.shape} "
                    f"cannot be seen as {shape}; leave copy=False out"
                )
        return self._on(bind_reshape(self.__dx_node__(), shape))

    def _advance(self, written: Callable[[Expr], Expr]) -> None:
        """Write: let `written` of the current version be the next one of the base.

        What may fail is computed first, and a failure changes nothing. Where another thread has written in between, the
        write is made again, from its version.
        """
        base = self._base
        while True:
            since = base.expr or base.current
            version = apart(written(since)) if is_any_outside() else written(since)
            if version.memo is None and runs_at_once(version):
                window.run(version)
            # Live and listed before anybody can see it: no evaluation in another thread may overwrite what it reads.
            slot = version.hold(by_base=True)
            if version.memo is None and not version.op.repeatable:
                window.register(version)
            if base.advance(since, version, slot):
                break
        if version.memo is None and config.get("window") == 0:
            window.flush()

    def _placed(self, index: Any) -> Advanced:
        """Return an index to write at: its arrays as positions, which are computed here where they may be wrong."""
        resolved = self._advanced(index)
        arrays: list[tuple[int, Any]] = []
        for axis, array in resolved.arrays:
            if type(array) is Expr and array.dtype.kind != "b":
                array = positions_of(array, resolved.affine.shape[axis], axis, array.env)
                if array.memo is None and runs_at_once(array):
                    window.run(array)
            arrays.append((axis, array))
        return resolved.with_arrays(arrays)

    def _write(self, value: Expr, since: Expr | None = None, again: Callable[[Expr], Expr] | None = None) -> None:
        """Write a node of this view's shape that was made for it.

        Parameters
        ----------
        since, again
            For a value that was made of this view: the version that it saw, and what makes it of another version, as
            this view sees that.
        """
        lens = self._lens

        def written(version: Expr) -> Expr:
            made = value if again is None or version is since else again(read(version, lens))
            if version.pin is not None and not lens and made.pin is None and made.memo is None and not made.is_live:
                made = made.with_pin(version.pin)
            if made.memo is None and runs_at_once(made):
                window.run(made)
            return put(version, lens, made)

        self._advance(written)

    # ------------------------------------------------------------------------------------------- attributes

    @property
    def shape(self) -> Shape:
        """Return the extents of the whole array."""
        lens = self._lens
        own = self._base.current.shape
        return lens_shape(own, lens) if lens else own

    @shape.setter
    def shape(self, shape: Any) -> None:
        from distarray.ops.manipulation import resolve_shape

        view = self._reshaped(resolve_shape(self.shape, shape), copy=False)
        self._lens, self._read = view._lens, None

    @property
    def dtype(self) -> DType:
        """Return the type of the elements."""
        dtype: DType = self._base.current.dtype
        if self._lens and type(self._lens[0]) is Component:
            return np.empty(0, dtype).real.dtype
        return dtype

    @property
    def ndim(self) -> int:
        """Return the number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Return the number of elements of the whole array."""
        n = 1
        for extent in self.shape:
            n *= extent
        return n

    @property
    def itemsize(self) -> int:
        """Return the bytes that one element takes."""
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Return the bytes of all elements, each counted once for every place where it appears."""
        return self.size * self.itemsize

    @property
    def team(self) -> Team | None:
        """Return the team that the array lives on; None if it is not distributed."""
        return self._base.current.env.team

    @property
    def device(self) -> str:
        """Return where the members keep their blocks: ``"cpu"``, ``"cuda"`` ..."""
        return self._base.current.env.device

    @property
    def _env(self) -> Environment:
        return self._base.current.env

    @property
    def devices(self) -> tuple[str, ...]:
        """Return the device of each member, in rank order."""
        env = self._env
        if env.device == "cpu":
            return ("cpu",) * env.size
        from distarray.runtime.members import device_labels

        return device_labels(env)

    @property
    def sharding(self) -> Sharding:
        """Return how the array lies, or will lie: asking plans what is pending, and runs nothing."""
        known = self._known_sharding()
        if known is not None:
            return known
        from distarray.diagnostics.predict import planned_sharding

        return planned_sharding(self._node(), self._env)

    def _known_sharding(self) -> Sharding | None:
        """Return how the array lies if that can be told without planning."""
        whole = lying(self._base.current)
        return whole if not self._lens or whole is None else lying(self._node())

    @property
    def layout(self) -> str | tuple[int, ...]:
        """Order of the axes of a block in memory, outermost first: "C", "F" or a permutation."""
        version = self._base.current
        known = lying(version)
        layout = c_layout(version.ndim) if known is None else known.layout
        for link in self._lens:
            layout = layout_through(link, layout)
        return layout_name(layout)

    @property
    def T(self) -> DistArray:
        """Return the axes in reverse order. A view."""
        return self._view(permute_lens(self.shape))

    @property
    def mT(self) -> DistArray:
        """Return the last two axes exchanged. A view."""
        if self.ndim < 2:
            raise ValueError("matrix transpose with ndim < 2 is undefined")
        return self._view(matrix_transpose_lens(self.shape))

    @property
    def real(self) -> DistArray:
        """Return the real part; a view."""
        return self._view(Component("real")) if self.dtype.kind == "c" else self

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value if hasattr(value, "dtype") else np.asarray(value)

    @property
    def imag(self) -> DistArray:
        """Return the imaginary part; a view, and read-only zeros for real arrays."""
        if self.dtype.kind == "c":
            return self._view(Component("imag"))
        from distarray.ops.creation import zeros_like

        zeros: DistArray = zeros_like(self)
        zeros._readonly = True
        return zeros

    @imag.setter
    def imag(self, value: Any) -> None:
        if self.dtype.kind != "c":
            raise TypeError("array does not have imaginary part to set")
        self.imag[...] = value if hasattr(value, "dtype") else np.asarray(value)

    @property
    def flat(self) -> DistArray:
        """Return the elements in one axis, C order. A view, also where a reshape makes none."""
        return self._view(Reshape((self.size,)))

    @flat.setter
    def flat(self, value: Any) -> None:
        from distarray.array.functions import fill_flat

        fill_flat(self, value)

    @property
    def at(self) -> writes.At:
        """``x.at[index].set(value)``, ``.add(value)`` ...: updates that return a new array."""
        return writes.At(self)

    # --------------------------------------------------------------------------------------------- indexing

    def __getitem__(self, index: Index) -> DistArray:
        parsed = parse_index(index, self.shape)
        if type(parsed) is Basic:
            if parsed.is_view:
                return self._view(parsed.affine)
            made = bind_get(self.__dx_node__(), parsed.affine)
            if not made.shape and made.op is not GET:  # an index makes a number, also of what it had not to look into
                made = as_scalar(made)
            return self._on(made)
        from distarray.array.indexing import picked

        return picked(self, self._advanced(parsed))

    def __setitem__(self, index: Index, value: Any) -> None:
        writes.assign(self, index, value)

    def __delitem__(self, index: Index) -> None:
        raise ValueError(
            f"cannot delete array elements: del x[{shown(index)}]; use dx.delete, which makes another array"
        )

    def _advanced(self, index: Any) -> Advanced:
        """Return an index whose arrays are nodes or host arrays, in this array's environment."""
        from distarray.array.indexing import resolved

        assert type(index) is Advanced
        return resolved(self, index)

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError("len() of unsized object")
        return shape[0]

    def __iter__(self) -> Iterator[DistArray]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(self.shape[0]))

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    # ----------------------------------------------------------------------------------------- observations

    def _host(self) -> HostArray:
        """Return the value as a host array that the caller owns."""
        return elements.fetch(self.__dx_node__())

    def _scalar(self, function: Callable[[Any], Any]) -> Any:
        """Return `function` of the only element; of several, numpy's error."""
        shape = self.shape
        for n in shape:
            if n != 1:
                # What numpy says depends on the shape alone.
                return function(np.broadcast_to(np.zeros((), self.dtype), shape))
        return function(elements.item(self.__dx_node__()).reshape(shape))

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

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> HostArray:
        if copy is False:
            raise ValueError(
                "a DistArray cannot be seen as a numpy array without a copy; use x.local(member) for the block of one "
                "member of this process"
            )
        _check_gather(self)
        host = self._host()
        if dtype is not None:
            host = host.astype(dtype, copy=False)
        if not copy:
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
        options = _without_dasks(options)
        if options:
            with config.set(options):
                return self._host()
        return self._host()

    def persist(self, **options: Any) -> DistArray:
        """Compute and keep the value where it lies; returns the array itself."""
        with config.set(_without_dasks(options)):
            window.observe((self.__dx_node__(),))
        window.leave()
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
        from distarray.array.capabilities import namespace

        return namespace(api_version)

    #: numpy's arrays leave operators to us, and so do dask's.
    __array_priority__ = 1000

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, /, *inputs: Any, **kwargs: Any) -> Any:
        from distarray.array.numpy_protocol import array_ufunc

        return array_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        from distarray.array.numpy_protocol import array_function

        return array_function(self, func, types, args, kwargs)

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        from distarray.array.dlpack import dlpack

        return dlpack(self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        from distarray.array.dlpack import dlpack_device

        return dlpack_device(self)

    def __copy__(self) -> DistArray:
        return self._on(self.__dx_node__())

    def __deepcopy__(self, memo: dict[int, Any]) -> DistArray:
        return self._on(self.__dx_node__())

    def __reduce__(self) -> tuple[Any, ...]:
        from distarray.array.pickling import reduce_handle

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


_DASKS = frozenset({"get", "num_workers", "optimize_graph", "pool", "scheduler", "traverse"})


def _without_dasks(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in _DASKS} if options else options


def _check_gather(x: DistArray) -> None:
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
        warnings.warn(f"gathering {n} bytes into this process (gather-warn-bytes = {warn})", stacklevel=3)


def _adopted() -> tuple[Environment, Callable[[Expr], Any]]:
    """Operations on numbers and lists alone take place in the current environment."""
    from distarray.array.environment import environment

    return environment(), DistArray._on


def _planned_cost(factors: paths.Factors, steps: tuple[paths.PathStep, ...], objective: Any) -> float:
    """The planner is loaded when there is a choice of contraction orders."""
    from distarray.array.contraction_order import planned_cost

    return planned_cost(factors, steps, objective)


hooks.adopt = _adopted
hooks.drive = drive
hooks.planned_cost = _planned_cost
