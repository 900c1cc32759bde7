"""Random numbers depend on the seed, the call and the position; never on team, cut, executor or device."""

from __future__ import annotations

import array
import inspect
import pickle
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import Any

import numpy as np
import pytest
from helpers import some

import distarray as dx
from distarray.kernels import random as kernel_random
from distarray.kernels import tables
from distarray.kernels.devices import backend_for
from distarray.testing import force_tiles
from distarray.testing.assertions import assert_equal

N = (23, 7)
ROW = np.linspace(0.5, 40, 7)
COUNTS = np.arange(5, 12)

#: (rng, keywords) -> array of shape `N`
DRAWS: dict[str, Callable[..., Any]] = {
    "random": lambda r, **w: r.random(N, **w),
    "random, single": lambda r, **w: r.random(N, np.float32, **w),
    "standard_normal": lambda r, **w: r.standard_normal(N, **w),
    "standard_normal, single": lambda r, **w: r.standard_normal(N, np.float32, **w),
    "uniform": lambda r, **w: r.uniform(-2, ROW, N, **w),
    "triangular": lambda r, **w: r.triangular(-2, ROW, 50, N, **w),
    "normal": lambda r, **w: r.normal(5, ROW, N, **w),
    "lognormal": lambda r, **w: r.lognormal(1, 0.5, N, **w),
    "wald": lambda r, **w: r.wald(ROW, 2, N, **w),
    "standard_exponential": lambda r, **w: r.standard_exponential(N, **w),
    "exponential": lambda r, **w: r.exponential(2, N, **w),
    "laplace": lambda r, **w: r.laplace(1, 2, N, **w),
    "logistic": lambda r, **w: r.logistic(1, 2, N, **w),
    "gumbel": lambda r, **w: r.gumbel(1, 2, N, **w),
    "rayleigh": lambda r, **w: r.rayleigh(2, N, **w),
    "weibull": lambda r, **w: r.weibull(ROW, N, **w),
    "pareto": lambda r, **w: r.pareto(3, N, **w),
    "power": lambda r, **w: r.power(ROW, N, **w),
    "standard_cauchy": lambda r, **w: r.standard_cauchy(N, **w),
    "standard_gamma": lambda r, **w: r.standard_gamma(ROW - 0.4, N, **w),
    "gamma": lambda r, **w: r.gamma(2, ROW, N, **w),
    "chisquare": lambda r, **w: r.chisquare(3, N, **w),
    "noncentral_chisquare": lambda r, **w: r.noncentral_chisquare(3, ROW, N, **w),
    "f": lambda r, **w: r.f(3, ROW, N, **w),
    "noncentral_f": lambda r, **w: r.noncentral_f(3, 5, ROW, N, **w),
    "standard_t": lambda r, **w: r.standard_t(4, N, **w),
    "beta": lambda r, **w: r.beta(0.3, ROW, N, **w),
    "dirichlet": lambda r, **w: r.dirichlet(ROW, 23, **w),
    "vonmises": lambda r, **w: r.vonmises(1, ROW, N, **w),
    "integers": lambda r, **w: r.integers(-3, 9, N, **w),
    "integers, unsigned": lambda r, **w: r.integers(2**64 - 5, 2**64, N, np.uint64, **w),
    "integers, arrays": lambda r, **w: r.integers(-COUNTS, COUNTS, N, np.int8, **w),
    "binomial": lambda r, **w: r.binomial(100, 0.3, N, **w),
    "binomial, arrays": lambda r, **w: r.binomial(COUNTS * 9, ROW / 41, N, **w),
    "poisson": lambda r, **w: r.poisson(30, N, **w),
    "poisson, arrays": lambda r, **w: r.poisson(ROW, N, **w),
    "negative_binomial": lambda r, **w: r.negative_binomial(3.5, 0.3, N, **w),
    "geometric": lambda r, **w: r.geometric(0.2, N, **w),
    "hypergeometric": lambda r, **w: r.hypergeometric(COUNTS * 9, 60, 50, N, **w),
    "logseries": lambda r, **w: r.logseries(0.8, N, **w),
    "zipf": lambda r, **w: r.zipf(ROW + 1, N, **w),
    "multinomial": lambda r, **w: r.multinomial(30, ROW / ROW.sum(), 23, **w),
    "multivariate_hypergeometric": lambda r, **w: r.multivariate_hypergeometric(COUNTS, 20, 23, **w),
    "choice": lambda r, **w: r.choice(50, N, **w),
    "choice, weighted": lambda r, **w: r.choice(7, N, p=ROW / ROW.sum(), **w),
    "choice, once": lambda r, **w: r.choice(200, N, replace=False, **w),
    "choice, weighted, once": lambda r, **w: r.choice(400, N, replace=False, p=np.arange(400) / 79800, **w),
    "permuted": lambda r, **w: r.permuted(np.arange(161).reshape(N), axis=0, **w),
    "permuted, flat": lambda r, **w: r.permuted(np.arange(161).reshape(N), **w),
    "permutation": lambda r, **w: r.permutation(np.arange(161).reshape(N), axis=1, **w),
}
ROUNDED = {"dirichlet"}  # floating sums: the same bits for one plan, else within rounding


