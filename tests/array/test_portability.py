"""Which public functions run on blocks of any library of the standard: on the strict device, with no copy to the host.

Every public function that takes arrays is called with the first of a few argument lists that it takes on the CPU, and
then on the strict device under `no_host_copies`, where a kernel that looks at a value raises (B-15).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distarray as dx
import distarray.fft
import distarray.linalg
from distarray.testing import no_host_copies

#: What need more than the standard has: they raise "not on strict". Names may only leave.
NOT_PORTABLE = frozenset({
    *("argpartition", "bitwise_count", "cbrt", "deg2rad", "degrees", "diagflat", "exp2", "fabs", "fmax"),
    *("float_power", "fmin", "fmod", "frexp", "gcd", "heaviside", "i0"),
    *("lcm", "ldexp", "linalg.lstsq", "logaddexp2", "median", "modf", "nanmax", "nanmedian", "nanmin"),
    *("nanpercentile", "nanquantile", "partition", "percentile", "quantile", "rad2deg", "radians", "roots", "spacing"),
})  # fmt: skip
#: Kernels that decide by values of a block, and so copy one to the host.
LOOK_AT_VALUES = frozenset({
    *("segment_max", "segment_mean", "segment_min", "segment_prod", "segment_reduce", "segment_sum"),
})  # fmt: skip
#: Not operations on arrays: they set, show, read, write or move something, or take functions.
OTHER = frozenset({
    *("at", "compute", "current_device", "current_team", "explain", "from_blocks", "from_dask", "frombuffer"),
    *("fromiter", "get_printoptions", "geterr", "load", "map_blocks", "map_tiles", "may_share_memory", "persist"),
    *("plan_cache_clear", "plan_cache_info", "progress", "save", "savetxt", "savez", "savez_compressed", "scatter"),
    *("set_printoptions", "seterr"),
    *("shares_memory", "to_dask_array", "use", "visualize_sharding", "wait"),
})  # fmt: skip

_rng = np.random.default_rng(0)
_T = _rng.random((4, 4)) + 4 * np.eye(4)
#: Arrays by letter: floats, a symmetric matrix, integers, booleans, a sorted row, positions, positive integers, numbers
#: between 0 and 1.
ARRAYS = {
    "T": _T,
    "S": _T @ _T.T,
    "K": _rng.integers(0, 4, (4, 4)),
    "B": _T > 1,
    "V": np.sort(_T[0]),
    "I": np.array([1, 0]),
    "P": np.array([1, 2, 3]),
    "F": np.linspace(0, 1, 4),
}
ARGUMENTS: tuple[tuple[Any, ...], ...] = (
    *(("T",), ("S",), ("T", "T"), ("K",), ("K", "K"), ("B",), ("B", "B"), ("V",), ("V", "V"), ("T", 1), ("T", (2, 8))),
    *(("T", "K"), ("B", "T", "T"), ("V", "K"), ("T", "V"), ("V", 2), ("T", 1, 0), ("T", 0, 1), (["T", "T"],)),
    *(("T", "T", "T"), ("T", (4, 4)), ("T", [0, 1]), ("T", 2.0, 3.0), ("T", 50), ("T", 0.5), (4,), (0.0, 1.0, 5)),
    *(((2, 3),), ((2, 3), 1.0), ("K", (16,)), ("I", "T"), ("T", "I"), ("P", "P"), ("F",), ("F", "F"), ("T", 0)),
    *(("V", "V", "V"), ("ij,jk->ik", "T", "T")),
)


def _names() -> list[str]:
    found = []
    for prefix, module in (("", dx), ("linalg.", distarray.linalg), ("fft.", distarray.fft)):
        for name in module.__all__:
            member = getattr(module, name)
            if callable(member) and not isinstance(member, type) and not name.startswith("__") and name not in OTHER:
                found.append(prefix + name)
    return found


def _function(name: str) -> Callable[..., Any]:
    place, _, short = name.rpartition(".")
    found: Callable[..., Any] = getattr(getattr(dx, place) if place else dx, short)
    return found


def _filled(argument: Any, device: str) -> Any:
    if isinstance(argument, list):
        return [_filled(a, device) for a in argument]
    known = isinstance(argument, str) and argument in ARRAYS
    return dx.asarray(ARRAYS[argument], device=device) if known else argument


def _arrays(result: Any) -> list[dx.DistArray]:
    if isinstance(result, dx.DistArray):
        return [result]
    return [x for part in result for x in _arrays(part)] if isinstance(result, tuple | list) else []


def _called(name: str, arguments: tuple[Any, ...], device: str) -> list[dx.DistArray]:
    with dx.use(device=device), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        results = _arrays(_function(name)(*[_filled(a, device) for a in arguments]))
        return [x.persist() for x in results]


def _arguments(name: str) -> tuple[Any, ...] | None:
    """The first arguments that a function takes and makes an array of."""
    for arguments in ARGUMENTS:
        try:
            if _called(name, arguments, "cpu"):
                return arguments
        except Exception:
            continue
    return None


CATALOGUE = {name: arguments for name in _names() if (arguments := _arguments(name)) is not None}


@pytest.mark.parametrize("name", CATALOGUE)
def test_kernels_stay_on_the_device_or_say_why_not(name: str) -> None:
    """B-15."""
    expected = _called(name, CATALOGUE[name], "cpu")
    with no_host_copies():
        if name in NOT_PORTABLE:
            with pytest.raises(dx.NotSupportedError, match="not on strict"):
                _called(name, CATALOGUE[name], "strict")
            return
        if name in LOOK_AT_VALUES:
            with pytest.raises(RuntimeError, match="only transport may move blocks"):
                _called(name, CATALOGUE[name], "strict")
            return
        found = _called(name, CATALOGUE[name], "strict")
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.device == "strict"
        assert ours.dtype == theirs.dtype
        if "empty" not in name:
            np.testing.assert_allclose(ours.compute(), theirs.compute(), rtol=1e-10, atol=1e-12)


def test_four_fifths_of_the_catalogue_are_portable() -> None:
    """B-15: lower the numbers with the lists."""
    missing = len(NOT_PORTABLE) + len(LOOK_AT_VALUES)
    assert len(CATALOGUE) >= 300
    assert set(CATALOGUE) >= NOT_PORTABLE | LOOK_AT_VALUES
    assert missing <= 41
    assert 1 - missing / len(CATALOGUE) >= 0.8
