"""CUDA C++ of the loops around a program, and which thread computes what. Pure: `cupy_backend` compiles and launches.

A thread computes several elements that stand a block apart: it asks for all that it reads before it computes, since a
card of today needs more bytes under way than one element per thread. Extents and strides are arguments, so one kernel
serves every shape with as many axes; axes that all arrays step through alike are one axis.

A reduction is one pass over its operands too, whatever the program computes of them and stores beside: threads of a
block share the reduced elements of some kept ones, blocks share long reductions, and a second kernel merges what these
made. Sums accumulate in double precision; moments of threads and blocks are merged (Chan, Golub and LeVeque 1979).
How the elements are dealt out depends on extents and strides alone, never on the card: bits are those of any other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from distarray.kernels.cuda_code import C_TYPE, PREAMBLE, Generated, cast
from distarray.kernels.monoids import MONOIDS
from distarray.kernels.outcomes import Reduction

__all__ = [
    "BLOCK",
    "MAX_ELEMENTS",
    "KernelFold",
    "Nest",
    "Shares",
    "elementwise_source",
    "fold_of",
    "folds_of",
    "is_across",
    "nest_of",
    "merge_source",
    "n_at_once",
    "reduction_source",
    "shares",
]

DType = np.dtype[Any]

#: Threads per block.
BLOCK = 256
#: Elements that one launch counts: indices have 32 bits, one of which the division by constants needs.
MAX_ELEMENTS = 2**31 - 1
#: Blocks that share one launch of a reduction, where there is enough to share.
N_BLOCKS = 2048

HEADERS = "#include <cupy/complex.cuh>\n#include <cupy/carray.cuh>\n#include <cupy/float16.cuh>\n"

_LOOP_PREAMBLE = """
// i / n for i < 2^31: m and h are what `_reciprocal` gives of n.
__device__ inline unsigned dx_div(unsigned i, unsigned m, unsigned h) {
    return ((unsigned)((unsigned long long)i * m >> 32) + i) >> h;
}
// Of zeros +0 is the larger one; a nan wins, or loses if it is passed over.
template <typename T> __device__ inline T dx_larger(T a, T b) {
    return isnan(a) ? a : isnan(b) ? b : a > b ? a : b > a ? b : signbit(a) ? b : a;
}
template <typename T> __device__ inline T dx_smaller(T a, T b) {
    return isnan(a) ? a : isnan(b) ? b : a < b ? a : b < a ? b : signbit(a) ? a : b;
}
__device__ inline bool dx_is_nan(float x) { return isnan(x); }
__device__ inline bool dx_is_nan(double x) { return isnan(x); }
template <typename T> __device__ inline bool dx_is_nan(T) { return false; }
// numpy's rule: the first nan, else the first of equals.
template <typename T> __device__ inline bool dx_is_first(T a, long long i, T b, long long j, bool is_max) {
    if (i < 0 || j < 0) return j < 0;
    if (dx_is_nan(a) || dx_is_nan(b)) return dx_is_nan(a) && (!dx_is_nan(b) || i < j);
    return a == b ? i < j : is_max ? a > b : a < b;
}
__device__ inline void dx_merge_moments(
    long long& n, double& mean, double& m2, long long k, double other_mean, double other_m2
) {
    if (k == 0) return;
    const double share = double(k) / double(n + k), delta = other_mean - mean;
    m2 += other_m2 + (n ? delta * delta * (double(n) * share) : 0.0);
    mean = n ? mean + delta * share : other_mean;
    n += k;
}
"""


# --------------------------------------------------------------------------------------------------- where elements are


class Nest(NamedTuple):
    """Axes of one loop nest from outermost to innermost, and the steps of each array along them in bytes.

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
    extents: tuple[int, ...], axes: tuple[int, ...], strides: tuple[tuple[int, ...], ...], *, is_free: bool = False
) -> Nest:
    """Return how a nest over some axes of a box is run.

    Parameters
    ----------
    extents
        Of the box.
    axes
        Those that are looped over.
    strides
        Per array the step along every axis of the box, in bytes; 0 where it is broadcast. Neighbours in the memory of
        the array that has most elements, the last of several, are neighbours in the loop.
    is_free
        Whether elements may come in any order. Then arrays whose neighbours lie along different axes are read in square
        tiles: what one row of a tile brings into the cache is of use to the next.
    """
    by_size = list(reversed(strides))
    by_size.sort(key=lambda s: -math.prod(extents[a] for a in axes if s[a]))
    order = sorted(axes, key=lambda a: ([-abs(s[a]) for s in by_size], a))
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


