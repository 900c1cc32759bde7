"""Other libraries on our arrays, on one tile and on several: numpy's results, and no gather.

SciPy reads ``SCIPY_ARRAY_API`` when it is imported, and scikit-learn's dispatch needs it too: their checks run in a
process of their own, which is this file as a script. Each test is skipped where its library is missing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing import counting, force_tiles

LIES = ("one tile", "several tiles")
#: Bytes that may come here of an array of 19 200: counts, flags, small statistics; never its elements.
SMALL = 600


@contextmanager
def lying(how: str) -> Iterator[None]:
    """Arrays made inside are one tile in this process, or 3 uneven ones per axis on a team of three."""
    if how == "one tile":
        with dx.use(team=None):
            yield
    else:
        with dx.use(dx.Team((3,), ("T",), members=(0, 1, 2))), force_tiles(3):
            yield


def leaves(value: Any) -> list[Any]:
    """The arrays of a result."""
    return [x for item in value for x in leaves(item)] if isinstance(value, tuple) else [value]


def assert_runs_here(
    function: Callable[..., Any], *arrays: np.ndarray[Any, Any], rtol: float = 1e-10, most: int = SMALL
) -> None:
    """What `function` makes of our arrays lives on ours, is what it makes of numpy's, and at most `most` bytes move."""
    ours = [dx.asarray(a) for a in arrays]
    with counting() as counted:
        found = leaves(function(*ours))
    expected = leaves(function(*arrays))
    assert len(found) == len(expected)
    for x, y in zip(found, expected):
        assert isinstance(x, dx.DistArray), type(x)
        y = np.asarray(y)
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_allclose(x.compute(), y, rtol=rtol, atol=1e-12)
    assert counted.fetched_bytes <= most