def same(name: str, made: Any, expected: Any) -> None:
    if name in ROUNDED:
        np.testing.assert_allclose(made.compute(), expected, rtol=1e-14)
    else:
        assert_equal(made, expected)


@pytest.fixture(scope="module")
def expected() -> dict[str, np.ndarray]:
    """What one member without a team draws."""
    with dx.use(team=None):
        return {name: draw(dx.random.default_rng(5)).compute() for name, draw in DRAWS.items()}


@pytest.mark.parametrize("name", some(DRAWS))
def test_the_same_numbers_on_any_cut(name: str, expected: dict[str, np.ndarray]) -> None:
    assert expected[name].shape == N
    draw = DRAWS[name]
    for team in (None, dx.Team((3,), ("T",)), dx.Team((2, 2), ("R", "C"))):
        with dx.use(team=team), force_tiles(3):
            same(name, draw(dx.random.default_rng(5)), expected[name])
    with dx.use(team=dx.Team((3,), ("T",))):
        if "arrays" not in name and expected[name].ndim == 2 and name in ("random", "poisson", "standard_normal"):
            for sharding in (("T", None), (None, "T"), "[22{T; 0,22,22,23}23, 7]"):
                same(name, draw(dx.random.default_rng(5), sharding=sharding), expected[name])


@pytest.mark.cluster
def test_the_same_numbers_on_a_cluster(cluster4: Any, expected: dict[str, np.ndarray]) -> None:
    with force_tiles(2):
        for name in ("standard_normal", "gamma", "poisson, arrays", "integers", "multinomial", "choice, once"):
            same(name, DRAWS[name](dx.random.default_rng(5)), expected[name])


def test_numpys_methods_are_here_with_its_signatures() -> None:
    theirs = {name for name in dir(np.random.Generator) if not name.startswith("_")}
    assert theirs <= set(dir(dx.random.Generator))
    for name in sorted(theirs - {"bit_generator", "spawn"}):
        try:
            wanted = inspect.signature(getattr(np.random.Generator, name)).parameters.values()
        except ValueError:
            pytest.skip("this numpy does not tell the signatures of its methods")
        ours = inspect.signature(getattr(dx.random.Generator, name)).parameters.values()
        said = [(p.name, p.kind, p.default) for p in ours]
        assert said[: len(wanted)] == [(p.name, p.kind, p.default) for p in wanted], name


def test_blocks_that_are_part_of_a_row_have_the_numbers_of_the_whole() -> None:
    for draw in (lambda r: r.random((5, 20_000)), lambda r: r.standard_normal((5, 20_000))):
        whole = draw(dx.random.default_rng(1))
        host = whole.compute()
        assert_equal(whole[2, 300:700], host[2, 300:700])
        assert_equal(draw(dx.random.default_rng(1))[::2, ::-3], host[::2, ::-3])


@pytest.mark.parametrize("name", ["random_uniform", "random_normal"])
@pytest.mark.parametrize("box", [((0, 30_000), (3, 4), (0, 2)), ((7, 9), (1, 9), (2, 4)), ((5, 5), (0, 9), (1, 2))])
def test_narrow_blocks_have_the_numbers_of_the_whole(name: str, box: tuple[tuple[int, int], ...]) -> None:
    backend, shape, dtype = backend_for("cpu", 0), (30_000, 9, 4), np.dtype(np.float64)
    whole = tables.CREATE[name](backend, tuple((0, n) for n in shape), shape, dtype, (), 12345)
    part = tables.CREATE[name](backend, box, shape, dtype, (), 12345)
    np.testing.assert_array_equal(part, whole[tuple(slice(*r) for r in box)])


