"""One spec: each rule S-n accepts one and, where it can, rejects one; identity and writing against elements."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx_specs import spec

import distarray as dx
from distarray.io.onnx import from_spec, infer_node
from distarray.io.onnx.arrays import form_of
from distarray.io.onnx.forms import TensorForm, flat_pieces, is_identical, simplified
from distarray.io.onnx.specs import read_spec, write_spec


def told(shape, annotation, num_devices=6, **options):
    return infer_node("Identity", {}, [shape], [annotation], None, num_devices, **options)


def raw(device, groups=(), sharded=()):
    return {"device": device, "groups": [list(g) for g in groups], "sharded": list(sharded)}


#: Rule, shape, spec, status, grid, owners, warnings.
ACCEPTED = [
    ("onnx:S-1", [4, 6], spec([0, 1, 2, 3], (0, 4, 2), (1, 6, 2)), "valid", [2, 2], [[0], [1], [2], [3]], []),
    (
        *("onnx:S-1", [4, 6], spec([0, 1, 2, 3], (1, 6, 2), (0, 4, 2)), "valid"),
        *([2, 2], [[0], [2], [1], [3]], ["unsorted-dims"]),
    ),
    ("onnx:S-2", [4], spec([3, 1], (0, 4, 2)), "valid", [2], [[3], [1]], []),
    ("onnx:S-2", [4], spec([3, 1]), "valid", [1], [[1, 3]], []),
    ("onnx:S-2", [4], spec([3, [1, 2]], (0, 4, 1)), "valid", [1], [[1, 2, 3]], []),
    ("onnx:S-3", [4], spec([[1, 0], 2], (0, 4, 2)), "valid", [2], [[0, 1], [2]], []),
    (
        *("onnx:S-3", [4], raw([1, 2], [(1, [4, 5])], spec([0, 1], (0, 4, 2))["sharded"]), "valid"),
        *([2], [[4, 5], [2]], ["group-key-shadows-device"]),
    ),
    ("onnx:S-3", [4], raw([0], [(-9, []), (-9, [99])]), "valid", [1], [[0]], []),
    ("onnx:S-4", [4], spec([1, 1], (0, 4, 2)), "valid", [2], [[1], [1]], ["several-shards"]),
    ("onnx:S-4", [4], spec([[0, 1], [1, 2]], (0, 4, 2)), "valid", [2], [[0, 1], [1, 2]], ["several-shards"]),
    ("onnx:S-5", [4, 6], spec([0, 1], (-1, 6, 2)), "valid", [1, 2], [[0], [1]], []),
    ("onnx:S-5", [4, 6], spec([0, 1], (-1, 6, 2), (0, 4, 1)), "valid", [1, 2], [[0], [1]], []),
    ("onnx:S-6", [4], spec([0, 1], (0, None, 2)), "valid", [2], [[0], [1]], []),
    ("onnx:S-6", [4], spec([0, 1], (0, "N", 2)), "valid", [2], [[0], [1]], []),
    ("onnx:A-11", ["N"], spec([0, 1], (0, "N", 2)), "valid", [2], [[0], [1]], []),
    ("onnx:S-7", [8], spec([0, 1], (0, (2, 1), (4, 2))), "valid", [2], [[0], [1]], []),
    ("onnx:S-8", [10], spec([2, 0, 1], (0, 10, 3)), "backend_defined", [3], [[2], [0], [1]], []),
    ("onnx:S-8", [1], spec([0, 1], (0, 1, 2)), "backend_defined", [2], [[0], [1]], []),
]

REJECTED = [
    ("onnx:S-2", [4], spec([0, 1, 2], (0, 4, 2)), "device-count-mismatch"),
    ("onnx:S-2", [4], spec([0], (0, 4, 2)), "device-count-mismatch"),
    ("onnx:S-2", [4], spec([0], (0, 4, 10**18)), "device-count-mismatch"),
    ("onnx:S-3", [4], spec([6]), "device-out-of-range"),
    ("onnx:S-3", [4], spec([-1]), "device-out-of-range"),
    ("onnx:S-3", [4], spec([[0, 6]]), "group-member-out-of-range"),
    ("onnx:S-3", [4], spec([[]]), "group-empty"),
    ("onnx:S-3", [4], raw([-1], [(-1, [0]), (-1, [1])]), "group-duplicate-key"),
    ("onnx:S-5", [4], spec([0, 1], (1, 4, 2)), "axis-out-of-range"),
    ("onnx:S-5", [], spec([0], (0, 1, 1)), "axis-out-of-range"),
    ("onnx:S-5", [4, 4], spec([0, 1], (0, 4, 2), (-2, 4, 1)), "duplicate-axis"),
    ("onnx:S-5", [4], raw([0], (), [{"axis": 0, "shards": [{"dim": 4}]}]), "num-shards-missing"),
    ("onnx:S-5", [4], raw([0], (), [{"axis": 0, "shards": []}]), "num-shards-missing"),
    ("onnx:S-5", [4], spec([0], (0, 4, 0)), "num-shards-invalid"),
    ("onnx:S-6", [4], spec([0, 1], (0, 5, 2)), "dim-mismatch"),
    ("onnx:S-6", [8], spec([0, 1], (0, (2, 1), (3, 2))), "dim-mismatch"),
    ("onnx:S-6", [8], spec([0, 1], (0, ("N", 1), (4, 2))), "dim-mismatch"),
    ("onnx:S-9", [4], spec([], (0, 4, 2)), "placement-missing"),
]


@pytest.mark.parametrize(("rule", "shape", "annotation", "status", "grid", "owners", "warnings"), ACCEPTED)
def test_specs_that_are_accepted(rule, shape, annotation, status, grid, owners, warnings):
    found = told(shape, annotation)
    assert found["status"] == status, found
    assert (found["outputs"][0]["grid"], found["outputs"][0]["owners"]) == (grid, owners)
    assert found["outputs"][0]["shape"] == shape
    assert found.get("warnings", []) == warnings


@pytest.mark.parametrize(("rule", "shape", "annotation", "code"), REJECTED)
def test_specs_that_are_rejected(rule, shape, annotation, code):
    found = told(shape, annotation)
    assert (found["status"], found["error"], found["outputs"]) == ("invalid", code, [])
    assert found["rule"].startswith(rule.removeprefix("onnx:"))


def test_devices_are_filled_in_order_where_that_is_allowed():
    """onnx:S-9."""
    found = told([4], spec([], (0, 4, 2)), strict=False)
    assert found["outputs"][0]["owners"] == [[0], [1]]
    assert told([4], spec([], (0, 4, 9)), strict=False)["error"] == "device-out-of-range"


@pytest.mark.parametrize(
    "nonsense",
    [
        {},
        {"device": [0]},
        {"device": ["a"], "groups": [], "sharded": []},
        {"device": [0], "groups": [1], "sharded": []},
        {"device": [0], "groups": [], "sharded": [{"axis": "x", "shards": []}]},
        {"device": [0], "groups": [], "sharded": [{"axis": 0, "shards": [{"dim": 1.5, "num_shards": 1}]}]},
        [1, 2],
    ],
)
def test_what_is_no_spec_is_a_value_error(nonsense):
    with pytest.raises(ValueError, match="no sharding spec"):
        told([4], nonsense)


@pytest.mark.parametrize("num_devices", [0, -1, 10**9, "2", True])
def test_numbers_of_devices_that_cannot_be(num_devices):
    with pytest.raises(ValueError, match="num_devices"):
        told([4], None, num_devices)


# -- identity and writing against elements ------------------------------------------------------------------------


def elements(cut, size):
    """Elements of each shard of an axis, from the words of S-7 and S-8 alone."""
    if not cut:
        return [tuple(range(size))]
    dims = [n for n, _ in cut]
    shards = [[] for _ in range(prod(k for _, k in cut))]
    for number, at in enumerate(product(*map(range, dims))):
        shard = 0
        for i, (n, k) in zip(at, cut):
            part = next(p for p in range(k) if p * n // k <= i < (p + 1) * n // k)
            shard = shard * k + part
        shards[shard].append(number)
    return [tuple(s) for s in shards]


entry = st.tuples(st.sampled_from([1, 1, 2, 2, 3, 4, 5, 6]), st.integers(1, 6))
cuts_of_axes = st.lists(entry, min_size=1, max_size=4).map(tuple)


@given(cuts_of_axes, cuts_of_axes)
def test_cuts_are_identical_just_if_their_shards_hold_the_same_elements(a, b):
    """onnx:S-10."""
    sizes = [prod(n for n, _ in cut) for cut in (a, b)]
    if sizes[0] == sizes[1]:
        assert is_identical(a, b) == (elements(a, sizes[0]) == elements(b, sizes[1]))


@given(cuts_of_axes)
def test_normal_forms_and_simplified_cuts_are_the_same_cut(cut):
    """onnx:S-10."""
    size = prod(n for n, _ in cut)
    assert elements(flat_pieces(cut), size) == elements(cut, size)
    assert elements(simplified(cut), size) == elements(cut, size)
    plain = ((size, prod(k for _, k in cut)),)
    if elements(plain, size) == elements(cut, size) and plain[0][1] > 1:
        assert simplified(cut) == plain


def test_all_cuts_of_small_axes_are_compared_rightly():
    """onnx:S-10."""
    for size in (1, 2, 4, 6):
        factors = [f for length in (1, 2, 3) for f in product(range(1, size + 1), repeat=length) if prod(f) == size]
        cuts = [tuple(zip(f, ks)) for f in factors for ks in product(range(1, 4), repeat=len(f))]
        held = [elements(cut, size) for cut in cuts]
        for a, b in product(range(0, len(cuts), 3), range(len(cuts))):
            assert is_identical(cuts[a], cuts[b]) == (held[a] == held[b]), (cuts[a], cuts[b])


@st.composite
def forms(draw):
    small = st.tuples(st.integers(1, 4), st.integers(1, 2))
    cuts = draw(st.lists(st.lists(small, max_size=2).map(tuple), max_size=2))
    cuts = tuple(cut if prod(k for _, k in cut) > 1 else () for cut in cuts)
    shape = tuple(prod(n for n, _ in cut) if cut else draw(st.integers(0, 3)) for cut in cuts)
    count = prod(k for cut in cuts for _, k in cut)
    holders = st.frozensets(st.integers(0, 5), min_size=1)
    return TensorForm(shape, cuts, tuple(draw(st.lists(holders, min_size=count, max_size=count))))


@given(forms())
def test_writing_and_reading_is_the_form(form):
    """onnx:S-11, onnx:A-1."""
    written = write_spec(form)
    reading = read_spec(written, form.shape, 6)
    assert reading.form == form
    axes = [dim["axis"] for dim in written["sharded"]]
    assert axes == sorted(set(axes))
    assert all(min(axes, default=0) >= 0 and "dim" in e for dim in written["sharded"] for e in dim["shards"])
    used = [d for d in dict.fromkeys(written["device"]) if d < 0]
    assert used == [key for key, _ in written["groups"]] == list(range(-1, -len(used) - 1, -1))
    assert all(members == sorted(members) and len(members) > 1 for _, members in written["groups"])


@settings(max_examples=100)
@given(forms())
def test_every_form_is_one_of_an_array(form):
    """onnx:A-1, onnx:S-10: an array that is brought into the form of a spec lies so, and has its elements."""
    assume(all(n > 1 or k == 1 for cut in form.cuts if len(cut) > 1 for n, k in cut))  # an axis of one is no axis there
    values = np.arange(prod(form.shape)).reshape(form.shape)
    x = from_spec(values, write_spec(form), team=dx.Team((6,), ("d",), members=range(6)))
    assert form_of(x).is_same(form)
    assert read_spec(write_spec(form_of(x)), form.shape, 6).form.is_same(form)
    np.testing.assert_array_equal(np.asarray(x), values)


def test_whole_tensors_are_written_with_one_entry():
    """onnx:S-11."""
    assert write_spec(TensorForm.whole((3,), frozenset({2}))) == {"device": [2], "groups": [], "sharded": []}
    everybody = write_spec(TensorForm.whole((3,), frozenset({2, 0})))
    assert everybody == {"device": [-1], "groups": [[-1, [0, 2]]], "sharded": []}


@pytest.mark.parametrize("spec", [None, 5, "x", []])
def test_what_is_no_spec_is_said(spec: Any) -> None:
    with pytest.raises(TypeError, match="neither a ShardingSpecProto nor its JSON form"):
        from_spec(np.ones((4, 4)), spec, team=dx.Team((2,), ("R",)))
    with pytest.raises(TypeError, match="team=None is no Team"):
        from_spec(np.ones((4, 4)), {}, team=None)  # type: ignore[arg-type]
