"""The current team and device: where creators make arrays unless told otherwise."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, TypeAlias, TypeGuard
from weakref import WeakValueDictionary

from distarray import config, hooks
from distarray.arguments import shown
from distarray.errors import NotSupportedError
from distarray.expr.expr import Environment
from distarray.forks import free_in_child
from distarray.kernels.devices import n_devices
from distarray.kernels.inside import is_inside_task
from distarray.runtime import members
from distarray.runtime.arrivals import client_of_team, name_of
from distarray.runtime.clients import (
    active_client,
    check_members,
    known_following,
    n_threads,
    resolve_members,
    team_for_client,
)
from distarray.scoped import Scoped
from distarray.sharding.layout import LayoutLike
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from distarray.sharding.spec import ShardingLike, parse_sharding
from distarray.sharding.team import Team
from distarray.types import DType, Shape

#: What creators take for ``team=``: a team, None (not distributed), or ``"current"``.
TeamLike: TypeAlias = Team | Literal["current"] | None

#: One object, as what is written in programs mostly is.
_CPU = "cpu"
_DEVICE = re.compile(r"cpu|cuda(:\d+)?|strict(:[12])?")

# What teams stand for, and how they travel with the name of their cluster, the execution layer knows.
hooks.resolve_members, hooks.known_following = resolve_members, known_following
hooks.name_client, hooks.find_client = name_of, client_of_team

#: What ``use`` says in this context: team and device, ``"current"`` and None where it says nothing.
_used: ContextVar[tuple[TeamLike, str | None]] = ContextVar("distarray environment", default=("current", None))
#: What `distarray.testing.force_tiles` says: tiles per axis of every array that is made without a cut.
forced_parts: ContextVar[int | None] = ContextVar("distarray tiles", default=None)
#: Of how many axes at most.
_FORCED_AXES = 3
_lock = free_in_child(threading.Lock())
_process_environments: dict[str, Environment] = {}
#: Of other teams, by their `id` and device: what an environment that lives knows cannot be another team's.
_environments: WeakValueDictionary[tuple[int, str], Environment] = WeakValueDictionary()


def _process_environment(device: str) -> Environment:
    """Return the environment of this process on a device: its team has a member per thread, on GPUs one per GPU."""
    # One object: environments are compared by identity first.
    env = _process_environments.get(device)
    if env is None:
        n = n_devices(device) or n_threads()
        with _lock:
            known = (e.team for e in _process_environments.values() if e.team is not None and e.team.size == n)
            team = next(known, None) or Team((n,), ("T",), members=tuple(range(n)))
            env = _process_environments.setdefault(device, Environment(team, device))
    return env


def environment_on(device: str, team: Team | None) -> Environment:
    """Return the environment of a team on another device; what this process is, it is on every device."""
    is_process = any(team is env.team for env in list(_process_environments.values()))
    if is_process:
        return _process_environment(device)
    found = _environments.get((id(team), device))
    if found is None:
        if team is not None:
            check_members(team)
        found = _environments[id(team), device] = Environment(team, device)
    return found


def is_named(team: TeamLike) -> TypeGuard[Team | None]:
    """Return whether ``team=`` says itself where: a team, or None. ``"current"`` leaves it to `use` and the active
    client.
    """
    return not (isinstance(team, str) and team == "current")


def current_team() -> Team | None:
    """Return the team of arrays that are made without saying where.

    The team that an enclosing `use` names; else the workers that the active Dask client has now; else the threads of
    this process, or its GPUs if arrays are made there. Inside a task it is None: what a task computes stays in it.

    The team of a client follows the cluster. It is the same object for as long as the workers are the same; once some
    joined or left, new arrays are made on a team of those there are, and older arrays stay where they are. Where an
    array of an older such team meets one of a newer in an operation, it moves there by itself, for good. A worker that
    was lost and not retired counts for ``worker-timeout``, since it may come back. Teams that somebody named
    (``dx.Team``) follow nothing: `Team.refresh` gives what they can be moved to.

    Raises
    ------
    ClusterGoneError
        If the active client has lost its scheduler.
    """
    used = _used.get()[0]
    if is_named(used):
        return used
    if config.get("team") is None or is_inside_task():
        return None
    client = active_client()
    return _process_environment(current_device()).team if client is None else team_for_client(client)


def current_device() -> str:
    """Return the device of arrays that are made without saying where."""
    return _used.get()[1] or str(config.get("device"))


@contextmanager
def use(team: TeamLike = "current", device: str | None = None) -> Iterator[None]:
    """Make arrays on this team and device for a ``with`` block.

    Parameters
    ----------
    team
        A `Team`; None: this process alone, not distributed; ``"current"``: as outside the block.
    device
        None: as outside the block.
    """
    outer = _used.get()
    if is_named(team):
        _check_team(team)
    if device is not None:
        check_device(device, team if is_named(team) else current_team())
    token = _used.set((team if is_named(team) else outer[0], device or outer[1]))
    try:
        yield
    finally:
        _used.reset(token)


def within(env: Environment) -> Scoped[tuple[TeamLike, str | None]]:
    """Let an environment hold, as `use` does; arrays that follow the cluster have their company made where new arrays
    are.
    """
    outer = _used.get()[0]
    follows = env.team is not None and env.team.generation > 0 and not is_named(outer)
    return Scoped(_used, (outer if follows else env.team, env.device))


hooks.within = within


def check_device(device: Any, team: Team | None) -> str:
    """Return `device` if it is a device string that the members of a team can have: on a cluster the workers are asked.

    Raises
    ------
    ValueError
        If it is no device string.
    ImportError, RuntimeError
        If CuPy, a GPU or array_api_strict is missing.
    """
    if not isinstance(device, str) or not _DEVICE.fullmatch(device):
        raise ValueError(f"device={shown(device)} is no device; use cpu, cuda, cuda:<j>, strict, strict:1 or strict:2")
    if device != "cpu":
        members.check_device(Environment(team, device))
    return device


def _check_team(team: Any) -> None:
    if team is not None and not isinstance(team, Team):
        raise TypeError(f"team={shown(team)} is no Team; use dx.Team(shape, axes), None, or leave it out")


def environment(team: TeamLike = "current", device: str | None = None) -> Environment:
    """Return the environment that ``team=`` and ``device=`` of a creator mean.

    Raises
    ------
    TypeError
        If `team` is none.
    ValueError
        If `device` is no device string.
    """
    if is_named(team):
        _check_team(team)
    else:
        team = current_team()
    if device is None:
        device = current_device()
    elif device is not _CPU:
        device = check_device(device, team)
    known = _process_environments.get(device)
    if known is not None and known.team is team:
        return known
    return environment_on(device, team)


hooks.new_arrays_environment = lambda device: environment("current", device)


def parse_pin(
    sharding: ShardingLike,
    layout: LayoutLike | None,
    shape: Shape,
    dtype: DType,
    env: Environment,
    *,
    has_copies: bool = False,
) -> Sharding | None:
    """Return the sharding that ``sharding=`` and ``layout=`` of a creator ask for; None leaves it to the planner.

    Parameters
    ----------
    has_copies
        Whether members of a cluster that a tuple does not tell apart each have a copy. What a text or a type says of
        copies is said there.

    Raises
    ------
    ShardingError
        If they do not fit the shape, the dtype or the team.
    """
    if sharding is None and layout is None:
        parts = forced_parts.get()
        return None if parts is None else _skewed(shape, parts, env)
    if env.team is None:
        if sharding is not None:
            raise ValueError(f"sharding={sharding!r} needs a team, but team=None is not distributed")
        return parse_sharding(None, shape, Mesh(), dtype, layout)
    if sharding is None:
        # A layout is part of a type that says the cut too: the one that host arrays get.
        sharding = _default_cut(shape, env.team)
    pin = parse_sharding(sharding, shape, env.team.mesh, dtype, layout)
    if pin.unreduced:
        raise NotSupportedError(
            f"sharding={shown(sharding)} asks for partial sums, which no array is; the planner makes and combines them"
        )
    is_open = has_copies and not isinstance(sharding, str | Sharding)
    return pin.with_copies(env.is_cluster and (pin.is_copied or is_open))  # members that are threads share memory


def _skewed(shape: Shape, parts: int, env: Environment) -> Sharding | None:
    """Return a cut of every axis into `parts` tiles of sizes about 1 : 2 : 3 ..., in waves, so that any team will
    do.
    """
    if not shape:
        return None
    team = env.mesh
    # The number of tiles must not grow with the rank; axes of one element tell the least.
    chosen = sorted(sorted(range(len(shape)), key=lambda axis: shape[axis] == 1)[:_FORCED_AXES])
    waves = {axis: f"%{i + 1}" for i, axis in enumerate(chosen)}
    mesh = Mesh(team.names + tuple(waves.values()), team.sizes + (parts,) * len(waves))
    bounds = tuple([n * i * (i + 1) // (parts * (parts + 1)) for i in range(parts + 1)] for n in shape)
    return Sharding(
        mesh,
        tuple((waves[axis],) if axis in waves else () for axis in range(len(shape))),
        bounds=tuple(tuple(cut) if axis in waves else None for axis, cut in enumerate(bounds)),
    )


def _default_cut(shape: Shape, team: Team) -> tuple[tuple[str, ...] | None, ...]:
    axis = next((a for a, n in enumerate(shape) if n >= team.size), None)
    return tuple(tuple(reversed(team.axes)) if a == axis else None for a in range(len(shape)))
