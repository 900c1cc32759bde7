"""Wrong calls, generated: each is refused as numpy refuses it, in words that name the argument, before anything runs.

A *call* is a function of numpy with valid arguments: every row of the coverage test is one, read off by an array that
notes the functions that it is given to. Each argument, and each parameter that the call leaves at its default, is
replaced by each value of a pool; numpy says which of these calls are wrong, and with which error.
"""

from __future__ import annotations

import gc
import inspect
import operator
import random
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import scipy.special
from helpers import module_at

import distarray as dx

HERE = Path(__file__).parent

#: An extent that no axis counts from the end as far as.
NEGATIVE = -9
#: What takes the place of a parameter that is no array.
VALUES: list[Any] = [
    None, True, -1, 7, NEGATIVE, 10**20, -(10**20), 1.5, np.float64(1), 1 + 2j, "a", "nonsense", b"a", (), (0, 0),
    (-1, 3),
    (0, 1, 2, 3, 4, 5), [1.5], ("a",), (None,), {}, ..., np.array([1.5]), [[0, 1], [2]], object,
]  # fmt: skip
#: What takes the place of an array.
OPERANDS: list[Any] = [
    None, "a", {}, ..., object, 1.5, [[1], [1, 2]], [None], np.array(["a"]), np.zeros(0), np.zeros((2, 3, 4, 5)),
    np.ones((3, 7)), np.ones(5), np.array([("x", 1)], dtype="U1, i8"),
]  # fmt: skip

#: Texts that speak of the code instead of the call.
INTERNAL = re.compile(
    r"is not iterable|values to unpack|has no attribute|has no len\(\)|not supported between "
    r"instances|not subscriptable|unhashable|out of range$|not in list|positional argument.* lambda|<lambda>|"
    r"\.<locals>\.|argument of type|^$|takes no arguments|cannot unpack|^'?[a-z]'?$|of unsized object|"
    r"unsupported operand type(?!.*'DistArray')"  # that of an operator is Python's, and names the types of both
)


#: numpy's texts that speak of its code where ours would not.
NUMPYS_INTERNAL = re.compile(INTERNAL.pattern + r"|takes exactly \d argument|out of range")
#: Python's own, of arguments that a signature does not have.
PYTHONS = re.compile(r"\(\) (takes|got an unexpected|got multiple|missing) ")


@pytest.fixture(autouse=True)
def _deferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is computed at the call would have to wait for the last check; texts may be names of files to write; numpy
    calls itself 10**20 times (`polyder`), which ends the process where mypy has set another limit.
    """
    monkeypatch.chdir(tmp_path)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    with dx.config.set(eager_bytes=0):
        yield
    sys.setrecursionlimit(limit)


class Call(NamedTuple):
    """A function of ours beside numpy's, and arguments."""

    name: str
    ours: Callable[..., Any]
    numpys: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    #: The parameter that was replaced and the value that it got.
    parameter: str = ""
    value: Any = None
    #: Whether it stands in the place of an array, where the text may speak of shapes.
    is_array: bool = False

    def __str__(self) -> str:
        return f"{self.name}, {self.parameter}={shown(self.value)}"


def shown(value: Any) -> str:
    return re.sub(r"\s+", " ", repr(value))[:60]


class Recorder(np.ndarray):
    """Notes what functions it is given to, with which arguments."""

    calls: ClassVar[list[tuple[Any, tuple[Any, ...], dict[str, Any]]]] = []

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        Recorder.calls.append((func, args, kwargs))
        return super().__array_function__(func, types, args, kwargs)


def each(value: Any, function: Callable[[Any], Any], kind: type) -> Any:
    """`value` with what is a `kind` in it, in lists and tuples too, replaced."""
    if isinstance(value, kind):
        return function(value)
    if type(value) in (list, tuple):
        return type(value)([each(v, function, kind) for v in value])
    if type(value) is dict:
        return {k: each(v, function, kind) for k, v in value.items()}
    return value


