"""Logs into a dataset: groups of logs for workers, each of which writes files of its own, put together in order."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus import __version__
from mlgo_corpus.corpus.modules import STATUS_FAILED, STATUS_OK
from mlgo_corpus.dataset.card import dataset_card
from mlgo_corpus.dataset.folder import DatasetFolder, keep_result
from mlgo_corpus.dataset.logs import LogFile, open_log
from mlgo_corpus.dataset.logtable import LogReason, LogRow, write_log_rows
from mlgo_corpus.dataset.observations import observation_schema
from mlgo_corpus.dataset.writer import ObservationsWriter, Part, StartOverError, WriteOptions, contexts_schema
from mlgo_corpus.engine.choice import HERE, EngineChoice, Lost, available_cpus
from mlgo_corpus.engine.map import parallel_map
from mlgo_corpus.errors import FormatError, MlgoCorpusError, TruncatedError, UnsupportedError
from mlgo_corpus.files import arrays
from mlgo_corpus.files.atomic import write_atomically, writing
from mlgo_corpus.files.tables import BatchTable, open_parquet, read_batch
from mlgo_corpus.files.text import os_reason, printable
from mlgo_corpus.formats.logs.blocks import WINDOW_BYTES, BlockReader, Source
from mlgo_corpus.formats.logs.events import LogHeader, parse_header

if TYPE_CHECKING:
    import pyarrow as pa

# A task is as many logs as make up so much, so that small ones share files and large ones spread over the workers.
# It does not depend on the number of workers, because the files would.
TASK_BYTES: Final = 32 << 20
_TASK_LOGS = 20_000
# A compressed log is larger than its file.
_COMPRESSION_RATIO = 8
_CONTEXTS_PER_GROUP = 1 << 16
# Most logs are small, and making room for a large one would take longer than to read them.
_SMALL_WINDOW_BYTES = 64 << 10
# One thread reads a log as fast as three can encode it; each of them has a row group in memory. The row groups of a
# single file are encoded one after the other.
_MAX_ENCODERS = 3
# In a result, what stands for the header that all of a task's logs have: in full, it would be most of the result.
_TASKS_HEADER = ""
# A log may be very large; only a dead network file system takes longer.
_TASK_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class LogTask:
    """Some logs of one header, for one worker; ``header`` is None for a pipe, which is alone.

    ``name`` is the task's own in the work folder; ``with_calls``: each log has the calls of its decisions.
    """

    name: str
    logs: tuple[LogFile, ...]
    work: Path
    header: bytes | None
    options: WriteOptions
    allow_truncated: bool
    with_calls: bool = False


class TaskResult(NamedTuple):
    """A task's outcome: its files, and a row for each log."""

    parts: tuple[Part, ...]
    rows: tuple[LogRow, ...]


def _make_tasks(logs: Iterable[LogFile], *, together: bool) -> Iterator[tuple[LogFile, ...]]:
    """Divide logs into the tasks' shares, in order; ``together``: all into one."""
    share: list[LogFile] = []
    size = 0
    for log in logs:
        weight = (log.size or 0) * (_COMPRESSION_RATIO if log.path.endswith((".gz", ".zst")) else 1)
        if share and not together and (size + weight > TASK_BYTES or len(share) == _TASK_LOGS):
            yield tuple(share)
            share, size = [], 0
        share.append(log)
        size += weight
    if share:
        yield tuple(share)


def convert_task(task: LogTask, progress: Callable[[int], None] | None = None) -> None:
    """Convert a task's logs into files in the work folder, its `TaskResult` too.

    The result is read from there when it is due, so that the results of tasks that were faster wait on disk.
    ``progress`` is told how many bytes were read.

    Raises:
        FormatError: the task's only log is a pipe, which is no log.
        MlgoCorpusError: a file cannot be written.
    """
    if task.header is None:
        with open_log(task.logs[0].path) as source:
            counted = _CountedSource(source, progress)
            reader = BlockReader(counted)
            _convert(task, reader.header, lambda log, writer: _read(log, reader, counted, writer, task))
        return

    header = parse_header(task.header)
    excluded: dict[str, LogRow] = {}

    def convert_log(log: LogFile, writer: ObservationsWriter) -> LogRow:
        return excluded.get(log.source) or _convert_log(log, header, writer, task, progress)

    while True:
        try:
            _convert(task, header, convert_log)
            return
        except _StartOver as again:
            excluded[again.log.source] = again.row


