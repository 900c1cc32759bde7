"""A write changes what it names and nothing else, whichever tiles it reaches: no result has memory that nobody wrote.

All memory that is handed out uninitialised, fresh or recycled, is full of a pattern here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers import some

import distarray as dx
from distarray.testing import force_tiles, poisoned_buffers


@pytest.fixture(autouse=True)
def _poisoned() -> Iterator[None]:
    with poisoned_buffers():
        yield


def test_uninitialised_memory_is_poisoned() -> None:
    """The check itself: what is made and not written shows the pattern, from the pool and beside it."""
    for shape in [(3, 4), (300, 400)]:
        for _ in range(2):  # the second one is recycled
            x = dx.empty(shape, team=dx.Team((2,), ("R",)), sharding=("R", None))
            assert bool(dx.isnan(x).all())
            assert np.isnan(np.asarray(x)).all()
            del x
        assert not np.isin(np.asarray(dx.empty(shape, np.int64)), [0, 1]).any()


# One function for numpy and for distarray: the module, and the array to write. What it returns, if anything, is
# compared too; values that are to be written are made by numpy.

#: On arrays of any shape of one or more axes.
ANY: dict[str, Callable[[Any, Any], Any]] = {
    "slice": lambda xp, x: x.__setitem__(slice(1, 3), 7),
    "element": lambda xp, x: x.__setitem__((-1,) * x.ndim, 3),
    "strided": lambda xp, x: x.__setitem__((..., slice(1, None, 3)), 5),
    "reversed": lambda xp, x: x.__setitem__(slice(None, None, -1), x[...].copy()),
    "overlapping": lambda xp, x: x.__setitem__(slice(1, None), x[:-1]),
    "broadcast": lambda xp, x: x.__setitem__(..., np.arange(x.shape[-1])),
    "nothing": lambda xp, x: x.__setitem__(slice(2, 2), 7),
    "rows": lambda xp, x: x.__setitem__([0, -1], -3),
    "repeated rows": lambda xp, x: x.__setitem__([0, 0], np.arange(2 * x[0].size).reshape(2, *x.shape[1:])),
    "last axis at positions": lambda xp, x: x.__setitem__((..., [0, -1]), 9),
    "mask": lambda xp, x: x.__setitem__(x > 3, 1),
    "mask of few": lambda xp, x: x.__setitem__(x == 5, 1),
    "mask and values": lambda xp, x: x.__setitem__(x % 2 == 0, np.arange(int((np.asarray(x) % 2 == 0).sum()))),
    "mask of rows": lambda xp, x: x.__setitem__(np.arange(len(x)) % 3 == 1, 4),
    "put": lambda xp, x: xp.put(x, [0, 2, -1], [10, 20, 30]),
    "place": lambda xp, x: xp.place(x, x > 4, [1, 2, 3]),
    "putmask": lambda xp, x: xp.putmask(x, x > 4, np.asarray([1, 2, 3], x.dtype)),
    "copyto": lambda xp, x: xp.copyto(x, 2, where=x > 4),
    "copyto of a row": lambda xp, x: xp.copyto(x[-1:], 2),
    "put_along_axis": lambda xp, x: xp.put_along_axis(x, np.argmax(x[...], axis=0, keepdims=True), 99, axis=0),
    "add.at": lambda xp, x: np.add.at(x, [0, 0, -1], 5),
    "multiply.at": lambda xp, x: np.multiply.at(x, (slice(None, None, 2),), 3),
    "negative.at": lambda xp, x: np.negative.at(x, ([1, -1],)),
    "in place on a view": lambda xp, x: x[1::2].__iadd__(1),
    "in place twice": lambda xp, x: (x[:2].__imul__(2), x[1:].__isub__(1))[:0],
    "out": lambda xp, x: np.add(x[1:], 1, out=x[1:]) * 0,
    "out where": lambda xp, x: np.multiply(x, 2, out=x, where=x > 3) * 0,
    "reduction to a row": lambda xp, x: np.sum(x[:-1], axis=0, out=x[-1:].reshape(x.shape[1:])) * 0,
    "fill of a view": lambda xp, x: x[..., 1:].fill(8),
    "sort of a view": lambda xp, x: x[1:].sort(axis=0),
    "clip": lambda xp, x: np.clip(x[1:], 2, 5, out=x[1:]) * 0,
    "exchange": lambda xp, x: (x.__setitem__(0, x[-1].copy()), x.__setitem__(-1, x[0] + 1))[:0],
    "through flip": lambda xp, x: xp.flip(x).__setitem__(slice(0, 2), 6),
    "through ravel": lambda xp, x: x.reshape(-1).__setitem__(slice(1, None, 2), 6),
    "through flat": lambda xp, x: x.flat.__setitem__(slice(0, 3), 6),
    "through a new axis": lambda xp, x: x[None].__setitem__((0, slice(1, 2)), 6),
    "through squeeze": lambda xp, x: x[1:2].squeeze(0).__setitem__(..., 6),
    "through half of a reshape": lambda xp, x: x.reshape(-1, 1)[::2].__setitem__(..., 6),
}

#: On matrices.
MATRIX: dict[str, Callable[[Any, Any], Any]] = {
    "fill_diagonal": lambda xp, x: xp.fill_diagonal(x, 0),
    "fill_diagonal of values": lambda xp, x: xp.fill_diagonal(x, np.arange(1, 4)),
    "fill_diagonal wrapped": lambda xp, x: xp.fill_diagonal(x, -1, wrap=True),
    "diagonal of a view": lambda xp, x: xp.fill_diagonal(x[1:, :-1], 0),
    "diagonal backwards": lambda xp, x: xp.fill_diagonal(xp.fliplr(x), 0),
    "diagonal of a transpose": lambda xp, x: xp.fill_diagonal(x.T, 0),
    "diagonal of every second": lambda xp, x: xp.fill_diagonal(x[::2, ::2], 0),
    "diagonal twice": lambda xp, x: (xp.fill_diagonal(x, 1), xp.fill_diagonal(x[:, 1:], 2))[:0],
    "column": lambda xp, x: x.__setitem__((slice(None), 1), 4),
    "corner": lambda xp, x: x.__setitem__((slice(2, None), slice(2, None)), 4),
    "strided both": lambda xp, x: x.__setitem__((slice(None, None, 2), slice(None, None, -2)), 4),
    "pairs": lambda xp, x: x.__setitem__(([0, 1, 1], [1, 0, 0]), [4, 5, 6]),
    "grid": lambda xp, x: x.__setitem__(np.ix_([0, 2], [1, 0]), [[4, 5], [6, 7]]),
    "row of a transpose": lambda xp, x: x.T.__setitem__(1, 4),
    "positions of a transpose": lambda xp, x: x.T.__setitem__([0, -1], 4),
    "put_along_axis 1": lambda xp, x: xp.put_along_axis(x, np.zeros((len(x), 2), int) + [0, 1], 5, axis=1),
    "tril_indices": lambda xp, x: x.__setitem__(np.tril_indices(*x.shape[:1], m=x.shape[1]), 5),
    "diag_indices": lambda xp, x: x.__setitem__(np.diag_indices(min(x.shape)), 5),
    "add.at pairs": lambda xp, x: np.add.at(x, ([0, 1, 1], [1, 0, 0]), 5),
    "out of a product": lambda xp, x: np.multiply(x[:2, :2], x[-2:, -2:], out=x[1:3, 1:3]) * 0,
    "columns in place": lambda xp, x: x[:, ::2].__iadd__(np.arange(len(x))[:, None]),
}

COMPLEX: dict[str, Callable[[Any, Any], Any]] = {
    "real": lambda xp, x: x.real.__setitem__(slice(1, None), 5),
    "imag of a view": lambda xp, x: x[1:].imag.__setitem__((..., 0), 5),
    "diagonal of the real part": lambda xp, x: xp.fill_diagonal(x.real, 5),
    "imag in place": lambda xp, x: x.T.imag[1:].__iadd__(2),
}


def _grid(mesh: tuple[int, ...]) -> dx.Team:
    return dx.Team(mesh, ("r", "c", "d")[: len(mesh)])


#: Meshes with what cuts each axis of a matrix.
MATRIX_CUTS = [
    ((2,), ("r", None)), ((3,), (None, "r")), ((4,), ("r", None)),
    ((2, 2), ("r", "c")), ((2, 2), ("c", "r")), ((2, 3), ("r", "c")), ((3, 2), ("r", "c")), ((4, 1), ("r", "c")),
    ((2, 2), (("r", "c"), None)), ((2, 2), (None, "c")),
]  # fmt: skip
MATRIX_SHAPES = [(4, 4), (5, 7), (9, 4), (3, 3)]


def _check(
    name: str, write: Callable[[Any, Any], Any], values: np.ndarray, make: Callable[[np.ndarray], dx.DistArray]
) -> None:
    """One write, on an array that others need as it was, on one of which a copy is alive, and on one that is alone."""
    expected = values.copy()
    result = write(np, expected)
    for company in ("reader", "copy", "computed", "alone"):
        x = make(values)
        other: Any = None
        if company == "reader":
            other = x * 1
        elif company == "copy":
            other = x.copy()
        elif company == "computed":
            x = x * 1
            x.persist()
        returned = write(dx, x)
        if isinstance(result, np.ndarray):
            np.testing.assert_array_equal(np.asarray(returned), result, err_msg=f"{name}, {company}: returned")
        np.testing.assert_array_equal(np.asarray(x), expected, err_msg=f"{name}, {company}")
        if other is not None:
            np.testing.assert_array_equal(np.asarray(other), values, err_msg=f"{name}: what others see")


def _cut(mesh: tuple[int, ...], cut: tuple[Any, ...]) -> Callable[[np.ndarray], dx.DistArray]:
    return lambda a: dx.asarray(a, team=_grid(mesh), sharding=cut)


def _values(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    found = np.random.default_rng(len(shape)).permutation(int(np.prod(shape))).reshape(shape)
    return (found + 1j * found[::-1]).astype(dtype) if np.dtype(dtype).kind == "c" else found.astype(dtype)


@pytest.mark.parametrize("name", MATRIX | ANY)
@pytest.mark.parametrize("mesh", some([(2, 2), (3,)]), ids=str)
def test_a_write_leaves_the_rest_of_a_matrix(name: str, mesh: tuple[int, ...]) -> None:
    """Cut along both axes, and along one; square and oblong."""
    cut = ("r", "c")[: len(mesh)] if len(mesh) > 1 else ("r", None)
    for shape in [(4, 4), (7, 5)]:
        _check(name, (MATRIX | ANY)[name], _values(shape, float), _cut(mesh, cut))


@pytest.mark.parametrize("name", COMPLEX)
def test_a_write_to_a_part_leaves_the_rest_of_a_complex_matrix(name: str) -> None:
    for mesh, cut in MATRIX_CUTS[:6]:
        _check(name, COMPLEX[name], _values((5, 4), complex), _cut(mesh, cut))


@pytest.mark.parametrize("name", ANY)
def test_a_write_leaves_the_rest_of_a_vector_and_of_a_stack(name: str) -> None:
    _check(name, ANY[name], _values((7,), float), _cut((3,), ("r",)))
    _check(
        name,
        ANY[name],
        _values((3, 4, 5), float),
        _cut((2, 2), ("c", None, "r")),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", MATRIX | ANY)
@pytest.mark.parametrize("dtype", [float, "i4", "c16", "f4"])
def test_a_write_leaves_the_rest_on_every_mesh(name: str, dtype: Any) -> None:
    if np.dtype(dtype).kind == "c" and name in ("clip", "sort of a view", "put_along_axis", "mask and values"):
        pytest.skip("complex numbers have no order that numpy and a mask agree on")
    for shape in MATRIX_SHAPES:
        for mesh, cut in MATRIX_CUTS:
            _check(f"{name} {shape} {mesh} {cut}", (MATRIX | ANY)[name], _values(shape, dtype), _cut(mesh, cut))
        with force_tiles(3):
            _check(f"{name} {shape} forced", (MATRIX | ANY)[name], _values(shape, dtype), dx.asarray)


@pytest.mark.slow
@pytest.mark.parametrize("name", MATRIX)
def test_a_write_leaves_the_rest_of_recycled_memory(name: str) -> None:
    """Blocks that are large enough for the pool."""
    values = _values((500, 700), float)
    _check(name, MATRIX[name], values, _cut((2, 2), ("r", "c")))


@pytest.mark.cluster
def test_a_write_leaves_the_rest_on_a_cluster(cluster4: Any) -> None:
    for name in ("fill_diagonal", "diagonal of a view", "strided both", "grid", "add.at pairs", "through ravel"):
        _check(name, (MATRIX | ANY)[name], _values((5, 7), float), _cut((2, 2), ("r", "c")))


# ---------------------------------------------------------------------------------------------- random programs


def _random_view(rng: random.Random, x: Any) -> Callable[[Any], Any]:
    """A view that can be written, as a function of the base; of at most two links."""
    ndim = x.ndim

    def cut(n: int) -> slice:
        step = rng.choice([1, 1, 2, -1, -2, 3])
        a, b = sorted((rng.randrange(n + 1), rng.randrange(n + 1)))
        return slice(a, b, step) if step > 0 else slice(b - 1 if b else 0, a - 1 if a else None, step)

    index = tuple(cut(n) if rng.random() < 0.8 else rng.randrange(n) for n in x.shape)
    kind = rng.choice(["whole", "slice", "transposed", "flip", "flat", "slice of slice"])
    if kind == "slice":
        return lambda y: y[(*index, ...)]
    if kind == "transposed":
        return lambda y: y.T[(*index[::-1], ...)]
    if kind == "flip":
        return lambda y: y[::-1]
    if kind == "flat":
        lo, step = rng.randrange(x.size), rng.choice([1, 2, x.shape[-1] + 1])
        return lambda y: y.reshape(-1)[lo::step]
    if kind == "slice of slice":
        return lambda y: y[tuple(slice(None, None, 2) for _ in range(ndim))][..., ::-1]
    return lambda y: y


def _random_write(rng: random.Random, x: np.ndarray) -> Callable[[Any, Any], Any]:
    look = _random_view(rng, x)
    seen = look(x)
    number = rng.randrange(-9, 10)
    kinds = ["fill", "add", "values", "mask", "where", "self"]
    if seen.ndim == 2 and min(seen.shape) > 0:
        kinds += ["diagonal"] * 3
    if seen.ndim and seen.shape[0]:
        kinds += ["rows", "at"]
    kind = rng.choice(kinds)
    if kind == "fill":
        return lambda xp, y: look(y).__setitem__(..., number)
    if kind == "add":
        return lambda xp, y: look(y).__iadd__(number)
    if kind == "values":
        values = np.arange(float(seen.size)).reshape(seen.shape) + number
        return lambda xp, y: look(y).__setitem__(..., values)
    if kind == "mask":
        return lambda xp, y: look(y).__setitem__(look(y) > number, number)
    if kind == "where":
        return lambda xp, y: xp.copyto(look(y), number, where=look(y) < number)
    if kind == "self":
        return lambda xp, y: look(y).__setitem__(..., look(y)[::-1] if seen.ndim else look(y) + 1)
    if kind == "diagonal":
        return lambda xp, y: xp.fill_diagonal(look(y), number)
    rows = [rng.randrange(seen.shape[0]) for _ in range(rng.randrange(1, 4))]
    if kind == "rows":
        return lambda xp, y: look(y).__setitem__(rows, number)
    return lambda xp, y: np.add.at(look(y), rows, number)


def _run_program(seed: int) -> None:
    rng = random.Random(seed)
    shape = rng.choice([(4, 4), (5, 7), (9, 4), (6,), (3, 4, 5), (1, 6), (8, 8)])
    mesh = rng.choice([(2,), (3,), (2, 2), (3, 2), (2, 3)])
    team = _grid(mesh)
    names: list[Any] = [*team.mesh.names, *[None] * len(shape)]
    rng.shuffle(names)
    a = _values(shape, float)
    x = dx.asarray(a, team=team, sharding=tuple(names[: len(shape)]))
    a = a.copy()
    kept: list[tuple[Any, np.ndarray]] = []
    for step in range(rng.randrange(2, 8)):
        what = rng.random()
        if what < 0.2:
            kept.append((x + 0, a.copy()))
        elif what < 0.3:
            kept.append((x.copy(), a.copy()))
        elif what < 0.4:
            np.testing.assert_array_equal(np.asarray(x), a, err_msg=f"program {seed}, step {step}")
        write = _random_write(rng, a)
        write(np, a)
        write(dx, x)
    np.testing.assert_array_equal(np.asarray(x), a, err_msg=f"program {seed}")
    for y, b in kept:
        np.testing.assert_array_equal(np.asarray(y), b, err_msg=f"program {seed}: what was read before a write")


@pytest.mark.parametrize("part", range(4))
def test_random_programs_of_writes(part: int) -> None:
    for seed in range(20 * part, 20 * (part + 1)):
        _run_program(seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_many_random_programs_of_writes(part: int) -> None:
    for seed in range(1000 + 100 * part, 1000 + 100 * (part + 1)):
        _run_program(seed)


@pytest.mark.parametrize("seed", range(8))
def test_views_that_wait_keep_their_values_through_many_writes_to_single_tiles(seed: int) -> None:
    """Versions share the tiles that no write touched: none of them is written in place as long as a reader waits."""
    rng = np.random.default_rng(seed)
    a = np.arange(80.0).reshape(20, 4)
    x = dx.asarray(a, team=dx.Team((2, 2), ("r", "c")), sharding=("r", "c")) * 1.0
    x.persist()
    waiting: list[tuple[dx.DistArray, np.ndarray]] = []
    for _ in range(60):
        turn = rng.integers(4)
        i, j = int(rng.integers(20)), int(rng.integers(4))
        if turn == 0:
            waiting.append((x[i : i + 3, j] * 2, a[i : i + 3, j] * 2))
        elif turn == 1 and len(waiting) > 2:
            made, expected = waiting.pop(int(rng.integers(len(waiting))))
            np.testing.assert_array_equal(np.asarray(made), expected)
        else:
            x[i, j] = a[i, j] = -1.0 - turn
            x.persist()
    for made, expected in waiting:
        np.testing.assert_array_equal(np.asarray(made), expected)
    np.testing.assert_array_equal(np.asarray(x), a)
