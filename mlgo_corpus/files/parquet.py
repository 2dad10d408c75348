"""Untrusted Parquet files, read in bounded memory.

A file of a few kilobytes can decode to terabytes: many rows share one large value of a dictionary, a page of zeros is
compressed ten thousand times, a list of a billion equal numbers is one run. So the headers of the pages are read first
(`mlgo_corpus.formats.records.parquetpages`), few enough rows are decoded at a time, and a file is refused if

- it has text of more than `LARGEST_TEXT` bytes in one value, or text that is not UTF-8;
- one of its row groups expands to more than `ALWAYS_BYTES` and to more than `_LARGEST_RATIO` times its size in the
  file, counted in the bytes of its pages and in the elements of lists;
- one pass over its rows yields more text than that, which also bounds readers that keep the text.

No real table compresses that well: text and digests get 10 to 50 times smaller, bitcode 4 times. Binary values, such
as the bitcode of a packed corpus, may be as large as Parquet can hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.errors import CorpusError, FormatError
from mlgo_corpus.files.arrays import integers_of, lengths_of
from mlgo_corpus.files.text import counted
from mlgo_corpus.formats.logs.events import MAX_LINE_BYTES
from mlgo_corpus.formats.records.parquetpages import Chunk, ChunkCost, read_chunks, read_cost

if TYPE_CHECKING:
    import pyarrow as pa

LARGEST_TEXT: Final = MAX_LINE_BYTES
"""The most bytes of text in one value: the longest line of a training log, which names a context."""

ALWAYS_BYTES: Final = 128 << 20
"""The bytes that any file may expand to, however small it is."""

# The most times its size in the file that a larger row group, or the text of a file, may take in memory.
_LARGEST_RATIO: Final = 1000
# The most bytes of rows that are decoded together.
_DECODED_BYTES = 64 << 20
# A row group of less is decoded in one thread: handing its columns to several costs a third more CPU.
_FEW_BYTES = 1 << 20
# The least bytes of a value of text as a Python object.
_TEXT_OVERHEAD = 64
_ROWS_AT_A_TIME = 1 << 16


@dataclass(frozen=True, slots=True)
class _Column:
    """A column: its field, and the Parquet columns that it consists of."""

    field: pa.Field
    leaves: range

    @property
    def leaf(self) -> int:
        """Its only Parquet column; types that are read have one."""
        return self.leaves[0]

    @property
    def is_text(self) -> bool:
        """Whether it holds text or bytes, or lists of them."""
        return _is_text(_element_type(self.field.type))

    @property
    def is_list(self) -> bool:
        """Whether it holds lists of any length."""
        return _is_list(self.field.type)

    @property
    def width(self) -> int:
        """The least bytes of a row, also of a null."""
        return _width(self.field.type)


def is_readable(kind: pa.DataType) -> bool:
    """Return True for the column types that can be read: numbers, text, bytes, and lists of them."""
    import pyarrow as pa

    if _is_list(kind) or pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return kind.num_fields == 0 and not isinstance(kind, pa.BaseExtensionType)


def texts_of(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return a column's values; rows with the same entry of a dictionary share one object.

    Raises:
        ValueError: an index lies outside the dictionary.
    """
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        return [text for chunk in column.chunks for text in texts_of(chunk)]
    if not _is_dictionary(column.type):
        return list(column.to_pylist())
    names, codes = labels_of(column)
    return [names[code] for code in codes.tolist()]


def labels_of(column: pa.DictionaryArray) -> tuple[list[Any], NDArray[np.int64]]:
    """Return a dictionary's entries, with None after them, and each row's place among these; -1 for null.

    Raises:
        ValueError: an index lies outside the dictionary.
    """
    names = [*column.dictionary.to_pylist(), None]
    codes = integers_of(column.indices, -1)
    if len(codes) and not -1 <= codes.min() <= codes.max() < len(names) - 1:
        raise ValueError("an index lies outside its dictionary")
    return names, codes


