"""`explain` says what evaluation then does, and does nothing itself."""

import gc
import json
import os
import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import peak_nbytes

import distarray as dx
from distarray import config
from distarray.diagnostics.explain import explain
from distarray.errors import EnvironmentMismatchError
from distarray.expr.bind import bind_reshape
from distarray.expr.expr import Environment, Stored, cell_of, source
from distarray.expr.indexing import parse_index
from distarray.kernels.buffers import POOL
from distarray.ops import contractions, elementwise, indexing, joining, manipulation, reductions
from distarray.planner.cache import plan_cache_clear
from distarray.runtime import evaluate, observations
from distarray.runtime.counters import counting
from distarray.runtime.task_graph import label_of
from distarray.sharding.sharding import Sharding
from distarray.sharding.team import Team

ENV = Environment(Team((4,), ("R",)))
MESH = ENV.team.mesh
ROWS = Sharding(MESH, (("R",), ()))
COLUMNS = Sharding(MESH, ((), ("R",)))


def lying(array, sharding=ROWS, env=ENV):
    """A node of blocks that lie on the members."""
    node = source(array, env)
    # copies, so that nobody else has them and they may be overwritten
    blocks = [array[sharding.tile_slices(array.shape, t)].copy() for t in sharding.tiles()]
    node.memo = Stored(sharding, blocks, exported=False)
    return node


