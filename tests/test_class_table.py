"""The classes between expressions and tasks are explained, each in a sentence; docs/class_table.py lists them."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import module_at, no_garbage_collected

class_table = module_at(Path(__file__).parents[1] / "docs" / "class_table.py")


def test_table_is_up_to_date() -> None:
    with no_garbage_collected():  # as where test_architecture parses
        page = class_table.page()
    assert class_table.PAGE.read_text() == page, "run: python docs/class_table.py"


@pytest.mark.parametrize("layer", class_table.LAYERS)
def test_every_class_begins_with_a_sentence(layer: str) -> None:
    """A fragment such as "One stage." says nothing to who does not know already: eight words and a full stop."""
    with no_garbage_collected():
        found = list(class_table.classes(layer))
    assert found
    short = [f"{path} {name}: {text}" for path, name, text in found if len(text.split()) < 8 or not text.endswith(".")]
    assert not short, "\n" + "\n".join(short)
