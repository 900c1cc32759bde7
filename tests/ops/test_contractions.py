"""Products: numpy's shapes, dtypes, values and errors, for every rank."""

from __future__ import annotations

import itertools

import catalogue as ops
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as dx

FEW = settings(max_examples=150, derandomize=True, deadline=None)
DTYPES = "? b B h i l e f d F D".split()


def sample(shape, dtype="d", seed=0):
    rng = np.random.default_rng(seed)
    x = rng.integers(0 if np.dtype(dtype).kind in "bu" else -3, 4, shape)
    return (x + 1j * rng.integers(-3, 4, shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def both(kit, ours, theirs, **tolerance):
    try:
        expected = theirs()
    except (ValueError, IndexError, TypeError) as error:
        with pytest.raises(type(error)):
            ours()
        return
    kit.assert_same(ours(), expected, signs=False, **tolerance)


SHAPES = [
    (),
    (0,),
    (3,),
    (2, 3),
    (3, 2),
    (3, 3),
    (0, 3),
    (3, 0),
    (1, 3),
    (4, 2, 3),
    (4, 3, 2),
    (1, 3, 3),
    (5, 1, 2, 3),
    (2, 0, 3),
]


@pytest.mark.parametrize("b", SHAPES, ids=str)
@pytest.mark.parametrize("a", SHAPES, ids=str)
def test_every_product_of_two_shapes_is_numpys(kit, a, b):
    x, y = sample(a), sample(b, seed=1)
    for name in ("matmul", "dot", "inner", "vecdot", "outer", "kron", "matvec", "vecmat", "vdot"):
        if not hasattr(np, name):  # matvec and vecmat came with numpy 2.2
            continue
        both(kit, lambda: getattr(ops, name)(kit.node(x), kit.node(y)), lambda: getattr(np, name)(x, y))


@pytest.mark.parametrize("b", DTYPES)
@pytest.mark.parametrize("a", DTYPES)
def test_products_keep_the_promoted_dtype(kit, a, b):
    x, y = sample((2, 3), a), sample((3, 2), b, 1)
    for ours, theirs in ((ops.matmul, np.matmul), (ops.tensordot, lambda p, q: np.tensordot(p, q, 1))):
        kwargs = {"axes": 1} if ours is ops.tensordot else {}
        both(kit, lambda: ours(kit.node(x), kit.node(y), **kwargs), lambda: theirs(x, y))
    y = sample((2, 3), b, 1)
    both(kit, lambda: ops.vecdot(kit.node(x), kit.node(y)), lambda: np.vecdot(x, y))


def test_matmul_of_dates_is_an_error_at_the_call(kit):
    x = np.ones((2, 2), "M8[s]")
    with pytest.raises(TypeError):
        np.matmul(x, x)
    with pytest.raises(TypeError, match=r"sums of products of datetime64\[s\]"):
        ops.matmul(kit.node(x), kit.node(x))


def test_small_integers_wrap_as_numpys(kit):
    x = np.full((2, 300), 7, np.int8)
    kit.assert_same(ops.matmul(kit.node(x), kit.node(x.T.copy())), x @ x.T)


@pytest.mark.parametrize("axis", [0, 1, -1, 3])
def test_vecdot_axis(kit, axis):
    x, y = sample((3, 4, 3), "D"), sample((3, 4, 3), "D", 1)
    both(kit, lambda: ops.vecdot(kit.node(x), kit.node(y), axis=axis), lambda: np.vecdot(x, y, axis=axis))


def test_operands_of_products_need_axes(kit):
    x = np.ones((2, 2))
    kit.assert_same_error(lambda: ops.matmul(kit.node(x), 2.0), lambda: np.matmul(x, 2.0))
    kit.assert_same(ops.dot(kit.node(x), 2), np.dot(x, 2))


AXES = [
    0,
    1,
    2,
    3,
    ((0,), (1,)),
    ((1, 0), (0, 1)),
    ((0, 1), (1, 0)),
    ((-1,), (-2,)),
    ((), ()),
    (0, 1),
    ((5,), (0,)),
    ((0,), ()),
    ((0, 0), (0, 1)),
]


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_tensordot(kit, axes):
    if axes == ((0, 0), (0, 1)) and not hasattr(np, "matvec"):
        pytest.skip("numpy 2.1 does not look for repeated axes")
    for a, b in itertools.product([(3, 4), (4, 3), (2, 3, 4), (3, 3), ()], [(4, 3), (3, 4, 2), (3, 3)]):
        x, y = sample(a), sample(b, seed=1)
        both(kit, lambda: ops.tensordot(kit.node(x), kit.node(y), axes=axes), lambda: np.tensordot(x, y, axes))


# ------------------------------------------------------------------------------------------------------- einsum

TEXTS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ji,jk", (3, 2), (3, 4)),
    ("ij,ij->", (2, 3), (2, 3)),
    ("ij,ij->ji", (2, 3), (2, 3)),
    ("bij,bjk->bik", (5, 2, 3), (5, 3, 4)),
    ("...ij,...jk->...ik", (5, 1, 2, 3), (4, 3, 4)),
    ("...ij,jk->...ik", (2, 3), (3, 4)),
    ("i...,i...", (3, 2), (3, 2)),
    ("...,...", (3, 1), (4,)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("iij->j", (3, 3, 4)),
    ("ij->", (2, 3)),
    ("ij->j", (2, 3)),
    ("ji", (2, 3)),
    ("...i->i...", (2, 3, 4)),
    ("i,j->ij", (3,), (4,)),
    ("i,j->ji", (3,), (4,)),
    ("i,j", (3,), (4,)),
    ("ij,k->ki", (2, 3), (4,)),
    ("ijj,jk->ik", (2, 3, 3), (3, 4)),
    ("i,i", (1,), (3,)),
    ("ij,jk->ik", (2, 1), (3, 4)),
    ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 2)),
    ("ab,bc,cd,de", (2, 3), (3, 4), (4, 2), (2, 5)),
    ("ij,ij,ij->ij", (2, 3), (2, 3), (2, 3)),
    ("i,ij,j", (2,), (2, 3), (3,)),
    (",ij->ij", (), (2, 3)),
    ("ij,jk,kl->", (2, 0), (0, 4), (4, 2)),
    ("ab,ab,c->bc", (2, 3), (2, 3), (4,)),
    ("A b, bC -> A C", (2, 3), (3, 4)),
]


