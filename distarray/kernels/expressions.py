"""What a program computes, in words that every compiler's language is written from: the one table of expressions.

A row says in Python's syntax what a function of numpy does to one element: ``a``, ``b`` and ``c`` are operands, cast to
the dtype in which numpy computes; ``T`` is that dtype and ``U`` the unsigned one in which it wraps around, both as
functions that cast; ``Z`` is its zero. `generate` writes a program as statements of a `Language`: `cuda_code` has C++,
`loop_code` has Python for Numba.

Every operand is cast to the dtype that numpy's own resolution gives (`loop_dtypes`), and every result is stored in a
variable of its dtype: promotion, wrapping and rounding are numpy's, instruction by instruction. Integers are added,
negated and shifted as unsigned numbers, since a compiler may assume that signed ones do not overflow (and then
``x + 1 > x`` is true).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from distarray.expr.instructions import Instruction
from distarray.kernels.elementwise import loop_dtypes, numpy_name
from distarray.kernels.outcomes import Reduction
from distarray.types import DType

_COMPARISON = {
    "equal": "a == b",
    "not_equal": "a != b",
    "less": "a < b",
    "less_equal": "a <= b",
    "greater": "a > b",
    "greater_equal": "a >= b",
}
_LOGICAL = {
    "logical_and": "(a != Z) & (b != Z)",
    "logical_or": "(a != Z) | (b != Z)",
    "logical_xor": "(a != Z) != (b != Z)",
    "logical_not": "a == Z",
}
_ARITHMETIC = {"add": "a + b", "subtract": "a - b", "multiply": "a * b", "square": "a * a"}
_SAME_NAME = "sqrt exp log sin cos tan sinh cosh tanh".split()
_INVERSE = {f"arc{f}": f"a{f}(a)" for f in ("sin", "cos", "tan", "sinh", "cosh", "tanh")}
_BITS = {"bitwise_and": "a & b", "bitwise_or": "a | b", "bitwise_xor": "a ^ b"}
_ALWAYS_FINITE = {"isnan": "False", "isinf": "False", "isfinite": "True"}

#: Expressions by kind of the dtype in which a function computes ("e": half precision, computed in single).
EXPRESSIONS: dict[str, dict[str, str]] = {
    "b": {
        **_COMPARISON,
        **_LOGICAL,
        **_BITS,
        **_ALWAYS_FINITE,
        "add": "a | b",
        "multiply": "a & b",
        "invert": "not a",
        "absolute": "a",
        "maximum": "a | b",
        "minimum": "a & b",
        **dict.fromkeys(("floor", "ceil", "trunc"), "a"),
    },
    "i": {
        **_COMPARISON,
        **_LOGICAL,
        **_BITS,
        **_ALWAYS_FINITE,
        "add": "T(U(a) + U(b))",
        "subtract": "T(U(a) - U(b))",
        "multiply": "T(U(a) * U(b))",
        "square": "T(U(a) * U(a))",
        "negative": "T(U(0) - U(a))",
        "positive": "a",
        "conjugate": "a",
        "absolute": "T(U(0) - U(a)) if a < Z else a",
        "sign": "T(a > Z) - T(a < Z)",
        "invert": "~a",
        "floor_divide": "dx_floor_divide[T, U](a, b)",
        "remainder": "dx_remainder[T](a, b)",
        "fmod": "dx_fmod[T](a, b)",
        "left_shift": "dx_left_shift[T, U](a, b)",
        "right_shift": "dx_right_shift[T](a, b)",
        **dict.fromkeys(("maximum", "fmax"), "b if a < b else a"),
        **dict.fromkeys(("minimum", "fmin"), "b if b < a else a"),
        **dict.fromkeys(("floor", "ceil", "trunc"), "a"),
    },
    "f": {
        **_COMPARISON,
        **_LOGICAL,
        **_ARITHMETIC,
        **_INVERSE,
        **{f: f"{f}(a)" for f in (*_SAME_NAME, "expm1", "log1p", "log2", "log10", "exp2", "cbrt")},
        **{f: f"{f}(a)" for f in ("floor", "ceil", "trunc", "rint")},
        **{f: f"{f}(a)" for f in ("fabs", "isnan", "isinf", "isfinite", "signbit")},
        "divide": "a / b",
        "reciprocal": "T(1) / a",
        "negative": "-a",
        "positive": "a",
        "conjugate": "a",
        "absolute": "fabs(a)",
        "sign": "a if isnan(a) else T(a > Z) - T(a < Z)",
        "copysign": "copysign(a, b)",
        "nextafter": "nextafter(a, b)",
        "arctan2": "atan2(a, b)",
        "hypot": "hypot(a, b)",
        "power": "pow(a, b)",
        "fmod": "fmod(a, b)",
        "floor_divide": "dx_float_floor_divide(a, b)",
        "remainder": "dx_float_remainder(a, b)",
        "logaddexp": "dx_logaddexp(a, b)",
        "heaviside": "a if isnan(a) else b if a == Z else T(a > Z)",
        # a nan wins, the first of two: numpy's rule
        "maximum": "a if isnan(a) | (a >= b) else b",
        "minimum": "a if isnan(a) | (a <= b) else b",
        "fmax": "a if isnan(b) | (a >= b) else b",
        "fmin": "a if isnan(b) | (a <= b) else b",
    },
    "c": {
        **{f: _COMPARISON[f] for f in ("equal", "not_equal")},
        **_LOGICAL,
        **_ARITHMETIC,
        **{f: f"{f}(a)" for f in _SAME_NAME},
        "divide": "a / b",
        "negative": "-a",
        "positive": "a",
        "conjugate": "conj(a)",
        "absolute": "abs(a)",
        "isnan": "isnan(a.real) | isnan(a.imag)",
        "isinf": "isinf(a.real) | isinf(a.imag)",
        "isfinite": "isfinite(a.real) & isfinite(a.imag)",
    },
}
EXPRESSIONS["u"] = {**EXPRESSIONS["i"], "absolute": "a", "sign": "T(a > Z)"}
#: A neighbour in single precision is none in half.
EXPRESSIONS["e"] = {name: term for name, term in EXPRESSIONS["f"].items() if name != "nextafter"}

#: Functions that `_expression` writes by itself: they take operands of several dtypes, or parameters.
WRITTEN_OUT = frozenset({"astype", "clip", "complex", "copy", "imag", "real", "round", "where"})


class Computation(Protocol):
    """A Computation is what is written: a program, or what is left of one for its slices."""

    @property
    def n_inputs(self) -> int: ...
    @property
    def instructions(self) -> tuple[Instruction, ...]: ...
    @property
    def outputs(self) -> tuple[int, ...]: ...
    @property
    def reductions(self) -> tuple[Reduction, ...]: ...


class Language(Protocol):
    """A Language writes expressions of the table for a compiler; what it has no words for is None."""

    @property
    def types(self) -> Container[str]:
        """Return the names of the dtypes that it has."""

    def filled(self, expression: str, terms: Sequence[str], dtype: DType) -> str | None:
        """Return an expression of the table with its operands, computed in a dtype that the language has."""

    def typed(self, term: str, dtype: DType) -> str:
        """Return a value converted as the compiler converts by itself."""

    def cast(self, term: str, given: DType, wanted: DType) -> str | None:
        """Return a value of one dtype as numpy casts it to another."""

    def declared(self, name: str, expression: str, dtype: DType) -> str:
        """Return the statement that gives a new variable its value."""


class Generated(NamedTuple):
    """A Generated is statements of one kernel.

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
def generate(
    program: Computation, inputs: tuple[DType, ...], scalars: tuple[type, ...], language: Language
) -> Generated | None:
    """Return the kernel of a program, or None if a function or a dtype has no words in a language."""
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
            of = dtypes[x] if isinstance(x, int) else scalars[x.index]
            known.append(np.dtype(of) if isinstance(of, type) and issubclass(of, np.generic) else of)
        casts = loop_dtypes(canonical, tuple(known), instruction.dtype)
        terms = []
        for x, d, loop in zip(instruction.inputs, known, casts, strict=True):
            if isinstance(x, int):
                assert isinstance(d, np.dtype)
                terms.append(language.cast(name(x), d, loop or d))
            elif loop is None:
                return None
            else:
                terms.append(constants.setdefault((x.index, loop), f"s{len(constants)}"))
        if any(t is None for t in terms) or instruction.dtype.name not in language.types:
            return None
        written = [str(t) for t in terms]
        if canonical in _COMPARISON and casts[0] != casts[1]:
            expression = _of_unlike_signs(canonical, written, casts, language)
        else:
            expression = _expression(canonical, instruction.params, written, casts, known, instruction.dtype, language)
        if expression is None:
            return None
        lines.append(language.declared(f"r{len(dtypes)}", expression, instruction.dtype))
        dtypes.append(instruction.dtype)
    registers = (*program.outputs, *(r.register for r in program.reductions))
    stored = tuple(name(r) for r in registers)
    if any(dtypes[x].name not in language.types for x in used) or not used:
        return None
    types = (*(dtypes[x] for x in used), *(d for _, d in constants))
    stored_types = tuple(dtypes[r] for r in registers)
    return Generated(tuple(used), tuple(constants), types, "\n".join(lines), stored, stored_types)


