"""The array API standard 2025.12 by its names, signatures and result fields; and its conformance suite, if it is there.

``data/array_api_2025_12.json`` has the standard's signatures, ``data/array_api_suite.txt`` the tests of the conformance
suite that NumPy passes. The suite itself is run by ``python tests/array_api_suite.py CLONE``, and from here if
``DISTARRAY_ARRAY_API_SUITE`` names a clone.
"""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from inspect import Parameter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distarray as dx
import distarray.fft
import distarray.linalg
from distarray.testing.assertions import assert_equal

HERE = Path(__file__).parent
STANDARD = json.loads((HERE / "data" / "array_api_2025_12.json").read_text(encoding="utf-8"))
#: Where the functions of a table are found.
HOMES: dict[str, Any] = {
    "functions": dx,
    "linalg": distarray.linalg,
    "fft": distarray.fft,
    "info": dx.__array_namespace_info__(),
    "methods": dx.DistArray,
}
#: Parameters whose default is a marker of ours, because numpy's name beside them (``ddof``, ``kind``) excludes them.
UNSAID = ("keepdims", "stable", "correction", "prepend", "append")
FUNCTIONS = [(table, name) for table in HOMES for name in STANDARD[table]]


def expected_signature(table: str, name: str) -> inspect.Signature:
    """The standard's, as of a function with this signature."""
    scope: dict[str, Any] = {"e": np.e, "inf": np.inf, "nan": np.nan, "newaxis": None, "pi": np.pi}
    made: Callable[..., Any] = eval(f"lambda {STANDARD[table][name][1:-1]}: None", scope)
    return inspect.signature(made)


def test_the_tables_are_whole() -> None:
    main = (*STANDARD["functions"], *STANDARD["constants"], *STANDARD["dtypes"])
    assert len(main) + len(("__array_namespace_info__", "__array_api_version__")) == 155
    assert [len(STANDARD[table]) for table in ("linalg", "fft", "info")] == [25, 14, 5]
    assert len(STANDARD["attributes"]) + len(STANDARD["methods"]) == 67


def test_constants_and_dtypes_are_there() -> None:
    for name in STANDARD["constants"]:
        assert name in dx.__all__
        np.testing.assert_equal(getattr(dx, name), getattr(np, name))
    for name in STANDARD["dtypes"]:
        assert name in dx.__all__
        assert dx.zeros((), dtype=getattr(dx, name)).dtype == np.dtype(name)
    assert dx.__array_api_version__ == "2025.12"


def test_functions_are_public() -> None:
    assert set(STANDARD["functions"]) <= set(dx.__all__)
    assert set(STANDARD["linalg"]) <= set(distarray.linalg.__all__)
    assert set(STANDARD["fft"]) <= set(distarray.fft.__all__)


@pytest.mark.parametrize("name", STANDARD["attributes"])
def test_attributes_are_properties(name: str) -> None:
    assert isinstance(inspect.getattr_static(dx.DistArray, name), property)
    getattr(dx.ones((2, 2)), name)


@pytest.mark.parametrize(("table", "name"), FUNCTIONS, ids=lambda part: part)
def test_calls_that_the_standard_allows_are_allowed(table: str, name: str) -> None:
    """Its parameters, in their places and under their names, with its defaults; ours beside them are optional."""
    ours = inspect.signature(getattr(HOMES[table], name)).parameters
    theirs = expected_signature(table, name).parameters
    by_position = [p for p in ours.values() if p.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)]
    more = [p.name for p in ours.values() if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    for place, (word, wanted) in enumerate(theirs.items()):
        if wanted.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            assert any(p.kind == wanted.kind for p in ours.values()), f"{wanted} is missing"
            continue
        if wanted.kind == Parameter.KEYWORD_ONLY:
            found = ours[word]
            assert found.kind in (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        else:
            found = by_position[place]
            if wanted.kind == Parameter.POSITIONAL_OR_KEYWORD:
                assert found.name == word
                assert found.kind == Parameter.POSITIONAL_OR_KEYWORD
        if wanted.default is not Parameter.empty and word not in UNSAID:
            assert found.default == wanted.default, f"the default of {word} is {found.default!r}"
        if wanted.default is Parameter.empty and found.name in more:
            more.remove(found.name)
    assert not more, f"{more} have no default"


@pytest.mark.parametrize("word", UNSAID)
def test_defaults_that_mean_unsaid_are_the_standards(word: str) -> None:
    x = dx.asarray([[2.0, 1.0, 4.0], [1.0, 3.0, 3.0]])
    taken = [name for name in STANDARD["functions"] if word in expected_signature("functions", name).parameters]
    for name in taken:
        default = expected_signature("functions", name).parameters[word].default
        function = getattr(dx, name)
        assert_equal(function(x, **{word: default}), function(x).compute())
    assert taken


@pytest.mark.parametrize("device", ["cpu", "strict", "strict:2"])
def test_the_default_device_is_one_of_the_devices(device: str) -> None:
    with dx.use(device=device):
        info = dx.__array_namespace_info__()
        assert info.default_device() == dx.zeros(1).device == device
        assert device in info.devices()
        assert "cpu" in info.devices()
        assert isinstance(info.devices(), tuple)
        # SciPy's tests, written for the standard in which it was a list
        assert info.devices() + [None] == [*info.devices(), None]
        assert [None] + info.devices() == [None, *info.devices()]
        assert (*info.devices(), None) == info.devices() + (None,)


@pytest.mark.parametrize("name", STANDARD["result_fields"])
def test_fields_of_results(name: str) -> None:
    place, _, function = name.rpartition(".")
    x = dx.asarray([[2.0, 1.0], [1.0, 3.0]])
    result = getattr(getattr(dx, place) if place else dx, function)(x)
    assert isinstance(result, tuple)
    assert list(result._fields) == STANDARD["result_fields"][name]
    assert all(isinstance(field, dx.DistArray) for field in result)


def test_the_list_of_the_suite_has_what_numpy_passes() -> None:
    listed = (HERE / "data" / "array_api_suite.txt").read_text(encoding="utf-8").split("\n")
    ids = [line for line in listed if line and not line.startswith("#")]
    assert len(ids) == len(set(ids)) == 1351
    assert all(line.startswith("array_api_tests/test_") for line in ids)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.skipif("DISTARRAY_ARRAY_API_SUITE" not in os.environ, reason="DISTARRAY_ARRAY_API_SUITE names no clone")
@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--tiles", "3"],
        ["--workers", "2", "--examples", "20"],
        ["--workers", "2", "--tiles", "2", "--examples", "20"],
        ["--device", "strict"],
    ],
    ids=["one tile", "tiles", "cluster", "cluster and tiles", "strict"],
)
def test_the_conformance_suite_passes_where_numpy_does(options: list[str]) -> None:
    command = [sys.executable, str(HERE / "array_api_suite.py"), os.environ["DISTARRAY_ARRAY_API_SUITE"], *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
