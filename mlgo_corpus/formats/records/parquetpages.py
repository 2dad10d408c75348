"""The cost of decoding a column of a Parquet file, known before any of it is decoded.

A Parquet file's footer says how large its columns are; nothing forces it to be true, and it does not say what a
dictionary expands to. But each page begins with a header, by which readers size their buffers::

    FileMetaData    4: row groups, of each 1: chunks of columns, of each 3: metadata
    ColumnMetaData  2: encodings  5: values  6: uncompressed size  7: compressed size  9|11: first data, dictionary page
    PageHeader      1: type  2: uncompressed size  3: compressed size  5|8: the header of a data page
    data page       1: values  2: encoding
    data page v2    1: values  2: nulls  3: rows  4: encoding

These are Thrift structures in the compact protocol (apache/thrift, doc/specs/thrift-compact-protocol.md, and
apache/parquet-format, src/main/thrift/parquet.thrift). The footer is read here, too: pyarrow ends the process when
it is asked for the metadata of a column that contradicts itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from mlgo_corpus.errors import FormatError

_DICTIONARY_PAGE = 2
_DELTA_BYTE_ARRAY = 7
_DICTIONARIES = frozenset({2, 8})
_VALUES_FIELD = 1
# For each type of data page: the field of its own header, and the field of the encoding in that header.
_DATA_PAGES = {0: (5, 2), 3: (8, 4)}

_MAGIC = b"PAR1"
_FIRST_READ = 128
_MAX_HEADER_BYTES: Final = 1 << 20
_MAX_DEPTH = 8

# Reads (size, offset) of a file.
_ReadAt = Callable[[int, int], bytes]


class Chunk(NamedTuple):
    """A column of a row group as the footer describes it: where its pages begin, their bytes, and its values.

    ``encoded`` counts the bytes after decompression; ``encodings`` are Parquet's numbers.
    """

    start: int
    stored: int
    encoded: int
    values: int
    encodings: tuple[int, ...]

    @property
    def claimed(self) -> ChunkCost:
        """The cost of decoding the column if the footer is right."""
        has_prefixes = _DELTA_BYTE_ARRAY in self.encodings
        is_shared = has_prefixes or not _DICTIONARIES.isdisjoint(self.encodings)
        return ChunkCost(self.stored, self.encoded, self.values, self.encoded * is_shared, has_prefixes)


def read_chunks(read_at: _ReadAt, size: int) -> tuple[tuple[Chunk, ...], ...]:
    """Return the chunks of each row group, in the order of the columns, from the footer of a file of ``size`` bytes.

    Raises:
        FormatError: there is no footer, or it is damaged.
    """
    length = footer_length(read_at, size)
    return _parse_footer(read_at(length, size - 8 - length))


def footer_length(read_at: _ReadAt, size: int) -> int:
    """Return the bytes of the footer of a file of ``size`` bytes, before the 8 bytes that the file ends with.

    Raises:
        FormatError: there is no footer, or it is longer than the file, as in one that was cut off.
    """
    end = read_at(8, max(0, size - 8))
    length = int.from_bytes(end[:4], "little")
    if end[4:] != _MAGIC or length + 8 + len(_MAGIC) > size:  # the file begins with the same magic number
        raise FormatError("expected the footer of a Parquet file, found none")
    return length


@lru_cache(maxsize=32)  # a packed corpus's files are opened once for each row group, a dataset's for each feature
def _parse_footer(data: bytes) -> tuple[tuple[Chunk, ...], ...]:
    try:
        groups = _parse_struct(data, 0, 0)[0].get(4) or []
        return tuple(tuple(_chunk_of(chunk.get(3) or {}) for chunk in group.get(1) or []) for group in groups)
    except (IndexError, AttributeError, TypeError, ValueError) as error:
        raise FormatError("the footer is damaged") from error


def _chunk_of(fields: dict[int, Any]) -> Chunk:
    first, stored, encoded, values = numbers = [fields.get(field, 0) for field in (9, 7, 6, 5)]
    start = min(first, fields.get(11) or first)
    if min(start, *numbers) < 0:
        raise ValueError(numbers)
    return Chunk(start, stored, encoded, values, tuple(fields.get(2) or ()))


class ChunkCost(NamedTuple):
    """The cost of decoding one column of one row group.

    Attributes:
        stored: bytes in the file.
        encoded: bytes of all pages after decompression.
        values: number of values; in lists, of elements.
        shared: the most bytes of one value that many rows can share; 0 if each row has its own bytes in the file.
        has_prefixes: whether a value is stored as its difference from the one before (DELTA_BYTE_ARRAY).
        begins_shared: whether the first values are from a dictionary.
    """

    stored: int
    encoded: int
    values: int
    shared: int
    has_prefixes: bool
    begins_shared: bool = False


def read_cost(read_at: _ReadAt, chunk: Chunk) -> ChunkCost:
    """Return the cost of a column of a row group, summed over the headers of the pages that hold its values.

    Raises:
        FormatError: the pages are not those of a column.
    """
    at, end = chunk.start, chunk.start + chunk.stored
    encoded = found = dictionary = largest = 0
    has_prefixes = begins_shared = False
    while found < chunk.values:
        header, length = _read_header(read_at, at, end)
        kind, uncompressed, compressed = (header.get(field, 0) for field in (1, 2, 3))
        at += length + compressed
        if min(uncompressed, compressed) < 0 or at > end:
            raise FormatError("a page does not lie in its column", offset=at)
        encoded += uncompressed
        if kind == _DICTIONARY_PAGE:
            dictionary = max(dictionary, uncompressed)
            continue
        field, encoding = _DATA_PAGES.get(kind, (0, 0))
        if isinstance(own := header.get(field), dict):
            begins_shared |= not found and own.get(encoding) in _DICTIONARIES
            found += max(0, own.get(_VALUES_FIELD, 0))
            if own.get(encoding) == _DELTA_BYTE_ARRAY:
                has_prefixes, largest = True, max(largest, uncompressed)
    return ChunkCost(chunk.stored, encoded, found, max(dictionary, largest), has_prefixes, begins_shared)


def _read_header(read_at: _ReadAt, at: int, end: int) -> tuple[dict[int, Any], int]:
    """Read a page's header; return its fields and its size in bytes."""
    size = _FIRST_READ
    while True:
        data = read_at(min(size, end - at), at) if end > at else b""
        try:
            return _parse_struct(data, 0, 0)
        except IndexError:  # it is longer, or the file ends
            if len(data) < size or size >= _MAX_HEADER_BYTES:
                raise FormatError("expected the header of a page, found none that ends", offset=at) from None
            size *= 8


