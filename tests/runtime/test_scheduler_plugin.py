"""What the cluster side needs of dask's private modules and of the scheduler's records; and how homes are served."""

import pickle
import random
import threading
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("distributed")

from dask._task_spec import Task, TaskRef, convert_legacy_graph
from distributed.active_memory_manager import ReduceReplicas, Suggestion
from distributed.client import Client
from distributed.scheduler import Scheduler, TaskState
from distributed.worker_state_machine import TaskState as WorkerTaskState
from distributed.worker_state_machine import WorkerState

from distarray.runtime.placement import Placement
from distarray.runtime.scheduler_plugin import PlacementPlugin
from distarray.runtime.task_graph import HOME, TaskGraph
from distarray.runtime.wire import TOPIC
from distarray.runtime.worker_plugin import GONE


def test_tasks_say_what_they_depend_on_and_run_with_the_values():
    inner = Task(None, np.multiply, TaskRef(("b", 0)), 2)
    task = Task(("a", 0), np.add, TaskRef(("b", 1)), inner)
    assert task.dependencies == {("b", 0), ("b", 1)}
    assert pickle.loads(pickle.dumps(task))({("b", 0): 3, ("b", 1): 4}) == 10
    assert convert_legacy_graph({("a", 0): task}) == {("a", 0): task}


def test_array_literals_in_tasks_are_passed_as_they_are():
    block = np.arange(3.0)
    task = Task("t", np.asarray, block)
    assert task.dependencies == frozenset()
    assert task({}) is block


def test_graph_answers_what_the_scheduler_asks_of_an_expression():
    tasks = {("dx-a", i): Task(("dx-a", i), np.ones, i) for i in range(3)}
    graph = pickle.loads(pickle.dumps(TaskGraph(tasks, {("dx-a", 0): 1, ("dx-a", 1): 0}, ["w0", "w1"])))
    assert graph.__dask_graph__() == tasks
    assert graph.__dask_annotations__() == {HOME: {("dx-a", 0): "w1", ("dx-a", 1): "w0"}}


def test_scheduler_has_the_records_that_the_plugin_changes():
    slots = set(TaskState.__slots__)
    assert slots >= {
        "annotations", "dependencies", "dependents", "exception_blame", "has_lost_dependencies", "host_restrictions",
        "loose_restrictions", "priority", "processing_on", "run_spec", "waiters", "who_has", "who_wants",
        "worker_restrictions",
    }  # fmt: skip
    assert Suggestion._fields[:3] == ("op", "ts", "candidates")
    assert callable(ReduceReplicas.run)
    for name in ("transitions", "request_remove_replicas", "log_event", "unsubscribe_topic"):
        assert callable(getattr(Scheduler, name))
    assert callable(Client._graph_to_futures)
    assert set(WorkerTaskState.__annotations__) >= {
        "dependencies",
        "dependents",
        "state",
        "waiters",
        "waiting_for_data",
    }
    assert callable(WorkerState._transitions)


class _Worker:
    def __init__(self, name):
        self.name = name
        self.processing, self.executing = {}, {}


class _Scheduler:
    """As much of a scheduler as placement looks at."""

    def __init__(self, n):
        self.workers = {f"w{i}": _Worker(i) for i in range(n)}
        self.tasks = {}
        self.events = []
        self.sent = []
        self.client_comms = {}
        self.unsubscribed = []

    def unsubscribe_topic(self, topic, client):
        self.unsubscribed.append((topic, client))

    def worker_send(self, worker, message):
        self.sent.append((worker, message["op"], message["address"]))

    def log_event(self, topic, event):
        self.events.append(event)

    def transitions(self, recommendations, stimulus_id):
        assert not recommendations


def _plugin(n):
    plugin = PlacementPlugin()
    plugin.scheduler = scheduler = _Scheduler(n)
    plugin.names = {address: worker.name for address, worker in scheduler.workers.items()}
    plugin.clients["client"] = 0, frozenset(scheduler.workers)
    plugin.hearing = set(scheduler.workers)
    plugin.version = 0
    plugin._told = plugin._known()

    def lose(address):
        del scheduler.workers[address]
        plugin.remove_worker(scheduler, address, stimulus_id="test")

    def join(address, name):
        scheduler.workers[address] = _Worker(name)
        plugin.add_worker(scheduler, address)

    return plugin, lose, join


def test_clients_that_have_gone_without_a_word_are_not_told():
    """Those of tasks go with their worker; what was sent to them was an error in the log of the scheduler."""
    plugin, lose, _ = _plugin(3)
    plugin.scheduler.client_comms = {
        "here": SimpleNamespace(closed=lambda: False),
        "gone": SimpleNamespace(closed=lambda: True),
    }
    lose("w0")
    assert plugin.scheduler.unsubscribed == [(TOPIC, "gone")]
    assert plugin.scheduler.events[-1]["left"] == ["w0"]


