"""Specs of arrays: what lies on a team is what the spec says."""

from __future__ import annotations

import numpy as np
import pytest

import distarray as dx
from distarray.io.onnx.arrays import form_of

TEAM = dx.Team((2, 2), ("a", "b"))


@pytest.mark.parametrize(
    ("sharding", "grid", "owners"),
    [
        (("a", None), (2, 1), [{0, 1}, {2, 3}]),
        (("b", None), (2, 1), [{0, 2}, {1, 3}]),
        ((None, ("a", "b")), (1, 4), [{0}, {2}, {1}, {3}]),
        (("a", "b"), (2, 2), [{0}, {1}, {2}, {3}]),
    ],
)
def test_the_spec_of_an_array_says_how_it_lies(sharding, grid, owners):
    """onnx:A-1."""
    x = dx.asarray(np.ones((4, 8)), team=TEAM, sharding=sharding)
    form = form_of(x)
    assert (form.grid, [set(o) for o in form.owners]) == (grid, owners)
    pytest.importorskip("onnx")
    from distarray.io.onnx.protobuf import spec_from_proto
    from distarray.io.onnx.specs import read_spec

    proto = dx.io.onnx.spec_of(x, "x")
    assert proto.tensor_name == "x"
    assert read_spec(spec_from_proto(proto), x.shape, 4).form == form


def test_arrays_that_no_spec_can_say_are_refused():
    with pytest.raises(dx.ShardingError, match="without a team"):
        form_of(dx.asarray(np.ones(4), team=None))
