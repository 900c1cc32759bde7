"""W3: an array from blocks of one shape to blocks of another.

Goal at S: faster than dask.array in geometric mean. The first resharding of a kind is planned and lowered before the
clock starts, for all systems alike; `track_first_seconds` is what it takes.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .checks import same_boxes
from .inputs import Source
from .ratios import Goal, Ratio, exactly, interleaved, ratio
from .sizes import SIZE, of_size
from .systems import SYSTEMS
from .workloads import MEMORY, Workload

COMPARED = ("dask.array", "distarray")
#: What `cluster.py` compares: dask has two ways to exchange blocks.
DISTRIBUTED_SYSTEMS = ("dask.array-tasks", "dask.array-p2p", "dask-array", "distarray")


class Variant(NamedTuple):
    """Shape and dtype of the array, and the shapes of its blocks before and after."""

    shape: tuple[int, ...]
    dtype: str
    source: tuple[int, ...]
    target: tuple[int, ...]


def _square(n: int, source: Callable[[int], tuple[int, int]], target: Callable[[int], tuple[int, int]]) -> Variant:
    return Variant((n, n), "f8", source(n), target(n))


#: Of square arrays. At M/8 arrays have an eighth of their bytes at M; at M/16 they fit into memory, 1.6 GB each.
SIDES = {"XS": 256, "S": 2816, "M/16": 14336, "M/8": 20224, "M": 57344}

#: By name, then size.
VARIANTS: dict[str, dict[str, Variant]] = {
    "swap axes": {size: _square(n, lambda n: (n, n // 64), lambda n: (n // 64, n)) for size, n in SIDES.items()},
    "tiles to rows": {
        size: _square(n, lambda n: (n // 16, n // 16), lambda n: (n // 128, n)) for size, n in SIDES.items()
    },
    "heal": {size: _square(n, lambda n: (n // 64, n // 64), lambda n: (n // 16, n // 16)) for size, n in SIDES.items()},
    "co-prime": {
        "XS": Variant((300, 266), "f8", (100, 100), (99, 99)),
        "S": Variant((3000, 2664), "f8", (1000, 1000), (999, 999)),
        "M/16": Variant((14250, 14236), "f8", (1000, 1000), (999, 999)),
        "M/8": Variant((20000, 19980), "f8", (1000, 1000), (999, 999)),
        "M": Variant((57000, 56943), "f8", (1000, 1000), (999, 999)),
    },
    "pancake to pencil": {
        "XS": Variant((32, 91, 18), "f4", (1, 91, 18), (8, 10, 18)),
        "S": Variant((1024, 91, 180), "f4", (1, 91, 180), (256, 10, 18)),
        "M/16": Variant((375, 721, 1440), "f4", (1, 721, 1440), (125, 72, 144)),
        "M/8": Variant((750, 721, 1440), "f4", (1, 721, 1440), (250, 72, 144)),
        "M": Variant((6000, 721, 1440), "f4", (1, 721, 1440), (2000, 72, 144)),
    },
}


def values(variant: Variant) -> NDArray[Any]:
    """Distinct values; of float32 modulo 2**24, which it holds exactly."""
    n = np.arange(math.prod(variant.shape))
    return (n if variant.dtype == "f8" else n % 2**24).astype(variant.dtype).reshape(variant.shape)


def source(system: str, variant: Variant) -> Any:
    """The array in its blocks, placed."""
    xp = SYSTEMS[system].xp
    if system == "distarray":
        return (xp.asarray(values(variant), team=xp.Team((2,), ("A",))).rechunk(variant.source) + 0).persist()
    return xp.from_array(values(variant), chunks=variant.source).persist()


def reshard(x: Any, variant: Variant) -> Any:
    """The array in the other blocks."""
    return x.rechunk(variant.target).persist()


# ---------------------------------------------------------------------------------------------------- on a cluster


def _numbered(dtype: str, index: NDArray[np.int64]) -> NDArray[np.int64]:
    return index if dtype == "f8" else index % 2**24


def _total(block: NDArray[Any]) -> NDArray[np.int64]:
    return block.sum(dtype=np.int64, keepdims=True)


def _n_blocks(variant: Variant) -> tuple[int, ...]:
    return tuple(-(-n // b) for n, b in zip(variant.shape, variant.target, strict=True))


def resharded(target: tuple[int, ...], xp: Any, x: Any) -> tuple[Any, ...]:
    return (x.rechunk(target),)


def summed_blocks(target: tuple[int, ...], grid: tuple[int, ...], xp: Any, x: Any) -> tuple[Any, ...]:
    """The sum of every target block: for arrays that are larger than the memory."""
    return (xp.map_blocks(_total, x.rechunk(target), dtype="i8", chunks=tuple((1,) * n for n in grid)),)


def _sums(source: Source, target: tuple[int, ...], grid: tuple[int, ...]) -> NDArray[np.int64]:
    sums = np.empty(grid, np.int64)
    for place in np.ndindex(grid):
        box = [slice(i * b, min((i + 1) * b, n)) for i, b, n in zip(place, target, source.shape, strict=True)]
        sums[place] = source.part(*box).sum(dtype=np.int64)
    return sums


def workload(name: str, size: str = SIZE) -> Workload:
    """A variant for `cluster.py`: the array in its new blocks, or from M on their sums."""
    variant = VARIANTS[name][size]
    x = Source(variant.shape, variant.dtype, partial(_numbered, variant.dtype), variant.source)
    grid = _n_blocks(variant)

    def check(results: Sequence[Any]) -> None:
        if size in MEMORY:
            np.testing.assert_array_equal(np.asarray(results[0]), _sums(x, variant.target, grid))
        else:
            same_boxes(results[0], x)

    program = partial(summed_blocks, variant.target, grid) if size in MEMORY else partial(resharded, variant.target)
    inside = x.nbytes > MEMORY.get(size, x.nbytes)
    return Workload(f"W3 reshard, {name}", program, {"x": x}, check, inside)


# --------------------------------------------------------------------------------------------------------- for asv


def ratio_to_dask(name: str, size: str = SIZE) -> Ratio:
    """Time of distarray over that of dask.array."""
    variant = of_size(VARIANTS[name], size)

    def prepared(system: str) -> Callable[[], object]:
        x = source(system, variant)
        return lambda: reshard(x, variant)

    taken = interleaved({system: prepared(system) for system in COMPARED})
    return ratio(taken["distarray"], taken["dask.array"])


def geometric_mean(size: str = SIZE) -> Ratio:
    """Of the ratios of all variants."""
    return exactly(math.exp(sum(math.log(ratio_to_dask(name, size).median) for name in VARIANTS) / len(VARIANTS)))


def goals(size: str = SIZE) -> list[Goal]:
    """Where the speed of resharding is claimed."""
    return [Goal("reshard / dask.array, geometric mean", lambda: geometric_mean(size), 1.0)]


class Reshard:
    params = (list(VARIANTS), [SIZE], list(COMPARED))
    param_names = ("variant", "size", "system")
    timeout = 600

    def setup(self, variant: str, size: str, system: str) -> None:
        self.variant = of_size(VARIANTS[variant], size)
        self.x = source(system, self.variant)

    def time_reshard(self, variant: str, size: str, system: str) -> None:
        reshard(self.x, self.variant)


class FirstReshard:
    params = (list(VARIANTS), [SIZE])
    param_names = ("variant", "size")
    timeout = 600

    def track_first_seconds(self, name: str, size: str) -> float:
        variant = of_size(VARIANTS[name], size)
        x = source("distarray", variant)
        start = time.perf_counter()
        reshard(x, variant)
        return time.perf_counter() - start

    track_first_seconds.unit = "seconds"  # type: ignore[attr-defined]  # asv's attribute