def test_lost_homes_are_spread_over_the_survivors():
    """B-13: which worker serves a rank is state; every home is served."""
    plugin, lose, _ = _plugin(6)
    for address in ("w0", "w1", "w2"):
        lose(address)
    assert sorted(plugin.address(f"w{i}") for i in range(6)) == ["w3", "w3", "w4", "w4", "w5", "w5"]
    told = [message for message in plugin.scheduler.sent if message[2] == "w2"]
    assert sorted(told) == [(w, GONE, "w2") for w in ("w3", "w4", "w5")]  # so that they stop waiting for it


def test_restarted_worker_takes_its_home_back_under_its_new_address():
    plugin, lose, join = _plugin(3)
    lose("w1")
    lose("w2")
    join("v2", 2)
    assert [plugin.address(f"w{i}") for i in range(3)] == ["w0", "w0", "v2"]
    join("v1", 1)
    assert [plugin.address(f"w{i}") for i in range(3)] == ["w0", "v1", "v2"]
    lose("v2")
    join("u2", 2)
    assert plugin.address("w2") == "u2"
    assert set(plugin.lost) == {"w1", "w2"}  # v2 was nobody's home


def test_stranger_relieves_the_busiest_survivor():
    plugin, lose, join = _plugin(3)
    lose("w1")
    lose("w2")
    join("new", "stranger")
    assert sorted(plugin.address(f"w{i}") for i in range(3)) == ["new", "w0", "w0"]


def test_last_worker_lost_and_first_to_come_serves_all():
    plugin, lose, join = _plugin(2)
    lose("w0")
    lose("w1")
    assert plugin.address("w0") == "w0"
    join("new", "stranger")
    assert {plugin.address("w0"), plugin.address("w1")} == {"new"}


def _tell(plugin, worker, status):
    plugin.log_event(worker, {"action": "worker-status-change", "status": status, "stimulus_id": "test"})


def test_a_worker_that_is_retired_serves_nothing_from_then_on():
    plugin, lose, _ = _plugin(3)
    _tell(plugin, "w1", "closing_gracefully")
    assert plugin.address("w1") == "w0"
    assert list(plugin.state()["workers"]) == ["w0", "w2"]
    assert plugin.state()["living"] == 3
    plugin.log_event("w1", {"action": "remove-worker", "expected": False})
    lose("w1")
    assert plugin.state()["crashed"] == []


def test_a_worker_that_is_lost_may_come_back():
    plugin, lose, join = _plugin(3)
    plugin.log_event("w1", {"action": "remove-worker", "expected": False})
    lose("w1")
    assert plugin.state()["crashed"] == ["w1"]
    join("v1", 1)
    assert plugin.state()["crashed"] == []


def test_a_paused_worker_is_relieved_once_patience_is_lost_and_comes_back():
    plugin, _, _ = _plugin(2)
    _tell(plugin, "w1", "paused")
    assert plugin.address("w1") == "w1"
    assert plugin.relieve(60) == []
    assert plugin.address("w1") == "w1"
    assert plugin.relieve(0) == []
    assert plugin.address("w1") == "w0"
    assert list(plugin.state()["workers"]) == ["w0"]
    _tell(plugin, "w1", "running")
    assert plugin.address("w1") == "w1"
    assert list(plugin.state()["workers"]) == ["w0", "w1"]


def test_paused_workers_that_nobody_can_relieve_are_named():
    plugin, _, _ = _plugin(2)
    _tell(plugin, "w0", "paused")
    _tell(plugin, "w1", "paused")
    assert [(address, name) for address, name, _ in plugin.relieve(0)] == [("w0", 0), ("w1", 1)]
    plugin.scheduler.workers["w1"].executing["task"] = 1.0  # it ends what it does
    assert [address for address, _, _ in plugin.relieve(0)] == ["w0"]
    assert plugin.address("w1") == "w1"


def test_clients_are_told_of_every_change_in_order():
    plugin, lose, join = _plugin(2)
    lose("w1")
    join("v1", 1)
    first, second = plugin.scheduler.events
    assert (first["version"], second["version"]) == (1, 2)
    assert (first["left"], first["joined"]) == (["w1"], {})
    assert (second["left"], second["joined"]) == ([], {"v1": 1})
    assert first["serves"] == {"w1": (1, "w0")}
    assert second["serves"] == {"w1": (1, "v1")}
    assert plugin.state() == {
        "version": 2,
        "workers": {"w0": 0, "v1": 1},
        "serves": {"w1": (1, "v1")},
        "living": 2,
        "crashed": [],
    }


def _task(home):
    return SimpleNamespace(annotations={HOME: home}, worker_restrictions={home}, state="memory", priority=(0,))


