"""Team: a mesh placed on distinct members, the part of an array's environment that says *where*.

A member is a Dask worker, or a thread of this process when there is no cluster. Who the members are is asked of
`hooks.resolve_members`, which the execution layer answers, so that this file knows neither Dask nor threads.
Which worker serves a rank may change while the program runs (lost and joining workers); that is the executor's state
and changes no type. A team therefore keeps an id, taken from the members it was made with, and compares by id, shape
and axes only: the same members in the same shape are the same team, in every process.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from distarray import hooks
from distarray.arguments import integers, shown
from distarray.errors import ShardingError
from distarray.sharding.mesh import Mesh, is_wave


def _members(client: Any, size: int | None) -> tuple[Any, tuple[Hashable, ...]]:
    """Return the client to use and the members of a new team; without a layer that runs anything, numbers of this
    process.
    """
    if hooks.resolve_members is not None:
        return hooks.resolve_members(client, size)
    if client is not None:
        raise ShardingError(f"no execution layer is loaded that could use client={client!r}; import distarray first")
    return None, tuple(range(size or 1))


@dataclass(frozen=True, slots=True, weakref_slot=True, init=False, repr=False, eq=False)
class Team:
    """A Team is a mesh placed on members; together with a device it is the environment of an array.

    Parameters
    ----------
    shape
        Members along each axis; an int is one axis.
    axes
        One name per axis, by which ``sharding=`` says what cuts an array; a string is one name.
    client
        Dask client whose workers are meant. None: the active one, else the threads of this process. Takes no part
        in equality. A pickle has the name of its cluster: the team finds a client of it where it arrives.
    members
        The members in rank order (row-major over the axes), distinct. None: the first ones available.

    Raises
    ------
    ShardingError
        A ValueError: too few (or too many) members, a member twice, a repeated axis name, or a `shape` and `axes` of
        different length.

    Examples
    --------
    >>> team = Team(shape=(2, 4), axes=("R", "C"))
    >>> team, team.size, team.members
    (Team(R=2, C=4), 8, (0, 1, 2, 3, 4, 5, 6, 7))
    >>> team.split("R")[1], team.split("R")[1].members
    (Team(C=4), (4, 5, 6, 7))
    """

    #: Names the members that the team was made with; equal members give equal ids.
    id: str
    shape: tuple[int, ...]
    axes: tuple[str, ...]
    mesh: Mesh
    members: tuple[Hashable, ...]
    client: Any  # Any: opaque in this layer
    #: Of the teams that follow a cluster the number of this one: a newer team has a higher one, from 2 on, and one that
    #: came in a pickle and that nobody knows here has 1. A team that somebody named has 0.
    generation: int
    _hash: int

    def __init__(
        self,
        shape: int | Sequence[int],
        axes: str | Sequence[str] = (),
        client: Any = None,
        members: Sequence[Hashable] | None = None,
    ) -> None:
        sizes = integers(shape, "shape")
        if not isinstance(axes, Sequence):
            raise TypeError(f"axes={shown(axes)} must be a name or a sequence of names, not {type(axes).__name__}")
        names = (axes,) if isinstance(axes, str) else tuple(axes)
        if len(sizes) != len(names):
            raise ShardingError(
                f"team has a shape {sizes} of {len(sizes)} axes, but {len(names)} axis names {names}; write "
                f"Team({sizes}, {tuple([f'x{i}' for i in range(len(sizes))])})"
            )
        mesh = Mesh(names, sizes)
        if any(map(is_wave, names)):
            raise ShardingError(f"team axes {names} include a wave axis; waves belong to a Sharding's mesh")
        if members is None:
            client, found = _members(client, mesh.size)
            ranked = tuple(found)[: mesh.size]
        else:
            ranked = tuple(members)
        if len(ranked) != mesh.size:
            few = "few" if len(ranked) < mesh.size else "many"
            raise ShardingError(f"a team of shape {sizes} has {mesh.size} members; {len(ranked)} are too {few}")
        if len(set(ranked)) != len(ranked):
            twice = next(member for member in ranked if ranked.count(member) > 1)
            raise ShardingError(
                f"member {twice!r} is listed twice; members are distinct (to cut finer than the team, use wave axes)"
            )
        from hashlib import blake2b  # loads OpenSSL: not before there is a team

        digest = blake2b(repr(ranked).encode(), digest_size=8).hexdigest()
        self._set(digest, mesh, client, ranked)

    @classmethod
    def following(cls, axis: str, client: Any, members: Sequence[Hashable], generation: int) -> Team:
        """Return the team of all workers that a client has at the time: what arrays are made on unless told
        otherwise.
        """
        team = cls((len(members),), (axis,), client, members)
        object.__setattr__(team, "generation", generation)
        return team

    def _set(self, id: str, mesh: Mesh, client: Any, members: tuple[Hashable, ...]) -> None:
        put = object.__setattr__
        put(self, "id", id)
        put(self, "shape", mesh.sizes)
        put(self, "axes", mesh.names)
        put(self, "mesh", mesh)
        put(self, "client", client)
        put(self, "members", members)
        put(self, "generation", 0)
        put(self, "_hash", hash((id, mesh)))

    @property
    def size(self) -> int:
        """Return the number of members."""
        return self.mesh.size

    def split(self, axis: str) -> tuple[Team, ...]:
        """Return the sub-teams along an axis, in the order of its index: real teams, over the other axes.

        Raises
        ------
        ShardingError
            If the team has no such axis.
        """
        position = self.mesh.axis_position(axis)
        sizes = self.shape[:position] + self.shape[position + 1 :]
        names = self.axes[:position] + self.axes[position + 1 :]
        groups: list[list[Hashable]] = [[] for _ in range(self.shape[position])]
        for rank, member in enumerate(self.members):
            groups[self.mesh.coordinates(rank)[position]].append(member)
        return tuple(Team(sizes, names, self.client, group) for group in groups)

    def refresh(self, shape: int | Sequence[int] | None = None) -> Team:
        """Return the team on the workers that its client has now, with the same axes; arrays go there by
        ``x.to_team(...)``.

        A team never changes, and neither do the arrays on it: the part of a worker that was lost is served by
        another one. This team is what they can be moved to, to use workers that joined and to give up those that left.
        Who is there still keeps the rank as far as there is such a rank, and with it the blocks.

        Parameters
        ----------
        shape
            Members along each axis. None: all workers, where the team has one axis; else the shape that it has.

        Returns
        -------
        Team
            The same one if nothing changed, and of threads of this process.

        Raises
        ------
        ShardingError
            If there are too few workers for the shape.

        Examples
        --------
        >>> team = Team((4,), ("x",))
        >>> team.refresh() is team, team.refresh(2)
        (True, Team(x=2))
        """
        if shape is None and self.client is None:
            return self
        # Asked once: another answer would be of other workers.
        client, there = _members(self.client, None)
        if shape is None:
            shape = len(there) if len(self.shape) == 1 else self.shape
        size = prod(integers(shape, "shape"))
        if len(there) < size:
            client, there = _members(self.client, size)  # waits where the cluster grows, else it is the error
        kept = [member if member in there else None for member in self.members[:size]]
        free = iter([member for member in there if member not in kept])
        ranked = [next(free) if member is None else member for member in kept] + list(free)
        found = Team(shape, self.axes, client, ranked[: max(size, 0)])
        return self if found == self else found

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Team):
            return NotImplemented
        return self._hash == other._hash and self.id == other.id and self.mesh == other.mesh

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Team({', '.join(f'{n}={s}' for n, s in zip(self.axes, self.shape, strict=True))})"

    @property
    def cluster(self) -> Any:
        """Return the name of the cluster of the client in pickles; None for threads of a process."""
        return None if self.client is None or hooks.name_client is None else hooks.name_client(self.client)

    def settled(self) -> Team:
        """Return the team with the client that it has here."""
        return self

    # The id travels as it is, because members with equal reprs here need not have equal reprs there.
    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self.id, self.mesh, self.members, self.cluster, self.generation > 0)

    # Without these two, copies would go through __reduce__ and lose the client.
    def __copy__(self) -> Team:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Team:
        return self


def are_beside(one: Team | None, other: Team | None) -> bool:
    """Return whether arrays on two teams can be used together as they are: the members are the same, and the client.

    The scheduler hears what two clients of it say in any order: a block that one lets go of may be gone before it knows
    what the other one makes of it.
    """
    return one is other or (one is not None and one == other and other is not None and one.client is other.client)


class _ArrivedTeam(Team):
    """An _ArrivedTeam is a team of a cluster that came in a pickle: who its client is is asked when that is needed, and
    not before.

    Processes that only pass it on need have none.
    """

    __slots__ = ("_cluster",)
    _cluster: Any

    @property
    def client(self) -> Any:
        return None if hooks.find_client is None else hooks.find_client(self._cluster)

    @client.setter
    def client(self, client: Any) -> None:
        assert client is None

    @property
    def cluster(self) -> Any:
        return self._cluster

    def settled(self) -> Team:
        team = object.__new__(Team)
        team._set(self.id, self.mesh, self.client, self.members)
        object.__setattr__(team, "generation", self.generation)
        if not self.generation or hooks.known_following is None:
            return team
        known: Team = hooks.known_following(team)
        return known


def _unpickle(
    id: str, mesh: Mesh, members: tuple[Hashable, ...], cluster: Any = None, is_following: bool = False
) -> Team:
    team = object.__new__(Team if cluster is None else _ArrivedTeam)
    team._set(id, mesh, None, members)
    if cluster is not None:
        object.__setattr__(team, "_cluster", cluster)
    # Numbers are those of a process; of teams that are older than what this one makes any order will do.
    object.__setattr__(team, "generation", int(is_following))
    return team
