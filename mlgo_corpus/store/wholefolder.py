"""A folder that appears under its name when all that is in it is whole."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from mlgo_corpus.errors import MlgoCorpusError, UsageError, os_reason


@contextlib.contextmanager
def whole_folder(output: Path, *, replace: bool = False) -> Iterator[Path]:
    """Give an empty folder to fill; it becomes ``output`` when the block ends well, and goes if it does not.

    It lies beside ``output``, hidden, as ``.NAME.making``. Where a run was killed it stays, and the next one starts
    over in it.

    Args:
        output: the folder to make: not there, or empty.
        replace: whether ``output`` may hold something, which goes then.

    Raises:
        UsageError: it cannot be made there, or another process is making it.
        MlgoCorpusError: it cannot be given its name.
    """
    real, making, old = _names(output)
    if real.exists() and real.samefile("."):
        raise UsageError(f"{output}: is the folder we are in; name another")
    missing = [folder for folder in real.parents if not folder.exists()]
    lock = None
    try:
        try:
            making.mkdir(parents=True, exist_ok=True)
            lock = _lock(making, output)
            shutil.rmtree(old, ignore_errors=True)
            _empty(making)
        except OSError as error:
            raise UsageError(f"{error.filename or making}: cannot write there: {os_reason(error)}") from error
        yield making
        try:
            if replace and real.exists():
                real.rename(old)
            making.rename(real)
        except OSError as error:
            raise MlgoCorpusError(f"cannot write {output}: {os_reason(error)}") from error
        shutil.rmtree(old, ignore_errors=True)
    finally:
        if lock is not None:
            shutil.rmtree(making, ignore_errors=True)
            os.close(lock)
        if not real.exists():
            for folder in missing:
                with contextlib.suppress(OSError):
                    folder.rmdir()


def undo_replacement(output: Path) -> None:
    """Put back what a run was about to replace when it was killed, between two renames. To be called before one looks.

    Raises:
        UsageError: another process is making the folder, or it cannot be put back.
    """
    real, making, old = _names(output)
    if real.exists() or not old.is_dir():
        return
    try:
        lock = _lock(making, output) if making.is_dir() else None
        try:
            old.rename(real)
        finally:
            if lock is not None:
                os.close(lock)
    except OSError as error:
        raise UsageError(f"{output}: cannot write there: {os_reason(error)}") from error


def _names(output: Path) -> tuple[Path, Path, Path]:
    """Give the folder itself, and the names of what is made and of what goes, both beside it."""
    real = Path(os.path.realpath(output))
    if not real.name:
        raise UsageError(f"{output}: not a folder that can be made; name another")
    return real, real.with_name(f".{real.name}.making"), real.with_name(f".{real.name}.old")


def _lock(folder: Path, output: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), os.stat(folder)):  # it has just been given its name
            raise BlockingIOError
    except OSError as error:
        os.close(descriptor)
        raise UsageError(f"{output}: another mlgo-corpus is making it; wait for it") from error
    return descriptor


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def find_stranger(folder: Path, known: frozenset[str], *, below: frozenset[str] = frozenset()) -> str | None:
    """Find a file in a folder that is not one of those known, by its path in the folder; None if there is none.

    Args:
        folder: where to look.
        known: the paths of files that belong there.
        below: names in the folder, below which everything belongs there.
    """
    for where, folders, files in os.walk(folder):
        inside = os.path.relpath(where, folder)
        prefix = "" if inside == "." else f"{inside}/"
        if not prefix:
            folders[:] = [name for name in folders if name not in below]
        for name in (*files, *(name for name in folders if os.path.islink(os.path.join(where, name)))):
            if prefix + name not in known:
                return prefix + name
    return None