SPACES = {"": (dx, np), "linalg.": (dx.linalg, np.linalg), "fft.": (dx.fft, np.fft)}
#: A plain array is enough to show what they refuse, and they write files.
SKIPPED = {
    *("save", "savez", "savez_compressed", "savetxt", "array2string", "array_repr", "array_str"),
    *("shares_memory", "may_share_memory"),
    *("fromfile", "loadtxt", "genfromtxt"),  # numpy reads the text, and says what is wrong with it
}


def valid_calls() -> Iterator[Call]:
    table = module_at(HERE / "composed" / "test_numpy_coverage.py")
    for row, call in table.ROWS.items():
        full = row.split(",")[0]
        if full in SKIPPED:
            continue
        prefix, _, name = full.rpartition(".")
        ours, numpys = (getattr(space, name, None) for space in SPACES[prefix and prefix + "."])
        if ours is None or isinstance(numpys, np.ufunc):
            continue
        Recorder.calls.clear()
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            call(table.X[:, :, :].copy().view(Recorder))
        for func, args, kwargs in Recorder.calls:
            if func is numpys:
                taken = inspect.signature(ours).parameters
                # numpy's ``like=`` hands on defaults too, which dx.ones does not have
                if not any(p.kind is p.VAR_KEYWORD for p in taken.values()):
                    kwargs = {k: v for k, v in kwargs.items() if k in taken or k not in ("order", "M")}
                plain = each(args, np.asarray, np.ndarray)
                yield Call(row, ours, numpys, plain, each(kwargs, np.asarray, np.ndarray))
                break


X = np.arange(24.0).reshape(4, 6) - 5

#: Methods with valid arguments: as of ndarray, so of DistArray.
METHODS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys("sum prod mean std var max min any all argmax argmin cumsum cumprod".split(), (0,)),
    **dict.fromkeys("ravel flatten copy nonzero tolist conj squeeze item".split(), ()),
    "trace": (1, 0, 1),
    "diagonal": (1, 0, 1),
    "round": (1,),
    "clip": (1.0, 3.0),
    "reshape": ((6, 4),),
    "transpose": ((1, 0),),
    "swapaxes": (0, 1),
    "repeat": (2, 0),
    "take": (np.array([1, 2]), 0),
    "compress": (np.array([True, False, True, True]), 0),
    "argsort": (0,),
    "argpartition": (1, 0),
    "partition": (1, 0),
    "sort": (0,),
    "dot": (np.ones(6),),
    "fill": (2.0,),
    "astype": ("i8",),
    "__getitem__": (1,),
    "__setitem__": (1, 2.0),
    "__delitem__": (1,),
    "__add__": (np.ones(6),),
    "__matmul__": (np.ones(6),),
}
#: Methods of a generator of random numbers with valid arguments. The numbers are others than numpy's.
DRAWS: dict[str, tuple[Any, ...]] = {
    "random": ((2, 3),),
    "standard_normal": ((2, 3),),
    "integers": (0, 5, (2, 3)),
    "uniform": (0.0, 1.0, (2, 3)),
    "normal": (0.0, 1.0, (2, 3)),
    "exponential": (1.0, (2, 3)),
    "poisson": (1.0, (2, 3)),
    "binomial": (5, 0.5, (2, 3)),
    "gamma": (2.0, 1.0, (2, 3)),
    "beta": (2.0, 1.0, (2, 3)),
    "choice": (5, (3,)),
    "permutation": (5,),
    "bytes": (5,),
}


def method(name: str, of: Any) -> Callable[..., Any]:
    """The method of that name of the first argument, with the signature of `of`."""

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        made = getattr(x, name)(*args, **kwargs)
        # an operator asks the other operand then, and raises
        return getattr(operator, name)(x, *args) if made is NotImplemented else made

    call.__signature__ = inspect.signature(getattr(of, name))  # type: ignore[attr-defined]
    return call


