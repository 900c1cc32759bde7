"""Graphs run as they are annotated: every tensor in the form that inference gives it, with the collectives that follow.

Node by node: inputs are brought into their forms (G-4), the operator is applied where they lie, loops that go and are
cut are done in parts that are joined (R-1, M-1), and outputs are brought into the form that the node gives them (G-3).
Everything is an expression of this package; the planner follows what is said here, and synthesizes what moves.

The parts in which a node is done whose loops go and are cut are its *slabs*, each where the inputs have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from distarray.array.array import DistArray
from distarray.io.onnx.arrays import axes_apart, lies_so, placed
from distarray.io.onnx.forms import AxisCut, Size, TensorForm, everywhere, n_shards, shard_ranges
from distarray.io.onnx.graph import AnnotatedNode, GraphInference
from distarray.io.onnx.inference import GivenOutput, NodeInference, infer_outputs
from distarray.io.onnx.node_facts import ReducedLoop
from distarray.io.onnx.operator_classes import OPERATORS
from distarray.io.onnx.operators.call import NodeCall, Value, array_of, is_host
from distarray.io.onnx.operators.graph import PreparedGraph, PreparedNode, Scope, evaluate
from distarray.io.onnx.operators.partial_results import PARTIAL_RESULTS, Part
from distarray.sharding.team import Team


class Slab(NamedTuple):
    """A Slab is one part of the loops that go at a node and are cut.

    Parameters
    ----------
    loops
        Each with its cut, and the number of the shard.
    forms
        Of the inputs, cut down to it; None for one that is left out.
    """

    loops: tuple[tuple[ReducedLoop, AxisCut, int], ...]
    forms: tuple[TensorForm | None, ...]


def _cut_of(loop: ReducedLoop, forms: Sequence[TensorForm | None]) -> AxisCut:
    """Return the cut of a loop; ``()`` if nobody cuts it."""
    cuts = [form.cuts[axis] for i, axis in loop if (form := forms[i]) is not None]
    return next((cut for cut in cuts if n_shards(cut) > 1), ())


def slabs_of(reduced: Sequence[ReducedLoop], forms: Sequence[TensorForm | None]) -> list[Slab]:
    """Return the parts in which loops are done that go and are cut; one if none is, and none that is empty.

    Parameters
    ----------
    reduced
        From `NodeInference`.
    forms
        Of the inputs; all sizes are known.
    """
    cut_loops = [(loop, cut) for loop in reduced if (cut := _cut_of(loop, forms))]
    found = []
    for index in product(*(range(n_shards(cut)) for _, cut in cut_loops)):
        loops = tuple([(loop, cut, at) for (loop, cut), at in zip(cut_loops, index, strict=True)])
        here = list(forms)
        sizes = [prod([len(r) for r in shard_ranges(cut, at)]) for _, cut, at in loops]
        for (loop, _, at), n in zip(loops, sizes, strict=True):
            for i, axis in loop:
                form = here[i]
                if form is not None and form.shape is not None and form.shape[axis] != 1:
                    here[i] = _sliced(form, axis, at, n)
        if 0 not in sizes:
            found.append(Slab(loops, tuple(here)))
    return found


def _sliced(form: TensorForm, axis: int, at: int, n: int) -> TensorForm:
    """Return the form of a slice of a tensor: one shard of an axis, or what lies in it of an axis that is whole."""
    assert form.shape is not None
    shape = (*form.shape[:axis], n, *form.shape[axis + 1 :])
    cuts = (*form.cuts[:axis], (), *form.cuts[axis + 1 :])
    if n_shards(form.cuts[axis]) == 1:
        return TensorForm(shape, cuts, form.owners)
    indices = product(*map(range, form.grid))
    return TensorForm(shape, cuts, tuple([o for i, o in zip(indices, form.owners, strict=True) if i[axis] == at]))


class AnnotatedScope(Scope):
    """An AnnotatedScope is one run of an annotated graph.

    Parameters
    ----------
    graph, inputs, opsets
        See `Scope`.
    nodes
        The nodes of the graph with what they say.
    inference
        What follows from it; without errors.
    configuration, team
        Whose annotations count, and on whose members, which are its devices, arrays are made.
    strict
        As it was inferred.
    constants
        By name and form the initializers that earlier runs brought into it.
    """

    def __init__(
        self,
        graph: PreparedGraph,
        inputs: Sequence[Value],
        opsets: Mapping[str, int],
        nodes: Sequence[AnnotatedNode],
        inference: GraphInference,
        configuration: str,
        team: Team,
        strict: bool,
        constants: dict[tuple[str, TensorForm], DistArray],
    ) -> None:
        super().__init__(graph, inputs, opsets)
        known = zip(nodes, inference.node_forms, inference.nodes, strict=True)
        self._known = {node.outputs: (node, forms, inferred) for node, forms, inferred in known}
        self._configuration = configuration
        self._num_devices = team.size
        self._strict = strict
        #: As the maker of each tensor leaves it. Inputs, initializers and what nobody says anything about are where
        #: the planner has them until somebody says so.
        self._made: dict[str, TensorForm] = {}
        #: By tensor and form what it was brought into, those of initializers for all runs.
        self._moved: dict[tuple[str, TensorForm], DistArray] = {}
        self._constants = constants
        #: Whether members have memory of their own: then each owner has a copy of what it owns.
        self._has_copies = team.client is not None
        self._is_annotated = any(self._has_specs(node) for node in nodes)

    def run(self) -> list[Value]:
        """Run all nodes and return the outputs, each in its form."""
        made = super().run()
        forms = {name: forms[name] for _, forms, _ in self._known.values() for name in forms}
        return [
            placed(array_of(value), self._made.get(name, forms[name])) if is_host(value) and name in forms else value
            for name, value in zip(self.graph.output_names, made, strict=True)
        ]

    def outputs_of(self, node: PreparedNode, call: NodeCall, inputs: Sequence[Value]) -> tuple[Value, ...]:
        annotated, forms, inferred = self._known[tuple(node.proto.output)]
        names = list(node.proto.input)
        here = [self._brought(name, value, forms.get(name)) for name, value in zip(names, inputs, strict=True)]
        for name in node.dying:
            for key in [key for key in self._moved if key[0] == name]:
                del self._moved[key]
        assert inferred is not None, "there is no error"
        if self._is_free(annotated, forms):
            return evaluate(call, here)
        self._made.update({name: forms[name] for name in node.proto.output if name in forms})
        if all(value is None or is_host(value) for value in here):
            return evaluate(call, here)
        natural = inferred.natural
        parts = self._parts(call, annotated, inferred, here)
        if parts:
            row = PARTIAL_RESULTS[annotated.op_type]
            if len(parts) > 1:  # each owner of the output gets its own elements of all parts, and then those of others
                form, natural = forms[call.outputs[0]], {}
                form = form.shares() if self._has_copies else form
                brought = [tuple([placed(v, form) for v in part]) for part in parts]
                parts = [reduce(lambda a, b: row.join(call, a, b), brought)]
            made: tuple[Value, ...] = (row.finish(call, parts[0], here),)
        else:
            made = self._evaluated(call, annotated, here, forms)
        return tuple(
            self._settled(value, natural.get(name), forms.get(name)) for name, value in zip(node.proto.output, made)
        )

    def _is_free(self, node: AnnotatedNode, forms: Mapping[str, TensorForm]) -> bool:
        """Return whether a node is done where the planner sees fit: it has no spec, and what it reads is whole
        everywhere; and no copies of its results are to be had there.
        """
        if self._has_copies and self._is_annotated:
            return False
        return not self._has_specs(node) and all(map(self._is_anywhere, forms.values()))

    def _has_specs(self, node: AnnotatedNode) -> bool:
        return any(entry.configuration == self._configuration and entry.specs for entry in node.annotations)

    def _evaluated(
        self, call: NodeCall, node: AnnotatedNode, inputs: Sequence[Value], forms: Mapping[str, TensorForm]
    ) -> tuple[Value, ...]:
        """Return the outputs of a node that is done where its inputs lie: of elementwise work with fused axes apart."""
        row = OPERATORS.get(node.op_type)
        form = forms.get(node.outputs[0])
        axes = [] if form is None else [tuple([n for n, _ in cut]) if len(cut) > 1 else () for cut in axes_apart(form)]
        if row is None or not row.group.is_elementwise or not any(axes):
            return evaluate(call, inputs)
        n = 1 if row.group.has_parameters else len(inputs)
        apart = [value if value is None else _with_axes_apart(value, axes) for value in inputs[:n]]
        made = evaluate(call, [*apart, *inputs[n:]])
        shape = np.broadcast_shapes(*(value.shape for value in inputs[:n] if value is not None))
        return tuple(value.reshape(shape) for value in made)

    def _brought(self, name: str, value: Value, form: TensorForm | None) -> Value:
        """Return an input in the form that its node has it in; host data go where they are read."""
        if not isinstance(value, DistArray) or form is None:
            return value
        lies = self._made.get(name)
        is_free = not self._has_copies and self._is_anywhere(form)
        if lies.is_same(form) if lies is not None else is_free or lies_so(value, form):
            return value
        key, is_constant = (name, form), value is self.graph.constants().get(name)
        is_to_stay = is_constant and self._has_copies
        if not is_to_stay and _travels(value) and any(len(owners) > 1 for owners in form.owners):
            return value  # every owner is sent its own with its work
        kept = self._constants if is_constant else self._moved
        if key not in kept:
            kept[key] = placed(value, form)
        return kept[key]

    def _is_anywhere(self, form: TensorForm) -> bool:
        return form.owners == (everywhere(self._num_devices),)

    def _settled(self, value: Value, natural: TensorForm | None, form: TensorForm | None) -> Value:
        """Return an output where it is made, and then in the form that its node gives it."""
        if not isinstance(value, DistArray) or form is None:
            return value
        if natural is not None and not natural.is_same(form):
            value = placed(value, natural)
        return placed(value, form)

    def _parts(
        self, call: NodeCall, node: AnnotatedNode, inferred: NodeInference, inputs: Sequence[Value]
    ) -> list[Part]:
        """Return what is made of each part of the loops that go, where the inputs have it; nothing of other nodes."""
        if not inferred.reduced or node.op_type not in PARTIAL_RESULTS:
            return []
        here = self._known[node.outputs][1]
        forms = [
            None if value is None else here[name].with_shape(value.shape) for name, value in zip(node.inputs, inputs)
        ]
        slabs = slabs_of(inferred.reduced, forms)
        if node.op_type in ("ArgMax", "ArgMin") and any(len(cut) > 1 for slab in slabs for _, cut, _ in slab.loops):
            return []  # the planner's own: positions in a fused axis are no range
        return [self._part(call, node, inputs, slab) for slab in slabs]

    def _part(self, call: NodeCall, node: AnnotatedNode, inputs: Sequence[Value], slab: Slab) -> Part:
        here = list(inputs)
        at = range(1)
        for loop, cut, index in slab.loops:
            at = shard_ranges(cut, index)[0]
            for i, axis in loop:
                if here[i] is not None and here[i].shape[axis] != 1:
                    here[i] = _slice(here[i], axis, cut, index)
        if slab.loops and node.op_type.startswith(("Reduce", "Arg")):  # what a reduction reads says where it is done
            here = [placed(x, f) if isinstance(x, DistArray) and f is not None else x for x, f in zip(here, slab.forms)]
        # What is added after the product is no part of it.
        forms = slab.forms[:2] if node.op_type == "Gemm" else slab.forms
        found = infer_outputs(
            node.op_type, node.attrs, forms, [GivenOutput()], self._num_devices, is_annotated=True, strict=self._strict
        )
        (_, form), *_ = found.outputs
        made = PARTIAL_RESULTS[node.op_type].local(call, here, at)
        return tuple(placed(v, form) if isinstance(v, DistArray) else v for v in made)


def _travels(x: DistArray) -> bool:
    """Return whether an array is host data that is so small that it travels with the work that reads it."""
    memo = x._base.current.memo
    return memo is not None and memo.on_client and x.nbytes <= x._env.block_nbytes


def _with_axes_apart(x: Value, axes: Sequence[tuple[Size, ...]]) -> Value:
    """Return a value with fused axes as several; `axes` are the sizes of those of the output, none of those that stay.

    Axes align from the right; one of one element becomes as many of one.
    """
    shape: list[int] = []
    for n, sizes in zip(x.shape, axes[len(axes) - x.ndim :], strict=True):
        known = [int(size or 0) for size in sizes]
        shape += [n] if not known else known if n == prod(known) else [1] * len(known)
    return x.reshape(tuple(shape))


def _slice(x: Value, axis: int, cut: AxisCut, at: int) -> Value:
    """Return one shard of an axis of a value."""
    ranges = shard_ranges(cut, at)
    sizes = [int(n or 0) for n, _ in cut]
    apart = x if len(sizes) == 1 else x.reshape((*x.shape[:axis], *sizes, *x.shape[axis + 1 :]))
    part = apart[(slice(None),) * axis + tuple(slice(r.start, r.stop) for r in ranges)]
    n = prod(map(len, ranges))
    return part.reshape((*x.shape[:axis], n, *x.shape[axis + 1 :])) if len(sizes) > 1 else part
