"""The graph of a run of member programs: how many tasks the scheduler is told of, on members that are made up."""

from __future__ import annotations

import pickle
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from dask._task_spec import TaskRef
from member_graphs import template_of

import distarray as dx
from distarray.lower import lower
from distarray.lower.credits import Programs
from distarray.lower.parameters import parameters_of
from distarray.lower.template import Template
from distarray.runtime.task_graph import HOME, RUN, MemberRun
from distarray.runtime.transport import loaded_program

pytest.importorskip("distributed")

from distarray.runtime.member_tasks import RunGraph, SentTemplates

N = 32
HOMES = [f"home-{n}" for n in range(N)]
STEPS: dict[str, Callable[[Any], Any]] = {
    "transposed sum": lambda m: m + m.T,
    "sort": lambda m: dx.sort(m, axis=0),
    "fft2": dx.fft.fft2,
    "take": lambda m: m[np.arange(m.shape[0])[::-1] // 2],
    "put": lambda m: m.at[np.arange(0, m.shape[0], 3)].set(m[: len(range(0, m.shape[0], 3))]),
    "reshard": lambda m: m.reshard((None, "x")),
    "power": lambda m: m @ (m @ (m @ m.sum(1))),
}


def run_of(template: Template, graph: Any, name: str, ahead: int | None = None) -> MemberRun:
    programs = template.programs if ahead is None else template.with_credits(ahead)
    filling = parameters_of(template.specs, graph.nodes, tuple)
    given = {m: tuple([TaskRef(("block", repr(ref))) for ref in p.given]) for m, p in programs.items()}
    return MemberRun(name, template, Programs(programs, ahead, {}), (filling, None), given, {}, {})


@pytest.mark.parametrize("ahead", [None, 0, 2])
@pytest.mark.parametrize("name", STEPS)
def test_the_scheduler_is_told_of_no_task_for_each_pair_of_members(name: str, ahead: int | None) -> None:
    template, graph = template_of(N, STEPS[name])
    kept = sum(len(refs) for _, refs, _ in template.lowered.outputs.values())
    run, _, new = SentTemplates(HOMES).graph_of(run_of(template, graph, "one", ahead))
    made = run.__dask_graph__()
    assert not new
    assert kept <= N and len(made) <= N + kept
    annotations = run.__dask_annotations__()
    assert annotations[HOME].keys() == made.keys()
    assert set(annotations[RUN].values()) <= {("one", n, ahead is not None) for n in range(N)}
    # Between a pair of members one message for each step at which one needs something of the other.
    n_steps = len(template.lowered.drafts)
    sent = [(m, receivers) for m, p in template.programs.items() for _, receivers in p.sent.values()]
    pairs = Counter((member, to) for member, receivers in sent for to in receivers)
    assert max(pairs.values()) <= n_steps


def test_from_the_second_run_on_workers_have_the_programs() -> None:
    template, graph = template_of(N, STEPS["power"])
    sent = SentTemplates(HOMES)
    first, _, new = sent.graph_of(run_of(template, graph, "one"))
    assert not new and all(isinstance(p.program, bytes) for p in first.programs)
    second, _, new = sent.graph_of(run_of(template, graph, "two"))
    assert len(new) == len(template.programs)
    for p in second.programs:
        assert isinstance(p.program, TaskRef)
        assert p.program.key in new
        task = second.tasks[p.program.key]
        assert task.func is loaded_program
        assert loaded_program(*task.args).program.received == template.programs[p.member].received
    size = len(
        pickle.dumps(RunGraph({}, {}, HOMES, "two", second.parameters, second.programs, label="sum", is_queued=False))
    )
    assert size <= 20_000 + N * 1_000
    assert size < len(pickle.dumps(first)) / 2


def test_two_threads_that_run_a_template_first_know_of_one() -> None:
    """What a thread holds is what the other refers to."""
    template, graph = template_of(N, STEPS["transposed sum"])
    for _ in range(20):
        sent = SentTemplates(HOMES)
        start = threading.Barrier(4)

        def run(n: int, sent: SentTemplates = sent, start: threading.Barrier = start) -> Any:
            start.wait()
            return sent.graph_of(run_of(template, graph, f"run-{n}"))[1]

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(run, range(4)))
        assert len({id(template_there) for template_there in found}) == 1
        assert found[0].n_runs == 4


def test_a_template_that_is_forgotten_is_let_go_of() -> None:
    template, graph = template_of(N, STEPS["transposed sum"])
    sent = SentTemplates(HOMES)
    sent.graph_of(run_of(template, graph, "one"))
    assert len(sent._known) == 1
    lower._TEMPLATES.clear()
    del template
    assert len(sent._known) == 0
