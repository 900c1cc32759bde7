"""The comparison of everyday programs: all run, are checked, and the tables say what was measured."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import compare
import numpy as np
import pytest
from benchmarks import cluster_operations
from benchmarks.everyday import PROGRAMS, operands_of, ran
from benchmarks.ratios import Ratio
from benchmarks.systems import IN_PROCESS
from helpers import some

import distarray as dx


@pytest.mark.parametrize("block_bytes", [None, 0], ids=["one tile", "tiles"])
@pytest.mark.parametrize("name", some(PROGRAMS))
def test_programs_give_numpys_values(name: str, block_bytes: int | None) -> None:
    program = PROGRAMS[name]
    n = program.extents["XS"][-1]
    expected = ran(program, IN_PROCESS["numpy"], operands_of(program, n, IN_PROCESS["numpy"]))
    with dx.config.set(block_bytes=block_bytes):
        found = ran(program, IN_PROCESS["distarray"], operands_of(program, n, IN_PROCESS["distarray"]))
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(np.asarray(x), y, rtol=1e-9, atol=1e-12)


def test_there_are_seven_loops_six_scripts_eight_small_ones_25_operations_and_five_on_long_rows() -> None:
    groups = [program.group for program in PROGRAMS.values()]
    assert [groups.count(name) for name in ("loops", "scripts", "small", "operations", "long rows")] == [7, 6, 8, 25, 5]


def row(program: str, ours: float, **theirs: float) -> compare.Row:
    ratios = {name: Ratio(ours / taken, ours / taken, ours / taken) for name, taken in theirs.items()}
    return compare.Row("loops", program, 16, {"distarray": ours} | theirs, ratios, {})


def test_means_are_geometric_and_leave_out_what_did_not_run() -> None:
    rows = [row("a", 2.0, numpy=1.0, jax=4.0), row("b", 1.0, numpy=8.0)]
    assert math.isclose(compare.means(rows, "numpy"), 0.5)
    assert math.isclose(compare.means(rows, "jax"), 0.5)
    assert compare.means(rows, "cubed") is None


def test_tables_are_written_and_say_what_did_not_run(
    tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    class Lacks(type(IN_PROCESS["numpy"])):  # type: ignore[misc]  # a class found at run time
        def start(self, program: Any, operands: Any, **options: Any) -> Any:
            raise AttributeError("this library has no functions")

    class Wrong(type(IN_PROCESS["numpy"])):  # type: ignore[misc]
        def start(self, program: Any, operands: Any, **options: Any) -> Any:
            return tuple(x + 1 for x in super().start(program, operands, **options))

    monkeypatch.setitem(IN_PROCESS, "lacks", Lacks())
    monkeypatch.setitem(IN_PROCESS, "wrong", Wrong())
    words = ["v = A @ v", "--size", "XS", "--rounds", "1", "--peers", "numpy,lacks,wrong", "--out", str(tmp_path)]
    assert compare.main(words) == 0
    assert "v = A @ v" in capsys.readouterr().out
    text = (tmp_path / "compare.md").read_text()
    assert "| lacks | v = A @ v | AttributeError: this library has no functions |" in text
    assert "| wrong | v = A @ v | AssertionError" in text
    (made,) = json.loads((tmp_path / "compare.json").read_text())["rows"]
    assert set(made["seconds"]) == {"distarray", "numpy"}
    assert made["ratios"]["numpy"]["median"] == made["seconds"]["distarray"] / made["seconds"]["numpy"]


def test_programs_of_numbers_alone_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main(["two numbers", "--size", "XS", "--rounds", "1", "--peers", "numpy"]) == 0
    assert "two numbers" in capsys.readouterr().out


def test_unknown_peers_and_words_are_errors(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        compare.main(["--peers", "nonesuch"])
    assert "nonesuch" in capsys.readouterr().err
    assert compare.main(["no such program", "--size", "XS"]) == 2


@pytest.mark.cluster
@pytest.mark.parametrize("name", some(cluster_operations.PROGRAMS))
def test_operations_on_workers_give_numpys_values(cluster4: Any, name: str) -> None:
    program = cluster_operations.PROGRAMS[name]
    (n,) = program.extents["XS"]
    expected = ran(program, IN_PROCESS["numpy"], program.operands(n, np.random.default_rng(0)))
    operands = operands_of(program, n, IN_PROCESS["distarray"], 4)
    assert all(x.sharding.parts == (4, 1) for x in operands)
    for x, y in zip(ran(program, IN_PROCESS["distarray"], operands), expected, strict=True):
        np.testing.assert_allclose(np.asarray(x), y, rtol=1e-9, atol=1e-12)


@pytest.mark.cluster
def test_a_cluster_is_started_and_compared_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main(["x.T @ (x", "--cluster", "2", "--size", "XS", "--rounds", "1", "--peers", "dask.array"]) == 0
    assert "| algebra |" in capsys.readouterr().out
