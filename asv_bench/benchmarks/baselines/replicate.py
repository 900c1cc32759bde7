"""Replicate and slice: what the SPMD partitioner of XLA does where none of its patterns fits."""

from __future__ import annotations

from distarray.testing.redistributions import Case

from .emitted import Emitted, parts, types_of

__all__ = ["replicate_and_slice"]


def replicate_and_slice(case: Case) -> Emitted:
    """Gather dimension by dimension until every device has all, then cut. Nothing is gathered to slice only."""
    source, target = types_of(case)
    made = Emitted(case.shape, source)
    if any(b[: len(a)] != a for a, b in zip(source, target)):
        for dim in sorted(range(len(source)), key=lambda i: parts(source[i])):
            if made.types[dim]:
                made.gather([0 if i == dim else len(axes) for i, axes in enumerate(made.types)])
    for dim, axes in enumerate(target):
        for axis in axes[len(made.types[dim]) :]:
            made.slice(dim, axis)
    return made
