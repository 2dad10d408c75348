"""Training logs on disk: find them, name their modules, and open them.

A log may be compressed with gzip or zstd: its content decides, not its name. In folders, files called ``*.log``,
``*.log.gz`` or ``*.log.zst`` count as logs, and so does any file that begins like one.
"""

from __future__ import annotations

import glob
import gzip
import os
import re
import stat
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO, TextIOBase
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, NoReturn, Self

from mlgo_corpus.errors import FormatError, TruncatedError, UsageError
from mlgo_corpus.files.atomic import create_file, temporary_for
from mlgo_corpus.files.folder import walk
from mlgo_corpus.files.names import NameRegistry, safe_module_name
from mlgo_corpus.files.text import os_reason
from mlgo_corpus.formats.logs.blocks import BlockWriter, Source, Window
from mlgo_corpus.formats.logs.events import MAX_HEADER_BYTES, LogHeader, Writable, read_header
from mlgo_corpus.formats.logs.tensors import TensorSpec

_STDIN: Final = "-"

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# The most bytes lost before the damage of a damaged stream: a step that fails returns nothing.
_STEP_BYTES = 16 << 10
# A frame without data: parallel compressors begin with one.
_ZSTD_SKIPPABLE = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")
_COMPRESSED_SUFFIXES = (".gz", ".zst")
LOG_SUFFIX: Final = ".log"
_LOG_START = b'{"features"'
_HEADER_BYTES = 16 << 10

LogSource = str | Path | bytes | bytearray | memoryview | BinaryIO
"""A log: its path, its bytes, or a binary stream."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """One log to read.

    Attributes:
        path: the log's path; ``-`` for standard input.
        source: the path below the inputs' common folder.
        module: the log's module: ``source`` without ``.log`` and a compression's suffix.
        size: the bytes on disk; None for a pipe, which can be read only once.
        calls: the path of a file with the calls that its decisions are about, see `mlgo_corpus.dataset.calls`.
    """

    path: str
    source: str
    module: str
    size: int | None
    calls: str | None = None


def find_logs(inputs: Sequence[str | Path], *, exclude: Path | None = None) -> tuple[LogFile, ...]:
    """Return the logs named by files, folders, glob patterns and ``-``, in the inputs' order, folders sorted.

    Modules are named by the path below the inputs' common folder; a name that is taken gets a number. ``exclude`` is
    a folder that is not entered: the output.

    Raises:
        UsageError: an input does not exist, a folder cannot be listed, or there is no log.
    """
    if not inputs:
        raise UsageError("expected inputs, found none")
    roots: list[str] = []
    found: list[str] = []
    excluded = None if exclude is None else os.path.abspath(exclude)
    for item in map(str, inputs):
        if item == _STDIN:
            found.append(item)
            continue
        paths = [item]
        if not os.path.lexists(item) and glob.has_magic(item):
            paths = sorted(glob.glob(item, recursive=True))
            if not paths:
                raise UsageError(f"{item}: no file matches")
        for path in paths:
            if os.path.isdir(path):
                roots.append(os.path.abspath(path))
                found.extend(_walk(path, excluded))
            elif os.path.exists(path):
                roots.append(os.path.dirname(os.path.abspath(path)))
                found.append(path)
            else:
                raise UsageError(f"{path}: no such file or folder")
    if not found:
        raise UsageError(
            f"{', '.join(map(str, inputs))}: no training logs (files called *.log, or that begin like one)"
        )
    if len(set(roots)) > 1 and any(os.path.isdir(str(item)) for item in inputs):
        roots = [os.path.dirname(root) if root in _folders_of(inputs) else root for root in roots]
    base = os.path.commonpath(roots) if roots else "/"
    registry = NameRegistry()
    once = {path if path == _STDIN else os.path.abspath(path): path for path in reversed(found)}
    return tuple(_log_file(path, base, registry) for path in reversed(once.values()))


def _folders_of(inputs: Sequence[str | Path]) -> frozenset[str]:
    return frozenset(os.path.abspath(item) for item in inputs if os.path.isdir(item))


def _log_file(path: str, base: str, registry: NameRegistry) -> LogFile:
    if path == _STDIN:
        return LogFile(path, "stdin.log", registry.claim("stdin"), None)
    source = os.path.relpath(os.path.abspath(path), base)
    try:
        status = os.stat(path)
    except OSError as error:  # it was there a moment ago
        _refuse(error)
    size = status.st_size if stat.S_ISREG(status.st_mode) else None
    return LogFile(path, source, registry.claim(module_name(source)), size)


def module_name(source: str) -> str:
    """Return the name of a log's module: the log's path without ``.log`` and a compression's suffix."""
    return safe_module_name(without_compression(source).removesuffix(LOG_SUFFIX))


