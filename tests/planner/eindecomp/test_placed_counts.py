"""What a placed plan moves and holds: against counting element by element, and against its limit on memory."""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray.errors import MemoryBudgetError, ShardingError
from distarray.planner.eindecomp import EinGraph, EinOp, Input, parse_graph, plan
from distarray.planner.eindecomp.counting import count
from distarray.planner.eindecomp.fastest import placed
from distarray.planner.eindecomp.machine import Machine
from distarray.planner.rates import Rates
from distarray.testing import eingraphs

#: Bytes matter, and nothing else.
BYTES = Rates(latency=0.0, bandwidth=1.0, compute=0.0, task=0.0, gemm=0.0, generic=0.0)


# ------------------------------------------------------------------------------------------ element by element


def blocks(shape: Any, cut: Any) -> list[frozenset[tuple[int, ...]]]:
    """The elements of every block, in C order."""
    axes = []
    for n, k in zip(shape, cut):
        edges = k if isinstance(k, tuple) else [j * n // k for j in range(k + 1)]
        axes.append([range(a, b) for a, b in itertools.pairwise(edges)])
    return [frozenset(itertools.product(*block)) for block in itertools.product(*axes)]


class Counted:
    """Bytes and messages of each operation, and what workers hold at most."""

    def __init__(self, found: Any, *, streamed: bool) -> None:
        self.found, self.streamed = found, streamed
        self.graph, self.arrays = found.placement.graph, found.placement.arrays
        self.p = found.placement.machine.p
        self.cut = {name: blocks(self.graph.shape(name), array.cut) for name, array in self.arrays.items()}
        self.copies: dict[str, list[set[Any]]] = defaultdict(lambda: [set() for _ in range(self.p)])
        read = {u for op in self.graph.ops.values() for u in op.inputs}
        self.alive = read & set(self.graph.inputs)
        self.join: dict[str, int] = {}
        self.agg: dict[str, int] = {}
        self.messages: dict[str, int] = {}
        self.peak: dict[str, int] = {}
        names = list(self.graph.ops)
        for k, v in enumerate(names):
            self.run(v)
            self.alive.add(v)
            later = {u for w in names[k + 1 :] for u in self.graph.ops[w].inputs}
            self.alive = {u for u in self.alive if u in later or u not in read}
            for u in list(self.copies):
                if u not in later:
                    del self.copies[u]

    def size(self, name: str) -> int:
        return self.graph.array(name).itemsize

    def owned(self, name: str, w: int) -> set[Any]:
        owners = self.arrays[name].owners
        return {e for block, owner in zip(self.cut[name], owners) if owner == w for e in block}

    def run(self, v: str) -> None:
        op, splits = self.graph.ops[v], self.found.splits[v]
        grid = list(itertools.product(*[range(splits[x]) for x in op.labels]))
        at = {x: i for i, x in enumerate(op.labels)}
        workers = self.found.placement.ops[v].workers
        self.join[v] = self.agg[v] = self.messages[v] = 0
        tiles = [blocks(self.graph.shape(u), [splits[x] for x in t]) for u, t in zip(op.inputs, op.terms)]
        results = blocks(op.shape, [splits[x] for x in op.result])

        def tile(k: Any, term: Any) -> int:
            number = 0
            for x in term:
                number = number * splits[x] + k[at[x]]
            return number

        need: dict[int, list[Any]] = {w: [k for k, worker in zip(grid, workers) if worker == w] for w in range(self.p)}
        for i, (u, term) in enumerate(zip(op.inputs, op.terms)):
            for w in range(self.p):
                have = self.owned(u, w)
                if not self.streamed:
                    wanted = {e for k in need[w] for e in tiles[i][tile(k, term)]}
                    self.fetch(v, u, wanted - have - self.copies[u][w])
                    self.copies[u][w] |= wanted - have
                    continue
                before: set[Any] = set()
                for k in need[w]:
                    wanted = set(tiles[i][tile(k, term)])
                    self.fetch(v, u, wanted - have - before)
                    before = wanted
        self.hold(v, need, tiles, results, tile)
        self.aggregate(v, need, results, tile)

    def fetch(self, v: str, u: str, missing: set[Any]) -> None:
        self.join[v] += self.size(u) * len(missing)
        self.messages[v] += sum(1 for block in self.cut[u] if block & missing)

    def hold(self, v: str, need: Any, tiles: Any, results: Any, tile: Any) -> None:
        op = self.graph.ops[v]
        self.base = [
            sum(self.size(u) * len(self.owned(u, w)) for u in self.alive)
            + (0 if self.streamed else sum(self.size(u) * len(self.copies[u][w]) for u in list(self.copies)))
            for w in range(self.p)
        ]
        peaks = []
        for w in range(self.p):
            made: set[int] = set()
            peaks.append(self.base[w])
            for k in need[w]:
                made.add(tile(k, op.result))
                read = 0
                for i, (u, term) in enumerate(zip(op.inputs, op.terms)):
                    one = tiles[i][tile(k, term)]
                    if self.streamed or tuple(self.arrays[u].cut) != tuple([self.found.splits[v][x] for x in term]):
                        read += self.size(u) * len(one)
                peaks.append(self.base[w] + read + op.itemsize * sum(len(results[z]) for z in made))
        self.peak[v] = max(peaks)

    def aggregate(self, v: str, need: Any, results: Any, tile: Any) -> None:
        op, owners = self.graph.ops[v], self.arrays[v].owners
        makers = [
            {w for w in range(self.p) if any(tile(k, op.result) == z for k in need[w])} for z in range(len(results))
        ]
        for w in range(self.p):
            held = sum(len(results[z]) for z in range(len(results)) if w in makers[z] or owners[z] == w)
            incoming = [0]
            for z, block in enumerate(results):
                if owners[z] == w:
                    others = len(makers[z] - {w})
                    self.agg[v] += op.itemsize * others * len(block)
                    self.messages[v] += others
                    incoming.append(min(others, 1 if self.streamed else 7) * len(block))
            if len(results) < math.prod(self.found.splits[v].values()):
                self.peak[v] = max(self.peak[v], self.base[w] + op.itemsize * (held + max(incoming)))


@st.composite
def graphs(draw: st.DrawFn) -> EinGraph:
    """Up to three operations on small arrays of uneven blocks; some inputs lie already, some on given workers."""
    p = draw(st.integers(1, 4))
    extents = {x: draw(st.integers(2, 5)) for x in "ijk"}
    shapes = {"a": "ij", "b": "jk", "c": "ik"}
    inputs = {}
    for name, labels in shapes.items():
        shape = tuple([extents[x] for x in labels])
        layout = workers = None
        if draw(st.booleans()):
            layout = tuple([draw(st.sampled_from([1, 2, 3, (0, n - 1, n)])) for n in shape])
            n_blocks = math.prod(k if isinstance(k, int) else len(k) - 1 for k in layout)
            if draw(st.booleans()):
                workers = tuple(draw(st.lists(st.integers(0, p - 1), min_size=n_blocks, max_size=n_blocks)))
        inputs[name] = Input(shape, layout, workers, draw(st.sampled_from([4, 8])))
    made = dict(shapes)
    ops = {}
    kinds = {"ij,jk->ik", "ik->i", "ij,ij->ij", "ij,ik->jk", "ij,i->ij", "ij,jk,ik->i", "ik->ikj"}
    for n in range(draw(st.integers(1, 3))):
        fitting = [k for k in sorted(kinds) if all(t in made.values() for t in k.split("->")[0].split(","))]
        text = draw(st.sampled_from(fitting))
        left, right = text.split("->")
        terms = tuple([tuple(t) for t in left.split(",")])
        given = tuple([draw(st.sampled_from([u for u, t in made.items() if t == "".join(term)])) for term in terms])
        name = f"v{n}"
        ops[name] = EinOp(terms, tuple(right), given, {x: extents[x] for x in {*left, *right} - {","}})
        made[name] = right
    return EinGraph(inputs, ops, p=p)


def labelling(draw: Any, graph: EinGraph) -> dict[str, dict[str, int]]:
    return {
        v: {x: draw(st.integers(1, min(3, op.extents[x]))) for x in op.labels} for v, op in graph.ops.items()
    }  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.data(), graphs())
