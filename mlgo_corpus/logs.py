"""The logs stage: training logs to Parquet and back, and a log in memory.

`convert_logs` makes a dataset of any number of logs, `restore_logs` restores the logs byte for byte, and `read_log`
loads one into memory.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from mlgo_corpus import __version__
from mlgo_corpus.compilers.limits import check_count
from mlgo_corpus.corpus.modules import STATUS_OK
from mlgo_corpus.dataset.folder import DatasetFolder, DatasetPaths, find_other_datasets, open_dataset, read_key
from mlgo_corpus.dataset.loaded import ContextObservations, LogContext, TrainingLog, read_log
from mlgo_corpus.dataset.logs import (
    HeaderReader,
    LogFile,
    LogWriter,
    find_logs,
    log_name,
    module_name,
    without_compression,
)
from mlgo_corpus.dataset.logtable import LogReason, LogRow, read_log_rows
from mlgo_corpus.dataset.restore import write_logs
from mlgo_corpus.dataset.writer import COMPRESSIONS, WriteOptions
from mlgo_corpus.engine.choice import HERE, EngineChoice
from mlgo_corpus.errors import CorpusError, FormatError, MlgoCorpusError, UsageError
from mlgo_corpus.files.folder import finish_moves, recover, whole_files, whole_folder
from mlgo_corpus.files.names import NameRegistry
from mlgo_corpus.files.remote import is_url, output_here
from mlgo_corpus.files.text import counted, os_reason, several
from mlgo_corpus.formats.logs.events import LogHeader
from mlgo_corpus.formats.logs.tasks import TASKS, task_name
from mlgo_corpus.runs.datasets.convert import ConvertedLogs, convert_logs_into, failed_row
from mlgo_corpus.runs.datasets.publish import local_dataset, to_urls
from mlgo_corpus.runs.report import Report

__all__ = [
    "ContextObservations",
    "LogContext",
    "LogWriter",
    "LogsReport",
    "RestoreReport",
    "TrainingLog",
    "convert_logs",
    "read_log",
    "restore_logs",
    "task_name",
]

_PROBLEMS = 5
_OTHER = "other"
_SUMMED = (
    "logs", "converted", "damaged", "dropped_bytes", "contexts", "observations", "log_bytes", "parquet_bytes", "files",
    "renamed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LogsReport(Report):
    """The result of a conversion.

    Attributes:
        output: the dataset, or its URL.
        logs: number of logs found; ``converted`` of them are in the dataset.
        damaged: number of damaged logs whose intact observations are in the dataset, without ``dropped_bytes`` bytes.
        contexts: number of contexts in the dataset, including those without observations.
        observations: number of rows in the dataset.
        log_bytes: decompressed bytes of the converted logs.
        parquet_bytes: bytes of the ``files`` files of observations.
        unchanged: True if the dataset existed already, made from the same logs.
        renamed: number of logs whose module got another name because that of their path was taken.
        counts: logs by reason.
        problems: the first failed or damaged logs: source and detail.
        groups: with ``group_by_header`` the reports of the datasets, else empty.
        hints: advice for the user.
        seconds: how long it took.
    """

    _properties: ClassVar = ("failed", "exit_code")

    output: Path | str
    logs: int
    converted: int
    damaged: int
    dropped_bytes: int
    contexts: int
    observations: int
    log_bytes: int
    parquet_bytes: int
    files: int
    unchanged: bool
    renamed: int
    counts: dict[str, int]
    problems: tuple[tuple[str, str], ...]
    groups: tuple[LogsReport, ...] = ()
    hints: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def failed(self) -> int:
        """The number of logs that could not be converted."""
        return self.logs - self.converted


@to_urls
def convert_logs(
    inputs: Sequence[Path | str] | Path | str,
    output: Path | str,
    *,
    compression: str = "zstd",
    rows_per_file: int | None = None,
    context_regex: str | None = None,
    group_by_header: bool = False,
    allow_truncated: bool = False,
    jobs: int | None = None,
    force: bool = False,
    engine: EngineChoice = HERE,
    progress: Callable[[int, int], None] | None = None,
) -> LogsReport:
    """Convert training logs into a dataset: Parquet files with the whole content of the logs.

    Args:
        inputs: logs, folders of them, glob patterns, or ``-`` for standard input; also ``.gz`` and ``.zst`` files.
        output: the dataset's folder, or a single file if its name is ``*.parquet``; or an ``s3://`` or ``gs://`` URL.
        compression: the compression of the observations' files: ``zstd``, ``snappy``, ``gzip``, ``lz4``, ``brotli`` or
            ``none``.
        rows_per_file: the maximum number of rows of one file of observations; by default 32 MiB of them.
        context_regex: keep only contexts whose names match this regular expression somewhere.
        group_by_header: if logs have different headers, make one dataset for each header below ``output``.
        allow_truncated: keep the intact observations of damaged logs.
        jobs: worker processes; for a single log, threads. By default the CPUs this process may use.
        force: replace a dataset made from other logs or with other options.
        engine: where logs are read: on this machine or on a cluster.
        progress: called with (bytes done, bytes in all).

    Raises:
        UsageError: the inputs or options cannot be used, the logs have different headers, or no log could be converted;
            nothing was written.
        MlgoCorpusError: the dataset cannot be written.
    """
    started = time.perf_counter()
    output = Path(output)
    if compression not in COMPRESSIONS:
        raise UsageError(
            f"expected {', '.join(COMPRESSIONS[:-1])} or {COMPRESSIONS[-1]}", option="compression", value=compression
        )
    check_count("rows_per_file", rows_per_file)
    check_count("jobs", jobs)
    if context_regex is not None:
        try:
            re.compile(context_regex)
        except re.error as error:
            raise UsageError(
                f"not a regular expression: {error}", option="context_regex", value=context_regex
            ) from error
    single = DatasetPaths.of(output).single
    if single and rows_per_file is not None:
        raise UsageError(f"{output} is one file; name a folder instead", option="rows_per_file")
    if single and group_by_header:
        raise UsageError(f"{output} is one file; name a folder instead", option="group_by_header")
    logs = find_logs(several(inputs), exclude=output)
    conversion = _Conversion(
        WriteOptions(compression, rows_per_file, context_regex, single=single),
        allow_truncated,
        jobs,
        force,
        engine,
        _Progress(sum(log.size or 0 for log in logs), progress),
    )
    pipes = [log for log in logs if log.size is None]
    if pipes:
        if len(logs) > 1 or group_by_header:
            raise UsageError(f"{pipes[0].path}: a pipe has to be the only input, without `group_by_header`")
        [report] = conversion.convert([_Group(output, None, logs, ())])
    else:
        by_header, failed = _read_headers(logs)
        if len(by_header) > 1 and not group_by_header:
            raise UsageError(_different_headers(by_header))
        if not by_header:
            raise UsageError(_nothing_converted(failed))
        if group_by_header:
            groups = tuple(_groups(by_header, failed, output))
            others = find_other_datasets(output, frozenset(group.output.name for group in groups), _is_group_name)
            if others and not force:
                raise UsageError(f"{others[0]}: made by another call, of other logs; `force` removes it")
            report = _sum_of(output, conversion.convert(groups))
            for other in others:
                shutil.rmtree(other)
        else:
            [(header, group)] = by_header.items()
            [report] = conversion.convert([_Group(output, header, group, failed)])
    hints = tuple(_hints(report, allow_truncated=allow_truncated, context_regex=context_regex))
    return replace(report, hints=hints, seconds=time.perf_counter() - started)


def _hints(report: LogsReport, *, allow_truncated: bool, context_regex: str | None) -> Iterator[str]:
    """Yield what the numbers mean, and what to do about it."""
    if report.failed:
        advice = "" if allow_truncated else "; `allow_truncated` keeps the whole observations of damaged ones"
        yield f"{counted(report.failed, 'log')} of {report.logs} not converted{advice}"
    for group in report.groups or (report,):
        if context_regex is not None and not group.observations:
            yield (
                f"{Path(group.output).name}: `context_regex` {context_regex} matches no observations; inlining logs "
                "have one context, without a name"
            )
    if report.renamed:
        yield (
            f"{counted(report.renamed, 'log')} under another module name (NAME~2), because another log has the same "
            "name: is one a copy of the other, such as x.log and x.log.gz?"
        )


class _Group(NamedTuple):
    """Logs that become one dataset: their header (None for a pipe), and the rows of logs without a header."""

    output: Path
    header: LogHeader | None
    logs: Sequence[LogFile]
    failed: Sequence[LogRow]


def _groups(by_header: dict[LogHeader, list[LogFile]], failed: Sequence[LogRow], output: Path) -> Iterator[_Group]:
    """Yield a group for each header; the first one records the logs without a header."""
    for header, name in _group_names(list(by_header)).items():
        yield _Group(output / name, header, by_header[header], failed)
        failed = ()


@dataclass(frozen=True, slots=True)
class _Conversion:
    """The settings that all datasets of one call share."""

    options: WriteOptions
    allow_truncated: bool
    jobs: int | None
    force: bool
    engine: EngineChoice
    progress: _Progress

    def convert(self, groups: Iterable[_Group]) -> tuple[LogsReport, ...]:
        """Make the datasets of all groups, or none if no log can be converted."""
        groups = tuple(groups)
        folders = [
            DatasetFolder(group.output, self._key(group.logs, group.failed), force=self.force) for group in groups
        ]
        try:
            converted = [
                None if folder.is_whole else self._convert_group(folder, group)
                for folder, group in zip(folders, groups, strict=True)
            ]
            rows = [
                read_log_rows(folder.paths.modules) if made is None else made.rows
                for folder, made in zip(folders, converted, strict=True)
            ]
            if not any(row.status == STATUS_OK for group_rows in rows for row in group_rows):
                for folder in folders:
                    folder.discard()
                raise UsageError(_nothing_converted([row for group_rows in rows for row in group_rows]))
            for made in converted:
                if made is not None:
                    made.finish()
        except UsageError:  # such as a cluster that is gone
            for folder in folders:
                folder.discard_unless_begun()
            raise
        finally:
            for folder in folders:
                folder.close()
        return tuple(
            _report(folder.paths, group_rows, unchanged=folder.is_whole)
            for folder, group_rows in zip(folders, rows, strict=True)
        )

    def _convert_group(self, folder: DatasetFolder, group: _Group) -> ConvertedLogs:
        try:
            return convert_logs_into(
                folder,
                group.logs,
                group.header,
                group.failed,
                options=self.options,
                allow_truncated=self.allow_truncated,
                jobs=self.jobs,
                engine=self.engine,
                progress=self.progress.add,
            )
        except FormatError as error:  # of a pipe, whose header was not read before
            raise UsageError(str(error.at(Path(group.logs[0].path)))) from None

    def _key(self, logs: Sequence[LogFile], failed: Sequence[LogRow]) -> dict[str, Any]:
        """Return the key of a dataset: the version, the options and a digest of the logs."""
        digest = sha256()
        for log in logs:
            digest.update(
                repr((os.path.abspath(log.path), log.module, log.size, _stamp(log))).encode("utf-8", "replace")
            )
        for row in failed:
            digest.update(repr(row).encode("utf-8", "replace"))
        return {
            "version": __version__,
            "compression": self.options.compression,
            "rows_per_file": self.options.rows_per_file,
            "context_regex": self.options.context_regex,
            "allow_truncated": self.allow_truncated,
            "logs": digest.hexdigest(),
        }


def _stamp(log: LogFile) -> str:
    """Return text that differs between versions of a log of the same name and size, and between any two pipes."""
    if log.size is None:
        return secrets.token_hex()
    try:
        return str(os.stat(log.path).st_mtime_ns)
    except OSError as error:  # it was deleted meanwhile
        return os_reason(error)


def _sum_of(output: Path, groups: tuple[LogsReport, ...]) -> LogsReport:
    counts: Counter[str] = Counter()
    for group in groups:
        counts.update(group.counts)
    return LogsReport(
        output=output,
        **{name: sum(getattr(group, name) for group in groups) for name in _SUMMED},
        unchanged=all(group.unchanged for group in groups),
        counts=dict(counts.most_common()),
        problems=tuple(problem for group in groups for problem in group.problems)[:_PROBLEMS],
        groups=groups,
    )


class _Progress:
    """Adds up bytes, and passes the sum and the total to a progress function."""

    def __init__(self, total: int, told: Callable[[int, int], None] | None) -> None:
        self._total = total
        self._told = told
        self._done = 0

    def add(self, count: int) -> None:
        self._done += count
        if self._told is not None:
            self._told(min(self._done, self._total) if self._total else self._done, self._total)


def _read_headers(logs: Sequence[LogFile]) -> tuple[dict[LogHeader, list[LogFile]], list[LogRow]]:
    """Read the logs' headers; return the logs of each, and rows for logs without a header."""
    headers = HeaderReader()
    by_header: dict[LogHeader, list[LogFile]] = {}
    # By the header's identity: hashing 40 features takes longer than reading them.
    groups: dict[int, list[LogFile]] = {}
    failed = []
    for log in logs:
        try:
            header = headers.read(log.path)
        except (FormatError, OSError) as error:
            failed.append(failed_row(log, error))
            continue
        group = groups.get(id(header))
        if group is None:
            group = groups[id(header)] = by_header.setdefault(header, [])
        group.append(log)
    return by_header, failed


