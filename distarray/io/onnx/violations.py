"""What is wrong with a model and its annotations: a violation names the rule and the node, and says it in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from distarray.errors import OnnxShardingError
from distarray.io.onnx.rules import CODES


@dataclass(frozen=True, slots=True)
class Violation:
    """A Violation is a rule that a spec, a node or a model breaks: where, with which tensors, and how gravely.

    Parameters
    ----------
    rule
        Number of the rule, such as ``"S-2"``: a row of `rules.RULES`.
    code
        Word for programs, such as ``"device-count-mismatch"``: a row of `rules.CODES`.
    message
        One sentence with the numbers.
    node
        Name of the node (or ``#i`` of a nameless one); empty for the model as a whole, or as long as nobody knows it.
    op_type
        Its operator.
    tensors
        Tensors that are concerned.
    """

    rule: str
    code: str
    message: str
    node: str = ""
    op_type: str = ""
    tensors: tuple[str, ...] = ()

    @property
    def severity(self) -> str:
        """Return ``"error"`` or ``"warning"``, as the table of codes says."""
        return CODES[self.code].severity

    def at(self, node: str, op_type: str, tensors: Sequence[str] = ()) -> Violation:
        """Return what is wrong at a node."""
        return replace(self, node=node, op_type=op_type, tensors=tuple(tensors))

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self) | {"severity": self.severity}

    def __str__(self) -> str:
        where = f"{self.node} ({self.op_type}): " if self.op_type else ""
        return f"{where}{self.rule} {self.code}: {self.message}"


class Refusal(ValueError):
    """A node that cannot be as it is annotated: the first rule that its forms break."""

    def __init__(self, rule: str, code: str, message: str) -> None:
        super().__init__(message)
        self.finding = Violation(rule, code, message)


def has_errors(found: Sequence[Violation]) -> bool:
    """Return whether one of the violations is an error."""
    return any(each.severity == "error" for each in found)


def raise_errors(violations: Sequence[Violation], *, is_run: bool = False) -> None:
    """Raise `OnnxShardingError` if one of the violations is an error; `is_run`: all that keeps a model from running is.

    Raises
    ------
    OnnxShardingError
        With all violations; its text is the first error and how many more there are.
    """
    errors = [violation for violation in violations if is_run or violation.severity == "error"]
    if errors:
        more = f" (and {len(errors) - 1} more errors)" if len(errors) > 1 else ""
        raise OnnxShardingError(f"{errors[0]}{more}", tuple(violations))
