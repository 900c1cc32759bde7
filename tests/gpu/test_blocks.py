"""Blocks on the device: what moves there and back, who shares memory, what is written in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing import no_host_copies

pytestmark = pytest.mark.gpu

VALUES = np.arange(240.0).reshape(12, 20)
DTYPES = ["?", "i1", "u2", "i4", "u8", "f4", "f8", "c8", "c16"]


def address(block: Any) -> int:
    return int(block.__cuda_array_interface__["data"][0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_moves_change_no_bit(device: str, dtype: str) -> None:
    """B-38: to the device and back, and to a team."""
    raw = np.random.default_rng(1).integers(0, 256, 16 * 60, dtype="u1")
    values = (raw[:60] > 99) if dtype == "?" else raw.view(dtype)[:60]
    x = dx.asarray(values.reshape(6, 10), device="cpu").to_device(device)
    back = x.to_device("cpu")
    assert (x.device, back.device) == (device, "cpu")
    assert np.asarray(back).tobytes() == values.tobytes()
    team = x.to_team(dx.Team((3,), ("R",)))
    assert np.asarray(team).tobytes() == values.tobytes()
    assert np.asarray(team.to_device("cpu")).tobytes() == values.tobytes()


def test_host_data_go_to_the_device_once(cuda: str) -> None:
    """B-44: what is made of host data is there, for DLPack too."""
    x = dx.asarray(VALUES, device=cuda)
    assert x.__dlpack_device__() == (2, 0)
    assert address(x.local(0)) == address(x.local(0))
    np.testing.assert_array_equal(np.asarray(x), VALUES)


def test_host_data_beyond_the_device_stay_on_the_host(cuda: str) -> None:
    """B-32: they are read in parts."""
    host = np.arange(1 << 22, dtype="f8").reshape(8192, 512)
    with dx.config.set({"device-memory-limit": host.nbytes // 3}):
        x = dx.asarray(host, device=f"{cuda}:0")
        np.testing.assert_allclose(np.asarray((x * 2).sum(axis=0)), host.sum(axis=0) * 2)


@pytest.mark.parametrize("layout", ["C", "F"])
def test_layouts_survive_the_move(cuda: str, layout: str) -> None:
    """C-12: strides stay."""
    x = dx.asarray(np.asarray(VALUES, order=layout), device=cuda).persist()
    np.testing.assert_array_equal(np.asarray(x), VALUES)
    np.testing.assert_array_equal(np.asarray(x.T @ x), VALUES.T @ VALUES)


def test_cupys_arrays_are_taken_and_given_without_a_copy(cuda: str) -> None:
    """B-44; DLPack."""
    import cupy

    mine = cupy.asarray(VALUES)
    x = dx.from_dlpack(mine)
    assert x.device == cuda
    theirs = cupy.from_dlpack(x)
    assert address(theirs) == address(mine)
    np.testing.assert_array_equal(cupy.asnumpy(theirs), VALUES)
    assert x.__dlpack_device__() == (2, 0)


def test_jax_reads_the_same_memory(cuda: str) -> None:
    import cupy

    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX has no GPU here")
    x = dx.asarray(VALUES.astype("f4"), device=cuda).persist()
    y = jax.dlpack.from_dlpack(x)
    assert y.unsafe_buffer_pointer() == address(cupy.from_dlpack(x))
    np.testing.assert_array_equal(np.asarray(y * 2), VALUES.astype("f4") * 2)
    back = dx.from_dlpack(jax.numpy.arange(6.0))
    np.testing.assert_array_equal(np.asarray(back + 1), np.arange(1.0, 7.0))


def test_writes_happen_in_place_and_every_alias_sees_them(device: str) -> None:
    """B-4, B-7."""
    x = dx.asarray(VALUES, device=device) + 0
    x.persist()
    view, mirrored, old = x[2:8, ::2], x[::-1], x + 1
    with no_host_copies():
        x[3] = -1.0
        view += 100.0
        x[x > 200] = 0.0
        x.persist()
    expected = VALUES.copy()
    expected[3] = -1
    expected[2:8, ::2] += 100
    expected[expected > 200] = 0
    np.testing.assert_array_equal(np.asarray(x), expected)
    np.testing.assert_array_equal(np.asarray(view), expected[2:8, ::2])
    np.testing.assert_array_equal(np.asarray(mirrored), expected[::-1])
    np.testing.assert_array_equal(np.asarray(old), VALUES + 1)


def test_views_copy_nothing(cuda: str) -> None:
    """B-5: a view, materialised, reads the memory of its base."""
    x = (dx.asarray(VALUES, device=cuda) + 0).persist()
    assert dx.shares_memory(x, x[2:7, ::3])
    np.testing.assert_array_equal(np.asarray(x[2:7, ::-3]), VALUES[2:7, ::-3])
    np.testing.assert_array_equal(np.asarray(x.T.reshape(-1)[5:11]), VALUES.T.reshape(-1)[5:11])


def test_a_chain_is_one_kernel(cuda: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from distarray.kernels import cupy_backend

    made = []
    kernel = cupy_backend._kernel
    monkeypatch.setattr(cupy_backend, "_kernel", lambda *source: made.append(source) or kernel(*source))
    x = dx.asarray(VALUES, device=cuda).persist()
    y = dx.sqrt(dx.exp(-(x * 0.01)) + 1) * x - dx.tanh(x) / 3
    y.persist()
    assert len(made) == 1
    np.testing.assert_allclose(np.asarray(y), np.sqrt(np.exp(-(VALUES * 0.01)) + 1) * VALUES - np.tanh(VALUES) / 3)


def test_mixed_devices_are_refused_and_host_literals_travel(device: str) -> None:
    """B-1."""
    x = dx.asarray(VALUES, device=device)
    with pytest.raises(dx.EnvironmentMismatchError):
        x + dx.asarray(VALUES, device="cpu")
    np.testing.assert_array_equal(np.asarray(x + VALUES[0]), VALUES + VALUES[0])


def test_observations_come_to_the_host(device: str) -> None:
    x = dx.asarray(VALUES, device=device)
    assert float(x.sum()) == VALUES.sum()
    assert int(x[1, 1]) == 21
    assert "239" in str(x)
    assert [float(v) for v in x[0, :3]] == [0, 1, 2]
