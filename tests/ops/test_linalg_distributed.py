"""Linear algebra on a matrix that is cut: residuals within rounding on any cut; numpy's errors; bounded tasks.

Residuals are held to the bound of the workloads, ``50 * sqrt(n) * eps``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import some
from numpy.linalg import LinAlgError

import distarray as dx
from distarray import linalg
from distarray.kernels import tables
from distarray.ops import programs

DTYPES = ["f", "d", "F", "D"]
#: Shape of the team's mesh, and boundaries of rows and columns; None: even ones.
CUTS: list[tuple[tuple[int, ...], Any]] = [
    ((3, 5), ((0, 10, 31, 60), (0, 4, 9, 30, 30, 60))),
    ((3, 2), None),
    ((2, 2), None),
    ((2,), None),
    ((5,), ((0, 3, 3, 20, 41, 60),)),
    ((1,), None),
]
N = 60


def sample(shape: tuple[int, ...], dtype: str = "d", seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def positive(n: int, dtype: str = "d") -> np.ndarray:
    x = sample((n, n), dtype)
    return (x @ x.conj().T / n + np.eye(n)).astype(dtype)


def cut(values: np.ndarray, of: tuple[tuple[int, ...], Any], team: dx.Team | None = None) -> dx.DistArray:
    """`values` on a team of this mesh; boundaries are scaled from `N` to the extents at hand."""
    shape, bounds = of
    team = team or dx.Team(shape, ("R", "C")[: len(shape)])
    axes = tuple([(name,) for name in team.axes] + [()] * (values.ndim - len(team.axes)))[: values.ndim]
    scaled = [None] * values.ndim
    for axis, marks in enumerate((bounds or ())[: values.ndim]):
        scaled[axis] = tuple([m * values.shape[axis] // N for m in marks])
    return dx.asarray(values, team=team, sharding=dx.Sharding(team.mesh, axes, (), tuple(scaled)))


def bound(n: int, dtype: Any) -> float:
    return float(50 * np.sqrt(n) * np.finfo(dtype).eps)


def assert_small(residual: np.ndarray, scale: Any, n: int) -> None:
    assert np.isfinite(residual).all()
    assert np.linalg.norm(residual) <= bound(n, residual.dtype) * np.linalg.norm(scale)


def assert_orthonormal(columns: np.ndarray) -> None:
    gram = columns.conj().T @ columns - np.eye(columns.shape[1])
    assert np.linalg.norm(gram, 2) <= bound(max(columns.shape), columns.dtype)


def host(x: Any) -> Any:
    return [np.asarray(part) for part in x] if isinstance(x, tuple) else np.asarray(x)


@pytest.fixture(params=some(CUTS), ids=lambda c: "x".join(map(str, c[0])))
def of(request: pytest.FixtureRequest) -> Any:
    return request.param


# ----------------------------------------------------------------------------------------- factors and solutions


@pytest.mark.parametrize("dtype", some(DTYPES))
def test_cholesky_reads_one_triangle(of, dtype):
    s = positive(N, dtype)
    for upper in (False, True):
        # what stands in the other triangle does not matter
        other = np.tri(N, k=-1, dtype=dtype)
        half = np.triu(s) + 7 * other if upper else np.tril(s) + 7 * other.T
        factor = linalg.cholesky(cut(half, of), upper=upper)
        assert factor.dtype == s.dtype
        f = host(factor)
        assert not np.any(np.tril(f, -1) if upper else np.triu(f, 1))
        assert_small((f.conj().T @ f if upper else f @ f.conj().T) - s, s, N)


@pytest.mark.parametrize("dtype", some(["d", "F"]))
def test_solve_of_vectors_and_of_few_and_many_columns(of, dtype):
    a = sample((N, N), dtype)
    x = cut(a, of)
    for shape in ((N,), (N, 2), (N, N + 7)):
        b = sample(shape, dtype, 1)
        found = linalg.solve(x, dx.asarray(b, team=x.team))
        assert found.shape == b.shape
        assert found.dtype == a.dtype
        solved = host(found)
        assert_small(a @ solved - b, np.linalg.norm(a) * np.linalg.norm(solved), N)


def test_solve_promotes_and_takes_right_sides_that_are_cut():
    a, b = sample((N, N), "f"), sample((N, N), "D", 1)
    x = cut(a, CUTS[0])
    found = linalg.solve(x, cut(b, CUTS[0], x.team))
    assert found.dtype == np.linalg.solve(a, b).dtype
    np.testing.assert_allclose(host(found), np.linalg.solve(a, b), rtol=1e-4)
    np.testing.assert_allclose(
        host(linalg.solve(cut((10 * a).astype(int), CUTS[0]), 1.0 + np.arange(N))),
        np.linalg.solve((10 * a).astype(int), 1.0 + np.arange(N)),
        rtol=1e-9,
    )


@pytest.mark.parametrize("dtype", some(["f", "D"]))
def test_inverse_and_determinants(of, dtype):
    s = positive(N, dtype)
    x = cut(s, of)
    inverse = linalg.inv(x)
    assert inverse.dtype == s.dtype
    assert np.linalg.norm(s @ host(inverse) - np.eye(N), 2) <= bound(N, dtype)
    a = sample((N, N), dtype)
    rtol = 1e-3 if dtype in "fF" else 1e-9
    for values in (s, a):
        found = linalg.slogdet(cut(values, of))
        assert found._fields == ("sign", "logabsdet")
        for ours, theirs in zip(host(found), np.linalg.slogdet(values)):
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=rtol)
    np.testing.assert_allclose(host(linalg.det(x)), np.linalg.det(s), rtol=rtol)


SHAPES = [
    ((N, N), "D"),
    ((N, N), "f"),
    ((200, 7), "F"),
    ((64, 30), "d"),
    ((70, 40), "f"),
    ((40, 70), "d"),
    ((1, 61), "d"),
]


@pytest.mark.parametrize(("shape", "dtype"), SHAPES, ids=str)
def test_qr_of_square_tall_and_wide_matrices(of, shape, dtype):
    a = sample(shape, dtype)
    x = cut(a, of)
    k = min(shape)
    found = linalg.qr(x)
    assert found._fields == ("Q", "R")
    q, r = host(found)
    assert q.dtype == r.dtype == a.dtype
    assert q.shape == (shape[0], k)
    assert not np.any(np.tril(r, -1))
    assert_small(q @ r - a, a, max(shape))
    assert_orthonormal(q)
    alone = host(linalg.qr(x, mode="r"))
    for triangle in (r, np.linalg.qr(a, mode="r")):  # LAPACK's signs, however it is cut
        np.testing.assert_allclose(alone, triangle, atol=100 * np.finfo(dtype).eps * np.linalg.norm(a))
    np.testing.assert_allclose(q, np.linalg.qr(a)[0], atol=1e4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", "dF")
@pytest.mark.parametrize("shape", [(30, 30), (80, 20), (20, 45)], ids=str)
def test_qr_of_a_triangle_has_lapacks_signs(of, shape, dtype):
    """No reflector where nothing is below the diagonal: R keeps the signs of the matrix."""
    a = np.triu(sample(shape, dtype))
    np.fill_diagonal(a, (a.diagonal().real + 3 * np.sign(a.diagonal().real)).astype(dtype))
    np.testing.assert_allclose(host(linalg.qr(cut(a, of), mode="r")), np.linalg.qr(a, mode="r"), atol=1e-4)


ZEROS_ABOVE = np.vstack([np.zeros((30, 7)), sample((170, 7), "d")])
NO_FIRST_COLUMN = np.where(np.arange(7) == 0, 0.0, sample((200, 7), "d"))


@pytest.mark.parametrize(
    "a",
    [
        ZEROS_ABOVE, ZEROS_ABOVE * (1 + 1j), np.eye(200, 7)[::-1], np.eye(200, 7), NO_FIRST_COLUMN, np.zeros((200, 7)),
        sample((200, 7), "d") * 1e-310, sample((200, 7), "d") * 1e300, np.vstack([[[0.0]], np.ones((199, 1))]),
    ],
    ids=["zeros above", "complex", "eye upside down", "eye", "no column", "zeros", "subnormal", "large", "a column"],
)  # fmt: skip
def test_signs_of_triangles_are_lapacks_where_elements_are_zero(of, a):
    expected = np.linalg.qr(a, mode="r")
    scale = np.abs(expected).max() or 1
    np.testing.assert_allclose(host(linalg.qr(cut(a, of), mode="r")) / scale, expected / scale, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((200, 7), "d"), ((64, 30), "F"), ((30, 100), "D"), ((40, 50), "f")], ids=str
)
def test_singular_values_vectors_and_least_squares(of, shape, dtype):
    a = sample(shape, dtype)
    x = cut(a, of)
    m = shape[0]
    found = linalg.svd(x, full_matrices=False)
    assert found._fields == ("U", "S", "Vh")
    u, s, vh = host(found)
    assert_small((u * s) @ vh - a, a, max(shape))
    assert_orthonormal(u)
    assert_orthonormal(vh.conj().T)
    rtol = 1e-4 if dtype in "fF" else 1e-9
    for values in (s, host(linalg.svdvals(x))):
        assert values.dtype == np.finfo(dtype).dtype
        np.testing.assert_allclose(values, np.linalg.svd(a, compute_uv=False), rtol=rtol)
    b = sample((m, 3), dtype, 1)
    for right in (b, b[:, 0]):
        ours, theirs = linalg.lstsq(x, dx.asarray(right, team=x.team)), np.linalg.lstsq(a, right, rcond=None)
        for mine, other in zip(host(ours), theirs):
            other = np.asarray(other)
            assert mine.shape == other.shape
            assert mine.dtype == other.dtype
            np.testing.assert_allclose(mine, other, rtol=100 * rtol, atol=rtol)
    np.testing.assert_allclose(host(linalg.pinv(x)), np.linalg.pinv(a), atol=rtol)
    assert int(linalg.matrix_rank(x)) == min(shape)


# ---------------------------------------------------------------------------------------- what is hard, or fails


@pytest.mark.parametrize("dtype", ["d", "D"])
def test_rank_deficient_tall_matrices(of, dtype):
    a = sample((120, 3), dtype) @ sample((3, 8), dtype, 1)
    a[:50] = 0
    x = cut(a, of)
    q, r = host(linalg.qr(x))
    assert_small(q @ r - a, a, 120)
    assert_orthonormal(q)
    b = sample((120,), dtype, 2)
    ours, theirs = host(linalg.lstsq(x, dx.asarray(b, team=x.team))), np.linalg.lstsq(a, b, rcond=None)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-8, atol=1e-10)
    assert np.isnan(ours[1]).all()
    assert ours[2] == theirs[2] == 3
    q, r = host(linalg.qr(cut(0 * a, of)))
    assert not r.any()
    assert_orthonormal(q)


def test_square_matrices_without_full_rank_have_factors_too(of):
    for a in (np.zeros((N, N)), np.ones((N, N)), np.eye(N)[::-1].copy(), -np.eye(N)):
        q, r = host(linalg.qr(cut(a, of)))
        assert_orthonormal(q)
        assert np.linalg.norm(q @ r - a) <= bound(N, "d") * max(1, np.linalg.norm(a))


def test_pivots_come_from_anywhere(of):
    a = np.eye(N)[np.random.default_rng(3).permutation(N)] + np.triu(np.full((N, N), 1e-3), 1)
    b = sample((N, 2))
    x = cut(a, of)
    found = host(linalg.solve(x, dx.asarray(b, team=x.team)))
    assert_small(a @ found - b, np.linalg.norm(a) * np.linalg.norm(found), N)
    for ours, theirs in zip(host(linalg.slogdet(x)), np.linalg.slogdet(a)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)


@pytest.mark.filterwarnings("error")
def test_singular_matrices(of):
    a = sample((N, N))
    a[:, 40] = a[:, 3] = 0
    x = cut(a, of)
    with pytest.raises(LinAlgError, match="Singular matrix"):
        linalg.solve(x, dx.ones(N, team=x.team))
    with pytest.raises(LinAlgError, match="Singular matrix"):
        linalg.inv(x)
    assert host(linalg.slogdet(x)) == [0, -np.inf]
    assert host(linalg.det(x)) == 0


@pytest.mark.filterwarnings("ignore:invalid value")  # on one member, from numpy
def test_what_is_not_a_number_is_handed_on(of):
    a = sample((N, N))
    a[17, 30] = np.nan
    x = cut(a, of)
    assert np.isnan(host(linalg.det(x)))
    assert np.isnan(host(linalg.inv(x))).any()
    q, r = host(linalg.qr(x))
    assert np.isnan(q).any()
    assert np.isnan(r).any()


def test_indefinite_matrices_fail_at_the_call_and_leave_everything_as_it_was(of):
    a = positive(N)
    a[41, 41] = -1
    x = cut(a, of)
    with pytest.raises(LinAlgError, match="not positive definite"):
        linalg.cholesky(x)
    with dx.config.set(errors="deferred"):
        pending = linalg.cholesky(x)
    with pytest.raises(LinAlgError, match="not positive definite"):
        pending.compute()
    np.testing.assert_array_equal(host(x), a)


def test_small_and_empty_matrices_that_are_cut(of):
    for n in (1, 2, 3):
        s = positive(n)
        x = cut(s, of)
        np.testing.assert_allclose(host(linalg.cholesky(x)), np.linalg.cholesky(s), rtol=1e-12)
        np.testing.assert_allclose(host(linalg.inv(x)), np.linalg.inv(s), rtol=1e-10)
        np.testing.assert_allclose(host(linalg.det(x)), np.linalg.det(s), rtol=1e-12)
        q, r = host(linalg.qr(x))
        np.testing.assert_allclose(q @ r, s, rtol=1e-12)
    empty = cut(np.empty((0, 0)), (of[0], None))
    assert host(linalg.det(empty)) == 1
    assert host(linalg.inv(empty)).shape == (0, 0)
    assert [part.shape for part in host(linalg.qr(cut(np.empty((60, 0)), of)))] == [(60, 0), (0, 0)]


@pytest.mark.parametrize("tiles", [2, 3])
def test_stacks_and_matrices_in_forced_tiles(tiles):
    a = sample((2, 4, 4)) + 4 * np.eye(4)
    with dx.testing.force_tiles(tiles):
        for values in (a, a[0]):
            x = dx.asarray(values)
            np.testing.assert_allclose(host(linalg.inv(x)), np.linalg.inv(values), rtol=1e-10)
            q, r = host(linalg.qr(x))
            np.testing.assert_allclose(q @ r, values, rtol=1e-10, atol=1e-12)
            for ours, theirs in zip(host(linalg.slogdet(x)), np.linalg.slogdet(values)):
                np.testing.assert_allclose(ours, theirs, rtol=1e-10)


@pytest.mark.parametrize("name", ["cholesky", "inv", "slogdet", "qr", "tall qr", "svd"])
def test_steps_are_written_to_the_standard_b15(name):
    """B-15: no block is looked at on the host."""
    s = positive(12) if name != "tall qr" else sample((40, 3))
    team = dx.Team((2, 2), ("R", "C"))
    x = dx.asarray(s, team=team, device="strict", sharding=("R", "C"))
    with dx.testing.no_host_copies():
        found = getattr(linalg, name.split()[-1])(x)
        dx.persist(found)
    expected = getattr(linalg, name.split()[-1])(cut(s, ((2, 2), None)))
    for ours, theirs in zip(*[host(v) if isinstance(v, tuple) else [host(v)] for v in (found, expected)]):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


# ------------------------------------------------------------------------------------------------- what it costs


@pytest.fixture
def largest(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Elements of the largest block that a kernel saw or made, by operation."""
    seen: dict[str, int] = {}

    def watched(name: str, kernel: Any) -> Any:
        def run(xp: Any, *blocks: Any, params: Any) -> Any:
            result = kernel(xp, *blocks, params=params)
            made = result if isinstance(result, tuple) else (result,)
            seen[name] = max(seen.get(name, 0), *(block.size for block in (*blocks, *made)))
            return result

        return run

    for name, kernel in list(tables.BLOCK.items()):
        monkeypatch.setitem(tables.BLOCK, name, watched(name, kernel))
    return seen


