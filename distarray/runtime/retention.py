"""Retention: which results of an evaluation are made and kept, because a live handle still refers to them, or something
that waits beside it reads them.

A loop that updates several arrays and looks at one of them leaves the others pending, a step further each time. What
they are made of was made for the look and would be made again for the next one, and all that came before it as well:
from the second look on what both need is kept. In this process those that take no memory, since they replace what they
are made of, are made along: then nothing waits.

What is made from nothing (an array in a file, random numbers) may be made in parts: a few rows of a large one take less
time to read than all of it. So a read of a part makes that part alone, and it is not kept, as long as such reads have
come to less than a fourth of the array, which is then made and kept: whoever reads on has waited for a fourth more than
they had to, and whoever has seen enough has not waited for the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import NamedTuple
from weakref import WeakKeyDictionary

from distarray import config, hooks
from distarray.expr.affine import Affine
from distarray.expr.expr import GET, Environment, Expr, Others, calls_functions, postorder
from distarray.runtime.memory import memory_limit, room_nbytes

#: Bytes that fit anywhere.
FITS = 1 << 28
#: Times what pending nodes are to whoever has a handle on them that may be kept for their sake; what fits anywhere may
#: in any case.
HELD = 4
#: Share of an array, as one over a number, that reads of parts may come to before it is made and kept.
SHARE = 4
#: Share of what passes make, as one over a number, up to which a result is made along that replaces nothing.
FEW = 16
#: Bytes that are made in the time that an evaluation takes, in a process and on a cluster: so many count for each, and
#: of one that reads many parts the first number for each of these.
READ_NBYTES, CLUSTER_READ_NBYTES = 1 << 18, 1 << 22
_NO_PARTS: Mapping[Expr, int] = MappingProxyType({})
#: What was made of arrays for reads of parts, in bytes.
_made_apart: WeakKeyDictionary[Expr, int] = WeakKeyDictionary()


class Beginning(NamedTuple):
    """A Beginning is what an evaluation that begins is remembered for.

    Parameters
    ----------
    made
        Nodes that it makes.
    parts
        Bytes of arrays of which it makes parts alone.
    """

    made: Sequence[Expr]
    parts: Mapping[Expr, int]

    def remember(self) -> None:
        """Remember it: not where it was refused, which leaves everything as it was."""
        for n in self.made:
            n.n_made += 1
        for n, nbytes in self.parts.items():
            _count_apart(n, nbytes)


def retained(
    order: Sequence[Expr], aimed: Collection[int], env: Environment, others: Others
) -> tuple[set[int], Beginning]:
    """Return the pending nodes whose results are kept although nobody asked for them: a live handle still refers to
    them, or pending nodes beside them need them and they are made of what an earlier evaluation made as well. And what
    the evaluation is remembered for, if it begins.

    Parameters
    ----------
    order
        All nodes of an evaluation.
    aimed
        ``id`` of those that are asked for.
    others
        What else is pending; None where nobody knows.

    Notes
    -----
    Never kept: constants, and lenses, for which what they show is kept. Always kept: written bases, but for those that
    nothing could hold. The rest as long as it fits the memory limit; what a kernel makes from nothing goes first, then
    what is largest: a handle on an array larger than memory streams.
    """
    live = _live(order, aimed)
    made = [n for n in order if n.memo is None]
    if any(n.n_made for n in made):
        known = {*aimed, *map(id, live)}
        live += [n for n in _needed_beside(made, env, others) if id(n) not in known]
    if not live or config.get("retain") == "none":
        return {id(n) for n in live if n.op.family.is_write}, Beginning(made, _NO_PARTS)
    parts: Mapping[Expr, int] = _NO_PARTS
    if any(n.op.family.is_created for n in live):
        parts = _read_in_parts(order, live)
        live = [n for n in live if n not in parts]
    room = safe_nbytes(env)
    kept = set()
    for n in sorted(live, key=lambda n: (not n.op.family.is_write, n.op.family.is_created, n.nbytes)):
        room -= n.nbytes * (n.pin.n_replicas if n.pin is not None and n.pin.is_copied else 1)
        if room >= 0 or n.op.family.is_write:
            kept.add(id(n))
    return kept, Beginning(made, parts)


def written(order: Sequence[Expr], aimed: Collection[int]) -> set[int]:
    """Return those of the pending nodes whose results are kept in any case: written bases. See `retained`."""
    return {id(n) for n in _live(order, aimed) if n.op.family.is_write}


def made_along(nodes: Sequence[Expr], order: Sequence[Expr], beside: Sequence[Expr], env: Environment) -> list[Expr]:
    """Return the pending nodes that an evaluation of this process makes though nobody asked for them: they read what it
    reads or makes, and take no more memory than what is needed no more then, because they replace it. With the lock
    held.

    Parameters
    ----------
    nodes
        Those that are asked for.
    order
        All nodes of the evaluation.
    beside
        Pending nodes that are not among these and that live handles refer to, of the same environment, in the order in
        which they were made.

    Notes
    -----
    A loop that updates several arrays and looks at one of them has the same work in each step so, and no array waits.
    What a look makes anyhow bounds what it makes along: one at some rows of an array that is not kept makes nothing.
    """
    if 2 * sum([n.nbytes for n in order]) > safe_nbytes(env) or config.get("retain") == "none":
        return []
    here = {id(n) for n in order}
    kept = [n.nbytes for n in order if _is_kept(n) or n in nodes]
    replaced = {id(n): n.nbytes for n in order if _is_replaced(n)}
    few = max(kept) // FEW
    spare = max(0, sum(replaced.values()) - sum([nbytes for nbytes in kept if nbytes > few]))
    room = HELD * sum(kept)
    along: list[Expr] = []
    left: set[int] = set()
    for node in [n for n in beside if n.op is not GET]:
        found = _steps_beside(node, here, left, room)
        if found is not None:
            steps, read, passed = found
            taken = sum([n.nbytes for n in steps if _is_kept(n)])
            more = {id(o): o.nbytes for o in read if id(o) not in replaced and _is_replaced(o)}
            spared = spare + sum(more.values())
            is_few = FEW * taken <= sum([o.nbytes for o in read if o.memo is None])
            if taken <= spared or is_few:
                if taken <= spared:
                    spare = spared - taken
                    replaced |= more
                room -= passed
                here.update(map(id, steps))
                along.append(node)
                continue
        left.add(id(node))
    return along


def _steps_beside(
    node: Expr, here: Collection[int], left: Collection[int], room: int
) -> tuple[list[Expr], list[Expr], int] | None:
    """Return the pending nodes that make one beside the nodes `here`, what else they read, and the bytes that are made
    for them: theirs, and of `here` what may be made in parts else; None if they read none of `here`, need one that is
    left to wait, take more bytes than there is room for, or may fail.
    """
    steps, seen, passed = [node], {id(node)}, 0
    read: list[Expr] = []
    for n in steps:
        if not (n.op.family.is_fused or n.op is GET) or n.op.may_raise or n.is_to_raise:
            return None
        if n.op is not GET:
            passed += n.nbytes if n.op.kind != "put" else prod(n.runtime.shape) * n.dtype.itemsize
        if id(n) in left or passed > room or n.pin is not None:
            return None
        for o in n.nodes():
            if id(o) not in seen:
                seen.add(id(o))
                (read if id(o) in here or o.memo is not None else steps).append(o)
    passed += sum([o.nbytes for o in read if o.memo is None and not _is_kept(o)])
    return (steps, read, passed) if passed <= room and any(id(o) in here for o in read) else None


def _is_kept(node: Expr) -> bool:
    """Return whether a live handle has all of a pending node kept: not of what views show, or is read in parts."""
    return node.memo is None and node.is_live and node.op is not GET and not node.op.family.is_created


def _is_replaced(node: Expr) -> bool:
    """Return whether something lies in memory to which no handle refers."""
    return node.memo is not None and not node.is_live


def _live(order: Sequence[Expr], aimed: Collection[int]) -> list[Expr]:
    """Return the pending nodes that live handles refer to, that can be kept, and that nobody asked for."""
    return _to_keep([n for n in order if n.memo is None and n.is_live and id(n) not in aimed])


def _needed_beside(made: Sequence[Expr], env: Environment, others: Others) -> list[Expr]:
    """Return those of the nodes that an evaluation makes which pending nodes need that it does not make, as far as
    there is room for them; none where one run of a cluster would have what may fail beside them.
    """
    if env.is_cluster and (config.get("errors") == "deferred" or any(n.op.may_raise or n.is_to_raise for n in made)):
        return []
    here = {id(n) for n in made}
    found: dict[int, Expr] = {}
    pending = [n for n in others() or () if n.memo is None and id(n) not in here]
    seen = set(map(id, pending))
    own = held = 0
    while pending:
        node = pending.pop()
        own += node.nbytes if node.is_live else 0
        for o in node.nodes():
            if id(o) in here:
                found[id(o)] = o
            elif id(o) not in seen:
                seen.add(id(o))
                if o.memo is None:
                    pending.append(o)
                elif not o.is_live:
                    held += o.nbytes
    room = min(max(FITS, HELD * own), safe_nbytes(env)) - held
    kept = []
    for n in sorted(_to_keep(found.values()), key=lambda n: n.nbytes):
        room -= n.nbytes
        if room >= 0:
            kept.append(n)
    return kept


def _to_keep(nodes: Iterable[Expr]) -> list[Expr]:
    """Return what is kept for those of some pending nodes that can be kept, each once; of several results at a time
    each is a node of its own.
    """
    shown = {id(n): n for n in map(_shown, nodes) if not isinstance(n.dtype, tuple)}
    return [n for n in shown.values() if n.memo is None and not n.op.repeatable and not is_beyond_memory(n)]


def _read_in_parts(order: Sequence[Expr], live: Sequence[Expr]) -> dict[Expr, int]:
    """Return which of the live nodes are made from nothing and read in parts alone, so few that their readers make
    these; and the bytes of them.
    """
    parts = {n: 0 for n in live if n.op.family.is_created}
    for reader in order:
        if reader.memo is None and parts:
            for n in reader.nodes():
                if n in parts:
                    parts[n] += max(_nbytes_read(reader, n), READ_NBYTES)
    return {n: nbytes for n, part in parts.items() if (nbytes := _nbytes_apart(n, part))}


def _nbytes_apart(node: Expr, part: int) -> int:
    """Return what a part of so many bytes counts; zero where all is to be made instead."""
    nbytes = max(part, CLUSTER_READ_NBYTES if node.env.is_cluster else READ_NBYTES)
    return nbytes if SHARE * (_made_apart.get(node, 0) + nbytes) <= node.nbytes else 0


def is_made_apart(node: Expr, part: Expr) -> bool:
    """Return whether a look at a part of a pending node makes that alone: what it needs and is not there is made from
    nothing, and looks have come to little so far. If so, it counts.

    Parameters
    ----------
    part
        Makes the part of parts of what `node` is made of.
    """
    nbytes = 0
    for n in postorder([part]):
        if n.memo is not None:
            continue
        if calls_functions(n):
            return False
        for o in n.nodes():
            if o.memo is None and o.op.family.is_created and not o.op.repeatable:
                nbytes += _nbytes_read(n, o)
        if not (n.op is GET or n.op.kind == "map" or n.op.family.is_created):
            return False
    if counted := _nbytes_apart(node, nbytes) if nbytes else 0:
        _count_apart(node, counted)
    return counted > 0


def _count_apart(node: Expr, nbytes: int) -> None:
    _made_apart[node] = _made_apart.get(node, 0) + nbytes


def _nbytes_read(reader: Expr, node: Expr) -> int:
    """Return how many bytes of a node are made for one reader: for a view those of a box, of whole grains of what lies
    in a store.
    """
    if reader.op is not GET:
        return node.nbytes
    lens: Affine = reader.runtime
    if 0 in lens.shape:
        return 0  # a store without elements may have grains without any
    grain = getattr(node.runtime, "grain", None) or (1,) * node.ndim
    nbytes: int = node.dtype.itemsize
    for (axis, start, step), g, extent in zip(lens.terms, grain, node.shape, strict=True):
        n = 1 if axis is None else lens.shape[axis]
        first, last = sorted((start, start + step * (n - 1)))
        nbytes *= min((last // g - first // g + 1) * g, extent)
    return nbytes


def _shown(node: Expr) -> Expr:
    """Return what is kept for a node that is needed: what a lens shows, or what it sees of it where that is less."""
    source = node
    while source.op is GET and (pending := source.unsettled()) is not None:
        (inner,), _ = pending
        assert type(inner) is Expr
        source = inner
    return node if source.memo is None and source.nbytes > node.nbytes else source


def safe_nbytes(env: Environment) -> int:
    """Return the bytes that the members of an environment are sure to have room for: half of their limits."""
    return memory_limit(env) * env.size // 2


def streams(node: Expr) -> bool:
    """Return whether a pending result is computed anew wherever it is read rather than kept: it would not fit in
    memory.
    """
    if node.op.family.is_write:
        return is_beyond_memory(node)
    return node.op.family.is_created or node.nbytes > safe_nbytes(node.env)


def hold_much(nodes: Sequence[Expr]) -> bool:
    """Return whether pending nodes hold more results that nothing else needs than fit anywhere, and than all that they
    and their operands are to whoever has a handle on them.
    """
    order = postorder(nodes)
    held = sum([n.nbytes for n in order if n.memo is not None and not n.is_live])
    return held > max(FITS, sum([n.nbytes for n in order if n.is_live]))


def is_beyond_memory(node: Expr) -> bool:
    """Return whether a result is larger than all that its members have: it can be read in parts, and never be held."""
    nbytes = node.nbytes
    return nbytes > FITS and nbytes > room_nbytes(node.env)


hooks.is_beyond_memory, hooks.is_made_apart = is_beyond_memory, is_made_apart
