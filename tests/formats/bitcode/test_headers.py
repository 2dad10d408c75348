from __future__ import annotations

import pickle
import re
import struct
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlgo_corpus.errors import FormatError, TruncatedError
from mlgo_corpus.formats.bitcode.headers import (
    MAGIC,
    WRAPPER_MAGIC,
    Extent,
    ModuleHeader,
    is_bitcode,
    iter_extents,
    read_module_header,
    read_producer,
)
from tests.conftest import EMBED, Llvm, run_checked

BLOCKINFO, MODULE, IDENTIFICATION, STRTAB = 0, 8, 13, 23
END_BLOCK, ENTER_SUBBLOCK, DEFINE_ABBREV, UNABBREV_RECORD = range(4)
VERSION, TRIPLE, GLOBALVAR, FUNCTION, SOURCE_FILENAME = 1, 2, 7, 8, 16
FIXED, VBR, ARRAY, CHAR6, BLOB = range(1, 6)
CHAR6_ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"


class BitWriter:
    """Writes a bitcode file item by item."""

    def __init__(self) -> None:
        self.bits = int.from_bytes(MAGIC, "little")
        self.length = 32
        self.open: list[tuple[int, int]] = []
        self.width = 2

    def fixed(self, value: int, width: int) -> None:
        assert 0 <= value < 1 << width
        self.bits |= value << self.length
        self.length += width

    def vbr(self, value: int, width: int) -> None:
        continuation = 1 << (width - 1)
        while value >= continuation:
            self.fixed(value % continuation | continuation, width)
            value //= continuation
        self.fixed(value, width)

    def align(self) -> None:
        self.length += -self.length % 32

    def enter(self, block_id: int, width: int) -> None:
        self.fixed(ENTER_SUBBLOCK, self.width)
        self.vbr(block_id, 8)
        self.vbr(width, 4)
        self.align()
        self.length += 32
        self.open.append((self.length, self.width))
        self.width = width

    def end(self) -> None:
        """Leave the block as END_BLOCK would have it."""
        self.fixed(END_BLOCK, self.width)
        self.end_without_mark()

    def end_without_mark(self) -> None:
        self.align()
        body, self.width = self.open.pop()
        self.bits |= (self.length - body) // 32 << (body - 32)

    def record(self, code: int, operands: Iterable[int]) -> None:
        values = list(operands)
        self.fixed(UNABBREV_RECORD, self.width)
        for value in (code, len(values), *values):
            self.vbr(value, 6)

    def abbreviation(self, *operands: int | tuple[int, ...]) -> None:
        """Define one; a number is a literal, a tuple an encoding with its width where it has one."""
        self.fixed(DEFINE_ABBREV, self.width)
        self.vbr(len(operands), 5)
        for operand in operands:
            self.fixed(isinstance(operand, int), 1)
            if isinstance(operand, int):
                self.vbr(operand, 8)
            else:
                self.fixed(operand[0], 3)
                for width in operand[1:]:
                    self.vbr(width, 5)

    def identification(self, producer: str = "LLVM19.1.7") -> None:
        self.enter(IDENTIFICATION, 5)
        self.record(1, producer.encode())
        self.record(2, [0])
        self.end()

    def to_bytes(self) -> bytes:
        assert not self.open
        return self.bits.to_bytes(self.length // 8, "little")


def make_module(name: str = "a.c", triple: str = "x86_64-pc-linux-gnu", producer: str = "LLVM19.1.7") -> bytes:
    writer = BitWriter()
    writer.identification(producer)
    writer.enter(MODULE, 3)
    writer.record(VERSION, [2])
    writer.record(TRIPLE, triple.encode())
    writer.record(SOURCE_FILENAME, name.encode())
    writer.record(FUNCTION, [0, 1, 2, 1 << 40])
    writer.end()
    writer.enter(STRTAB, 3)
    writer.end()
    return writer.to_bytes()


def make_body(fill: Callable[[BitWriter], None], width: int = 3) -> bytes:
    """Return a file with one module block and nothing else; ``fill`` writes the block's items."""
    writer = BitWriter()
    writer.enter(MODULE, width)
    fill(writer)
    writer.end()
    return writer.to_bytes()


def wrap(bitcode: bytes, offset: int = 20, align: int = 16) -> bytes:
    header = struct.pack("<IIIII", 0x0B17C0DE, 0, offset, len(bitcode), 7).ljust(offset, b"\xee")
    wrapped = header + bitcode
    return wrapped + bytes(-len(wrapped) % align)


def payloads(data: bytes) -> list[bytes]:
    return [data[extent.payload_start : extent.payload_stop] for extent in iter_extents(data)]


def fails(data: bytes, kind: type[FormatError], offset: int, message: str) -> None:
    """Check that a walk over data fails, with exactly this kind of error."""
    with pytest.raises(FormatError, match=message) as caught:
        list(iter_extents(data))
    assert type(caught.value) is kind
    assert caught.value.offset == offset


# Sections and files


def test_is_bitcode() -> None:
    assert is_bitcode(MAGIC)
    assert is_bitcode(memoryview(wrap(make_module())))
    assert not is_bitcode(b"")
    assert not is_bitcode(MAGIC[:3])
    assert not is_bitcode(b"\x7fELF")
    assert not is_bitcode(b"\0" + MAGIC)


@pytest.mark.parametrize("kind", [bytes, memoryview])
def test_a_single_file_is_one_extent(kind: Callable[[bytes], bytes | memoryview]) -> None:
    module = make_module()
    assert list(iter_extents(kind(module))) == [Extent(0, len(module), 0, len(module))]
    assert read_producer(kind(module)) == "LLVM19.1.7"
    assert read_module_header(kind(module)) == ModuleHeader("LLVM19.1.7", "x86_64-pc-linux-gnu", "a.c")


@pytest.mark.parametrize("data", [b"", b"\0", bytes(100_000)])
def test_padding_alone_holds_nothing(data: bytes) -> None:
    assert list(iter_extents(data)) == []


@pytest.mark.parametrize("padding", range(12))
def test_glued_files_at_any_alignment(padding: int) -> None:
    modules = [make_module(f"{'x' * size}.c") for size in range(5)]
    glued = bytes(padding) + bytes(padding).join(modules) + bytes(padding)
    assert payloads(glued) == modules
    assert [extent.start for extent in iter_extents(glued)][:2] == [padding, 2 * padding + len(modules[0])]
    headers = [read_module_header(glued[extent.start : extent.stop]) for extent in iter_extents(glued)]
    assert [header.source_filename for header in headers] == [".c", "x.c", "xx.c", "xxx.c", "xxxx.c"]


def test_a_reader_may_look_past_the_end_of_its_file() -> None:
    assert read_module_header(make_module("a.c") + b"\0" + make_module("b.c")).source_filename == "a.c"


def test_long_runs_of_padding() -> None:
    module = make_module()
    glued = module + bytes(300_001) + module
    assert [extent.start for extent in iter_extents(glued)] == [0, len(module) + 300_001]


def test_several_modules_under_one_magic_are_one_extent() -> None:
    writer = BitWriter()
    for producer in ("LLVM19.1.7", "LLVM22.1.8"):
        writer.identification(producer)
        writer.enter(MODULE, 3)
        writer.end()
    writer.enter(STRTAB, 3)
    writer.end()
    data = writer.to_bytes()
    assert list(iter_extents(data)) == [Extent(0, len(data), 0, len(data))]
    assert read_producer(data) == "LLVM19.1.7"


@pytest.mark.parametrize("align", [1, 16])
@pytest.mark.parametrize("offset", [20, 32])
def test_wrapped_files(offset: int, align: int) -> None:
    modules = [make_module("a.c"), make_module("bbbbb.c"), make_module("ccccccccc.c")]
    wrapped = [wrap(module, offset, align) for module in modules]
    glued = b"".join(wrapped)
    extents = list(iter_extents(glued))
    assert [glued[extent.start : extent.stop] for extent in extents] == wrapped
    assert payloads(glued) == modules
    for part, name in zip(wrapped, ("a.c", "bbbbb.c", "ccccccccc.c"), strict=True):
        assert read_module_header(part).source_filename == name
        assert read_producer(part) == "LLVM19.1.7"


def test_padding_of_a_wrapper_ends_at_sixteen_bytes() -> None:
    wrapped = wrap(make_module())
    assert [extent.stop for extent in iter_extents(wrapped + bytes(40))] == [len(wrapped)]


def test_zeros_inside_a_wrapper_are_padding() -> None:
    module = make_module() + bytes(8)
    assert payloads(wrap(module)) == [module]


def test_block_headers_of_more_than_two_words() -> None:
    writer = BitWriter()
    writer.enter(1 << 40, 20)
    writer.record(1, [5])
    writer.end()
    writer.identification()
    writer.enter(MODULE, 9)
    writer.record(SOURCE_FILENAME, b"wide.c")
    writer.end()
    data = writer.to_bytes()
    for padding in range(4):
        assert payloads(bytes(padding) + data) == [data]
    assert read_module_header(data) == ModuleHeader("LLVM19.1.7", None, "wide.c")
    for size in range(4, 20):
        with pytest.raises(TruncatedError):
            list(iter_extents(data[:size]))


def test_newlines_that_pad_a_member_of_a_darwin_archive() -> None:
    module = make_module()
    for count in range(8):
        assert payloads(module + b"\n" * count) == [module]
    fails(module + b"\n" * 8, FormatError, len(module), "found 0a 0a 0a 0a 0a 0a 0a 0a")
    fails(module + b"\n\n" + module, FormatError, len(module), "expected the magic")
    fails(b"\n\n", FormatError, 0, "expected the magic")


def test_what_is_found_in_place_of_a_magic() -> None:
    message = "reading bitcode, expected the magic 42 43 c0 de or the wrapper's de c0 17 0b, found 7f 45 4c 46 02"
    fails(b"\x7fELF\x02", FormatError, 0, f"^byte 0: {message}$")
    module = make_module()
    fails(b"\0" + module + b"\0\0\x7fELF\x02", FormatError, len(module) + 3, message)
    for read in (read_producer, read_module_header):
        with pytest.raises(FormatError, match=message):
            read(b"\x7fELF\x02")


def test_whole_files_come_before_the_error() -> None:
    module = make_module()
    extents = iter_extents(module + module + module[:-1])
    assert next(extents).start == 0
    assert next(extents).start == len(module)
    with pytest.raises(TruncatedError) as caught:
        next(extents)
    assert (caught.value.offset or 0) > 2 * len(module)


@pytest.mark.parametrize("prefix", [b"", make_module("first.c") + b"\0"], ids=["alone", "glued"])
def test_truncation_at_every_byte(prefix: bytes) -> None:
    module = make_module()
    strtab = len(module) - 12  # its header, and the one word that END_BLOCK takes
    for size in range(1, len(module)):
        data = prefix + module[:size]
        if size == strtab:
            assert [extent.stop for extent in iter_extents(data)][-1] == len(data)
            continue
        found = []
        with pytest.raises(TruncatedError) as caught:
            found += iter_extents(data)
        assert caught.value.offset is not None
        assert len(prefix) <= caught.value.offset <= len(data)


def test_truncation_of_a_wrapped_file_at_every_byte() -> None:
    module = make_module()
    wrapped = wrap(module)
    for size in range(1, len(wrapped)):
        if size >= 20 + len(module):
            assert payloads(wrapped[:size]) == [module]
            continue
        for read in (lambda data: list(iter_extents(data)), read_producer, read_module_header):
            with pytest.raises(TruncatedError):
                read(wrapped[:size])


def test_messages_of_truncation() -> None:
    module = make_module()
    fails(module[:3], TruncatedError, 0, "^byte 0: reading the bitcode magic, expected 4 bytes, got 3$")
    fails(module[:4], TruncatedError, 4, "^byte 4: reading bitcode, expected a module block, found the end$")
    fails(module[:9], TruncatedError, 4, "^byte 4: reading a bitcode block header, expected 8 bytes, got 5$")
    fails(module[:20], TruncatedError, 12, r"^byte 12: reading bitcode block 13, expected \d+ bytes, got 8$")
    fails(wrap(module)[:7], TruncatedError, 0, "^byte 0: reading a bitcode wrapper, expected 20 bytes, got 7$")
    fails(wrap(module)[:21], TruncatedError, 0, rf"reading wrapped bitcode, expected {20 + len(module)} bytes")


def test_a_file_without_a_module() -> None:
    writer = BitWriter()
    writer.identification()
    data = writer.to_bytes()
    fails(data, TruncatedError, len(data), "expected a module block, found the end")
    fails(data + b"\0\0\0\0" + make_module(), FormatError, len(data), "expected a module block, found 00 00")
    with pytest.raises(TruncatedError, match="expected a module block"):
        read_module_header(data)
    assert read_producer(data) == "LLVM19.1.7"
    writer.enter(MODULE, 3)
    writer.end()
    writer.identification()
    fails(writer.to_bytes(), TruncatedError, len(writer.to_bytes()), "expected a module block")


def test_bad_wrappers() -> None:
    module = make_module()
    fails(
        wrap(module, 20)[:8] + b"\x13" + wrap(module)[9:],
        FormatError,
        8,
        "puts its contents at 19, expected 20",
    )
    fails(
        wrap(module + b"\0\0\x07"),
        FormatError,
        22 + len(module),
        "expected a block or zeros inside the wrapper",
    )
    fails(wrap(wrap(module)), FormatError, 20, "begin with the magic 42 43 c0 de, found de c0 17 0b")
    fails(wrap(b""), FormatError, 20, "expected 0 bytes that begin with the magic")
    short = struct.pack("<IIIII", 0x0B17C0DE, 0, 20, len(module) - 4, 7) + module
    fails(short, TruncatedError, 20 + len(module) - 4, "reading bitcode block 23, expected 4 bytes, got 0")


def test_a_block_whose_abbreviation_ids_have_no_bits() -> None:
    fails(
        MAGIC + struct.pack("<II", 1 | MODULE << 2, 0),
        FormatError,
        4,
        "block 8 has abbreviation ids of 0 bits",
    )
    wide = BitWriter()
    wide.enter(MODULE, 33)
    wide.end()
    fails(wide.to_bytes(), FormatError, 4, "ids of 33 bits, expected 1 to 32")


# Identification


def test_producer_of_a_file_without_identification() -> None:
    assert read_producer(make_body(BitWriter.align)) is None


def test_producer_of_an_identification_without_a_string() -> None:
    writer = BitWriter()
    writer.enter(IDENTIFICATION, 5)
    writer.record(2, [0])
    writer.end()
    assert read_producer(writer.to_bytes()) is None


def test_producer_comes_from_the_block_not_from_an_earlier_file() -> None:
    producers = [f"LLVM{major}.1.{minor}" for major in range(30) for minor in range(20)]
    for producer in producers:
        assert read_producer(make_module(producer=producer)) == producer


def test_errors_in_an_identification_block_have_offsets_of_the_file() -> None:
    writer = BitWriter()
    writer.enter(7, 3)
    writer.end()
    writer.enter(IDENTIFICATION, 5)
    writer.fixed(9, 5)
    writer.end()
    for data, origin in ((writer.to_bytes(), 0), (wrap(writer.to_bytes()), 20)):
        with pytest.raises(FormatError, match="a record has abbreviation 9, but 0 are defined") as caught:
            read_producer(data)
        assert caught.value.offset == origin + 24


def test_an_identification_block_of_unlikely_size() -> None:
    with pytest.raises(FormatError, match="identification block of 1508 bytes, expected at most 1024"):
        read_producer(make_module(producer="x" * 1000))


# Module headers


def abbreviated(code: int, text: str, *encoding: int) -> Callable[[BitWriter], None]:
    """Write text the way LLVM does: an abbreviation of the code and an array, and a record that uses it."""

    def fill(writer: BitWriter) -> None:
        writer.abbreviation(code, (ARRAY,), encoding)
        writer.fixed(4, writer.width)
        characters = text.encode()
        writer.vbr(len(characters), 6)
        for character in characters:
            if encoding[0] == CHAR6:
                writer.fixed(CHAR6_ALPHABET.index(chr(character)), 6)
            elif encoding[0] == FIXED:
                writer.fixed(character, encoding[1])
            else:
                writer.vbr(character, encoding[1])

    return fill


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (CHAR6_ALPHABET, (CHAR6,)),
        ("dir/a-b.c", (FIXED, 7)),
        ("ü/文.c", (FIXED, 8)),
        ("ü/文.c" * 5000, (FIXED, 8)),
        ("ü/文.c", (VBR, 6)),
        ("ü/文.c", (VBR, 32)),
        ("", (FIXED, 8)),
    ],
)
@pytest.mark.parametrize("width", [3, 4, 32])
def test_abbreviated_names(text: str, encoding: tuple[int, ...], width: int) -> None:
    data = make_body(abbreviated(SOURCE_FILENAME, text, *encoding), width)
    assert read_module_header(data) == ModuleHeader(None, None, text)
    assert read_module_header(wrap(data)).source_filename == text


