"""The package ``onnx``, for all that reads, writes or runs models: what judges shardings alone does without it."""

from __future__ import annotations

from distarray.lazy import import_extra

onnx = import_extra("onnx", "reading and writing ONNX models")
