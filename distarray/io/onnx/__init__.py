"""ONNX models with sharding annotations: checked, completed, planned, written and read.

The model of shardings (`infer_node`) is pure: it needs neither the ``onnx`` package nor Dask. Reading files does.
"""

from distarray.errors import OnnxShardingError as ShardingError
from distarray.io.onnx.annotation import annotate
from distarray.io.onnx.arrays import from_spec, spec_of
from distarray.io.onnx.drawing import draw
from distarray.io.onnx.inference import infer_node
from distarray.io.onnx.model import OnnxModel as Model
from distarray.io.onnx.model import load
from distarray.io.onnx.violations import Violation

__all__ = ["Model", "ShardingError", "Violation", "annotate", "draw", "from_spec", "infer_node", "load", "spec_of"]
