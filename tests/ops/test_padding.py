"""``pad`` in every mode, on every kind of dtype, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing import force_tiles

MODES: list[tuple[str, dict[str, Any]]] = [
    ("constant", {}),
    ("constant", {"constant_values": (1, 2)}),
    ("edge", {}),
    ("linear_ramp", {}),
    ("linear_ramp", {"end_values": (3, -2)}),
    ("maximum", {}),
    ("mean", {}),
    ("mean", {"stat_length": (1, 3)}),
    ("median", {}),
    ("minimum", {"stat_length": 2}),
    ("reflect", {}),
    ("reflect", {"reflect_type": "odd"}),
    ("symmetric", {}),
    ("symmetric", {"reflect_type": "odd"}),
    ("wrap", {}),
]


@pytest.mark.parametrize(
    ("dtype", "n_tiles"), [("f8", 1), ("f8", 3), ("f4", 1), ("i4", 1), ("u1", 1), ("c16", 1), ("?", 1)]
)
@pytest.mark.parametrize(("mode", "options"), MODES, ids=lambda v: str(v))
def test_borders_are_numpys(mode: str, options: dict[str, Any], dtype: str, n_tiles: int) -> None:
    for shape in ((5,), (2, 1, 3)) if dtype == "f8" else ((3, 4),):
        x = (np.arange(np.prod(shape)).reshape(shape) * 7 % 5).astype(dtype)
        for width in ((2, 0), (0, 3), (7, 2)):
            with np.errstate(all="ignore"):
                try:
                    expected = np.pad(x, width, mode, **options)
                except (TypeError, OverflowError, ValueError) as error:
                    with pytest.raises(type(error)):
                        dx.pad(dx.asarray(x), width, mode, **options)
                    continue
                with force_tiles(n_tiles):
                    made = dx.pad(dx.asarray(x), width, mode, **options)
            assert (made.dtype, made.shape) == (expected.dtype, expected.shape)
            rounding = 1e-6 if x.dtype.kind in "fc" else 0
            np.testing.assert_allclose(made, expected, rtol=rounding, atol=rounding)


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("edge", {"constant_values": 1}),
        ("nonsense", {}),
        ("maximum", {"stat_length": 0}),
        ("mean", {"stat_length": -1}),
        ("constant", {"foo": 1}),
        ("constant", {"constant_values": (1, 2, 3)}),
    ],
)
def test_wrong_options_are_errors_at_the_call(mode: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # ours says more than numpy's
        np.pad(np.ones(3), 1, mode, **options)
    with pytest.raises(ValueError, match=r"=|unsupported|broadcast"):
        dx.pad(dx.ones(3), 1, mode, **options)


def test_a_function_is_no_mode() -> None:
    with pytest.raises(dx.NotSupportedError, match="concatenate"):
        dx.pad(dx.ones(3), 1, lambda *_: None)
