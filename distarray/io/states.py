"""States of programs on disk: arrays written by the members that hold them, replaced as a whole, read where needed.

A state is a folder. Its manifest, ``state.json``, names a folder beside it with the files of the arrays: one for each
block. A new state is written into a new folder; when all of it is on disk, one rename puts its manifest in the place
of the old one. So at any time there is one whole state, and what a writer that died left behind is no part of it: the
next one removes it.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import uuid
import weakref
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from math import prod
from typing import Any, TypeAlias

import numpy as np

from distarray.array.array import DistArray
from distarray.array.environment import TeamLike, environment
from distarray.errors import StateError
from distarray.expr.expr import Environment, Expr, cut_of
from distarray.io.manifest import Arrays, decoded, encoded
from distarray.io.stores import compute_kept
from distarray.kernels.state_files import BlockFiles, path_of, write_bytes, write_file
from distarray.ops.stores import read_store
from distarray.runtime import exports
from distarray.sharding.mesh import Mesh
from distarray.sharding.sharding import Sharding
from distarray.weak import alive

PathLike: TypeAlias = "str | os.PathLike[str]"

MANIFEST = "state.json"
LOCK = ".lock"
FORMAT = 1
_FOLDER = re.compile(r"blocks-[0-9a-f]{32}")

#: What arrays of this process may still read: these folders stay.
_read_here: weakref.WeakSet[BlockFiles] = weakref.WeakSet()
#: By state the folder that was loaded last. A cluster that loses workers may read it anew: it stays as well.
_loaded_last: dict[str, str] = {}


def save_state(path: PathLike, /, **values: Any) -> str:
    """Save arrays and other values together, in the place of the state that was saved there before.

    Computes the arrays, all of them by one plan, as they are at the call, and keeps them where they lie. Each member
    writes its own blocks, each into a file of its own. Whenever the writer is ended, even by a loss of power,
    `load_state` finds the new state or the one before, whole.

    Parameters
    ----------
    path
        A folder, which is made if there is none; on a cluster the same for all workers and the client. Needs room for
        two states.
    **values
        DistArrays, numpy arrays and scalars, numbers, text, bytes, None, random Generators, and lists, tuples and
        dicts of these. Views are saved as arrays of their own. An array that does not fit in memory is computed while
        it is written, by a plan of its own.

    Returns
    -------
    str
        The path of the state, absolute.

    Raises
    ------
    TypeError
        If a value would not come back as it is; nothing has run then.
    StateError
        If somebody else is saving there at this moment; nothing has run then.
    OSError
        If the folder cannot be made or written to. The old state is there as before.

    Examples
    --------
    >>> import distarray as dx, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = dx.save_state(f"{folder}/run", x=dx.arange(4) ** 2, step=7)
    ...     state = dx.load_state(path)
    ...     print(state["x"], state["step"])
    [0 1 4 9] 7
    """
    root = _root(path, "save_state")
    arrays = Arrays([], [])
    body = {name: encoded(value, name, arrays) for name, value in values.items()}
    nodes = [x.__dx_node__() for x in arrays.distributed]
    held = [node.hold() for node in nodes]  # what others write meanwhile takes none of their blocks
    with _alone_in(root):
        _sweep(root)
        folder = f"blocks-{uuid.uuid4().hex}"
        parts = os.path.join(root, folder)
        os.mkdir(parts)
        try:
            compute_kept(nodes)
            state = {
                "folder": folder,
                "arrays": [_written(node, parts, number) for number, node in enumerate(nodes)],
                "host": [_written_here(array, f"{parts}/host.{n}") for n, array in enumerate(arrays.host)],
                "values": body,
            }
            del held
            _publish(root, parts, state)
        except BaseException:
            if not _is_published(root, folder):
                shutil.rmtree(parts, ignore_errors=True)
            raise
        _sweep(root)
    return root


def load_state(path: PathLike, /, *, team: TeamLike = "current", device: str | None = None) -> dict[str, Any]:
    """Return the values that `save_state` saved, by name.

    Arrays are lazy: each part is read by the task that needs it, and every file that is read is verified by its
    checksum. They are cut as they were where the team has the mesh that they lay on; otherwise the planner cuts them.
    Their files stay as long as this process has the arrays, also where the state is replaced; what another process
    replaces is gone.

    Parameters
    ----------
    path
        The folder of the state; on a cluster the same for all workers.
    team, device
        Where the arrays are to live, as for `asarray`: not where they were saved.

    Raises
    ------
    FileNotFoundError
        If nothing is saved there.
    StateError
        If a file of the state is missing, or is not as it was written: it names the file. What is inside of the blocks
        of arrays is seen when they are read.
    """
    root = _root(path, "load_state")
    env = environment(team, device)
    while True:
        state = _manifest(root)
        try:
            return _loaded(root, state, env)
        except StateError:
            if _manifest(root)["folder"] == state["folder"]:  # else it was replaced while it was read
                raise


def _root(path: Any, function: str) -> str:
    try:
        root = os.fsdecode(os.fspath(path))
    except TypeError:
        raise TypeError(f"{function}: {type(path).__name__} is no path of a folder") from None
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", root) and not os.path.isabs(root):
        raise ValueError(
            f"{function}: {root!r} is a URL; a state is replaced by renaming a file, which object stores cannot do: "
            "give a path that the client and all workers see"
        )
    return os.path.realpath(root)


# ------------------------------------------------------------------------------------------------------- writing


def _written(node: Expr, parts: str, number: int) -> dict[str, Any]:
    """Write the blocks of a node, each where it lies, and return what is to be known of them."""
    sharding, checksums = exports.for_each_block(node, write_file, lambda box: (path_of(parts, number, box),))
    cut = cut_of(node)
    return {
        "shape": node.shape,
        "dtype": node.dtype.str,
        "boundaries": sharding.boundaries(node.shape),
        "checksums": checksums,
        "team": _mesh_data(node.env.mesh),
        "cut": None if cut is None else [_mesh_data(cut.mesh), cut.axes, cut.bounds, cut.layout],
    }


def _mesh_data(mesh: Mesh) -> list[Any]:
    return [mesh.names, mesh.sizes] if mesh.owners is None else [mesh.names, mesh.sizes, mesh.owners]


def _written_here(array: np.ndarray[Any, Any], path: str) -> int:
    """Write a numpy array; its checksum."""
    data = BytesIO()
    np.save(data, array, allow_pickle=False)
    return write_bytes(path, data.getbuffer())


def _publish(root: str, parts: str, state: Any) -> None:
    """Put a manifest in the place of the old one, once all that it names is on disk."""
    text = _dumped(state)
    whole = {"format": FORMAT, "checksum": zlib.crc32(text.encode()), "state": state}
    write_bytes(f"{parts}/{MANIFEST}", _dumped(whole).encode())
    _sync(parts)
    _sync(root)
    os.replace(f"{parts}/{MANIFEST}", f"{root}/{MANIFEST}")
    _sync(root)


def _is_published(root: str, folder: str) -> bool:
    """Return whether the state in a folder is the one that is there now."""
    with suppress(OSError):
        return bool(_manifest(root)["folder"] == folder)
    return False


def _dumped(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _sync(folder: str) -> None:
    """See to it that the names in a folder are on disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sweep(root: str) -> None:
    """Remove what is no part of the state: earlier ones, but for what is still read here, and what writers that died
    left behind.
    """
    try:
        current = {_manifest(root)["folder"]}
    except FileNotFoundError:
        current = set()
    except StateError:
        return  # maybe it can be repaired
    stay = current | {os.path.basename(files.folder) for files in alive(_read_here)} | {_loaded_last.get(root)}
    for name in os.listdir(root):
        if _FOLDER.fullmatch(name) and name not in stay:
            # A worker that has lost its client may still write there; then the next one has something to remove.
            shutil.rmtree(os.path.join(root, name), ignore_errors=True)


