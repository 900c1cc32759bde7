"""Rules of the class that moves elements: by loops where axes are carried over, by index maps where they are reshaped.

A reshape keeps the row-major number of every element, so it keeps the list of owners as it is: only the entries of all
axes, written one after the other, are dealt out to other axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from distarray.io.onnx.forms import AxisCut, Size, TensorForm, flat_pieces, n_shards, simplified
from distarray.io.onnx.loop_rules import unary
from distarray.io.onnx.node_facts import NodeFacts, OutputSpecNeeded, loops_of


def move(facts: NodeFacts) -> list[TensorForm]:
    """Follow V-1: a cut on axes carried over one to one is inherited; an axis that is indexed, shifted or joined is
    whole.
    """
    return MOVEMENTS[facts.op_type](facts)


# -- axes carried over ------------------------------------------------------------------------------------------------


def _transpose(facts: NodeFacts) -> list[TensorForm]:
    rank = len(facts.shape())
    given = facts.ints("perm")
    perm = tuple(reversed(range(rank))) if given is None else facts.axes(given, rank)
    if sorted(perm) != list(range(rank)):
        facts.refuse("attribute-invalid", f"perm={perm} is no order of {rank} axes")
    return _permuted(facts, facts.form(0), perm)


def _permuted(facts: NodeFacts, form: TensorForm, perm: Sequence[int]) -> list[TensorForm]:
    term = loops_of(len(perm))
    (found,) = facts.follow([term], [[term[p] for p in perm]], forms=[form])
    return [TensorForm(found.shape, tuple(form.cuts[p] for p in perm), found.owners)]


def _squeeze(facts: NodeFacts) -> list[TensorForm]:
    shape = facts.shape()
    given = facts.ints("axes")
    if given is None and facts.has(1):
        raise OutputSpecNeeded(facts.number, "axes are not known before the run", [None])
    if given is None and any(not isinstance(n, int) for n in shape):
        facts.refuse("attribute-invalid", "axes are needed where sizes are symbols")
    axes = [i for i, n in enumerate(shape) if n == 1] if given is None else facts.axes(given, len(shape))
    term = ["1" if axis in axes else loop for axis, loop in enumerate(loops_of(len(shape)))]
    return facts.follow([term], [[loop for loop in term if loop != "1"]])


def _unsqueeze(facts: NodeFacts) -> list[TensorForm]:
    given = facts.ints("axes")
    if given is None:
        raise OutputSpecNeeded(facts.number, "axes are not known before the run", [None])
    rank = len(facts.shape()) + len(given)
    new, old = facts.axes(given, rank), iter(facts.loops())
    return facts.follow([facts.loops()], [["1" if i in new else next(old) for i in range(rank)]])


def _expand(facts: NodeFacts) -> list[TensorForm]:
    target = facts.ints("shape")
    if target is None:
        raise OutputSpecNeeded(facts.number, "the shape is not known before the run", [None])
    shape = facts.shape()
    rank = max(len(shape), len(target))
    sizes = (1,) * (rank - len(target)) + target
    own = (1,) * (rank - len(shape)) + shape
    term = [f"d{i}" if n != 1 else "1" for i, n in enumerate(own)]
    out = [f"new{i}" if n == 1 and sizes[i] != 1 else loop for i, (n, loop) in enumerate(zip(own, term))]
    found = {f"new{i}": n for i, n in enumerate(sizes)}
    return facts.follow([term[rank - len(shape) :]], [out], sizes=found)


def _resized(facts: NodeFacts, sizes: Sequence[Size]) -> list[TensorForm]:
    """Return the form where axes get these sizes; a size None is not known."""
    changed = {axis: m for axis, (n, m) in enumerate(zip(facts.shape(), sizes)) if n != m or n is None}
    return _renewed(facts, changed)


def _renewed(facts: NodeFacts, sizes: Mapping[int, Size]) -> list[TensorForm]:
    """Return the form where elements change places along some axes: these must be whole, and have new sizes after."""
    term = facts.loops()
    out = [f"new{axis}" if axis in sizes else loop for axis, loop in enumerate(term)]
    new = {f"new{axis}": n for axis, n in sizes.items()}
    return facts.follow([term], [out], whole={term[axis] for axis in sizes}, sizes=new)


def _tile(facts: NodeFacts) -> list[TensorForm]:
    repeats = facts.ints("repeats")
    shape = facts.shape()
    if repeats is None:
        return _resized(facts, [None] * len(shape))
    return _resized(facts, [n if r == 1 else n * r if isinstance(n, int) else None for n, r in zip(shape, repeats)])


def _pad(facts: NodeFacts) -> list[TensorForm]:
    shape, pads = facts.shape(), facts.ints("pads", "paddings")
    axes = facts.named_axes(len(shape))
    if pads is None:
        sizes: list[Size] = [None if axis in axes else n for axis, n in enumerate(shape)]
        return _resized(facts, sizes)
    if len(pads) != 2 * len(axes):
        facts.refuse("attribute-invalid", f"{len(pads)} pads for {len(axes)} axes; two for each are needed")
    padded: dict[int, Size] = {}
    for axis, before, after in zip(axes, pads, pads[len(axes) :]):
        if before or after:  # also where it keeps its size
            n = shape[axis]
            padded[axis] = n + before + after if isinstance(n, int) else None
    return _renewed(facts, padded)


def _slice(facts: NodeFacts) -> list[TensorForm]:
    shape = facts.shape()
    starts, ends = facts.ints("starts"), facts.ints("ends")
    if starts is None or ends is None:
        return _resized(facts, [None] * len(shape))
    axes = facts.axes(facts.ints("axes") or range(len(starts)), len(shape))
    steps = facts.ints("steps") or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        facts.refuse("attribute-invalid", f"starts={starts}, ends={ends}, axes={axes} and steps={steps} do not fit")
    found: dict[int, Size] = {}
    for axis, start, end, step in zip(axes, starts, ends, steps):
        n = shape[axis]
        if isinstance(n, int):
            taken = range(n)[slice_of(n, start, end, step)]
            if taken == range(n):
                continue
            found[axis] = len(taken)
        elif (start, step) == (0, 1) and end >= 2**31 - 1:
            continue
        else:
            found[axis] = None
    return _renewed(facts, found)


def slice_of(n: int, start: int, end: int, step: int) -> slice:
    """Return the slice that bounds of Slice mean, of an axis of `n` elements.

    The specification clamps: a backward slice begins at the first element at the earliest, and may end before it.

    >>> range(4)[slice_of(4, -100, -100, -1)], range(4)[slice_of(4, 100, -100, -2)]
    (range(0, -1, -1), range(3, -1, -2))
    """
    if step > 0:
        return slice(start, end, step)
    first, last = (min(max(i + n if i < 0 else i, low), n - 1) for i, low in ((start, 0), (end, -1)))
    return slice(first, None if last < 0 else last, step)


def _concat(facts: NodeFacts) -> list[TensorForm]:
    shapes = [facts.shape(i) for i in range(len(facts.forms))]
    axis = facts.axis(0, len(shapes[0]))
    joined = [shape[axis] for shape in shapes if len(shape) > axis]
    term = loops_of(len(shapes[0]))
    terms = [[*term[:axis], f"x{i}", *term[axis + 1 :]] for i in range(len(shapes))]
    total = sum(n for n in joined if isinstance(n, int)) if all(isinstance(n, int) for n in joined) else None
    out = [*term[:axis], "new", *term[axis + 1 :]]
    return facts.follow(terms, [out], whole={f"x{i}" for i in range(len(shapes))}, sizes={"new": total})


def _split(facts: NodeFacts) -> list[TensorForm]:
    shape = facts.shape()
    axis = facts.axis(0, len(shape))
    n, sizes = shape[axis], facts.ints("split")
    count = facts.integer("num_outputs", facts.n_outputs or 2) if sizes is None else len(sizes)
    if sizes is None and isinstance(n, int) and not facts.has(1):
        parts: Sequence[Size] = split_sizes(n, count)
    else:
        parts = sizes if sizes is not None else [None] * count
    term = loops_of(len(shape))
    outs = [[*term[:axis], f"new{i}", *term[axis + 1 :]] for i in range(count)]
    return facts.follow([term], outs, whole=[term[axis]], sizes={f"new{i}": m for i, m in enumerate(parts)})


def split_sizes(n: int, count: int) -> list[int]:
    """Return the sizes of so many parts of `n` elements: of one size, but for the last ones.

    >>> split_sizes(5, 4)
    [2, 2, 1, 0]
    """
    most = -(-n // count)
    return [max(min(most, n - i * most), 0) for i in range(count)]


def _resize(facts: NodeFacts) -> list[TensorForm]:
    shape = list(facts.shape())
    axes = facts.named_axes(len(shape))
    sizes, scales = facts.ints("sizes"), facts.attrs.get("scales")
    new: list[Size] = list(shape)
    for i, axis in enumerate(axes):
        n = shape[axis]
        if sizes:
            new[axis] = sizes[i]
        elif scales:
            scale = float(scales[i])
            new[axis] = n if scale == 1 else int(n * scale) if isinstance(n, int) else None
        else:
            new[axis] = None
    if sizes and facts.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        new = [n if axis not in axes else None for axis, n in enumerate(shape)]
    # scales, sizes and roi are parameters, whatever number of them the opset has
    return _resized(facts, new)


def _crop(facts: NodeFacts) -> list[TensorForm]:
    shape = facts.shape()
    axes, target = facts.named_axes(len(shape)), facts.ints("shape")
    sizes = [(target[axes.index(i)] if target else None) if i in axes else n for i, n in enumerate(shape)]
    return _resized(facts, sizes)


# -- indexed axes -----------------------------------------------------------------------------------------------------


def _gather(facts: NodeFacts) -> list[TensorForm]:
    data, index = facts.loops(), facts.loops(1, "i")
    axis = facts.axis(0, len(data))
    return facts.follow([data, index], [[*data[:axis], *index, *data[axis + 1 :]]], whole=[data[axis]])


def _beside(facts: NodeFacts, axis: int) -> tuple[list[str], set[str]]:
    """Return the term of indices or updates beside data, and what must be whole: an axis of another size covers a
    part of the data's.
    """
    term, whole = [], set()
    for at, (n, m) in enumerate(zip(facts.shape(), facts.shape(1))):
        if at != axis and n == m:
            term.append(f"d{at}")
        else:
            term.append(f"i{at}")
            if at != axis:
                whole |= {f"d{at}", f"i{at}"}
    return term, whole


def _gather_elements(facts: NodeFacts) -> list[TensorForm]:
    data = facts.loops()
    axis = facts.axis(0, len(data))
    index, whole = _beside(facts, axis)
    return facts.follow([data, index], [index], whole={data[axis], *whole})


def _gather_nd(facts: NodeFacts) -> list[TensorForm]:
    data, shape = facts.loops(), facts.shape(1)
    batch, depth = facts.integer("batch_dims", 0), shape[-1] if shape else None
    if not isinstance(depth, int):
        raise OutputSpecNeeded(facts.number, "the last size of indices is not known", [None])
    index = [*data[:batch], *loops_of(len(shape) - batch, "i")]
    indexed = data[batch : batch + depth]
    return facts.follow([data, index], [[*index[:-1], *data[batch + depth :]]], whole=[*indexed, index[-1]])


def _scatter_elements(facts: NodeFacts) -> list[TensorForm]:
    data = facts.loops()
    axis = facts.axis(0, len(data))
    index, whole = _beside(facts, axis)
    return facts.follow([data, index, index], [data], whole={data[axis], f"i{axis}", *whole})


def _scatter_nd(facts: NodeFacts) -> list[TensorForm]:
    data, shape = facts.loops(), facts.shape(1)
    depth = shape[-1] if shape else None
    if not isinstance(depth, int):
        raise OutputSpecNeeded(facts.number, "the last size of indices is not known", [facts.shape()])
    index = loops_of(len(shape), "i")
    return facts.follow([data, index, [*index[:-1], *data[depth:]]], [data], whole=[*data[:depth], *index])


def _tensor_scatter(facts: NodeFacts) -> list[TensorForm]:
    data = facts.loops()
    axis = facts.axis(-2, len(data))
    update = [*data[:axis], "update", *data[axis + 1 :]]
    return facts.follow([data, update, data[:1]], [data], whole=[data[axis], "update"])


# -- reshapes ---------------------------------------------------------------------------------------------------------


def _reshape(facts: NodeFacts) -> list[TensorForm]:
    shape, target = facts.shape(), facts.ints("shape")
    if target is None:
        raise OutputSpecNeeded(facts.number, "the shape is not known before the run", [None])
    new = reshaped_sizes(shape, target, allow_zero=bool(facts.integer("allowzero", 0)))
    if -1 not in target and all(isinstance(n, int) for n in (*shape, *new)) and _product(shape) != _product(new):
        facts.refuse("shape-mismatch", f"{shape} cannot be reshaped to {tuple(new)}")
    return _parameters_too(facts, _reshaped(facts, facts.form(0), new))


def reshaped_sizes(shape: Sequence[Size], target: Sequence[int], *, allow_zero: bool) -> list[Size]:
    """Return the sizes that the target of a Reshape means: 0 is the size that the axis has, unless it may be 0, and -1
    what is left; None if that is not known.

    >>> reshaped_sizes((0, 3, 4), (0, -1), allow_zero=False), reshaped_sizes((6,), (2, -1), allow_zero=False)
    ([0, 12], [2, 3])
    """
    new: list[Size] = [n if n != 0 or allow_zero else shape[i] if i < len(shape) else 0 for i, n in enumerate(target)]
    if new.count(-1) > 1:
        raise ValueError(f"shape={list(target)} has several sizes -1; one may be what is left")
    if -1 in new:
        new[new.index(-1)] = _missing(shape, [n for n in new if n != -1])
    return new


def _missing(shape: Sequence[Size], others: list[Size]) -> Size:
    """Return the size that -1 stands for; None if it is not known."""
    left = list(shape)
    for n in list(others):
        if n in left:
            left.remove(n)
            others.remove(n)
    if not others and len(left) == 1:
        return left[0]
    if all(isinstance(n, int) for n in (*left, *others)) and _product(others):
        return _product(left) // _product(others)
    return None


def _product(sizes: Sequence[Size]) -> int:
    return prod([n for n in sizes if isinstance(n, int)])


def _flatten(facts: NodeFacts) -> list[TensorForm]:
    shape = facts.shape()
    axis = facts.integer("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    return _reshaped(facts, facts.form(0), [_missing(shape[:axis], []), _missing(shape[axis:], [])])


def _parameters_too(facts: NodeFacts, found: list[TensorForm]) -> list[TensorForm]:
    """Return the form where the devices have the parameters too."""
    term = loops_of(len(found[0].shape or ()))
    (owned,) = facts.follow([term], [term], forms=[found[0], *facts.forms[1:]])
    return [TensorForm(found[0].shape, found[0].cuts, owned.owners)]


def _reshaped(facts: NodeFacts, form: TensorForm, new: Sequence[Size]) -> list[TensorForm]:
    """Return the form of the same elements, row-major, under another shape."""
    shape = form.shape
    assert shape is not None
    if all(n_shards(cut) == 1 for cut in form.cuts):
        return [TensorForm.whole(new, form.owners[0])]
    same = 0  # leading axes, then trailing ones, that stay what they are
    while same < min(len(shape), len(new)) and shape[same] == new[same] is not None:
        same += 1
    tail = 0
    while tail < min(len(shape), len(new)) - same and shape[-1 - tail] == new[-1 - tail] is not None:
        tail += 1
    middle = form.cuts[same : len(shape) - tail]
    sizes = new[same : len(new) - tail]
    cuts = _dealt(middle, shape[same : len(shape) - tail], sizes)
    if cuts is None:
        message = f"a cut of {shape} into {form.grid} shards is none of {tuple(new)}"
        raise OutputSpecNeeded(facts.number, message, [new])
    return [TensorForm(tuple(new), (*form.cuts[:same], *cuts, *form.cuts[len(shape) - tail :]), form.owners)]


def _dealt(cuts: Sequence[AxisCut], shape: Sequence[Size], sizes: Sequence[Size]) -> list[AxisCut] | None:
    """Return the pieces of the cuts of some axes dealt out to axes of other sizes; None if a piece would be broken."""
    if all(n_shards(cut) == 1 for cut in cuts):
        return [()] * len(sizes)
    entries = [entry for cut, n in zip(cuts, shape, strict=True) for entry in (cut or ((n, 1),))]
    known = tuple((n, k) for n, k in entries if isinstance(n, int))
    if len(known) < len(entries) or any(not isinstance(n, int) for n in sizes) or 0 in (*shape, *sizes):
        return None
    pieces = list(flat_pieces(known))
    found: list[AxisCut] = []
    for i, size in enumerate(sizes):
        left, mine = size, list[tuple[int, int]]()
        assert isinstance(left, int)
        while pieces and (left > 1 or (pieces[0][0] == 1 and (mine or i == len(sizes) - 1))):
            n, k = pieces.pop(0)
            if left % n == 0:
                mine.append((n, k))
                left //= n
            elif n % left == 0 and k in (1, n):
                mine.append((left, left if k == n else 1))
                pieces.insert(0, (n // left, k // left if k == n else 1))
                left = 1
            else:
                return None
        found.append(simplified(tuple(mine)))
    return found if not pieces else None


def block_steps(
    op_type: str, mode: str | None, shape: Sequence[int], b: int
) -> tuple[list[int], tuple[int, ...], list[int]]:
    """Return a shape, an order of axes, and a shape: what DepthToSpace and SpaceToDepth do with blocks of `b` x `b`."""
    n, c, h, w = shape
    is_crd = mode == "CRD"
    if op_type == "SpaceToDepth":
        perm = (0, 1, 3, 5, 2, 4) if is_crd else (0, 3, 5, 1, 2, 4)
        return [n, c, h // b, b, w // b, b], perm, [n, c * b**2, h // b, w // b]
    last = [n, c // b**2, h * b, w * b]
    if is_crd:
        return [n, c // b**2, b, b, h, w], (0, 1, 4, 2, 5, 3), last
    return [n, b, b, c // b**2, h, w], (0, 3, 4, 1, 5, 2), last


def _blocks(facts: NodeFacts) -> list[TensorForm]:
    """Let DepthToSpace and SpaceToDepth be a reshape, a transpose and a reshape."""
    shape, b = facts.shape(), facts.integer("blocksize", 1)
    if len(shape) != 4 or not all(isinstance(n, int) for n in shape):
        raise OutputSpecNeeded(facts.number, f"the sizes {shape} are not all known", [(None,) * 4])
    inner, perm, last = block_steps(facts.op_type, facts.attrs.get("mode"), [int(size or 0) for size in shape], b)
    try:
        (split,) = _reshaped(facts, facts.form(0), inner)
        (moved,) = _permuted(facts, split, perm)
        return _reshaped(facts, moved, last)
    except OutputSpecNeeded as error:
        raise OutputSpecNeeded(facts.number, f"a cut of {shape} goes through blocks", [last]) from error


MOVEMENTS: dict[str, Callable[[NodeFacts], list[TensorForm]]] = {
    "CenterCropPad": _crop,
    "Concat": _concat,
    "DepthToSpace": _blocks,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "Pad": _pad,
    "Reshape": _reshape,
    "Resize": _resize,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "Slice": _slice,
    "SpaceToDepth": _blocks,
    "Split": _split,
    "Squeeze": _squeeze,
    "TensorScatter": _tensor_scatter,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": unary,
    "Unsqueeze": _unsqueeze,
    "Upsample": _resize,
}
