"""CUDA C++ of programs: one kernel's statements for all instructions; `cuda_loops` writes the loops around them.

The rows of `expressions` are written as C++. What C leaves open and numpy does not is written out: shifts, and
division, which rounds down and has a result for zero. Half precision is computed in single and rounded after each
instruction, as numpy does. What does not fit the integer that a float is cast to is left open, as numpy leaves it.

A function without a row, or a dtype that CUDA C++ has no type for, makes no kernel: the backend then calls CuPy's
functions one by one.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from distarray.types import DType

C_TYPE = {
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

#: T is the dtype of a function, U the unsigned type in which it wraps around. Floats: numpy's npy_divmod.
PREAMBLE = """
template <typename T, typename U> __device__ T dx_floor_divide(T a, T b) {
    if (b == 0) return 0;
    if (T(-1) < T(0) && b == T(-1)) return T(U(0) - U(a));
    const T q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? T(q - 1) : q;
}
template <typename T> __device__ T dx_fmod(T a, T b) {
    return b == 0 || (T(-1) < T(0) && b == T(-1)) ? T(0) : T(a % b);
}
template <typename T> __device__ T dx_remainder(T a, T b) {
    const T r = dx_fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? T(r + b) : r;
}
template <typename T, typename U> __device__ T dx_left_shift(T a, T b) {
    return b < 0 || b >= T(8 * sizeof(T)) ? T(0) : T(U(a) << b);
}
template <typename T> __device__ T dx_right_shift(T a, T b) {
    return b < 0 || b >= T(8 * sizeof(T)) ? T(a < 0 ? -1 : 0) : T(a >> b);
}
template <typename T> __device__ T dx_float_floor_divide(T a, T b) {
    if (b == 0) return a / b;
    const T r = fmod(a, b);
    T q = (a - r) / b;
    if (r != 0 && (b < 0) != (r < 0)) q -= 1;
    if (q == 0) return copysign(T(0), a / b);
    const T down = floor(q);
    return q - down > T(0.5) ? down + 1 : down;
}
template <typename T> __device__ T dx_float_remainder(T a, T b) {
    const T r = fmod(a, b);
    if (b == 0) return r;
    if (r == 0) return copysign(T(0), b);
    return (b < 0) != (r < 0) ? r + b : r;
}
template <typename T> __device__ T dx_logaddexp(T a, T b) {
    if (a == b) return a + T(0.693147180559945309417232121458176568);
    const T d = a - b;
    return d > 0 ? a + log1p(exp(-d)) : d <= 0 ? b + log1p(exp(d)) : d;
}
"""


def cast(term: str, given: DType, wanted: DType) -> str | None:
    """Return a C expression for `term`, which is of dtype `given`, as `wanted`; None if C has no type for one."""
    if given == wanted:
        return term
    if given.name not in C_TYPE or wanted.name not in C_TYPE:
        return None
    if given == np.float16:
        term, given = f"(float)({term})", np.dtype(np.float32)
        if given == wanted:
            return term
    if given.kind == "c" and wanted.kind == "b":
        return f"({term} != {C_TYPE[given.name]}(0))"
    if given.kind == "c" and wanted.kind != "c":
        term = f"({term}).real()"
    to = C_TYPE[wanted.name]
    if wanted.kind == "c" and given.kind != "c":
        return f"{to}(({C_TYPE['float32' if wanted.itemsize == 8 else 'float64']})({term}))"
    if wanted == np.float16 and given.kind in "iu":
        return f"{to}((float)({term}))"  # numpy rounds twice
    return f"({to})({term})"


class CudaCode:
    """CudaCode writes expressions as CUDA C++: a `Language`."""

    types = C_TYPE

    def filled(self, expression: str, terms: Sequence[str], dtype: DType) -> str | None:
        if dtype == np.float16:
            terms, dtype = [f"(float)({t})" for t in terms], np.dtype(np.float32)
        c_type = C_TYPE[dtype.name]
        # Smaller unsigned integers become int in C, and then their products overflow.
        unsigned = C_TYPE[f"uint{8 * max(dtype.itemsize, 4)}"] if dtype.kind in "iu" else ""
        zero = f"{c_type}(0)" if dtype.kind == "c" else f"({c_type})0"
        return in_c(_parsed(expression), {**dict(zip("abc", terms)), "T": c_type, "U": unsigned, "Z": zero})

    def typed(self, term: str, dtype: DType) -> str:
        return f"({C_TYPE[dtype.name]})({term})"

    def cast(self, term: str, given: DType, wanted: DType) -> str | None:
        return cast(term, given, wanted)

    def declared(self, name: str, expression: str, dtype: DType) -> str:
        return f"const {C_TYPE[dtype.name]} {name} = {expression};"


#: The one there is.
CUDA = CudaCode()
#: Of nodes of Python's syntax.
_SPELLED: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Not: "!",
    ast.USub: "-",
    ast.Invert: "~",
}


@lru_cache(maxsize=1024)
def _parsed(expression: str) -> ast.expr:
    return ast.parse(expression, mode="eval").body


def in_c(node: ast.expr, names: Mapping[str, str]) -> str:
    """Return an expression of Python's syntax in C++'s; `names` says what stands for a name, ``T`` and ``U`` are types.

    >>> in_c(ast.parse("T(a) if a < b else 0", mode="eval").body, {"T": "unsigned char", "a": "x"})
    '((x < b) ? (unsigned char)(x) : 0)'
    """
    match node:
        case ast.Name(id=name):
            return names.get(name, name)
        case ast.Constant(value=value):
            return str(value).lower()  # a bool
        case ast.UnaryOp(op=op, operand=x):
            return f"{_SPELLED[type(op)]}({in_c(x, names)})"
        case ast.BinOp(left=x, op=op, right=y) | ast.Compare(left=x, ops=[op], comparators=[y]):
            return f"({in_c(x, names)} {_SPELLED[type(op)]} {in_c(y, names)})"
        case ast.IfExp(test=test, body=x, orelse=y):
            return f"({in_c(test, names)} ? {in_c(x, names)} : {in_c(y, names)})"
        case ast.Attribute(value=x, attr=name):
            return f"({in_c(x, names)}).{name}()"
        case ast.Subscript(value=x, slice=ast.Tuple(elts=types)):
            return f"{in_c(x, names)}<{', '.join(in_c(t, names) for t in types)}>"
        case ast.Subscript(value=x, slice=y):
            return f"{in_c(x, names)}<{in_c(y, names)}>"
        case ast.Call(func=ast.Name(id="T" | "U") as to, args=[x]):
            return f"({in_c(to, names)})({in_c(x, names)})"
        case ast.Call(func=f, args=args):
            return f"{in_c(f, names)}({', '.join(in_c(x, names) for x in args)})"
    raise AssertionError(f"no C++ for {ast.unparse(node)}")
