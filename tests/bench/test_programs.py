"""Every program of the benchmarks gives numpy's values on every system, at the smallest size."""

import numpy as np
import pytest
from benchmarks import elementwise, inplace, m2_overhead, m3_graph
from benchmarks.systems import SYSTEMS

OTHERS = [name for name in SYSTEMS if name != "numpy"]


def assert_close(value, reference):
    value, reference = np.asarray(value), np.asarray(reference)
    assert value.shape == reference.shape
    assert np.linalg.norm(value - reference) <= 1e-11 * np.linalg.norm(reference)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("program", elementwise.PROGRAMS)
def test_elementwise_equals_numpy(program, name):
    text = elementwise.PROGRAMS[program]
    system, numpy = SYSTEMS[name], SYSTEMS["numpy"]
    result = system.force(text(system.xp, *elementwise.inputs(system, "XS")))
    assert_close(result, text(np, *elementwise.inputs(numpy, "XS")))


def test_jacobi_equals_numpy_bitwise():
    system = SYSTEMS["distarray"]
    result = system.force(inplace.jacobi(system.xp, *inplace.inputs(system, "XS"), sweeps=10))
    expected = inplace.jacobi(np, *inplace.inputs(SYSTEMS["numpy"], "XS"), sweeps=10)
    assert np.array_equal(np.asarray(result), expected)


@pytest.mark.parametrize("name", ["dask.array", "distarray"])
@pytest.mark.parametrize("blocks", m2_overhead.BLOCKS)
@pytest.mark.parametrize("shape", m2_overhead.SHAPES)
@pytest.mark.parametrize("program", m2_overhead.PROGRAMS)
def test_small_operations_equal_numpy(program, shape, blocks, name):
    text = m2_overhead.PROGRAMS[program]
    system, numpy = SYSTEMS[name], SYSTEMS["numpy"]
    result = text(system.xp, *m2_overhead.operands(system, shape, blocks))
    assert_close(result, text(np, *m2_overhead.operands(numpy, shape, blocks)))


@pytest.mark.filterwarnings("ignore:Increasing number of chunks")  # dask's remark on `x @ x`
@pytest.mark.parametrize("name", ["dask.array", "distarray"])
@pytest.mark.parametrize("program", m3_graph.PROGRAMS)
def test_graph_programs_equal_numpy(program, name):
    system = SYSTEMS[name]
    result = m3_graph.PROGRAMS[program](system.xp, m3_graph.operand(system, 4))
    assert_close(result, m3_graph.PROGRAMS[program](np, m3_graph.operand(SYSTEMS["numpy"], 4)))


@pytest.mark.parametrize("blocks", [(4, 6), (1, 4), (2, 2)])
def test_operands_have_the_blocks_that_were_asked_for(blocks):
    value = np.arange(24.0 * 24).reshape(24, 24)
    assert SYSTEMS["dask.array"].put(value, blocks).numblocks == blocks
    cut = (SYSTEMS["distarray"].put(value, blocks) + 1).persist().sharding
    assert tuple(len(bounds) - 1 for bounds in cut.boundaries(value.shape)) == blocks


def test_blocks_that_two_members_cannot_share_are_refused():
    with pytest.raises(ValueError, match="1 or even"):
        SYSTEMS["distarray"].put(np.zeros((9, 9)), (3, 1))
