"""What notebooks show, in a browser without a screen: nothing is hidden, cut off or stretched, sizes are true."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distarray as dx
from distarray.diagnostics.draw import member_colour

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
TEAM = dx.Team((2, 2), ("R", "C"))
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="needs Chromium")]

#: Writes into the page, for each text, whether it is what one sees at its middle, and whether it lies in its drawing.
LOOK = """
const seen = [...document.querySelectorAll("svg text, td, th")].map(e => {
  const box = e.getBoundingClientRect(), frame = (e.closest("svg") || document.body).getBoundingClientRect();
  const top = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  return {text: e.textContent, tag: e.tagName, height: box.height, is_seen: top === e || !e.textContent,
          is_inside: box.x >= frame.x && box.right <= frame.right && box.y >= frame.y && box.bottom <= frame.bottom};
});
document.body.appendChild(document.createElement("pre")).textContent = "LOOK" + JSON.stringify(seen) + "KOOL";
"""


def browse(folder: Path, html: str, *what: str) -> str:
    page = folder / "page.html"
    page.write_text(f'<!doctype html><meta charset="utf-8"><body style="background: white">{html}</body>')
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=2000,1000")
    command = [str(BROWSER), *options, f"--user-data-dir={folder / 'profile'}", *what, str(page)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def looked_at(folder: Path, html: str) -> list[dict[str, Any]]:
    found = re.findall("LOOK(.*)KOOL", browse(folder, f"{html}<script>{LOOK}</script>", "--dump-dom"))[-1]
    return json.loads(unescape(found))  # the one before is the script itself


def screenshot(folder: Path, html: str) -> np.ndarray:
    image = pytest.importorskip("matplotlib.image")
    browse(folder, html, f"--screenshot={folder / 'page.png'}")
    return np.rint(255 * image.imread(folder / "page.png")[..., :3]).astype(int)


def cut(shape: tuple[int, ...], *names: Any) -> Any:
    return dx.zeros(shape, team=TEAM, sharding=names)


def explained() -> Any:
    x = cut((6_000, 4_000), "R", "C")
    return ((x - x.mean(axis=0)).T @ x).explain()


def html_of(shown: Any) -> str:
    return shown._repr_svg_() if isinstance(shown, str) else shown._repr_html_()


SHOWN: dict[str, Callable[[], Any]] = {
    "row": lambda: cut((1000,), ("R", "C")),
    "grid": lambda: cut((600, 400), "R", "C"),
    "sheets": lambda: cut((40, 30, 20), "R", None, "C"),
    "replicas": lambda: cut((600, 400), "R", None),
    "pending": lambda: cut((600, 400), "R", "C") + 1,
    "number": lambda: dx.asarray(2.5) * 2,
    "explain": explained,
    "visualize_sharding": lambda: dx.visualize_sharding(cut((600, 400), "R", "C")),
}


@pytest.mark.parametrize("name", SHOWN)
def test_every_text_is_seen_where_it_belongs(name: str, tmp_path: Path) -> None:
    found = looked_at(tmp_path, html_of(SHOWN[name]()))
    assert found
    assert [e["text"] for e in found if not (e["is_seen"] and e["is_inside"])] == []
    assert max(e["height"] for e in found) < 30, "a row is as high as its line"


def test_members_have_areas_of_their_colours_true_to_size(tmp_path: Path) -> None:
    x = dx.zeros((600, 400), team=TEAM, sharding=("R", "C"))
    pixels = screenshot(tmp_path, x._repr_html_()).reshape(-1, 3)
    areas = []
    for member in range(4):
        colour = [int(member_colour(member)[i : i + 2], 16) for i in (1, 3, 5)]
        areas.append(int((np.abs(pixels - colour).max(axis=1) <= 2).sum()))
    assert min(areas) > 0.9 * 120 * 80, areas
    assert max(areas) < 1.1 * min(areas), areas
