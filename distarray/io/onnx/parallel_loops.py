"""The core of inference: an operation as loops, its inputs as forms, and what follows for its outputs.

Every class of operators says which loop each axis of its inputs and outputs runs over, as a `ShardingRule`. From that,
`follow_loops` gets everything: (1) the cuts of all inputs over one loop are identical where the size is not 1; (2) for
every combination of shards of all loops, the devices that hold all input shards are the intersection of their owners,
not empty; (3) the owners of an output shard are the union over the loops that it lacks; (4) an output axis has the cut
of its loop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

from distarray.io.onnx.forms import AxisCut, Owners, Size, TensorForm, is_identical, n_shards
from distarray.io.onnx.violations import Refusal, Violation
from distarray.sharding.rule import ShardingRule

#: Combinations of shards that are looked at for one node.
MAX_COMBINATIONS = 1 << 20
_ONE = "1"


@dataclass(frozen=True, slots=True)
class NodeLoops:
    """NodeLoops are what a node iterates over: a rule without ``...``, and sizes that no input has.

    Parameters
    ----------
    rule
        Loops of the inputs that are given and of the outputs. Loops that are ``whole`` may not be cut.
    sizes
        Of loops that stand in outputs only.
    number
        Number of the rule of the class, such as ``"M-1"``.
    broadcast
        Loops that broadcast as numpy's axes do: an axis of size 1 may not be cut (N-2).
    """

    rule: ShardingRule
    number: str
    sizes: Mapping[str, Size] = field(default_factory=dict)
    broadcast: frozenset[str] = frozenset()

    def output_shapes(self, sizes: Mapping[str, Size]) -> list[tuple[Size, ...]]:
        """Return the shape of each output, by the sizes of the loops of the inputs."""
        known = {**self.sizes, **sizes}
        return [tuple([1 if loop == _ONE else known.get(loop) for loop in term]) for term in self.rule.results]


def _loop_sizes(loops: NodeLoops, shapes: Sequence[Sequence[Size]]) -> dict[str, Size]:
    """Return the size of each loop of the inputs; a number counts more than a symbol. Raises a `Refusal` if two inputs
    have different sizes, neither 1, where they share a loop.
    """
    sizes: dict[str, Size] = {}
    for term, shape in zip(loops.rule.operands, shapes, strict=True):
        if len(term) != len(shape):
            raise Refusal(loops.number, "shape-mismatch", f"an input has rank {len(shape)}, and {len(term)} is needed")
        for loop, n in zip(term, shape, strict=True):
            known = sizes.setdefault(loop, n)
            if known == 1 or not isinstance(known, int):
                sizes[loop] = n if n is not None and not (n == 1 and known is not None) else known
            elif isinstance(n, int) and n not in (1, known) and loop != _ONE:
                raise Refusal(loops.number, "shape-mismatch", f"sizes {known} and {n} meet, and neither is 1")
    return sizes


@dataclass(frozen=True, slots=True)
class Meeting:
    """A Meeting says how the inputs of a node are used together, where, and what follows for its outputs.

    Parameters
    ----------
    loops, forms
        Of `follow_loops`.
    sizes
        Of each loop of the inputs.
    cuts
        Of each loop that is cut.
    held
        Per combination of shards of these loops, row-major, the devices that hold the shards of all inputs.
    results
        Form of each output.
    """

    loops: NodeLoops
    forms: tuple[TensorForm, ...]
    sizes: Mapping[str, Size]
    cuts: Mapping[str, AxisCut]
    held: tuple[Owners, ...]
    results: list[TensorForm]


def follow_loops(loops: NodeLoops, forms: Sequence[TensorForm], *, strict: bool, warnings: list[Violation]) -> Meeting:
    """Return how the inputs of a node are used together, and the form of each output.

    Parameters
    ----------
    loops
        What the node iterates over.
    forms
        Of the inputs that `loops` has a term for.
    strict
        False: an input that is whole where the others are cut is sliced where it lies, if it lies there (A-10).
    warnings
        Gets what is worth saying and no error.

    Raises
    ------
    Refusal
        If the inputs cannot be used together.
    """
    rule = loops.rule
    sizes = _loop_sizes(loops, [form.shape or () for form in forms])
    cuts, sliced = _cuts_of_loops(loops, forms, sizes, strict)
    n_combinations = prod(map(n_shards, cuts.values()))
    if n_combinations > MAX_COMBINATIONS:
        text = f"{n_combinations} combinations of shards; at most {MAX_COMBINATIONS} are looked at"
        raise Refusal(loops.number, "too-many-shards", text)
    shards = [_shards(term, form.grid, cuts) for term, form in zip(rule.operands, forms, strict=True)]
    slicing = {number for number, _ in sliced}
    held = [_holders(loops, forms, at, slicing) for at in zip(*shards, strict=True)]
    for loop in sorted(sliced.values()):
        text = f"an input is whole along loop {loop}, which others cut; it is sliced where it lies"
        warnings.append(Violation(loops.number, "local-slice", text))
    if loops.broadcast and len(forms) > 1 and not sliced:
        _warn_of_owners(loops, forms, sizes, shards, warnings)
    results = []
    for term, shape in zip(rule.results, loops.output_shapes(sizes), strict=True):
        grid = [n_shards(cuts.get(loop, ())) for loop in term]
        owners: list[set[int]] = [set() for _ in range(prod(grid))]
        for shard, devices in zip(_shards(term, grid, cuts), held, strict=True):
            owners[shard] |= devices
        found = tuple([cuts.get(loop, ()) for loop in term])
        results.append(TensorForm(shape, found, tuple(map(frozenset, owners))))
    return Meeting(loops, tuple(forms), sizes, cuts, tuple(held), results)


def _shards(term: Sequence[str], grid: Sequence[int], cuts: Mapping[str, AxisCut]) -> list[int]:
    """Return, per combination of shards of the loops that are cut, the number of the shard of a tensor, of each of
    whose axes `term` and `grid` are the loop and the number of shards.
    """
    # how far shards are apart along each loop; 0 where the tensor lacks the loop
    steps = [sum(prod(grid[i + 1 :]) for i, at in enumerate(term) if at == loop and grid[i] > 1) for loop in cuts]
    every = product(*(range(n_shards(cut)) for cut in cuts.values()))
    return [sum(i * step for i, step in zip(at, steps, strict=True)) for at in every]


def _cuts_of_loops(
    loops: NodeLoops, forms: Sequence[TensorForm], sizes: Mapping[str, Size], strict: bool
) -> tuple[dict[str, AxisCut], dict[tuple[int, int], str]]:
    """Return the cut of each loop that is cut, and the axes (input, axis) that are to be sliced for it."""
    cuts: dict[str, AxisCut] = {}
    having: dict[str, list[tuple[int, int]]] = {}
    for number, (term, form) in enumerate(zip(loops.rule.operands, forms, strict=True)):
        for axis, (loop, cut) in enumerate(zip(term, form.cuts, strict=True)):
            is_one = form.shape is not None and form.shape[axis] == 1
            if is_one and n_shards(cut) > 1:
                if loop == _ONE or loop in loops.broadcast or sizes[loop] != 1:
                    text = f"axis {axis} of input {number} has size 1 and is cut into {n_shards(cut)} shards"
                    raise Refusal("N-2", "broadcast-axis-sharded", f"{text}; a broadcast axis is whole")
                having.setdefault(loop, []).append((number, axis))  # all sizes are 1: only what is cut must agree
                cuts.setdefault(loop, cut)
            if loop in loops.rule.whole and n_shards(cut) > 1:
                text = f"axis {axis} of input {number} is cut into {n_shards(cut)} shards, and must be whole"
                raise Refusal(loops.number, "axis-must-be-whole", text)
            if not is_one:
                having.setdefault(loop, []).append((number, axis))
                if n_shards(cut) > 1:
                    cuts.setdefault(loop, cut)
    sliced: dict[tuple[int, int], str] = {}
    for loop, cut in cuts.items():
        for number, axis in having.get(loop, ()):
            other = forms[number].cuts[axis]
            if is_identical(cut, other):
                continue
            if n_shards(other) == 1 and not strict:
                sliced[number, axis] = loop
                continue
            rule = "N-1" if loop in loops.broadcast else loops.number
            text = f"axis {axis} of input {number} has {n_shards(other)} shards where another input has {n_shards(cut)}"
            same = "" if n_shards(other) != n_shards(cut) else " of other elements"
            raise Refusal(rule, "axis-sharding-mismatch", f"{text}{same}; the cuts must be identical")
        if len(cut) == 1:
            cuts[loop] = ((sizes[loop], cut[0][1]),)
    return cuts, sliced


def _holders(loops: NodeLoops, forms: Sequence[TensorForm], at: Sequence[int], slicing: Collection[int]) -> Owners:
    """Return the devices that hold these shards of all inputs; of the inputs `slicing` they need a slice."""
    used = [form.owners[shard] for form, shard in zip(forms, at, strict=True)]
    found = None
    for number, owners in enumerate(used):
        if number not in slicing:
            found = owners if found is None or found is owners else found & owners
    for number in slicing:
        if found is not None and not found <= used[number]:
            text = f"input {number} is whole on {sorted(used[number])[:8]}, not on all devices that need a slice of it"
            raise Refusal("N-1" if loops.broadcast else loops.number, "axis-sharding-mismatch", text)
        found = used[number] if found is None else found & used[number]
    assert found is not None
    if not found:
        shown = ", ".join(str(sorted(owners)[:8]) for owners in used)
        rule = "N-3" if loops.broadcast else loops.number
        raise Refusal(rule, "empty-intersection", f"no device holds the shards {at} of all inputs: {shown}")
    return found


def _warn_of_owners(
    loops: NodeLoops,
    forms: Sequence[TensorForm],
    sizes: Mapping[str, Size],
    shards: Sequence[Sequence[int]],
    warnings: list[Violation],
) -> None:
    """Say where equal cuts have other owners, or a device holds a shard but none of an input broadcast to it (N-2)."""
    large = [
        {loop for loop, n in zip(term, form.shape or (), strict=True) if n != 1 and loop in sizes}
        for term, form in zip(loops.rule.operands, forms, strict=True)
    ]
    for a, form in enumerate(forms):
        for b, other in enumerate(forms):
            if a == b or form.owners == other.owners:
                continue
            if large[a] == large[b]:
                text = f"inputs {a} and {b} have equal cuts and other owners"
            elif large[a] - large[b] and not _covers(form, shards[a], other, shards[b]):
                text = f"input {b} is broadcast, but not on every device that holds input {a}"
            else:
                continue
            warnings.append(Violation("N-2", "owners-differ", text))
            return


def _covers(form: TensorForm, shards: Sequence[int], other: TensorForm, others: Sequence[int]) -> bool:
    """Return whether each owner of each shard of `form` holds some shard of `other` to use with it."""
    there: dict[int, set[int]] = {}
    for shard, beside in zip(shards, others, strict=True):
        there.setdefault(shard, set()).update(other.owners[beside])
    return all(form.owners[shard] <= devices for shard, devices in there.items())