def draw(name: str, rng: Any) -> Callable[..., Any]:
    """A method of a fresh generator, with the signature of ours."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(rng(0), name)(*args, **kwargs)

    call.__signature__ = inspect.signature(getattr(dx.random.default_rng(0), name))  # type: ignore[attr-defined]
    return call


def method_calls() -> Iterator[Call]:
    for name, args in METHODS.items():
        both = method(name, dx.DistArray if name[0] != "_" else np.ndarray)
        yield Call(f"DistArray.{name}", both, both, (X, *args), {})
    for name, args in DRAWS.items():
        ours, numpys = draw(name, dx.random.default_rng), draw(name, np.random.default_rng)
        yield Call(f"Generator.{name}", ours, numpys, args, {})


INTEGERS = np.arange(24).reshape(4, 6)
MASK = X > 0

#: Ufuncs of numpy and their methods with valid arguments: (path, positional, by keyword).
UFUNCS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("add", (X, X), {"out": X + 1, "where": MASK, "dtype": "f8", "casting": "same_kind", "order": "K"}),
    ("sqrt", (X,), {"out": X + 1, "where": MASK, "dtype": "f8", "casting": "same_kind", "order": "K"}),
    ("bitwise_and", (INTEGERS, INTEGERS), {"out": INTEGERS + 1, "where": MASK, "casting": "same_kind"}),
    ("equal", (X, X), {"out": MASK, "where": MASK, "signature": "dd->?"}),
    ("divmod", (X, X + 99), {"where": MASK, "casting": "same_kind"}),
    ("matmul", (X, X.T), {"dtype": "f8", "casting": "same_kind", "axes": [(0, 1), (0, 1), (0, 1)]}),
    ("vecdot", (X, X), {"axis": -1, "keepdims": False, "dtype": "f8"}),
    ("add.reduce", (X,), {"axis": 0, "dtype": "f8", "keepdims": False, "initial": 1.0, "where": MASK, "out": X[0] + 1}),
    ("subtract.reduce", (X,), {"axis": 0, "keepdims": False, "initial": 1.0}),
    ("maximum.reduce", (X,), {"axis": 0, "initial": 1.0, "where": MASK}),
    ("add.accumulate", (X,), {"axis": 0, "dtype": "f8", "out": X + 1}),
    ("add.reduceat", (X, np.array([0, 2])), {"axis": 0, "dtype": "f8"}),
    ("add.outer", (X, X[0]), {"dtype": "f8", "casting": "same_kind"}),
    ("add.at", (X, np.array([0, 2]), X[:2]), {}),
    ("negative.at", (X, np.array([0, 2])), {}),
]  # fmt: skip


def ufunc_calls() -> Iterator[Call]:
    """Ufuncs with their options, the elementwise functions of ours of the same names, and those of SciPy."""
    for path, args, kwargs in UFUNCS:
        function = operator.attrgetter(path)(np)
        yield Call(f"ufunc {path}", function, function, args, kwargs)
    for space, theirs in ((dx, np), (dx.special, scipy.special)):
        for name in space.__all__:
            ufunc = getattr(theirs, name, None)
            if isinstance(ufunc, np.ufunc) and ufunc.signature is None:
                function = getattr(space, name)
                x = X if "d" in "".join(ufunc.types) else INTEGERS
                yield Call(f"{space.__name__}.{name}", function, of_operands(ufunc), (x,) * ufunc.nin, {})


def of_operands(ufunc: np.ufunc) -> Callable[..., Any]:
    """A ufunc without its options, which functions of ours do not have."""

    def call(*operands: Any) -> Any:
        return ufunc(*operands)

    return call


def all_calls() -> Iterator[Call]:
    yield from valid_calls()
    yield from method_calls()
    yield from ufunc_calls()


def has_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or (type(value) in (list, tuple) and any(has_array(v) for v in value))


def wrong_calls(call: Call) -> Iterator[Call]:
    """`call` with one argument replaced, left out or too many."""
    try:
        parameters = list(inspect.signature(call.numpys).parameters.values())
    except ValueError:
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        names = []
    for i, old in enumerate(call.args):
        if not i and call.name.startswith("DistArray."):
            continue  # the array whose method it is
        name = names[i] if i < len(names) else f"operand {i}"
        replaced = call._replace(parameter=name, is_array=has_array(old))
        for value in OPERANDS if has_array(old) else VALUES:
            yield replaced._replace(args=(*call.args[:i], value, *call.args[i + 1 :]), value=value)
    optional = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for name in dict.fromkeys((*call.kwargs, *[n for n in optional if n not in names[: len(call.args)]])):
        if name in ("out", "like", "subok") and name not in call.kwargs:
            continue
        replaced = call._replace(parameter=name, is_array=has_array(call.kwargs.get(name)))
        for value in OPERANDS if replaced.is_array else VALUES:
            yield replaced._replace(kwargs={**call.kwargs, name: value}, value=value)
    yield call._replace(kwargs={**call.kwargs, "nonsense": 1}, parameter="nonsense", value=1)


def builtin_types(error: type[BaseException]) -> set[type]:
    return {c for c in error.__mro__ if c.__module__ == "builtins"} - {
        Exception,
        BaseException,
        object,
        LookupError,
        ArithmeticError,
    }


class TooLongError(Exception):
    """A call that did not come back within its time."""


def too_long(*args: Any) -> None:
    raise TooLongError


def outcome(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The result of a call, or its exception."""
    before = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, 2.0)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return function(*args, **kwargs)
        except Exception as error:
            return error
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def names_argument(text: str, call: Call) -> bool:
    if re.search(rf"\b{re.escape(call.parameter)}\b", text):
        return True
    value = call.value
    forms = {repr(value), str(value), shown(value), type(value).__name__ if not isinstance(value, str) else repr(value)}
    if isinstance(value, (list, tuple)):
        forms |= {repr(v) for v in value}
        forms |= {str(v) for v in value}
    if value is True:
        forms.add("1")
    if isinstance(value, np.ndarray):
        forms.add("DistArray")
        forms |= {str(value.shape), str(value.dtype), repr(value.dtype), str(value.shape).replace(" ", "")}
    try:
        forms.add(str(np.shape(value)))
    except ValueError:
        pass
    return any(form in text for form in forms if form) or re.search(r"operand \d", text) is not None


