"""Contractions of blocks: every geometry of boxes, on every device, in scratch of a bounded size."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise, product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray.expr.affine import Affine
from distarray.expr.joins import PRODUCT, Join
from distarray.expr.params import ContractParams
from distarray.kernels import contractions, products, tasks
from distarray.kernels.backends import NUMPY
from distarray.kernels.contractions import contract
from distarray.kernels.devices import backend_for
from distarray.kernels.monoids import MONOIDS
from distarray.kernels.specs import Finish, Part, Read, StageSpec, TileSpec
from distarray.ops.semirings import parse_join, traced
from distarray.testing import no_host_copies

FEW = settings(max_examples=150, derandomize=True, deadline=None)
F8 = np.dtype("f8")


def join_of(name, *dtypes, then=None):
    return traced(parse_join(name, len(dtypes)), tuple(map(np.dtype, dtypes)), then)


def whole(blocks, labels, result, join, agg):
    """The loop space at once, in numpy."""
    loops = list(dict.fromkeys(label for own in labels for label in own))
    wide = [
        np.expand_dims(
            np.transpose(x, [own.index(label) for label in loops if label in own]),
            tuple(a for a, label in enumerate(loops) if label not in own),
        )
        for x, own in zip(blocks, labels)
    ]
    joined = join(*wide)
    for a in reversed(range(len(loops))):
        if loops[a] not in result:
            joined = agg.reduce(joined, axis=a)
    kept = [label for label in loops if label in result]
    return np.transpose(joined, [kept.index(label) for label in result])


@st.composite
def spaces(draw, max_operands=3):
    """Labels of some operands, in any order, and of the result; extents; which operands are stored how."""
    n = draw(st.integers(1, 4))
    sizes = [draw(st.sampled_from([1, 2, 3, 5, 9, 40])) for _ in range(n)]
    terms = draw(
        st.lists(st.lists(st.sampled_from(range(n)), unique=True, max_size=n), min_size=2, max_size=max_operands)
    )
    found = sorted({label for own in terms for label in own})
    result = draw(st.permutations(found))[: draw(st.integers(0, len(found)))]
    layouts = [draw(st.permutations(range(len(own)))) for own in terms]
    return [tuple(t) for t in terms], tuple(result), sizes, layouts


def stored(shape, layout, seed):
    """Distinct numbers in a block whose axes lie in memory in the order `layout`."""
    x = np.random.default_rng(seed).permutation(int(np.prod(shape))).reshape([shape[a] for a in layout])
    return (x % 97).astype("f8").transpose(np.argsort(layout))


@FEW
@given(spaces(), st.sampled_from([64, 512, 4096]), st.sampled_from(["max", "sum", "logaddexp", "any"]))
def test_boxes_of_every_size_give_what_the_whole_gives(drawn, nbytes, agg):
    terms, result, sizes, layouts = drawn
    if np.prod([sizes[k] for k in {k for own in terms for k in own}]) > 60_000:
        return
    blocks = [stored([sizes[k] for k in own], layout, i) for i, (own, layout) in enumerate(zip(terms, layouts))]
    join = join_of("add", *["f8"] * len(blocks), then=np.dtype(bool) if agg == "any" else None)
    ufunc = {"max": np.maximum, "sum": np.add, "any": np.logical_or}.get(agg, np.logaddexp)
    expected = whole(blocks, terms, result, lambda *x: sum(x[1:], x[0]), ufunc)
    if agg == "any":
        expected = expected.astype(bool)
    before = contractions.SCRATCH_NBYTES
    contractions.SCRATCH_NBYTES = nbytes
    try:
        found = contract(NUMPY, blocks, (terms, result, join, agg), expected.dtype)
    finally:
        contractions.SCRATCH_NBYTES = before
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-13)


@pytest.mark.parametrize("name", ["absdiff", "sqdiff", "sub", "eq", "xor", "div"])
@pytest.mark.parametrize("dtypes", [("B", "B"), ("f4", "f4"), ("c16", "c16"), ("i1", "f8"), ("?", "?")])
def test_steps_reuse_scratch_and_change_no_operand(name, dtypes, monkeypatch):
    monkeypatch.setattr(contractions, "SCRATCH_NBYTES", 256)
    rng = np.random.default_rng(0)
    blocks = [rng.integers(0, 2 if d == "?" else 9, s).astype(d) for s, d in zip([(7, 11), (11, 13)], dtypes)]
    copies = [x.copy() for x in blocks]
    params = (((0, 1), (1, 2)), (0, 2))
    try:
        join = join_of(name, *dtypes)
    except TypeError:  # numpy has no such function of these dtypes
        return
    dtype = np.add.reduce(np.ones(1, join.dtype)).dtype
    with np.errstate(all="ignore"):
        found = contract(NUMPY, blocks, (*params, join, "sum"), dtype)
        expected = whole(blocks, *params, IN_NUMPY[name], np.add)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert found.dtype == dtype
    for x, y in zip(blocks, copies):
        np.testing.assert_array_equal(x, y)


IN_NUMPY = {
    "absdiff": lambda x, y: np.maximum(x, y) - np.minimum(x, y) if x.dtype.kind == "u" else np.abs(x - y),
    "sqdiff": lambda x, y: np.square(x - y),
    "sub": np.subtract,
    "eq": np.equal,
    "xor": np.logical_xor,
    "div": np.divide,
}


def test_half_floats_are_added_in_single():
    x = np.ones((1, 4096), "f2")
    join = join_of("add", "f2", "f2")
    partial = contract(NUMPY, [x, x], (((0, 1), (2, 1)), (0, 2), join, "sum"), np.dtype("f2"))
    assert partial.dtype == np.float32
    assert MONOIDS["sum"].finish(partial, np.dtype("f2")).item() == 8192
    partial = contract(NUMPY, [x, x], (((0, 1), (2, 1)), (0, 2), PRODUCT, "sum"), np.dtype("f2"))
    assert (partial.dtype, partial.item()) == (np.float32, 4096)


def test_nothing_aggregates_to_the_identity():
    x, y = np.ones((3, 0)), np.ones((0, 4))
    for agg, value in (("sum", 0), ("prod", 1), ("logaddexp", -np.inf)):
        found = contract(NUMPY, [x, y], (((0, 1), (1, 2)), (0, 2), join_of("add", "f8", "f8"), agg), F8)
        np.testing.assert_array_equal(found, np.full((3, 4), value))
    found = contract(
        NUMPY, [np.ones((0, 3)), y[:0].T], (((0, 1), (2, 0)), (0, 1), join_of("add", "f8", "f8"), "max"), F8
    )
    assert found.shape == (0, 3)


@pytest.mark.parametrize(
    ("terms", "shapes", "result"),
    [
        (((0, 1), (1, 2)), ((400, 50), (50, 600)), (0, 2)),
        pytest.param(((0, 1), (2, 1)), ((400, 50), (600, 50)), (0, 2), marks=pytest.mark.slow),
        (((0, 1), (2, 1)), ((400, 50), (600, 50)), (2, 0)),
        pytest.param(((0,), (1,)), ((4000,), (6000,)), (), marks=pytest.mark.slow),
        pytest.param(((0, 1), (0, 2)), ((9000, 30), (9000, 40)), (1, 2), marks=pytest.mark.slow),
        (((0, 1), (1, 2), (2, 3)), ((60, 70), (70, 80), (80, 90)), (0, 3)),
    ],
    ids=["ij,jk->ik", "ij,kj->ik", "ij,kj->ki", "i,j->", "ki,kj->ij", "ij,jk,kl->il"],
)
def test_scratch_is_bounded_however_large_the_loop_space_is(terms, shapes, result):
    # a process of its own: other threads of the test run allocate too
    code = f"""
