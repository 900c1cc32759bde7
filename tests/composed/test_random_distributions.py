"""Random numbers have the distributions that their names say: SciPy's, by Kolmogorov-Smirnov and chi-square tests.

Seeds are fixed, so a test that passes once passes always; a wrong formula has a p-value of 0 at this size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing.assertions import assert_equal

stats = pytest.importorskip("scipy.stats")

N = 20_000

CONTINUOUS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "random": (lambda r: r.random(N), stats.uniform()),
    "random, single": (lambda r: r.random(N, np.float32), stats.uniform()),
    "uniform": (lambda r: r.uniform(-1, 3, N), stats.uniform(-1, 4)),
    "triangular": (lambda r: r.triangular(-1, 2, 3, N), stats.triang(0.75, -1, 4)),
    "standard_normal": (lambda r: r.standard_normal(N), stats.norm()),
    "standard_normal, single": (lambda r: r.standard_normal(N, np.float32), stats.norm()),
    "normal": (lambda r: r.normal(1, 2, N), stats.norm(1, 2)),
    "lognormal": (lambda r: r.lognormal(1, 0.5, N), stats.lognorm(0.5, scale=np.e)),
    "wald": (lambda r: r.wald(2, 3, N), stats.invgauss(2 / 3, scale=3)),
    "standard_exponential": (lambda r: r.standard_exponential(N), stats.expon()),
    "exponential": (lambda r: r.exponential(2, N), stats.expon(scale=2)),
    "laplace": (lambda r: r.laplace(1, 2, N), stats.laplace(1, 2)),
    "logistic": (lambda r: r.logistic(1, 2, N), stats.logistic(1, 2)),
    "gumbel": (lambda r: r.gumbel(1, 2, N), stats.gumbel_r(1, 2)),
    "rayleigh": (lambda r: r.rayleigh(2, N), stats.rayleigh(scale=2)),
    "weibull": (lambda r: r.weibull(1.7, N), stats.weibull_min(1.7)),
    "pareto": (lambda r: r.pareto(5, N), stats.lomax(5)),
    "power": (lambda r: r.power(2.5, N), stats.powerlaw(2.5)),
    "standard_cauchy": (lambda r: r.standard_cauchy(N), stats.cauchy()),
    "standard_gamma, below 1": (lambda r: r.standard_gamma(0.3, N), stats.gamma(0.3)),
    "standard_gamma, of 1": (lambda r: r.standard_gamma(1, N), stats.gamma(1)),
    "gamma": (lambda r: r.gamma(7.5, 2, N), stats.gamma(7.5, scale=2)),
    "gamma, array": (lambda r: r.gamma(dx.full(N, 0.8), 2), stats.gamma(0.8, scale=2)),
    "chisquare": (lambda r: r.chisquare(3, N), stats.chi2(3)),
    "noncentral_chisquare": (lambda r: r.noncentral_chisquare(3, 4, N), stats.ncx2(3, 4)),
    "f": (lambda r: r.f(3, 11, N), stats.f(3, 11)),
    "noncentral_f": (lambda r: r.noncentral_f(3, 11, 2, N), stats.ncf(3, 11, 2)),
    "standard_t": (lambda r: r.standard_t(9, N), stats.t(9)),
    "beta": (lambda r: r.beta(2, 3.5, N), stats.beta(2, 3.5)),
    "beta, below 1": (lambda r: r.beta(0.1, 0.4, N), stats.beta(0.1, 0.4)),
    "vonmises": (lambda r: r.vonmises(0, 2.0, N), stats.vonmises(2.0)),
    "vonmises, all around": (lambda r: r.vonmises(0, 0, N), stats.uniform(-np.pi, 2 * np.pi)),
    "vonmises, narrow": (lambda r: r.vonmises(0, 1e7, N), stats.norm(0, 1e-3 / 10**0.5)),
}

DISCRETE: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "integers": (lambda r: r.integers(-3, 9, N), stats.randint(-3, 9)),
    "integers, included": (lambda r: r.integers(1, 6, N, endpoint=True), stats.randint(1, 7)),
    "choice": (lambda r: r.choice(9, N), stats.randint(0, 9)),
    "poisson, small": (lambda r: r.poisson(0.3, N), stats.poisson(0.3)),
    "poisson, inverted": (lambda r: r.poisson(9.9, N), stats.poisson(9.9)),
    "poisson, rejected": (lambda r: r.poisson(10, N), stats.poisson(10)),
    "poisson, large": (lambda r: r.poisson(200, N), stats.poisson(200)),
    "binomial, small": (lambda r: r.binomial(10, 0.3, N), stats.binom(10, 0.3)),
    "binomial, often": (lambda r: r.binomial(100, 0.7, N), stats.binom(100, 0.7)),
    "binomial, rare": (lambda r: r.binomial(1000, 0.02, N), stats.binom(1000, 0.02)),
    "negative_binomial": (lambda r: r.negative_binomial(3.5, 0.3, N), stats.nbinom(3.5, 0.3)),
    "geometric": (lambda r: r.geometric(0.2, N), stats.geom(0.2)),
    "hypergeometric, few": (lambda r: r.hypergeometric(15, 20, 8, N), stats.hypergeom(35, 15, 8)),
    "hypergeometric": (lambda r: r.hypergeometric(150, 100, 120, N), stats.hypergeom(250, 150, 120)),
    "hypergeometric, most": (lambda r: r.hypergeometric(100, 1500, 1400, N), stats.hypergeom(1600, 100, 1400)),
    "logseries": (lambda r: r.logseries(0.8, N), stats.logser(0.8)),
    "zipf": (lambda r: r.zipf(4.5, N), stats.zipf(4.5)),
}


@pytest.fixture
def rng() -> Any:
    return dx.random.default_rng(20)


def _moments_agree(x: np.ndarray, law: Any) -> None:
    """Mean and variance within five standard errors, where the law has the moments that these need."""
    mean, variance, excess = (float(m) for m in law.stats(moments="mvk"))
    if np.isfinite(variance):
        assert abs(x.mean() - mean) < 5 * (variance / N) ** 0.5
    if np.isfinite(excess):
        assert abs(x.var() / variance - 1) < 5 * ((excess + 2) / N) ** 0.5


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_numbers_have_their_distribution(name: str, rng: Any) -> None:
    draw, law = CONTINUOUS[name]
    x = draw(rng).compute().astype(np.float64)
    assert x.shape == (N,)
    assert stats.kstest(x, law.cdf).pvalue > 1e-4
    if name not in ("vonmises",):  # SciPy integrates its moments on the line
        _moments_agree(x, law)


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_numbers_have_their_distribution(name: str, rng: Any) -> None:
    draw, law = DISCRETE[name]
    x = draw(rng).compute()
    assert x.dtype == np.int64
    assert x.min() >= law.support()[0]
    assert x.max() <= law.support()[1]
    values = np.arange(int(law.ppf(1e-4)), int(law.ppf(1 - 1e-4)) + 1)
    wanted = law.pmf(values) * N
    values, wanted = values[wanted > 8], wanted[wanted > 8]
    seen = (x[:, None] == values).sum(axis=0)
    # all others are one more class
    seen, wanted = np.append(seen, N - seen.sum()), np.append(wanted, N - wanted.sum())
    if wanted[-1] < 1:
        seen, wanted = seen[:-1], wanted[:-1]
    assert stats.chi2.sf(((seen - wanted) ** 2 / wanted).sum(), len(wanted) - 1) > 1e-4
    _moments_agree(x, law)


def test_tails_of_normal_numbers(rng: Any) -> None:
    x = np.abs(rng.standard_normal(4_000_000).compute())
    # the tail begins at 3.654; above it the method is another one
    for bound in (3.0, 3.6, 3.7, 4.5):
        wanted = 2 * stats.norm.sf(bound) * x.size
        assert abs((x > bound).sum() - wanted) < 5 * wanted**0.5
    tail = x[x > 3.6541528853610088]
    assert stats.kstest(tail, lambda t: 1 - stats.norm.sf(t) / stats.norm.sf(3.6541528853610088)).pvalue > 1e-4


def test_shares_of_vectors(rng: Any) -> None:
    p = np.array([0.1, 0.2, 0.3, 0.4])
    counts = rng.multinomial(20, p, 5000).compute()
    assert (counts.sum(axis=1) == 20).all()
    np.testing.assert_allclose(counts.mean(axis=0), 20 * p, atol=5 * (20 * 0.25 / 5000) ** 0.5)
    wanted = 20 * (np.diag(p) - np.outer(p, p))
    np.testing.assert_allclose(np.cov(counts.T), wanted, atol=0.4)

    balls = rng.multivariate_hypergeometric([10, 20, 30], 12, 5000).compute()
    assert (balls.sum(axis=1) == 12).all()
    assert stats.chi2.sf(_chi2(balls[:, 0], stats.hypergeom(60, 10, 12)), 5) > 1e-4
    np.testing.assert_allclose(balls.mean(axis=0), [2, 4, 6], atol=0.15)

    alpha = np.array([0.05, 1.0, 3.0])
    shares = rng.dirichlet(alpha, 5000).compute()
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-14)
    for k in (1, 2):
        assert stats.kstest(shares[:, k], stats.beta(alpha[k], alpha.sum() - alpha[k]).cdf).pvalue > 1e-4


def _chi2(x: np.ndarray, law: Any) -> float:
    wanted = law.pmf(np.arange(6)) * len(x)
    seen = np.array([(x == k).sum() for k in range(6)])
    return float(((seen - wanted) ** 2 / wanted).sum())


@pytest.mark.parametrize("method", ["svd", "eigh", "cholesky"])
def test_multivariate_normal(method: str, rng: Any) -> None:
    mean, cov = np.array([1.0, -2.0, 0.0]), np.array([[4.0, 1.0, 0.5], [1.0, 2.0, -0.3], [0.5, -0.3, 1.0]])
    for given in (cov, dx.asarray(cov)):
        x = rng.multivariate_normal(mean, given, (N // 2, 2), method=method)
        assert x.shape == (N // 2, 2, 3)
        rows = x.compute().reshape(-1, 3)
        np.testing.assert_allclose(rows.mean(axis=0), mean, atol=5 * 2 / N**0.5)
        np.testing.assert_allclose(np.cov(rows.T), cov, atol=5 * 4 * 2**0.5 / N**0.5)


def test_covariances_that_are_none_are_reported(rng: Any) -> None:
    cov = [[1.0, 2.0], [2.0, 1.0]]
    with pytest.warns(RuntimeWarning, match="positive-semidefinite"):
        rng.multivariate_normal([0, 0], cov)
    with pytest.raises(ValueError, match="positive-semidefinite"):
        rng.multivariate_normal([0, 0], cov, check_valid="raise")


def test_extreme_parameters_end(rng: Any) -> None:
    for draw, value in (
        (lambda: rng.zipf(2000.0, 5), 1),
        (lambda: rng.binomial(0, 0.5, 5), 0),
        (lambda: rng.binomial(7, 1, 5), 7),
        (lambda: rng.poisson(0, 5), 0),
        (lambda: rng.standard_gamma(0, 5), 0),
        (lambda: rng.weibull(0, 5), 0),
        (lambda: rng.geometric(1, 5), 1),
        (lambda: rng.logseries(0, 5), 1),
        (lambda: rng.hypergeometric(0, 5, 3, 5), 0),
        (lambda: rng.hypergeometric(5, 0, 3, 5), 3),
    ):
        assert (draw().compute() == value).all()
    assert (rng.zipf(1.0001, 100).compute() >= 1).all()
    assert abs(rng.poisson(1e15, 2000).compute().mean() / 1e15 - 1) < 5e-8 / 2000**0.5 * 5
    assert abs(rng.binomial(10**12, 0.5, 2000).compute().std() / 5e5 - 1) < 5 / 4000**0.5


@pytest.mark.parametrize(
    ("name", "n"),
    [("pareto", 1), ("power", 1), ("chisquare", 1), ("standard_t", 1), ("wald", 2), ("f", 2), ("beta", 2)],
)
def test_parameters_that_are_nan_show(name: str, n: int) -> None:
    for k in range(n):
        parameters = [np.nan if i == k else 1.5 for i in range(n)]
        for rng in (np.random.default_rng(0), dx.random.default_rng(0)):
            assert np.isnan(np.asarray(getattr(rng, name)(*parameters, size=3))).all()
            with pytest.raises(ValueError, match="<= 0"):
                getattr(rng, name)(*[-1.0 if i == k else 1.5 for i in range(n)], size=3)


@pytest.mark.parametrize(
    "alpha", [[5, 9, 0, 8], [0.5, 0, 0], [0.01, 0, 0.005], [0.0], [0, 0], [np.nan, 1], []], ids=str
)
@pytest.mark.parametrize("convert", [np.asarray, dx.asarray])
def test_shares_of_no_weight_are_nothing(alpha: list[float], convert: Any, rng: Any) -> None:
    with np.errstate(all="ignore"):
        expected = np.random.default_rng(0).dirichlet(alpha, 50)
    x = rng.dirichlet(convert(np.array(alpha, np.float64)), 50).compute()
    assert x.shape == expected.shape
    np.testing.assert_array_equal(x[:, np.array(alpha) == 0], 0.0)
    np.testing.assert_allclose(x.sum(axis=1), expected.sum(axis=1), rtol=1e-14)


def test_shares_of_parameters_that_hardly_are_numbers(rng: Any) -> None:
    tiny = np.finfo(float).tiny
    x = rng.beta(tiny / 32, np.full(1000, tiny / 40)).compute()
    assert set(x.tolist()) == {0.0, 1.0}
    assert rng.dirichlet([tiny / 8, tiny / 16], 50).compute().sum(axis=1).tolist() == [1.0] * 50


@pytest.mark.parametrize("size", [None, 1, (2, 3)])
def test_no_colours_have_no_counts(size: Any, rng: Any) -> None:
    expected = np.random.default_rng(0).multivariate_hypergeometric([], 0, size=size)
    assert_equal(rng.multivariate_hypergeometric([], 0, size=size), expected)