def unsupported(value: Any) -> bool:
    """Whether numpy makes an array of text or of objects of it."""
    try:
        return np.asarray(value).dtype.kind in "OSUV"
    except ValueError:
        return True


def is_unusual(value: Any) -> bool:
    """Whether a value is neither None, an integer, a text nor a sequence of integers."""
    return not (value is None or isinstance(value, int | str) or (isinstance(value, tuple) and not unsupported(value)))


def is_huge(value: Any) -> bool:
    return isinstance(value, int) and abs(value) > 2**63


def is_meant(call: Call, found: Any, expected: Any) -> str:
    """Why a call may end otherwise than numpy's, if there is a reason."""
    if isinstance(found, TypeError) and call.parameter not in inspect.signature(call.ours).parameters:
        return "a parameter of numpy's that is none of ours is Python's TypeError, which names it"
    if isinstance(found, TypeError) and re.search(r"takes .* positional argument|multiple values for arg", str(found)):
        return "what the standard gives by keyword only is not taken by position"
    if isinstance(found, TypeError) and (unsupported(call.value) or is_unusual(call.value)):
        return "a value of a type that is never right is a TypeError; numpy stumbles over it, or looks at its truth"
    if isinstance(found, TypeError) and isinstance(expected, Exception) and re.search(r"must be|=", str(found)):
        return "a value of another type is a TypeError everywhere; in numpy it depends on what the code does with it"
    if isinstance(found, TypeError) and call.parameter in ("keepdims", "copy", "ddof", "correction", "where"):
        return "flags and numbers are looked at in all functions; numpy's take what Python takes for true"
    if call.parameter in ("where", "ddof", "correction") and isinstance(expected, TypeError):
        return "what sum takes, mean and var take; None is the default"
    if call.parameter == "descending" and "unexpected keyword" in str(expected):
        return "the standard has it, and NumPy since 2.5"
    if call.parameter == "descending" and not isinstance(found, Exception) and not call.value:
        return "the default, which the standard says is False; NumPy has a mark of its own"
    if call.parameter in ("min", "max") and "a_min" in str(expected):
        return "clip takes the standard's names beside numpy's"
    if call.parameter in ("hermitian", "stable", "kind") and not isinstance(found, Exception):
        return "it says how to compute, which is decided here"
    if isinstance(expected, AttributeError | UnboundLocalError | RecursionError):
        return "numpy's own error speaks of its code"
    if isinstance(found, TypeError | ValueError | IndexError) and NUMPYS_INTERNAL.search(str(expected)):
        return "numpy's own error speaks of its code: it is of the place where its code stumbles"
    if call.value is None and not isinstance(found, Exception):
        return "None is what is not given, where numpy has a mark of its own for that"
    if isinstance(call.value, tuple) and not call.value:
        return "an empty sequence is one of numbers of any kind; numpy's is of floats"
    if is_huge(call.value):
        return "an integer that C cannot hold is taken where any integer is, and is else out of bounds"
    if call.value is True and (not isinstance(found, Exception) or isinstance(expected, TypeError)):
        return "True is an integer in all functions; numpy takes it for one in some"
    if "reshape" in call.name and call.value is NEGATIVE:
        return "of negative extents -1 alone is the one that is not known"
    if call.parameter == "device":
        return "devices are ours"
    return ""


