"""The table of operators in the reference is that of the package."""

from __future__ import annotations

from pathlib import Path

from helpers import module_at

onnx_table = module_at(Path(__file__).parents[3] / "docs" / "onnx_table.py")


def test_table_is_up_to_date() -> None:
    assert onnx_table.PAGE.read_text() == onnx_table.page(), "run: python docs/onnx_table.py"
