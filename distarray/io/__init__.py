"""Files and other libraries' arrays."""

from __future__ import annotations

from distarray.lazy import attach as _attach

__getattr__ = _attach(__name__, {}, ("onnx",))
