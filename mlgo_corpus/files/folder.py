"""Folders that get their names when they are complete, and files that get theirs together.

Until then a folder is ``.NAME.making`` beside the final folder, so that a kill leaves nothing under the final name.
The folder that it replaces is ``.NAME.old`` between two renames: a run that is killed there has lost nothing, and the
next run restores the name.

Files of a folder that also holds others are made in ``.NAME.making`` as well, where NAME is the name of one of them,
and then moved (`mlgo_corpus.files.atomic`).

The holder of ``.NAME.lock`` may do all this; it is a file, since not every file system can lock a folder. It is empty
until everything is complete, and then holds the list of moves; that of a folder is ``[[".", NAME]]``. It is removed
last: as long as it exists, the run that wrote it has not reported success.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from mlgo_corpus.errors import MlgoCorpusError, UsageError
from mlgo_corpus.files.atomic import (
    Move,
    check_inside,
    checked_moves,
    list_moves,
    make_moves,
    remove,
    write_atomically,
    writing,
)
from mlgo_corpus.files.lock import claim, open_locked
from mlgo_corpus.files.regular import MAX_NOTE_BYTES, read_regular
from mlgo_corpus.files.text import is_disk_full, os_reason

WORK_LOCK: Final = "lock"
"""The name of the lock of a folder for work under way."""

WORK_KEY: Final = "key.json"
"""The name of the file with the key of such a folder; see `keep_work_of`."""

WORK_JOURNALS: Final = "rows-*.jsonl"
"""The names of the journals of outcomes in such a folder; see `mlgo_corpus.runs.over`."""

# The folder itself in a list of moves.
_WHOLE = "."
# Larger than any list that is written: a million names of 200 bytes.
_MOST_MOVES_BYTES = 256 << 20
# The suffixes of the files of datasets, corpora and policies.
_SUFFIXES = frozenset({".parquet", ".json", ".jsonl", ".md", ".bc", ".cmd", ".npz"})
# The first bytes of a file, in which its mark is looked for.
_MARKED_BYTES = 4096


@contextmanager
def whole_folder(output: Path, *, replace: Callable[[], bool] = lambda: False) -> Iterator[Path]:
    """Yield an empty folder to fill; it becomes ``output`` if the block succeeds, and is removed if it fails.

    If ``output`` is a symbolic link, the link stays, and the folder that it leads to is made.

    Args:
        output: the folder to make: missing or empty.
        replace: returns True if ``output`` may have contents, which are then removed. It is called under the lock,
            so that no other process makes the folder after the answer; it may raise instead.

    Raises:
        UsageError: the folder cannot be made there, or another process is making it.
        MlgoCorpusError: the folder cannot be renamed to ``output``.
        OSError: raised by the block.
    """
    real = _real_elsewhere(output)
    making, old = _making(real), _old(real)
    missing = [folder for folder in real.parents if not folder.exists()]
    try:
        with ExitStack() as stack:
            with _beginning(real):
                real.parent.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context(_held(_lock(real), output))
            try:
                with _beginning(making):
                    lock.clear()
                    _restore(real)
                    may_replace = replace()
                    remove(old)
                    remove(making)
                    making.mkdir()
                yield making
                try:
                    lock.write([(_WHOLE, real.name)])
                    _publish(making, real, old, replace=may_replace)
                except OSError as error:
                    raise MlgoCorpusError(f"cannot write {output}: {_why_not_renamed(error)}") from error
            finally:
                if os.path.lexists(making):
                    with suppress(OSError):
                        lock.clear()
                        remove(making)
                if real.exists():  # else it is the only copy, which could not be renamed back
                    with suppress(OSError):
                        remove(old)
            lock.done()
    finally:
        _remove_empty(missing)


def _real_elsewhere(output: Path) -> Path:
    """Return what `_real` does, unless that is the current folder, which cannot be renamed or replaced."""
    real = _real(output)
    if real.exists() and real.samefile("."):
        raise UsageError(f"{output}: is the current folder; name another")
    return real


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove the folders that were made for an output that does not exist, the innermost first."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def replaces(
    output: Path, is_ours: Callable[[], bool], otherwise: str, *, files: Sequence[str], force: bool
) -> Callable[[], bool]:
    """Return the ``replace`` of `whole_folder` that allows it only with ``force``, and only for a folder of our own.

    Args:
        output: the folder.
        is_ours: tells whether the folder, which has contents, is such a one.
        otherwise: what to say of a folder that is not: ``not an earlier relink``.
        files: the paths of all files that such a folder may have, as patterns of `fnmatch`. With any other file in it
            the folder is not replaced: it would be lost.
        force: whether the folder may be replaced.
    """

    def replace() -> bool:
        if not output.exists():
            return False
        if not output.is_dir():
            raise UsageError(f"{output}: expected a folder, found a file")
        if any(output.iterdir()):
            if not is_ours():
                raise UsageError(f"{output}: is not empty, and {otherwise}; name another folder")
            if not force:
                raise UsageError(f"{output}: is there already; `force` replaces it")
            if (stranger := find_stranger(output, _Matching(files))) is not None:
                raise UsageError(f"{output}: {stranger} is not part of it, and would be lost; name another folder")
        return True

    return replace


class _Matching:
    """The paths that match one of a few patterns."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = patterns

    def __contains__(self, path: object) -> bool:
        return any(fnmatchcase(str(path), pattern) for pattern in self._patterns)


