"""What a live handle shows is computed once: also what it shows through lenses, and what is persisted of a view."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.expr.bind import bind_get
from distarray.ops.lenses import slice_lens
from distarray.runtime import small
from distarray.testing import counting

N = 40


@pytest.fixture(autouse=True)
def _planned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is computed at the call, nor without a plan: kernels are counted."""
    monkeypatch.setattr(small, "SMALL_NBYTES", 0)
    monkeypatch.setattr(small, "BRIEF_NBYTES", 0)
    with dx.config.set(eager_bytes=0):
        yield


def given() -> dx.DistArray:
    return dx.asarray(np.random.default_rng(0).random((N, N))).persist()


#: Arrays whose elements a kernel makes in another order of axes, or of which a part is seen.
SHOWN: dict[str, Callable[[Any, Any], Any]] = {
    "transform along another axis": lambda xp, x: xp.fft.fft(x, axis=0),
    "sort along another axis": lambda xp, x: xp.sort(x, axis=0),
    "real part": lambda xp, x: xp.real(xp.fft.fft(x, axis=0)),
    "rows": lambda xp, x: (x @ x)[3:],
    "transpose": lambda xp, x: (x + 1).T,
}


def kernels(counts: Any) -> int:
    return sum(n for (name, _), n in counts.kernels.items() if name in ("fft", "sort", "einsum", "add"))


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("keep", [lambda y: y.persist(), dx.persist, dx.wait])
def test_what_was_persisted_is_not_computed_again(name: str, keep: Callable[[Any], Any]) -> None:
    y = SHOWN[name](dx, given())
    keep(y)
    with counting() as counts:
        keep(y)
        dx.wait(y)
    assert counts.evaluations == 0
    with counting() as counts:
        host = np.asarray(y)
    assert kernels(counts) == 0
    np.testing.assert_allclose(host, SHOWN[name](np, np.asarray(given())), rtol=1e-12)


@pytest.mark.parametrize("name", SHOWN)
def test_what_a_handle_shows_is_kept_when_others_need_it(name: str) -> None:
    y = SHOWN[name](dx, given())
    with counting() as counts:
        total = complex(abs(y).sum())
    assert kernels(counts) > 0
    with counting() as counts:
        host = np.asarray(y)
    assert kernels(counts) == 0
    np.testing.assert_allclose(total, abs(host).sum(), rtol=1e-12)


def test_a_view_that_was_persisted_sees_later_writes() -> None:
    base = dx.fft.fft(given(), axis=0)
    y = dx.real(base).persist()
    base[0] = 3
    expected = np.fft.fft(np.asarray(given()), axis=0)
    expected[0] = 3
    np.testing.assert_allclose(np.asarray(y.persist()), expected.real, rtol=1e-12, atol=1e-12)


def test_a_small_part_of_a_large_intermediate_result_is_kept_alone() -> None:
    x = given()
    y = x._on(bind_get((x * 2)._node(), slice_lens((N, N), 0, 0, 10)))
    z = float(y.sum())
    with counting() as counts:
        host = np.asarray(y)
    assert counts.evaluations == 0 and host.shape == (10, N)
    np.testing.assert_allclose(z, host.sum())
