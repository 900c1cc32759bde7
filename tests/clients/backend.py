"""The pytest plugin that puts a namespace into another library's tests: one way for each library.

`run` sets ``DISTARRAY_CLIENT`` to its request, as JSON, and starts pytest with ``-p backend``. No test is changed,
skipped or expected to fail here; what each library skips for all but NumPy, it skips for this namespace too.
"""

from __future__ import annotations

import enum
import importlib
import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy
import pytest

REQUEST: dict[str, Any] = json.loads(os.environ["DISTARRAY_CLIENT"])
#: Stands for the namespace in the ids of tests, so that those of two runs compare.
ID = "xp"


def namespace() -> Any:
    return importlib.import_module(REQUEST["namespace"])


# ------------------------------------------------------------------------------------- how each library names arrays


def enter_scikit_learn(config: pytest.Config) -> None:
    """Its tests ask one function for the names of namespaces, when they are collected."""
    import sklearn.utils._array_api as dispatch

    dispatch.yield_namespaces = lambda include_numpy_namespaces=True: iter([REQUEST["namespace"]])


def enter_scipy(config: pytest.Config) -> None:
    """Its fixture ``xp`` takes the namespace; a backend it has heard of is skipped where only NumPy shall run."""
    from scipy import conftest

    conftest.xp_known_backends.add(REQUEST["namespace"])


class OrderedSet(dict[Any, None]):
    """A set that keeps the order of its items, as that of Legate."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        super().__init__(dict.fromkeys(items))

    def add(self, item: Any) -> None:
        self[item] = None


class Nothing(int):
    """What a name of a library's inside means here: it is zero, and so is all that it is asked for."""

    def __getattr__(self, name: str) -> Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **options: Any) -> Nothing:
        return self


