"""Several arrays at once: computed, kept or explained by one plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from distarray import config
from distarray.arguments import flag
from distarray.array import window
from distarray.array.array import DistArray
from distarray.lazy import loaded
from distarray.runtime import observations
from distarray.runtime.watching import draw_progress

if TYPE_CHECKING:
    from distarray.diagnostics.explanation import Explanation


def _xarrays_variables(value: Any) -> list[Any] | None:
    """Return the variables of an object of xarray, coordinates too; None if it is no such object."""
    xarray = loaded("xarray")  # by those who have such objects
    if xarray is None:
        return None
    if isinstance(value, xarray.Variable):
        return [value]
    if isinstance(value, xarray.DataArray):
        return [value.variable, *[c.variable for c in value.coords.values()]]
    if isinstance(value, xarray.Dataset):
        return list(value.variables.values())
    if isinstance(value, xarray.DataTree):
        return [v for node in value.subtree for v in node.dataset.variables.values()]
    return None


def arrays_in(value: Any) -> Iterable[DistArray]:
    """Yield the arrays in lists, tuples, sets, dicts, dataclasses and objects of xarray, nested."""
    if isinstance(value, DistArray):
        yield value
    elif (variables := _xarrays_variables(value)) is not None:
        # Not ``variable.data``, which would load what xarray has not read yet.
        yield from arrays_in([v._data for v in variables])
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from arrays_in(item)
    elif isinstance(value, dict):
        yield from arrays_in(list(value.values()))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from arrays_in([getattr(value, field.name) for field in dataclasses.fields(value)])


def _replaced(value: Any) -> Any:
    if isinstance(value, DistArray):
        return value._host()
    if _xarrays_variables(value) is not None:
        return value.compute()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_replaced, value))
    if isinstance(value, list | tuple | set):
        return type(value)(map(_replaced, value))
    if isinstance(value, dict):
        return {key: _replaced(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and any(True for _ in arrays_in(value)):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return dataclasses.replace(value, **{name: _replaced(getattr(value, name)) for name in fields})
    return value


def compute(*args: Any, **options: Any) -> tuple[Any, ...]:
    """Return the arguments with their arrays as numpy arrays, computed together.

    Parameters
    ----------
    *args
        Arrays, xarray's objects of them, and lists, tuples, sets, dicts and dataclasses of these, nested; anything
        else comes back as it is.
    **options
        Options of `distarray.config` for this evaluation.
    """
    with config.set(options):
        window.observe([x.__dx_node__() for x in arrays_in(args)])
        return _replaced(args)


def persist(*args: Any, **options: Any) -> tuple[Any, ...]:
    """Compute arrays together and keep them where they lie; returns the arguments."""
    with config.set(options):
        DistArray._compute_and_keep(arrays_in(args))
    return args


def wait(*args: Any, **options: Any) -> tuple[Any, ...]:
    """Compute arrays together, keep them where they lie, and wait until all blocks are there; returns the arguments.

    On a cluster `persist` returns while workers compute; what fails there raises here.

    Examples
    --------
    >>> import distarray as dx
    >>> x, y = dx.wait(dx.arange(3) + 1, dx.ones(2))
    """
    with config.set(options):
        observations.wait_for(DistArray._compute_and_keep(arrays_in(args)))
    return args


def progress(*args: Any, **options: Any) -> Any:
    """Show how far work is that takes long: in a block, in the whole program, or until some arrays are computed.

    ``with dx.progress():`` shows what takes more than half a second inside of the block, whichever thread it is of:
    steps done and in all, on a cluster bytes that workers sent to each other, and the time that is left if it goes on
    as it went; that a plan is being made, if that takes more than a second. ``dx.progress(True)`` shows it from now on,
    as is wanted in notebooks, ``dx.progress(False)`` no more.

    ``dx.progress(x, y)`` computes arrays together and shows Dask's bar until they are there: on a cluster that of
    ``distributed.progress`` (in a notebook a widget, which is returned and does not wait); else that of
    ``dask.diagnostics``.

    Parameters
    ----------
    *args
        Nothing; or True or False; or arrays, and lists, tuples, sets and dicts of them.
    **options
        Of a block, and of True: ``bar``, which is ``"auto"``, ``"rich"``, ``"tqdm"`` or ``"plain"``, and ``file``,
        where it is drawn (stderr). Auto is what is installed, in this order. With arrays, the options of Dask's bar.

    Examples
    --------
    >>> import distarray as dx
    >>> with dx.progress():
    ...     total = float(dx.arange(1_000_000).sum())
    """
    if not args or isinstance(args[0], bool):
        from distarray.diagnostics.progress_bars import Shown, switch

        return switch(*args, **options) if args else Shown(**options)
    nodes = [x.__dx_node__() for x in arrays_in(args)]

    def compute_nodes() -> list[Any]:
        window.observe(nodes)
        return observations.futures_of(nodes)

    return draw_progress(compute_nodes, **options)


def explain(*args: Any, analyze: bool = False) -> Explanation:
    """Return how arrays would be computed together, a table that prints; nothing runs.

    Parameters
    ----------
    *args
        Arrays, or lists, tuples, sets and dicts of them.
    analyze
        Compute them, and put what was measured beside what was predicted.

    Returns
    -------
    Explanation
        With ``stages``, ``results`` and ``to_json()``; docs/explanation/reading-explain.md goes through its columns.

    Examples
    --------
    >>> import distarray as dx
    >>> dx.explain(dx.ones((4000, 4000)).sum()).moved_bytes
    0
    """
    from distarray.diagnostics.explain import explain as explain_nodes

    nodes = [x.__dx_node__() for x in arrays_in(args)]
    if not nodes:
        raise TypeError("explain: give the arrays whose computation is to be explained")
    made = window.made_by_look(nodes)
    others, along = window.pending_beside(made), made[len(nodes) :]
    return explain_nodes(nodes, analyze=flag(analyze, "analyze"), others=others, along=along)
