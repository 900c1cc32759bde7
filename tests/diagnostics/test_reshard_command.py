"""``python -m distarray reshard``: plans on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import calls_made

from distarray.__main__ import main
from distarray.sharding.mesh import Mesh
from distarray.sharding.spec import from_json
from distarray.testing.redistribution_verifier import verify

#: Functions called before bad input is refused: some tenths of a second.
MANY_CALLS = 100_000

ONE = ["reshard", "--mesh", "x=4,y=6", "--source", "[3{x}12, 2{y}12]", "--target", "[2{y}12, 3{x}12]"]


def printed(capsys: Any, *args: str) -> str:
    assert main(list(args)) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return str(out)


def is_right(made: dict[str, Any]) -> bool:
    mesh = Mesh(*map(tuple, zip(*made["mesh"], strict=True)))
    _, shape, src = from_json(made["src"], mesh)
    _, _, dst = from_json(made["dst"], mesh)
    return verify(shape, src, dst, made["steps"], mode=made["mode"], cost=made["cost"], peak=made["peak"]) == []


def test_one_plan_as_json(capsys: Any) -> None:
    made = json.loads(printed(capsys, *ONE, "--json"))
    assert (made["cost"], made["peak"], made["mode"]) == (18, 6, "paper")
    assert [step["op"] for step in made["steps"]] == ["alltoall", "alltoall", "allpermute"]
    assert is_right(made)
    assert json.loads(printed(capsys, *ONE, "--json", "--mode", "fused"))["cost"] == 6
    assert json.loads(printed(capsys, *ONE, "--json", "--mode", "direct"))["mode"] == "direct"


def test_one_plan_as_text(capsys: Any) -> None:
    assert "alltoall 0->1 n=2" in printed(capsys, *ONE)


def test_many_plans_in_their_order(capsys: Any, tmp_path: Path) -> None:
    problems = [
        {"id": "a", "mesh": [["x", 2], ["y", 2]], "src": "[4{x}8, 8]", "dst": {"global": [8, 8], "parts": [[], ["x"]]}},
        {"id": 7, "mesh": [["x", 3]], "src": "f32[4{x}10]", "dst": "[10]", "note": "other keys are ignored"},
    ]
    path = tmp_path / "problems.json"
    path.write_text(json.dumps(problems))
    made = json.loads(printed(capsys, "reshard", "--problems", str(path), "--json"))
    assert [m["id"] for m in made] == ["a", 7]
    assert all(map(is_right, made))
    assert printed(capsys, "reshard", "--problems", str(path)).startswith("a: [4{x}8, 8] -> [8, 4{x}8]")


def test_memory_makes_waves(capsys: Any) -> None:
    args = ["reshard", "--mesh", "x=8", "--source", "f32[1000{x}8000, 1000]", "--target", "f32[8000, 125{x}1000]"]
    free = json.loads(printed(capsys, *args, "--json"))
    assert "waves" not in free
    made = json.loads(printed(capsys, *args, "--json", "--memory", "6000000"))
    assert made["memory"] <= 6_000_000
    assert made["waves"][0][1] > 1


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--mesh", "x=4", "--source", "[3{z}12]", "--target", "[12]"], "does not exist"),
        (["--mesh", "x=4", "--source", "[3{x}12, 3{x}12]", "--target", "[12, 12]"], "one array axis only"),
        (["--mesh", "x=4", "--source", "[2{x}12]", "--target", "[12]"], "tiles of 2"),
        (["--mesh", "x=4", "--source", "[3{x}12]", "--target", "[13]"], "not one array"),
        (["--mesh", "x=4", "--source", "[3{x}12", "--target", "[12]"], "[3{x}12"),
        (["--mesh", "x", "--source", "[12]", "--target", "[12]"], "no axis"),
        ([*ONE[1:], "--mode", "best"], "mode 'best' is unknown"),
        ([*ONE[1:], "--memory", "3"], "needs at least"),
        ([*ONE[1:], "--memory", "much"], "invalid int"),
        ([*ONE[1:], "--itemsize", "0"], "at least one byte"),
        ([*ONE[1:], "--problems", "x.json"], "one or the other"),
        (["--source", "[12]"], "give --mesh"),
        (["--problems", "there_is_no_such_file.json"], "No such file"),
        (["--nonsense"], "--nonsense"),
        (["--mesh", f"x={10**20}", "--source", "[10]", "--target", "[10]"], "at most 4194304"),
        (["--mesh", f"x={10**20}", "--source", f"[10{{x}}{10**21}]", "--target", f"[{10**21}]"], "at most 4194304"),
        (["--mesh", "x=1000003,y=1000033", "--source", "[10]", "--target", "[10]"], "at most 4194304"),
        (["--mesh", "x=4", "--source", f"[1{{%1:{10**20}}}10]", "--target", "[10]"], "4194304"),
        ([*ONE[1:], "--memory", "-1"], "memory -1"),
        ([*ONE[1:], "--itemsize", str(10**30)], "itemsize"),
    ],
)
def test_bad_input_is_one_line_on_stderr_and_status_2(args: list[str], says: str, capsys: Any) -> None:
    def run() -> None:
        try:
            ended.append(main(["reshard", *args]))
        except SystemExit as end:
            ended.append(end.code)

    ended: list[Any] = []
    assert calls_made(run) < MANY_CALLS
    (status,) = ended
    out, err = capsys.readouterr()
    assert status == 2
    assert out == ""
    assert err.count("\n") == 1
    assert says in err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "no JSON"),
        ("{}", "a list of problems"),
        ('[{"id": 1}]', "needs id, mesh, src and dst"),
        ('[{"id": "p3", "mesh": [["x", 2]], "src": "[4{x}8]", "dst": "[9]"}]', "problem p3: "),
        ('[{"id": "p4", "mesh": [["x"]], "src": "[4{x}8]", "dst": "[8]"}]', "problem p4: mesh [['x']] is no list of"),
        ('[{"id": 5, "mesh": 7, "src": "[8]", "dst": "[8]"}]', "problem 5: mesh 7 is no list of"),
        ('[{"id": 5, "mesh": {"x": 2}, "src": "[8]", "dst": "[8]"}]', "is no list of [name, size]"),
        ('[{"id": 5, "mesh": [["x", 2.5]], "src": "[8]", "dst": "[8]"}]', "is no list of [name, size]"),
        ('[{"id": 5, "mesh": [["x", "a"]], "src": "[8]", "dst": "[8]"}]', "is no list of [name, size]"),
        ('[{"id": 5, "mesh": [["x", 100000000000000000000]], "src": "[8]", "dst": "[8]"}]', "at most 4194304"),
        ('[{"id": 5, "mesh": [["x", 2]], "src": 8, "dst": "[8]"}]', "problem 5: 8 is no type"),
        ('[{"id": 5, "mesh": [["x", 2]], "src": {"global": 8, "parts": 9}, "dst": "[8]"}]', "is no type"),
        ("[5]", "5 is no problem"),
        ("[" * 100_000, "no JSON"),
        ("[" * 900 + "]" * 900, "is no problem"),
    ],
)
def test_bad_files_are_one_line_that_names_the_problem(text: str, says: str, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "problems.json"
    path.write_text(text)
    ended: list[int] = []
    assert calls_made(lambda: ended.append(main(["reshard", "--problems", str(path), "--json"]))) < MANY_CALLS
    assert ended == [2]
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert says in err
