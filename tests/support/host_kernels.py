"""Kernels that are written for CuPy, compiled by the host's C++ compiler and run on numpy arrays.

`ElementwiseKernel` and `ReductionKernel` are CuPy's, as far as `distarray.kernels.cupy_backend` uses them. The header
offers what CuPy puts before a kernel: complex numbers, half precision, and the functions of CUDA's math library. One
thread is one turn of a loop; a reduction folds what its map gives one element after the other.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import shutil
import subprocess
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["COMPILER", "ElementwiseKernel", "ReductionKernel", "counted"]

Array = np.ndarray[Any, Any]
COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
#: Kernels that were made since the process began; tests look at what is added.
counted = {"kernels": 0}

#: What the dtypes that CuPy writes into a kernel's declaration are in C.
TYPES = {
    "bool": "bool",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "float16": "float16",
    "float32": "float",
    "float64": "double",
    "complex64": "complex<float>",
    "complex128": "complex<double>",
}

# C++ calls some of CUDA's functions by other names, and has complex numbers whose operators want both of one type.
HEADER = """
#include <cmath>
#include <complex>
#include <type_traits>
#define __device__
#define __forceinline__ inline
using namespace std;
class float16 {
    _Float16 data;
public:
    float16() {}
    float16(float v) : data(v) {}
    explicit float16(bool v) : data(float(v)) {}
    explicit float16(double v) : data(v) {}
    explicit float16(int v) : data(float(v)) {}
    explicit float16(unsigned int v) : data(float(v)) {}
    explicit float16(long long v) : data(float(v)) {}
    explicit float16(unsigned long long v) : data(float(v)) {}
    operator float() const { return float(data); }
};
"""
_COMMAND = [COMPILER or "g++", "-O1", "-std=c++17", "-ffp-contract=off", "-fPIC", "-w"]


@cache
def _folder() -> Path:
    """A folder of this process with the header, which is compiled once: <complex> takes longer than any kernel."""
    kept = tempfile.TemporaryDirectory(prefix="distarray-host-kernels-")
    _keep.append(kept)
    folder = Path(kept.name)
    (folder / "header.hpp").write_text(HEADER)
    subprocess.run([*_COMMAND, "-x", "c++-header", str(folder / "header.hpp")], check=True)
    return folder


_keep: list[Any] = []


#: Sources by the name of their function that are not compiled yet, and functions that are.
_waiting: dict[str, str] = {}
_ready: dict[str, Any] = {}
_lock = threading.Lock()


def _entered(source: str) -> str:
    """The name of a source's function, which it calls RUN; all that wait are compiled when one of them is called."""
    name = f"k{hashlib.sha1(source.encode()).hexdigest()}"
    with _lock:
        if name in _ready:
            return name
        _waiting[name] = f"namespace {name}_ {{\n{source.replace('RUN', name)}\n}}"
    return name


def _function(name: str) -> Any:
    """A function, compiled: starting a compiler takes longer than most of what it compiles."""
    with _lock:
        if name in _ready:
            return _ready[name]
        names, waiting = list(_waiting), "\n".join(_waiting.values())
        _waiting.clear()
        assert name in names
        counted["kernels"] += len(names)
        stem = _folder() / name
        stem.with_suffix(".cpp").write_text(f'#include "header.hpp"\n{waiting}')
        command = [*_COMMAND, "-shared", "-o", f"{stem}.so", f"{stem}.cpp"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SyntaxError(f"the host's compiler refuses a generated kernel:\n{done.stderr}")
        library = ctypes.CDLL(f"{stem}.so")
        _ready.update({n: library[n] for n in names})
        return _ready[name]


def _declarations(text: str) -> list[tuple[str, str]]:
    """Pairs of dtype and name of ``"float32 x, int8 y"``."""
    return [(p.split()[0], p.split()[1]) for p in text.split(",") if p.strip()]


def _pointers(arrays: list[Array]) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(a.ctypes.data) for a in arrays]