@pytest.mark.parametrize("name", ["cholesky", "inv", "det", "slogdet", "qr", "solve"])
def test_no_task_holds_more_of_a_matrix_than_a_panel(name, largest):
    n = 96
    x = cut(positive(n), ((3, 2), None))
    args = (x, x) if name == "solve" else (x,)
    dx.persist(getattr(linalg, name)(*args))
    assert largest
    assert max(largest.values()) <= n * n / 6, largest


@pytest.mark.parametrize("name", ["qr", "svd", "svdvals", "pinv", "matrix_rank", "lstsq", "cond"])
def test_no_task_holds_more_of_a_tall_matrix_than_a_row_block(name, largest):
    m, n = 600, 4
    x = cut(sample((m, n)), ((3, 2), None))
    args = (x, dx.ones(m, team=x.team)) if name == "lstsq" else (x,)
    kwargs = {"full_matrices": False} if name == "svd" else {}
    dx.persist(getattr(linalg, name)(*args, **kwargs))
    # least squares have their right-hand side beside the matrix
    assert max(largest.values()) <= m * (n + 1) / 6, largest


def test_factors_that_are_looked_at_one_after_the_other_are_computed_once():
    x = cut(sample((N, N)), ((2, 2), None)).persist()
    with dx.testing.counting() as counted:
        q, r = linalg.qr(x)
        sign, logarithm = linalg.slogdet(x)
        host(q), host(r), host(sign), host(logarithm)
    once = {"qr_panel": 4, "lu_panel": 4}
    for name, n in once.items():
        runs = {index: times for (op, index), times in counted.kernels.items() if op == name}
        assert runs == {(k, *[0] * (len(next(iter(runs))) - 1)): n for k in range(4)}
    w, v = linalg.eigh(x + x.T)
    with dx.testing.counting() as counted:
        host(w), host(v)
    assert not counted.evaluations


