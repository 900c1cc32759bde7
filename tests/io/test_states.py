"""Saved states: what is loaded is what was saved, at any moment one state is whole, and nobody gathers anything."""

from __future__ import annotations

import itertools
import json
import math
import os
import pickle
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import eventually
from hypothesis import given, settings
from hypothesis import strategies as st

import distarray as dx
from distarray import config
from distarray.io import states
from distarray.kernels import state_files as file_kernels
from distarray.testing import counting
from distarray.testing import strategies as own
from distarray.testing.assertions import assert_equal
from distarray.testing.tiles import force_tiles

TEAM = dx.Team((2, 3), ("R", "C"))
DTYPES = "? i1 u2 i4 u8 f2 f4 f8 c8 c16 M8[s] m8[ns]".split()


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> Iterator[None]:
    with config.set(block_bytes=8):
        yield


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "state")


def values(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(3)
    made = rng.integers(0, 100, shape).astype(np.int64)
    return made.astype(dtype) if np.dtype(dtype).kind not in "fc" else (made / 7).astype(dtype)


def cut(expected: np.ndarray, sharding: Any = ("R", "C"), team: Any = TEAM, **more: Any) -> dx.DistArray:
    """Return an array whose blocks are cut, however small it is."""
    with force_tiles(1):
        return dx.asarray(expected, team=team, sharding=sharding, **more)


def folders(path: str) -> list[str]:
    return [name for name in os.listdir(path) if name.startswith("blocks-")]


def current_folder(path: str) -> str | None:
    file = Path(path, states.MANIFEST)
    return json.loads(file.read_text())["state"]["folder"] if file.exists() else None


def blocks(path: str) -> list[str]:
    (folder,) = folders(path)
    return sorted(os.path.join(path, folder, name) for name in os.listdir(os.path.join(path, folder)))


# ------------------------------------------------------------------------------------------------ what comes back


@settings(max_examples=40)
@given(st.data())
def test_any_array_comes_back_on_any_team(tmp_path_factory: Any, data: st.DataObject) -> None:
    shape = data.draw(own.shapes(max_side=9))
    expected = values(data.draw(st.sampled_from(DTYPES)), shape)
    team = dx.Team((2, 3), ("R", "C"))
    axes: list[Any] = [None] * len(shape)
    for name in team.axes:
        if axes and (axis := data.draw(st.integers(-1, len(shape) - 1))) >= 0:
            axes[axis] = name if axes[axis] is None else (axes[axis], name)
    layout = data.draw(st.sampled_from("CF"))
    saved = cut(expected, tuple(axes), team, layout=layout)
    path = str(tmp_path_factory.mktemp("state") / "s")
    with config.set(block_bytes=8):
        dx.save_state(path, x=saved)
        found = dx.load_state(path, team=team)["x"]
        assert_equal(found, expected, sharding=saved.sharding if expected.size else None)
        other = data.draw(st.sampled_from([None, dx.Team((3,), ("R",)), dx.Team((3, 2), ("R", "C"))]))
        moved = dx.load_state(path, team=other)["x"]
        assert_equal(moved, expected)
        assert moved.team == other


@pytest.mark.parametrize("device", ["strict", "strict:1"])
def test_arrays_come_back_on_another_device(path: str, device: str) -> None:
    expected = values("f8", (7, 5))
    dx.save_state(path, x=cut(expected))
    x = dx.load_state(path, team=TEAM, device=device)["x"]
    assert x.device == device
    back = dx.save_state(path, x=x + 1)
    assert_equal(dx.load_state(back, team=None)["x"], expected + 1)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text()
    | st.binary()
    | st.sampled_from(
        [np.float32(1.5), np.int8(-3), np.bool_(True), np.datetime64("2020-01-01", "D"), np.complex64(2j)]
    )
    | st.sampled_from([np.str_(""), np.str_("é"), np.float16("nan"), np.timedelta64("NaT", "s"), np.longdouble(1) / 3]),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=8,
)


@settings(max_examples=60)
@given(st.dictionaries(st.text(), PLAIN))
def test_plain_values_come_back_as_they_were(tmp_path_factory: Any, state: dict[str, Any]) -> None:
    path = str(tmp_path_factory.mktemp("state") / "s")
    found = dx.load_state(dx.save_state(path, **state))
    # Pickles tell nan from nan, 0.0 from -0.0, and types.
    assert repr(found) == repr(state)
    assert list(found) == list(state)
    assert [pickle.dumps(v, 5) for v in found.values()] == [pickle.dumps(v, 5) for v in state.values()] or _equal(
        found, state
    )


