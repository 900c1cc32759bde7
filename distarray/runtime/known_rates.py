"""The rates that hold for an environment: measured ones where there are any, under what ``calibration`` says.

`calibrate` measures; here is what becomes of it. Measured rates are kept by the *signature* of the environment: how
many workers of which kind on how many hosts, with which versions. They lie in one small file of the user's, where later
processes on such a cluster find them. Of a cluster that nobody calibrated a first look gives some of them
(`first_look`), which this process keeps.
"""

from __future__ import annotations

import json
import logging
import math
import os
import platform
import socket
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import dask.config
import numpy as np

from distarray import config
from distarray.errors import warn_user
from distarray.expr.expr import Environment
from distarray.kernels.inside import is_inside_task
from distarray.planner.rates import MEASURED, Rates, RateTable, current_rates
from distarray.runtime.arrivals import in_event_loop
from distarray.runtime.clients import n_threads, placement_of, process_threads
from distarray.scoped import Scoped
from distarray.sharding.team import Team
from distarray.version import __version__

logger = logging.getLogger(__name__)

#: Of the file: another layout is not read.
FORMAT = 1


@dataclass(frozen=True)
class Calibration:
    """A Calibration is the rates that were measured in one environment, and when.

    Parameters
    ----------
    signature
        Of the environment: what the rates hold for.
    rates
        By the names of `Rates`, in seconds and per second, and ``elementwise`` for different sizes; what could not be
        measured is not there.
    date
        When it was measured.
    seconds
        That this took.
    """

    signature: str
    rates: Mapping[str, float | RateTable]
    date: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        lines = [self.signature]
        for name, rate in self.rates.items():
            table = rate if isinstance(rate, tuple) else ()
            text = ", ".join(f"{r:.3g} at {n:.0e}" for n, r in table) if table else f"{rate:.3g}"
            lines.append(f"  {name:14}  {text}")
        return "\n".join([*lines, f"  measured in {self.seconds:.1f} s"])


# -------------------------------------------------------------------------------------------------------- lookup

#: All that is stored, by signature; None before it is read.
_known: dict[str, Calibration] | None = None
#: What was found, so that a signature is made once: by device, and for this process the number of threads, for a team
#: whether it is looked at.
_Found: TypeAlias = dict[tuple[str, int], Calibration | None]
_by_team: weakref.WeakKeyDictionary[Any, _Found] = weakref.WeakKeyDictionary()
_in_process: _Found = {}
#: What was measured at first use, by signature.
_looks: dict[str, Calibration] = {}
_places: weakref.WeakKeyDictionary[Any, tuple[tuple[str, str], ...]] = weakref.WeakKeyDictionary()


def rates_of(env: Environment) -> Scoped[Mapping[str, Any]]:
    """Let what was measured in an environment hold, inside a block, while something is planned for it."""
    found = _calibration(env)
    return Scoped(MEASURED, {} if found is None else found.rates)


def rates_for(env: Environment) -> Rates:
    """Return the rates of an environment: the defaults, what was measured there, what ``calibration`` says, in this
    order.
    """
    with rates_of(env):
        return current_rates()


def origin(env: Environment) -> str:
    """Return where the rates of an environment come from, in words; what ``calibration`` overrides is not looked at."""
    found = _calibration(env)
    if found is None:
        return "not calibrated"
    return f"calibrated {found.date}" if found.date else "measured at first use"


def _calibration(env: Environment) -> Calibration | None:
    known = _load()
    is_looked_at = _is_looked_at(env)
    if not (known or is_looked_at):
        return None
    if env.team is not None and env.team.client is not None:
        found, key = _by_team.setdefault(env.team, {}), (env.device, int(is_looked_at))
    else:
        found, key = _in_process, (env.device, process_threads(env))
    if key not in found:
        name = signature(env) if known else ""
        if name is None:
            return None  # for now: a worker did not answer
        calibration = known.get(name)
        found[key] = _looked_at(env) if calibration is None and is_looked_at else calibration
    return found[key]


def _is_looked_at(env: Environment) -> bool:
    """Return whether the rates of an environment are measured where they are not known (`first_look`): members are
    several workers, whose rates nobody has said, and this thread can wait for them.
    """
    if not env.is_cluster or env.size == 1 or env.device != "cpu" or config.get("calibration") is not None:
        return False
    return not is_inside_task() and not in_event_loop()  # to wait for an answer


def _looked_at(env: Environment) -> Calibration | None:
    """Return what a look at a cluster gives, once for all that are alike; None where a worker does not answer."""
    from distarray.runtime.first_look import MOST_ASKED, PATIENCE, look

    assert env.team is not None
    started = time.perf_counter()
    place, members = placement_of(env.team.client), env.team.members
    if len(members) > MOST_ASKED:
        members = (*members[: MOST_ASKED - 1], members[-1])  # which is on another host, if there is one
    addresses = sorted({place.address(str(home)) for home in members})
    facts = place.ask(_facts, of=addresses, seconds=PATIENCE)
    if facts.keys() < {*addresses}:
        return None
    name = f"{env.size} members like {_words([*facts.values()], env.device)}"
    if name not in _looks:
        hosts = {address: fact.host for address, fact in facts.items()}
        try:
            rates = look(place.ask, hosts) if len(hosts) > 1 else {}
        except Exception:  # a worker that joins or leaves meanwhile: the default rates will do
            logger.info("a look at %s failed", name, exc_info=True)
            return None
        if rates is None:
            return None
        _looks[name] = Calibration(name, rates, seconds=time.perf_counter() - started)
    return _looks[name]