@pytest.mark.parametrize("ord", [None, "fro", 1, -1, np.inf, -np.inf])
def test_norms_reduce_where_the_matrix_lies(ord):
    a = sample((N, N))
    x = cut(a, CUTS[0]).persist()
    with dx.testing.counting() as counted:
        found = float(linalg.norm(x, ord))
    np.testing.assert_allclose(found, np.linalg.norm(a, ord), rtol=1e-12)
    # a row or a column of sums from every tile, at most
    assert counted.bytes_moved <= 15 * N * 8


@pytest.mark.parametrize("offset", [0, 7, -N + 1, N])
@pytest.mark.parametrize("trace", [linalg.trace, dx.trace])
@pytest.mark.parametrize("sharding", CUTS)
def test_the_trace_moves_the_diagonal_alone(sharding, trace, offset):
    a = sample((N, N))
    x = cut(a, sharding).persist()
    with dx.testing.counting() as counted:
        found = float(trace(x, offset=offset))
    np.testing.assert_allclose(found, np.trace(a, offset), rtol=1e-12)
    assert counted.bytes_moved <= 2 * N * 8


@pytest.mark.parametrize("name", ["eigh", "eigvalsh", "eig", "eigvals", "svd", "svdvals", "qr complete"])
def test_what_does_not_fit_a_member_raises_with_the_numbers(name):
    a = sample((80, 60)) if "qr" in name else positive(N)
    x = cut(a, ((2, 2), None)).persist()
    function = getattr(linalg, name.split()[0])

    def compute() -> None:
        dx.persist(function(x, mode="complete") if "qr" in name else function(x))

    refused = pytest.raises(dx.MemoryBudgetError, match=r"\d+ bytes .* memory-limit")
    with dx.config.set(memory_limit=N * N * 8 - 1), dx.testing.counting() as counted, refused:
        compute()
    assert counted.tasks == 0
    compute()


