"""Linear algebra: numpy's shapes, dtypes, values and errors, for stacks of any shape."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.linalg import LinAlgError

from distarray.expr.op import CATALOGUE
from distarray.ops import linalg

DTYPES = ["?", "i", "f", "d", "F", "D"]
STACKS = [(), (0,), (3,), (2, 1)]
SINGLE = "fF"


def sample(shape, dtype="d", seed=0):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "bi":
        return rng.integers(-3, 4, shape).astype(dtype)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def regular(shape, dtype="d"):
    """Matrices far from singular."""
    if dtype == "?":
        return np.broadcast_to(np.eye(shape[-1], dtype=bool), shape)
    return (sample(shape, dtype) + 5 * np.eye(shape[-1])).astype(dtype)


def positive(shape, dtype="d"):
    x = sample(shape, dtype)
    return (x @ x.swapaxes(-1, -2).conj() + np.eye(shape[-1])).astype(dtype)


def matrix_rank(x):
    """numpy's, which before 2.2 fails for matrices without elements."""
    return np.linalg.matrix_rank(x) if 0 not in x.shape[-2:] else np.zeros(x.shape[:-2], np.int64)


def tolerance(dtype):
    return {"rtol": 2e-4, "atol": 2e-4} if dtype in SINGLE else {"rtol": 1e-9, "atol": 1e-9}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("stack", STACKS, ids=str)
@pytest.mark.parametrize("n", [0, 1, 3])
@pytest.mark.parametrize("name", ["inv", "det", "slogdet", "svdvals", "matrix_rank", "pinv", "matrix_norm"])
def test_functions_of_square_matrices(kit, name, n, stack, dtype):
    x = regular((*stack, n, n), dtype)
    if name == "matrix_norm":
        expected = np.linalg.norm(x, axis=(-2, -1)) if n else np.zeros(stack, np.linalg.norm(x.ravel()).dtype)
    else:
        expected = matrix_rank(x) if name == "matrix_rank" else getattr(np.linalg, name)(x)
    kit.assert_same(getattr(linalg, name)(kit.node(x)), expected, **tolerance(dtype))


@pytest.mark.parametrize("dtype", ["i", "f", "d", "D"])
@pytest.mark.parametrize("stack", STACKS, ids=str)
@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4), (3, 0), (0, 3)], ids=str)
def test_factorisations_of_any_matrices(kit, shape, stack, dtype):
    x = sample((*stack, *shape), dtype)
    node = kit.node(x)
    for mode in ("reduced", "complete"):
        ours, theirs = linalg.qr(node, mode=mode), np.linalg.qr(x, mode=mode)
        assert ours._fields == ("Q", "R")
        kit.assert_same(ours, theirs, **tolerance(dtype))
    kit.assert_same(linalg.qr(node, mode="r"), np.linalg.qr(x, mode="r"), **tolerance(dtype))
    for full in (False, True):
        ours, theirs = linalg.svd(node, full_matrices=full), np.linalg.svd(x, full_matrices=full)
        assert ours._fields == ("U", "S", "Vh")
        kit.assert_same(ours, theirs, **tolerance(dtype))
    kit.assert_same(linalg.svd(node, compute_uv=False), np.linalg.svd(x, compute_uv=False), **tolerance(dtype))
    kit.assert_same(linalg.pinv(node), np.linalg.pinv(x), **tolerance(dtype))
    kit.assert_same(linalg.matrix_rank(node), matrix_rank(x))


@pytest.mark.parametrize("dtype", ["i", "f", "d", "D"])
@pytest.mark.parametrize("stack", STACKS, ids=str)
@pytest.mark.parametrize("n", [0, 1, 4])
def test_factorisations_of_hermitian_matrices(kit, n, stack, dtype):
    x = positive((*stack, n, n), dtype)
    node = kit.node(x)
    for upper in (False, True):
        kit.assert_same(linalg.cholesky(node, upper=upper), np.linalg.cholesky(x, upper=upper), **tolerance(dtype))
    for triangle in ("L", "U"):
        ours = linalg.eigh(node, triangle)
        assert ours._fields == ("eigenvalues", "eigenvectors")
        kit.assert_same(ours, np.linalg.eigh(x, triangle), **tolerance(dtype))
        kit.assert_same(linalg.eigvalsh(node, triangle), np.linalg.eigvalsh(x, triangle), **tolerance(dtype))