def _parse_struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Parse a structure; return its fields and where it ends. Raise an IndexError if the bytes end too early."""
    if depth > _MAX_DEPTH:
        raise FormatError("a page's header is nested too deeply", offset=at)
    fields: dict[int, Any] = {}
    number = 0
    while (byte := data[at]) != 0:
        at += 1
        if byte >> 4:
            number += byte >> 4
        else:
            number, at = _parse_integer(data, at)
        fields[number], at = _parse_value(data, at, byte & 15, depth)
    return fields, at + 1


def _parse_value(data: bytes, at: int, kind: int, depth: int, *, listed: bool = False) -> tuple[Any, int]:
    match kind:
        case 1 | 2:  # in a structure the type is the truth value; in a list it has a byte of its own
            return kind == 1, at + listed
        case 3:
            return data[at], at + 1
        case 4 | 5 | 6:
            return _parse_integer(data, at)
        case 7:
            return None, at + 8
        case 8:
            size, at = _parse_varint(data, at)
            return None, at + size
        case 9 | 10:
            head, at = data[at], at + 1
            count = head >> 4
            if count == 15:
                count, at = _parse_varint(data, at)
            values = []
            for _ in range(count):
                value, at = _parse_value(data, at, head & 15, depth + 1, listed=True)
                if at > len(data):  # a list may claim more elements than there are bytes
                    raise IndexError(at)
                values.append(value)
            return values, at
        case 12:
            return _parse_struct(data, at, depth + 1)
    raise FormatError(f"a page's header has a field of type {kind}", offset=at)


def _parse_integer(data: bytes, at: int) -> tuple[int, int]:
    number, at = _parse_varint(data, at)
    return (number >> 1) ^ -(number & 1), at


def _parse_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise FormatError("a page's header has an integer of more than 64 bits", offset=at)
