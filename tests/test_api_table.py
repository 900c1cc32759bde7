"""The table of functions in the reference is made from the code: docs/api_table.py writes it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "docs" / "api_table.py"


def test_table_is_up_to_date() -> None:
    pytest.importorskip("array_api_strict")
    spec = importlib.util.spec_from_file_location("api_table", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    api_table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(api_table)
    assert api_table.PAGE.read_text() == api_table.page(), "run: python docs/api_table.py"
