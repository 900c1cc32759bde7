"""The table of functions in the reference is made from the code: docs/api_table.py writes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import module_at

SCRIPT = Path(__file__).parents[1] / "docs" / "api_table.py"


def test_table_is_up_to_date() -> None:
    pytest.importorskip("array_api_strict")
    api_table = module_at(SCRIPT)
    assert api_table.PAGE.read_text() == api_table.page(), "run: python docs/api_table.py"
