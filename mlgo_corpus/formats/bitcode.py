"""LLVM bitcode containers: finding whole modules, and reading what a module says about itself.

This is the format as this module reads it. The terms are those of LLVM's *Bitcode File Format* document
and of ``llvm/Bitcode/LLVMBitCodes.h``.

**Bitstream.** Everything is a sequence of bits, taken from bytes lowest bit first, so a number of 32
aligned bits is a little-endian word on every host. ``fixedN`` is N bits. ``vbrN`` is chunks of N bits, lowest
first: the top bit of a chunk says that another follows, the others carry the value (64 bits at most).
*Aligning* skips to the next multiple of 32 bits **counted from the magic**, not from the start of a section.

**Bitcode file**::

    magic       42 43 C0 DE ("BC", then the magic of LLVM IR)
    block       as often as there are; each starts and ends aligned
      fixed2    abbreviation id 1, ENTER_SUBBLOCK
      vbr8      block id
      vbr4      width of the abbreviation ids inside the block, 1 to 32
      align
      fixed32   length of the body in 32-bit words
      body

The blocks at the top level are MODULE (8), IDENTIFICATION (13), STRTAB (23) and SYMTAB (25). IDENTIFICATION
describes the MODULE after it. One file may hold several such pairs, with one STRTAB. There is no length and
no end mark: a file ends where no further block begins.

**Wrapper** (Mach-O targets), five little-endian words, then the bitcode file::

    magic       DE C0 17 0B (0x0B17C0DE)
    version     0; not checked, as in LLVM
    offset      of the bitcode file, from the wrapper's magic; at least 20
    size        of the bitcode file, in bytes
    cputype     of Mach-O; not checked

LLVM pads the whole with zeros to a multiple of 16 bytes, and reads wrappers without that padding.

**Inside a block** each item begins with an abbreviation id of the block's own width:

- 0 END_BLOCK, then align.
- 1 ENTER_SUBBLOCK, as above.
- 2 DEFINE_ABBREV: vbr5 number of operands, each ``fixed1`` 1 and a vbr8 literal, or ``fixed1`` 0, a fixed3
  encoding and, for fixed (1) and vbr (2), a vbr5 width. Array (3) is second to last, before its elements'
  encoding; char6 (4) is 6 bits; blob (5) is last. A fixed or vbr of width 0 is the literal 0.
- 3 UNABBREV_RECORD: vbr6 code, vbr6 number of operands, each vbr6.
- 4 and up, a record laid out by the block's first, second, ... abbreviation; its first value is the code. An
  array is a vbr6 length and the elements; a blob is a vbr6 length, align, the bytes, align.

A BLOCKINFO block (0) gives abbreviations to blocks that are entered after it, so one inside a module says
nothing about that module's own records; LLVM ignores those outside (and rejects modules that need them).

**Sections.** A linker glues the sections of its inputs together. Before, between and after the files there
may be zero bytes, and a file may begin at any byte. Mach-O objects made with ``-fembed-bitcode-marker`` have
a section of one zero byte and no bitcode. The low two bits of the byte where a block might begin tell the
cases apart: 01 for a block, 10 for either magic, 00 for padding. Archives made for Darwin pad members to 8
bytes with newlines and count those as the member's, so up to seven newlines at the very end are padding too.

**What a reader may not assume**: that there is an IDENTIFICATION block (LLVM before 3.8 wrote none), a STRTAB
(before 5) or a SYMTAB; that a module has a target triple or a source file name, or that they come before its
global variables and functions (old releases wrote the name after them); that block headers are two words;
that a file cut off exactly between two top-level blocks can be told from a whole one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from mlgo_corpus.errors import FormatError, TruncatedError

Buffer = bytes | memoryview
"""What every function here reads: bytes, or a contiguous memoryview of unsigned bytes. Neither is copied."""

MAGIC: Final = b"BC\xc0\xde"
WRAPPER_MAGIC: Final = b"\xde\xc0\x17\x0b"

_MODULE_BLOCK_ID = 8
_IDENTIFICATION_BLOCK_ID = 13
_IDENTIFICATION_CODE_STRING = 1
_MODULE_CODE_TRIPLE = 2
_MODULE_CODE_SOURCE_FILENAME = 16

_END_BLOCK, _ENTER_SUBBLOCK, _DEFINE_ABBREV, _UNABBREV_RECORD = range(4)
_LITERAL, _FIXED, _VBR, _ARRAY, _CHAR6, _BLOB = range(6)
_CHAR6_ALPHABET = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"
_MAX_WIDTH = 32  # of an abbreviation id or a field, as in LLVM

_BLOCK_HEADER = struct.Struct("<II")
# In the first word of a block header: the continuation bits of the block id (vbr8) and of the width (vbr4).
_LONG_HEADER = 1 << 9 | 1 << 13
_WRAPPER_HEADER = struct.Struct("<IIIII")
_WRAPPER_ALIGNMENT = 16
_DARWIN_MEMBER_ALIGNMENT = 8

# Limits on hostile input, far above anything real: a module block's abbreviations have about 25 operands in
# all, file systems bound the names, an identification block is about 30 bytes.
_MAX_OPERANDS = 1 << 16
_MAX_STRING = 1 << 20
_MAX_IDENTIFICATION = 1 << 10

_VBR_WINDOW = 128  # chunks looked at in one step when numbers are skipped


@dataclass(frozen=True, slots=True)
class Extent:
    """One bitcode file inside a section, as byte offsets.

    ``start:stop`` is everything that belongs to it, with its wrapper and the wrapper's padding if it has one.
    ``payload_start:payload_stop`` is the bitcode file itself, from its magic on; the same without a wrapper.
    """

    start: int
    stop: int
    payload_start: int
    payload_stop: int


@dataclass(frozen=True, slots=True)
class ModuleHeader:
    """What a module says about itself; None for what it does not say.

    ``producer`` is the identification string ("LLVM19.1.7"). Bytes that are not UTF-8 appear as U+FFFD.
    """

    producer: str | None
    target_triple: str | None
    source_filename: str | None


def is_bitcode(data: Buffer) -> bool:
    """Tell whether data begins with the magic of a bitcode file, raw or wrapped."""
    return bytes(data[:4]) in (MAGIC, WRAPPER_MAGIC)


def iter_extents(data: Buffer) -> Iterator[Extent]:
    """Yield each whole bitcode file of a section that a linker may have glued together.

    Every byte of data is accounted for: it is in an extent, or it is padding. Empty data, or nothing but
    zeros, yields nothing. Only top-level block headers are read: the time does not depend on modules' sizes.

    Raises TruncatedError where data ends too early and FormatError where it breaks the format, with the
    offset, after the whole files before that place have been yielded.
    """
    end = len(data)
    position = _skip_zeros(data, 0, end)
    while position < end:
        start = position
        magic = bytes(data[start : start + 4])
        if magic == MAGIC:
            position = _find_file_end(data, start, end)
            yield Extent(start, position, start, position)
        elif magic == WRAPPER_MAGIC:
            payload_start, payload_stop = _parse_wrapper(data, start, end)
            file_end = _find_file_end(data, payload_start, payload_stop)
            if (garbage := _skip_zeros(data, file_end, payload_stop)) != payload_stop:
                raise _unexpected(data, garbage, "a block or zeros inside the wrapper")
            padded = payload_stop + (start - payload_stop) % _WRAPPER_ALIGNMENT
            position = _skip_zeros(data, payload_stop, min(padded, end))
            yield Extent(start, position, payload_start, payload_stop)
        elif start and end - start < _DARWIN_MEMBER_ALIGNMENT and not bytes(data[start:]).strip(b"\n"):
            return
        else:
            raise _no_magic(data, start)
        position = _skip_zeros(data, position, end)


def read_producer(data: Buffer) -> str | None:
    """Return the identification string of the first module of a bitcode file, raw or wrapped.

    None when no identification block comes before the module. Raises FormatError.
    """
    origin, end = _find_payload(data)
    for block_id, width, body, stop in _iter_blocks(data, origin, end):
        if block_id == _IDENTIFICATION_BLOCK_ID:
            return _read_identification(data, width, body, stop)
        if block_id == _MODULE_BLOCK_ID:
            break
    return None


def read_module_header(data: Buffer) -> ModuleHeader:
    """Read what the first module of a bitcode file, raw or wrapped, says about itself.

    Reading stops as soon as the target triple and the source file name are known; nested blocks are skipped
    by their length. The time is at most proportional to the size of the module block, whatever it holds.

    Raises FormatError, also when there is no module.
    """
    origin, end = _find_payload(data)
    producer = None
    position = origin + len(MAGIC)
    for block_id, width, body, stop in _iter_blocks(data, origin, end):
        position = stop
        if block_id == _IDENTIFICATION_BLOCK_ID:
            producer = _read_identification(data, width, body, stop)
        elif block_id == _MODULE_BLOCK_ID:
            codes = (_MODULE_CODE_TRIPLE, _MODULE_CODE_SOURCE_FILENAME)
            strings = _BlockReader(_BitReader(data, body, stop, origin), width).read_strings(codes)
            return ModuleHeader(producer, *map(strings.get, codes))
    raise _no_module(data, position, end)


_Block = tuple[int, int, int, int]
"""A top-level block: its id, the width of its abbreviation ids, and where its body begins and ends.