def replaces_own(output: Path, files: Sequence[str], made_by: str, *, force: bool) -> Callable[[], bool]:
    """Return what `replaces` does, for a folder that a verb made.

    Args:
        output: the folder.
        files: the files of the folder, see `replaces`; the first is the JSON file in which the verb describes it.
        made_by: the verb that must have made the folder, as that file names it under ``made_by``.
        force: whether the folder may be replaced.
    """
    otherwise = f"not made by {made_by}"
    return replaces(output, lambda: _was_made_by(output / files[0], made_by), otherwise, files=files, force=force)


def check_folder(folder: Path, *, known: Sequence[str], force: bool) -> None:
    """Check, before the work begins, that `write_folder` may write a folder; for the arguments see there.

    Raises:
        UsageError: it may not.
    """
    recover(folder)
    with _beginning(folder):
        _check_folder(_real_elsewhere(folder).parent)
        _replaces_known(folder, known, force=force)()


def write_folder(folder: Path, files: Mapping[str, bytes], *, known: Sequence[str], force: bool) -> None:
    """Write a folder of a few files as a whole; with ``force``, another such folder is replaced.

    Args:
        folder: the folder.
        files: the content of each file.
        known: the files that such a folder may have; the first tells it from any other.
        force: whether to replace one.

    Raises:
        UsageError: something is there, or the folder cannot be written.
        MlgoCorpusError: the folder cannot get its name.
    """
    recover(folder)
    with _beginning(folder), whole_folder(folder, replace=_replaces_known(folder, known, force=force)) as making:
        for name, data in files.items():
            (making / name).write_bytes(data)


def _replaces_known(folder: Path, known: Sequence[str], *, force: bool) -> Callable[[], bool]:
    otherwise = f"has no {known[0]}"
    return replaces(folder, lambda: (folder / known[0]).is_file(), otherwise, files=known, force=force)


def _was_made_by(about: Path, made_by: str) -> bool:
    said = read_note(about)
    return isinstance(said, dict) and said.get("tool") == "mlgo-corpus" and said.get("made_by") == made_by


def check_file(output: Path, inputs: Iterable[Path], instead: str, *, mark: bytes = b"", force: bool) -> None:
    """Check that a file may be made: an existing file is replaced only with ``force``, and an input never.

    Args:
        output: the file to make.
        inputs: what it is made from: files, and folders with their contents.
        instead: what the user should do if ``output`` is a folder.
        mark: what such a file has in its first bytes; a file without it is not replaced, unless it is empty.
        force: whether an existing file may be replaced; anything else, such as a device, may not.

    Raises:
        UsageError: the file may not be made, or cannot be looked at.
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
            raise UsageError(f"{output}: is an input, or a part of one; name another output")
        if mark and output.exists():
            with output.open("rb") as file:
                head = file.read(_MARKED_BYTES)
            if head and mark not in head:
                raise UsageError(f"{output}: is there already, and something else; name another output")
    if not force:
        raise UsageError(f"{output}: is there already; `force` replaces it")


def _check_folder(folder: Path) -> None:
    """Check before the work begins that a folder exists or can be made, and is writable."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        raise UsageError(f"{folder}: expected a folder, found a file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"{folder}: cannot write there: Permission denied")


def _belongs(output: Path, source: Path) -> bool:
    """Return True if ``output`` is the source file, or a file of a dataset or corpus below the source folder."""
    if not output.exists() or not source.exists():
        return False
    if source.is_dir():
        return output.suffix in _SUFFIXES and output.resolve().is_relative_to(source.resolve())
    return output.samefile(source)