@pytest.mark.parametrize("dtype", ["i", "f", "d", "D"])
def test_eigenvalues_of_general_matrices_are_complex(kit, dtype):
    x = sample((3, 4, 4), dtype)
    wanted = np.result_type(x, np.complex64 if dtype == "f" else np.complex128)
    values, vectors = np.linalg.eig(x)
    ours = linalg.eig(kit.node(x))
    kit.assert_same(ours, (values.astype(wanted), vectors.astype(wanted)), **tolerance(dtype))
    kit.assert_same(linalg.eigvals(kit.node(x)), np.linalg.eigvals(x).astype(wanted), **tolerance(dtype))


@pytest.mark.parametrize("dtypes", ["dd", "fd", "id", "fF", "ii"])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 3), (3,)),
        ((3, 3), (3, 2)),
        ((2, 3, 3), (3, 1)),
        ((2, 1, 3, 3), (4, 3, 2)),
        ((2, 3, 3), (3,)),
        ((0, 0), (0,)),
        ((0, 3, 3), (3,)),
        ((3, 3), (3, 0)),
    ],
    ids=str,
)
def test_solve(kit, a, b, dtypes):
    x, y = regular(a, dtypes[0]), sample(b, dtypes[1], 1)
    kit.assert_same(
        linalg.solve(kit.node(x), kit.node(y)), np.linalg.solve(x, y), **tolerance("f" if "f" in dtypes else "d")
    )


@pytest.mark.parametrize("name", ["inv", "det", "slogdet", "cholesky", "eigh", "eigvalsh", "eig", "eigvals"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (4, 2, 3)], ids=str)
def test_matrices_that_are_not_square_are_an_error_at_the_call(kit, name, shape):
    x = np.ones(shape)
    kit.assert_same_error(lambda: getattr(linalg, name)(kit.node(x)), lambda: getattr(np.linalg, name)(x))


def test_bad_operands_of_solve_are_errors_at_the_call(kit):
    for a, b in (((3, 2), (3,)), ((3, 3), (2,)), ((3, 3), (2, 2)), ((2, 3, 3), (4, 3, 1)), ((3,), (3,))):
        x, y = np.ones(a), np.ones(b)
        kit.assert_same_error(lambda: linalg.solve(kit.node(x), kit.node(y)), lambda: np.linalg.solve(x, y))


@pytest.mark.parametrize("name", ["inv", "svd", "qr", "det", "cholesky"])
def test_dtypes_without_linear_algebra(kit, name):
    for dtype in ("e", "M8[s]")[: 1 if name == "qr" else 2]:  # numpy's qr of dates is one of integers
        x = np.ones((2, 2)).astype(dtype)
        kit.assert_same_error(lambda: getattr(linalg, name)(kit.node(x)), lambda: getattr(np.linalg, name)(x))


@pytest.mark.parametrize(
    ("name", "matrix"),
    [
        ("cholesky", -np.eye(2)),
        ("inv", np.zeros((2, 2))),
        ("solve", np.zeros((2, 2))),
        ("eig", np.full((2, 2), np.nan)),
    ],
)
def test_what_only_the_elements_show_fails_when_it_runs(kit, name, matrix):
    args = (matrix, np.ones(2)) if name == "solve" else (matrix,)
    made = getattr(linalg, name)(*map(kit.node, args))
    result = made[0] if isinstance(made, tuple) else made
    with pytest.raises(LinAlgError):
        kit.evaluate(result)
    assert CATALOGUE[name].may_raise


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)], ids=str)
@pytest.mark.parametrize("right", [(), (2,)], ids=str)
def test_lstsq(kit, shape, right):
    a, b = sample(shape), sample((shape[0], *right), seed=1)
    kit.assert_same(
        linalg.lstsq(kit.node(a), kit.node(b)),
        np.linalg.lstsq(a, b, rcond=None)[:1] + tuple(np.linalg.lstsq(a, b, rcond=None)[1:]),
        rtol=1e-9,
        atol=1e-12,
    )


