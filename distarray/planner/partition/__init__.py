"""Cuts of the stages of an expression, on the places of a team: the planner of what runs (EinDecomp on stages).

Graphs of einsums that are only planned (`dx.plan`) have `distarray.planner.eindecomp`.
"""

from distarray.planner.partition.tiers import partition

__all__ = ["partition"]
