"""Random graphs of elementwise operators, reductions, movement and products equal ``onnx.reference``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from distarray.testing import force_tiles

onnx = pytest.importorskip("onnx")

from onnx.reference import ReferenceEvaluator  # noqa: E402
from onnx_graphs import models  # noqa: E402

from distarray.io.onnx.operators import run_graph  # noqa: E402


def compare(model: Any, feeds: dict[str, Any]) -> None:
    expected = ReferenceEvaluator(model).run(None, feeds)
    found = run_graph(model, feeds)
    for e, (name, f) in zip(expected, found.items(), strict=True):
        assert (f.dtype, f.shape) == (e.dtype, e.shape), name
        np.testing.assert_allclose(np.asarray(f), e, rtol=2e-4, atol=2e-4, err_msg=name)


@settings(max_examples=40)
@given(models())
def test_random_graph_equals_the_reference(made):
    with np.errstate(all="ignore"):
        compare(*made)


@settings(max_examples=10)
@given(models())
def test_random_graph_in_tiles_equals_the_reference(made):
    with np.errstate(all="ignore"), force_tiles(2):
        compare(*made)


@pytest.mark.slow
@settings(max_examples=1500)
@given(models())
def test_many_random_graphs_equal_the_reference(made):
    with np.errstate(all="ignore"):
        compare(*made)


@pytest.mark.slow
@settings(max_examples=300)
@given(models())
def test_many_random_graphs_in_tiles_equal_the_reference(made):
    with np.errstate(all="ignore"), force_tiles(3):
        compare(*made)
