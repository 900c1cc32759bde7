"""Slabs: the parts in which a node is done whose loops go and are cut, each where the inputs have it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import NamedTuple

from distarray.io.onnx.forms import AxisCut, TensorForm, n_shards, shard_ranges
from distarray.io.onnx.node_facts import ReducedLoop


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