#: Elements along the side of a tile.
_SIDE = range(32, 7, -1)


def _in_tiles(nest: list[tuple[int, list[int]]]) -> list[tuple[int, list[int]]]:
    """Return a nest in which the innermost axes of two arrays are cut into tiles, if they differ and tiles fit."""
    last = len(nest) - 1
    for k in range(len(nest[0][1])):
        steps = [(abs(s[k]), i) for i, (_, s) in enumerate(nest) if s[k]]
        if not steps or (other := min(steps)[1]) == last:
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


def _nest(group: str, ndim: int, arrays: Sequence[str]) -> list[str]:
    """Return the parameters for which `Nest.arguments` are given."""
    divisors = [f"unsigned {group}{v}{a}" for a in range(1, ndim) for v in "nmh"]
    return divisors + [f"long long {group}s{a}_{x}" for a in range(ndim) for x in arrays]


def _advance(group: str, ndim: int, arrays: Sequence[str], index: str, offset: str = "o") -> str:
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


def _stores(stored: Sequence[tuple[str, str]], generated: Generated) -> str:
    """Return statements that store the first registers of a program where `_read` found their places."""
    values = zip(stored, generated.stored, strict=False)
    return " ".join(f"*({t}*)(p_{y} + at_{y}[k]) = {v};" for (y, t), v in values)


def _typed(generated: Generated) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return name and C type of the arrays that are read, and of the scalars."""
    named = [(name, C_TYPE[d.name]) for name, d in zip(generated.parameters, generated.types, strict=True)]
    return named[: len(generated.inputs)], named[len(generated.inputs) :]


def _read(group: str, ndim: int, read: Sequence[tuple[str, str]], others: Sequence[str], start: str) -> str:
    """Return statements that read element `i` of a nest into ``v_<array>[k]``; of `others` they keep where it is."""
    arrays = [*(x for x, _ in read), *others]
    return f"""
            {" ".join(f"long long o_{x} = {start.format(x)};" for x, _ in read)}
            {" ".join(f"long long& o_{x} = at_{x}[k]; o_{x} = {start.format(x)};" for x in others)}
            {_advance(group, ndim, arrays, "i")}
            {" ".join(f"v_{x}[k] = *(const {t}*)(p_{x} + o_{x});" for x, t in read)}"""


@lru_cache(maxsize=512)
def elementwise_source(generated: Generated, ndim: int) -> str:
    """Return the kernel ``distarray_program`` of a program without reductions over a nest of `ndim` axes.

    Its arguments are the arrays read, the arrays stored, the scalars, the number of elements, `Nest.arguments`; block
    `b` computes the elements from ``b * BLOCK * n_at_once`` on.
    """
    read, scalars = _typed(generated)
    stored = [(f"y{k}", C_TYPE[d.name]) for k, d in enumerate(generated.stored_types)]
    arrays = [x for x, _ in (*read, *stored)]
    parameters = [
        *(f"const char* p_{x}" for x, _ in read),
        *(f"char* p_{y}" for y, _ in stored),
        *(f"const {t} {s}" for s, t in scalars),
        "unsigned n",
        *_nest("", ndim, arrays),
    ]
    n = n_at_once(generated)
    stores = _stores(stored, generated)
    return f"""{HEADERS}{PREAMBLE}{_LOOP_PREAMBLE}
