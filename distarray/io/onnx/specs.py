"""Specs: the words of an annotation, read into forms with every fault named (S-1 to S-9), and written back (S-11).

A spec is the JSON form of a ``ShardingSpecProto``: ``{"device": [..], "groups": [[key, [member ..]] ..], "sharded":
[{"axis": int, "shards": [{"dim": int or str, "num_shards": int} ..]} ..]}``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from distarray.arguments import shown
from distarray.io.onnx.forms import AxisCut, Owners, Size, TensorForm, n_shards
from distarray.io.onnx.violations import Violation, has_errors

JsonSpec: TypeAlias = Mapping[str, Any]


class SpecReading(NamedTuple):
    """A SpecReading is what a spec says about a tensor: its form, None if there are errors, and the findings."""

    form: TensorForm | None
    findings: list[Violation]


def read_spec(spec: JsonSpec, shape: Sequence[Size] | None, num_devices: int, *, strict: bool = True) -> SpecReading:
    """Return the form that a spec gives a tensor, and all that is wrong with it.

    Parameters
    ----------
    spec
        In the JSON form of the head of this file.
    shape
        Of the tensor; symbols are strings. None: unknown, and then only whole tensors can be annotated.
    num_devices
        Devices of the configuration: 0 to ``num_devices - 1``.
    strict
        False: no devices at all means the first ones, in order (S-9).

    Raises
    ------
    ValueError
        If `spec` is no spec at all: a key or a type that the form does not have.
    """
    _check_types(spec)
    findings: list[Violation] = []
    cuts = _read_cuts(spec["sharded"], shape, findings)
    listed = [axis for axis, cut in cuts.items() if n_shards(cut) > 1]
    if listed != sorted(listed):
        _fault(findings, "S-1", "unsorted-dims", f"axes {listed} are listed out of order: the first is the slowest")
    count = prod([n_shards(cut) for cut in cuts.values()])
    is_cut_readable = not has_errors(findings)
    holders = _read_devices(spec, count if is_cut_readable else None, num_devices, strict, findings)
    if holders is None or has_errors(findings):
        return SpecReading(None, findings)
    if count == 1:
        return SpecReading(TensorForm.whole(shape, frozenset().union(*holders)), findings)
    assert shape is not None
    if len(frozenset().union(*holders)) < sum(map(len, holders)):
        _fault(findings, "S-4", "several-shards", "a device is listed for several shards; it holds all of them")
    form = TensorForm(
        tuple(shape),
        tuple(cuts[axis] if axis in listed else () for axis in range(len(shape))),
        _in_axis_order(holders, listed, [n_shards(cuts[axis]) for axis in listed]),
    )
    return SpecReading(form, findings)


def _fault(findings: list[Violation], rule: str, code: str, message: str) -> None:
    findings.append(Violation(rule, code, message))


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_types(spec: JsonSpec) -> None:
    """Raise a ValueError if something does not have the type that the form gives it."""
    try:
        is_spec = set(spec) == {"device", "groups", "sharded"}
        is_spec = is_spec and all(map(_is_int, spec["device"]))
        is_spec = is_spec and all(_is_int(key) and all(map(_is_int, members)) for key, members in spec["groups"])
        for dim in spec["sharded"] if is_spec else ():
            entries = dim["shards"]
            is_spec = is_spec and _is_int(dim["axis"]) and set(dim) == {"axis", "shards"}
            is_spec = is_spec and all(
                _is_int(entry.get("num_shards", 1)) and (_is_int(entry.get("dim", 1)) or isinstance(entry["dim"], str))
                for entry in entries
            )
    except (TypeError, KeyError, ValueError, AttributeError):
        is_spec = False
    if not is_spec:
        raise ValueError(
            f"{shown(spec)} is no sharding spec; write {{'device': [int ..], 'groups': [[key, [member ..]] ..], "
            "'sharded': [{'axis': int, 'shards': [{'dim': int or str, 'num_shards': int} ..]} ..]}"
        )


def _read_cuts(
    sharded: Sequence[Mapping[str, Any]], shape: Sequence[Size] | None, findings: list[Violation]
) -> dict[int, AxisCut]:
    """Return the cut of each axis that is listed, in the order of the list (S-5, S-6, S-7)."""
    cuts: dict[int, AxisCut] = {}
    for dim in sharded:
        axis, entries = dim["axis"], dim["shards"]
        counts = [entry.get("num_shards") for entry in entries]
        if None in counts or not counts:
            _fault(findings, "S-5", "num-shards-missing", f"axis {axis} does not say into how many shards it is cut")
            continue
        if min(counts) < 1:
            _fault(findings, "S-5", "num-shards-invalid", f"axis {axis} is cut into {counts} shards; 1 is the least")
            continue
        if shape is None:
            if max(counts) > 1:
                _fault(findings, "S-5", "rank-unknown", f"axis {axis} is cut, but the rank of the tensor is not known")
            continue
        rank = len(shape)
        if not -rank <= axis < rank:
            allowed = f"use {-rank} to {rank - 1}" if rank else "a scalar has no axis"
            _fault(findings, "S-5", "axis-out-of-range", f"axis {axis} of a tensor of rank {rank}; {allowed}")
            continue
        axis %= rank
        if axis in cuts:
            _fault(findings, "S-5", "duplicate-axis", f"axis {axis} is listed twice")
            continue
        cuts[axis] = _read_entries(axis, shape[axis], entries, findings)
    return cuts


def _read_entries(axis: int, size: Size, entries: Sequence[Mapping[str, Any]], findings: list[Violation]) -> AxisCut:
    dims = [entry.get("dim") for entry in entries]
    counts = [entry["num_shards"] for entry in entries]
    if len(entries) == 1:
        said = dims[0]
        if isinstance(said, int) and isinstance(size, int) and said != size:
            _fault(findings, "S-6", "dim-mismatch", f"axis {axis} has {size} elements, but the spec says {said}")
        known = size if isinstance(size, int) or not isinstance(said, int) else said
        return ((said if known is None else known, counts[0]),)
    if not all(isinstance(n, int) and n >= 0 for n in dims):
        _fault(findings, "S-6", "dim-mismatch", f"fused axis {axis} has the sizes {dims}; each must be a number")
    elif isinstance(size, int) and (made := prod([int(n or 0) for n in dims])) != size:
        _fault(findings, "S-6", "dim-mismatch", f"fused axis {axis} has {size} elements, but {dims} make {made}")
    return tuple(zip(dims, counts, strict=True))


def _read_devices(
    spec: JsonSpec, count: int | None, num_devices: int, strict: bool, findings: list[Violation]
) -> list[Owners] | None:
    """Return the devices of each shard in the order of the list (S-2, S-3, S-9); `count` is None if nobody knows."""
    device: Sequence[int] = spec["device"]
    if not device:
        if strict:
            _fault(findings, "S-9", "placement-missing", "no device is listed; say who holds each shard")
            return None
        if count is None or count > num_devices:
            if count is not None:
                _fault(findings, "S-3", "device-out-of-range", f"{count} shards for {num_devices} devices")
            return None
        device = range(count)
    if count is not None and count not in (1, len(device)):
        message = f"{count} shards, but {len(device)} entries of device; to replicate a shard give a group for it"
        _fault(findings, "S-2", "device-count-mismatch", message)
    groups: dict[int, list[Sequence[int]]] = {}
    for key, members in spec["groups"]:
        groups.setdefault(key, []).append(members)
    read: dict[int, Owners] = {}
    for entry in dict.fromkeys(device):
        read[entry] = _read_group(entry, groups.get(entry), num_devices, findings)
    return [read[entry] for entry in device]


def _read_group(
    entry: int, groups: Sequence[Sequence[int]] | None, num_devices: int, findings: list[Violation]
) -> Owners:
    """Return the devices that one entry of ``device`` means (S-3)."""
    if groups is None:
        if not 0 <= entry < num_devices:
            message = f"device {entry} is no group, and the devices are 0 to {num_devices - 1}"
            _fault(findings, "S-3", "device-out-of-range", message)
        return frozenset((entry,))
    members = groups[0]
    if len(groups) > 1:
        _fault(findings, "S-3", "group-duplicate-key", f"group {entry} is given {len(groups)} times")
    if not members:
        _fault(findings, "S-3", "group-empty", f"group {entry} has no member")
    outside = [member for member in members if not 0 <= member < num_devices]
    if outside:
        message = f"group {entry} has the member {outside[0]}, but the devices are 0 to {num_devices - 1}"
        _fault(findings, "S-3", "group-member-out-of-range", message)
    if 0 <= entry < num_devices:
        message = f"{entry} is a group and a device; it is taken for the group"
        _fault(findings, "S-3", "group-key-shadows-device", message)
    return frozenset(members)


def _in_axis_order(holders: Sequence[Owners], axes: Sequence[int], counts: Sequence[int]) -> tuple[Owners, ...]:
    """Return the shards row-major over ascending axes; they come row-major over `axes` (S-1)."""
    order = sorted(range(len(axes)), key=axes.__getitem__)
    numbers = np.arange(len(holders)).reshape(counts).transpose(order)
    return tuple([holders[n] for n in numbers.ravel().tolist()])


def write_spec(form: TensorForm) -> dict[str, Any]:
    """Return a form as a spec in the normal form of S-11."""
    keys: dict[Owners, int] = {}
    device: list[int] = []
    for owners in form.owners:
        key = min(owners) if len(owners) == 1 else keys.setdefault(owners, -len(keys) - 1)
        device.append(key)
    sharded = []
    for axis, cut in enumerate(form.cuts):
        if n_shards(cut) > 1:
            entries = [{"num_shards": k} if n is None else {"dim": n, "num_shards": k} for n, k in cut]
            sharded.append({"axis": axis, "shards": entries})
    groups = [[key, sorted(owners)] for owners, key in keys.items()]
    return {"device": device, "groups": groups, "sharded": sharded}
