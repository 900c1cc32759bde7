"""Small stays small: pending nodes whose arrays are one small block each are plain calls, one after the other.

No plan, no task, no pool. Nodes run in program order, so that a write may change its base in place wherever nobody
reads the old version any more, exactly as numpy would. It is also what expressions mean: tests compare plans with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from distarray.expr.bind import accumulator_dtype
from distarray.expr.errstates import mode_of, modes_to_hear, say, text_of
from distarray.expr.expr import Expr, late_params
from distarray.expr.instructions import Instruction, Operand, RuntimeScalar
from distarray.kernels import tables
from distarray.kernels.accumulators import accumulator, partial_of
from distarray.kernels.backends import NUMPY, empty_for
from distarray.kernels.buffers import POOL
from distarray.kernels.contractions import contract
from distarray.kernels.devices import backend_for
from distarray.kernels.elementwise import Elementwise, elementwise, event_name, is_quick, numpy_name
from distarray.kernels.folds import FOLD
from distarray.kernels.listening import Listener, listener
from distarray.kernels.loans import copied, may_overwrite, owned, reshaped
from distarray.kernels.monoids import MONOIDS, Within, finish_reduction
from distarray.kernels.outcomes import Reduction, reduction_cost
from distarray.kernels.program import shared_program
from distarray.kernels.reporting import report
from distarray.kernels.sliced import REDUCED_SLICE
from distarray.kernels.slices import boxes, copy_by_threads, reduced_extents
from distarray.kernels.threads import HELPED
from distarray.types import DType, HostArray, Shape

#: Bytes from which a result's block is recycled.
RECYCLED = 1 << 16
#: Bytes up to which a block is reduced at once; the bits of sums change there, wherever they are computed.
IN_SLICES = 2 << 20
#: Cost of an element (`threads.HELPED`) that hardly any operation exceeds.
MOST_COST = 256
_NONE: Mapping[int, Sequence[Expr]] = MappingProxyType({})


def interpret(order: Sequence[Expr], wanted: Collection[int], donated: Collection[int] = ()) -> dict[int, Any]:
    """Evaluate nodes on NumPy blocks in this process.

    Parameters
    ----------
    order
        All nodes needed, operands before users; memoised ones have one block here.
    wanted
        ``id`` of the nodes whose values are returned.
    donated
        ``id`` of memoised nodes whose block may be overwritten, since nobody needs it afterwards.

    Returns
    -------
    dict
        By ``id``: an array that nothing else refers to.
    """
    steps = [node for node in order if node.memo is None]
    readers = Readers.of(steps, wanted)
    readers.fresh.update(donated)
    steps.sort(key=lambda node: node.seq)  # as in the program
    values: dict[int, Any] = {}
    for node in order:
        if node.memo is not None:
            values[id(node)] = node.memo.here
    met: list[tuple[str, Expr]] = []

    def note(kind: str, _flag: int) -> None:
        met.append((kind, node))

    with np.errstate(call=note, divide="call", over="call", invalid="call", under="ignore"):
        for node in steps:
            _noted(node, _step(node, values, readers), values, readers)
    _refuse(met)
    _report(met)
    return {id(node): _owned(node, values[id(node)], readers) for node in order if id(node) in wanted}


@dataclass(slots=True)
class Readers:
    """Readers tell who still reads what, while nodes are computed one after the other.

    Attributes
    ----------
    uses
        How often each value is read or returned, by ``id``. A view's uses are uses of what it is a view of, too.
    root
        What each view is one of.
    fresh
        Nodes whose blocks may be overwritten where nobody reads them any more.
    """

    uses: dict[int, int]
    root: dict[int, int]
    fresh: set[int]

    @classmethod
    def of(cls, steps: Sequence[Expr], wanted: Iterable[int]) -> Readers:
        """Return who reads what of `steps`, operands before users, before any is computed; the values of `wanted` stay
        (``id`` of nodes).
        """
        uses: dict[int, int] = {}
        root: dict[int, int] = {}
        for number in [*[id(o) for node in steps for o in node.operands if type(o) is Expr], *wanted]:
            uses[number] = uses.get(number, 0) + 1
        for node in steps:
            if node.op.family.is_view and node.operands:  # another thread may have computed it meanwhile
                first = id(node.operands[0])
                r = root[id(node)] = root.get(first, first)
                uses[r] = uses.get(r, 0) + uses.get(id(node), 0)
        return cls(uses, root, set())

    def copy(self) -> Readers:
        """Return the same of now, whatever is computed next."""
        return Readers(self.uses.copy(), self.root, self.fresh.copy())

    def ended(self, node: Expr) -> list[int]:
        """Count down what a node has read, and return what nobody reads any more."""
        found = []
        for o in node.operands:
            if type(o) is Expr:
                i = id(o)
                r = self.root.get(i, i)
                for number in (i, r) if r != i else (i,):
                    self.uses[number] -= 1
                    if not self.uses[number] and number != id(node):
                        found.append(number)
        return found

    def is_last(self, node: Expr) -> bool:
        """Return whether nobody but `node` still reads its base, a fresh node."""
        base = id(node.operands[0])
        r = self.root.get(base, base)
        if r != base or r not in self.fresh:
            return False
        return self.uses[r] == sum([1 for o in node.operands if type(o) is Expr and self.root.get(id(o), id(o)) == r])


def _noted(node: Expr, value: Any, values: dict[int, Any], readers: Readers) -> None:
    """Note the value of a node, and let go of what nobody reads any more."""
    family = node.op.family
    if family.is_new or family.is_write:
        readers.fresh.add(id(node))
    elif not family.is_view and all(value is not values.get(id(o)) for o in node.operands if type(o) is Expr):
        readers.fresh.add(id(node))  # a kernel may return its operand
    values[id(node)] = value
    for i in readers.ended(node):
        values.pop(i, None)


def computed(
    steps: Sequence[Expr], values: dict[int, Any], passes: Mapping[int, Sequence[Expr]] = _NONE
) -> tuple[HostArray, Callable[[], None]]:
    """Return the value of the last of a few nodes, computed at the user's call.

    Parameters
    ----------
    steps
        What is to be computed, operands before users; what comes twice is computed once.
    values
        By ``id`` the blocks of what they read, none of which is overwritten; what they make is added.
    passes
        Those that are to be computed as one program each (`passes_of`); of what they meet they raise errors.

    Returns
    -------
    ndarray
        Nothing else refers to it.
    callable
        Warns of what was met, if anything was.
    """
    hearing, given = listener(), list(values.values())
    hearing.run(_compute, steps, values, hearing, passes)
    met = hearing.heard()
    _refuse(met)
    last = steps[-1]
    value = owned(values.pop(id(last)), given, is_own=last.op.family.is_new, is_only=True)
    return value, partial(_report, met, is_call=True)


def passes_of(steps: Sequence[Expr], values: Mapping[int, Any]) -> dict[int, list[Expr]]:
    """Return the passes over memory that a few nodes are in part: elementwise operations that nothing else reads, and
    the reduction of them, or the last of the nodes, which ends the pass.

    Parameters
    ----------
    steps, values
        As for `computed`.

    Returns
    -------
    dict
        By ``id`` of the last node of each, its nodes, operands before users.
    """
    steps = list({id(node): node for node in steps}.values())
    readers: dict[int, set[int]] = {}
    for node in steps:
        for o in node.nodes():
            readers.setdefault(id(o), set()).add(id(node))
    found = {}
    for last in steps:
        is_reduction = last.op.kind == "reduce"
        if not is_reduction and not (last.op.kind == "map" and last is steps[-1]):
            continue
        own, members = {id(last)}, [last]
        for node in reversed(steps[: steps.index(last)]):
            if node.op.kind == "map" and readers[id(node)] <= own:
                own.add(id(node))
                members.append(node)
        swept = last.nodes()[0] if is_reduction else last
        n = prod(swept.shape)
        if n * len(members) * MOST_COST < HELPED or any(map(late_params, members)):
            continue
        cost = sum([_cost(node) for node in members if node.op.kind == "map"])
        if n * (cost + reduction_cost(swept.dtype) * is_reduction) >= HELPED:
            found[id(last)] = members[::-1]
    return found


def _in_one_pass(nodes: Sequence[Expr], values: Mapping[int, Any]) -> HostArray:
    """Return the value of the last of the nodes of a pass, computed as one program, on all threads.

    Raises
    ------
    FloatingPointError
        Where an event is met that counts.
    """
    *maps, last = nodes
    is_reduction = last.op.kind == "reduce"
    if not is_reduction:
        maps.append(last)
    own = set(map(id, maps))
    inputs = list(dict.fromkeys([id(o) for node in nodes for o in node.nodes() if id(o) not in own]))
    register = {i: k for k, i in enumerate([*inputs, *map(id, maps)])}
    scalars: list[Any] = []

    def operand(o: Any) -> Operand:
        if type(o) is Expr:
            return register[id(o)]
        scalars.append(o)
        return RuntimeScalar(len(scalars) - 1)

    instructions = tuple(
        [Instruction(node.op.name, tuple(map(operand, node.operands)), node.dtype, node.params) for node in maps]
    )
    blocks = [values[i] for i in inputs]
    heeded = modes_to_hear([node.errstate for node in nodes])
    modes: Any = {kind: "ignore" if mode == "ignore" else "raise" for kind, mode in heeded.items()}
    outputs: tuple[int, ...] = () if is_reduction else (register[id(last)],)
    swept = last.nodes()[0] if is_reduction else last
    reductions: tuple[Reduction, ...] = ()
    if is_reduction:
        reductions = (Reduction(register[id(swept)], last.op.monoid, last.params.axes, accumulator_dtype(last)),)
    program = shared_program(len(inputs), instructions, outputs, reductions)
    outcome = program.run(blocks, scalars, swept.shape, errstate=modes)
    for event in outcome.events:  # of numpy's own none is noted: they raise, or are ignored
        say(event.kind)
    made: HostArray = _finished(last, outcome.partials[0], swept.shape) if is_reduction else outcome.outputs[0]
    return made


def _compute(
    steps: Sequence[Expr], values: dict[int, Any], hearing: Listener, passes: Mapping[int, Sequence[Expr]]
) -> None:
    steps = list({id(node): node for node in steps}.values())
    readers = Readers.of(steps, [*values, id(steps[-1])])
    inside = {id(node) for nodes in passes.values() for node in nodes} - passes.keys()
    for node in steps:
        hearing.now = node
        if id(node) in inside:
            continue
        try:
            if id(node) in passes:
                value = _in_one_pass(passes[id(node)], values)
            else:
                value = _step(node, values, readers)
        except Exception:
            if node.memo is None:
                raise
            value = node.memo.here  # of a view that another thread has computed meanwhile
        _noted(node, value, values, readers)


def _refuse(met: Sequence[tuple[str, Expr]]) -> None:
    """Raise the first of the floating point events of nodes of which numpy raises an error."""
    for kind, node in met:
        if mode_of(kind, node.errstate) == "raise":
            error = FloatingPointError(text_of(kind, _numpys(node)))
            if node.origin is not None:
                error.add_note(f"{node.op.name}, called at {node.origin}")
            raise error


def _report(met: Sequence[tuple[str, Expr]], *, is_call: bool = False) -> None:
    """Warn of the floating point events of nodes, in the order in which they were met; for `is_call` see `report`."""
    for kind, node in dict.fromkeys(met):
        name = _numpys(node)
        report([(kind, name)], [(name, node.origin, node.errstate)], is_call=is_call)


def _numpys(node: Expr) -> str:
    """Return the name by which numpy warns of an operation."""
    kind = node.op.kind
    if kind == "contract":
        return str(node.params.name)
    if kind == "take_put":
        return str(node.params.mode)
    return event_name(node.op.name) if kind == "map" else "reduce" if kind == "reduce" else node.op.name


def _owned(node: Expr, value: Any, readers: Readers) -> Any:
    """Return a value that is returned: C-contiguous, writeable, and nothing else refers to it."""
    i = id(node)
    is_ours = i not in readers.root and (i in readers.fresh or node.memo is not None)
    if type(node.dtype) is tuple or (
        is_ours and type(value) is np.ndarray and value.flags.c_contiguous and value.flags.writeable
    ):
        return value
    return copied(np.asarray(value))


def _step(node: Expr, values: dict[int, Any], readers: Readers) -> Any:
    """Return the value of a node, computed in the floating-point state in which it was defined."""
    try:
        if node.errstate is None:
            return value_of(node, values, readers)
        with np.errstate(**modes_to_hear([node.errstate])):
            return value_of(node, values, readers)
    except Exception as error:
        if node.origin is not None:
            error.add_note(f"{node.op.name}, called at {node.origin}")
        raise


def value_of(node: Expr, values: dict[int, Any], readers: Readers) -> Any:
    """Return the value of a node from the blocks of its operands, which may be those of fresh nodes that end here."""
    kind = node.op.kind
    if kind == "map":
        return _map(node, values, readers)
    if kind == "get":
        return node.runtime.read(values[id(node.operands[0])])
    if kind == "put":
        return _put(node, values, readers)
    if kind == "reduce":
        return _reduce(node, values[id(node.operands[0])])
    if kind == "create":
        box = tuple([(0, n) for n in node.shape])
        return tables.CREATE[node.op.name](
            backend_for("cpu", 0), box, node.shape, node.dtype, node.params, node.runtime
        )
    blocks = [values[id(o)] for o in node.operands if type(o) is Expr]
    if kind == "reshape":
        try:
            return blocks[0].reshape(node.shape, copy=False)
        except ValueError:
            return reshaped(np, copied(blocks[0]), node.shape)
    if kind == "contract":
        joined = contract(backend_for("cpu", 0), blocks, (*node.params, *late_params(node)), node.dtype)
        return finish_reduction(node.op.name, node.params.monoid, joined, 1, node.ndim, node.dtype, ())
    if kind == "item":
        return blocks[0][node.params.number]
    if kind == "take":
        return tables.take(np, blocks[0], blocks[1:], node.params)
    if kind == "take_put":
        base, value, *index = blocks
        new = base if _may_overwrite(node, values, readers) else copied(base)
        tables.put_whole(np, new, value, index, node.params)
        return new
    if kind == "fold":
        fold, params = FOLD[node.op.name], (*node.params, *late_params(node))
        return fold.finish(np, fold.partial(np, *blocks, params=params), node.shape, node.dtype, params)
    if kind == "windows":
        boxes = [node.runtime.box(i, (0,) * node.ndim, b.shape) for i, b in enumerate(blocks)]
        blocks = [b[tuple([slice(r.start, r.stop) for r in box])] for b, box in zip(blocks, boxes, strict=True)]
        return tables.BLOCK[node.op.name](np, *blocks, params=(*node.params, *late_params(node), (0,) * node.ndim))
    late = late_params(node) if kind == "block" else ((0,) * blocks[0].ndim,)
    params = (*node.params, *late) if late else node.params
    if (placed := tables.PLACED.get(node.op.name)) is not None:
        out = empty_for(NUMPY, blocks[0], node.shape, node.dtype)
        placed(out, *blocks, params=params, start=0)
        return out
    if node.op.name in tables.FILL:
        out = empty_for(NUMPY, blocks[0], node.shape, node.dtype)
        tables.FILL[node.op.name](out, *blocks, params=params)
        return out
    return tables.BLOCK[node.op.name](np, *blocks, params=params)


def made_ready(node: Expr, readers: Readers) -> Callable[[dict[int, Any]], Any]:
    """Return what does of values what `value_of` does, over and over: views and writes of views are looked up once."""
    kind = node.op.kind
    if kind == "get":
        read, source = node.runtime.read, id(node.operands[0])
        return lambda values: read(values[source])
    if kind == "put" and type(node.operands[1]) is Expr:
        base, value, write = id(node.operands[0]), id(node.operands[1]), node.runtime.write
        is_last = readers.is_last(node)

        def put(values: dict[int, Any]) -> HostArray:
            new: HostArray = values[base]
            if not (is_last and may_overwrite(new)):
                new = copied(new)
            write(new, values[value])
            return new

        return put
    return lambda values: value_of(node, values, readers)


def _map(node: Expr, values: dict[int, Any], readers: Readers) -> HostArray:
    args = [values[id(o)] if type(o) is Expr else o for o in node.operands]
    dtypes = tuple([a.dtype if type(a) is np.ndarray else None for a in args])
    function = elementwise(node.op.name, node.params, node.dtype, dtypes)
    out = None
    shape = node.shape
    # The block of an operand that ends here is taken over, as numpy does it with temporaries.
    fresh = readers.fresh
    if fresh and function.has_inplace and shape and node.nbytes >= RECYCLED:
        for o in node.operands:
            if type(o) is Expr and o.shape == shape and o.dtype == node.dtype:
                i = id(o)
                if i in fresh and readers.uses[i] == 1 and i not in readers.root:
                    array = values[i]
                    if array.flags.c_contiguous and may_overwrite(array):
                        out = array
                        break
    return called(function, args, shape, node.dtype, out)


def _cost(node: Expr) -> int:
    """Return the cost of an element of an elementwise operation (`threads.HELPED`)."""
    dtypes = tuple([o.dtype if type(o) is Expr else None for o in node.operands])
    return elementwise(node.op.name, node.params, node.dtype, dtypes).cost


def is_quick_map(node: Expr) -> bool:
    """Return whether an elementwise operation is as fast as memory."""
    return is_quick(numpy_name(node.op.name))


def called(
    function: Elementwise, args: Sequence[Any], shape: tuple[int, ...], dtype: DType, out: HostArray | None = None
) -> HostArray:
    """Return an elementwise function of blocks and scalars, in `out` if that is given."""
    if not function.is_exact:
        args = [_as_contiguous(a, shape) if type(a) is np.ndarray else a for a in args]
    if out is None:
        n = dtype.itemsize
        for extent in shape:
            n *= extent
        if n < RECYCLED or not shape:
            value = function.call(*args)
            return value if type(value) is np.ndarray else np.asarray(value)
        out = POOL.take(shape, dtype)  # fresh pages cost more than the arithmetic
    return function.call(*args, out=out)  # type: ignore[no-any-return]


def _as_contiguous(block: HostArray, shape: tuple[int, ...]) -> HostArray:
    if not block.ndim or (block.flags.c_contiguous and block.shape == shape):
        return block
    return np.array(np.broadcast_to(block, shape), order="C")


def _may_overwrite(node: Expr, values: dict[int, Any], readers: Readers) -> bool:
    """Return whether nobody but `node` still reads the buffer of its base, and it is ours."""
    # a kernel may have returned a view of something else
    return readers.is_last(node) and may_overwrite(values[id(node.operands[0])])


def _put(node: Expr, values: dict[int, Any], readers: Readers) -> HostArray:
    base: HostArray = values[id(node.operands[0])]
    value, lens = node.operands[1], node.runtime
    new = base if _may_overwrite(node, values, readers) else copied(base)
    if type(value) is not Expr:
        lens.write(new, value)
        return new
    given = values[id(value)]
    is_large = 2 * value.nbytes >= HELPED and given.dtype == new.dtype and lens.is_injective
    if is_large and not np.may_share_memory(new, given):
        copy_by_threads(given, lens.writable(new))
    else:
        lens.write(new, given)
    return new


def reduced(monoid: str, block: HostArray, axes: tuple[int, ...], dtype: DType) -> Any:
    """Return the partial of a block that has elements: a large one in the slices of a program, as plans have it."""
    found = MONOIDS[monoid]
    if not block.flags.c_contiguous:
        block = np.ascontiguousarray(block)
    if block.nbytes <= IN_SLICES or not found.is_ordered(dtype):
        return found.partial(block, axes, dtype)
    reduction, extents = Reduction(0, monoid, axes, dtype), reduced_extents(block.shape, axes, REDUCED_SLICE)
    made = accumulator(reduction, block.shape, extents)
    whole = Within((0,) * block.ndim, block.shape)
    for box in boxes(block.shape, extents, range(block.ndim)):
        made.add(made.partial(block[box], box, whole), box)
    return made.result()


def _reduce(node: Expr, block: HostArray) -> HostArray:
    axes: tuple[int, ...] = node.params.axes
    wide = accumulator_dtype(node)
    if 0 in block.shape:
        state = partial_of(Reduction(0, node.op.monoid, axes, wide), block, block.shape, None)
    else:
        state = reduced(node.op.monoid, block, axes, wide)
    return _finished(node, state, block.shape)


def _finished(node: Expr, state: Any, shape: Shape) -> HostArray:
    """Return the result of a reduction, given the partial of a block of `shape`."""
    n = prod([shape[a] for a in node.params.axes])
    made = finish_reduction(node.op.name, node.op.monoid, state, n, node.ndim, node.dtype, node.params.extra)
    return np.reshape(made, node.shape)
