"""Verification: everything that operations make is accepted, and each kind of defect is found."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import catalogue as ops
import numpy as np
import pytest
from every_operation import ENV, catalogue, index, matrix, node
from expr_verifier import ExprError, verify

from distarray.expr.affine import Affine
from distarray.expr.bind import bind, bind_get, bind_map, bind_put, bind_reduce, bind_reshape
from distarray.expr.crossing import crossing
from distarray.expr.expr import Environment, Expr, Stored, postorder
from distarray.expr.joins import PRODUCT
from distarray.expr.op import CATALOGUE
from distarray.expr.params import ContractParams, IndexParams, ItemParams, ReduceParams
from distarray.kernels.interpret import interpret
from distarray.ops import (
    creation,
    indexing,
)
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from distarray.sharding.team import Team

WHOLE = Sharding.whole(Mesh((), ()), 2)
HALVES = Sharding(Mesh(("x",), (2,)), (("x",), ()))


def test_everything_that_the_catalogue_makes_is_accepted():
    made = catalogue()
    verify(*made.values())
    reached = {n.op.name for n in postorder(made.values())}
    # What leads from one environment to another is in no expression of one.
    missing = {name for name, op in CATALOGUE.items() if op.kind not in ("source", "crossing")} - reached
    assert not missing, f"no expression of the test has {missing}"


def test_a_crossing_alone_may_have_an_operand_of_another_environment():
    x = crossing(node(X), Environment(Team((2,), ("x",))))
    verify(ops.exp(x))
    for defect, fields in (
        ("has shape (3, 4), but its operands give (2, 4)", {"operands": (node(X[:2]),)}),
        ("has dtype float64, but its operands give int64", {"operands": (node(X.astype("i8")),)}),
        ("not the one node that is to be elsewhere", {"operands": (1.0,)}),
    ):
        y = changed(crossing(node(X), x.env), **fields)
        y.seq = x.seq + 10_000
        with pytest.raises(ExprError, match=re.escape(defect)):
            verify(y)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of values outside of a function's domain
def test_everything_that_the_catalogue_makes_is_accepted_when_it_has_its_elements():
    for x in catalogue().values():
        if x.memo is None:
            x.settle(Stored(Sharding.whole(Mesh((), ()), x.ndim), (interpret(postorder([x]), {id(x)})[id(x)],)))
        verify(x)


# ------------------------------------------------------------------------------------------------------- defects

X = np.arange(12.0).reshape(3, 4)


def changed(x: Expr, **fields) -> Expr:
    for name, value in fields.items():
        setattr(x, name, value)
    return x


def later_operand():
    user = ops.exp(node(X))
    return changed(user, operands=(node(X),))


def cycle():
    x = ops.exp(node(X))
    y = ops.sin(x)
    return changed(x, operands=(y,)) and y


def lensed(shape, *terms):
    """A read of a matrix of 3 by 4."""
    return lambda: changed(
        bind_get(node(X), Affine((3,), ((0, 0, 1), (None, 0, 0)))), shape=shape, runtime=Affine(shape, terms)
    )


def written(lens=None, value=None):
    put = bind_put(node(X), Affine((4,), ((None, 0, 0), (0, 0, 1))), node(X[0]))
    return changed(put, runtime=lens or put.runtime, operands=(put.operands[0], node(value)) if value else put.operands)


def product(**fields):
    return changed(ops.matmul(node(X), node(X.T)), **fields)


def contraction(operands, result, **fields):
    return product(params=ContractParams(operands, result, PRODUCT, "sum"), **fields)


def stored(**fields):
    x = node(X)
    return changed(x, memo=replace(x.memo, **fields))


QR = CATALOGUE["qr"]

DEFECTS = {
    "lives in": lambda: changed(ops.exp(node(X)), env=Environment(None, "cuda")),
    "was defined later": later_operand,
    "is an operand of itself": cycle,
    "neither a node nor a Python scalar": lambda: changed(ops.exp(node(X)), operands=(X,)),
    "no node among its operands": lambda: changed(ops.add(node(X), 1), operands=(1, 1)),
    "do not be broadcast|could not be broadcast": lambda: changed(
        ops.add(node(X), node(X)), operands=(node(X), node(X[0, :2]))
    ),
    "has shape (4, 3), but its operands give (3, 4)": lambda: changed(ops.exp(node(X)), shape=(4, 3)),
    "has dtype float32, but its operands give float64": lambda: changed(ops.exp(node(X)), dtype=np.dtype("f4")),
    "have no loop": lambda: changed(bind_map(CATALOGUE["exp"], (node(X),)), op=CATALOGUE["bitwise_invert"]),
    "none of distarray's": lambda: changed(ops.exp(node(X)), dtype=float),
    "extents must be non-negative": lambda: changed(ops.exp(node(X)), shape=(3, -4)),
    "reads elements 0 to 3 of a source axis of extent 3": lensed((4,), (0, 0, 1), (None, 0, 0)),
    "reads elements -1 to 1 of": lensed((3,), (0, 1, -1), (None, 0, 0)),
    "reads elements 4 to 4 of a source axis of extent 4": lensed((3,), (0, 0, 1), (None, 4, 0)),
    "but the source has shape (3, 4)": lensed((3,), (0, 0, 1)),
    "names view axis 1, which does not exist": lensed((3,), (0, 0, 1), (1, 0, 1)),
    "has step 0": lensed((3,), (0, 0, 0), (None, 0, 0)),
    "has shape (3, 4), but its operands give (4, 3)": lambda: changed(ops.permute_dims(node(X), (1, 0)), shape=(3, 4)),
    "has dtype int64, but its operands give float64": lambda: changed(ops.flip(node(X)), dtype=np.dtype("i8")),
    "has 10 elements": lambda: changed(bind_reshape(node(X), (2, 6)), shape=(2, 5)),
    "writes elements several times": lambda: written(Affine((2, 4), ((None, 0, 0), (1, 0, 1)))),
    "does not broadcast to (4,)": lambda: written(value=[1.0, 2.0]),
    "reads elements 3 to 3 of a source axis of extent 3": lambda: written(Affine((4,), ((None, 3, 0), (0, 0, 1)))),
    "has shape (4,), but its operands give (3, 4)": lambda: changed(written(), shape=(4,)),
    "writes to a scalar": lambda: changed(written(), operands=(1.0, node(X))),
    "reduces axes (0, 2) of an operand of rank 2": lambda: changed(
        ops.sum(node(X)), params=ReduceParams((0, 2), False)
    ),
    "has parameters ((0,), False), which are no ReduceParams": lambda: changed(ops.sum(node(X)), params=((0,), False)),
    "reduces axes (0, 0)": lambda: changed(ops.sum(node(X)), params=ReduceParams((0, 0), False)),
    "has shape (), but its operands give (1, 1)": lambda: changed(ops.sum(node(X)), params=ReduceParams((0, 1), True)),
    "by no monoid": lambda: changed(
        bind_reduce(CATALOGUE["sum"], node(X), (0,), np.dtype("f8")), op=replace(CATALOGUE["sum"], monoid="")
    ),
    "one for each axis, all different": lambda: contraction(((0, 1), (1,)), (0,)),
    "all different, each of an operand": lambda: contraction(((0, 2), (2, 1)), (0, 3)),
    "has extents 4 and 3 for label 2": lambda: contraction(((0, 2), (1, 2)), (0, 1)),
    "of one operand alone": lambda: contraction(((0, 2), (2, 1)), (0,), shape=(3,)),
    "has shape (9,), but its operands give (3, 3)": lambda: product(shape=(9,)),
    "but takes 2 nodes": lambda: changed(product(), operands=(node(X),)),
    "labels ((0, 1),) for 2 operands": lambda: contraction(((0, 1),), (0, 1)),
    "axis 1 of result 0 has extent 3, but loop 'k' has 4|but loop 'j' has 4|but loop 'k' has": lambda: changed(
        bind(QR, (node(X),), ((3, 3), (3, 4)), (np.dtype("f8"),) * 2, ("reduced",)), shape=((3, 4), (3, 4))
    ),
    "2 results, but shapes ((3, 3),)": lambda: changed(
        bind(QR, (node(X),), ((3, 3), (3, 4)), (np.dtype("f8"),) * 2, ("reduced",)), shape=((3, 3),)
    ),
    "a scalar among its operands": lambda: changed(ops.linalg.inv(matrix()), operands=(matrix(), 1)),
    "is result 2 of": lambda: changed(ops.linalg.qr(node(X))[0], params=ItemParams(2)),
    "has shape (3, 3), but its operands give (3, 4)": lambda: changed(ops.linalg.qr(node(X))[0], params=ItemParams(1)),
    "2 index arrays for axes (0,)": lambda: changed(
        ops.take(node(X), [0], axis=0), operands=(node(X), node([0]), node([0]))
    ),
    "an index array 0 of dtype float64": lambda: changed(
        ops.take(node(X), [0], axis=0), operands=(node(X), node([0.0]))
    ),
    "said to be 2": lambda: changed(ops.take(node(X), [0], axis=0), params=IndexParams((0,), 0, 2)),
    "has shape (1, 4), but its operands give (3, 1)": lambda: changed(
        ops.take(node(X), [0], axis=0), params=IndexParams((1,), 1, 1)
    ),
    "writes a value of shape (5,), which does not broadcast to (2, 3)": lambda: (
        lambda put: changed(put, operands=(put.operands[0], node(np.ones(5)), *put.operands[2:]))
    )(indexing.put_item(matrix(), index([0, 2]), 5.0)),
    "is a source without blocks": lambda: changed(node(X), memo=None),
    "has operands (1,), but takes 0": lambda: changed(creation.zeros((2,), None, ENV), operands=(1,)),
    "pin: shape (2,) has 1 axes": lambda: changed(creation.zeros((2,), None, ENV), pin=WHOLE),
    "result: shape (3, 4) has 2 axes": lambda: stored(sharding=Sharding.whole(Mesh((), ()), 3)),
    "result: the boundaries [0, 1, 5] of axis 0 end at 5": lambda: stored(
        sharding=HALVES.with_bounds([(0, 1, 5), None]), blocks=(X[:1], X[1:])
    ),
    "has 1 blocks, but": lambda: stored(sharding=HALVES, on_client=False),
    "on the client in 2 blocks": lambda: stored(sharding=HALVES, blocks=(X[:1], X[1:])),
    "a block of shape (2, 4) for tile (0, 0)": lambda: stored(sharding=HALVES, blocks=(X[:2], X[2:]), on_client=False),
    "a block of dtype float32": lambda: stored(blocks=(X.astype("f4"),)),
    "kept what was needed": lambda: changed(node(X), operands=(node(X),), seq=10**12),
    "1 blocks for 2 results": lambda: changed(
        bind(QR, (node(X),), ((3, 3), (3, 4)), (np.dtype("f8"),) * 2, ("reduced",)),
        memo=Stored(WHOLE, (X,)), operands=(),
    ),
    "cannot be checked": lambda: changed(ops.permute_dims(node(X), (1, 0)), runtime=None),
}  # fmt: skip


@pytest.mark.parametrize("text", DEFECTS)
def test_defect_is_found(text):
    x = DEFECTS[text]()
    with pytest.raises(ExprError) as caught:
        verify(x)
    assert any(part in violation for part in text.split("|") for violation in caught.value.violations), caught.value


@pytest.mark.parametrize("text", ["has step 0", "reads elements -1 to 1 of", "writes elements several times"])
def test_defect_is_found_below_what_is_wanted(text):
    below = DEFECTS[text]()
    target = ops.sum(ops.exp(below))
    with pytest.raises(ExprError) as caught:
        verify(target, node(X))
    assert len(caught.value.violations) == 1


def test_violation_names_the_node_and_the_users_line_and_all_are_listed():
    line = sys._getframe().f_lineno + 1
    x = changed(ops.exp(node(X)), shape=(4, 3), dtype=np.dtype("f4"))
    with pytest.raises(ExprError) as caught:
        verify(x)
    first, second = caught.value.violations
    assert first.startswith(f"Expr(exp, (4, 3), float32), defined at {__file__}:{line}: has shape (4, 3)")
    assert "has dtype float32" in second
    assert str(caught.value).splitlines()[1:] == [first, second]


def test_deep_chain_is_verified_without_recursion():
    x = node(X)
    for _ in range(20_000):
        x = ops.sin(x)
    verify(x)


def test_shared_operand_is_no_cycle():
    x = ops.exp(node(X))
    y = ops.add(ops.sin(x), ops.add(x, x))
    verify(y, x, y)
