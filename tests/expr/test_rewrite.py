"""Rewrites: same value bit for bit, no more nodes and bytes, and nothing left to rewrite; the table tests itself."""

from __future__ import annotations

import math
import warnings
from contextlib import contextmanager
from unittest import mock

import catalogue as ops
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distarray.expr.affine import Affine
from distarray.expr.bind import bind_create, bind_get, bind_map, bind_put, bind_reshape
from distarray.expr.expr import Environment, Expr, Stored, postorder, source
from distarray.expr.op import CATALOGUE
from distarray.expr.rewrite import RULES, simplify
from distarray.kernels.interpret import interpret
from distarray.ops.creation import full, zeros
from distarray.planner.graph import canonical
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding

ENV = Environment(None)
PIN = Sharding.whole(Mesh((), ()), 2)
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.5, -2.5, 1e300]


def transposed(x):
    return ops.permute_dims(x, (1, 0))


def node(value) -> Expr:
    return source(np.array(value, order="C"), ENV)


def numbers(shape, dtype="f8") -> np.ndarray:
    """Distinct values; among floats those whose bits are easily lost."""
    n = math.prod(shape)
    x = np.arange(n) * 37 % 101 - 30
    if np.dtype(dtype).kind in "fc":
        x = np.where(np.arange(n) % 3 == 0, np.resize(SPECIAL, n), x + 0.25)
    with np.errstate(all="ignore"):
        made = x.astype(dtype)
        if made.dtype.kind == "c":
            made.imag = np.roll(x, 1)
    return made.reshape(shape)


@contextmanager
def unsimplified():
    """Operations give the nodes that they bind."""
    with mock.patch("distarray.expr.bind.simplify", lambda n: n):
        yield


def value(expr: Expr) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of infinities, which are meant
        return interpret(postorder([expr]), {id(expr)})[id(expr)]


def pending(expr: Expr) -> list[Expr]:
    return [n for n in postorder([expr]) if n.memo is None]


def nbytes(expr: Expr) -> int:
    return sum(n.nbytes for n in pending(expr))


def assert_same_bits(x: np.ndarray, y: np.ndarray) -> None:
    assert (x.shape, x.dtype) == (y.shape, y.dtype)
    for a, b in ((x.real, y.real), (x.imag, y.imag)) if x.dtype.kind == "c" else ((x, y),):
        np.testing.assert_array_equal(a, b)
        if a.dtype.kind == "f":
            is_number = ~np.isnan(a)
            np.testing.assert_array_equal(np.signbit(a)[is_number], np.signbit(b)[is_number])


def assert_pays(simple: Expr, plain: Expr) -> None:
    """The three promises of every row."""
    assert (simple.shape, simple.dtype, simple.env) == (plain.shape, plain.dtype, plain.env)
    assert_same_bits(value(simple), value(plain))
    assert len(pending(simple)) <= len(pending(plain))
    assert nbytes(simple) <= nbytes(plain)
    assert simplify(simple) is simple


# ------------------------------------------------------------------------------------------------ one row at a time

X = numbers((3, 4))
TURN = Affine((4, 3), ((1, 0, 1), (0, 0, 1)))
COLUMN = Affine((3, 1, 4), ((0, 0, 1), (2, 0, 1)))


def unary(name, dtype="f8", times=1):
    def make():
        x = node(numbers((3, 4), dtype))
        for _ in range(times):
            x = bind_map(CATALOGUE[name], (x,))
        return x

    return make


def unary_on_kind(name, kinds):
    return [unary(name, {"b": "?", "i": "i4", "u": "u2", "f": "f4", "c": "c8"}[k]) for k in kinds]