def log_name(source: str) -> str:
    """Return a safe path below a folder for a log from its former path; ``.log`` is kept if that had it."""
    name = without_compression(source)
    suffix = LOG_SUFFIX if name.endswith(LOG_SUFFIX) else ""
    return safe_module_name(name.removesuffix(suffix)) + suffix


def without_compression(name: str) -> str:
    """Return a file's name without ``.gz`` or ``.zst``."""
    for suffix in _COMPRESSED_SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def _walk(folder: str, excluded: str | None) -> Iterator[str]:
    for parent, folders, files in walk(folder, _refuse):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and os.path.abspath(os.path.join(parent, name)) != excluded
        )
        for name in sorted(files):
            path = os.path.join(parent, name)
            if not name.startswith(".") and os.path.isfile(path) and (_is_called_log(name) or _begins_as_log(path)):
                yield path


def _refuse(error: OSError) -> NoReturn:
    raise UsageError(f"{error.filename}: {os_reason(error)}") from error


def _is_called_log(name: str) -> bool:
    return without_compression(name).endswith(LOG_SUFFIX)


def _begins_as_log(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.read(descriptor, len(_LOG_START)) == _LOG_START
    finally:
        os.close(descriptor)


@contextmanager
def open_log(log: LogSource) -> Iterator[Source]:
    """Open a log, or standard input for ``-``, for reading in blocks; compressed logs are decompressed.

    A stream is read from where it is, and stays open.

    Raises:
        OSError: it cannot be opened.
        FormatError: compressed data is damaged; raised when it is read.
        TypeError: it is no log, but an object of another kind.
    """
    with _open_raw(log) as raw:
        start = b""
        while len(start) < 4 and (more := raw.read(4 - len(start))):
            start += more
        if raw.seekable():
            raw.seek(-len(start), os.SEEK_CUR)  # standard input may begin anywhere in its file
            rest = raw
        else:
            rest = _Unread(start, raw)
        if start.startswith(_GZIP_MAGIC):
            with gzip.GzipFile(fileobj=rest, mode="rb") as file:
                yield _Decompressed(file.readinto1, "gzip")
        elif start == _ZSTD_MAGIC or _ZSTD_SKIPPABLE.fullmatch(start):
            import pyarrow as pa

            with pa.PythonFile(_Unread(b"", rest), mode="r") as file:  # which would close what it reads
                yield _Decompressed(pa.CompressedInputStream(file, "zstd").readinto, "zstd")
        else:
            yield rest


@contextmanager
def _open_raw(log: LogSource) -> Iterator[Any]:
    if isinstance(log, bytes | bytearray | memoryview):
        yield BytesIO(log)
    elif not isinstance(log, str | Path):
        if not hasattr(log, "readinto") or isinstance(log, TextIOBase):
            raise TypeError(f"expected a log's path, its bytes or a binary stream, found a {type(log).__name__}")
        yield log
    elif str(log) != _STDIN:
        with open(log, "rb", buffering=0) as file:
            yield file
    elif sys.stdin is None:
        raise UsageError("there is no standard input to read")
    else:
        with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as file:
            yield file


class _Unread:
    """A file with some bytes, which were read before, put back in front."""

    closed = False

    def __init__(self, start: bytes, file: IO[bytes]) -> None:
        self._start = start
        self._file = file

    def readinto(self, buffer: memoryview, /) -> int | None:
        if not self._start:
            return self._file.readinto(buffer)  # type: ignore[attr-defined, no-any-return]
        count = min(len(buffer), len(self._start))
        buffer[:count] = self._start[:count]
        self._start = self._start[count:]
        return count

    def read(self, size: int = -1) -> bytes:
        if not self._start:
            return self._file.read(size)
        data = self._start[:size] if size >= 0 else self._start
        self._start = self._start[len(data) :]
        return data

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        pass


class _Decompressed:
    """A decompressing stream that raises `FormatError`, after returning all that precedes the damage."""

    def __init__(self, readinto: Callable[[memoryview], int], compression: str) -> None:
        self._readinto = readinto
        self._compression = compression
        self._failure: FormatError | None = None

    def readinto(self, buffer: memoryview, /) -> int:
        filled = 0
        while filled < len(buffer) and self._failure is None:
            try:
                got = self._readinto(buffer[filled : filled + _STEP_BYTES])
            except (EOFError, OSError, ValueError, zlib.error) as error:
                if getattr(error, "errno", None) is not None:  # an error of the file, not of the decompressor
                    raise
                self._failure = self._error(error)
                break
            if not got:
                break
            filled += got
        if self._failure is not None and not filled:
            raise self._failure
        return filled

    def _error(self, error: Exception) -> FormatError:
        if isinstance(error, EOFError) or "Truncated" in str(error):
            return TruncatedError(f"the {self._compression} stream ends early")
        return FormatError(f"the {self._compression} stream is damaged: {error}")


class HeaderReader:
    """Reads logs' headers; equal lines are parsed once."""

    def __init__(self) -> None:
        self._known: dict[bytes, LogHeader] = {}

    def read(self, path: str) -> LogHeader:
        """Read a log's header.

        Raises:
            FormatError: the log has no header; the error has the log's path.
            OSError: the log cannot be read.
        """
        try:
            with open_log(path) as source:
                line = Window(source, _HEADER_BYTES).readline(MAX_HEADER_BYTES + 1)
            header = self._known.get(line)
            if header is None:
                header = self._known[line] = read_header(BytesIO(line))
            return header
        except FormatError as error:
            raise error.at(Path(path)) from None


class LogWriter(BlockWriter):
    """Writes a training log, to a file that gets its name when it is complete, or to a stream.

    ::

        with LogWriter("f.log", [TensorSpec("size", "int64_t")], score=TensorSpec("reward", "float")) as log:
            log.write_context("main")
            log.write_observation({"size": 3}, score=0.5)

    Args:
        target: the file, or a stream of bytes, which stays open.
        features: the tensors of each observation, in order.
        score: the tensor that follows each observation, if any.
        advice: the tensor that a compiler reads back, if the header has one.
        header: all three in one, with the header's line verbatim.
        separator: the bytes between an event's key and its value; LLVM's is ``b":"``.
    """

    def __init__(
        self,
        target: Path | str | Writable,
        features: Sequence[TensorSpec] = (),
        *,
        score: TensorSpec | None = None,
        advice: TensorSpec | None = None,
        header: LogHeader | None = None,
        separator: bytes = b":",
    ) -> None:
        self._path: Path | None = None
        header = header or LogHeader(tuple(features), score, advice)
        stream: Any = target
        if isinstance(target, str | Path):
            self._path = Path(target)
            self._temporary = temporary_for(self._path)
            stream = create_file(self._temporary)
        self._stream = stream
        try:
            super().__init__(stream, header, separator=separator)
        except BaseException:
            if self._path is not None:
                self._abandon()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        elif self._path is not None:
            self._abandon()

    def _abandon(self) -> None:
        with suppress(OSError):  # such as a full disk, which has raised already
            self._stream.close()
        self._temporary.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file, and give it its name."""
        if self._path is not None:
            try:
                self._stream.close()
                self._temporary.replace(self._path)
            except BaseException:
                self._temporary.unlink(missing_ok=True)
                raise
            self._path = None
