"""Host arrays that are cut at their first use, beside arrays that are cut already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distarray as dx

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
