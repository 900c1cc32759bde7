"""``asv_bench/gpu.py`` without a GPU: parts are run apart, resumed, stopped, and say what they leave out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gpu
import host_kernels
import pytest


def results(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "gpu.json").read_text())
    return found


def test_a_part_that_is_in_the_results_is_not_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("array_api_strict")
    command = ["--device", "strict", "--out", str(tmp_path), "--only", "machine"]
    assert gpu.main(command) == 0
    log = (tmp_path / "gpu.log").read_text()
    assert gpu.main(command) == 0
    assert (tmp_path / "gpu.log").read_text() == log
    told = capsys.readouterr().out
    assert "no GPU: strict" in told
    assert "0 passed, 0 failed, 1 measured, 0 skipped (strict)" in told
    assert "say nothing of speed" in (tmp_path / "gpu.md").read_text()
    assert gpu.main([*command, "--again"]) == 0
    assert len((tmp_path / "gpu.log").read_text()) > len(log)


def test_a_part_that_is_stopped_or_crashes_loses_nothing_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(gpu.PARTS, "matmul", gpu.Part(0))
    assert gpu.main(["--device", "strict", "--out", str(tmp_path), "--only", "machine,matmul"]) == 1
    found = results(tmp_path)
    assert found["machine"]["lines"][0]["outcome"] == "measured"
    assert found["matmul"]["lines"] == [{"line": "matmul", "outcome": "failed", "why": "stopped after 0 s"}]


def test_what_there_is_no_time_for_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--device", "strict", "--out", str(tmp_path), "--only", "chain", "--seconds", "1"]) == 1
    assert "not run within 1 s: chain; the same command goes on there" in capsys.readouterr().out


def test_a_part_that_is_none_is_an_error_that_names_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gpu.main(["--only", "matmul,speed"])
    assert "--only names speed; the parts are machine, matmul," in capsys.readouterr().err


def test_a_folder_without_wheels_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has no wheel"):
        gpu.main(["--wheels", str(tmp_path), "--out", str(tmp_path), "--only", "machine"])


@pytest.mark.slow
@pytest.mark.skipif(host_kernels.COMPILER is None, reason="needs a C++ compiler")
def test_tests_and_measurements_run_on_what_stands_in_for_cupy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--device", "stand-in", "--out", str(tmp_path)]
    assert gpu.main([*command, "--only", "matmul,chain,blocks"]) == 0
    lines = results(tmp_path)["blocks"]["lines"]
    assert lines[-1]["outcome"] == "passed"
    assert any("jax" in line["why"].lower() for line in lines if line["outcome"] == "skipped") or len(lines) == 1
    assert "CuPy, call by call" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(2000)
@pytest.mark.skipif(host_kernels.COMPILER is None, reason="needs a C++ compiler")
def test_everything_runs_on_what_stands_in_for_cupy(tmp_path: Path) -> None:
    """B-32: the operations of the table of NumPy's functions among them."""
    assert gpu.main(["--device", "stand-in", "--out", str(tmp_path)]) == 0
    assert results(tmp_path).keys() == gpu.PARTS.keys()
