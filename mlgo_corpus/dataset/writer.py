"""Write observations to Parquet files: of bounded size, in bounded memory, with logs that can be rolled back."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from mlgo_corpus.dataset.observations import KEY_MEANINGS, Labels, ObservationBuilder, cut_rows
from mlgo_corpus.errors import MlgoCorpusError
from mlgo_corpus.files import arrays
from mlgo_corpus.files.tables import BatchTable, with_meanings
from mlgo_corpus.files.text import os_reason
from mlgo_corpus.formats.logs.blocks import Contexts, Rows
from mlgo_corpus.formats.logs.events import LogHeader, encode_context

if TYPE_CHECKING:
    import pyarrow as pa

COMPRESSIONS: Final = ("zstd", "snappy", "gzip", "lz4", "brotli", "none")

ROW_GROUP_BYTES: Final = 32 << 20
"""The most bytes of observations in a row group: in memory while it is filled, and again while it is encoded."""

# The most contexts that wait for their row group; they take about 100 bytes each.
_MAX_CONTEXTS = 200_000
# The most bytes of their names, each of which may be of any length.
_MAX_CONTEXT_BYTES = 16 << 20
_CONTEXT_MEANINGS = {
    **{name: meaning for name, meaning in KEY_MEANINGS.items() if name != "observation"},
    "first_row": "the number of its first observation, counted over all files in order",
    "count": "how many observations it has from there on",
    "line": "the context's line in the log, where it is not as LLVM writes it; else null",
}
# The memory that an observation's module, context and number take.
_KEY_BYTES = 16


def contexts_schema() -> pa.Schema:
    """Return the schema of ``contexts.parquet``.

    ``first_row`` counts the rows of all observations' files in their order, and ``count`` the context's rows from
    there on. ``line`` is the context's line in the log if it differs from what LLVM writes. A null context stands for
    observations before a log's first context.
    """
    import pyarrow as pa

    schema = pa.schema(
        [
            pa.field("module", pa.dictionary(pa.int32(), pa.string()), nullable=False),
            pa.field("context", pa.dictionary(pa.int32(), pa.string())),
            pa.field("first_row", pa.int64(), nullable=False),
            pa.field("count", pa.int64(), nullable=False),
            pa.field("line", pa.binary()),
        ]
    )
    return with_meanings(schema, _CONTEXT_MEANINGS)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How observations are written.

    Attributes:
        compression: one of `COMPRESSIONS`.
        rows_per_file: the most rows of one file; None for the rows of one row group.
        context_regex: a context is left out if this is not found in its name.
        threads: the number of row groups that are encoded while another is filled; 0 for none.
        single: whether everything goes into one file.
    """

    compression: str = "zstd"
    rows_per_file: int | None = None
    context_regex: str | None = None
    threads: int = 0
    single: bool = False


class Part(NamedTuple):
    """A file of observations, and one of the contexts flushed with them; None for a file that is not needed."""

    observations: str | None
    rows: int
    contexts: str | None


class StartOverError(MlgoCorpusError):
    """A part of a log to be rolled back is in the only file, which must be written again without the log."""


