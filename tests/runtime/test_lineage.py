"""Lineage without a cluster: which blocks lie on two workers, whatever dask drops."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from distarray.runtime.lineage import BlockRecord, Lineage


class _Placement:
    """A placement of made-up workers: home "a" is served by `served`, and keys lie at `where`."""

    def __init__(self, served: str, where: dict[str, list[str]]) -> None:
        async def who_has(keys: list[str]) -> dict[str, list[str]]:
            return {key: where[key] for key in keys if where[key]}

        self.served, self.workers = served, ["a", "b", "c"]
        self.client = SimpleNamespace(scheduler=SimpleNamespace(who_has=who_has))

    def listen(self, listener: Any) -> None:
        pass

    def address(self, home: str) -> str:
        return self.served if home == "a" else home


@pytest.mark.parametrize(
    ("served", "block", "copy", "is_safe"),
    [
        ("a", "a", "b", True),
        ("a", "b", "b", False),
        ("a", "", "b", False),
        ("a", "a", "", False),
        ("a", "ab", "b", True),  # b fetched it: the one at home stays
        ("b", "bc", "b", False),  # c fetched it, and the one beside the copy stays
        ("a", "bc", "b", False),  # any of the two may stay
        ("c", "bc", "b", True),
        ("b", "b", "ac", True),
        ("c", "c", "ac", False),
    ],
)
def test_a_block_is_safe_where_it_and_its_copy_stay_on_two_workers(
    served: str, block: str, copy: str, is_safe: bool
) -> None:
    lineage = Lineage(_Placement(served, {"block": list(block), "copy": list(copy)}))  # type: ignore[arg-type]
    first, second = (SimpleNamespace(key=key, status="finished") for key in ("block", "copy"))
    record = BlockRecord("block", "a", 0, ())
    record.held, record.copied_to = (first, second), "b"
    lineage._by_key["block"] = record
    bare, is_complete = asyncio.run(lineage._without_second_place())
    assert is_complete
    assert bare == ([] if is_safe else [record])
