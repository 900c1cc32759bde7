"""Made-up tasks of several members, for what cuts them into member programs and runs these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st


class Ref(NamedTuple):
    """Stands for what another task makes."""

    key: Any


class Call(NamedTuple):
    func: Callable[..., Any]
    args: tuple[Any, ...]

    @property
    def dependencies(self) -> set[Any]:
        return {a.key for a in self.args if isinstance(a, Ref)}


def total(*args: int) -> int:
    return sum(args) + 1


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[Any, Call], dict[Any, int], list[Any], dict[Any, int | None]]:
    """Tasks in an order in which they can run, their members, what is kept, and who has the blocks from before."""
    n_members = draw(st.integers(1, 4))
    before = [("old", n) for n in range(draw(st.integers(0, 3)))]
    holders = {key: draw(st.none() | st.integers(0, n_members - 1)) for key in before}
    tasks: dict[Any, Call] = {}
    members: dict[Any, int] = {}
    for n in range(draw(st.integers(1, 12))):
        known = [*before, *tasks]
        read = draw(st.lists(st.sampled_from(known), max_size=3)) if known else []
        args = [Ref(k) for k in read]
        args.insert(draw(st.integers(0, len(args))), n)  # type: ignore[arg-type]  # an argument that is no reference
        tasks["dx-t", n, 0] = Call(total, tuple(args))
        members["dx-t", n, 0] = draw(st.integers(0, n_members - 1))
    keep = draw(st.lists(st.sampled_from(list(tasks)), unique=True, max_size=4))
    return tasks, members, keep, holders


def read_of(argument: Any) -> Any:
    return argument.key if isinstance(argument, Ref) else None