extern "C" __global__ void distarray_program({", ".join(parameters)}) {{
    const unsigned first = blockIdx.x * (blockDim.x * {n}u) + threadIdx.x;
    {" ".join(f"{t} v_{x}[{n}];" for x, t in read)}
    {" ".join(f"long long at_{y}[{n}];" for y, _ in stored)}
    #pragma unroll
    for (int k = 0; k < {n}; k++) {{
        const unsigned i = first + k * blockDim.x;
        if (i < n) {{{_read("", ndim, read, [y for y, _ in stored], "0")}
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


# ----------------------------------------------------------------------------------------------------------- reductions


class KernelFold(NamedTuple):
    """How values are folded, as C++.

    Attributes
    ----------
    fields
        Name, dtype and first value of each variable of the state.
    add
        Statement that folds a value `w` with index `at` into the state `s`.
    end
        Statement that ends what a thread adds.
    merge
        Statement that folds another state `b` into `s`.
    results
        Dtype and expression of each array of the partial.
    value
        Dtype to which a value is cast before.
    """

    fields: tuple[tuple[str, DType, str], ...]
    add: str
    end: str
    merge: str
    results: tuple[tuple[DType, str], ...]
    value: DType

    @property
    def dtypes(self) -> list[DType]:
        """Return the dtypes of the arrays of the partial."""
        return [d for d, _ in self.results]

    @property
    def field_dtypes(self) -> list[DType]:
        """Return the dtypes of the fields of the state."""
        return [d for _, d, _ in self.fields]


_F8, _I8, _U8, _BOOL = (np.dtype(c) for c in ("f8", "i8", "u8", "?"))
#: Function, whether the largest is sought, and whether nan loses.
_EXTREMA = {
    "max": ("dx_larger", True, False),
    "min": ("dx_smaller", False, False),
    "fmax": ("dx_larger", True, True),
    "fmin": ("dx_smaller", False, True),
}


@lru_cache(maxsize=256)
def fold_of(monoid: str, given: DType, result: DType) -> KernelFold | None:
    """Return how a kernel folds values of dtype `given` into a partial of a reduction that yields `result`.

    None if it does not: the backend then stores what is reduced, and the monoid itself makes the partial.
    """
    state = MONOIDS[monoid].state(result)
    if given.name not in C_TYPE or state.name not in C_TYPE:
        return None
    if monoid in ("sum", "prod", "count") and state.kind in "iu":
        value = _BOOL if monoid == "count" else state
        term, unit = ("s.a *= {0};", "1") if monoid == "prod" else ("s.a += {0};", "0")
        made = f"({C_TYPE[state.name]})s.a"
        return KernelFold(
            (("a", _U8, unit),), term.format("(unsigned long long)w"), "", term.format("b.a"), ((state, made),), value
        )
    if monoid in ("sum", "prod") and state.kind in "fc":
        wide = {"f": _F8, "c": np.dtype("c16")}[state.kind] if monoid == "sum" else state
        sign, unit = ("+", "0") if monoid == "sum" else ("*", "1")
        made = str(cast("s.a", wide, state))
        return KernelFold(
            (("a", wide, unit),), f"s.a = s.a {sign} w;", "", f"s.a = s.a {sign} b.a;", ((state, made),), wide
        )
    if monoid in ("any", "all") or (monoid in _EXTREMA and given.kind == "b"):
        is_any = monoid == "any" or (monoid in _EXTREMA and _EXTREMA[monoid][1])
        term, unit = ("s.a = s.a || {0};", "false") if is_any else ("s.a = s.a && {0};", "true")
        return KernelFold((("a", _BOOL, unit),), term.format("w"), "", term.format("b.a"), ((_BOOL, "s.a"),), _BOOL)
    if monoid in _EXTREMA and given.kind in "iuf":
        return _extremum(monoid, given)
    if monoid in ("argmax", "argmin") and given.kind in "biuf":
        value = np.dtype("f4") if given == np.float16 else np.dtype("u1") if given.kind == "b" else given
        is_max, worse = ("true", "<") if monoid == "argmax" else ("false", ">")
        take = "if (s.i < 0 || !({0} " + worse + " s.a)) if (dx_is_first({0}, {1}, s.a, s.i, " + is_max + "))"
        take += " {{ s.a = {0}; s.i = {1}; }}"
        return KernelFold(
            (("a", value, "0"), ("i", _I8, "-1")),
            take.format("w", "at"),
            "",
            take.format("b.a", "b.i"),
            ((given, str(cast("s.a", value, given))), (_I8, "s.i")),
            value,
        )
    if monoid == "moments" and state.kind == "f" and given.kind in "biuf":
        # Distances from the thread's first element, which is at most sqrt(n) standard deviations from their mean: the
        # difference of squares that ends a thread's share cancels no more than that.
        add = "if (s.n == 0) s.mean = w; s.n += 1; const double d = w - s.mean; s.off += d; s.m2 += d * d;"
        end = """if (s.n > 0) {
            const double off = s.off / double(s.n), less = s.m2 - s.off * off;
            s.mean += off; s.m2 = less < 0 ? 0.0 : less;
        }"""
        results = ((_I8, "s.n"), *((state, str(cast(f"s.{f}", _F8, state))) for f in ("mean", "m2")))
        fields = (("n", _I8, "0"), ("mean", _F8, "0"), ("m2", _F8, "0"), ("off", _F8, "0"))
        return KernelFold(fields, add, end, "dx_merge_moments(s.n, s.mean, s.m2, b.n, b.mean, b.m2);", results, _F8)
    return None


def _extremum(monoid: str, given: DType) -> KernelFold:
    """Return the fold of the largest or smallest number."""
    function, is_max, passes_nan = _EXTREMA[monoid]
    if given.kind == "f":
        value = np.dtype("f4") if given == np.float16 else given
        unit = 'nan("")' if passes_nan else "log(0.0)" if is_max else "-log(0.0)"
        # Most elements change nothing, and one comparison says so.
        term = f"if (!({{0}} {'<' if is_max else '>'} s.a)) s.a = {function}(s.a, {{0}});"
        if passes_nan:
            term = f"if (isnan(s.a)) s.a = {{0}}; else if (!isnan({{0}})) {term}"
    else:
        value, info = given, np.iinfo(given)
        # The smallest number has no literal of its own in C.
        least = "0" if given.kind == "u" else f"({C_TYPE[given.name]})(-{info.max}LL - 1)"
        unit = least if is_max else f"{info.max}{'ULL' if given.kind == 'u' else 'LL'}"
        term = f"if ({{0}} {'>' if is_max else '<'} s.a) s.a = {{0}};"
    result = ((given, str(cast("s.a", value, given))),)
    return KernelFold((("a", value, unit),), term.format("w"), "", term.format("b.a"), result, value)


class Shares(NamedTuple):
    """How the threads of a reduction share its elements.

    Attributes
    ----------
    grid
        Blocks along the kept elements, and blocks that share the reduced elements of each.
    arguments
        Reduced elements of one block, the logarithm of the kept elements of one block, and whether neighbouring
        threads have neighbouring kept elements.
    """

    grid: tuple[int, int]
    arguments: tuple[Any, ...]


@lru_cache(maxsize=4096)
def shares(n_kept: int, n_reduced: int, n: int, is_across: bool, n_blocks: int = N_BLOCKS) -> Shares:
    """Return how blocks and threads share `n_reduced` elements of each of `n_kept`, where a thread reads `n` at once.

    `is_across`: neighbours in memory are neighbouring kept elements, not reduced ones.
    """
    if is_across:
        kept = min(32, 1 << (n_kept - 1).bit_length())
    else:
        reading = min(BLOCK, 1 << max(0, -(-n_reduced // n) - 1).bit_length())
        kept = min(BLOCK // reading, 1 << (n_kept - 1).bit_length())
    reading = BLOCK // kept
    along = -(-n_kept // kept)
    turn = reading * n
    wanted = min(max(1, n_blocks // along), -(-n_reduced // turn))
    chunk = -(-n_reduced // (wanted * turn)) * turn
    arguments = (np.uint32(chunk), np.uint32(kept.bit_length() - 1), np.int32(is_across))
    return Shares((along, -(-n_reduced // chunk)), arguments)


def is_across(extents: Sequence[int], kept: Sequence[int], strides: Sequence[Sequence[int]]) -> bool:
    """Return whether neighbours in memory are neighbours along a kept axis, in the array that has most elements."""
    axes = [a for a, n in enumerate(extents) if n > 1]
    main = max(strides[:-1], key=lambda s: math.prod(extents[a] for a in axes if s[a]))
    steps = [a for a in axes if main[a]]
    return bool(steps) and min(steps, key=lambda a: abs(main[a])) in kept


def _state(folds: Sequence[KernelFold]) -> str:
    """Return the states of all reductions of a kernel, and how each is merged with another."""
    lines = []
    for j, fold in enumerate(folds):
        fields = " ".join(f"{C_TYPE[d.name]} {f};" for f, d, _ in fold.fields)
        start = " ".join(f"s.{f} = {unit};" for f, _, unit in fold.fields)
        lines.append(f"struct State{j} {{ {fields} }};")
        lines.append(f"__device__ inline void dx_start(State{j}& s) {{ {start} }}")
        lines.append(f"__device__ inline void dx_merge(State{j}& s, const State{j}& b) {{ {fold.merge} }}")
    states = " ".join(f"State{j} s{j};" for j in range(len(folds)))
    lines.append(f"struct States {{ {states} }};")
    every = range(len(folds))
    lines.append(f"__device__ inline void dx_start(States& s) {{ {' '.join(f'dx_start(s.s{j});' for j in every)} }}")
    merges = " ".join(f"dx_merge(s.s{j}, b.s{j});" for j in every)
    lines.append(f"__device__ inline void dx_merge(States& s, const States& b) {{ {merges} }}")
    return "\n".join(lines)


def _results(folds: Sequence[KernelFold], is_last: bool) -> list[tuple[str, DType, str]]:
    """Return name, dtype and value of what a block stores: the partial if it is the last, else the fields."""
    found = []
    for j, fold in enumerate(folds):
        last = [(d, e.replace("s.", f"s.s{j}.")) for d, e in fold.results]
        fields = [(d, f"s.s{j}.{f}") for f, d, _ in fold.fields]
        found += [(f"z{j}_{k}", d, value) for k, (d, value) in enumerate(last if is_last else fields)]
    return found


_SHARE = """
    const unsigned n_across = 1u << log_kept, n_reading = blockDim.x >> log_kept;
    const unsigned tx = is_across ? threadIdx.x & (n_across - 1) : threadIdx.x / n_reading;
    const unsigned ty = is_across ? threadIdx.x >> log_kept : threadIdx.x % n_reading;
    const unsigned o = blockIdx.x * n_across + tx;
    const unsigned begin = blockIdx.y * chunk, end = chunk < n_reduced - begin ? begin + chunk : n_reduced;
    States s;
    dx_start(s);
"""
_SHARED = ["unsigned n_kept", "unsigned n_reduced", "unsigned chunk", "unsigned log_kept", "int is_across"]


def _gathered(results: Sequence[tuple[str, DType, str]]) -> str:
    """Return statements that merge the states of a block's threads and store what came out."""
    stores = " ".join(f"(({C_TYPE[d.name]}*)p_{z})[blockIdx.y * n_kept + o] = {v};" for z, d, v in results)
    return f"""
    __shared__ __align__(16) unsigned char memory[{BLOCK} * sizeof(States)];
    States* shared = (States*)memory;
    const unsigned here = tx * n_reading + ty;
    shared[here] = s;
    for (unsigned half = n_reading >> 1; half > 0; half >>= 1) {{
        __syncthreads();
        if (ty < half) dx_merge(shared[here], shared[here + half]);
    }}
    if (ty == 0 && o < n_kept) {{
        s = shared[here];
        {stores}
    }}
"""


@lru_cache(maxsize=512)
def reduction_source(generated: Generated, folds: tuple[KernelFold, ...], ndims: tuple[int, int], is_last: bool) -> str:
    """Return the kernel ``distarray_reduction`` of a program whose last stored registers are reduced, one by each fold.

    Its arguments are the arrays read, the arrays stored beside, what is reduced, the scalars, the number of kept and of
    reduced elements, `Shares.arguments`, the index of the first element, then `Nest.arguments` of the kept and of the
    reduced axes. The last of the arrays that these are of has no memory: its offset is the index of argmax and argmin.
    """
    read, scalars = _typed(generated)
    n_outputs = len(generated.stored) - len(folds)
    stored = [(f"y{k}", C_TYPE[d.name]) for k, d in enumerate(generated.stored_types[:n_outputs])]
    others = [*(y for y, _ in stored), "index"]
    arrays = [*(x for x, _ in read), *others]
    results = _results(folds, is_last)
    parameters = [
        *(f"const char* p_{x}" for x, _ in read),
        *(f"char* p_{y}" for y, _ in stored),
        *(f"char* p_{z}" for z, _, _ in results),
        *(f"const {t} {s}" for s, t in scalars),
        *_SHARED,
        "long long first_index",
        *_nest("k", ndims[0], arrays),
        *_nest("r", ndims[1], arrays),
    ]
    n = n_at_once(generated)
    adds, ends = [], []
    reduced = zip(folds, generated.stored[n_outputs:], generated.stored_types[n_outputs:], strict=True)
    for j, (fold, value, given) in enumerate(reduced):
        term = f"const {C_TYPE[fold.value.name]} w = {cast(value, given, fold.value)};"
        adds.append(f"{{ {term} State{j}& s = all.s{j}; const long long at = at_index[k]; {fold.add} }}")
        ends.append(f"{{ State{j}& s = all.s{j}; {fold.end} }}")
    return f"""{HEADERS}{PREAMBLE}{_LOOP_PREAMBLE}{_state(folds)}
extern "C" __global__ void distarray_reduction({", ".join(parameters)}) {{{_SHARE}
    States& all = s;
    if (o < n_kept) {{
        {" ".join(f"long long from_{x} = {'first_index' if x == 'index' else '0'};" for x in arrays)}
        {_advance("k", ndims[0], arrays, "o", "from")}
        for (unsigned r = begin + ty; r < end; r += n_reading * {n}u) {{
            {" ".join(f"{t} v_{x}[{n}];" for x, t in read)}
            {" ".join(f"long long at_{x}[{n}];" for x in others)}
            int c = 0;
            #pragma unroll
            for (int k = 0; k < {n}; k++) {{
                const unsigned i = r + k * n_reading;
                if (i < end) {{{_read("r", ndims[1], read, others, "from_{}")}
                    c = k + 1;
                }}
            }}
            #pragma unroll
            for (int k = 0; k < {n}; k++) {{
                if (k < c) {{
                    {" ".join(f"const {t} {x} = v_{x}[k];" for x, t in read)}
                    {generated.body}
                    {_stores(stored, generated)}
                    {" ".join(adds)}
                }}
            }}
        }}
        {" ".join(ends)}
    }}
{_gathered(results)}}}
"""


@lru_cache(maxsize=64)
def merge_source(folds: tuple[KernelFold, ...]) -> str:
    """Return the kernel ``distarray_merge`` that merges what blocks with a share each made of the same kept elements.

    Its arguments are the fields, each of (shares, kept elements), the arrays of the partials, then as of a reduction.
    """
    fields, results = _results(folds, False), _results(folds, True)
    parameters = [
        *(f"const char* f_{z}" for z, _, _ in fields),
        *(f"char* p_{z}" for z, _, _ in results),
        *_SHARED,
    ]
    loads = " ".join(
        f"{v.replace('s.', 'b.', 1)} = ((const {C_TYPE[d.name]}*)f_{z})[i * n_kept + o];" for z, d, v in fields
    )
    return f"""{HEADERS}{_LOOP_PREAMBLE}{_state(folds)}
extern "C" __global__ void distarray_merge({", ".join(parameters)}) {{{_SHARE}
    if (o < n_kept) {{
        for (unsigned i = begin + ty; i < end; i += n_reading) {{
            States b;
            {loads}
            dx_merge(s, b);
        }}
    }}
{_gathered(results)}}}
"""


def folds_of(reductions: Sequence[Reduction], dtypes: Sequence[DType]) -> tuple[KernelFold, ...] | None:
    """Return the folds of all reductions of a program, if one kernel can make them: they are over the same axes."""
    if not reductions or any(r.axes != reductions[0].axes for r in reductions):
        return None
    found = [fold_of(r.monoid, dtypes[r.register], r.dtype) for r in reductions]
    return None if None in found else tuple(f for f in found if f is not None)
