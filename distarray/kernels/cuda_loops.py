"""CUDA C++ of the loops around a program, and which thread computes what. Pure: `cupy_backend` compiles and launches.

A thread computes several elements that stand a block apart: it asks for all that it reads before it computes, since a
card of today needs more bytes under way than one element per thread. Extents and strides are arguments, so one kernel
serves every shape with as many axes; axes that all arrays step through alike are one axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from distarray.kernels.cuda_code import C_TYPE, PREAMBLE
from distarray.kernels.expressions import Generated

#: Threads per block.
BLOCK = 256
#: Elements that one launch counts: indices have 32 bits, one of which the division by constants needs.
MAX_ELEMENTS = 2**31 - 1
HEADERS = "#include <cupy/complex.cuh>\n#include <cupy/carray.cuh>\n#include <cupy/float16.cuh>\n"

INDEX = """
// i / n for i < 2^31: m and h are what `_reciprocal` gives of n.
__device__ inline unsigned dx_div(unsigned i, unsigned m, unsigned h) {
    return ((unsigned)((unsigned long long)i * m >> 32) + i) >> h;
}
"""


# --------------------------------------------------------------------------------------------------- where elements are


class Nest(NamedTuple):
    """A Nest is axes of one loop nest from outermost to innermost, and the steps of each array along them in bytes.

    Attributes
    ----------
    n
        Elements in all.
    ndim
        Number of axes, at least 1.
    arguments
        What the kernel is given: extent and reciprocal of each axis but the outermost, then steps, axis by axis.
    order
        The axes of the box that are looped over, from outermost to innermost; those that were joined stand in a row.
    """

    n: int
    ndim: int
    arguments: tuple[Any, ...]
    order: tuple[int, ...]


@lru_cache(maxsize=4096)
def nest_of(
    extents: tuple[int, ...],
    axes: tuple[int, ...],
    strides: tuple[tuple[int, ...], ...],
    *,
    n_guides: int | None = None,
    is_free: bool = False,
) -> Nest:
    """Return how a nest over some axes of a box is run.

    Parameters
    ----------
    extents
        Of the box.
    axes
        Those that are looped over.
    strides
        Per array the step along every axis of the box, in bytes; 0 where it is broadcast.
    n_guides
        How many of the arrays decide the order of the axes (`by_size`); all of them by default.
    is_free
        Whether elements may come in any order. Then arrays whose neighbours lie along different axes are read in square
        tiles: what one row of a tile brings into the cache is of use to the next.
    """
    guides = by_size(extents, axes, strides[:n_guides])
    order = sorted(axes, key=lambda a: ([-abs(s[a]) for s in guides], a))
    joined: list[tuple[int, list[int]]] = []
    for a in order:
        if extents[a] == 1:
            continue
        steps = [s[a] for s in strides]
        if joined and all(outer == extents[a] * inner for outer, inner in zip(joined[-1][1], steps, strict=True)):
            joined[-1] = (joined[-1][0] * extents[a], steps)
        else:
            joined.append((extents[a], steps))
    joined = joined or [(1, [0] * len(strides))]
    if is_free:
        joined = _in_tiles(joined)
    divisors = [v for n, _ in joined[1:] for v in (n, *_reciprocal(n))]
    return Nest(
        math.prod(n for n, _ in joined),
        len(joined),
        (*map(np.uint32, divisors), *(np.int64(s) for _, steps in joined for s in steps)),
        tuple(order),
    )


def by_size(extents: Sequence[int], axes: Sequence[int], strides: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the steps of arrays, those with most elements along some axes first, the last of several: neighbours in
    the memory of the first one are neighbours in a loop.
    """
    return sorted(reversed(strides), key=lambda s: -math.prod(extents[a] for a in axes if s[a]))  # noqa: C414 it decides ties


#: Elements along the side of a tile.
_SIDE = range(32, 7, -1)