def in_a_process_of_its_own(check: str) -> None:
    done = subprocess.run(
        [sys.executable, __file__, check],
        capture_output=True,
        text=True,
        timeout=250,
        env={**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [check, "passed"]


def data() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A matrix, another one like it, and targets that depend on the first linearly but for noise."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 8))
    return x, x + rng.standard_normal(x.shape), x @ rng.standard_normal(8) + rng.standard_normal(300) / 10


# ----------------------------------------------------------------------------------------------------- einops


@pytest.mark.parametrize("how", LIES)
def test_einops_rearranges_reduces_and_repeats(how: str) -> None:
    einops = pytest.importorskip("einops")
    pytest.importorskip("distarray.io.einops")  # the backend that it registers

    x = np.arange(6 * 4 * 10.0).reshape(6, 4, 10)
    cases: Sequence[Callable[[Any], Any]] = (
        lambda a: einops.rearrange(a, "a b (c d) -> (a d) c b", c=2),
        lambda a: einops.rearrange([a, a + 1], "k a b c -> a (k b) c"),
        lambda a: einops.reduce(a, "a b (c d) -> a c", "mean", c=2),
        lambda a: einops.reduce(a, "a b c -> b", "max"),
        lambda a: einops.repeat(a, "a b c -> a 2 (c k) b", k=3),
        lambda a: einops.einsum(a, a, "a b c, a b d -> c d"),
        lambda a: einops.pack([a, a[:, :, 0]], "a b *")[0],
        lambda a: tuple(einops.unpack(a, [[2, 2], [6]], "a b *")),
    )
    with lying(how):
        for case in cases:
            assert_runs_here(case, x, most=0)
        np.testing.assert_array_equal(einops.asnumpy(dx.asarray(x)), x)
        # a pattern that merges no axes is a view
        a = dx.asarray(x)
        assert dx.shares_memory(a, einops.rearrange(a, "a b c -> c a b"))


@pytest.mark.parametrize("how", LIES)
def test_einops_for_the_standard_needs_no_adapter(how: str) -> None:
    pytest.importorskip("einops")
    from einops import array_api

    x = np.arange(6 * 4 * 10.0).reshape(6, 4, 10)
    with lying(how):
        assert_runs_here(lambda a: array_api.rearrange(a, "a b c -> c (a b)"), x, most=0)
        assert_runs_here(lambda a: array_api.reduce(a, "a b c -> c", "sum"), x, most=0)
        assert_runs_here(lambda a: array_api.repeat(a, "a b c -> c a b 2"), x, most=0)


# --------------------------------------------------------------------------------------------- array-api-extra


@pytest.mark.parametrize("how", LIES)
def test_array_api_extra_runs(how: str) -> None:
    xpx = pytest.importorskip("array_api_extra")
    from array_api_compat import array_namespace

    x, y, _ = data()
    cases: Sequence[Callable[[Any], Any]] = (
        lambda a: xpx.at(a)[1:3].set(7.0, copy=True),
        lambda a: xpx.atleast_nd(a, ndim=3),
        lambda a: xpx.cov(a.T),
        lambda a: xpx.create_diagonal(a[:4, 0], offset=1),
        lambda a: xpx.kron(a[:4, :3], a[:2, :2]),
        lambda a: xpx.pad(a, 2, constant_values=1.0),
        lambda a: xpx.sinc(a),
        lambda a: xpx.one_hot(array_namespace(a).asarray([1, 0, 3]), 5),
    )
    with lying(how):
        for case in cases:
            assert_runs_here(case, x)
        # Where the result depends on how many elements there are of a kind, an array of one tile is looked at here.
        assert_runs_here(lambda a: xpx.nunique(array_namespace(a).round(a)), x, most=x.nbytes)
        # Through masks: of each the counts of true elements come here, or the mask itself if it is one tile.
        assert_runs_here(lambda a: xpx.at(a)[a > 0].add(1.0, copy=True), x, most=1 << 13)
        assert_runs_here(lambda a, b: xpx.isclose(a, b, atol=0.5), x, y, most=1 << 14)
        assert_runs_here(lambda a: xpx.apply_where(a > 0, a, array_namespace(a).log, fill_value=-1.0), x, most=1 << 13)


@pytest.mark.parametrize("how", LIES)
def test_array_api_compat_knows_our_arrays(how: str) -> None:
    import array_api_compat as compat

    x = data()[0]
    with lying(how):
        a = dx.asarray(x)
        assert compat.is_array_api_obj(a)
        assert compat.array_namespace(a, a + 1) is dx
        assert compat.device(a) == "cpu"
        assert compat.to_device(a, "cpu") is a
        assert compat.size(a) == x.size
        assert compat.is_writeable_array(a)
        # It looks at one element to know. What is computed for it stays, so that is not done again.
        b = a + 1
        with counting() as counted:
            assert not compat.is_lazy_array(b)
            b.compute()
        assert sum(n for (name, _), n in counted.kernels.items() if name == "add") in (0, len(list(b.sharding.tiles())))
        assert counted.fetched_bytes <= b.nbytes + 8


# ------------------------------------------------------------------------------------------------------ SciPy


def test_scipys_ufuncs_run_without_its_array_api_mode() -> None:
    from scipy import special

    x = np.linspace(-2, 2, 70, dtype="f4").reshape(7, 10)
    with lying("several tiles"):
        assert_runs_here(special.erf, x, most=0)
        assert_runs_here(lambda a: special.xlogy(abs(a), 2.0), x, most=0)
        with pytest.raises(TypeError, match="airy"):
            special.airy(dx.asarray(x))


def test_scipy_in_its_array_api_mode_runs() -> None:
    in_a_process_of_its_own("scipy")


def check_scipy() -> None:
    from scipy import cluster, fft, integrate, signal, special, stats

    x, y, _ = data()
    positive = np.abs(x) + 0.1
    of_one: Sequence[Callable[[Any], Any]] = (
        stats.zscore,
        stats.skew,
        stats.kurtosis,
        stats.sem,
        lambda a: tuple(stats.ttest_1samp(a, 0.1)),
        lambda a: tuple(stats.describe(a))[1:],
        lambda a: tuple(stats.normaltest(a)),
        special.expit,
        special.erf,
        special.ndtr,
        lambda a: special.softmax(a, axis=1),
        lambda a: special.logsumexp(a, axis=0),
        lambda a: fft.fft(a, axis=0),
        lambda a: integrate.trapezoid(a, axis=0),
        cluster.vq.whiten,
    )
    of_positive: Sequence[Callable[[Any], Any]] = (
        stats.gmean,
        stats.entropy,
        lambda a: tuple(stats.chisquare(a)),
        special.gammaln,
        special.entr,
        lambda a: special.xlogy(a, a),
        lambda a: special.betainc(a, a, a / 10),
    )
    of_two: Sequence[Callable[[Any, Any], Any]] = (
        lambda a, b: tuple(stats.pearsonr(a, b)),
        lambda a, b: tuple(stats.ttest_ind(a, b)),
        lambda a, b: signal.fftconvolve(a, b, axes=0),
    )
    for how in LIES:
        with lying(how):
            for function in of_one:
                assert_runs_here(function, x)
            for function in of_positive:
                assert_runs_here(function, positive)
            for function in of_two:
                assert_runs_here(function, x, y)


# ------------------------------------------------------------------------------------------------ scikit-learn


def test_scikit_learn_dispatches_to_our_arrays() -> None:
    pytest.importorskip("sklearn")
    in_a_process_of_its_own("sklearn")


def check_sklearn() -> None:
    import sklearn
    from sklearn.decomposition import PCA
    from sklearn.linear_model import Ridge
    from sklearn.metrics import accuracy_score, mean_squared_error, r2_score

    def pca(solver: str) -> Callable[[Any], Any]:
        def fitted(a: Any) -> Any:
            model = PCA(n_components=3, svd_solver=solver, power_iteration_normalizer="QR", random_state=0)
            return model.fit_transform(a), model.components_, model.explained_variance_ratio_

        return fitted

    def ridge(a: Any, b: Any) -> Any:
        model = Ridge(solver="svd").fit(a, b)
        return model.predict(a), model.coef_

    x, y, targets = data()
    for how in LIES:
        with lying(how), sklearn.config_context(array_api_dispatch=True):
            for solver in ("full", "covariance_eigh", "randomized"):
                assert_runs_here(pca(solver), x, rtol=1e-8)
            assert_runs_here(ridge, x, targets, rtol=1e-8)
            truth, guess = np.tile(targets, 50), np.tile(y[:, 0], 50)
            a, b = dx.asarray(truth), dx.asarray(guess)
            with counting() as counted:
                found = [r2_score(a, b), mean_squared_error(a, b), accuracy_score((a > 0) + 0, (b > 0) + 0)]
            # To find the distinct labels, four times samples of the tiles come here (of large arrays 64 Ki at most);
            # the only tile of an array in this process is here already.
            assert counted.fetched_bytes < truth.nbytes // 2 or how == "one tile"
            expected = [
                r2_score(truth, guess),
                mean_squared_error(truth, guess),
                accuracy_score((truth > 0) + 0, (guess > 0) + 0),
            ]
            np.testing.assert_allclose(found, expected, rtol=1e-12)


if __name__ == "__main__":
    warnings.simplefilter("error")
    {"scipy": check_scipy, "sklearn": check_sklearn}[sys.argv[1]]()
    sys.stdout.write(f"{sys.argv[1]} passed\n")


def test_bars_are_drawn_of_our_arrays() -> None:
    """Matplotlib broadcasts heights beside None."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    x = dx.arange(4.0)
    figure, axes = pyplot.subplots()
    bars = axes.bar(x, x * 2, label="a")
    assert [bar.get_height() for bar in bars] == [0.0, 2.0, 4.0, 6.0]
    pyplot.close(figure)


def test_none_is_broadcast_as_numpy_broadcasts_it() -> None:
    x, nothing = np.broadcast_arrays(dx.arange(3.0), None)
    assert isinstance(x, dx.DistArray)
    assert nothing.shape == (3,)
    assert nothing.tolist() == [None] * 3


class _ArrayOfOthers:
    """As JAX's: an array that knows no ufuncs, and leaves operators to types that it does not know."""

    __array_priority__ = 100

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        return np.arange(4.0)

    def __add__(self, other: Any) -> Any:
        return NotImplemented


def test_arrays_of_lower_priority_are_operands() -> None:
    for total in (_ArrayOfOthers() + dx.arange(4.0), dx.arange(4.0) + _ArrayOfOthers()):
        assert isinstance(total, dx.DistArray)
        np.testing.assert_array_equal(total, 2 * np.arange(4.0))


@pytest.mark.parametrize("value", [np.float64(2.5), np.float32(-7.25), np.int64(257), np.uint8(7)], ids=repr)
@pytest.mark.parametrize("digits", [(), (None,), (1,), (-1,)], ids=str)
def test_round_of_one_number_is_numpys(value: Any, digits: tuple[Any, ...]) -> None:
    found, expected = round(dx.asarray(value), *digits), round(value, *digits)
    if isinstance(expected, int):
        assert type(found) is int
        assert found == expected
    else:
        assert isinstance(found, dx.DistArray)
        assert found.dtype == expected.dtype
        assert found == expected


@pytest.mark.parametrize("value", [True, 1j, [1.0]])
def test_what_numpy_does_not_round_is_not_rounded(value: Any) -> None:
    with pytest.raises(TypeError, match="doesn't define __round__"):
        round(dx.asarray(value))
