"""TFRecord: the writer against checksums computed bit by bit, and the reader against every way a file can be wrong."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlgo_corpus.errors import FormatError, TruncatedError
from mlgo_corpus.formats.records.tfrecord import (
    FRAME_BYTES,
    encode_record,
    extend_crc,
    masked_crc,
    read_records,
    record_footer,
    record_header,
)


def plain_crc(data: bytes) -> int:
    """CRC-32C by its definition: the polynomial 0x1EDC6F41, bits reversed."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def plain_record(data: bytes) -> bytes:
    """A record by the format's description."""

    def masked(part: bytes) -> bytes:
        crc = plain_crc(part)
        turned = (crc >> 15 | crc << 17) & 0xFFFFFFFF
        return struct.pack("<I", (turned + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def test_the_oracle_knows_the_check_value_of_the_standard() -> None:
    assert plain_crc(b"123456789") == 0xE3069283  # RFC 3720's check value


@given(st.binary(max_size=300))
def test_a_record_is_what_the_format_says(data: bytes) -> None:
    assert encode_record(data) == plain_record(data)
    assert len(encode_record(data)) == len(data) + FRAME_BYTES
    assert extend_crc(0, data) == plain_crc(data)


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_a_record_in_parts(first: bytes, second: bytes) -> None:
    crc = extend_crc(extend_crc(0, first), second)
    assert record_header(len(first + second)) + first + second + record_footer(crc) == plain_record(first + second)


def test_masked_crc_stays_within_32_bits() -> None:
    assert masked_crc(0) == 0xA282EAD8
    assert masked_crc(0xFFFFFFFF) == 0xA282EAD7


class Dribble:
    """A stream that gives a byte at a time, whatever it is asked for."""

    def __init__(self, data: bytes) -> None:
        self._stream = io.BytesIO(data)

    def read(self, size: int, /) -> bytes:
        return self._stream.read(min(size, 1))


@given(st.lists(st.binary(max_size=50), max_size=5))
def test_records_come_back(records: list[bytes]) -> None:
    data = b"".join(map(plain_record, records))
    assert list(read_records(io.BytesIO(data))) == records
    assert list(read_records(Dribble(data))) == records


def test_a_file_that_ends_anywhere() -> None:
    records = [b"", b"one", b"another"]
    data = b"".join(map(plain_record, records))
    ends = {0: 0, 16: 1, 35: 2, 58: 3}
    assert len(data) == 58
    for end in range(len(data)):
        found = []
        if end in ends:
            assert list(read_records(io.BytesIO(data[:end]))) == records[: ends[end]]
            continue
        with pytest.raises(TruncatedError) as caught:
            found.extend(read_records(io.BytesIO(data[:end])))
        assert f"got {end - (caught.value.offset or 0)}" in str(caught.value)
        assert (caught.value.offset or 0) <= end


def test_a_flipped_bit_anywhere() -> None:
    data = plain_record(b"some data")
    for place in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            with pytest.raises(FormatError, match="the checksum of a record's") as caught:
                list(read_records(io.BytesIO(damaged)))
            assert caught.value.offset == (0 if place < 12 else 12)


def test_records_before_the_damage_are_given() -> None:
    records = read_records(io.BytesIO(plain_record(b"good") + b"\0" * 40))
    assert next(records) == b"good"
    with pytest.raises(FormatError, match="byte 20: the checksum of a record's length is wrong"):
        next(records)


def test_a_length_that_lies_takes_no_memory() -> None:
    length = struct.pack("<Q", 1 << 62)
    data = length + plain_record(length)[-4:]  # the checksum is right

    class Asked(io.BytesIO):
        most = 0

        def read(self, size: int | None = -1, /) -> bytes:
            Asked.most = max(Asked.most, size or 0)
            return super().read(size)

    with pytest.raises(TruncatedError, match=f"byte 12: reading a record's data, expected {1 << 62} bytes, got 5"):
        list(read_records(Asked(data + b"12345")))
    assert Asked.most == 1 << 20
