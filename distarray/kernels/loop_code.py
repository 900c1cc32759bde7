"""Python of programs for Numba: the source of one slice, one loop nest with all instructions in it.

Pure: `compiled` writes it to a file, compiles and calls it. The rows of `expressions` are written as Python; what
computes bits that IEEE 754 does not define (`elementwise.is_exact`), a division of integers (numpy tells of zeros, the
processor does not) and a dtype that the processor does not have make no source: the interpreter runs such a program.

All arrays come as rows of one table: an address, the steps along the box in bytes, the strides along the slice. So
every program of so many axes has the same signature, and a call costs half a microsecond. Loads are told apart from
stores: what is read is nowhere written (`compiled` sees to that), and LLVM need not look whether pointers overlap.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from distarray.kernels.elementwise import numpy_name
from distarray.kernels.expressions import Computation, Generated
from distarray.types import DType

#: What a table of expressions may call.
_FUNCTIONS = frozenset("sqrt fabs floor ceil trunc rint isnan isinf isfinite copysign".split())
_WORDS = frozenset("a b c T U Z if else not True False".split())
_FLOATS = ("float32", "float64")
_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))

PREAMBLE = f'''"""A program of distarray, written by it: it may be deleted at any time."""

from math import copysign, fabs, isfinite, isinf, isnan, sqrt

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numba.types import {", ".join((*_INTEGERS, *_FLOATS))}
from numpy import ceil, floor, rint, trunc


def place(context, builder, dtype, address, index):
    of = context.get_data_type(dtype)
    start = builder.inttoptr(address, of.as_pointer())
    return of, builder.gep(start, [index], source_etype=of)


def scopes(builder):
    domain = builder.module.add_metadata(["distarray"])
    return builder.module.add_metadata([builder.module.add_metadata(["what is read", domain])])


@intrinsic
def read(_, address, index, dtype):
    def code(context, builder, signature, args):
        of, where = place(context, builder, signature.return_type, *args[:2])
        value = builder.load(where, typ=of)
        value.set_metadata("alias.scope", scopes(builder))
        return value

    return dtype.instance_type(types.intp, types.intp, dtype), code


@intrinsic
def write(_, address, index, value):
    def code(context, builder, signature, args):
        _, where = place(context, builder, signature.args[2], *args[:2])
        builder.store(args[2], where).set_metadata("noalias", scopes(builder))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, value), code


@intrinsic
def bits(_, value):
    def code(context, builder, signature, args):
        word = builder.bitcast(args[0], ir.IntType(value.bitwidth))
        return word if value.bitwidth == 64 else builder.zext(word, ir.IntType(64))

    return types.int64(value), code
'''


class LoopCode:
    """LoopCode writes expressions as Python that Numba compiles: a `Language`."""

    types = frozenset(("bool", *_INTEGERS, *_FLOATS))

    def filled(self, expression: str, terms: Sequence[str], dtype: DType) -> str | None:
        if set(re.findall("[a-zA-Z_]+", expression)) - _FUNCTIONS - _WORDS:
            return None
        # Computed in 64 bits and cast: Numba knows no narrower arithmetic, LLVM finds it again.
        unsigned = "uint64" if dtype.kind in "iu" else ""
        names = {**dict(zip("abc", terms)), "T": dtype.name, "U": unsigned, "Z": f"{dtype.name}(0)"}
        if dtype.kind == "b":
            names["Z"] = "False"
        return "(" + re.sub(r"\b[abcTUZ]\b", lambda found: names[found[0]], expression) + ")"

    def typed(self, term: str, dtype: DType) -> str:
        return f"({term} != 0)" if dtype.kind == "b" else f"{dtype.name}({term})"

    def cast(self, term: str, given: DType, wanted: DType) -> str | None:
        if given == wanted:
            return term
        return self.typed(term, wanted) if {given.name, wanted.name} <= self.types else None

    def declared(self, name: str, expression: str, dtype: DType) -> str:
        return f"{name} = {expression}" if dtype.kind == "b" else f"{name} = {dtype.name}({expression})"


#: The one there is.
LOOPS = LoopCode()


#: Functions that raise flags of the processor where the result is a float.
_RAISING = frozenset("add subtract multiply square divide reciprocal sqrt astype".split())


def unseen(program: Computation) -> list[int]:
    """Return the registers that may be left out, with the flags that they raise, since their value is not needed.

    What ``where`` does not choose, or what is only compared, a compiler need not compute; numpy does, and warns. What
    is stored is computed, and what goes into arithmetic that is.
    """
    seen = set(program.outputs)
    found = []
    for k, i in reversed([*enumerate(program.instructions, program.n_inputs)]):
        if i.dtype.kind == "f" and numpy_name(i.function) in _RAISING:
            if k not in seen:
                found.append(k)
            seen.update(x for x in i.inputs if isinstance(x, int))
    return found


#: Functions that raise flags of constants.
_RAISING_OF_CONSTANTS = frozenset(("divide", "reciprocal", "sqrt"))


def is_folded(program: Computation) -> bool:
    """Return whether a flag may be lost since a compiler knows what it would be computed of.

    Numbers made of whole numbers or truth values may be constants: ``i - i``, ``x < x``. Those made of floats are none,
    for nan and infinity are floats.
    """
    known: set[int] = set()
    for k, i in enumerate(program.instructions, program.n_inputs):
        values = i.inputs[1:] if numpy_name(i.function) == "where" else i.inputs
        is_known = any(x in known for x in values if isinstance(x, int))
        if is_known and i.dtype.kind == "f" and numpy_name(i.function) in _RAISING_OF_CONSTANTS:
            return True
        if i.dtype.kind in "biu" or is_known:
            known.add(k)
    return False


def source(generated: Generated, steps: str, ndim: int, needed: Sequence[int] = ()) -> str:
    """Return a module with the function ``compiled(table, begin, extent, begin, extent, ...)`` of a slice.

    Parameters
    ----------
    generated
        Of a program without reductions, in this language.
    steps
        How each array goes along the last axis, in the order of the table, which is inputs, scalars, results: ``"c"``
        element by element, ``"s"`` it stays where it is, ``"x"`` in another stride.
    ndim
        Axes of the box; a row of the table has ``1 + 2 * ndim`` numbers.
    needed
        Registers that are computed whether or not they are `unseen`: the function returns what needs all their bits.
    """
    axes = range(ndim)
    names = [*generated.parameters, *(f"y{k}" for k in range(len(generated.stored)))]
    assert len(steps) == len(names)
    last = ndim - 1
    lines: list[str] = []
    body: list[str] = []
    for k, name in enumerate(names):
        row = k * (1 + 2 * ndim)
        lines.append(f"    {name}_0 = table[{row}] + " + " + ".join(f"i{a} * table[{row + 1 + a}]" for a in axes))
        lines += [f"    {name}_by{a} = table[{row + 1 + ndim + a}]" for a in axes]
    pad = "    "
    for a in range(last):
        lines.append(f"{pad}for j{a} in range(n{a}):")
        pad += "    "
        lines += [f"{pad}{name}_{a + 1} = {name}_{a} + j{a} * {name}_by{a}" for name in names]
    inner = pad + "    "
    for name, step, dtype in zip(generated.parameters, steps, generated.types, strict=False):
        value = f"read({_at(name, step, last)}, {_stored(dtype)}){' != 0' if dtype.kind == 'b' else ''}"
        (lines if step == "s" else body).append(f"{pad if step == 's' else inner}{name} = {value}")
    body += [inner + line for line in generated.body.splitlines()]
    for k, (name, dtype) in enumerate(zip(generated.stored, generated.stored_types, strict=True)):
        step = steps[len(generated.parameters) + k]
        body.append(f"{inner}write({_at(f'y{k}', step, last)}, {_stored(dtype)}({name}))")
    body += [f"{inner}needed |= bits(r{register})" for register in needed]
    extents = ", ".join(f"i{a}, n{a}" for a in axes)
    signature = f"int64(int64[::1]{', int64' * (2 * ndim)})"
    return (
        f'{PREAMBLE}\n\n@njit("{signature}", cache=True, nogil=True, error_model="numpy")\n'
        f"def compiled(table, {extents}):\n"
        + "\n".join(["    needed = 0", *lines, f"{pad}for j in range(n{last}):", *body, "    return needed"])
        + "\n"
    )


def _at(name: str, step: str, last: int) -> str:
    """Return address and index of an element."""
    if step == "x":
        return f"{name}_{last} + j * {name}_by{last}, 0"
    return f"{name}_{last}, {'j' if step == 'c' else '0'}"


def _stored(dtype: DType) -> str:
    return "uint8" if dtype.kind == "b" else dtype.name