def test_a_name_in_a_blob_or_in_single_values() -> None:
    def fill(writer: BitWriter) -> None:
        writer.abbreviation((FIXED, 6), (BLOB,))
        writer.abbreviation((VBR, 3), ord("x"), (CHAR6,), (FIXED, 0), (VBR, 4))
        for code, text in ((50, b"skipped"), (SOURCE_FILENAME, b"blob.c")):
            writer.fixed(4, writer.width)
            writer.fixed(code, 6)
            writer.vbr(len(text), 6)
            writer.align()
            for character in text:
                writer.fixed(character, 8)
            writer.align()
        for code in (55, TRIPLE):
            writer.fixed(5, writer.width)
            writer.vbr(code, 3)
            writer.fixed(CHAR6_ALPHABET.index("8"), 6)
            writer.vbr(ord("6"), 4)

    assert read_module_header(make_body(fill)) == ModuleHeader(None, "x8\0006", "blob.c")


def test_names_after_globals_nested_blocks_and_unknown_records() -> None:
    def fill(writer: BitWriter) -> None:
        writer.record(GLOBALVAR, range(0, 1 << 20, 997))
        writer.enter(17, 4)
        writer.abbreviation(1, (VBR, 6))
        writer.record(1, [1, 2, 3])
        writer.end()
        writer.enter(1 << 20, 17)
        writer.end()
        writer.record(63, [(1 << 64) - 1] * 40)
        writer.record(FUNCTION, [])
        writer.record(TRIPLE, b"riscv64")
        writer.record(TRIPLE, b"the first one counts")
        writer.record(SOURCE_FILENAME, b"late.c")
        writer.fixed(7, writer.width)  # undefined, and not looked at: all is known

    assert read_module_header(make_body(fill)) == ModuleHeader(None, "riscv64", "late.c")