def _schema(header: LogHeader, *, with_calls: bool) -> pa.Schema:
    metadata = {"tool": "mlgo-corpus", "version": __version__, "kind": "observations", "header": header.line.decode()}
    return observation_schema(header, metadata, with_calls=with_calls)


class _StartOver(Exception):  # noqa: N818 - it is no error
    """The only file has to be written again, without this log."""

    def __init__(self, log: LogFile, row: LogRow) -> None:
        super().__init__(log, row)
        self.log = log
        self.row = row


def _convert(task: LogTask, header: LogHeader, convert_log: Callable[[LogFile, ObservationsWriter], LogRow]) -> None:
    schema = _schema(header, with_calls=task.with_calls)
    writer = ObservationsWriter(task.work, f"{task.name}-", header, schema, task.options)
    try:
        rows = tuple(convert_log(log, writer) for log in task.logs)
        result = TaskResult(writer.close(), rows)
    except BaseException:
        writer.abandon()
        raise
    keep_result(task.work, task.name, result)


def _convert_log(
    log: LogFile,
    header: LogHeader,
    writer: ObservationsWriter,
    task: LogTask,
    progress: Callable[[int], None] | None,
) -> LogRow:
    """Convert one log; its row says why it cannot be."""
    try:
        with open_log(log.path) as source:
            counted = _CountedSource(source, progress)
            reader = BlockReader(counted, min(WINDOW_BYTES, max(_SMALL_WINDOW_BYTES, (log.size or 0) + 1)))
            if reader.header != header:
                raise FormatError("the log is another one than it was a moment ago", offset=0)
            return _read(log, reader, counted, writer, task)
    except (FormatError, OSError) as error:
        return failed_row(log, error)


def _read(
    log: LogFile, reader: BlockReader, counted: _CountedSource, writer: ObservationsWriter, task: LogTask
) -> LogRow:
    """Write a log's blocks; of a damaged log all of them or none."""
    writer.begin_log(log.module, None if log.calls is None else read_batch(Path(log.calls)))
    reason, detail = LogReason.OK, ""
    separator = None  # a second header makes the reader forget it
    try:
        for block in reader:
            writer.write(block)
            separator = reader.separator
    except FormatError as error:
        reason, detail = _reason(error), str(error)
    except OSError as error:  # the log's: the writer's are no OSErrors
        reason, detail = LogReason.UNREADABLE, os_reason(error)
    dropped = 0
    if reason != LogReason.OK:
        dropped = counted.drain() - reader.offset
        if not task.allow_truncated:
            row = _failed(log, reason, detail)._replace(header=_header_text(reader, task), log_bytes=counted.bytes)
            try:
                writer.roll_back()
            except StartOverError:
                raise _StartOver(log, row) from None
            return row
    observations, contexts = writer.commit_log()
    return LogRow(
        module=log.module,
        source=printable(log.source),
        status=STATUS_OK,
        reason=reason,
        detail=detail,
        contexts=contexts,
        observations=observations,
        log_bytes=counted.bytes,
        dropped_bytes=dropped,
        header=_header_text(reader, task),
        separator=None if separator is None else separator.decode(),
    )


def _header_text(reader: BlockReader, task: LogTask) -> str:
    return _TASKS_HEADER if reader.header.line == task.header else reader.header.line.decode()


def failed_row(log: LogFile, error: FormatError | OSError) -> LogRow:
    """Return the row of a file that is not a log, or cannot be read."""
    if isinstance(error, OSError):
        return _failed(log, LogReason.UNREADABLE, os_reason(error))
    return _failed(log, _reason(error), str(error.at(None)))


def _failed(log: LogFile, reason: LogReason, detail: str) -> LogRow:
    return LogRow(log.module, printable(log.source), STATUS_FAILED, reason, printable(detail), log_bytes=log.size)


def _reason(error: FormatError) -> LogReason:
    if isinstance(error, UnsupportedError):
        return LogReason.SECOND_HEADER
    return LogReason.TRUNCATED if isinstance(error, TruncatedError) else LogReason.MALFORMED