A plain tuple: making a named one takes as long as reading a block header.
"""


def _iter_blocks(data: Buffer, origin: int, end: int) -> Iterator[_Block]:
    """Yield the top-level blocks of the bitcode file whose magic is at ``origin``; stop where none begins."""
    header_size, unpack = _BLOCK_HEADER.size, _BLOCK_HEADER.unpack_from
    position = origin + len(MAGIC)
    while position < end and data[position] & 3 == _ENTER_SUBBLOCK:
        body = position + header_size
        if body > end:
            raise _truncated("a bitcode block header", position, header_size, end)
        head, words = unpack(data, position)
        if head & _LONG_HEADER:
            bits = _BitReader(data, position, end, origin, TruncatedError)
            bits.skip(2)
            block_id, width, words = bits.block_header()
            body = bits.position // 8
        else:
            block_id, width = head >> 2 & 0x7F, head >> 10 & 7
        if not 0 < width <= _MAX_WIDTH:
            message = f"block {block_id} has abbreviation ids of {width} bits, expected 1 to {_MAX_WIDTH}"
            raise FormatError(message, offset=position)
        stop = body + 4 * words
        if stop > end:
            raise _truncated(f"bitcode block {block_id}", body, 4 * words, end)
        yield block_id, width, body, stop
        position = stop


def _find_file_end(data: Buffer, origin: int, end: int) -> int:
    """Return where the bitcode file at ``origin`` ends, having checked that its modules are there."""
    position = origin + len(MAGIC)
    whole = False
    for block_id, _, _, stop in _iter_blocks(data, origin, end):
        position = stop
        if block_id == _MODULE_BLOCK_ID:
            whole = True
        elif block_id == _IDENTIFICATION_BLOCK_ID:
            whole = False
    if not whole:
        raise _no_module(data, position, end)
    return position


def _find_payload(data: Buffer) -> tuple[int, int]:
    """Return where the bitcode file that data holds begins, and where it must have ended."""
    magic = bytes(data[:4])
    if magic == MAGIC:
        return 0, len(data)
    if magic == WRAPPER_MAGIC:
        return _parse_wrapper(data, 0, len(data))
    raise _no_magic(data, 0)


def _parse_wrapper(data: Buffer, start: int, end: int) -> tuple[int, int]:
    """Return where the bitcode file in the wrapper at ``start`` begins and ends."""
    if end - start < _WRAPPER_HEADER.size:
        raise _truncated("a bitcode wrapper", start, _WRAPPER_HEADER.size, end)
    _, _, offset, size, _ = _WRAPPER_HEADER.unpack_from(data, start)
    if offset < _WRAPPER_HEADER.size:
        message = f"the bitcode wrapper puts its contents at {offset}, expected {_WRAPPER_HEADER.size} or more"
        raise FormatError(message, offset=start + 8)
    if offset + size > end - start:
        raise _truncated("wrapped bitcode", start, offset + size, end)
    payload_start = start + offset
    payload_stop = payload_start + size
    if bytes(data[payload_start : min(payload_start + 4, payload_stop)]) != MAGIC:
        raise _unexpected(data, payload_start, f"{size} bytes that begin with the magic {MAGIC.hex(' ')}")
    return payload_start, payload_stop


def _skip_zeros(data: Buffer, position: int, end: int) -> int:
    """Return the offset of the first byte that is not zero, or ``end``."""
    step = 64
    while position < end and not data[position]:
        run = bytes(data[position : min(position + step, end)])
        position += len(run) - len(run.lstrip(b"\0"))
        step = min(2 * step, 1 << 16)
    return position


def _truncated(purpose: str, offset: int, expected: int, end: int) -> TruncatedError:
    return TruncatedError(f"reading {purpose}, expected {expected} bytes, got {end - offset}", offset=offset)


def _unexpected(data: Buffer, offset: int, expected: str) -> FormatError:
    found = bytes(data[offset : offset + 8]).hex(" ")
    return FormatError(f"reading bitcode, expected {expected}, found {found}", offset=offset)


def _no_magic(data: Buffer, offset: int) -> FormatError:
    found = bytes(data[offset : offset + 4])
    if MAGIC.startswith(found) or WRAPPER_MAGIC.startswith(found):
        return _truncated("the bitcode magic", offset, len(MAGIC), len(data))
    return _unexpected(data, offset, f"the magic {MAGIC.hex(' ')} or the wrapper's {WRAPPER_MAGIC.hex(' ')}")


def _no_module(data: Buffer, position: int, end: int) -> FormatError:
    if position == end:
        return TruncatedError("reading bitcode, expected a module block, found the end", offset=position)
    return _unexpected(data, position, "a module block")


def _read_identification(data: Buffer, width: int, body: int, stop: int) -> str | None:
    if stop - body > _MAX_IDENTIFICATION:
        message = f"an identification block of {stop - body} bytes, expected at most {_MAX_IDENTIFICATION}"
        raise FormatError(message, offset=body)
    try:
        return _parse_identification(bytes(data[body:stop]), width)
    except FormatError as error:
        raise FormatError(error.message, offset=body + (error.offset or 0)) from None


@lru_cache(maxsize=256)
def _parse_identification(body: bytes, width: int) -> str | None:
    """Read an identification block; the modules of a build all have the same few bytes here."""
    strings = _BlockReader(_BitReader(body, 0, len(body), 0), width).read_strings((_IDENTIFICATION_CODE_STRING,))
    return strings.get(_IDENTIFICATION_CODE_STRING)


class _BitReader:
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
        return FormatError(message, offset=self.position // 8)

    def require(self, count: int) -> None:
        """Check that ``count`` bits are left."""
        if count > self._stop - self.position:
            message = f"reading a bitstream, expected {count} bits, got {self._stop - self.position}"
            raise self._short(message, offset=self.position // 8)

    def skip(self, count: int) -> None:
        self.require(count)
        self.position += count

    def align(self) -> None:
        self.skip((self._origin - self.position) % 32)

    def fixed(self, width: int) -> int:
        position = self.position
        stop = position + width
        if stop > self._stop:
            self.require(width)
        self.position = stop
        window = int.from_bytes(self._data[position >> 3 : (stop + 7) >> 3], "little")
        return window >> (position & 7) & ((1 << width) - 1)

    def vbr(self, width: int) -> int:
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
        """Skip ``count`` numbers. Each ends with a chunk that has no continuation bit: count those."""
        self.require(count * width)
        while count > 0:
            chunks = min(4 * count, _VBR_WINDOW, (self._stop - self.position) // width)
            self.require(width)
            start = self.position
            window = self.fixed(chunks * width)
            ends = ~window & _continuation_bits(width) & ((1 << chunks * width) - 1)
            count -= ends.bit_count()
            if count <= 0:
                for _ in range(-count):  # the window ends more numbers than asked for: drop the last ones
                    ends ^= 1 << (ends.bit_length() - 1)
                self.position = start + ends.bit_length()

    def block_header(self) -> tuple[int, int, int]:
        """Read what follows ENTER_SUBBLOCK: block id, width of abbreviation ids, number of words."""
        block_id = self.vbr(8)
        width = self.vbr(4)
        self.align()
        return block_id, width, self.fixed(32)


@lru_cache(maxsize=_MAX_WIDTH)
def _continuation_bits(width: int) -> int:
    return sum(1 << (width * chunk + width - 1) for chunk in range(_VBR_WINDOW))


class _Operand(NamedTuple):
    """How one value is stored: ``size`` is its width in bits, or a literal's value."""

    encoding: int
    size: int


class _Abbreviation(NamedTuple):
    """How a record is stored: its code, single values, then possibly an array or a blob of ``elements``.

    ``stored`` are the values that take up bits: skipping a record must not cost time for its literals, or few
    bits could ask for much work.
    """

    code: _Operand
    values: tuple[_Operand, ...]
    stored: tuple[_Operand, ...]
    elements: _Operand | None
    is_blob: bool


_UNABBREVIATED = _Abbreviation(_Operand(_VBR, 6), (), (), _Operand(_VBR, 6), is_blob=False)


class _BlockReader:
    """The items of one block's body, and the abbreviations it has defined so far."""

    def __init__(self, bits: _BitReader, width: int) -> None:
        self._bits = bits
        self._width = width
        self._abbreviations = [_UNABBREVIATED]  # in the order of their ids, from UNABBREV_RECORD on
        self._operands = 0

    def read_strings(self, codes: tuple[int, ...]) -> dict[int, str]:
        """Return the first record of each of these codes as text, as far as there is one."""
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
            elif abbreviation_id == _ENTER_SUBBLOCK:
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
        if width > _MAX_WIDTH:
            raise bits.error(f"an abbreviation with a field of {width} bits, expected at most {_MAX_WIDTH}")
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