class _NewFiles:
    """Files that get their names together; made by `whole_files`.

    Attributes:
        folder: where they are until then; anything else made in it is removed in the end.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder
        self._root = root
        self._removed: list[Move] = []
        self._made: list[Move] = []

    @property
    def moves(self) -> list[Move]:
        """The moves to make when all files are complete."""
        return [*self._removed, *self._made]

    def make(self, place: Path) -> Path:
        """Return the path at which to make the file that becomes ``place``.

        Raises:
            UsageError: ``place`` cannot be a file.
        """
        self._check(place)
        name = str(len(self._made))
        self._made.append((name, str(place.relative_to(self._root))))
        return self.folder / name

    def remove(self, place: Path) -> None:
        """Have a file removed before the others are moved, because it would contradict them in the meantime."""
        self._removed.append((None, str(place.relative_to(self._root))))

    def _check(self, place: Path) -> None:
        with _beginning(place):
            check_inside(self._root, place)
            if place.is_dir():
                raise UsageError(f"{place}: expected a file, found a folder")
            folder = next(folder for folder in place.parents if folder.exists())
            _check_folder(folder)


@contextmanager
def whole_files(anchor: Path) -> Iterator[_NewFiles]:
    """Yield an object that makes files; they get their names together if the block succeeds, else they are removed.

    The moves that an interrupted run left are made first; see `finish_moves`.

    Args:
        anchor: one of the files, or a name that stands for them; it names the lock. All files are in its folder or
            below.

    Raises:
        UsageError: the files cannot be made there, or another process is making them.
        MlgoCorpusError: the files cannot be moved; the next call goes on with that.
        OSError: raised by the block.
    """
    making = _making(anchor)
    missing = [folder for folder in anchor.parents if not folder.exists()]
    try:
        with ExitStack() as stack:
            with _beginning(anchor):
                anchor.parent.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context(_held(_lock(anchor), anchor))
                _go_on(anchor, lock)
                lock.clear()
                making.mkdir()
            files = _NewFiles(making, anchor.parent)
            try:
                yield files
                if files.moves:
                    lock.write(files.moves)
            except BaseException:
                with suppress(OSError):
                    lock.clear()
                    remove(making)
                raise
            with writing(anchor):
                make_moves(files.moves, making, anchor.parent)
                remove(making)
            lock.done()
    finally:
        _remove_empty(missing)


def finish_moves(anchor: Path) -> frozenset[Path]:
    """Finish the moves of an interrupted `whole_files`. Call this before looking at such files.

    Do nothing if another process is making the files, or if nothing can be done; `whole_files` reports both.

    Returns:
        The files that the interrupted run made: it did not report them.
    """
    made: frozenset[Path] = frozenset()
    if anchor.name and any(os.path.lexists(path) for path in (_lock(anchor), _making(anchor))):
        with suppress(OSError, UsageError), _held(_lock(anchor), anchor) as lock:
            made = _go_on(anchor, lock)
            lock.done()
    return made


def _go_on(anchor: Path, lock: _Lock) -> frozenset[Path]:
    """Make the listed moves; remove files that were not complete."""
    making = _making(anchor)
    moves = lock.moves()
    if moves and not making.is_symlink():
        make_moves(moves, making, anchor.parent)
    remove(making)
    return frozenset(anchor.parent / place for source, place in moves if source is not None)


def recover(output: Path) -> bool:
    """Clean up what a killed run left beside a folder. Call this before looking at the folder.

    Do nothing if another process is making the folder, or if nothing can be done; `whole_folder` reports both.

    Returns:
        Whether the killed run had completed the folder but not reported it.
    """
    real = _real(output)
    if any(os.path.lexists(path) for path in (_lock(real), _making(real), _old(real))):
        with suppress(OSError, UsageError), _held(_lock(real), output) as lock:
            made = lock.moves() == [(_WHOLE, real.name)] and not os.path.lexists(_making(real)) and real.is_dir()
            if not made:
                lock.clear()
            _restore(real)
            remove(_making(real))
            remove(_old(real))
            lock.done()
            return made
    return False


class _Lock:
    """A lock file that this process holds; it is removed on release, unless it holds moves that are not all made."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.holds_moves = os.fstat(descriptor).st_size > 0

    def moves(self) -> list[Move]:
        """Return the moves in the file; none if its content is not a list of moves."""
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_MOVES_BYTES:
            return []
        try:
            return checked_moves(json.loads(os.pread(self._descriptor, status.st_size, 0))) or []
        except (ValueError, RecursionError):  # it was not written to its end, so nothing was moved
            return []

    def write(self, moves: Sequence[Move]) -> None:
        """Write the list of moves; from now on they are made, by this run or the next."""
        data = list_moves(moves)
        self.holds_moves = True
        written = 0
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], written)

    def clear(self) -> None:
        """Empty the list: no move was made, or all were, and others may follow."""
        self.holds_moves = False
        os.ftruncate(self._descriptor, 0)

    def done(self) -> None:
        """Have the file removed with its moves: if a kill prevents that, the next run sees that they were made."""
        self.holds_moves = False


