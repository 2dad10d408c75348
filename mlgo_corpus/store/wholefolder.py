"""A folder that appears under its name when all that is in it is whole.

Until then it is ``.NAME.making`` beside the folder it will be, so that a kill leaves nothing under the final name.
What it replaces is ``.NAME.old`` for the moment between two renames: a run that is killed there has lost nothing, and
the next one gives it back its name. Who has ``.NAME.lock`` may do all this; a file, since not every file system lets
a folder be locked.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from mlgo_corpus.errors import MlgoCorpusError, UsageError, os_reason
from mlgo_corpus.store.regularfile import MAX_NOTE_BYTES, read_regular

# What the files of datasets and corpora are called.
_SUFFIXES = frozenset({".parquet", ".json", ".md", ".bc", ".cmd"})


@contextmanager
def whole_folder(output: Path, *, replace: Callable[[], bool] = lambda: False) -> Iterator[Path]:
    """Give an empty folder to fill; it becomes ``output`` when the block ends well, and goes if it does not.

    Where ``output`` is a symbolic link, that stays, and what it leads to is made.

    Args:
        output: the folder to make: not there, or empty.
        replace: tells whether ``output`` may hold something, which goes then. It is asked when no other process can
            make the folder any more: what its answer hangs on does not change, and it may raise instead.

    Raises:
        UsageError: it cannot be made there, or another process is making it.
        MlgoCorpusError: it cannot be given its name.
        OSError: the block's own.
    """
    real = _real(output)
    if real.exists() and real.samefile("."):
        raise UsageError(f"{output}: is the folder we are in; name another")
    making, old = _making(real), _old(real)
    missing = [folder for folder in real.parents if not folder.exists()]
    try:
        with ExitStack() as lock:
            with _beginning(real):
                real.parent.mkdir(parents=True, exist_ok=True)
                lock.enter_context(locked(_lock(real), output))
            try:
                with _beginning(making):
                    _restore(real)
                    may_replace = replace()
                    _remove(old)
                    _remove(making)
                    making.mkdir()
                yield making
                try:
                    _publish(making, real, old, replace=may_replace)
                except OSError as error:
                    raise MlgoCorpusError(f"cannot write {output}: {_why_not_renamed(error)}") from error
            finally:
                with suppress(OSError):
                    _remove(making)
                if real.exists():  # else it is what nobody could put back
                    with suppress(OSError):
                        _remove(old)
    finally:
        _remove_empty(missing)


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove folders that were made for an output that is not there, the innermost first."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def replaces_own(output: Path, about: str, made_by: str, *, force: bool) -> Callable[[], bool]:
    """Give what to tell `whole_folder` of a folder that is replaced only with ``force``, and only if a verb made it.

    Args:
        output: the folder.
        about: the file in which the verb says that it made the folder.
        made_by: the verb, as the file says it under ``made_by``.
        force: whether it may be replaced.
    """

    def replace() -> bool:
        if not output.exists():
            return False
        if not output.is_dir():
            raise UsageError(f"{output}: a file is in the folder's place")
        if any(output.iterdir()):
            if not _says(output / about, made_by):
                raise UsageError(f"{output}: is not empty, and not made by {made_by}; name another folder")
            if not force:
                raise UsageError(f"{output}: is there already; --force replaces it")
        return True

    return replace


def _says(about: Path, made_by: str) -> bool:
    try:
        said = json.loads(read_regular(about, MAX_NOTE_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(said, dict) and said.get("tool") == "mlgo-corpus" and said.get("made_by") == made_by


def check_file(output: Path, inputs: Iterable[Path], instead: str, *, force: bool) -> None:
    """See to it that a file may be made: what is there is replaced only with ``force``, and never what is read.

    Args:
        output: the file to make.
        inputs: what it is made of: files, and folders with all that is in them.
        instead: what to do where it is a folder.
        force: whether a file that is there may be replaced; what is no file, such as a device, may not.

    Raises:
        UsageError: it may not be made, or cannot be looked at.
    """
    with _beginning(output):
        if output.is_dir():
            raise UsageError(f"{output}: is a folder; {instead}")
        if not os.path.lexists(output):
            _check_folder(output.parent)
            return
        if output.exists() and not output.is_file():
            raise UsageError(f"{output}: is neither a file nor a folder; name another output")
        if any(_belongs(output, source) for source in inputs):
            raise UsageError(f"{output}: is what is to be read, or a part of it; name another output")
    if not force:
        raise UsageError(f"{output}: is there already; --force replaces it")


def _check_folder(folder: Path) -> None:
    """See before the work begins that a folder is there, or can be made, and may be written to."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise UsageError(f"{folder}: is a file; a folder is needed there")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{folder}: cannot write there: Permission denied")


