"""Random programs give numpy's results on any team, cut, window, dtype, thread and cluster (B-7, B-17).

A program is a list of source lines that mean the same with ``xp = numpy`` and ``xp = distarray``. Line by line it is
written by a grammar that looks at numpy's names, and run by both. Where numpy raises, distarray raises the same class
of error and nothing changes. What fails is printed as a script, with the lines that it does not need taken out.

Numbers are compared exactly. What rounds in another order than numpy (sums of floats, products of matrices ...) is
compared within what rounding explains, and numpy then goes on with distarray's numbers, so that nothing that depends on
them drifts apart.
"""

from __future__ import annotations

import ast
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.testing import poisoned_buffers

pytestmark = pytest.mark.filterwarnings("ignore")

#: Programs under `slow`, in process and on clusters; so many that a bug of one operation on one cut is met.
N_SLOW = int(os.environ.get("DISTARRAY_PROGRAMS", "20000"))
N_SLOW_CLUSTER = N_SLOW // 10
#: How many programs one slow test runs: what fails is found soon, and time limits hold.
CHUNK = 500
MOST_ELEMENTS = 400
MOST_NAMES = 9

DTYPES = "bool i1 i4 i8 u1 u2 u8 f2 f4 f8 f8 c8 c16".split()
TEAMS = [None, (1,), (2,), (3,), (4,), (2, 2), (3, 2), (2, 2, 2), (1, 3), (8,)]
AXES = "rcdk"

Names = dict[str, Any]
Row = Callable[["Grammar"], str]


# ---------------------------------------------------------------------------------------------------- the grammar


