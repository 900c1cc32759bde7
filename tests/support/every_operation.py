"""An expression of every operation: what is true of each is tested on these."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path

import catalogue as ops
import numpy as np
import pytest
import scipy.special

from distarray.composed.blockwise import map_blocks
from distarray.composed.tree_reduction import reduction
from distarray.expr.affine import Affine
from distarray.expr.bind import bind, bind_get, bind_map, bind_tiles
from distarray.expr.expr import Environment, Expr, source
from distarray.expr.indexing import parse_index
from distarray.expr.lens import Sliding
from distarray.expr.op import CATALOGUE
from distarray.kernels.files import FileRange, FileState
from distarray.ops import (
    fft,
    fft_lengths,
    indexing,
    lenses,
    quantiles,
    random,
    searching,
    sets,
    sorting,
    ufunc_methods,
)
from distarray.ops.elementwise import bits_of_axis
from distarray.ops.sliding import read_windows
from distarray.ops.stores import read_store
from distarray.ops.window_products import convolution, with_windows

ENV = Environment(None)
deferred = pytest.importorskip("distarray.io.onnx.operators.kernels", reason="one of them is of ONNX models").deferred


def node(value) -> Expr:
    return source(np.array(value, order="C"), ENV)


def matrix(dtype="f8") -> Expr:
    x = np.arange(9.0).reshape(3, 3)
    return node((x @ x.T + np.eye(3)).astype(dtype))


def index(*key):
    return parse_index(key, (3, 3))


#: Dtypes of operands and params of elementwise operations that are no ufunc of numpy, or that have no row of f8.
MAPS = {
    "astype": ("f4", "<f8"),
    "byteswap": ("f8",),
    "clip": ("f8 f8", "min"),
    "complex": ("f4 f4",),
    "conj": ("c8",),
    "frexp": ("f8", 0),
    "imag": ("c8",),
    "isnat": ("M8[s]",),
    "ldexp": ("f8 i4",),
    "modf": ("f8", 1),
    "positive": ("m8[s]",),  # of numbers it is no operation
    "real": ("c8",),
    "reshard": ("f8", "auto", None),
    "scalar": ("f8",),
    "view": ("f8", "<i8"),
    "warned": ("f8", "of nan", "nan"),
    "round": ("f8", 2),
    "where": ("? f4 f8",),
    **dict.fromkeys(["gcd", "lcm", "power", "bitwise_left_shift", "bitwise_right_shift"], ("i4 i4",)),
    **dict.fromkeys(["bitwise_and", "bitwise_or", "bitwise_xor"], ("i4 i2",)),
    **dict.fromkeys([f"special.{n}" for n in "bdtr bdtrc bdtri nbdtr nbdtrc nbdtri".split()], ("i8 i8 f8",)),
    **dict.fromkeys([f"special.{n}" for n in "expn pdtri yn".split()], ("i8 f8",)),
    **dict.fromkeys(["bitwise_count", "bitwise_invert"], ("i4",)),
}


def ufunc(name: str) -> np.ufunc:
    if name.startswith("special."):
        return getattr(scipy.special, name.removeprefix("special."))
    return getattr(np, name)


def maps() -> dict[str, Expr]:
    """Every elementwise operation, on operands that broadcast."""
    found = {}
    for name, op in CATALOGUE.items():
        if op.kind == "map" and not name.startswith("random_"):
            dtypes, *params = MAPS.get(name) or ("f8 f4 f8"[: 3 * ufunc(name).nin - 1],)
            shapes = [(3, 4), (3, 1), (4,)]
            nodes = [node(np.full(s, 0.5).astype(d)) for s, d in zip(shapes, dtypes.split())]
            found[name] = bind_map(op, nodes, tuple(params))
    return found


def tile_scan(x: Expr) -> Expr:
    """What a scan of cut rows is made of, on one tile."""
    params, n, rows = ("hypot", "<f8"), x.shape[0], x.shape[1:]
    results = [((1, *rows), "f8", (0, 1)), ((1,), "i8", (0, 1))]
    totals, starts = bind_tiles(CATALOGUE["tile_totals"], [(x, (0, n))], results, None, params)
    operands = [(x, (0, n)), (totals, None), (starts, None)]
    return bind_tiles(CATALOGUE["tile_scan"], operands, [(x.shape, "f8", (0, n))], None, params)[0]


def panel_steps() -> dict[str, Expr]:
    """Steps of factorisations, on a matrix of one panel."""
    x, square, all_rows = matrix(), ((3, 3), "f8", (0, 3)), (0, 3)

    def step(name: str, *whole: Expr, results=(square,), params=()) -> tuple[Expr, ...]:
        operands = [(x, all_rows), *[(w, None) for w in whole]]
        return bind_tiles(CATALOGUE[name], operands, results, None, params)

    numbers = [((3,), "i8", all_rows), ((1,), "f8", (0, 1)), ((1,), "f8", (0, 1))]
    packed, order, _, logarithm = step("lu_panel", results=[square, *numbers], params=(0,))
    _, y, s = step("qr_panel", results=[square] * 3, params=(0,))
    made = {
        "cholesky_update": step("cholesky_update", node(np.ones((2, 3)))),
        "cholesky_panel": step("cholesky_panel"),
        "lu_forward": step("lu_forward", packed, order),
        "lu_backward": step("lu_backward", packed, params=(0,)),
        "lu_logarithm": (logarithm,),
        "qr_forward": step("qr_forward", y, s),
        "qr_backward": step("qr_backward", y, s, params=(3,)),
        "qr_tile": step("qr_tile", results=[square] * 2),
        "qr_r_tile": step("qr_r_tile"),
        "qr_join": step("qr_join", matrix()),
    }
    return {name: results[0] for name, results in made.items()}


def vector_steps() -> dict[str, Expr]:
    """Steps of sorts and selections, on a vector of one tile."""
    x, rows, one = node(np.arange(4.0)), (0, 4), (0, 1)
    mask, twice = ops.greater(x, 1), ((4,), "f8", rows)

    def step(name: str, *operands, results=(twice,), params=()) -> Expr:
        return bind_tiles(CATALOGUE[name], operands, results, None, params)[-1]

    return {
        "sort_tiles": step("sort_tiles", (x, rows), results=[twice, ((4,), "i8", rows)], params=(True, False, True)),
        "merge_tiles": step("merge_tiles", (x, rows), params=("keys", False)),
        "pick_tiles": step("pick_tiles", (x, rows), (node([0, 2]), (0, 2)), results=[((2,), "f8", (0, 2))]),
        "search_tiles": step("search_tiles", (x, rows), (x, None), results=[((1, 4), "i8", one)], params=("left",)),
        "first_tiles": step("first_tiles", (x, rows), (x, rows), results=[((4,), "?", rows)], params=(True,)),
        "compress_tiles": step("compress_tiles", (mask, rows), (x, rows), results=[((2,), "f8", (0, 2))]),
        "rank_tiles": step("rank_tiles", (mask, rows), (node([0]), one), results=[((4,), "i8", rows)]),
        "top_tiles": step(
            "top_tiles", (x, rows), results=[((2,), "f8", (0, 2)), ((2,), "i8", (0, 2))], params=(2, True)
        ),
        "bincount_tiles": step("bincount_tiles", (node([0, 2]), (0, 2)), results=[((1, 3), "i8", one)], params=(3,)),
        "within_tiles": step(
            "within_tiles", (node([0, 2]), (0, 2)), results=[((1, 3), "i8", one), ((1, 2), "i8", one)], params=(3,)
        ),
        "count_tiles": step("count_tiles", (x, rows), (node([1.0]), None), results=[((1, 3), "i8", one)]),
        "between_tiles": step(
            "between_tiles", (x, rows), (node([1.0]), None), results=[((2,), "f8", (0, 2))], params=(True, False)
        ),
    }


def catalogue() -> dict[str, Expr]:
    x, y = node(np.arange(12.0).reshape(3, 4)), node(np.arange(4.0))
    reductions = {
        f"{name}, {axis}, {keepdims}": getattr(ops, name)(x, axis=axis, keepdims=keepdims)
        for name, op in CATALOGUE.items()
        if op.kind == "reduce" and not name.endswith(".reduce")
        for axis in (None, 0, -1)
        for keepdims in (False, True)
    }
    several = {
        f"{name}, {i}": result
        for name, results in {
            "qr": ops.linalg.qr(x),
            "qr complete": ops.linalg.qr(x, mode="complete"),
            "svd": ops.linalg.svd(x),
            "svd reduced": ops.linalg.svd(x, full_matrices=False),
            "eigh": ops.linalg.eigh(matrix()),
            "eig": ops.linalg.eig(matrix("f4")),
            "slogdet": ops.linalg.slogdet(ops.stack([matrix(), matrix()])),
            "lstsq": ops.linalg.lstsq(ops.permute_dims(x, (1, 0)), y),
            "indices": ops.indices((2, 3), None, ENV),
            "split": [bind_get(x, lens) for lens in lenses.split_lenses(x.shape, 3, 1)],
            "broadcast": [ops.broadcast_to(v, x.shape) for v in (x, y, node(1.0))],
        }.items()
        for i, result in enumerate(results)
    }
    integers, mask = node(np.arange(12).reshape(3, 4)), ops.greater(x, 3)
    folds = {
        name: ufunc_methods.reduce(
            ufunc, operand, (0,), ufunc_methods.resolved_dtype(ufunc, "reduce", operand.dtype, None)
        )
        for name in CATALOGUE
        if name.endswith(".reduce")
        for ufunc in (name.removesuffix(".reduce"),)
        for operand in (integers if ufunc[:3] in ("bit", "gcd", "lcm") else x,)
    }
    return {
        **maps(),
        **reductions,
        **folds,
        "accumulate in order": ufunc_methods.accumulate("subtract", x, 0),
        "tile scan": tile_scan(x),
        "reduce in order": ufunc_methods.reduce_in_order("subtract", x, 0, x.dtype, initial=np.float64(1), where=mask),
        "reduceat": ufunc_methods.reduceat("add", x, np.array([0, 3, 1]), 1),
        "reduceat in order": ufunc_methods.reduceat("subtract", x, np.array([0, 2, 1]), 1),
        "accumulate powers": ufunc_methods.accumulate("power", integers, 0),
        "reduce powers": ufunc_methods.reduce_in_order("power", integers, 0, integers.dtype, initial=None, where=None),
        "reduceat powers": ufunc_methods.reduceat("power", integers, np.array([0, 2, 1]), 1),
        **several,
        "scalars": ops.add(ops.multiply(x, 2), 10**6),
        "empty array": ops.sum(ops.exp(node(np.ones((0, 3))))),
        "empty view": bind_get(node(np.ones(())), Affine((0,), ())),
        "empty": ops.empty((2, 3), "f4", ENV),
        "sum of a constant": ops.sum(ops.full((2, 3), 4.0, None, ENV)),
        "zeros": ops.zeros((2, 3), None, ENV),
        "arange": ops.arange(1, 9, 2, None, ENV),
        "linspace": ops.linspace(0, 1, 5, None, True, ENV),
        "eye": ops.eye(3, 4, 1, None, ENV),
        "tri": ops.tri(3, 4, -1, None, ENV),
        "full_like": ops.full_like(x, 7, dtype="i2"),
        "transpose": ops.permute_dims(x, (1, 0)),
        "flip": ops.flip(x),
        "diagonal": bind_get(x, lenses.diagonal_lens(x.shape, 1)),
        "rot90": bind_get(x, lenses.rot90_lens(x.shape, 1, (0, 1))),
        "squeeze": ops.squeeze(ops.expand_dims(x, axis=(0, 2))),
        "reshape": ops.reshape(x, (2, -1)),
        "concat": ops.concat([x, ops.astype(x, "f4")], axis=1),
        "stack": ops.stack([x, x], axis=1),
        "roll": ops.roll(x, (1, -1), axis=(0, 1)),
        "pad": ops.pad(x, 2, mode="reflect"),
        "tile": ops.tile(x, (2, 2)),
        "repeat": ops.repeat(x, 2, axis=1),
        "repeat unevenly": ops.repeat(x, [1, 0, 2], axis=0),
        "diag": ops.diag(y, k=1),
        "tril": ops.tril(x),
        "diff": ops.diff(x, n=2, prepend=0.0),
        "matmul": ops.matmul(x, ops.permute_dims(x, (1, 0))),
        "batched": ops.matmul(ops.broadcast_to(x, (5, 3, 4)), y),
        "einsum": ops.einsum("ij,kj,j,ii->k", node(np.ones((4, 4))), x, y, node(np.ones((4, 4)))),
        "einsum, join": ops.einsum("ij,kj,j->ki", x, x, y, join="max", agg="sum"),
        "einsum, function": ops.einsum("ij,kj->ik", x, x, join=np.hypot.__call__, agg="max"),
        "tensordot": ops.tensordot(x, x, axes=((0,), (0,))),
        "kron": ops.kron(x, y),
        "trace": ops.trace(x),
        "var": ops.var(x, axis=0, ddof=1),
        "average": ops.average(x, axis=1, weights=y),
        "cumulative_sum": ops.cumulative_sum(x, axis=0, include_initial=True),
        "cumulative_prod": ops.cumulative_prod(y),
        "packbits": ops.packed_bits(node(np.arange(16).reshape(2, 8) % 3 > 0), "little"),
        "unpackbits": ops.unpacked_bits(node(np.arange(6, dtype="u1")), "big"),
        "sort": sorting.sort(x, axis=0),
        "argsort": sorting.argsort(x),
        "searchsorted": searching.searchsorted(y, x),
        "isin": sets.isin(x, node(np.arange(3.0, 12.0))),
        "interp": searching.interpolated(x, y, y),
        "searchsorted by": searching.searchsorted(y, x, sorter=sorting.argsort(y)),
        "sorter": bind(searching.SORTER, (sorting.argsort(y),), y.shape, np.dtype(np.intp), y.shape),
        "median": quantiles.median(x, axis=0, keepdims=True),
        "quantile": quantiles.quantile(x, [0.25, 0.5], axis=1),
        "nanquantile": quantiles.nanquantile(x, [0.25, 0.5], axis=1),
        "nanmedian": quantiles.nanmedian(x, axis=0),
        "partition": sorting.partition(x, 1),
        "argpartition": sorting.argpartition(x, 1),
        "top rows": sorting.topk(x, 2)[1],
        "take": ops.take(x, [[0, 2], [1, 1]], axis=1),
        "take_along_axis": ops.take_along_axis(x, sorting.argsort(x)),
        "get arrays": indexing.get_item(matrix(), index([0, 2], [1, 1])),
        "get": indexing.get_item(matrix(), index(slice(None, None, -1), 0, None)),
        "put arrays": indexing.put_item(matrix(), index([0, 2], slice(1, 3)), 5.0, "add"),
        "put": indexing.put_item(matrix(), index(1, slice(None)), node(np.arange(3))),
        "put mask": indexing.put_mask(x, ops.greater(x, 3), 0.0),
        "cholesky": ops.linalg.cholesky(matrix()),
        "inv": ops.linalg.inv(matrix()),
        "det": ops.linalg.det(matrix()),
        "qr r": ops.linalg.qr(x, mode="r"),
        "qr signs": bind(CATALOGUE["qr_signs"], (matrix(), matrix()), (3,), np.dtype("f8")),
        "lstsq": ops.linalg.lstsq(np.ones((3, 2)), matrix())[0],
        "view of axis": bits_of_axis(x, np.dtype("f4")),
        "svdvals": ops.linalg.svdvals(x),
        "eigvalsh": ops.linalg.eigvalsh(matrix()),
        "eigvals": ops.linalg.eigvals(matrix()),
        "solve": ops.linalg.solve(matrix(), node(np.ones(3))),
        "solve many": ops.linalg.solve(ops.stack([matrix(), matrix()]), matrix()),
        "pinv": ops.linalg.pinv(x),
        "norm": ops.linalg.norm(x, "nuc"),
        "cross": ops.linalg.cross(matrix(), matrix()),
        "map_blocks": bind(
            CATALOGUE["map_blocks"],
            (x, y),
            (3,),
            np.dtype("f8"),
            ("a0 a1, a1 -> a0 | a1: whole", np.dot),
        ),
        "map_windows": map_blocks(lambda block, block_id: block, x, dtype="f8"),
        "reference_kernel": deferred("Conv", np.negative, {0: x}, [((3, 4), np.dtype("f8"))])[0],
        "reduction": reduction(x, np.sum, np.sum, axis=1, dtype="f8"),
        "segment_reduce": ops.segment_reduce(x, [0, 1, 0], func="var"),
        "segment_reduce_all": ops.segment_reduce(x, node(np.array([0, 1, 0])), 2, func="var"),
        "sliding_window_view": read_windows(x, Sliding((2,), (1,), (3, 3, 2))),
        "lexsort": sorting.lexsort([matrix(), matrix()], axis=0),
        "window_product": with_windows(
            (read_windows(x, Sliding((2,), (1,), (3, 3, 2))), node(np.ones((2, 3)))),
            ((0, 1, 2), (2, 3)),
            (1, 0, 3),
            np.dtype("f8"),
            "dot",
        ),
        "convolve": convolution(node(np.arange(5.0)), node([1.0, 2.0, 3.0]), "full"),
        "matrix_power": ops.linalg.matrix_power(matrix(), -3),
        **vector_steps(),
        **panel_steps(),
        "mask_counts": bind_tiles(
            CATALOGUE["mask_counts"], [(ops.greater(y, 1), (0, 4))], [((1,), "i8", (0, 1))], None
        )[0],
        "nonzero": bind_tiles(
            CATALOGUE["nonzero"], [(ops.greater(x, 3), (0, 3))], [((8,), "i8", (0, 8)), ((8,), "i8", (0, 8))], None
        )[1],
        "fft": fft.rfft(x, axis=0),
        "random_bits": random.drawn(random.RANDOM_BITS, (2, 3), "u8", 7, ENV),
        "random_uniform": random.drawn(random.RANDOM_UNIFORM, (2, 3), "f8", 7, ENV),
        "random_normal": random.drawn(random.RANDOM_NORMAL, (2, 3), "f4", 7, ENV),
        **samples(),
        "fft, long": fft_lengths._bluestein("fft", ops.reshape(x, (-1,)), "ortho"),
        "read_store": read_store((2, 3), np.dtype("f8"), saved(), ENV),
    }


def samples() -> dict[str, Expr]:
    """Random numbers of every distribution that has an operation."""
    words, counts = random.drawn(random.RANDOM_BITS, (2, 3), "u8", 7, ENV), node([4.0, 5.0, 20.0])
    found = {
        name: random.sampled(name, "f8", words, counts)
        for name in ("gamma", "log_gamma", "poisson", "vonmises", "zipf")
    }
    found |= {
        "binomial": random.sampled("binomial", "i8", words, counts, 0.5),
        "hypergeometric": random.sampled("hypergeometric", "i8", words, counts, 5.0, 3.0),
        "integers": random.sampled("integers", "i4", words, -3, 5),
        "logseries": random.sampled("logseries", "i8", words, 0.5),
        "multinomial": random.sampled_vectors("multinomial", words, counts, node([0.5, 0.25, 0.25])),
        "multivariate_hypergeometric": random.sampled_vectors("multivariate_hypergeometric", words, node(3.0), counts),
    }
    numbers = {"binomial": (9, 0.5), "hypergeometric": (9, 5, 4), "integers": (-3, 5), "logseries": (0.5,)}
    found |= {
        f"{n}, drawn": random.drawn(op, (2, 3), "i8", 7, ENV, numbers.get(n, (2.5,))) for n, op in random.DRAWN.items()
    }
    return {f"random_{name}": x for name, x in found.items()}


@lru_cache(maxsize=1)
def saved() -> FileRange:
    """A file of six elements, removed with the process."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    path = Path(folder) / "x.npy"
    np.save(path, np.arange(6.0).reshape(2, 3))
    return FileRange((2, 3), "<f8", str(path), path.stat().st_size - 48, False, FileState.of(str(path)))
