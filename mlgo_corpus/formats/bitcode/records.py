"""The records of a bitcode block, at the speed that reading whole modules needs.

`bitstream` reads a few records at the beginning of a block, one number at a time. Here one Python integer is a window
of the bits, from which numbers are taken by shifting. It is refilled where the next number may need more bits.

Work is bounded by the number of bits present: an array that claims more elements than bits are left is an error, as
is an abbreviation of many literals, which yields numbers without storing any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from mlgo_corpus.errors import FormatError, TruncatedError
from mlgo_corpus.formats.bitcode.bitstream import ENTER_SUBBLOCK, MAX_WIDTH, BitReader

_END_BLOCK, _DEFINE_ABBREV, _UNABBREV_RECORD = 0, 2, 3
_FIXED, _VBR, _ARRAY, _CHAR6, _BLOB = range(1, 6)
_CHAR6_ALPHABET = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"

_MAX_LITERALS = 24  # of one abbreviation; LLVM writes the code and up to three zeros, others a few more
_MAX_OPERANDS = 1 << 12  # of all abbreviations of a block; LLVM writes about 40
_MAX_FIELD = 64  # bits of a field that is not variable: some writers have 64

# A number has at most 64 bits, stored as up to 128 in chunks of two; an id comes before the first one of a record.
_LONGEST = 192
_FILL_BYTES = 64
_FILL = 8 * _FILL_BYTES
_FEW = 64  # arrays of up to this many elements are not checked against the block's end in advance

ENTER: Final = -1
"""The code with which `iter_records` yields a nested block, whose contents it skips."""

BLOCKINFO_BLOCK_ID: Final = 0
_SETBID = 1


class Block(NamedTuple):
    """A block: its id, the width of its abbreviation ids, and where its body begins and ends, in bytes."""

    block_id: int
    width: int
    start: int
    stop: int


class Field(NamedTuple):
    """How a number is stored: its width, the mask of that width, its continuation bit, and a literal's value.

    A number without chunks has the continuation bit 0. Of a literal, everything but the value is 0.
    """

    width: int
    mask: int
    continuation: int
    literal: int


class Abbreviation(NamedTuple):
    """How a record is stored.

    The first of ``fields`` is the code. ``elements`` describes those of an array, or is None. ``characters`` are the
    positions of the fields that are one of 64 characters each.
    """

    fields: tuple[Field, ...]
    characters: tuple[int, ...]
    elements: Field | None
    is_char6: bool
    is_blob: bool


Record = tuple[int, list[int]]
"""A record's code and its operands; for a nested block, `ENTER` and the four numbers of its `Block`.