#: For the algebra of each row, expressions that it rewrites.
EXAMPLES = {
    "get(get(x, p), q) -> get(x, p . q)": [
        lambda: bind_get(bind_get(node(X), TURN), Affine((2, 3), ((1, 0, 1), (0, 3, -2)))),
        lambda: bind_get(bind_get(node(X), TURN), Affine((4,), ((0, 0, 1), (None, 2, 0)))),
    ],
    "get(x, identity) -> x": [lambda: bind_get(node(X), Affine.identity((3, 4)))],
    "get(reshape(x, s), unit axes) -> reshape(x, s with these axes)": [
        lambda: bind_get(bind_reshape(node(X), (6, 2)), Affine((6, 1, 2), ((0, 0, 1), (2, 0, 1)))),
    ],
    "get(full(v), whole axes in order) -> full(v)": [
        lambda: bind_get(full((3, 4), -0.0, "f4", ENV), Affine.identity((3, 4)).flipped((0,))),
        lambda: bind_get(full((3, 4), 7, "i2", ENV), Affine((4, 1), ((None, 2, 0), (0, 3, -1)))),
        lambda: bind_get(full((3, 3), 2j, None, ENV), Affine((3,), ((0, 0, 1), (0, 0, 1)))),
    ],
    "reshape(x, shape of x) -> x": [lambda: bind_reshape(node(X), (3, 4))],
    "reshape(reshape(x, s), t) -> reshape(x, t)": [lambda: bind_reshape(bind_reshape(node(X), (12,)), (4, 3))],
    "reshape(get(x, unit axes), t) -> reshape(x, t)": [lambda: bind_reshape(bind_get(node(X), COLUMN), (2, 6))],
    "reshape(full(v), t) -> full(v)": [lambda: bind_reshape(full((3, 4), math.nan, None, ENV), (6, 2))],
    "reshape(x, t) -> get(x, unit axes), if only such axes differ": [
        lambda: bind_reshape(node(X), (1, 3, 1, 4)),
        lambda: bind_reshape(node(X[:1, :1]), ()),
        lambda: bind_reshape(node(X[:0, :1]), (1, 0)),
    ],
    "reduce(full(v), axes) -> full(v of as many)": [
        lambda: ops.sum(full((3, 4), 2, "i4", ENV), axis=0),
        lambda: ops.mean(full((3, 4), 0.5, "f4", ENV)),
        lambda: ops.max(full((3, 4), -1.5, None, ENV), axis=1),
        lambda: ops.prod(full((3, 40), 3, "i1", ENV), axis=1),
        lambda: ops.any(full((3, 4), False, None, ENV)),
    ],
    "put(create, identity, x) -> x": [
        lambda: bind_put(zeros((3, 4), "f8", ENV), Affine.identity((3, 4)), node(X)),
    ],
    "astype(astype(x, wider), dtype of x) -> x": [
        lambda a=a, b=b: ops.astype(ops.astype(node(numbers((3, 4), a)), b), a)
        for a, b in [("f4", "f8"), ("f2", "f4"), ("c8", "c16"), ("i2", "f4"), ("i4", "f8"), ("u1", "i2"), ("?", "i1")]
    ],
    "map(permute(x, p), y) -> permute(map(x, permute(y, p^-1)), p), where numpy has that": [
        lambda: ops.exp(transposed(node(np.arange(12.0).reshape(3, 4)))),
        lambda: ops.add(transposed(node(X)), 1.5),
        lambda: ops.multiply(transposed(node(X)), transposed(node(numbers((3, 4), "i4")))),
        lambda: ops.where(transposed(node(numbers((3, 4), "?"))), transposed(node(X)), 0.0),
        lambda: ops.square(ops.permute_dims(node(np.arange(24.0).reshape(2, 3, 4)), (1, 2, 0))),
    ],
    "reduce(permute(x, p), axes) -> reduce(x, axes . p), the others in order": [
        lambda: ops.max(transposed(node(X)), axis=0),
        lambda: ops.sum(transposed(node(numbers((3, 4), "i4"))), axis=1),
        lambda: ops.sum(transposed(node(np.arange(12.0).reshape(3, 4)))),
        lambda: ops.argmin(transposed(node(numbers((3, 4), "i4"))), axis=0),
        lambda: ops.var(ops.permute_dims(node(np.arange(24.0).reshape(2, 3, 4)), (1, 0, 2)), axis=(0, 1), ddof=1),
        lambda: ops.any(ops.permute_dims(node(numbers((2, 3, 4), "?")), (1, 0, 2)), axis=1),
    ],
    "contract(permute(x, p), y; labels) -> contract(x, y; labels . p)": [
        lambda: ops.matmul(transposed(node(X)), node(X)),
        lambda: ops.matmul(node(X), transposed(node(X))),
        lambda: ops.matmul(ops.permute_dims(node(numbers((2, 3, 4))), (0, 2, 1)), node(numbers((2, 3, 4)))),
        lambda: ops.einsum("ab,ca->cb", transposed(node(X)), transposed(node(X.T[:, :2]))),
    ],
    "positive(x) -> x, for kinds iufc": unary_on_kind("positive", "iufc"),
    "conj(x) -> x, for kinds biuf": unary_on_kind("conj", "iuf"),
    "real(x) -> x, for kinds biuf": unary_on_kind("real", "biuf"),
    "abs(x) -> x, for kinds bu": unary_on_kind("abs", "bu"),
    "ceil(x) -> x, for kinds biu": unary_on_kind("ceil", "biu"),
    "floor(x) -> x, for kinds biu": unary_on_kind("floor", "biu"),
    "round(x) -> x, for kinds iu": unary_on_kind("round", "iu"),
    "trunc(x) -> x, for kinds biu": unary_on_kind("trunc", "biu"),
    "bitwise_invert(bitwise_invert(x)) -> x": [unary("bitwise_invert", d, 2) for d in ("?", "i1", "u8")],
    "conj(conj(x)) -> x": [unary("conj", d, 2) for d in ("c8", "c16")],
    "logical_not(logical_not(x)) -> x": [unary("logical_not", "?", 2)],
    "negative(negative(x)) -> x": [unary("negative", d, 2) for d in ("i1", "u2", "f2", "f8", "c16", "m8[s]")],
    **{
        f"{name}({name}(x)) -> {name}(x)": [unary(name, d, 2) for d in ("f2", "f4", "f8")]
        for name in ("abs", "ceil", "fabs", "floor", "rint", "trunc")
    },
}


