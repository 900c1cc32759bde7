"""New arrays lie in the order of memory of numpy's, which shows in ``strides`` and in what ``ravel`` aliases."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import distarray as dx

TEAM = dx.Team((3,), ("R",))


def lossy(x: Any, dtype: str) -> Any:
    """Cast without the warning of the imaginary part that is lost."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return x.astype(dtype)


#: Functions of the package and a matrix whose results are new arrays, in an order that their operands decide.
LYING: dict[str, Callable[[Any, Any], Any]] = {
    "a number": lambda xp, a: a.T + 1,
    "two": lambda xp, a: a.T * a.T,
    "two orders": lambda xp, a: a.T + a.reshape(a.shape[::-1]),
    "a row": lambda xp, a: a.T - a[:, 0],
    "a column": lambda xp, a: a[0][:, None] - a.T,
    "a part": lambda xp, a: a[:, ::2].T * 2,
    "flipped": lambda xp, a: xp.flip(a.T, axis=0) + 1,
    "of three axes": lambda xp, a: xp.stack([a, a]).transpose(2, 0, 1) + 1,
    "exchanged": lambda xp, a: xp.swapaxes(xp.stack([a, a]) * 2, 0, 2) - 1,
    "broadcast": lambda xp, a: xp.broadcast_to(a[:, 0][:, None], (4, 5)) + 1,
    "outer": lambda xp, a: xp.multiply.outer(a.T, a[0, :2]),
    "exact": lambda xp, a: xp.exp(a.T),
    "two results": lambda xp, a: xp.modf(a.T)[1],
    "divmod": lambda xp, a: divmod(a.T, 2)[1],
    "where": lambda xp, a: xp.where(a.T > 3, a.T, 0),
    "clip": lambda xp, a: a.T.clip(1, 3),
    "round": lambda xp, a: xp.round(a.T, 1),
    "round of integers": lambda xp, a: xp.round(a.astype("i8").T),
    "softmax": lambda xp, a: xp.exp(a.T - a.T.max(0)) / xp.exp(a.T - a.T.max(0)).sum(0),
    "in place": lambda xp, a: (a.T + 0).__iadd__(1),
    "of them": lambda xp, a: (a.T + 1)[1:] * (a.T - 1)[1:],
    "matmul": lambda xp, a: a.T @ a,
    "sort": lambda xp, a: xp.sort(a, axis=0),
    "sum": lambda xp, a: a.T.sum(1),
    "astype": lambda xp, a: a.T.astype("f4"),
    "astype C": lambda xp, a: a.T.astype("f4", order="C"),
    "astype F": lambda xp, a: a.astype("f8", order="F"),
    "astype A": lambda xp, a: a.T.astype("f4", order="A"),
    "method copy": lambda xp, a: a.T.copy(),
    "copy": lambda xp, a: xp.copy(a.T),
    "copy F": lambda xp, a: a.copy("F"),
    "copy A": lambda xp, a: a.T.copy("A"),
    "copy K": lambda xp, a: a[:, ::2].T.copy("K"),
    "copy of copy": lambda xp, a: a.copy("F").copy(),
    "array": lambda xp, a: xp.array(a.T),
    "array F": lambda xp, a: xp.array(a, order="F"),
    "asarray F": lambda xp, a: xp.asarray(a, order="F"),
    "of the host": lambda xp, a: xp.asarray(np.arange(24.0).reshape(6, 4).T.copy("K")),
    "asfortranarray": lambda xp, a: xp.asfortranarray(a),
    "ascontiguousarray": lambda xp, a: xp.ascontiguousarray(a.T),
    "require": lambda xp, a: xp.require(a.T, requirements=["C", "O"]),
    "zeros F": lambda xp, a: xp.zeros((4, 6), order="F"),
    "full F": lambda xp, a: xp.full((4, 6), 2.0, order="F"),
    "zeros_like": lambda xp, a: xp.zeros_like(a.T),
    "full_like C": lambda xp, a: xp.full_like(a.T, 2.0, order="C"),
    "ones_like F": lambda xp, a: xp.ones_like(a, order="F"),
    "ones_like of a shape": lambda xp, a: xp.ones_like(a.T, shape=(3, 2)),
    "flipped, exact": lambda xp, a: xp.tanh(a.T[:, ::-1]),
    "copy F, of it": lambda xp, a: a.copy("F") + 1,
    "asfortranarray, of it": lambda xp, a: xp.asfortranarray(a) * 2,
    "twice": lambda xp, a: xp.negative(xp.negative(a.T[:, 1:])),
    "positive of a diagonal": lambda xp, a: +xp.diagonal(xp.stack([a, a]), axis1=1, axis2=2),
    "cumsum, transposed": lambda xp, a: xp.cumsum(a, axis=0).T + 1,
    "ones F, of it": lambda xp, a: xp.ones((3, 4), order="F") * 2,
    "zeros, transposed": lambda xp, a: xp.zeros((3, 4)).T + 1,
    "complex to real": lambda xp, a: lossy((a.T + 0j), "f8"),
    "complex to integers": lambda xp, a: lossy((a.T + 0j), "i4"),
    "a part of complex": lambda xp, a: (a.T + 1j).imag * 2,
    "copy.copy": lambda xp, a: copy.copy(a.copy("F")),
    "copy.deepcopy": lambda xp, a: copy.deepcopy(a.copy("F")),
    "array A": lambda xp, a: xp.array(xp.stack([a, a]).transpose(1, 0, 2), order="A"),
    "copy of three, A": lambda xp, a: xp.copy(xp.stack([a, a]).transpose(1, 0, 2), order="A"),
    "ufunc A": lambda xp, a: np.add(xp.stack([a, a]).transpose(1, 0, 2), 1, order="A"),
    "ufunc A of F": lambda xp, a: np.add(a.T, 1, order="A"),
    "einsum A": lambda xp, a: xp.einsum("ij,ij->ij", a.T, a.T, order="A"),
    "einsum A, some": lambda xp, a: xp.einsum("ij,ij->ij", a.T, a.T.copy("C"), order="A"),
    "einsum A with a vector": lambda xp, a: xp.einsum("ij,j->ij", a.T, a[:, 0].copy(), order="A"),
    "zeros_like A": lambda xp, a: xp.zeros_like(xp.stack([a, a]).transpose(1, 0, 2), order="A"),
    "ones_like of a row": lambda xp, a: xp.ones_like(a[0].reshape(1, 6), shape=(2, 3)),
    "ravel of broadcast": lambda xp, a: xp.broadcast_to(a[0], (2, 6)).ravel("K"),
    "ufunc C": lambda xp, a: np.add(a.T, 1, order="C"),
}


