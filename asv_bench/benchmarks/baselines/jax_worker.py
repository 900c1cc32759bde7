"""What XLA and Shardy emit: a script for an interpreter that has jax, run by `measured` as a process of its own.

Reads from stdin a JSON list of problems, ``{"mesh": [[name, size], ..], "shape": [..], "src": [[name, ..], ..],
"dst": ..}`` with the axes of each dimension major first, and prints a line for each: its "cost", "peak", "steps".
A compiler that aborts takes the process with it: what has been printed by then is what is known.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from typing import Any


def compiled(problem: dict[str, Any]) -> str:
    """The program for one device of ``jit(identity)`` from one type to the other; nothing is allocated."""
    import jax
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    names, sizes = zip(*problem["mesh"], strict=True)
    devices = np.array(jax.devices()[: math.prod(sizes)]).reshape(sizes)
    mesh = Mesh(devices, names)
    a, b = (
        NamedSharding(mesh, PartitionSpec(*[tuple(axes) or None for axes in problem[end]])) for end in ("src", "dst")
    )
    x = jax.ShapeDtypeStruct(tuple(problem["shape"]), np.float32, sharding=a)
    return str(jax.jit(lambda x: x, in_shardings=a, out_shardings=b).lower(x).compile().as_text())


_COLLECTIVE = re.compile(r"= (.*?) (all-gather|all-to-all|collective-permute|all-reduce)(?:-start)?\(")
_SHAPE = re.compile(r"f32\[([\d,]*)\]")


def of_xla(problem: dict[str, Any]) -> dict[str, Any]:
    """Collectives of the compiled program, priced by figure 11: a gather by its result, the others by the tile."""
    tile = math.prod(problem["shape"])
    size = dict(problem["mesh"])
    for axes in problem["src"]:
        tile //= math.prod(size[a] for a in axes)
    cost, peak, steps = 0, tile, []
    for line in compiled(problem).splitlines():
        found = _COLLECTIVE.search(line)
        if found:
            n = sum(math.prod(map(int, filter(None, dims.split(",")))) for dims in _SHAPE.findall(found[1]))
            cost += 2 * n if found[2] == "all-reduce" else n
            peak = max(peak, n)
            steps.append(found[2])
    return {"cost": cost, "peak": peak, "steps": steps}


_SDY = re.compile(r"sdy\.(all_gather|all_slice|all_to_all|collective_permute) .*out_sharding=<@mesh, \[(.*?)\]>")
_AXIS = re.compile(r'"(\w+)"(?::\(\d+\)(\d+))?')


def of_shardy(problem: dict[str, Any]) -> dict[str, Any]:
    """What the pass `sdy-reshard-to-collectives` emits, priced by figure 11."""
    from jax._src.interpreters.mlir import make_ir_context
    from jaxlib.mlir import ir, passmanager

    def written(end: str) -> str:
        return ", ".join("{" + ", ".join(f'"{a}"' for a in axes) + "}" for axes in problem[end])

    array = "x".join(map(str, problem["shape"])) + "xf32"
    mesh = ", ".join(f'"{name}"={n}' for name, n in problem["mesh"])
    text = f"""sdy.mesh @mesh = <[{mesh}]>
        func.func @f(%x : tensor<{array}> {{sdy.sharding=#sdy.sharding<@mesh, [{written("src")}]>}})
                -> tensor<{array}> {{
            %y = sdy.reshard %x <@mesh, [{written("dst")}]> : tensor<{array}>
            return %y : tensor<{array}>
        }}"""
    with make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        passes = "builtin.module(func.func(sdy-reshard-to-collectives))"
        passmanager.PassManager.parse(passes).run(module.operation)
        emitted = str(module)
    size = dict(problem["mesh"])

    def tile_of(types: str) -> int:
        parts = math.prod(int(n) if n else size[name] for name, n in _AXIS.findall(types))
        return int(math.prod(problem["shape"])) // parts

    types, cost, steps = written("src"), 0, []
    peak = tile_of(types)
    for op, after in _SDY.findall(emitted):
        if op == "collective_permute" and after == types:
            continue  # it leaves everything where it is
        cost += {"all_slice": 0, "all_gather": tile_of(after)}.get(op, tile_of(types))
        types = after
        peak = max(peak, tile_of(types))
        steps.append(op)
    return {"cost": cost, "peak": peak, "steps": steps}


def main() -> None:
    """Answer the problems on stdin, one after the other, by the system that the command line names."""
    problems = json.load(sys.stdin)
    n = max([math.prod(n for _, n in problem["mesh"]) for problem in problems], default=1)
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={n}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    answer = {"xla": of_xla, "shardy": of_shardy}[sys.argv[1]]
    for problem in problems:
        print(json.dumps(answer(problem)), flush=True)


if __name__ == "__main__":
    main()
