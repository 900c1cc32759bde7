"""Inference of one node: forms of its outputs from those of its inputs, by the class of its operator.

`infer_node` is the whole of it for JSON; models go through `infer_outputs`, with forms that other nodes gave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distarray.arguments import shown
from distarray.io.onnx.forms import Owners, Size, TensorForm, everywhere
from distarray.io.onnx.loop_rules import nary
from distarray.io.onnx.node_facts import NodeFacts, OutputSpecNeeded, ReducedLoop
from distarray.io.onnx.operator_classes import OPERATORS
from distarray.io.onnx.parallel_loops import Meeting
from distarray.io.onnx.specs import JsonSpec, read_spec
from distarray.io.onnx.violations import Refusal, Violation, has_errors
from distarray.sharding.cuts import MAX_TILES

#: Devices that a configuration may have.
MAX_DEVICES = MAX_TILES


@dataclass(frozen=True, slots=True)
class GivenOutput:
    """A GivenOutput is what a node says about one of its outputs.

    Parameters
    ----------
    name
        None: that of the operator's schema.
    spec
        None: whatever follows.
    shape
        None: whatever follows.
    """

    name: str | None = None
    spec: JsonSpec | None = None
    shape: tuple[Size, ...] | None = None


@dataclass(slots=True)
class NodeInference:
    """A NodeInference is what is known of a node once its inputs are.

    Parameters
    ----------
    outputs
        Name and form of each output; none if there is an error.
    rule
        Sentence that begins with the number of the rule that decided.
    findings
        Errors and warnings.
    reshards
        Names of outputs that are given another form than the natural one.
    natural
        By output the form that follows from the inputs; none where nothing follows.
    reduced
        Loops that a product or a reduction sums over; None of other nodes, and where they are not known.
    meetings
        Of `NodeFacts`.
    """

    outputs: list[tuple[str, TensorForm]] = field(default_factory=list)
    rule: str = ""
    findings: list[Violation] = field(default_factory=list)
    reshards: list[str] = field(default_factory=list)
    natural: dict[str, TensorForm] = field(default_factory=dict)
    reduced: tuple[ReducedLoop, ...] | None = None
    meetings: list[Meeting] = field(default_factory=list)

    @property
    def error(self) -> Violation | None:
        """Return the first error."""
        return next((finding for finding in self.findings if finding.severity == "error"), None)


def check_num_devices(num_devices: int) -> None:
    """Raise a ValueError if a configuration cannot have so many devices."""
    if isinstance(num_devices, bool) or not isinstance(num_devices, int) or not 1 <= num_devices <= MAX_DEVICES:
        raise ValueError(f"num_devices={shown(num_devices)} must be an integer from 1 to {MAX_DEVICES}")


def infer_outputs(
    op_type: str,
    attrs: Mapping[str, Any],
    forms: Sequence[TensorForm | None],
    given: Sequence[GivenOutput],
    num_devices: int,
    *,
    is_annotated: bool,
    strict: bool = True,
) -> NodeInference:
    """Return the forms of a node's outputs.

    Parameters
    ----------
    op_type, attrs
        The operator, its attributes and constant inputs.
    forms
        Of the inputs in order; None for one that is left out.
    given
        What the node says about its outputs; empty: all of the operator's, nothing said.
    num_devices
        Devices of the configuration.
    is_annotated
        Whether the node has a spec. Operators that cannot be annotated run in plain form without.
    strict
        See `NodeFacts`.
    """
    row = OPERATORS.get(op_type)
    done = NodeInference()
    group = row.group if row else None
    number, sentence = (group.number, group.sentence) if group else ("F-1", "no operator that is known")
    facts = NodeFacts(op_type, attrs, list(forms), num_devices, strict, number, len(given) or None, done.findings)
    natural: list[TensorForm | None]
    try:
        natural = list(_unlisted(facts, given) if group is None else group.rule(facts))
    except Refusal as refusal:
        shapes = refusal.shapes if isinstance(refusal, OutputSpecNeeded) else [None] * max(len(given), 1)
        is_needed = isinstance(refusal, OutputSpecNeeded)
        is_open = is_needed or refusal.finding.code == "rank-unknown"
        whole = _whole_everywhere(facts) if is_open else None
        natural = [None if whole is None else TensorForm.whole(shape, whole) for shape in shapes]
        if refusal.finding.code == "unsupported-op" and not is_annotated:
            natural = list(_plain(facts, max(len(given), 1)))
        elif whole is None and not (is_needed and given and given[0].spec is not None):
            done.findings.append(refusal.finding)
            facts.number, sentence = refusal.finding.rule, refusal.finding.message
        given = [g if shape is None else GivenOutput(g.name, g.spec, shape) for g, shape in zip(given, shapes)]
    except (ArithmeticError, IndexError, TypeError, ValueError):  # ranks or attributes that its operator does not have
        natural = []
        ranks = [None if form is None or form.shape is None else len(form.shape) for form in forms]
        sentence = f"{op_type} has no form with inputs of ranks {ranks} and attributes {shown(dict(attrs))}"
        done.findings.append(Violation(facts.number, "node-malformed", sentence))
    done.rule = f"{facts.number} {op_type}: {sentence}"
    done.meetings = facts.meetings
    if group is not None and group.is_summed:
        done.reduced = facts.reduced
    if done.error is None:
        names = row.outputs if row else ()
        _give(done, natural, given, names, num_devices, strict, is_free=number == "C-1")
    return done


def _whole_everywhere(facts: NodeFacts) -> Owners | None:
    """Return the devices that have all inputs whole: what follows is whole there. None if some input is cut."""
    forms = [form for form in facts.forms if form is not None]
    if not forms or any(len(form.owners) > 1 for form in forms):
        return None
    return frozenset.intersection(*(form.owners[0] for form in forms)) or None


def _plain(facts: NodeFacts, n_outputs: int) -> list[TensorForm]:
    """Return outputs that every device has whole; inputs that are cut are gathered first."""
    devices = everywhere(facts.num_devices)
    if any(form is not None and len(form.owners) > 1 for form in facts.forms):
        text = f"{facts.op_type} has no annotation; its inputs are made whole on all devices first"
        facts.warnings.append(Violation(facts.number, "gathered", text))
    return [TensorForm.whole(None, devices)] * n_outputs


def _unlisted(facts: NodeFacts, given: Sequence[GivenOutput]) -> list[TensorForm]:
    """Return the outputs of an operator that is in no class: with complete specs, those of a parallel loop."""
    if given and facts.forms and all(g.spec is not None for g in given):
        found = nary(facts)[0]
        for g in given:
            assert g.spec is not None
            reading = read_spec(g.spec, found.shape, facts.num_devices)
            if reading.form is None or not reading.form.is_same(found):
                break
        else:
            return [found] * len(given)
    raise Refusal("F-1", "unsupported-op", f"{facts.op_type} is in no class, and its specs are no parallel loop")


def _give(
    done: NodeInference,
    natural: Sequence[TensorForm | None],
    given: Sequence[GivenOutput],
    names: Sequence[str],
    num_devices: int,
    strict: bool,
    *,
    is_free: bool,
) -> None:
    """Put the outputs into `done`: those that are given, else the natural ones."""
    for i in range(len(given) or len(natural)):
        said = given[i] if i < len(given) else GivenOutput()
        form = natural[i] if i < len(natural) else None
        if form is None and i >= len(natural) and natural:
            form = TensorForm.whole(said.shape, everywhere(num_devices))
        name = said.name if said.name is not None else names[min(i, len(names) - 1)] if names else f"output_{i}"
        if name == "":
            continue
        shape = _more_known(said.shape, form.shape if form is not None else None)
        if form is not None and shape is not None and form.shape != shape and len(form.cuts) in (0, len(shape)):
            form = TensorForm(shape, form.cuts or ((),) * len(shape), form.owners)
        if form is not None and not is_free:
            done.natural[name] = form
        if said.spec is not None:
            reading = read_spec(said.spec, shape, num_devices, strict=strict)
            done.findings += reading.findings
            if reading.form is None:
                continue
            if not is_free and (form is None or not form.is_same(reading.form)):
                done.reshards.append(name)
            form = reading.form
        if form is None:
            done.findings.append(Violation("V-1", "output-spec-needed", f"output {name!r} needs a spec"))
            continue
        done.outputs.append((name, form))


def _more_known(a: tuple[Size, ...] | None, b: tuple[Size, ...] | None) -> tuple[Size, ...] | None:
    """Return the shape of which more is known, size by size."""
    if a is None or b is None or len(a) != len(b):
        return b if b is not None else a
    return tuple([m if isinstance(m, int) or n is None else n for n, m in zip(a, b)])


def infer_node(
    op_type: str,
    attrs: Mapping[str, Any],
    input_shapes: Sequence[Sequence[int | str] | None],
    input_specs: Sequence[JsonSpec | None],
    given_output_specs: Sequence[Any] | None,
    num_devices: int,
    *,
    strict: bool = True,
) -> dict[str, Any]:
    """Return what follows for the outputs of one annotated node, as JSON; nothing is run, and `onnx` is not needed.

    Parameters
    ----------
    op_type
        Operator of ONNX.
    attrs
        Attributes under their ONNX names, and inputs that are constant (axes, shape, perm, k, ...) under theirs.
    input_shapes
        Per input its sizes, symbols as strings; None for an optional input that is left out.
    input_specs
        Per input a spec, or None: whole on every device.
    given_output_specs
        None, or per output a spec, None, or ``{"name", "spec"}``.
    num_devices
        Devices of the configuration.
    strict
        False: A-10 and S-9 are relaxed.

    Returns
    -------
    dict
        ``status`` (``"valid"``, ``"invalid"`` or ``"backend_defined"``), ``rule``, ``outputs``, and where there are
        some ``error``, ``warnings`` and ``reshards``.

    Raises
    ------
    ValueError
        If an argument is none of these: not if the specs are wrong.

    Examples
    --------
    >>> cut = {"device": [2, 0], "groups": [], "sharded": [{"axis": 0, "shards": [{"dim": 10, "num_shards": 2}]}]}
    >>> infer_node("Tanh", {}, [[10]], [cut], None, 3)["outputs"]
    [{'name': 'output', 'grid': [2], 'owners': [[2], [0]], 'shape': [10]}]
    """
    check_num_devices(num_devices)
    if len(input_specs) > len(input_shapes):
        raise ValueError(f"{len(input_specs)} input_specs are given for {len(input_shapes)} input_shapes")
    specs = [*input_specs, *[None] * (len(input_shapes) - len(input_specs))]
    findings: list[Violation] = []
    forms: list[TensorForm | None] = []
    for shape, spec in zip(input_shapes, specs, strict=True):
        forms.append(_input_form(shape, spec, num_devices, strict, findings))
    given = [_given_output(item) for item in given_output_specs or ()]
    is_annotated = any(spec is not None for spec in specs) or any(g.spec is not None for g in given)
    if has_errors(findings):
        done = NodeInference(findings=findings)
        first = done.error
        assert first is not None
        done.rule = f"{first.rule} {op_type}: {first.message}"
    else:
        done = infer_outputs(op_type, attrs, forms, given, num_devices, is_annotated=is_annotated, strict=strict)
        done.findings[:0] = findings
    return _answer(done, forms)


def _input_form(
    shape: Sequence[Size] | None, spec: JsonSpec | None, num_devices: int, strict: bool, findings: list[Violation]
) -> TensorForm | None:
    if shape is None:
        if spec is not None:
            findings.append(Violation("G-5", "unknown-tensor", "an input that is left out has a spec"))
        return None
    if spec is None:
        return TensorForm.whole(shape, everywhere(num_devices))
    reading = read_spec(spec, shape, num_devices, strict=strict)
    findings += reading.findings
    return reading.form


def _given_output(item: Any) -> GivenOutput:
    if item is None:
        return GivenOutput()
    if isinstance(item, Mapping) and "device" not in item and {"name", "spec"} & set(item):
        return GivenOutput(item.get("name"), item.get("spec"))
    return GivenOutput(None, item)


def _answer(done: NodeInference, forms: Sequence[TensorForm | None]) -> dict[str, Any]:
    """Return an inference in the form of `infer_node`."""
    error = done.error
    every = [form for form in (*forms, *(form for _, form in done.outputs)) if form is not None]
    uneven = any(form.is_uneven() for form in every)
    answer: dict[str, Any] = {
        "status": "invalid" if error else "backend_defined" if uneven else "valid",
        "rule": done.rule,
        "outputs": [] if error else [form.to_json(name) for name, form in done.outputs],
    }
    if error:
        answer["error"] = error.code
        answer["rule"] = f"{error.rule} {error.message}"
    warnings = list(dict.fromkeys(finding.code for finding in done.findings if finding.severity == "warning"))
    if warnings:
        answer["warnings"] = warnings
    if done.reshards and not error:
        answer["reshards"] = done.reshards
    return answer
