"""Expr: a node of what is to be computed, and the few facts a node carries.

Nodes are compared by identity. What a node computes never changes. Its memo, the stored blocks, is set when it is
evaluated, and a memoised node drops its operands, so that long loops do not pile up; later the memo changes only where
the same elements lie elsewhere: fetched to this process, cut, moved to another team or lost with it. No walk over nodes
recurses.
"""

from __future__ import annotations

import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

from distarray.dtypes import CANONICAL
from distarray.errors import PACKAGE
from distarray.expr.errstates import ErrState, is_heard_at_once
from distarray.expr.op import Op, declare
from distarray.forks import free_in_child
from distarray.lazy import loaded, options
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from distarray.sharding.team import Team, are_beside
from distarray.types import DType, HostArray, Shape

if TYPE_CHECKING:
    from distarray.config import Derived

Scalar: TypeAlias = bool | int | float | complex
#: Types of Python's numbers, whose dtype is weak.
SCALARS = frozenset({bool, int, float, complex})

SOURCE = declare("source", "source")
GET = declare("get", "get")
PUT = declare("put", "put")
RESHAPE = declare("reshape", "reshape")
ITEM = declare("item", "item")
#: The same elements, cut as the node is pinned; parameters: mode and memory of the redistribution.
RESHARD = declare("reshard", "map", is_identity=True)

_sequence = itertools.count()
_slots_lock = free_in_child(threading.RLock())
_NO_MESH = Mesh()
#: Bytes up to which an array stays one block, and what they are where threads of one process share it.
BLOCK_NBYTES, PROCESS_BLOCK_NBYTES = 1 << 20, 64 << 20


