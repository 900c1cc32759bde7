"""From a plan to specs: where kernels run and what they read is the form in which a node wants its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from distarray.io.onnx.crossings import redistributed, reduced
from distarray.io.onnx.forms import AxisCut, Size, TensorForm, everywhere, simplified
from distarray.io.onnx.graph import AnnotatedGraph, AnnotatedNode, infer_at, is_annotatable
from distarray.io.onnx.loop_graph import LoopGraph
from distarray.planner.eindecomp import EinPlan
from distarray.planner.rates import Rates


def planned_forms(
    graph: AnnotatedGraph, loops: LoopGraph, plan: EinPlan, rates: Rates, *, is_repeated: bool
) -> list[dict[str, TensorForm]]:
    """Return per node the forms that its specs give to its inputs, and to an output that is not left as it is made.

    Parameters
    ----------
    graph
        Its shapes are those of the forms.
    loops, plan
        Of the graph.
    rates
        Partial results are combined where that takes fewest seconds: everywhere, at one device, or at once in the form
        in which a reader wants them, as a reduce-scatter does.
    is_repeated
        Whether what is one kernel is computed by every device: then its result need not be sent.
    """
    arrays = _PlannedArrays(loops, plan, rates, is_repeated)
    found = []
    for number, (node, operation) in enumerate(zip(graph.nodes, loops.operations, strict=True)):
        if number in loops.gathered:
            found.append(whole_inputs(graph, node, plan.machine.p))
            continue
        forms: dict[str, TensorForm] = {}
        if operation is not None:
            forms.update(zip(loops.reads[operation], arrays.wanted[operation], strict=True))
            forms.update({name: form for name in node.outputs if (form := arrays.left.get(name)) is not None})
        elif node.outputs and (array := loops.arrays.get(node.outputs[0], "")) in loops.graph.ops:
            # a reshape: the same elements on the same devices
            forms = dict.fromkeys((node.inputs[0], node.outputs[0]), arrays.left[array] or arrays.made(array))
        found.append({name: _unfactored(loops, name, form, graph.shapes.get(name)) for name, form in forms.items()})
    return found


def whole_inputs(graph: AnnotatedGraph, node: AnnotatedNode, num_devices: int) -> dict[str, TensorForm]:
    """Return the forms under which every device has the inputs of a node; none if it cannot be annotated."""
    if not is_annotatable(node):
        return {}
    whole = everywhere(num_devices)
    forms = {name: TensorForm.whole(graph.shapes.get(name), whole) for name in node.inputs if name}
    done = infer_at(graph, node, forms, num_devices, is_annotated=True)
    return forms if done.error is None else {}  # attributes may say what cannot be annotated


class _PlannedArrays:
    """_PlannedArrays are forms of arrays, whose axes are factors: as operations want them, and leave them."""

    def __init__(self, loops: LoopGraph, plan: EinPlan, rates: Rates, is_repeated: bool) -> None:
        self.loops, self.plan, self.rates = loops, plan, rates
        everybody = np.arange(plan.machine.p)
        #: Of each kernel, by the parts of its labels, the devices that run it.
        self.workers = {
            v: at.reshape(*at.shape, 1) if at.size > 1 or not is_repeated else everybody.reshape(*at.shape, -1)
            for v, at in plan.placement.items()
        }
        self.wanted = {v: [self._form(v, term) for term in op.terms] for v, op in loops.graph.ops.items()}
        #: None: as it is made, with partial results combined at everybody who has some.
        self.left = {v: self._left(v) for v in loops.graph.ops}

    def made(self, v: str) -> TensorForm:
        """Return the form of what an operation makes."""
        return self._form(v, self.loops.graph.ops[v].result)

    def _form(self, v: str, term: Sequence[str]) -> TensorForm:
        """Return how an array with some labels of an operation lies if each kernel has what it touches of it."""
        op, splits, workers = self.loops.graph.ops[v], self.plan.splits[v], self.workers[v]
        at = {label: i for i, label in enumerate(op.labels)}
        order = [at[label] for label in term]
        grid = [splits[label] for label in term]
        rest = [i for i in range(workers.ndim) if i not in order]
        rows = workers.transpose([*order, *rest]).reshape(prod(grid), -1)
        extents = tuple([op.extents[label] for label in term])
        cuts: list[AxisCut] = [((n, k),) if k > 1 else () for n, k in zip(extents, grid, strict=True)]
        return TensorForm(extents, tuple(cuts), tuple([frozenset(map(int, row)) for row in rows]))

    def _left(self, v: str) -> TensorForm | None:
        op, splits, p = self.loops.graph.ops[v], self.plan.splits[v], self.plan.machine.p
        n = prod([splits[label] for label in op.aggregated])
        if n == 1:
            return None
        made = self.made(v)
        readers = [self.wanted[u][operand] for u, operand in self.loops.graph.reads[v]]
        alone = tuple([frozenset([int(worker)]) for worker in self.plan.owners[v].ravel()])

        def seconds(form: TensorForm) -> float:
            steps = [redistributed(v, form, reader, p, op.itemsize) for reader in readers]
            return sum([step.seconds(self.rates) for step in (reduced(v, made, form, n, p, op.itemsize), *steps)])

        best = min([made, *readers, TensorForm(made.shape, made.cuts, alone)], key=seconds)
        return None if best.is_same(made) else best


def _unfactored(loops: LoopGraph, tensor: str, form: TensorForm, shape: Sequence[Size] | None) -> TensorForm:
    """Return the form of a tensor from that of its array."""
    entries = iter([cut or ((n, 1),) for cut, n in zip(form.cuts, form.shape or (), strict=True)])
    factors = loops.factors[tensor]
    cuts = [simplified(tuple([entry for _ in axis for entry in next(entries)])) for axis in factors]
    sizes = tuple(shape) if shape is not None else tuple([prod(axis) for axis in factors])
    return TensorForm(sizes, tuple(cuts), form.owners)
