"""Temporary results: in ``a + b + c`` nobody but the expression has ``a + b``, so its memory can take the next result.

NumPy does the same (``temp_elide.c``): it asks whether one reference is left, and looks through the C stack for who may
have it beside the interpreter. Here the bytecode of the user's code is asked: an operand is temporary if the
instruction that made it pushed it onto the stack of the frame that runs, from where the operator that runs now takes
it, and if that stack alone refers to it.
"""

from __future__ import annotations

import dis
import sys
from sys import getrefcount
from types import CodeType, FrameType
from typing import Any, TypeAlias

from distarray.array.handle import Handle
from distarray.expr.expr import outer_frame
from distarray.types import HostArray

#: Bytes from which memory is taken over: smaller arrays stay in the fastest cache, and malloc recycles them.
SMALLEST = 1 << 18
#: Functions of the user's of which the code has been read.
_MOST_KNOWN = 1024
#: Offsets of the instruction that pushed each of an operator's two operands.
_Flow: TypeAlias = tuple[range, range]
_NOWHERE = range(0)
#: Instructions that take nothing from the stack, beside those that load something.
_PLAIN = frozenset(
    {"RESUME", "NOP", "NOT_TAKEN", "EXTENDED_ARG", "PUSH_NULL", "KW_NAMES", "MAKE_CELL", "COPY_FREE_VARS"}
)
#: Those that exchange what lies there, and those that the next one does not follow.
_MOVING = frozenset({"COPY", "SWAP", "RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE"})
#: By the id of a code object: that object, and by offset what its binary operators take.
_known: dict[int, tuple[CodeType, dict[int, _Flow]]] = {}


class _Counted:
    """A _Counted says how many references an operator sees of an operand that nobody else has."""

    def __add__(self, _other: None) -> int:
        return getrefcount(self)


#: References that an operator counts of an operand that nobody else has.
ALONE = _Counted() + None


def position() -> tuple[int, int]:
    """Return where the user's code is: the frame, and the offset of its instruction."""
    frame = outer_frame()
    return (0, 0) if frame is None else (id(frame), frame.f_lasti)


def spare_memory(left: Any, right: Any) -> HostArray | None:
    """Return the memory of an operand that is temporary; to be called by the method of a binary operator.

    Parameters
    ----------
    left, right
        The operands, in the order of the user's code; None for one that others have too (`ALONE`).
    """
    at_left, at_right = _made_at(left), _made_at(right)
    if at_left is None and at_right is None:
        return None
    frame: FrameType = sys._getframe(2)
    flow = _flow(frame.f_code).get(frame.f_lasti)
    if flow is None:
        return None
    for operand, at, pushed in ((left, at_left, flow[0]), (right, at_right, flow[1])):
        if at is not None and at[0] == id(frame) and at[1] in pushed:
            return operand._base.block  # type: ignore[no-any-return]  # of a handle
    return None


def _made_at(operand: Any) -> tuple[int, int] | None:
    """Return the position at which a large array was computed; None for a view or anything else."""
    return operand._base.made_at if isinstance(operand, Handle) and not operand._lens else None


def _flow(code: CodeType) -> dict[int, _Flow]:
    known = _known.get(id(code))
    if known is None or known[0] is not code:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        known = _known[id(code)] = (code, operand_flow(code))
    return known[1]


def operand_flow(code: CodeType) -> dict[int, _Flow]:
    """Return, by each offset of each binary operator, the offsets of the calls or operators that pushed its operands.

    Code is read in a straight line: of what lies on the stack where a jump ends, or was moved there, nothing is known.
    """
    flow: dict[int, _Flow] = {}
    stack: list[range] = []
    instructions = list(dis.get_instructions(code))
    ends = [i.offset for i in instructions[1:]] + [len(code.co_code)]
    for instruction, end in zip(instructions, ends, strict=True):
        name, here = instruction.opname, range(instruction.offset, end)
        if instruction.is_jump_target:
            stack.clear()
        grown = dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
        if name in _PLAIN or (name.startswith("LOAD_") and "ATTR" not in name and name != "LOAD_METHOD"):
            stack += [_NOWHERE] * grown  # takes nothing
        elif name == "PRECALL":  # of Python 3.11: takes arguments, the call their function
            del stack[len(stack) + grown :]
        elif name in _MOVING or instruction.opcode in dis.hasjabs or instruction.opcode in dis.hasjrel:
            stack.clear()
        else:
            if name == "BINARY_OP" and len(stack) > 1:
                flow.update(dict.fromkeys(here, (stack[-2], stack[-1])))
            del stack[max(len(stack) - 1 + min(grown, 0), 0) :]
            stack += [_NOWHERE] * max(grown, 0)
            stack.append(here if name == "BINARY_OP" or name.startswith("CALL") else _NOWHERE)
    return flow
