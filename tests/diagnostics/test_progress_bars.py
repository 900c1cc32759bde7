"""Progress: counted while somebody looks, drawn by a thread that nobody waits for, and gone when its block ends."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import eventually

import distarray as dx
from distarray import config
from distarray.diagnostics import progress_bars
from distarray.diagnostics.progress_bars import PlainBar, Shown, text_of
from distarray.runtime import progress
from distarray.runtime.progress import Board, Look, Work

TEAM = dx.Team((2,), ("T",))


@pytest.fixture(autouse=True)
def _many_tiles() -> Iterator[None]:
    with config.set(block_bytes=64, errors="deferred", planner="propagation"):
        yield


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks come at once, and show whatever there is."""
    monkeypatch.setattr(progress_bars, "LOOK_SECONDS", 0.005)
    monkeypatch.setattr(progress_bars, "SHOWN_SECONDS", -1.0)


@pytest.fixture
def board() -> Iterator[Board]:
    yield progress.put_up()
    progress.take_down()


def tiles(n: int, function: Any) -> dx.DistArray:
    """Return an array of which each of n tiles is made by a call of a function."""
    x = dx.zeros((n, 32), team=TEAM, sharding=("T", None))
    return dx.map_blocks(function, x.rechunk((1, 32)), dtype="f8")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


# --------------------------------------------------------------------------------------------------- what is said


def test_text_says_what_is_known() -> None:
    assert text_of(Look(0.7, None, 0, 4, 0)) == "0 of 4 steps, 700 ms"
    assert text_of(Look(2.0, None, 1, 4, 0)) == "1 of 4 steps, 2 s, about 6 s left"
    assert text_of(Look(0.9, 0.9, 0, 0, 0)) == ""
    assert text_of(Look(3.0, 2.0, 1, 2, 1 << 20)) == "planning for 2 s, 1 of 2 steps, 1 MiB moved, 3 s, about 3 s left"


def test_a_look_adds_up_what_is_old_enough() -> None:
    board = Board()
    assert board.look(0.5) is None
    run, plan = Work(10), Work(None)
    run.after(0, None)
    run.begin -= 2.0
    board.add(run)
    board.add(plan)
    look = board.look(0.5)
    assert look is not None
    assert look[1:] == (None, 1, 10, 0)
    assert 2.0 <= look.seconds < 60.0
    assert look.seconds_left == pytest.approx(9 * look.seconds)
    board.remove(run)
    look = board.look(-1.0)
    assert look is not None
    assert look.n_steps == 0
    assert look.planning is not None


def test_a_line_is_rewritten_on_a_terminal_and_rare_in_a_log() -> None:
    look = Look(1.0, None, 1, 2, 0)
    terminal, log = Terminal(), io.StringIO()
    for file in (terminal, log):
        bar = PlainBar(file)
        bar.draw(look, "a longer text")
        bar.draw(look, "short")
        bar.clear()
        bar.clear()
    assert terminal.getvalue() == "\ra longer text\rshort        \r     \r"
    assert log.getvalue() == "a longer text\n"


@pytest.mark.parametrize("name", ["rich", "tqdm", "plain"])
def test_every_bar_draws_and_leaves_nothing_behind(name: str) -> None:
    if name != "plain":
        pytest.importorskip(name)
    file = Terminal()
    bar = progress_bars._bar_of(name, file)
    for _ in range(2):
        bar.draw(Look(1.0, None, 1, 2, 0), "1 of 2 steps")
        bar.draw(Look(2.0, 1.5, 0, 0, 0), "planning for 1.5 s")
        bar.clear()
        bar.clear()
    assert "1 of 2 steps" in file.getvalue()
    assert "planning" in file.getvalue()
    assert sys.stdout is not file


def test_auto_takes_what_can_be_drawn_there(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"rich", "tqdm"}
    monkeypatch.setattr(progress_bars, "find_spec", lambda name: name if name in there else None)
    kind = lambda file: type(progress_bars._bar_of("auto", file)).__name__
    assert kind(Terminal()) == "RichBar"
    assert kind(io.StringIO()) == "PlainBar"
    there.discard("rich")
    assert kind(Terminal()) == "TqdmBar"
    monkeypatch.setattr(progress_bars, "is_notebook", lambda: True)
    assert kind(io.StringIO()) == "TqdmBar"
    there.clear()
    assert kind(Terminal()) == "PlainBar"
    with pytest.raises(ImportError, match="pip install rich"):
        dx.progress(bar="rich")
    with pytest.raises(ValueError, match="bar"):
        dx.progress(bar="pretty")


# ---------------------------------------------------------------------------------------------------- what is noted


def test_nobody_pays_who_does_not_watch() -> None:
    assert progress.board is None
    assert progress.planning() is progress.counted(3) is progress._NOBODY
    assert not [t for t in threading.enumerate() if t.name == "distarray-progress"]


def test_steps_of_this_process_are_counted_while_kernels_run(board: Board) -> None:
    go, at = threading.Semaphore(0), threading.Semaphore(0)

    def waits(block: Any) -> Any:
        at.release()
        assert go.acquire(timeout=60)
        return block + 1

    x = tiles(6, waits)
    worker = threading.Thread(target=x.persist)
    worker.start()
    seen = []
    for _ in range(6):
        assert at.acquire(timeout=60)
        look = board.look(-1.0)  # kernels are running, and nobody waits
        assert look is not None
        seen.append(look.n_done)
        go.release()
    worker.join()
    assert seen == sorted(seen)
    assert seen[-1] > seen[0]
    assert board.look(-1.0) is None
    assert float(x.sum()) == 6 * 32