def test_short_rows_of_a_block_are_made_many_at_a_time() -> None:
    """A slice of words is at least half full, whatever the rows of a block are, or all of it."""
    for box in [((0, 30_000), (3, 4)), ((0, 30_000), (1, 3)), ((0, 5), (1, 3)), ((0, 30_000), (0, 4))]:
        size = prod(hi - lo for lo, hi in box)
        slices = list(kernel_random._slices(np, box, (30_000, 4), 7, 1000))
        assert len(slices) <= 1 + 2 * size // 1000
        assert sum(words.size for _, words in slices) == size


# ---------------------------------------------------------------------------------------------------- streams


def test_seeds_calls_and_children_give_different_numbers() -> None:
    rng, other = dx.random.default_rng(0), dx.random.default_rng(1)
    drawn = [rng.random(50), rng.random(50), other.random(50), *(g.random(50) for g in rng.spawn(2))]
    hosts = [x.compute() for x in drawn]
    for i, a in enumerate(hosts):
        for b in hosts[i + 1 :]:
            assert not np.isin(a, b).any()
    assert dx.random.default_rng(rng) is rng
    assert_equal(dx.random.default_rng([0]).random(5), dx.random.default_rng(0).random(5).compute())
    assert_equal(dx.random.default_rng(range(3)).random(5), dx.random.default_rng([0, 1, 2]).random(5).compute())


def test_streams_are_independent() -> None:
    n = 20_000
    rng = dx.random.default_rng(7)
    streams = [rng.random(n), rng.random(n), *(g.random(n) for g in rng.spawn(2))]
    streams += [dx.random.default_rng(seed).random(n) for seed in (8, 9, [7, 0], [7, 1])]
    ranks = np.stack([x.compute() for x in streams])
    off = np.corrcoef(np.concatenate([ranks, ranks[:, ::-1], np.roll(ranks, 1, axis=1)])) - np.eye(24)
    assert np.abs(off).max() < 5 / n**0.5
    # and the bits of neighbouring positions and calls
    words = dx.random.default_rng(3).integers(0, 2**64, (2, n), np.uint64).compute()
    flips = np.unpackbits((words[:, 1:] ^ words[:, :-1]).view(np.uint8).reshape(2, -1, 8), axis=2).mean(axis=1)
    assert np.abs(flips - 0.5).max() < 5 * 0.5 / n**0.5


def test_generators_can_be_stored_and_brought_back() -> None:
    rng = dx.random.default_rng(4)
    rng.random(3)
    other, state = pickle.loads(pickle.dumps(rng)), rng.bit_generator.state
    first = rng.random(5).compute()
    assert_equal(other.random(5), first)
    rng.bit_generator.state = state
    assert_equal(rng.random(5), first)
    with pytest.raises(ValueError, match="SplitMix64"):
        rng.bit_generator.state = {"bit_generator": "PCG64"}
    assert_equal(
        dx.random.default_rng(np.random.SeedSequence(1)).random(3),
        dx.random.default_rng(np.random.SeedSequence(1)).random(3).compute(),
    )


# ------------------------------------------------------------------------------------------------- parameters


def test_parameters_that_are_arrays_broadcast_and_lead_to_where_they_live() -> None:
    team = dx.Team((2,), ("T",))
    lam = dx.asarray(np.array([[1.0], [60.0]]), team=team)
    made = dx.random.default_rng(0).poisson(lam, (2, 500))
    assert made.team is team
    host = made.compute()
    assert abs(host[0].mean() - 1) < 0.3
    assert abs(host[1].mean() - 60) < 3
    assert_equal(dx.random.default_rng(0).poisson(np.array([[1.0], [60.0]]), (2, 500)), host)
    assert dx.random.default_rng(0).normal(np.zeros(3), lam).shape == (2, 3)


#: Values that are refused as arrays that are here, too.
REFUSED_ARRAYS: list[tuple[str, tuple[Any, ...]]] = [
    *(
        ("poisson", ([1.0, -1.0],)),
        ("binomial", (5, [0.5, 1.5])),
        ("logseries", ([0.5, 1.0],)),
        ("zipf", ([2.0, 1.0],)),
    ),
    *(("uniform", ([0.0, 2.0], 1.0)), ("triangular", ([0.0, 2.0], 1.0, 3.0)), ("hypergeometric", ([9, 1], 2, 4))),
    *(("dirichlet", ([0.5, -1e-16],)), ("multinomial", (3, [0.9, 0.9, 0.1])), ("negative_binomial", ([2**62], [0.1]))),
    ("normal", (0.0, [1.0, -1.0])),
]


