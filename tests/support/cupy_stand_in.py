"""CuPy, played by numpy: the whole path of ``device="cuda"`` on a machine without a GPU.

    with playing(n_gpus=2):
        dx.asarray(values, device="cuda")

Arrays are as strict as CuPy's: they do not become numpy arrays by themselves, do not take numpy arrays as operands, do
not mix with those of another device, and no reduction gives a number. The modules have the functions that CuPy 14 has,
with the parameters that it has (``tests/data/cupy_14_names.json``, written by this file run as a script where CuPy is
installed), and no other. Generated kernels are compiled (`host_kernels`). Memory is that of the host: the pool counts
it and holds a limit, streams are in order. What a GPU rounds otherwise is not played.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import host_kernels
import numpy as np

__all__ = ["n_kernels", "ndarray", "playing"]

NAMES = Path(__file__).parents[1] / "data" / "cupy_14_names.json"
_local = threading.local()

#: Operators of Python, each with its reflected and augmented form where numpy's arrays have them.
_BINARY = "add sub mul truediv floordiv mod pow and or xor lshift rshift matmul".split()
_COMPARING = "eq ne lt le gt ge".split()
_UNARY = "neg pos abs invert".split()


class CUDARuntimeError(RuntimeError):
    """What CuPy raises for an error of CUDA's runtime."""


class OutOfMemoryError(MemoryError):
    """What CuPy raises when an allocation does not fit the device, or the limit of its pool."""


class Device:
    """One of the GPUs that are played; a context in which arrays are made on it."""

    count = 0

    def __init__(self, device: int | None = None) -> None:
        self.id = current() if device is None else int(device)
        if not 0 <= self.id < self.count:
            raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return self.id

    def __int__(self) -> int:
        return self.id

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def __enter__(self) -> Device:
        _stack().append(self.id)
        return self

    def __exit__(self, *_: object) -> None:
        _stack().pop()

    def use(self) -> None:
        """Make this the device of the thread."""
        _stack()[-1:] = [self.id]

    def synchronize(self) -> None:
        """Wait for nothing: all is done when a call returns."""

    @property
    def mem_info(self) -> tuple[int, int]:
        """Bytes free and in all."""
        total = 1 << 34
        return total - Pool.of(self.id).used, total


def _stack() -> list[int]:
    if not hasattr(_local, "devices"):
        _local.devices = [0]
    return _local.devices  # type: ignore[no-any-return]


def current() -> int:
    """The device on which this thread makes arrays."""
    return _stack()[-1]


class Pool:
    """CuPy's pool of memory: counts what lives on each device, and holds the limit that is set for it."""

    pools: ClassVar[dict[int, Pool]] = {}

    def __init__(self) -> None:
        self.used = self.peak = self.limit = 0
        self.lock = threading.RLock()  # a finalizer may come at any allocation

    @classmethod
    def of(cls, device: int) -> Pool:
        """The pool of a device."""
        return cls.pools.setdefault(device, cls())

    def take(self, host: np.ndarray[Any, Any]) -> None:
        """Count new memory until its array is gone."""
        n = host.nbytes
        with self.lock:
            if self.limit and self.used + n > self.limit:
                raise OutOfMemoryError(
                    f"Out of memory allocating {n:,} bytes (allocated so far: {self.used:,} bytes, limit set to: "
                    f"{self.limit:,} bytes)."
                )
            self.used += n
            self.peak = max(self.peak, self.used)
        weakref.finalize(host, self._give, n)

    def _give(self, n: int) -> None:
        with self.lock:
            self.used -= n


class MemoryPool:
    """The pool of the current device, as CuPy's methods name it."""

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        """Bound the bytes of the current device; 0 is no bound."""
        Pool.of(current()).limit = int(size if size is not None else (fraction or 0) * (1 << 34))

    def get_limit(self) -> int:
        """The bound in bytes."""
        return Pool.of(current()).limit

    def used_bytes(self) -> int:
        """Bytes of the arrays that live."""
        return Pool.of(current()).used

    def total_bytes(self) -> int:
        """Bytes that the pool has: no more than what is used."""
        return Pool.of(current()).used

    def free_all_blocks(self, stream: Any = None) -> None:
        """Keep nothing: memory goes back to the host with its array."""