class ParquetFile:
    """A Parquet file opened for reading.

    Args:
        name: the file's path or URL, for errors.
        source: the file, as pyarrow opens it.
        remote: whether each read goes over a network; then the footer is trusted, and page headers are not read.
        options: of ``pyarrow.parquet.ParquetFile``.

    Attributes:
        metadata: the footer, as pyarrow has it.
        schema_arrow: the columns.
        num_row_groups: how many row groups there are.
    """

    def __init__(self, name: str, source: Any, *, remote: bool, **options: Any) -> None:
        import pyarrow.parquet as pq

        self._name = name
        self._source = source
        self._remote = remote
        self._options = options
        self._file = pq.ParquetFile(source, **options)
        self._files: dict[tuple[int, ...], Any] = {(): self._file}
        self._size: int = source.size()
        self.metadata = self._file.metadata
        self.schema_arrow: pa.Schema = self._file.schema_arrow
        self.num_row_groups: int = self._file.num_row_groups
        ends = np.cumsum([0, *(_leaves(field.type) for field in self.schema_arrow)]).tolist()
        self._columns = [
            _Column(field, range(*span)) for field, span in zip(self.schema_arrow, pairwise(ends), strict=True)
        ]
        if ends[-1] != self.metadata.num_columns:
            raise CorpusError(
                f"{name}: the footer contradicts itself: {self.metadata.num_columns} columns,"
                f" but its schema has {ends[-1]}"
            )

    def iter_batches(
        self,
        *,
        columns: Sequence[str] | None = None,
        batch_size: int = _ROWS_AT_A_TIME,
        row_groups: Sequence[int] | None = None,
        expand: bool = False,
        use_threads: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows, at most ``batch_size`` at a time, with the columns of these names in the file's order.

        With ``expand``, columns that are dictionaries, such as labels, are yielded as plain values.

        Raises:
            CorpusError: the file expands to more than it may, or text is not UTF-8.
            Exception: whatever pyarrow raises for damage.
        """
        chosen = self._chosen(columns)
        fields = [_plain(column.field) if expand else column.field for column in chosen]
        given = 0
        for number in range(self.num_row_groups) if row_groups is None else row_groups:
            for batch in self._iter_group(number, chosen, batch_size, use_threads=use_threads):
                given += sum(map(self._check_text, batch.columns, chosen, fields))
                self._check_growth(f"the text up to row group {number}", given, self._size)
                yield from _pieces(batch, fields)

    def read_row_group(
        self, number: int, columns: Sequence[str] | None = None, *, use_threads: bool = True
    ) -> pa.Table:
        """Read a whole row group, as `iter_batches` reads rows.

        Raises:
            CorpusError: the file expands to more than it may, or text is not UTF-8.
            Exception: whatever pyarrow raises for damage.
        """
        return self._read(columns, [number], use_threads=use_threads)

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Read the whole file, as `iter_batches` reads rows.

        Raises:
            CorpusError: the file expands to more than it may, or text is not UTF-8.
            Exception: whatever pyarrow raises for damage.
        """
        return self._read(columns, range(self.num_row_groups), use_threads=True)

    def _read(self, columns: Sequence[str] | None, groups: Sequence[int], *, use_threads: bool) -> pa.Table:
        import pyarrow as pa

        chosen = self._chosen(columns)
        rows = sum(self.metadata.row_group(number).num_rows for number in groups)
        self._check_growth(f"{counted(rows, 'row')}", rows * sum(column.width for column in chosen), self._size)
        batches = self.iter_batches(columns=columns, row_groups=groups, use_threads=use_threads)
        return pa.Table.from_batches(batches, pa.schema([column.field for column in chosen]))

    def _chosen(self, names: Sequence[str] | None) -> list[_Column]:
        chosen = [column for column in self._columns if names is None or column.field.name in names]
        for column in chosen:
            if not is_readable(column.field.type):
                raise CorpusError(
                    f"{self._name}: column {column.field.name!r}: expected numbers, text, bytes or lists of them,"
                    f" found {column.field.type}"
                )
        return chosen

    def _iter_group(
        self, number: int, chosen: Sequence[_Column], batch_size: int, *, use_threads: bool
    ) -> Iterator[pa.RecordBatch]:
        """Yield a row group's rows, few enough at a time to take about `_DECODED_BYTES`.

        Text in lists comes as a dictionary, because the number of elements in a row is known only after decoding.
        """
        rows = max(1, self.metadata.row_group(number).num_rows)
        costs = [self._cost(number, column) for column in chosen]
        taken = sum(
            max(cost.encoded, cost.values * (8 + cost.shared * cost.has_prefixes) * column.is_list)
            for cost, column in zip(costs, chosen, strict=True)
        )
        self._check_growth(f"row group {number}", taken, sum(cost.stored for cost in costs))
        each = sum(max(column.width, cost.encoded // rows) for cost, column in zip(costs, chosen, strict=True))
        shared = {
            column: cost
            for cost, column in zip(costs, chosen, strict=True)
            if cost.shared and column.is_text and not column.is_list and not _is_dictionary(column.field.type)
        }
        most = sum(cost.shared for cost in shared.values())
        if (each + most) * min(batch_size, rows) > _DECODED_BYTES:
            most = self._largest_shared(number, shared)
        size = max(1, min(batch_size, _DECODED_BYTES // max(1, each + most)))
        lists = tuple(column.leaf for column in chosen if column.is_text and column.is_list)
        indices = [column.leaf for column in chosen]
        file = self._opened(lists)
        use_threads = use_threads and taken > _FEW_BYTES
        batches = file.reader.iter_batches(size, row_groups=[number], column_indices=indices, use_threads=use_threads)
        found = 0
        for batch in batches:
            found += batch.num_rows
            yield batch
        if found != (expected := self.metadata.row_group(number).num_rows):
            raise CorpusError(f"{self._name}: row group {number} has {found} rows, its footer says {expected}")

    def _largest_shared(self, number: int, shared: dict[_Column, ChunkCost]) -> int:
        """Return the sum over columns of the largest shared value's bytes; a dictionary comes with its first row."""
        import pyarrow.compute as pc

        sizes = {column: cost.shared for column, cost in shared.items()}
        asked = [column for column, cost in shared.items() if cost.begins_shared and not cost.has_prefixes]
        leaves = tuple(column.leaf for column in asked)
        rows = (
            self._opened(leaves).reader.iter_batches(1, row_groups=[number], column_indices=leaves)
            if asked
            else iter(())
        )
        for batch in islice(rows, 1):
            for column, values in zip(asked, batch.columns, strict=True):
                sizes[column] = pc.max(pc.binary_length(values.dictionary)).as_py() or 0
        return sum(sizes.values())

    def _opened(self, dictionaries: tuple[int, ...]) -> Any:
        """Return pyarrow's reader of the file, which reads these columns of text as dictionaries."""
        import pyarrow.parquet as pq

        if dictionaries not in self._files:
            paths = [self._file.schema.column(leaf).path for leaf in dictionaries]
            opened = pq.ParquetFile(self._source, metadata=self.metadata, read_dictionary=paths, **self._options)
            self._files[dictionaries] = opened
        return self._files[dictionaries]

    @cached_property
    def _chunks(self) -> tuple[tuple[Chunk, ...], ...]:
        return read_chunks(self._source.read_at, self._size)

    def _cost(self, number: int, column: _Column) -> ChunkCost:
        try:
            chunk = self._chunks[number][column.leaf]
            return chunk.claimed if self._remote else read_cost(self._source.read_at, chunk)
        except (FormatError, IndexError) as error:
            raise CorpusError(f"{self._name}: cannot be read: column {column.field.name!r}: {error}") from error

    def _check_growth(self, what: str, taken: int, stored: int) -> None:
        most = max(ALWAYS_BYTES, _LARGEST_RATIO * stored)
        if taken > most:
            raise CorpusError(
                f"{self._name}: {what}: {taken} bytes in memory of {stored} in the file, expected at most {most}"
            )

    def _check_text(self, values: pa.Array, column: _Column, field: pa.Field) -> int:
        """Check the text of some rows; return the bytes it takes: 0 if it is not text, or stays a dictionary."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not column.is_text:
            return 0
        name = column.field.name
        flat = values.flatten() if column.is_list else values
        different = flat.dictionary if _is_dictionary(flat.type) else flat
        try:
            values.validate(full=True)
            different.validate(full=True)
        except pa.ArrowInvalid as error:
            said = "UTF-8, found other bytes" if "UTF8" in str(error) else f"a column that is whole: {error}"
            raise CorpusError(f"{self._name}: column {name!r}: expected {said}") from error
        if pa.types.is_string(different.type) or pa.types.is_large_string(different.type):
            largest = pc.max(pc.binary_length(different)).as_py() or 0
            if largest > LARGEST_TEXT:
                found = f"expected at most {LARGEST_TEXT} bytes of text in a row, found {largest}"
                raise CorpusError(f"{self._name}: column {name!r}: {found}")
        if _is_dictionary(field.type):
            return 0
        return _bytes_of(flat) + _TEXT_OVERHEAD * (len(flat) + len(values) * column.is_list)


def _pieces(batch: pa.RecordBatch, fields: Sequence[pa.Field]) -> Iterator[pa.RecordBatch]:
    """Yield a batch's rows with columns of the fields' types, in smaller batches if they take much memory."""
    import pyarrow as pa

    schema = pa.schema(fields)
    changed = [found for found, field in zip(batch.columns, fields, strict=True) if found.type != field.type]
    taken = sum(_bytes_of(column.flatten() if _is_list(column.type) else column) for column in changed)
    if not changed:
        yield batch
    elif taken > _DECODED_BYTES and len(batch) > 1:
        half = len(batch) // 2
        yield from _pieces(batch.slice(0, half), fields)
        yield from _pieces(batch.slice(half), fields)
    else:
        columns = [column.cast(field.type) for column, field in zip(batch.columns, fields, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _plain(field: pa.Field) -> pa.Field:

    return field.with_type(field.type.value_type) if _is_dictionary(field.type) else field


def _bytes_of(values: pa.Array) -> int:
    """Return the bytes that values take when a dictionary is expanded."""
    if not _is_dictionary(values.type):
        return int(values.nbytes)
    lengths = np.append(lengths_of(values.dictionary), 0)  # the last one is for nulls
    return int(lengths[integers_of(values.indices, -1)].sum())


def _is_dictionary(kind: pa.DataType) -> bool:
    """Return True for dictionary-encoded types."""
    import pyarrow as pa

    return bool(pa.types.is_dictionary(kind))


def _leaves(kind: pa.DataType) -> int:
    """Return the number of Parquet columns of a type."""
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        return _leaves(kind.storage_type)
    return sum(_leaves(kind.field(number).type) for number in range(kind.num_fields)) if kind.num_fields else 1


def _is_list(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _element_type(kind: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if _is_list(kind) or pa.types.is_fixed_size_list(kind):
        return _element_type(kind.value_type)
    return kind.value_type if _is_dictionary(kind) else kind


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    types = pa.types
    return any(
        is_kind(kind) for is_kind in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )


def _width(kind: pa.DataType) -> int:
    import pyarrow as pa

    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * _width(kind.value_type)
    return max(8, kind.byte_width) if pa.types.is_fixed_size_binary(kind) else 8
