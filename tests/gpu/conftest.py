"""The device of these tests: a GPU, CuPy as numpy plays it, or the strict device. `tests/conftest.py` says which."""

from __future__ import annotations

import os

import pytest


@pytest.fixture
def device() -> str:
    """The device string that arrays are made with."""
    return "strict" if os.environ.get("DISTARRAY_GPU") == "strict" else "cuda"


@pytest.fixture
def cuda(device: str) -> str:
    """The device string, for what the strict device has not."""
    if device != "cuda":
        pytest.skip("not on strict: it needs CuPy's arrays")
    return device