class Internals(MetaPathFinder, Loader):
    """Finds every module of cuPyNumeric, Legate and CuPy but `cupy.testing`, with names that mean nothing.

    Files whose tests look into these for a few lines are collected so; such a test fails, with NumPy too.
    """

    #: The names that tests of results need.
    NAMES: ClassVar[dict[str, dict[str, Any]]] = {
        "cupynumeric._utils": {"is_np2": True, "is_np2_1": True},
        "cupynumeric.runtime": {"runtime": SimpleNamespace(num_gpus=0)},
        "legate.core": {"LEGATE_MAX_DIM": 4},
        "legate.core.utils": {"OrderedSet": OrderedSet},
        "cupy.exceptions": vars(numpy.exceptions),
        "cupy._core": {"internal": math},
    }

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        is_theirs = name.partition(".")[0] in ("cupynumeric", "legate", "cupy", "cupyx", "cupy_backends")
        return ModuleSpec(name, self, is_package=True) if is_theirs and not name.startswith("cupy.testing") else None

    def exec_module(self, module: ModuleType) -> None:
        def absent(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return Nothing() if REQUEST["client"] == "cupy" else SimpleNamespace()

        module.__dict__.update(self.NAMES.get(module.__name__, {}), __getattr__=absent)


def enter_cupynumeric(config: pytest.Config) -> None:
    """Its tests import cuPyNumeric, and constants of the runtime below it."""
    xp = namespace()
    front = stand_in("cupynumeric", xp)
    for name in ("linalg", "fft", "random"):
        setattr(front, name, stand_in(f"cupynumeric.{name}", getattr(xp, name)))
    sys.meta_path.insert(0, Internals())


def enter_cupy(config: pytest.Config) -> None:
    """Its tests import CuPy, whose decorators compare what a test returns with ``xp=numpy`` and with ``xp=cupy``."""
    xp = namespace()
    front = stand_in("cupy", xp)
    front.__path__ = [os.path.abspath("../cupy")]
    for name in ("linalg", "fft", "random"):
        setattr(front, name, stand_in(f"cupy.{name}", getattr(xp, name)))
    sys.meta_path.insert(0, Internals())
    vars(front).update(asnumpy=numpy.asarray, poly1d=Nothing, get_array_module=array_module)
    vars(front).update(get_default_memory_pool=Nothing, get_default_pinned_memory_pool=Nothing)
    front.fft.config = PlanningSettings()
    generator = front.random._generator = SimpleNamespace(_random_states={})
    front.random.reset_states = lambda: setattr(generator, "_random_states", {})
    xp.ndarray.get = lambda array, *args, **options: numpy.asarray(array)
    front.cuda, front.testing = map(importlib.import_module, ("cupy.cuda", "cupy.testing"))


class PlanningSettings:
    """The settings of CuPy's transforms, of which its tests read and set one, and are warned."""

    states: ClassVar[dict[str, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        warnings.warn(name, DeprecationWarning, stacklevel=2)
        return self.states.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        warnings.warn(name, DeprecationWarning, stacklevel=2)
        self.states[name] = value


def array_module(*arrays: Any) -> Any:
    return sys.modules["cupy"] if any(isinstance(array, namespace().ndarray) for array in arrays) else numpy


def stand_in(name: str, ours: Any) -> ModuleType:
    """Make a package with the names of one of our modules: what is imported below it becomes its attribute, and would
    hide names of ours.
    """
    front = sys.modules[name] = ModuleType(name)
    front.__dict__.update(vars(ours), __name__=name, __path__=[], __getattr__=lambda name: getattr(ours, name))
    return front


#: Parts of NumPy's that are modules of ours too.
PARTS = ("linalg", "fft", "random")


def put_into_numpys(modules: Iterable[ModuleType]) -> None:
    """Give NumPy's test modules our names where we have them, once they are collected: what they compute while they are
    imported, mostly parameters of tests, stays NumPy's, and so do types.
    """
    xp = namespace()
    testing = [importlib.import_module(name) for name in ("numpy.testing", "numpy.ma.testutils")]
    compared = [(module, comparing(module)) for module in testing]
    pairs = [(numpy, xp), *compared, *[(getattr(numpy, part), getattr(xp, part)) for part in PARTS]]
    fronts = {theirs: beside(theirs, own) for theirs, own in pairs}
    for theirs, front in fronts.items():
        if theirs is not numpy:
            setattr(fronts[numpy], theirs.__name__.rpartition(".")[2], front)
    ours: dict[int, Any] = {id(theirs): front for theirs, front in fronts.items()}
    for theirs, own in pairs:
        functions = {name: getattr(theirs, name, None) for name in public(own)}
        ours |= {id(function): getattr(own, name) for name, function in functions.items() if callable(function)}
    for module in modules:
        kept = {name: value for name, value in vars(module).items() if not isinstance(value, type)}
        vars(module).update({name: ours[id(value)] for name, value in kept.items() if id(value) in ours})


def beside(theirs: ModuleType, ours: Any) -> ModuleType:
    """Make a module with our names, and with theirs where we have none."""
    front = ModuleType(theirs.__name__)
    named = {name: getattr(ours, name) for name in public(ours)}
    front.__dict__.update(named, __getattr__=lambda name: getattr(theirs, name))
    return front


def public(module: Any) -> Iterable[str]:
    """Return the names that a module is for, not those of modules below it."""
    return getattr(module, "__all__", vars(module))


def comparing(module: ModuleType) -> SimpleNamespace:
    """Return the functions of a module that compare, which know no arrays but NumPy's."""
    names = [name for name in dir(module) if name.startswith("assert_") and ("equal" in name or "close" in name)]
    return SimpleNamespace(**{name: on_numpys(getattr(module, name)) for name in names})


def on_numpys(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of arrays, called with NumPy's in the place of ours, wherever these are in its arguments."""

    def compare(*args: Any, **options: Any) -> Any:
        return function(*as_numpys(args), **as_numpys(options))

    return compare


def as_numpys(value: Any) -> Any:
    if type(value) in (list, tuple):
        return type(value)(map(as_numpys, value))
    if type(value) is dict:
        return {key: as_numpys(item) for key, item in value.items()}
    return numpy.asarray(value)[()] if isinstance(value, namespace().ndarray) else value


def scipy_parameter() -> Any:
    return pytest.param(namespace(), id=ID, marks=pytest.mark.array_api_backends)


def array_api_extra_parameter() -> Any:
    """A backend beside those of array-api-extra, whose list is closed."""

    class Beside(enum.Enum):
        NAMESPACE = REQUEST["namespace"]

        @property
        def modname(self) -> str:
            return self.value

        def like(self, *others: Any) -> bool:
            return self.modname in {other.modname for other in others}

    return pytest.param(Beside.NAMESPACE, id=ID)


#: Clients whose tests have no namespace but one: it is no parameter of theirs.
WHOLE = ("cupynumeric", "numpy", "cupy", "dask")
ENTER = {"scikit-learn": enter_scikit_learn, "scipy": enter_scipy, "cupynumeric": enter_cupynumeric, "cupy": enter_cupy}
#: The fixture that iterates over backends, and ours as its parameter.
FIXTURES = {"scipy": ("xp", scipy_parameter), "array-api-extra": ("library", array_api_extra_parameter)}


# ------------------------------------------------------------------------------------------------------------- hooks


def pytest_configure(config: pytest.Config) -> None:
    if enter := ENTER.get(REQUEST["client"]):
        enter(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Dask's tests import our names in the place of its own, and nobody else does."""
    with ExitStack() as stack:
        if REQUEST["client"] == "dask" and REQUEST["namespace"] == "distarray":
            import dask_arrays

            stack.enter_context(dask_arrays.entered())
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A parameter that is given to a test replaces those of its fixture."""
    if REQUEST["client"] in FIXTURES:
        fixture, parameter = FIXTURES[REQUEST["client"]]
        if fixture in metafunc.fixturenames:
            metafunc.definition.add_marker(pytest.mark.parametrize(fixture, [parameter()], indirect=True))


def takes_the_namespace(item: pytest.Item) -> bool:
    """Whether a test has the namespace among its parameters, or another way to it."""
    if REQUEST["client"] in WHOLE:
        return True
    if REQUEST["client"] == "scikit-learn":
        return REQUEST["namespace"] in item.name
    return FIXTURES[REQUEST["client"]][0] in getattr(getattr(item, "callspec", None), "params", {})


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that take the namespace, and of these one in so many."""
    kept = [item for item in items if takes_the_namespace(item)][:: REQUEST["every"]]
    chosen = set(map(id, kept))
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
    items[:] = kept
    if REQUEST["client"] == "numpy" and REQUEST["namespace"] != "numpy":
        put_into_numpys({id(item.module): item.module for item in kept if isinstance(item, pytest.Function)}.values())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Run every test with arrays in so many tiles."""
    with ExitStack() as stack:
        if REQUEST["tiles"]:
            import distarray as dx
            from distarray.testing import force_tiles

            stack.enter_context(dx.use(dx.Team(REQUEST["tiles"], "T")))
            stack.enter_context(force_tiles(REQUEST["tiles"]))
        yield


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Modules draw the parameters of some tests: the same ones in two runs."""
    if isinstance(collector, pytest.Module):
        numpy.random.seed(0)


def note(nodeid: str, outcome: str, reason: str) -> None:
    """Write a line; workers of pytest-xdist tell theirs to the process that started them, under its ids."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    is_parameter = REQUEST["client"] not in WHOLE
    line = [nodeid.replace(REQUEST["namespace"], ID) if is_parameter else nodeid, outcome, reason]
    with open(REQUEST["results"], "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def why(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The text of the error of a failure, in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return " ".join((crash.message if crash else str(report.longrepr or "")).split())[:600]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    expected_to_fail = hasattr(report, "wasxfail")
    if report.when == "call" or report.outcome != "passed":
        note(report.nodeid, "skipped" if expected_to_fail else report.outcome, why(report))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.outcome == "failed":
        note(report.nodeid, "failed", "not collected: " + why(report))
