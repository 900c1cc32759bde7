"""The exceptions of distarray, and warnings at the user's line.

Each is also the builtin that a NumPy user catches, so ``except ValueError`` keeps working. They are raised
where the user's input enters, before any task exists, with the axis, the numbers and the way out.
"""

import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

__all__ = [
    "BlocksLostError",
    "ClusterGoneError",
    "DeletedArrayError",
    "EnvironmentMismatchError",
    "MemoryBudgetError",
    "NotSupportedError",
    "OnnxShardingError",
    "ShardingError",
    "StateError",
    "UnreachableBlocksError",
    "WorkerPausedError",
]

#: How the names of this package's files begin.
PACKAGE = str(Path(__file__).parent) + os.sep


class _HeldWarnings(threading.local):
    """A _HeldWarnings has the warnings that its thread holds back; None where they are given."""

    warnings: list[str] | None = None


_held = _HeldWarnings()


@contextmanager
def held_warnings() -> Iterator[list[str]]:
    """Hold back what `warn_user` would say in this thread; the list of it tells whether there was any."""
    found: list[str] = []
    before, _held.warnings = _held.warnings, found
    try:
        yield found
    finally:
        _held.warnings = before


def warn_user(text: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warn at the line of the user's code: the innermost that is not of this package."""
    if _held.warnings is not None:
        _held.warnings.append(text)
        return
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
        level += 1
    warnings.warn(text, category, stacklevel=level)


class ShardingError(ValueError):
    """Said of a cut, mesh, layout or rule that cannot be: the text names the axis and the numbers."""


class OnnxShardingError(ShardingError):
    """The annotations of an ONNX model break a rule: names the node, its tensors and the rule.

    Parameters
    ----------
    message
        The first error.
    violations
        All that was found, `distarray.io.onnx.Violation` each.
    """

    def __init__(self, message: str, violations: tuple[object, ...] = ()) -> None:
        super().__init__(message, violations)
        self.violations = violations

    def __str__(self) -> str:
        return str(self.args[0])


class EnvironmentMismatchError(ValueError):
    """Operands of one operation live in different environments (team, device)."""


class MemoryBudgetError(MemoryError):
    """Nothing that fits the byte budget computes the result; nothing was submitted."""


class BlocksLostError(RuntimeError):
    """Blocks were on workers that were lost at the same time, so no copy is left; or were being updated in place in
    this process when its memory ran out.
    """


class UnreachableBlocksError(RuntimeError):
    """The blocks of an array that arrived in this process are on a cluster that it has no client of."""


class ClusterGoneError(BlocksLostError):
    """The client is closed, or its scheduler is gone, and with it all blocks that its workers held."""


class WorkerPausedError(MemoryError):
    """Workers that Dask paused, as their memory is nearly full, hold up what no other worker can take over."""


class StateError(OSError):
    """A saved state is none, or a file of it is missing or damaged: names the file."""


class DeletedArrayError(RuntimeError):
    """An array, or a view of one, was used after ``delete()``."""


class NotSupportedError(TypeError):
    """A numpy function has no implementation here; the text names the way out."""