import tracemalloc
import numpy as np
from distarray.kernels.backends import NUMPY
from distarray.kernels.contractions import contract
from distarray.ops.semirings import parse_join, traced
blocks = [np.random.default_rng(i).standard_normal(s) for i, s in enumerate({shapes})]
join = traced(parse_join("add", len(blocks)), tuple([b.dtype for b in blocks]), None)
tracemalloc.start()
made = contract(NUMPY, blocks, ({terms}, {result}, join, "max"), np.dtype("f8"))
print(tracemalloc.get_traced_memory()[1], made.nbytes)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    peak, nbytes = map(int, done.stdout.split())
    # a slot of scratch, one turned copy of each operand, and what numpy reduces a box to
    bound = nbytes + (2 + len(shapes)) * contractions.SCRATCH_NBYTES
    loops = {label: n for own, s in zip(terms, shapes) for label, n in zip(own, s)}
    assert peak <= bound < 8 * np.prod(list(loops.values()), dtype=float) / 4


def test_the_buffer_of_numpy_is_put_back():
    before = np.getbufsize()
    x = np.ones((4, 1000))
    contract(NUMPY, [x, x], (((0, 1), (2, 1)), (0, 2, 1), join_of("add", "f8", "f8"), "max"), F8)

    def fails(p, q):
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        contract(NUMPY, [x, x], (((0, 1), (2, 1)), (0, 2, 1), Join("fails", F8, is_users=True), "max", fails), F8)
    assert np.getbufsize() == before


