"""Specs of ONNX in the few words that tests need."""

from __future__ import annotations

from typing import Any


def spec(device: list[Any], *cuts: tuple[Any, ...]) -> dict[str, Any]:
    """A spec: entries of `device` that are lists are groups; a cut is ``(axis, size, shards)``, a fused one ``(axis,
    (size, shards), (size, shards), ...)``; a size None is left out.
    """
    groups: list[list[Any]] = []
    entries = []
    for entry in device:
        if isinstance(entry, list):
            groups.append([-len(groups) - 1, entry])
            entry = groups[-1][0]
        entries.append(entry)
    sharded = []
    for axis, *rest in cuts:
        pairs = rest if isinstance(rest[0], tuple) else [tuple(rest)]
        shards = [{"num_shards": k} if n is None else {"dim": n, "num_shards": k} for n, k in pairs]
        sharded.append({"axis": axis, "shards": shards})
    return {"device": entries, "groups": groups, "sharded": sharded}
