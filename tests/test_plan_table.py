"""The tables of plans in the explanation of EinDecomp are made from the code: docs/plan_table.py writes them."""

from __future__ import annotations

from pathlib import Path

from helpers import module_at

SCRIPT = Path(__file__).parents[1] / "docs" / "plan_table.py"


def test_tables_are_up_to_date() -> None:
    plan_table = module_at(SCRIPT)
    assert plan_table.PAGE.read_text() == plan_table.page(), "run: python docs/plan_table.py"
