"""What an array shows: its type without computing, numpy's text with few elements computed."""

from __future__ import annotations

import re

import numpy as np
import pytest

import distarray as dx

TEAM = dx.Team((2, 4), ("R", "C"))


def test_repr_is_the_type_in_one_line_and_computes_nothing() -> None:
    with dx.testing.counting() as c:
        x = dx.zeros((16384, 16384), team=TEAM, sharding=("R", "C"))
        assert repr(x) == 'DistArray(f64[8192{R}16384, 4096{C}16384], team=Team(R=2, C=4), device="cpu")'
        assert repr(x + 1) == 'DistArray(f64[16384, 16384], team=Team(R=2, C=4), device="cpu", not yet placed)'
        assert repr(dx.ones(3, team=None)) == 'DistArray(f64[3], team=None, device="cpu")'
        f = dx.zeros((8, 4), team=TEAM, sharding=(("C", "R"), None), layout="F", dtype="c8")
        assert repr(f) == 'DistArray(c64[1{C,R}8, 4] order=F, team=Team(R=2, C=4), device="cpu")'
    assert c.evaluations == c.planner_calls == 0


def test_repr_of_a_number_shows_it_where_it_is_known() -> None:
    counts = dx.count_nonzero(dx.arange(12).reshape(3, 4) % 3, axis=1)
    assert repr(list(counts)[:1]) == f'[DistArray(i64[] = 2, team={counts.team!r}, device="cpu")]'
    assert repr(dx.asarray(np.datetime64("2020-02-29"), team=None)).startswith("DistArray(M8[D][] = 2020-02-29,")
    with dx.testing.counting() as c, dx.config.set(eager_bytes=0):
        assert repr(dx.sum(dx.ones(5), axis=0)).endswith("not yet placed)")
    assert c.evaluations == 0


@pytest.mark.parametrize(
    "host",
    [
        np.arange(5),
        np.arange(2000.0),
        np.arange(6000).reshape(20, 300) / 7,
        np.arange(3000).reshape(3, 10, 100) % 7 == 0,
        np.zeros((0, 3)),
        np.array(3.5),
        np.array([1 + 2j, np.nan]),
        np.arange(1500).reshape(750, 2),
        np.array(["2020-01-01", "NaT"], "M8[D]"),
    ],
    ids=lambda a: f"{a.dtype}{a.shape}",
)
def test_str_is_numpys(host: np.ndarray) -> None:
    x = dx.asarray(host)
    assert str(x) == str(host)
    with np.printoptions(edgeitems=1, threshold=4, precision=2):
        assert str(x) == str(host)


def test_printing_a_large_array_computes_its_corners_only() -> None:
    x = dx.arange(10**9).reshape(1000, 10**6) * 2
    with dx.testing.counting() as c:
        text = str(x)
    assert text.startswith("[[         0          2          4 ...")
    assert c.fetched_bytes <= 36 * 8


def test_html_draws_the_cut_and_computes_nothing() -> None:
    x = dx.zeros((64, 32), team=TEAM, sharding=("R", "C"))
    with dx.testing.counting() as c:
        text = x._repr_html_()
        pending = (x + 1)._repr_html_()
    assert len(re.findall("<rect", text)) >= 8
    assert "f64[32{R}64, 8{C}32]" in text
    assert "not yet" in pending
    assert c.evaluations == c.planner_calls == 0


def test_visualize_sharding_names_the_members() -> None:
    x = dx.zeros((64, 32), team=TEAM, sharding=("R", "C"))
    assert all(str(rank) in dx.visualize_sharding(x) for rank in range(8))


def test_visualize_sharding_shows_itself_as_text_and_as_a_picture() -> None:
    drawing = dx.visualize_sharding(dx.zeros((64, 32), team=TEAM, sharding=("R", "C")))
    assert repr(drawing) == str(drawing) == "".join(drawing)
    assert drawing.startswith("[32{R}64, 8{C}32] on Mesh(R=2, C=4)\n")
    assert drawing._repr_svg_().count("<rect") == 8
