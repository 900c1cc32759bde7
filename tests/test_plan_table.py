"""The tables of plans in the explanation of EinDecomp are made from the code: docs/plan_table.py writes them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "docs" / "plan_table.py"


def test_tables_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("plan_table", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    plan_table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plan_table)
    assert plan_table.PAGE.read_text() == plan_table.page(), "run: python docs/plan_table.py"
