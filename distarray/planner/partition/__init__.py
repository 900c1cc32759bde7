"""Cuts of whole expressions: the planner of the engine (EinDecomp on stages)."""

from distarray.planner.partition.tiers import partition, partition_with_inputs

__all__ = ["partition", "partition_with_inputs"]