def _belongs(output: Path, source: Path) -> bool:
    """Tell whether a file is another one, or in a folder and of a kind that datasets and corpora have there."""
    if not output.exists() or not source.exists():
        return False
    if source.is_dir():
        return output.suffix in _SUFFIXES and output.resolve().is_relative_to(source.resolve())
    return output.samefile(source)


@contextmanager
def work_folder(output: Path) -> Iterator[Path]:
    """Give an empty folder beside a file that is to be made, for work under way; it goes after the block.

    What a run that was killed left there goes first.

    Raises:
        UsageError: it cannot be made, or another process is making the file.
    """
    making = _making(output)
    missing = [folder for folder in output.parents if not folder.exists()]
    try:
        with ExitStack() as lock:
            with _beginning(output):
                output.parent.mkdir(parents=True, exist_ok=True)
                lock.enter_context(locked(_lock(output), output))
            with _beginning(making):
                _remove(making)
                making.mkdir()
            try:
                yield making
            finally:
                with suppress(OSError):
                    _remove(making)
    finally:
        _remove_empty(missing)


def recover(output: Path) -> None:
    """Put right what a run that was killed has left beside a folder. To be called before one looks at the folder.

    Nothing is done while another process is making it, and where nothing can be done; `whole_folder` tells of both.
    """
    real = _real(output)
    if any(os.path.lexists(path) for path in (_lock(real), _making(real), _old(real))):
        with suppress(OSError, UsageError), locked(_lock(real), output):
            _restore(real)
            _remove(_making(real))
            _remove(_old(real))


@contextmanager
def locked(path: Path, output: Path) -> Iterator[None]:
    """Keep other processes from making the same ``output``, by a file that is there in the meantime.

    Raises:
        UsageError: another process makes it.
        OSError: the file cannot be made.
    """
    while True:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same_file(descriptor, path):
                break
        except BlockingIOError as error:
            os.close(descriptor)
            raise UsageError(f"{output}: another mlgo-corpus is making it; wait for it") from error
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the one before took it away between our two steps
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _real(output: Path) -> Path:
    real = Path(os.path.realpath(output))
    if not real.name:
        raise UsageError(f"{output}: not a folder that can be made; name another")
    return real


def _making(real: Path) -> Path:
    return real.with_name(f".{real.name}.making")


def _old(real: Path) -> Path:
    return real.with_name(f".{real.name}.old")


def _lock(real: Path) -> Path:
    return real.with_name(f".{real.name}.lock")


@contextmanager
def _beginning(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"{error.filename or path}: cannot write there: {os_reason(error)}") from error


def _restore(real: Path) -> None:
    """Give back its name to what a run was about to replace when it was killed."""
    old = _old(real)
    if old.is_dir() and not os.path.lexists(real):
        old.rename(real)


def _publish(making: Path, real: Path, old: Path, *, replace: bool) -> None:
    if replace and real.is_dir():
        real.rename(old)
    try:
        making.rename(real)  # also in place of an empty folder
    except BaseException:
        if not real.exists() and old.exists():
            old.rename(real)
        raise


def _why_not_renamed(error: OSError) -> str:
    if error.errno == errno.EBUSY:
        return f"{os_reason(error)}; is it a mount point? name a folder in it"
    return os_reason(error)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def find_stranger(folder: Path, known: Container[str], *, below: frozenset[str] = frozenset()) -> str | None:
    """Find a file in a folder that is not one of those known, by its path in the folder; None if there is none.

    Args:
        folder: where to look.
        known: the paths of files that belong there.
        below: names in the folder, below which everything belongs there.
    """
    for where, folders, files in os.walk(folder):
        inside = os.path.relpath(where, folder)
        prefix = "" if inside == "." else f"{inside}/"
        folders[:] = sorted(name for name in folders if prefix or name not in below)
        links = (name for name in folders if os.path.islink(os.path.join(where, name)))
        for name in (*sorted(files), *links):
            if prefix + name not in known:
                return prefix + name
    return None
