"""Kernels that are written for CuPy, compiled by the host's C++ compiler and run on numpy arrays.

`RawKernel` is CuPy's, as far as `distarray.kernels.cupy_backend` uses it. The header offers what a kernel includes and
what CUDA C++ has beside C++: complex numbers, half precision, the functions of the math library, blocks of threads that
wait for each other.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["COMPILER", "RawKernel", "counted"]

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
#include <ucontext.h>
#include <vector>
#define __global__
#define __shared__ static thread_local
#define __align__(n) __attribute__((aligned(n)))
struct Place { unsigned x, y; };
static thread_local Place threadIdx, blockIdx, blockDim;
static thread_local ucontext_t block_context, *thread_context;
static thread_local bool is_over;
static thread_local void (*thread_body)(void**);
static thread_local void** thread_arguments;
static void __syncthreads() { swapcontext(thread_context, &block_context); }
static void run_thread() {
    thread_body(thread_arguments);
    is_over = true;
    swapcontext(thread_context, &block_context);
}
static void run_blocks(unsigned n_x, unsigned n_y, unsigned n, int waits, void (*body)(void**), void** arguments) {
    const size_t stack = 1 << 16;
    std::vector<char> stacks(waits ? n * stack : 0);
    std::vector<ucontext_t> contexts(waits ? n : 0);
    blockDim = {n, 1};
    thread_body = body;
    thread_arguments = arguments;
    for (unsigned y = 0; y < n_y; y++) for (unsigned x = 0; x < n_x; x++) {
        blockIdx = {x, y};
        if (!waits) {
            for (unsigned t = 0; t < n; t++) { threadIdx = {t, 0}; body(arguments); }
            continue;
        }
        std::vector<unsigned> left;
        for (unsigned t = 0; t < n; t++) {
            getcontext(&contexts[t]);
            contexts[t].uc_stack.ss_sp = &stacks[t * stack];
            contexts[t].uc_stack.ss_size = stack;
            makecontext(&contexts[t], run_thread, 0);
            left.push_back(t);
        }
        while (!left.empty()) {
            std::vector<unsigned> waiting;
            for (unsigned t : left) {
                threadIdx = {t, 0};
                thread_context = &contexts[t];
                is_over = false;
                swapcontext(&block_context, &contexts[t]);
                if (!is_over) waiting.push_back(t);
            }
            left = waiting;
        }
    }
}
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


class RawKernel:
    """CuPy's, as far as `distarray.kernels.cupy_backend` uses it: ``kernel(grid, block, arguments)``.

    The threads of a block take turns on the host: each runs until it waits for the others.
    """

    def __init__(self, code: str, name: str, options: tuple[str, ...] = ()) -> None:
        # Without it the compiler may join a product and a sum, and an element would have other bits in another kernel.
        assert options == ("--fmad=false",)
        self.function = name
        declared = re.search(rf'extern "C" __global__ void {name}\(([^)]*)\)', code)
        assert declared is not None
        self.parameters = [p.rsplit(" ", 1) for p in declared[1].split(", ")]
        values = ", ".join(
            f"({t})*(char**)arguments[{k}]" if t.endswith("*") else f"*({t}*)arguments[{k}]"
            for k, (t, _) in enumerate(self.parameters)
        )
        lines = [line for line in code.splitlines() if not line.startswith("#include <cupy/")]
        body = "\n".join(lines).replace(declared[0], f"static void {name}({declared[1]})")
        self.name = _entered(f"""{body}
static void entered(void** arguments) {{ {name}({values}); }}
extern "C" void RUN(unsigned x, unsigned y, unsigned n, void** arguments) {{
    run_blocks(x, y, n, {int("__syncthreads" in code)}, entered, arguments);
}}""")

    def compile(self) -> None:
        """Wait until somebody calls: kernels are compiled together."""

    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
        assert len(arguments) == len(self.parameters), (len(arguments), self.parameters)
        held = []
        for (kind, name), given in zip(self.parameters, arguments, strict=True):
            if kind.endswith("*"):
                assert given.ndim >= 0 and hasattr(given, "strides"), f"{name} is an array"
                held.append(ctypes.c_void_p(given.__array_interface__["data"][0]))
            else:
                # CuPy hands over as many bytes as the scalar has.
                assert isinstance(given, np.generic) and TYPES[given.dtype.name] == _plain(kind), (kind, name, given)
                held.append(ctypes.create_string_buffer(given.tobytes()))
        pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(h) for h in held))
        x, y = (*grid, 1)[:2]
        _function(self.name)(ctypes.c_uint(x), ctypes.c_uint(y), ctypes.c_uint(block[0]), pointers)


def _plain(kind: str) -> str:
    """The type of a parameter as `TYPES` spells it."""
    kind = kind.removeprefix("const ")
    return {"unsigned": "unsigned int"}.get(kind, kind)
