"""Files that a corpus's or a dataset's folder provides, which may be anything: opened without waiting, and bounded.

Opening a FIFO waits for its other side, and a link to ``/dev/zero`` has no end. Links are followed, for corpora are
made of them; what they lead to has to be a regular file, and only as many bytes are read as it has when it is opened.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from pathlib import Path
from typing import IO, Final

from mlgo_corpus.files.remote import Place, RemotePath
from mlgo_corpus.formats.buffer import Buffer

MAX_LIST_BYTES: Final = 1 << 30
"""The most bytes of a file with a line for each module, such as a manifest or a journal: a million take some 100 MB."""

MAX_MODULE_BYTES: Final = 2 << 30
"""The most bytes of a module's bitcode: what a packed corpus can hold, and more than LLVM makes."""

MAX_NOTE_BYTES: Final = 64 << 20
"""The most bytes of a file that says what a folder is, such as ``dataset.json``, and of a module's command."""


def open_regular(path: Path | str | bytes) -> IO[bytes]:
    """Open a regular file for reading, perhaps behind links.

    Raises:
        OSError: it cannot be opened, or is something else; ``strerror`` says so.
    """
    return as_regular(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY), path)


def as_regular(descriptor: int, path: Path | str | bytes) -> IO[bytes]:
    """Return an open file to read from, which owns the descriptor.

    Raises:
        OSError: it is no regular file, and closed now; ``strerror`` says so.
    """
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a file", os.fspath(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Place, most: int) -> bytes:
    """Read a regular file, or what is behind a URL, whole.

    Args:
        path: the file.
        most: the bytes that it may have.

    Raises:
        OSError: it cannot be read, is something else, or has more bytes; ``strerror`` says so.
        CorpusError: what is behind a URL cannot be read.
    """
    if isinstance(path, RemotePath):
        return path.read_bytes()
    with open_regular(path) as file:
        return read_open(file, most)


def read_open(file: IO[bytes], most: int) -> bytes:
    """Read an open file whole, if it has at most so many bytes.

    Raises:
        OSError: it cannot be read, or has more; ``strerror`` says so.
    """
    size = os.fstat(file.fileno()).st_size
    if size > most:
        raise OSError(errno.EFBIG, f"{size} bytes, expected at most {most}")
    return file.read(size)


# A file up to this size is read whole; a larger one is mapped, which saves copying what is not bitcode. A mapped file
# that shrinks meanwhile kills its worker, and the engine then has it read again.
_READ_WHOLE_BYTES = 128 << 10


def read_file(path: str) -> Buffer:
    """Read a regular file; a very large one is mapped.

    Raises:
        OSError: it cannot be read, or is a FIFO, a device or a folder.
    """
    # O_NONBLOCK: a FIFO with an object's name must not hold us.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a regular file")
        if status.st_size > _READ_WHOLE_BYTES:
            return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
        return file.read()