def _in_tiles(nest: list[tuple[int, list[int]]]) -> list[tuple[int, list[int]]]:
    """Return a nest in which the innermost axes of two arrays are cut into tiles, if they differ and tiles fit."""
    last = len(nest) - 1
    for k in range(len(nest[0][1])):
        steps = [(abs(s[k]), i) for i, (_, s) in enumerate(nest) if s[k]]
        if not nest[last][1][k] or (other := min(steps)[1]) == last:
            continue
        sides = [next((n for n in _SIDE if nest[i][0] % n == 0), None) for i in (other, last)]
        if None in sides:
            continue
        split = [(nest[i], side) for i, side in zip((other, last), sides, strict=True) if side is not None]
        rest = [axis for i, axis in enumerate(nest) if i not in (other, last)]
        outer = [(n // side, [side * s for s in steps]) for (n, steps), side in split]
        return [*rest, *outer, *((side, steps) for (_, steps), side in split)]
    return nest


def _reciprocal(n: int) -> tuple[int, int]:
    """Return what `dx_div` divides by n with (Granlund and Montgomery 1994)."""
    h = (n - 1).bit_length()
    return (2**32 * (2**h - n)) // n + 1, h


def parameters_of(group: str, ndim: int, arrays: Sequence[str]) -> list[str]:
    """Return the parameters for which `Nest.arguments` are given."""
    divisors = [f"unsigned {group}{v}{a}" for a in range(1, ndim) for v in "nmh"]
    return divisors + [f"long long {group}s{a}_{x}" for a in range(ndim) for x in arrays]


def advance(group: str, ndim: int, arrays: Sequence[str], index: str, offset: str = "o") -> str:
    """Return statements that add to the offsets of arrays what an index of a nest means."""
    lines = [f"unsigned t = {index};"]
    for a in range(ndim - 1, -1, -1):
        steps = " ".join(f"{offset}_{x} += (long long)d * {group}s{a}_{x};" for x in arrays)
        if a:
            split = f"const unsigned q = dx_div(t, {group}m{a}, {group}h{a}), d = t - q * {group}n{a}; t = q;"
        else:
            split = "const unsigned d = t;"
        lines.append(f"{{ {split} {steps} }}")
    return "{ " + "\n".join(lines) + " }"


# ---------------------------------------------------------------------------------------------------------- elementwise


@lru_cache(maxsize=512)
def n_at_once(generated: Generated) -> int:
    """Return how many elements a thread computes: it should read some 64 bytes at once, and keep them in registers."""
    nbytes = sum(d.itemsize for d in generated.types[: len(generated.inputs)])
    n_lines = generated.body.count("\n")
    return 1 if n_lines > 256 else 2 if n_lines > 64 else max(2, min(8, 64 // nbytes))


def stores_of(stored: Sequence[tuple[str, str]], generated: Generated) -> str:
    """Return statements that store the first registers of a program where `reads` found their places."""
    values = zip(stored, generated.stored, strict=False)
    return " ".join(f"*({t}*)(p_{y} + at_{y}[k]) = {v};" for (y, t), v in values)


def typed(generated: Generated) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return name and C type of the arrays that are read, and of the scalars."""
    named = [(name, C_TYPE[d.name]) for name, d in zip(generated.parameters, generated.types, strict=True)]
    return named[: len(generated.inputs)], named[len(generated.inputs) :]


def reads(group: str, ndim: int, read: Sequence[tuple[str, str]], others: Sequence[str], start: str) -> str:
    """Return statements that read element `i` of a nest into ``v_<array>[k]``; of `others` they keep where it is."""
    arrays = [*(x for x, _ in read), *others]
    return f"""
            {" ".join(f"long long o_{x} = {start.format(x)};" for x, _ in read)}
            {" ".join(f"long long& o_{x} = at_{x}[k]; o_{x} = {start.format(x)};" for x in others)}
            {advance(group, ndim, arrays, "i")}
            {" ".join(f"v_{x}[k] = *(const {t}*)(p_{x} + o_{x});" for x, t in read)}"""


@lru_cache(maxsize=512)
def elementwise_source(generated: Generated, ndim: int) -> str:
    """Return the kernel ``distarray_program`` of a program without reductions over a nest of `ndim` axes.

    Its arguments are the arrays read, the arrays stored, the scalars, the number of elements, `Nest.arguments`; block
    `b` computes the elements from ``b * BLOCK * n_at_once`` on.
    """
    read, scalars = typed(generated)
    stored = [(f"y{k}", C_TYPE[d.name]) for k, d in enumerate(generated.stored_types)]
    arrays = [x for x, _ in (*read, *stored)]
    parameters = [
        *(f"const char* p_{x}" for x, _ in read),
        *(f"char* p_{y}" for y, _ in stored),
        *(f"const {t} {s}" for s, t in scalars),
        "unsigned n",
        *parameters_of("", ndim, arrays),
    ]
    n = n_at_once(generated)
    stores = stores_of(stored, generated)
    return f"""{HEADERS}{PREAMBLE}{INDEX}
extern "C" __global__ void distarray_program({", ".join(parameters)}) {{
    const unsigned first = blockIdx.x * (blockDim.x * {n}u) + threadIdx.x;
    {" ".join(f"{t} v_{x}[{n}];" for x, t in read)}
    {" ".join(f"long long at_{y}[{n}];" for y, _ in stored)}
    #pragma unroll
    for (int k = 0; k < {n}; k++) {{
        const unsigned i = first + k * blockDim.x;
        if (i < n) {{{reads("", ndim, read, [y for y, _ in stored], "0")}
        }}
    }}
    #pragma unroll
    for (int k = 0; k < {n}; k++) {{
        if (first + k * blockDim.x < n) {{
            {" ".join(f"const {t} {x} = v_{x}[k];" for x, t in read)}
            {generated.body}
            {stores}
        }}
    }}
}}
"""
