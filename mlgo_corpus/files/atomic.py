"""Files that appear complete: one is written under a temporary name and renamed, several get their names together.

For files in a folder that others have files in, too, a list of moves is written as JSON when all of them are complete:
``[["0", "modules.parquet"], …]``, a path in the work folder and one in the folder of the results. ``[null,
"dataset.json"]`` is a file to remove first. Only then do the moves begin. A run that finds the list of a killed run
makes the moves that are left: nothing is made twice, and the last file of the list exists once all do.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from mlgo_corpus.errors import MlgoCorpusError
from mlgo_corpus.files.text import os_reason

# A path in the work folder, or None to remove; and a path in the folder of the results.
Move = tuple[str | None, str]


@dataclass(frozen=True, slots=True)
class FileStamp:
    """A file's identity at the time it was read; equal stamps mean an unchanged file.

    A file may get another's size and time of modification (``cp -p``, builds that set all times to one). Nothing sets
    its time of change; stamps that older versions recorded have none, and equal no file's.
    """

    size: int
    mtime_ns: int
    ctime_ns: int = 0

    @classmethod
    def of(cls, path: str) -> FileStamp | None:
        """Return a file's stamp; None if the file cannot be looked at."""
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            return None
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def file_stamp(size: int, mtime_ns: int) -> bytes:
    """Return bytes that differ between versions of a file of one name."""
    return repr((size, mtime_ns)).encode()


def temporary_for(path: Path) -> Path:
    """Return a name beside a file's own for what is not complete yet, which no thread of any machine has as well."""
    return path.with_name(f".{path.name[:40]}.{secrets.token_hex(8)}.tmp")


def create_file(path: Path) -> IO[bytes]:
    """Open a new file for writing. A file or link of that name is removed first, and a link is not followed."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb")


def write_atomically(path: Path, data: bytes) -> None:
    """Write a small file under a temporary name beside its own, then rename it."""
    temporary = temporary_for(path)
    try:
        with create_file(temporary) as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def writing(place: object, *, kept: bool = False) -> Iterator[None]:
    """Turn an OSError of the block into an error that names the file that could not be written.

    Args:
        place: what is being written, a path or a URL; named if the OSError names no file.
        kept: whether what is done is kept for the next run, which the error then says.

    Raises:
        MlgoCorpusError: the block raised an OSError.
    """
    try:
        yield
    except OSError as error:
        # Errors of links, copies and renames name the source first, and then the file that was to be made.
        what = f"cannot write {error.filename2 or error.filename or place}: {os_reason(error)}"
        raise MlgoCorpusError(
            f"{what}; what is whole is kept, and the same command goes on" if kept else what
        ) from error


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with its content; nothing there is no error.

    Raises:
        OSError: it cannot be removed.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def list_moves(moves: Sequence[Move]) -> bytes:
    """Return the list as JSON."""
    return json.dumps(list(map(list, moves))).encode()


def checked_moves(value: Any) -> list[Move] | None:
    """Return the moves of a parsed list, or None if it is not such a list or names a path outside the folders."""
    if not isinstance(value, list) or not value:
        return None
    if any(not isinstance(move, list) or len(move) != 2 for move in value) or value[-1][0] is None:
        return None
    moves = [(source, place) for source, place in value]
    inside = all((source is None or _is_inside(source)) and _is_inside(place) for source, place in moves)
    return moves if inside else None


def _is_inside(name: object) -> bool:
    return isinstance(name, str) and ".." not in Path(name).parts and not os.path.isabs(name) and "\0" not in name


def make_moves(moves: Sequence[Move], work: Path, root: Path) -> None:
    """Move files from ``work`` to their places in ``root``, in this order, except those already moved.

    Raises:
        OSError: a file cannot be moved, or a link would lead it out of ``root``; the rest can be moved later.
    """
    left = {place for source, place in moves if source is not None and os.path.lexists(work / source)}
    made = {place for source, place in moves if source is not None} - left
    for source, place in moves:
        target = root / place
        if source is None:
            if moves[-1][1] in left and place not in made:
                check_inside(root, target)
                target.unlink(missing_ok=True)
        elif place in left:
            check_inside(root, target)
            target.parent.mkdir(parents=True, exist_ok=True)
            (work / source).replace(target)


def check_inside(root: Path, place: Path) -> None:
    """Raise an OSError if a folder of ``place`` below ``root`` is a symbolic link."""
    for folder in place.relative_to(root).parents:
        if folder.parts and (root / folder).is_symlink():
            raise OSError(errno.ELOOP, "a symbolic link, expected a folder", str(root / folder))
