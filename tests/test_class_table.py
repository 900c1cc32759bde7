"""The classes between expressions and tasks are explained, each in a sentence; docs/class_table.py lists them."""

from __future__ import annotations

import class_table
import pytest
from helpers import no_garbage_collected


@pytest.mark.parametrize("layer", class_table.LAYERS)
def test_every_class_begins_with_a_sentence(layer: str) -> None:
    """A fragment such as "One stage." says nothing to who does not know already: eight words and a full stop."""
    with no_garbage_collected():
        found = list(class_table.classes(layer))
    assert found
    short = [f"{path} {name}: {text}" for path, name, text in found if len(text.split()) < 8 or not text.endswith(".")]
    assert not short, "\n" + "\n".join(short)