# ------------------------------------------------------------------------------------------------------- arrays


@cache
def _table() -> dict[str, Any]:
    names: dict[str, Any] = json.loads(NAMES.read_text(encoding="utf-8"))
    return names


class _Flags:
    def __init__(self, flags: Any) -> None:
        self.c_contiguous, self.f_contiguous = flags.c_contiguous, flags.f_contiguous
        self.owndata, self.forc, self.fnc = flags.owndata, flags.forc, flags.fnc


class ndarray:
    """An array of a device that is played, on a numpy array that only this file looks at."""

    __slots__ = ("__weakref__", "_host", "device")
    __array_priority__ = 100

    def __init__(self, host: np.ndarray[Any, Any], device: int) -> None:
        self._host = host
        self.device = Device(device)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct one.")

    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if not all(isinstance(x, ndarray | np.ndarray | np.generic | int | float | complex) for x in inputs):
            return NotImplemented
        return _call(getattr(function, method), function.__name__)(*inputs, **options)

    def __array_function__(self, function: Any, kinds: Any, arguments: Any, options: Any) -> Any:
        return getattr(sys.modules[function.__module__.replace("numpy", "cupy")], function.__name__)(
            *arguments, **options
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in _members():
            raise AttributeError(f"CuPy's arrays have no {name}")
        found = getattr(self._host, name)
        if callable(found):
            return _call(found, name, self)
        return _wrapped(found, self) if isinstance(found, np.ndarray) else found

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self._host.__array_interface__

    flags = property(lambda self: _Flags(self._host.flags))

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Iterator[ndarray]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> ndarray:
        return _wrapped(self._host[_bare(index, arrays=True)], self)

    def __setitem__(self, index: Any, value: Any) -> None:
        with np.errstate(all="ignore"):
            _bare(self)[_bare(index, arrays=True)] = _bare(value)

    def get(self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> Any:
        """A copy on the host."""
        return np.array(self._host, order="A" if order == "A" else order)  # type: ignore[call-overload]

    def copy(self, order: str = "C") -> ndarray:
        """A copy on the current device, whatever the device of the array."""
        return _new(self._host.copy(order))  # type: ignore[arg-type]

    def __dlpack__(self, **options: Any) -> Any:
        # numpy cannot make a capsule of a GPU, so only this file may take one: others get what numpy would say.
        if tuple(options.get("dl_device") or ()) == (1, 0):
            return self.get().__dlpack__()
        if not getattr(_local, "takes", False):
            raise BufferError("Unsupported device in DLTensor.")
        return self._host.__dlpack__(max_version=(1, 0))

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device.id

    def __repr__(self) -> str:
        return repr(self._host)

    def __reduce__(self) -> Any:
        return _new, (self._host,)

    for _name in ("float", "int", "bool", "complex", "index"):
        exec(f"def __{_name}__(self): return self._host.__{_name}__()")
    del _name


def _operator(name: str) -> Callable[[ndarray, Any], Any]:
    function = getattr(np.ndarray, name)

    def operate(self: ndarray, other: Any) -> Any:
        if not isinstance(other, ndarray | int | float | complex | np.generic):
            if isinstance(other, np.ndarray):
                raise TypeError(f"Unsupported type {type(other)}")
            return NotImplemented
        with np.errstate(all="ignore"):
            result = function(_bare(self), _bare(other))
        return result if result is NotImplemented else _wrapped(result, self)

    return operate


def _augmented(name: str) -> Callable[[ndarray, Any], ndarray]:
    function = getattr(np.ndarray, name)

    def operate(self: ndarray, other: Any) -> ndarray:
        with np.errstate(all="ignore"):
            function(_bare(self), _bare(other))
        return self

    return operate


def _unary(name: str) -> Callable[[ndarray], ndarray]:
    return lambda self: _wrapped(getattr(_bare(self), name)(), self)


for _name in _BINARY:
    setattr(ndarray, f"__{_name}__", _operator(f"__{_name}__"))
    setattr(ndarray, f"__r{_name}__", _operator(f"__r{_name}__"))
    if _name != "matmul":
        setattr(ndarray, f"__i{_name}__", _augmented(f"__i{_name}__"))
for _name in _COMPARING:
    setattr(ndarray, f"__{_name}__", _operator(f"__{_name}__"))
for _name in _UNARY:
    setattr(ndarray, f"__{_name}__", _unary(f"__{_name}__"))
ndarray.__hash__ = None  # type: ignore[assignment]
ndarray.__module__ = "cupy"


def _members() -> frozenset[str]:
    if not hasattr(_members, "found"):
        _members.found = frozenset(_table()["ndarray"])  # type: ignore[attr-defined]
    return _members.found  # type: ignore[attr-defined,no-any-return]


def _new(host: np.ndarray[Any, Any]) -> ndarray:
    """An array on the current device, of memory that is counted."""
    owner = host
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    Pool.of(current()).take(owner)
    return ndarray(host, current())


def _wrapped(value: Any, like: ndarray | None = None) -> Any:
    """What numpy gave, on the device: a view of `like` on its device, else new memory."""
    if isinstance(value, tuple):
        made = [_wrapped(v, like) for v in value]
        return type(value)(*made) if hasattr(value, "_fields") else tuple(made)
    if isinstance(value, list):
        return [_wrapped(v, like) for v in value]
    if isinstance(value, np.ndarray | np.generic):
        host = np.asarray(value)
        if like is not None and host.base is not None and np.may_share_memory(host, like._host):
            if like._host.flags.writeable and 0 not in host.strides:
                host.flags.writeable = True  # numpy marks diagonals
            return ndarray(host, like.device.id)
        return _new(host)
    return value


def _bare(value: Any, *, arrays: bool = False) -> Any:
    """What numpy can take. `arrays` allows those of the host: as indices, and where an array is made."""
    if isinstance(value, ndarray):
        if value.device.id != current():
            raise ValueError(
                f"Array device must be same as the current device: array device = {value.device.id} while "
                f"current = {current()}"
            )
        return value._host
    if isinstance(value, np.ndarray) and not arrays:
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, tuple | list):
        return type(value)([_bare(v, arrays=arrays) for v in value])
    return value


#: Functions that take arrays of the host, since they make arrays of the device.
_MAKING = frozenset({"asarray", "array", "ascontiguousarray", "asfortranarray", "asanyarray"})
#: CuPy's sorts are stable, whatever they are told.
_SORTS = frozenset({"sort", "argsort"})


def _call(function: Callable[..., Any], name: str, me: ndarray | None = None) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        made = [_bare(a, arrays=name in _MAKING) for a in arguments]
        given = {key: _bare(a) for key, a in options.items()}
        if name in _SORTS:
            given |= {"kind": "stable"}
        if name in _MAKING and given.get("copy") is None:
            given.pop("copy", None)
        with np.errstate(all="ignore"):
            result = function(*made, **given)
        for out in (options.get("out"), *arguments):
            if isinstance(out, ndarray) and result is out._host:
                return out
        views = [me] if me is not None else [a for a in arguments if isinstance(a, ndarray)]
        return _wrapped(result, views[0] if views else None)

    call.__name__ = name
    return call


# ------------------------------------------------------------------------------------------------------- modules


def _function(module: str, name: str, parameters: list[str] | None, of: Any) -> Callable[..., Any]:
    function = getattr(of, name)
    called = _call(function, name)
    if isinstance(function, np.ufunc):
        for attribute in ("nin", "nout", "nargs"):
            setattr(called, attribute, getattr(function, attribute))
        for method in ("reduce", "accumulate", "outer", "at", "reduceat"):
            setattr(called, method, _call(getattr(function, method), method))
    if parameters is None:
        return called

    def checked(*arguments: Any, **options: Any) -> Any:
        if extra := set(options) - set(parameters):
            raise TypeError(f"{module}.{name}() got an unexpected keyword argument {sorted(extra)[0]!r}")
        if name == "where" and isinstance(arguments[0], bool):
            raise AttributeError("'bool' object has no attribute 'astype'")
        return called(*arguments, **options)

    checked.__name__ = name
    return checked


def _asnumpy(a: Any, stream: Any = None, order: str = "C", out: Any = None, *, blocking: bool = True) -> Any:
    return a.get() if isinstance(a, ndarray) else np.asarray(a)


def _asarray(a: Any, dtype: Any = None, order: Any = None, *, blocking: bool = False, copy: Any = None) -> ndarray:
    """CuPy's: moves an array of another device, and takes whatever numpy takes."""
    if isinstance(a, ndarray):
        if a.device.id == current() and not copy:
            host = np.asarray(a._host, dtype=dtype, order=order)
            return a if host is a._host else _wrapped(host, a)
        return _new(np.array(a._host, dtype=dtype, order=order or "K"))
    if isinstance(a, tuple | list) and any(isinstance(x, ndarray) for x in a):
        return _new(np.array([_bare(x) for x in a], dtype=dtype, order=order or "K"))
    return _new(np.array(a, dtype=dtype, order=order or "K"))


def _array(object: Any, dtype: Any = None, copy: bool = True, **options: Any) -> ndarray:
    return _asarray(object, dtype, copy=copy, order=options.get("order"))


def _from_dlpack(array: Any, **options: Any) -> ndarray:
    kind, index = array.__dlpack_device__()
    if kind != 2:
        raise BufferError("CuPy wants memory of a GPU")
    _local.takes = True
    try:
        capsule = array.__dlpack__(stream=0, max_version=(1, 0))
    finally:
        _local.takes = False
    given = types.SimpleNamespace(__dlpack__=lambda **_: capsule, __dlpack_device__=lambda: (1, 0))
    return ndarray(np.from_dlpack(given), index)


class RawKernel:
    """A kernel of the host's compiler whose arguments are arrays of the stand-in."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.made = host_kernels.RawKernel(*arguments, **options)
        self.compile = self.made.compile

    def __call__(self, grid: Any, block: Any, arguments: Any) -> None:
        self.made(grid, block, tuple([_bare(x) for x in arguments]))


class Stream:
    """A stream of a device: all that is started on it is done."""

    null: Stream

    def __init__(self, *_: Any, **__: Any) -> None:
        self.ptr = 0

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None: ...

    def synchronize(self) -> None:
        """Wait for nothing."""


Stream.null = Stream()


class Event:
    """A moment on a stream, by the host's clock."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.seconds = 0.0

    def record(self, stream: Any = None) -> None:
        """Note the time."""
        import time

        self.seconds = time.perf_counter()

    def synchronize(self) -> None:
        """Wait for nothing."""


def _cuda() -> types.ModuleType:
    cuda = types.ModuleType("cupy.cuda")
    runtime = types.SimpleNamespace(
        getDeviceCount=lambda: Device.count,
        CUDARuntimeError=CUDARuntimeError,
        getDevice=current,
        getDeviceProperties=lambda i: {"name": b"numpy on the host"},
    )
    vars(cuda).update(
        Device=Device,
        Stream=Stream,
        Event=Event,
        runtime=runtime,
        MemoryPool=MemoryPool,
        get_current_stream=lambda: Stream.null,
        get_elapsed_time=lambda a, b: 1e3 * (b.seconds - a.seconds),
        memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    )
    return cuda


def _modules() -> dict[str, types.ModuleType]:
    """Everything that ``import cupy`` and ``import cupyx`` may find."""
    table = _table()
    origins: dict[str, str] = {
        "cupy": "numpy",
        "cupy.linalg": "numpy.linalg",
        "cupy.fft": "numpy.fft",
        "cupyx.scipy.special": "scipy.special",
        "cupyx.scipy.linalg": "scipy.linalg",
        "cupyx.scipy.fft": "scipy.fft",
    }
    made = {name: types.ModuleType(name) for name in (*origins, "cupyx", "cupyx.scipy")}
    for name, origin in origins.items():
        of = importlib.import_module(origin)
        for function, parameters in table[name].items():
            if hasattr(of, function):
                setattr(made[name], function, _function(name, function, parameters, of))
    cupy = made["cupy"]
    for constant in "pi e inf nan newaxis euler_gamma".split():
        setattr(cupy, constant, getattr(np, constant))
    scalars = [n for n in dir(np) if isinstance(getattr(np, n), type) and issubclass(getattr(np, n), np.generic)]
    for kind in (*scalars, "dtype", "finfo", "iinfo"):
        setattr(cupy, kind, getattr(np, kind))
    cupy.bool = np.bool_
    for name in ("array", "asarray", "asnumpy", "from_dlpack"):
        setattr(cupy, name, globals()[f"_{name}"])
    for name in ("ascontiguousarray", "asfortranarray"):
        setattr(cupy, name, lambda a, dtype=None, order="CF"[name == "asfortranarray"]: _asarray(a, dtype, order))
    pool = MemoryPool()
    cupy.ndarray, cupy.cuda = ndarray, _cuda()
    cupy.RawKernel = RawKernel
    cupy.get_default_memory_pool = lambda: pool
    cupy.get_array_module = lambda *xs: cupy if any(isinstance(x, ndarray) for x in xs) else np
    cupy.__version__ = "14.2.0"
    made["cupy.cuda"], made["cupy.cuda.device"] = cupy.cuda, types.ModuleType("cupy.cuda.device")
    made["cupy.cuda.device"].Device = Device  # type: ignore[attr-defined]
    for name, module in made.items():
        parent, _, last = name.rpartition(".")
        module.__path__ = []  # a package, as far as imports ask
        if parent:
            setattr(made[parent], last, module)
    return made


def n_kernels() -> int:
    """How many kernels were compiled since the process began."""
    return host_kernels.counted["kernels"]


@contextlib.contextmanager
def playing(n_gpus: int = 1) -> Iterator[types.ModuleType]:
    """Until the end ``import cupy`` finds the stand-in, with so many GPUs."""
    from distarray.kernels import cupy_backend, devices

    remembered = [f for f in vars(cupy_backend).values() if hasattr(f, "cache_clear")] + [devices._cupy]
    real = _taken_away()
    modules = _modules()
    sys.modules.update(modules)
    Device.count = n_gpus
    Pool.pools.clear()
    for function in remembered:
        function.cache_clear()
    try:
        yield modules["cupy"]
    finally:
        _taken_away()
        sys.modules.update(real)
        for function in remembered:
            function.cache_clear()


def _taken_away() -> dict[str, types.ModuleType]:
    """The modules of CuPy and what is made of them, which are no longer imported."""
    names = [n for n in sys.modules if n.split(".")[0] in ("cupy", "cupyx") or n.startswith("array_api_compat.cupy")]
    return {name: sys.modules.pop(name) for name in names}


def _installed() -> dict[str, Any]:
    """The names of the CuPy that is installed, with the parameters of what is no ufunc."""
    found: dict[str, Any] = {}
    for module in json.loads(NAMES.read_text(encoding="utf-8")):
        if module == "ndarray":
            continue
        of, names = importlib.import_module(module), {}
        for name in sorted(n for n in dir(of) if not n.startswith("_")):
            function = getattr(of, name)
            if isinstance(function, types.ModuleType | type) or not callable(function):
                continue
            try:
                parameters = inspect.signature(function).parameters.values()
            except (TypeError, ValueError):
                parameters = None
            is_open = parameters is None or any(p.kind == p.VAR_KEYWORD for p in parameters)
            names[name] = None if is_open else [p.name for p in parameters or ()]
        found[module] = names
    found["ndarray"] = dir(importlib.import_module("cupy").ndarray)
    return found


if __name__ == "__main__":
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in _installed().items()]
    NAMES.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
