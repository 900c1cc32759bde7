"""What others do with a redistribution, as planning alone: each baseline emits collectives, priced like our plans.

The strategies are written from their descriptions (in their public documentation), over
axis-ordered types on the same mesh. A collective over several dimensions at once counts once, to their advantage.
"""

from .dtensor import greedy, min_cost
from .replicate import replicate_and_slice
from .shardy import reshard_to_collectives

__all__ = ["BASELINES", "greedy", "min_cost", "replicate_and_slice", "reshard_to_collectives"]

#: By name; each takes a problem and gives what it emits.
BASELINES = {
    "replicate and slice": replicate_and_slice,
    "DTensor greedy": greedy,
    "DTensor min-cost": min_cost,
    "Shardy": reshard_to_collectives,
}
