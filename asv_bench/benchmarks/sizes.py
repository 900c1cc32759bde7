"""Which of a workload's sizes is run: ``DISTARRAY_BENCH_SIZE``, ``S`` if unset.

XS runs in about 0.2 s and shows that a benchmark works; S is what the goals are stated for; G fits one GPU, M needs a
cluster.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TypeVar

__all__ = ["SIZE", "few", "of_size"]

SIZE = os.environ.get("DISTARRAY_BENCH_SIZE", "S")

Rows = TypeVar("Rows")
Variant = TypeVar("Variant")


def of_size(rows: Mapping[str, Rows], size: str = SIZE) -> Rows:
    """The row of `rows` for `size`; a workload without that size gives its largest (they are listed upwards)."""
    return rows[size] if size in rows else list(rows.values())[-1]


def few(variants: Iterable[Variant], every: int | None = None) -> list[Variant]:
    """All variants of a benchmark; at XS, which shows that it works, one in so many, or the first alone."""
    found = list(variants)
    return found[:: every or len(found)] if SIZE == "XS" else found