@contextmanager
def _held(path: Path, output: Path) -> Iterator[_Lock]:
    """Hold the lock file that keeps other processes from making the same ``output``.

    Raises:
        UsageError: another process is making it.
        OSError: the lock file cannot be made.
    """
    descriptor = claim(path, f"{output}: another mlgo-corpus is making it")
    lock = _Lock(descriptor)
    try:
        yield lock
    finally:
        try:
            if not lock.holds_moves:
                with suppress(OSError):
                    path.unlink()
        finally:
            os.close(descriptor)


def _real(output: Path) -> Path:
    real = Path(os.path.realpath(output))
    if not real.name:
        raise UsageError(f"{output}: cannot be made as a folder; name another")
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
        # The user did not name the temporary files beside the path: show the path itself.
        beside = path.name and error.filename in map(str, (_lock(path), _making(path), _old(path)))
        place = path if beside else error.filename or path
        kind = MlgoCorpusError if is_disk_full(error) else UsageError  # the request is fine
        raise kind(f"{place}: cannot write there: {os_reason(error)}") from error


def _restore(real: Path) -> None:
    """Restore the name of a folder that a killed run was about to replace."""
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


@contextmanager
def work_folder(work: Path, key: Any, busy: str, *, fresh: bool = False) -> Iterator[None]:
    """Make a folder for work under way, or go on with that of an interrupted run of the same key, and lock it.

    Args:
        work: the folder.
        key: whatever the work depends on; see `keep_work_of`.
        busy: the message if another process has the folder: ``PATH: another mlgo-corpus is writing it``.
        fresh: whether to keep nothing of another run in any case.

    Raises:
        UsageError: it cannot be made, is a symbolic link, or another process has it.
        OSError: something in it cannot be removed or written; also raised by the block.
    """
    with _beginning(work):
        check_inside(work.parent, work / WORK_LOCK)  # what a link leads to is not ours to remove
        work.mkdir(parents=True, exist_ok=True)
    lock = open_locked(work / WORK_LOCK, busy)
    try:
        keep_work_of(json.loads(json.dumps(key)), work, fresh=fresh)
        yield
    finally:
        os.close(lock)


def keep_work_of(key: Any, work: Path, *, fresh: bool = False) -> None:
    """Remove what a work folder holds unless it was made for the same key; the caller holds its lock.

    Args:
        key: whatever the work depends on, as JSON has it; kept in the folder (`WORK_KEY`).
        work: the folder.
        fresh: whether to keep nothing in any case.

    Raises:
        OSError: something cannot be removed or written.
    """
    if fresh or read_note(work / WORK_KEY) != key:
        for path in work.iterdir():
            if path.name != WORK_LOCK:
                remove(path)
    write_atomically(work / WORK_KEY, json.dumps(key).encode())


def read_note(path: Path) -> Any:
    """Return the value of a small JSON file; None if there is none."""
    try:
        return json.loads(read_regular(path, MAX_NOTE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None


def folder_with(text: str, name: str) -> Path | None:
    """Return the folder of this name, absolute, if it has a file of that name in it; else None."""
    path = Path(text)
    try:
        return path.absolute() if (path / name).is_file() else None
    except (OSError, ValueError):  # a name that no file can have
        return None


def walk(
    root: str | Path, refuse: Callable[[OSError], object] | None = None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield what `os.walk` yields from the top down, also of folders deeper than calls can be (until Python 3.12)."""
    waiting = [os.fspath(root)]
    while waiting:
        for where, folders, files in os.walk(waiting.pop(), onerror=refuse):
            yield where, folders, files
            paths = (os.path.join(where, name) for name in reversed(folders))
            waiting += (path for path in paths if not os.path.islink(path))
            break


def find_stranger(folder: Path, known: Container[str], *, below: frozenset[str] = frozenset()) -> str | None:
    """Return the path, within a folder, of the first file that does not belong there; None if all do.

    Args:
        folder: where to look.
        known: the paths of files that belong there.
        below: names in the folder, below which every file belongs there.
    """
    for where, folders, files in walk(folder):
        inside = os.path.relpath(where, folder)
        prefix = "" if inside == "." else f"{inside}/"
        folders[:] = sorted(name for name in folders if prefix or name not in below)
        links = (name for name in folders if os.path.islink(os.path.join(where, name)))
        for name in (*sorted(files), *links):
            if prefix + name not in known:
                return prefix + name
    return None
