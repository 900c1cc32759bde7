"""The public interface is typed: mypy, strict, on a script of a user."""

import importlib.util
from pathlib import Path

import pytest

import distarray

RIGHT = """
import numpy as np
import distarray as dx

def total(x: dx.DistArray) -> float:
    return float(x.sum())

team = dx.Team(shape=(2, 2), axes=("R", "C"))
x = dx.asarray(np.ones((4, 4)), team=team, sharding=("R", "C"), layout="F")
total(x)
total(x.reshard((None, "R")))
moved: dx.DistArray = x.to_team(None).to_device("cpu")
shape: tuple[int, ...] = x.shape
"""
WRONG = {
    "total(np.ones((4, 4)))": "DistArray",
    "dx.shares_memory(x)": "Too few arguments",
    "x.to_device(3)": "str",
    "dx.asarray(x, team=4)": "Team",
}


def test_the_package_says_that_it_is_typed():
    """C-16."""
    assert (Path(distarray.__file__).parent / "py.typed").exists()


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_a_host_array_in_the_place_of_a_distarray_is_a_type_error(tmp_path):
    """C-16."""
    from mypy import api

    script = tmp_path / "script.py"
    lines = RIGHT.splitlines()
    script.write_text("\n".join([*lines, *WRONG]))
    out, _, status = api.run(["--strict", "--config-file", "", "--follow-imports=silent", str(script)])
    errors = [line for line in out.splitlines() if "error:" in line]
    assert status == 1
    for number, (call, text) in enumerate(WRONG.items(), len(lines) + 1):
        (error,) = [e for e in errors if f":{number}: " in e]
        assert text in error, (call, error)
    assert len(errors) == len(WRONG), out
