"""A workload: its program, operands and check; how any system runs it, here or on a cluster.

The files of workloads say what is computed; this one says how it is placed, run, timed and counted, alike for all.
"""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from .inputs import Source
from .sizes import SIZE, few, of_size
from .systems import DISTRIBUTED, DistArray, Program, System

if TYPE_CHECKING:  # needs distributed
    from .cluster_meter import Job

__all__ = ["COMPARED", "MEMORY", "PARTS", "Pin", "Predicted", "Workload", "free", "job", "on_members", "place", "run"]

#: Pins a tensor of a program to a sharding: ``pin(name, x)``. Systems without shardings take `free`.
Pin = Callable[[str, Any], Any]
#: Names of tensors and their shardings, for the axis of the team.
Cuts = Callable[[str], Mapping[str, Any]]

#: What asv compares. dask-array takes part where it is installed.
COMPARED = ("numpy", "dask.array", "dask.array-grid", "distarray") + (
    ("dask-array", "dask-array-grid") if importlib.util.find_spec("dask_array") else ()
)
#: Members that asv cuts operands for; M and its eighth need a cluster.
PARTS = {"XS": (4,), "S": (1, 2, 4, 8)}
#: Bytes that all workers together may use.
MEMORY = {"M": 16 << 30, "M/8": 2 << 30}


def free(name: str, x: Any) -> Any:
    """No pin."""
    return x


@dataclass(frozen=True)
class Workload:
    """A row of the table of workloads, of one size.

    Attributes
    ----------
    name
        For tables.
    program
        ``program(xp, *operands)``, a tuple of results; with `baselines` it also takes ``pin=``.
    inputs
        The operands by name, in the order of the program.
    check
        Raises AssertionError if the results are wrong.
    inside
        The operands exceed the memory: they are made inside the clock, for every system, as a part of the program.
    baselines
        Usual ways to cut the workload, by name: shardings of operands and of tensors that the program pins.
    keeps
        Position of the result that must have the sharding which an operand had, by name of the operand.
    note
        For tables.
    """

    name: str
    program: Program
    inputs: Mapping[str, Source]
    check: Callable[[Sequence[Any]], None]
    inside: bool = False
    baselines: Mapping[str, Cuts] = field(default_factory=dict)
    keeps: Mapping[str, int] = field(default_factory=dict)
    note: str = ""

    def whole_inputs(self, dtype: str = "f8") -> list[Any]:
        """The operands in numpy."""
        return [source.part().astype(dtype) for source in self.inputs.values()]


# ------------------------------------------------------------------------------------------------------- running


@contextlib.contextmanager
def on_members(system: System, parts: int) -> Iterator[None]:
    """In this process: a team of so many members for distarray."""
    if isinstance(system, DistArray):
        with system.xp.use(system.xp.Team((parts,), ("x",))):
            yield
    else:
        yield


def _cuts(workload: Workload, system: System, baseline: str | None) -> Mapping[str, Any]:
    return {} if baseline is None else workload.baselines[baseline](system.xp.current_team().axes[0])


def _options(workload: Workload, system: System, baseline: str | None) -> dict[str, Any]:
    cuts = _cuts(workload, system, baseline)
    return {"pin": lambda name, x: x.reshard(cuts[name]) if name in cuts else x} if cuts else {}


def place(system: System, workload: Workload, parts: int, baseline: str | None = None) -> list[Any]:
    """The operands of a system, placed; of a workload that makes them inside the clock, what makes each."""
    cuts = _cuts(workload, system, baseline)
    makers = [partial(system.make, source, parts, cuts.get(name)) for name, source in workload.inputs.items()]
    if workload.inside:
        return makers
    placed = system.start(lambda xp, *operands: operands, [made() for made in makers])
    system.finish(*placed)
    return list(placed)


def run(system: System, workload: Workload, operands: Sequence[Any], baseline: str | None = None) -> tuple[Any, ...]:
    """The results, being computed; `System.finish` waits for them."""
    return system.start(partial(_results, workload), operands, **_options(workload, system, baseline))


def _results(workload: Workload, xp: Any, *operands: Any, **options: Any) -> tuple[Any, ...]:
    """The program; of operands that it makes itself nobody else has a handle, so that none of them is kept."""
    return workload.program(xp, *[x() if workload.inside else x for x in operands], **options)


@dataclass(frozen=True)
class Predicted:
    """What distarray says of a run before it: seconds that planning took, and what the plan says of the rest."""

    planner: str
    plan_seconds: float
    tasks: int
    bytes_moved: int
    peak: int


def predicted(system: DistArray, workload: Workload, operands: Sequence[Any], baseline: str | None = None) -> Predicted:
    """The plan of the last evaluation that the program needs; steps that wait for values run for it."""
    from distarray.runtime.planning import plan_of

    dx = system.xp
    with dx.config.set(planner=system.planner):
        results = _results(workload, dx, *operands, **_options(workload, system, baseline))
        plan = dx.explain(*results)
        seconds = 0.0
        if plan.plain is None:
            dx.plan_cache_clear()
            began = time.perf_counter()
            plan_of([node for node in (x.__dx_node__() for x in results) if node.memo is None])
            seconds = time.perf_counter() - began
    return Predicted(plan.planner or "none", seconds, plan.tasks, plan.moved_bytes, plan.peak_bytes)