def test_planning_is_noted(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    from distarray.runtime import prepare

    seen = []
    plain = prepare.checked
    monkeypatch.setattr(prepare, "checked", lambda *a: (seen.append(board.look(-1.0)), plain(*a))[1])
    (tiles(4, lambda block: block) + 1).persist()
    assert seen
    assert all(look.planning is not None and look.n_steps == 0 for look in seen)


def test_what_fails_is_no_longer_noted(board: Board) -> None:
    def fails(block: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tiles(4, fails).persist()
    assert board.look(-1.0) is None


# ---------------------------------------------------------------------------------------------------- what is shown


@pytest.mark.usefixtures("quick")
def test_long_work_is_shown_and_gone_afterwards() -> None:
    file = Terminal()

    def waits(block: Any) -> Any:
        eventually(lambda: "steps" in file.getvalue())
        return block

    with dx.progress(bar="plain", file=file):
        tiles(3, waits).persist()
    assert file.getvalue().endswith("\r")
    assert progress.board is None
    assert not [t for t in threading.enumerate() if t.name == "distarray-progress"]


def test_short_work_is_not_shown() -> None:
    file = Terminal()
    with dx.progress(bar="plain", file=file):
        tiles(3, lambda block: block).persist()
    assert file.getvalue() == ""


def test_blocks_nest_and_meet_in_threads() -> None:
    shown = Shown(bar="plain", file=io.StringIO())
    with shown:
        first = progress.board
        assert first is not None
        with shown, dx.progress():
            assert progress.board is first
        ends = threading.Event()

        def other() -> None:
            with dx.progress():
                ends.wait(60)

        thread = threading.Thread(target=other)
        thread.start()
        eventually(lambda: progress_bars._display._n_blocks == 2)
    assert progress.board is first
    ends.set()
    thread.join()
    assert progress.board is None


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_an_error_or_an_interrupt_ends_the_block(error: type[BaseException]) -> None:
    with pytest.raises(error), dx.progress(bar="plain", file=io.StringIO()):
        raise error
    assert progress.board is None


@pytest.mark.usefixtures("quick")
def test_what_cannot_be_drawn_harms_nobody() -> None:
    class Closed(Terminal):
        n_calls = 0

        def write(self, text: str) -> int:
            Closed.n_calls += 1
            raise ValueError("I/O operation on closed file")

    def waits(block: Any) -> Any:
        eventually(lambda: Closed.n_calls)
        return block + 1

    with dx.progress(bar="plain", file=Closed()):
        assert float(tiles(3, waits).sum()) == 3 * 32


def test_a_switch_for_the_whole_program() -> None:
    assert dx.progress(True, bar="plain", file=io.StringIO()) is None
    try:
        dx.progress(True)
        assert progress.board is not None
    finally:
        dx.progress(False)
    assert progress.board is None
    dx.progress(False)


# -------------------------------------------------------------------------------------------------------- clusters


def _waits_for(path: str, block: Any) -> Any:
    eventually(Path(path).exists)
    return block + 1


@contextmanager
def under_way(x: Any, gate: Path) -> Iterator[None]:
    """Have another thread compute an array whose kernels wait until the end of the block."""
    thread = threading.Thread(target=dx.wait, args=(x,))
    thread.start()
    try:
        yield
    finally:
        gate.touch()
        thread.join()


@pytest.mark.cluster
@pytest.mark.parametrize("reads_others", [True, False])
def test_a_cluster_is_asked_how_far_it_is(cluster4: Any, board: Board, tmp_path: Path, reads_others: bool) -> None:
    x = dx.asarray(np.ones((64, 64)), sharding=(dx.current_team().axes, None))
    waits = dx.map_blocks(partial(_waits_for, str(tmp_path / "open")), x, dtype="f8")
    y = waits + waits.T if reads_others else waits
    with under_way(y, tmp_path / "open"):
        eventually(lambda: (found := board.look(-1.0)) and found.n_done < found.n_steps)
    eventually(lambda: board.look(-1.0) is None)


@pytest.mark.cluster
def test_steps_of_programs_and_bytes_between_workers_are_counted(cluster4: Any, board: Board, tmp_path: Path) -> None:
    x = dx.asarray(np.ones((64, 64)), sharding=(dx.current_team().axes, None))
    y = dx.map_blocks(partial(_waits_for, str(tmp_path / "open")), x + x.T, dtype="f8")
    y = y + y.T
    with under_way(y, tmp_path / "open"):
        look = eventually(lambda: (found := board.look(-1.0)) and found.n_done and found.nbytes and found)
        assert 0 < look.n_done < look.n_steps
    assert float(y.sum()) == 2 * 3 * 64 * 64


@pytest.mark.cluster
@pytest.mark.usefixtures("quick")
def test_progress_of_a_cluster_is_drawn(cluster4: Any, tmp_path: Path) -> None:
    file = Terminal()
    with dx.progress(bar="plain", file=file):
        x = dx.ones((64, 64), sharding=(dx.current_team().axes, None))
        y = dx.map_blocks(partial(_waits_for, str(tmp_path / "open")), x + x.T, dtype="f8")
        with under_way(y, tmp_path / "open"):
            eventually(lambda: "steps" in file.getvalue())
    assert file.getvalue().endswith("\r")