@dataclass(slots=True, eq=False)
class Findings:
    """A Findings is what layers above found of an environment: it goes with that, which may have a client.

    Parameters
    ----------
    types
        By dtype and shape the types of blocks (`array.versions.BlockType`).
    options
        What follows from options (`runtime.small.found_in`); empty before somebody asks.
    """

    types: dict[tuple[DType, Shape], Any] = field(default_factory=dict)  # Any: of a layer above
    options: tuple[Derived, ...] = ()


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Environment:
    """An Environment says where an array lives: its team (None: one member in this process) and its device string.

    Attributes
    ----------
    found
        What layers above found of it.
    """

    team: Team | None
    device: str = "cpu"
    found: Findings = field(default_factory=Findings, init=False, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Environment, (self.team, self.device)

    def __eq__(self, other: object) -> bool:
        return type(other) is Environment and self.device == other.device and are_beside(self.team, other.team)

    @property
    def size(self) -> int:
        """Return the number of members."""
        return 1 if self.team is None else self.team.size

    @property
    def client(self) -> Any:
        """Return the client of the cluster whose workers the members are; None where they are threads of this
        process.
        """
        return None if self.team is None else self.team.client

    @property
    def is_cluster(self) -> bool:
        """Return whether the members are workers of a cluster."""
        return self.team is not None and self.team.client is not None

    @property
    def block_nbytes(self) -> int:
        """Return the bytes up to which an array stays one block: what ``block-bytes`` says.

        Where it says nothing, more in one process than on a cluster: there all threads work at a block, and tiles would
        only be more steps. Where ``memory-limit`` says how much a member may hold, no more than an eighth of it.
        """
        get = options().get
        said: int | None = get("block-bytes")
        if said is not None:
            return said
        most = BLOCK_NBYTES if self.is_cluster or self.device != "cpu" else PROCESS_BLOCK_NBYTES
        limit: int | None = get("memory-limit")
        return most if limit is None else min(most, max(1, limit // 8))

    @property
    def mesh(self) -> Mesh:
        """Return the mesh of the team, or the one without axes."""
        return _NO_MESH if self.team is None else self.team.mesh

    def __str__(self) -> str:
        through = f", client={self.client.id!r}" if hasattr(self.client, "id") else ""
        return f"(team={self.team!r}, device={self.device!r}{through})"


class Slot:
    """A Slot says that a node is alive: the handles on it own the slot, the node refers to it weakly.

    Attributes
    ----------
    n_bases
        How many bases have come to have this node as their version.
    """

    __slots__ = ("__weakref__", "n_bases")

    n_bases: int


@dataclass(frozen=True, slots=True)
class BlockName:
    """A BlockName is a block that an executor holds, as it travels in a pickle: whoever reads it asks a cluster for its
    key.
    """

    key: Any  # Any: the executor's


def named(blocks: Iterable[Any]) -> list[Any]:
    """Return blocks as they travel in a pickle: those of a cluster by their names."""
    return [BlockName(block.key) if hasattr(block, "key") else block for block in blocks]


class LazyBlocks(Sequence[Any]):
    """LazyBlocks are the blocks of an evaluated node that are not all there: to index them makes, reads or names some.

    What else they are asked does not, if nothing else is said. In a list or tuple of blocks each is what tasks refer
    to, and what is here.
    """

    @property
    def handles(self) -> Sequence[Any]:
        """Return what tasks refer to: the blocks, or what stands for those that are not here and not made yet."""
        return self

    @property
    def present(self) -> Sequence[Any]:
        """Return the blocks, with names in the places of those that are not here."""
        return self.handles

    @property
    def held(self) -> Sequence[Any]:
        """Return what holds the blocks: each itself, or what stands for several of them that lie together; what is
        still to be made is made.
        """
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (named(self),)


def holding(blocks: Iterable[Any]) -> Iterable[Any]:
    """Return what holds blocks: each itself, or what `LazyBlocks` say."""
    return blocks.held if isinstance(blocks, LazyBlocks) else blocks


@dataclass(slots=True, eq=False)
class Stored:
    """A Stored is the memo of an evaluated node: its blocks in row-major tile order, and then copies of them
    (`sharding.dealing`).

    Parameters
    ----------
    sharding
        How `blocks` tile the array.
    blocks
        Arrays, or whatever handle the executor that holds them uses. Empty tiles have blocks too.
    on_client
        Whether the one block is an array of this process, wherever the team is: it travels with the plans that read it.
    exported
        Whether somebody else may have the blocks for good. False only of what our own kernels made: such a block may be
        written in place, while nobody sees it (`distarray.kernels.loans`).
    shared
        Numbers of the blocks that another array has too: they are written by neither, and not handed out.
    is_given_up
        Whether the blocks are another node's to write, or were handed out to be written: who comes upon the node by a
        weak reference has to make another one.
    home_copy
        All elements in this process, beside blocks that are elsewhere (`runtime.homing`); nobody writes into it.
    is_named
        Whether a pickle has the keys of the blocks: they stay where they are as long as somebody holds the array.
    """

    sharding: Sharding
    blocks: Sequence[Any]  # arrays of any backend, or futures
    on_client: bool = False
    exported: bool = True
    shared: frozenset[int] = frozenset()
    is_given_up: bool = False
    home_copy: HostArray | None = None
    is_named: bool = False

    @property
    def here(self) -> Any:
        """Return all elements, where they are one array of this process, or the first block."""
        return self.blocks[0] if self.home_copy is None else self.home_copy

    def share(self, numbers: Iterable[int] | None = None) -> None:
        """Note that another array has blocks too; all of them by default."""
        self.shared = self.shared.union(range(len(self.blocks)) if numbers is None else numbers)

    @property
    def handles(self) -> Sequence[Any]:
        """Return what tasks refer to: see `LazyBlocks`."""
        return self.blocks.handles if isinstance(self.blocks, LazyBlocks) else self.blocks

    @property
    def present(self) -> Sequence[Any]:
        """Return the blocks that are here, with names in the places of others: see `LazyBlocks`."""
        return self.blocks.present if isinstance(self.blocks, LazyBlocks) else self.blocks

    @property
    def held(self) -> list[Any]:
        """Return what holds the blocks: see `LazyBlocks`; of single blocks of a bundle that too."""
        return [getattr(block, "bundle", block) for block in holding(self.blocks)]

    def __reduce__(self) -> tuple[Any, ...]:
        blocks = self.blocks
        if type(blocks) in (list, tuple):
            blocks = named(blocks)
        return Stored, (self.sharding, blocks, self.on_client, self.exported)


@dataclass(frozen=True, slots=True)
class Origin:
    """An Origin is the user's line that defined a node, kept as (code, instruction offset) and looked up only when
    shown.
    """

    code: CodeType
    lasti: int

    @property
    def place(self) -> Hashable:
        """Return what tells it from others, which is had at once."""
        return self.code, self.lasti

    @property
    def line(self) -> tuple[str, int]:
        """Return file name and line number."""
        number = self.code.co_firstlineno
        for start, end, at in self.code.co_lines():
            if start <= self.lasti < end and at is not None:
                number = at
        return self.code.co_filename, number

    def __str__(self) -> str:
        return "{}:{}".format(*self.line)

    def __reduce__(self) -> tuple[object, tuple[str, int]]:
        return _SavedOrigin, self.line


def cell_of(file: str) -> str | None:
    """Return ``In[3]`` for the file that IPython makes of a cell of a notebook; None for others."""
    if (ipython := loaded("IPython")) is None or (shell := ipython.get_ipython()) is None:
        return None
    name = getattr(shell.compile, "format_code_name", lambda file: None)(file)  # its method for tracebacks
    return None if name is None else str(name[1])


@dataclass(frozen=True, slots=True)
class _SavedOrigin:
    """A _SavedOrigin is an origin that came from another process: code objects do not travel."""

    file: str
    number: int

    @property
    def place(self) -> Hashable:
        return self.line

    @property
    def line(self) -> tuple[str, int]:
        return self.file, self.number

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


#: Files of this package that were met on the way to the user's code.
_files: set[str] = set()


def user_frame() -> Origin | None:
    """Return where the user's code is, about a microsecond; of a function that one of this package called."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if name not in _files:
            if not name.startswith(PACKAGE):
                return Origin(frame.f_code, frame.f_lasti)
            _files.add(name)
        frame = frame.f_back
    return None


class Expr:
    """An Expr is one step of what is to be computed.

    Parameters
    ----------
    op
        The operation.
    operands
        The nodes it reads and, for ``map``, Python scalars in their places.
    shape, dtype
        Of the result; tuples of them for an operation with several results.
    env
        Team and device.
    params
        Static parameters, part of the plan key: see `distarray.expr.params`.
    runtime
        Run-time parameters (lenses, fill values, index bounds, `late_params`): not part of the plan key beyond their
        pattern.
    pin
        The sharding that the user asked for, or None.
    """

    __slots__ = (
        "__weakref__",
        "dtype",
        "env",
        "errstate",
        "memo",
        "n_made",
        "op",
        "operands",
        "origin",
        "params",
        "pin",
        "runtime",
        "seq",
        "shape",
        "slot",
    )

    def __init__(
        self,
        op: Op,
        operands: tuple[Expr | Scalar, ...],
        shape: tuple[int, ...],
        dtype: Any,  # np.dtype, or a tuple of them for several results
        env: Environment,
        params: Any = (),  # a hashable tuple: a record of `expr.params`, or the arguments of the family's kernels
        runtime: Any = None,  # each family's own
        pin: Sharding | None = None,
        origin: Origin | None = None,
        errstate: ErrState = None,
    ) -> None:
        self.op = op
        self.operands = operands
        self.shape = shape
        self.dtype = CANONICAL[dtype]
        self.env = env
        self.params = params
        self.runtime = runtime
        self.pin = pin
        self.origin = origin
        self.errstate = errstate
        self.memo: Stored | None = None
        self.slot: weakref.ref[Slot] | None = None
        self.seq = next(_sequence)
        self.n_made = 0  # evaluations that made it, of which none kept it

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        n = 1
        for s in self.shape:
            n *= s
        return n

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Return the shape of each result: an operation may have several."""
        shapes: Any = self.shape
        return shapes if type(self.dtype) is tuple else (shapes,)

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """Return the dtype of each result."""
        return self.dtype if type(self.dtype) is tuple else (self.dtype,)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the whole array; of an operation of several results those of all."""
        if type(self.dtype) is tuple:
            return sum(prod(s) * d.itemsize for s, d in zip(self.shapes, self.dtypes, strict=True))
        n: int = self.dtype.itemsize
        for s in self.shape:
            n *= s
        return n

    @property
    def stored(self) -> Stored:
        """Return the memo of a node that is evaluated."""
        memo = self.memo
        assert memo is not None
        return memo

    @property
    def is_to_raise(self) -> bool:
        """Return whether numpy is to raise, or to call something of the user's, of elements: ``errstate`` of the user's
        says so of some kind of event.
        """
        return is_heard_at_once(self.errstate)

    @property
    def is_live(self) -> bool:
        """Return whether a handle still refers to this node."""
        return self.slot is not None and self.slot() is not None

    def hold(self, *, by_base: bool = False) -> Slot:
        """Return the slot that keeps this node's result, made on first use; `by_base`: of a base that has this
        version.
        """
        if self.slot is None:  # held for the first time, by the thread that made it: nobody else can see it
            slot = Slot()
            slot.n_bases = 1 if by_base else 0
            self.slot = weakref.ref(slot)
            return slot
        if not by_base and (held := self.slot()) is not None:
            return held
        # Two threads that made one each would leave one of them with a node that seems dead.
        with _slots_lock:
            found = self.slot()
            if found is None:
                found = Slot()
                found.n_bases = 0
                self.slot = weakref.ref(found)
            found.n_bases += by_base
        return found

    def with_pin(self, pin: Sharding | None, params: Any = None) -> Expr:
        """Return the same operation, pending, with its result cut as said; with other static parameters, if they are
        given.

        Another node, unless nothing changes: whoever has this one has it as it was.
        """
        if params is None:
            if pin is self.pin:
                return self
            params = self.params
        assert self.memo is None
        return Expr(
            self.op,
            self.operands,
            self.shape,
            self.dtype,
            self.env,
            params,
            self.runtime,
            pin,
            self.origin,
            self.errstate,
        )

    def unsettled(self) -> tuple[tuple[Expr | Scalar, ...], Any] | None:
        """Return the operands and the run-time parameter while the node has no result, None once it has.

        Any thread may evaluate the node at any time, which sets the memo first and drops these two then: who reads them
        without the lock of evaluations reads them here, before the memo. The operands alone tell as well, read once:
        what has operands has none once it is settled.
        """
        operands, runtime = self.operands, self.runtime
        return None if self.memo is not None else (operands, runtime)

    def settle(self, stored: Stored) -> None:
        """Set the memo, once, and drop what was needed to compute it: in this order, see `unsettled`."""
        self.memo = stored
        self.operands = ()
        if not self.op.family.is_created:  # what is made from nothing can be made again
            self.runtime = None

    def nodes(self) -> list[Expr]:
        """Return the operands that are nodes."""
        return [o for o in self.operands if type(o) is Expr]

    def __repr__(self) -> str:
        return f"Expr({self.op.name}, {self.shape}, {self.dtype})"


def source(block: Any, env: Environment, *, on_client: bool = True, pin: Sharding | None = None) -> Expr:
    """Return a node of one array that exists in this process.

    Parameters
    ----------
    block
        The array; not copied.
    env
        Where it counts as living.
    on_client
        See `Stored.on_client`.
    pin
        The sharding that the user asked for.
    """
    node = Expr(SOURCE, (), tuple(block.shape), block.dtype, env, pin=pin)
    node.memo = Stored(Sharding.whole(env.mesh, len(block.shape)), (block,), on_client=on_client)
    return node


def cut_of(node: Expr) -> Sharding | None:
    """Return how a node is cut over the members, or will be because the user said so; None if that is still open."""
    memo = node.memo
    return node.pin if memo is None or memo.on_client else memo.sharding


def lying(node: Expr) -> Sharding | None:
    """Return how a node lies or will lie: host data that nobody cut lie here, whole, until their first use."""
    memo = node.memo
    return memo.sharding if memo is not None and memo.on_client and node.pin is None else cut_of(node)


def late_params(node: Expr) -> tuple[Any, ...]:
    """Return what the kernel of a node gets behind its static parameters, and what varies from run to run: functions of
    the user's, places to select at. No key of a plan holds it and no plan keeps it alive.
    """
    op, runtime = node.op, node.runtime
    if runtime is None or not op.family.has_late:
        return ()
    late: tuple[Any, ...] = runtime.late if op.family.is_tiled else runtime
    return late


def calls_functions(node: Expr) -> bool:
    """Return whether a node is made by a function of the user's, which is called once for each tile."""
    return any(map(callable, late_params(node)))


#: Returns the pending nodes, beside those that are evaluated, that live handles refer to, anywhere: what they need is
#: not overwritten. None: that cannot be told, since another thread is making a node, and nothing is overwritten. Called
#: only where something might be.
Others: TypeAlias = Callable[[], Iterable[Expr] | None]


def postorder(targets: Iterable[Expr], up_to: Op | None = None) -> list[Expr]:
    """Return the nodes that `targets` need, operands before users, up to those with a memo or of `up_to`, and these."""
    order: list[Expr] = []
    seen: set[int] = set()
    # None stands on a node whose operands are all listed.
    stack: list[Expr | None] = list(reversed([*targets]))
    while stack:
        node = stack.pop()
        if node is None:
            order.append(stack.pop())  # type: ignore[arg-type]  # never None on None
            continue
        number = id(node)
        if number in seen:
            continue
        seen.add(number)
        operands = node.operands
        if node.memo is not None or not operands or node.op is up_to:
            order.append(node)
            continue
        stack += (node, None)
        for o in operands[::-1]:
            if type(o) is Expr and id(o) not in seen:
                stack.append(o)
    return order