def forget() -> None:
    """Read the file again when rates are next asked for."""
    global _known
    _known = None
    _by_team.clear()
    _in_process.clear()
    _looks.clear()


# ----------------------------------------------------------------------------------------------------- signature


def signature(env: Environment) -> str | None:
    """Return what the rates of an environment depend on, in words; None if its workers do not answer."""
    team = env.team
    if team is None or team.client is None:
        n = process_threads(env)
        return f"{n} thread{'s' * (n > 1)} in one process; {_machine()}; {_versions()}; {env.device}"
    facts = worker_facts(team)
    return None if facts is None else _words(facts, env.device)


def _words(facts: Sequence[WorkerFacts], device: str) -> str:
    threads = sorted({fact.threads for fact in facts})
    machines = sorted({fact.machine for fact in facts})
    hosts = len({fact.host for fact in facts})
    processes = len({(fact.host, fact.process) for fact in facts})
    size = f"{len(facts)} workers of {'/'.join(map(str, threads))} threads, {processes} processes, {hosts} hosts"
    return f"{size}, {facts[0].protocol}; {' and '.join(machines)}; {_versions()}; {device}"


class WorkerFacts(NamedTuple):
    """The WorkerFacts of a worker are what it runs on, as far as rates depend on it."""

    threads: int
    machine: str
    host: str
    process: int
    protocol: str


def worker_facts(team: Team) -> list[WorkerFacts] | None:
    """Return what the member of each rank runs on; None if one does not answer."""
    place = placement_of(team.client)
    addresses = [place.address(str(home)) for home in team.members]
    found = place.ask(_facts, of=sorted(set(addresses)))
    # A worker that is being lost gives none: rates are not worth an error.
    return [found[address] for address in addresses] if found.keys() >= {*addresses} else None


def places_of(env: Environment) -> tuple[tuple[str, str], ...] | None:
    """Return the node and process of each worker, by which the planner tells links apart; None if a worker does not
    answer.
    """
    team = env.team
    assert team is not None
    found = _places.get(team)
    if found is None:
        facts = worker_facts(team)
        if facts is None:
            return None
        found = _places[team] = tuple([(fact.host, f"{fact.host}:{fact.process}") for fact in facts])
    return found


def _facts(dask_worker: Any) -> WorkerFacts:
    protocol = dask_worker.address.partition(":")[0]
    return WorkerFacts(dask_worker.state.nthreads, _machine(), socket.gethostname(), os.getpid(), protocol)


@lru_cache(maxsize=1)
def _machine() -> str:
    """Return the kind of machine that this is: equal for machines that compute equally fast."""
    model = platform.processor()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            model = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    return f"{platform.machine()} {model}, {n_threads()} cores"


def _versions() -> str:
    try:
        distributed = metadata.version("distributed")
    except metadata.PackageNotFoundError:
        distributed = "-"
    python = ".".join(platform.python_version_tuple()[:2])
    return f"distarray {__version__}, python {python}, numpy {np.__version__}, distributed {distributed}"


# ---------------------------------------------------------------------------------------------------------- file


def store_path() -> Path:
    """Return the file, in a folder of its own: Dask takes every JSON file directly in its folder for options."""
    folder = Path(dask.config.PATH)
    if folder.is_file():  # DASK_CONFIG may name a file
        folder = folder.parent
    return folder / "distarray" / "calibration.json"


def store(found: Calibration) -> bool:
    """Use what was measured from now on, here and, if the file can be written (the answer), in later processes."""
    kept = {**_load(), found.signature: found}
    forget()
    global _known
    _known = kept
    path = store_path()
    data = {"format": FORMAT, "calibrations": [asdict(c) for c in kept.values()]}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps(data, indent=1))
        os.replace(written, path)  # at once: another process may read it
    except OSError:
        return False
    return True


def _load() -> dict[str, Calibration]:
    global _known
    if _known is None:
        try:
            _known = _read(store_path())
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            _known = {}
            warn_user(
                f"{store_path()} cannot be read ({error}), so the default rates hold; dx.calibrate() writes it anew",
                UserWarning,
            )
    return _known


def _read(path: Path) -> dict[str, Calibration]:
    try:
        data = json.loads(path.read_text())
    except OSError:
        return {}  # the usual case: nobody calibrated
    if data["format"] != FORMAT:
        return {}
    found = {}
    for row in data["calibrations"]:
        rates = {str(name): _rate(value) for name, value in row["rates"].items()}
        made = Calibration(str(row["signature"]), rates, str(row["date"]), float(row["seconds"]))
        found[made.signature] = made
    return found


def _rate(value: Any) -> float | RateTable:
    if isinstance(value, list):
        return tuple([(_number(n), _number(rate)) for n, rate in value])
    return _number(value)


def _number(value: Any) -> float:
    rate = float(value)
    if not 0 <= rate < math.inf:
        raise ValueError(f"rate {value!r}")
    return rate
