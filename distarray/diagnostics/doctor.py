"""``dx.doctor``: what may be wrong with an installation or a cluster, and what to do about it.

`gathered` (`runtime.inspection`) asks; `findings` says what the answers mean, and runs nothing: a row of text for each.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, TextIO

from distarray.runtime.clients import active_client
from distarray.runtime.inspection import OPTIONAL, gathered
from distarray.tables import format_nbytes, format_seconds, format_table, html_table

Verdict = Literal["ok", "note", "warning", "error"]
Facts = Mapping[str, Any]

#: Packages of which two versions do not understand each other, and what else has to be equal.
STRICT = ("distarray", "dask", "distributed", "cloudpickle", "msgpack")
#: What a message may take, and a worker receive, on a network that is none to wait for.
SLOW_SECONDS, SLOW_BANDWIDTH = 5e-3, 100 << 20
#: Memory of a worker below which blocks become many and small.
LITTLE_MEMORY = 512 << 20
_HEADER = ("verdict", "what", "found", "what to do")
_COLOURS = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "bold red"}


class Finding(NamedTuple):
    """A Finding is one line of a diagnosis."""

    verdict: Verdict
    what: str
    found: str
    advice: str = ""


class Diagnosis:
    """A Diagnosis is what `doctor` found: it prints as a table, in notebooks as HTML.

    Attributes
    ----------
    record
        What was gathered: plain data.
    findings
        What it means.
    """

    def __init__(self, record: Facts) -> None:
        self.record = record
        self.findings = findings(record)

    @property
    def worst(self) -> Verdict:
        """Return the worst verdict of all."""
        return max((f.verdict for f in self.findings), key=list(_COLOURS).index, default="ok")

    def to_json(self) -> str:
        """Return record and findings as JSON."""
        return json.dumps({"findings": [f._asdict() for f in self.findings], "record": self.record}, indent=2)

    def text(self, file: TextIO) -> str:
        """Return what is to be written to a file: in colours where ``rich`` is installed and they are seen."""
        if not file.isatty() or find_spec("rich") is None:
            return str(self)
        from rich.console import Console

        console = Console(file=file)
        with console.capture() as captured:
            console.print(self)
        text: str = captured.get()
        return text.rstrip("\n")

    def __str__(self) -> str:
        return format_table(_HEADER, self.findings)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(_HEADER, self.findings)

    def __rich__(self) -> Any:
        from rich.markup import escape
        from rich.table import Table

        table = Table(*_HEADER, box=None)
        for finding in self.findings:
            table.add_row(*map(escape, finding), style=None if finding.verdict == "ok" else _COLOURS[finding.verdict])
        return table


def doctor(client: Any = None, *, measure: bool = True) -> Diagnosis:
    """Look at this process, and at the cluster of a client, for what may be wrong.

    Versions on client, scheduler and workers, threads, memory limits, libraries of linear algebra, GPUs, what messages
    between workers cost, plugins, extras and options: a line for each, with a verdict (ok, note, warning, error) and
    what to do.

    Parameters
    ----------
    client
        A ``distributed.Client``; None: the active one, if there is one.
    measure
        Whether to measure messages between workers, which takes a second or two, and in which nothing else should run
        there.

    Returns
    -------
    Diagnosis
        Prints as a table.

    Examples
    --------
    >>> import distarray as dx
    >>> dx.doctor().worst in ("ok", "note", "warning")
    True
    """
    return Diagnosis(gathered(active_client() if client is None else client, is_measured=bool(measure)))


def findings(record: Facts) -> list[Finding]:
    """Return what a record (`runtime.inspection.gathered`) means."""
    workers = {address: facts for address, facts in record["workers"].items() if "error" not in facts}
    scheduler = record["scheduler"]
    return [
        *_of_this_process(record["client"]),
        *([] if scheduler is None else _of_cluster(record, scheduler, workers)),
        *_of_blas({"this process": record["client"], **workers}),
        *_of_gpus({"this process": record["client"], **workers}),
        *_of_compiled({"this process": record["client"], **workers}),
        *_of_rates(record["rates"]),
        *_of_extras(record["extras"]),
        *_of_options(record["options"]),
    ]


def _of_this_process(facts: Facts) -> Iterator[Finding]:
    version = facts["versions"]["distarray"]
    yield Finding("ok", "distarray", f"{version} on Python {facts['python']}, {facts['platform']}")
    if facts["namesake"] is not None:
        yield Finding(
            "error",
            "distarray",
            f"another distribution of this name is installed too (distarray {facts['namesake']})",
            "the two share a folder: python -m pip uninstall distarray, then install dask-distarray again",
        )
    yield Finding("ok", "this process", f"{facts['cores']} cores, {format_nbytes(facts['memory'])} of memory available")


# -------------------------------------------------------------------------------------------------------- clusters


def _of_cluster(record: Facts, scheduler: Facts, workers: Mapping[str, Facts]) -> Iterator[Finding]:
    for where, facts in {"scheduler": scheduler, **record["workers"]}.items():
        if "error" in facts:
            missing = "No module named 'distarray'" in facts["error"]
            advice = "install the distarray of the client there" if missing else "look at its log"
            yield Finding("error", where, f"did not answer: {facts['error']}", advice)
    if not record["workers"]:
        yield Finding("error", "workers", "there are none", "start some: dask worker ADDRESS, or cluster.scale(n)")
    everybody = {"client": record["client"], **workers}
    if "error" not in scheduler:
        everybody["scheduler"] = scheduler
    yield from _of_versions(everybody)
    if workers:
        yield from _of_threads(workers)
        yield from _of_memory(workers, is_said="memory-limit" in dict(record["options"]))
        yield from _of_plugins(scheduler, workers)


def _of_versions(everybody: Mapping[str, Facts]) -> Iterator[Finding]:
    """Compare versions; an entry for each package of which there are several."""
    of: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for who, facts in everybody.items():
        of["python"][who] = ".".join(facts["python"].split(".")[:2])
        for package, version in facts["versions"].items():
            of[package][who] = version
    differ = False
    for package, by_who in of.items():
        versions = {who: by_who.get(who, "missing") for who in everybody}
        if len(set(versions.values())) == 1:
            continue
        differ = True
        verdict: Verdict = "error" if package in (*STRICT, "python") else "warning"
        yield Finding(
            verdict,
            f"version of {package}",
            "; ".join(f"{version}: {_names(who)}" for version, who in _grouped(versions).items()),
            "install the same version everywhere: what is sent from one to another may not be understood",
        )
    if not differ:
        shown = ", ".join(f"{name} {of[name]['client']}" for name in ("distarray", "dask", "numpy") if name in of)
        n = len(everybody.keys() - {"client", "scheduler"})
        others = ", scheduler" if "scheduler" in everybody else ""
        yield Finding("ok", "versions", f"the same on client{others} and {n} worker{'s' * (n != 1)}: {shown}")


def _grouped(values: Mapping[str, Any]) -> dict[Any, list[str]]:
    found: defaultdict[Any, list[str]] = defaultdict(list)
    for who, value in values.items():
        found[value].append(who)
    return dict(found)


def _names(who: Sequence[str], most: int = 3) -> str:
    return ", ".join(who[:most]) + (f" and {len(who) - most} more" if len(who) > most else "")


def _by_host(workers: Mapping[str, Facts]) -> dict[str, list[Facts]]:
    """Return the workers of each host."""
    hosts = _grouped({address: facts["host"] for address, facts in workers.items()})
    return {host: [workers[address] for address in own] for host, own in hosts.items()}


def _of_threads(workers: Mapping[str, Facts]) -> Iterator[Finding]:
    counts = Counter(facts["threads"] for facts in workers.values())
    text = ", ".join(
        f"{n} worker{'s' * (n > 1)} of {threads} thread{'s' * (threads > 1)}" for threads, n in counts.items()
    )
    if len(counts) > 1:
        yield Finding(
            "note", "threads", text, "members get parts of one size, and the slowest counts: take workers of one kind"
        )
    else:
        yield Finding("ok", "threads", text)
    for host, own in _by_host(workers).items():
        n, cores = sum(facts["threads"] for facts in own), own[0]["cores"]
        if n > cores:
            advice = "start fewer workers, or with fewer threads (--nthreads): they take turns"
            yield Finding("warning", f"threads on {host}", f"{n} of workers for {cores} cores", advice)


def _of_memory(workers: Mapping[str, Facts], *, is_said: bool) -> Iterator[Finding]:
    """Compare limits of memory; `is_said`: an option says how much of it arrays get."""
    without = [address for address, facts in workers.items() if facts["memory_limit"] is None]
    if without:
        yield Finding(
            "warning",
            "memory limit",
            f"none: {_names(without)}",
            "start workers with --memory-limit: without one Dask neither spills nor pauses before the system ends them",
        )
    limits = {address: facts["memory_limit"] for address, facts in workers.items() if facts["memory_limit"] is not None}
    if not limits:
        return
    least, most = min(limits.values()), max(limits.values())
    text = format_nbytes(least) if least == most else f"{format_nbytes(least)} to {format_nbytes(most)}"
    if least < LITTLE_MEMORY:
        yield Finding(
            "note", "memory limit", text, "half of it is for arrays: fewer workers with more memory move less"
        )
    elif least != most:
        yield Finding("note", "memory limit", text, "plans go by the least: take workers of one kind")
    else:
        share = "what the option memory-limit says" if is_said else "half"
        yield Finding("ok", "memory limit", f"{text} for each worker, of which arrays get {share}")
    for host, own in _by_host(workers).items():
        # What is available counts what the workers have taken already, so this is an upper bound of a mistake.
        total = sum(facts["memory_limit"] or 0 for facts in own)
        available = max(facts["memory"] for facts in own)
        if total > 2 * available:
            yield Finding(
                "warning",
                f"memory on {host}",
                f"workers may take {format_nbytes(total)}, of which {format_nbytes(available)} are available",
                "lower --memory-limit, or end what else runs there",
            )


def _of_plugins(scheduler: Facts, workers: Mapping[str, Facts]) -> Iterator[Finding]:
    without = [address for address, facts in workers.items() if not facts["has_plugin"]]
    if not scheduler.get("has_plugin") or len(without) == len(workers):
        yield Finding("note", "plugins", "not installed yet", "nothing to do: the first array installs them")
    elif without:
        yield Finding("error", "plugins", f"missing at {_names(without)}", "restart these workers")
    else:
        yield Finding("ok", "plugins", "installed at the scheduler and all workers")


# ------------------------------------------------------------------------------------------- what all processes have


def _of_blas(everybody: Mapping[str, Facts]) -> Iterator[Finding]:
    for (name, version), who in _grouped(
        {who: (pool["name"], pool["version"]) for who, facts in everybody.items() for pool in facts["blas"][:1]}
    ).items():
        threads = {pool["threads"] for one in who for pool in everybody[one]["blas"][:1]}
        known = sorted(t for t in threads if t is not None)
        text = f"{name} {version or ''}".strip() + (f", {' or '.join(map(str, known))} threads" if known else "")
        yield Finding("ok", "linear algebra", f"{text}: {_names(who)}")
    crowded = [
        who
        for who, facts in everybody.items()
        for pool in facts["blas"][:1]
        if (pool["threads"] or 1) * facts.get("threads", 1) > facts["cores"] and facts.get("threads", 1) > 1
    ]
    if crowded:
        yield Finding(
            "warning",
            "linear algebra",
            f"more threads than cores at {_names(crowded)}: each of the worker's threads starts as many",
            "start workers with OMP_NUM_THREADS=1, as Dask's nannies do",
        )


def _of_gpus(everybody: Mapping[str, Facts]) -> Iterator[Finding]:
    seen = {who: facts["gpus"] for who, facts in everybody.items()}
    having = {who: gpus for who, gpus in seen.items() if gpus["count"]}
    if not having:
        yield Finding("ok", "GPUs", f"none: {seen['this process'].get('error', 'no device')}")
        return
    for who, gpus in having.items():
        text = f"{gpus['count']} at {who}, driver {gpus['driver']}, CUDA {gpus['runtime']}"
        is_old = gpus["driver"] // 1000 < gpus["runtime"] // 1000
        advice = "update the driver, or take the CuPy of its CUDA version" if is_old else ""
        yield Finding("error" if is_old else "ok", "GPUs", text, advice)
    without = [who for who in seen if who not in having and who != "this process"]
    if without:
        yield Finding("warning", "GPUs", f"none at {_names(without)}", 'device="cuda" needs one at every worker')


def _of_rates(rates: Facts | None) -> Iterator[Finding]:
    if rates is None:
        return
    if "error" in rates:
        yield Finding("warning", "network", f"could not be measured: {rates['error']}", "look at the workers' logs")
        return
    if "latency" not in rates:
        return
    latency, bandwidth = rates["latency"], rates["bandwidth"]
    text = f"{format_seconds(latency)} for a message, {format_nbytes(bandwidth)} per second ({rates['origin']})"
    if latency > SLOW_SECONDS or bandwidth < SLOW_BANDWIDTH:
        yield Finding(
            "warning",
            "network",
            text,
            "put workers nearer to each other, name a fast interface (--interface ib0), or ask when it is quiet; "
            "dx.calibrate() tells the planner",
        )
    else:
        yield Finding("ok", "network", text)


def _of_compiled(everybody: Mapping[str, Facts]) -> Iterator[Finding]:
    for where, facts in everybody.items():
        found = facts.get("compiled", {"count": 0, "failures": ()})  # a worker of another version
        if found["failures"]:
            text = f"{where}: {len(found['failures'])} could not be compiled; the last: {found['failures'][-1]}"
            advice = "NumPy's functions serve in their place; distarray.compiled: false tries no more"
            yield Finding("warning", "compiled programs", text, advice)
        elif found["count"]:
            yield Finding("ok", "compiled programs", f"{where}: {found['count']} compiled by Numba")


def _of_extras(installed: Mapping[str, str]) -> Iterator[Finding]:
    if installed:
        yield Finding("ok", "extras", ", ".join(f"{name} {version}" for name, version in installed.items()))
    wanted = [name for name in OPTIONAL if name not in installed and not name.startswith("cupy")]
    if wanted:
        extras = ",".join(dict.fromkeys(OPTIONAL[name] for name in wanted))
        advice = f'if you need them: python -m pip install "dask-distarray[{extras}]"'
        yield Finding("note", "extras", f"not installed: {', '.join(wanted)}", advice)


def _of_options(changed: Sequence[Sequence[str]]) -> Iterator[Finding]:
    for name, text in changed:
        is_wrong = text.startswith("not valid")
        advice = "mend it in Dask's configuration or DASK_DISTARRAY__*" if is_wrong else ""
        yield Finding("error" if is_wrong else "note", f"option {name}", text, advice)
    if not changed:
        yield Finding("ok", "options", "as shipped")