#: Comparisons of a signed number, a, with an unsigned one, c; b is the first as an unsigned one.
_UNLIKE_SIGNS = {
    "equal": "(a >= 0) & (b == c)",
    "not_equal": "(a < 0) | (b != c)",
    "less": "(a < 0) | (b < c)",
    "less_equal": "(a < 0) | (b <= c)",
    "greater": "(a >= 0) & (b > c)",
    "greater_equal": "(a >= 0) & (b >= c)",
}
_TURNED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}


def _of_unlike_signs(
    canonical: str, terms: Sequence[str], casts: Sequence[DType | None], language: Language
) -> str | None:
    """Return a comparison of 64-bit numbers of which one has a sign, exact as numpy's is: compilers convert one."""
    (x, y), kinds = terms, [None if d is None else d.kind for d in casts]
    if sorted(map(str, kinds)) != ["i", "u"]:
        return None
    if kinds[0] == "u":
        (x, y), canonical = (y, x), _TURNED.get(canonical, canonical)
    return language.filled(_UNLIKE_SIGNS[canonical], [x, language.typed(x, np.dtype(np.uint64)), y], np.dtype(bool))


def _of_table(canonical: str, terms: Sequence[str], loop: DType, language: Language) -> str | None:
    """Return the row of the table for a function that computes in `loop`, filled in."""
    row = EXPRESSIONS.get("e" if loop == np.float16 else loop.kind, {}).get(canonical)
    return None if row is None or loop.name not in language.types else language.filled(row, terms, loop)


