"""``modules.parquet`` of a dataset made of logs: one row per log, also of those that could not be read.

========================  ===========================================================================
column                    meaning
========================  ===========================================================================
``module``                the module the log is of: its path without ``.log``
``source``                the log's path below the inputs' common folder
``status``                ``ok`` (in the dataset) or ``failed``
``reason``                a word of `LogReason`
``detail``                one line for a person: what is wrong, and at which byte
``contexts``              contexts in the dataset, also those without observations
``observations``          observations in the dataset
``log_bytes``             the log's size, decompressed; of a log without a header, as it is on disk
``dropped_bytes``         what was left out after the last whole event of a damaged log; else 0
``header``                the log's first line, verbatim; null if it has none
``separator``             what stands between an event's key and its value: ``:`` or ``: ``
========================  ===========================================================================

The table of a dataset that was made by running a compiler (`mlgo_corpus.dataset.tracetable`) has all of these columns
except ``source``, and more; it can be read as a table of logs, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple

from mlgo_corpus.corpus.modules import STATUS_FAILED, STATUS_OK
from mlgo_corpus.dataset.logs import LOG_SUFFIX
from mlgo_corpus.files.markdown import plain_columns
from mlgo_corpus.files.tables import Kind, read_columns, share_equal, write_rows


class LogReason(StrEnum):
    """Why a log is in a dataset or left out."""

    OK = "ok"
    TRUNCATED = "truncated"
    MALFORMED = "malformed"
    SECOND_HEADER = "second_header"
    UNREADABLE = "unreadable"
    WORKER_DIED = "worker_died"


class LogRow(NamedTuple):
    """One row; fields as the module's docstring describes them, in the file's order."""

    module: str
    source: str
    status: str
    reason: str
    detail: str
    contexts: int = 0
    observations: int = 0
    log_bytes: int | None = None
    dropped_bytes: int | None = None
    header: str | None = None
    separator: str | None = None


_REQUIRED = frozenset({"module", "source", "status", "reason", "detail", "contexts", "observations"})
KINDS: Final[Mapping[str, Kind]] = {
    "module": Kind.LABEL,  # as in the tables of observations and contexts, so that all can be joined
    **dict.fromkeys(("contexts", "observations", "log_bytes", "dropped_bytes"), Kind.INTEGER),
}
"""The columns that are not text."""


def write_log_rows(path: Path, rows: Iterable[LogRow], metadata: Mapping[str, Any]) -> None:
    """Write the table; ``metadata`` goes into its schema as JSON, and must contain the dataset's ``key``."""
    write_rows(path, LogRow._fields, KINDS, rows, metadata, meanings=plain_columns(__doc__))


def read_log_rows(path: Path) -> tuple[LogRow, ...]:
    """Read a table of logs, or the logs of a table of traces.

    In the latter a log has its module's name with ``.log`` appended; a module without a log in the dataset becomes a
    failed row with the reason of its run.

    Raises:
        CorpusError: the file is not such a table.
    """
    columns = read_columns(
        path, LogRow._fields, KINDS, what="logs", required=_REQUIRED, optional={"source"}, others=True
    )
    if of_traces := "source" not in columns:
        columns["source"] = [f"{module}{LOG_SUFFIX}" for module in columns["module"]]
    columns["header"] = share_equal(columns["header"])
    rows = tuple(map(LogRow._make, zip(*(columns[name] for name in LogRow._fields), strict=True)))
    return tuple(map(_log_of_trace, rows)) if of_traces else rows


def _log_of_trace(row: LogRow) -> LogRow:
    """Turn the row of a module's run into the row of its log."""
    if row.status != STATUS_OK:
        return row
    if row.header is None:
        return row._replace(status=STATUS_FAILED, detail=row.detail or "the compiler decided nothing, so it has no log")
    # Whatever the run's reason, the log is either whole or truncated.
    return row._replace(reason=LogReason.TRUNCATED if row.dropped_bytes else LogReason.OK)
