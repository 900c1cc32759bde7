"""Functions of the user's are late parameters: calls of one form share a plan, which keeps none of them alive."""

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import distarray as dx
from distarray.planner.cache import plan_cache_info

TEAMS = {"threads": None, "cut": (2,), "grid": (2, 2)}


class Factor:
    """What a closure may hold."""

    def __init__(self, value):
        self.value = value


def _array(mesh):
    if mesh is None:
        return dx.arange(24.0).reshape(4, 6)
    axes = ("a", "b")[: len(mesh)]
    team = dx.Team(mesh, axes)
    cut = axes if len(axes) == 2 else ("a", None)
    return dx.asarray(np.arange(24.0).reshape(4, 6), team=team, sharding=cut)


def map_blocks(x, k):
    return dx.map_blocks(lambda b: b * k.value, x, dtype="f8"), lambda n: n * k.value


def informed(x, k):
    return dx.map_blocks(lambda b, block_id: b * k.value, x, dtype="f8"), lambda n: n * k.value


def keywords(x, k):
    return dx.map_blocks(lambda b, by: b * by.value, x, dtype="f8", by=k), lambda n: n * k.value


def overlap(x, k):
    function = lambda b: b * k.value
    return dx.map_overlap(function, x, depth=1, boundary="reflect", dtype="f8"), lambda n: n * k.value


def blockwise(x, k):
    return dx.blockwise(lambda b: b * k.value, "ij", x, "ij", dtype="f8"), lambda n: n * k.value


def gufunc(x, k):
    made = dx.apply_gufunc(lambda b: b.sum(-1) * k.value, "(i)->()", x, output_dtypes="f8")
    return made, lambda n: n.sum(-1) * k.value


def several(x, k):
    _, made = dx.apply_gufunc(lambda b: (b, b * k.value), "()->(),()", x, output_dtypes=("f8", "f8"))
    return made, lambda n: n * k.value


def one_of_several(x, k):
    (made,) = dx.apply_gufunc(lambda b: (b * k.value,), "()->(),", x, output_dtypes=("f8",))
    return made, lambda n: n * k.value


def reduction(x, k):
    def chunk(b, axis, keepdims):
        return b.sum(axis=axis, keepdims=keepdims) * k.value

    return dx.reduction(x, chunk, np.sum, combine=np.sum, axis=0, dtype="f8"), lambda n: n.sum(0) * k.value


def join(x, k):
    made = dx.einsum("ij,kj->ik", x, x, join=lambda a, b: a + b * k.value, agg="max", dtype="f8")
    return made, lambda n: (n[:, None] + n[None] * k.value).max(-1)


def join_turned(x, k):
    made = dx.einsum("ij,jk->ik", x, x.T, join=lambda a, b: a + b * k.value, agg="max", dtype="f8")
    return made, lambda n: (n[:, None] + n[None] * k.value).max(-1)


def map_tiles(x, k):
    y = x.copy()

    def kernel(block, ranges):
        block *= k.value

    axes = {} if x.team is None else dict(zip(x.team.axes, "ij"))
    return dx.map_tiles(kernel, y, names=["ij"], over=axes), lambda n: n * k.value


FORMS = [
    map_blocks,
    informed,
    keywords,
    overlap,
    blockwise,
    gufunc,
    several,
    one_of_several,
    reduction,
    join,
    join_turned,
    map_tiles,
]


@pytest.mark.parametrize("mesh", TEAMS.values(), ids=TEAMS)
@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
def test_functions_die_and_share_a_plan(form, mesh):
    x = _array(mesh)
    host = np.arange(24.0).reshape(4, 6)
    misses = []
    held = []
    for value in (2.0, 3.0, 5.0, 7.0):
        k = Factor(value)
        held.append(weakref.ref(k))
        before = plan_cache_info().misses
        made, oracle = form(x, k)
        np.testing.assert_array_equal(np.asarray(made), oracle(host))
        misses.append(plan_cache_info().misses - before)
        del made, oracle, k
    gc.collect()
    assert [ref() for ref in held] == [None] * 4
    # The plans of the first runs may be replaced once, by a search.
    assert misses[2:] == [0, 0], misses


def test_places_of_a_partition_share_a_plan():
    x = dx.asarray(np.random.default_rng(0).random((5, 40)))
    misses = []
    for kth in (3, 7, 11, 30, [4, 9], -2):
        before = plan_cache_info().misses
        found = np.asarray(dx.partition(x, kth, axis=1))
        misses.append(plan_cache_info().misses - before)
        for at in np.ravel(kth):
            np.testing.assert_array_equal(found[:, at], np.sort(np.asarray(x), axis=1)[:, at])
    assert misses[2:] == [0] * 4


def test_a_function_need_not_be_hashable():
    class Scale:
        __hash__ = None

        def __call__(self, block):
            return block * 2

    x = dx.arange(6.0)
    np.testing.assert_array_equal(np.asarray(dx.map_blocks(Scale(), x, dtype="f8")), np.arange(6.0) * 2)


@pytest.mark.cluster
def test_on_a_cluster_every_call_runs_its_own_function(process_cluster):
    host = np.arange(24.0).reshape(4, 6)
    x = dx.asarray(host)
    for form in FORMS:
        for value in (2.0, 3.0):
            made, oracle = form(x, SimpleNamespace(value=value))  # workers need not know this module
            np.testing.assert_array_equal(np.asarray(made), oracle(host))


def _twice(block):
    return block * 2


def _times(block, by):
    return block * by


def test_dask_tells_calls_of_different_functions_and_arguments_apart():
    dask = pytest.importorskip("dask")
    from dask.base import tokenize

    x = dx.arange(6.0)
    with dx.config.set(errors="deferred"):
        calls = {
            "by 2": dx.map_blocks(_times, x, by=2, dtype="f8"),
            "by 3": dx.map_blocks(_times, x, by=3, dtype="f8"),
            "position 2": dx.map_blocks(_times, x, 4, dtype="f8"),
            "position 3": dx.map_blocks(_times, x, 5, dtype="f8"),
            "lambda 6": dx.map_blocks(lambda b: b * 6, x, dtype="f8"),
            "lambda 7": dx.map_blocks(lambda b: b * 7, x, dtype="f8"),
            "depth 1": dx.map_overlap(lambda b: b + b.shape[0], x, depth=1, boundary="reflect", dtype="f8"),
            "depth 2": dx.map_overlap(lambda b: b + b.shape[0], x, depth=2, boundary="reflect", dtype="f8"),
        }
        same = [dx.map_blocks(_twice, x, dtype="f8") for _ in range(2)]
    assert len({tokenize(made) for made in calls.values()}) == len(calls)
    assert tokenize(same[0]) == tokenize(same[1])
    found = dict(zip(calls, dask.compute(*calls.values()), strict=True))
    for name, by in [("by 2", 2), ("by 3", 3), ("position 2", 4), ("position 3", 5), ("lambda 6", 6), ("lambda 7", 7)]:
        np.testing.assert_array_equal(found[name], np.arange(6.0) * by)
    for name, made in calls.items():
        np.testing.assert_array_equal(found[name], np.asarray(made), err_msg=name)


def test_dask_tells_large_parameters_apart():
    from dask.base import tokenize

    first = np.arange(5000.0)
    second = first.copy()
    second[2500] = -1
    x = dx.asarray(np.arange(5000.0))
    with dx.config.set(errors="deferred"):
        tokens = [tokenize(dx.map_blocks(_times, x, by=data, dtype="f8")) for data in (first, second)]
    assert tokens[0] != tokens[1]
