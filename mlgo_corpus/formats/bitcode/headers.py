"""LLVM bitcode containers: find whole modules, and read a module's producer, target triple and source file name.

This is the format as this module reads it. The terms are those of LLVM's *Bitcode File Format* document
and of ``llvm/Bitcode/LLVMBitCodes.h``.

**Bitstream.** Everything is a sequence of bits, taken from bytes lowest bit first, so a number of 32
aligned bits is a little-endian word on every host. ``fixedN`` is N bits. ``vbrN`` is chunks of N bits, lowest
first: the top bit of a chunk says that another follows, the others carry the value (64 bits at most).
*Aligning* skips to the next multiple of 32 bits **counted from the magic**, not from the start of a section.

**Bitcode file**::

    magic       42 43 C0 DE ("BC", then the magic of LLVM IR)
    block       any number of them; each starts and ends aligned
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

A BLOCKINFO block (0) defines abbreviations for blocks that are entered after it, so one inside a module does
not apply to that module's own records; LLVM ignores those outside (and rejects modules that need them).

**Sections.** A linker concatenates the sections of its inputs. Before, between and after the files there
may be zero bytes, and a file may begin at any byte. Mach-O objects made with ``-fembed-bitcode-marker`` have
a section of one zero byte and no bitcode. The low two bits of the byte where a block might begin distinguish
the cases: 01 for a block, 10 for either magic, 00 for padding. Archives made for Darwin pad members to 8
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
from typing import Final

from mlgo_corpus.errors import FormatError, TruncatedError
from mlgo_corpus.formats.bitcode.bitstream import ENTER_SUBBLOCK, MAX_WIDTH, BitReader, BlockReader
from mlgo_corpus.formats.buffer import Buffer

MAGIC: Final = b"BC\xc0\xde"
WRAPPER_MAGIC: Final = b"\xde\xc0\x17\x0b"

_MODULE_BLOCK_ID = 8
_IDENTIFICATION_BLOCK_ID = 13
_IDENTIFICATION_CODE_STRING = 1
_MODULE_CODE_TRIPLE = 2
_MODULE_CODE_SOURCE_FILENAME = 16

_BLOCK_HEADER = struct.Struct("<II")
# In the first word of a block header: the continuation bits of the block id (vbr8) and of the width (vbr4).
_LONG_HEADER = 1 << 9 | 1 << 13
_WRAPPER_HEADER = struct.Struct("<IIIII")
_WRAPPER_ALIGNMENT = 16
_DARWIN_MEMBER_ALIGNMENT = 8

# A limit on hostile input, far above anything real: an identification block is about 30 bytes.
_MAX_IDENTIFICATION = 1 << 10


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
    """A module's description of itself; None for a record that it does not have.

    ``producer`` is the identification string ("LLVM19.1.7"). Bytes that are not UTF-8 appear as U+FFFD.
    """

    producer: str | None
    target_triple: str | None
    source_filename: str | None


def is_bitcode(data: Buffer) -> bool:
    """Return True if data begins with the magic of a bitcode file, raw or wrapped."""
    return bytes(data[:4]) in (MAGIC, WRAPPER_MAGIC)


def iter_extents(data: Buffer) -> Iterator[Extent]:
    """Yield each whole bitcode file of a section that a linker may have concatenated.

    Every byte of data is accounted for: it is in an extent, or it is padding. Empty data, or only
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
    """Read the header of the first module of a bitcode file, raw or wrapped.

    Reading stops as soon as the target triple and the source file name are known; nested blocks are skipped
    by their length. The time is at most proportional to the size of the module block.

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
            strings = BlockReader(BitReader(data, body, stop, origin), width).read_strings(codes)
            return ModuleHeader(producer, *map(strings.get, codes))
    raise _no_module(data, position, end)


# A top-level block: its id, the width of its abbreviation ids, and where its body begins and ends.
# A plain tuple: making a named one takes as long as reading a block header.
_Block = tuple[int, int, int, int]


def _iter_blocks(data: Buffer, origin: int, end: int) -> Iterator[_Block]:
    """Yield the top-level blocks of the bitcode file whose magic is at ``origin``; stop where none begins."""
    header_size, unpack = _BLOCK_HEADER.size, _BLOCK_HEADER.unpack_from
    position = origin + len(MAGIC)
    while position < end and data[position] & 3 == ENTER_SUBBLOCK:
        body = position + header_size
        if body > end:
            raise _truncated("a bitcode block header", position, header_size, end)
        head, words = unpack(data, position)
        if head & _LONG_HEADER:
            bits = BitReader(data, position, end, origin, TruncatedError)
            bits.skip(2)
            block_id, width, words = bits.block_header()
            body = bits.position // 8
        else:
            block_id, width = head >> 2 & 0x7F, head >> 10 & 7
        if not 0 < width <= MAX_WIDTH:
            message = f"block {block_id} has abbreviation ids of {width} bits, expected 1 to {MAX_WIDTH}"
            raise FormatError(message, offset=position)
        stop = body + 4 * words
        if stop > end:
            raise _truncated(f"bitcode block {block_id}", body, 4 * words, end)
        yield block_id, width, body, stop
        position = stop


def _find_file_end(data: Buffer, origin: int, end: int) -> int:
    """Return where the bitcode file at ``origin`` ends. Check that it has its modules."""
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
    """Return where the bitcode file that data holds begins, and the offset that it must not exceed."""
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
    """Read an identification block. It is cached, because all modules of a build have the same one."""
    strings = BlockReader(BitReader(body, 0, len(body), 0), width).read_strings((_IDENTIFICATION_CODE_STRING,))
    return strings.get(_IDENTIFICATION_CODE_STRING)