def test_what_is_distributed_needs_no_member_that_holds_the_matrix():
    s = positive(120)
    x = cut(s, ((3, 2), None)).persist()
    with dx.config.set(memory_limit=s.nbytes - 1):
        assert_small(s @ host(linalg.solve(x, dx.ones(120, team=x.team))) - 1, np.linalg.norm(s) * 11, 120)
        linalg.cholesky(x), linalg.inv(x), linalg.qr(x), linalg.slogdet(x)


@pytest.mark.parametrize(
    ("name", "shape"), [("svd", (3000, 60)), ("svd", (60, 3000)), ("qr", (3000, 60)), ("qr", (400, 400))]
)
def test_vectors_that_nobody_looks_at_are_not_put_together(name, shape, monkeypatch):
    monkeypatch.setattr(programs, "SMALL", 4000)
    a = sample(shape)
    x = cut(a, ((2, 2), None)).persist()
    with dx.testing.counting() as at_call:
        results = linalg.svd(x, full_matrices=False) if name == "svd" else linalg.qr(x)
    put_together = {"qr_join", "qr_backward", "einsum"}
    assert at_call.tasks
    assert not put_together & {kernel[0] for kernel in at_call.kernels}
    x[:1] = 0.0  # the vectors are those of the matrix as it was
    with dx.testing.counting() as counted:
        host(results[1])
    assert not put_together & {kernel[0] for kernel in counted.kernels}
    with dx.testing.counting() as counted:
        first, second, *last = host(results)
    assert put_together & {kernel[0] for kernel in counted.kernels}
    assert_small((first * second) @ last[0] - a if last else first @ second - a, a, max(shape))


