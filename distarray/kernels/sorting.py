"""Kernels of sorting and of what is built on it: on tiles of a vector, each in order, and on runs of several tiles.

The tiles of `distarray.ops.runs` are sorted where they lie (`sort_tiles`), single elements of them are looked at
(`pick_tiles`), and slices of all of them are merged (`merge_tiles`). A stable sort of runs put end to end is a merge:
equal elements stay in the order of the runs. nan come last, complex numbers are in lexicographic order, as in numpy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.errors import NotSupportedError
from distarray.expr.errstates import named, quotient_name
from distarray.kernels.buffers import POOL
from distarray.kernels.loans import copied
from distarray.kernels.masks import compressed
from distarray.kernels.namespaces import Block, Namespace, Params, is_strict, placed
from distarray.kernels.searching import searchsorted
from distarray.kernels.slices import boxes, slice_extents
from distarray.kernels.threads import run_along, threads_for
from distarray.kernels.ufuncs import combine
from distarray.types import HostArray

#: Elements from which an order is that of packed integers, and of which these are made at a time.
SHORT, SLICE = 1 << 11, 1 << 18
#: Elements by which it is seen that most are alike.
SAMPLE = 256
#: Elements of runs in order, on average, from which on a stable sort, which merges them, takes less time than another.
LONG_RUN = 1 << 14
#: Elements of a table for each that is looked up in it.
DENSE = 8
#: Bytes of rows that a function which copies them is given at a time.
ROWS_NBYTES = 1 << 23
#: Elements for each number from which on threads count by themselves, and their counts are added.
MANY_EACH = 4
#: Numbers that are counted at a time: of fewer, threads wait for each other more, since NumPy counts under the GIL.
COUNTED = 1 << 18


def _stability(xp: Namespace, stable: bool) -> dict[str, Any]:
    return {"stable": stable} if xp is np else {"kind": "stable"}  # CuPy has the old keyword, and this value only


def _keys(xp: Namespace, x: Block) -> tuple[Block, ...]:
    """Return real numbers that order the elements as numpy does, the one that decides first last.

    The standard orders real numbers only. Truth values are 0 and 1; of complex numbers those without nan come first,
    then those whose real part is a number.
    """
    if xp.isdtype(x.dtype, "bool"):
        return (xp.astype(x, xp.uint8),)
    if not xp.isdtype(x.dtype, "complex floating"):
        return (x,)
    real, imag = xp.real(x), xp.imag(x)
    return imag, real, 2 * xp.astype(xp.isnan(real), xp.uint8) + xp.astype(xp.isnan(imag), xp.uint8)


def sort(xp: Namespace, x: Block, *, params: Params) -> Block:
    """Return the last axis in order; params: (descending, stable)."""
    descending, stable = params
    if is_strict(xp):
        if xp.isdtype(x.dtype, "complex floating"):
            return xp.take_along_axis(x, argsort(xp, x, params=params), axis=-1)
        return xp.astype(xp.sort(_keys(xp, x)[0], axis=-1, descending=descending, stable=stable), x.dtype)
    if not descending:
        return _in_order(copied(x)) if xp is np else xp.sort(x, axis=-1, **_stability(xp, stable))
    # of the mirrored row and mirrored back, so that equal elements (zeros of either sign) keep their order
    mirrored = x[..., ::-1]
    made = _in_order(copied(mirrored)) if xp is np else xp.sort(mirrored, axis=-1, **_stability(xp, stable))
    return made[..., ::-1]


def _in_order(x: HostArray) -> HostArray:
    """Put the last axis in the order of a stable sort, in place.

    Where equal elements have the same bits, any sort gives that, and NumPy's own, which is not stable, takes a tenth of
    the time. Only zeros of either sign, and complex numbers that have such parts, are equal and differ. (Bits of a nan
    are never promised.)
    """
    if _are_alike(x):
        if x.dtype == np.float16:
            _order_halves(x)
        else:
            x.sort(axis=-1)
        return x
    # Rows of a block come in parts (`parts`), so several threads sort one only if it is all.
    n = threads_for(x.size) if x.size == x.shape[-1] else 1
    if n > 1:  # parts side by side, which a stable sort of sorted runs merges
        row = x.reshape(-1)
        run_along(row.size, n, lambda begin, end: row[begin:end].sort(kind="stable"))
    x.sort(axis=-1, kind="stable")
    return x


def _mirror_negative(integers: HostArray) -> None:
    """Have the bits of floats be integers in their order, or the other way round: those of negative floats go down."""
    bits = np.iinfo(integers.dtype)
    np.bitwise_xor(integers, (integers >> (bits.bits - 1)) & bits.max, out=integers)


def _order_halves(x: HostArray) -> None:
    """Put the last axis of half precision numbers in order, in place, by integers that have their order.

    NumPy's own sort of them leaves long rows with many equal elements out of order on processors with AVX-512 (2.4.6).
    """
    x[np.isnan(x)] = np.nan  # of either sign, they come last
    integers = x.view(np.int16)
    _mirror_negative(integers)
    integers.sort(axis=-1)
    _mirror_negative(integers)


def _are_alike(x: HostArray) -> bool:
    """Return whether equal elements have the same bits, and a sort that is not stable is the faster one."""
    if x.dtype.kind == "f":
        # The smallest integer has the bits of -0.0.
        return not bool((x.view(f"i{x.itemsize}") == np.iinfo(f"i{x.itemsize}").min).any())
    return x.dtype.kind in "iumM" and x.itemsize > 1  # bytes are counted


def argsort(xp: Namespace, x: Block, *, params: Params) -> Block:
    """Return the indices that put the last axis in order; params: (descending, stable)."""
    descending, stable = params
    if is_strict(xp):
        first, *others = _keys(xp, x)
        order = xp.argsort(first, axis=-1, descending=descending, stable=stable)
        for key in others:
            found = xp.take_along_axis(key, order, axis=-1)
            order = xp.take_along_axis(order, xp.argsort(found, axis=-1, descending=descending, stable=True), axis=-1)
        return order
    if not descending:
        return _order(xp, x, stable)
    return (x.shape[-1] - 1 - _order(xp, x[..., ::-1], stable))[..., ::-1]


def _order(xp: Namespace, x: Block, stable: bool) -> Block:
    """Return the indices that sort the last axis.

    NumPy sorts numbers in half of the time in which it finds their order, in a tenth where it has vector instructions
    for that: so what is sorted are integers that have the order of the elements in their high bits and their places in
    the low ones, by which equals stay as they were. Elements that differ only in bits for which there was no room are
    put in order afterwards.
    """
    if xp is not np or not stable or x.dtype.kind not in "iuf" or x.itemsize < 4 or x.size < SHORT:
        return xp.argsort(x, axis=-1, **_stability(xp, stable))
    n = x.shape[-1]
    rows, places = x.reshape(-1, n), POOL.take(x.shape, np.dtype(np.intp))
    packed = places.reshape(-1, n).view(np.uint64)
    width = (n - 1).bit_length()
    first, dropped = 0, max(0, 8 * x.itemsize + width - 64)
    if x.dtype.kind != "f" and dropped:
        first = int(x.min())
        dropped = max(0, (int(x.max()) - first).bit_length() + width - 64)
    if dropped and _are_mostly_alike(x, dropped):
        return np.argsort(x, axis=-1, kind="stable")
    at_once = max(1, SLICE // n)
    for row in range(0, len(rows), at_once):
        for begin in range(0, n, SLICE):
            here = (slice(row, row + at_once), slice(begin, begin + SLICE))
            _pack(rows[here], packed[here], first, dropped, width, begin)
        some = slice(row, row + at_once)
        falls = np.count_nonzero(packed[some, 1:] < packed[some, :-1])
        packed[some].sort(axis=-1, kind="stable" if falls <= packed[some].size // LONG_RUN else "quicksort")
        begin = 0
        while begin < n:
            stop = n if n <= SLICE else _end_of_slice(packed[row], begin, width)
            order = packed[some, begin:stop]
            order &= np.uint64((1 << width) - 1)
            if dropped:
                _order_alike(rows[some], order.view(np.intp))
            begin = stop
    return places


def _are_mostly_alike(x: HostArray, dropped: int) -> bool:
    """Return whether most of some elements that differ do so in their last bits only, as those next to an outlier."""
    some = np.sort(x.flat[:: max(1, x.size // SAMPLE)].view(f"u{x.itemsize}"))
    kept = some >> dropped
    return bool(2 * np.count_nonzero(kept[1:] != kept[:-1]) < np.count_nonzero(some[1:] != some[:-1]))


def _pack(x: HostArray, out: HostArray, first: int, dropped: int, width: int, begin: int) -> None:
    """Fill unsigned integers with the order of elements and, in the last `width` bits, their places in rows, which go
    on from `begin`.

    Parameters
    ----------
    first
        The least integer there is, if `dropped` is less than what any would need.
    dropped
        How many of the last bits of the elements there is no room for.
    """
    if x.dtype.kind == "f":
        with np.errstate(invalid="ignore"):  # of nan that signal
            x = np.add(x, 0.0, dtype=x.dtype)  # zeros of either sign are equal
        x[np.isnan(x)] = np.nan  # of either sign, they come last
        x = x.view(f"i{x.itemsize}")
        _mirror_negative(x)
        first = -(1 << (8 * x.itemsize - 1))
    elif not first and x.dtype.kind == "i":
        first = int(np.iinfo(x.dtype).min)
    np.subtract(x.astype(np.uint64), np.uint64(first % (1 << 64)), out=out)  # modulo what 64 bits have
    np.right_shift(out, np.uint64(dropped), out=out)
    np.left_shift(out, np.uint64(width), out=out)
    np.bitwise_or(out, np.arange(begin, begin + x.shape[1], dtype=np.uint64), out=out)


def _end_of_slice(packed: HostArray, begin: int, width: int) -> int:
    """Return where a slice of a packed row ends that begins at a place, so that all which are alike are in one."""
    n, stop = packed.size, begin + SLICE
    if stop >= n:
        return n
    alike = int(packed[stop]) >> width << width
    where = int(np.searchsorted(packed, np.uint64(alike)))
    return where if where > begin else int(np.searchsorted(packed, np.uint64(alike | ((1 << width) - 1)), "right"))


def _order_alike(rows: HostArray, order: HostArray) -> None:
    """Put those places of rows in order, in place, at which elements are not, though they almost are."""
    keys = np.take_along_axis(rows, order, axis=1)
    wrong = (keys[:, 1:] < keys[:, :-1]).any(axis=1)
    if wrong.any():
        right = np.argsort(keys[wrong], axis=1, kind="stable")
        order[wrong] = np.take_along_axis(order[wrong], right, axis=1)


def _sort_tiles(xp: Namespace, x: Block, params: Params) -> Any:
    """Return a tile in order, and where in the vector each element stood if asked for.

    params: (with_order, descending, stable, where the tile begins).
    """
    with_order, descending, stable, (start,) = params
    if not with_order:
        return sort(xp, x, params=(descending, stable))
    order = argsort(xp, x, params=(descending, stable))
    return xp.take(x, order, axis=0), order + start


def _merge_tiles(xp: Namespace, *runs: Block, params: Params) -> Any:
    """Return runs merged; params: (what is wanted: ``keys``, ``order`` or ``both``, descending, offset).

    Beside keys alone the second half of `runs` says where their elements stood.
    """
    wanted, descending, _ = params
    if wanted == "keys":
        keys = xp.concat(runs)
        return sort(xp, keys, params=(descending, True)) if xp is not np or descending else _in_order(keys)
    half = len(runs) // 2
    keys, stood = xp.concat(runs[:half]), xp.concat(runs[half:])
    order = argsort(xp, keys, params=(descending, True))
    stood = xp.take(stood, order, axis=0)
    return stood if wanted == "order" else (xp.take(keys, order, axis=0), stood)


def _pick_tiles(xp: Namespace, x: Block, positions: Block, params: Params) -> Block:
    """Return the elements at positions in the tile."""
    return xp.take(x, positions, axis=0)


def _search_tiles(xp: Namespace, row: Block, sought: Block, params: Params) -> Block:
    """Return how many elements of a tile, which is in order, stand before each of `sought`; params: (side, offset)."""
    found = searchsorted(xp, row, sought, params[0])
    return xp.reshape(xp.astype(found, xp.int64), (1, -1))


def is_nan(xp: Namespace, x: Block) -> Block | None:
    """Return where nan (or not-a-time) is; None where there is none of the kind."""
    if is_strict(xp):
        return xp.isnan(x) if xp.isdtype(x.dtype, ("real floating", "complex floating")) else None
    return xp.isnan(x) if x.dtype.kind in "fcmM" else None


def _first_tiles(xp: Namespace, keys: Block, *earlier: Block, params: Params) -> Block:
    """Return which elements (or rows) of a sorted tile differ from the one before; params: (nan are equal, offset).

    `earlier` are the elements one place earlier: one less than `keys` where the vector begins. Without them the first
    one of the tile differs.
    """
    before = earlier[0] if earlier else keys[:-1]
    head = keys.shape[0] - before.shape[0]
    rest = keys[head:]
    differs = rest != before
    if params[0]:
        one, other = is_nan(xp, rest), is_nan(xp, before)
        if one is not None:
            differs = differs & ~(one & other)
    if differs.ndim > 1:
        keys, differs = keys[:, 0], xp.any(differs, axis=1)
    return xp.concat([xp.ones_like(keys[:head], dtype=differs.dtype), differs])


def _bincount_tiles(xp: Namespace, x: Block, *weights: Block, params: Params) -> Block:
    """Return how often each number stands, or the sum of its weights, as one row; params: (how many numbers,
    offset).
    """
    n = params[0]
    x = xp.reshape(xp.astype(x, xp.int64, copy=False), (-1,))
    if xp is np and not weights and MANY_EACH * n < x.size:
        return _counted(x, n)[None, :]
    if not is_strict(xp):
        counts = xp.bincount(x, *weights, minlength=n)[None, :]
        return xp.astype(counts, xp.float64, copy=False) if weights else counts  # of nothing numpy counts
    if weights:
        raise NotSupportedError("weighted counts are not on strict: the standard has no bincount")
    places = xp.searchsorted(xp.sort(x), xp.arange(n + 1, device=x.device))
    return (places[1:] - places[:-1])[None, :]


def _counted(x: HostArray, n: int) -> HostArray:
    """Return how often each number below `n` stands, counted by all threads that are free."""
    counts: list[HostArray] = []
    run_along(x.size, threads_for(x.size), lambda begin, end: counts.append(np.bincount(x[begin:end], minlength=n)))
    return np.asarray(sum(counts))


def _within_tiles(xp: Namespace, x: Block, params: Params) -> tuple[Block, Block]:
    """Return as one row how often each of the first so many numbers stands, which means nothing if there are others;
    and as one row the least and the largest element, or 0 where that is less, or more; params: (how many numbers,
    offset).
    """
    n = params[0]
    if xp is np:
        counted, least, most = numbers_within(x, n)
        return counted[None, :], np.asarray([[least, most]], np.uint64 if x.dtype == np.uint64 else np.int64)
    x = xp.astype(x, xp.uint64 if x.dtype == xp.uint64 else xp.int64, copy=False)
    ends = xp.concat([x, xp.zeros((1,), dtype=x.dtype, device=x.device)])
    places = xp.where((x >= 0) & (x < n), x, xp.full_like(x, n))
    return _bincount_tiles(xp, places, params=(n + 1,))[:, :n], xp.stack([xp.min(ends), xp.max(ends)])[None, :]


def numbers_within(x: HostArray, n: int) -> tuple[HostArray, int, int]:
    """Return how often each of the first `n` numbers stands, which means nothing if there are others, and the least and
    the largest element, or 0 where that is less, or more; counted by all threads that are free.

    No pass looks for the extremes first: NumPy looks at each slice itself, while it is in cache.
    """
    found: list[tuple[HostArray, int, int]] = []

    def part(begin: int, end: int) -> None:
        counts, least, most = np.zeros(0, np.intp), 0, 0
        head = x[begin : min(begin + COUNTED, end)]  # what is far away is not counted, not even once
        is_within = int(head.min()) >= 0 and int(head.max()) < n
        step = max(COUNTED, 4 * n)
        for here in (x[start : min(start + step, end)] for start in range(begin, end, step)):
            made = _bins(here, n) if is_within else None
            is_within = made is not None
            if made is None:
                least, most = min(least, int(here.min())), max(most, int(here.max()))
            else:
                counts = np.add(counts, made, out=counts) if counts.size else made
        found.append((counts, least, max(most, int(counts.nonzero()[0][-1])) if counts.any() else most))

    if x.size:
        run_along(x.size, threads_for(x.size) if n < x.size else 1, part)
    counts, least, most = zip(*found, strict=True) if found else ((), (0,), (0,))
    is_within = bool(found) and min(least) >= 0 and max(most) < n
    return np.asarray(sum(counts)) if is_within else np.zeros(n, np.intp), min(least), max(most)


def _bins(x: HostArray, n: int) -> HostArray | None:
    """Return how often each number below `n` stands; None if there are others."""
    try:
        counts = np.bincount(x.astype(np.intp, copy=False), minlength=n)
    except (ValueError, MemoryError):  # negative numbers, or none that could be counted
        return None
    return counts if counts.shape[0] == n else None


def _compress_tiles(xp: Namespace, mask: Block, *blocks: Block, params: Params) -> Any:
    """Return the elements of each block where the mask is true."""
    found = tuple([compressed(block, mask) if xp is np else block[mask] for block in blocks])
    return found[0] if len(found) == 1 else found


def _rank_tiles(xp: Namespace, mask: Block, before: Block, params: Params) -> Block:
    """Return how many elements of the mask are true up to each position, less one; `before`: in the tiles before."""
    return xp.cumulative_sum(xp.astype(mask, xp.int64)) + (before - 1)


def _count_tiles(xp: Namespace, x: Block, pivots: Block, params: Params) -> Block:
    """Return how many elements are below each pivot, how many up to each, and how many are no nan."""
    limits = [pivots[i] for i in range(pivots.shape[0])]
    masks = [x < p for p in limits] + [x <= p for p in limits] + [x == x]
    # asarray: before numpy 2.3 a count is a Python integer
    return xp.stack([xp.astype(xp.asarray(xp.count_nonzero(mask)), xp.int64) for mask in masks])[None, :]


def _between_tiles(xp: Namespace, x: Block, limits: Block, params: Params) -> Block:
    """Return the elements strictly between limits, of which there may be one only: (whether lower, whether upper,
    offset).
    """
    has_lower, has_upper, _ = params
    inside = x > limits[0] if has_lower else x == x
    if has_upper:
        inside = inside & (x < limits[-1])
    return x[inside]


def _partitioned(name: str) -> Callable[..., Block]:
    """Return a function of ``xp`` along the last axis; params: (places that hold what they hold in order,)."""
    return lambda xp, x, *, params: getattr(xp, name)(x, params[0], axis=-1)


def _lexsort(xp: Namespace, *keys: Block, params: Params) -> Block:
    return xp.lexsort(keys, axis=-1)


def _searchsorted(xp: Namespace, row: Block, sought: Block, *, params: Params) -> Block:
    return xp.asarray(searchsorted(xp, row, sought, params[0]))


def _sorter(xp: Namespace, order: Block, *, params: Params) -> Block:
    (outside,) = xp.nonzero((order < 0) | (order >= params[0]))
    if outside.shape[0]:
        raise ValueError("Sorter index out of range.")
    return order


def _searchsorted_by(xp: Namespace, row: Block, order: Block, sought: Block, *, params: Params) -> Block:
    row = xp.take(row, _sorter(xp, order, params=row.shape), axis=0)
    return xp.asarray(searchsorted(xp, row, sought, params[0]))


def _isin(xp: Namespace, row: Block, x: Block, *, params: Params) -> Block:
    """Return which elements are among those of a row that has some; params: (whether it is in order,)."""
    if xp is np and x.dtype.kind in "biu" and (found := _looked_up(row, x)) is not None:
        return found
    if not params[0]:
        row = sort(xp, row, params=(False, False))
    at = xp.minimum(searchsorted(xp, row, x, "left"), xp.asarray(row.shape[0] - 1, **placed(xp, row)))
    return xp.reshape(xp.take(row, xp.reshape(at, (-1,)), axis=0), x.shape) == x


def _looked_up(row: HostArray, x: HostArray) -> HostArray | None:
    """Return which integers are among those of a row, by a table of those between its least and its largest; None where
    that would have many more elements than both.
    """
    dtype = np.dtype(f"u{x.itemsize}")
    least, most = row.min(), row.max()
    n = int(most) - int(least) + 1
    if n > DENSE * (row.size + x.size):
        return None
    # Modulo what the dtype has, the distance from the least is less than n for those in between, and for no others.
    first, ends = least.view(dtype), np.asarray(n, np.uint64)
    is_there = np.zeros(n + 1, np.bool_)
    is_there[np.subtract(row.view(dtype), first).astype(np.intp)] = True
    found = np.empty(x.shape, np.bool_)
    sought, out = x.reshape(-1), found.reshape(-1)
    for begin in range(0, x.size, SLICE):
        here = np.subtract(sought[begin : begin + SLICE].view(dtype), first)
        at = np.minimum(here, ends, dtype=np.uint64).view(np.int64)
        is_there.take(at, out=out[begin : begin + SLICE], mode="clip")
    return found


def _interp(xp: Namespace, x: Block, knots: Block, values: Block, *, params: Params) -> Block:
    return xp.asarray(xp.interp(x, knots, values))


def _of_rows(name: str) -> Callable[..., Block]:
    """Return a function of ``xp`` along the last axis."""

    def kernel(xp: Namespace, x: Block, *, params: Params) -> Block:
        is_numpys = xp is np and name == "median"
        of_nothing = quotient_name(x.ndim - 1, x.dtype) if is_numpys else "divide"
        with named("reduce" if x.shape[-1] else of_nothing):  # the sum of the two in the middle, or 0 / 0
            return _row_by_row(xp, x, lambda rows, **own: xp.asarray(combine(xp, name)(rows, axis=-1, **own)), name)

    return kernel


def _row_by_row(xp: Namespace, x: Block, function: Callable[..., Block], name: str) -> Block:
    """Return what a function makes of the last axis of a block; of some rows at a time where it has many, in memory in
    which it may order them. Of all of them it would make a copy, or two. Those that leave out nan go row by row anyway.
    """
    rows, n = x.shape[:-1], x.shape[-1]
    if xp is not np or x.nbytes <= ROWS_NBYTES or not rows or name.startswith("nan"):
        return function(x)
    extents = slice_extents(rows, max(1, ROWS_NBYTES // (n * x.itemsize)))
    own, out = POOL.take((*extents, n), x.dtype), None
    for box in boxes(rows, extents, range(len(rows))):
        here = own[tuple([slice(0, s.stop - s.start) for s in box])]
        here[...] = x[box]
        made = function(here, overwrite_input=True)
        if out is None:
            out = POOL.take((*rows, *made.shape[len(rows) :]), made.dtype)
        out[box] = made
    return out


def _quantiles(name: str) -> Callable[..., Block]:
    """Return a function of ``xp``; params: (method, whether the one quantile is a Python number)."""

    def kernel(xp: Namespace, x: Block, q: Block, *, params: Params) -> Block:
        method, is_weak = params

        def of(rows: Block, **own: Any) -> Block:
            found = combine(xp, name)(rows, q[0].item() if is_weak else q, axis=-1, method=method, **own)
            return xp.asarray(found)[..., None] if is_weak else xp.moveaxis(found, 0, -1)

        return _row_by_row(xp, x, of, name)

    return kernel


#: As `tables.BLOCK`: ``(xp, *blocks, params=params) -> block``, or a tuple of blocks.
BLOCK: dict[str, Callable[..., Any]] = {
    "argpartition": _partitioned("argpartition"),
    "argsort": argsort,
    "between_tiles": _between_tiles,
    "bincount_tiles": _bincount_tiles,
    "compress_tiles": _compress_tiles,
    "count_tiles": _count_tiles,
    "first_tiles": _first_tiles,
    "interp": _interp,
    "isin": _isin,
    "lexsort": _lexsort,
    "median": _of_rows("median"),
    "merge_tiles": _merge_tiles,
    "nanmedian": _of_rows("nanmedian"),
    "nanquantile": _quantiles("nanquantile"),
    "partition": _partitioned("partition"),
    "pick_tiles": _pick_tiles,
    "quantile": _quantiles("quantile"),
    "rank_tiles": _rank_tiles,
    "search_tiles": _search_tiles,
    "searchsorted": _searchsorted,
    "searchsorted_by": _searchsorted_by,
    "sort": sort,
    "sorter": _sorter,
    "sort_tiles": _sort_tiles,
    "within_tiles": _within_tiles,
}
