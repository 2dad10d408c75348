"""Convert a corpus's files to the rows of a packed corpus, and back.

Both work a piece at a time, so that pieces can be divided among workers, each with memory for a few row groups.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.corpus import modules as moduletable
from mlgo_corpus.corpus.folder import Module
from mlgo_corpus.corpus.links import open_inside
from mlgo_corpus.corpus.modules import INTEGER_FIELDS, STATUS_OK
from mlgo_corpus.corpus.packed import corpus as packed
from mlgo_corpus.corpus.packed.corpus import command_files
from mlgo_corpus.corpus.packed.rows import (
    MAX_FILE_BYTES,
    METADATA_COLUMNS,
    ROW_GROUP_BYTES,
    STAMP_COLUMNS,
    cut_command,
    join_command,
    packed_schema,
    read_content,
    read_group,
    value_of,
)
from mlgo_corpus.corpus.scan import scan_module
from mlgo_corpus.errors import CorpusError
from mlgo_corpus.files import arrays
from mlgo_corpus.files.atomic import create_file
from mlgo_corpus.files.markdown import plain_columns
from mlgo_corpus.files.names import MODULES_NAME, checked_name
from mlgo_corpus.files.regular import as_regular
from mlgo_corpus.files.remote import Place, RemotePath
from mlgo_corpus.files.tables import blamed, open_parquet, with_meanings
from mlgo_corpus.files.text import os_reason, printable

if TYPE_CHECKING:
    import pyarrow as pa

PART_BYTES: Final = 128 << 20
"""Uncompressed bytes of modules in one file; the last one has less."""

# The most modules of a row group, however small they are.
_MAX_GROUP_ROWS: Final = 1 << 14

# The level of tar's zstd; higher levels take twice the time for 2 percent.
_LEVEL = 3
# A row group's bitcode is one page, because pages are compressed separately.
_PAGE_BYTES = 4 * ROW_GROUP_BYTES
_BUFFER_BYTES = 4 << 20
# Columns whose values repeat. For the others a dictionary only costs time.
_REPEATED = ("command.list.element", "reason", "cmd_origin", "target_triple", "producer", "ir_stage", "opt_level")


@dataclass(frozen=True, slots=True)
class PartTask:
    """A file of rows to be made.

    Attributes:
        root: the corpus's folder.
        names: the modules.
        rows: their rows in the table of modules, -1 for a module without one; None if there is no table.
        has_thinlto, override, linked: the corpus's attributes.
        stamped: whether the files' times are written.
        path: the file to make.
        upload: the place to move it to; None to leave it at ``path``.
    """

    root: Path
    names: tuple[str, ...]
    rows: tuple[int, ...] | None
    has_thinlto: bool
    override: tuple[str, ...] | None
    stamped: bool
    path: Path
    upload: RemotePath | None = None
    linked: bool = False


class _WrittenPart(NamedTuple):
    """A file of rows: its size, the rows of each row group, the bytes of its parts, and modules with their problems."""

    size: int
    row_groups: tuple[int, ...]
    bitcode_bytes: int
    command_bytes: int
    index_bytes: int
    problems: tuple[tuple[str, str], ...]


def write_part(task: PartTask) -> _WrittenPart:
    """Read modules, and write them to one file.

    Raises:
        CorpusError: the table of modules is damaged, or the file cannot be uploaded.
        OSError: the file cannot be written.
    """
    rows = _Rows(task)
    meanings = plain_columns(moduletable.__doc__) | plain_columns(packed.__doc__)
    writer = _PartWriter(task.path, with_meanings(packed_schema(stamped=task.stamped), meanings))
    try:
        for group in rows.groups():
            writer.write(group)
        writer.close()
    except BaseException:
        writer.abandon()
        raise
    size = task.path.stat().st_size
    if task.upload is not None:
        task.upload.upload(task.path)
        task.path.unlink()
    return _WrittenPart(
        size, tuple(writer.row_groups), rows.bitcode_bytes, rows.command_bytes, rows.index_bytes, tuple(rows.problems)
    )


class _PartWriter:
    """Writes row groups to a file; while one is encoded, the next is read."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.row_groups: list[int] = []
        self._path = path
        self._file = create_file(path)
        self._buffer: Any = pa.BufferedOutputStream(pa.PythonFile(self._file, "w"), _BUFFER_BYTES)
        self._writer: Any = pq.ParquetWriter(
            self._buffer,
            schema,
            compression="zstd",
            compression_level=_LEVEL,
            use_dictionary=[name for name in _REPEATED if name.partition(".")[0] in schema.names],
            write_statistics=["module", "bitcode_bytes"],
            data_page_size=_PAGE_BYTES,
            write_page_checksum=True,
        )
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="encode")
        self._last: Future[None] | None = None

    def write(self, group: pa.RecordBatch) -> None:
        """Add a row group."""
        self.row_groups.append(group.num_rows)
        self._wait()
        self._last = self._pool.submit(self._writer.write_batch, group, row_group_size=max(1, group.num_rows))

    def close(self) -> None:
        """Write the rest, and close the file."""
        self._wait()
        self._pool.shutdown()
        self._writer.close()
        self._buffer.close()
        self._file.close()

    def abandon(self) -> None:
        """Remove the unfinished file."""
        self._pool.shutdown()
        for part in (self._writer, self._buffer, self._file):
            with contextlib.suppress(OSError, ValueError):  # such as a full disk, which was reported before
                part.close()
        self._path.unlink(missing_ok=True)

    def _wait(self) -> None:
        if self._last is not None:
            self._last.result()