def test_bad_values_in_arrays_are_found_at_the_call_or_when_they_are_seen() -> None:
    rng = dx.random.default_rng(0)
    with force_tiles(2):
        waiting = dx.arange(1.0, -3.0, -2.0) * 1.0
        for draw, text in (
            (lambda: rng.poisson(waiting), "lam < 0"),
            (lambda: rng.standard_gamma(waiting), "shape < 0"),
            (lambda: rng.binomial(5, waiting), "p < 0"),
            (lambda: rng.integers(dx.asarray([1, 2]), dx.asarray([3, 2])), "low >= high"),
        ):
            late = draw()
            with pytest.raises(ValueError, match=text):
                late.compute()
    for name, args in REFUSED_ARRAYS:
        with pytest.raises(ValueError) as theirs:
            getattr(np.random.default_rng(0), name)(*map(np.asarray, args))
        with pytest.raises(ValueError) as ours:
            getattr(rng, name)(*map(dx.asarray, args))
        assert str(ours.value) == str(theirs.value)
    assert np.isnan(rng.standard_gamma(dx.asarray([np.nan, 1.0])).compute()).tolist() == [True, False]


def test_bounds_that_are_arrays_without_axes_are_looked_at() -> None:
    rng = dx.random.default_rng(0)
    for low, high in ((0, dx.asarray(-1)), (dx.asarray(3), 2), (0, dx.asarray([-4, 1]).sum())):
        with pytest.raises(ValueError, match="low >= high"):
            rng.integers(low, high, 5).compute()


REFUSED: list[tuple[str, tuple[Any, ...]]] = [
    *(("normal", (0, -1)), ("lognormal", (0, -1)), ("uniform", (3, 1)), ("uniform", (0, np.inf))),
    *(("triangular", (3, 2, 4)), ("triangular", (1, 5, 4)), ("triangular", (1, 1, 1)), ("wald", (0, 1))),
    *(("exponential", (-1,)), ("laplace", (0, -1)), ("logistic", (0, -1)), ("gumbel", (0, -1)), ("rayleigh", (-1,))),
    *(("weibull", (-1,)), ("pareto", (0,)), ("power", (0,)), ("standard_gamma", (-1,)), ("gamma", (1, -1))),
    *(("chisquare", (0,)), ("noncentral_chisquare", (1, -1)), ("f", (1, 0)), ("standard_t", (0,)), ("beta", (0, 1))),
    *(("vonmises", (0, -1)), ("poisson", (-1,)), ("poisson", (np.nan,)), ("poisson", (1e30,)), ("binomial", (-1, 0.5))),
    *(("binomial", (5, 1.5)), ("binomial", (5, [np.nan])), ("negative_binomial", (0, 0.5)), ("geometric", (0,))),
    *(("negative_binomial", (3, 2)), ("hypergeometric", (-1, 2, 1)), ("hypergeometric", (1, 2, 4)), ("zipf", (1,))),
    *(("hypergeometric", (10**9, 2, 4)), ("logseries", (1,)), ("integers", (5, 5)), ("integers", ([1, 5], [2, 5]))),
    *(("choice", (0, 3)), ("choice", ([], 3)), ("choice", (3, 5, False)), ("choice", (3, 2, True, [0.5, 0.5]))),
    *(("choice", (3, 2, True, [0.5, 0.5, 0.5])), ("choice", (3, 2, True, [0.5, 1.0, -0.5]))),
    *(("choice", (3, 2, False, [1, 0, 0])), ("choice", (3, 2, True, [[0.5, 0.5, 0]])), ("choice", (2.5,))),
    *(("multinomial", (-1, [0.5, 0.5])), ("multivariate_normal", ([1, 2], [[1, 2]]))),
    *(("multivariate_hypergeometric", ([1, 2], 5)), ("multivariate_hypergeometric", ([-1, 2], 1))),
    *(
        ("multivariate_hypergeometric", ([1.5, 2], 1)),
        ("multivariate_hypergeometric", (5, 1)),
        ("multinomial", (3, [])),
    ),
    ("negative_binomial", (2**62, 0.1)),
]


#: Distributions of floats, whose formulas or samplers see parameters when they run.
CONTINUOUS = [
    *("normal", "lognormal", "uniform", "triangular", "wald", "exponential", "laplace", "logistic", "gumbel"),
    *("rayleigh", "weibull", "pareto", "power", "gamma", "vonmises"),
]


@pytest.mark.parametrize(("name", "args"), [row for row in REFUSED if row[0] in CONTINUOUS and np.inf not in row[1]])
def test_numbers_of_illegal_parameters_that_wait_are_nan_or_an_error(name: str, args: tuple[Any, ...]) -> None:
    with force_tiles(2):
        drawn = getattr(dx.random.default_rng(0), name)(*[dx.asarray([float(a)] * 6) + 0.0 for a in args])
        try:
            found = drawn.compute()
        except ValueError:
            return
    assert np.isnan(found).all()


