"""einsum with any join and aggregation: numpy's values, dtypes and errors, whatever it is made of."""

from __future__ import annotations

import warnings
from functools import reduce

import catalogue as ops
import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray.expr.joins import PRODUCT
from distarray.ops.einsums import einsum_order
from distarray.ops.semirings import AGGREGATIONS, DISTRIBUTIVE, JOINS, parse_agg, parse_join
from distarray.testing import force_tiles
from distarray.testing.assertions import assert_equal

FEW = settings(max_examples=120, derandomize=True, deadline=None)

#: What a join is in numpy, where it is not the ufunc of its name.
IN_NUMPY = {
    "absdiff": lambda x, y: (
        np.maximum(x, y) - np.minimum(x, y)
        if {x.dtype.kind, y.dtype.kind} in ({"u"}, {"b", "u"})
        else np.abs(np.subtract(x, y))
    ),
    "sqdiff": lambda x, y: np.square(np.subtract(x, y)),
    "identity": lambda x: x,
}
UFUNC = {name: getattr(np, getattr(f, "__name__", ""), None) for name, (f, _) in JOINS.items()}
BINARY = [name for name, (_, n) in JOINS.items() if n == 2]
UNARY = [name for name, (_, n) in JOINS.items() if n == 1]


def in_numpy(name):
    return IN_NUMPY.get(name) or UFUNC[name]


def reference(text, arrays, join, agg):
    """The whole loop space at once, in numpy."""
    left, _, right = text.partition("->")
    terms = left.split(",")
    letters = list(dict.fromkeys(left.replace(",", "")))
    wide = []
    for term, x in zip(terms, arrays):
        for c in set(term):
            while term.count(c) > 1:
                a, b = term.index(c), term.index(c, term.index(c) + 1)
                x = np.diagonal(x, 0, a, b)
                term = "".join(k for i, k in enumerate(term) if i not in (a, b)) + c
        x = np.transpose(x, [term.index(c) for c in letters if c in term])
        wide.append(np.expand_dims(x, tuple(i for i, c in enumerate(letters) if c not in term)))
    joined = np.asarray(join(*wide))
    axes = tuple(i for i, c in enumerate(letters) if c not in right)
    if axes:
        for axis in reversed(axes):  # some ufuncs reduce one axis at a time
            joined = agg.reduce(joined, axis=axis)
    kept = [c for c in letters if c in right]
    return np.transpose(joined, [kept.index(c) for c in right])


