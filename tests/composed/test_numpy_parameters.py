"""Every parameter of every function that we share with numpy is taken, or stands in a list with the reason."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.composed import numpy_arguments

_FILES = "a file of numbers needs no pickle of Python objects"
_WEIGHTS = "an error: weighted quantiles need weights beside the elements where these are sorted"
#: Parameters that are taken at numpy's default only.
REASONS = {
    **{f"load {name}": _FILES for name in ("allow_pickle", "encoding", "fix_imports", "max_header_size")},
    "save allow_pickle": _FILES,
    **{f"{name} weights": _WEIGHTS for name in ("nanpercentile", "nanquantile", "percentile", "quantile")},
}


def shared() -> Iterator[tuple[str, Any, Any]]:
    for prefix, ours, numpys in (("", dx, np), ("linalg.", dx.linalg, np.linalg), ("fft.", dx.fft, np.fft)):
        for name in ours.__all__:
            function, theirs = getattr(ours, name), getattr(numpys, name, None)
            if not callable(function) or not callable(theirs) or isinstance(theirs, type) or theirs is function:
                continue
            yield prefix + name, function, theirs


@pytest.mark.parametrize(("name", "function", "theirs"), list(shared()), ids=lambda v: v if isinstance(v, str) else "")
def test_every_parameter_of_numpys_is_taken_by_name_and_by_position(name: str, function: Any, theirs: Any) -> None:
    try:
        wanted = inspect.signature(theirs).parameters
    except ValueError:
        pytest.skip("this numpy does not tell the signature")
    ours = inspect.unwrap(function)
    own = inspect.signature(ours).parameters
    missing = []
    for parameter, p in wanted.items():
        if f"{name} {parameter}" in REASONS or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY):
            continue
        if parameter in own and own[parameter].kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            continue
        if function is ours or not _has_place(theirs, ours, parameter):
            missing.append(parameter)
    assert not missing


def _has_place(theirs: Any, ours: Any, parameter: str) -> bool:
    """Whether a call that goes numpy's way does something with it."""
    (place,) = numpy_arguments._places(theirs, ours, 0, (parameter,))
    is_known = parameter in {"out", "like", "order", *numpy_arguments._WITHOUT_EFFECT}
    return place.keyword is not None or place.position is not None or is_known
