"""Options: one table, three files that must agree with it, and a `get` that never serves a stale value."""

import os
import re
import subprocess
import sys
import timeit
from dataclasses import fields
from pathlib import Path

import dask.config
import pytest
import yaml

import distarray as dx
from distarray import config
from distarray.planner.rates import Rates

PACKAGE = Path(config.__file__).parent

ALLOWED = [
    ("memory-limit", None, None),
    ("memory-limit", "2GiB", 2**31),
    ("device_memory_limit", 10**9, 10**9),
    ("block-bytes", 0, 0),
    ("block-bytes", None, None),
    ("team", None, None),
    ("device", "cuda:12", "cuda:12"),
    ("device", "strict:2", "strict:2"),
    ("overlap", "always", "always"),
    ("overlap", False, False),
    ("retain", "none", "none"),
    ("retain", None, "none"),  # how dask reads "none" in the environment
    ("calibration", {"latency": 1, "node-bandwidth": 2.5}, {"latency": 1.0, "node_bandwidth": 2.5}),
    ("window", 0, 0),
    ("errors", "deferred", "deferred"),
    ("worker-timeout", "2 minutes", 120.0),
    ("worker-timeout", None, None),
]
REFUSED = [
    ("memory-limit", "much"),
    ("memory-limit", -1),
    ("memory-limit", " "),
    ("worker-timeout", ""),
    ("memory-limit", True),
    ("team", "R"),
    ("team", 0),
    ("device", "cuda:"),
    ("device", "strict:3"),
    ("device", None),
    ("planner", "best"),
    ("planner", ["auto"]),
    ("overlap", 1),
    ("overlap", None),
    ("window", -1),
    ("window", 1.5),
    ("window", True),
    ("lineage-interval", 0),
    ("worker-timeout", -1),
    ("worker-timeout", "soon"),
    ("worker-timeout", float("nan")),
    ("calibration", 3),
    ("calibration", {"latency": -1}),
    ("calibration", {"latency": "fast"}),
    ("calibration", {"latency": True}),
    ("calibration", {"latency": float("nan")}),
    ("calibration", {"latency": [1.0]}),
    ("calibration", {"gemm_own": 1.5}),
    ("calibration", {"nope": 1}),
    ("calibration", {5: 1}),
    ("block-bytes", float("nan")),
    ("block-bytes", [1]),
    ("errors", "never"),
]


def load(name):
    return yaml.safe_load((PACKAGE / name).read_text(encoding="ascii"))


def test_defaults_schema_and_table_name_the_same_options():
    defaults = load("distarray.yaml")["distarray"]
    schema = load("distarray-schema.yaml")["properties"]["distarray"]["properties"]
    assert set(defaults) == set(schema) == set(config.names())
    assert all(entry["description"].strip() for entry in schema.values())


@pytest.mark.parametrize("name", config.names())
def test_every_option_is_read_somewhere(name):
    spelled = re.compile(rf"""["']({name}|{name.replace("-", "_")})["']""")
    readers = [p for p in PACKAGE.rglob("*.py") if p.name != "config.py" and spelled.search(p.read_text("utf-8"))]
    assert readers


@pytest.mark.parametrize("name", config.names())
def test_default_is_allowed_by_table_and_schema(name):
    default = load("distarray.yaml")["distarray"][name]
    entry = load("distarray-schema.yaml")["properties"]["distarray"]["properties"][name]
    config.parse_option(name, default)
    assert default in entry.get("enum", [default])


@pytest.mark.parametrize("name", config.names())
def test_choices_of_the_schema_are_those_of_the_table(name):
    entry = load("distarray-schema.yaml")["properties"]["distarray"]["properties"][name]
    for choice in entry.get("enum", []):
        assert config.parse_option(name, choice) == choice
    if "null" in entry.get("type", ()):
        assert config.parse_option(name, None) is None


@pytest.mark.parametrize(("name", "value", "parsed"), ALLOWED)
def test_set_then_get_gives_the_parsed_value(name, value, parsed):
    before = config.get(name)
    with config.set({name: value}):
        assert config.get(name) == parsed
        assert type(config.get(name)) is type(parsed)
    assert config.get(name) == before


@pytest.mark.parametrize("limit", [0, 1, "0", 7])
def test_a_memory_limit_of_next_to_nothing_is_one(limit):
    with config.set(memory_limit=limit), pytest.raises(dx.MemoryBudgetError, match="above the memory-limit"):
        (dx.zeros(3) + dx.arange(3.0)).compute()


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_bad_value_names_key_and_allowed_values_and_changes_nothing(name, value):
    before = config.get(name), config.get("window")
    with pytest.raises(ValueError, match=rf"'{name}' is .*; allowed: .+"):
        config.set({"window": 3, name: value} if name != "window" else {name: value})
    assert (config.get(name), config.get("window")) == before


