"""Transforms along cut axes: rows are dealt out to the members, rows that are few are cut themselves."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import pytest
from helpers import some

import distarray as dx
from distarray.errors import MemoryBudgetError
from distarray.ops import fft_lengths
from distarray.testing import counting, force_tiles
from distarray.testing.assertions import assert_close

NAMES = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
RNG = np.random.default_rng(3)
#: Beside the work on long rows tasks and messages cost nothing. On the few kilobytes of these tests a planner that
#: counts them rather lets members idle.
OF_LONG_ROWS = {"task": 0.0, "latency": 0.0}


@pytest.fixture
def team(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Four members, for whom every row is too long."""
    monkeypatch.setattr(fft_lengths, "WHOLE_ROW_NBYTES", 0)
    four = dx.Team((4,), ("T",))
    with dx.use(team=four), dx.config.set(block_bytes=512, calibration=OF_LONG_ROWS):
        yield four


def row(name: str, n: int, dtype: Any = np.complex128) -> Any:
    """A vector for the transform `name`, cut into four."""
    values = RNG.standard_normal(n) + 1j * RNG.standard_normal(n)
    x = values.real if name in ("rfft", "ihfft") else values
    single = np.dtype(dtype).itemsize == 8
    x = x.astype(np.float32 if x.dtype.kind == "f" else np.complex64) if single else x
    return dx.asarray(x, sharding=("T",)).persist()


def largest_share(x: Any) -> float:
    """The part of an array that its largest tile is."""
    sharding = x.persist().sharding
    tiles = [prod(b[t + 1] - b[t] for b, t in zip(sharding.boundaries(x.shape), tile)) for tile in sharding.tiles()]
    return max(tiles) / x.size


