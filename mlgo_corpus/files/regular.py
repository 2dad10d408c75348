"""Untrusted files in a corpus's or a dataset's folder: opened without waiting, and read with a bound.

Opening a FIFO waits for its other side, and a link to ``/dev/zero`` has no end. Links are followed, because corpora may
consist of links; their target must be a regular file, and no more bytes are read than it has when it is opened.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
from hashlib import sha256
from pathlib import Path
from typing import IO, Final

from mlgo_corpus.files.remote import Place, RemotePath
from mlgo_corpus.formats.buffer import Buffer

_BLOCK: Final = 1 << 20

MAX_LIST_BYTES: Final = 1 << 30
"""The most bytes of a file with a line for each module, such as a manifest or journal: a million take some 100 MB."""

MAX_MODULE_BYTES: Final = 2 << 30
"""The most bytes of a module's bitcode: the limit of a packed corpus, and more than LLVM makes."""

MAX_NOTE_BYTES: Final = 64 << 20
"""The most bytes of a file that describes a folder, such as ``dataset.json``, and of a module's command."""


def open_regular(path: Path | str | bytes) -> IO[bytes]:
    """Open a regular file for reading; links are followed.

    Raises:
        OSError: it cannot be opened, or is not a regular file; ``strerror`` has the reason.
    """
    return as_regular(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY), path)


def digest_of_file(path: Path | str) -> str:
    """Return the hex sha256 of a regular file, which is read block by block.

    Raises:
        OSError: it cannot be read, or is not a regular file.
    """
    digest = sha256()
    with open_regular(path) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def as_regular(descriptor: int, path: Path | str | bytes) -> IO[bytes]:
    """Return a file object for reading that owns the descriptor.

    Raises:
        OSError: it is not a regular file, and is now closed; ``strerror`` has the reason.
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
    """Read a whole regular file, local or behind a URL.

    Args:
        path: the file.
        most: the most bytes that a local file may have.

    Raises:
        OSError: it cannot be read, is not a regular file, or has more bytes; ``strerror`` has the reason.
        CorpusError: a file behind a URL cannot be read.
    """
    if isinstance(path, RemotePath):
        return path.read_bytes()
    with open_regular(path) as file:
        return read_open(file, most)


def read_open(file: IO[bytes], most: int) -> bytes:
    """Read a whole open file, if it has at most ``most`` bytes.

    Raises:
        OSError: it cannot be read, or has more bytes; ``strerror`` has the reason.
    """
    size = os.fstat(file.fileno()).st_size
    if size > most:
        raise OSError(errno.EFBIG, f"{size} bytes, expected at most {most}")
    return file.read(size)


# A file up to this size is read whole; a larger one is mapped, which saves copying what is not bitcode. If a mapped
# file shrinks meanwhile, its worker is killed, and the engine then has the file read again.
_READ_WHOLE_BYTES = 128 << 10


def read_file(path: str) -> Buffer:
    """Return the content of a regular file; a large one is mapped.

    Raises:
        OSError: it cannot be read, or is a FIFO, a device or a folder.
    """
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size > _READ_WHOLE_BYTES:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return file.read()