class _Kernel:
    """What is declared, and the order of arguments: inputs, then outputs."""

    def __init__(self, ins: str, outs: str, options: tuple[str, ...]) -> None:
        # Without it the compiler may join a product and a sum, and an element would have other bits in another kernel.
        assert options == ("--fmad=false",)
        self.ins, self.outs = _declarations(ins), _declarations(outs)

    def _arguments(self, first: str) -> str:
        return ", ".join([first, *(f"{TYPES[t]}* p_{name}" for t, name in self.ins + self.outs)])

    def _reads(self) -> str:
        return "\n".join(f"const {TYPES[t]} {name} = p_{name}[i];" for t, name in self.ins)

    def _check(self, arguments: tuple[Any, ...]) -> None:
        wanted = [t for t, _ in self.ins + self.outs][: len(arguments)]
        found = [np.asarray(a).dtype.name for a in arguments]
        if found != wanted:
            raise TypeError(f"a kernel of {wanted} was called with {found}")


class ElementwiseKernel(_Kernel):
    """``kernel(*inputs, *outputs)``: arrays that broadcast to the shape of the outputs, and outputs of one shape."""

    def __init__(
        self, in_params: str, out_params: str, operation: str, name: str, preamble: str = "",
        options: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        super().__init__(in_params, out_params, options)
        writes = "\n".join(f"{TYPES[t]}& {name} = p_{name}[i];" for t, name in self.outs)
        loop = f"for (long long i = 0; i < n; i++) {{\n{self._reads()}\n{writes}\n{operation}\n}}"
        self.name = _entered(f'{preamble}\nextern "C" void RUN({self._arguments("long long n")}) {{\n{loop}\n}}')

    def __call__(self, *arguments: Any) -> None:
        self._check(arguments)
        outputs = arguments[len(self.ins) :]
        shape = outputs[0].shape
        given = [np.array(np.broadcast_to(a, shape), order="C") for a in arguments]
        _function(self.name)(ctypes.c_longlong(math.prod(shape)), *_pointers(given))
        for target, made in zip(outputs, given[len(self.ins) :], strict=True):
            target[...] = made


class ReductionKernel(_Kernel):
    """``kernel(*inputs, axis=..., keepdims=True)`` is a new array."""

    def __init__(
        self, in_params: str, out_params: str, map_expr: str, reduce_expr: str, post_map_expr: str, identity: str,
        name: str, reduce_type: str, preamble: str = "", options: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        super().__init__(in_params, out_params, options)
        ((self.result, y),) = self.outs
        self.name = _entered(f"""
typedef {reduce_type} _reduced;
{preamble}
static _reduced _combine(const _reduced a, const _reduced b) {{ return {reduce_expr}; }}
extern "C" void RUN({self._arguments("long long n, long long m")}) {{
    for (long long k = 0; k < n; k++) {{
        _reduced a = _reduced({identity});
        for (long long i = k * m; i < (k + 1) * m; i++) {{
            {self._reads()}
            a = _combine(a, ({map_expr}));
        }}
        {TYPES[self.result]}& {y} = p_{y}[k];
        {post_map_expr};
    }}
}}""")

    def __call__(self, *arguments: Any, axis: Any = None, keepdims: bool = False) -> Array:
        assert keepdims
        self._check(arguments)
        shape = np.broadcast_shapes(*(np.shape(a) for a in arguments))
        axes = tuple(range(len(shape))) if axis is None else axis
        kept = [a for a in range(len(shape)) if a not in axes]
        order = (*kept, *axes)
        given = [np.ascontiguousarray(np.broadcast_to(a, shape).transpose(order)) for a in arguments]
        n, m = math.prod(shape[a] for a in kept), math.prod(shape[a] for a in axes)
        result = np.empty(tuple(1 if a in axes else k for a, k in enumerate(shape)), self.result)
        _function(self.name)(ctypes.c_longlong(n), ctypes.c_longlong(m), *_pointers([*given, result]))
        return result