@contextmanager
def _alone_in(root: str) -> Iterator[None]:
    """Make the folder of a state, and keep other writers out of it; the end of a process lets them in. Raises
    StateError if somebody else writes there.
    """
    import fcntl

    if not os.path.isdir(root):
        os.mkdir(root)
        _sync(os.path.dirname(root))
    fd = os.open(f"{root}/{LOCK}", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateError(
                f"save_state: somebody else is saving to {root}; give each program a state of its own"
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP):
                raise  # file systems without locks have to do without
        yield
    finally:
        os.close(fd)


# ------------------------------------------------------------------------------------------------------- reading


def _manifest(root: str) -> Any:
    """Return what is known of the state in a folder. Raises FileNotFoundError if there is none, StateError if it is
    none of ours, or damaged.
    """
    path = f"{root}/{MANIFEST}"
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(errno.ENOENT, "no state was saved there", path) from None
    try:
        whole = json.loads(data)
        version, state = whole["format"], whole["state"]
        is_whole = zlib.crc32(_dumped(state).encode()) == whole["checksum"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise StateError(f"{path} is damaged, or not the manifest of a state") from None
    if version != FORMAT:
        raise StateError(f"{path} is of version {version} of the format; this distarray reads version {FORMAT}")
    if not is_whole:
        raise StateError(f"{path} is damaged: its checksum is another one")
    return state


def _loaded(root: str, state: Any, env: Environment) -> dict[str, Any]:
    parts = f"{root}/{state['folder']}"
    host = [_read_here_whole(f"{parts}/host.{n}", checksum) for n, checksum in enumerate(state["host"])]
    distributed = [_array(record, parts, n, env) for n, record in enumerate(state["arrays"])]
    if distributed:
        _loaded_last[root] = state["folder"]
    return {name: decoded(value, Arrays(distributed, host)) for name, value in state["values"].items()}


def _mesh(data: Any) -> Mesh:
    return Mesh(*map(tuple, data))


def _cut(record: Any, env: Environment) -> Sharding | None:
    """Return how an array was cut when it was saved; None if it was not, or lay on another mesh than the team has."""
    if record["cut"] is None or _mesh(record["team"]) != env.mesh:
        return None
    mesh, axes, bounds, layout = record["cut"]
    explicit = [None if b is None else tuple(b) for b in bounds]
    return Sharding(_mesh(mesh), tuple(map(tuple, axes)), bounds=tuple(explicit), layout=tuple(layout))


def _array(record: Any, parts: str, number: int, env: Environment) -> DistArray:
    """Return an array of the files of a state, which are all there and as long as they should be."""
    dtype: np.dtype[Any] = np.dtype(record["dtype"])
    shape, bounds = tuple(record["shape"]), tuple(map(tuple, record["boundaries"]))
    files = BlockFiles(parts, number, dtype, bounds, tuple(record["checksums"]))
    _read_here.add(files)
    for box, _ in files.boxes():
        _check_size(files.path(box), prod([hi - lo for lo, hi in box]) * dtype.itemsize)
    return DistArray._on(read_store(shape, dtype, files, env, _cut(record, env)))


def _check_size(path: str, nbytes: int) -> None:
    try:
        found = os.stat(path).st_size
    except FileNotFoundError:
        raise StateError(f"{path}, a part of the state, is missing") from None
    if found != nbytes:
        raise StateError(f"{path} is damaged: it has {found} bytes where its state says {nbytes}")


def _read_here_whole(path: str, checksum: int) -> np.ndarray[Any, Any]:
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except FileNotFoundError:
        raise StateError(f"{path}, a part of the state, is missing") from None
    if zlib.crc32(data) != checksum:
        raise StateError(
            f"{path} is damaged: its checksum is {zlib.crc32(data):08x} where its state says {checksum:08x}"
        )
    found: np.ndarray[Any, Any] = np.load(BytesIO(data), allow_pickle=False)
    return found