ON_DEVICE = [
    (name, agg)
    for name in ("add", "absdiff", "eq", "max", "and")
    for agg in ("sum", "prod", "max", "min", "any", "all", "bitwise_or", "hypot")
    if not (name in ("eq", "and") and agg in ("max", "min"))  # the standard orders no truth values
]


@pytest.mark.parametrize(("name", "agg"), ON_DEVICE)
def test_kernels_stay_on_their_device(name, agg, monkeypatch):
    pytest.importorskip("array_api_strict")
    monkeypatch.setattr(contractions, "DEVICE_BOX", 16)
    backend = backend_for("strict:1")
    rng = np.random.default_rng(0)
    dtype = "i8" if agg == "bitwise_or" else "f8"
    blocks = [rng.integers(1, 5, s).astype(dtype) for s in [(3, 4), (4, 5)]]
    join = join_of(name, dtype, dtype, then=np.dtype(bool) if agg in ("any", "all") else None)
    ufunc = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "any": "logical_or"}.get(agg, agg)
    try:
        result = getattr(np, ufunc.replace("all", "logical_and")).reduce(np.ones(1, join.dtype)).dtype
    except TypeError:
        return
    params = (((0, 1), (1, 2)), (2, 0), join, agg)
    expected = contract(NUMPY, blocks, params, result)
    adopted = [backend.adopt(x) for x in blocks]
    with no_host_copies():
        found = contract(backend, adopted, params, result)
    np.testing.assert_allclose(backend.to_host(found), expected, rtol=1e-12)


def test_a_function_of_the_users_sees_blocks_of_its_device():
    pytest.importorskip("array_api_strict")
    backend = backend_for("strict:1")
    x = np.arange(12.0).reshape(3, 4)
    seen = []

    def function(p, q):
        seen.append((p.shape, q.shape, type(p).__module__.partition(".")[0]))
        return p - q

    params = (((0, 1), (2, 1)), (0, 2), Join("function", F8, is_users=True), "max", function)
    found = contract(backend, [backend.adopt(x), backend.adopt(x)], params, F8)
    np.testing.assert_array_equal(backend.to_host(found), (x[:, None] - x[None]).max(-1))
    assert seen == [((3, 3, 4),) * 2 + ("array_api_strict",)]


@pytest.mark.parametrize("cut", [("T", None), (None, "T")])
def test_a_matrix_and_its_transpose_come_as_views_of_one_block(cut, monkeypatch):
    """However the matrix lies: then numpy has BLAS compute half of the product."""
    values = np.random.default_rng(0).random((64, 64))
    seen = []

    def noted(xp, labels, result, a, b, *, dtype):
        seen.append(np.shares_memory(a, b))
        return product(xp, labels, result, a, b, dtype=dtype)

    product = products.contract
    monkeypatch.setattr(products, "contract", noted)
    slow = {"gemm": 1e4, "bandwidth": 1e5, "latency": 0.0, "task": 0.0}  # worth a search, and most of it is computing
    with dx.use(team=dx.Team((2,), ("T",), members=range(2))), dx.config.set(block_bytes=1 << 10, calibration=slow):
        x = dx.asarray(values, sharding=cut)
        np.testing.assert_allclose(np.asarray(x.T @ x), values.T @ values)
        np.testing.assert_allclose(np.asarray(x @ x.T), values @ values.T)
    assert seen == [True] * 4


def reading(block, cuts):
    """How a task reads a block whose tiles it has: the tiles, in a grid with `cuts` along each axis, and the record."""
    edges = [sorted({0, *(c for c in at if c < n), n}) for at, n in zip(cuts, block.shape)]
    places = [*product(*[[slice(*pair, 1) for pair in pairwise(axis)] for axis in edges])]
    parts = [
        Part(k, -1, Affine.identity(tuple([len(range(n)[s]) for s, n in zip(p, block.shape)])))
        for k, p in enumerate(places)
    ]
    return [block[p] for p in places], Read(
        block.shape, block.dtype, tuple(parts), tuple(places) if len(parts) > 1 else ((),)
    )