def _expression(
    canonical: str,
    params: tuple[Any, ...],
    terms: Sequence[str],
    casts: Sequence[DType | None],
    known: Sequence[DType | type],
    dtype: DType,
    language: Language,
) -> str | None:
    """Return the value of one instruction: an expression that converts to the type of `dtype` by itself."""
    if canonical not in WRITTEN_OUT:
        loop = casts[0]
        return None if params or loop is None else _of_table(canonical, terms, loop, language)
    if canonical == "where":
        return language.filled("b if a else c", terms, np.dtype(bool))  # as they are: nothing is computed
    if canonical == "clip":
        value: str | None = terms[0]
        for bound, limit in zip(params or ("min", "max"), terms[1:], strict=True):
            value = _of_table({"min": "maximum", "max": "minimum"}[bound], [f"({value})", limit], dtype, language)
            if value is None:
                return None
            value = language.typed(value, dtype)
        return value
    if canonical == "complex":
        parts = np.dtype(np.float32 if dtype.itemsize == 8 else np.float64)
        if not all(isinstance(d, np.dtype) for d in known):
            return None
        casted = [language.cast(t, d, parts) for t, d in zip(terms, known, strict=True) if isinstance(d, np.dtype)]
        return language.filled("T(a, b)", [str(t) for t in casted], dtype)
    (given,) = known
    assert isinstance(given, np.dtype)
    (term,) = terms
    if canonical == "copy":
        return term
    if canonical == "astype":
        return language.cast(term, given, dtype)
    if canonical == "round":
        if params not in ((), (0,)) or dtype.kind == "c":
            return None
        return term if dtype.kind in "iub" else _of_table("rint", terms, dtype, language)
    if given.kind == "c":
        return language.filled(f"a.{canonical}", terms, given)
    return term if canonical == "real" else language.cast("0", np.dtype(np.int32), dtype)
