"""Restore the logs that a dataset was made from, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mlgo_corpus.dataset.folder import DatasetPaths
from mlgo_corpus.dataset.logs import LogWriter
from mlgo_corpus.dataset.logtable import LogRow
from mlgo_corpus.dataset.observations import Array, is_observation_schema, iter_runs, observation_schema, rows_of_batch
from mlgo_corpus.dataset.writer import ROW_GROUP_BYTES, contexts_schema
from mlgo_corpus.errors import CorpusError, FormatError
from mlgo_corpus.files import arrays
from mlgo_corpus.files.tables import blamed, read_parquet
from mlgo_corpus.formats.logs.blocks import Rows
from mlgo_corpus.formats.logs.events import Context, LogHeader, encode_context, parse_header

_CONTEXTS_AT_A_TIME = 1 << 16


class _ContextRow(NamedTuple):
    """A row of ``contexts.parquet``; ``context`` and ``count`` have other names, because tuples have a ``count``."""

    module: str
    name: str | None
    first_row: int
    rows: int
    line: bytes | None


def write_logs(paths: DatasetPaths, rows: Sequence[tuple[LogRow, Path]], *, progress: Callable[[int], None]) -> int:
    """Write each of a dataset's logs to its path, and return the number of bytes.

    ``rows`` are all rows of ``modules.parquet``. ``progress`` is called with the number of observations written.

    Raises:
        CorpusError: the dataset's tables contradict each other.
        OSError: a log cannot be written.
    """
    if not rows:
        return 0
    contexts = _Ahead(_iter_contexts(paths))
    observations = _Observations(paths, _header_of(rows[0][0]))
    written = 0
    for row, path in rows:
        header = _header_of(row)
        if header != observations.header:
            raise _contradiction(paths, f"{row.module} has another header than {rows[0][0].module}")
        path.parent.mkdir(parents=True, exist_ok=True)
        with LogWriter(path, header=header, separator=(row.separator or ":").encode()) as log:
            first, count = observations.row, 0
            while (context := contexts.next_of(row.module)) is not None:
                _write_context(log, context, observations, progress)
                count += context.name is not None
            if (count, observations.row - first) != (row.contexts, row.observations):
                raise _contradiction(paths, f"{count} contexts and {observations.row - first} rows of {row.module}")
        written += path.stat().st_size
    if contexts.head is not None or observations.rest():
        raise _contradiction(paths, "there are more rows than modules.parquet says")
    return written


def _write_context(
    log: LogWriter, context: _ContextRow, observations: _Observations, progress: Callable[[int], None]
) -> None:
    if context.first_row != observations.row or context.rows is None or context.rows < 0:
        raise _contradiction(observations.paths, f"a context begins at row {context.first_row}")
    if context.name is not None:
        line = encode_context(context.name) if context.line is None else context.line
        log.write_event(Context(context.name, line))
    for numbers, tensors, scores in observations.take(context):
        for first, after in iter_runs(numbers):
            part = slice(first, after)
            log.write_rows(Rows(int(numbers[first]), tensors[part], None if scores is None else scores[part]))
        progress(len(numbers))


class _Ahead:
    """An iterator of contexts whose next one can be inspected: ``head``."""

    def __init__(self, contexts: Iterator[_ContextRow]) -> None:
        self._contexts = contexts
        self.head = next(contexts, None)

    def next_of(self, module: str) -> _ContextRow | None:
        """Return the next context if it is of this module."""
        head = self.head
        if head is None or head.module != module:
            return None
        self.head = next(self._contexts, None)
        return head


class _Labels:
    """A batch's column of text."""

    def __init__(self, column: Any) -> None:
        self._codes = arrays.integers_of(column.indices, -1)
        self._names = [*column.dictionary.to_pylist(), None]
        if len(self._codes) and not -1 <= self._codes.min() <= self._codes.max() < len(self._names) - 1:
            raise ValueError("an index lies outside its dictionary")

    def are(self, name: str | None, rows: slice) -> bool:
        """Return whether all of these rows have this name."""
        codes = self._codes[rows]
        if (codes == codes[0]).all():
            return bool(self._names[codes[0]] == name)
        return {self._names[code] for code in np.unique(codes).tolist()} == {name}


class _Observations:
    """The observations' files as one sequence of rows; ``row`` is the next one's number."""

    def __init__(self, paths: DatasetPaths, header: LogHeader) -> None:
        self.paths = paths
        self.header = header
        self.row = 0
        self._batches = self._iter_batches()
        self._numbers: Array = np.empty(0, np.int64)
        self._tensors: Array = np.empty(0, "V1")
        self._scores: Array | None = None
        self._labels: tuple[_Labels, ...] = ()
        self._at = 0

    def take(self, context: _ContextRow) -> Iterator[tuple[Array, Array, Array | None]]:
        """Yield the next rows, which must be the context's: their numbers, tensors and scores."""
        count = context.rows
        while count:
            if self._at == len(self._numbers) and not self._advance():
                raise _contradiction(self.paths, f"there is no row {self.row}")
            part = slice(self._at, min(len(self._numbers), self._at + count))
            if not all(labels.are(name, part) for labels, name in zip(self._labels, context[:2], strict=True)):
                raise _contradiction(self.paths, f"row {self.row} is of another context than contexts.parquet says")
            taken = part.stop - part.start
            self._at += taken
            self.row += taken
            count -= taken
            yield self._numbers[part], self._tensors[part], None if self._scores is None else self._scores[part]

    def rest(self) -> bool:
        """Return whether there are more rows."""
        return self._at < len(self._numbers) or self._advance()

    def _advance(self) -> bool:
        for batch in self._batches:
            if batch.num_rows:
                with blamed(self.paths.root):
                    self._labels = (_Labels(batch.column(0)), _Labels(batch.column(1)))
                    self._numbers = arrays.numbers_in(batch.column(2))
                    self._tensors, self._scores = rows_of_batch(self.header, batch)
                if (self._numbers < 0).any():
                    raise _contradiction(self.paths, "an observation's number is less than 0")
                self._at = 0
                return True
        return False

    def _iter_batches(self) -> Iterator[Any]:
        size = max(1, ROW_GROUP_BYTES // max(1, self.header.tensor_bytes + self.header.score_bytes))
        wanted = observation_schema(self.header).names
        for path in self.paths.parts():
            with read_parquet(path) as file:
                if not is_observation_schema(file.schema_arrow, self.header):
                    raise CorpusError(f"{path}: its columns are not those of the header in modules.parquet")
                yield from file.iter_batches(batch_size=size, columns=wanted)


def _iter_contexts(paths: DatasetPaths) -> Iterator[_ContextRow]:
    with read_parquet(paths.contexts) as file:
        if not file.schema_arrow.equals(contexts_schema()):
            raise CorpusError(f"{paths.contexts}: its columns are not those of a table of contexts")
        for batch in file.iter_batches(batch_size=_CONTEXTS_AT_A_TIME):
            columns = [column.to_pylist() for column in batch.columns]
            yield from map(_ContextRow._make, zip(*columns, strict=True))


def _header_of(row: LogRow) -> LogHeader:
    if row.separator not in (None, ":", ": "):
        raise CorpusError(f"modules.parquet: an unknown separator: {row.separator!r}", row.module)
    try:
        return parse_header((row.header or "").encode())
    except FormatError as error:
        raise CorpusError(f"modules.parquet: {error}", row.module) from error


def _contradiction(paths: DatasetPaths, what: str) -> CorpusError:
    return CorpusError(f"{paths.root}: its tables contradict each other: {what}")
