"""LLVM's bitstream container: bits, abbreviations and the records of one block (LLVM docs, "BitCodeFormat").

A stream is read from the low bit of each byte up. Numbers are fixed-width or variable (VBR: chunks whose top bit
is set if another follows). A block's items each begin with an abbreviation id: END_BLOCK, ENTER_SUBBLOCK,
DEFINE_ABBREV, an unabbreviated record, or a record stored as one of the abbreviations defined so far.

Work is bounded by the number of bits present, never by a number that they encode: input may be hostile.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from mlgo_corpus.errors import FormatError
from mlgo_corpus.formats.buffer import Buffer

_END_BLOCK, ENTER_SUBBLOCK, _DEFINE_ABBREV, _UNABBREV_RECORD = range(4)
_LITERAL, _FIXED, _VBR, _ARRAY, _CHAR6, _BLOB = range(6)
_CHAR6_ALPHABET = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"
MAX_WIDTH = 32  # of an abbreviation id or a field, as in LLVM


# Limits on hostile input, far above anything real: a module block's abbreviations have about 25 operands in all,
# and file systems limit the length of names.
_MAX_OPERANDS = 1 << 16
_MAX_STRING = 1 << 20

_VBR_WINDOW = 128  # chunks examined in one step when numbers are skipped


class BitReader:
    """The primitives of a bitstream over ``data[start:stop]``; ``position`` counts bits from data's start.

    ``origin`` is the offset of the magic: alignment counts from it. Reading past ``stop`` raises ``short``.
    """

    __slots__ = ("_data", "_origin", "_short", "_stop", "position")

    def __init__(
        self, data: Buffer, start: int, stop: int, origin: int, short: type[FormatError] = FormatError
    ) -> None:
        self._data = data
        self._origin = 8 * origin
        self._stop = 8 * stop
        self._short = short
        self.position = 8 * start

    def error(self, message: str) -> FormatError:
        """Return an error at the current position."""
        return FormatError(message, offset=self.position // 8)

    def require(self, count: int) -> None:
        """Check that ``count`` bits are left."""
        if count > self._stop - self.position:
            message = f"reading a bitstream, expected {count} bits, got {self._stop - self.position}"
            raise self._short(message, offset=self.position // 8)

    def skip(self, count: int) -> None:
        """Skip ``count`` bits."""
        self.require(count)
        self.position += count

    def align(self) -> None:
        """Skip to the next multiple of 32 bits from the magic."""
        self.skip((self._origin - self.position) % 32)

    def fixed(self, width: int) -> int:
        """Read a number of ``width`` bits."""
        position = self.position
        stop = position + width
        if stop > self._stop:
            self.require(width)
        self.position = stop
        window = int.from_bytes(self._data[position >> 3 : (stop + 7) >> 3], "little")
        return window >> (position & 7) & ((1 << width) - 1)

    def vbr(self, width: int) -> int:
        """Read a number stored in chunks of ``width`` bits; more than 64 bits are an error."""
        continuation = 1 << (width - 1)
        chunk = self.fixed(width)
        value = shift = 0
        while chunk >= continuation:
            value |= (chunk ^ continuation) << shift
            shift += width - 1
            if shift >= 64:
                raise self.error("reading a bitstream, expected a number of at most 64 bits")
            chunk = self.fixed(width)
        return value | chunk << shift

    def skip_vbrs(self, width: int, count: int) -> None:
        """Skip ``count`` numbers, by counting the chunks without a continuation bit, which end them."""
        self.require(count * width)
        while count > 0:
            chunks = min(4 * count, _VBR_WINDOW, (self._stop - self.position) // width)
            self.require(width)
            start = self.position
            window = self.fixed(chunks * width)
            ends = ~window & _continuation_bits(width) & ((1 << chunks * width) - 1)
            count -= ends.bit_count()
            if count <= 0:
                for _ in range(-count):  # more numbers end in the window than are skipped: drop the last ones
                    ends ^= 1 << (ends.bit_length() - 1)
                self.position = start + ends.bit_length()

    def block_header(self) -> tuple[int, int, int]:
        """Read the fields after ENTER_SUBBLOCK: block id, width of abbreviation ids, number of words."""
        block_id = self.vbr(8)
        width = self.vbr(4)
        self.align()
        return block_id, width, self.fixed(32)


@lru_cache(maxsize=MAX_WIDTH)
def _continuation_bits(width: int) -> int:
    return sum(1 << (width * chunk + width - 1) for chunk in range(_VBR_WINDOW))


class _Operand(NamedTuple):
    """How one value is stored: ``size`` is its width in bits, or a literal's value."""

    encoding: int
    size: int


class _Abbreviation(NamedTuple):
    """How a record is stored: its code, single values, then possibly an array or a blob of ``elements``.

    ``stored`` are the values that occupy bits: skipping a record must take no time for its literals, or a few
    bits could cause much work.
    """

    code: _Operand
    values: tuple[_Operand, ...]
    stored: tuple[_Operand, ...]
    elements: _Operand | None
    is_blob: bool


_UNABBREVIATED = _Abbreviation(_Operand(_VBR, 6), (), (), _Operand(_VBR, 6), is_blob=False)


