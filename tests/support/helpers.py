"""What tests of several folders share: waiting, life without garbage collections, and modules beside the tests."""

from __future__ import annotations

import gc
import importlib.util
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = [
    "calls_made",
    "collected",
    "cut_lineage",
    "eventually",
    "eventually_equal",
    "module_at",
    "no_garbage_collected",
    "peak_nbytes",
    "some",
]


def some(values: Iterable[Any], every: int = 2) -> list[Any]:
    """Return parameters of a test of which the first is tested always, and then one in so many; the others are slow."""
    return [v if n % every == 0 else pytest.param(v, marks=pytest.mark.slow) for n, v in enumerate(values)]


def eventually(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Return the first true value of a condition; an assertion fails if it takes longer than some seconds."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "did not come true in time"
        time.sleep(0.02)
    return value


def eventually_equal(expected: Any, found: Callable[[], Any], seconds: float = 30.0) -> None:
    """Wait until a value is the expected one; the assertion that fails otherwise shows both."""
    end = time.monotonic() + seconds
    while (value := found()) != expected and time.monotonic() < end:
        time.sleep(0.02)
    assert value == expected


@contextmanager
def no_garbage_collected() -> Iterator[None]:
    """Run a block as a program that goes on for hours before Python looks for cycles."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def collected() -> Iterator[Callable[[], None]]:
    """Give a collection of the garbage that a block makes, which takes no longer the more objects there were before.

    A full collection of a long test run takes a second in which no other thread runs: one after the other starves the
    event loop that is to let go of things.
    """
    gc.collect()
    gc.freeze()
    try:
        yield lambda: (gc.collect(), None)[1]
    finally:
        gc.unfreeze()


def calls_made(use: Callable[[], object]) -> int:
    """Return how many functions this thread calls while it runs one: no other program on the machine changes that."""
    n_calls = 0

    def count(frame: object, event: str, value: object) -> None:
        nonlocal n_calls
        n_calls += event in ("call", "c_call")

    former = sys.getprofile()
    sys.setprofile(count)
    try:
        use()
    finally:
        sys.setprofile(former)
    return n_calls


def peak_nbytes(use: Callable[[], Any]) -> tuple[Any, int]:
    """Return what a function returns, and the most bytes that were allocated at once meanwhile, by any thread."""
    tracemalloc.start()
    try:
        return use(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def module_at(path: Path, name: str | None = None) -> Any:
    """Import a file that is part of no package, under a name, once."""
    name = name or f"{path.stem}_of_tests"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def cut_lineage(executor: Any, futures: Iterable[Any]) -> None:
    """Cut the lineage of kept results of a cluster, which happens in the background now and then, and wait for it."""
    from distarray.runtime.bundles import futures_behind  # not every test has a cluster

    lineage = executor.placement.lineage
    records = [lineage.record(future.key) for future in futures_behind(futures)]
    executor.placement.sync(lineage.cut, lineage.held(filter(None, records)))