@pytest.mark.parametrize(
    ("text", "shapes"), [(t, s) for t, *s in TEXTS], ids=[f"{t}-{i}" for i, (t, *_) in enumerate(TEXTS)]
)
@pytest.mark.parametrize("dtype", ["d", "b", "D", "?"])
def test_einsum_is_numpys(kit, text, shapes, dtype):
    arrays = [sample(s, dtype, i) for i, s in enumerate(shapes)]
    expected = np.einsum(text, *arrays)
    for optimize in ("auto", False, True, "greedy"):
        kit.assert_same(ops.einsum(text, *map(kit.node, arrays), optimize=optimize), expected, signs=False)


BAD = [
    ("ij,jk->ik", (2, 3), (4, 4)),
    ("ij->ijk", (2, 3)),
    ("ij->ii", (2, 3)),
    ("ij", (2,)),
    ("i", (2, 2)),
    ("i,j->ij", (3,)),
    ("i->i", (3,), (3,)),
    ("i$->i", (3, 3)),
    ("i->i->i", (3,)),
    ("...i->i", (2, 3)),
    ("ii", (2, 3)),
]


@pytest.mark.parametrize(("text", "shapes"), [(t, s) for t, *s in BAD], ids=[t for t, *_ in BAD])
def test_bad_einsum_is_an_error_at_the_call(kit, text, shapes):
    arrays = [sample(s) for s in shapes]
    kit.assert_same_error(lambda: ops.einsum(text, *map(kit.node, arrays)), lambda: np.einsum(text, *arrays))


def test_einsum_with_lists_of_labels(kit):
    x, y = sample((2, 3)), sample((3, 4), seed=1)
    kit.assert_same(
        ops.einsum(kit.node(x), [0, 1], kit.node(y), [1, 2], [2, 0]), np.einsum(x, [0, 1], y, [1, 2], [2, 0])
    )
    kit.assert_same(ops.einsum(kit.node(x), [0, 1], kit.node(y), [1, 2]), np.einsum(x, [0, 1], y, [1, 2]))
    kit.assert_same(ops.einsum(kit.node(x), [..., 1], [1, ...]), np.einsum(x, [..., 1], [1, ...]))


def test_einsum_of_many_operands_is_pairwise_products_of_at_most_two(kit):
    arrays = [kit.node(sample((4, 4), seed=i)) for i in range(5)]
    made = ops.einsum("ab,bc,cd,de,ef->af", *arrays)
    seen, stack = set(), [made]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            if node.op.kind == "contract":
                assert len(node.operands) == 2
            stack.extend(node.nodes())


@st.composite
def texts(draw):
    sizes = {"a": 2, "b": 3, "c": 1, "d": 4}
    terms = draw(st.lists(st.text("abcd", max_size=3), min_size=1, max_size=3))
    found = sorted(set("".join(terms)))
    result = draw(st.permutations(found).map(lambda p: "".join(p)))[: draw(st.integers(0, len(found)))]
    return ",".join(terms) + "->" + result, [tuple(sizes[c] for c in t) for t in terms]


@FEW
@given(texts())
def test_any_einsum_is_numpys(kit, drawn):
    text, shapes = drawn
    arrays = [sample(s, "i8", i) for i, s in enumerate(shapes)]
    kit.assert_same(ops.einsum(text, *map(kit.node, arrays)), np.einsum(text, *arrays))


def test_contraction_sees_no_broadcast_axis_and_no_label_of_one_operand(kit):
    made = ops.einsum("...ij,...jk,l->...ik", *(kit.node(sample(s)) for s in ((1, 2, 3), (5, 3, 4), (6,))))
    stack = [made]
    while stack:
        node = stack.pop()
        if node.op.kind == "contract":
            labels, result = node.params[:2]
            for own, operand in zip(labels, node.operands):
                assert len(set(own)) == operand.ndim
                others = {v for other in labels if other is not own for v in other}
                assert set(own) <= others | set(result)
        stack.extend(node.nodes())


@pytest.mark.parametrize("subscripts", ["i,i", "i,j->", "i,j->j", "i,j,k->", "j,i,ij->j"])
def test_a_sum_over_nothing_is_zero_whatever_the_other_factors_are(subscripts: str) -> None:
    shapes = {"i": (0,), "j": (1,), "k": (1,), "ij": (0, 1)}
    operands = [
        np.full(shapes["j" if n and term == "i" else term], np.nan)
        for n, term in enumerate(subscripts.partition("->")[0].split(","))
    ]
    expected = np.einsum(subscripts, *operands)
    for eager in (0, 1 << 20):
        with dx.config.set(eager_bytes=eager):
            found = dx.einsum(subscripts, *[dx.asarray(a) for a in operands])
            np.testing.assert_array_equal(np.asarray(found), expected)
