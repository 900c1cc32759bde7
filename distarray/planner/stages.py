"""Grouping of pending nodes into stages: one task per tile, whatever the number of operations.

Elementwise nodes with the same loops run in one program; a reduction runs in the pass that makes its input, a write in
the pass that makes its value. An edge is a *barrier* when the reader needs elements that another tile made: a lens, a
broadcast, a result of a reduction, of a product, of a write. The level of a node is the number of barriers before it;
nodes of one level never wait for each other, so joining them cannot make a cycle.

Steps: `_Grouping.forward` sets levels as early as possible, `_Grouping.sink` moves what only later levels read to
them, `_Grouping.join` unites what shares a pass, `_ProgramWriter` writes the register program of each group.
"""

from __future__ import annotations

from collections.abc import Iterable

from distarray.expr.bind import accumulator_dtype
from distarray.expr.instructions import Instruction, Operand, RuntimeScalar
from distarray.expr.op import FAMILIES
from distarray.planner.graph import Graph
from distarray.planner.loops import program_extents
from distarray.planner.plan import Access, Combine, Stage
from distarray.union_find import UnionFind

#: Slices of a result are computed where they are read, rather than all of it once, if they are this small a share.
SMALL_SHARE = 4
#: Families whose nodes run in register programs; of the others each node that is stored is a stage.
_PROGRAM = frozenset([kind for kind, family in FAMILIES.items() if family.is_fused])


