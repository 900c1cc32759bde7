"""``python -m distarray plan``: plans of graph files on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import distarray as dx
from distarray.__main__ import main
from distarray.planner.eindecomp import parse_graph
from distarray.testing import eingraphs

PAPER = ("--objective", "paper")


def written(folder: Path, graph: Any) -> str:
    path = folder / "graph.json"
    path.write_text(graph if isinstance(graph, str) else json.dumps(graph))
    return str(path)


def printed(capsys: Any, *args: str) -> str:
    assert main(["plan", *args]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return str(out)


def planned(capsys: Any, *args: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(printed(capsys, *args, "--json"))
    return made


def assert_whole(made: dict[str, Any], graph: Any) -> None:
    """What section 3 of the specification promises of every plan."""
    ops = parse_graph(graph).ops
    assert set(made) >= {"cost", "plan", "search", "seconds"}
    assert {v: set(d) for v, d in made["plan"].items()} == {v: set(op.labels) for v, op in ops.items()}
    assert all(type(k) is int and k >= 1 for d in made["plan"].values() for k in d.values())
    assert made["search"] in ("exact", "linearised", "tree", "fallback")
    assert 0 <= made["seconds"] < 60


@pytest.mark.parametrize(
    ("s", "args", "cost"),
    [
        (8000, ("--parts", "8"), 1_280_000_000),
        (8000, ("--parts", "8", "--kernels", "upto"), 1_088_000_000),
        (8000, ("--parts", "16", "--kernels", "upto"), 1_472_000_000),
        (8000, ("--parts", "64", "--kernels", "upto"), 2_240_000_000),
        (12000, ("--parts", "6", "--splits", "any"), 2_448_000_000),
    ],
)
def test_published_values(s: int, args: tuple[str, ...], cost: int, tmp_path: Path, capsys: Any) -> None:
    graph = eingraphs.matrix_chain(s)
    made = planned(capsys, written(tmp_path, graph), *PAPER, *args)
    assert_whole(made, graph)
    assert made["cost"] == cost == dx.plan_cost(graph, made["plan"])
    assert type(made["cost"]) is int
    assert made["search"] == "exact"


@pytest.mark.parametrize("search", ["exact", "linearised", "tree"])
@pytest.mark.parametrize("repart", ["paper", "worst", "jax", "cpp"])
def test_every_search_and_reading(search: str, repart: Any, tmp_path: Path, capsys: Any) -> None:
    graph = eingraphs.matrix_chain(64, skew=False)
    path = written(tmp_path, graph)
    made = planned(capsys, path, *PAPER, "--search", search, "--repart", repart)
    assert made["search"] == search
    assert made["cost"] == dx.plan_cost(graph, made["plan"], repart=repart)


def test_the_options_of_the_file_hold_unless_others_are_given(tmp_path: Path, capsys: Any) -> None:
    path = written(tmp_path, {**eingraphs.matrix_chain(12000, 6), "parts": "any"})
    assert planned(capsys, path, *PAPER)["cost"] == 2_448_000_000
    kernels = planned(capsys, path, *PAPER, "--parts", "8", "--splits", "pow2")["plan"]["DE"]
    assert kernels["i"] * kernels["j"] * kernels["k"] == 8


def test_the_paper_objective_has_splits_of_two_by_default_and_time_any(tmp_path: Path, capsys: Any) -> None:
    path = written(tmp_path, eingraphs.matrix_chain(1200, 6))
    assert main(["plan", path, *PAPER]) == 2
    assert "no power of two" in capsys.readouterr().err
    made = planned(capsys, path)
    assert made["objective"] == "time"
    assert 0 < made["cost"] < 60


def test_labels_of_a_batch_case_spaces_and_scalars(tmp_path: Path, capsys: Any) -> None:
    graph = {
        "name": "labels",
        "p": 8,
        "nodes": [
            {"id": "A", "shape": [4, 8, 16]},
            {"id": "B", "shape": [4, 16, 8]},
            {"id": "C", "expr": " b i J , b J i -> b i", "inputs": ["A", "B"]},
            {"id": "P", "expr": "bij,bjI->biI", "inputs": ["A", "B"]},
            {"id": "D", "expr": "bi->", "inputs": ["C"], "agg": "max"},
        ],
    }
    for objective in ("paper", "time"):
        made = planned(capsys, written(tmp_path, graph), "--objective", objective)
        assert_whole(made, graph)
        assert set(made["plan"]["P"]) == {"b", "i", "j", "I"}
        assert set(made["plan"]["D"]) == {"b", "i"}


def test_ties_broadcasts_layouts_and_many_inputs(tmp_path: Path, capsys: Any) -> None:
    graph = {
        "p": 4,
        "nodes": [
            {"id": "T", "shape": [8, 8, 8], "layout": [4, 1, 1]},
            {"id": "J", "shape": [8, 4]},
            {"id": "M", "expr": "ijk,jr,kr->ir", "inputs": ["T", "J", "J"]},
            {"id": "Jn", "expr": "ir,ir->ir", "inputs": ["J", "M"], "join": "sub"},
            {"id": "B", "expr": "ir->irz", "inputs": ["M"], "sizes": {"z": 10}},
        ],
        "equal": [["J", "Jn"]],
    }
    for objective in ("paper", "time"):
        made = planned(capsys, written(tmp_path, graph), "--objective", objective)
        assert_whole(made, graph)
        d, n = made["plan"]["M"], made["plan"]["Jn"]
        assert (d["j"], d["r"]) == (d["k"], d["r"]) == (n["i"], n["r"])


def test_as_text(tmp_path: Path, capsys: Any) -> None:
    text = printed(capsys, written(tmp_path, eingraphs.matrix_chain(8000)), *PAPER)
    assert "DE " in text
    assert "ij,jk->ik" in text
    assert "1.28e+09 elements" in text


def test_as_a_command(tmp_path: Path) -> None:
    """Nothing but the plan is on stdout."""
    path = written(tmp_path, eingraphs.matrix_chain(80))
    command = [sys.executable, "-m", "distarray", "plan", path, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(json.loads(done.stdout)["plan"]) == {"DE", "CDE", "AB", "Y"}


# ---------------------------------------------------------------------------------------------------------- bad input

A: dict[str, Any] = {"id": "A", "shape": [8, 8]}


def nodes(*more: Any, **keys: Any) -> dict[str, Any]:
    return {"p": 4, "nodes": [A, {"id": "B", "shape": [8, 4]}, *more], **keys}


def op(expr: Any, *inputs: Any, **keys: Any) -> dict[str, Any]:
    return {"id": "C", "expr": expr, "inputs": list(inputs), **keys}


PRODUCT = op("ij,jk->ik", "A", "B")


@pytest.mark.parametrize(
    ("graph", "says"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("\ufeff{}", "no JSON"),
        ([], "list of nodes"),
        ({}, "list of nodes"),
        ({"nodes": {}}, "list of nodes"),
        ({"nodes": [5]}, "no node"),
        (nodes({"shape": [8]}), "no id"),
        (nodes(A), "twice"),
        (nodes(op("ij,jk->ik", "A", "A2")), "no input 'A2'"),
        (nodes(op("ij,jk->ik", "B", "A")), "extents"),
        (nodes(op("ij,jk->ik", "A")), "2 terms and 1 inputs"),
        (nodes(op("ii->i", "A")), "twice"),
        (nodes(op("ij->ii", "A")), "twice"),
        (nodes(op("ij", "A")), "'->'"),
        (nodes(op("i1->i", "A")), "letters"),
        (nodes(op("ijk->i", "A")), "2 dimensions"),
        (nodes(op("ij->ijz", "A")), "only in the result"),
        (nodes({"id": "C", "shape": [0]}), "positive"),
        (nodes({"id": "C", "shape": [10**30]}, {"id": "D", "expr": "i->", "inputs": ["C"]}), "too large"),
        (nodes({"id": "C", "shape": [10**30]}), "input 'C' of shape"),
        ({**nodes(op("ij->i", "A")), "p": 10**20}, "at most 4194304"),
        (nodes({"id": "C", "shape": ["8"]}), "positive"),
        (nodes({"id": "C", "shape": 8}), "positive"),
        (nodes({"id": "C", "shape": [8, True]}), "positive"),
        (nodes({"id": "C", "shape": [8, 8.0]}), "positive"),
        (nodes({"id": "C", "shape": [8], "layout": [3]}), "do not divide"),
        (nodes({"id": "C", "shape": [8], "layout": [2, 2]}), "does not fit"),
        (nodes({"id": "C", "shape": [8], "layout": 2}), "graph.json"),
        (nodes({"id": "C", "shape": [8], "layout": [True]}), "does not fit"),
        (nodes({"id": "C", "shape": [8], "layout": [2], "workers": [False, True]}), "list of 2 numbers"),
        (nodes({"id": "C", "expr": "ij->ij", "inputs": 5}), "graph.json"),
        (nodes(op("ij->ijz", "A", sizes=["z"])), "graph.json"),
        *[(nodes(op("ij->ijz", "A", sizes={"z": n})), "positive") for n in (True, 0, 2.5, "8", None)],
        (nodes(op("ij->ijz", "A", sizes={"z": 2, "i": 4})), "extents 8 and 4"),
        (nodes(PRODUCT, p=0), "positive"),
        *[(nodes(PRODUCT, p=p), "positive") for p in ("4", True, False, 4.0)],
        (nodes(PRODUCT, p=6, parts="pow2"), "no power of two"),
        (nodes(PRODUCT, p=None), "p is not given"),
        (nodes(PRODUCT, parts="some"), "some"),
        (nodes(PRODUCT, equal=[["A", "D"]]), "no node 'D'"),
        (nodes(PRODUCT, equal=5), "graph.json"),
    ],
)
@pytest.mark.parametrize("objective", ["paper", "time"])
def test_bad_files_are_one_line_on_stderr_and_status_2(
    graph: Any, says: str, objective: str, tmp_path: Path, capsys: Any
) -> None:
    assert main(["plan", written(tmp_path, graph), "--json", "--objective", objective]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("python -m distarray plan: ")
    assert says in err


TWICE = nodes(PRODUCT, {"id": "D", "expr": "ik,ik->ik", "inputs": ["C", "C"]})


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((*PAPER, "--search", "tree"), "is no tree"),
        (("--search", "tree"), "is no tree"),
        ((*PAPER, "--parts", "6"), "no power of two"),
        ((*PAPER, "--parts", "0"), "at least one"),
        (("--parts", "0"), "at least one"),
        (("--parts", "-4"), "at least one"),
        (("--parts", "many"), "invalid int"),
        (("--search", "quick"), "invalid choice"),
        (("--repart", "mine"), "invalid choice"),
        (("--splits", "some"), "invalid choice"),
        (("--objective", "speed"), "invalid choice"),
        (("--kernels", "more"), "invalid choice"),
        (("--memory", "much"), "invalid int"),
        (("--memory", "0"), "bytes"),
        (("--memory", "8"), "the smallest limit"),
        (("--nonsense",), "--nonsense"),
        (("another.json",), "another.json"),
    ],
)
def test_bad_options_are_one_line_on_stderr_and_status_2(
    args: tuple[str, ...], says: str, tmp_path: Path, capsys: Any
) -> None:
    try:
        status: Any = main(["plan", written(tmp_path, TWICE), "--json", *args])
    except SystemExit as end:
        status = end.code
    out, err = capsys.readouterr()
    assert status == 2
    assert out == ""
    assert err.count("\n") == 1
    assert says in err


@pytest.mark.parametrize(("path", "says"), [("there_is_none.json", "No such file"), (".", "directory")])
def test_files_that_cannot_be_read(path: str, says: str, capsys: Any) -> None:
    assert main(["plan", path, "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert says in err