def test_every_row_has_examples_and_its_own_algebra():
    assert sorted(EXAMPLES) == sorted(rule.algebra for rule in RULES)


def test_every_row_matches_operations_that_exist():
    kinds = {op.kind for op in CATALOGUE.values()}
    assert all(rule.match in CATALOGUE or rule.match in kinds for rule in RULES)


@pytest.mark.parametrize("rule", [r for r in RULES if r.algebra in EXAMPLES], ids=lambda rule: rule.algebra)
def test_row_gives_the_same_bits_with_no_more_nodes_and_bytes(rule):
    for make in EXAMPLES[rule.algebra]:
        with unsimplified():
            plain = make()
        assert rule.match in (plain.op.name, plain.op.kind)
        once = rule.rewrite(plain)
        assert once is not None
        assert_same_bits(value(once), value(plain))
        assert_pays(make(), plain)
        is_as_long = rule.algebra.startswith(("reshape(x, t) -> get", "map(permute"))
        assert len(pending(make())) < len(pending(plain)) or is_as_long


# --------------------------------------------------------------------------------------------------- what is kept


def pinned(x: Expr) -> Expr:
    x.pin = PIN
    return x


def settled(x: Expr) -> Expr:
    x.settle(Stored(Sharding.whole(Mesh((), ()), x.ndim), (value(x),)))
    return x