def data(shape=(64, 48), seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def view(node, *index):
    return indexing.get_item(node, parse_index(index, node.shape))


def value(node):
    return observations.fetch(node)


def stencil():
    x = lying(data())
    return elementwise.add(view(x, slice(2, None)), view(x, slice(None, -2)))


def standardised():
    x = lying(data())
    y = elementwise.subtract(x, reductions.mean(x, axis=0))
    return elementwise.divide(y, reductions.std(y, axis=0))


def product():
    return contractions.matmul(lying(data()), lying(data((48, 64), 1)))


def gram():
    x = lying(data())
    return contractions.matmul(manipulation.permute_dims(x, (1, 0)), x)


def mixed_cuts():
    return elementwise.add(lying(data()), lying(data(seed=1), COLUMNS))


def written():
    x = lying(data())
    parsed = parse_index((slice(10, 40),), x.shape)
    return indexing.put_item(x, parsed, elementwise.multiply(view(x, slice(20, 50)), 2.0))


def flattened():
    return bind_reshape(elementwise.exp(lying(data())), (48, 64))


def joined():
    return joining.concat([lying(data()), lying(data((10, 48), 1))])


def rolled():
    return joining.roll(lying(data()), 5, axis=0)


def gathered():
    x = lying(data())
    return indexing.get_item(x, parse_index((np.array([3, 60, 17, 3]),), x.shape))


def scattered():
    x = lying(data())
    return indexing.put_item(x, parse_index((np.array([3, 60, 17]),), x.shape), 7.0)


def column_sums():
    return reductions.sum(elementwise.exp(lying(data())), axis=0)


PROGRAMS = [
    stencil,
    standardised,
    product,
    gram,
    mixed_cuts,
    written,
    flattened,
    joined,
    rolled,
    gathered,
    scattered,
    column_sums,
]


@pytest.fixture(params=PROGRAMS, ids=lambda p: p.__name__)
def target(request):
    return request.param()


# -- it says what happens


def test_explaining_runs_nothing(target):
    with counting() as counters:
        explain([target])
    assert (counters.tasks, counters.evaluations, counters.messages) == (0, 0, 0)
    assert target.memo is None
    assert target.operands


def test_the_plan_explained_is_the_plan_that_runs(target):
    explain([target])
    with counting() as counters:
        evaluate.evaluate([target])
    assert counters.planner_calls == 0


def test_predicted_tasks_bytes_and_messages_are_those_counted_stage_by_stage(target):
    before = explain([target])
    after = explain([target], analyze=True)
    assert [s.operations for s in before.stages] == [s.operations for s in after.stages]
    for s in after.stages:
        assert (s.tasks, s.messages) == (s.measured_tasks, s.measured_messages)
        # which elements positions name, and so how many come from where, is not known before
        assert s.moved_bytes == s.measured_moved_bytes or "take" in s.operations
    totals = [s.measured_moved_bytes for s in after.stages]
    assert (after.tasks, after.messages) == (after.measured.tasks, after.measured.messages)
    assert sum(totals) == after.measured.moved_bytes
    assert after.measured.peak_bytes <= after.peak_bytes
    assert target.memo is not None


def test_no_plan_moves_less_than_the_lower_bound(target):
    found = explain([target])
    assert found.lower_bound_bytes <= found.moved_bytes


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_explaining_changes_no_value(program):
    explained, fresh = program(), program()
    explain([explained])
    evaluate.evaluate([explained])
    evaluate.evaluate([fresh])
    np.testing.assert_array_equal(value(explained), value(fresh))


# -- numbers that can be counted by hand


def test_a_stencil_sends_just_its_borders():
    (stage,) = explain([stencil()]).stages
    # 62 rows follow the upper operand x[2:] or the lower x[:-2]; either way three borders of two rows are crossed
    assert stage.moved_bytes == stage.lower_bound_bytes == 3 * 2 * 48 * 8
    assert stage.messages == 3
    assert stage.written_bytes == 62 * 48 * 8


def test_a_reduction_sends_one_partial_result_of_each_other_member():
    (stage,) = explain([column_sums()]).stages
    assert stage.operations == ("exp", "sum")
    assert stage.moved_bytes == stage.lower_bound_bytes == 3 * 48 * 8
    assert stage.read_bytes == 64 * 48 * 8
    assert stage.written_bytes == 48 * 8
    assert (stage.tiles, stage.parts) == (4, (4, 1))


def test_operands_cut_alike_send_nothing():
    found = explain([elementwise.add(lying(data()), lying(data(seed=1)))])
    assert (found.moved_bytes, found.messages, found.lower_bound_bytes) == (0, 0, 0)
    assert found.read_bytes == 2 * 64 * 48 * 8


def test_another_cut_sends_all_that_members_lack():
    found = explain([mixed_cuts()])
    assert found.moved_bytes == found.lower_bound_bytes == 64 * 48 * 8 * 3 // 4


def test_a_block_read_twice_travels_and_counts_once():
    x = lying(data())
    z = elementwise.add(elementwise.add(view(x, slice(1, 63)), view(x, slice(2, None))), view(x, slice(None, -2)))
    found = explain([z])
    assert found.moved_bytes == found.lower_bound_bytes
    assert found.read_bytes < 3 * 62 * 48 * 8


def test_peak_of_an_elementwise_chain_is_operand_and_result():
    nbytes = 64 * 48 * 8
    x = lying(data())
    slot = x.hold()
    found = explain([elementwise.exp(elementwise.multiply(x, 2.0))])
    assert found.peak_bytes == nbytes // 4 * 2
    assert found.growth_bytes == nbytes
    del slot  # without a handle the result takes over the blocks of the operand
    found = explain([elementwise.exp(elementwise.multiply(x, 2.0))])
    assert found.peak_bytes == nbytes // 4
    assert found.growth_bytes == 0


def test_a_write_in_place_needs_no_memory():
    x = lying(data())
    y = indexing.put_item(x, parse_index((slice(10, 40),), x.shape), 7.0)
    found = explain([y])
    assert found.growth_bytes <= 4 * 8  # the number that is written, made by each member
    assert explain([y], others=lambda: [elementwise.exp(y.operands[0])]).growth_bytes > 0
    blocks = {id(b) for b in y.operands[0].memo.blocks}
    explain([y], analyze=True)
    assert {id(b) for b in y.memo.blocks} == blocks


@pytest.mark.parametrize("program", ["chain", "standardised", "gram"])
def test_predicted_memory_holds_and_is_not_far_above_what_is_allocated(program):
    env = Environment(Team((1,), ("R",)))
    x = lying(data((1024, 512)), Sharding(env.team.mesh, (("R",), ())), env)
    # blocks of 4 MiB: large beside what planning allocates
    with config.set(block_bytes=1 << 16):
        if program == "gram":
            target = contractions.matmul(manipulation.permute_dims(x, (1, 0)), x)
        elif program == "standardised":
            target = elementwise.subtract(x, reductions.mean(x, axis=1, keepdims=True))
            target = contractions.matmul(target, manipulation.permute_dims(target, (1, 0)))
        else:
            target = elementwise.exp(elementwise.multiply(x, 2.0))
        x.memo = Stored(x.memo.sharding, x.memo.blocks, on_client=False, exported=True)
        predicted = explain([target])
        if not predicted.stages:
            pytest.skip("one member and one block: a plain call")
        POOL.trim()
        _, peak = peak_nbytes(lambda: evaluate.evaluate([target]))
    # the pool rounds sizes up by a fourth at most, and programs have small registers
    assert peak <= 1.25 * predicted.growth_bytes + (2 << 20)
    assert peak >= 0.6 * predicted.growth_bytes


# -- results that are kept, host data, small things


def test_results_of_live_handles_are_listed_and_kept():
    x = lying(data())
    y = elementwise.exp(x)
    slot = y.hold()
    z = elementwise.multiply(reductions.sum(y, axis=0), 2.0)
    found = explain([z])
    assert [(r.operation, r.is_target) for r in found.results] == [("exp", False), ("multiply", True)]
    assert "kept, it is needed later: f64[16{R}64, 48]  exp" in str(found)
    with counting() as counters:
        evaluate.evaluate([z])
    assert counters.planner_calls == 0
    assert y.memo is not None
    del slot


def test_host_arrays_are_explained_as_they_would_be_cut_and_left_alone():
    array = data((512, 512))
    x = source(array, ENV)
    memo = x.memo
    y = reductions.sum(x, axis=0)
    with config.set(block_bytes="1 MiB"):
        found = explain([y])
    assert x.memo is memo
    assert found.stages[0].cut == "[128{R}512, 512]"
    with counting() as counters, config.set(block_bytes="1 MiB"):
        evaluate.evaluate([y])
    assert (counters.planner_calls, counters.tasks, counters.bytes_moved) == (0, found.tasks, found.moved_bytes)
    np.testing.assert_allclose(value(y), array.sum(axis=0))


def test_small_arrays_are_said_to_be_plain_calls():
    y = elementwise.add(source(np.arange(4.0), ENV), 1.0)
    found = explain([y])
    assert found.stages == ()
    assert str(found).startswith("1 operation: plain calls in this process, without a plan: no array exceeds ")
    measured = explain([y], analyze=True).measured
    assert measured.tasks == 0
    assert measured.wall_seconds > 0
    np.testing.assert_array_equal(value(y), [1, 2, 3, 4])


def test_what_is_there_already_needs_nothing():
    x = lying(data())
    found = explain([x])
    assert found.n_operations == 0
    assert "nothing would run" in str(found)
    assert found.results[0].type == "f64[16{R}64, 48]"


def test_targets_of_two_environments_are_refused():
    other = Environment(Team((2,), ("x",)))
    with pytest.raises(EnvironmentMismatchError, match=r"target 1 in \(team=Team\(x=2\)"):
        explain([elementwise.exp(lying(data())), elementwise.exp(source(np.ones(3), other))])


def test_the_cache_is_told():
    plan_cache_clear()
    assert not explain([stencil()]).from_cache
    found = explain([stencil()])
    assert found.from_cache
    assert "plan from the cache" in str(found)


def test_a_peak_above_the_limit_is_told():
    with config.set(memory_limit=1000):
        assert "; above the limit" in str(explain([stencil()]))
    assert "above the limit" not in str(explain([stencil()]))


@pytest.mark.parametrize("analyze", [False, True])
def test_no_block_outlives_an_explanation(analyze):
    gc.disable()
    try:
        x = lying(data())
        blocks = [weakref.ref(b) for b in x.memo.blocks]
        y = reductions.sum(x, axis=0)
        found = explain([y], analyze=analyze)
        del x, y
        assert all(b() is None for b in blocks)
        assert found.stages
    finally:
        gc.enable()


# -- how it reads


def test_the_table_has_a_line_for_each_stage_and_the_users_line():
    target = standardised()
    found = explain([target])
    lines = str(found).splitlines()
    assert lines[0] == f"{found.n_operations} operations in {len(found.stages)} stages on Team(R=4), device 'cpu'"
    table = lines[2 : 4 + len(found.stages)]
    assert [line.split()[0] for line in table] == ["stage", *map(str, range(len(found.stages))), "total"]
    line = os.path.join("diagnostics", "test_explain.py")
    assert all(line + ":" in row for row in table[1:-1])
    ends = [row.index(":", row.index(line)) for row in table[1:-1]]
    assert len(set(ends)) == 1  # columns line up


def test_repeated_operations_are_counted():
    x = lying(data())
    for _ in range(3):
        x = elementwise.add(elementwise.multiply(x, 2.0), 1.0)
    assert "multiply x3, add x3" in str(explain([x]))


def test_many_operations_are_collapsed():
    x = lying(data())
    for name in ("exp", "sin", "cos", "tan", "abs", "floor"):
        x = getattr(elementwise, name)(x)
    assert "exp, sin, cos, ... 2 more, floor" in str(explain([x]))


def test_json_has_all_numbers_and_totals():
    found = explain([standardised()], analyze=True)
    said = json.loads(found.to_json())
    assert said["total"]["moved_bytes"] == sum(s["moved_bytes"] for s in said["stages"]) == found.moved_bytes
    assert said["measured"]["tasks"] == said["total"]["tasks"]
    assert said["planner"] == found.planner
    assert said["stages"][0]["operations"] == list(found.stages[0].operations)


def test_html_has_a_row_for_each_stage():
    found = explain([standardised()], analyze=True)
    html = found._repr_html_()
    # the header, and below each stage and the total what was measured
    assert html.count("<tr>") == 1 + 2 * (len(found.stages) + 1)
    assert html.count("measured</td>") == len(found.stages) + 1
    assert "<li>measured: " in html
    assert explain([standardised()])._repr_html_().count("<tr>") == len(found.stages) + 2


def test_html_has_a_drawing_of_each_result_that_is_cut():
    found = explain([standardised()])
    (result,) = [r for r in found.results if r.is_target]
    assert found._repr_html_().count("<svg") == 1
    assert found._repr_html_().count("<rect ") == result.sharding.n_tiles > 1
    assert set(json.loads(found.to_json())["results"][0]) == {"type", "operation", "line", "is_target"}
    evaluate.evaluate([node := standardised()])
    assert "<svg" not in explain([node])._repr_html_()  # nothing would run


def test_analyze_shows_measured_below_predicted_in_the_same_columns():
    text = str(explain([standardised()], analyze=True))
    header, *rows = text.splitlines()[2:]
    stage, measured = rows[:2]
    assert measured.split()[0] == "measured"
    for column in ("tasks", "moved", "messages"):
        end = header.index(f" {column} ") + 1 + len(column)
        assert stage[:end].split()[-1] == measured[:end].split()[-1]
    assert "measured: " in text


@pytest.mark.cluster
def test_on_a_cluster_too_predictions_are_what_is_counted(cluster4):
    from distarray.runtime.clients import team_for_client

    env = Environment(team_for_client(cluster4))
    array = data((1024, 1024))
    x = source(array, env)
    y = elementwise.subtract(x, reductions.mean(x, axis=0))
    before = explain([y])
    assert x.memo.on_client
    assert before.host_bytes >= array.nbytes
    assert "host -> team: 8 MiB" in str(before)
    after = explain([y], analyze=True)
    assert (before.tasks, before.moved_bytes) == (after.measured.tasks, after.measured.moved_bytes)
    np.testing.assert_allclose(value(y), array - array.mean(axis=0))


def test_results_that_are_there_have_no_part_in_what_would_run() -> None:
    """With one of them what is computed by plain calls was said to be planned, and its peak to hold it too."""
    x = lying(data())
    small = elementwise.add(source(data((3, 4)), ENV), 1.0)
    found = explain([x, small, x], analyze=True)
    assert found.stages == () and found.tasks == found.measured.tasks == 0
    large = elementwise.add(lying(data(seed=1)), 1.0)
    found, alone = explain([x, large]), explain([large])
    assert (found.peak_bytes, found.tasks) == (alone.peak_bytes, alone.tasks)
    assert [r.is_target for r in found.results] == [True, True]


@pytest.mark.cluster
def test_what_may_fail_is_explained_as_the_run_of_its_own_that_it_is(cluster4) -> None:
    """All was explained as one run: what was measured stood beside other stages, and tasks were other ones."""
    import distarray as dx

    with dx.config.set(eager_bytes=0, block_bytes=1 << 10):
        x = dx.asarray(data((64, 32)), sharding=(dx.current_team().mesh.names, None)).persist()
        y = dx.take(x, np.array([60, 3, 17]), axis=0) * 2
        z = (x.T @ x).sum(axis=0)
        w = y.sum(axis=0) + z
        before = dx.explain(y, z, w)
        after = dx.explain(y, z, w, analyze=True)
    assert (before.tasks, before.moved_bytes, before.messages) == (after.tasks, after.moved_bytes, after.messages)
    assert [s.operations for s in before.stages] == [s.operations for s in after.stages]
    assert [(s.tasks, s.messages) for s in after.stages] == [
        (s.measured_tasks, s.measured_messages) for s in after.stages
    ]
    assert [r.is_target for r in before.results] == [r.is_target for r in after.results] == [True] * 3
    assert after.measured.peak_bytes <= after.peak_bytes + 4000 <= before.peak_bytes + 4000


@pytest.mark.cluster
def test_host_data_that_a_worker_is_sent_by_another_counts_before_it_is_sent(cluster4) -> None:
    """It counted only once it lay there, so that the same plan was said to need more the second time."""
    import distarray as dx

    with dx.config.set(eager_bytes=0, block_bytes=1 << 10):
        x = dx.asarray(data((64, 32)), sharding=(dx.current_team().mesh.names, None))
        before = (x + x[::-1]).explain()
        x.persist()
        after = (x + x[::-1]).explain(analyze=True)
    assert after.measured.peak_bytes - 4000 <= after.peak_bytes <= before.peak_bytes


def test_passes_of_a_sort_are_explained() -> None:
    """They run at the call, before there is a result to plan; their bytes stand beside those of what is left."""
    import distarray as dx  # sorts run at the call, which needs all layers

    team = dx.Team((4,), ("x",))
    with dx.config.set(block_bytes=0):
        x = dx.asarray(np.random.default_rng(0).random(40_000), team=team)
        with counting() as counted:
            y = dx.sort(x)
        e = y.explain()
        assert [p.operations[0] for p in e.passes] == ["sort_tiles", "pick_tiles"]
        assert sum(p.tasks for p in e.passes) == counted.tasks
        assert max(p.peak_bytes for p in e.passes) == counted.predicted_peak > x.nbytes // 4
        assert sum(p.moved_bytes for p in e.passes) == counted.bytes_moved
        assert "pass 0 at the call, sort_tiles" in str(e)
        assert (y + 1).explain().passes == e.passes
        assert (x + 1).explain().passes == ()


def test_a_cell_of_a_notebook_has_its_name(monkeypatch):
    names = {"/tmp/1234.py": ("Cell", "In[7]")}
    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=names.get))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    made = {"dx": dx}
    exec(compile("x = dx.ones((2000, 2000))\ny = (x * 2).sum(axis=0)", "/tmp/1234.py", "exec"), made)
    assert "In[7]:2" in str(made["y"].explain())
    assert label_of(made["y"].__dx_node__()) == "sum@In[7]:2"
    assert cell_of(__file__) is None
