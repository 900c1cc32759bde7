"""``python -m distarray``: what it prints, and how it refuses."""

import os
import subprocess
import sys

import pytest

from distarray import __main__ as command
from distarray import config
from distarray.runtime.inspection import changed_options
from distarray.version import __version__


def run(*args, **env):
    command = [sys.executable, "-m", "distarray", *args]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env}, timeout=60)


def test_a_reader_that_leaves_early_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as gone:
        done = subprocess.run(
            [sys.executable, "-m", "distarray", "info"], stdout=gone, stderr=subprocess.PIPE, timeout=60
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_info_prints_versions_devices_team_and_options():
    done = run("info", DASK_DISTARRAY__WINDOW="3")
    assert done.returncode == 0
    assert done.stderr == ""
    titles = [section.splitlines()[0] for section in done.stdout.split("\n\n")]
    assert titles == ["versions", "devices", "new arrays", "rates", "options changed"]
    words = [line.split() for line in done.stdout.splitlines()]
    assert ["distarray", __version__] in words
    assert ["window", "3", "(default", "512)"] in words


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), r"arguments are required: {info,doctor,plan,reshard,onnx}"),
        (("frob",), "invalid choice: 'frob'"),
        (("info", "x"), "unrecognized"),
    ],
)
def test_a_command_line_that_cannot_be_exits_with_2(args, says, capsys):
    with pytest.raises(SystemExit) as error:
        command.main(args)
    assert error.value.code == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert captured.out == ""


def test_only_changed_options_are_listed():
    before = dict(changed_options())
    with config.set(window=7, memory_limit="2 GiB"):
        rows = dict(changed_options())
    assert rows == {**before, "window": "7 (default 512)", "memory-limit": "2147483648 (default None)"}


def test_an_option_that_is_not_allowed_is_listed_with_its_error():
    import dask

    with dask.config.set({"distarray.objective": "speed"}):
        text = dict(changed_options())["objective"]
    assert text == "not valid: distarray option 'objective' is 'speed'; allowed: time | paper"


def test_a_section_that_fails_does_not_hide_the_others(monkeypatch, capsys):
    def broken():
        raise RuntimeError("no such thing")

    monkeypatch.setattr(command, "devices", broken)
    assert command.main(["info"]) == 0
    text = capsys.readouterr().out
    assert "error  RuntimeError: no such thing" in text
    assert "new arrays" in text


def test_devices_name_the_cpu_and_say_why_there_is_no_gpu(monkeypatch):
    from distarray.kernels import cupy_backend

    def none():
        raise RuntimeError("CuPy finds none")

    monkeypatch.setattr(cupy_backend, "gpu_count", none)
    assert [name for name, _ in command.devices()] == ["cpu", "cuda"]
    assert dict(command.devices())["cuda"] == "none: CuPy finds none"
    monkeypatch.setattr(cupy_backend, "gpu_count", lambda: 2)
    assert [name for name, _ in command.devices()] == ["cpu", "cuda:0", "cuda:1"]
