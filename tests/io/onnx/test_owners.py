"""The core of section 6 by brute force: sets of owners of single elements, against the inference, on random cases."""

from __future__ import annotations

from itertools import product
from math import prod

from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_specs import spec

from distarray.io.onnx import infer_node

DEVICES = 4
SIZES = {"i": 2, "j": 4, "k": 3}


def owners_of_elements(shape, annotation):
    """Per element its shard along each axis, and the devices that hold it, from the words of section 3 alone."""
    groups = {key: set(members) for key, members in annotation["groups"]}
    holders = [groups.get(d, {d}) for d in annotation["device"]]
    cuts = {d["axis"]: d["shards"][0]["num_shards"] for d in annotation["sharded"]}
    found = {}
    for at in product(*map(range, shape)):
        parts = {a: next(p for p in range(k) if p * shape[a] // k <= at[a] < (p + 1) * shape[a] // k)
                 for a, k in cuts.items()}  # fmt: skip
        number = 0
        for a, k in cuts.items():
            number = number * k + parts[a]
        found[at] = (parts, holders[number] if prod(cuts.values()) > 1 else set().union(*holders))
    return found


def brute(terms, out, shapes, specs):
    """Owners of each element of the output, or the code of the rule that is broken: over all elements of all loops."""
    sizes = {loop: max(s[t.index(loop)] for t, s in zip(terms, shapes) if loop in t) for t in terms for loop in t}
    for term, shape, annotation in zip(terms, shapes, specs):
        for d in annotation["sharded"]:
            axis, k = d["axis"], d["shards"][0]["num_shards"]
            if shape[axis] == 1 and sizes[term[axis]] > 1 and k > 1:
                return "broadcast-axis-sharded"
    for loop in sizes:
        counts = {
            next((d["shards"][0]["num_shards"] for d in annotation["sharded"] if d["axis"] == term.index(loop)), 1)
            for term, shape, annotation in zip(terms, shapes, specs)
            if loop in term and shape[term.index(loop)] != 1
        }
        if len(counts) > 1:
            return "axis-sharding-mismatch"
    held = [owners_of_elements(shape, annotation) for shape, annotation in zip(shapes, specs)]
    found = {}
    loops = list(sizes)
    for at in product(*(range(sizes[loop]) for loop in loops)):
        where = dict(zip(loops, at))
        devices = set.intersection(*(
            held[i][tuple(where[loop] if shape[a] != 1 else 0 for a, loop in enumerate(term))][1]
            for i, (term, shape) in enumerate(zip(terms, shapes))
        ))  # fmt: skip
        if not devices:
            return "empty-intersection"
        found.setdefault(tuple(where[loop] for loop in out), set()).update(devices)
    return found


@st.composite
def annotated(draw, terms):
    shapes, specs = [], []
    likely = {loop: draw(st.sampled_from([1, 1, 2])) for loop in SIZES}
    everybody = draw(st.booleans())
    for term in terms:
        shape = [draw(st.sampled_from([SIZES[loop], SIZES[loop], 1])) if draw(st.booleans()) else SIZES[loop]
                 for loop in term]  # fmt: skip
        cuts = []
        for axis, loop in enumerate(term):
            most = min(shape[axis], 2)  # brute force sees elements, so no shard is empty
            k = min(likely[loop], most) if draw(st.integers(0, 5)) else draw(st.integers(1, most))
            if k > 1:
                cuts.append((axis, shape[axis], k))
        count = prod(k for *_, k in cuts)
        full = list(range(DEVICES))
        device = [
            full if everybody and draw(st.integers(0, 3)) else sorted(draw(st.sets(st.integers(0, 3), min_size=1)))
            for _ in range(count)
        ]
        shapes.append(shape)
        specs.append(spec(device, *cuts))
    return shapes, specs


def compare(op, attrs, terms, out, shapes, specs):
    expected = brute(terms, out, shapes, specs)
    found = infer_node(op, attrs, shapes, specs, None, DEVICES)
    if isinstance(expected, str):
        assert found.get("error") == expected, (found, expected)
        return
    assert "error" not in found, (found, expected)
    (output,) = found["outputs"]
    grid, shape = output["grid"], output["shape"]
    for at, devices in expected.items():
        number = 0
        for i, n, k in zip(at, shape, grid):
            number = number * k + next(p for p in range(k) if p * n // k <= i < (p + 1) * n // k)
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
