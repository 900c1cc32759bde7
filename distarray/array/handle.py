"""A handle is a base seen through a lens; `DistArray` adds what the user calls.

Operations on handles build expressions (`distarray.expr.bind`), or compute what is small and here at once (`at_call`,
`by_numpy`, `small.at_once`); here is which handles alias, what their node is and how a write advances it. Making a
handle costs about a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any, Self, TypeVar
from weakref import ref

import numpy as np

from distarray import config
from distarray.array import elements, window
from distarray.array.access import cast, put, read
from distarray.array.environment import forced_parts
from distarray.array.outside import apart, is_handed_out, is_written_outside, write_through
from distarray.array.pending import defer, in_forced_tiles, runs_at_once
from distarray.array.versions import Base, BlockType, block_type
from distarray.expr.affine import Affine
from distarray.expr.bind import bind_reshape
from distarray.expr.expr import GET, Environment, Expr, lying
from distarray.expr.lens import (
    Lens,
    Link,
    Reshape,
    compose,
    get,
    in_memory,
    layout_through,
    lens_dtype,
    lens_shape,
    reshape_is_view,
)
from distarray.expr.op import Op
from distarray.expr.rewrite import CONSTANT
from distarray.kernels.loans import copied, is_any_outside, reshaped
from distarray.ops.lenses import matrix_transpose_lens, permute_lens
from distarray.runtime import counters, small
from distarray.runtime.members import device_labels
from distarray.sharding.layout import c_layout, layout_name
from distarray.sharding.sharding import Sharding
from distarray.sharding.team import Team
from distarray.types import DType, HostArray, Shape

_new = object.__new__

#: What `Handle._readonly` is of views of an array that is read-only itself.
OF_OWNER = 2


class Handle:
    """Handle is what a DistArray holds: a base, which other handles may share, and the lens it is seen through."""

    __slots__ = ("__weakref__", "_base", "_lens", "_read", "_readonly")

    _base: Base
    _lens: Lens
    #: (version of the base, the node that reads it through the lens), so that two reads make one node. Weakly, unless
    #: it was computed to be kept: what a handle read once must not keep the old version of its base.
    _read: tuple[int, Callable[[], Expr | None]] | None
    #: Whether elements may not be written by this name; `OF_OWNER` if not by that of the whole array either.
    _readonly: int

    # ------------------------------------------------------------------------------------- handles and nodes

    @classmethod
    def _on(cls, node: Expr, order: Affine | None = None) -> Self:
        """Return a new handle on `node`, which nothing else aliases; runs it at once if it may fail.

        Parameters
        ----------
        order
            How the handle sees the node, where numpy has its axes in another order in memory.
        """
        if order is not None:
            return cls._on(node)._owning(order)
        self = _new(cls)
        if forced_parts.get() is not None:
            node = in_forced_tiles(node)
        if is_any_outside():
            node = apart(node)
        if node.memo is None and (computed := small.at_once(node)) is not None:
            block, warn = computed
            warn()
            return cls._of(block, node.op, block_type(node.dtype, node.shape, node.env))
        self._base = Base(node)
        self._lens = ()
        self._read = None
        self._readonly = 0
        if node.memo is None:
            defer(node)
        return self

    @classmethod
    def _of_any_order(cls, block: HostArray, op: Op, env: Environment) -> Self:
        """Return what `_of` does of elements in whatever order of axes numpy gave them."""
        inner, order = in_memory(block)
        made = cls._of(np.asarray(inner, order="C"), op, block_type(block.dtype, inner.shape, env))
        return made if order is None else made._owning(order)

    @property
    def _is_owner(self) -> bool:
        """Return whether the array is one of its own, and no view: it sees all of its base, in the order of memory."""
        return self._lens == self._base.order

    @property
    def _is_whole(self) -> bool:
        """Return whether the array sees all of its base, with the axes in some order."""
        lens = self._lens
        if len(lens) != 1:
            return not lens
        return type(lens[0]) is Affine and lens[0].permutation(self._base.shape) is not None

    def _owning(self, lens: Affine) -> Self:
        """Return the handle of a new base as one that owns it with its axes in another order."""
        self._lens = self._base.order = (lens,)
        return self

    __dx_box__ = _on

    @classmethod
    def _of(cls, block: HostArray, op: Op, made: BlockType) -> Self:
        """Return a new handle on elements that an operation made at the call, and that nobody else has."""
        self = _new(cls)
        self._base = base = _new(Base)
        base._node = base.slot = self._read = None
        base.block, base._op, base._type = block, op, made
        base.version = 0
        base.graphs = None
        base.history = base.order = ()
        self._lens = ()
        self._readonly = 0
        return self

    def _here(self) -> HostArray | None:
        """Return the elements where they are computed, in one array of this process: a view of them, to be read now;
        else None.
        """
        window.be_known()
        base = self._base
        block = base.block
        if block is None and (block := base.found()) is None:
            return None
        lens = self._lens
        return get(lens, block) if lens else block

    def _ready(self) -> HostArray | None:
        """Return what `_here` does for an operation at the call: also of what is small and made from nothing."""
        window.be_known()
        base = self._base
        block = base.block
        if block is None and (block := base.ready()) is None:
            return None
        lens = self._lens
        return get(lens, block) if lens else block

    def _element_here(self, at: int | tuple[int, ...]) -> Self | None:
        """Return the element at a position, a number of numpy's; None where there is none, or it is not computed at the
        call.
        """
        block = self._ready()
        if block is None or block.ndim != (1 if type(at) is int else len(at)) or forced_parts.get() is not None:  # type: ignore[arg-type]
            return None
        try:
            value = block[at]
        except IndexError:
            return None
        env = self._base.type.env
        if not small.is_eager(block.itemsize, env):
            return None
        return self._of(np.array(value), GET, block_type(block.dtype, (), env))

    def _copied_here(self, part: Affine, shape: Shape | None = None) -> Self | None:
        """Return a part of the elements in a handle of its own, of another `shape` if that is given; None where it is
        not computed at the call.
        """
        block = self._ready()
        if block is None or forced_parts.get() is not None:
            return None
        part_here, env = part.read(block), self._base.type.env
        if not small.is_eager(part_here.nbytes, env):
            return None
        own = copied(np.asarray(part_here))
        if shape is not None:
            own = reshaped(np, own, shape)
        return self._of(own, GET, block_type(block.dtype, own.shape, env))

    def __dx_node__(self) -> Expr:
        """Return the node of the current value; called on entry of every operation."""
        window.enter()
        return self._node()

    def _node(self) -> Expr:
        window.be_known()
        base = self._base
        # Before the version is: another thread may write between the two, and then the node is read again.
        number = base.version
        version = base.expr
        if version is None:
            version = base.current  # which raises
        if not self._lens:
            return version
        seen = self._read
        # Memory that others may write is read anew each time.
        is_outside = is_any_outside() and is_written_outside(version)
        if seen is not None and seen[0] == number and not is_outside:
            known = seen[1]()
            # It may be the version of another base by now: of a copy that was written, or whose memory was handed out.
            if known is not None and ((memo := known.memo) is None or not memo.is_given_up):
                return known
        node = read(version, self._lens)
        if forced_parts.get() is not None:
            node = in_forced_tiles(node)
        if node is not version and not is_outside:
            self._read = (number, ref(node))
        return node

    @staticmethod
    def _compute_and_keep(handles: Iterable[Handle]) -> list[Expr]:
        """Compute arrays together and keep them where they lie; return the nodes that have their blocks."""
        handles = list(handles)
        nodes = [x._kept_node() for x in handles]
        window.observe(nodes)
        for x, node in zip(handles, nodes, strict=True):
            seen = x._read
            if seen is not None and seen[1]() is node and x._base.current.memo is None:
                x._read = (seen[0], lambda node=node: node)
        return nodes

    def _kept_node(self) -> Expr:
        """Return the node whose blocks the elements are: that of the base, unless what is pending is seen in part."""
        window.enter()
        version = self._base.current if self._lens else None
        return self._node() if version is None or (version.memo is None and not self._is_whole) else version

    def _view(self, link: Link, *, readonly: bool = False) -> Self:
        """Return a handle on the same base that sees this one through `link`; no task, no bytes."""
        base = self._base
        shape = base.shape
        if not shape and isinstance(link, Affine | Reshape) and is_scalar(self):
            # Of a number numpy makes an array, or another number where there are no axes.
            base = (self._as_array() if link.shape else self._on(self.__dx_node__()))._base
        view = _new(type(self))
        view._base = base
        view._lens = compose(shape, self._lens, link)
        view._read = None
        # Whoever owns the elements forbids it for all views; what a view forbids, its own views may allow again.
        own = self._readonly and (OF_OWNER if self._is_owner else self._readonly)
        view._readonly = own or int(readonly)
        return view

    def _as_array(self) -> Self:
        """Return the array that numpy makes of a number, in memory of its own; the handle itself where it is none."""
        if not is_scalar(self):
            return self
        node = self.__dx_node__()
        return self._on(cast(node, node.dtype))

    def _of_base(self, lens: Lens) -> Self:
        """Return a handle on all that this one may be a part of, seen through `lens`; as read-only as its owner."""
        return handle_on(type(self), self._base, lens, int(self._readonly == OF_OWNER))

    def _seen_as(self, kind: type[AnyHandle]) -> AnyHandle:
        """Return a handle of another class on the same elements: the same base, seen through the same lens."""
        other = handle_on(kind, self._base, self._lens, self._readonly)
        other._read = self._read
        return other

    def _alias(self) -> Self:
        """Return another handle on the same elements."""
        return self._view(Affine.identity(self.shape))

    def _reshaped(self, shape: Shape, copy: bool | None = None) -> Self:
        """Return the elements in C order with another shape: a view exactly where numpy makes one (B-35)."""
        base = self._base
        if copy is not True:
            if reshape_is_view(base.shape, self._lens, shape):
                return self._view(Reshape(shape))
            if copy is False:
                raise ValueError(
                    f"Unable to avoid creating a copy while reshaping: a view of shape {self.shape} "
                    f"cannot be seen as {shape}; leave copy=False out"
                )
        if shape and (here := self._copied_here(Affine.identity(self.shape), shape)) is not None:
            return here
        return self._on(bind_reshape(self.__dx_node__(), shape))

    def _advance(self, written: Callable[[Expr], Expr]) -> None:
        """Write: let `written` of the current version be the next one of the base.

        What may fail is computed first, and a failure changes nothing. Where another thread has written in between, the
        write is made again, from its version.
        """
        base = self._base
        while True:
            number = base.version
            since = base.expr or base.current
            is_outside = is_any_outside()
            if is_outside and is_handed_out(since):
                if write_through(base, since, written):
                    return
                continue
            version = apart(written(since)) if is_outside else written(since)
            computed = small.at_once(version) if version.memo is None else None
            if computed is not None:
                block, warn = computed
                if base.replace(since, number, block, version.op):
                    warn()  # where warnings are errors, numpy has written too
                    return
                continue
            if version.memo is None and runs_at_once(version):
                window.run(version)
            # Live and listed before anybody can see it: no evaluation in another thread may overwrite what it reads.
            slot = version.hold(by_base=True)
            if version.memo is None and not version.op.repeatable:
                window.register(version)
            if base.advance(since, number, version, slot):
                break
        if version.memo is None and config.get("window") == 0:
            window.flush()

    def _write(self, value: Expr, since: Expr | None = None, again: Callable[[Expr], Expr] | None = None) -> None:
        """Write a node of this view's shape that was made for it.

        Parameters
        ----------
        since, again
            For a value that was made of this view: the version that it saw, and what makes it of another version, as
            this view sees that.
        """
        lens = self._lens

        def written(version: Expr) -> Expr:
            made = value if again is None or version is since else again(read(version, lens))
            if version.pin is not None and not lens and made.pin is None and made.memo is None and not made.is_live:
                made = made.with_pin(version.pin)
            if made.memo is None and runs_at_once(made):
                window.run(made)
            return put(version, lens, made)

        self._advance(written)

    # ------------------------------------------------------------------------------------------- attributes

    @property
    def shape(self) -> Shape:
        """Return the extents of the whole array."""
        lens = self._lens
        own = self._base.shape
        return lens_shape(own, lens) if lens else own

    @shape.setter
    def shape(self, shape: Any) -> None:
        from distarray.ops.manipulation import resolve_shape

        wanted = resolve_shape(self.shape, shape)
        try:
            view = self._reshaped(wanted, copy=False)
        except ValueError:
            if prod(wanted) != self.size:
                raise
            raise AttributeError(
                "Incompatible shape for in-place modification. Use `.reshape()` to make a copy with the desired shape."
            ) from None
        if self._is_owner:
            self._base.order = view._lens
        self._lens, self._read = view._lens, None

    @property
    def dtype(self) -> DType:
        """Return the type of the elements."""
        dtype = self._base.dtype
        return lens_dtype(dtype, self._lens) if self._lens else dtype

    @property
    def ndim(self) -> int:
        """Return the number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Return the number of elements of the whole array."""
        n = 1
        for extent in self.shape:
            n *= extent
        return n

    @property
    def itemsize(self) -> int:
        """Return the bytes that one element takes."""
        return int(self.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Return `size` times `itemsize`, as numpy: what a broadcast repeats counts each time."""
        return self.size * self.itemsize

    @property
    def team(self) -> Team | None:
        """Return the team that the array lives on; None if it is not distributed."""
        return self._base.env.team

    @property
    def device(self) -> str:
        """Return where the members keep their blocks: ``"cpu"``, ``"cuda"`` ..."""
        return self._base.env.device

    @property
    def _env(self) -> Environment:
        return self._base.env

    @property
    def devices(self) -> tuple[str, ...]:
        """Return the device of each member, in rank order."""
        env = self._env
        if env.device == "cpu":
            return ("cpu",) * env.size
        return device_labels(env)

    @property
    def sharding(self) -> Sharding:
        """Return how the array lies, or will lie: asking plans what is pending, and runs nothing."""
        known = self._known_sharding()
        if known is not None:
            return known
        from distarray.diagnostics.predict import planned_sharding

        return planned_sharding(self._node(), self._env)

    def _known_sharding(self) -> Sharding | None:
        """Return how the array lies if that can be told without planning."""
        whole = lying(self._base.current)
        return whole if not self._lens or whole is None else lying(self._node())

    @property
    def layout(self) -> str | tuple[int, ...]:
        """Return the order of the axes of a block in memory, outermost first: "C", "F" or a permutation."""
        version = self._base.current
        known = lying(version)
        layout = c_layout(version.ndim) if known is None else known.layout
        for link in self._lens:
            layout = layout_through(link, layout)
        return layout_name(layout)

    @property
    def T(self) -> Self:
        """Return the axes in reverse order. A view."""
        return self._view(permute_lens(self.shape))

    @property
    def mT(self) -> Self:
        """Return the last two axes exchanged. A view."""
        if self.ndim < 2:
            raise ValueError("matrix transpose with ndim < 2 is undefined")
        return self._view(matrix_transpose_lens(self.shape))

    # ----------------------------------------------------------------------------------------- observations

    def _host(self) -> HostArray:
        """Return the value as a host array that the caller owns."""
        block = self._here()
        if block is not None and block.nbytes <= elements.FETCHED:
            counters.count_fetched(block.nbytes)
            return np.array(block, order="K" if self._is_owner else "C")
        node = self.__dx_node__()
        if self._lens and node.memo is None and self._is_whole:
            whole: HostArray = get(self._lens, elements.fetch(self._base.current))
            return whole
        return elements.fetch(node)

    def _scalar(self, function: Callable[[Any], Any]) -> Any:
        """Return `function` of the only element; of several, numpy's error."""
        shape = self.shape
        for n in shape:
            if n != 1:
                # What numpy says depends on the shape alone.
                return function(np.broadcast_to(np.zeros((), self.dtype), shape))
        block = self._here()
        if block is None:
            block = elements.item(self.__dx_node__()).reshape(shape)
        return function(block[()] if is_scalar(self) else block)


#: A class of handles: what is made of a DistArray is one.
AnyHandle = TypeVar("AnyHandle", bound=Handle)


def handle_on(kind: type[AnyHandle], base: Base, lens: Lens, readonly: int) -> AnyHandle:
    """Return a handle of a class on what a base holds, seen through a lens."""
    x = _new(kind)
    x._base, x._lens, x._read, x._readonly = base, lens, None, readonly
    return x


#: Operations that make arrays without axes, unlike the others of their families.
_MAKE_ARRAYS = frozenset({"astype", "reshard", "where"})


def is_scalar(x: Handle) -> bool:
    """Return whether numpy has a scalar in place of `x`: it has no axes, and an operation or an index made it.

    A scalar is replaced by ``s += 1``, and other names of it keep its value. What is written into an array without axes
    is no scalar (`distarray.array.access.put`), nor is what `asarray` gives.
    """
    base = x._base
    if base.shape or x._lens:
        return False
    op = base.op
    is_made = op.family.makes_scalars or op is CONSTANT or op.name.startswith(("random_", "drawn_"))
    return is_made and op.name not in _MAKE_ARRAYS
