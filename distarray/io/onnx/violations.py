"""What is wrong with a model and its annotations: a violation names the rule and the node, and says it in words.

The tables of rules and of the codes of what breaks them are for people, and for the reference. Which operators follow
the rule of which class is the table of `operator_classes`; here is what the rules say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

from distarray.errors import OnnxShardingError


@dataclass(frozen=True, slots=True)
class AnnotationRule:
    """An AnnotationRule is one rule of what annotations mean.

    Parameters
    ----------
    number
        Such as ``"S-2"``: W of models as such, S of one spec, G of graphs, U of unary operators, N of broadcast ones,
        R of reductions, M of products, L of operators along an axis, V of movement, C of creation, K of composites,
        F of those refused.
    subject, sentence
        What it is about, and what it says.
    """

    number: str
    subject: str
    sentence: str


@dataclass(frozen=True, slots=True)
class FaultCode:
    """A FaultCode is the word that programs get for what is wrong.

    Parameters
    ----------
    code
        The word.
    severity
        ``"error"`` or ``"warning"``.
    rules
        Numbers of the rules that find it; none: that of the node's class, whichever it is.
    sentence
        What is wrong.
    """

    code: str
    severity: str
    rules: tuple[str, ...]
    sentence: str


def _cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in text.strip().splitlines()]


_RULES = """
S-1 | order of shards | they are numbered by nested loops over the cut axes as listed, the first slowest
S-2 | number of devices | there is an entry for each shard; a whole tensor is on all that are listed
S-3 | groups | an entry that is a key of the map is that group, whatever its sign; any other is a device
S-4 | several shards | one device may hold several
S-5 | axes | they count from either end, each is listed once and says into how many shards it is cut
S-6 | sizes | a number is the size of the axis; a symbol, or nothing, takes it; those of a fused axis multiply to it
S-7 | fused axes | the index is split row-major by the sizes, and each part is cut on its own
S-8 | uneven cuts | shard i of k begins at element floor(i n / k); shards may be empty
S-9 | placement | no device at all is an error; where that is allowed it means the first ones in order
S-10 | identical cuts | equally many shards that hold the same elements
S-11 | writing | axes ascend, sizes are always said, a whole tensor has one entry, groups are -1, -2, ...
G-1 | inputs of nodes | without a spec they have the form that their producer gives them
G-2 | inputs of models | they and initializers are whole on every device
G-3 | outputs | without a spec they follow from the inputs; a spec that differs is a reshard after the node
G-4 | reshards | an input spec that differs from the producer's form is one reshard before the node
G-5 | names | tensors and configurations exist and are said once, in a file that has annotations
G-6 | pipeline stages | they change no result
U-1 | unary | the output has the form of the input, which may be any; further inputs are parameters
U-2 | misleading arity | Max and Min of several inputs are n-ary; ConstantOfShape is whole; Dropout has two outputs
N-1 | axes that meet | their cuts are identical
N-2 | broadcast axes | they are whole, on the devices that use them
N-3 | several broadcast axes | shards meet on the devices that hold all of them, and there are some
N-4 | output axes | each has the cut of an input whose axis is not 1
R-1 | reductions | any cut will do; reduced axes that are kept are whole
R-2 | results of reductions | they are on all devices that took part, or where an output spec says
R-3 | attributes of reductions | keepdims, negative axes, and no axes at all, which are all
M-1 | products | M and N keep their cuts, those of K are identical, and a cut K is summed
M-2 | batch axes | they broadcast; vectors lose M or N
M-3 | Gemm | C is added once, after the sum, to the form of the product
M-4 | quantised products | scales and zero points are of one element or follow M or N
M-5 | Einsum | each label stands at most once in a term
L-1 | along an axis | that axis is whole, the others are parallel
V-1 | movement | axes carried over keep their cuts; those that are indexed, shifted or joined are whole
C-1 | creation | made from global indices where it is wanted; whole without an output spec
K-1 | composites | they are decomposed into reductions and loops
F-1 | the rest | refused by name; without annotations it runs whole on every device
A-10 | not strict | an operand that is whole where others are cut is sliced where it lies
W-1 | names of a graph | each is made once, before it is read; outputs are made
W-2 | operators | they are there, and have the inputs, types and attributes of their schema
W-3 | elements | they are as many as the shape says, in the model or in a file of its folder
W-4 | size | functions and subgraphs end
A-12 | lost annotations | configurations without an annotated node are worth a warning
"""

_CODES = """
unsorted-dims | warning | S-1 | axes are not listed in their order
device-count-mismatch | error | S-2 | the entries of device are not as many as the shards
device-out-of-range | error | S-3 | an entry is no device and no group
group-member-out-of-range | error | S-3 | a member of a group is no device
group-empty | error | S-3 | a group has no member
group-duplicate-key | error | S-3 | two groups have one key
group-key-shadows-device | warning | S-3 | the key of a group is a device too
several-shards | warning | S-4 | a device holds several shards
axis-out-of-range | error | S-5 | the tensor has no such axis
duplicate-axis | error | S-5 | an axis is listed twice
num-shards-missing | error | S-5 | a cut does not say into how many shards
num-shards-invalid | error | S-5 | a cut has less than one shard
dim-mismatch | error | S-6 | a size is not that of the axis
placement-missing | error | S-9 | no device is listed
duplicate-spec | error | G-5 | a node has two specs for one tensor
unknown-tensor | error | G-5 | a spec is for a tensor that the node does not have
unknown-configuration | error | G-5 | a node has specs for a configuration that the model does not have
duplicate-configuration | error | G-5 | a node has two entries for one configuration
configuration-name-missing | error | G-5 | a configuration has no name
num-devices-missing | error | G-5 | a configuration does not say how many devices it has
num-devices-invalid | error | G-5 | a configuration has none, or too many
device-names-length | error | G-5 | a configuration has not as many names as devices
ir-version | warning | G-5 | annotations stand in a file of a version that has none
pipeline-stage | error | G-6 | a pipeline stage is negative
broadcast-axis-sharded | error | N-2 | an axis of size 1 is cut
owners-differ | warning | N-2 | equal cuts lie on other devices, or a replica is missing
axis-sharding-mismatch | error | | cuts that meet are not identical
empty-intersection | error | | no device holds all shards that are used together
axis-must-be-whole | error | | an axis is cut that the operator needs whole
output-spec-needed | error | | nothing follows without communication
input-missing | error | | an input is left out that must be there
attribute-invalid | error | | an attribute or constant input cannot be
shape-mismatch | error | | shapes do not fit the operator
rank-unknown | error | | the rank of a tensor is needed and not known
node-malformed | error | | the operator has no form with such inputs and attributes
too-many-shards | error | | more combinations of shards than are looked at
unsupported-op | error | F-1 M-5 | the operator cannot be annotated
gathered | warning | | inputs of an operator without annotations are made whole first
local-slice | warning | | a whole operand is sliced where it lies
undefined-tensor | error | W-1 | a tensor is read, or is an output, and nobody makes it before
duplicate-name | error | W-1 | two nodes or initializers make one name
name-malformed | error | W-1 | a name is no text
unknown-operator | error | W-2 | ONNX has no such operator in the opset of the model
types-differ | error | W-2 | inputs have types that the operator does not take
data-malformed | error | W-3 | elements are not as many as the shape says
data-outside | error | W-3 | elements are in a file that is not in the folder of the model
endless-model | error | W-4 | functions call themselves, or would be too many nodes, or nest too deeply
not-runnable | warning | W-2 W-3 | an operator or a file is not here: the model can be judged, but not run
nothing-annotated | warning | A-12 | there are configurations and no annotated node
"""

#: The rules by their number.
RULES = MappingProxyType({row[0]: AnnotationRule(*row) for row in _cells(_RULES)})
#: The words for what is wrong, by the word.
CODES = MappingProxyType(
    {code: FaultCode(code, severity, tuple(rules.split()), text) for code, severity, rules, text in _cells(_CODES)}
)


@dataclass(frozen=True, slots=True)
class Violation:
    """A Violation is a rule that a spec, a node or a model breaks: where, with which tensors, and how gravely.

    Parameters
    ----------
    rule
        Number of the rule, such as ``"S-2"``: a row of `RULES`.
    code
        Word for programs, such as ``"device-count-mismatch"``: a row of `CODES`.
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