A blob is two operands: the offset of its first byte and the offset after its last one.
"""

_CHUNKS_OF_SIX = Field(6, 63, 32, 0)


def iter_records(data: bytes, block: Block, known: list[Abbreviation], origin: int) -> Iterator[Record]:
    """Yield the records of a block in order, and the blocks nested in it.

    ``known`` are the abbreviations that BLOCKINFO has for this block; the block's own are appended to it.
    ``origin`` is the offset of the magic, from which alignment counts.

    Raises:
        FormatError: the bits are not a valid block; has the offset.
    """
    id_width, byte, stop = block.width, block.start, block.stop
    id_mask = (1 << id_width) - 1
    operands = 0
    end = 8 * stop
    window = left = 0
    from_bytes = int.from_bytes

    # The same few lines are repeated wherever a number is read: a function call would take longer than they do.
    while True:
        if left < _LONGEST:
            window |= from_bytes(data[byte : min(byte + _FILL_BYTES, stop)], "little") << left
            byte += _FILL_BYTES
            left += _FILL
            if 8 * byte - left > end:
                raise _ended(stop)
        kind = window & id_mask
        window >>= id_width
        left -= id_width
        if kind == _UNABBREV_RECORD:
            code = window & 63
            window >>= 6
            left -= 6
            if code & 32:
                code, used = _finish(code, window, _CHUNKS_OF_SIX, byte - (left >> 3))
                window >>= used
                left -= used
            values: list[int] = []
            elements = _CHUNKS_OF_SIX
        elif kind > _UNABBREV_RECORD:
            if kind - 4 >= len(known):
                message = f"a record has abbreviation {kind}, but {len(known)} are defined"
                raise FormatError(message, offset=byte - (left >> 3))
            fields, characters, array, is_char6, is_blob = known[kind - 4]
            values = []
            for field in fields:
                width, mask, continuation, literal = field
                value = window & mask | literal
                window >>= width
                left -= width
                if value & continuation:
                    value, used = _finish(value, window, field, byte - (left >> 3))
                    window >>= used
                    left -= used
                if left < _LONGEST:
                    window |= from_bytes(data[byte : min(byte + _FILL_BYTES, stop)], "little") << left
                    byte += _FILL_BYTES
                    left += _FILL
                values.append(value)
            for place in characters:
                values[place] = _CHAR6_ALPHABET[values[place]]
            code = values.pop(0)
            if array is None:
                yield code, values
                continue
            elements = array
        elif kind == _END_BLOCK:
            if 8 * byte - left > end:
                raise _ended(stop)
            return
        else:
            bits = BitReader(data, 0, stop, origin, TruncatedError)
            bits.position = 8 * byte - left
            if kind == ENTER_SUBBLOCK:
                inner = _read_header(bits, stop)
                byte = inner.stop
                window = left = 0
                yield ENTER, [*inner]
            else:
                known.append(_read_abbreviation(bits))
                operands += len(known[-1].fields)
                if operands > _MAX_OPERANDS:
                    raise bits.error(f"abbreviations with {operands} operands, expected at most {_MAX_OPERANDS}")
                byte, done = divmod(bits.position, 8)
                window = left = 0
                if done:
                    window = data[byte] >> done
                    left = 8 - done
                    byte += 1
            continue

        if left < _LONGEST:
            window |= from_bytes(data[byte : min(byte + _FILL_BYTES, stop)], "little") << left
            byte += _FILL_BYTES
            left += _FILL
        count = window & 63
        window >>= 6
        left -= 6
        if count & 32:
            count, used = _finish(count, window, _CHUNKS_OF_SIX, byte - (left >> 3))
            window >>= used
            left -= used
        width, mask, continuation, _ = elements
        if count > _FEW and count * width > end - (8 * byte - left):
            raise _ended(stop)
        if not continuation:
            if is_blob:
                start = origin + (8 * (byte - origin) - left + 31) // 32 * 4
                byte = start + (count + 3) // 4 * 4
                if byte > stop:
                    raise _ended(stop)
                window = left = 0
                yield code, [*values, start, start + count]
                continue
            while count:
                if left < width:
                    window |= from_bytes(data[byte : min(byte + _FILL_BYTES, stop)], "little") << left
                    byte += _FILL_BYTES
                    left += _FILL
                some = min(count, left // width)
                bits_of_some = some * width
                values += [window >> at & mask for at in range(0, bits_of_some, width)]
                window >>= bits_of_some
                left -= bits_of_some
                count -= some
            if is_char6:
                after = len(fields) - 1
                values[after:] = [_CHAR6_ALPHABET[value] for value in values[after:]]
        else:
            for _ in range(count):
                if left < _LONGEST:
                    window |= from_bytes(data[byte : min(byte + _FILL_BYTES, stop)], "little") << left
                    byte += _FILL_BYTES
                    left += _FILL
                value = window & mask
                window >>= width
                left -= width
                if value & continuation:
                    value, used = _finish(value, window, elements, byte - (left >> 3))
                    window >>= used
                    left -= used
                values.append(value)
        yield code, values


def _finish(value: int, window: int, field: Field, offset: int) -> tuple[int, int]:
    """Read the further chunks of a number whose first one is ``value``; also return how many bits they occupy."""
    width, mask, continuation, _ = field
    step = width - 1
    chunk = window & mask
    value &= continuation - 1
    if chunk < continuation:
        return value | chunk << step, width
    shift = step
    used = 0
    while chunk >= continuation:
        value |= (chunk & continuation - 1) << shift
        window >>= width
        used += width
        shift += step
        if shift >= 64:
            raise FormatError("reading a bitstream, expected a number of at most 64 bits", offset=offset)
        chunk = window & mask
    return (value | chunk << shift) & (1 << 64) - 1, used + width


def _ended(stop: int) -> FormatError:
    return TruncatedError("reading a bitstream, a record extends beyond the end of its block", offset=stop)


def _read_header(bits: BitReader, stop: int) -> Block:
    block_id, width, words = bits.block_header()
    start = bits.position // 8
    if start + 4 * words > stop:
        message = f"reading bitcode block {block_id}, expected {4 * words} bytes, got {stop - start}"
        raise TruncatedError(message, offset=start)
    if not 0 < width <= MAX_WIDTH:
        raise bits.error(f"block {block_id} has abbreviation ids of {width} bits, expected 1 to {MAX_WIDTH}")
    return Block(block_id, width, start, start + 4 * words)


def iter_top_level(data: bytes, start: int, stop: int) -> Iterator[Block]:
    """Yield the blocks of the bitcode file whose magic is at ``start``; stop where none begins."""
    bits = BitReader(data, start + 4, stop, start, TruncatedError)
    while bits.position < 8 * stop and bits.fixed(2) == ENTER_SUBBLOCK:
        block = _read_header(bits, stop)
        bits.position = 8 * block.stop
        yield block


def _read_abbreviation(bits: BitReader) -> Abbreviation:
    count = bits.vbr(5)
    if count > _MAX_OPERANDS:
        raise bits.error(f"an abbreviation with {count} operands, expected at most {_MAX_OPERANDS}")
    fields: list[Field] = []
    characters: list[int] = []
    literals = 0
    left = count
    while left:
        left -= 1
        if bits.fixed(1):
            literals += 1
            fields.append(Field(0, 0, 0, bits.vbr(8)))
            continue
        encoding = bits.fixed(3)
        if encoding in (_ARRAY, _BLOB):
            if not fields or left != (encoding == _ARRAY):
                raise bits.error("an abbreviation without a code, or with an array or a blob out of place")
            break
        if encoding == _CHAR6:
            characters.append(len(fields))
        fields.append(_read_field(bits, encoding))
        literals += not fields[-1].width
    else:
        if not fields:
            raise bits.error("an abbreviation without a code")
        encoding = 0
    if literals > _MAX_LITERALS:
        raise bits.error(f"an abbreviation with {literals} literals, expected at most {_MAX_LITERALS}")
    elements = None
    if encoding == _BLOB:
        elements = Field(8, 255, 0, 0)
    elif encoding == _ARRAY:
        literal, inner = bits.fixed(1), bits.fixed(3)
        if literal or inner in (_ARRAY, _BLOB) or not (elements := _read_field(bits, inner)).width:
            raise bits.error("an abbreviation with an array whose elements have no size")
        return Abbreviation(tuple(fields), tuple(characters), elements, is_char6=inner == _CHAR6, is_blob=False)
    return Abbreviation(tuple(fields), tuple(characters), elements, is_char6=False, is_blob=encoding == _BLOB)


def _read_field(bits: BitReader, encoding: int) -> Field:
    if encoding == _CHAR6:
        return Field(6, 63, 0, 0)
    if encoding not in (_FIXED, _VBR):
        raise bits.error(f"an abbreviation with encoding {encoding}, expected {_FIXED} to {_BLOB}")
    width = bits.vbr(5)
    if width > (_MAX_FIELD if encoding == _FIXED else MAX_WIDTH):
        raise bits.error(f"an abbreviation with a field of {width} bits, expected at most {MAX_WIDTH}")
    if encoding == _VBR and width == 1:
        raise bits.error("an abbreviation with chunks of one bit")
    return Field(width, (1 << width) - 1, 1 << width - 1 if encoding == _VBR and width else 0, 0)


def read_blockinfo(data: bytes, block: Block, origin: int) -> dict[int, list[Abbreviation]]:
    """Return the abbreviations that a BLOCKINFO block has for other blocks, by their block ids."""
    found: dict[int, list[Abbreviation]] = {}
    known: list[Abbreviation] = []
    current: list[Abbreviation] = []
    for code, values in iter_records(data, block, known, origin):
        if code == _SETBID and values:
            current += known
            known.clear()
            current = found.setdefault(values[0], [])
    current += known
    return found