def test_unknown_option_is_refused_and_the_options_are_listed():
    for call in (lambda: config.get("windows"), lambda: config.set(windows=1), lambda: config.parse_option("x", 1)):
        with pytest.raises(ValueError, match=r"no option .*window"):
            call()


def test_unknown_rate_is_refused_when_it_is_set_and_the_rates_are_listed():
    with pytest.raises(ValueError, match=r"'calibration' is \{'nope': 1\}; .*no rate 'nope'; known are bandwidth, "):
        config.set(calibration={"nope": 1})
    with pytest.raises(ValueError, match=r"the rate 'gemm-own' is 2; one is from 0 to 1"):
        config.set(calibration={"gemm-own": 2})
    assert config.get("calibration") == {}  # as tests/conftest.py says


def test_rates_of_the_option_are_those_of_the_model():
    entry = load("distarray-schema.yaml")["properties"]["distarray"]["properties"]["calibration"]["properties"]
    names = {field.name for field in fields(Rates)}
    assert set(entry) == names
    for name in names:
        largest = entry[name].get("maximum", 1e300)
        assert config.parse_option("calibration", {name: largest}) == {name: largest}


def test_names_of_options_are_strings_in_a_mapping():
    for call in (lambda: config.set(5), lambda: config.set({5: 1}), lambda: config.get(5)):
        with pytest.raises(TypeError, match=r"5"):
            call()


@pytest.mark.parametrize("spelling", ["data-dependent", "data_dependent"])
def test_dash_and_underscore_are_equal(spelling):
    with config.set(data_dependent="raise"):
        assert config.get(spelling) == "raise"
    with dask.config.set({f"distarray.{spelling}": "raise"}):
        assert config.get("data-dependent") == config.get("data_dependent") == "raise"
    assert config.get(spelling) == "counts"


def test_get_follows_dask_config_set_and_refresh():
    assert config.get("window") == 512
    with dask.config.set({"distarray.window": 7}):
        assert config.get("window") == 7
        with dask.config.set(distarray__window=8):
            assert config.get("window") == 8
        assert config.get("window") == 7
    assert config.get("window") == 512
    saved = dict(dask.config.global_config)
    try:
        dask.config.refresh(env={"DASK_DISTARRAY__MEMORY_LIMIT": "2GiB"})
        assert config.get("memory-limit") == config.get("memory_limit") == 2**31
        with config.set(memory_limit="1 GiB"):
            assert config.get("memory-limit") == 2**30
        dask.config.refresh(env={})
        assert config.get("memory-limit") is None
    finally:
        dask.config.global_config.clear()
        dask.config.global_config.update(saved)


def test_bad_value_from_a_file_is_reported_at_get():
    with dask.config.set({"distarray.block-bytes": "big"}), pytest.raises(ValueError, match="'block-bytes' is 'big'"):
        config.get("block-bytes")


def test_get_falls_back_to_the_default_when_a_file_empties_the_section():
    with dask.config.set({"distarray": None}):
        assert config.get("window") == 512


def test_changing_calibration_in_place_shows():
    with config.set(calibration={"latency": 1e-4}):
        assert config.get("calibration") == {"latency": 1e-4}
        with dask.config.set({"distarray.calibration.latency": 2e-4}):
            assert config.get("calibration") == {"latency": 2e-4}
        assert config.get("calibration") == {"latency": 1e-4}


def test_repeated_get_is_well_under_a_microsecond():
    config.get("window")
    best = min(timeit.repeat(lambda: config.get("window"), number=20_000, repeat=5)) / 20_000
    assert best < 1e-6


def run_python(code, **env):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def test_environment_variable_sets_an_option():
    code = "from distarray import config; print(config.get('memory-limit'), config.get('retain'))"
    out = run_python(code, DASK_DISTARRAY__MEMORY_LIMIT="2GiB", DASK_DISTARRAY__RETAIN="none")
    assert out == f"{2**31} none"


def test_import_survives_a_configuration_folder_that_cannot_be_written(tmp_path):
    # A path below a file cannot be made, not even by root, whom permissions do not stop.
    (tmp_path / "file").write_text("")
    folder = str(tmp_path / "file" / "dask")
    assert run_python("from distarray import config; print(config.get('window'))", DASK_CONFIG=folder) == "512"


def test_import_leaves_a_commented_copy_of_the_defaults(tmp_path):
    code = "from distarray import config; print(config.get('window'))"
    assert run_python(code, DASK_CONFIG=str(tmp_path)) == "512"
    copy = (tmp_path / "distarray.yaml").read_text()
    assert "window: 512" in copy
    assert all(line.startswith("#") for line in copy.splitlines() if line.strip())


def test_import_of_config_pulls_no_arrays():
    code = "import sys\nfrom distarray import config\nprint('dask.array' in sys.modules)"
    assert run_python(code) == "False"
