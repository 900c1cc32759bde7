"""The exceptions of distarray.

Each is also the builtin that a NumPy user catches, so ``except ValueError`` keeps working. They are raised
where the user's input enters, before any task exists, with the axis, the numbers and the way out.
"""

__all__ = [
    "BlocksLostError",
    "DeletedArrayError",
    "EnvironmentMismatchError",
    "MemoryBudgetError",
    "NotSupportedError",
    "ShardingError",
]


class ShardingError(ValueError):
    """A cut, mesh, layout or rule that cannot be: names the axis and the numbers."""


class EnvironmentMismatchError(ValueError):
    """Operands of one operation live in different environments (team, device)."""


class MemoryBudgetError(MemoryError):
    """Nothing that fits the byte budget computes the result; nothing was submitted."""


class BlocksLostError(RuntimeError):
    """Blocks were on workers that were lost at the same time, so no copy is left."""


class DeletedArrayError(RuntimeError):
    """An array, or a view of one, was used after ``delete()``."""


class NotSupportedError(TypeError):
    """A numpy function without an implementation here; the text names the way out."""
