"""A perceptron and a transformer block in ONNX: cut by the planner and by usual annotations, and run by each of them.

    python docs/examples/onnx_models.py              # on four threads of this process
    python docs/examples/onnx_models.py --cluster 4  # on a Dask cluster of four worker processes

Prints for each model what was predicted to move and to take, and what the fastest of some runs took. Weights are
seeded, and nothing is downloaded. It needs ``pip install 'dask-distarray[onnx]'``.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import distarray as dx


class _Named:
    """A model that is written down node by node, with seeded weights."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def weight(self, name: str, *shape: int) -> None:
        self.constant(name, (self.rng.standard_normal(shape) / np.sqrt(shape[0])).astype("f4"))

    def constant(self, name: str, value: Any) -> None:
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))

    def node(self, op: str, inputs: str, output: str, **attributes: Any) -> None:
        self.nodes.append(helper.make_node(op, inputs.split(), [output], f"{op}_{output}", **attributes))

    def model(self, name: str, shape: list[Any], result: list[Any]) -> Any:
        x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", result)))
        graph = helper.make_graph(self.nodes, name, [x], [y], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


@cache
def perceptron(batch: Any = 64, features: int = 1024, hidden: int = 4096, outputs: int = 1024) -> Any:
    """Two layers."""
    made = _Named()
    for name, shape in {"w": (features, hidden), "b": (hidden,), "v": (hidden, outputs), "c": (outputs,)}.items():
        made.weight(name, *shape)
    made.node("Gemm", "x w b", "h")
    made.node("Relu", "h", "r")
    made.node("Gemm", "r v c", "y")
    return made.model("perceptron", [batch, features], [batch, outputs])


def transformer_block(batch: int = 2, sequence: int = 64, heads: int = 8, depth: int = 16) -> Any:
    """Attention and two layers, each after a normalisation and with what came in added."""
    made = _Named()
    width = heads * depth
    for name, shape in {"up": (width, 4 * width), "down": (4 * width, width), "g1": (width,), "g2": (width,)}.items():
        made.weight(name, *shape)
    for x in "qkvo":
        made.weight(f"w{x}", width, width)
    made.constant("split", [batch, sequence, heads, depth])
    made.constant("joined", [batch, sequence, width])
    made.constant("scale", np.float32(depth**-0.5))
    made.node("RMSNormalization", "x g1", "a", axis=-1)
    for x in "qkv":
        made.node("MatMul", f"a w{x}", x)
        made.node("Reshape", f"{x} split", f"{x}1")
        made.node("Transpose", f"{x}1", f"{x}2", perm=[0, 2, 3, 1] if x == "k" else [0, 2, 1, 3])
    made.node("MatMul", "q2 k2", "s")
    made.node("Mul", "s scale", "s1")
    made.node("Softmax", "s1", "p", axis=-1)
    made.node("MatMul", "p v2", "z")
    made.node("Transpose", "z", "z1", perm=[0, 2, 1, 3])
    made.node("Reshape", "z1 joined", "z2")
    made.node("MatMul", "z2 wo", "o")
    made.node("Add", "x o", "x1")
    made.node("RMSNormalization", "x1 g2", "a1", axis=-1)
    made.node("MatMul", "a1 up", "u")
    made.node("Gelu", "u", "u1")
    made.node("MatMul", "u1 down", "d")
    made.node("Add", "x1 d", "y")
    return made.model("block", [batch, sequence, width], [batch, sequence, width])


def compared(model: Any, n_devices: int, n_runs: int) -> str:
    """The table of a model on so many members: each annotation with what was predicted and measured."""
    (info,) = model.graph.input
    x = np.random.default_rng(1).standard_normal([d.dim_value for d in info.type.tensor_type.shape.dim]).astype("f4")
    planned = dx.io.onnx.annotate(model, dx.Team((n_devices,), ("d",)))
    table: str = planned.table(planned.measure({"x": x}, n_runs=n_runs))
    return table


def main(argv: list[str] | None = None) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description="Annotations of two ONNX models, predicted and measured.")
    parser.add_argument("--cluster", type=int, metavar="N", help="worker processes; without it four threads")
    parser.add_argument("--batch", type=int, default=256, help="rows of the perceptron (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=5, help="of each annotation (default: %(default)s)")
    args = parser.parse_args(argv)
    running: Any = nullcontext()
    if args.cluster:
        from distributed import Client

        running = Client(n_workers=args.cluster, threads_per_worker=1, dashboard_address=None)
    with running:
        for model in (perceptron(args.batch), transformer_block(4, 128, 8, 32)):
            print(f"{model.graph.name}, {len(model.graph.node)} nodes")
            print(compared(model, args.cluster or 4, args.runs), end="\n\n")


if __name__ == "__main__":
    main()
