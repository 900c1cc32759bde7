"""What numpy tells of the memory of an array: ``strides``, ``flags``, ``base`` and ``data``, and copies in an order.

They are those of the array that numpy would have. Every base is in C order; an array in another order sees its base
through a permutation of axes (`Base.order`). Where blocks lie, and in which order, is said by ``sharding`` and
``layout``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from distarray.array.handle import OF_OWNER, Handle, is_scalar
from distarray.array.versions import laid_out
from distarray.expr.affine import Affine, restored
from distarray.expr.lens import kept_order, lens_shape, strided_dummy
from distarray.ops.lenses import permute_lens
from distarray.types import Shape

#: numpy's short names of flags, by which they are looked up too.
_SHORT = {"C": "C_CONTIGUOUS", "CONTIGUOUS": "C_CONTIGUOUS", "F": "F_CONTIGUOUS", "FORTRAN": "F_CONTIGUOUS"}
_SHORT |= {"O": "OWNDATA", "W": "WRITEABLE", "A": "ALIGNED", "X": "WRITEBACKIFCOPY"}
_SHORT |= {"B": "BEHAVED", "CA": "CARRAY", "FA": "FARRAY"}
_SHOWN = ("C_CONTIGUOUS", "F_CONTIGUOUS", "OWNDATA", "WRITEABLE", "ALIGNED", "WRITEBACKIFCOPY")


class Flags:
    """Flags are what numpy's ``flags`` tell, as attributes and by name; one of them, whether elements may be written,
    can be set.
    """

    __slots__ = ("_set_writeable", "_values")

    def __init__(
        self, dummy: np.ndarray[Any, Any], owns: bool, writeable: bool, set_writeable: Callable[[bool], None]
    ) -> None:
        self._set_writeable = set_writeable
        c, f = dummy.flags.c_contiguous, dummy.flags.f_contiguous
        self._values = {
            "c_contiguous": c,
            "f_contiguous": f,
            "contiguous": c,
            "fortran": f,
            "owndata": owns,
            "writeable": writeable,
            "aligned": True,
            "writebackifcopy": False,
            "behaved": writeable,
            "fnc": f and not c,
            "forc": f or c,
            "carray": c and writeable,
            "farray": f and not c and writeable,
        }

    def __getattr__(self, name: str) -> bool:
        if name.startswith("_") or name not in self._values:
            raise AttributeError(f"flags have no attribute {name!r}")
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Flags.__slots__:
            object.__setattr__(self, name, value)
        elif name == "writeable":
            self._set_writeable(bool(value))
            self._values["writeable"] = bool(value)
        else:
            raise AttributeError(f"flags.{name} is read-only; flags.writeable can be set")

    def __getitem__(self, key: str) -> bool:
        name = _SHORT.get(key, key)
        if not isinstance(name, str) or not name.isupper() or name.lower() not in self._values:
            raise KeyError("Unknown flag")
        return self._values[name.lower()]

    def __setitem__(self, key: str, value: Any) -> None:
        if _SHORT.get(key, key) != "WRITEABLE":
            raise KeyError("Unknown flag")
        self.writeable = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Flags) and self._values == other._values

    def __hash__(self) -> int:
        return hash(tuple(self._values.values()))

    def __repr__(self) -> str:
        return "".join(f"  {name} : {self[name]}\n" for name in _SHOWN)


class MemoryLayout(Handle):
    """MemoryLayout gives `DistArray` numpy's attributes of memory."""

    __slots__ = ()

    @property
    def strides(self) -> tuple[int, ...]:
        """Return the bytes from one element to the next along each axis, in the array that numpy would have.

        ``np.asarray`` of this array and of views of it, which gives what they show alone where that is less to compute
        or to bring here, has all of their base from then on, with these strides: functions that get both
        (``np.lib.stride_tricks.as_strided``) reach whatever they would reach in NumPy's.
        """
        laid_out.add(self._base)
        return self._strides()

    def _strides(self) -> tuple[int, ...]:
        base = self._base.current
        dummy = strided_dummy(base.shape, self._lens)
        unit = strided_dummy((1,)).itemsize
        return tuple([s * base.dtype.itemsize // unit for s in dummy.strides])

    @property
    def flags(self) -> Flags:
        """Return what numpy would tell of the memory; ``x.flags.writeable`` can be set."""
        dummy = strided_dummy(self._base.current.shape, self._lens)
        return Flags(dummy, self._is_owner, not self._readonly, self.setflags)

    def setflags(self, write: Any = None, align: Any = None, uic: Any = None) -> None:
        """Say whether elements may be written by this name of the array; views that are there stay as they are.

        Raises
        ------
        ValueError
            If `write` is asked of an array that sees elements several times, or of a view of one that may not be
            written, or `uic` of any.
        """
        if uic:
            raise ValueError("cannot set WRITEBACKIFCOPY flag to True")
        if write and any(
            n > 1 and step == 0 for n, step in zip(lens_shape(self._base.current.shape, self._lens), self._strides())
        ):
            raise ValueError("cannot set WRITEABLE flag to True of this array: it sees elements several times")
        if write and self._readonly == OF_OWNER:
            raise ValueError("cannot set WRITEABLE flag to True of this array: it is a view of a read-only one")
        if write is not None and self._readonly != OF_OWNER:
            self._readonly = int(not write)

    def _axes(self, order: str) -> tuple[int, ...] | None:
        """Return the axes of a copy in an order of numpy's, outermost first; None for C order."""
        n = self.ndim
        if order == "C" or n < 2:
            return None
        if order == "F":
            return tuple(range(n))[::-1]
        dummy = strided_dummy(self._base.shape, self._lens)
        if order == "K":
            return kept_order([dummy])
        return tuple(range(n))[::-1] if dummy.flags.fnc else None

    def _copied(self, order: str) -> Self:
        """Return an array of the same elements that aliases nothing and lies in an order of numpy's."""
        axes = self._axes(order)
        if axes is None:
            if self._lens and self.ndim and (here := self._copied_here(Affine.identity(self.shape))) is not None:
                return here
            made = self._on(self.__dx_node__())
            # An array without axes stays one, which is no number.
            return made if is_scalar(self) else made._as_array()
        seen = self._view(permute_lens(self.shape, axes))
        return self._on(seen.__dx_node__(), restored(seen.shape, axes))

    def _in_order(self, order: str, like: Sequence[Any] = ()) -> Self:
        """Return the array itself if it lies in an order of numpy's, which all do in K, else a copy; A is F where all
        arrays of `like` are, else C, and any where none is given.
        """
        if order == "A" and like:
            order = "F" if all(x.flags.f_contiguous for x in like) else "C"
        if order in ("A", "K"):
            return self
        flags = self.flags
        return self if (flags.c_contiguous if order == "C" else flags.f_contiguous) else self._copied(order)

    def _like_this(self, make: Callable[..., Self], shape: Shape | None) -> Self:
        """Return a new array that lies as this one does, made by a function of one in C order, of another `shape` if
        that is given.
        """
        axes = self._axes("K") if self._lens and (shape is None or len(shape) == self.ndim) else None
        if axes is None:
            return make(self, shape=shape)
        seen = self._view(permute_lens(self.shape, axes))
        made = make(seen, shape=None if shape is None else tuple([shape[a] for a in axes]))
        return made._owning(restored(made.shape, axes))

    @property
    def base(self) -> Self | None:
        """Return the array that this one is a view of; None if it is none. It is another object at each call."""
        if self._is_owner:
            return None
        return self._of_base(self._base.order)

    @property
    def data(self) -> memoryview:
        """Return a memoryview of what ``np.asarray`` gives: of the array's own memory, or of a read-only copy."""
        return np.asarray(self).data
