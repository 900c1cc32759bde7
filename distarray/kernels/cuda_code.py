"""CUDA C++ of programs: one kernel's statements for all instructions; `cuda_loops` writes the loops around them.

Every operand is cast to the dtype that numpy's own resolution gives (`loop_dtypes`), and every result is stored in a
variable of its dtype: promotion, wrapping and rounding are numpy's, instruction by instruction. What C leaves open and
numpy does not is written out: integers are added, negated and shifted as unsigned numbers, since a compiler may assume
that signed ones do not overflow (and then ``x + 1 > x`` is true); division rounds down and has a result for zero.
Half precision is computed in single and rounded after each instruction, as numpy does. What does not fit the integer
that a float is cast to is left open, as numpy leaves it.

A function without a row here, or a dtype that CUDA C++ has no type for, makes no kernel: the backend then calls CuPy's
functions one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distarray.kernels.elementwise import loop_dtypes, numpy_name

if TYPE_CHECKING:
    from distarray.kernels.program import Program

DType = np.dtype[Any]

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

_COMPARISON = {
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "greater": "{0} > {1}",
    "greater_equal": "{0} >= {1}",
}
_LOGICAL = {
    "logical_and": "({0} != {Z}) && ({1} != {Z})",
    "logical_or": "({0} != {Z}) || ({1} != {Z})",
    "logical_xor": "({0} != {Z}) != ({1} != {Z})",
    "logical_not": "{0} == {Z}",
}
_ARITHMETIC = {"add": "{0} + {1}", "subtract": "{0} - {1}", "multiply": "{0} * {1}", "square": "{0} * {0}"}
_SAME_IN_C = "sqrt exp log sin cos tan sinh cosh tanh".split()
_INVERSE = {f"arc{f}": f"a{f}({{0}})" for f in ("sin", "cos", "tan", "sinh", "cosh", "tanh")}
_BITS = {"bitwise_and": "{0} & {1}", "bitwise_or": "{0} | {1}", "bitwise_xor": "{0} ^ {1}"}
_ALWAYS_FINITE = {"isnan": "false", "isinf": "false", "isfinite": "true"}

#: Expressions by kind of the dtype in which a function computes ("e": half precision, where terms are floats).
#: {0} {1} are operands of that dtype, {T} its C type, {Z} its zero, {U} the unsigned type of at least its size.
EXPRESSIONS: dict[str, dict[str, str]] = {
    "b": {
        **_COMPARISON,
        **_LOGICAL,
        **_BITS,
        **_ALWAYS_FINITE,
        "add": "{0} || {1}",
        "multiply": "{0} && {1}",
        "invert": "!{0}",
        "absolute": "{0}",
        "maximum": "{0} || {1}",
        "minimum": "{0} && {1}",
        **dict.fromkeys(("floor", "ceil", "trunc"), "{0}"),
    },
    "i": {
        **_COMPARISON,
        **_LOGICAL,
        **_BITS,
        **_ALWAYS_FINITE,
        "add": "({T})(({U})({0}) + ({U})({1}))",
        "subtract": "({T})(({U})({0}) - ({U})({1}))",
        "multiply": "({T})(({U})({0}) * ({U})({1}))",
        "square": "({T})(({U})({0}) * ({U})({0}))",
        "negative": "({T})(({U})0 - ({U})({0}))",
        "positive": "{0}",
        "conjugate": "{0}",
        "absolute": "{0} < {Z} ? ({T})(({U})0 - ({U})({0})) : {0}",
        "sign": "({0} > {Z}) - ({0} < {Z})",
        "invert": "~{0}",
        "floor_divide": "dx_floor_divide<{T}, {U}>({0}, {1})",
        "remainder": "dx_remainder<{T}>({0}, {1})",
        "fmod": "dx_fmod<{T}>({0}, {1})",
        "left_shift": "dx_left_shift<{T}, {U}>({0}, {1})",
        "right_shift": "dx_right_shift<{T}>({0}, {1})",
        **dict.fromkeys(("maximum", "fmax"), "{0} < {1} ? {1} : {0}"),
        **dict.fromkeys(("minimum", "fmin"), "{1} < {0} ? {1} : {0}"),
        **dict.fromkeys(("floor", "ceil", "trunc"), "{0}"),
    },
    "f": {
        **_COMPARISON,
        **_LOGICAL,
        **_ARITHMETIC,
        **_INVERSE,
        **{f: f"{f}({{0}})" for f in (*_SAME_IN_C, "expm1", "log1p", "log2", "log10", "exp2", "cbrt")},
        **{f: f"{f}({{0}})" for f in ("floor", "ceil", "trunc", "rint")},
        "divide": "{0} / {1}",
        "reciprocal": "1 / {0}",
        "negative": "-{0}",
        "positive": "{0}",
        "conjugate": "{0}",
        "absolute": "fabs({0})",
        "fabs": "fabs({0})",
        "sign": "isnan({0}) ? {0} : ({0} > {Z}) - ({0} < {Z})",
        "isnan": "isnan({0})",
        "isinf": "isinf({0})",
        "isfinite": "isfinite({0})",
        "signbit": "signbit({0})",
        "copysign": "copysign({0}, {1})",
        "nextafter": "nextafter({0}, {1})",
        "arctan2": "atan2({0}, {1})",
        "hypot": "hypot({0}, {1})",
        "power": "pow({0}, {1})",
        "fmod": "fmod({0}, {1})",
        "floor_divide": "dx_float_floor_divide({0}, {1})",
        "remainder": "dx_float_remainder({0}, {1})",
        "logaddexp": "dx_logaddexp({0}, {1})",
        "heaviside": "isnan({0}) ? {0} : {0} == {Z} ? {1} : {0} > {Z}",
        # a nan wins, the first of two: numpy's rule
        "maximum": "isnan({0}) || {0} >= {1} ? {0} : {1}",
        "minimum": "isnan({0}) || {0} <= {1} ? {0} : {1}",
        "fmax": "isnan({1}) || {0} >= {1} ? {0} : {1}",
        "fmin": "isnan({1}) || {0} <= {1} ? {0} : {1}",
    },
    "c": {
        **{f: _COMPARISON[f] for f in ("equal", "not_equal")},
        **_LOGICAL,
        **_ARITHMETIC,
        **{f: f"{f}({{0}})" for f in _SAME_IN_C},
        "divide": "{0} / {1}",
        "negative": "-{0}",
        "positive": "{0}",
        "conjugate": "conj({0})",
        "absolute": "abs({0})",
        "isnan": "isnan({0}.real()) || isnan({0}.imag())",
        "isinf": "isinf({0}.real()) || isinf({0}.imag())",
        "isfinite": "isfinite({0}.real()) && isfinite({0}.imag())",
    },
}
EXPRESSIONS["u"] = {**EXPRESSIONS["i"], "absolute": "{0}", "sign": "{0} > {Z}"}
#: A neighbour in single precision is none in half.
EXPRESSIONS["e"] = {name: term for name, term in EXPRESSIONS["f"].items() if name != "nextafter"}

#: Functions that `_expression` writes by itself: they take operands of several dtypes, or parameters.
WRITTEN_OUT = frozenset({"astype", "clip", "complex", "copy", "imag", "real", "round", "where"})


class Generated(NamedTuple):
    """Source of one kernel.

    Attributes
    ----------
    inputs, scalars
        Registers that it reads, and (scalar, dtype) pairs; parameters in this order: ``x<register>``, ``s<position>``.
    types
        Of the parameters, as CuPy names dtypes.
    body
        Statements: a declaration ``r<register>`` per instruction.
    stored
        Names of what is stored, then of what is reduced.
    stored_types
        Dtypes of `stored`.
    """

    inputs: tuple[int, ...]
    scalars: tuple[tuple[int, DType], ...]
    types: tuple[DType, ...]
    body: str
    stored: tuple[str, ...]
    stored_types: tuple[DType, ...]

    @property
    def parameters(self) -> list[str]:
        """Return the names of the parameters that are read."""
        return [f"x{i}" for i in self.inputs] + [f"s{k}" for k in range(len(self.scalars))]


@lru_cache(maxsize=512)
def generate(program: Program, inputs: tuple[DType, ...], scalars: tuple[type, ...]) -> Generated | None:
    """Return the kernel of a program, or None if a function or a dtype has no CUDA C here."""
    dtypes: list[DType] = list(inputs)
    used: dict[int, None] = {}
    constants: dict[tuple[int, DType], str] = {}
    lines: list[str] = []

    def name(register: int) -> str:
        if register >= len(inputs):
            return f"r{register}"
        used[register] = None
        return f"x{register}"

    for instruction in program.instructions:
        canonical = numpy_name(instruction.function)
        known = []
        for x in instruction.inputs:
            known.append(dtypes[x] if isinstance(x, int) else _scalar_type(scalars[x.index]))
        casts = loop_dtypes(canonical, tuple(known), instruction.dtype)
        terms = []
        for x, d, loop in zip(instruction.inputs, known, casts, strict=True):
            if isinstance(x, int):
                assert isinstance(d, np.dtype)
                terms.append(cast(name(x), d, loop or d))
            elif loop is None:
                return None
            else:
                terms.append(constants.setdefault((x.index, loop), f"s{len(constants)}"))
        if any(t is None for t in terms) or instruction.dtype.name not in C_TYPE:
            return None
        written = [str(t) for t in terms]
        expression = _expression(canonical, instruction.params, written, casts, known, instruction.dtype)
        if expression is None:
            return None
        lines.append(f"const {C_TYPE[instruction.dtype.name]} r{len(dtypes)} = {expression};")
        dtypes.append(instruction.dtype)
    registers = (*program.outputs, *(r.register for r in program.reductions))
    stored = tuple(name(r) for r in registers)
    if any(dtypes[x].name not in C_TYPE for x in used) or not used:
        return None
    types = (*(dtypes[x] for x in used), *(d for _, d in constants))
    stored_types = tuple(dtypes[r] for r in registers)
    return Generated(tuple(used), tuple(constants), types, "\n".join(lines), stored, stored_types)


def _scalar_type(of: type) -> DType | type:
    return np.dtype(of) if issubclass(of, np.generic) else of


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


def _expression(
    canonical: str,
    params: tuple[Any, ...],
    terms: Sequence[str],
    casts: Sequence[DType | None],
    known: Sequence[DType | type],
    dtype: DType,
) -> str | None:
    """Return the value of one instruction: a C expression that converts to the type of `dtype` by itself."""
    if canonical in WRITTEN_OUT:
        return _written_out(canonical, params, terms, known, dtype)
    loop = casts[0]
    if params or loop is None:
        return None
    return _of_table(canonical, terms, loop)


def _of_table(canonical: str, terms: Sequence[str], loop: DType) -> str | None:
    """Return the row of the table for a function that computes in `loop`, filled in."""
    is_half = loop == np.float16
    template = EXPRESSIONS.get("e" if is_half else loop.kind, {}).get(canonical)
    if template is None:
        return None
    if is_half:
        terms, loop = [f"(float)({t})" for t in terms], np.dtype(np.float32)
    c_type = C_TYPE[loop.name]
    # Smaller unsigned integers become int in C, and then their products overflow.
    unsigned = C_TYPE[f"uint{8 * max(loop.itemsize, 4)}"] if loop.kind in "iu" else ""
    zero = f"{c_type}(0)" if loop.kind == "c" else f"({c_type})0"
    return template.format(*terms, T=c_type, U=unsigned, Z=zero)


def _written_out(
    canonical: str, params: tuple[Any, ...], terms: Sequence[str], known: Sequence[DType | type], dtype: DType
) -> str | None:
    if canonical == "where":
        return f"{terms[0]} ? {terms[1]} : {terms[2]}"
    if canonical == "clip":
        value: str | None = terms[0]
        for bound, limit in zip(params or ("min", "max"), terms[1:], strict=True):
            value = _of_table({"min": "maximum", "max": "minimum"}[bound], [f"({value})", limit], dtype)
            if value is None:
                return None
            value = f"({C_TYPE[dtype.name]})({value})"
        return value
    if canonical == "complex":
        parts = np.dtype(np.float32 if dtype.itemsize == 8 else np.float64)
        if not all(isinstance(d, np.dtype) for d in known):
            return None
        casted = [cast(t, d, parts) for t, d in zip(terms, known, strict=True) if isinstance(d, np.dtype)]
        return f"{C_TYPE[dtype.name]}({', '.join(map(str, casted))})"
    (given,) = known
    assert isinstance(given, np.dtype)
    (term,) = terms
    if canonical == "copy":
        return term
    if canonical == "astype":
        return cast(term, given, dtype)
    if canonical == "round":
        if params not in ((), (0,)) or dtype.kind == "c":
            return None
        return term if dtype.kind in "iub" else _of_table("rint", terms, dtype)
    if given.kind == "c":
        return f"({term}).{canonical}()"
    return term if canonical == "real" else cast("0", np.dtype(np.int32), dtype)