def test_bytes_that_are_not_utf8() -> None:
    data = make_body(lambda writer: writer.record(SOURCE_FILENAME, b"caf\xe9.c"))
    assert read_module_header(data).source_filename == "caf\ufffd.c"


def test_blockinfo_says_nothing_about_the_module_it_is_in() -> None:
    def fill(writer: BitWriter) -> None:
        writer.enter(BLOCKINFO, 2)
        writer.record(1, [MODULE])
        writer.abbreviation(SOURCE_FILENAME, (ARRAY,), (CHAR6,))
        writer.end()
        writer.fixed(4, writer.width)

    with pytest.raises(FormatError, match="a record has abbreviation 4, but 0 are defined"):
        read_module_header(make_body(fill))


def literal_flood(writer: BitWriter) -> None:
    """Ask for much work with few bits: records of many values that take up no space."""
    writer.abbreviation(99, *[0] * 60_000)
    for _ in range(20_000):
        writer.bits |= 4 << writer.length
        writer.length += 3


@pytest.mark.parametrize(
    ("fill", "message"),
    [
        (lambda w: w.fixed(4, 3), "a record has abbreviation 4, but 0 are defined"),
        (lambda w: w.abbreviation(), "an abbreviation without a code"),
        (lambda w: w.abbreviation((BLOB,)), "an abbreviation without a code"),
        (lambda w: w.abbreviation((ARRAY,), (CHAR6,)), "an abbreviation without a code"),
        (lambda w: w.abbreviation(1, (ARRAY,)), "an array or a blob out of place"),
        (lambda w: w.abbreviation(1, (BLOB,), (CHAR6,)), "an array or a blob out of place"),
        (lambda w: w.abbreviation(1, (ARRAY,), (CHAR6,), 7), "an array or a blob out of place"),
        (lambda w: w.abbreviation(1, (ARRAY,), (ARRAY,)), "whose elements have no size"),
        (lambda w: w.abbreviation(1, (ARRAY,), (FIXED, 0)), "whose elements have no size"),
        (lambda w: w.abbreviation(1, (ARRAY,), 3), "whose elements have no size"),
        (lambda w: w.abbreviation(1, (6,)), "encoding 6, expected 1 to 5"),
        (lambda w: w.abbreviation(1, (FIXED, 33)), "a field of 33 bits, expected at most 32"),
        (lambda w: w.abbreviation(*[1] * 65_537), "65537 operands, expected at most 65536"),
        (lambda w: w.record(TRIPLE, [65, 256]), "a character of more than 8 bits"),
        (lambda w: w.record(1 << 70, []), "a number of at most 64 bits"),
        (
            lambda w: (w.fixed(3, 3), w.vbr(TRIPLE, 6), w.vbr(1 << 60, 6)),
            "a string of 1152921504606846976 char",
        ),
        (lambda w: (w.fixed(3, 3), w.vbr(TRIPLE, 6), w.vbr(99_999, 6)), r"expected 599994 bits, got \d+"),
        (lambda w: (w.fixed(3, 3), w.vbr(9, 6), w.vbr(1 << 60, 6)), "expected 6917529027641081856 bits, got"),
        (
            lambda w: (w.fixed(1, 3), w.vbr(9, 8), w.vbr(3, 4), w.align(), w.fixed(9, 32)),
            "expected 288 bits, got",
        ),
        (
            lambda w: w.end_without_mark() or w.enter(STRTAB, 3),
            r"reading a bitstream, expected 3 bits, got 0",
        ),
    ],
)
def test_hostile_modules(fill: Callable[[BitWriter], object], message: str) -> None:
    data = make_body(lambda writer: (fill(writer), None)[1])
    assert len(list(iter_extents(data))) == 1
    with pytest.raises(FormatError, match=message) as caught:
        read_module_header(data)
    assert type(caught.value) is FormatError
    assert 12 <= (caught.value.offset or 0) <= len(data)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_values_without_bits_cost_no_time() -> None:
    # A reader that made a list of them would still be at it tomorrow: 1.2e9 values.
    assert read_module_header(make_body(literal_flood)) == ModuleHeader(None, None, None)


