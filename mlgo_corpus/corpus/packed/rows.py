"""The rows of a packed corpus: their columns, and how a row group of them is read and checked.

`mlgo_corpus.corpus.packed.corpus` documents the columns.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import ExitStack
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from mlgo_corpus.corpus.modules import INTEGER_FIELDS, ModuleRow
from mlgo_corpus.errors import CorpusError
from mlgo_corpus.files.remote import Place
from mlgo_corpus.files.tables import blamed, open_parquet
from mlgo_corpus.files.text import printable

if TYPE_CHECKING:
    import pyarrow as pa

PACKED_NAME: Final = "corpus.json"

ROW_GROUP_BYTES: Final = 8 << 20
"""The most bytes of modules in a row group of several: reading one module costs this much."""

MAX_FILE_BYTES: Final = (1 << 31) - (1 << 20)
"""The most bytes of one of a module's files: Parquet counts a value's bytes, and a page's, with 31 bits."""

# The largest size that a row group may claim: a foreign one of many rows, and one of a single row.
_MOST_GROUP_BYTES = 32 * ROW_GROUP_BYTES
_MOST_ROW_BYTES = 3 * (1 << 31)

# Columns of a table of modules that go into the rows; `problem` stands for the module's status.
METADATA_COLUMNS: Final = tuple(
    name
    for name in ModuleRow._fields
    if name not in ("module", "status", "detail", "duplicate_of", "bitcode_bytes", "cmd_bytes")
)
MISSING: Final = os.strerror(errno.ENOENT)
"""The system's message for a file that is not there, also used in a row's ``problem``."""

STAMP_COLUMNS: Final = ("bitcode_mtime_ns", "command_mtime_ns")
_CONTENT_COLUMNS = ("module", "bitcode", "command", "command_bytes", "thinlto_index", "problem")


def packed_schema(*, stamped: bool) -> pa.Schema:
    """Return the schema of the rows; with ``stamped``, including the times of files."""
    import pyarrow as pa

    integers = INTEGER_FIELDS
    return pa.schema(
        [
            pa.field("module", pa.string(), nullable=False),
            pa.field("bitcode", pa.large_binary()),
            pa.field("command", pa.list_(pa.field("element", pa.string()))),
            pa.field("command_bytes", pa.binary()),
            pa.field("thinlto_index", pa.large_binary()),
            pa.field("problem", pa.string()),
            pa.field("bitcode_bytes", pa.int64()),
            pa.field("cmd_bytes", pa.int64()),
            *(pa.field(name, pa.int64() if name in integers else pa.string()) for name in METADATA_COLUMNS),
            *(pa.field(name, pa.int64()) for name in STAMP_COLUMNS if stamped),
        ]
    )


def value_of(column: pa.ChunkedArray, row: int) -> Any:
    """Return one value; bytes come without a copy, as a buffer."""
    import pyarrow as pa

    scalar = column[row]
    if pa.types.is_large_binary(column.type):
        return scalar.as_buffer() if scalar.is_valid else None
    return scalar.as_py()


def missing_file(name: str) -> str:
    """Return the message that a file of a module is not there, in the words of `Module`."""
    return f"cannot read {name.rpartition('/')[2]}: {MISSING}"


def cut_command(data: bytes | None) -> tuple[list[str] | None, bytes | None]:
    """Return the columns ``command`` and ``command_bytes`` for the bytes of a command's file."""
    if data is None:
        return None, None
    try:
        text, exact = data.decode(), data.endswith(b"\0") or not data
    except UnicodeDecodeError:
        text, exact = printable(data.decode("utf-8", "surrogateescape")), False
    options = text.removesuffix("\0").split("\0") if text else []
    return options, None if exact else data


def join_command(options: Sequence[str] | None, data: bytes | None) -> bytes | None:
    """Return the bytes of the command's file from its columns, None if there was none."""
    if data is not None or options is None:
        return data
    return b"".join((option or "").encode() + b"\0" for option in options)


@lru_cache(maxsize=1)
def read_content(file: Place, number: int, rows: int) -> pa.Table:
    """Read the columns of a row group with its modules' files. The last one is cached: modules are read in order.

    Raises:
        CorpusError: it is damaged, or not what ``corpus.json`` says.
    """
    return read_group(file, number, rows, _CONTENT_COLUMNS)


def read_group(file: Place, number: int, rows: int, columns: Sequence[str]) -> pa.Table:
    """Read some columns of a row group.

    Raises:
        CorpusError: it is damaged, or not what ``corpus.json`` says.
    """
    groups = GroupReader(columns)
    try:
        return groups.read(file, number, rows)
    finally:
        groups.close()


class GroupReader:
    """Reads some columns of row groups; the file of the last one stays open."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = list(columns)
        self._file: Place | None = None
        self._opened: Any = None
        self._stack = ExitStack()

    def read(self, file: Place, number: int, rows: int) -> pa.Table:
        """Read a row group, which must have ``rows`` rows."""
        with blamed(file, missing="is missing; the packed corpus is not whole"):
            if file != self._file:
                self.close()
                opening = open_parquet(file, page_checksum_verification=True)
                self._opened, self._file = self._stack.enter_context(opening), file
            _check_group(file, self._opened, number, rows, self._columns)
            table = self._opened.read_row_group(number, columns=self._columns, use_threads=False)
            return table.select(self._columns).cast(_fields(self._columns))

    def close(self) -> None:
        """Close the file."""
        self._stack.close()
        self._file = None


def _check_group(file: Place, opened: Any, number: int, rows: int, columns: Sequence[str]) -> None:
    schema = opened.schema_arrow
    for expected in _fields(columns):
        index = schema.get_field_index(expected.name)
        if index < 0:
            raise CorpusError(f"{file}: expected one column {expected.name!r}, found none or several")
        if not _is_like(schema.field(index).type, expected.type):
            raise CorpusError(f"{file}: {expected.name} is {schema.field(index).type}, expected {expected.type}")
    if number >= opened.metadata.num_row_groups:
        raise CorpusError(f"{file}: has no row group {number}; it is not the file that {PACKED_NAME} describes")
    group = opened.metadata.row_group(number)
    if group.num_rows != rows:
        raise CorpusError(f"{file}: row group {number} has {group.num_rows} rows, {PACKED_NAME} says {rows}")
    most = _MOST_ROW_BYTES if rows <= 1 else _MOST_GROUP_BYTES
    if not 0 <= group.total_byte_size <= most:
        raise CorpusError(f"{file}: row group {number} claims {group.total_byte_size} bytes, expected at most {most}")


def _fields(columns: Sequence[str]) -> pa.Schema:
    import pyarrow as pa

    schema = packed_schema(stamped=True)
    return pa.schema([schema.field(name) for name in columns])


def _is_like(found: pa.DataType, expected: pa.DataType) -> bool:
    """Return whether a type can be cast to the expected one without a loss: other programs widen text and bytes."""
    import pyarrow as pa

    if pa.types.is_list(expected) or pa.types.is_large_list(expected):
        listed = pa.types.is_list(found) or pa.types.is_large_list(found)
        return listed and _is_like(found.value_type, expected.value_type)
    for kinds in (
        (pa.types.is_string, pa.types.is_large_string),
        (pa.types.is_binary, pa.types.is_large_binary),
    ):
        if any(kind(expected) for kind in kinds):
            return any(kind(found) for kind in kinds)
    return bool(found == expected)