def _different_headers(by_header: dict[LogHeader, list[LogFile]]) -> str:
    (first, first_logs), (second, second_logs), *_ = by_header.items()
    paths = f"{first_logs[0].path} and {second_logs[0].path}"
    return f"{paths} have different headers: {first.difference(second)}; `group_by_header` makes a dataset of each"


def _nothing_converted(rows: Sequence[LogRow]) -> str:
    more = f" (and {len(rows) - 1} more logs failed)" if len(rows) > 1 else ""
    advice = ""
    if rows[0].reason in (LogReason.TRUNCATED, LogReason.MALFORMED, LogReason.SECOND_HEADER) and rows[0].header:
        advice = "; `allow_truncated` keeps its whole observations"
    return f"{rows[0].source}: {rows[0].detail}{more}{advice}"


def _group_names(headers: Sequence[LogHeader]) -> dict[LogHeader, str]:
    """Name the datasets of different headers by LLVM's task, and number those of the same task."""
    names: dict[LogHeader, str] = {}
    for header in headers:
        wanted = task_name(header) or _OTHER
        number = sum(name.partition("~")[0] == wanted for name in names.values()) + 1
        names[header] = wanted if number == 1 else f"{wanted}~{number}"
    return names


def _is_group_name(name: str) -> bool:
    """Return whether `_group_names` may give a dataset this name."""
    wanted, _, number = name.partition("~")
    return wanted in (_OTHER, *(task.name for task in TASKS)) and (number.isdecimal() or wanted == name)


