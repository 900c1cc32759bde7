"""CUDA C++ of reductions: how values are folded, and how threads and blocks share them. Pure, as `cuda_loops` is.

A reduction is one pass over its operands too, whatever the program computes of them and stores beside: threads of a
block share the reduced elements of some kept ones, blocks share long reductions, and a second kernel merges what these
made. Sums accumulate in double precision; moments of threads and blocks are merged (Chan, Golub and LeVeque 1979).
How the elements are dealt out depends on extents and strides alone, never on the card: bits are those of any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from distarray.kernels.cuda_code import C_TYPE, PREAMBLE, cast
from distarray.kernels.cuda_loops import (
    BLOCK,
    HEADERS,
    INDEX,
    advance,
    by_size,
    n_at_once,
    parameters_of,
    reads,
    stores_of,
    typed,
)
from distarray.kernels.expressions import Generated
from distarray.kernels.monoids import MONOIDS
from distarray.kernels.outcomes import Reduction
from distarray.types import DType

#: Blocks that share one launch of a reduction, where there is enough to share.
N_BLOCKS = 2048

MERGES = """
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


class KernelFold(NamedTuple):
    """A KernelFold says how values are folded, as C++.

    Attributes
    ----------
    fields
        Name, dtype and first value of each variable of the state.
    add
        Statement that folds a value `w` with index `at` into the state `s`; it is number `k` of those read together.
    merge
        Statement that folds another state `b` into `s`.
    results
        Dtype and expression of each array of the partial.
    value
        Dtype to which a value is cast before.
    group
        Statement that follows `c` values that were read together.
    end
        Statement that ends what a thread adds.
    """

    fields: tuple[tuple[str, DType, str], ...]
    add: str
    merge: str
    results: tuple[tuple[DType, str], ...]
    value: DType
    group: str = ""
    end: str = ""

    @property
    def has_index(self) -> bool:
        """Return whether the state has the index of an element."""
        return any(name == "i" for name, _, _ in self.fields)


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
            (("a", _U8, unit),), term.format("(unsigned long long)w"), term.format("b.a"), ((state, made),), value
        )
    if monoid in ("sum", "prod") and state.kind in "fc":
        wide = {"f": _F8, "c": np.dtype("c16")}[state.kind] if monoid == "sum" else state
        sign, unit = ("+", "0") if monoid == "sum" else ("*", "1")
        made = str(cast("s.a", wide, state))
        term = f"s.a = s.a {sign} {{0}};"
        return KernelFold((("a", wide, unit),), term.format("w"), term.format("b.a"), ((state, made),), wide)
    if monoid in ("any", "all") or (monoid in _EXTREMA and given.kind == "b"):
        is_any = monoid == "any" or (monoid in _EXTREMA and _EXTREMA[monoid][1])
        term, unit = ("s.a = s.a || {0};", "false") if is_any else ("s.a = s.a && {0};", "true")
        return KernelFold((("a", _BOOL, unit),), term.format("w"), term.format("b.a"), ((_BOOL, "s.a"),), _BOOL)
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
            take.format("b.a", "b.i"),
            ((given, str(cast("s.a", value, given))), (_I8, "s.i")),
            value,
        )
    if monoid == "moments" and state.kind == "f" and given.kind in "biuf":
        # Distances from the thread's first element, which is at most sqrt(n) standard deviations from their mean: the
        # difference of squares that ends a thread's share cancels no more than that.
        add = "if (k == 0 && s.n == 0) s.mean = w; const double d = w - s.mean; s.off += d; s.m2 += d * d;"
        end = """if (s.n > 0) {
            const double off = s.off / double(s.n), less = s.m2 - s.off * off;
            s.mean += off; s.m2 = less < 0 ? 0.0 : less;
        }"""
        results = ((_I8, "s.n"), *((state, str(cast(f"s.{f}", _F8, state))) for f in ("mean", "m2")))
        fields = (("n", _I8, "0"), ("mean", _F8, "0"), ("m2", _F8, "0"), ("off", _F8, "0"))
        merge = "dx_merge_moments(s.n, s.mean, s.m2, b.n, b.mean, b.m2);"
        return KernelFold(fields, add, merge, results, _F8, "s.n += c;", end)
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
    return KernelFold((("a", value, unit),), term.format("w"), term.format("b.a"), result, value)