@dataclass(slots=True)
class _ModuleFiles:
    """A module's files in memory, bitcode and command with their times of change; None for a file that is not there."""

    bitcode: bytes | None = None
    command: bytes | None = None
    index: bytes | None = None
    times: list[int | None] = field(default_factory=lambda: [None, None])
    problem: str | None = None

    @property
    def size(self) -> int:
        return sum(len(data) for data in (self.bitcode, self.command, self.index) if data is not None)


@dataclass(frozen=True, slots=True)
class _InHand(Module):
    """A module whose files have been read already, for `scan_module`."""

    files: _ModuleFiles = field(default_factory=_ModuleFiles)

    def bitcode(self) -> bytes:
        if self.files.bitcode is None:
            raise CorpusError(self.files.problem or "no bitcode", self.name)
        return self.files.bitcode

    def own_command(self) -> bytes:
        if self.files.command is None:
            raise CorpusError("no command", self.name)
        return self.files.command


class _Rows:
    """Makes row groups of modules; its totals are complete when all row groups have been taken."""

    def __init__(self, task: PartTask) -> None:
        self.bitcode_bytes = self.command_bytes = self.index_bytes = 0
        self.problems: list[tuple[str, str]] = []
        self._task = task
        self._schema = packed_schema(stamped=task.stamped)
        self._known = _KnownRows(task.root / MODULES_NAME)

    def groups(self) -> Iterator[pa.RecordBatch]:
        """Yield the row groups in order."""
        waiting: list[_ModuleFiles] = []
        size = first = 0
        for position, name in enumerate(self._task.names):
            files = self._read(name)
            full = size + files.size > ROW_GROUP_BYTES or len(waiting) == _MAX_GROUP_ROWS
            if waiting and full:
                yield self._batch(first, waiting)
                waiting, size, first = [], 0, position
            waiting.append(files)
            size += files.size
        if waiting:
            yield self._batch(first, waiting)

    def _read(self, name: str) -> _ModuleFiles:
        files = _ModuleFiles()
        root = os.fsencode(self._task.root)
        try:
            base = os.path.join(root, os.fsencode(checked_name(name)))
        except CorpusError as error:
            files.problem = error.message
            self.problems.append((name, error.message))
            return files
        wanted = (True, False, self._task.has_thinlto)
        for slot, (suffix, needed) in enumerate(zip((b".bc", b".cmd", b".thinlto.bc"), wanted, strict=True)):
            try:
                data, mtime = _read_file(open_inside(root, base + suffix, linked=self._task.linked))
            except OSError as error:
                if needed or error.errno not in (errno.ENOENT, errno.ENOTDIR):
                    shown = printable(os.fsdecode(os.path.basename(base + suffix)))
                    files.problem = files.problem or f"cannot read {shown}: {error.strerror}"
                continue
            if slot == 0:
                files.bitcode = data
            elif slot == 1:
                files.command = data
            else:
                files.index = data
            if slot < 2:
                files.times[slot] = mtime
        if files.problem is not None:
            self.problems.append((name, files.problem))
        self.bitcode_bytes += len(files.bitcode or b"")
        self.command_bytes += len(files.command or b"")
        self.index_bytes += len(files.index or b"")
        return files

    def _batch(self, first: int, modules: Sequence[_ModuleFiles]) -> pa.RecordBatch:
        import pyarrow as pa

        task, schema = self._task, self._schema
        names = task.names[first : first + len(modules)]
        commands = [cut_command(files.command) for files in modules]
        made: dict[str, Any] = {
            "module": arrays.texts(pa.string(), [printable(name) for name in names]),
            "bitcode": arrays.large_binaries([files.bitcode for files in modules]),
            "command": arrays.lists_of_text(schema.field("command").type, [texts for texts, _ in commands]),
            "command_bytes": arrays.texts(pa.binary(), [data for _, data in commands]),
            "thinlto_index": arrays.large_binaries([files.index for files in modules]),
            "problem": arrays.texts(pa.string(), [files.problem for files in modules]),
            "bitcode_bytes": _sizes([files.bitcode for files in modules]),
            "cmd_bytes": _sizes([files.command for files in modules]),
        }
        known = None if task.rows is None else self._known.take(task.rows[first : first + len(modules)])
        scanned: list[Any] = [None] * len(modules)
        for place, (name, files) in enumerate(zip(names, modules, strict=True)):
            if known is None or task.rows is None or task.rows[first + place] < 0:
                scanned[place] = scan_module(_InHand(task.root, name, task.has_thinlto, task.override, files=files))
        for name in METADATA_COLUMNS:
            values = [None] * len(modules) if known is None else known[name]
            values = [
                value if row is None or row.status != STATUS_OK else getattr(row, name)
                for value, row in zip(values, scanned, strict=True)
            ]
            if name in INTEGER_FIELDS:
                made[name] = arrays.numbers_or_null(pa.int64(), values)
            else:
                made[name] = arrays.texts(pa.string(), values)
        if task.stamped:
            for slot, name in enumerate(STAMP_COLUMNS):
                made[name] = arrays.numbers_or_null(pa.int64(), [files.times[slot] for files in modules])
        return pa.RecordBatch.from_arrays([made[name] for name in schema.names], schema=schema)


