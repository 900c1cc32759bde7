"""The table of functions in the reference: whose name it is, how the function is cut, and when it computes.

``python docs/api_table.py`` writes it into ``reference/api.md``; a test asks whether it is up to date. Nothing in it is
written by hand: every function that the coverage test has a call for is called on an array of two tiles, and the
operations that it binds say how it is cut.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import array_api_strict
import numpy as np
from made import Page

import distarray as dx
from distarray.composed import numpy_protocol
from distarray.expr.expr import Expr

HERE = Path(__file__).parent
CALLS = HERE.parent / "tests" / "composed" / "test_numpy_coverage.py"

NAMESPACES: dict[str, tuple[ModuleType, ModuleType, ModuleType]] = {
    "": (dx, np, array_api_strict),
    "linalg.": (dx.linalg, np.linalg, array_api_strict.linalg),
    "fft.": (dx.fft, np.fft, array_api_strict.fft),
}

#: What the families of operations (`distarray.expr.op`) mean for the cut, the most telling first.
WORDS = {
    "contract": "contraction",
    "fold": "fold",
    "tiles": "tiles",
    "windows": "windows",
    "take": "positions",
    "take_put": "positions",
    "reduce": "reduction",
    "map": "elementwise",
    "put": "moved",
    "reshape": "moved",
}
MADE, SEEN, ASKED = "made", "view", "shape and dtype"

#: What they do to an array depends on a file.
FILES = {"save"}

Call = Callable[[Any], Any]

#: What the newest numpy no longer has, so that the page is the same with each.
REMOVED_FROM_NUMPY = {"row_stack"}
#: Calls of functions that numpy's dispatch does not reach.
OWN: dict[str, Call] = {
    "asarray_chkfinite": dx.asarray_chkfinite,
    "bartlett": lambda x: dx.bartlett(9),
    "blackman": lambda x: dx.blackman(9),
    "coarsen": lambda x: dx.coarsen(np.sum, x, {0: 2}),
    "diag_indices": lambda x: dx.diag_indices(3),
    "fft.fftfreq": lambda x: dx.fft.fftfreq(9),
    "fft.rfftfreq": lambda x: dx.fft.rfftfreq(9),
    "hamming": lambda x: dx.hamming(9),
    "hanning": lambda x: dx.hanning(9),
    "indices": lambda x: dx.indices((3, 4)),
    "in1d": lambda x: dx.in1d(x, [1.0, 2.0]),
    "isfortran": dx.isfortran,
    "kaiser": lambda x: dx.kaiser(9, 2.0),
    "map_blocks": lambda x: dx.map_blocks(np.negative, x, dtype=x.dtype),
    "row_stack": lambda x: dx.row_stack([x[0], x[1]]),
    "segment_max": lambda x: dx.segment_max(x, np.zeros(x.shape[0], int), 1),
    "segment_mean": lambda x: dx.segment_mean(x, np.zeros(x.shape[0], int), 1),
    "segment_min": lambda x: dx.segment_min(x, np.zeros(x.shape[0], int), 1),
    "segment_prod": lambda x: dx.segment_prod(x, np.zeros(x.shape[0], int), 1),
    "segment_reduce": lambda x: dx.segment_reduce(x, np.zeros(x.shape[0], int), 1),
    "segment_sum": lambda x: dx.segment_sum(x, np.zeros(x.shape[0], int), 1),
    "sliding_window_view": lambda x: dx.sliding_window_view(x, 3, axis=0),
    "topk": lambda x: dx.topk(x, 3, axis=0),
    "tril_indices": lambda x: dx.tril_indices(3),
    "triu_indices": lambda x: dx.triu_indices(3),
}


def call_it(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


class Spy:
    """What a call of one function does: the nodes that it makes, whether it evaluates, and its result.

    Parameters
    ----------
    function
        numpy's: what is done for its arguments is not looked at. None: everything counts.
    """

    def __init__(self, function: Any) -> None:
        self.function = function
        self.nodes: list[Expr] = []
        self.computes = False
        self.is_view = False
        self.is_called = False

    def run(self, call: Call, x: Any) -> None:
        if self.function is None:
            self.watch(call, x)
            return
        function, ufunc = numpy_protocol.array_function, numpy_protocol.array_ufunc

        def functions(array: Any, func: Any, *rest: Any) -> Any:
            run = self.watch if func is self.function else call_it
            return run(function, array, func, *rest)

        def ufuncs(func: Any, *rest: Any) -> Any:
            run = self.watch if func is self.function else call_it
            return run(ufunc, func, *rest)

        with (
            mock.patch.object(numpy_protocol, "array_function", functions),
            mock.patch.object(numpy_protocol, "array_ufunc", ufuncs),
        ):
            call(x)

    def watch(self, run: Callable[..., Any], *args: Any) -> Any:
        """Run it and look at it; a call inside of it belongs to it."""
        if self.is_called:
            return run(*args)
        self.is_called = True
        init = Expr.__init__

        def made(node: Expr, *given: Any, **options: Any) -> None:
            init(node, *given, **options)
            self.nodes.append(node)

        with mock.patch.object(Expr, "__init__", made), dx.config.set(eager_bytes=0), dx.testing.counting() as c:
            result = run(*args)
        self.computes = bool(c.evaluations or c.fetched_bytes)
        parts = result if isinstance(result, tuple | list) else (result,)
        self.is_view = any(isinstance(part, dx.DistArray) for part in parts)  # if no node was made for it
        return result

    def cut(self) -> str:
        """The families of the operations that it binds."""
        kinds = {node.op.kind for node in self.nodes}
        words = [whole(node) for node in self.nodes if node.op.kind == "block"]
        words += [word for kind, word in WORDS.items() if kind in kinds]
        if not words:
            words = [MADE if "create" in kinds else SEEN if self.is_view or kinds else ASKED]
        return ", ".join(dict.fromkeys(words))


def whole(node: Expr) -> str:
    """How a kernel on whole blocks is cut: by the rule of its operation."""
    rule = node.op.rule or str(node.params[0])
    n = rule.partition("|")[2].count("whole")
    return "blocks" if not n else "whole axis" if n == 1 else "whole axes"


def rows() -> tuple[Any, dict[str, Call]]:
    """The array of the coverage test and its first call of each function, which has the fewest options."""
    spec = importlib.util.spec_from_file_location("numpy_coverage", CALLS)
    assert spec is not None
    assert spec.loader is not None
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    found: dict[str, Call] = {}
    for row, call in table.ROWS.items():
        found.setdefault(row.split(",")[0], call)
    return table.X, found


def described(function: Any, call: Call, host: Any) -> tuple[str, str]:
    """How a call is cut, and whether it computes."""
    team = dx.Team((2,), ("R",), members=(0, 1))
    x = dx.asarray(host, team=team, sharding=("R", *[None] * (host.ndim - 1)))
    spy = Spy(function)
    # No window is full in the middle of it: what is pending from other calls is left alone.
    with dx.use(team=team), dx.config.set(window=10**9), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        spy.run(call, x)
    assert spy.is_called, function
    return spy.cut(), "computes" if spy.computes else "deferred"


def whose(name: str, numpys: ModuleType, standards: ModuleType) -> str:
    found = [text for text, module in (("standard", standards), ("numpy", numpys)) if hasattr(module, name)]
    if name in REMOVED_FROM_NUMPY and not found:
        found = ["numpy"]
    return ", ".join(found) or "distarray"


def table() -> str:
    """The table, in Markdown."""
    host, calls = rows()
    lines = ["| function | name | cut | when |", "|---|---|---|---|"]
    for prefix, (ours, numpys, standards) in NAMESPACES.items():
        for name in sorted(ours.__all__, key=str.casefold):
            function = getattr(ours, name)
            if not callable(function) or isinstance(function, type) or name.startswith("_"):
                continue
            row = f"{prefix}{name}"
            cut, when = "", ""
            if row in calls and row not in FILES:
                cut, when = described(getattr(numpys, name), calls[row], host)
            elif row in OWN:
                cut, when = described(None, OWN[row], host)
            lines.append(f"| `{row}` | {whose(name, numpys, standards)} | {cut} | {when} |")
    return "\n".join(lines)


PAGE = Page("reference/api.md", __file__, table)

if __name__ == "__main__":
    PAGE.write()
