"""The conformance cases of the ``onnx`` package: the operators of every node case give what the case says.

Left out, for these reasons alone:

- elements that numpy lacks (text, bfloat16, float8, float4, integers of 2 and 4 bits): that they are refused is tested;
- numbers drawn by numpy's generator: ours are others, which `test_operators` tests.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from random import Random
from typing import Any
from zlib import crc32

import numpy as np
import pytest

import distarray as dx
from distarray.errors import NotSupportedError
from distarray.testing import force_tiles

onnx = pytest.importorskip("onnx")

from onnx_specs import annotated  # noqa: E402

from distarray.io.onnx import load  # noqa: E402
from distarray.io.onnx.operators import run_graph  # noqa: E402  (needs onnx to be of use)

#: In the place of a number of tiles: specs at the nodes say how they are cut.
CUT = -1

#: Cases whose numbers numpy's generator draws.
DRAWN = re.compile(r"test_(bernoulli(_double|_seed)?(_expanded)?|training_dropout(_default)?(_mask)?)")
#: Element types that numpy lacks.
LACKING = {"STRING", "BFLOAT16", "UINT4", "INT4", "UINT2", "INT2", "FLOAT4E2M1", "FLOAT8E8M0"} | {
    f"FLOAT8{kind}" for kind in ("E4M3FN", "E4M3FNUZ", "E5M2", "E5M2FNUZ")
}


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases divide by zero when they are made
        from onnx.backend.test.loader import load_model_tests

        return list(load_model_tests(kind="node"))


def elements(case: Any) -> set[str]:
    """Names of the element types of inputs, outputs and casts of a case."""
    waiting = [info.type for info in (*case.model.graph.input, *case.model.graph.output)]
    found = {a.i for node in case.model.graph.node for a in node.attribute if a.name == "to"}
    while waiting:
        kind = waiting.pop()
        if kind.HasField("sequence_type"):
            waiting.append(kind.sequence_type.elem_type)
        elif kind.HasField("optional_type"):
            waiting.append(kind.optional_type.elem_type)
        else:
            found.add(kind.tensor_type.elem_type)
    return {onnx.TensorProto.DataType.Name(element) for element in found}


def host(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def check(expected: Any, found: Any, case: Any) -> None:
    if isinstance(expected, list):
        assert isinstance(found, list)
        assert len(found) == len(expected)
        for e, f in zip(expected, found):
            check(host(e), f, case)
        return
    if expected is None:
        assert found is None
        return
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=case.rtol, atol=case.atol)


def cut(value: Any, team: dx.Team, rng: np.random.Generator) -> Any:
    """Cut an input over a team: each axis of the mesh cuts an axis of the array, or none, as it comes."""
    if isinstance(value, list):
        return [cut(host(v), team, rng) for v in value]
    if value is None:
        return None
    names: list[list[str]] = [[] for _ in range(value.ndim)]
    for name in team.mesh.names:
        axis = int(rng.integers(-1, value.ndim))
        if axis >= 0:
            names[axis].append(name)
    return dx.asarray(value, team=team, sharding=tuple(tuple(found) or None for found in names))


def run_cut(case: Any) -> str:
    """Run a case with random legal specs at its node, and say what became of it; see `run`."""
    if DRAWN.fullmatch(case.name) or elements(case) & LACKING:
        return "left"
    random = Random(case.name)
    for inputs, outputs in case.data_sets:
        feeds = dict(zip([info.name for info in case.model.graph.input], map(host, inputs)))
        known = {name: x for name, x in feeds.items() if hasattr(x, "shape")}
        made = annotated(random, case.model, random.choice([2, 4, 8]), known, tries=12)
        with np.errstate(all="ignore"):
            found = load(made).run(feeds)
        for expected, f in zip(outputs, found.values(), strict=True):
            check(host(expected), f, case)
    return "cut" if any(node.device_configurations for node in made.graph.node) else "plain"


def run(case: Any, tiles: int | None, team: dx.Team | None = None) -> str:
    """Run a case, and say what became of it: "passed", or why it was left out."""
    if tiles == CUT:
        return run_cut(case)
    if DRAWN.fullmatch(case.name):
        return "drawn"
    lacks = bool(elements(case) & LACKING)
    for inputs, outputs in case.data_sets:
        feeds = dict(zip([info.name for info in case.model.graph.input], map(host, inputs)))
        if team is not None and not lacks:
            rng = np.random.default_rng(crc32(case.name.encode()))
            feeds = {name: cut(value, team, rng) for name, value in feeds.items()}
        with np.errstate(all="ignore"), force_tiles(tiles) if tiles else nullcontext():
            if lacks:
                with pytest.raises(NotSupportedError, match="numpy has no elements of type"):
                    run_graph(case.model, feeds)
                continue
            found = run_graph(case.model, feeds)
            assert len(found) == len(outputs)
            for expected, f in zip(outputs, found.values()):
                check(host(expected), f, case)
    return "lacking" if lacks else "passed"


def outcomes(cases: list[Any], tiles: int | None, teams: Sequence[dx.Team] = ()) -> Counter[str]:
    """Run cases, and count what became of them; all that fail are named at once."""
    counts: Counter[str] = Counter()
    failed = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers that overflow in casts, as the cases want it
        for i, case in enumerate(cases):
            try:
                counts[run(case, tiles, teams[i % len(teams)] if teams else None)] += 1
            except Exception as error:
                failed[case.name] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    assert not failed, "\n".join(f"{name}: {said}" for name, said in failed.items())
    return counts


def test_every_eighth_case_on_one_tile(cases):
    counts = outcomes(cases[::8], None)
    assert counts["passed"] > 200


def test_some_cases_on_three_tiles(cases):
    counts = outcomes(cases[1::24], 3)
    assert counts["passed"] > 60


#: Of 2, 3 and 4 members; of the last each axis of an array may be cut by either axis of the mesh, or by both.
TEAMS = [dx.Team((2,), ("a",)), dx.Team((3,), ("a",)), dx.Team((2, 2), ("a", "b"))]


def test_some_cases_with_inputs_that_are_cut(cases):
    counts = outcomes(cases[2::24], None, TEAMS)
    assert counts["passed"] > 60


@pytest.mark.slow
@pytest.mark.parametrize("shift", range(3))
def test_all_cases_with_inputs_that_are_cut(cases, shift):
    """onnx:A-8: random legal cuts of all inputs, on teams of 2 to 4 members."""
    counts = outcomes(cases, None, TEAMS[shift:] + TEAMS[:shift])
    assert counts["passed"] >= 1657


def test_some_cases_with_random_legal_specs(cases):
    """onnx:A-4."""
    counts = outcomes(cases[::256], CUT)
    assert counts["cut"] > 3


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(8))
def test_all_cases_with_random_legal_specs(cases, part):
    """onnx:A-4."""
    counts = outcomes(cases[part::8], CUT)
    assert counts["cut"] > 120


@pytest.mark.slow
@pytest.mark.parametrize("tiles", [None, 3])
def test_all_cases(cases, tiles):
    counts = outcomes(cases, tiles)
    assert counts["drawn"] == 10
    assert counts["passed"] >= 1657  # of onnx 1.23.2; later versions have more
