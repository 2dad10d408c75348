"""Folders that appear under their names when all that is in them is whole, and files that do so together.

Until then a folder is ``.NAME.making`` beside the folder it will be, so that a kill leaves nothing under the final
name. What it replaces is ``.NAME.old`` for the moment between two renames: a run that is killed there has lost nothing,
and the next one gives it back its name.

Files of a folder that holds others, too, are made in such a ``.NAME.making``, too, where NAME is that of one of them,
and then moved (`mlgo_corpus.files.moves`).

Who has ``.NAME.lock`` may do all this; a file, since not every file system lets a folder be locked. It is empty until
all is whole, and then holds the list of moves; that of a folder is ``[[".", NAME]]``. It is removed last: as long as it
is there, the run that wrote it has told nobody that it was done.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from mlgo_corpus.errors import MlgoCorpusError, UsageError
from mlgo_corpus.files.lock import claim
from mlgo_corpus.files.moves import Move, check_inside, checked_moves, list_moves, make_moves
from mlgo_corpus.files.regular import MAX_NOTE_BYTES, read_regular
from mlgo_corpus.files.text import os_reason

# Stands in a list of moves for the folder itself.
_WHOLE = "."
# Longer than any list of ours: a million names of 200 bytes.
_MOST_MOVES_BYTES = 256 << 20
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
        with ExitStack() as stack:
            with _beginning(real):
                real.parent.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context(_held(_lock(real), output))
            try:
                with _beginning(making):
                    lock.clear()
                    _restore(real)
                    may_replace = replace()
                    _remove(old)
                    _remove(making)
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
                        _remove(making)
                if real.exists():  # else it is what nobody could put back
                    with suppress(OSError):
                        _remove(old)
            lock.done()
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


class NewFiles:
    """Files that get their names together; use `whole_files`.

    Attributes:
        folder: where they are until then; what else is made in it goes in the end.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder = folder
        self._root = root
        self._removed: list[Move] = []
        self._made: list[Move] = []

    @property
    def moves(self) -> list[Move]:
        """What is to be done when all of them are whole."""
        return [*self._removed, *self._made]

    def make(self, place: Path) -> Path:
        """Return the path at which to make the file that ``place`` is to be.

        Raises:
            UsageError: there can be no such file.
        """
        self._check(place)
        name = str(len(self._made))
        self._made.append((name, str(place.relative_to(self._root))))
        return self.folder / name

    def remove(self, place: Path) -> None:
        """Have a file removed before the others are moved, since it would contradict them until all are."""
        self._removed.append((None, str(place.relative_to(self._root))))

    def _check(self, place: Path) -> None:
        with _beginning(place):
            check_inside(self._root, place)
            if place.is_dir():
                raise UsageError(f"{place}: is a folder; a file is needed there")
            folder = next(folder for folder in place.parents if folder.exists())
            _check_folder(folder)


@contextmanager
def whole_files(anchor: Path) -> Iterator[NewFiles]:
    """Let files be made that get their names together when the block ends well, and go if it does not.

    What an interrupted run was about to move is moved first; `finish_moves` tells of that.

    Args:
        anchor: one of them, whose name the lock has, or a name that stands for them; all are in its folder or below.

    Raises:
        UsageError: they cannot be made there, or another process is making them.
        MlgoCorpusError: they cannot get their names; the next call goes on with it.
        OSError: the block's own.
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
            files = NewFiles(making, anchor.parent)
            try:
                yield files
                if files.moves:
                    lock.write(files.moves)
            except BaseException:
                with suppress(OSError):
                    lock.clear()
                    _remove(making)
                raise
            try:
                make_moves(files.moves, making, anchor.parent)
                _remove(making)
            except OSError as error:
                raise MlgoCorpusError(f"cannot write {error.filename or anchor}: {os_reason(error)}") from error
            lock.done()
    finally:
        _remove_empty(missing)


def finish_moves(anchor: Path) -> frozenset[Path]:
    """Finish what an interrupted `whole_files` was about to do. To be called before one looks at such files.

    Nothing is done while another process makes them, and where nothing can be done; `whole_files` tells of both.

    Returns:
        The files that it made: whoever ran it was not told that they are there.
    """
    made: frozenset[Path] = frozenset()
    if anchor.name and any(os.path.lexists(path) for path in (_lock(anchor), _making(anchor))):
        with suppress(OSError, UsageError), _held(_lock(anchor), anchor) as lock:
            made = _go_on(anchor, lock)
            lock.done()
    return made


def _go_on(anchor: Path, lock: Lock) -> frozenset[Path]:
    """Make the moves that are listed, or take away what was not whole."""
    making = _making(anchor)
    moves = lock.moves()
    if moves and not making.is_symlink():
        make_moves(moves, making, anchor.parent)
    _remove(making)
    return frozenset(anchor.parent / place for source, place in moves if source is not None)


def recover(output: Path) -> bool:
    """Put right what a run that was killed has left beside a folder. To be called before one looks at the folder.

    Nothing is done while another process is making it, and where nothing can be done; `whole_folder` tells of both.

    Returns:
        Whether that run had made the folder, and told nobody.
    """
    real = _real(output)
    if any(os.path.lexists(path) for path in (_lock(real), _making(real), _old(real))):
        with suppress(OSError, UsageError), _held(_lock(real), output) as lock:
            made = lock.moves() == [(_WHOLE, real.name)] and not os.path.lexists(_making(real)) and real.is_dir()
            if not made:
                lock.clear()
            _restore(real)
            _remove(_making(real))
            _remove(_old(real))
            lock.done()
            return made
    return False


class Lock:
    """A lock file that we have; it goes when it is let go of, unless it holds moves that are not all made."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.holds_moves = os.fstat(descriptor).st_size > 0

    def moves(self) -> list[Move]:
        """Return the moves that it holds; none, if they are not ours."""
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_MOVES_BYTES:
            return []
        try:
            return checked_moves(json.loads(os.pread(self._descriptor, status.st_size, 0))) or []
        except (ValueError, RecursionError):  # it was not written to its end, so nothing was moved
            return []

    def write(self, moves: Sequence[Move]) -> None:
        """Say what is to be moved; from now on, that is done, if not by us, then by the next."""
        data = list_moves(moves)
        self.holds_moves = True
        written = 0
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], written)

    def clear(self) -> None:
        """Forget the moves: none was made, or all were, and others may follow."""
        self.holds_moves = False
        os.ftruncate(self._descriptor, 0)

    def done(self) -> None:
        """Let the file go, with the moves in it: should we be killed before, the next one sees that they were made."""
        self.holds_moves = False


@contextmanager
def _held(path: Path, output: Path) -> Iterator[Lock]:
    """Keep other processes from making the same ``output``, by a file that is there in the meantime.

    Raises:
        UsageError: another process makes it.
        OSError: the file cannot be made.
    """
    descriptor = claim(path, f"{output}: another mlgo-corpus is making it")
    lock = Lock(descriptor)
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