class Grammar:
    """Draws lines that fit the names there are.

    Parameters
    ----------
    rng
        Every choice comes of it.
    names
        numpy's arrays by name; read, never changed here.
    axes
        Names of the mesh axes that arrays may be cut over.
    """

    def __init__(self, rng: np.random.Generator, names: Names, axes: tuple[str, ...]) -> None:
        self.rng, self.names, self.axes = rng, names, axes

    def one(self, choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def name(self, kinds: str = "biufc", ndim: int = 0, where: Callable[[Any], bool] = lambda x: True) -> str:
        """A name of an array of these kinds with at least `ndim` axes; raises LookupError if there is none."""
        fits = [n for n, x in self.names.items() if x.dtype.kind in kinds and x.ndim >= ndim and where(x)]
        if not fits:
            raise LookupError(kinds)
        return str(self.one(fits))

    def like(self, name: str, kinds: str = "biufc") -> str:
        """A name that broadcasts with another, or a number."""
        x = self.names[name]
        fits = [n for n, y in self.names.items() if y.dtype.kind in kinds and _broadcasts(x.shape, y.shape)]
        return str(self.one([*fits, self.scalar(kinds)]))

    def scalar(self, kinds: str = "biufc") -> str:
        numbers = {"b": "True", "i": "3", "u": "2", "f": "1.5", "c": "(2-1j)"}
        return numbers[self.one([k for k in kinds if k in numbers])]

    def axis(self, x: Any) -> int:
        return self.number(-x.ndim, x.ndim - 1)

    def axes_of(self, x: Any) -> str:
        """An ``axis=`` of a reduction."""
        if not x.ndim or self.chance(0.25):
            return "None"
        if x.ndim > 1 and self.chance(0.3):
            chosen = self.rng.permutation(x.ndim)[: self.number(1, x.ndim)]
            return str(tuple(int(a) for a in chosen))
        return str(self.axis(x))

    def basic(self, shape: tuple[int, ...]) -> str:
        """The text of a basic index."""
        items = []
        for n in shape:
            kind = self.one("slice slice slice step int all all none ellipsis end".split())
            if kind == "end":
                break
            if kind == "ellipsis":
                items.append("...")
                break
            if kind == "none":
                items.append("None")
            if kind == "int" and n:
                items.append(str(self.number(-n, n - 1)))
            elif kind in ("slice", "step"):
                low, high = sorted((self.number(-1, n), self.number(-1, n + 1)))
                step = self.one([2, 3, -1, -2, -3]) if kind == "step" else None
                ends = (high, low) if step and step < 0 else (low, high)
                texts = ["" if self.chance(0.3) else str(e) for e in ends]
                items.append(":".join(texts) + (f":{step}" if step else ""))
            else:
                items.append(":")
        return ", ".join(items) or "..."

    def integers(self, n: int, *, distinct: bool = False) -> str:
        """A list of positions on an axis of `n`."""
        if not n:
            return "[]"
        k = self.number(0, min(n, 5))
        found = self.rng.permutation(n)[:k] if distinct else self.rng.integers(-n, n, k)
        return str([int(i) for i in found])

    def advanced(self, name: str) -> str:
        """The text of an index with integer arrays or a mask."""
        x = self.names[name]
        kind = self.one("mask first pair mixed axis_mask open".split())
        if kind == "first" or x.ndim < 2:
            return self.integers(x.shape[0], distinct=True)
        if kind == "mask":
            return f"{name} > {self.one([0, 1, 2])}" if x.dtype.kind in "iuf" else f"{name} != 0"
        if kind == "pair":
            k = self.number(1, 3)
            return ", ".join(str([self.number(0, max(n - 1, 0)) for _ in range(k)]) for n in x.shape[:2])
        if kind == "mixed":
            return (
                f"{self.basic(x.shape[:1]) if self.chance(0.5) else ':'}, {self.integers(x.shape[-1], distinct=True)}"
            )
        if kind == "open":
            rows, columns = (self.integers(n, distinct=True) for n in x.shape[:2])
            return f"xp.ix_(np.array({rows}, dtype=int), np.array({columns}, dtype=int))"
        return f"np.array({[self.chance(0.5) for _ in range(x.shape[0])]}, dtype=bool)"

    def data(self) -> str:
        """``make(...)``: an array of small distinct numbers, cut as drawn."""
        ndim = self.one([0, 1, 1, 2, 2, 2, 3])
        shape = tuple(self.one([0, 1, 2, 3, 4, 5, 6, 7, 9]) if self.chance(0.9) else 12 for _ in range(ndim))
        free = list(self.rng.permutation(self.axes))
        cut: list[Any] = []
        for _ in shape:
            k = self.number(0, len(free)) if self.chance(0.7) else 0
            cut.append(tuple(str(a) for a in free[:k]) or None)
            free = free[k:]
        pin = f", sharding={tuple(cut)}" if self.axes and shape and self.chance(0.8) else ""
        return f"make({shape}, '{self.one(DTYPES)}', {self.number(0, 99)}{pin})"


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(n in (1, m) or m == 1 for n, m in zip(a[::-1], b[::-1]))


def make(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Small numbers in no order, of which sums of few are exact in any dtype."""
    numbers = np.random.default_rng(seed).integers(-8, 9, shape)
    if dtype[0] == "u":
        numbers = np.abs(numbers)
    if dtype[0] in "fc":
        return (
            (numbers / 4).astype(dtype) + (np.flip(numbers) * 1j).astype(dtype)
            if dtype[0] == "c"
            else (numbers / 4).astype(dtype)
        )
    return numbers.astype(dtype)


def has_elements(x: Any) -> bool:
    return bool(x.size > 0)


def is_wide(x: Any) -> bool:
    """Whether every axis has two elements at least, which differences, edges and reflections need."""
    return min(x.shape) > 1


def is_countable(x: Any) -> bool:
    """Whether the elements may be bins of a count: few, and of a dtype that holds them all."""
    return bool(x.dtype.itemsize > 1 and x.size and np.abs(x).max() < 300)


def is_square(x: Any) -> bool:
    """Whether it has a main diagonal: any matrix, and what has more axes of one length."""
    return x.ndim == 2 or len(set(x.shape)) == 1


def is_table(x: Any) -> bool:
    """Whether it is a sample for a covariance."""
    return x.size > 1 and x.ndim in (1, 2)


def is_transformed(x: Any) -> bool:
    """Whether numpy has a Fourier transform of it."""
    return x.dtype.char != "e" and min(x.shape) > 0


def lines(*texts: str, kinds: str = "biufc", ndim: int = 0, where: Callable[[Any], bool] = lambda x: True) -> Row:
    """A row of the grammar from templates, one of which is drawn.

    ``{x}`` is an array of the kinds and axes wanted, ``{y}`` what broadcasts with it, ``{ax}`` one of its axes,
    ``{axes}`` an ``axis=`` of a reduction, ``{k}`` a small number, ``{i}`` positions on its first axis, ``{s}`` a
    number of its kind, ``{ix}`` a basic index, ``{adv}`` an index with arrays, ``{v}`` any other array.
    """

    def row(g: Grammar) -> str:
        text: str = g.one(texts)
        x = g.name(kinds, ndim, where)
        array = g.names[x]
        values: dict[str, Any] = {"x": x, "k": g.number(-3, 4), "s": g.scalar(array.dtype.kind)}
        if "{y}" in text:
            values["y"] = g.like(x, kinds)
        if "{v}" in text:
            values["v"] = g.name(kinds)
        if "{ax}" in text:
            values["ax"] = g.axis(array)
        if "{axes}" in text:
            values["axes"] = g.axes_of(array)
        if "{i}" in text:
            values["i"] = g.integers(array.shape[0])
        if "{ix}" in text:
            values["ix"] = g.basic(array.shape)
        if "{adv}" in text:
            values["adv"] = g.advanced(x)
        return text.format(**values)

    return row


def _reshape(g: Grammar) -> str:
    x = g.name()
    size = g.names[x].size
    k = g.one([k for k in range(1, 7) if size % k == 0])
    m = g.one([m for m in range(1, 5) if (size // k) % m == 0])
    order = ", order='F'" if g.chance(0.1) else ""
    return f"{x}.reshape({g.one([(k, m, size // k // m), (size // k, k), (size,)])}{order})"


def _transpose(g: Grammar) -> str:
    x = g.name(ndim=2)
    return f"{x}.transpose({tuple(int(a) for a in g.rng.permutation(g.names[x].ndim))})"


def _joined(g: Grammar) -> str:
    x = g.name(ndim=1)
    array = g.names[x]
    axis = g.axis(array) % array.ndim
    fits = [
        n
        for n, y in g.names.items()
        if y.ndim == array.ndim and all(a == axis or p == q for a, (p, q) in enumerate(zip(array.shape, y.shape)))
    ]
    parts = [x, *(g.one(fits) for _ in range(g.number(0, 2)))]
    same = [n for n in fits if g.names[n].shape == array.shape]
    if g.chance(0.4):
        return f"xp.stack([{x}, {g.one(same)}], axis={g.number(-array.ndim - 1, array.ndim)})"
    return f"xp.concatenate([{', '.join(parts)}], axis={axis})"


def _matmul_of(g: Grammar, kinds: str) -> str:
    x = g.name(kinds, 1, lambda x: x.ndim <= 2)
    k = g.names[x].shape[-1]
    fits = [n for n, y in g.names.items() if y.ndim in (1, 2) and y.shape[0] == k and y.dtype.kind in kinds]
    y = g.one(fits) if fits else f"{x}.swapaxes(0, -1)"
    return str(g.one(["{x} @ {y}", "xp.dot({x}, {y})", "xp.tensordot({x}, {y}, axes=1)"]).format(x=x, y=y))


def _where(g: Grammar) -> str:
    x = g.name()
    return f"xp.where({x} != 0, {x}, {g.like(x)})"


def _write(g: Grammar) -> str:
    x = g.name(ndim=1)
    index = g.basic(g.names[x].shape) if g.chance(0.6) else g.advanced(x)
    dtype = g.names[x].dtype
    value = g.scalar() if g.chance(0.4) else g.name(where=lambda y: _casts(y, dtype))
    return f"{x}[{index}] {g.one(['=', '=', '=', '+=', '*=', '-='])} {value}"


def _astype(g: Grammar) -> str:
    dtype = g.one("bool i4 i8 f4 f8 c16".split())
    return f"{g.name('biuf', where=lambda x: _casts(x, np.dtype(dtype)))}.astype('{dtype}')"


def _casts(x: Any, dtype: Any) -> bool:
    """Whether numbers mean the same in another dtype on any machine: casts of what does not fit are undefined."""
    if dtype.kind in "fcb" or x.dtype.kind in "biu":
        return True
    return bool(is_tame(x) and (dtype.kind == "i" or np.all(x.real >= 0)) and np.abs(x).max(initial=0) < 100)


def is_tame(x: Any) -> bool:
    """Whether what rounds in sums and products of these numbers can be told."""
    return bool(np.isfinite(x).all() and np.abs(x).max(initial=0) < 1e4)


#: Lines that make a new name, exact in any order.
EXACT: list[tuple[int, Row]] = [
    (4, lambda g: g.data()),
    (1, lambda g: f"xp.{g.one(['zeros', 'ones'])}({(g.number(0, 5), g.number(1, 5))}, dtype='{g.one(DTYPES)}')"),
    (1, lambda g: f"xp.arange({g.number(-3, 3)}, {g.number(4, 20)}, {g.number(1, 3)})"),
    (1, lambda g: f"xp.eye({g.number(0, 5)}, {g.number(1, 5)}, k={g.number(-2, 2)}, dtype='{g.one(DTYPES)}')"),
    (1, lambda g: f"xp.full({(g.number(1, 5), g.number(1, 5))}, {g.scalar()})"),
    # views
    (6, lines("{x}[{ix}]", ndim=1)),
    (3, _reshape),
    (2, _transpose),
    (2, lines("xp.flip({x}, axis={ax})", "xp.flip({x})", "{x}[::-1]", ndim=1)),
    (2, lines("{x}.T", "{x}.ravel()", "{x}[None]", "{x}[..., None]", "{x}.squeeze()")),
    (1, lines("xp.moveaxis({x}, {ax}, 0)", "xp.swapaxes({x}, 0, {ax})", "xp.expand_dims({x}, {ax})", ndim=1)),
    (1, lines("{x}.diagonal()", "xp.diagonal({x}, {k})", "xp.diagonal({x}, axis1=-1, axis2=0)", ndim=2)),
    (1, lines("{x}.real", "{x}.imag", kinds="c")),
    (1, lines("xp.broadcast_to({x}, (2, *{x}.shape))", "xp.atleast_2d({x})", "xp.atleast_3d({x})")),
    (1, lines("xp.array_split({x}, 3, axis={ax})[1]", "xp.array_split({x}, 2)[0]", ndim=1)),
    # copies and casts
    (2, lines("{x}.copy()", "{x}.flatten()", "xp.asarray({x})", "{x} + 0", "xp.ascontiguousarray({x})")),
    (2, _astype),
    # elementwise
    (6, lines(*(f"{{x}} {o} {{y}}" for o in ("+", "-", "*", "==", "!=")))),
    (3, lines(*(f"{{x}} {o} {{y}}" for o in ("<", "<=", ">", ">=", "//", "%")), kinds="iuf")),
    (2, lines("xp.maximum({x}, {y})", "xp.minimum({x}, {y})", "xp.fmax({x}, {y})", kinds="biuf")),
    (1, lines("{x} & {y}", "{x} | {y}", "{x} ^ {y}", "~{x}", "{x} >> 1", kinds="biu")),
    (2, lines("-{x}", "abs({x})", "xp.sign({x})", "xp.square({x})", "{x} ** 2", kinds="iufc")),
    (1, lines("xp.floor({x})", "xp.ceil({x})", "xp.trunc({x})", "xp.rint({x})", "xp.signbit({x})", kinds="f")),
    (1, lines("xp.isfinite({x})", "xp.isnan({x})", "xp.logical_not({x})", "xp.conj({x})", "xp.logical_and({x}, {y})")),
    (1, lines("xp.clip({x}, -1, 2)", "{x}.clip(None, 1)", "{x}.round(1)", "xp.nan_to_num({x})", kinds="if")),
    (3, _where),
    # reductions that do not round
    (3, lines("{x}.sum(axis={axes})", "xp.sum({x}, axis={axes}, keepdims=True)", kinds="biu")),
    (1, lines("{x}.prod(axis={axes})", "xp.prod({x}, axis={axes}, initial=2)", kinds="biu")),
    (3, lines("{x}.max(axis={axes})", "{x}.min(axis={axes}, keepdims=True)", "xp.ptp({x}, axis={axes})", kinds="iuf")),
    (1, lines("xp.max({x}, axis={axes}, initial=1)", "xp.amin({x}, axis={axes}, initial=3)", kinds="iuf")),
    (1, lines("xp.max({x}, axis={axes}, initial=1, where={x} > 0)", "xp.nanmax({x}, axis={axes})", kinds="iuf")),
    (2, lines("{x}.any(axis={axes})", "{x}.all(axis={axes}, keepdims=True)", "xp.count_nonzero({x}, axis={axes})")),
    (2, lines("{x}.argmax(axis={ax})", "{x}.argmin(axis={ax}, keepdims=True)", "{x}.argmax()", kinds="biuf", ndim=1)),
    (
        2,
        lines(
            "{x}.cumsum(axis={ax})",
            "{x}.cumsum()",
            "xp.cumulative_sum({x}.ravel(), include_initial=True)",
            kinds="biu",
            ndim=1,
        ),
    ),
    (1, lines("np.maximum.accumulate({x}, axis={ax})", "np.minimum.reduce({x}, axis={axes})", kinds="iuf", ndim=1)),
    (1, lines("np.add.reduceat({x}, [0], axis={ax})", "np.add.accumulate({x}, axis={ax})", kinds="iu", ndim=1)),
    (1, lines("xp.diff({x}, axis={ax})", "xp.diff({x}, n=2, axis={ax})", "xp.ediff1d({x})", kinds="iufc", ndim=1)),
    # order
    (2, lines("xp.sort({x}, axis={ax})", "xp.sort({x}, axis=None)", kinds="biuf", ndim=1)),
    (2, lines("xp.argsort({x}, axis={ax}, stable=True)", "xp.sort({x}, axis={ax})[::-1]", kinds="biuf", ndim=1)),
    (
        1,
        lines(
            "xp.unique({x})",
            "xp.unique({x}, return_counts=True)[1]",
            "xp.unique({x}, return_inverse=True)[1]",
            kinds="biuf",
        ),
    ),
    (1, lines("xp.unique({x}, axis={ax})", "xp.unique({x}, return_index=True)[1]", kinds="biu", ndim=1)),
    (1, lines("xp.searchsorted(xp.sort({x}.ravel()), {v})", "xp.digitize({x}, [-1, 0, 2])", kinds="iuf")),
    (
        1,
        lines(
            "xp.median({x}, axis={axes})",
            "xp.partition({x}, 0, axis={ax})[..., :0]",
            kinds="iu",
            ndim=1,
            where=has_elements,
        ),
    ),
    (1, lines("xp.nonzero({x})[0]", "xp.argwhere({x})", "xp.flatnonzero({x})", ndim=1)),
    (
        1,
        lines(
            "xp.isin({x}, {v})",
            "xp.union1d({x}, {v})",
            "xp.intersect1d({x}, {v})",
            "xp.setdiff1d({x}, {v})",
            kinds="iu",
        ),
    ),
    (
        1,
        lines(
            "xp.bincount(abs({x}.ravel()))", "xp.histogram({x}, bins=[-4, 0, 1, 5])[0]", kinds="i", where=is_countable
        ),
    ),
    # movement
    (3, _joined),
    (2, lines("xp.roll({x}, {k}, axis={ax})", "xp.roll({x}, {k})", "xp.rot90({x}, {k}, (0, {x}.ndim - 1))", ndim=1)),
    (2, lines("xp.tile({x}, 2)", "xp.tile({x}, (2, 1))", "xp.repeat({x}, 2, axis={ax})", "xp.repeat({x}, 2)", ndim=1)),
    (
        2,
        lines(
            "xp.pad({x}, 1)",
            "xp.pad({x}, (2, 1), mode='edge')",
            "xp.pad({x}, 1, mode='wrap')",
            "xp.pad({x}, 1, mode='reflect')",
            ndim=1,
            where=is_wide,
        ),
    ),
    (1, lines("xp.tril({x}, {k})", "xp.triu({x}, {k})", "xp.trace({x})", kinds="iu", ndim=2)),
    (1, lines("xp.diag({x}.ravel()[:6], {k})", "xp.vander({x}.ravel()[:4], 3)", kinds="iu")),
    (2, lines("xp.take({x}, {i}, axis=0)", "xp.delete({x}, {i}, axis=0)", "xp.insert({x}, 0, 4, axis={ax})", ndim=1)),
    (
        1,
        lines(
            "xp.append({x}, {v})",
            "xp.hstack([{x}.ravel(), {v}.ravel()])",
            "xp.resize({x}, (3, 4))",
            "xp.compress([True, False, True], {x})",
        ),
    ),
    (1, lines("xp.take_along_axis({x}, xp.argsort({x}, axis=0, stable=True), axis=0)", kinds="iuf", ndim=1)),
    (4, lines("{x}[{adv}]", ndim=1)),
    (
        1,
        lines(
            "xp.extract({x} != 0, {x})",
            "xp.select([{x} != 0], [{x}], 0)",
            "xp.choose(({x} != 0).astype(int), [{x}, 0])",
        ),
    ),
    (1, lines("windows({x}, 2, axis=0)", ndim=1, where=lambda x: x.shape[0] > 1)),
    (
        1,
        lines(
            "xp.outer({x}, {v})", "xp.kron({x}.ravel()[:4], {v}.ravel()[:4])", "xp.meshgrid({x}, {v})[0]", kinds="iu"
        ),
    ),
    (
        1,
        lines(
            "xp.apply_along_axis(lambda v: v[::-1], {ax}, {x})",
            "xp.gradient({x}, axis={ax})",
            kinds="if",
            ndim=1,
            where=is_wide,
        ),
    ),
    (2, lambda g: _matmul_of(g, "iu")),
]


#: Lines whose results may round otherwise than numpy's.
ROUNDS: list[tuple[int, Row]] = [
    (3, lines("{x}.sum(axis={axes})", "{x}.mean(axis={axes})", "xp.sum({x}, axis={axes}, keepdims=True)", kinds="fc")),
    (1, lines("{x}.mean(axis={axes})", "{x}.var(axis={axes})", "xp.std({x}, axis={axes})", kinds="iu")),
    (
        1,
        lines("{x}.var(axis={axes})", "{x}.std(axis={axes}, keepdims=True)", "xp.nanmean({x}, axis={axes})", kinds="f"),
    ),
    (
        1,
        lines("{x}.cumsum(axis={ax})", "xp.average({x}, axis={ax})", "xp.trapezoid({x}, axis={ax})", kinds="f", ndim=1),
    ),
    (
        1,
        lines(
            "xp.sqrt(abs({x}))", "xp.exp(-abs({x}))", "xp.sin({x})", "xp.arctan({x})", "xp.log1p(abs({x}))", kinds="f"
        ),
    ),
    (1, lines("{x} / {y}", "xp.hypot({x}, {y})", "xp.float_power(abs({x}) + 1, 2)", kinds="iuf")),
    (2, lambda g: _matmul_of(g, "fc")),
    (1, lines("xp.einsum('i...,i...->...', {x}, {x})", "xp.inner({x}, {x})", "xp.vdot({x}, {x})", kinds="f", ndim=1)),
    (
        1,
        lines(
            "xp.fft.fft({x}, axis={ax})",
            "xp.fft.rfft({x}.real, axis={ax})",
            "xp.fft.ifft({x}, n=4)",
            kinds="fc",
            ndim=1,
            where=is_transformed,
        ),
    ),
    (
        1,
        lines(
            "xp.quantile({x}, 0.3, axis={axes})",
            "xp.percentile({x}, [10, 75], axis={axes})",
            kinds="f",
            ndim=1,
            where=has_elements,
        ),
    ),
    (
        1,
        lines(
            "xp.linalg.norm({x})",
            "xp.linalg.norm({x}, axis={ax})",
            "xp.corrcoef({x}.ravel()[:4], {x}.ravel()[:4])",
            kinds="f",
            ndim=1,
        ),
    ),
    (1, lines("xp.convolve({x}.ravel()[:9], {v}.ravel()[:3])", "xp.cov({x})", kinds="f", where=is_table)),
    (1, lambda g: f"xp.linspace({g.number(-3, 3)}, {g.number(4, 9)}, {g.number(1, 20)})"),
]

#: Lines that change what a name refers to.
WRITES: list[tuple[int, Row]] = [
    (6, _write),
    (4, lambda g: (lambda x: f"{x} {g.one(['+=', '*=', '-='])} {g.like(x)}")(g.name())),
    (1, lines("{x}[...] = {v}", "{x}[{ix}] = {v}", "{x}[{adv}] = {s}", "{x}[{adv}] += {s}", ndim=1)),
    (1, lines("{x}.fill({s})", "{x}.fill(2)", "xp.copyto({x}, {y})", "xp.copyto({x}, {y}, where={x} != 0)")),
    (2, lines("xp.fill_diagonal({x}, {s})", "xp.fill_diagonal({x}[1:], 5)", ndim=2, where=is_square)),
    (1, lines("xp.put({x}, {i}, {s})", "xp.putmask({x}, {x} != 0, {s})", "xp.place({x}, {x} != 0, [1, 2])", ndim=1)),
    (
        1,
        lines(
            "np.add.at({x}, {i}, {s})",
            "np.multiply.at({x}, ({i},), 2)",
            kinds="iufc",
            ndim=1,
            where=lambda x: x.dtype != np.uint64,
        ),
    ),
    (1, lines("xp.put_along_axis({x}, xp.argmax({x}, axis=0, keepdims=True), 7, axis=0)", kinds="iuf", ndim=1)),
    (1, lines("{x}.sort(axis={ax})", "{x}.sort()", kinds="biuf", ndim=1)),
    (1, lines("np.add({x}, {y}, out={x})", "np.square({x}, out={x})", "np.multiply({x}, {y}, out={x})", kinds="iuf")),
    (1, lines("{x}.real[...] = 2", "{x}.imag[...] = -1", "{x}.imag += {x}.real", kinds="c")),
    (1, lines("{x}.T[...] = 3", "{x}.ravel()[1:] = 1", "{x}[::-1][:2] = 4", "{x}.diagonal()[...] = 1", ndim=2)),
]

#: Lines that look.
LOOKS: list[tuple[int, Row]] = [
    (3, lines("check({x})")),
    (6, lines("keep({x})")),  # computes one array, while others wait
    (
        1,
        lines(
            "seen = {x}.tolist()",
            "seen = str({x})",
            "seen = float({x}.max())",
            "seen = bool({x}.any())",
            kinds="iu",
            where=has_elements,
        ),
    ),
    (2, lines("del {x}")),
]


def _drawn(g: Grammar, rows: list[tuple[int, Row]]) -> str:
    weights = np.array([w for w, _ in rows], float)
    for _ in range(20):
        row = rows[int(g.rng.choice(len(rows), p=weights / weights.sum()))][1]
        try:
            text = row(g)
        except LookupError:
            continue
        if rows is not ROUNDS or all(is_tame(g.names[n]) for n in names_in(text) if n in g.names):
            return text
    return g.data()


#: CPython counts the depth of its syntax trees for all threads together (SystemError: recursion depth mismatch).
_parsing = threading.Lock()


def names_in(text: str) -> list[str]:
    """The names that a line reads or writes."""
    with _parsing:
        tree = ast.parse(text)
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]


def next_line(g: Grammar, fresh: str) -> tuple[str, bool]:
    """The next line of a program, and whether its result may round; `fresh` is the next free name."""
    if len(g.names) < 2:
        return f"{fresh} = {g.data()}", False
    p = g.rng.random()
    if p < 0.5:
        return f"{fresh} = {_drawn(g, EXACT)}", False
    if p < 0.6:
        return f"{fresh} = {_drawn(g, ROUNDS)}", True
    if p < 0.9:
        return _drawn(g, WRITES), False
    return _drawn(g, LOOKS), False


# ------------------------------------------------------------------------------------------------------ running


@dataclass
class Line:
    text: str
    rounds: bool = False


#: What differs from numpy for a reason: how numpy's error begins (None: it takes the call), how ours does, and why.
MEANT = (
    (None, "assignment destination is read-only", "numpy writes no elements to views that it says are read-only"),
    (None, "output array is read-only", "the same of out="),
    ("int() argument must be", "index ", "a call that is wrong twice: positions are looked at first"),
    ("float() argument must be", "index ", "the same, of a complex number for a float"),
    (
        "shape mismatch: value array",
        "index ",
        "a call that is wrong twice: positions are looked at before the value is",
    ),
    (
        None,
        "shape mismatch: value array",
        "numpy takes a value of no elements and any shape for a list of no positions",
    ),
)


def is_meant(numpys: Exception | None, ours: Exception) -> bool:
    """Whether a difference between two errors is one of those that are `MEANT`."""
    return any(
        str(ours).startswith(mine) and (numpys is None if theirs is None else str(numpys).startswith(theirs))
        for theirs, mine, _ in MEANT
    )


class Stopped(Exception):
    """A program met a difference that is meant, after which there is nothing to compare."""


def laid_as(x: Any, y: Any) -> Any:
    """Return a copy of an array whose axes lie in memory as those of another one do."""
    axes = sorted(range(x.ndim), key=lambda axis: -abs(y.strides[axis]))
    return np.array(x.transpose(axes), order="C").transpose(np.argsort(axes)) if axes else np.array(x)


class Pairs:
    """The names of one program in numpy and in distarray, which have to agree after every line."""

    def __init__(self) -> None:
        windows = np.lib.stride_tricks.sliding_window_view
        self.host: Names = {
            "xp": np,
            "np": np,
            "windows": windows,
            "make": lambda *a, sharding=None: make(*a),
            "check": self._check,
            "keep": lambda x: None,
        }
        self.ours: Names = {
            "xp": dx,
            "np": np,
            "windows": dx.sliding_window_view,
            "make": _make_ours,
            "check": lambda x: None,
            "keep": dx.persist,
        }

    @property
    def arrays(self) -> Names:
        return {name: x for name, x in self.host.items() if isinstance(x, np.ndarray)}

    def clear(self) -> None:
        """Let go of all arrays: `self` is among its own names."""
        self.host.clear()
        self.ours.clear()

    def _check(self, x: Any) -> None:
        for name, y in self.arrays.items():
            if y is x:
                compare(y, self.ours[name])

    def run(self, line: Line) -> None:
        """Run a line in both; raises AssertionError where they differ."""
        scale = max(
            (float(np.abs(self.host[n]).max(initial=0)) for n in names_in(line.text) if n in self.arrays), default=0
        )
        try:
            exec(line.text, self.host)
        except NameError:
            return  # its name was made by a line that was taken out, or that raised
        except Exception as error:
            self._raises(line, error)
            return
        try:
            exec(line.text, self.ours)
        except Exception as ours:
            if is_meant(None, ours):
                raise Stopped from ours  # the two have parted: a difference that is meant, and nothing to compare
            raise
        made = line.text.partition(" = ")[0]
        if not made.isidentifier() or made == "seen":
            return
        if np.ndim(self.host[made]) == 0 and not self._is_view(made):
            # Scalars, and what may be one here, are replaced by operators in place; names of a program are arrays.
            self.host[made] = np.array(self.host[made])
            self.ours[made] = dx.asarray(np.asarray(self.ours[made]), copy=True)
        result = self.host[made]
        if isinstance(result, np.ndarray) and not self._is_view(made):
            # What numpy makes of a transposed array lies as that does, and decides which reshapes are views; here what
            # is more than elementwise is in C order.
            if result.base is not None:
                self.ours[made] = self.ours[made].copy()
            self.host[made] = result = laid_as(result, self.ours[made])
        if not isinstance(result, np.ndarray) or result.size > MOST_ELEMENTS or result.dtype.kind not in "biufc":
            del self.host[made], self.ours[made]
        elif line.rounds:
            compare(result, self.ours[made], scale)
            self.host[made] = laid_as(np.asarray(self.ours[made]), self.ours[made])

    def _is_view(self, made: str) -> bool:
        return any(np.may_share_memory(self.host[made], x) for name, x in self.arrays.items() if name != made)

    def _raises(self, line: Line, error: Exception) -> None:
        try:
            exec(line.text, self.ours)
        except Exception as ours:
            agree = isinstance(ours, type(error)) or isinstance(error, type(ours))
            assert agree or is_meant(error, ours), f"numpy raises {error!r}, distarray {ours!r}"
            return
        raise AssertionError(f"numpy raises {error!r}, distarray nothing")

    def check_all(self) -> None:
        """Compare all values, and who shares memory with whom."""
        arrays = list(self.arrays.items())
        for name, x in arrays:
            try:
                compare(x, self.ours[name])
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from None
        for (a, x), (b, y) in zip(arrays, arrays[1:] + arrays[:1]):
            try:
                shared = np.shares_memory(x, y, max_work=1000)
            except np.exceptions.TooHardError:
                continue
            assert dx.shares_memory(self.ours[a], self.ours[b]) == shared, f"{a} and {b} share memory: numpy {shared}"


def _make_ours(shape: tuple[int, ...], dtype: str, seed: int, sharding: Any = None) -> Any:
    return dx.asarray(make(shape, dtype, seed), sharding=sharding)


def compare(host: Any, ours: Any, scale: float | None = None) -> None:
    """Assert equal shape, dtype and values: exactly, or as sums of products of numbers up to `scale` round."""
    found = np.asarray(ours)
    assert (ours.shape, ours.dtype) == (found.shape, found.dtype) == (host.shape, host.dtype)
    if scale is None or host.dtype.kind not in "fc":
        np.testing.assert_array_equal(found, host, strict=True)
    else:
        if scale**2 * MOST_ELEMENTS > float(np.finfo(host.dtype).max):
            # Whether squares or their sums are out of range on the way depends on the order in which they are added.
            both = np.isfinite(found) & np.isfinite(host)
            found, host = found[both], host[both]
        atol = 64 * float(np.finfo(host.dtype).eps) * (1 + scale) ** 2
        np.testing.assert_allclose(found, host, rtol=64 * float(np.finfo(host.dtype).eps), atol=atol)


class Failed(Exception):
    """What a program raised, with the lines that ran."""

    def __init__(self, lines: list[Line], error: Exception) -> None:
        super().__init__(str(error))
        self.lines, self.error = lines, error


@dataclass
class Program:
    """A program that a seed draws, and where it runs.

    Parameters
    ----------
    seed
        Of every choice.
    team
        The arrays' team. None: one of `TEAMS`, drawn.
    is_alone
        Whether no other program runs beside it: options of `dx.config` are those of the process.
    """

    seed: int
    team: Any = None
    is_alone: bool = True

    def __post_init__(self) -> None:
        rng = np.random.default_rng([15, self.seed])
        if self.team is None:
            sizes = TEAMS[int(rng.integers(len(TEAMS)))]
            self.team = None if sizes is None else dx.Team(sizes, tuple(AXES[: len(sizes)]))
        window = [None, None, 0, 1, 3, 7][int(rng.integers(6))]
        # Arrays are one block each unless blocks are so small: then they are cut, planned and moved as large ones.
        block = [None, None, 0, 40][int(rng.integers(4))]
        # All that is small at once, nothing, or some of it.
        eager = [None, None, 0, 64][int(np.random.default_rng([16, self.seed]).integers(4))]
        given = {"window": window, "block-bytes": block, "eager-bytes": eager} if self.is_alone else {}
        self.options = {name: value for name, value in given.items() if value is not None}
        self.rng = rng

    def run(self, lines: Sequence[Line] | None = None) -> list[Line]:
        """Run these lines, or draw lines and run them; raises `Failed` with those that ran where numpy differs."""
        done: list[Line] = []
        pairs = Pairs()
        axes = self.team.axes if isinstance(self.team, dx.Team) else ()
        with (
            np.errstate(all="ignore"),
            dx.use(self.team),
            dx.config.set(self.options) if self.options else nullcontext(),
        ):
            try:
                for number in range(int(self.rng.integers(4, 26)) if lines is None else len(lines)):
                    arrays = pairs.arrays
                    if lines is None and len(arrays) > MOST_NAMES:
                        line = Line(f"del {list(arrays)[int(self.rng.integers(len(arrays)))]}")
                    elif lines is None:
                        line = Line(*next_line(Grammar(self.rng, arrays, axes), f"a{number}"))
                    else:
                        line = lines[number]
                    done.append(line)
                    pairs.run(line)
                pairs.check_all()
            except Stopped:
                pass
            except Exception as error:
                raise Failed(done, error) from error
            finally:
                pairs.clear()
        return done

    def check(self) -> None:
        """Run, and where numpy differs say so with the fewest lines that show it."""
        try:
            self.run()
        except Failed as failure:
            failure = self._shrunk(failure)
            script = "\n    ".join(line.text for line in failure.lines)
            raise AssertionError(
                f"program {self.seed}, {self.team!r}, {self.options}:\n    {script}\n"
                f"{type(failure.error).__name__}: {failure.error}"
            ) from failure.error

    def _shrunk(self, failure: Failed) -> Failed:
        for _ in range(2):
            for at in reversed(range(len(failure.lines))):
                try:
                    self.run(failure.lines[:at] + failure.lines[at + 1 :])
                except Failed as smaller:
                    if type(smaller.error) is type(failure.error):
                        failure = smaller
        return failure


def check(seeds: Sequence[int], team: Any = None, *, is_alone: bool = True) -> None:
    """Run many programs, all of them whatever fails; then say of all that fail."""
    failures = []
    for seed in seeds:
        try:
            Program(seed, team, is_alone).check()
        except AssertionError as error:
            failures.append(str(error))
    assert not failures, f"{len(failures)} of {len(seeds)} programs:\n\n" + "\n\n".join(failures[:10])


def in_threads(seeds: Sequence[int], n_threads: int) -> None:
    """Run programs in several threads at once, each program in one."""
    errors: list[AssertionError] = []

    def work(mine: Sequence[int]) -> None:
        try:
            check(mine, is_alone=False)
        except AssertionError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seeds[k::n_threads],)) for k in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_random_programs_equal_numpy() -> None:
    with poisoned_buffers():
        check(range(150))


@pytest.mark.parametrize("is_helped", [False, True])
def test_random_programs_in_slices_equal_numpy(is_helped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays so small are one slice otherwise, in scratch of their own."""
    sizes = dict.fromkeys(["sliced.REDUCED_SLICE", "sliced.SMALLEST_SLICE", "sliced.LARGEST_SLICE"], 16)
    sizes |= {"program.WHOLE": 4, "interpret.REDUCED_SLICE": 16, "interpret.IN_SLICES": 16}
    if is_helped:
        sizes |= {"threads.HELPED": 1, "interpret.HELPED": 1}
    for name, size in sizes.items():
        monkeypatch.setattr(f"distarray.kernels.{name}", size)
    with poisoned_buffers():
        check(range(300, 400))


def test_random_programs_in_threads_equal_numpy() -> None:
    with poisoned_buffers():
        in_threads(range(150, 250), 4)


@pytest.mark.cluster
def test_random_programs_on_a_cluster_equal_numpy(process_cluster: Any) -> None:
    team = dx.Team((3,), ("r",))
    check(range(250, 262), team)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("start", range(0, N_SLOW, CHUNK))
def test_many_random_programs_equal_numpy(start: int) -> None:
    with poisoned_buffers():
        check(range(start, min(start + CHUNK, N_SLOW)))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_random_programs_in_threads_equal_numpy() -> None:
    with poisoned_buffers():
        in_threads(range(N_SLOW, N_SLOW + N_SLOW // 10), 8)


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("n_threads", [1, 2])
def test_many_random_programs_on_a_cluster_equal_numpy(n_threads: int) -> None:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=3, threads_per_worker=n_threads, processes=True, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        Client(cluster),
    ):
        check(range(N_SLOW_CLUSTER // 2), dx.Team((3,), ("r",)))
