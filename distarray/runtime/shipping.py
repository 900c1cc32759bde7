"""User functions on their way to workers: where one cannot be loaded, the task that calls it fails, and nothing else.

A worker of dask that cannot unpickle a task closes, and so does the next one that is given the task. So what a user
wrote travels as bytes within the task, and is loaded when it is called.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

#: Of what no module is loaded but numpy.
_PLAIN = (np.ndarray, np.generic, np.dtype, int, float, complex, str, bytes, tuple, slice)


def shipped(late: Sequence[Any]) -> tuple[Any, ...]:
    """Return arguments of kernels with functions, and objects that have some, in a form that travels safely."""
    return tuple([a if a is None or isinstance(a, _PLAIN) else _Shipped(repr(a), a) for a in late])


def calls_back(lates: Iterable[Sequence[Any]]) -> bool:
    """Return whether a function of the user's is among arguments of kernels as they travel."""
    return any(isinstance(a, _Shipped) for late in lates for a in late)


class _Shipped:
    """A _Shipped calls a function, or an object with methods, that is bytes in pickles until it is first used; errors
    name it.
    """

    def __init__(self, name: str, value: Any = None, data: bytes | None = None) -> None:
        self.name = name
        self.data = data
        if data is None:
            self.value = value

    def __getattr__(self, name: str) -> Any:
        if name == "value":
            self.value = self._loaded()
            return self.value
        return getattr(self.value, name)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.value(*args, **keywords)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        if self.data is None:
            from distributed.protocol.pickle import dumps  # there is a cluster

            self.data = dumps(self.value)
        return _Shipped, (self.name, None, self.data)

    def _loaded(self) -> Any:
        assert self.data is not None
        try:
            return pickle.loads(self.data)  # from the user's own process, as all tasks
        except Exception as error:
            raise RuntimeError(
                f"{self.name} cannot be loaded where it is to run ({type(error).__name__}: {error}); workers need the "
                "modules that it comes from: install them there, or send them with client.upload_file(...)"
            ) from error
