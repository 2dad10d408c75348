"""TFRecord: records of bytes, one after the other, each with its length and two checksums.

This is the format (tensorflow/core/lib/io/record_writer.h describes it). A file is any number of records and nothing
else; an empty file has no records, and concatenated files are a file of all their records::

    record    length  uint64, little-endian: the bytes of data
              check   uint32, little-endian: `masked_crc` of the 8 bytes of length
              data
              check   uint32, little-endian: `masked_crc` of data

Checksums are CRC-32C (Castagnoli), rotated by 15 bits and added to a constant: otherwise, the checksum of data that
contains its checksum would be weak. Files may be compressed as a whole (gzip, zlib); ml-compiler-opt's readers expect
uncompressed files, and so does this module.

A writer writes a record whole or not at all. A reader checks the length's checksum before it uses the length, and
requests the bytes in pieces of limited size.
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
"""The size of a record without its data."""

# The most bytes requested at once: a file allocates memory for the whole request, however few bytes it has.
_READ_BYTES = 1 << 20


class Readable(Protocol):
    """A source of records. ``read`` may return fewer bytes than requested."""

    def read(self, size: int, /) -> bytes:
        """Return up to ``size`` bytes; none at the end."""


def masked_crc(crc: int) -> int:
    """Mask a CRC-32C as records store it."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def record_header(length: int) -> bytes:
    """Return the bytes that precede a record's data."""
    encoded = _LENGTH.pack(length)
    return encoded + _CHECK.pack(masked_crc(google_crc32c.value(encoded)))


def extend_crc(crc: int, data: bytes) -> int:
    """Extend a CRC-32C by ``data``; the CRC-32C of no data is 0."""
    return int(google_crc32c.extend(crc, data))


def record_footer(crc: int) -> bytes:
    """Return the bytes that follow a record's data, given the data's CRC-32C."""
    return _CHECK.pack(masked_crc(crc))


def encode_record(data: bytes) -> bytes:
    """Return a record of these bytes."""
    return b"".join((record_header(len(data)), data, record_footer(google_crc32c.value(data))))


def read_records(stream: Readable) -> Iterator[bytes]:
    """Yield the data of a stream's records.

    Raises:
        TruncatedError: the stream ends within a record.
        FormatError: a checksum is wrong: the stream is not TFRecord, or is damaged.
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
            raise FormatError("the checksum of a record's length is wrong: not TFRecord, or damaged", offset=offset)
        data = _read(stream, length)
        at = offset + _HEADER.size
        if len(data) < length:
            raise _truncated("a record's data", length, len(data), at)
        footer = _read(stream, _CHECK.size)
        if len(footer) < _CHECK.size:
            raise _truncated("the checksum of a record's data", _CHECK.size, len(footer), at + length)
        if _CHECK.unpack(footer)[0] != masked_crc(google_crc32c.value(data)):
            raise FormatError(f"the checksum of a record's data ({length} bytes) is wrong", offset=at)
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
