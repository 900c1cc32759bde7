"""The doctor: what made-up records mean, and that what is gathered is such a record."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

import distarray as dx
from distarray import __main__ as command
from distarray.diagnostics.doctor import Diagnosis, Finding, findings
from distarray.runtime import inspection

VERSIONS = {"distarray": "1.0", "dask": "2026.8", "distributed": "2026.8", "numpy": "2.4.0", "cloudpickle": "3.1"}
PROCESS: Any = {
    "host": "a",
    "platform": "Linux",
    "python": "3.12.1",
    "versions": VERSIONS,
    "namesake": None,
    "cores": 8,
    "memory": 32 << 30,
    "blas": [{"name": "openblas", "version": "0.3", "threads": 1}],
    "gpus": {"count": 0, "error": "CuPy is not installed"},
}
WORKER = {**PROCESS, "process": 1, "threads": 2, "memory_limit": 4 << 30, "has_plugin": True}


def record() -> Any:
    """A cluster without anything to say."""
    made = {
        "client": PROCESS,
        "extras": dict.fromkeys(inspection.OPTIONAL, "1.0"),
        "options": [],
        "scheduler": {**PROCESS, "address": "tcp://a:1", "has_plugin": True},
        "workers": {"w2": WORKER, "w3": WORKER},
        "rates": {"origin": "measured now", "latency": 1e-3, "bandwidth": 1 << 30},
    }
    return json.loads(json.dumps(made))  # no two processes share a part


def put(made: Any, path: str, value: Any) -> Any:
    """Return a record with one value changed."""
    *keys, last = path.split("/")
    at = made
    for key in keys:
        at = at[key]
    at[last] = value
    return made


def said(made: Any) -> list[Finding]:
    return [f for f in findings(made) if f.verdict != "ok"]


def test_a_cluster_that_is_well_has_nothing_to_say() -> None:
    assert said(record()) == []
    assert Diagnosis(record()).worst == "ok"
    alone = {**record(), "scheduler": None, "workers": {}, "rates": None}
    assert said(alone) == []
    assert not any(f.what == "versions" for f in findings(alone))


@pytest.mark.parametrize(
    ("path", "value", "verdict", "what", "words"),
    [
        ("workers/w2/versions/dask", "2026.9", "error", "version of dask", "2026.9: w2"),
        ("scheduler/versions/distarray", "0.9", "error", "version of distarray", "0.9: scheduler"),
        ("workers/w3/versions/numpy", "2.3.0", "warning", "version of numpy", "2.3.0: w3"),
        ("workers/w3/python", "3.13.0", "error", "version of python", "3.13: w3"),
        ("workers/w2/threads", 4, "note", "threads", "1 worker of 4 threads, 1 worker of 2 threads"),
        ("workers/w2/memory_limit", None, "warning", "memory limit", "none: w2"),
        ("workers/w2/memory_limit", 1 << 28, "note", "memory limit", "256 MiB to 4 GiB"),
        ("workers/w2/memory_limit", 5 << 30, "note", "memory limit", "4 GiB to 5 GiB"),
        ("workers/w2/memory_limit", 100 << 30, "warning", "memory on a", "104 GiB"),
        ("workers/w2/has_plugin", False, "error", "plugins", "missing at w2"),
        ("scheduler/has_plugin", False, "note", "plugins", "not installed yet"),
        ("workers/w2/blas", [{**PROCESS["blas"][0], "threads": 8}], "warning", "linear algebra", "w2"),
        (
            "workers/w2/gpus",
            {"count": 1, "driver": 13000, "runtime": 12090},
            "warning",
            "GPUs",
            "none at w3",
        ),
        ("client/gpus", {"count": 1, "driver": 12020, "runtime": 13000}, "error", "GPUs", "driver 12020"),
        ("client/namesake", "0.6.0", "error", "distarray", "0.6.0"),
        ("workers/w2", {"error": "OSError: gone"}, "error", "w2", "OSError: gone"),
        ("scheduler", {"error": "No module named 'distarray'"}, "error", "scheduler", "distarray"),
        ("workers", {}, "error", "workers", "none"),
        ("rates", {"origin": "x", "latency": 0.1, "bandwidth": 1 << 30}, "warning", "network", "100 ms"),
        ("rates", {"origin": "x", "latency": 1e-3, "bandwidth": 1 << 20}, "warning", "network", "1 MiB per second"),
        ("rates", {"error": "TimeoutError"}, "warning", "network", "TimeoutError"),
        ("extras", {}, "note", "extras", "zarr"),
        ("options", [["window", "3 (default 512)"]], "note", "option window", "3 (default 512)"),
        ("options", [["window", "not valid: 'x'"]], "error", "option window", "not valid"),
    ],
)
def test_what_is_wrong_is_said(path: str, value: Any, verdict: str, what: str, words: str) -> None:
    made = put(record(), path, value)
    found = [f for f in said(made) if f.verdict == verdict and f.what == what and words in f.found]
    assert len(found) == 1, said(made)
    assert found[0].advice or verdict == "note" or what == "GPUs"


def test_what_arrays_get_of_the_memory_of_workers_may_be_an_option() -> None:
    for options, share in (([], "half"), ([["memory-limit", "1 GiB"]], "what the option memory-limit says")):
        (found,) = [f.found for f in findings(put(record(), "options", options)) if f.what == "memory limit"]
        assert found.endswith(f"of which arrays get {share}")


def test_versions_are_those_of_who_answered() -> None:
    gone = {"error": "OSError: gone"}
    for path, where in {"scheduler": "client and 2 workers", "workers/w2": "client, scheduler and 1 worker"}.items():
        (found,) = [f.found for f in findings(put(record(), path, gone)) if f.what == "versions"]
        assert found.startswith(f"the same on {where}: ")


def test_threads_beyond_the_cores_of_a_host() -> None:
    made = record()
    for facts in made["workers"].values():
        facts["threads"] = 5
    (found,) = said(made)
    assert (found.verdict, found.what) == ("warning", "threads on a")
    assert "10 of workers for 8 cores" in found.found


def test_a_diagnosis_is_a_table_html_and_json() -> None:
    made = Diagnosis(put(record(), "rates", {"error": "<b> & [bold]"}))
    assert made.worst == "warning"
    assert str(made).splitlines()[0].split() == ["verdict", "what", "found", "what", "to", "do"]
    assert len(str(made).splitlines()) == len(made.findings) + 1
    assert repr(made) == str(made)
    assert "&lt;b&gt; &amp;" in made._repr_html_()
    loaded = json.loads(made.to_json())
    assert loaded["record"]["rates"] == {"error": "<b> & [bold]"}
    assert [f["verdict"] for f in loaded["findings"]] == [f.verdict for f in made.findings]
    assert made.text(io.StringIO()) == str(made)


def test_a_terminal_gets_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm-256color")
    text = Diagnosis(put(record(), "rates", {"error": "[bold] text"})).text(Terminal())
    assert "[bold] text" in text
    assert "\x1b[" in text


def test_doctor_without_a_cluster() -> None:
    found = dx.doctor()
    assert json.loads(found.to_json())["record"]["client"]["versions"]["distarray"] == dx.__version__
    assert found.record["scheduler"] is None
    with dx.config.set(window=7):
        assert any(f.what == "option window" and "7" in f.found for f in dx.doctor().findings)


def test_a_part_that_fails_does_not_hide_the_others() -> None:
    class Gone:
        def run_on_scheduler(self, function: Any) -> Any:
            raise TimeoutError("no answer")

        def run(self, function: Any, on_error: str) -> Any:
            return {"w2": ModuleNotFoundError("No module named 'distarray'")}

    made = inspection.gathered(Gone())
    found = {f.what: f for f in findings(made) if f.verdict == "error"}
    assert "no answer" in found["scheduler"].found
    assert "install" in found["w2"].advice


def test_linear_algebra_without_threadpoolctl(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    (blas,) = inspection._blas()
    assert blas["threads"] is None
    assert isinstance(blas["name"], str)


def test_the_command_prints_and_says_whether_something_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["doctor"]) == 0
    assert "distarray" in capsys.readouterr().out
    monkeypatch.setattr(inspection, "gathered_at", lambda address, seconds: put(record(), "workers", {}))
    assert command.main(["doctor", "--scheduler", "tcp://a:1", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["findings"]


@pytest.mark.cluster
def test_a_cluster_is_asked(cluster4: Any) -> None:
    assert float(dx.ones(9).sum()) == 9.0
    found = dx.doctor()
    assert len(found.record["workers"]) == 4
    assert found.record["rates"]["origin"] == "measured now"
    what = {f.what: f for f in found.findings}
    assert "the same on client, scheduler and 4 workers" in what["versions"].found
    assert "4 workers of" in what["threads"].found
    assert what["network"].verdict in ("ok", "warning")
    json.loads(found.to_json())
    assumed = dx.doctor(cluster4, measure=False)
    assert assumed.record["rates"]["origin"] == "what the planner assumes"
