"""Files of tables that get their names when they are complete: Parquet of batches and of rows, and Arrow's own."""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mlgo_corpus.errors import CorpusError, FormatError, MlgoCorpusError
from mlgo_corpus.files import arrays
from mlgo_corpus.files.atomic import create_file, temporary_for, write_atomically
from mlgo_corpus.files.folder import whole_files
from mlgo_corpus.files.parquet import ParquetFile, texts_of
from mlgo_corpus.files.remote import Place, RemotePath
from mlgo_corpus.formats.records.parquetpages import footer_length

if TYPE_CHECKING:
    import pyarrow as pa

_Value = TypeVar("_Value")

METADATA_KEY: Final = "mlgo_corpus"
"""The key in a schema's metadata of the JSON that describes what a file is and where it comes from."""

# The key in a column's metadata of the sentence that says what the column means.
_MEANING_KEY = "meaning"
# The key under which Arrow's readers look for a schema that says more than Parquet's own.
_ARROW_SCHEMA_KEY = "ARROW:schema"
# The most rows that are buffered; with a command of a hundred words a row takes some ten kilobytes.
_ROWS_PER_GROUP = 2048
# The values that the encoder takes at a time; its default of 1024 costs a few percent.
_VALUES_AT_A_TIME = 1 << 16
# An encoder in its own thread that writes to a Python file waits for the interpreter at each write.
_BUFFER_BYTES = 4 << 20


@contextlib.contextmanager
def open_parquet(path: Place, **options: Any) -> Iterator[ParquetFile]:
    """Open a Parquet file for reading in bounded memory, with these options of ``pyarrow.parquet.ParquetFile``.

    The file's name may have any bytes: pyarrow itself would take it for a URL, and ``key=value`` in it for a column.

    Only files behind a URL are read ahead: pyarrow keeps what it has read ahead until the file is closed, so that an
    iteration over a large file would have all of it in memory.
    """
    import pyarrow as pa

    if isinstance(path, RemotePath):
        opened = path.open()
    else:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would wait for its other side
            raise OSError(errno.EINVAL, "not a file", str(path))
        opened = pa.OSFile(os.fsencode(path))
    remote = isinstance(path, RemotePath)
    with opened as source:
        yield ParquetFile(str(path), source, remote=remote, pre_buffer=remote, **options)


