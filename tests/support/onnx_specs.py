"""Specs of ONNX in the few words that tests need."""

from __future__ import annotations

from math import prod
from typing import Any

import hypothesis.strategies as st


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


def fitting(draw: Any, shape: tuple[int, ...], pool: list[list[Any]], likely: int) -> dict[str, Any]:
    """A spec for a shape: mostly one axis cut, into `likely` shards, with holders of `pool` in any order."""
    cuts: list[tuple[Any, ...]] = []
    for axis in draw(st.permutations(range(len(shape))))[: draw(st.sampled_from([0, 1, 1, 1, 2]))]:
        n, k = shape[axis], draw(st.sampled_from([likely, likely, likely, 3]))
        if n % 2 == 0 and n > 2 and not draw(st.integers(0, 4)):
            cuts.append((axis, (2, 1), (n // 2, k)))
        elif n > 1:
            cuts.append((axis, n, k))
    count = prod(
        [k for _, *rest in cuts for k in [prod([c for _, c in rest]) if isinstance(rest[0], tuple) else rest[1]]]
    )
    holders = draw(st.sampled_from(pool))
    return spec([holders[i % len(holders)] for i in range(count)], *cuts)


def annotated(draw: Any, model: Any, num_devices: int) -> Any:
    """A copy of a model with random specs at its nodes; those that are illegal there are drawn again, a few times."""
    from distarray.io.onnx import load
    from distarray.io.onnx.protobuf import spec_to_proto

    made = type(model)()
    made.CopyFrom(model)
    made.ir_version = 11
    made.configuration.add(name="team", num_devices=num_devices)
    devices = list(range(num_devices))
    pairs = [[devices[i], devices[-1 - i]] for i in range(num_devices // 2)]
    pool: list[list[Any]] = [devices, draw(st.permutations(devices)), pairs, devices[:2], [devices], devices[-1:]]
    shapes = load(made).graph.shapes
    for node in made.graph.node:
        for _ in range(4):
            likely = draw(st.sampled_from([2, 2, 2, num_devices]))
            entry = node.device_configurations.add(configuration_id="team")
            for name in dict.fromkeys((*node.input, *node.output)):
                shape = shapes.get(name)
                if name and shape and all(isinstance(n, int) for n in shape) and draw(st.integers(0, 2)):
                    chosen = fitting(draw, shape, pool, likely)
                    entry.sharding_spec.append(spec_to_proto(chosen, name))
            if not [v for v in load(made).check() if v.severity == "error"]:
                break
            del node.device_configurations[:]
    return made
