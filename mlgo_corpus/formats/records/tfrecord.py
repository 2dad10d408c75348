"""TFRecord: records of bytes, one after the other, each with its length and two checksums.

This is the format (tensorflow/core/lib/io/record_writer.h describes it). A file is any number of records and nothing
else; an empty file is one without records, and files that are joined are a file of all their records::

    record    length  uint64, little-endian: the bytes of data
              check   uint32, little-endian: `masked_crc` of the 8 bytes of length
              data
              check   uint32, little-endian: `masked_crc` of data

Checksums are CRC-32C (Castagnoli), turned by 15 bits and added to a constant: the checksum of what holds a checksum
is no good otherwise. Files may be compressed as a whole (gzip, zlib); ml-compiler-opt's readers ask for files that are
not, and neither are they here.

A writer writes a record whole or not at all. A reader checks the length's checksum before it believes the length, and
never asks for more bytes at a time than the file can be expected to have.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, Protocol

import google_crc32c

from mlgo_corpus.errors import FormatError, TruncatedError

_HEADER = struct.Struct("<QI")
_LENGTH = struct.Struct("<Q")
_CHECK = struct.Struct("<I")
_MASK_DELTA = 0xA282EAD8

FRAME_BYTES: Final = _HEADER.size + _CHECK.size
"""What a record takes besides its data."""

# The most that is asked of a stream at once: a file makes room for all that it is asked for, whatever it has.
_READ_BYTES = 1 << 20


class Readable(Protocol):
    """What records are read from. ``read`` may give less than it is asked for."""

    def read(self, size: int, /) -> bytes:
        """Give up to ``size`` bytes; none at the end."""


def masked_crc(crc: int) -> int:
    """Turn a CRC-32C into what a record holds of it."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def record_header(length: int) -> bytes:
    """Give what comes before a record's data."""
    encoded = _LENGTH.pack(length)
    return encoded + _CHECK.pack(masked_crc(google_crc32c.value(encoded)))


def extend_crc(crc: int, data: bytes) -> int:
    """Give the CRC-32C of what ``crc`` is of and of ``data`` after it; that of nothing is 0."""
    return int(google_crc32c.extend(crc, data))


def record_footer(crc: int) -> bytes:
    """Give what comes after a record's data, whose CRC-32C this is."""
    return _CHECK.pack(masked_crc(crc))


def encode_record(data: bytes) -> bytes:
    """Give a record of these bytes."""
    return b"".join((record_header(len(data)), data, record_footer(google_crc32c.value(data))))


def read_records(stream: Readable) -> Iterator[bytes]:
    """Yield the data of a stream's records.

    Raises:
        TruncatedError: the stream ends within a record.
        FormatError: a checksum is wrong: it is no TFRecord file, or a damaged one.
    """
    offset = 0
    while True:
        header = _read(stream, _HEADER.size)
        if not header:
            return
        if len(header) < _HEADER.size:
            raise _truncated("a record's length", _HEADER.size, len(header), offset)
        length, check = _HEADER.unpack(header)
        if check != masked_crc(google_crc32c.value(header[: _LENGTH.size])):
            raise FormatError("reading a record's length, expected another checksum: not a TFRecord", offset=offset)
        data = _read(stream, length)
        at = offset + _HEADER.size
        if len(data) < length:
            raise _truncated("a record's data", length, len(data), at)
        footer = _read(stream, _CHECK.size)
        if len(footer) < _CHECK.size:
            raise _truncated("the checksum of a record's data", _CHECK.size, len(footer), at + length)
        if _CHECK.unpack(footer)[0] != masked_crc(google_crc32c.value(data)):
            raise FormatError(f"reading a record's data, expected another checksum of these {length} bytes", offset=at)
        yield data
        offset = at + length + _CHECK.size


def _read(stream: Readable, size: int) -> bytes:
    parts: list[Any] = []
    missing = size
    while missing and (part := stream.read(min(missing, _READ_BYTES))):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _truncated(what: str, expected: int, found: int, offset: int) -> TruncatedError:
    return TruncatedError(f"reading {what}, expected {expected} bytes, got {found}", offset=offset)
