"""Rules of the classes that compute: elementwise, reductions, products, along an axis, creation, losses.

A rule says which loop each axis runs over and leaves the rest to `NodeFacts.follow`. Where an operator has axes by
attributes, the tables at its class name them; a rule is a few lines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from distarray.io.onnx.forms import Size, TensorForm
from distarray.io.onnx.node_facts import NodeFacts, OutputSpecNeeded, loops_of
from distarray.io.onnx.violations import Refusal

Term = list[str]


# -- elementwise ------------------------------------------------------------------------------------------------------


def unary(facts: NodeFacts) -> list[TensorForm]:
    """Follow U-1, U-2: every output is like the first input; further inputs are parameters."""
    term = facts.loops()
    parameters: list[Sequence[str] | None] = [term]
    if facts.op_type == "CastLike":  # of the second input only the dtype is used
        parameters.append(None)
    results = 2 if facts.op_type == "Dropout" else 1
    found = facts.follow(parameters, [term] * results)
    # The entries of a fused axis are those of the input, also where another cut is identical.
    data = facts.form(0)
    return [TensorForm(data.shape, data.cuts, form.owners) for form in found]


def nary(facts: NodeFacts) -> list[TensorForm]:
    """Follow N-1 to N-4: axes align from the right and broadcast."""
    return _nary(facts, [facts.form(i) for i in range(len(facts.forms)) if facts.has(i)])


def _nary(facts: NodeFacts, forms: Sequence[TensorForm]) -> list[TensorForm]:
    shapes = [form.shape for form in forms]
    if None in shapes:
        facts.refuse("rank-unknown", "the rank of an input is not known")
    known = [shape for shape in shapes if shape is not None]
    rank = max(map(len, known), default=0)
    terms = [_aligned(rank, len(shape)) for shape in known]
    padded = [(1,) * (rank - len(shape)) + shape for shape in known]
    wide = [any(n != 1 for n in sizes) for sizes in zip(*padded)]
    broadcast = [any(n == 1 and w for n, w in zip(shape, wide)) for shape in padded]
    number = {0: "N-1", 1: "N-2"}.get(sum(broadcast), "N-3")
    facts.number = "N-4" if not any(wide) and len(known) > 1 else number
    return facts.follow(terms, [_aligned(rank, rank)], broadcast=_aligned(rank, rank), forms=forms)


def _aligned(rank: int, own: int) -> Term:
    return [f"b{i}" for i in range(rank - own, rank)]


def unary_or_nary(facts: NodeFacts) -> list[TensorForm]:
    """Follow U-2 for Max and Min: with more than one input they are n-ary."""
    return nary(facts) if len(facts.forms) > 1 else unary(facts)


def quantize(facts: NodeFacts) -> list[TensorForm]:
    """Let QuantizeLinear and DequantizeLinear be unary per tensor, n-ary where the scale has axes."""
    rank, scale = len(facts.shape()), facts.shape(1)
    if len(scale) == 0 or scale == (1,):
        facts.number = "U-1"
        terms = [loops_of(rank), *(["1"] * len(facts.shape(i)) if facts.has(i) else None for i in (1, 2))]
        return facts.follow(terms, [terms[0] or []])
    term = loops_of(rank)
    if len(scale) == 1:
        axis = facts.axis(1, rank)
        return facts.follow([term, [term[axis]], [term[axis]]], [term], broadcast=[term[axis]])
    facts_of_scale = [a if n == m else f"s{i}" for i, (a, n, m) in enumerate(zip(term, scale, facts.shape()))]
    whole = {loop for a, b in zip(term, facts_of_scale) if a != b for loop in (a, b)}
    return facts.follow([term, facts_of_scale, facts_of_scale], [term], whole=whole, broadcast=term)


def batch_normalization(facts: NodeFacts) -> list[TensorForm]:
    """Let BatchNormalization (inference) be n-ary, with parameters along the channels."""
    if facts.integer("training_mode", 0):
        raise Refusal(facts.number, "unsupported-op", "BatchNormalization with training_mode=1 is not annotated")
    term = facts.loops()
    channel = term[1:2]
    return facts.follow([term, *[channel] * 4], [term], broadcast=channel)


def shape_vector(facts: NodeFacts) -> list[TensorForm]:
    """Let ConstantOfShape be whole on the owners of the vector, never a copy of its spec (U-2)."""
    sizes = facts.ints("shape", "input")
    if sizes is None:
        rank = (*facts.shape(), None)[0]
        return [TensorForm.whole((None,) * rank if isinstance(rank, int) else None, facts.form(0).devices)]
    return [TensorForm.whole(sizes, facts.form(0).devices)]


# -- reductions -------------------------------------------------------------------------------------------------------


def reduction(facts: NodeFacts) -> list[TensorForm]:
    """Follow R-1 to R-3: the axes that are reduced are whole where they are kept, and on all devices that took part."""
    rank = len(facts.shape())
    if facts.op_type in ("ArgMax", "ArgMin"):
        axes: tuple[int, ...] = (facts.axis(0, rank, "axis", "axes"),)
    else:
        given = facts.ints("axes")
        if given is None and facts.has(1):
            sizes = [None] * rank if facts.integer("keepdims", 1) else None
            raise OutputSpecNeeded(facts.number, "axes are not known before the run", [sizes])
        axes = facts.axes(given or (), rank)
        if not given and not facts.integer("noop_with_empty_axes", 0):
            axes = tuple(range(rank))
    term = loops_of(rank)
    if facts.integer("keepdims", 1):
        kept = ["1" if axis in axes else loop for axis, loop in enumerate(term)]
    else:
        kept = [loop for axis, loop in enumerate(term) if axis not in axes]
    return facts.follow([term], [kept])


# -- products ---------------------------------------------------------------------------------------------------------


def matmul(facts: NodeFacts) -> list[TensorForm]:
    """Follow M-1, M-2, M-4 for MatMul and its quantised forms. Vectors lose M or N; batch axes broadcast."""
    at = 3 if facts.op_type == "QLinearMatMul" else 1
    facts.number = "M-1" if facts.op_type == "MatMul" else "M-4"
    a, b = len(facts.shape(0)), len(facts.shape(at))
    if not a or not b:
        facts.refuse("shape-mismatch", "a scalar cannot be multiplied as a matrix")
    batch = max(a, b, 2) - 2
    lead = _aligned(batch, batch)
    left = [*lead[batch - max(a - 2, 0) :], *(["m"] if a > 1 else []), "k"]
    right = [*lead[batch - max(b - 2, 0) :], "k", *(["n"] if b > 1 else [])]
    out = [*lead, *(["m"] if a > 1 else []), *(["n"] if b > 1 else [])]
    if facts.op_type == "MatMul":
        terms: list[Sequence[str] | None] = [left, right]
    elif facts.op_type == "MatMulInteger":
        terms = [left, right, _along(facts, 2, left, "m"), _along(facts, 3, right, "n")]
    else:
        terms = [left, *[_along(facts, i, left, "m") for i in (1, 2)], right]
        terms += [*[_along(facts, i, right, "n") for i in (4, 5)], *[_along(facts, i, out, "m") for i in (6, 7)]]
    return facts.follow(terms, [out], broadcast=lead)


def _along(facts: NodeFacts, i: int, term: Term, loop: str) -> Term | None:
    """Return the term of a scale or zero point: of one element, along M or N, or with the axes of its matrix (M-4)."""
    if not facts.has(i):
        return None
    shape = facts.shape(i)
    if len(shape) <= 1:
        return ["1"] * len(shape) if shape in ((), (1,)) else [loop]
    return ["1" if n == 1 and a != loop else a for a, n in zip(term, shape)]


def gemm(facts: NodeFacts) -> list[TensorForm]:
    """Follow M-3: transA and transB say which axis is M, K, N; C is added once, n-ary, to the product's form."""
    left = ["k", "m"] if facts.integer("transA", 0) else ["m", "k"]
    right = ["n", "k"] if facts.integer("transB", 0) else ["k", "n"]
    (found,) = facts.follow([left, right], [["m", "n"]], forms=facts.forms[:2])
    if not facts.has(2):
        return [found]
    number = facts.number
    (found,) = _nary(facts, [found, facts.form(2)])
    facts.number = number
    return [found]