def write_batch(path: Path, batch: pa.RecordBatch) -> None:
    """Write what is known of one module to a file, for another process of the same run.

    It is in Arrow's own format: of a table with hundreds of columns and few rows, Parquet takes milliseconds to read.
    """
    import pyarrow as pa

    data = pa.BufferOutputStream()
    with pa.ipc.new_file(data, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(batch)
    write_atomically(path, data.getvalue().to_pybytes())  # a machine that was given up may be at it, too


def read_batch(path: Path) -> pa.RecordBatch:
    """Read what `write_batch` wrote."""
    import pyarrow as pa

    with pa.OSFile(os.fsencode(path)) as file:
        return pa.ipc.open_file(file).get_batch(0)


def unreadable(path: Place, error: Exception) -> CorpusError:
    """Return the error for a Parquet file that cannot be read, on one line, which Arrow's errors are not."""
    return CorpusError(f"{path}: cannot be read: {' '.join(str(error).split())}")


@contextlib.contextmanager
def blamed(path: Place, *, missing: str | None = None) -> Iterator[None]:
    """Run a block that assumes the types of a table's columns.

    Args:
        path: the table.
        missing: the message, after its path, if there is no such file; by default the system's.

    Raises:
        CorpusError: the block failed: the table is missing or damaged, or its columns have other types.
    """
    try:
        yield
    except MlgoCorpusError:
        raise
    except Exception as error:  # damage causes errors of many types
        if missing is not None and isinstance(error, FileNotFoundError):
            raise CorpusError(f"{path}: {missing}") from error
        raise unreadable(path, error) from error


@contextlib.contextmanager
def read_parquet(path: Place) -> Iterator[ParquetFile]:
    """Open an untrusted Parquet file for reading, as `open_parquet` does, for a block that `blamed` guards.

    Raises:
        CorpusError: it cannot be opened, or the block failed.
    """
    with blamed(path), open_parquet(path) as file:
        yield file


def has_footer(path: Path) -> bool:
    """Return True if a file ends with a Parquet footer that fits into it, as one that was cut off does not."""
    try:
        with path.open("rb") as file:
            footer_length(lambda count, at: os.pread(file.fileno(), count, at), os.fstat(file.fileno()).st_size)
    except (OSError, FormatError):
        return False
    return True


def read_metadata(path: Place) -> dict[str, Any]:
    """Return the metadata under `METADATA_KEY` of a Parquet file; empty if there is none.

    Raises:
        CorpusError: it is missing or damaged.
    """
    with read_parquet(path) as file:
        said = json.loads((file.metadata.metadata or {}).get(METADATA_KEY.encode(), b"{}"))
    return said if isinstance(said, dict) else {}


def with_meanings(schema: pa.Schema, meanings: Mapping[str, str]) -> pa.Schema:
    """Return a schema in which each column that has a meaning tells it in its metadata, under ``meaning``."""
    import pyarrow as pa

    fields = []
    for field in schema:
        meaning = meanings.get(field.name)
        said = {} if meaning is None else {_MEANING_KEY: meaning}
        fields.append(field.with_metadata({**(field.metadata or {}), **said}) if said else field)
    return pa.schema(fields, schema.metadata)


def file_metadata(schema: pa.Schema, metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the entries of a Parquet file's metadata that are written last: a description, and Arrow's schema.

    Args:
        schema: the columns as readers see them, with their meanings.
        metadata: goes in under `METADATA_KEY`, as JSON.
    """
    said = {METADATA_KEY: json.dumps(metadata, sort_keys=True)}
    stored = schema.with_metadata(said).serialize().to_pybytes()
    return {**said, _ARROW_SCHEMA_KEY: base64.b64encode(stored).decode()}


class BatchTable:
    """A file of record batches, each of which becomes a row group."""

    def __init__(self, path: Path, schema: pa.Schema, *, compression: str = "zstd") -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path = path
        # Workers of a killed run may go on for a moment; they must not write to the same file.
        self._temporary = temporary_for(path)
        # Dictionaries make scalar columns smaller and faster to write, but tensors slower.
        scalars = [item.name for item in schema if not pa.types.is_fixed_size_list(item.type)]
        self._file = create_file(self._temporary)
        self._buffer: Any = pa.BufferedOutputStream(pa.PythonFile(self._file, "w"), _BUFFER_BYTES)
        self._writer: Any = pq.ParquetWriter(
            self._buffer, schema, compression=compression, use_dictionary=scalars, write_batch_size=_VALUES_AT_A_TIME
        )

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a row group."""
        self._writer.write_batch(batch, row_group_size=max(1, batch.num_rows))

    def say(self, metadata: Mapping[str, str]) -> None:
        """Add entries to the file's metadata that are known only at its end."""
        self._writer.add_key_value_metadata(dict(metadata))

    def commit(self) -> None:
        """Write the rest and rename the file to its name."""
        self._writer.close()
        self._buffer.close()
        self._file.close()
        self._writer = self._buffer = None  # else their memory would stay as long as this object
        self._temporary.replace(self.path)

    def abandon(self) -> None:
        """Leave nothing behind."""
        for part in (self._writer, self._buffer):
            if part is not None:
                with contextlib.suppress(OSError, ValueError):  # a full disk was reported when it was met
                    part.close()
        with contextlib.suppress(OSError):
            self._file.close()
        self._temporary.unlink(missing_ok=True)


class Kind(StrEnum):
    """The kind of a `RowTable` column's values; any value may be null."""

    TEXT = "text"
    LABEL = "label"
    INTEGER = "integer"
    FLOAT = "float"
    BOOLEAN = "boolean"
    TEXTS = "texts"

    @property
    def arrow_type(self) -> pa.DataType:
        """The type that readers see; a label is dictionary-encoded text, as in other tables."""
        import pyarrow as pa

        return pa.dictionary(pa.int32(), pa.string()) if self is Kind.LABEL else self.written_type

    @property
    def written_type(self) -> pa.DataType:
        """The type that the column is written as."""
        import pyarrow as pa

        match self:
            case Kind.INTEGER:
                return pa.int64()
            case Kind.FLOAT:
                return pa.float64()
            case Kind.BOOLEAN:
                return pa.bool_()
            case Kind.TEXTS:  # "element" is Parquet's own name; Arrow's, "item", is lost when the file is read
                return pa.list_(pa.field("element", pa.string()))
        return pa.string()


def _maker(kind: Kind) -> Callable[[Any, Sequence[Any]], Any]:
    match kind:
        case Kind.INTEGER | Kind.FLOAT | Kind.BOOLEAN:
            return arrays.numbers_or_null
        case Kind.TEXTS:
            return arrays.lists_of_text
    return arrays.texts


class RowTable:
    """A file of rows, which are tuples of text, numbers, truth values, lists of text, and nulls.

    Args:
        path: the file's name when it is complete.
        temporary: its name until then.
        columns: the columns' names.
        kinds: the kinds of the columns that do not hold text.
        meanings: what the columns mean, which goes into their metadata.
    """

    def __init__(
        self,
        path: Path,
        temporary: Path,
        columns: Sequence[str],
        kinds: Mapping[str, Kind],
        meanings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._path = path
        self._temporary = temporary
        self._kinds = [(name, kinds.get(name, Kind.TEXT)) for name in columns]
        self._meanings = meanings
        self._rows: list[Sequence[Any]] = []
        self._writer: Any = None
        self._file: Any = None

    def append(self, row: Sequence[Any]) -> None:
        """Add a row; when enough rows are buffered, write a row group."""
        self._rows.append(row)
        if len(self._rows) == _ROWS_PER_GROUP:
            self._flush()

    def commit(self, metadata: Mapping[str, Any]) -> None:
        """Write the rest and rename the file to its name; ``metadata`` goes into the schema as JSON."""
        import pyarrow as pa

        self._flush()
        schema = pa.schema([(name, kind.arrow_type) for name, kind in self._kinds])
        self._writer.add_key_value_metadata(file_metadata(with_meanings(schema, self._meanings), metadata))
        self._writer.close()
        self._file.close()
        self._temporary.replace(self._path)

    def abandon(self) -> None:
        """Leave nothing behind."""
        if self._writer is not None:
            with contextlib.suppress(OSError, ValueError):  # a full disk was reported when it was met
                self._writer.close()
            self._file.close()
        self._temporary.unlink(missing_ok=True)

    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([(name, kind.written_type) for name, kind in self._kinds])

    def _flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = self._schema()
        if self._writer is None:
            # No stored Arrow schema: its metadata would be fixed now and hide what commit() adds.
            self._file = create_file(self._temporary)
            self._writer = pq.ParquetWriter(self._file, schema, compression="zstd", store_schema=False)
        if not self._rows:
            return
        columns = zip(*self._rows, strict=True)
        made = [
            _maker(kind)(item.type, column)
            for column, item, (_, kind) in zip(columns, schema, self._kinds, strict=True)
        ]
        self._writer.write_table(pa.Table.from_arrays(made, schema=schema))
        self._rows.clear()


def write_rows(
    path: Path,
    columns: Sequence[str],
    kinds: Mapping[str, Kind],
    rows: Iterable[Sequence[Any]],
    metadata: Mapping[str, Any],
    *,
    meanings: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write a `RowTable` of ``rows``; the file appears when it is complete, and leaves nothing behind on failure."""
    fill(RowTable(path, temporary_for(path), columns, kinds, meanings), rows, metadata)


def write_table(
    path: Path,
    columns: Sequence[str],
    kinds: Mapping[str, Kind],
    rows: Iterable[Sequence[Any]],
    metadata: Mapping[str, Any],
    *,
    meanings: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write rows as they come to a file anywhere, see `whole_files`; ``metadata`` is read last."""
    with whole_files(path) as files:
        made = files.make(path)
        fill(RowTable(made, made, columns, kinds, meanings), rows, metadata)


def fill(table: RowTable, rows: Iterable[Sequence[Any]], metadata: Mapping[str, Any]) -> None:
    """Write a table's rows and commit it, or leave nothing behind on failure; ``metadata`` is read after the rows."""
    try:
        for row in rows:
            table.append(row)
        table.commit(metadata)
    except BaseException:
        table.abandon()
        raise


def _difference(found: Sequence[tuple[str, Any]], wanted: Sequence[tuple[str, Any]]) -> str:
    """Return the first difference between columns, by name and type, and those expected."""
    there = dict(found)
    for name, kind in wanted:
        if name not in there:
            return f"there is no {name!r}"
        if there[name] != kind:
            return f"{name!r} is of {there[name]}, expected {kind}"
    names = {name for name, _ in wanted}
    strangers = [name for name, _ in found if name not in names]
    return f"{strangers[0]!r} is none of them" if strangers else "they are in another order, or there twice"


def read_columns(
    path: Path,
    columns: Sequence[str],
    kinds: Mapping[str, Kind],
    *,
    what: str,
    required: Collection[str],
    optional: Collection[str] = (),
    others: bool = False,
) -> dict[str, list[Any]]:
    """Return the columns of a `RowTable`, by name and in order; lists of text are tuples.

    Args:
        path: the file.
        columns: the columns' names, in order.
        kinds: the kinds of the columns that do not hold text.
        what: what the table's rows are, for errors.
        required: columns that may not have nulls, nor numbers less than 0.
        optional: columns that may be missing; missing ones are not in the result.
        others: whether there may be more columns; they are not read.

    Raises:
        CorpusError: the file is not such a table.
    """
    with read_parquet(path) as file:
        names = _checked_names(path, file, columns, kinds, what, optional, others=others)
        values = dict(zip(names, map(texts_of, file.read(names).columns), strict=True))
    return _checked_values(path, values, kinds, required, 0)


def iter_rows(
    path: Path,
    columns: Sequence[str],
    kinds: Mapping[str, Kind],
    *,
    what: str,
    required: Collection[str],
    optional: Collection[str] = (),
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a `RowTable`, in memory that does not grow with their number; see `read_columns`.

    The values of a missing optional column are None.

    Raises:
        CorpusError: it is no such table.
    """
    first = 0
    with read_parquet(path) as file:
        names = _checked_names(path, file, columns, kinds, what, optional, others=False)
        for batch in file.iter_batches(columns=names, batch_size=_ROWS_PER_GROUP):
            values = dict(zip(names, map(texts_of, batch.columns), strict=True))
            values = _checked_values(path, values, kinds, required, first)
            absent = [None] * batch.num_rows
            yield from zip(*(values.get(name, absent) for name in columns), strict=True)
            first += batch.num_rows


def _checked_names(
    path: Path,
    file: ParquetFile,
    columns: Sequence[str],
    kinds: Mapping[str, Kind],
    what: str,
    optional: Collection[str],
    *,
    others: bool,
) -> list[str]:
    """Check a table's columns, and return the names of those to read."""
    expected = [(name, kinds.get(name, Kind.TEXT).arrow_type) for name in columns]
    found = [(field.name, field.type) for field in file.schema_arrow]
    absent = set(optional).difference(name for name, _ in found)
    wanted = [item for item in expected if item[0] not in absent]
    if [item for item in found if not others or item in wanted] != wanted:
        difference = _difference(found, wanted)
        raise CorpusError(f"{path}: not a table of {what}: its columns are not those of one: {difference}")
    return [name for name, _ in wanted]


def _checked_values(
    path: Path, values: dict[str, list[Any]], kinds: Mapping[str, Kind], required: Collection[str], first: int
) -> dict[str, list[Any]]:
    """Check some rows' values, of which the first is in row ``first``, and return them with tuples for lists."""
    for name in values:
        if kinds.get(name) is Kind.TEXTS:
            values[name] = [None if texts is None else tuple(texts) for texts in values[name]]
    checked = [name for name in values if name in required or kinds.get(name) is Kind.TEXTS]
    holes = (
        number
        for name in checked
        for number, value in enumerate(values[name])
        if _is_hole(value, required=name in required)
    )
    if (hole := min(holes, default=None)) is not None:
        raise CorpusError(f"{path}: row {first + hole}: a value is missing, or less than 0")
    return values


def _is_hole(value: Any, *, required: bool) -> bool:
    if isinstance(value, tuple):
        return None in value
    return required and (value is None or (isinstance(value, int) and value < 0))


def share_equal(values: Iterable[_Value]) -> list[_Value]:
    """Return the values with equal ones replaced by one object; this saves memory if large values repeat."""
    known: dict[_Value, _Value] = {}
    return [known.setdefault(value, value) for value in values]
