"""Tables of the documentation are made from the code: the scripts in docs write them."""

from __future__ import annotations

import importlib

import pytest


@pytest.mark.parametrize("script", ["api_table", "class_table", "onnx_table", "plan_table"])
def test_page_is_up_to_date(script: str) -> None:
    if script == "api_table":
        pytest.importorskip("array_api_strict")
    page = importlib.import_module(script).PAGE
    assert page.path.read_text() == page.made(), f"run: python docs/{script}.py"