def test_lstsq_of_low_rank_has_no_residuals(kit):
    a = np.ones((4, 2))
    x, residuals, rank, s = linalg.lstsq(kit.node(a), kit.node(np.arange(4.0)))
    theirs = np.linalg.lstsq(a, np.arange(4.0), rcond=None)
    kit.assert_same(x, theirs[0], rtol=1e-12)
    assert np.isnan(kit.evaluate(residuals)).all()
    kit.assert_same((rank, s), (theirs[2], theirs[3]), rtol=1e-9, atol=1e-12)


# -------------------------------------------------------------------------------------------------------- norms


@pytest.mark.parametrize("dtype", ["i", "f", "d", "D"])
@pytest.mark.parametrize("ord", [0, 1, 2, 3, -1, 0.5, np.inf, -np.inf])
@pytest.mark.parametrize("axis", [None, 0, (0, 2), -1], ids=str)
def test_vector_norm(kit, axis, ord, dtype):
    x = sample((2, 3, 4), dtype) + 7
    x = x.astype(dtype)
    for keepdims in (False, True):
        expected = np.linalg.vector_norm(x, axis=axis, ord=ord, keepdims=keepdims)
        ours = linalg.vector_norm(kit.node(x), axis=axis, ord=ord, keepdims=keepdims)
        kit.assert_same(ours, expected, **tolerance(dtype))


@pytest.mark.parametrize("dtype", ["i", "f", "d", "D"])
@pytest.mark.parametrize("ord", [None, "fro", "nuc", 1, 2, -1, -2, np.inf, -np.inf])
def test_matrix_norm(kit, ord, dtype):
    x = sample((2, 3, 4), dtype)
    for keepdims in (False, True):
        kwargs = {"ord": ord, "keepdims": keepdims}
        kit.assert_same(
            linalg.matrix_norm(kit.node(x), **kwargs), np.linalg.matrix_norm(x, **kwargs), **tolerance(dtype)
        )
        for axis in ((0, 1), (2, 0), (-1, -2)):
            ours = linalg.norm(kit.node(x), ord, axis, keepdims)
            kit.assert_same(ours, np.linalg.norm(x, ord, axis, keepdims), **tolerance(dtype))


def test_norm_of_everything(kit):
    x = sample((2, 3, 4))
    kit.assert_same(linalg.norm(kit.node(x)), np.linalg.norm(x), rtol=1e-14)
    kit.assert_same(linalg.norm(kit.node(x[0])), np.linalg.norm(x[0]), rtol=1e-14)
    kit.assert_same(linalg.norm(kit.node(x[0, 0]), 3), np.linalg.norm(x[0, 0], 3), rtol=1e-14)
    for args in ((1,), (None, (0, 0)), (None, (0, 1, 2)), ("fro", 0), ("abc", (0, 1)), (None, 5)):
        kit.assert_same_error(lambda: linalg.norm(kit.node(x), *args), lambda: np.linalg.norm(x, *args))


def test_rank_and_pseudo_inverse_take_tolerances(kit):
    x = np.diag([1.0, 1e-3, 1e-9])
    x = np.stack([x, x * [1, 1, 0]])
    for rtol in (1e-2, 1e-6, np.array([1e-2, 1e-6])):
        kit.assert_same(linalg.matrix_rank(kit.node(x), rtol=rtol), np.linalg.matrix_rank(x, rtol=rtol))
        kit.assert_same(linalg.pinv(kit.node(x), rtol=rtol), np.linalg.pinv(x, rtol=rtol), rtol=1e-9)
    kit.assert_same(linalg.matrix_rank(kit.node(x), tol=1e-2), np.linalg.matrix_rank(x, tol=1e-2))
    kit.assert_same(linalg.matrix_rank(kit.node(np.ones(3))), np.asarray(np.linalg.matrix_rank(np.ones(3))))


