"""Marks of the suites of other projects, which are read when these are imported."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    for mark in ("flaky", "network", "mypy"):
        config.addinivalue_line("markers", f"{mark}: a mark of xarray's tests")