def job(workload: Workload, name: str, parts: int, baseline: str | None = None, *, release: bool = False) -> Job:
    """The workload on a system, as `cluster_meter` runs it; with `release` nobody holds the operands once it runs."""
    from .cluster_meter import Job

    system = DISTRIBUTED[name]
    before: dict[str, Any] = {}

    def placed() -> list[Any]:
        operands = place(system, workload, parts, baseline)
        if isinstance(system, DistArray):
            made = [x() for x in operands] if workload.inside else operands
            before.update((key, x.sharding) for key, x in zip(workload.inputs, made, strict=True))
        return operands

    def started(operands: list[Any]) -> Any:
        given = list(operands)
        if release:
            operands.clear()
        return run(system, workload, given, baseline)

    def checked(results: Sequence[Any]) -> None:
        workload.check(results)
        if isinstance(system, DistArray):
            assert_kept(workload, before, results)

    return Job(
        name if baseline is None else f"{name}, {baseline}",
        placed,
        started,
        lambda results: system.finish(*results),
        checked,
    )


def assert_kept(workload: Workload, before: Mapping[str, Any], results: Sequence[Any]) -> None:
    """Raise AssertionError if an updated operand lies otherwise than it did."""
    for name, position in workload.keeps.items():
        if results[position].sharding != before[name]:
            raise AssertionError(f"{name} was {before[name]} and became {results[position].sharding}")


# ------------------------------------------------------------------------------------------------------- for asv


class _Timed:
    """Times in this process. asv looks at names without an underscore only; a workload inherits and says `workload`."""

    param_names = ("variant", "size", "system", "p")
    timeout = 600
    workload: Callable[[str, str], Workload]

    def setup(self, variant: str, size: str, system: str, p: int) -> None:
        if p != of_size(PARTS, size)[0] and system in ("numpy", "dask.array", "dask-array"):
            raise NotImplementedError  # asv's word for: these do not ask for the number of members
        self.system = DISTRIBUTED[system]
        self.case = type(self).workload(variant, size)
        with on_members(self.system, p):
            self.operands = place(self.system, self.case, p)

    def time_run(self, variant: str, size: str, system: str, p: int) -> None:
        with on_members(self.system, p):
            self.system.finish(*run(self.system, self.case, self.operands))

    def peakmem_run(self, variant: str, size: str, system: str, p: int) -> None:
        self.time_run(variant, size, system, p)


class _Tracked:
    """What distarray counts on a cluster of threads: there every byte between members is counted."""

    param_names = ("variant", "size", "p")
    timeout = 600
    workload: Callable[[str, str], Workload]

    def setup(self, variant: str, size: str, p: int) -> None:
        from distributed import Client, LocalCluster

        self.case = type(self).workload(variant, size)
        self.cluster = LocalCluster(
            n_workers=p, threads_per_worker=1, processes=False, dashboard_address=":0", memory_limit=0
        )
        self.client = Client(self.cluster)
        self.system = DISTRIBUTED["distarray"]
        if size == "XS":  # else all of it is one small block, and there is nothing to count
            self.system.xp.config.set(block_bytes=0)
        self.operands = place(self.system, self.case, p)

    def teardown(self, variant: str, size: str, p: int) -> None:
        del self.operands
        self.client.close()
        self.cluster.close()

    def _counted(self) -> Any:
        with self.system.xp.testing.counting() as counted:
            self.system.finish(*run(self.system, self.case, self.operands))
        return counted

    def track_tasks(self, variant: str, size: str, p: int) -> int:
        return int(self._counted().tasks)

    def track_bytes_moved(self, variant: str, size: str, p: int) -> int:
        return int(self._counted().bytes_moved)

    def track_plan_seconds(self, variant: str, size: str, p: int) -> float:
        return predicted(self.system, self.case, self.operands).plan_seconds

    def track_predicted_bytes_moved(self, variant: str, size: str, p: int) -> int:
        return predicted(self.system, self.case, self.operands).bytes_moved

    track_bytes_moved.unit = track_predicted_bytes_moved.unit = "bytes"  # type: ignore[attr-defined]  # asv's
    track_plan_seconds.unit = "seconds"  # type: ignore[attr-defined]


def timed_params(variants: Iterable[str]) -> tuple[list[Any], ...]:
    """Parameters of `_Timed`."""
    return few(variants), [SIZE], list(COMPARED), list(of_size(PARTS))


def tracked_params(variants: Iterable[str]) -> tuple[list[Any], ...]:
    """Parameters of `_Tracked`."""
    return few(variants), [SIZE], list(of_size(PARTS))


def references(workload: Workload) -> tuple[Any, ...]:
    """The results by numpy, in float64; the last one is remembered, for the systems that are checked in turn."""
    if _remembered.get("of") is not workload:
        made = tuple(np.asarray(x) for x in workload.program(np, *workload.whole_inputs()))
        _remembered.update(of=workload, results=made)
    return _remembered["results"]  # type: ignore[no-any-return]


_remembered: dict[str, Any] = {}