@pytest.mark.parametrize("p", [None, 1, -1, 2, -2, np.inf, -np.inf, "fro", "nuc"])
def test_cond(kit, p):
    x = regular((2, 3, 3))
    kit.assert_same(linalg.cond(kit.node(x), p), np.linalg.cond(x, p), rtol=1e-10)
    if p != "nuc":  # numpy's has no singular values of an inverse that is not there
        x[1] = 0
        assert np.linalg.cond(x, p)[1] in (0, np.inf)
        kit.assert_same(linalg.cond(kit.node(x), p), np.linalg.cond(x, p), rtol=1e-10)


# ------------------------------------------------------------------------------------------------------ products


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, -1, -3])
@pytest.mark.parametrize("dtype", ["i", "d", "D"])
def test_matrix_power(kit, n, dtype):
    x = regular((2, 3, 3), dtype)
    kit.assert_same(linalg.matrix_power(kit.node(x), n), np.linalg.matrix_power(x, n), rtol=1e-10, atol=1e-10)


def test_bad_matrix_power(kit):
    for x, n in ((np.ones((2, 3)), 2), (np.ones(3), 2), (np.ones((2, 2)), 1.5)):
        kit.assert_same_error(lambda: linalg.matrix_power(kit.node(x), n), lambda: np.linalg.matrix_power(x, n))


@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("dtype", ["i", "b", "d", "D"])
def test_cross(kit, axis, dtype):
    x, y = np.moveaxis(sample((2, 4, 3), dtype), -1, axis), np.moveaxis(sample((2, 4, 3), dtype, 1), -1, axis)
    kit.assert_same(linalg.cross(kit.node(x), kit.node(y), axis=axis), np.linalg.cross(x, y, axis=axis))


def test_cross_broadcasts_and_checks(kit):
    x, y = sample((2, 1, 3)), sample((4, 3), seed=1)
    kit.assert_same(linalg.cross(kit.node(x), kit.node(y)), np.linalg.cross(x, y))
    kit.assert_same_error(
        lambda: linalg.cross(kit.node(x[..., :2]), kit.node(y)), lambda: np.linalg.cross(x[..., :2], y)
    )


def test_products_and_traces_of_the_last_axes(kit):
    x = sample((2, 3, 4), "i")
    kit.assert_same(linalg.trace(kit.node(x), offset=1), np.linalg.trace(x, offset=1))
    kit.assert_same(linalg.outer(kit.node(x[0, 0]), kit.node(x[1, 1])), np.linalg.outer(x[0, 0], x[1, 1]))
    kit.assert_same_error(lambda: linalg.outer(kit.node(x), kit.node(x[0, 0])), lambda: np.linalg.outer(x, x[0, 0]))
    a, b, c, d = (sample(s, seed=i) for i, s in enumerate([(4,), (4, 2), (2, 5), (5,)]))
    for group in ((a, b, c, d), (b, c), (b, c, d), (a, b)):
        kit.assert_same(linalg.multi_dot(list(map(kit.node, group))), np.linalg.multi_dot(group), rtol=1e-12)


@pytest.mark.parametrize("shapes", [(4, 3, 2, 5), (2, 7, 7, 1), (5, 1, 6, 2), (3, 3, 3, 3, 3)])
@pytest.mark.parametrize("vectors", [(False, False), (True, False), (False, True)])
def test_each_product_of_several_matrices_has_the_dtype_of_its_factors(kit, shapes, vectors):
    group = [
        (np.arange(m * n).reshape(m, n) * 37 + 200).astype(dtype)
        for (m, n), dtype in zip(pairwise(shapes), ("u1", "u1", "i8", "u1"))
    ]
    group[0] = group[0][0] if vectors[0] else group[0]
    group[-1] = group[-1][:, 0] if vectors[1] else group[-1]
    kit.assert_same(linalg.multi_dot(list(map(kit.node, group))), np.linalg.multi_dot(group))