class _Grouping:
    """A _Grouping decides which nodes of a graph share a stage: it holds levels, the nodes to be stored, and the
    groups.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        n = len(graph.nodes)
        self.users = graph.users()
        self.level = [0] * n
        self.available = [0] * n  # first level that can read the stored result
        self.stored: set[int] = set()
        self.same: list[tuple[int, ...]] = [()] * n  # operands that are read from a register
        self.lensed = [False] * n  # computed inside its only reader, through a lens
        self._can_lens = [False] * n
        self._parts = UnionFind[int]()  # connected by register edges
        # By root of a part: what decides its cut.
        self._decided = [self._decision(i) for i in range(n)]
        self.groups = UnionFind[int]()

    def kind(self, i: int) -> str:
        node = self.graph.nodes[i]
        if node.memo is not None:
            return "source"
        # What is held is made in a register of one pass, which stores it: nothing reads a file twice.
        return "map" if self.graph.is_held(i) else node.op.kind

    def shape_of(self, i: int) -> tuple[int, ...]:
        return self.graph.nodes[i].shape

    def _decision(self, i: int) -> object:
        """Return what decides the cut of the group that `i` joins: the base that it writes, the user, or nothing yet
        (None).

        A group has one cut, so it has at most one write, which follows the base, and no pin beside it or another pin.
        """
        node = self.graph.nodes[i]
        return ("put", i) if self.kind(i) == "put" else node.pin if self.kind(i) in _PROGRAM else None

    # ------------------------------------------------------------------------------------------- levels

    def forward(self) -> None:
        graph = self.graph
        for i in range(len(graph.nodes)):
            kind = self.kind(i)
            if kind == "source":
                continue
            if kind == "create":
                if i in graph.kept:
                    self.stored.add(i)
                continue
            level = 0
            same: list[int] = []
            loops = program_extents(graph.nodes[i]) if kind in _PROGRAM else ()
            for position, o in enumerate(graph.operands[i]):
                if o is None:
                    continue
                is_base = position == 0 and graph.nodes[i].op.family.is_write
                if self._register_edge(i, kind, position, o, loops):
                    same.append(o)
                    level = max(level, self.level[o])
                elif kind != "get" and not is_base and self._lens_edge(kind, o, loops):
                    level = max(level, self.level[self._below(o)])
                elif kind == "get":
                    level = max(level, self._reach(o) if self.kind(o) != "map" else self.level[o])
                else:
                    level = max(level, self._barrier(o, base=is_base))
            self.level[i] = level
            self.available[i] = level + 1
            self.same[i] = tuple(same)
            self._can_lens[i] = kind == "map" and self._is_private(i)
            if kind != "map" and kind != "get":
                self.stored.add(i)
            if i in graph.kept:
                self.stored.add(i)
                if kind == "get" and not self._push_through(i):
                    self._store_read(i)

    def _register_edge(self, i: int, kind: str, position: int, o: int, loops: tuple[int, ...]) -> bool:
        if kind not in _PROGRAM or self.kind(o) != "map" or self.shape_of(o) != loops:
            return False
        if kind == "put" and position == 0:
            return False
        mine, other = self._parts.find(i), self._parts.find(o)
        decided = self._decided
        if not _agree(decided[mine], decided[other]):
            return False
        either = decided[other] if decided[mine] is None else decided[mine]
        decided[self._parts.union(other, mine)] = either
        return True

    def _is_private(self, i: int) -> bool:
        """Return whether `i` may be computed inside its readers: it has one, or few elements of it are read through
        lenses.
        """
        if i in self.graph.kept:
            return False
        if len(self.users[i]) != 1:
            nodes = self.graph.nodes
            if any(self.kind(u) != "get" for u in self.users[i]):
                return False
            if SMALL_SHARE * sum(nodes[u].size for u in self.users[i]) > nodes[i].size:
                return False
        return all(
            o is None or self.kind(o) != "map" or (self._can_lens[o] and o in self.same[i])
            for o in self.graph.operands[i]
        )

    def _lens_edge(self, kind: str, o: int, loops: tuple[int, ...]) -> bool:
        """Return whether the get node `o` is read inside its reader's program: what is below it is then computed
        through the lens, and not stored.
        """
        if kind not in _PROGRAM or self.kind(o) != "get":
            return False
        if len(self.users[o]) != 1 or o in self.graph.kept or loops != self.shape_of(o):
            return False
        return self._push_through(o)

    def _push_through(self, o: int) -> bool:
        """Compute what the lens `o` reads inside its reader, if that is private and the lens repeats nothing."""
        inner = self._below(o)
        if not self._can_lens[inner] or self.graph.nodes[o].size > self.graph.nodes[inner].size:
            return False
        for i in self._private_tree(inner):
            self.lensed[i] = True
        self.level[o] = self.level[inner]
        self.available[o] = self.level[o] + 1
        return True

    def _private_tree(self, i: int) -> Iterable[int]:
        stack = [i]
        while stack:
            j = stack.pop()
            yield j
            stack.extend(self.same[j])

    def _below(self, o: int) -> int:
        inner = self.graph.operands[o][0]
        assert inner is not None
        return inner

    def _reach(self, o: int) -> int:
        return 0 if self.kind(o) in ("source", "create") else self.available[o]

    def _barrier(self, o: int, *, base: bool = False) -> int:
        """Return the first level at which another group can read `o`, and mark the node behind it as stored unless it
        exists or is made where it is read.
        """
        if base and self.kind(o) == "get":
            return self._store_read(o)
        while self.kind(o) == "get":
            o = self._below(o)
        kind = self.kind(o)
        if kind == "source":
            return 0
        if kind == "create":
            if not base:
                return 0
            self.available[o] = 1
        self.stored.add(o)
        return self.available[o]

    def _store_read(self, o: int) -> int:
        """Store the elements that the get node `o` shows, since they are kept or will be written, and return the first
        level that can read them.
        """
        self.stored.add(o)
        self.level[o] = self._barrier(o)
        self.available[o] = self.level[o] + 1
        return self.available[o]

    # ---------------------------------------------------------------------------------------- sink and join

    def sink(self) -> None:
        """Compute as late as its readers allow what only registers read: less is stored between levels."""
        for i in reversed(range(len(self.graph.nodes))):
            if self.kind(i) != "map" or i in self.stored or self.lensed[i]:
                continue
            readers = [u for u in self.users[i] if i in self.same[u]]
            if readers and len(readers) == len(self.users[i]):
                self.level[i] = min(self.level[u] for u in readers)
                self.available[i] = self.level[i] + 1
        for i in range(len(self.graph.nodes)):
            if self.kind(i) in _PROGRAM:
                for o in self.same[i]:
                    if self.level[o] != self.level[i] and not self.lensed[o]:
                        self.stored.add(o)

    def join(self) -> None:
        """Unite nodes of one level that a register connects, and passes of one level over the same operand."""
        decided = [self._decision(i) for i in range(len(self.graph.nodes))]

        def unite(i: int, j: int) -> None:
            i, j = self.groups.find(i), self.groups.find(j)
            if i != j and _agree(decided[i], decided[j]):
                either = decided[j] if decided[i] is None else decided[i]
                decided[self.groups.union(i, j)] = either

        for i in range(len(self.graph.nodes)):
            for o in self.same[i]:
                if self.level[o] == self.level[i]:
                    unite(o, i)
        # Two passes over one array become one: readers of the same operand in the same way, at the same level.
        seen: dict[tuple[int, int], int] = {}
        for i in range(len(self.graph.nodes)):
            if self.kind(i) not in ("map", "reduce") or self.lensed[i]:
                continue
            for read in self.graph.operands[i]:
                if read is None or self._is_free(read) or self.shape_of(read) != program_extents(self.graph.nodes[i]):
                    continue
                unite(seen.setdefault((read, self.level[i]), i), i)

    def _is_free(self, i: int) -> bool:
        """Return whether a second pass over `i` costs nothing but itself: it is in registers, or a constant."""
        return self.kind(i) == "map" or (self.kind(i) == "create" and self.graph.nodes[i].op.repeatable)

    # ------------------------------------------------------------------------------------------- result

    def stages(self) -> list[Stage]:
        members: dict[int, list[int]] = {}
        single: list[tuple[int, int]] = []
        for i in range(len(self.graph.nodes)):
            kind = self.kind(i)
            if kind in _PROGRAM:
                # pushed through one lens, and stored for another reader: computed in both places
                if not self.lensed[i] or i in self.stored:
                    members.setdefault(self.groups.find(i), []).append(i)
            elif i in self.stored:
                single.append((self.level[i], i))
        drafts: list[tuple[int, int, Stage]] = []
        for group in members.values():
            drafts.append((self.level[group[0]], group[0], _ProgramWriter(self, group).stage()))
        for level, i in single:
            kind = self.kind(i)
            if kind in ("get", "create"):
                stage = _ProgramWriter(self, [i]).stage()
            else:
                stage = self._own(i)
            drafts.append((level, i, stage))
        drafts.sort(key=lambda d: (d[0], d[1]))
        return [d[2] for d in drafts]

    def _own(self, i: int) -> Stage:
        reads = []
        for o in self.graph.operands[i]:
            assert o is not None
            node, path = self.resolve(o)
            reads.append(Access(node, path))
        return Stage(self.kind(i), (i,), tuple(reads))  # type: ignore[arg-type]  # of no program

    def resolve(self, o: int, path: tuple[int, ...] = ()) -> tuple[int, tuple[int, ...]]:
        """Return the stored or created node behind reads, and the path from it."""
        while self.kind(o) == "get":
            path = (o, *path)
            o = self._below(o)
        return o, path


def _agree(one: object, other: object) -> bool:
    """Return whether one cut does for both of what was decided."""
    return one is None or other is None or one == other


class _ProgramWriter:
    """A _ProgramWriter translates the nodes of one group into the reads, instructions, stores, combines and write of a
    Stage.
    """

    def __init__(self, grouping: _Grouping, group: list[int]) -> None:
        self._g = grouping
        self._group = set(group)
        self._members = group
        self._reads: list[Access] = []
        self._read_number: dict[Access, int] = {}
        self._code: list[tuple[str, tuple[int | str | RuntimeScalar, ...], object, tuple[object, ...]]] = []
        self._sources: list[int] = []
        self._scalars: list[tuple[int, int]] = []
        self._known: dict[tuple[int, tuple[int, ...]], int | str] = {}
        self._inlined: dict[int, None] = {}

    # Registers are named "r<k>" for read k and i >= 0 for instruction i until all reads are known.

    def _read(self, node: int, path: tuple[int, ...]) -> str:
        access = Access(node, path)
        number = self._read_number.get(access)
        if number is None:
            number = self._read_number[access] = len(self._reads)
            self._reads.append(access)
        return f"r{number}"

    def _scalar(self, node: int, position: int) -> RuntimeScalar:
        self._scalars.append((node, position))
        return RuntimeScalar(len(self._scalars) - 1)

    def _value(self, node: int, path: tuple[int, ...] = ()) -> int | str:
        """Return the register of `node` seen through `path`; an explicit stack, since chains may be thousands deep."""
        g = self._g
        node, path = g.resolve(node, path)
        stack = [(node, path)]
        while stack:
            at = stack[-1]
            if at in self._known:
                stack.pop()
                continue
            i, p = at
            inlined = g.kind(i) == "map" and (i in self._group or g.lensed[i]) and not g.graph.is_held(i)
            if not inlined:
                self._known[at] = self._read(i, p)
                stack.pop()
                continue
            shape = g.shape_of(i)
            wanted: list[tuple[int, tuple[int, ...]] | None] = []
            for o in g.graph.operands[i]:
                if o is None:
                    wanted.append(None)
                else:
                    # an operand that broadcasts below a lens must be spread before the lens picks from it
                    through = (i, *p) if p and g.shape_of(o) != shape else p
                    wanted.append(g.resolve(o, through))
            missing = [w for w in wanted if w is not None and w not in self._known]
            if missing:
                stack.extend(missing)
                continue
            inputs: list[int | str | RuntimeScalar] = []
            for position, w in enumerate(wanted):
                if w is None:
                    inputs.append(self._scalar(i, position))
                else:
                    inputs.append(self._known[w])
            if i not in self._group:
                self._inlined[i] = None
            expr = g.graph.nodes[i]
            self._known[at] = len(self._code)
            self._code.append((expr.op.name, tuple(inputs), expr.dtype, expr.params))
            self._sources.append(i)
            stack.pop()
        return self._known[(node, path)]

    def _register(self, name: int | str) -> int:
        if isinstance(name, int):
            return len(self._reads) + name
        return int(name[1:])

    def _operand(self, name: int | str | RuntimeScalar) -> Operand:
        return name if isinstance(name, RuntimeScalar) else self._register(name)

    def stage(self) -> Stage:
        g = self._g
        stores: list[tuple[int | str, int]] = []
        combines: list[tuple[int | str, int]] = []
        write: tuple[int | str | RuntimeScalar, int] | None = None
        for i in self._members:
            kind = g.kind(i)
            if kind == "reduce":
                operand = g.graph.operands[i][0]
                assert operand is not None
                combines.append((self._value(operand), i))
            elif kind == "put":
                write = (self._put_value(i), i)
            elif i in g.stored:
                stores.append((self._value(i), i))
        return Stage(
            "program",
            tuple(self._members),
            tuple(self._reads),
            tuple(
                Instruction(name, tuple(self._operand(r) for r in inputs), dtype, params)  # type: ignore[arg-type]  # from Expr, whose dtype is a dtype here
                for name, inputs, dtype, params in self._code
            ),
            tuple(self._scalars),
            tuple((self._register(r), i) for r, i in stores),
            tuple(self._combine(self._register(r), i) for r, i in combines),
            None if write is None else (self._operand(write[0]), write[1]),
            tuple(self._inlined),
            tuple(self._sources),
        )

    def _combine(self, register: int, i: int) -> Combine:
        expr = self._g.graph.nodes[i]
        axes: tuple[int, ...] = expr.params.axes
        return Combine(i, register, expr.op.monoid, axes, accumulator_dtype(expr))

    def _put_value(self, i: int) -> int | str | RuntimeScalar:
        """Return the register of the written value, cast to the base's dtype."""
        g = self._g
        expr = g.graph.nodes[i]
        value = g.graph.operands[i][1]
        if value is None:
            return self._scalar(i, 1)
        register = self._value(value)
        if g.graph.nodes[value].dtype != expr.dtype:
            self._code.append(("astype", (register,), expr.dtype, (expr.dtype.str,)))
            self._sources.append(i)
            return len(self._code) - 1
        return register


def group_stages(graph: Graph) -> list[Stage]:
    """Return the stages of a graph in an order in which they can run, not yet cut.

    Parameters
    ----------
    graph
        Canonical nodes; the grouping depends on nothing that is not in its key, but for sizes used as hints.
    """
    grouping = _Grouping(graph)
    grouping.forward()
    grouping.sink()
    grouping.join()
    return grouping.stages()