def test_results_lie_as_the_matrix_does():
    x = cut(positive(N), CUTS[0]).persist()
    for found in (linalg.cholesky(x), linalg.cholesky(x, upper=True), linalg.inv(x), *linalg.qr(x), linalg.solve(x, x)):
        assert found.sharding == x.sharding


# ------------------------------------------------------------------------------------------------------ clusters


@pytest.mark.cluster
def test_factors_on_a_cluster(cluster4):
    team = dx.Team((2, 2), ("R", "C"))
    a, s, t = sample((N, N)), positive(N), sample((200, 7))
    x, y, z = (dx.asarray(v, team=team, sharding=("R", "C")) for v in (a, s, t))
    factor = host(linalg.cholesky(y))
    assert_small(factor @ factor.T - s, s, N)
    found = host(linalg.solve(x, y))
    assert_small(a @ found - s, np.linalg.norm(a) * np.linalg.norm(found), N)
    for values, array in ((a, x), (t, z)):
        q, r = host(linalg.qr(array))
        assert_small(q @ r - values, values, N)
        assert_orthonormal(q)
    for ours, theirs in zip(host(linalg.slogdet(x)), np.linalg.slogdet(a)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)


@pytest.mark.cluster
def test_failures_on_a_cluster_are_raised_at_the_call(cluster4):
    team = dx.Team((2, 2), ("R", "C"))
    a = positive(N)
    a[41, 41] = -1
    x = dx.asarray(a, team=team, sharding=("R", "C"))
    with pytest.raises(LinAlgError, match="not positive definite"):
        linalg.cholesky(x)
    with pytest.raises(LinAlgError, match="Singular matrix"):
        linalg.inv(x * 0)