@FEW
@given(spaces(), st.data(), st.sampled_from(["max", "sum"]))
def test_operands_that_lie_in_parts_give_what_they_give_together(drawn, data, agg):
    terms, result, sizes, layouts = drawn
    if np.prod([sizes[k] for k in {k for own in terms for k in own}]) > 60_000:
        return
    blocks = [stored([sizes[k] for k in own], layout, i) for i, (own, layout) in enumerate(zip(terms, layouts))]
    is_product = agg == "sum" and len(terms) == 2 and {*terms[0]} ^ {*terms[1]} <= {*result}
    join = PRODUCT if is_product else join_of("add", *["f8"] * len(blocks))
    cut = data.draw(st.sampled_from(sorted({k for own in terms for k in own}) or [0]))
    args, reads, expected = [], [], []
    for own, block in zip(terms, blocks):
        cuts = [data.draw(st.lists(st.integers(1, 40), max_size=3)) if k == cut else [] for k in own]
        tiles, read = reading(block, cuts)
        reads.append(read._replace(parts=tuple([p._replace(arg=p.arg + len(args)) for p in read.parts])))
        args += tiles
    shape = tuple([sizes[k] for k in result])
    params = ContractParams(tuple(terms), result, join, agg)
    stage = StageSpec(
        None, stores=(F8,), finishes=(Finish(agg, agg, (), F8, F8, (), (), F8),), name="contract", params=params
    )
    slices = contractions.loop_slices(stage, reads, shape)
    tile = TileSpec(0, shape, reads=tuple(reads), along=slices, finish=(None,))
    expected = contract(NUMPY, blocks, params, F8)
    np.testing.assert_array_equal(tasks.run_contract(stage, tile, *args), expected)
    joined = [read for read in reads if len(read.parts) > 1]
    if not joined or cut in result:
        assert slices is None
    else:
        n = len(
            {s.start for own, r in zip(terms, reads) if len(r.parts) > 1 for s in [p[own.index(cut)] for p in r.places]}
        )
        copied, folded = sum(8 * prod(r.shape) for r in joined), 2 * (n - 1) * 8 * prod(shape)
        assert (slices is not None) == (copied >= folded)


def test_a_product_reads_the_tiles_of_its_operands_where_they_lie(monkeypatch):
    """The summed loop is cut where they are, but where the results to add up would be more than the operands."""
    a, b = (np.random.default_rng(0).random(shape) for shape in [(20, 600), (600, 20)])
    dealt = [dx.Sharding(dx.Mesh(("x", "%1"), (2, 3)), cut) for cut in [((), ("x", "%1")), (("x", "%1"), ())]]
    team = dx.Team((2,), ("x",), members=range(2))
    read = []
    assemble, along = Read.assemble, Read.along
    monkeypatch.setattr(Read, "assemble", lambda self, *args: read.append(len(self.parts)) or assemble(self, *args))
    monkeypatch.setattr(Read, "along", lambda self, *args: read.append("a slice") or along(self, *args))
    with dx.use(team=team), dx.config.set(block_bytes=0, planner="eindecomp"):
        for n, is_sliced in [(600, True), (60, False)]:
            x, y = [dx.asarray(v, team=team).reshard(d).persist() for v, d in zip((a[:, :n], b[:n]), dealt)]
            read.clear()
            np.testing.assert_allclose(np.asarray(x @ y), a[:, :n] @ b[:n])
            assert read == (["a slice"] * 6 if is_sliced else [6]) * 4  # two operands at two members


@settings(max_examples=300, derandomize=True, deadline=None)
@given(data=st.data())
def test_what_is_copied_to_be_a_matrix_is_known_by_shapes_alone(data):
    """Of a part of an array it is said where it may be."""
    n = data.draw(st.integers(1, 5))
    sizes = [data.draw(st.sampled_from([1, 2, 3])) for _ in range(n)]
    left, right = [tuple(data.draw(st.permutations(range(n)))[: data.draw(st.integers(0, n))]) for _ in range(2)]
    once = {*left} ^ {*right}
    both = [v for v in {*left} & {*right} if data.draw(st.booleans())]
    result = tuple(data.draw(st.permutations([*once, *both])))
    shapes = [tuple([sizes[v] for v in own]) for own in (left, right)]
    product = products.matrix_product((left, right), result, *shapes)
    for k, shape in enumerate(shapes):
        for is_whole in (True, False):
            block = np.zeros(shape if is_whole else [m + 1 for m in shape])[(*map(slice, shape), ...)]
            is_shared = np.shares_memory(products._arranged(np, block, *product.operands[k]), block)
            is_copied = product.is_copied(k, shape, is_whole=is_whole)
            assert is_shared or is_copied
            assert not (is_whole and is_shared and is_copied)
