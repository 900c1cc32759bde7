"""Calibration: what messages, tasks and kernels cost on the running executor, measured in a few seconds.

Everything is measured as it will be used: tasks go through the executor of the environment, transfers are blocks that a
task on one member takes from another, and all members compute at once, since they share what they share then too.

* **task**: many empty tasks, spread over the members; wall seconds for each.
* **latency, bandwidth, node_bandwidth**: a block is handed from member to member, and as often from a member to itself;
  the difference of a hop is what the message costs. Small blocks give the latency, large ones the bandwidth: between
  hosts, and between processes of one host.
* **exchange, step**: member programs hand something on, to each other and to themselves.
* **compute, gemm, generic**: operations per second of a member, for kernels on blocks of some sizes.
* **bandwidth_own, compute_own, gemm_own, generic_own**: the same by one member alone, and by all at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate, combinations
from math import ceil
from typing import Any, TypeVar

from dask._task_spec import Task, TaskRef

from distarray.expr.expr import Environment
from distarray.kernels.devices import backend_for
from distarray.lower.bundling import Output
from distarray.lower.credits import Programs
from distarray.lower.member_programs import process_program
from distarray.lower.messages import Key
from distarray.lower.parameters import Parameters
from distarray.lower.recipes import Recipe, named
from distarray.lower.template import Lowered, Template
from distarray.planner.rates import RateTable, own_part
from distarray.runtime.clients import n_threads, process_threads
from distarray.runtime.executors import run_program
from distarray.runtime.first_look import seconds_of
from distarray.runtime.known_rates import Calibration, WorkerFacts, signature, worker_facts
from distarray.runtime.members import executor_for
from distarray.runtime.run_names import new_run
from distarray.runtime.task_graph import MemberRun
from distarray.sharding.sharding import Sharding

T = TypeVar("T")

#: How often tasks and hops are measured, and the seconds after which they are not measured once more. The fastest
#: counts, as what others do on the machine only slows down.
TIMES, PATIENCE = 5, 0.3
#: Hops of a chain, and bytes of the blocks that are handed on.
HOPS = 6
BLOCKS = (8, 1 << 22)
#: Empty tasks for each member.
TASKS = 32
#: Sizes of kernels: elements, and rows of square matrices. None is begun once a member computed for so many seconds.
ELEMENTS = (1 << 12, 1 << 16, 1 << 19, 1 << 22)
ROWS = (32, 128, 512, 1024)
GENERIC_ROWS = (16, 48, 96)
COMPUTING = 0.3
#: Seconds for which a kernel is repeated, of which the best run counts.
REPEAT = 0.02
#: Seconds for which a member computes alone and then with all others, long enough for those that share a core to have
#: their turns; how often, of which the shortest counts; and kernels of which size.
TOGETHER = 0.03
ROUNDS = 3
#: Steps of programs that pass something on.
EXCHANGES = 20
CROWDED = {"elementwise": ELEMENTS[1], "gemm": ROWS[2], "generic": GENERIC_ROWS[1]}
#: What a hop between workers of one process takes may be too little to be seen.
FASTEST = 1e12
#: The size whose rate is `compute`: slices of a fused program are as large.
SLICE = ELEMENTS[1]


def measured(env: Environment) -> Calibration:
    """Measure the rates of an environment.

    Of links of a kind one is measured. A cluster of one worker has none, and its rates say nothing about messages.

    Raises
    ------
    RuntimeError
        If a worker does not answer.
    """
    started = time.perf_counter()
    name = signature(env)
    if name is None:
        raise RuntimeError("a worker did not say what it runs on; nothing is calibrated")
    bench = _Bench(env)
    rates: dict[str, float | RateTable] = {"task": bench.task()}
    rates |= bench.links() if env.is_cluster else bench.inside()
    if env.is_cluster and env.size > 1:
        rates |= bench.programs()
    for kind in _KERNELS:
        rates |= bench.kernels(kind)
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    return Calibration(name, rates, date, time.perf_counter() - started)


def measured_links(env: Environment) -> dict[str, float]:
    """Measure only what messages between the workers of a cluster cost: the rates of `links`."""
    return _Bench(env).links()


class _Bench:
    """A _Bench runs tasks on members and takes the time."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        #: Members that run tasks at the same time: those of a process share its threads.
        self.members = range(env.size if env.is_cluster else min(env.size, n_threads()))
        self.run([(m, _nothing, ()) for m in range(env.size)])  # connections, pools, imports

    def run(self, calls: Sequence[tuple[int, Callable[..., Any], tuple[Any, ...]]]) -> tuple[float, list[Any]]:
        """Return the seconds until all calls are done, and what they return.

        Arguments that are keys (`_key`) are results of earlier calls.
        """
        recipes = {_key(n): Recipe("call", function, args) for n, (_, function, args) in enumerate(calls)}
        members = {_key(n): member for n, (member, *_) in enumerate(calls)}
        used = {key for recipe in recipes.values() for key in recipe.reads()}
        keep = [key for key in recipes if key not in used]
        if not self.env.is_cluster:
            program = process_program(recipes, members, keep, {})
            start = time.perf_counter()
            made = run_program(program, program.steps, (), lambda: recipes, process_threads(self.env))
            return time.perf_counter() - start, list(made.values())
        run, executor = new_run(), executor_for(self.env)
        names = {key: named(key, run) for key in recipes}
        tasks = {
            names[key]: Task(names[key], function, *[TaskRef(names[a]) if type(a) is tuple else a for a in args])
            for key, (_, function, args, _) in recipes.items()
        }
        start = time.perf_counter()
        futures = executor.submit(tasks, {names[key]: m for key, m in members.items()}, [names[key] for key in keep])
        executor.wait(futures.values())
        seconds = time.perf_counter() - start
        return seconds, executor.fetch([futures[names[key]] for key in keep])

    def task(self) -> float:
        """Measure the seconds that a task costs."""
        calls = [(m, _nothing, ()) for _ in range(TASKS) for m in range(self.env.size)]
        return min(_measurements(lambda: self.run(calls)[0])) / len(calls)

    def programs(self) -> dict[str, float]:
        """Return the seconds of an exchange between programs of two members, and of a step that waits for nobody."""
        step = min(self._steps([0] * EXCHANGES) for _ in range(ROUNDS))
        there_and_back = min(self._steps([0, self.env.size - 1] * (EXCHANGES // 2) + [0]) for _ in range(ROUNDS))
        return {"exchange": max(there_and_back - step, step), "step": step}

    def _steps(self, members: Sequence[int]) -> float:
        """Return the seconds of one of several steps, each of which reads what the one before made."""
        keys = list(map(_key, range(len(members))))
        recipes = {key: Recipe("call", _passed_on, (keys[n - 1],) if n else ()) for n, key in enumerate(keys)}
        at = dict(zip(keys, members, strict=True))
        output = Output(Sharding.whole(self.env.mesh, 0), keys[-1:], [0])
        lowered = Lowered(members=at, outputs={0: output}, depth=len(keys))
        template = Template(recipes, lowered=lowered)
        programs = Programs(template.programs, None, {})
        given = dict.fromkeys(programs.by_member, ())
        run = MemberRun(new_run(), template, programs, (Parameters((), (), {}, {}), None), given, {}, {})
        key = named(keys[-1], run.name)
        executor = executor_for(self.env)
        (future,) = executor.run_programs(run, [key], (), {key: 0}).values()
        ((first, last),) = executor.fetch([future])
        return float(last - first) / (len(members) - 1)

    def _hop(self, nbytes: int, paths: Sequence[Sequence[int]]) -> float:
        """Return the seconds in which a block is made from the one before, from member to member, along all paths at
        once.
        """
        device = self.env.device
        calls: list[Any] = []
        for path in paths:
            first = len(calls)
            calls.append((path[0], _block, (nbytes, device, path[0])))
            calls += [(m, _handed_on, (_key(first + i), device, m)) for i, m in enumerate(path[1:])]
            calls.append((path[-1], _nothing, (_key(len(calls) - 1),)))
        return self.run(calls)[0] / (len(paths[0]) - 1)

    def _extra(self, nbytes: int, paths: Sequence[Sequence[int]]) -> float:
        """Return the seconds that a hop takes longer than one from a member to itself."""
        same = [[path[0]] * len(path) for path in paths]
        # in turn, so that a slow moment of the machine hits both
        hops = _measurements(lambda: (self._hop(nbytes, paths), self._hop(nbytes, same)))
        return max(min(a for a, _ in hops) - min(b for _, b in hops), nbytes / FASTEST)

    def links(self) -> dict[str, float]:
        """Return the seconds per message, and bytes per second between hosts and between processes of a host.

        What there is not is as the slowest that there is.
        """
        assert self.env.team is not None
        facts = worker_facts(self.env.team) or []
        pairs: dict[str, tuple[int, int]] = {}
        for a, b in combinations(range(len(facts)), 2):
            pairs.setdefault(_kind_of_link(facts[a], facts[b]), (a, b))
        kinds: list[str] = [kind for kind in ("network", "node") if kind in pairs] or list(pairs)
        if not kinds:
            return {}
        found = {kind: self._link(*pairs[kind]) for kind in kinds}
        crowding = self._crowding()
        rates = {"latency": found[kinds[0]]["latency"], "bandwidth": found[kinds[0]]["bandwidth"] / crowding}
        if "node" in found:
            rates["node_bandwidth"] = found["node"]["bandwidth"] / crowding
        return rates | {"bandwidth_own": own_part(crowding, len(self.members))}

    def _link(self, first: int, last: int) -> dict[str, float]:
        """Return latency and bandwidth from one worker to another."""
        path = [first, last] * (HOPS // 2) + [first]
        return _line({nbytes: self._extra(nbytes, [path]) for nbytes in BLOCKS})

    def _crowding(self) -> float:
        """Return how many times as long blocks take if all members are sent one at once."""
        around = [[(first + i) % len(self.members) for i in range(HOPS + 1)] for first in self.members]
        alone, all_at_once = (self._extra(max(BLOCKS), paths) for paths in (around[:1], around))
        return self._at_most_turns(all_at_once / alone)

    def inside(self) -> dict[str, float]:
        """Measure the same for threads: pieces are copied from block to block, by a call each."""
        together = {nbytes: self._copy(nbytes, self.members) for nbytes in BLOCKS}
        crowding = together[max(BLOCKS)] / self._copy(max(BLOCKS), range(1))
        return _line(together) | {"bandwidth_own": own_part(crowding, len(self.members))}

    def _copy(self, nbytes: int, members: Sequence[int]) -> float:
        """Return the seconds of the slowest of members that copy at once."""
        _, seconds = self.run([(m, _seconds_of_copy, (nbytes, self.env.device, m)) for m in members])
        return float(max(seconds))

    def kernels(self, kind: str) -> dict[str, float | RateTable]:
        """Return the operations per second of a member while all compute, by the operations of a kernel; what is its
        own of that.

        One member computes alone, with kernels of all sizes; then all do at once, and the last to end counts.
        """
        (found,) = self.run([(0, _kernel_rates, (kind, self.env.device, 0))])[1]
        crowding = self._crowded(kind, *next((f for f in found if f[0] == CROWDED[kind]), found[-1]))
        rates_of_all = [rate / crowding for _, _, rate in found]
        if kind == "gemm":  # a larger product is never slower per operation: what looks so was disturbed
            rates_of_all = list(accumulate(rates_of_all, max))
        table = tuple([(operations, rate) for (_, operations, _), rate in zip(found, rates_of_all, strict=True)])
        rates: dict[str, float | RateTable] = {kind: table}
        own = own_part(crowding, len(self.members))
        if kind != "elementwise":
            return rates | {f"{kind}_own": own}
        by_size = dict(table)
        return rates | {"compute": by_size.get(SLICE, max(by_size.values())), "compute_own": own}

    def _crowded(self, kind: str, n: int, operations: int, rate: float) -> float:
        """Return how many times as long all members take for as many kernels each as one of them."""
        if len(self.members) == 1:
            return 1.0
        n_runs = ceil(TOGETHER * rate / operations)

        def seconds(members: Sequence[int]) -> float:
            calls = [[(m, _repeated, (kind, n, k, self.env.device, m)) for m in members] for k in (0, n_runs)]
            none, all_of_them = (min(self.run(c)[0] for _ in range(ROUNDS)) for c in calls)
            return max(all_of_them - none, TOGETHER / 10)

        return self._at_most_turns(seconds(self.members) / seconds(range(1)))

    def _at_most_turns(self, times_as_long: float) -> float:
        """Let members take turns at the worst, and never gain: what looks so was disturbed."""
        return min(max(times_as_long, 1.0), float(len(self.members)))


def _measurements(measure: Callable[[], T]) -> list[T]:
    found: list[T] = []
    end = time.perf_counter() + PATIENCE
    while len(found) < TIMES and (not found or time.perf_counter() < end):
        found.append(measure())
    return found


def _line(seconds: Mapping[int, float]) -> dict[str, float]:
    """Return latency and bandwidth from seconds by bytes: the smallest block, and what the largest takes beyond it."""
    small, large = min(seconds), max(seconds)
    more = max(seconds[large] - seconds[small], (large - small) / FASTEST)
    return {"latency": seconds[small], "bandwidth": (large - small) / more}


def _kind_of_link(a: WorkerFacts, b: WorkerFacts) -> str:
    if a.host != b.host:
        return "network"
    return "node" if a.process != b.process else "process"


def _key(number: int) -> Key:
    """Return the key of a call of a run, without the name of the run."""
    return ("dx-calibrate", 0, number)


# ------------------------------------------------------------------------------------- what members run


def _nothing(*_: Any) -> int:
    return 0


def _passed_on(times: tuple[float, float] | None = None) -> tuple[float, float]:
    """Return when the first of several steps ran, and when this one did, by the clock of its member."""
    now = time.perf_counter()
    return (now, now) if times is None else (times[0], now)


def _block(nbytes: int, device: str, member: int) -> Any:
    backend = backend_for(device, member)
    return backend.copy(backend.zeros((nbytes // 8,), "f8"))  # touched


def _handed_on(block: Any, device: str, member: int) -> Any:
    backend = backend_for(device, member)
    return backend.copy(backend.adopt(block))


def _best_seconds(call: Callable[[], Any], settle: Callable[[Any], Any]) -> float:
    return seconds_of(lambda: settle(call()), REPEAT)[0]


def _seconds_of_copy(nbytes: int, device: str, member: int) -> float:
    backend = backend_for(device, member)
    source, target = _block(nbytes, device, member), _block(nbytes, device, member)

    def copy() -> Any:
        target[:] = source
        return target

    return _best_seconds(copy, _settled(backend))


def _settled(backend: Any) -> Callable[[Any], Any]:
    """Wait until a block is computed: devices compute while Python goes on."""
    if backend.name == "numpy":
        return lambda block: block
    return lambda block: backend.to_host(block[(slice(1),) * block.ndim])


def _kernel_rates(kind: str, device: str, member: int) -> list[tuple[int, int, float]]:
    """Return sizes, operations of a kernel, and operations per second, best of some runs."""
    kernel, sizes = _KERNELS[kind]
    backend = backend_for(device, member)
    settle = _settled(backend)
    found: list[tuple[int, int, float]] = []
    start = time.perf_counter()
    for n in sizes:
        operations, call = kernel(backend, n)
        found.append((n, operations, operations / _best_seconds(call, settle)))
        if time.perf_counter() - start > COMPUTING:
            break
    return found


def _repeated(kind: str, n: int, n_runs: int, device: str, member: int) -> int:
    """Run a kernel so often, and once before."""
    backend = backend_for(device, member)
    settle = _settled(backend)
    _, call = _KERNELS[kind][0](backend, n)
    for _ in range(1 + n_runs):
        settle(call())
    return 0


def _elementwise(backend: Any, n: int) -> tuple[int, Callable[[], Any]]:
    xp = backend.xp
    a, b = (backend.copy(backend.zeros((n,), "f8")) for _ in range(2))
    if backend.name != "strict":  # functions of the standard take no ``out=``
        out = backend.empty((n,), "f8")  # blocks are used again, so new memory is not what it costs
        return n, lambda: xp.add(a, b, out=out)
    return n, lambda: xp.add(a, b)


def _gemm(backend: Any, n: int) -> tuple[int, Callable[[], Any]]:
    a, b = (backend.copy(backend.zeros((n, n), "f8")) for _ in range(2))
    return 2 * n**3, lambda: backend.xp.matmul(a, b)


def _generic(backend: Any, n: int) -> tuple[int, Callable[[], Any]]:
    """Run what is joined and aggregated by other functions than multiplication and sum."""
    xp = backend.xp
    a, b = backend.copy(backend.zeros((n, n, 1), "f8")), backend.copy(backend.zeros((1, n, n), "f8"))
    return 2 * n**3, lambda: xp.max(xp.abs(xp.subtract(a, b)), axis=1)


#: Kernels, and for which sizes they are measured.
_KERNELS: dict[str, tuple[Callable[[Any, int], tuple[int, Callable[[], Any]]], Sequence[int]]] = {
    "elementwise": (_elementwise, ELEMENTS),
    "gemm": (_gemm, ROWS),
    "generic": (_generic, GENERIC_ROWS),
}
