"""What the rule of an operator class is given about a node, and how it answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import numpy as np

from distarray.io.onnx.forms import Size, TensorForm, everywhere
from distarray.io.onnx.parallel_loops import Meeting, NodeLoops, follow_loops
from distarray.io.onnx.violations import Refusal, Violation
from distarray.sharding.rule import ShardingRule

#: The axes (input, axis) that run over a loop that no output has.
ReducedLoop: TypeAlias = tuple[tuple[int, int], ...]


def loops_of(rank: int, prefix: str = "d") -> list[str]:
    """Return one loop for each of so many axes."""
    return [f"{prefix}{i}" for i in range(rank)]


class OutputSpecNeeded(Refusal):
    """An OutputSpecNeeded is raised where no form of the output follows without communication.

    If the node has an output spec, that is no error: the output is resharded.
    """

    def __init__(self, number: str, message: str, shapes: Sequence[Sequence[Size] | None]) -> None:
        super().__init__(number, "output-spec-needed", f"{message}; give the output a spec")
        self.shapes = [None if shape is None else tuple(shape) for shape in shapes]


@dataclass(slots=True)
class NodeFacts:
    """NodeFacts are a node as the rule of its class sees it.

    Parameters
    ----------
    op_type
        Its operator.
    attrs
        Attributes, and constant inputs under the name that the operator's schema has for them.
    forms
        Of the inputs in order; None for an optional one that is left out.
    num_devices
        Devices of the configuration.
    strict
        Whether nothing is sliced in passing (A-10).
    number
        Of the rule of the class; a rule that has several numbers sets the one that decides.
    n_outputs
        Outputs that the node has, if that is known.
    warnings
        Gets what is worth saying and no error.
    reduced
        Of the first loops that were followed those that no output has: the axes (input, axis) that run over each.
    meetings
        Gets how inputs were used together: one for each time that outputs followed from loops.
    """

    op_type: str
    attrs: Mapping[str, Any]
    forms: list[TensorForm | None]
    num_devices: int
    strict: bool = True
    number: str = ""
    n_outputs: int | None = None
    warnings: list[Violation] = field(default_factory=list)
    reduced: tuple[ReducedLoop, ...] | None = None
    meetings: list[Meeting] = field(default_factory=list)

    def form(self, i: int) -> TensorForm:
        """Return the form of an input that must be there."""
        form = self.forms[i] if i < len(self.forms) else None
        if form is None:
            self.refuse("input-missing", f"input {i} is missing")
        return form

    def has(self, i: int) -> bool:
        """Return whether an input is given."""
        return i < len(self.forms) and self.forms[i] is not None

    def shape(self, i: int = 0) -> tuple[Size, ...]:
        """Return the shape of an input that must be there."""
        shape = self.form(i).shape
        if shape is None:
            self.refuse("rank-unknown", f"the rank of input {i} is not known")
        return shape

    def loops(self, i: int = 0, prefix: str = "d") -> list[str]:
        """Return one loop for each axis of an input that must be there."""
        return loops_of(len(self.shape(i)), prefix)

    def refuse(self, code: str, message: str) -> NoReturn:
        """Raise a `Refusal` of the rule of the class."""
        raise Refusal(self.number, code, message)

    def integer(self, name: str, default: int) -> int:
        """Return an attribute that is a number; lists of one count as numbers."""
        found = self.ints(name)
        return default if not found else found[0]

    def ints(self, *names: str) -> tuple[int, ...] | None:
        """Return an attribute that is a list of integers, under the first of its names that is given."""
        for name in names:
            value = self.attrs.get(name)
            if value is not None:
                try:
                    array = np.asarray(value)
                    is_whole = array.dtype.kind == "f" and np.array_equal(array, np.trunc(array))  # a depth, say
                    if array.size and array.dtype.kind not in "iub" and not is_whole:
                        raise TypeError
                    return tuple(int(i) for i in array.reshape(-1))
                except (TypeError, ValueError):
                    self.refuse("attribute-invalid", f"{name}={value!r} is no list of integers")
        return None

    def axes(self, values: Iterable[int], rank: int) -> tuple[int, ...]:
        """Return axes counted from the front."""
        found = []
        for axis in values:
            if not -rank <= axis < rank:
                self.refuse("attribute-invalid", f"axis {axis} does not exist in a tensor of rank {rank}")
            found.append(axis % rank)
        return tuple(found)

    def named_axes(self, rank: int) -> tuple[int, ...]:
        """Return the axes that ``axes`` names, counted from the front; all of them if nothing does."""
        given = self.ints("axes")
        return tuple(range(rank)) if given is None else self.axes(given, rank)

    def axis(self, default: int, rank: int, *names: str) -> int:
        """Return one axis, counted from the front."""
        found = self.ints(*(names or ("axis",)))
        return self.axes([default if not found else found[0]], rank)[0]

    def follow(
        self,
        operands: Sequence[Sequence[str] | None],
        results: Sequence[Sequence[str]],
        *,
        whole: Iterable[str] = (),
        sizes: Mapping[str, Size] | None = None,
        broadcast: Iterable[str] = (),
        forms: Sequence[TensorForm | None] | None = None,
    ) -> list[TensorForm]:
        """Return the outputs of loops: a term for each input in order; inputs beyond the terms are parameters, which
        every device that takes part has whole, and those with a term None take no part.
        """
        given = self.forms if forms is None else forms
        terms: list[tuple[str, ...]] = []
        numbers: list[int] = []
        used: list[TensorForm] = []
        closed = set(whole)
        for i, form in enumerate(given):
            term = operands[i] if i < len(operands) else _parameter(i, form)
            if form is None or term is None:
                continue
            if form.shape is None:
                self.refuse("rank-unknown", f"the rank of input {i} is not known")
            if len(form.shape) != len(term):
                self.refuse("shape-mismatch", f"input {i} has rank {len(form.shape)}, and {len(term)} is needed")
            if i >= len(operands):
                closed.update(term)
            terms.append(tuple(term))
            numbers.append(i)
            used.append(form)
        there = {loop for term in (*terms, *results) for loop in term}
        if self.reduced is None:
            open_ = dict.fromkeys(loop for term in terms for loop in term)
            gone = [
                loop for loop in open_ if loop not in closed and loop != "1" and all(loop not in r for r in results)
            ]
            self.reduced = tuple(
                [tuple([(i, t.index(loop)) for i, t in zip(numbers, terms) if loop in t]) for loop in gone]
            )
        rule = ShardingRule(tuple(terms), tuple(map(tuple, results)), dict.fromkeys(sorted(closed & there), "whole"))
        loops = NodeLoops(rule, self.number, sizes or {}, frozenset(broadcast))
        if not used:
            return [TensorForm.whole(shape, everywhere(self.num_devices)) for shape in loops.output_shapes({})]
        self.meetings.append(follow_loops(loops, used, strict=self.strict, warnings=self.warnings))
        return self.meetings[-1].results


def _parameter(i: int, form: TensorForm | None) -> tuple[str, ...] | None:
    return None if form is None or form.shape is None else tuple(f"p{i}_{axis}" for axis in range(len(form.shape)))