# Properties


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(17, 200), st.lists(st.integers(0, (1 << 64) - 1) | st.integers(0, 40), max_size=300))
    ),
    st.integers(3, 9),
)
def test_records_of_any_values_are_skipped(records: list[tuple[int, list[int]]], width: int) -> None:
    def fill(writer: BitWriter) -> None:
        for code, values in records:
            writer.record(code, values)
        writer.record(SOURCE_FILENAME, b"found.c")

    assert read_module_header(make_body(fill, width)).source_filename == "found.c"


@given(st.lists(st.tuples(st.integers(0, 30), st.text(max_size=40), st.booleans())), st.integers(0, 9))
def test_any_glue_is_split(parts: list[tuple[int, str, bool]], tail: int) -> None:
    modules = [make_module(name) for _, name, _ in parts]
    glued = b"".join(
        bytes(padding) + (wrap(module) if wrapped else module)
        for module, (padding, _, wrapped) in zip(modules, parts, strict=True)
    )
    assert payloads(glued + bytes(tail)) == modules


def read_all(data: bytes) -> None:
    """Read data in every way; only a FormatError, with a place inside data, may come of it."""
    offsets: list[int | None] = []
    for read in (lambda data: list(iter_extents(data)), read_producer, read_module_header):
        try:
            read(data)
        except FormatError as error:
            offsets.append(error.offset)
    assert all(offset is not None and 0 <= offset <= len(data) for offset in offsets)


