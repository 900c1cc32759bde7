"""Options: their defaults, their allowed values, and the one place where they are read.

The values live in ``dask.config`` under ``distarray``, so YAML files, ``DASK_DISTARRAY__MEMORY_LIMIT=2GiB`` in the
environment and ``dask.config.set`` work as for every Dask library. `get` returns them checked and parsed ("2 GiB" is
2147483648); as every operation asks for some of them, a repeated `get` costs two dictionary look-ups. ``-`` and ``_``
mean the same in every name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from operator import itemgetter
from sys import float_info
from typing import Any, NamedTuple

import dask.config
import yaml

from distarray.arguments import shown

__all__ = ["get", "names", "parse_option", "set"]


class _Option(NamedTuple):
    """An _Option is what an option accepts: in words, for the error; and as a parser that raises ValueError or
    TypeError.
    """

    allowed: str
    parse: Callable[[Any], Any]


def _choice(*values: str | bool | None) -> _Option:
    by_text = {value if isinstance(value, str) else _YAML[value]: value for value in values}

    def parse(value: object) -> str | bool | None:
        if value is None:
            # The environment's "none" arrives as None, whether it meant null or the choice of that name.
            return by_text["null"] if "null" in by_text else by_text["none"]
        if isinstance(value, bool):
            return by_text[_YAML[value]]
        return by_text[value]  # type: ignore[index]  # of another type, hence no key: KeyError or TypeError

    return _Option(" | ".join(by_text), parse)


_YAML = {None: "null", True: "true", False: "false"}


def _check_number(value: object) -> None:
    """Check that a value may be a number with a unit: dask takes a text of nothing for 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError
    if isinstance(value, str) and not value.strip():
        raise ValueError


def _nbytes(*, optional: bool = False) -> _Option:
    def parse(value: object) -> int | None:
        if value is None and optional:
            return None
        _check_number(value)
        from dask.utils import parse_bytes

        n = int(parse_bytes(value))
        if n < 0:
            raise ValueError
        return n

    return _Option("a number of bytes such as 1048576 or '1 MiB'" + (", or null" if optional else ""), parse)


def _count(minimum: int) -> _Option:
    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError
        if value < minimum:
            raise ValueError
        return value

    return _Option(f"an integer >= {minimum}", parse)


def _seconds() -> _Option:
    def parse(value: object) -> float | None:
        if value is None:
            return None
        _check_number(value)
        from dask.utils import parse_timedelta

        seconds = float(parse_timedelta(value))
        if not 0 <= seconds < float("inf"):
            raise ValueError
        return seconds

    return _Option("a number of seconds such as 30 or '2 minutes', or null", parse)


def _device() -> _Option:
    pattern = re.compile(r"cpu|cuda(:[0-9]+)?|strict(:[12])?")

    def parse(value: object) -> str:
        if isinstance(value, str) and pattern.fullmatch(value):
            return value
        raise ValueError

    return _Option("cpu | cuda | cuda:<j> | strict | strict:1 | strict:2", parse)


#: The rates of the planner's model by name (`distarray.planner.rates.Rates`), and the largest value of each.
_RATES: Mapping[str, float] = {
    **dict.fromkeys(("latency", "task", "exchange", "step", "bandwidth", "node_bandwidth"), float_info.max),
    **dict.fromkeys(("compute", "gemm", "generic"), float_info.max),
    **dict.fromkeys(("bandwidth_own", "compute_own", "gemm_own", "generic_own"), 1.0),
}


class _PartError(ValueError):
    """Says which part of a value is wrong; the errors of other parsers speak of themselves."""


def _rates() -> _Option:
    def parse(value: object) -> dict[str, float] | None:
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise TypeError
        rates = {}
        for key, rate in value.items():
            name = str(key).replace("-", "_")
            if name not in _RATES:
                raise _PartError(f"there is no rate {key!r}; known are {', '.join(sorted(_RATES))}")
            if isinstance(rate, bool) or not 0 <= float(rate) <= _RATES[name]:
                raise _PartError(f"the rate {key!r} is {rate!r}; one is from 0 to {_RATES[name]:.2g}")
            rates[name] = float(rate)
        return rates

    return _Option("a mapping from the name of a rate to a number >= 0, or null", parse)


#: One row per key of distarray.yaml; distarray-schema.yaml documents them.
_OPTIONS: dict[str, _Option] = {
    "memory-limit": _nbytes(optional=True),
    "device-memory-limit": _nbytes(optional=True),
    "block-bytes": _nbytes(optional=True),
    "team": _choice("current", None),
    "device": _device(),
    "planner": _choice("auto", "eindecomp", "propagation"),
    "objective": _choice("time", "paper"),
    "calibration": _rates(),
    "plan-cache-size": _count(0),
    "eager-bytes": _nbytes(),
    "window": _count(0),
    "retain": _choice("live", "none"),
    "overlap": _choice(True, False, "always"),
    "compiled": _choice(True, False),
    "data-dependent": _choice("counts", "raise"),
    "errors": _choice("call", "deferred"),
    "lineage-interval": _count(1),
    "worker-timeout": _seconds(),
    "fallback": _choice("error", "gather"),
    "fallback-max-bytes": _nbytes(),
    "gather-warn-bytes": _nbytes(optional=True),
    "gather-max-bytes": _nbytes(optional=True),
    "literal-max-bytes": _nbytes(),
}

