"""Usual annotations to compare plans with: replication, data parallel, and Megatron's columns and rows.

Each is a choice node by node, in order: what it wants of a node's inputs, given the forms that they have. What cannot
be is made whole everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from distarray.io.onnx.forms import AxisCut, TensorForm, everywhere, n_shards
from distarray.io.onnx.graph import AnnotatedGraph, AnnotatedNode, infer_at, is_annotatable

_Forms: TypeAlias = dict[str, TensorForm]
#: From a node, the forms of its inputs, and what is the same in every run, to the forms that it is to have.
_Choice: TypeAlias = Callable[[AnnotatedNode, _Forms, frozenset[str], int], _Forms]


def _replicated(graph: AnnotatedGraph, num_devices: int) -> list[_Forms]:
    """Return no specs: every device computes everything (G-2)."""
    return [{} for _ in graph.nodes]


def _data_parallel(graph: AnnotatedGraph, num_devices: int) -> list[_Forms]:
    """Return the first axis of the model's inputs cut where they are read; weights are whole."""

    def choose(node: AnnotatedNode, here: _Forms, constants: frozenset[str], n: int) -> _Forms:
        batches = [name for name in here if name in graph.inputs and name not in constants]
        return {name: cut for name in batches if (cut := _cut(here[name], 0, n)) is not None}

    return _chosen(graph, num_devices, choose)


def _megatron(graph: AnnotatedGraph, num_devices: int) -> list[_Forms]:
    """Return weights cut by columns where the other factor is whole, and by rows where that is cut along them.

    References
    ----------
    Megatron-LM (arXiv 1909.08053), section 3.
    """

    def choose(node: AnnotatedNode, here: _Forms, constants: frozenset[str], n: int) -> _Forms:
        if node.op_type not in ("MatMul", "Gemm") or node.inputs[1] not in constants:
            return {}
        x, weight = here[node.inputs[0]], here[node.inputs[1]]
        if not x.shape or weight.shape is None or len(weight.shape) != 2:
            return {}
        rows, columns = (1, 0) if node.attrs.get("transB") else (0, 1)
        along = x.cuts[0 if node.attrs.get("transA") else -1]
        if n_shards(along) == len(x.owners) > 1:
            cuts: list[AxisCut] = [(), ()]
            cuts[rows] = along
            return {node.inputs[1]: TensorForm(weight.shape, tuple(cuts), x.owners)}
        cut = _cut(weight, columns, n) if len(x.owners) == 1 else None
        return {} if cut is None else {node.inputs[1]: cut}

    return _chosen(graph, num_devices, choose)


#: Usual annotations, by the name that reports give them.
USUAL: Mapping[str, Callable[[AnnotatedGraph, int], list[_Forms]]] = MappingProxyType(
    {"replicated": _replicated, "data parallel": _data_parallel, "Megatron": _megatron}
)


def _cut(form: TensorForm, axis: int, n: int) -> TensorForm | None:
    """Return a form with one axis in `n` shards, one for each device; None if it has no such axis, or too few
    elements.
    """
    size = form.shape[axis] if form.shape else None
    if form.shape is None or not isinstance(size, int) or size < n or n == 1:
        return None
    cuts: list[AxisCut] = [()] * len(form.shape)
    cuts[axis] = ((size, n),)
    return TensorForm(form.shape, tuple(cuts), tuple([frozenset([i]) for i in range(n)]))


def _chosen(graph: AnnotatedGraph, num_devices: int, choose: _Choice) -> list[_Forms]:
    """Return what a choice gives node by node; operands that are whole are sliced where others are cut (A-10)."""
    whole = everywhere(num_devices)
    forms = {name: TensorForm.whole(graph.shapes.get(name), whole) for name in graph.inputs}
    constants = set(graph.constants)
    found = []
    for node in graph.nodes:
        here = {name: forms[name] for name in node.inputs if name}
        if constants.issuperset(here):
            constants.update(node.outputs)
        ways: list[_Forms] = [{}]
        if is_annotatable(node):
            gathered = {name: TensorForm.whole(form.shape, whole) for name, form in here.items()}
            ways = [choose(node, here, frozenset(constants), num_devices), {}, gathered]
        for way in ways:
            done = infer_at(graph, node, {**here, **way}, num_devices, is_annotated=bool(way), strict=False)
            if done.error is None:
                break
        found.append(way)
        forms.update(done.outputs)
    return found