@pytest.mark.parametrize("options", [{}, {"eager_bytes": 0}, {"eager_bytes": 0, "block_bytes": 48}], ids=str)
@pytest.mark.parametrize("name", LYING)
def test_results_lie_as_numpys(name: str, options: dict[str, int]) -> None:
    a = np.arange(24.0).reshape(4, 6) % 7
    with dx.config.set(options), dx.use(team=TEAM):
        x = dx.asarray(a)
        p, q = LYING[name](np, a), LYING[name](dx, x)
        assert q.strides == p.strides
        assert str(q.flags) == str(p.flags)
        assert q.base is None and p.base is None
        for each in (p, q):
            each.ravel()[1:3] = 7  # which shows where it is a view
            each.reshape(-1, order="F")[-2:] = 8
            each.ravel("K")[5] = 9
        np.testing.assert_allclose(q, p)


@given(st.data())
def test_elementwise_results_lie_in_the_order_of_their_operands(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 4), min_size=2, max_size=4), label="shape"))
    operands = []
    for _ in range(data.draw(st.integers(1, 3), label="operands")):
        n = data.draw(st.integers(0, len(shape)), label="axes")
        own = [data.draw(st.sampled_from([1, k])) for k in shape[len(shape) - n :]]
        axes = data.draw(st.permutations(range(n)), label="order")
        seen = np.arange(np.prod(own, dtype=int), dtype=float).reshape([own[i] for i in axes])
        operands.append((seen, [axes.index(i) for i in range(n)]))
    p: Any = np.zeros(shape[-1:])
    q: Any = dx.zeros(shape[-1:])
    with dx.config.set(eager_bytes=data.draw(st.sampled_from([0, 1 << 20]))):
        for seen, axes in operands:
            p, q = p + seen.transpose(axes), q + dx.asarray(seen).transpose(axes)
    np.testing.assert_array_equal(q, p)
    assert q.flags.c_contiguous == p.flags.c_contiguous and q.flags.f_contiguous == p.flags.f_contiguous
    if p.size and 1 not in p.shape:
        assert q.strides == p.strides


@pytest.mark.filterwarnings("ignore:Setting the shape on a NumPy array:DeprecationWarning")
def test_the_owner_takes_another_shape_or_says_that_it_cannot() -> None:
    both = [xp.asarray(np.arange(12.0).reshape(3, 4)).T + 1 for xp in (np, dx)]
    for x in both:
        with pytest.raises(AttributeError, match="Incompatible shape for in-place modification"):
            x.shape = (2, 6)
        with pytest.raises(ValueError, match="size"):
            x.shape = (2, 7)
        x.shape = (4, 1, 3)
        x.ravel("K")[1] = 7
    p, q = both
    np.testing.assert_array_equal(q, p)
    assert q.flags.owndata and q.base is None
    assert q.strides[::2] == p.strides[::2]


@pytest.mark.parametrize("options", [{}, {"eager_bytes": 0}], ids=str)
def test_an_array_that_was_read_lies_as_before(options: dict[str, int]) -> None:
    with dx.config.set(options):
        a = np.arange(12.0).reshape(3, 4)
        for view in (lambda x: x.T, lambda x: x[1:].T, lambda x: x[::-1].T):
            x = view(dx.asarray(a))
            np.asarray(x)
            assert (x + 1).strides == (view(a) + 1).strides
            assert (x.persist() * 2).strides == (view(a) * 2).strides


def test_a_copy_of_an_array_without_axes_is_one() -> None:
    for xp in (np, dx):
        x = xp.asarray(np.arange(1.0)).reshape(()).copy()
        x.reshape((1,))[...] = 7
        assert float(x) == 7


@pytest.mark.parametrize("dtype", ["i8", "?", "f8"])
def test_nan_to_num_keeps_the_order(dtype: str) -> None:
    host = np.asfortranarray(np.arange(12).reshape(3, 4).astype(dtype))
    made = dx.nan_to_num(dx.asarray(host))
    assert made.strides == np.nan_to_num(host).strides
    made.T.ravel()[:3] = 1
    expected = np.nan_to_num(host)
    expected.T.ravel()[:3] = 1
    np.testing.assert_array_equal(np.asarray(made), expected)