class ObservationsWriter:
    """Writes the observations and contexts of logs, one log after the other, to files in a folder.

    A log is begun, written block by block, and then committed or rolled back. Uncommitted rows that do not fit into
    memory go to files of their own, so that a log may be of any size.

    Args:
        folder: the folder of the files.
        prefix: the beginning of the files' names.
        header: the header of all logs.
        schema: the schema of the observations' table.
        options: how observations are written.
    """

    def __init__(self, folder: Path, prefix: str, header: LogHeader, schema: pa.Schema, options: WriteOptions) -> None:
        self._folder = folder
        self._prefix = prefix
        self._schema = schema
        self._options = options
        self._keeps = None if options.context_regex is None else re.compile(options.context_regex).search
        capacity = max(1, ROW_GROUP_BYTES // (header.tensor_bytes + header.score_bytes + _KEY_BYTES))
        self._rows_per_file = options.rows_per_file or capacity
        self._builder = ObservationBuilder(header, min(capacity, self._rows_per_file), schema)
        self._contexts = _ContextRows()
        self._encoder = _Encoder(options.threads)
        self._parts: list[_OpenPart] = []
        self._open: _OpenPart | None = None
        self._flushed = 0  # rows that have left the builder
        # State after the last committed log: rows in the builder, contexts not written yet, and parts.
        self._safe_rows = self._safe_contexts = self._safe_parts = 0
        self._log_rows = self._log_contexts = 0
        self._keeping = True
        self._context_is_known = False

    def begin_log(self, module: str, calls: pa.RecordBatch | None = None) -> None:
        """Begin the log of a module; ``calls`` are the columns of its decisions' calls, where the schema has them."""
        self._builder.begin_module(module, calls)
        self._contexts.begin_module(module)
        self._log_rows = self._log_contexts = 0
        self._context_is_known = False
        self._keeping = self._keeps is None or self._keeps("") is not None

    def write(self, block: Rows | Contexts) -> None:
        """Write a block of the log.

        Raises:
            MlgoCorpusError: a file cannot be written.
        """
        if isinstance(block, Contexts):
            self._write_contexts(block)
        elif self._keeping:
            if not self._context_is_known:
                self._contexts.extend((None,), None, self._flushed + self._builder.rows)
                self._context_is_known = True
            self._write_rows(block)

    def commit_log(self) -> tuple[int, int]:
        """End the log, and return the number of its observations and contexts that were kept."""
        self._safe_rows, self._safe_contexts, self._safe_parts = (
            self._builder.rows,
            len(self._contexts),
            len(self._parts),
        )
        if self._open is not None:
            self._open.mixed = False
        return self._log_rows, self._log_contexts

    def roll_back(self) -> None:
        """Remove what was written of the log.

        Raises:
            StartOverError: a part of it is in a file with other logs' observations.
        """
        if self._open is not None and self._open.mixed:
            raise StartOverError("observations of a damaged log are in the file")
        self._builder.drop_after(self._safe_rows)
        self._contexts.drop_after(self._safe_contexts)
        for part in self._parts[self._safe_parts :]:
            self._flushed -= part.rows
            part.discard()
        del self._parts[self._safe_parts :]
        if self._open is not None and self._open not in self._parts:
            self._open = None

    def close(self) -> tuple[Part, ...]:
        """Write the rest, and return the files in their order. A single file is made even without rows.

        Raises:
            MlgoCorpusError: a file cannot be written.
        """
        if self._builder.rows or len(self._contexts) or (self._options.single and self._open is None):
            self._flush(self._builder.rows, len(self._contexts))
        self._close_part()
        self._encoder.close(checked=True)
        return tuple(part.described() for part in self._parts)

    def abandon(self) -> None:
        """Remove all files."""
        for part in self._parts:
            part.discard()
        self._parts.clear()
        self._encoder.close(checked=False)

    def _write_contexts(self, block: Contexts) -> None:
        names, lines = block
        self._context_is_known = True
        if self._keeps is not None:
            kept = [index for index, name in enumerate(names) if self._keeps(name)]
            self._keeping = bool(kept) and kept[-1] == len(names) - 1
            names = tuple(names[index] for index in kept)
            lines = None if lines is None else tuple(lines[index] for index in kept)
        if not names:
            return
        self._builder.begin_context(names[-1])
        self._contexts.extend(names, lines, self._flushed + self._builder.rows)
        self._log_contexts += len(names)
        while len(self._contexts) >= _MAX_CONTEXTS or (self._contexts.bytes >= _MAX_CONTEXT_BYTES):
            if len(self._contexts) == 1:  # it may get more rows
                break
            self._make_room()

    def _write_rows(self, rows: Rows) -> None:
        self._log_rows += len(rows.tensors)
        while len(rows.tensors) > (room := self._builder.room):
            if room:
                self._builder.append(cut_rows(rows, 0, room))
                rows = cut_rows(rows, room, len(rows.tensors))
            self._make_room()
        self._builder.append(rows)

    def _make_room(self) -> None:
        """Flush the committed logs; if there are none, flush the rows of the current log."""
        if self._safe_rows or self._safe_contexts:
            rows, contexts = self._safe_rows, self._safe_contexts
            self._safe_rows = self._safe_contexts = 0
            self._flush(rows, contexts)
            self._safe_parts = len(self._parts)
            return
        if self._open is not None and len(self._parts) == self._safe_parts:
            if self._options.single:
                self._open.mixed = True
            else:
                self._close_part()
        self._flush(self._builder.rows, len(self._contexts) - 1)  # the last context may get more rows

    def _flush(self, rows: int, contexts: int) -> None:
        pending = self._contexts.take(contexts, self._flushed + self._builder.rows)
        batch = self._builder.take(rows)
        self._flushed += rows
        while True:
            part = self._open
            if part is None:
                part = self._open = _OpenPart(self._folder, f"{self._prefix}{len(self._parts):05d}", self._schema)
                self._parts.append(part)
            room = self._rows_per_file - part.rows
            now = batch if self._options.single or batch.num_rows <= room else batch.slice(0, room)
            part.rows += now.num_rows
            is_full = part.rows >= self._rows_per_file and not self._options.single
            self._encoder.run(part, partial(self._encode, part, now, pending, is_full))
            if is_full:
                self._open = None
            batch, pending = batch.slice(now.num_rows), None
            if not batch.num_rows:
                return

    def _encode(self, part: _OpenPart, batch: pa.RecordBatch, contexts: pa.RecordBatch | None, is_full: bool) -> None:
        compression = self._options.compression
        try:
            part.write(batch, contexts, compression=compression, always=self._options.single)
            if is_full:
                part.commit()
        except OSError as error:
            raise self._cannot_write(error) from error

    def _cannot_write(self, error: OSError) -> MlgoCorpusError:
        return MlgoCorpusError(f"cannot write {error.filename or self._folder}: {os_reason(error)}")

    def _close_part(self) -> None:
        if self._open is not None:
            self._encoder.run(self._open, partial(self._commit, self._open))
            self._open = None

    def _commit(self, part: _OpenPart) -> None:
        try:
            part.commit()
        except OSError as error:
            raise self._cannot_write(error) from error


class _OpenPart:
    """The files of one part while they are written. ``mixed``: they also contain uncommitted rows.

    Once it is discarded, nothing is written any more: an interrupt may come just after a thread was given some work,
    of which nobody knows then.
    """

    def __init__(self, folder: Path, name: str, schema: pa.Schema) -> None:
        self.rows = 0
        self.mixed = False
        self.last: Future[None] | None = None
        self._observations_path = folder / f"{name}.parquet"
        self._contexts_path = folder / f"{name}.contexts.parquet"
        self._schema = schema
        self._observations: BatchTable | None = None
        self._contexts: BatchTable | None = None
        self._lock = Lock()
        self._discarded = False

    def write(self, batch: pa.RecordBatch, contexts: pa.RecordBatch | None, *, compression: str, always: bool) -> None:
        with self._lock:
            if self._discarded:
                return
            if batch.num_rows or always:
                if self._observations is None:
                    self._observations = BatchTable(self._observations_path, self._schema, compression=compression)
                if batch.num_rows:
                    self._observations.write(batch)
            if contexts is not None and contexts.num_rows:
                if self._contexts is None:
                    self._contexts = BatchTable(self._contexts_path, contexts.schema)
                self._contexts.write(contexts)

    def commit(self) -> None:
        with self._lock:
            for table in (self._observations, self._contexts):
                if table is not None and not self._discarded:
                    table.commit()

    def discard(self) -> None:
        with self._lock:
            self._discarded = True
            for table in (self._observations, self._contexts):
                if table is not None:
                    table.abandon()
                    table.path.unlink(missing_ok=True)

    def described(self) -> Part:
        names = [None if table is None else table.path.name for table in (self._observations, self._contexts)]
        return Part(names[0], self.rows, names[1])


class _Encoder:
    """Runs the writing of parts: in order for each part, in the background for several at a time."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="encode") if threads else None
        self._free = BoundedSemaphore(max(1, threads))
        self._failure: BaseException | None = None

    def run(self, part: _OpenPart, work: Callable[[], None]) -> None:
        """Run some work on a part, after its earlier work; an error may be raised by a later call."""
        if self._pool is None:
            work()
            return
        self._free.acquire()
        self._check()
        part.last = self._pool.submit(self._job, part.last, work)

    def _job(self, before: Future[None] | None, work: Callable[[], None]) -> None:
        try:
            if before is not None:
                before.result()
            work()
        except BaseException as error:
            self._failure = self._failure or error
            raise
        finally:
            self._free.release()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def close(self, *, checked: bool) -> None:
        """Wait for all work; with ``checked``, raise its first error."""
        if self._pool is not None:
            self._pool.shutdown()
        if checked:
            self._check()


class _ContextRows:
    """The rows of ``contexts.parquet`` that are not written yet, in the observations' order."""

    def __init__(self) -> None:
        self._names: list[str | None] = []
        self._first_rows: list[int] = []
        self._lines: dict[int, bytes] = {}
        self._modules = Labels()
        self.bytes = 0  # approximately, of names and lines

    def __len__(self) -> int:
        return len(self._names)

    def begin_module(self, name: str) -> None:
        self._modules.begin(name, len(self._names))

    def extend(self, names: tuple[str | None, ...], lines: tuple[bytes, ...] | None, row: int) -> None:
        """Begin contexts, all of them at ``row``: only the last can have observations."""
        if lines is not None:
            for index, (name, line) in enumerate(zip(names, lines, strict=True), len(self._names)):
                if name is None or line != encode_context(name):
                    self._lines[index] = line
                    self.bytes += len(line)
        self.bytes += sum(len(name) for name in names if name is not None)
        self._names.extend(names)
        self._first_rows.extend([row] * len(names))

    def drop_after(self, count: int) -> None:
        del self._names[count:]
        del self._first_rows[count:]
        self._lines = {index: line for index, line in self._lines.items() if index < count}
        self._modules.drop_after(count)
        self._count_bytes()

    def take(self, count: int, row: int) -> pa.RecordBatch:
        """Return the first ``count`` contexts; ``row`` is the number of observations so far."""
        import pyarrow as pa

        firsts = np.array(self._first_rows[: count + 1], np.int64)
        if len(firsts) == count:
            firsts = np.append(firsts, row)
        lines = [None] * count if not self._lines else [self._lines.get(index) for index in range(count)]
        batch = pa.RecordBatch.from_arrays(
            [
                self._modules.array(count, len(self._names)),
                arrays.texts(pa.string(), self._names[:count]).dictionary_encode(),
                arrays.numbers(pa.int64(), firsts[:-1]),
                arrays.numbers(pa.int64(), np.diff(firsts)),
                arrays.texts(pa.binary(), lines),
            ],
            schema=contexts_schema(),
        )
        del self._names[:count]
        del self._first_rows[:count]
        self._lines = {index - count: line for index, line in self._lines.items() if index >= count}
        self._modules.keep_from(count)
        self._count_bytes()
        return batch

    def _count_bytes(self) -> None:
        self.bytes = sum(len(name) for name in self._names if name is not None) + sum(map(len, self._lines.values()))
