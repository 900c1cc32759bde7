"""Host arrays that are cut at their first use, beside arrays that are cut already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.runtime.counters import counting

PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, c: a + c,
    "product": lambda a, c: a @ c,
    "reduction": lambda a, c: (a * c).sum(axis=0),
    "transposed": lambda a, c: a + c.T,
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("is_first", [True, False])
def test_an_array_that_lies_already_is_not_cut_again_beside_new_host_data(name: str, is_first: bool) -> None:
    """The second program has the key of the first, in which both arrays were still to be cut."""
    rng = np.random.default_rng(0)
    host = rng.random((400, 400))
    team = dx.Team((2,), ("x",))
    a = dx.asarray(host, team=team)
    for _ in range(4):
        new = rng.random((400, 400))
        c = dx.asarray(new, team=team)
        pair, hosts = ((a, c), (host, new)) if is_first else ((c, a), (new, host))
        np.testing.assert_allclose(np.asarray(PROGRAMS[name](*pair)), PROGRAMS[name](*hosts))
        np.testing.assert_array_equal(np.asarray(a), host)


def test_sorting_twice_leaves_the_array_alone() -> None:
    host = np.random.default_rng(1).random(300)
    with dx.config.set(block_bytes=100):
        x = dx.asarray(host, team=dx.Team((3,), ("x",)))
        for _ in range(3):
            np.testing.assert_array_equal(np.asarray(dx.sort(x)), np.sort(host))
            np.testing.assert_array_equal(np.asarray(x), host)


@pytest.mark.cluster
def test_small_arrays_of_the_client_are_computed_there(cluster4: Any) -> None:
    """A number of the workers takes milliseconds: what numpy does in less with what is here stays here."""
    a = np.random.default_rng(0).random((600, 600))
    x, p = dx.asarray(a), dx.asarray(a[0])
    with counting() as counted:
        matrix = x + x.T
        for _ in range(3):
            p = matrix @ p
            p /= float(abs(p).max())
    assert (counted.tasks, counted.bytes_moved) == (0, 0)
    large = np.concatenate([a, a])
    slow = np.linalg.norm(a, 2)
    for values, function, expected in (
        (large, lambda y: (y * 2).sum(), (large * 2).sum()),  # large
        (a, lambda y: dx.linalg.matrix_norm(y, ord=2), slow),  # takes longer than its bytes
    ):
        with counting() as counted:
            np.testing.assert_allclose(float(function(dx.asarray(values))), expected)
        assert counted.tasks > 0
    with dx.config.set(block_bytes="1 MiB"), counting() as counted:  # said
        np.testing.assert_allclose(float((dx.asarray(a) * 2).sum()), (a * 2).sum())
    assert counted.tasks > 0
