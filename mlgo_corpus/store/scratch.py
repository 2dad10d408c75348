"""Folders for what is needed only while a process runs; those of processes that were killed are removed by the next.

A folder is locked as long as its process, or a worker of it, is alive. Names with process numbers would not do: whoever
is in another container has other ones, and the same temporary folder perhaps.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

SCRATCH_PREFIX: Final = "mlgo-scratch-"
"""What such folders' names begin with."""

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """Give an empty folder, by default in the temporary folder, that only this user may enter; it goes in the end.

    What a compiler does to it, or a daemon that it left, is no error of ours.

    Raises:
        OSError: there can be no such folder.
    """
    place = Path(tempfile.gettempdir()) if parent is None else parent
    _remove_abandoned(place)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=place)).absolute()
        if (descriptor := _lock(folder)) is not None:
            break  # else another process has just taken it for an abandoned one
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _lock(folder: Path) -> int | None:
    """Lock a folder as long as what is returned is open; None if it is gone, or about to go."""
    try:
        descriptor = os.open(folder, _OPEN_FOLDER)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:  # the file system locks no folders: nobody else takes it for abandoned, either
        return descriptor
    if folder.is_dir():
        return descriptor
    os.close(descriptor)
    return None


def _remove_abandoned(place: Path) -> None:
    """Remove the folders of this user that nobody has locked."""
    for folder in place.glob(f"{SCRATCH_PREFIX}*"):
        with suppress(OSError):
            descriptor = os.open(folder, _OPEN_FOLDER)
            try:
                if os.fstat(descriptor).st_uid == os.geteuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