@dataclass(frozen=True, slots=True)
class RestoreReport(Report):
    """The result of a restoration.

    Attributes:
        output: the folder.
        logs: number of logs written; ``missing`` others are not in the dataset because they could not be read.
        observations: number of observations in them.
        log_bytes: their bytes.
        renamed: number of logs that could not get their original name.
        incomplete: number of logs that differ from the original: they were damaged, and only their intact observations
            are kept, or the dataset holds only some contexts.
        seconds: how long it took.
    """

    output: Path
    logs: int
    missing: int
    observations: int
    log_bytes: int
    renamed: int
    incomplete: int
    seconds: float

    _properties: ClassVar = ("hints",)

    @property
    def hints(self) -> tuple[str, ...]:
        """Why logs are missing, or are not as they were."""
        found = {
            "could not be read when the dataset was made": self.missing,
            "could not get its original name": self.renamed,
            "not restored in full: the dataset was made with `allow_truncated` or `context_regex`": self.incomplete,
        }
        return tuple(f"{counted(logs, 'log')} {what}" for what, logs in found.items() if logs)


def restore_logs(
    dataset: Path | str,
    output: Path | str,
    *,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> RestoreReport:
    """Write the logs that a dataset was made of, byte for byte, under their paths below ``output``.

    The dataset may be behind a URL. Compressed logs are written uncompressed. Existing files are replaced only with
    ``force``.

    Raises:
        UsageError: there is no such dataset, a file is in a log's place, or ``output`` is in the dataset; nothing was
            written.
        CorpusError: the dataset's tables contradict each other; nothing was written.
        MlgoCorpusError: the logs cannot be written.
    """
    output = output_here(output, "a log", "a folder")
    try:
        with local_dataset(dataset) as local:
            return _restore(local, output, force=force, progress=progress)
    except CorpusError as error:
        if is_url(dataset) and not output.exists():
            raise UsageError(str(error)) from error
        raise


def _restore(dataset: Path, output: Path, *, force: bool, progress: Callable[[int, int], None] | None) -> RestoreReport:
    started = time.perf_counter()
    try:
        paths = open_dataset(dataset)
        rows = read_log_rows(paths.modules)
    except CorpusError as error:
        raise UsageError(str(error)) from error
    if output.resolve().is_relative_to(dataset.resolve()):
        raise UsageError(f"{output}: is the dataset, or in it; name another folder")
    registry = NameRegistry()
    there = [row for row in rows if row.status == STATUS_OK]
    placed = [(row, registry.claim(log_name(row.source))) for row in there]
    tell = _Progress(sum(row.observations for row in there), progress)
    with _log_files(output, [name for _, name in placed], force=force) as files:
        written = write_logs(paths, list(zip(there, files, strict=True)), progress=tell.add)
    key = read_key(paths)
    filtered = isinstance(key, dict) and bool(key.get("context_regex"))
    return RestoreReport(
        output=output,
        logs=len(there),
        missing=len(rows) - len(there),
        observations=sum(row.observations for row in there),
        log_bytes=written,
        renamed=sum(name != os.path.normpath(without_compression(row.source)) for row, name in placed),
        incomplete=len(there) if filtered else sum(row.reason != LogReason.OK for row in there),
        seconds=time.perf_counter() - started,
    )


@contextmanager
def _log_files(output: Path, names: Sequence[str], *, force: bool) -> Iterator[list[Path]]:
    """Yield the paths to which to write logs; after the block, all of them appear below ``output`` at once."""
    anchor = output / "logs"
    # An interrupted run may have moved some of the files there without reporting them: they may be replaced.
    force = recover(output) or force
    untold = finish_moves(anchor)
    if output.exists() and not output.is_dir():
        raise UsageError(f"{output}: a file is in the folder's place")
    places = [output / name for name in names]
    for place in places:
        if os.path.lexists(place) and not (force or place in untold):
            raise UsageError(f"{place}: is there already; `force` replaces it")
    try:
        if output.is_dir():  # it may hold other files, or be a mount point: keep it, and move the logs into it
            with whole_files(anchor) as files:
                yield [files.make(place) for place in places]
        else:
            with whole_folder(output) as folder:
                yield [folder / name for name in names]
    except OSError as error:
        raise MlgoCorpusError(f"cannot write {output}: {os_reason(error)}") from error


def _report(paths: DatasetPaths, rows: Sequence[LogRow], *, unchanged: bool) -> LogsReport:
    converted = [row for row in rows if row.status == STATUS_OK]
    problems = [(row.source, row.detail) for row in rows if row.reason != LogReason.OK]
    files = paths.parts()
    return LogsReport(
        output=paths.root,
        logs=len(rows),
        converted=len(converted),
        damaged=sum(row.reason != LogReason.OK for row in converted),
        dropped_bytes=sum(row.dropped_bytes or 0 for row in converted),
        contexts=sum(row.contexts for row in converted),
        observations=sum(row.observations for row in converted),
        log_bytes=sum(row.log_bytes or 0 for row in converted),
        parquet_bytes=sum(path.stat().st_size for path in files),
        files=len(files),
        unchanged=unchanged,
        renamed=sum(row.module != module_name(row.source) for row in rows),
        counts=dict(Counter(row.reason for row in rows).most_common()),
        problems=tuple(problems[:_PROBLEMS]),
    )
