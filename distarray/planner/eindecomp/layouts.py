"""Layouts of inputs that lie as the plan likes: they follow from how the operations are cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from distarray.planner.eindecomp.axis_cuts import AxisCut
from distarray.planner.eindecomp.eingraph import EinGraph
from distarray.planner.eindecomp.machine import Machine
from distarray.planner.eindecomp.moved import edge_seconds
from distarray.planner.eindecomp.paper_costs import Splits, n_kernels, result_parts, wanted_parts
from distarray.sharding.prime import prime_factors


def input_layouts(
    graph: EinGraph, splits: Mapping[str, Splits], machine: Machine, *, even: bool
) -> dict[str, tuple[AxisCut, ...]]:
    """Return one layout for every input.

    Prescribed ones stay. An input that must be cut like a result is. Every other one lies in the cut of one of its
    readers, that for which reading it takes the fewest seconds, and in more parts of the same if there are workers
    that would hold none of it.

    Parameters
    ----------
    even
        Whether all workers must hold a share of every input, whatever that costs in messages.
    """
    found: dict[str, tuple[AxisCut, ...]] = {u: a.layout for u, a in graph.inputs.items() if a.layout is not None}
    for u in graph.inputs:
        if u in found:
            continue
        group = graph.tied.get(u, (u,))
        made = [found[w] for w in group if w in found]
        made += [result_parts(graph.ops[w], splits[w]) for w in group if w in graph.ops]
        if made:
            found[u] = made[0]
            continue
        cut = _fastest(graph, splits, group, machine)
        found |= {w: spread(graph, cut, group, splits, machine, even) for w in group}
    return found


def _fastest(graph: EinGraph, splits: Mapping[str, Splits], group: Sequence[str], machine: Machine) -> tuple[int, ...]:
    """Return, of the cuts in which arrays are read, the one from which reading them takes the fewest seconds."""
    reads = [(u, v, wanted_parts(graph.ops[v], splits[v], i)) for u in group for v, i in graph.reads[u]]
    cuts = sorted({cut for _, _, cut in reads})
    if len(cuts) < 2:
        return cuts[0] if cuts else (1,) * len(graph.shape(group[0]))
    total = np.zeros(len(cuts))
    for u, v, wanted in reads:
        array = graph.inputs[u]
        kernels = np.array([n_kernels(splits[v])])
        total += edge_seconds(array.shape, array.itemsize, np.array(cuts), np.array([wanted]), kernels, machine)[:, 0]
    return cuts[int(np.argmin(total))]


def spread(
    graph: EinGraph,
    cut: tuple[int, ...],
    group: Sequence[str],
    splits: Mapping[str, Splits],
    machine: Machine,
    even: bool,
) -> tuple[int, ...]:
    """Return a layout in more parts, nested in `cut`, so that every worker that reads an array holds a share of it.

    Where an array is read whole by many, each of them then fetches the shares of the others, and none the whole from
    one. It is done where the share that it holds already takes longer to fetch than the additional messages.
    """
    shape = graph.shape(group[0])
    readers = [n_kernels(splits[v]) for u in group for v, _ in graph.reads[u]]
    factor = min(machine.p, max(readers, default=machine.p)) // prod(cut)
    if even:
        factor = machine.p // prod(cut)
    nbytes = max(graph.inputs[u].nbytes for u in group)
    saved = machine.mean_byte_seconds * nbytes / (factor * prod(cut)) if factor > 1 else 0.0
    if factor <= 1 or not (even or saved > machine.message_seconds * (factor - 1)):
        return cut
    parts = list(cut)
    for prime in reversed(prime_factors(factor)):
        axes = [a for a, n in enumerate(shape) if parts[a] * prime <= n]
        if axes:
            widest = max(axes, key=lambda a: (shape[a] / parts[a], -a))
            parts[widest] *= prime
    return tuple(parts)
