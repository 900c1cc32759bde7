"""Arrays go to other teams, devices and cuts here, and their blocks come to this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self, get_args

import numpy as np

from distarray.arguments import count, integer, shown
from distarray.array import window
from distarray.array.environment import check_device, environment, environment_on, parse_pin
from distarray.array.handle import Handle
from distarray.errors import ShardingError
from distarray.expr.bind import bind_map
from distarray.expr.crossing import crossing, graph
from distarray.expr.expr import RESHARD, Environment, Expr, Stored, cut_of
from distarray.expr.lens import Affine, get
from distarray.kernels.loans import is_memory, lend
from distarray.runtime import observations, rehome
from distarray.sharding.layout import LayoutLike
from distarray.sharding.sharding import Sharding
from distarray.sharding.spec import ShardingLike
from distarray.sharding.team import Team
from distarray.types import HostArray


class Block(NamedTuple):
    """A Block is a block of an array: who holds it, where it lies in the whole, and its elements."""

    member: int
    global_slices: tuple[slice, ...]
    values: Any  # an array of the backend


class Movable(Handle):
    """Movable gives `DistArray` the methods that bring an array, or its blocks, to another place."""

    __slots__ = ()

    def to_team(self, team: Team | None, sharding: ShardingLike = None) -> Self:
        """Return the array on another team; with None collected into this process. Values are the same bits.

        Nothing runs before the result is needed; then what is pending for the array is computed where it is, and moves,
        on a cluster without anybody waiting in between. Between teams of one cluster blocks go from worker to worker,
        by a plan of the synthesizer that keeps to the memory of the workers (`distarray.planner.redistribution`) and
        that `explain` shows; a worker of both teams keeps what it has. Between teams of this process blocks are shared,
        not copied, where a block stays what it is. As with every operation, what is written to the array later does not
        show.

        Parameters
        ----------
        team
            To the team that it lives on already: the same array, and nothing moves.
        sharding
            The cut there. None keeps the cut, where the teams have the same shape; on another number of members all of
            them cut the axis that had most parts.

        Raises
        ------
        TypeError
            If `team` is no team.
        MemoryBudgetError
            When it is computed, before any task: members cannot hold what it takes.
        """
        if team is not None and not isinstance(team, Team):
            raise TypeError(f"team={team!r} is no Team; use dx.Team(shape, axes), or None for this process")
        env = environment(team, self.device)
        if env == self._env and not rehome.is_gone(self._env):
            return self if sharding is None else self.reshard(sharding)
        return self._moved(env, sharding)

    def to_device(self, device: str, /, *, stream: Any = None) -> Self:
        """Return the array on another device of its team; the same array if it is there already.

        Each member moves its own blocks, when the result is needed; the cut stays. Arrays of this process, made without
        a team, have its threads as members on the host and its GPUs on these.

        Raises
        ------
        ValueError
            If `device` is no device string, or a `stream` is given: moves are ordered by the expressions.
        """
        if stream is not None:
            raise ValueError("to_device: stream must be None; moves are ordered by what reads them")
        check_device(device, self.team)
        return self if device == self.device else self._moved(environment_on(device, self.team), None)

    def _moved(self, env: Environment, sharding: ShardingLike) -> Self:
        pin = parse_pin(sharding, None, self.shape, self.dtype, env)
        node = self.__dx_node__()
        before = node.env
        if rehome.healed(graph([node]), before, env) is not before:
            return self if sharding is None else self.reshard(sharding)
        memo = node.memo
        if pin is None and not (memo is not None and memo.on_client) and (known := cut_of(node)) is not None:
            pin = rehome.same_cut(known, node, env)
        if memo is None and node.op.repeatable:
            # Of the index alone, at no cost: it is made there.
            return self._on(Expr(node.op, (), node.shape, node.dtype, env, node.params, node.runtime, pin, node.origin))
        there = crossing(node, env, pin)
        return self._on(there)

    def reshard(self, sharding: ShardingLike, *, mode: str = "auto", memory: int | None = None) -> Self:
        """Return the array cut in another way, in the same environment; lazy.

        A sequence of collectives that the synthesizer plans (`distarray.planner.redistribution`), in which no tile is
        ever larger than the larger of source and target. Operations on the result read straight from the source where
        they can.

        Parameters
        ----------
        sharding
            The cut, in any form that ``sharding=`` takes. None: the array itself. Of replicas one is kept, unless the
            type says ``copied``, as that of `Sharding.with_copies` does.
        mode
            ``auto``: the fastest by the rates of the cluster; in one process, where messages cost nothing, one
            exchange. ``paper``: the cheapest sequence of collectives of Rink et al. 2021. ``fused``: with several
            dimensions in one step. ``direct``: one exchange, which receives the least that is possible.
        memory
            Bytes that a member of a cluster may hold for it, source and target included; its limit by default. With
            less than all at once would take, the tiles are made in waves.

        Raises
        ------
        ShardingError
            If the cut does not fit the array, or the mode is unknown.
        MemoryBudgetError
            When it is computed, before any task: no number of waves fits into `memory`.
        """
        from distarray.planner.redistribution import Mode

        if mode not in get_args(Mode):
            raise ShardingError(f"reshard: mode {mode!r} is unknown; use one of {', '.join(get_args(Mode))}")
        if memory is not None:
            memory = count(memory, "memory")
        pin = parse_pin(sharding, None, self.shape, self.dtype, self._env)
        return self._pinned(pin, mode, memory) if pin is not None else self

    def with_layout(self, layout: LayoutLike) -> Self:
        """Return the array with blocks in another memory order; the cut stays."""
        return self._pinned(self.sharding.with_layout(layout))

    def _pinned(self, pin: Sharding, mode: str = "auto", memory: int | None = None) -> Self:
        """Return the array cut as `pin` says."""
        node: Expr = bind_map(RESHARD, (self.__dx_node__(),), (mode, memory))
        return self._on(node.with_pin(pin))

    # ------------------------------------------------------------------------------------------ blocks

    def gather(self, order: Any = "C", out: Any = None, root: int = 0) -> HostArray:
        """Return the whole array as a host array, in memory order `order`, or written into `out`.

        Raises
        ------
        ValueError, TypeError
            If `out` has another shape or dtype or is read-only.
        """
        check_root(root, self._env)
        if out is None:
            return np.asarray(self._host(), order=order)
        if not isinstance(out, np.ndarray):
            raise TypeError(f"gather: out must be a numpy array, not {type(out).__name__}")
        if out.shape != self.shape:
            raise ValueError(f"gather: out has shape {out.shape}, but the array has {self.shape}")
        if out.dtype != self.dtype:
            raise TypeError(f"gather: out has dtype {out.dtype}, but the array has {self.dtype}")
        if not out.flags.writeable:
            raise ValueError("gather: out is read-only")
        for block in self.iter_blocks():
            out[block.global_slices] = block.values
        return out

    def local(self, member: int = 0) -> Any:
        """Return the block that a member holds, with its `global_slices`.

        In this process it shares memory with the array: what is pending is computed first, and writing to it changes
        the array and every alias. From another process it is a read-only copy.

        Raises
        ------
        IndexError
            If there is no such member.
        ValueError
            If the member holds several tiles; use `iter_blocks`.
        """
        from distarray.array.lifetime import own_storage

        size = self._env.size
        member = integer(member, "member")
        if not 0 <= member < size:
            raise IndexError(f"member {member} is not one of the {size} of {self.team!r}")
        window.flush()
        version = own_storage(self._base, self._lens)
        memo = version.stored
        sharding = memo.sharding
        numbers = [i for i, t in enumerate(sharding.tiles()) if memo.on_client or member in sharding.members(t, size)]
        if len(numbers) > 1:
            raise ValueError(f"member {member} holds {len(numbers)} tiles of {sharding!r}; use x.iter_blocks()")
        if not numbers:
            tile_slices = tuple(slice(0, 0) for _ in version.shape)
            return LocalBlock(np.empty((0,) * version.ndim, version.dtype), tile_slices)
        tile = list(sharding.tiles())[numbers[0]]
        frame = tuple(range(*s.indices(n)) for s, n in zip(sharding.tile_slices(version.shape, tile), version.shape))
        is_here = not version.env.is_cluster or memo.on_client
        block = memo.blocks[numbers[0]] if is_here else observations.fetch_blocks(version, numbers)[0]
        values, slices = _through(self, block, frame)
        # A reshaped view of a block of another layout is a copy, which is not to be written.
        is_ours = is_here and is_memory(values, block)
        return LocalBlock(lend(values, writeable=is_ours and not self._readonly, stays=is_ours), slices)

    def iter_blocks(self, visit: Sequence[str] | None = None) -> Iterator[Block]:
        """Yield the blocks one after the other, computed and brought here where they are elsewhere; read-only.

        Parameters
        ----------
        visit
            Mesh axes, the slowest first: the order of visits. Row-major over tiles by default.
        """
        node, memo = self._stored()
        sharding = memo.sharding
        tiles = list(enumerate(sharding.tiles()))
        if visit is not None:
            if not isinstance(visit, str | list | tuple):
                raise TypeError(f"visit={shown(visit)} must be names of mesh axes, not {type(visit).__name__}")
            rank = [sharding.mesh.axis_position(name) for name in visit]
            tiles.sort(key=lambda item: [sharding.mesh.coordinates(sharding.place(item[1]))[p] for p in rank])
        held = node.hold()  # what is written to the array meanwhile is written elsewhere
        for number, tile in tiles:
            (block,) = observations.fetch_blocks(node, (number,))
            yield Block(sharding.member(tile), sharding.tile_slices(node.shape, tile), lend(block))
        del held

    def _stored(self) -> tuple[Expr, Stored]:
        node = self.__dx_node__()
        window.observe((node,))
        from distarray.runtime import hosts

        hosts.place(node)
        return node, node.stored


def _through(x: Handle, block: Any, frame: tuple[range, ...]) -> tuple[Any, tuple[slice, ...]]:
    """Return what the lens of a view sees of a block."""
    if not x._lens:
        return block, tuple(slice(r.start, r.stop) for r in frame)
    if len(x._lens) == 1 and type(x._lens[0]) is Affine:
        lens = x._lens[0]
        box = lens.view_box(frame)
        if box is None:
            return block[tuple(slice(0, 0) for _ in frame)], tuple(slice(0, 0) for _ in lens.shape)
        return lens.restricted(box, frame).read(block), tuple(slice(r.start, r.stop, r.step) for r in box)
    if all(r.start == 0 and r.stop == n for r, n in zip(frame, x._base.current.shape)):
        return get(x._lens, block), tuple(slice(0, n) for n in x.shape)
    raise ValueError("local: a block of a reshaped view of a cut array has no place in it; use the base's blocks")


class LocalBlock(np.ndarray[Any, Any]):
    """A LocalBlock is a numpy view of a block that knows its place in the whole array."""

    global_slices: tuple[slice, ...]

    def __new__(cls, values: Any, global_slices: tuple[slice, ...]) -> Any:  # arrays of other backends as they are
        if not isinstance(values, np.ndarray):
            return values
        block = values.view(cls)
        block.global_slices = global_slices
        return block

    def __array_finalize__(self, obj: Any) -> None:
        self.global_slices = getattr(obj, "global_slices", ())


def check_root(root: int, env: Environment) -> None:
    """Raise if there is no member `root` in an environment."""
    if not 0 <= integer(root, "root") < env.size:
        raise ValueError(f"root={root} is no member of {env.team!r}, which has {env.size}")
