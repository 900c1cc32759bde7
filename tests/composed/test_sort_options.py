"""Options of sorts that change nothing here have to make sense, as numpy's have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import distarray as dx

VALUES = np.array([[3, 1, 2], [9, 7, 8]])
SORTS: list[dict[str, Any]] = [
    {}, {"kind": "nonsense"}, {"kind": "q"}, {"kind": "stable"}, {"kind": "heapsort"}, {"kind": 1}, {"kind": ""},
    {"order": "a"}, {"order": ["a"]}, {"order": ()}, {"stable": True}, {"stable": False},
    {"stable": True, "kind": "quicksort"}, {"kind": None, "order": None, "stable": None},
]  # fmt: skip
PARTITIONS: list[dict[str, Any]] = [
    {}, {"kind": "nonsense"}, {"kind": "introselect"}, {"kind": None}, {"order": "a"}, {"order": None},
]  # fmt: skip


def _outcome(xp: Any, make: Any, name: str, args: tuple[int, ...], options: dict[str, Any], *, is_method: bool) -> Any:
    x = make(VALUES.copy())
    try:
        if is_method:
            found = getattr(x, name)(*args, **options)
            found = x if found is None else found
        else:
            found = getattr(xp, name)(x, *args, **options)
    except Exception as error:
        return type(error), str(error)
    return np.asarray(found).tolist()


@pytest.mark.parametrize("is_method", [False, True], ids=["function", "method"])
@pytest.mark.parametrize(
    ("name", "options"),
    [(n, o) for n in ("sort", "argsort") for o in SORTS]
    + [(n, o) for n in ("partition", "argpartition") for o in PARTITIONS],
    ids=str,
)
def test_options_of_sorts_are_numpys(name: str, options: dict[str, Any], is_method: bool) -> None:
    args = (1,) if "partition" in name else ()
    expected = _outcome(np, np.asarray, name, args, options, is_method=is_method)
    found = _outcome(dx, dx.asarray, name, args, options, is_method=is_method)
    if isinstance(expected, tuple):
        # ours goes on with what was given
        assert isinstance(found, tuple)
        assert found[0] is expected[0]
        assert found[1].startswith(expected[1])
    else:
        assert found == expected
