"""A local cluster whose members have GPUs: member programs, messages between them, writes in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distarray as dx

pytest.importorskip("distributed")

pytestmark = [pytest.mark.gpu, pytest.mark.cluster, pytest.mark.timeout(120)]

VALUES = np.random.default_rng(2).standard_normal((400, 300))


def rows(values: np.ndarray, device: str) -> dx.DistArray:
    return dx.asarray(values, device=device, sharding=(dx.current_team().axes, None))


def test_members_exchange_blocks(cluster4: Any, device: str) -> None:
    x = rows(VALUES, device)
    gram = x.T @ x
    centred = x - x.mean(axis=0)
    smooth = (x[1:-1] + x[:-2] + x[2:]) / 3
    for made, expected in (
        (gram, VALUES.T @ VALUES),
        (centred.std(axis=0), (VALUES - VALUES.mean(axis=0)).std(axis=0)),
        (smooth, (VALUES[1:-1] + VALUES[:-2] + VALUES[2:]) / 3),
        (dx.sort(x[:, 0]), np.sort(VALUES[:, 0])),
    ):
        assert made.device == device
        np.testing.assert_allclose(np.asarray(made), expected, rtol=1e-10, atol=1e-11)


def test_a_loop_with_writes_in_place(cluster4: Any, device: str) -> None:
    u, expected = rows(VALUES, device), VALUES.copy()
    for _ in range(5):
        u[1:-1] = 0.5 * u[1:-1] + 0.25 * (u[:-2] + u[2:])
        expected[1:-1] = 0.5 * expected[1:-1] + 0.25 * (expected[:-2] + expected[2:])
    np.testing.assert_allclose(np.asarray(u), expected, rtol=1e-12)
