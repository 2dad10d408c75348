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
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from mlgo_corpus.errors import CorpusError
from mlgo_corpus.store.tables import open_parquet, unreadable


class LogReason(StrEnum):
    """Why a log is in a dataset, or is not."""

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


# So many columns are never null.
_HEADER = LogRow._fields.index("header")
_REQUIRED = LogRow._fields.index("observations") + 1
INTEGER_FIELDS = frozenset({"contexts", "observations", "log_bytes", "dropped_bytes"})
# As in the tables of observations and contexts, so that all can be joined.
LABEL_FIELDS = frozenset({"module"})


def read_log_rows(path: Path) -> tuple[LogRow, ...]:
    """Read the table.

    Raises:
        CorpusError: it is none.
    """
    import pyarrow as pa

    label = pa.dictionary(pa.int32(), pa.string())
    expected = [
        (name, pa.int64() if name in INTEGER_FIELDS else label if name in LABEL_FIELDS else pa.string())
        for name in LogRow._fields
    ]
    try:
        with open_parquet(path) as file:
            found = [(field.name, field.type) for field in file.schema_arrow]
            if found != expected:
                raise CorpusError(f"{path}: not a table of logs: its columns are {found}, expected {expected}")
            columns = [column.to_pylist() for column in file.read().columns]
    except (pa.ArrowException, OSError, ValueError) as error:  # a ValueError: text that is not UTF-8
        raise unreadable(path, error) from error
    headers: dict[str | None, str | None] = {}  # large, and mostly the same
    columns[_HEADER] = [headers.setdefault(header, header) for header in columns[_HEADER]]
    rows = tuple(map(LogRow._make, zip(*columns, strict=True)))
    for number, row in enumerate(rows):
        if None in row[:_REQUIRED] or row.contexts < 0 or row.observations < 0:
            raise CorpusError(f"{path}: row {number}: a value is missing, or less than 0")
    return rows