def einsum(facts: NodeFacts) -> list[TensorForm]:
    """Follow M-5: each label at most once in a term; ``...`` are batch axes."""
    text = str(facts.attrs.get("equation", "")).replace(" ", "")
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(facts.forms):
        facts.refuse("shape-mismatch", f"equation {text!r} has {len(inputs)} terms for {len(facts.forms)} inputs")
    if not arrow:
        letters = left.replace(",", "").replace("...", "")
        right = ("..." if "..." in left else "") + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    leads = [len(facts.shape(i)) - len(term.replace("...", "")) for i, term in enumerate(inputs)]
    most = max([lead for lead, term in zip(leads, inputs) if "..." in term], default=0)
    lead = _aligned(most, most)
    terms = []
    for term, own in [*zip(inputs, leads), (right, most)]:
        before, _, after = term.partition("...")
        letters = before + after
        if len(set(letters)) < len(letters) or (not letters.isalpha() and letters) or own < 0:
            raise Refusal("M-5", "unsupported-op", f"Einsum {text!r}: term {term!r} needs each label at most once")
        terms.append([*before, *(lead[most - own :] if "..." in term else []), *after])
    known = {loop for term in terms[:-1] for loop in term}
    if not set(terms[-1]) <= known:
        raise Refusal("M-5", "unsupported-op", f"Einsum {text!r} has labels in its output that no input has")
    return facts.follow(terms[:-1], terms[-1:], broadcast=lead)