class Shares(NamedTuple):
    """Shares say how the threads of a reduction share its elements.

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


def is_across(extents: Sequence[int], kept: Sequence[int], strides: Sequence[tuple[int, ...]]) -> bool:
    """Return whether neighbours in memory are neighbours along a kept axis, in the array that has most elements."""
    axes = [a for a, n in enumerate(extents) if n > 1]
    main = by_size(extents, axes, strides)[0]
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


def results_of(folds: Sequence[KernelFold], is_last: bool) -> list[tuple[str, DType, str]]:
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
    read, scalars = typed(generated)
    n_outputs = len(generated.stored) - len(folds)
    stored = [(f"y{k}", C_TYPE[d.name]) for k, d in enumerate(generated.stored_types[:n_outputs])]
    others = [*(y for y, _ in stored), "index"]
    arrays = [*(x for x, _ in read), *others]
    results = results_of(folds, is_last)
    parameters = [
        *(f"const char* p_{x}" for x, _ in read),
        *(f"char* p_{y}" for y, _ in stored),
        *(f"char* p_{z}" for z, _, _ in results),
        *(f"const {t} {s}" for s, t in scalars),
        *_SHARED,
        "long long first_index",
        *parameters_of("k", ndims[0], arrays),
        *parameters_of("r", ndims[1], arrays),
    ]
    n = n_at_once(generated)
    adds, groups, ends = [], [], []
    reduced = zip(folds, generated.stored[n_outputs:], generated.stored_types[n_outputs:], strict=True)
    for j, (fold, value, given) in enumerate(reduced):
        term = f"const {C_TYPE[fold.value.name]} w = {cast(value, given, fold.value)};"
        adds.append(f"{{ {term} State{j}& s = all.s{j}; const long long at = at_index[k]; {fold.add} }}")
        groups.append(f"{{ State{j}& s = all.s{j}; {fold.group} }}")
        ends.append(f"{{ State{j}& s = all.s{j}; {fold.end} }}")
    return f"""{HEADERS}{PREAMBLE}{INDEX}{MERGES}{_state(folds)}
extern "C" __global__ void distarray_reduction({", ".join(parameters)}) {{{_SHARE}
    States& all = s;
    if (o < n_kept) {{
        {" ".join(f"long long from_{x} = {'first_index' if x == 'index' else '0'};" for x in arrays)}
        {advance("k", ndims[0], arrays, "o", "from")}
        for (unsigned r = begin + ty; r < end; r += n_reading * {n}u) {{
            {" ".join(f"{t} v_{x}[{n}];" for x, t in read)}
            {" ".join(f"long long at_{x}[{n}];" for x in others)}
            int c = 0;
            #pragma unroll
            for (int k = 0; k < {n}; k++) {{
                const unsigned i = r + k * n_reading;
                if (i < end) {{{reads("r", ndims[1], read, others, "from_{}")}
                    c = k + 1;
                }}
            }}
            #pragma unroll
            for (int k = 0; k < {n}; k++) {{
                if (k < c) {{
                    {" ".join(f"const {t} {x} = v_{x}[k];" for x, t in read)}
                    {generated.body}
                    {stores_of(stored, generated)}
                    {" ".join(adds)}
                }}
            }}
            {" ".join(groups)}
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
    fields, results = results_of(folds, False), results_of(folds, True)
    parameters = [
        *(f"const char* f_{z}" for z, _, _ in fields),
        *(f"char* p_{z}" for z, _, _ in results),
        *_SHARED,
    ]
    loads = " ".join(
        f"{v.replace('s.', 'b.', 1)} = ((const {C_TYPE[d.name]}*)f_{z})[i * n_kept + o];" for z, d, v in fields
    )
    return f"""{HEADERS}{INDEX}{MERGES}{_state(folds)}
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