flips = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=8)


def flip(data: bytes, changes: list[tuple[int, int]]) -> bytes:
    changed = bytearray(data)
    for position, value in changes:
        changed[position % len(changed)] = value
    return bytes(changed)


@settings(max_examples=500)
@given(st.binary(max_size=200), st.sampled_from([b"", MAGIC, WRAPPER_MAGIC, make_module()[:44], make_module()]))
def test_random_bytes(data: bytes, prefix: bytes) -> None:
    read_all(prefix + data)


@settings(max_examples=500)
@given(flips, st.booleans())
def test_flipped_bytes(changes: list[tuple[int, int]], wrapped: bool) -> None:
    module = make_body(abbreviated(SOURCE_FILENAME, "dir/name.c", FIXED, 7))
    read_all(flip(wrap(module) + make_module() if wrapped else make_module() + module, changes))


@settings(max_examples=500)
@given(st.binary(max_size=300), st.integers(1, 9))
def test_random_module_bodies(body: bytes, width: int) -> None:
    body += bytes(-len(body) % 4)
    long_header = width >= 8
    head = ENTER_SUBBLOCK | MODULE << 2 | (width % 8 | long_header << 3) << 10 | (width // 8) << 14
    read_all(MAGIC + struct.pack("<II", head, len(body) // 4) + body)


# Against LLVM

SOURCES = {
    "a.c": "extern int b(int); int g = 3; int a(int x) { return b(x) + g; }",
    "ü文.c": "int b(int x) { return x + 1; }",
    "m.c": "int a(int); int main(int argc, char **argv) { return a(argc); }",
    "c.cpp": "#include <map>\n#include <string>\nint c() { return std::map<std::string, int>{}[{}]; }",
}


@dataclass(frozen=True)
class Said:
    """What LLVM's own tools say about a bitcode file."""

    producer: str
    triple: str
    source: str


def ask_llvm(llvm: Llvm, bitcode: Path) -> Said:
    text = run_checked(llvm.dis, bitcode, "-o", "-")
    dump = run_checked(llvm.tool("llvm-bcanalyzer"), "--dump", bitcode)
    source = re.search(r'^source_filename = "(.*)"$', text, re.MULTILINE)
    triple = re.search(r'^target triple = "(.*)"$', text, re.MULTILINE)
    producer = re.search(r"<STRING .*record string = '(.*)'", dump)
    assert source is not None
    assert triple is not None
    assert producer is not None
    unescaped = re.sub(rb"\\([0-9A-F]{2})", lambda m: bytes.fromhex(m[1].decode()), source[1].encode())
    return Said(producer[1], triple[1], unescaped.decode())


def dump_section(llvm: Llvm, path: Path, section: str) -> bytes:
    bitcode, copy = path.with_suffix(".section"), path.with_suffix(".copy")
    run_checked(llvm.objcopy, f"--dump-section={section}={bitcode}", path, copy)
    return bitcode.read_bytes()


def check_module(llvm: Llvm, data: bytes, folder: Path) -> ModuleHeader:
    """Check one whole file against LLVM, and its truncations for decent errors."""
    path = folder / "check.bc"
    path.write_bytes(data)
    said = ask_llvm(llvm, path)
    header = read_module_header(data)
    assert header == ModuleHeader(said.producer, said.triple, said.source)
    assert read_producer(data) == said.producer
    return header


@pytest.fixture
def objects(llvm: Llvm, compile_c: Callable[..., Path]) -> list[Path]:
    return [compile_c(llvm, text, "-Oz", "-fPIC", *EMBED, name=name) for name, text in SOURCES.items()]


@pytest.mark.llvm
def test_embedded_bitcode(llvm: Llvm, objects: list[Path], tmp_path: Path) -> None:
    for name, path in zip(SOURCES, objects, strict=True):
        section = dump_section(llvm, path, ".llvmbc")
        assert list(iter_extents(section)) == [Extent(0, len(section), 0, len(section))]
        header = check_module(llvm, section, tmp_path)
        assert header.source_filename == name
        assert (header.producer or "").startswith(f"LLVM{llvm.version}.")


@pytest.mark.llvm
@pytest.mark.parametrize("linker", ["ld -r", "ld", "lld", "lld -r", "lld -shared"])
def test_linked_sections_split_into_the_objects_own(
    llvm: Llvm, objects: list[Path], tmp_path: Path, linker: str
) -> None:
    sections = [dump_section(llvm, path, ".llvmbc") for path in objects]
    argv: dict[str, tuple[str | Path, ...]] = {
        "ld -r": ("ld", "-r"),
        "ld": (llvm.clangxx,),
        "lld": (llvm.clangxx, "-fuse-ld=lld", f"-B{llvm.lld_folder}"),
        "lld -r": (llvm.ld_lld, "-r"),
        "lld -shared": (llvm.ld_lld, "-shared"),
    }
    linked = tmp_path / "linked"
    run_checked(*argv[linker], *objects, "-o", linked, cwd=tmp_path)
    glued = dump_section(llvm, linked, ".llvmbc")
    assert payloads(glued) == sections
    assert [read_module_header(module).source_filename for module in payloads(glued)] == list(SOURCES)


@pytest.mark.llvm
@pytest.mark.parametrize("flags", [("-flto",), ("-flto=thin",), ("-flto", "-g"), ("-O0", "-emit-llvm")])
@pytest.mark.parametrize(
    "target", ["x86_64-pc-linux-gnu", "x86_64-apple-macosx11.0.0", "aarch64-pc-windows-msvc19.33.0"]
)
def test_bitcode_objects(
    llvm: Llvm, compile_c: Callable[..., Path], tmp_path: Path, flags: tuple[str, ...], target: str
) -> None:
    path = compile_c(llvm, SOURCES["a.c"], *flags, f"--target={target}")
    data = path.read_bytes()
    [extent] = iter_extents(data)
    assert (extent.start, extent.stop) == (0, len(data))
    assert data.startswith(WRAPPER_MAGIC if "apple" in target else MAGIC)
    assert check_module(llvm, data, tmp_path).target_triple == target


@pytest.mark.llvm
def test_mach_o_sections_are_wrapped(llvm: Llvm, compile_c: Callable[..., Path], tmp_path: Path) -> None:
    sections = []
    for name in ("a.c", "m.c"):
        path = compile_c(llvm, SOURCES[name], "-Oz", "--target=x86_64-apple-macos11", *EMBED, name=name)
        sections.append(dump_section(llvm, path, "__LLVM,__bitcode"))
    for name, section in zip(("a.c", "m.c"), sections, strict=True):
        [extent] = iter_extents(section)
        assert (extent.start, extent.stop, extent.payload_start) == (0, len(section), 20)
        assert check_module(llvm, section, tmp_path).source_filename == name
        assert check_module(llvm, payloads(section)[0], tmp_path).source_filename == name
    glued = b"\0".join(sections)
    assert [glued[extent.start : extent.stop] for extent in iter_extents(glued)] == sections


@pytest.mark.llvm
def test_a_section_that_only_marks_bitcode(llvm: Llvm, compile_c: Callable[..., Path]) -> None:
    path = compile_c(llvm, SOURCES["a.c"], "-fembed-bitcode-marker", "--target=x86_64-apple-macos11")
    section = dump_section(llvm, path, "__LLVM,__bitcode")
    assert section == b"\0"
    assert list(iter_extents(section)) == []


@pytest.mark.llvm
def test_members_of_a_darwin_archive(llvm: Llvm, compile_c: Callable[..., Path], tmp_path: Path) -> None:
    names = ["x" * size + ".c" for size in range(1, 9)]
    paths = [compile_c(llvm, SOURCES["m.c"], "-flto", name=name) for name in names]
    archive = tmp_path / "lib.a"
    run_checked(llvm.ar, "--format=darwin", "rc", archive, *paths)
    modules = [path.read_bytes() for path in paths]
    padded = [module + b"\n" * (-len(module) % 8) for module in modules]
    assert modules != padded
    for path, module, member in zip(paths, modules, padded, strict=True):
        printed = subprocess.run([llvm.ar, "p", archive, path.name], check=True, capture_output=True, timeout=300)
        assert printed.stdout == member
        assert payloads(member) == [module]


@pytest.mark.llvm
def test_concatenated_modules_are_one_file(llvm: Llvm, compile_c: Callable[..., Path], tmp_path: Path) -> None:
    cat = llvm.tool("llvm-cat")
    if not cat:
        pytest.skip(f"llvm-cat-{llvm.version} is not installed")
    paths = [compile_c(llvm, SOURCES[name], "-flto", name=name) for name in ("a.c", "m.c")]
    run_checked(cat, "-b", *paths, "-o", tmp_path / "both.bc")
    data = (tmp_path / "both.bc").read_bytes()
    assert list(iter_extents(data)) == [Extent(0, len(data), 0, len(data))]
    assert read_module_header(data).source_filename == "a.c"


@pytest.mark.llvm
def test_long_names(llvm: Llvm, compile_c: Callable[..., Path], tmp_path: Path) -> None:
    for name in ("文" * 60, "d/" * 100 + "f", "ordinary-name", "CHAR6_name"):
        path = compile_c(llvm, "int x;", "-flto", name=f"{name}.c")
        assert check_module(llvm, path.read_bytes(), tmp_path).source_filename == f"{name}.c"


@pytest.mark.llvm
def test_a_module_that_says_little(llvm: Llvm, tmp_path: Path) -> None:
    assembler = llvm.tool("llvm-as")
    if not assembler:
        pytest.skip(f"llvm-as-{llvm.version} is not installed")
    source = tmp_path / "bare.ll"
    source.write_text("@x = global i32 1\ndefine i32 @f() {\n  ret i32 2\n}\n")
    run_checked(assembler, source, "-o", tmp_path / "bare.bc")
    header = read_module_header((tmp_path / "bare.bc").read_bytes())
    assert header.target_triple is None
    assert header.source_filename == str(source)


@pytest.mark.llvm
def test_module_assembly_and_comdats_come_before_the_name(
    llvm: Llvm, compile_c: Callable[..., Path], tmp_path: Path
) -> None:
    functions = "\n".join(f"inline int f{n}() {{ return {n}; }}" for n in range(500))
    calls = "+".join(f"f{n}()" for n in range(500))
    lines = "".join(f'asm(".set s{n}, {n}");\n' for n in range(500))
    path = compile_c(llvm, f"{functions}\nint all() {{ return {calls}; }}\n{lines}", "-flto", name="many.cpp")
    assert check_module(llvm, path.read_bytes(), tmp_path).source_filename == "many.cpp"


@pytest.mark.llvm
def test_real_module_truncated_at_every_byte(llvm: Llvm, compile_c: Callable[..., Path]) -> None:
    data = compile_c(llvm, "int x;", "-flto").read_bytes()
    whole = []
    for size in range(1, len(data)):
        read_all(data[:size])
        try:
            whole += [extent.stop for extent in iter_extents(data[:size])]
        except TruncatedError:
            continue
    # Cut between top-level blocks: behind the module, and behind the first of SYMTAB and STRTAB.
    assert len(whole) == 2
    assert all(size % 4 == 0 for size in whole)


@pytest.mark.llvm
def test_real_modules_with_flipped_bytes(llvm: Llvm, compile_c: Callable[..., Path]) -> None:
    data = compile_c(llvm, SOURCES["a.c"], "-flto", "-Oz").read_bytes()

    @settings(max_examples=300, deadline=None)
    @given(flips)
    def check(changes: list[tuple[int, int]]) -> None:
        read_all(flip(data, changes))

    check()
    for position in range(min(len(data), 400)):
        for bit in range(8):
            read_all(flip(data, [(position, data[position] ^ 1 << bit)]))