def test_counts_are_what_counting_elements_gives(data: Any, graph: EinGraph) -> None:
    splits = labelling(data.draw, graph)
    assert graph.p is not None
    found = placed(graph, splits, Machine(graph.p))
    for streamed in (False, True):
        counted = count(found.placement, streamed=streamed)
        expected = Counted(found, streamed=streamed)
        assert {v: c.join_bytes for v, c in counted.ops.items()} == expected.join
        assert {v: c.agg_bytes for v, c in counted.ops.items()} == expected.agg
        assert {v: c.messages for v, c in counted.ops.items()} == expected.messages
        assert {v: c.peak_bytes for v, c in counted.ops.items()} == expected.peak


@settings(max_examples=60, deadline=None)
@given(st.data(), graphs())
def test_workers_have_their_share_of_kernels_and_blocks_lie_where_they_are_made(data: Any, graph: EinGraph) -> None:
    splits = labelling(data.draw, graph)
    assert graph.p is not None
    found = placed(graph, splits, Machine(graph.p))
    for v, op in graph.ops.items():
        workers = found.placement.ops[v].workers
        assert len(workers) == math.prod(splits[v].values())
        each = [list(workers).count(w) for w in range(graph.p)]
        assert max(each) <= -(-len(workers) // graph.p)
        assert sum(each) == len(workers)
        owners = found.placement.arrays[v].owners
        assert len(owners) == math.prod(splits[v][x] for x in op.result)
        if len(owners) == len(workers):  # no partial results: nothing has to move
            assert sorted(owners) == sorted(workers)
    for u, array in graph.inputs.items():
        if array.workers is not None:
            assert tuple(found.placement.arrays[u].owners) == array.workers
        if array.layout is not None:
            assert found.placement.arrays[u].cut == array.layout


def test_slices_travel_and_each_element_once() -> None:
    """A worker that has half of what its kernel reads fetches the other half, for both operations that read it."""
    inputs = {"a": Input((8,), (4,), (0, 1, 0, 1), itemsize=1)}
    whole = {"i": 8}
    ops = {name: EinOp((("i",),), ("i",), ("a",), whole, fixed={"i": 2}) for name in "bc"}
    found = plan(EinGraph(inputs, ops), p=2)
    assert [(c.join_bytes, c.messages) for c in found.count.ops.values()] == [(4, 2), (0, 0)]


def test_links_within_a_process_and_a_node() -> None:
    graph = EinGraph(
        {"a": Input((8,), (4,), (0, 1, 2, 3), itemsize=1)},
        {"b": EinOp((("i",),), ("i",), ("a",), {"i": 8}, fixed={"i": 1})},
    )
    rates = Rates(0.0, 1.0, 0.0, 0.0, node_bandwidth=4.0)
    places = [(0, 0), (0, 0), (0, 1), (1, 0)]
    # 2 bytes from the same process, 2 from the same node, 2 from another one
    assert plan(graph, p=4, rates=rates, places=places).cost == pytest.approx(0 + 2 / 4 + 2)
    assert plan(graph, p=4, rates=rates).cost == pytest.approx(6)
    late = replace(rates, latency=3.0)
    # 3 messages, and 5 of 6 pairs of workers are in different processes
    assert plan(graph, p=4, rates=late, places=places).cost == pytest.approx(2 / 4 + 2 + 3 * 3 * 5 / 6)
    assert plan(graph, p=4, rates=late, places=[(0, 0)] * 4).cost == 0
    with pytest.raises(ShardingError, match="places of 1 workers"):
        plan(graph, p=4, places=[(0, 0)])


# ---------------------------------------------------------------------------------------------------- memory


def small_graph(rng: random.Random) -> EinGraph:
    p = rng.choice((2, 3, 4))
    data = eingraphs.random_graph(rng, rng.randint(1, 4), p)
    return parse_graph(data)


def simulated_peak(found: Any) -> int:
    """Of the placed plan, element by element."""
    return max(Counted(found.placed, streamed=found.count.streamed).peak.values())


def check_limits(seed: int, n: int) -> int:
    """Under ever tighter limits plans stay within them, until there is none; then the error says what would do."""
    rng = random.Random(seed)
    refused = 0
    for _ in range(n):
        graph = small_graph(rng)
        peak = plan(graph).count.peak_bytes
        for share in (1.0, 0.9, 0.75, 0.6, 0.45, 0.3):
            limit = int(share * peak)
            try:
                found = plan(graph, memory_limit=limit)
            except MemoryBudgetError as error:
                refused += 1
                words = str(error).split()
                assert words[1].strip("'") in graph.ops
                smallest = int(words[-2])
                assert smallest > limit
                assert plan(graph, memory_limit=smallest).count.peak_bytes <= smallest
                break
            assert found.count.peak_bytes <= limit
            assert found.count.peak_bytes == simulated_peak(found)
            assert found.cost == placed(graph, found.splits, found.machine, found.limit).count.seconds
    return refused


def test_limits_are_kept_and_errors_say_what_would_do() -> None:
    assert check_limits(0, 3) > 1


@pytest.mark.slow
def test_limits_are_kept_for_many_graphs() -> None:
    assert check_limits(1, 60) > 20


def test_waves_where_one_does_not_fit() -> None:
    """A product whose blocks do not fit runs in waves, on smaller blocks."""
    data = eingraphs.matmul(256, 256, 256, 4)
    free = plan(data)
    tight = plan(data, memory_limit=0.8 * free.count.peak_bytes)
    assert math.prod(free.splits["C"].values()) == 4
    waves = math.prod(tight.splits["C"].values()) // 4
    assert waves > 1
    assert tight.count.peak_bytes <= 0.8 * free.count.peak_bytes
    assert tight.count.peak_bytes == simulated_peak(tight)
    shares = 3 * 256 * 256 * 4 // 4
    with pytest.raises(MemoryBudgetError, match="op 'C' needs"):
        plan(data, memory_limit=shares)  # inputs and result alone


def test_the_limit_says_nothing_where_there_is_room() -> None:
    data = eingraphs.matrix_chain(800)
    free = plan(data)
    assert plan(data, memory_limit=2 * free.count.peak_bytes).splits == free.splits
