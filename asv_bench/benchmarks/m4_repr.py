"""M4: displays. ``repr`` and ``_repr_html_`` compute nothing and cost the same whatever the array is; ``str`` reads
the corners only.

Goals: ``repr`` of many blocks and of many operations at most 1.5 x that of few (the same, within noise) and without
a task; ``str`` of many blocks by a few tasks at the corners.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .ratios import Goal, Ratio, exactly, interleaved, ratio
from .sizes import SIZE, of_size
from .systems import SYSTEMS

#: blocks per axis, operations
ROWS = {"XS": (10, 100), "S": (100, 1000), "M": (316, 1000)}
BLOCK = 4  # elements per axis of a block

DISPLAYS: dict[str, Callable[[Any], str]] = {
    "repr": repr,
    "_repr_html_": lambda x: x._repr_html_(),
    "str": str,
}


def array(blocks: int = 1, operations: int = 0) -> Any:
    """A distarray of ``blocks ** 2`` blocks with a number of pending operations."""
    n = blocks * BLOCK
    x = SYSTEMS["distarray"].put(np.arange(n * n, dtype=np.float64).reshape(n, n), (blocks, blocks))
    for _ in range(operations):
        x = x + 1
    return x


def growth(display: str, blocks: int = 1, operations: int = 0, rounds: int = 7) -> Ratio:
    """Time of a display over that of an array of few blocks (one, if `blocks` is one) and no operation."""
    show = DISPLAYS[display]
    small, large = array(min(blocks, 4)), array(blocks, operations)
    taken = interleaved({"small": lambda: show(small), "large": lambda: show(large)}, rounds, 0.005)
    return ratio(taken["large"], taken["small"])


def n_tasks(display: str, blocks: int) -> int:
    """Tasks that a display submits for an array with one pending operation."""
    import distarray as dx

    x = array(blocks, 1)
    with dx.testing.counting() as counted:
        DISPLAYS[display](x)
    return int(counted.tasks)


def goals(size: str = SIZE) -> list[Goal]:
    """Where the cost of a display is claimed."""
    blocks, operations = of_size(ROWS, size)
    return [
        Goal(f"M4 repr, {blocks**2} blocks / 16", lambda: growth("repr", blocks=blocks), 1.5),
        Goal(f"M4 repr, {operations} operations / 0", lambda: growth("repr", operations=operations), 1.5),
        Goal(f"M4 tasks of repr, {blocks**2} blocks", lambda: exactly(n_tasks("repr", blocks)), 0.0),
        # Four corners, each of which may lie in four blocks.
        Goal(f"M4 tasks of str, {blocks**2} blocks", lambda: exactly(n_tasks("str", blocks)), 16.0),
    ]


class Display:
    params = (list(DISPLAYS), [1, of_size(ROWS)[0]], [0, of_size(ROWS)[1]])
    param_names = ("display", "blocks_per_axis", "operations")
    timeout = 600

    def setup(self, display: str, blocks: int, operations: int) -> None:
        self.x = array(blocks, operations)
        self.show = DISPLAYS[display]

    def time_show(self, display: str, blocks: int, operations: int) -> None:
        self.show(self.x)


class DisplayTasks:
    params = (list(DISPLAYS), [1, of_size(ROWS)[0]])
    param_names = ("display", "blocks_per_axis")

    def track_tasks(self, display: str, blocks: int) -> int:
        return n_tasks(display, blocks)