class _CountedSource:
    """A source that counts its bytes."""

    def __init__(self, source: Source, progress: Callable[[int], None] | None) -> None:
        self._source = source
        self._progress = progress
        self.bytes = 0

    def readinto(self, buffer: memoryview, /) -> int | None:
        got = self._source.readinto(buffer)
        self.bytes += got or 0
        if self._progress is not None and got:
            self._progress(got)
        return got

    def drain(self) -> int:
        """Read to the end, and return the number of bytes in all."""
        block = memoryview(bytearray(1 << 20))
        with suppress(FormatError, OSError):
            while self.readinto(block):
                pass
        return self.bytes


_WriteCard = Callable[[Mapping[str, Any], LogHeader], str]


class LogConversion:
    """Converts logs of one header into a dataset.

    First `rows` is exhausted: it converts, and yields what came of each log. Then `finish` puts the files in their
    places. Neither holds more than the tasks under way, whatever the number of logs.

    Args:
        folder: the dataset's.
        header: of all logs; None for a pipe, whose header is not known yet.
        options: how observations are written.
        allow_truncated: whether the whole observations of damaged logs are kept.
        jobs: the number of workers; None for one on each CPU.
        progress: called with the number of bytes read.
        engine: where the workers run.
        with_calls: whether each log has the calls of its decisions, which become columns.
    """

    def __init__(
        self,
        folder: DatasetFolder,
        header: LogHeader | None,
        *,
        options: WriteOptions,
        allow_truncated: bool,
        jobs: int | None,
        progress: Callable[[int], None] = lambda _: None,
        engine: EngineChoice = HERE,
        with_calls: bool = False,
    ) -> None:
        self.folder = folder
        self.header = header
        self._with_calls = with_calls
        self._options = options
        self._allow_truncated = allow_truncated
        self._jobs = jobs
        self._progress = progress
        self._engine = engine
        self._parts: list[tuple[Part, ...]] = []
        self._totals = {"modules": 0, "contexts": 0, "observations": 0}

    @property
    def modules(self) -> Path:
        """Where the table of logs or modules is made."""
        return self.folder.paths.work / "modules.parquet"

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of that table's schema."""
        return {"tool": "mlgo-corpus", "version": __version__, "key": self.folder.key}

    def rows(self, logs: Callable[[], Iterable[LogFile]]) -> Iterator[LogRow]:
        """Convert logs, and yield a row for each, in order.

        Args:
            logs: returns the logs, the same each time.

        Raises:
            FormatError: the only log is a pipe, which is no log.
            MlgoCorpusError: a file cannot be written.
        """
        self.folder.begin()
        with writing(self.folder.paths.work):
            for result in self._results(logs):
                self._parts.append(result.parts)
                for row in result.rows:
                    self.count(row)
                    yield row

    def count(self, row: LogRow) -> None:
        """Count a row for ``dataset.json``; those that `rows` yields are counted."""
        if self.header is None and row.header is not None:
            self.header = parse_header(row.header.encode())
        self._totals["modules"] += 1
        self._totals["contexts"] += row.contexts
        self._totals["observations"] += row.observations

    def _results(self, logs: Callable[[], Iterable[LogFile]]) -> Iterator[TaskResult]:
        """Yield the tasks' results in order: those that an interrupted run left, and the others made now."""
        shares = _make_tasks(logs(), together=self._options.single)
        alone = len(list(islice(shares, 2))) == 1
        options, threads = self._options, self._jobs or available_cpus()
        if alone and threads > 1:
            options = replace(options, threads=1 if options.single else min(threads, _MAX_ENCODERS))
        done: dict[str, bool] = {}

        def tasks() -> Iterator[LogTask]:
            work, line = self._engine.place(self.folder.paths.work), None if self.header is None else self.header.line
            for number, share in enumerate(_make_tasks(logs(), together=options.single)):
                name = f"task-{self.folder.token}-{number:05d}"
                yield LogTask(name, share, work, line, options, self._allow_truncated, self._with_calls)

        def is_done(task: LogTask) -> bool:
            if task.name not in done:  # once decided it stays so: a worker may make it in the meantime
                done[task.name] = _result_there(self.folder, task) is not None
            return done[task.name]

        missing = (task for task in tasks() if not is_done(task))
        first = list(islice(missing, 2))
        made: Iterator[Lost | None]
        if len(first) == 1:
            made = map(partial(convert_task, progress=self._progress), first)
        else:
            made = parallel_map(
                convert_task,
                chain(first, missing),
                jobs=self._jobs,
                limit=_TASK_SECONDS,
                weigh=lambda _: 1.0,
                engine=self._engine,
                needs=(self._engine.place(self.folder.paths.work), *_folders(first)),
            )
        for task in tasks():
            outcome = None if is_done(task) else next(made)
            if isinstance(outcome, Lost):
                lost = (_failed(log, LogReason.WORKER_DIED, outcome.detail) for log in task.logs)
                result: TaskResult | None = TaskResult((), tuple(lost))
            else:
                result = _result_there(self.folder, task)
            if result is None:
                raise MlgoCorpusError(f"{self.folder.paths.work}: the result of {task.name} is gone; run it again")
            if len(first) != 1 or is_done(task):
                self._progress(sum(log.size or 0 for log in task.logs))
            yield _with_headers(result, task)

    def finish(
        self,
        more: Mapping[str, Any] | None = None,
        card: _WriteCard = dataset_card,
        tables: Sequence[tuple[Path, Path]] = (),
    ) -> None:
        """Put the tasks' files and the table of modules together into the dataset.

        Args:
            more: what ``dataset.json`` says besides, or instead of what it says of logs, but for its ``files``; it is
                told to the card, too.
            card: makes the text of ``README.md`` of ``dataset.json``'s content and the logs' header.
            tables: further files, each with its place.

        A dataset that is a single file has neither ``dataset.json`` nor a card.

        Raises:
            MlgoCorpusError: a file cannot be written.
        """
        with writing(self.folder.paths.work):
            self._finish(more or {}, card, tables)

    def _finish(self, more: Mapping[str, Any], card: _WriteCard, tables: Sequence[tuple[Path, Path]]) -> None:
        paths, header = self.folder.paths, self.header
        if header is None:
            raise AssertionError("a log that was converted has a header")
        parts = [part for made in self._parts for part in made if part.observations is not None]
        if not parts:  # a table without rows still tells of its columns
            parts = [Part("empty.parquet", 0, None)]
            compression = self._options.compression
            schema = _schema(header, with_calls=self._with_calls)
            BatchTable(paths.work / "empty.parquet", schema, compression=compression).commit()
        moves = [
            (paths.work / str(part.observations), paths.part(number, len(parts))) for number, part in enumerate(parts)
        ]
        about: dict[str, Any] = {
            "tool": "mlgo-corpus",
            "version": __version__,
            "kind": "training-logs",
            "header": header.line.decode(),
            **self._totals,
            "files": [
                {"name": str(place.relative_to(paths.folder)), "rows": part.rows}
                for (_, place), part in zip(moves, parts, strict=True)
            ],
        }
        about |= {name: value for name, value in more.items() if name != "files"}
        contexts = paths.work / "contexts.parquet"
        _merge_contexts(paths.work, self._parts, contexts)
        tables = [(contexts, paths.contexts), (self.modules, paths.modules), *tables]
        publish_dataset(self.folder, moves, tables, about, card(about, header))