def problem(call: Call) -> str:
    """What is wrong with how a call is refused, or with its being refused or not; nothing if all is right."""
    expected = outcome(call.numpys, *each((call.args, call.kwargs), np.copy, np.ndarray))
    made: list[tuple[dx.DistArray, np.ndarray]] = []

    def distributed(value: np.ndarray) -> Any:
        if value.dtype.kind in "OSUV":
            return value
        x = dx.asarray(value)
        made.append((x, value.copy()))
        return x

    args, kwargs = each((call.args, call.kwargs), distributed, np.ndarray)
    with dx.testing.counting() as c:
        found = outcome(call.ours, args, kwargs)
    if call.ours is call.numpys and not made:
        return ""  # nothing of it is ours
    if isinstance(found, TooLongError) and not isinstance(expected, TooLongError):
        return "does not come back"
    if not isinstance(found, Exception):
        refused = isinstance(expected, Exception) and not is_meant(call, found, expected)
        return f"ACCEPTED {shown(found)}, numpy: {type(expected).__name__}: {expected}" if refused else ""
    said = f"{type(found).__name__}: {found}"
    if INTERNAL.search(str(found)):
        return f"INTERNAL {said}"
    if not is_meant(call, found, expected):
        if not isinstance(expected, Exception):
            return f"REFUSED {said}"
        if not builtin_types(type(found)) & builtin_types(type(expected)):
            return f"TYPE {said}, numpy: {type(expected).__name__}: {expected}"
    is_numpys = str(found) == str(expected)
    if not (is_numpys or call.is_array or PYTHONS.search(str(found)) or names_argument(str(found), call)):
        return f"TEXT {said}"
    if c.tasks or c.evaluations or c.fetched_bytes:
        return f"RUN {said}"
    for x, before in made:
        if not np.array_equal(np.asarray(x), before, equal_nan=before.dtype.kind in "fc"):
            return f"CHANGED {said}"
    return ""


