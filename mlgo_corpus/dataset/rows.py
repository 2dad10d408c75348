"""The observations of a dataset as one sequence of rows: find a module's rows, and read any part by column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.corpus.modules import STATUS_OK
from mlgo_corpus.corpus.select import read_names
from mlgo_corpus.dataset.folder import DatasetPaths, open_dataset, read_key
from mlgo_corpus.dataset.logtable import read_log_rows
from mlgo_corpus.dataset.observations import KEY_COLUMNS, column_names, is_observation_schema
from mlgo_corpus.dataset.tracetable import read_trace_rows
from mlgo_corpus.errors import CorpusError, FormatError, UsageError
from mlgo_corpus.files import arrays
from mlgo_corpus.files.parquet import labels_of
from mlgo_corpus.files.tables import blamed, read_parquet
from mlgo_corpus.files.text import printable
from mlgo_corpus.formats.logs.events import LogHeader, parse_header

# The size of a batch of rows: small enough that all columns stay in the processor's cache.
_BATCH_BYTES = 4 << 20


class ModuleRows(NamedTuple):
    """The rows of one module: the first row's number, the number of rows, and the run's reward if it is known."""

    module: str
    first: int
    rows: int
    reward: float | None


class _PartRows(NamedTuple):
    """A file of observations, and its number of rows."""

    path: Path
    rows: int


class Run(NamedTuple):
    """Consecutive rows that have one module and one context."""

    module: str
    context: str | None
    first: int
    after: int


@dataclass(frozen=True, slots=True)
class DatasetRows:
    """The files and the rows of a dataset. It pickles small.

    Attributes:
        root: the dataset.
        line: the line of the logs' header.
        parts: the files, in the order of their rows.
        modules: the modules that have rows, in the order of their rows; after `select` only some of them.
        missing: the number of modules or logs left out of the dataset because their runs failed or they are unreadable.
        has_rewards: whether the dataset is of runs of a compiler, which have a reward.
        key: the dataset's recorded inputs and options.
    """

    root: Path
    line: bytes
    parts: tuple[_PartRows, ...]
    modules: tuple[ModuleRows, ...]
    missing: int
    has_rewards: bool
    key: Any

    @property
    def header(self) -> LogHeader:
        """The logs' header."""
        return parse_header(self.line)

    @property
    def batch_rows(self) -> int:
        """The number of rows to read at a time."""
        header = self.header
        return max(1, _BATCH_BYTES // max(1, header.tensor_bytes + header.score_bytes))

    def select(self, *, name_regex: str | None = None, modules_file: Path | str | None = None) -> DatasetRows:
        """Return the rows of some modules: those in whose name a pattern is found, and those that a file names.

        The file has a name on each line, or is the manifest of a corpus, or of one side of its split.

        Raises:
            UsageError: an argument is not valid, or nothing is left.
        """
        modules: Sequence[ModuleRows] = self.modules
        if modules_file is not None:
            wanted = frozenset(map(printable, read_names(modules_file)))
            modules = [item for item in modules if item.module in wanted]
            if not modules:
                message = f"{self.root} has no decisions of these modules"
                raise UsageError(message, option="modules_file", value=modules_file)
        if name_regex is not None:
            try:
                pattern = re.compile(name_regex)
            except re.error as error:
                message = f"not a regular expression: {error}"
                raise UsageError(message, option="module_filter", value=name_regex) from error
            modules = [item for item in modules if pattern.search(item.module)]
            if not modules:
                message = f"{self.root} has no decisions of a module with such a name"
                raise UsageError(message, option="module_filter", value=name_regex)
        return replace(self, modules=tuple(modules))

    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Return the rows of the chosen modules, as (first, after) of each range of consecutive rows."""
        found: list[tuple[int, int]] = []
        for module in self.modules:
            if found and found[-1][1] == module.first:
                found[-1] = (found[-1][0], module.first + module.rows)
            else:
                found.append((module.first, module.first + module.rows))
        return tuple(found)

    def iter_batches(
        self, names: Sequence[str], first: int, after: int, *, batch_rows: int | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Yield these columns of the rows from ``first`` to ``after`` as (number of the first row, record batch).

        ``batch_rows`` is the most rows of a batch; by default `batch_rows`, for work on all columns.

        Raises:
            CorpusError: the rows cannot be read.
        """
        begin = 0
        for path, count in self.parts:
            if begin < after and first < begin + count:
                for at, batch in _batches(path, names, first - begin, after - begin, batch_rows or self.batch_rows):
                    yield begin + at, batch
            begin += count

    def iter_runs(self, first: int, after: int) -> Iterator[Run]:
        """Yield the runs of rows of one module and context between two rows; a run may be yielded in several pieces.

        Raises:
            CorpusError: the rows cannot be read, or have no module.
        """
        for begin, batch in self.iter_batches(KEY_COLUMNS[:2], first, after):
            with blamed(self.root):
                modules, module_codes = labels_of(batch.column(KEY_COLUMNS[0]))
                contexts, context_codes = labels_of(batch.column(KEY_COLUMNS[1]))
            changes = np.diff(module_codes) != 0
            changes |= np.diff(context_codes) != 0
            edges = [0, *(np.flatnonzero(changes) + 1).tolist(), len(module_codes)]
            for start, stop in pairwise(edges):
                module = modules[module_codes[start]]
                if module is None:
                    raise self.contradiction(f"row {begin + start} is of no module")
                yield Run(module, contexts[context_codes[start]], begin + start, begin + stop)

    def contradiction(self, what: str) -> CorpusError:
        """Return the error that the dataset's tables contradict each other."""
        return CorpusError(f"{self.root}: its tables contradict each other: {what}")


def open_rows(path: Path, *, may_be_empty: bool = False) -> DatasetRows:
    """Open a dataset of logs or of traces.

    Args:
        path: its folder.
        may_be_empty: whether it may be one of a project in which there was nothing to decide: then it has no modules.

    Raises:
        UsageError: there is no dataset, it has no rows, or its tables contradict each other.
    """
    try:
        return _open_rows(open_dataset(path), may_be_empty=may_be_empty)
    except CorpusError as error:
        raise UsageError(str(error)) from error


def _open_rows(paths: DatasetPaths, *, may_be_empty: bool) -> DatasetRows:
    with read_parquet(paths.modules) as file:
        is_trace = "reward" in file.schema_arrow.names
    rows = read_trace_rows(paths.modules) if is_trace else read_log_rows(paths.modules)
    there = [row for row in rows if row.status == STATUS_OK and row.header is not None]
    lines = {row.header for row in there}
    if not there or not (may_be_empty or any(row.observations for row in there)):
        raise CorpusError(f"{paths.root}: has no observations")
    line = (there[0].header or "").encode()
    try:
        headers = {parse_header((each or "").encode()) for each in lines}
    except FormatError as error:
        raise CorpusError(f"{paths.modules}: {error}") from error
    modules, begin = [], 0
    for row in there:
        if row.observations:
            modules.append(ModuleRows(row.module, begin, row.observations, getattr(row, "reward", None)))
        begin += row.observations
    failed = sum(row.status != STATUS_OK for row in rows)
    made = DatasetRows(paths.root, line, (), tuple(modules), failed, is_trace, read_key(paths))
    if len(headers) > 1:
        raise made.contradiction("its modules have different headers")
    parts = []
    for path in paths.parts():
        with read_parquet(path) as file:
            if not is_observation_schema(file.schema_arrow, made.header):
                raise CorpusError(f"{path}: its columns are not those of the header in modules.parquet")
            parts.append(_PartRows(path, file.metadata.num_rows))
    found = sum(part.rows for part in parts)
    if found != begin:
        raise made.contradiction(f"there are {found} rows of observations, modules.parquet says {begin}")
    return replace(made, parts=tuple(parts))


def _batches(path: Path, names: Sequence[str], first: int, after: int, batch_rows: int) -> Iterator[tuple[int, Any]]:
    with read_parquet(path) as file:
        groups, begin, at = [], 0, None
        for number in range(file.num_row_groups):
            count = file.metadata.row_group(number).num_rows
            if begin < after and first < begin + count:
                groups.append(number)
                at = begin if at is None else at
            begin += count
        position = at or 0
        for batch in file.iter_batches(batch_size=batch_rows, row_groups=groups, columns=list(names)):
            skipped = max(0, first - position)
            kept = min(batch.num_rows, after - position) - skipped
            if kept > 0:
                yield position + skipped, batch.slice(skipped, kept)
            position += batch.num_rows


def column_values(batch: Any, name: str, width: int) -> NDArray[Any]:
    """Return a column of a batch of `DatasetRows.iter_batches`, of shape (rows, width), without a copy.

    Raises:
        CorpusError: there is no such column, or it has nulls.
    """
    if (place := batch.schema.get_field_index(name)) < 0:
        raise CorpusError(f"observations: expected a column {name!r}, found none")
    column = batch.column(place)
    if column.null_count:
        raise CorpusError(f"observations: column {name}: a value is missing")
    try:
        flat = column.flatten() if width > 1 else column
        values: NDArray[Any] = arrays.numbers_in(flat)
    except ValueError as error:  # nulls within a tensor
        raise CorpusError(f"observations: column {name}: {' '.join(str(error).split())}") from error
    return values.reshape(batch.num_rows, width)


def named_columns(header: LogHeader) -> dict[str, str]:
    """Return the column of each feature and score by LLVM's name for it.

    Raises:
        UsageError: two have the same name, and a map can hold only one of them.
    """
    columns: dict[str, str] = {}
    for spec, column in zip(header.columns, column_names(header), strict=True):
        if spec.name in columns:
            raise UsageError(f"two features are called {spec.name}: they cannot be told apart by name")
        columns[spec.name] = column
    return columns