def publish_dataset(
    folder: DatasetFolder,
    rows: Sequence[tuple[Path, Path]],
    tables: Sequence[tuple[Path, Path]],
    about: Mapping[str, Any],
    card: str,
) -> None:
    """Move all files of a dataset to their places; ``dataset.json`` and the card come last, and not to a single file.

    Args:
        folder: the dataset's.
        rows: the files of rows, each with its place.
        tables: the other tables.
        about: the content of ``dataset.json``.
        card: the text of ``README.md``.

    Raises:
        MlgoCorpusError: a file cannot be moved; the next run goes on with it.
        OSError: a file cannot be written.
    """
    paths = folder.paths
    if paths.single:
        folder.finish([*tables, *rows])
        return
    texts = [(paths.work / "README.md", paths.card, card)]
    texts.append((paths.work / "dataset.json", paths.whole, json.dumps(about, indent=2) + "\n"))
    for path, _, text in texts:
        write_atomically(path, text.encode())
    folder.finish([*rows, *tables, *((path, place) for path, place, _ in texts)])


@dataclass(frozen=True, slots=True)
class ConvertedLogs:
    """Logs that are converted, but not in their dataset's places yet; ``rows`` has one for each."""

    conversion: LogConversion
    rows: tuple[LogRow, ...]

    def finish(self) -> None:
        """Put all together into the dataset.

        Raises:
            MlgoCorpusError: a file cannot be written.
        """
        with writing(self.conversion.folder.paths.work):
            write_log_rows(self.conversion.modules, self.rows, self.conversion.metadata)
        self.conversion.finish()