# 1024 and 1000 have factors, 997 and 1994 none for four members
@pytest.mark.parametrize("n", some([1024, 1000, 997, 1994]))
@pytest.mark.parametrize("name", NAMES)
def test_long_row_is_numpys(team: Any, name: str, n: int) -> None:
    x = row(name, n)
    host = x.compute()
    for length in (None, n // 2 + 27, n + 33):
        for norm in ("backward", "ortho", "forward"):
            made = getattr(dx.fft, name)(x, n=length, norm=norm)
            wanted = getattr(np.fft, name)(host, n=length, norm=norm)
            assert_close(made, wanted, rtol=0, atol=1e-14 * np.abs(wanted).max())


@pytest.mark.parametrize("name", NAMES)
def test_long_row_keeps_single_precision(team: Any, name: str) -> None:
    for n in (1024, 997):
        x = row(name, n, np.complex64)
        wanted = getattr(np.fft, name)(x.compute())
        assert wanted.dtype in (np.float32, np.complex64)
        assert_close(getattr(dx.fft, name)(x), wanted, rtol=0, atol=3e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("name", NAMES)
def test_long_row_of_half_floats_has_numpys_dtype(team: Any, name: str) -> None:
    host = RNG.standard_normal(1024).astype(np.float16)
    wanted = getattr(np.fft, name)(host)
    made = getattr(dx.fft, name)(dx.asarray(host, sharding=("T",)))
    assert_close(made, wanted, rtol=0, atol=2e-3 * np.abs(wanted).max())


def test_few_long_rows_along_any_axis(team: Any) -> None:
    x = RNG.standard_normal((600, 3))
    cut = dx.asarray(x, sharding=("T", None)).persist()
    wanted = np.fft.fft(x, axis=0)
    made = dx.fft.fft(cut, axis=0)
    assert largest_share(made) < 0.3
    assert_close(made, wanted, rtol=0, atol=1e-14 * np.abs(wanted).max())


def test_inverse_of_a_long_row_gives_back(team: Any) -> None:
    x = row("rfft", 1500)
    assert_close(dx.fft.irfft(dx.fft.rfft(x)), x.compute(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("n", [4096, 4093])
def test_no_task_holds_a_long_row(team: Any, n: int) -> None:
    # Bluestein's rows are twice as long, and several at a time
    with dx.use(team=dx.Team((4 if n == 4096 else 8,), ("T",))):
        x = row("fft", n)
        whole = 2 * x.nbytes  # operand and result
        limit = whole // 2 if n == 4096 else whole
        with dx.config.set(memory_limit=limit - 1), counting() as c:
            made = dx.fft.fft(x).persist()
    assert c.by_class["tile"] >= 16
    assert largest_share(made) < 0.26
    # each of three transposes moves three quarters, of a padded row those of twice as much
    assert c.bytes_moved <= 3 * x.nbytes * (1 if n == 4096 else 8)


def test_rows_are_whole_where_one_process_has_room() -> None:
    with dx.use(team=dx.Team((4,), ("T",))), dx.config.set(block_bytes=512):
        x = row("fft", 1024)
        with counting() as c:
            made = dx.fft.fft(x).persist()
        assert c.by_class["tile"] == 1
        np.testing.assert_array_equal(made.compute(), np.fft.fft(x.compute()))


def test_a_row_without_room_for_its_parts_is_refused(team: Any) -> None:
    # of 13 elements no two factors are as large as four
    with dx.config.set(memory_limit=256, block_bytes=64), pytest.raises(MemoryBudgetError, match="fft"):
        dx.fft.fft(row("fft", 13)).persist()


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["fft", "rfft", "irfft"])
def test_transform_along_a_cut_axis_deals_out_the_rows(team: Any, name: str, axis: int) -> None:
    x = RNG.standard_normal((64, 48))
    cut = dx.asarray(x, sharding=("T", None) if axis == 0 else (None, "T")).persist()
    with counting() as c:
        made = getattr(dx.fft, name)(cut, axis=axis).persist()
    assert largest_share(made) == 0.25
    # one exchange: three quarters of the array leave where they are
    assert c.bytes_moved == cut.nbytes * 3 // 4
    wanted = getattr(np.fft, name)(x, axis=axis)
    assert_close(made, wanted, rtol=0, atol=1e-14 * np.abs(wanted).max())


@pytest.mark.parametrize("shape", [(24, 20), (12, 10, 9)])
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
def test_transform_over_all_axes_never_gathers(team: Any, name: str, shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape)
    for axis in range(len(shape)):
        cut = dx.asarray(x, sharding=tuple("T" if a == axis else None for a in range(len(shape)))).persist()
        wanted = getattr(np.fft, name)(x)
        # a task that had it all would need this much for its operand and its result
        with dx.config.set(memory_limit=2 * cut.nbytes):
            made = getattr(dx.fft, name)(cut)
            assert largest_share(made) < 0.4
        assert_close(made, wanted, rtol=0, atol=1e-14 * np.abs(wanted).max())


@pytest.mark.parametrize("n", [3, 11, 20])
def test_padding_and_cutting_of_uneven_tiles(n: int) -> None:
    x = RNG.standard_normal((7, 8)) + 1j * RNG.standard_normal((7, 8))
    with force_tiles(3), dx.config.set(block_bytes=64):
        for axis in (0, 1):
            for name in ("fft", "irfft", "hfft"):
                wanted = getattr(np.fft, name)(x, n=n, axis=axis)
                made = getattr(dx.fft, name)(dx.asarray(x), n=n, axis=axis)
                assert_close(made, wanted, rtol=0, atol=1e-14 * np.abs(wanted).max())


def test_frequencies_have_the_dtype_and_place_that_are_asked_for(team: Any) -> None:
    for name in ("fftfreq", "rfftfreq"):
        made = getattr(dx.fft, name)(1000, d=0.5, dtype=np.float32, device="cpu", sharding=("T",))
        assert largest_share(made) < 0.26
        assert_close(made, getattr(np.fft, name)(1000, d=0.5).astype(np.float32), rtol=1e-7, atol=0)


@pytest.mark.cluster
def test_long_rows_on_a_cluster_lie_on_all_workers(cluster4: Any) -> None:
    with dx.config.set(block_bytes=512, calibration=OF_LONG_ROWS):
        for n in (1024, 997):
            x = dx.random.default_rng(0).standard_normal(n).persist()
            made = dx.fft.fft(x)
            assert largest_share(made) < 0.26
            wanted = np.fft.fft(x.compute())
            assert_close(made, wanted, rtol=0, atol=1e-14 * np.abs(wanted).max())