def _equal(a: Any, b: Any) -> bool:
    """Return whether two values are of the same types and bits; pickles of equal values may share other parts."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return _equal(list(a.items()), list(b.items()))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, complex):
        return _equal((a.real, a.imag), (b.real, b.imag))
    if isinstance(a, np.generic):
        return a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return bool(a == b)


def test_integers_of_any_size_come_back(path: str) -> None:
    numbers = [sign * 10**n for n in (0, 1000, 1300, 5000, 20_000) for sign in (1, -1)]
    dx.save_state(path, numbers=numbers, names={10**5000: "large"})
    assert dx.load_state(path) == {"numbers": numbers, "names": {10**5000: "large"}}


def test_numpy_arrays_of_any_dtype_come_back(path: str) -> None:
    pairs = np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")])
    state = {
        "pairs": pairs,
        "text": np.array(["a", "bc"]),
        "swapped": np.arange(3, dtype=">i4"),
        "empty": np.ones((0, 2)),
    }
    found = dx.load_state(dx.save_state(path, **state))
    for name, array in state.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_generators_go_on_where_they_were(path: str) -> None:
    ours, numpys, legacy_words = (
        dx.random.default_rng(1),
        np.random.default_rng(2),
        np.random.Generator(np.random.MT19937(3)),
    )
    ours.random(3), numpys.random(3), legacy_words.random(3)
    found = dx.load_state(dx.save_state(path, ours=ours, others=[numpys, legacy_words]))
    assert found["ours"].random(5).tolist() == ours.random(5).tolist()
    for a, b in zip(found["others"], (numpys, legacy_words)):
        assert a.random(5).tolist() == b.random(5).tolist()


def test_views_of_a_base_come_back_as_they_were_at_the_call(path: str) -> None:
    host = np.arange(24.0).reshape(4, 6)
    x = dx.asarray(host, team=TEAM, sharding=("R", "C"), copy=True)
    view, turned = x[1:3, ::2], x.T[::-1]
    view[...] += 100
    host = host.copy()
    host[1:3, ::2] += 100
    saved = dx.save_state(path, x=x, view=view, turned=turned, again=x, nested=[{"x": x}])
    x[...] = 0
    found = dx.load_state(saved, team=TEAM)
    assert_equal(found["x"], host)
    assert_equal(found["view"], host[1:3, ::2])
    assert_equal(found["turned"], host.T[::-1])
    assert found["again"] is found["x"] is found["nested"][0]["x"]


# ---------------------------------------------------------------------------------------------- how it is computed


def test_arrays_are_computed_by_one_plan_kept_and_not_gathered(path: str) -> None:
    x = dx.ones((60, 8), team=TEAM, sharding=("R", "C"))
    with config.set(block_bytes=64):
        y, z = x * 2 + 1, (x * 2).sum(axis=0)
        with counting() as c:
            dx.save_state(path, y=y, z=z)
        assert c.evaluations == 1
        assert c.planner_calls <= 1
        assert c.fetched_bytes == 0
        with counting() as c:
            assert float(y.sum()) == 60 * 8 * 3
        assert not any(name.startswith("multiply") for name, *_ in c.kernels)


def test_each_block_is_a_file_of_its_own_written_once(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    def counted(block: Any, file: str, *where: Any) -> Any:
        written.append(file)
        return file_kernels.write_file(block, file, *where)

    monkeypatch.setattr(states, "write_file", counted)
    expected = values("f8", (10, 6))
    dx.save_state(path, x=cut(expected))
    assert len(written) == len(set(written)) == 6
    assert sorted(written) == blocks(path)


def test_loading_reads_nothing_and_the_same_cut_reads_each_file_once(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    plain = file_kernels._read_file
    monkeypatch.setattr(
        file_kernels, "_read_file", lambda out, file, *more: (read.append(file), plain(out, file, *more))
    )
    expected = values("f8", (10, 6))
    dx.save_state(path, x=cut(expected))
    x = dx.load_state(path, team=TEAM)["x"]
    assert not read
    assert_equal(x + 0, expected)
    assert_equal(x, expected)
    assert sorted(read) == blocks(path)


def test_an_array_that_members_cannot_keep_is_made_as_it_is_written(path: str) -> None:
    with config.set(memory_limit=8 << 20, block_bytes=1 << 16):
        x = dx.random.default_rng(0).random(1 << 19, team=dx.Team((2,), ("T",)), sharding=("T",))
        dx.save_state(path, x=x, y=dx.zeros(3))
        assert x.__dx_node__().memo is None
        assert float(dx.load_state(path, team=None)["x"].max()) == float(x.max())


# -------------------------------------------------------------------------------------------- what is there when


def test_a_failed_save_leaves_the_old_state_and_nothing_else(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dx.save_state(path, x=dx.arange(5), step=1)
    before = sorted(os.listdir(path))

    def fails(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    for name in ("write_file", "_publish"):
        with monkeypatch.context() as patch:
            patch.setattr(states, name, fails)
            with pytest.raises(OSError, match="No space left"):
                dx.save_state(path, x=dx.arange(6), step=2)
        assert sorted(os.listdir(path)) == before
    assert dx.load_state(path)["step"] == 1


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_failure_at_any_point_of_a_save_leaves_one_whole_state(
    path: str, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """Every call that touches the disk fails once, before and after it was made."""
    calls = [(os, "mkdir"), (os, "fsync"), (os, "replace"), (os, "listdir"), (shutil, "rmtree")]
    calls.append((states, "write_bytes"))
    dx.save_state(path, x=dx.zeros(4), step=0)
    seen: set[int] = set()
    for module, name in calls:
        for number in range(8):
            for is_before in (True, False):
                old = dx.load_state(path)["step"]
                with monkeypatch.context() as patch:
                    patch.setattr(module, name, failing(getattr(module, name), number, error, is_before))
                    try:
                        dx.save_state(path, x=dx.zeros(4) + old + 1, step=old + 1)
                    except error:
                        pass
                found = dx.load_state(path)
                seen.add(found["step"] - old)
                assert found["x"].tolist() == [found["step"]] * 4
    assert seen == {0, 1}
    dx.save_state(path, step=-1)
    assert len(folders(path)) <= 2


def failing(function: Any, number: int, error: type[BaseException], is_before: bool) -> Any:
    """Return a function of which one call raises, before or after it does what it is for.

    Calls of other threads are left alone: the loops of clusters in this process look at the system's files too.
    """
    calls, own = itertools.count(), threading.get_ident()

    def call(*args: Any, **keywords: Any) -> Any:
        fails = threading.get_ident() == own and next(calls) == number
        if fails and is_before:
            raise error("on purpose")
        result = function(*args, **keywords)
        if fails:
            raise error("on purpose")
        return result

    return call


def test_what_a_died_writer_left_is_removed_by_the_next(path: str) -> None:
    dx.save_state(path, step=1)
    left = Path(path) / f"blocks-{'0' * 32}"
    left.mkdir()
    (left / "0.0").write_bytes(b"half")
    (Path(path) / "notes.txt").write_text("the user's")
    assert dx.load_state(path)["step"] == 1
    dx.save_state(path, step=2)
    assert not left.exists()
    assert (Path(path) / "notes.txt").exists()
    assert len(folders(path)) == 1


def test_arrays_that_are_loaded_can_be_read_after_the_state_was_replaced(path: str) -> None:
    expected = values("f8", (6, 4))
    dx.save_state(path, x=dx.asarray(expected), step=0)
    state = dx.load_state(path)
    for step in range(3):
        dx.save_state(path, x=dx.zeros(3), step=step)
    assert len(folders(path)) == 2
    assert_equal(state["x"], expected)
    del state
    dx.load_state(path)
    dx.save_state(path, step=4)
    dx.load_state(path)
    dx.save_state(path, step=5)
    assert len(folders(path)) <= 2


def test_two_writers_at_a_time_are_refused(path: str) -> None:
    dx.save_state(path, step=1)
    with states._alone_in(path), pytest.raises(dx.StateError, match="somebody else is saving"):
        dx.save_state(path, step=2)
    dx.save_state(path, step=3)
    assert dx.load_state(path)["step"] == 3


def test_a_state_that_is_replaced_while_it_is_read_is_read_again(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dx.save_state(path, a=np.arange(3), step=1)
    plain = states._read_here_whole

    def replaced_meanwhile(file: str, checksum: int) -> Any:
        monkeypatch.setattr(states, "_read_here_whole", plain)
        dx.save_state(path, a=np.arange(4), step=2)
        return plain(file, checksum)

    monkeypatch.setattr(states, "_read_here_whole", replaced_meanwhile)
    found = dx.load_state(path)
    assert (found["step"], len(found["a"])) == (2, 4)


# ------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (object(), "x is a object"),
        ({1, 2}, "x is a set"),
        (np.array([None]), "x is a numpy array of objects"),
        (np.ma.masked_array([1]), "x is a MaskedArray"),
        ([1, {"a": lambda: 0}], "is a function"),
    ],
)
def test_what_would_not_come_back_is_refused_before_anything_runs(path: str, value: Any, what: str) -> None:
    y = dx.ones((400, 400), team=TEAM) + 1
    with counting() as c, pytest.raises(TypeError, match=what):
        dx.save_state(path, y=y, x=value)
    assert not c.evaluations
    assert not os.path.exists(path)


def test_paths_that_cannot_be(tmp_path: Path) -> None:
    for url in ("s3://bucket/state", "memory://x", "file:///tmp/x"):
        with pytest.raises(ValueError, match="is a URL"):
            dx.save_state(url, step=1)
        with pytest.raises(ValueError, match="is a URL"):
            dx.load_state(url)
    with pytest.raises(TypeError, match="is no path"):
        dx.save_state(3)  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        dx.load_state(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        dx.save_state(tmp_path / "no" / "folder", step=1)
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError, match="file"):
        dx.save_state(tmp_path / "file", step=1)


def damaged(path: str, how: str) -> None:
    data = bytearray(Path(path).read_bytes())
    if how == "missing":
        os.unlink(path)
    elif how == "short":
        Path(path).write_bytes(data[:-1])
    else:
        data[len(data) // 2] ^= 4
        Path(path).write_bytes(data)


@pytest.mark.parametrize("how", ["missing", "short", "flipped"])
def test_a_damaged_file_is_one_error_that_names_it(path: str, how: str) -> None:
    x = cut(values("f8", (6, 6)))
    dx.save_state(path, x=x, a=np.arange(3))
    whole = Path(path).with_name("whole")
    shutil.copytree(path, whole)
    names = [os.path.relpath(file, path) for file in blocks(path)]
    assert len(names) == 7
    for name in [*names, states.MANIFEST]:
        shutil.rmtree(path)
        shutil.copytree(whole, path)
        damaged(os.path.join(path, name), how)
        kind = FileNotFoundError if (name, how) == (states.MANIFEST, "missing") else dx.StateError
        with pytest.raises(kind) as raised:
            for array in dx.load_state(path, team=TEAM).values():
                np.asarray(array)
        assert name in str(raised.value)


def test_a_file_that_goes_after_loading_is_one_error_that_names_it(path: str) -> None:
    dx.save_state(path, x=dx.arange(9))
    x = dx.load_state(path)["x"]
    file = blocks(path)[-1]
    os.unlink(file)
    with pytest.raises(dx.StateError, match="is missing") as raised:
        x.sum().item()
    assert file in str(raised.value)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": 1, "checksum": 0, "state": {}}', "\x00"])
def test_a_manifest_that_is_none(path: str, text: str) -> None:
    dx.save_state(path, step=1)
    Path(path, states.MANIFEST).write_text(text)
    with pytest.raises(dx.StateError, match=r"state\.json"):
        dx.load_state(path)
    dx.save_state(path, step=2)  # mended
    assert dx.load_state(path) == {"step": 2}
    assert len(folders(path)) == 1


def test_another_version_of_the_format_says_so(path: str) -> None:
    dx.save_state(path, step=1)
    file = Path(path, states.MANIFEST)
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 2}))
    with pytest.raises(dx.StateError, match="version 2"):
        dx.load_state(path)


# ------------------------------------------------------------------------------------------------------ clusters


@pytest.mark.cluster
def test_members_write_and_read_their_own_blocks(cluster4: Any, path: str) -> None:
    expected = values("f8", (40, 30))
    with config.set(block_bytes=64):
        x = dx.asarray(expected, sharding=(dx.current_team().axes, None)).persist()
        with counting() as c:
            dx.save_state(path, x=x, y=x.T + 1, step=3)
        assert c.fetched_bytes == 0
        assert len([file for file in blocks(path) if "/0." in file]) == 4
        found = dx.load_state(path)
        assert_equal(found["x"], expected, sharding=x.sharding)
        assert_equal(dx.load_state(path, team=None)["y"], expected.T + 1)
        three = dx.Team((3,), ("t",))
        assert_equal(dx.load_state(path, team=three)["x"] * 2, expected * 2)


@pytest.mark.cluster
def test_a_worker_that_finds_a_damaged_block_names_it(cluster4: Any, path: str) -> None:
    x = dx.asarray(values("f8", (40, 30)), sharding=(dx.current_team().axes, None))
    dx.save_state(path, x=x)
    loaded = dx.load_state(path)["x"]
    damaged(blocks(path)[0], "flipped")
    with pytest.raises(dx.StateError, match="checksum") as raised:
        (loaded + 1).compute()
    assert blocks(path)[0] in str(raised.value)


class Killed:
    """Runs of the program that are killed, client, scheduler, nannies and workers, and started again."""

    def __init__(self, path: str, n_steps: int, every: int) -> None:
        self.path, self.arguments = path, [str(n_steps), str(every)]

    def start(self, path: str, *more: str) -> Any:
        import subprocess

        program = Path(__file__).parents[1] / "support" / "resumable.py"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([p for p in sys.path if p])}
        return subprocess.Popen(
            [sys.executable, str(program), path, *self.arguments, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def undisturbed(self, path: str) -> tuple[dict[str, str], float]:
        """Return the bits of the state at each step that is saved, and the seconds that the loop takes."""
        import time

        process = self.start(path, "told")
        begin, found = 0.0, {}
        for line in process.stdout:
            begin = begin or time.monotonic()
            _, step, bits = line.split()
            found[step] = bits
        assert process.wait() == 0
        return found, time.monotonic() - begin

    def run(self, seconds: float) -> list[list[str]]:
        """Let the program run for some seconds of its loop and kill all its processes; what it has said."""
        import signal
        import subprocess

        process = self.start(self.path)
        first = process.stdout.readline()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        rest = process.stdout.read()
        process.wait()
        eventually(lambda: not _is_group(process.pid))
        return [line.split() for line in (first + rest).splitlines()]


def _is_group(number: int) -> bool:
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    return True


def is_unfinished(path: str) -> bool:
    """Return whether a writer has died: what it had begun is younger than the state."""
    manifest = Path(path, states.MANIFEST)
    age = manifest.stat().st_mtime_ns if manifest.exists() else 0
    return any(Path(path, name).stat().st_mtime_ns > age for name in folders(path) if name != current_folder(path))


def killed_at_random_moments(tmp_path: Path, n_moments: int, n_steps: int, every: int, record_property: Any) -> None:
    import random

    moments = random.Random(f"{n_moments} {every}")
    killed = Killed(str(tmp_path / "killed"), n_steps, every)
    expected, seconds = killed.undisturbed(str(tmp_path / "whole"))
    n_killed = n_inside = n_ended = step = 0
    while n_killed < n_moments or n_ended == 0:
        left = seconds * (1 - step / n_steps)
        said = killed.run(moments.uniform(0, left) if n_killed < n_moments else 600.0)
        for _, at, bits in said:
            assert bits == expected[at]
        if said[-1][0] == "end":
            n_ended, step = n_ended + 1, 0
            shutil.rmtree(killed.path)
            continue
        n_killed += 1
        if os.path.exists(killed.path):
            current = current_folder(killed.path)
            n_inside += is_unfinished(killed.path)
            step = dx.load_state(killed.path, team=None)["step"] if current else 0
    record_property("killed", n_killed)
    record_property("killed while saving", n_inside)


@pytest.mark.cluster
def test_a_loop_survives_the_death_of_client_and_cluster(tmp_path: Path, record_property: Any) -> None:
    killed_at_random_moments(tmp_path, 1, 12, 2, record_property)


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("every", [4, 1])
def test_a_loop_survives_50_deaths_of_client_and_cluster(tmp_path: Path, every: int, record_property: Any) -> None:
    killed_at_random_moments(tmp_path, 25, 200, every, record_property)
