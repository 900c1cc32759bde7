"""Arrays as annotations say them: forms and specs of arrays on their teams, and arrays that lie as a form says.

A form is a `Sharding` whose mesh lists who owns each place: one mesh axis for each cut, and one for the replicas. A
fused axis is cut as several, of an array with the axes apart that shows itself with the axis joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distarray.arguments import shown
from distarray.array.array import DistArray
from distarray.array.namespace import namespace
from distarray.errors import ShardingError
from distarray.expr.lens import Reshape, reshape_groups
from distarray.io.onnx.forms import AxisCut, TensorForm, n_shards, simplified
from distarray.io.onnx.specs import JsonSpec, read_spec, write_spec
from distarray.io.onnx.violations import raise_errors
from distarray.sharding.mesh import Mesh
from distarray.sharding.prime import coarsened, prime_mesh, realised
from distarray.sharding.sharding import Sharding
from distarray.sharding.team import Team


def axes_apart(form: TensorForm) -> list[AxisCut]:
    """Return what each axis is taken apart into: one entry, but of fused axes that no single cut is identical to."""
    return [simplified(cut) or ((n, 1),) for n, cut in zip(form.shape or (), form.cuts, strict=True)]


def form_on_team(form: TensorForm, team: Team) -> tuple[tuple[int, ...], Sharding]:
    """Return, of an array that has a form, the shape with fused axes apart, and how the array of that shape lies.

    Parameters
    ----------
    form
        All sizes are known.
    team
        Whose ranks the devices are.
    """
    entries = [entry for cut in axes_apart(form) for entry in cut]
    shape = tuple([int(n or 0) for n, _ in entries])
    parts = tuple([k for _, k in entries])
    sharding = _on_axes_of(team.mesh, parts, form) or _owned(parts, form)
    return shape, sharding.with_copies(team.client is not None)  # threads of a process share memory


def _on_axes_of(mesh: Mesh, parts: Sequence[int], form: TensorForm) -> Sharding | None:
    """Return the type that the axes of a team can say: every tile at the same owners; None if there is none."""
    fine = prime_mesh(mesh)
    for axes in realised(parts, fine):
        sharding = Sharding(fine, axes)
        if all(frozenset(sharding.members(t)) == own for t, own in zip(sharding.tiles(), form.owners, strict=True)):
            return coarsened(sharding, mesh)
    return None


def _owned(parts: Sequence[int], form: TensorForm) -> Sharding:
    """Return the type whose mesh lists the owners: an axis for each cut, and the last one for replicas."""
    cut = [axis for axis, k in enumerate(parts) if k > 1]
    n_replicas = max(map(len, form.owners))
    names = {axis: f"c{i}" for i, axis in enumerate(cut)}
    owners = [sorted(devices)[r % len(devices)] for devices in form.owners for r in range(n_replicas)]
    mesh = Mesh(
        (*names.values(), *["r"] * (n_replicas > 1)),
        (*[parts[axis] for axis in cut], *[n_replicas] * (n_replicas > 1)),
        tuple(owners),
    )
    return Sharding(mesh, tuple([(names[axis],) if axis in names else () for axis in range(len(parts))]))


def placed(x: DistArray, form: TensorForm) -> DistArray:
    """Return an array that lies as a form says, on the team that it is on; nothing is run."""
    assert x.team is not None
    dx: Any = namespace()
    shape, sharding = form_on_team(form.with_shape(x.shape), x.team)
    memo = x.__dx_node__().memo
    made: DistArray
    if memo is not None and memo.on_client:
        host = memo.blocks[0].reshape(shape)
        made = dx.asarray(host, team=x.team, device=x.device, sharding=sharding, copy=False)
    else:
        made = _pinned(x if shape == tuple(x.shape) else dx.reshape(x, shape), sharding)
    return made if shape == tuple(x.shape) else dx.reshape(made, x.shape)


def _pinned(x: DistArray, sharding: Sharding) -> DistArray:
    """Return an array with a cut. A product makes its tiles where they are to lie; of all others they are moved."""
    node = x.__dx_node__()
    if node.memo is None and node.pin == sharding:
        return x
    if node.memo is None and node.pin is None and node.op.family.is_contraction:
        return x._on(node.with_pin(sharding))
    return x.reshard(sharding)


def form_of(x: DistArray) -> TensorForm:
    """Return how an array lies, or will lie: devices are the ranks of its team's members. Nothing is run.

    Raises
    ------
    ShardingError
        If the array has no team, or its cuts are not where a spec can put them.
    """
    if x.team is None:
        raise ShardingError("an array without a team has no devices; give it one with x.to_team(team)")
    fused = _fused(x)
    sharding = x.sharding if fused is None else fused[1].sharding
    if not sharding.is_regular:
        raise ShardingError(f"the boundaries {sharding.bounds} are none that a spec can say; use x.reshard(...) first")
    size = x.team.size
    owners = tuple(frozenset(sharding.members(tile, size)) for tile in sharding.tiles())
    if fused is not None:
        return TensorForm(tuple(x.shape), fused[0], owners)
    return TensorForm(
        tuple(x.shape),
        tuple(((n, k),) if k > 1 else () for n, k in zip(x.shape, sharding.parts, strict=True)),
        owners,
    )


def _fused(x: DistArray) -> tuple[tuple[AxisCut, ...], DistArray] | None:
    """Return how each axis is cut of an array whose fused axes are apart in its base, and the base; None for others."""
    if len(x._lens) != 1 or not isinstance(x._lens[0], Reshape):
        return None
    base = DistArray._on(x._base.current)
    cuts: list[AxisCut] = []
    for old, new in reshape_groups(base.shape, x.shape):
        if len(new) > 1 and any(base.sharding.parts[axis] > 1 for axis in old):
            return None
        entries = tuple([(base.shape[axis], base.sharding.parts[axis]) for axis in old])
        cuts += [entries if n_shards(entries) > 1 else ()] * min(len(new), 1) + [()] * (len(new) - 1)
    return tuple(cuts), base


def from_spec(data: Any, spec: JsonSpec | Any, *, team: Team) -> DistArray:
    """Return an array that lies as a spec says. Nothing is run before it is needed.

    Parameters
    ----------
    data
        A host array, or a DistArray of the team: one that lies so already is returned as it is.
    spec
        A ShardingSpecProto, or a spec in JSON form.
    team
        Whose ranks the devices of the spec are.

    Raises
    ------
    OnnxShardingError
        If the spec is wrong for the array, or names members that the team does not have.
    ShardingError
        If `data` lies on another team.
    TypeError
        If `spec` is none, or `team` is no team.

    Notes
    -----
    On a cluster every device has what it owns; threads of one process share memory. `spec_of` names all owners.
    """
    if not isinstance(team, Team):
        raise TypeError(f"from_spec: team={shown(team)} is no Team; its ranks are the devices that the spec names")
    if not isinstance(spec, Mapping):
        if type(spec).__name__ != "ShardingSpecProto":
            raise TypeError(f"from_spec: spec={shown(spec)} is neither a ShardingSpecProto nor its JSON form, a dict")
        from distarray.io.onnx.protobuf import spec_from_proto

        spec = spec_from_proto(spec)
    dx: Any = namespace()
    if isinstance(data, DistArray):
        if data.team != team:
            raise ShardingError(f"the array lies on {data.team!r}, not on {team!r}; x.to_team(team) moves it")
    else:
        data = dx.asarray(data, team=team)
    reading = read_spec(spec, data.shape, team.size)
    raise_errors(reading.findings)
    assert reading.form is not None
    return data if lies_so(data, reading.form) else placed(data, reading.form)


def lies_so(x: DistArray, form: TensorForm) -> bool:
    """Return whether an array that is there lies as a form says; nothing is planned to know of others."""
    node = x._base.current
    if node.memo is None or (node.memo.on_client and node.pin is None):
        return False
    try:
        is_there = node.memo.sharding.is_copied or not node.env.is_cluster or max(map(len, form.owners)) == 1
        return is_there and form_of(x).is_same(form.with_shape(x.shape))
    except ShardingError:
        return False


def spec_of(x: DistArray, name: str) -> Any:
    """Return a ShardingSpecProto of how an array lies, for a tensor of this name. Nothing is run.

    Raises
    ------
    ShardingError
        As `form_of`.
    """
    from distarray.io.onnx.protobuf import spec_to_proto

    return spec_to_proto(write_spec(form_of(x)), name)
