"""The operators of ONNX as expressions of this package, and the models that are made of them.

`run_node` applies one operator; `run_graph` and `PlainModel` run a model as it stands, without regard to annotations.
"""

from distarray.io.onnx.operators.model import PlainModel, run_graph, run_node

__all__ = ["PlainModel", "run_graph", "run_node"]
