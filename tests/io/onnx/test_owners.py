"""The core of section 6 by brute force: sets of owners of single elements, against the inference, on random cases."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_specs import spec

from distarray.io.onnx import infer_node

DEVICES = 4
SIZES = {"i": 2, "j": 4, "k": 3}


def shard_of(entries, at):
    """The shard of one index of an axis that is cut by entries ``(size, shards)``: S-7 and S-8 word by word."""
    number = 0
    left = prod(n for n, _ in entries)
    for n, k in entries:
        left //= n
        part = next(p for p in range(k) if p * n // k <= at // left < (p + 1) * n // k)
        number, at = number * k + part, at % left
    return number


def cuts_of(shape, annotation):
    """Per axis its entries."""
    listed = {d["axis"]: [(e["dim"], e["num_shards"]) for e in d["shards"]] for d in annotation["sharded"]}
    return [listed.get(axis, [(n, 1)]) for axis, n in enumerate(shape)]


def owners_of_elements(shape, annotation):
    """Per element the devices that hold it, from the words of section 3 alone."""
    groups = {key: set(members) for key, members in annotation["groups"]}
    holders = [groups.get(d, {d}) for d in annotation["device"]]
    cuts = cuts_of(shape, annotation)
    counts = [prod(k for _, k in entries) for entries in cuts]
    found = {}
    for at in product(*map(range, shape)):
        number = 0
        for entries, k, i in zip(cuts, counts, at):
            number = number * k + shard_of(entries, i)
        found[at] = holders[number] if prod(counts) > 1 else set().union(*holders)
    return found


def brute(terms, out, shapes, specs, whole=""):
    """Owners of each element of the output, or the code of the rule that is broken: over all elements of all loops."""
    sizes = {loop: max(s[t.index(loop)] for t, s in zip(terms, shapes) if loop in t) for t in terms for loop in t}
    shards = {loop: set() for loop in sizes}
    for term, shape, annotation in zip(terms, shapes, specs):
        for loop, n, entries in zip(term, shape, cuts_of(shape, annotation)):
            numbers = tuple(shard_of(entries, i) for i in range(n))
            if n == 1 and sizes[loop] > 1 and prod(k for _, k in entries) > 1:
                return "broadcast-axis-sharded"
            if loop in whole and max(numbers) > 0:
                return "axis-must-be-whole"
            if n == sizes[loop]:
                shards[loop].add(numbers)
    if any(len(ways) > 1 for ways in shards.values()):
        return "axis-sharding-mismatch"
    held = [owners_of_elements(shape, annotation) for shape, annotation in zip(shapes, specs)]
    found = {}
    loops = list(sizes)
    for at in product(*(range(sizes[loop]) for loop in loops)):
        where = dict(zip(loops, at))
        devices = set.intersection(*(
            held[i][tuple(where[loop] if shape[a] != 1 else 0 for a, loop in enumerate(term))]
            for i, (term, shape) in enumerate(zip(terms, shapes))
        ))  # fmt: skip
        if not devices:
            return "empty-intersection"
        found.setdefault(tuple(where[loop] for loop in out), set()).update(devices)
    return found


@st.composite
def annotated(draw, terms, is_exact=False):
    """Shapes and specs of operands; `is_exact`: none of them is broadcast."""
    shapes, specs = [], []
    likely = {loop: draw(st.sampled_from([1, 1, 2])) for loop in SIZES}
    is_fused = draw(st.booleans())
    everybody = draw(st.booleans())
    for term in terms:
        shape = [SIZES[loop] for loop in term]
        for axis in range(len(term)):
            if not is_exact and draw(st.booleans()):
                shape[axis] = draw(st.sampled_from([shape[axis], shape[axis], 1]))
        cuts = []
        for axis, loop in enumerate(term):
            most = min(shape[axis], 2)  # brute force sees elements, so no shard is empty
            k = min(likely[loop], most) if draw(st.integers(0, 5)) else draw(st.integers(1, most))
            if k > 1 and shape[axis] == 4 and is_fused and draw(st.integers(0, 5)):
                cuts.append((axis, (2, 1), (2, k)))
            elif k > 1:
                cuts.append((axis, (shape[axis], k)))
        count = prod(k for _, *entries in cuts for _, k in entries)
        full = list(range(DEVICES))
        device = [
            full if everybody and draw(st.integers(0, 3)) else sorted(draw(st.sets(st.integers(0, 3), min_size=1)))
            for _ in range(count)
        ]
        shapes.append(shape)
        specs.append(spec(device, *cuts))
    return shapes, specs


def compare(op, attrs, terms, out, shapes, specs, whole=""):
    """Compare a node with brute force; `out`: the loops of its outputs, with blanks between."""
    found = infer_node(op, attrs, shapes, specs, None, DEVICES)
    expected = [brute(terms, one, shapes, specs, whole) for one in out.split(" ")]
    if isinstance(expected[0], str):
        assert found.get("error") == expected[0], (found, expected)
        return
    assert "error" not in found, (found, expected)
    for output, held in zip(found["outputs"], expected, strict=True):
        _is_held(output, held)


def _is_held(output, expected):
    layout = output.get("axis_layout", [[(n, k)] for n, k in zip(output["shape"], output["grid"])])
    assert [prod(k for _, k in entries) for entries in layout] == output["grid"]
    for at, devices in expected.items():
        number = 0
        for i, entries, k in zip(at, layout, output["grid"]):
            number = number * k + shard_of(entries, i)
        assert set(output["owners"][number]) == devices, (at, output, devices)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_nary_nodes_are_valid_just_if_brute_force_says_so(data):
    """onnx:N-1, onnx:N-2, onnx:N-3, onnx:N-4, onnx:A-2, onnx:A-3."""
    terms = data.draw(st.sampled_from(["ij ij", "ij j", "ij ij ij", "ij j ij"])).split()
    shapes, specs = data.draw(annotated(terms))
    compare("Sum", {}, terms, "ij", shapes, specs)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_products_are_valid_just_if_brute_force_says_so(data):
    """onnx:M-1, onnx:M-2, onnx:M-5, onnx:A-2, onnx:A-3."""
    equation = data.draw(st.sampled_from(["ik,kj->ij", "ik,kj,i->j", "ij->ji", "ij,ij->"]))
    left, _, out = equation.partition("->")
    terms = left.split(",")
    shapes, specs = data.draw(annotated(terms))
    compare("Einsum", {"equation": equation}, terms, out, shapes, specs)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_reductions_are_those_of_brute_force(data):
    """onnx:R-1, onnx:R-2, onnx:A-3."""
    axes = data.draw(st.sets(st.integers(0, 2), min_size=1))
    shapes, specs = data.draw(annotated(["ijk"]))
    out = "".join(loop for axis, loop in enumerate("ijk") if axis not in axes)
    compare("ReduceSum", {"axes": sorted(axes), "keepdims": 0}, ["ijk"], out, shapes, specs)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_operators_along_an_axis_are_valid_just_if_brute_force_says_so(data):
    """onnx:L-1, onnx:A-2, onnx:A-3."""
    op = data.draw(st.sampled_from(["Softmax", "LogSoftmax", "Hardmax"]))
    axis = data.draw(st.integers(-3, 2))
    shapes, specs = data.draw(annotated(["ijk"]))
    compare(op, {"axis": axis}, ["ijk"], "ijk", shapes, specs, whole="ijk"[axis])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_unary_nodes_and_transposed_axes_are_those_of_brute_force(data):
    """onnx:U-1, onnx:V-1, onnx:A-3."""
    order = data.draw(st.permutations(range(3)))
    shapes, specs = data.draw(annotated(["ijk"]))
    compare("Transpose", {"perm": order}, ["ijk"], "".join("ijk"[axis] for axis in order), shapes, specs)
    compare("Tanh", {}, ["ijk"], "ijk", shapes, specs)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_composites_are_valid_just_if_brute_force_says_so(data):
    """onnx:K-1, onnx:A-2, onnx:A-3: losses need their classes whole; a scale is of all elements."""
    op = data.draw(st.sampled_from(["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"]))
    reduction = data.draw(st.sampled_from(["none", "sum", "mean"]))
    terms = data.draw(st.sampled_from(["ij i", "ijk ik", "ijk ik j"])).split()
    shapes, specs = data.draw(annotated(terms, is_exact=True))
    out = terms[1] if reduction == "none" else ""
    out += f" {terms[0]}" if op == "SoftmaxCrossEntropyLoss" else ""  # the logarithms of the probabilities
    compare(op, {"reduction": reduction}, terms, out, shapes, specs, whole="j")
    shapes, specs = data.draw(annotated(["ijk"]))
    compare("DynamicQuantizeLinear", {}, ["ijk"], "ijk  ", shapes, specs)


#: Movement by hand: what NumPy does with the numbers of the elements, and the axes that are indexed, shifted or joined.
MOVED = [
    ("Squeeze", {"axes": [0]}, (1, 4, 3), lambda i: i[0], ()),
    ("Unsqueeze", {"axes": [1]}, (2, 4, 3), lambda i: i[:, None], ()),
    ("Expand", {"shape": [3, 2, 4, 3]}, (2, 4, 3), lambda i: np.broadcast_to(i, (3, 2, 4, 3)), ()),
    ("Expand", {"shape": [2, 4, 3]}, (2, 1, 3), lambda i: np.broadcast_to(i, (2, 4, 3)), ()),
    ("Tile", {"repeats": [1, 2, 1]}, (2, 4, 3), lambda i: np.tile(i, (1, 2, 1)), (1,)),
    ("Slice", {"starts": [1], "ends": [3], "axes": [1]}, (2, 4, 3), lambda i: i[:, 1:3], (1,)),
    ("Slice", {"starts": [-1], "ends": [-99], "axes": [0], "steps": [-1]}, (2, 4, 3), lambda i: i[::-1], (0,)),
    ("Slice", {"starts": [0], "ends": [99], "axes": [-1]}, (2, 4, 3), lambda i: i, ()),
    ("Split", {"axis": 1, "split": [1, 3]}, (2, 4, 3), lambda i: (i[:, :1], i[:, 1:]), (1,)),
    ("Split", {"axis": -1, "num_outputs": 3}, (2, 4, 3), lambda i: (i[..., :1], i[..., 1:2], i[..., 2:]), (2,)),
    ("Pad", {"pads": [0, 1, 0, 0, 0, 2]}, (2, 4, 3),
     lambda i: np.pad(i, ((0, 0), (1, 0), (0, 2)), constant_values=-1), (1, 2)),
    ("Trilu", {}, (2, 4, 3), lambda i: i, ()),
    ("DepthToSpace", {"blocksize": 2}, (2, 4, 1, 3),
     lambda i: i.reshape(2, 2, 2, 1, 1, 3).transpose(0, 3, 4, 1, 5, 2).reshape(2, 1, 2, 6), None),
    ("SpaceToDepth", {"blocksize": 2}, (2, 1, 4, 2),
     lambda i: i.reshape(2, 1, 2, 2, 1, 2).transpose(0, 3, 5, 1, 2, 4).reshape(2, 4, 2, 1), None),
    ("SpaceToDepth", {"blocksize": 2, "mode": "CRD"}, (2, 2, 4, 2),
     lambda i: i.reshape(2, 2, 2, 2, 1, 2).transpose(0, 1, 3, 5, 2, 4).reshape(2, 8, 2, 1), None),
    ("Flatten", {"axis": 1}, (2, 4, 3), lambda i: i.reshape(2, 12), None),
    ("Flatten", {"axis": 2}, (2, 4, 3), lambda i: i.reshape(8, 3), None),
    ("Reshape", {"shape": [4, 2, 3]}, (2, 4, 3), lambda i: i.reshape(4, 2, 3), None),
    ("Reshape", {"shape": [2, 2, 2, -1]}, (2, 4, 3), lambda i: i.reshape(2, 2, 2, 3), None),
    ("Reshape", {"shape": [0, 6, 2]}, (2, 4, 3), lambda i: i.reshape(2, 6, 2), None),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(MOVED)))
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_movement_takes_elements_where_they_are_or_is_refused(number, data):
    """onnx:V-1, onnx:A-2, onnx:A-3: of a valid node each device has just those elements of the outputs whose elements
    of the input it has; it is refused just where an axis is cut along which elements go elsewhere.
    """
    op, attrs, shape, move, touched = MOVED[number]
    spec_in = data.draw(annotated_as(shape))
    found = infer_node(op, attrs, [list(shape)], [spec_in], None, DEVICES)
    held = owners_of_elements(shape, spec_in)
    cut = [axis for axis, entries in enumerate(cuts_of(shape, spec_in)) if prod(k for _, k in entries) > 1]
    if "error" in found:
        assert found["error"] in ("axis-must-be-whole", "output-spec-needed"), found
        assert cut if touched is None else set(cut) & set(touched), found
        return
    assert touched is None or not set(cut) & set(touched), found
    moved = move(np.arange(prod(shape)).reshape(shape))
    places = list(product(*map(range, shape)))
    for output, numbers in zip(found["outputs"], moved if isinstance(moved, tuple) else (moved,), strict=True):
        assert tuple(output["shape"]) == numbers.shape
        layout = output.get("axis_layout", [[(n, k)] for n, k in zip(output["shape"], output["grid"])])
        for at in product(*map(range, numbers.shape)):
            shard = 0
            for i, entries, k in zip(at, layout, output["grid"]):
                shard = shard * k + shard_of(entries, i)
            if numbers[at] >= 0:
                assert set(output["owners"][shard]) == held[places[numbers[at]]], (at, found)


@st.composite
def annotated_as(draw, shape):
    """A spec of an array of this shape: plain and fused cuts, each shard at some devices."""
    cuts = []
    for axis, n in enumerate(shape):
        k = draw(st.sampled_from([1, 1, 2])) if n > 1 else 1
        if k > 1 and n == 4 and draw(st.booleans()):
            cuts.append((axis, (2, 1), (2, k)))
        elif k > 1:
            cuts.append((axis, (n, k)))
    count = prod(k for _, *entries in cuts for _, k in entries)
    return spec([sorted(draw(st.sets(st.integers(0, DEVICES - 1), min_size=1))) for _ in range(count)], *cuts)