def _sizes(values: Sequence[bytes | None]) -> pa.Array:
    import pyarrow as pa

    return arrays.numbers_or_null(pa.int64(), [None if value is None else len(value) for value in values])


def _read_file(descriptor: int) -> tuple[bytes, int]:
    """Read an open file whole, and close it; return its bytes and its time of change.

    Raises:
        OSError: it cannot be read, or is not a regular file; ``strerror`` says which.
    """
    with as_regular(descriptor, "") as file:
        status = os.fstat(file.fileno())
        if status.st_size > MAX_FILE_BYTES:
            raise OSError(errno.EFBIG, f"{status.st_size} bytes are more than a Parquet file holds in one value")
        data = file.read(status.st_size + 1)
        if len(data) != status.st_size:
            raise OSError(errno.EAGAIN, "it changes while it is read")
        return data, status.st_mtime_ns


class _KnownRows:
    """The rows of a table of modules. Only the requested row groups are read, and the last one is kept."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._columns: list[str] = []
        self._starts: NDArray[np.int64] | None = None
        self._last: tuple[int, Any] = (-1, None)

    def take(self, rows: Sequence[int]) -> dict[str, list[Any]]:
        """Return columns of some rows, nulls for -1.

        Raises:
            CorpusError: the table is damaged.
        """
        import pyarrow as pa

        wanted = np.array(rows, np.int64)
        found: dict[str, list[Any]] = {name: [None] * len(rows) for name in METADATA_COLUMNS}
        with blamed(self._path):
            if self._starts is None:
                with open_parquet(self._path) as file:
                    counts = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
                    self._columns = [name for name in METADATA_COLUMNS if name in file.schema_arrow.names]
                self._starts = np.cumsum([0, *counts], dtype=np.int64)
            groups = np.searchsorted(self._starts, wanted, side="right") - 1
            for number in np.unique(groups[wanted >= 0]).tolist():
                places = np.flatnonzero((groups == number) & (wanted >= 0))
                chosen = arrays.numbers(pa.int64(), wanted[places] - self._starts[number])
                table = self._read(number).take(chosen)
                for name in self._columns:
                    for place, value in zip(places.tolist(), table[name].to_pylist(), strict=True):
                        found[name][place] = value
        return found

    def _read(self, number: int) -> pa.Table:
        import pyarrow as pa

        if self._last[0] != number:
            with open_parquet(self._path) as file:
                batches = file.iter_batches(columns=self._columns, row_groups=[number], expand=True)
                self._last = number, pa.Table.from_batches(batches)
        return self._last[1]


@dataclass(frozen=True, slots=True)
class GroupTask:
    """A row group to be written as files: its place, its modules, and the folder to write to."""

    file: Place
    number: int
    names: tuple[str, ...]
    folder: Path
    stamped: bool


class _WrittenModules(NamedTuple):
    """The bytes of bitcode, commands and indexes written, and the number of modules that lack a file."""

    bitcode_bytes: int
    command_bytes: int
    index_bytes: int
    lacking: int


def write_modules(task: GroupTask) -> _WrittenModules:
    """Write the files of a row group's modules, and make their folders; links in their place are refused.

    Raises:
        CorpusError: the row group is damaged, or a name leaves the folder.
        OSError: a file cannot be written.
    """
    table = read_content(task.file, task.number, len(task.names))
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    found = columns["module"].to_pylist()
    problems = columns["problem"].to_pylist()
    commands = columns["command"].to_pylist()
    raw = columns["command_bytes"].to_pylist()
    times = _times(task) if task.stamped else None
    made: set[str] = set()
    total = [0, 0, 0]
    for row, name in enumerate(task.names):
        if found[row] != printable(name):
            raise CorpusError(f"{task.file}: its row has another module", name)
        bitcode, index = value_of(table["bitcode"], row), value_of(table["thinlto_index"], row)
        datas = (bitcode, join_command(commands[row], raw[row]), index)
        if all(data is None for data in datas):
            continue
        paths = command_files(os.path.join(task.folder, checked_name(name)))
        folder = os.path.dirname(paths[0])
        if folder not in made:
            os.makedirs(folder, exist_ok=True)
            made.add(folder)
        for slot, (path, data) in enumerate(zip(paths, datas, strict=True)):
            if data is not None:
                total[slot] += len(data)
                _write_file(path, data, None if times is None or slot == 2 else times[slot][row])
    return _WrittenModules(total[0], total[1], total[2], sum(problem is not None for problem in problems))


def _times(task: GroupTask) -> list[list[int | None]]:
    table = read_group(task.file, task.number, len(task.names), STAMP_COLUMNS)
    return [table[name].to_pylist() for name in STAMP_COLUMNS]


def _write_file(path: str, data: Any, mtime_ns: int | None) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        if mtime_ns is not None:
            try:
                os.utime(descriptor, ns=(mtime_ns, mtime_ns))
            except (OSError, OverflowError, ValueError) as error:
                raise CorpusError(f"{path}: cannot set its time to {mtime_ns} ns: {os_reason(error)}") from error
    finally:
        os.close(descriptor)
