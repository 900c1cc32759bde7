"""Parameters: what varies from run to run of a template, and how it is filled into the arguments of its tasks.

They are small: scalars, what only kernels see (`expr.late_params`), the state of what is made on the spot. Blocks go
beside them, by the number of the node and of the tile (`recipes.Leaf`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from distarray.expr.expr import Expr, late_params
from distarray.kernels.reporting import Source
from distarray.kernels.specs import Folding, StageSpec, TileSpec
from distarray.planner.plan import Stage

#: The operations of a stage, where the user called them, and numpy's floating-point states there: those of the
#: instructions of its program in their order, then those of its reductions, then the others.
Origins: TypeAlias = tuple[Source, ...]


class Parameters(NamedTuple):
    """A Parameters is what varies from run to run of a template, beside blocks and the name of the run.

    Parameters
    ----------
    scalars
        By record of a stage, in the order of its slots.
    where
        By record of a stage; None where the user called its operations where the template says.
    late
        By number of the node what its kernel gets behind its static parameters.
    states
        By number of a node that is made on the spot what it is made from.
    """

    scalars: tuple[tuple[Any, ...], ...]
    where: tuple[Origins | None, ...]
    late: Mapping[int, tuple[Any, ...]]
    states: Mapping[int, Any]


def origins(stage: Stage, nodes: Sequence[Expr]) -> Origins:
    """Return the operations of a stage, where the user called them, and numpy's floating-point states there."""
    numbered = [*stage.sources, *[c.node for c in stage.combines]]
    known = set(numbered)
    others = [i for i in (*stage.inlined, *stage.nodes) if i not in known]
    return tuple([(nodes[i].op.name, nodes[i].origin, nodes[i].errstate) for i in (*numbered, *others)])


def parameters_of(
    specs: Sequence[tuple[StageSpec, Stage]],
    nodes: Sequence[Expr],
    ship: Callable[[tuple[Any, ...]], tuple[Any, ...]],
) -> Parameters:
    """Return what a run of a template is to be filled with.

    Parameters
    ----------
    specs
        The records that are filled in, and their stages.
    nodes
        Of the graph that runs.
    ship
        Returns late parameters as they travel.
    """
    late: dict[int, tuple[Any, ...]] = {}
    for spec, _ in specs:
        for i in (spec.node, *[f.node for f in spec.finishes if type(f) is Folding]):
            if i not in late:
                found = late_params(nodes[i])
                late[i] = ship(found) if found else found
    said = [origins(stage, nodes) for _, stage in specs]
    return Parameters(
        tuple([tuple([nodes[i].operands[p] for i, p in stage.scalars]) for _, stage in specs]),
        tuple([None if said == spec.where else said for said, (spec, _) in zip(said, specs, strict=True)]),
        late,
        {i: node.runtime for i, node in enumerate(nodes) if node.memo is None and node.op.family.is_created},
    )


def varies(argument: Any) -> bool:
    """Return whether an argument of a task is filled in for every run."""
    kind = type(argument)
    return (kind is StageSpec and argument.number >= 0) or (kind is TileSpec and bool(argument.generated))


class Filler:
    """A Filler fills the parameters of a run into the arguments of tasks; records that tasks share stay shared."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._specs: dict[int, StageSpec] = {}

    def __call__(self, argument: Any) -> Any:
        if not varies(argument):
            return argument
        if type(argument) is StageSpec:
            found = self._specs.get(argument.number)
            if found is None:
                found = self._specs[argument.number] = self._filled(argument)
            return found
        states = self._parameters.states
        return replace(argument, generated=tuple([g._replace(runtime=states[g.node]) for g in argument.generated]))

    def _late_of(self, i: int) -> tuple[Any, ...]:
        return self._parameters.late[i]

    def _filled(self, spec: StageSpec) -> StageSpec:
        number, late = spec.number, self._late_of(spec.node)
        where, scalars = self._parameters.where[number], self._parameters.scalars[number]
        if where is None and not (scalars or late or any(type(f) is Folding for f in spec.finishes)):
            return spec
        return replace(
            spec,
            scalars=scalars,
            where=spec.where if where is None else where,
            params=(*spec.params, *late) if late else spec.params,
            finishes=tuple([f.filled(self._late_of) for f in spec.finishes]),
        )
