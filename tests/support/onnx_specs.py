"""Specs of ONNX in the few words that tests need."""

from __future__ import annotations

from math import prod
from random import Random
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


def fitting(random: Random, shape: tuple[int, ...], pool: list[list[Any]], likely: int) -> dict[str, Any]:
    """A spec for a shape: mostly one axis cut, into `likely` shards, with holders of `pool` in any order."""
    cuts: list[tuple[Any, ...]] = []
    n_cut = min(random.choice([0, 1, 1, 1, 2]), len(shape))
    for axis in random.sample(range(len(shape)), n_cut):
        n, k = shape[axis], random.choice([likely, likely, likely, 3])
        if n % 2 == 0 and n > 2 and not random.randrange(5):
            cuts.append((axis, (2, 1), (n // 2, k)))
        elif n > 1:
            cuts.append((axis, n, k))
    count = prod([prod([k for _, k in rest]) if isinstance(rest[0], tuple) else rest[1] for _, *rest in cuts])
    holders = random.choice(pool)
    return spec([holders[i % len(holders)] for i in range(count)], *cuts)


def annotated(random: Random, model: Any, num_devices: int, feeds: Any, tries: int = 4) -> Any:
    """A copy of a model with random specs at its nodes; those that are illegal there are drawn again, a few times.

    `feeds` say what is known when it runs.
    """
    from distarray.io.onnx import ShardingError, load
    from distarray.io.onnx.protobuf import spec_to_proto

    made = type(model)()
    made.CopyFrom(model)
    made.ir_version = 11
    made.configuration.add(name="team", num_devices=num_devices)
    devices = list(range(num_devices))
    pairs = [[devices[i], devices[-1 - i]] for i in range(num_devices // 2)]
    shuffled = random.sample(devices, num_devices)
    pool: list[list[Any]] = [devices, shuffled, pairs, devices[:2], [devices], devices[-1:]]
    shapes = load(made).graph.shapes
    for node in made.graph.node:
        for _ in range(tries):
            likely = random.choice([2, 2, 2, num_devices])
            entry = node.device_configurations.add(configuration_id="team")
            for name in dict.fromkeys((*node.input, *node.output)):
                shape = shapes.get(name)
                if name and shape and all(isinstance(n, int) for n in shape) and random.randrange(3):
                    entry.sharding_spec.append(spec_to_proto(fitting(random, shape, pool, likely), name))
            try:
                load(made).plan(feeds)
                break
            except ShardingError:
                pass
            del node.device_configurations[:]
    return made
