"""Locks between processes: the only module that calls ``flock``.

The system frees a lock when the last descriptor of its file is closed, even if the process is killed, so that no lock
is ever left behind.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mlgo_corpus.errors import UsageError
from mlgo_corpus.files.text import os_reason

# Never follow a link in the file's place, and never wait for the other side of a pipe.
_OPEN_FILE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_locked(path: Path, busy: str, *, waiting: Callable[[], None] | None = None) -> int:
    """Open a file, created if missing, and lock it; return the descriptor, which the caller closes.

    Args:
        path: the file.
        busy: the message if another process has the lock: ``PATH: another mlgo-corpus is writing it``.
        waiting: called once before waiting for another process that has the lock; by default, do not wait.

    Raises:
        UsageError: another process has the lock, and there is no ``waiting``; or the file system has no locks.
        OSError: the file cannot be opened.
    """
    descriptor = os.open(path, _OPEN_FILE, 0o666)
    try:
        _lock_descriptor(descriptor, busy, waiting)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock_descriptor(descriptor: int, busy: str, waiting: Callable[[], None] | None) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        if waiting is None:
            raise UsageError(f"{busy}; wait for it") from error
        waiting()
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        raise UsageError(f"{busy.partition(': ')[0]}: cannot be locked: {os_reason(error)}") from error


def claim(path: Path, busy: str, *, waiting: Callable[[], None] | None = None) -> int:
    """Open and lock a lock file that its owners remove; return the descriptor, as `open_locked` does.

    If the previous owner removed the file before it was locked here, begin again with a new file. The arguments and
    errors are those of `locked`.
    """
    while True:
        if waiting is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = open_locked(path, busy, waiting=waiting)
        except FileNotFoundError:
            if waiting is None:
                raise
            continue  # the folder above it was removed meanwhile
        if _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)


@contextmanager
def locked(path: Path, busy: str, *, waiting: Callable[[], None] | None = None) -> Iterator[int]:
    """Hold a lock file, which is removed in the end; yield its descriptor.

    Args:
        path: of the lock file. With ``waiting``, the folders above it are made.
        busy: the message if another process has the lock.
        waiting: called once before waiting for another process that has the lock; by default, do not wait.

    Raises:
        UsageError: another process has the lock, and there is no ``waiting``; or the file system has no locks.
        OSError: the file cannot be made.
    """
    descriptor = claim(path, busy, waiting=waiting)
    try:
        yield descriptor
    finally:
        try:
            with suppress(OSError):
                path.unlink()
        finally:
            os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def lock_folder(folder: Path, *, needed: bool = True) -> int | None:
    """Lock a folder for as long as the returned descriptor is open; None if it is gone, or locked by another process.

    Args:
        folder: the folder.
        needed: whether a file system that cannot lock folders is an error; else the folder is only opened.

    Raises:
        OSError: the folder cannot be opened, or cannot be locked.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:
        if needed:
            os.close(descriptor)
            raise
    if folder.is_dir():
        return descriptor
    os.close(descriptor)
    return None
