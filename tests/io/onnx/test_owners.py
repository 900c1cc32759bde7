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
def annotated(draw, terms):
    shapes, specs = [], []
    likely = {loop: draw(st.sampled_from([1, 1, 2])) for loop in SIZES}
    is_fused = draw(st.booleans())
    everybody = draw(st.booleans())
    for term in terms:
        shape = [draw(st.sampled_from([SIZES[loop], SIZES[loop], 1])) if draw(st.booleans()) else SIZES[loop]
                 for loop in term]  # fmt: skip
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
    expected = brute(terms, out, shapes, specs, whole)
    found = infer_node(op, attrs, shapes, specs, None, DEVICES)
    if isinstance(expected, str):
        assert found.get("error") == expected, (found, expected)
        return
    assert "error" not in found, (found, expected)
    (output,) = found["outputs"]
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