KEPT = {
    "a cast to the same dtype, which gives another cut": lambda: bind_map(CATALOGUE["astype"], (node(X),), ("<f8",)),
    "two of them": lambda: bind_map(
        CATALOGUE["astype"], (bind_map(CATALOGUE["astype"], (node(X),), ("<f8",)),), ("<f8",)
    ),
    "a cast and back through fewer bits": lambda: ops.astype(ops.astype(node(numbers((3, 4), "i8")), "f8"), "i8"),
    "a cast and back to another dtype": lambda: ops.astype(ops.astype(node(numbers((3, 4), "f4")), "f8"), "f2"),
    "a cast to numbers and back to dates": lambda: ops.astype(
        ops.astype(node(numbers((3,), "m8[s]")), "m8[ns]"), "m8[s]"
    ),
    "conj of booleans, which are i8": unary("conj", "?"),
    "conj of complex numbers": unary("conj", "c8"),
    "two logical_not of numbers": unary("logical_not", "i4", 2),
    "round to tens": lambda: ops.round(node(numbers((3, 4), "i4")), -1),
    "two reciprocals": unary("reciprocal", "f8", 2),
    "a part of a constant, whose extent is no part of a plan's key": lambda: bind_get(
        zeros((9,), "f8", ENV), Affine((4,), ((0, 5, 1),))
    ),
    "a broadcast constant, of which one element is made": lambda: bind_get(full((), 1.0, None, ENV), Affine((9,), ())),
    "a transposed constant, whose order of memory counts": lambda: bind_get(full((3, 4), 1.0, "f4", ENV), TURN),
    "a view of an empty array": lambda: bind_get(ops.empty((3, 4), "f8", ENV), TURN),
    "a write into an array that is cut as its owner asked": lambda: bind_put(
        pinned(zeros((3, 4), "f8", ENV)), Affine.identity((3, 4)), node(X)
    ),
    "a write into an array that lies somewhere": lambda: bind_put(node(X), Affine.identity((3, 4)), node(X)),
    "a write of another dtype": lambda: bind_put(zeros((3, 4), "f4", ENV), Affine.identity((3, 4)), node(X)),
    "a flipped write": lambda: bind_put(zeros((3, 4), "f8", ENV), Affine.identity((3, 4)).flipped((0,)), node(X)),
    "a read of what was written there: offsets decide no structure": lambda: bind_get(
        bind_put(node(X), Affine((4,), ((None, 1, 0), (0, 0, 1))), node(X[0])), Affine((4,), ((None, 1, 0), (0, 0, 1)))
    ),
    "a view of a view that is cut as its owner asked": lambda: bind_get(
        pinned(bind_get(node(X), TURN)), Affine((3,), ((None, 1, 0), (0, 0, 1)))
    ),
    "a view of a view that has its elements": lambda: bind_get(settled(bind_get(node(X), TURN)), TURN),
    "a reshape of a reshape that has its elements": lambda: bind_reshape(settled(bind_reshape(node(X), (12,))), (2, 6)),
    "minus of minus that has its elements": lambda: ops.negative(settled(ops.negative(node(X)))),
    "a transpose that changes the order of summation": lambda: ops.einsum("ab,ab->", transposed(node(X)), node(X.T)),
    "a product with a part": lambda: ops.matmul(bind_get(node(X), Affine((4, 2), ((1, 0, 1), (0, 0, 1)))), node(X[:2])),
    "a flipped reshape": lambda: bind_get(bind_reshape(node(X), (6, 2)), Affine.identity((6, 2)).flipped((0,))),
    "a part of a reshape": lambda: bind_get(bind_reshape(node(X), (6, 2)), Affine((6,), ((0, 0, 1), (None, 0, 0)))),
    "a product with a flipped array": lambda: ops.matmul(ops.flip(node(X), axis=0), node(X.T)),
}


@pytest.mark.parametrize("make", KEPT.values(), ids=KEPT)
def test_stays(make):
    with unsimplified():
        plain = make()
    made = make()
    assert made.op is plain.op
    assert [o.op.name for o in made.nodes()] == [o.op.name for o in plain.nodes()]
    assert made.params == plain.params
    assert simplify(plain) is plain


def test_a_node_that_others_read_is_not_computed_twice():
    x = ops.exp(node(X))
    y = ops.negative(x)
    z = ops.negative(y)
    assert z is x
    assert y.operands == (x,)


def test_rewritten_node_keeps_the_users_line_and_errstate():
    with np.errstate(invalid="raise"):
        made = ops.matmul(transposed(node(X)), node(X))
    assert made.operands[0].op.name == "source"
    assert made.errstate is not None
    assert str(made.origin).startswith(__file__)


def test_loop_over_slices_of_a_constant_has_one_plan():
    """B-29: offsets are run-time parameters."""
    keys = set()
    for k in range(1, 5):
        x = ops.add(
            bind_get(node(np.arange(9.0)), Affine((9 - k,), ((0, k, 1),))),
            bind_get(zeros((9,), "f8", ENV), Affine((9 - k,), ((0, k, 1),))),
        )
        keys.add(canonical(postorder([x]), {id(x)}, None).key)
    assert len(keys) == 1


# ---------------------------------------------------------------------------------------------------- any program