def test_thousand_replaced_workers_leave_nothing_and_cost_differences_alone():
    """What departed is forgotten unless the team of a client, or a task, has it as a home."""
    plugin, lose, join = _plugin(4)
    current = ["w0", "w1", "w2", "w3"]
    for k in range(1000):
        lose(current[k % 4])
        current[k % 4] = f"v{k}"
        join(f"v{k}", k % 4)
        if k == 100:
            plugin.scheduler.tasks["task"] = _task("v100")
    assert [plugin.address(f"w{i}") for i in range(4)] == current
    assert set(plugin.lost) == {"w0", "w1", "w2", "w3", "v100"}
    assert len(plugin.names) == 4 + 5
    assert len(plugin.serves) == 5
    announced = [len(pickle.dumps(event)) for event in plugin.scheduler.events]
    assert len(announced) == 2000
    assert max(announced) < 300
    assert len(pickle.dumps(plugin.state())) < 500
    plugin.scheduler.tasks.clear()
    plugin.hold("client", ["w1"], 1)
    plugin.hold("client", ["w0", "w1", "w2", "w3"], 0)  # overtaken
    assert (list(plugin.lost), len(plugin.names), len(plugin.serves)) == (["w1"], 4 + 1, 1)


def test_client_that_hears_differences_knows_what_the_scheduler_knows():
    plugin, lose, join = _plugin(4)
    comm = SimpleNamespace(closed=lambda: False)
    loop = SimpleNamespace(add_callback=lambda *call: refreshed.append(call))
    client = SimpleNamespace(status="running", loop=loop, scheduler_comm=comm)
    refreshed = []
    placement = Placement.__new__(Placement)
    placement._client, placement.comm = lambda: client, comm
    placement.lineage = None
    placement._workers, placement._names, placement._serves, placement._unreachable = {}, {}, {}, {"w1"}
    placement._homes, placement._missed, placement._moving = {}, {}, threading.RLock()
    placement._update(**plugin.state())
    rng = random.Random(0)
    living, n = ["w0", "w1", "w2", "w3"], 0
    for _ in range(200):
        if living and rng.random() < 0.5:
            lose(living.pop(rng.randrange(len(living))))
        else:
            n += 1
            living.append(rng.choice([f"w{rng.randrange(4)}", f"v{n}"]) if n % 3 else f"v{n}")
            if living[-1] in living[:-1]:
                living.pop()
                continue
            join(living[-1], n % 4)
        placement._announced((0.0, plugin.scheduler.events[-1]))
        assert placement._version == plugin.version
        assert set(placement.workers) == set(living)
        assert {home: placement.address(home) for home in ("w0", "w1", "w2", "w3")} == {
            home: plugin.serves.get(home, home) for home in ("w0", "w1", "w2", "w3")
        }
        assert placement._names == plugin.names
        assert placement._unreachable <= set(living)
    plugin._announce()
    plugin._announce()
    assert not refreshed
    placement._announced((0.0, plugin.scheduler.events[-1]))  # one was missed
    assert refreshed == [(placement._until_gone, placement.refresh, ())]


def test_home_that_the_plugin_never_saw_is_served():
    plugin, _, _ = _plugin(2)
    assert plugin.address("gone-before") in ("w0", "w1")


class _Block:
    """As much of a task in memory as its replicas are judged by."""

    def __init__(self, who_has, home=None, readers=(), key="dx-put"):
        self.key = key
        self.who_has = {_Holder(address) for address in who_has}
        self.annotations = {HOME: home} if home else None
        self.dependents = [_Block((), reader) for reader in readers]


@dataclass(frozen=True)
class _Holder:
    address: str


@pytest.mark.parametrize(
    ("block", "visiting"),
    [
        (_Block(("w0",), "w0"), ()),
        (_Block(("w0", "w1"), "w0"), ("w1",)),
        (_Block(("w0", "w1", "w2"), "w1"), ("w0", "w2")),
        (_Block(("w1", "w2"), "w0"), ()),  # none of them is at home
        (_Block(("w0", "w1"), "w3"), ("w0",)),  # a lost home, which w1 serves
        (_Block(("w0", "w1"), None, ("w1",)), ("w1",)),  # data of a client, and the block that is made of them
        (_Block(("w0", "w1"), None, ("w0", "w1")), ()),
        (_Block(("w0", "w1"), None, (None,)), ()),  # nothing of ours
        (_Block(("w0", "w1"), None, ("w1",), key="data"), ()),  # of others, read by a task of ours
        (_Block((), "w0"), ()),
    ],
    ids=["home", "two", "three", "no home", "lost", "data", "all read", "others'", "data of others", "none"],
)
def test_replicas_visit_where_a_block_is_not_at_home(block, visiting):
    plugin, _, _ = _plugin(3)
    plugin.serves["w3"] = "w1"
    assert {holder.address for holder in plugin.visits(block)} == set(visiting)