# -- along an axis ----------------------------------------------------------------------------------------------------


def _named_axes(facts: NodeFacts, rank: int) -> set[int]:
    """Return the axes that an operator runs along; all of them where the attribute that says so is not known."""
    op = facts.op_type
    if op in ("Softmax", "LogSoftmax", "Hardmax", "TopK"):
        return {facts.axis(-1, rank)}
    if op == "RMSNormalization":
        return set(range(facts.axis(-1, rank), rank))
    if op in ("CumSum", "CumProd", "Compress"):
        given = facts.ints("axis")
        return set(range(rank)) if given is None else set(facts.axes(given, rank))
    if op == "ReverseSequence":
        return {facts.axis(0, rank, "time_axis")}
    if op == "LRN":
        return {1}
    if op == "MeanVarianceNormalization":
        given = facts.ints("axes")
        return set(facts.axes((0, 2, 3) if given is None else given, rank))
    return set(range(1 if op == "GroupNormalization" else rank - 2 if op == "Det" else 0, rank))


def along_axis(facts: NodeFacts) -> list[TensorForm]:
    """Follow L-1: parallel on the other axes; the named ones must be whole."""
    op, rank = facts.op_type, len(facts.shape())
    named = _named_axes(facts, rank)
    term = loops_of(rank)
    whole = {term[axis] for axis in named}
    terms: list[Sequence[str] | None] = [term]
    if op == "TopK":
        (axis,) = named
        out = [*term[:axis], "new", *term[axis + 1 :]]
        k = facts.ints("k", "K")
        return facts.follow(terms, [out, out], whole=whole, sizes={"new": k[0] if k else None})
    if op == "Det":
        return facts.follow(terms, [term[:-2]], whole=whole)
    if op in ("Compress", "Unique"):
        given = facts.ints("axis")
        at = facts.axes(given, rank)[0] if given else None
        out = ["new"] if at is None else [*term[:at], "new", *term[at + 1 :]]
        if op == "Compress":
            return facts.follow(terms, [out], whole=whole)
        # which slices are equal depends on all their elements
        return facts.follow(terms, [out, ["new"], ["inverse"], ["new"]], whole=term)
    if op == "ReverseSequence":
        terms.append([term[facts.axis(1, rank, "batch_axis")]])
    if op == "RMSNormalization" and facts.has(1):
        terms.append(term[rank - len(facts.shape(1)) :])
    return facts.follow(terms, [term], whole=whole)