def known() -> set[tuple[str, str]]:
    """What is meant to end otherwise: function and parameter, and how."""
    lines = (HERE / "data" / "wrong_calls.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split(": ", 1) for line in lines if line and line[0] != "#"]
    return {(where, how) for where, hows in pairs for how in hows.split()}


def refused_by_numpy() -> set[tuple[str, str]]:
    """What newer versions of NumPy refuse as we do."""
    return {("ufunc add.accumulate array", "REFUSED")} if np.lib.NumpyVersion(np.__version__) >= "2.5.0" else set()


class Tried(NamedTuple):
    """What became of a sample of calls: how many they were, problems that are not known, and those that are."""

    n: int
    found: set[str]
    seen: set[tuple[str, str]]


def tried(share: float, calls: Iterable[Call]) -> Tried:
    rng, left = random.Random(0), known()
    n, found, seen = 0, set(), set()
    # No full window, whose work would count as that of the call which fills it.
    with dx.config.set(window=10**9):
        for call in calls:
            for wrong in wrong_calls(call):
                if rng.random() >= share:
                    continue
                n += 1
                said = problem(wrong)
                how = f"{call.name.split(',')[0]} {wrong.parameter}", said.partition(" ")[0]
                if how in left:
                    seen.add(how)
                elif said:
                    found.add(f"{wrong}: {said}"[:400])
        gc.collect()  # nothing that waits is left to the next test
    return Tried(n, found, seen)


def test_wrong_call_is_refused_as_numpy_refuses_it_and_runs_nothing() -> None:
    made = tried(0.03, all_calls())
    assert made.n >= 800
    assert not made.found, "\n".join(sorted(made.found))


@pytest.mark.slow
def test_every_wrong_call_is_refused_as_numpy_refuses_it_and_runs_nothing() -> None:
    made = tried(1.0, all_calls())
    assert made.n >= 29_000
    assert not made.found, "\n".join(sorted(made.found))
    right = sorted(f"{where}: {how}" for where, how in known() - made.seen - refused_by_numpy())
    assert not right, "lines of wrong_calls.txt that are right by now"


T = dx.Team((2,), ("T",))
NO_INTEGERS: list[Any] = [1.5, "a", None, 1j, {}, [1.5], b"a"]

#: What is ours alone: a call with a value in it, what it must not be, and what the error may be.
OWN: dict[str, tuple[Callable[[dx.DistArray, Any], Any], list[Any], Any]] = {
    "Team, shape": (lambda x, v: dx.Team(v, ("T",)), [*NO_INTEGERS, -1, 0, 10**20, (1.5,)], (TypeError, ValueError)),
    "Team, axes": (lambda x, v: dx.Team((2,), v), [1, None, ("a", "b"), (1,), ("%1",), "a b"], (TypeError, ValueError)),
    "Team, members": (lambda x, v: dx.Team((2,), ("T",), members=v), [(0,), (0, 0), (0, 1, 2)], ValueError),
    "Team.split": (lambda x, v: T.split(v), ["a", 1, None], ValueError),
    "Mesh, sizes": (lambda x, v: dx.Mesh(("x",), (v,)), [*NO_INTEGERS, -1, 0, 10**20], (TypeError, ValueError)),
    "sharding": (
        lambda x, v: dx.zeros((4, 6), sharding=v),
        [1, 1.5, ("T", None, None), ("a", None), ("T", "T"), "a", "[4", {}], ValueError,
    ),
    "layout": (lambda x, v: dx.zeros((4, 6), layout=v), ["a", 1, (0,), (0, 0), 1.5], (TypeError, ValueError)),
    "team": (lambda x, v: dx.zeros(3, team=v), [1, "a", 1.5, {}], (TypeError, ValueError)),
    "device": (lambda x, v: dx.zeros(3, device=v), [1, "a", 1.5, "cuda:"], (TypeError, ValueError)),
    "reshard": (lambda x, v: x.reshard(v), [1, "a", ("a", None), ("T", None, None)], ValueError),
    "reshard, memory": (lambda x, v: x.reshard(("T", None), memory=v), ["a", 1.5, -1, [1]], (TypeError, ValueError)),
    "reshard, mode": (lambda x, v: x.reshard(("T", None), mode=v), ["a", 1, None], ValueError),
    "topk, k": (lambda x, v: dx.topk(x, v), ["a", 1.5, -1, 99, None], (TypeError, ValueError)),
    "topk, axis": (lambda x, v: dx.topk(x, 1, axis=v), ["a", 1.5, 7, (0,)], (TypeError, ValueError)),
    "round": (lambda x, v: x.round(v), ["a", 1.5, None, (0,)], TypeError),
    "del": (lambda x, v: x.__delitem__(v), [0, slice(None), ..., "a"], ValueError),
    "zeros": (lambda x, v: dx.zeros(v), ["a", 1.5, -1, (-1, 2), (1.5,), {}, 10**20], (TypeError, ValueError)),
    "config, memory_limit": (lambda x, v: dx.config.set(memory_limit=v), ["a", -1, [1], True], ValueError),
    "config, window": (lambda x, v: dx.config.set(window=v), ["a", -1, 1.5, None, True], ValueError),
    "config, calibration": (
        lambda x, v: dx.config.set(calibration=v), [1, "a", {"nope": 1}, {"latency": -1}, {"gemm_own": 2}], ValueError,
    ),
    "config, name": (lambda x, v: dx.config.set({v: 1}), ["nope", 1, None], (TypeError, ValueError)),
    "config.get": (lambda x, v: dx.config.get(v), ["nope", 1, None], (TypeError, ValueError)),
    "load": (lambda x, v: dx.load(v), [1.5, None, "/no/such.npy"], (TypeError, OSError)),
    "save": (lambda x, v: dx.save(v, x), [1.5, None, "/no/such/x.npy"], (TypeError, OSError)),
    "segment_sum, axis": (lambda x, v: dx.segment_sum(x, [0] * 4, 2, axis=v), ["a", 7, 1.5], (TypeError, ValueError)),
}  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_wrong_call_of_what_is_ours_is_refused_and_runs_nothing(name: str) -> None:
    function, values, errors = OWN[name]
    x = dx.asarray(X)
    for value in values:
        with dx.testing.counting() as c, pytest.raises(errors) as caught:
            function(x, value)
        text = str(caught.value)
        assert not INTERNAL.search(text), (value, text)
        assert names_argument(text, Call(name, function, function, (), {}, name.split()[-1], value)), (value, text)
        assert not c.tasks and not c.evaluations, value
    np.testing.assert_array_equal(x, X)


def same(block: Any) -> Any:
    """What a user's function may be."""
    return block


#: Arguments of ours that are looked at by the door, in calls that are right but for them.
TAKERS: dict[str, Callable[[dx.DistArray, Any], Any]] = {
    "map_blocks, func": lambda x, v: dx.map_blocks(v, x, dtype="f8"),
    "map_blocks, dtype": lambda x, v: dx.map_blocks(same, x, dtype=v),
    "map_blocks, chunks": lambda x, v: dx.map_blocks(same, x, dtype="f8", chunks=v),
    "map_blocks, drop_axis": lambda x, v: dx.map_blocks(same, x, dtype="f8", drop_axis=v),
    "map_blocks, new_axis": lambda x, v: dx.map_blocks(same, x, dtype="f8", new_axis=v),
    "blockwise, func": lambda x, v: dx.blockwise(v, "ij", x, "ij", dtype="f8"),
    "blockwise, out_ind": lambda x, v: dx.blockwise(same, v, x, "ij", dtype="f8"),
    "blockwise, indices": lambda x, v: dx.blockwise(same, "ij", x, v, dtype="f8"),
    "blockwise, new_axes": lambda x, v: dx.blockwise(same, "ijk", x, "ij", dtype="f8", new_axes=v),
    "blockwise, adjust_chunks": lambda x, v: dx.blockwise(same, "ij", x, "ij", dtype="f8", adjust_chunks=v),
    "map_overlap, func": lambda x, v: dx.map_overlap(v, x, depth=1, boundary="reflect", dtype="f8"),
    "map_overlap, depth": lambda x, v: dx.map_overlap(same, x, depth=v, boundary="reflect", dtype="f8"),
    "map_overlap, boundary": lambda x, v: dx.map_overlap(same, x, depth=1, boundary=v, dtype="f8"),
    "apply_gufunc, func": lambda x, v: dx.apply_gufunc(v, "(i)->()", x, output_dtypes="f8"),
    "apply_gufunc, signature": lambda x, v: dx.apply_gufunc(same, v, x, output_dtypes="f8"),
    "apply_gufunc, axis": lambda x, v: dx.apply_gufunc(same, "(i)->()", x, output_dtypes="f8", axis=v),
    "apply_gufunc, axes": lambda x, v: dx.apply_gufunc(same, "(i)->()", x, output_dtypes="f8", axes=v),
    "apply_gufunc, output_dtypes": lambda x, v: dx.apply_gufunc(same, "(i)->()", x, output_dtypes=v),
    "apply_gufunc, output_sizes": lambda x, v: dx.apply_gufunc(same, "(i)->(k)", x, output_dtypes="f8", output_sizes=v),
    "map_tiles, kernel": lambda x, v: dx.map_tiles(v, x, names=("ij",), over={}),
    "map_tiles, names": lambda x, v: dx.map_tiles(same, x, names=v, over={}),
    "map_tiles, over": lambda x, v: dx.map_tiles(same, x, names=("ij",), over=v),
    "map_tiles, inplace": lambda x, v: dx.map_tiles(same, x, names=("ij",), over={}, inplace=v),
    "reduction, chunk": lambda x, v: dx.reduction(x, v, np.sum, dtype="f8"),
    "reduction, axis": lambda x, v: dx.reduction(x, np.sum, np.sum, dtype="f8", axis=v),
    "reduction, output_size": lambda x, v: dx.reduction(x, np.sum, np.sum, dtype="f8", output_size=v),
    "coarsen, reduction": lambda x, v: dx.coarsen(v, x, {0: 2}),
    "coarsen, axes": lambda x, v: dx.coarsen(np.sum, x, v),
    "coarsen, factor of axes": lambda x, v: dx.coarsen(np.sum, x, {0: v}),
    "sliding_window_view, window_shape": lambda x, v: dx.sliding_window_view(x, v),
    "sliding_window_view, axis": lambda x, v: dx.sliding_window_view(x, 2, axis=v),
    "rechunk, chunks": lambda x, v: x.rechunk(v),
    "blocks, index": lambda x, v: x.blocks[v],
    "to_team, team": lambda x, v: x.to_team(v),
    "to_device, device": lambda x, v: x.to_device(v),
    "with_layout, layout": lambda x, v: x.with_layout(v),
    "local, member": lambda x, v: x.local(v),
    "gather, root": lambda x, v: x.gather(root=v),
    "gather, out": lambda x, v: x.gather(out=v),
    "scatter, root": lambda x, v: dx.scatter(np.ones(3), root=v),
    "from_blocks, shape": lambda x, v: dx.from_blocks([np.ones(3)], v, sharding=dx.zeros(3).sharding),
    "iter_blocks, visit": lambda x, v: list(x.iter_blocks(v)),
    "segment_sum, labels": lambda x, v: dx.segment_sum(x, v, 2),
    "item, index": lambda x, v: x.item(v),
    "shape": lambda x, v: setattr(x[:], "shape", v),
    "use, team": lambda x, v: dx.use(v).__enter__(),
    "use, device": lambda x, v: dx.use(device=v).__enter__(),
    "compute, memory_limit": lambda x, v: x.compute(memory_limit=v),
    "testing.force_tiles, n": lambda x, v: dx.testing.force_tiles(v).__enter__(),
    "testing.peaks, client": lambda x, v: dx.testing.peaks(v).__enter__(),
    "plan, graph": lambda x, v: dx.plan(v),
}

#: None of these is right where an integer, a mapping, a function, a sequence of them or a place is asked for.
NOTHING: list[Any] = [1.5, 1j, [1.5], (1.5,), b"nope", {"nope": "nope"}, np.array([1.5])]
#: But these: numbers beyond a border, for each array too; indices that the result lacks; bytes.
RIGHT = {
    ("boundary", float),
    ("boundary", complex),
    ("boundary", list),
    ("adjust_chunks", dict),
    ("memory_limit", float),
}


@pytest.mark.parametrize("name", TAKERS)
def test_what_is_no_such_argument_is_refused_by_its_name_before_anything_runs(name: str) -> None:
    function, parameter = TAKERS[name], name.split()[-1]
    x = dx.asarray(X)
    n = 0
    for value in NOTHING:
        given = dx.asarray(value) if isinstance(value, np.ndarray) else value
        if (parameter, type(value)) in RIGHT:
            continue
        with dx.testing.counting() as c, pytest.raises((TypeError, ValueError, IndexError)) as caught:
            function(x, given)
        text = str(caught.value)
        assert not INTERNAL.search(text), (value, text)
        assert names_argument(text, Call(name, function, function, (), {}, parameter, value)), (value, text)
        assert not c.tasks and not c.evaluations, (value, text)
        n += 1
    assert n >= 4
    np.testing.assert_array_equal(x, X)