@pytest.mark.parametrize("name", ["normal", "uniform", "triangular", "exponential", "weibull", "power"])
def test_parameters_that_wait_give_the_numbers_of_known_ones(name: str) -> None:
    args = {"uniform": (-1.0, 2.0), "normal": (1.0, 0.0), "triangular": (0.0, 1.0, 1.0)}.get(name, (2.0,))
    with force_tiles(2):
        waiting = getattr(dx.random.default_rng(0), name)(*[dx.asarray([a] * 6) + 0.0 for a in args]).compute()
    np.testing.assert_array_equal(waiting, getattr(dx.random.default_rng(0), name)(*args, size=6).compute())


@pytest.mark.parametrize(("name", "args"), REFUSED)
def test_bad_parameters_are_refused_at_the_call_in_numpys_words(name: str, args: tuple[Any, ...]) -> None:
    with pytest.raises((ValueError, OverflowError)) as theirs:
        getattr(np.random.default_rng(0), name)(*args)
    with pytest.raises(theirs.type) as ours:
        getattr(dx.random.default_rng(0), name)(*args)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda r: r.integers(0, 300, dtype=np.int8), ValueError),
        (lambda r: r.integers(-1, 3, dtype=np.uint8), ValueError),
        (lambda r: r.integers(3, dtype=float), TypeError),
        (lambda r: r.integers([1.5], 3), TypeError),
        (lambda r: r.random(3, dtype=int), TypeError),
        (lambda r: r.random(3, place="here"), TypeError),
        (lambda r: r.random(3, out=dx.zeros(4)), ValueError),
        (lambda r: r.random(out=dx.zeros(4, np.float32)), TypeError),
        (lambda r: r.normal([1, 2], 1, 3), ValueError),
        (lambda r: r.multinomial(3, [0.9, 0.9, 0.1]), ValueError),
        (lambda r: r.multinomial(3, 0.5), ValueError),
        (lambda r: r.dirichlet([-1, 2]), ValueError),
        (lambda r: r.shuffle((1, 2, 3)), TypeError),
        (lambda r: r.shuffle({1, 2}), TypeError),
        (lambda r: r.shuffle(np.array(3)), TypeError),
        (lambda r: r.shuffle(dx.asarray(3)), TypeError),
        (lambda r: r.shuffle(np.arange(3), 1), np.exceptions.AxisError),
        (lambda r: r.shuffle([1, 2], 1), NotImplementedError),
        (lambda r: r.binomial(np.nan, 0.5), ValueError),
        (lambda r: r.multinomial(np.nan, [0.5, 0.5]), ValueError),
        (lambda r: r.integers(0, np.nan), ValueError),
        (lambda r: r.integers(0, np.inf), OverflowError),
        (lambda r: r.permutation(np.zeros((2, 3)), 2), IndexError),
    ],
)
def test_what_cannot_be_drawn_is_refused_at_the_call(call: Callable[[Any], Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        call(dx.random.default_rng(0))


@pytest.mark.parametrize("is_ours", [False, True])
@pytest.mark.parametrize("name", ["binomial", "hypergeometric", "multinomial"])
def test_counts_are_integers_or_numbers_that_become_some(name: str, is_ours: bool) -> None:
    others = {"binomial": (1.0,), "hypergeometric": (0, 1), "multinomial": ([1.0],)}[name]
    found: list[Any] = []
    numbers = [2.9, -0.5, [2.9, 3], np.float64(1.5), True, np.nan, [np.nan], np.inf, 2**63, None, "a", "2", b"a", ["a"]]
    for n in [*numbers, *[np.array([2]).astype(d) for d in ("f8", "u8", "u4", "i1", "?", "c8", "m8[s]")]]:
        for xp in (np, dx):
            given = dx.asarray(n) if is_ours and xp is dx and isinstance(n, np.ndarray) else n
            try:
                found.append(np.asarray(getattr(xp.random.default_rng(0), name)(given, *others)).tolist())
            except (TypeError, ValueError, OverflowError) as error:
                found.append(type(error))
        assert found[-1] == found[-2], n


@pytest.mark.parametrize(
    ("name", "args"), [("normal", (10**20, 0)), ("uniform", (10**20, 10**20)), ("binomial", (3, 10**20))]
)
def test_integers_of_more_than_64_bits_are_numbers(name: str, args: tuple[int, ...]) -> None:
    found: list[Any] = []
    for xp in (np, dx):
        try:
            found.append(float(getattr(xp.random.default_rng(0), name)(*args)))
        except ValueError:
            found.append(ValueError)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "value", ["a", b"a", "1", ["a"], 1j, np.datetime64("2020"), np.timedelta64(1, "s"), np.array(["a"])], ids=repr
)
@pytest.mark.parametrize("name", ["normal", "poisson", "exponential", "uniform", "geometric", "choice"])
def test_what_is_no_number_is_refused_as_numpys(name: str, value: Any) -> None:
    if name == "choice" and isinstance(value, list | np.ndarray):
        return  # texts are drawn by numpy
    with pytest.raises((TypeError, ValueError)) as theirs:
        getattr(np.random.default_rng(0), name)(value)
    with pytest.raises(theirs.type):
        getattr(dx.random.default_rng(0), name)(value)


@pytest.mark.parametrize(
    "make", [lambda: dx.full((2**45, 2), 0.5), lambda: dx.broadcast_to(dx.ones(2) / 2, (2**45, 2))]
)
def test_what_has_too_many_parameters_to_look_at_is_still_described(make: Callable[[], Any]) -> None:
    rng, shares = dx.random.default_rng(0), make()
    for x in (rng.multinomial(3, shares), rng.normal(shares, shares), rng.binomial(3, shares)):
        assert x.shape == (2**45, 2)


def test_results_are_written_into_what_is_given() -> None:
    for draw in (
        lambda r, **o: r.random(**o),
        lambda r, **o: r.standard_normal(**o),
        lambda r, **o: r.standard_exponential(**o),
        lambda r, **o: r.standard_gamma(2.0, **o),
    ):
        x = dx.zeros((4, 6), np.float32)
        view = x[::2]
        made = draw(dx.random.default_rng(2), out=view, dtype=np.float32)
        assert made is view
        assert_equal(x[::2], draw(dx.random.default_rng(2), size=(2, 6), dtype=np.float32).compute())
        assert not x[1::2].any()


# ------------------------------------------------------------------------------------------------------ order


@pytest.mark.parametrize("tiles", [1, 3])
def test_permutation_choice_and_shuffle_rearrange(tiles: int) -> None:
    with force_tiles(tiles):
        rng = dx.random.default_rng(0)
        assert sorted(rng.permutation(20).tolist()) == list(range(20))
        x = dx.arange(12).reshape(6, 2) + 0
        view = x[:, 0]
        rng.shuffle(x)
        assert sorted(view.tolist()) == list(range(0, 12, 2))
        assert_equal(x[:, 1] - x[:, 0], np.ones(6, int))
        rng.shuffle(x[::-1, 1], axis=0)
        assert sorted(x[:, 1].tolist()) == list(range(1, 12, 2))
        assert len(set(rng.choice(10, 10, replace=False).tolist())) == 10
        y = dx.asarray(np.arange(30).reshape(5, 6))
        host = rng.permuted(y, axis=1).compute()
        assert_equal(dx.sort(dx.asarray(host), axis=1), y.compute())
        assert len({tuple(row % 6) for row in host}) > 1  # each row another order
        assert rng.permuted(y, axis=0, out=y) is y
        assert (np.sort(y.compute(), axis=0) == np.arange(30).reshape(5, 6)).all()


def test_choice_follows_the_weights() -> None:
    rng = dx.random.default_rng(0)
    p = np.array([0.5, 0.0, 0.3, 0.2])
    drawn = rng.choice(np.array([7, 8, 9, 10]), 20_000, p=dx.asarray(p)).compute()
    shares = np.bincount(drawn - 7, minlength=4) / 20_000
    assert shares[1] == 0
    np.testing.assert_allclose(shares, p, atol=5 * 0.5 / 20_000**0.5)
    # without putting back: pairs in the order in which they are drawn
    pairs = np.array([rng.choice(4, 2, replace=False, p=p).compute() for _ in range(300)])
    assert not (pairs == 1).any()
    assert (pairs[:, 0] != pairs[:, 1]).all()
    assert abs((pairs[:, 0] == 0).mean() - 0.5) < 5 * 0.5 / 300**0.5


def test_every_permutation_is_as_likely_as_the_others() -> None:
    stats = pytest.importorskip("scipy.stats")
    orders = dx.random.default_rng(1).permuted(np.tile(np.arange(4), (12_000, 1)), axis=1).compute()
    counts = np.unique(orders @ np.array([64, 16, 4, 1]), return_counts=True)[1]
    assert len(counts) == 24
    assert stats.chisquare(counts).pvalue > 1e-4


# ------------------------------------------------------------------------------------------------ integers, bytes


@pytest.mark.parametrize("bounds", [(5,), (-3, 4), (0, 1), (-(2**63), 2**63), (2**40, 2**40 + 3), (0, 2**63)], ids=str)
def test_integers_keep_their_bounds(bounds: tuple[int, ...]) -> None:
    x = dx.random.default_rng(0).integers(*bounds, size=1000)
    low, high = (0, *bounds) if len(bounds) == 1 else bounds
    host = x.compute()
    assert host.dtype == np.int64
    assert host.min() >= low
    assert int(host.max()) < high
    if high - low < 100:
        assert set(host.tolist()) == set(range(low, high))


def test_integers_of_arrays_and_of_every_dtype() -> None:
    rng = dx.random.default_rng(0)
    for dtype in (np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64):
        least, most = (0, 1) if dtype is np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        x = rng.integers(least, most, 2000, dtype, endpoint=True).compute()
        assert x.dtype == dtype
        middle = (int(least) + int(most)) / 2
        assert abs(x.astype(float).mean() - middle) < 5 * (float(most) - float(least)) / 12**0.5 / 2000**0.5 + 1
    assert rng.integers([0, 2**64 - 2], 2**64, (50, 2), np.uint64).compute().min(axis=0).tolist()[1] >= 2**64 - 2
    big = rng.integers(0, 3 * 2**40, 20_000).compute()
    assert np.histogram(big, 3, (0, 3 * 2**40))[0].min() > 6300


@pytest.mark.parametrize(
    "bounds",
    [
        (0, 1e3),
        (0, 10.0),
        (1.9, 3.2),
        (-0.5, 1),
        (np.float32(2.5), None),
        (np.array(2.5), 4),
        (0, dx.asarray([1, 9.5]).max()),
    ],
)
def test_integers_take_numbers_with_a_point(bounds: tuple[Any, ...]) -> None:
    low, high = (0, bounds[0]) if bounds[1] is None else bounds
    host = dx.random.default_rng(0).integers(*bounds, size=9000).compute()
    assert (host.min(), host.max() + 1) == (int(low), int(high))


@pytest.mark.parametrize("bounds", [(0, 0), (0, -10), (5, 3), ([1, 2], [0, 0]), (0, 2**70)])
def test_no_integers_need_no_bounds(bounds: tuple[Any, Any]) -> None:
    for size in (0, (3, 0, 4)):
        expected = np.random.default_rng(0).integers(*bounds, size, np.int8)
        assert_equal(dx.random.default_rng(0).integers(*bounds, size, np.int8), expected)


def test_numbers_that_reductions_return_are_integers() -> None:
    n = dx.asarray([2, 5, 3]).max()
    for number in (n, np.array(5)):
        assert_equal(dx.random.default_rng(1).choice(number, 9), dx.random.default_rng(1).choice(5, 9).compute())
    assert_equal(dx.random.default_rng(1).permutation(n), dx.random.default_rng(1).permutation(5).compute())
    assert_equal(dx.random.default_rng(1).integers(n, size=3), dx.random.default_rng(1).integers(5, size=3).compute())
    assert int(dx.random.default_rng(n).integers(100)) == int(dx.random.default_rng(5).integers(100))


def test_bytes() -> None:
    made = dx.random.default_rng(0).bytes(1001)
    assert isinstance(made, bytes)
    assert len(made) == 1001
    assert len(set(made)) > 200


def test_uniform_numbers_are_in_the_half_open_interval() -> None:
    x = dx.random.default_rng(0).random(100_000, np.float32).compute()
    assert x.min() >= 0
    assert x.max() < 1


# ---------------------------------------------------------------------------------------------------- evaluation


def test_random_arrays_are_deferred_and_kept_while_they_fit() -> None:
    with dx.testing.counting() as c:
        x = dx.random.default_rng(0).random((1000, 1000))
        assert c.tasks == c.evaluations == 0
        float(x.sum())
    assert "not yet placed" not in repr(x)


def test_random_arrays_that_do_not_fit_are_made_again() -> None:
    with dx.config.set(memory_limit="2 MiB", block_bytes="64 KiB"):
        x = dx.random.default_rng(0).random((1000, 1000))
        mean, deviation = float(x.mean()), float(x.std())
        assert "not yet placed" in repr(x)
    host = x.compute()
    assert mean == pytest.approx(host.mean())
    assert deviation == pytest.approx(host.std())


LEGACY: dict[str, tuple[Any, ...]] = {
    "rand": (3, 4),
    "randn": (3, 4),
    "randint": (2, 9, (3, 4)),
    "random_integers": (6, None, (3, 4)),
    "random_sample": ((3, 4),),
    "ranf": ((3, 4),),
    "sample": ((3, 4),),
    "random": ((3, 4),),
    "uniform": (-1, 1, (3, 4)),
    "normal": (2, 0.5, (3, 4)),
    "standard_normal": ((3, 4),),
    "choice": (5, (3, 4)),
    "permutation": (7,),
    "beta": (1.0, 2.0, (3, 4)),
    "binomial": (9, 0.5, (3, 4)),
    "poisson": (4.0, (3, 4)),
}


@pytest.mark.parametrize("name", LEGACY)
def test_functions_of_the_process_have_numpys_shapes_dtypes_and_one_seed(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy would rather not have some of them
        expected = getattr(np.random, name)(*LEGACY[name])
    dx.random.seed(11)
    first, second = (getattr(dx.random, name)(*LEGACY[name]) for _ in range(2))
    assert (first.shape, first.dtype) == (expected.shape, expected.dtype)
    state = dx.random.get_state()
    third = np.asarray(getattr(dx.random, name)(*LEGACY[name]))
    with dx.use(dx.Team((3,), ("T",), members=(0, 1, 2))), force_tiles(3):
        method = {"ranf": "random_sample", "sample": "random_sample"}.get(name, name)
        again = getattr(dx.random.RandomState(11), method)(*LEGACY[name])
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, second)
    dx.random.set_state(state)
    np.testing.assert_array_equal(getattr(dx.random, name)(*LEGACY[name]), third)


def test_every_function_of_numpys_random_is_there() -> None:
    assert set(np.random.__all__) <= set(dx.random.__all__)


def test_integers_of_both_ends_are_drawn() -> None:
    state = dx.random.RandomState(2)
    assert set(np.asarray(state.random_integers(3, size=200)).tolist()) == {1, 2, 3}
    assert set(np.asarray(state.random_integers(-1, 1, 200)).tolist()) == {-1, 0, 1}
    assert set(np.asarray(state.randint(3, size=200)).tolist()) == {0, 1, 2}
    assert int(state.tomaxint(10).min()) >= 0


def test_host_arrays_and_lists_are_shuffled_in_place() -> None:
    rng = dx.random.default_rng(3)
    a, items = np.arange(40).reshape(20, 2), list("abcdefgh")
    rng.shuffle(a)
    rng.shuffle(items)
    assert a.tolist() != np.arange(40).reshape(20, 2).tolist()
    assert sorted(a.tolist()) == np.arange(40).reshape(20, 2).tolist()
    assert items != list("abcdefgh")
    assert sorted(items) == list("abcdefgh")
    rng.shuffle(a, axis=1)
    assert sorted(map(sorted, a.tolist())) == np.arange(40).reshape(20, 2).tolist()


@pytest.mark.parametrize(
    "make", [lambda: memoryview(np.arange(9)), lambda: array.array("d", range(9)), lambda: [[]] * 8 + [1]]
)
def test_other_sequences_are_shuffled_in_place(make: Callable[[], Any]) -> None:
    x = make()
    dx.random.default_rng(1).shuffle(x)
    assert list(x) != list(make())
    assert sorted(map(str, x)) == sorted(map(str, make()))


def test_what_is_no_sequence_is_shuffled_with_a_warning() -> None:
    x = {k: k for k in range(9)}
    with pytest.warns(UserWarning, match="you are shuffling a 'dict' object"):
        dx.random.default_rng(1).shuffle(x)
    assert sorted(x.values()) == list(range(9))
    assert list(x.values()) != list(range(9))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_weights_sum_to_one_within_the_rounding_of_their_dtype(dtype: type) -> None:
    p = np.array([4, 4, 2], dtype) / 10
    assert int(dx.random.default_rng(0).choice([1, 2, 3], p=p)) in (1, 2, 3)
    with pytest.raises(ValueError, match="do not sum to 1"):
        dx.random.default_rng(0).choice([1, 2, 3], p=p * dtype(0.9))


def test_threads_that_share_a_generator_draw_different_arrays() -> None:
    rng = dx.random.default_rng(4)
    with ThreadPoolExecutor(8) as pool:
        drawn = list(pool.map(lambda _: float(rng.random()), range(400)))
    assert len(set(drawn)) == 400