def one_hot(facts: NodeFacts) -> list[TensorForm]:
    """Follow L-1: the new axis is whole."""
    term = facts.loops()
    axis = facts.axis(-1, len(term) + 1)
    depth = np.asarray(facts.attrs.get("depth", ())).reshape(-1)  # of any type of numbers
    out = [*term[:axis], "new", *term[axis:]]
    return facts.follow([term], [out], sizes={"new": int(depth[0]) if len(depth) else None})


# -- creation ---------------------------------------------------------------------------------------------------------


def create(facts: NodeFacts) -> list[TensorForm]:
    """Follow C-1: made from global indices where its inputs are, or everywhere; whole unless an output spec says
    otherwise.
    """
    shape = _created_shape(facts)
    terms = [loops_of(len(form.shape or ()), f"i{i}_") for i, form in enumerate(facts.forms) if form is not None]
    new = loops_of(len(shape), "new")
    return facts.follow(terms, [new], sizes=dict(zip(new, shape)), forms=[f for f in facts.forms if f is not None])


def range_length(start: float, limit: float, delta: float) -> int:
    """Return how many numbers Range makes; of integers exactly.

    >>> range_length(0, 2**53 + 1, 2**53), range_length(0.0, 1.0, 0.3), range_length(3, 0, 1)
    (2, 4, 0)
    """
    is_exact = isinstance(start, int) and isinstance(limit, int) and isinstance(delta, int)
    return max(int(-((start - limit) // delta)) if is_exact else math.ceil((limit - start) / delta), 0)


def _created_shape(facts: NodeFacts) -> tuple[Size, ...]:
    op, attrs = facts.op_type, facts.attrs
    if op == "Constant":
        values = [attrs[name] for name in sorted(attrs) if name.startswith("value")]
        return np.shape(values[0]) if values else (None,)
    if op == "Shape":
        rank = len(facts.shape())
        return (len(range(rank)[slice(facts.integer("start", 0), facts.integer("end", rank))]),)
    if op == "Size":
        return ()
    if op in ("RandomNormal", "RandomUniform"):
        return facts.ints("shape") or ()
    if op == "Multinomial":
        return (facts.shape()[0], facts.integer("sample_size", 1))
    if op in ("EyeLike", "RandomNormalLike", "RandomUniformLike"):
        return facts.shape()
    if op == "Range":
        given = [attrs.get(name) for name in ("start", "limit", "delta")]
        if None in given:
            return (None,)
        start, limit, delta = (np.asarray(value).reshape(-1)[0].item() for value in given)
        return (range_length(start, limit, delta) if delta else None,)
    size = facts.ints("size")
    return (size[0] if size else None,)


# -- composite --------------------------------------------------------------------------------------------------------


def dynamic_quantize(facts: NodeFacts) -> list[TensorForm]:
    """Follow K-1: DynamicQuantizeLinear reduces to the scale and zero point, then is unary."""
    term = facts.loops()
    return facts.follow([term], [term, [], []])


def loss(facts: NodeFacts) -> list[TensorForm]:
    """Follow K-1 for NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss: the classes are whole; the rest is a loop or
    reduces.
    """
    term = facts.loops()
    target = [term[0], *term[2:]]
    reduced = facts.attrs.get("reduction", "mean")
    out = target if reduced == "none" else []
    results = [out, term] if facts.op_type == "SoftmaxCrossEntropyLoss" else [out]
    terms: list[Sequence[str] | None] = [term, target, ["weights"]]
    return facts.follow(terms, results, whole={term[1], "weights"})


def unsupported(facts: NodeFacts) -> list[TensorForm]:
    """Raise what F-1 says: the operator cannot be annotated in this version."""
    raise Refusal(facts.number, "unsupported-op", f"{facts.op_type} cannot be annotated; take its specs away")