def sample(shape, dtype="d", seed=0):
    rng = np.random.default_rng(seed)
    x = rng.integers(1, 5, shape)
    return (x + 1j * rng.integers(0, 3, shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def check(kit, text, arrays, join, agg, *, names=None, **options):
    """Ours is numpy's, or both raise."""
    ours, theirs = names or (join, agg)
    expected_agg = getattr(np, AGGREGATIONS[agg][1])

    def call():
        return ops.einsum(text, *map(kit.node, arrays), join=ours, agg=theirs, **options)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = reference(text, arrays, in_numpy(join) if isinstance(join, str) else join, expected_agg)
        except (TypeError, ValueError) as error:
            with pytest.raises(type(error)):
                call()
            return
        rtol = 32 * np.finfo(expected.dtype).eps if expected.dtype.kind in "fc" else 0
        kit.assert_same(call(), expected, signs=False, rtol=rtol)


# -------------------------------------------------------------------------------------------------- names, dtypes


@pytest.mark.parametrize("agg", AGGREGATIONS)
@pytest.mark.parametrize("join", [name for name in BINARY if name != "mul"])
def test_every_join_with_every_aggregation_is_numpys(kit, join, agg):
    for dtypes in ("dd", "bB", "lf", "??"):
        arrays = [sample(s, d, i) for i, (s, d) in enumerate(zip([(3, 4), (4, 5)], dtypes))]
        check(kit, "ij,jk->ik", arrays, join, agg)


@pytest.mark.parametrize("agg", [name for name in AGGREGATIONS if name != "sum"])
def test_products_with_every_other_aggregation_are_numpys(kit, agg):
    check(kit, "ij,jk->ki", [sample((3, 4), "i"), sample((4, 5), "i", 1)], "mul", agg)


@pytest.mark.parametrize("join", [*UNARY, "mul", "add"])
def test_one_operand_is_mapped_and_reduced(kit, join):
    unary = in_numpy(join) if join in UNARY else lambda x: x
    for text, shape in (("ij->i", (3, 4)), ("ii->i", (3, 3)), ("ijk->ki", (2, 3, 4)), ("ij->", (3, 4))):
        for agg, dtype in (("max", "d"), ("prod", "f"), ("any", "d"), ("sum", "b")):
            if (join, agg) != ("mul", "sum"):
                x = sample(shape, dtype)
                check(kit, text, [x], unary, agg, names=(join, agg))


@pytest.mark.parametrize("a", ["?", "b", "B", "H", "l", "e", "f", "d", "F"])
@pytest.mark.parametrize("b", ["B", "i", "e", "d", "D"])
def test_dtypes_are_those_of_the_join_and_then_of_the_aggregation(kit, a, b):
    arrays = [sample((2, 3), a), sample((3, 2), b, 1)]
    for join, agg in (("absdiff", "max"), ("add", "sum"), ("eq", "sum"), ("sqdiff", "sum"), ("div", "min")):
        check(kit, "ij,jk->ik", arrays, join, agg)


def test_dates_are_joined_where_numpy_does(kit):
    x, y = (np.arange(n).astype("M8[D]").reshape(-1, 2) for n in (6, 4))
    check(kit, "ik,jk->ij", [x, y], "absdiff", "max")
    check(kit, "ik,jk->ij", [x, y], "add", "max")  # an error
    check(kit, "ik,jk->ij", [x, y], "sub", "sum")


def test_sums_of_products_keep_the_promoted_dtype_by_any_of_their_names(kit):
    x = sample((2, 3), "b")
    for join in ("mul", "multiply", np.multiply):
        for agg in ("sum", "add", np.add, np.sum):
            made = ops.einsum("ij,kj->ik", kit.node(x), kit.node(x), join=join, agg=agg)
            kit.assert_same(made, np.einsum("ij,kj->ik", x, x))


def test_dtype_is_that_of_what_is_aggregated(kit):
    x, y = sample((2, 300), "B"), sample((3, 300), "B", 1)
    made = ops.einsum("ik,jk->ij", kit.node(x), kit.node(y), join="absdiff", dtype="u2")
    kit.assert_same(made, reference("ik,jk->ij", [x, y], IN_NUMPY["absdiff"], np.add).astype("u2"))
    kit.assert_same(
        ops.einsum("ij->i", kit.node(x[:, :9]), join="neg", agg="prod", dtype="f4"),
        np.prod((-x[:, :9]).astype("f4"), axis=1),
    )
    kit.assert_same(
        ops.einsum("i,i->i", kit.node(x[0]), kit.node(y[0]), join="add", dtype="f4"), (x[0] + y[0]).astype("f4")
    )


def test_ufuncs_and_functions_join(kit):
    x, y = sample((3, 4)), sample((5, 4), seed=1)
    nodes = kit.node(x), kit.node(y)
    for join in (np.hypot, "arctan2", scipy.special.xlogy, scipy.special.rel_entr):
        function = getattr(np, join) if isinstance(join, str) else join
        expected = function(x[:, None], y[None]).max(-1)
        kit.assert_same(ops.einsum("ik,jk->ij", *nodes, join=join, agg="max"), expected, rtol=1e-14)

    def huber(p, q):
        assert p.shape == q.shape
        assert not p.flags.writeable
        d = np.abs(p - q)
        return np.where(d < 1, d * d / 2, d - 0.5)

    kit.assert_same(
        ops.einsum("ik,jk->ij", *nodes, join=huber), huber(*read_only(x[:, None], y[None])).sum(-1), rtol=1e-14
    )
    kit.assert_same(ops.einsum("ik,jk->ijk", *nodes, join=huber), huber(*read_only(x[:, None], y[None])), rtol=1e-14)
    kit.assert_same(
        ops.einsum("ik,jk,k->ij", *nodes, kit.node(x[0]), join=lambda p, q, w: w * (p - q) ** 2),
        (x[0] * (x[:, None] - y[None]) ** 2).sum(-1),
        rtol=1e-14,
    )


def read_only(*arrays):
    found = [np.array(x) for x in np.broadcast_arrays(*arrays)]
    for x in found:
        x.flags.writeable = False
    return found


# ----------------------------------------------------------------------------------------------------- any text


@st.composite
def texts(draw, max_terms=3):
    sizes = {"a": 2, "b": 3, "c": 1, "d": 5}
    terms = draw(st.lists(st.text("abcd", max_size=3), min_size=1, max_size=max_terms))
    found = sorted(set("".join(terms)))
    result = draw(st.permutations(found).map(lambda p: "".join(p)))[: draw(st.integers(0, len(found)))]
    return ",".join(terms) + "->" + result, [tuple(sizes[c] for c in t) for t in terms]


PAIRS = [("add", "max"), ("add", "min"), ("min", "max"), ("max", "min"), ("and", "any"), ("or", "all"), ("add", "sum")]
PAIRS += [("and", "xor"), ("bitwise_and", "bitwise_xor"), ("sub", "sum"), ("max", "sum"), ("or", "any")]


@FEW
@given(texts(), st.sampled_from(PAIRS), st.sampled_from(["auto", False, True]))
def test_any_text_is_numpys(kit, drawn, pair, optimize):
    text, shapes = drawn
    join, agg = pair
    if join == "sub" and len(shapes) == 1:
        return
    arrays = [sample(s, "i8", i) for i, s in enumerate(shapes)]
    ufunc = UFUNC.get(join) or getattr(np, join)

    def joined(*operands):
        return reduce(ufunc, operands)

    check(kit, text, arrays, joined, agg, names=pair, optimize=optimize)


@pytest.mark.parametrize("text", ["...k,...k->...", "i...,j...->ij...", "...ij,...jk->...ik"])
def test_ellipses_and_axes_of_one_broadcast(kit, text):
    x, y = sample((1, 3, 4)), sample((5, 4, 4) if "ik" in text else (5, 3, 4), seed=1)
    if text.startswith("i..."):
        y = sample((5, 1, 4), seed=1)
    expected = {
        "...k,...k->...": lambda: (x + y).min(-1),
        "i...,j...->ij...": lambda: x[:, None] + y[None],
        "...ij,...jk->...ik": lambda: (x[..., None] + y[:, None]).min(-2),
    }[text]()
    kit.assert_same(ops.einsum(text, kit.node(x), kit.node(y), join="add", agg="min"), expected)


# -------------------------------------------------------------------------------------------------- how it is made


def nodes_of(made, kind):
    found, stack, seen = [], [made], set()
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            found += [node] if node.op.kind == kind else []
            stack.extend(node.nodes())
    return found


def test_what_needs_no_loop_of_its_own_is_no_contraction(kit):
    x, y = kit.node(sample((3, 4))), kit.node(sample((4,), seed=1))
    for text, operands in (
        ("ij,j->i", (x, y)),
        ("ij,j->ij", (x, y)),
        ("i,j->ij", (y, y)),
        ("ij,ji->", (x, ops.permute_dims(x, (1, 0)))),
    ):
        made = ops.einsum(text, *operands, join="absdiff", agg="max")
        assert not nodes_of(made, "contract")
        kit.evaluate(made)
    assert nodes_of(ops.einsum("i,j->", y, y, join="absdiff", agg="max"), "contract")


@pytest.mark.parametrize(("join", "agg"), sorted(DISTRIBUTIVE))
def test_semirings_are_joined_two_by_two(kit, join, agg):
    rng = np.random.default_rng(0)
    dtype = "f8" if agg.startswith("logaddexp") else "i8"
    arrays = [rng.integers(0, 4, (5, 5)).astype(dtype) for _ in range(4)]
    nodes = [kit.node(x) for x in arrays]
    made = ops.einsum("ab,bc,cd,de->ae", *nodes, join=join, agg=agg)
    assert [len(node.operands) for node in nodes_of(made, "contract")] == [2, 2, 2]
    name = next(name for name, (monoid, _) in AGGREGATIONS.items() if monoid == agg)
    ufunc = getattr(np, join)
    if (join, agg) != ("multiply", "sum"):
        check(kit, "ab,bc,cd,de->ae", arrays, lambda *x: reduce(ufunc, x), name, names=(join, name))


def test_factors_keep_one_dtype(kit):
    """Sums of small integers wrap, sums of what they become do not: logaddexp of them distributes over nothing."""
    arrays = [np.full((3, 3), 100, "i1")] * 3
    check(kit, "ab,bc,cd->ad", arrays, lambda *x: reduce(np.add, x), "logaddexp", names=("add", "logaddexp"))


@pytest.mark.parametrize(
    ("join", "agg"), [("add", "sum"), ("mul", "max"), ("or", "any"), ("max", "sum"), ("sub", "min")]
)
def test_other_pairs_are_one_kernel_on_all_operands(kit, join, agg):
    arrays = [sample(s, "d", i) - 2.5 for i, s in enumerate([(3, 4), (4, 5), (5, 2)])]
    made = ops.einsum("ab,bc,cd->ad", *map(kit.node, arrays), join=join, agg=agg)
    (kernel,) = nodes_of(made, "contract")
    assert len(kernel.operands) == 3
    ufunc = UFUNC[join]
    check(kit, "ab,bc,cd->ad", arrays, lambda *x: reduce(ufunc, x), agg, names=(join, agg))


def test_labels_of_one_factor_are_aggregated_first(kit):
    x, y = kit.node(sample((6, 3, 4))), kit.node(sample((4, 5), seed=1))
    made = ops.einsum("iaj,jk->ik", x, y, join="add", agg="max")
    (kernel,) = nodes_of(made, "contract")
    assert [o.ndim for o in kernel.operands] == [2, 2]
    assert nodes_of(ops.einsum("iaj,jk->ik", x, y, join="add", agg="sum"), "contract")[0].operands[0].ndim == 3


def test_sums_of_products_are_matrix_products(kit):
    x = kit.node(sample((3, 3)))
    for made in (ops.einsum("ij,jk->ik", x, x), ops.einsum("ij,jk->ik", x, x, join=np.multiply, agg="add")):
        (kernel,) = nodes_of(made, "contract")
        assert (kernel.params.join, kernel.params.monoid) == (PRODUCT, "sum")


def test_an_order_that_needs_too_much_memory_is_not_taken(kit):
    # (ab, bc) makes 40 * 40 elements, (bc, cd) 2 * 2
    shapes = [(40, 2), (2, 40), (40, 2)]
    nodes = [kit.node(sample(s, seed=i)) for i, s in enumerate(shapes)]
    expected = np.einsum("ab,bc,cd->ad", *[kit.evaluate(n) for n in nodes])
    assert einsum_order("ab,bc,cd->ad", *nodes) == ((1, 2), (0, 1))
    assert einsum_order("ab,bc,cd->ad", *nodes, memory_limit=32) == ((1, 2), (0, 1))
    made = ops.einsum("ab,bc,cd->ad", *nodes, memory_limit=31)
    (kernel,) = nodes_of(made, "contract")
    assert len(kernel.operands) == 3
    kit.assert_same(made, expected)
    kit.assert_same(ops.einsum("ab,bc,cd->ad", *nodes, optimize=[(0, 1), (0, 1)]), expected)
    with pytest.raises(ValueError, match="memory-limit"):
        ops.einsum("ab,bc,cd->ad", *nodes, memory_limit="much")


# ------------------------------------------------------------------------------------------------------- errors


def test_unknown_names_are_refused_with_the_known_ones(kit):
    x = kit.node(sample((2, 2)))
    with pytest.raises(ValueError, match=r"join='chebyshev' is unknown; known are mul, add, .*absdiff"):
        ops.einsum("ij,jk->ik", x, x, join="chebyshev")
    for agg in ("mean", np.subtract, np.mean, len, 3):
        with pytest.raises(ValueError, match="is no aggregation; known are sum, prod, max"):
            ops.einsum("ij,jk->ik", x, x, agg=agg)
    with pytest.raises(TypeError, match="neither a name nor a function"):
        ops.einsum("ij,jk->ik", x, x, join=3)
    with pytest.raises(ValueError, match=r"plan='columns' is unknown; known are auto, rows, sqrt, and what dx\.plan"):
        ops.einsum("ij,jk->ik", x, x, plan="columns")


def test_joins_take_so_many_operands(kit):
    x = kit.node(sample((2, 2)))
    for join, text, n in (
        ("absdiff", "ij,ij,ij->i", 3),
        ("exp", "ij,ij->i", 2),
        ("sub", "ij->i", 1),
        (np.arctan2, "ij->i", 1),
    ):
        with pytest.raises(ValueError, match=f"operands?, but the expression has {n}"):
            ops.einsum(text, *[x] * n, join=join)


@pytest.mark.parametrize("agg", AGGREGATIONS)
def test_aggregating_nothing_is_as_in_numpy(kit, agg):
    for shapes in ([(3, 0), (0, 4)], [(0, 3), (3, 4)], [(0, 0), (0, 4)]):
        arrays = [np.ones(s, "i8") for s in shapes]
        check(kit, "ij,jk->ik", arrays, "max", agg)


@pytest.mark.parametrize("plan", [None, "rows", "sqrt"])
def test_nothing_is_aggregated_under_any_plan(plan: str | None) -> None:
    with force_tiles(3):
        nothing, others = (dx.asarray(np.ones(shape, "i8")) for shape in ((3, 0), (1, 3, 1)))
        for agg, value in (("logaddexp", -np.inf), ("bitwise_and", -1), ("prod", 1)):
            made = dx.einsum(",ab,cac->c", 3, nothing, others, join="bitwise_and", agg=agg, plan=plan)
            np.testing.assert_array_equal(np.asarray(made), np.array([value]), strict=True)
        with pytest.raises(ValueError, match="zero-size array to reduction operation minimum"):
            dx.einsum(",ab,cac->c", 3, nothing, others, join="bitwise_and", agg="min", plan=plan)


def test_functions_must_work_element_by_element(kit):
    x = kit.node(sample((2, 2)))
    with pytest.raises(ValueError, match="element by element"):
        ops.einsum("ij,jk->ik", x, x, join=lambda p, q: p.sum())
    late = ops.einsum("ij,jk->ik", x, x, join=lambda p, q: p.sum(), dtype="f8")
    with pytest.raises(ValueError, match="gave an array of shape"):
        kit.evaluate(late)
    with pytest.raises(TypeError, match="promised"):
        kit.evaluate(ops.einsum("ij,jk->ik", x, x, join=lambda p, q: p * 1j, dtype="f8"))


def test_parsing_is_remembered():
    assert parse_join("absdiff", 2) is parse_join("absdiff", 2)
    assert parse_agg(np.maximum) == parse_agg("maximum") == parse_agg(np.max) == "max"


@pytest.mark.parametrize("n_members", [1, 2, 8])
@pytest.mark.parametrize("shapes", [((0, 4), (4, 3), (3, 0)), ((2, 0), (0, 0), (0, 5)), ((3, 4), (4, 0), (0, 2))])
def test_chains_over_nothing_are_planned(shapes: tuple[tuple[int, int], ...], n_members: int) -> None:
    team = dx.Team((n_members,), ("r",))
    hosts = [np.ones(shape) for shape in shapes]
    with dx.config.set(block_bytes=0):
        operands = [dx.asarray(host, team=team) for host in hosts]
        assert_equal(dx.einsum("ij,jk,kl->il", *operands), np.einsum("ij,jk,kl->il", *hosts))
        assert_equal(dx.linalg.multi_dot(operands), np.linalg.multi_dot(hosts))
