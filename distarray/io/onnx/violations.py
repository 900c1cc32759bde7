"""What is wrong with an annotation: a finding names the rule and says it in words; a violation names the node too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distarray.errors import OnnxShardingError
from distarray.io.onnx.rules import CODES


@dataclass(frozen=True, slots=True)
class Fault:
    """A Fault is one fault of a spec or of a node, before anybody knows which node it is.

    Parameters
    ----------
    rule
        Number of the rule, such as ``"S-2"``: a row of `rules.RULES`.
    code
        Word for programs, such as ``"device-count-mismatch"``: a row of `rules.CODES`.
    message
        One sentence with the numbers.
    """

    rule: str
    code: str
    message: str

    @property
    def severity(self) -> str:
        """Return ``"error"`` or ``"warning"``, as the table of codes says."""
        return CODES[self.code].severity


@dataclass(frozen=True, slots=True)
class Violation:
    """A Violation is a rule that an annotated model breaks: at which node, with which tensors, and how gravely.

    Parameters
    ----------
    node
        Name of the node (or ``#i`` of a nameless one); empty for the model as a whole.
    op_type
        Its operator.
    tensors
        Tensors that are concerned.
    rule, code
        Number of the rule, and its word for programs.
    severity
        ``"error"`` or ``"warning"``.
    message
        One sentence with the numbers.
    """

    node: str
    op_type: str
    tensors: tuple[str, ...]
    rule: str
    code: str
    severity: str
    message: str

    @classmethod
    def of(cls, finding: Fault, node: str = "", op_type: str = "", tensors: Sequence[str] = ()) -> Violation:
        """Return a finding at its place."""
        return cls(node, op_type, tuple(tensors), finding.rule, finding.code, finding.severity, finding.message)

    def __str__(self) -> str:
        where = f"{self.node} ({self.op_type}): " if self.op_type else ""
        return f"{where}{self.rule} {self.code}: {self.message}"


class Refusal(ValueError):
    """A node that cannot be as it is annotated: the first rule that its forms break."""

    def __init__(self, rule: str, code: str, message: str) -> None:
        super().__init__(message)
        self.finding = Fault(rule, code, message)


def has_errors(found: Sequence[Violation | Fault]) -> bool:
    """Return whether one of the violations or faults is an error."""
    return any(each.severity == "error" for each in found)


def raise_errors(violations: Sequence[Violation]) -> None:
    """Raise `OnnxShardingError` if one of the violations is an error.

    Raises
    ------
    OnnxShardingError
        With all violations; its text is the first error and how many more there are.
    """
    errors = [violation for violation in violations if violation.severity == "error"]
    if errors:
        more = f" (and {len(errors) - 1} more errors)" if len(errors) > 1 else ""
        raise OnnxShardingError(f"{errors[0]}{more}", tuple(violations))