@st.composite
def steps(draw):
    """Names of steps, with numbers that each reads as it needs."""
    movement = st.sampled_from(["get", "reshape", "unit axes"])  # of which most rows are
    names = st.one_of(movement, st.sampled_from([*STEPS]))
    return draw(st.lists(st.tuples(names, st.integers(0, 10**6)), min_size=1, max_size=8))


def _factors(n: int, seed: int) -> tuple[int, ...]:
    """A shape of `n` elements, with axes of one element."""
    rng = np.random.default_rng(seed)
    shape: list[int] = []
    while n > 1:
        f = int(rng.choice([d for d in range(2, n + 1) if n % d == 0]))
        shape.append(f)
        n //= f
    for _ in range(rng.integers(0, 3)):
        shape.insert(rng.integers(0, len(shape) + 1), 1)
    return tuple(shape) if n else (0, *shape)


def _lens(shape: tuple[int, ...], seed: int) -> Affine:
    rng = np.random.default_rng(seed)
    lens = Affine.identity(shape).permuted(rng.permutation(len(shape)).tolist())
    if shape:
        lens = lens.flipped([a for a in range(len(shape)) if rng.integers(3) == 0])
        axis = int(rng.integers(len(shape)))
        n = lens.shape[axis]
        if n and rng.integers(2):
            start = int(rng.integers(n))
            part = tuple((i, start, 1) if i == axis else (i, 0, 1) for i in range(len(shape)))
            cut = (*lens.shape[:axis], n - start, *lens.shape[axis + 1 :])
            lens = lens.compose(Affine(cut, part))
    return lens.expanded(int(rng.integers(len(lens.shape) + 1))) if rng.integers(2) else lens


def _times_itself(x: Expr, seed: int) -> Expr:
    if x.ndim != 2 or x.dtype.kind in "m":
        return x
    y = node(np.nan_to_num(numbers(x.shape, x.dtype)))
    return ops.matmul(transposed(x), y) if seed % 2 else ops.matmul(x, transposed(y))


STEPS = {
    "get": lambda x, seed: bind_get(x, _lens(x.shape, seed)),
    "reshape": lambda x, seed: bind_reshape(x, _factors(x.size, seed)),
    "unit axes": lambda x, seed: ops.expand_dims(x, axis=seed % (x.ndim + 1)) if seed % 2 else ops.squeeze(x),
    "constant": lambda x, seed: full(x.shape, x.dtype.type(seed % 5), x.dtype, ENV),
    "written": lambda x, seed: bind_put(zeros(x.shape, x.dtype, ENV), Affine.identity(x.shape), x),
    "cast": lambda x, seed: ops.astype(x, ["f8", "c8", "c16", "i8"][seed % 4] if x.dtype.kind == "b" else "c16"),
    "cast back": lambda x, seed: ops.astype(ops.astype(x, np.result_type(x.dtype, "f8")), x.dtype),
    "product": _times_itself,
    **{
        name: lambda x, seed, name=name: getattr(ops, name)(x)
        for name in (
            "abs", "bitwise_invert", "ceil", "conj", "fabs", "floor", "logical_not", "negative", "positive", "real",
            "rint", "round", "trunc",
        )
    },
}  # fmt: skip


def run(x: Expr, program) -> Expr:
    for name, seed in program:
        try:
            x = STEPS[name](x, seed)
        except TypeError:  # numpy has no such function of this dtype
            continue
    return x


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.sampled_from("? i1 i4 u2 f2 f4 f8 c8 c16 m8[s]".split()),
    steps(),
    st.lists(st.integers(0, 7), max_size=2),
)
def test_any_program_is_simplified_to_the_same_bits(shape, dtype, program, computed):
    x = numbers(shape, dtype)
    with unsimplified():
        plain = run(node(x), program)
    assert_pays(run(node(x), program), plain)
    # And where some steps have their results already.
    start, made = 0, node(x)
    for stop in sorted({min(c, len(program)) for c in computed}):
        made = run(made, program[start:stop])
        if made.memo is None:
            made = settled(made)
        start = stop
    assert_same_bits(value(run(made, program[start:])), value(plain))


def test_bind_create_is_not_rewritten():
    made = bind_create(CATALOGUE["full"], (2,), np.dtype("f8"), ENV, (), np.float64(1))
    assert simplify(made) is made
