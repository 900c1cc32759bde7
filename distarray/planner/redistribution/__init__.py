"""The synthesizer of collectives: plans that turn one distributed type into another within a memory bound."""

from distarray.planner.redistribution.redistributions import PIECE_LIMIT, Mode, Redistribution, cache_info, named, plan

__all__ = ["PIECE_LIMIT", "Mode", "Redistribution", "cache_info", "named", "plan"]