class BlockReader:
    """The items of one block's body, and the abbreviations it has defined so far."""

    def __init__(self, bits: BitReader, width: int) -> None:
        self._bits = bits
        self._width = width
        self._abbreviations = [_UNABBREVIATED]  # in the order of their ids, from UNABBREV_RECORD on
        self._operands = 0

    def read_strings(self, codes: tuple[int, ...]) -> dict[int, str]:
        """Return the first record of each of these codes as text; codes without a record are left out."""
        bits = self._bits
        strings: dict[int, str] = {}
        while len(strings) < len(codes) and (abbreviation_id := bits.fixed(self._width)) != _END_BLOCK:
            if abbreviation_id >= _UNABBREV_RECORD:
                abbreviation = self._find_abbreviation(abbreviation_id)
                code = self._read_value(abbreviation.code)
                if code in codes and code not in strings:
                    strings[code] = self._decode(self._read_record(abbreviation))
                else:
                    self._skip_record(abbreviation)
            elif abbreviation_id == ENTER_SUBBLOCK:
                _, _, words = bits.block_header()
                bits.skip(32 * words)
            else:  # DEFINE_ABBREV
                self._abbreviations.append(self._read_abbreviation())
        return strings

    def _find_abbreviation(self, abbreviation_id: int) -> _Abbreviation:
        index = abbreviation_id - _UNABBREV_RECORD
        if index >= len(self._abbreviations):
            known = len(self._abbreviations) - 1
            raise self._bits.error(f"a record has abbreviation {abbreviation_id}, but {known} are defined")
        return self._abbreviations[index]

    def _read_abbreviation(self) -> _Abbreviation:
        bits = self._bits
        count = bits.vbr(5)
        self._operands += count
        if self._operands > _MAX_OPERANDS:
            raise bits.error(f"abbreviations with {self._operands} operands, expected at most {_MAX_OPERANDS}")
        operands = [self._read_operand() for _ in range(count)]
        elements = None
        is_blob = count > 0 and operands[-1].encoding == _BLOB
        if is_blob:
            operands[-1:] = []
            elements = _Operand(_FIXED, 8)
        elif count > 1 and operands[-2].encoding == _ARRAY:
            elements = operands[-1]
            operands[-2:] = []
        if not operands or any(operand.encoding in (_ARRAY, _BLOB) for operand in operands):
            raise bits.error("an abbreviation without a code, or with an array or a blob out of place")
        if elements is not None and elements.encoding not in (_FIXED, _VBR, _CHAR6):
            raise bits.error("an abbreviation with an array whose elements have no size")
        stored = tuple(operand for operand in operands[1:] if operand.encoding != _LITERAL)
        return _Abbreviation(operands[0], tuple(operands[1:]), stored, elements, is_blob)

    def _read_operand(self) -> _Operand:
        bits = self._bits
        if bits.fixed(1):
            return _Operand(_LITERAL, bits.vbr(8))
        encoding = bits.fixed(3)
        if not _FIXED <= encoding <= _BLOB:
            raise bits.error(f"an abbreviation with encoding {encoding}, expected {_FIXED} to {_BLOB}")
        if encoding not in (_FIXED, _VBR):
            return _Operand(encoding, 6)
        width = bits.vbr(5)
        if width > MAX_WIDTH:
            raise bits.error(f"an abbreviation with a field of {width} bits, expected at most {MAX_WIDTH}")
        return _Operand(encoding, width) if width else _Operand(_LITERAL, 0)

    def _read_value(self, operand: _Operand) -> int:
        encoding, size = operand
        if encoding == _LITERAL:
            return size
        if encoding == _VBR:
            return self._bits.vbr(size)
        value = self._bits.fixed(size)
        return _CHAR6_ALPHABET[value] if encoding == _CHAR6 else value

    def _read_record(self, abbreviation: _Abbreviation) -> list[int]:
        bits = self._bits
        values = [self._read_value(operand) for operand in abbreviation.values]
        if abbreviation.elements is not None:
            count = self._read_length(abbreviation)
            if count > _MAX_STRING:
                raise bits.error(f"a string of {count} characters, expected at most {_MAX_STRING}")
            bits.require(count * abbreviation.elements.size)
            values += [self._read_value(abbreviation.elements) for _ in range(count)]
            if abbreviation.is_blob:
                bits.align()
        return values

    def _skip_record(self, abbreviation: _Abbreviation) -> None:
        for operand in abbreviation.stored:
            self._skip_values(operand, 1)
        if abbreviation.elements is not None:
            self._skip_values(abbreviation.elements, self._read_length(abbreviation))
            if abbreviation.is_blob:
                self._bits.align()

    def _read_length(self, abbreviation: _Abbreviation) -> int:
        count = self._bits.vbr(6)
        if abbreviation.is_blob:
            self._bits.align()
        return count

    def _skip_values(self, operand: _Operand, count: int) -> None:
        if operand.encoding == _VBR:
            self._bits.skip_vbrs(operand.size, count)
        else:
            self._bits.skip(count * operand.size)

    def _decode(self, characters: list[int]) -> str:
        if any(character > 0xFF for character in characters):
            raise self._bits.error("a string with a character of more than 8 bits")
        return bytes(characters).decode("utf-8", "replace")
