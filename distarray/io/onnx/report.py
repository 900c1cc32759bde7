"""What the command line says of a model: its violations, forms, plan or outputs, or what planned annotations cost, as a
table or as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from distarray.errors import OnnxShardingError
from distarray.io.onnx.annotation import annotate
from distarray.io.onnx.drawing import draw, shown_form
from distarray.io.onnx.inference import check_num_devices
from distarray.io.onnx.model import load, process_team
from distarray.io.onnx.violations import Violation, has_errors
from distarray.sharding.team import Team
from distarray.tables import format_table


def reported(
    action: str,
    path: str,
    configuration: str | None,
    *,
    team_size: int | None,
    files: Mapping[str, str],
    as_json: bool,
) -> str:
    """Return the report of ``check``, ``infer``, ``draw``, ``plan`` or ``run``.

    Parameters
    ----------
    team_size
        Threads of this process that are the devices; None: as many as the model says.
    files
        By name of the input the ``.npy`` file with its elements.

    Raises
    ------
    ValueError
        If the file is no model, the team has another size than the configuration, or an input cannot be fed.
    OnnxShardingError
        If the model has an error; the text is the table of all violations.
    """
    model = load(path, configuration, None if team_size is None else process_team(team_size))
    found = model.check()
    if has_errors(found):
        raise OnnxShardingError(_violations(found, as_json), tuple(found))
    if action == "check":
        is_told = as_json or found
        return _violations(found, as_json) if is_told else f"{len(model.graph.nodes)} nodes, nothing wrong"
    if action == "draw":
        if as_json:
            raise ValueError("a drawing is text; infer --json has the forms of all tensors")
        return str(draw(model))
    if action == "plan":
        plan = _fed(model.plan, files)
        return json.dumps(plan.to_json(), indent=1) if as_json else str(plan) if plan.edges else "nothing moves"
    if action == "run":
        return _outputs(_fed(model.run, files), as_json)
    inferred = model.infer()
    if as_json:
        answer = {"forms": inferred.forms, "reshards": inferred.reshards, "stages": inferred.stages}
        return json.dumps(answer, indent=1)
    rows = [(name, *shown_form(form, model.num_devices)) for name, form in inferred.tensor_forms.items()]
    forms = format_table(["tensor", "shape/shards", "devices"], rows)
    return "\n\n".join([forms, *([_reshards(inferred.reshards)] if inferred.reshards else [])])


def _fed(function: Callable[[dict[str, Any]], Any], files: Mapping[str, str]) -> Any:
    """Return what a method of a model gives for the arrays in files; ValueError if it does not take them."""
    arrays = {name: np.load(file, mmap_mode="r") for name, file in files.items()}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise ValueError(f"--input {name}={files[name]}: this is an archive; write the array to a .npy file")
    try:
        return function(arrays)
    except TypeError as error:  # elements of another type
        raise ValueError(str(error)) from error


def annotated(
    path: str,
    n_devices: int | None,
    output: str | None = None,
    memory: int | None = None,
    sizes: Sequence[str] | None = None,
    *,
    files: Mapping[str, str] = MappingProxyType({}),
    as_json: bool = False,
) -> str:
    """Return the report of ``annotate``; the annotated model is written if there is an `output`, and run, by the other
    annotations too, if there are inputs: `files` as of `reported`.

    Raises
    ------
    ValueError
        If the file is no model, the devices are not said, or a size is not of the form ``SYMBOL=N``.
    """
    if n_devices is None:
        raise ValueError("annotate: say for how many devices, as in --team 4")
    check_num_devices(n_devices)
    known = {}
    for text in sizes or ():
        symbol, _, number = text.partition("=")
        if not symbol or not number.isdecimal():
            raise ValueError(f"--size {text}: write SYMBOL=N, as in --size batch=32")
        known[symbol] = int(number)
    found = annotate(path, Team((n_devices,), ("device",)), memory, sizes=known)
    if output is not None:
        Path(output).write_bytes(found.model.SerializeToString())
    measured = _fed(found.measure, files) if files else None
    if not as_json:
        return found.table(measured)
    costs = {
        name: {"moved_bytes": cost.nbytes, "seconds": cost.seconds, "held_bytes": cost.peak_bytes}
        for name, cost in found.costs.items()
    }
    told = {} if measured is None else {"measured_seconds": measured}
    return json.dumps({"costs": costs, **told, "forms": found.infer().forms}, indent=1)


def _outputs(outputs: Mapping[str, Any], as_json: bool) -> str:
    if as_json:
        return json.dumps({name: _described(x) for name, x in outputs.items()}, indent=1)
    return "\n\n".join(f"{name}: {x!r}" for name, x in outputs.items())


def _described(x: Any) -> Any:
    """Return an output as plain data: lists for sequences, null for an optional without a value."""
    if x is None or isinstance(x, list):
        return x if x is None else [_described(v) for v in x]
    return {"dtype": str(x.dtype), "shape": list(x.shape), "values": x.tolist()}


def _violations(found: list[Violation], as_json: bool) -> str:
    if as_json:
        return json.dumps([violation.to_json() for violation in found], indent=1)
    rows = [(v.node or "model", v.op_type, v.severity, v.rule, v.code, v.message) for v in found]
    return format_table(["node", "operator", "severity", "rule", "code", "what is wrong"], rows)


def _reshards(reshards: list[dict[str, str | None]]) -> str:
    rows = [(str(r["tensor"]), r["before"] or "after its own") for r in reshards]
    return format_table(["reshard", "before node"], rows)