def convert_logs_into(
    folder: DatasetFolder,
    logs: Sequence[LogFile],
    header: LogHeader | None,
    failed: Sequence[LogRow],
    *,
    options: WriteOptions,
    allow_truncated: bool,
    jobs: int | None,
    progress: Callable[[int], None],
    engine: EngineChoice = HERE,
) -> ConvertedLogs:
    """Convert logs of one header (None: a pipe, whose header is not known yet) for a dataset.

    ``failed`` are the rows of logs that have no header; they go into the table, too.

    Raises:
        FormatError: the only log is a pipe, which is no log.
        MlgoCorpusError: a file cannot be written.
    """
    conversion = LogConversion(
        folder,
        header,
        options=options,
        allow_truncated=allow_truncated,
        jobs=jobs,
        progress=progress,
        engine=engine,
    )
    for row in failed:
        conversion.count(row)
    return ConvertedLogs(conversion, (*failed, *conversion.rows(lambda: logs)))


def _folders(tasks: Sequence[LogTask]) -> Iterator[Path]:
    """Name a few folders that the logs are in, for a cluster to look for; where paths are relative, the current one."""
    logs = [log for task in tasks[:1] for log in task.logs[:1]]
    for log in logs:
        yield Path(log.path).parent.absolute()
        if not os.path.isabs(log.path):
            yield Path.cwd()


def _with_headers(result: TaskResult, task: LogTask) -> TaskResult:
    """Put the task's header in where it is left out: one text for all rows."""
    if task.header is None:
        return result
    text = task.header.decode()
    return TaskResult(
        result.parts, tuple(row._replace(header=text) if row.header == _TASKS_HEADER else row for row in result.rows)
    )


def _result_there(folder: DatasetFolder, task: LogTask) -> TaskResult | None:
    kept = folder.result_of(task.name)
    if kept is None:
        return None
    try:
        parts, rows = kept
        result = TaskResult(tuple(Part(*part) for part in parts), tuple(LogRow(*row) for row in rows))
    except (TypeError, ValueError):
        return None
    # The set of logs may differ from the interrupted run's: a module that failed then may have a log now.
    if [(row.module, row.source) for row in result.rows] != [(log.module, printable(log.source)) for log in task.logs]:
        return None
    names = [name for part in result.parts for name in (part.observations, part.contexts) if name is not None]
    return result if all((task.work / name).is_file() for name in names) else None


def _merge_contexts(work: Path, tasks: Sequence[tuple[Part, ...]], path: Path) -> None:
    """Join the tables of contexts; their rows count from the beginning of their task."""
    import pyarrow as pa

    schema = contexts_schema()
    column = schema.get_field_index("first_row")
    table = BatchTable(path, schema)
    try:
        first = 0
        for parts in tasks:
            for part in parts:
                if part.contexts is None:
                    continue
                with open_parquet(work / part.contexts) as file:
                    for batch in file.iter_batches(batch_size=_CONTEXTS_PER_GROUP):
                        moved = arrays.numbers(pa.int64(), _int64(batch.column(column)) + first)
                        columns = [*batch.columns[:column], moved, *batch.columns[column + 1 :]]
                        table.write(pa.RecordBatch.from_arrays(columns, schema=schema))
            first += sum(part.rows for part in parts)
        table.commit()
    except BaseException:
        table.abandon()
        raise


def _int64(column: pa.Array) -> NDArray[np.int64]:
    """Return a column without nulls as an array, without a copy."""
    return np.frombuffer(column.buffers()[1], np.int64, len(column), 8 * column.offset)
