"""Files that appear under their name when they are complete, and not at all after a failure."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from distarray.runtime.clients import keep_what_reads


@contextmanager
def replacing(path: str) -> Iterator[str]:
    """Yield the name of a new file beside `path`, which takes its place after the block, or is removed if it fails.

    A file that was there keeps its mode; if it has other hard links, the new one is copied into it.

    Raises
    ------
    OSError
        If there is no such folder, or what is there under the name cannot be written to: before the block.
    """
    path = os.path.realpath(path)  # a link stays one, as when it is opened for writing
    old = _to_replace(path)
    # What the name ends in stays, which may say how the file is packed; all of it may be as long as a name can be.
    partial = os.path.join(os.path.dirname(path), f".part.{uuid.uuid4().hex}.{os.path.basename(path)[-50:]}")
    is_only_whole_one = False
    try:
        yield partial
        keep_what_reads(path)
        if old is not None and old.st_nlink > 1:
            # Another file under this name would leave the other names with the old array.
            with open(partial, "rb") as source, open(path, "r+b") as target:
                is_only_whole_one = True
                _copy_over(source, target, f"{path} is overwritten in part; the whole array is in {partial}")
                is_only_whole_one = False
            os.unlink(partial)
            return
        if old is not None:
            os.chmod(partial, stat.S_IMODE(old.st_mode))
        os.replace(partial, path)
    except BaseException:
        if not is_only_whole_one and os.path.exists(partial):
            os.unlink(partial)
        raise


def _to_replace(path: str) -> os.stat_result | None:
    """Return the file that is there under the name of the new one; None if there is none. Raises OSError if it cannot
    be written to, or there is no folder for it.
    """
    try:
        old = os.stat(path)
    except FileNotFoundError:
        if os.path.isdir(os.path.dirname(path)):
            return None
        raise
    if stat.S_ISDIR(old.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(old.st_mode):  # a device, or a pipe
        raise OSError(errno.EINVAL, "no file that a new one could replace; open it, and give the open file", path)
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    return old


def _copy_over(source: BinaryIO, target: BinaryIO, said: str) -> None:
    """Copy a file over another one; errors tell what is then said of both."""
    try:
        shutil.copyfileobj(source, target, 1 << 20)
        target.truncate()
        target.flush()
    except OSError as error:
        said = f"{error.strerror or error}: {said}"
        raise (OSError(error.errno, said) if error.errno else OSError(said)) from None
    except BaseException as error:
        error.add_note(said)
        raise
