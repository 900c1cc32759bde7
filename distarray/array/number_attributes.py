"""What numpy's numbers have and its arrays have not: an array without axes stands for both."""

from __future__ import annotations

from typing import Any


class OfNumber:
    """An OfNumber is an attribute of numpy's numbers of some dtypes (``is_integer``, ``numerator``), as an attribute of
    arrays of such a dtype that have no axes. A method computes when it is called, all else when it is read.
    """

    __slots__ = ("name",)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, x: Any, owner: type) -> Any:  # whatever the attribute is
        if x is None:
            return self
        if x.ndim or not hasattr(x.dtype.type, self.name):
            raise AttributeError(
                f"{owner.__name__!r} object has no attribute {self.name!r}: numbers may have it, not "
                f"what is of dtype {x.dtype} and shape {x.shape}"
            )
        if callable(getattr(x.dtype.type, self.name)):
            return lambda: getattr(x._host()[()], self.name)()
        return getattr(x._host()[()], self.name)