# Spelling asked for -> (spelling found in dask's dictionary, value found there, parsed value). An entry is used only
# while dask's dictionary holds that very object, so dask.config.set, refresh and update need not tell us. Holding the
# object keeps its id from being used again. Mutable values (calibration) never enter: they may change in place.
_parsed: dict[str, tuple[str, Any, Any]] = {}


def get(key: str) -> Any:
    """Return the value of the option `key`, checked and parsed.

    Parameters
    ----------
    key
        Name below ``distarray``, such as ``"memory-limit"``.

    Returns
    -------
    Any
        Sizes are ints (bytes), choices are strings, bools or None.

    Raises
    ------
    ValueError
        If there is no such option, or a file, the environment or ``dask.config.set`` gave it a value that is not
        allowed.

    Examples
    --------
    >>> from distarray import config
    >>> config.get("literal-max-bytes")
    67108864
    """
    try:
        spelling, raw, value = _parsed[key]
        if dask.config.global_config["distarray"][spelling] is raw:
            return value
    except (KeyError, TypeError):
        pass
    return _read(key)


class Derived:
    """A Derived keeps what was found from the values of some options, until one of them changes.

    Parameters
    ----------
    keys
        Names of the options.
    """

    __slots__ = ("_keys", "_state")

    def __init__(self, *keys: str) -> None:
        self._keys = keys
        self._state: tuple[Callable[[Any], Any], Any, dict[Any, Any]] | None = None

    def found(self) -> dict[Any, Any]:
        """Return what was found and is still true, to be added to: empty after a change."""
        try:
            values, seen, found = self._state  # type: ignore[misc]  # None: TypeError
            if values(dask.config.global_config["distarray"]) == seen:
                return found
        except (KeyError, TypeError):
            pass
        for key in self._keys:
            get(key)
        spellings, seen = zip(*[_parsed[key][:2] for key in self._keys], strict=True)
        # What others add meanwhile, from values that are no longer true, they add to a dictionary of before.
        self._state = itemgetter(*spellings), seen, {}
        return self._state[2]


def _read(key: str) -> Any:
    name = _name(key)
    section = dask.config.global_config.get("distarray")
    if not isinstance(section, Mapping):
        # A file said "distarray:" and nothing below, and dask.config.refresh took it at its word.
        section = _DEFAULTS
    spelling = dask.config.canonical_name(name, section)
    raw = section[spelling] if spelling in section else _DEFAULTS[name]
    value = parse_option(name, raw)
    if not isinstance(raw, Mapping):
        _parsed[key] = spelling, raw, value
    return value


def set(options: Mapping[str, object] | None = None, /, **kwargs: object) -> dask.config.set:
    """Set options, for a ``with`` block or for good.

    Parameters
    ----------
    options
        Names (``"memory-limit"`` or ``"memory_limit"``) and values.
    **kwargs
        The same, as keywords.

    Returns
    -------
    dask.config.set
        As a context manager it puts the former values back at the end. As in Dask, the values are those of the
        process, not of the thread.

    Raises
    ------
    ValueError
        If there is no such option or the value is not allowed; nothing is changed then.

    Examples
    --------
    >>> from distarray import config
    >>> with config.set(memory_limit="2 GiB"):
    ...     config.get("memory-limit")
    2147483648
    >>> config.set(objective="speed")
    Traceback (most recent call last):
    ValueError: distarray option 'objective' is 'speed'; allowed: time | paper
    """
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"options={shown(options)} must be a mapping from names to values")
    given = {_name(key): value for key, value in {**(options or {}), **kwargs}.items()}
    for name, value in given.items():
        parse_option(name, value)
    return dask.config.set({f"distarray.{name}": value for name, value in given.items()})


def parse_option(key: str, value: object) -> Any:
    """Return the parsed form of `value` for the option `key`: the door for calls that override an option by keyword.

    Raises
    ------
    ValueError
        If there is no such option or `value` is not allowed.

    Examples
    --------
    >>> parse_option("memory_limit", "2 GiB")
    2147483648
    """
    name = _name(key)
    allowed, parse = _OPTIONS[name]
    try:
        return parse(value)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        part = f" ({error})" if isinstance(error, _PartError) else ""
        raise ValueError(f"distarray option {name!r} is {shown(value)}; allowed: {allowed}{part}") from None


def names() -> tuple[str, ...]:
    """Return the names of all options, as they stand in ``distarray.yaml``."""
    return tuple(_OPTIONS)


def _name(key: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"distarray has no option {shown(key)}: the name of an option is a string")
    name = key.replace("_", "-")
    if name not in _OPTIONS:
        raise ValueError(f"distarray has no option {key!r}; the options are {', '.join(sorted(_OPTIONS))}")
    return name


def _load_defaults() -> dict[str, Any]:
    """Register distarray.yaml with dask and return its section.

    A commented copy goes to the user's configuration folder, where one looks for what can be set; ``ensure_file``
    passes over a folder that cannot be written.
    """
    path = os.path.join(os.path.dirname(__file__), "distarray.yaml")
    with open(path, encoding="ascii") as file:
        defaults = yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    dask.config.ensure_file(source=path)
    dask.config.update_defaults(defaults)
    section: dict[str, Any] = defaults["distarray"]
    return section


_DEFAULTS = _load_defaults()
