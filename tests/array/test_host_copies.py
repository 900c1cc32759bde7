"""What leaves an array for numpy: a copy to write to where one was asked for, else something that cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing import force_tiles

VALUES = np.arange(12.0).reshape(3, 4)


@pytest.fixture(params=[None, 3], ids=["small", "tiles"])
def x(request: pytest.FixtureRequest) -> Iterator[dx.DistArray]:
    with nullcontext() if request.param is None else force_tiles(request.param):
        yield dx.asarray(VALUES) + 0


@pytest.mark.parametrize("dtype", [None, "f8", "f4"])
def test_asarray_without_copy_is_read_only(x: dx.DistArray, dtype: Any) -> None:
    """Code that writes into it would write into nothing that anybody sees: it is told so."""
    for host in (np.asarray(x, dtype), x.__array__(dtype), np.asarray(x[1:], dtype), np.asarray(x[0, 0], dtype)):
        assert not host.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            host[...] = 7
    np.testing.assert_array_equal(np.asarray(x), VALUES)


def test_compiled_code_cannot_write_into_nothing(x: dx.DistArray) -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    with pytest.raises((ValueError, RuntimeError), match=r"read-only|not writeable"):
        ndimage.correlate(VALUES, np.ones((1, 1)), output=np.asarray(x))
    with pytest.raises(ValueError, match="read-only"):
        np.add(VALUES, 1, out=np.asarray(x))


@pytest.mark.parametrize(
    "copied",
    [
        lambda x: np.array(x),
        lambda x: np.array(x, dtype="f4"),
        lambda x: np.asarray(x, copy=True),
        lambda x: np.require(x, requirements="W"),
        lambda x: x.compute(),
        lambda x: x.__array__(copy=True),
        lambda x: np.array(x[0, 0]),
    ],
)
def test_what_is_copied_is_the_callers(x: dx.DistArray, copied: Any) -> None:
    for _ in range(2):  # what was written to the first copy is not in the second one
        host = copied(x)
        assert host.flags.writeable
        np.testing.assert_array_equal(host, VALUES if host.ndim else VALUES[0, 0])
        host[...] = -1
    np.testing.assert_array_equal(np.asarray(x), VALUES)
