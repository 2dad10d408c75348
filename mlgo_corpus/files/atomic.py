"""Files that appear complete: written under a temporary name, then renamed; and stamps that identify a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO


@dataclass(frozen=True, slots=True)
class FileStamp:
    """A file's identity at the time it was read; equal stamps mean an unchanged file."""

    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: str) -> FileStamp | None:
        """Return a file's stamp; None if the file cannot be looked at."""
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            return None
        return cls(status.st_size, status.st_mtime_ns)


def file_stamp(size: int, mtime_ns: int) -> bytes:
    """Return bytes that differ between versions of a file of one name."""
    return repr((size, mtime_ns)).encode()


def create_file(path: Path) -> IO[bytes]:
    """Open a new file for writing. A file or link of that name is removed first, and a link is not followed."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb")


def write_atomically(path: Path, data: bytes) -> None:
    """Write a small file under a temporary name beside its own, then rename it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with create_file(temporary) as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
