"""Functions of hand-made and of damaged bitcode; `test_functionhash_llvm` has LLVM's own answers."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlgo_corpus.errors import FormatError, TruncatedError, UnsupportedError
from mlgo_corpus.formats.bitcode.functions import DefinedFunction, count_functions, read_functions
from mlgo_corpus.formats.bitcode.records import ENTER, Block, iter_records, iter_top_level
from mlgo_corpus.formats.objects.objfile import parse_objfile
from tests.conftest import unpack
from tests.formats.bitcode.test_headers import ARRAY, BLOB, CHAR6, FIXED, MODULE, STRTAB, VBR, VERSION, BitWriter

pytestmark = pytest.mark.whole

BLOCKINFO, CONSTANTS, FUNCTIONS, TYPES, SYMTAB = 0, 11, 12, 17, 25
GLOBALVAR, FUNCTION = 7, 8
BINOP, RET, CALL, PHI, BR = 2, 10, 34, 16, 11
SETTYPE, INTEGER, AGGREGATE, CE_CAST = 1, 4, 7, 11
I32, VOID, FUNCTION_TYPE, POINTER = 0, 1, 2, 3


def modules(name: str) -> dict[str, bytes]:
    with TemporaryDirectory() as folder:
        unpack(name, Path(folder))
        found = {}
        for path in sorted(Path(folder).rglob("*.o")):
            data = path.read_bytes()
            (section,) = parse_objfile(data, {".llvmbc"}).sections
            found[path.stem] = data[section.offset : section.offset + section.size]
        return found


@cache
def real(name: str = "lua-clang22") -> dict[str, bytes]:
    return modules(name)


@cache
def small() -> bytes:
    """A module of a few kilobytes with calls, constants, blocks and types."""
    return min((data for data in real().values() if len(data) > 8000), key=len)


class Maker:
    """Writes a module with functions of type ``i32 (i32, i32)``, with junk around them."""

    def __init__(self, junk: int = 0, names: bytes = b"fgllvm.dbg.value") -> None:
        self.writer = writer = BitWriter()
        writer.identification()
        writer.enter(MODULE, 3)
        writer.record(VERSION, [2])
        self.names = names
        self.junk = junk
        writer.enter(TYPES, 4)
        writer.record(1, [4 + junk])
        for number in range(junk):
            writer.record(7, [100 + number])
        writer.record(7, [32])
        writer.record(2, [])
        writer.record(21, [0, junk + I32, junk + I32, junk + I32])
        writer.record(25, [0])
        writer.end()
        for _ in range(junk):
            writer.record(GLOBALVAR, [0, 0, junk + I32, 2, 0, 0])
        self.globals = junk

    def function(self, start: int, size: int, *, proto: int = 0, linkage: int = 0) -> int:
        self.writer.record(FUNCTION, [start, size, self.junk + FUNCTION_TYPE, 0, proto, linkage])
        self.globals += 1
        return self.globals - 1

    def body(self, constants: list[tuple[int, list[int]]], instructions: list[tuple[int, list[int]]]) -> None:
        self.writer.enter(FUNCTIONS, 4)
        self.writer.record(1, [1])
        if constants:
            self.writer.enter(CONSTANTS, 4)
            self.writer.record(SETTYPE, [self.junk + I32])
            for code, record in constants:
                self.writer.record(code, record)
            self.writer.end()
        for code, record in instructions:
            self.writer.record(code, record)
        self.writer.end()

    def finish(self, strtab: bool = True) -> bytes:
        writer = self.writer
        writer.end()
        if strtab:
            writer.enter(STRTAB, 3)
            writer.abbreviation(1, (BLOB,))
            writer.fixed(4, 3)
            writer.vbr(len(self.names), 6)
            writer.align()
            for byte in self.names:
                writer.fixed(byte, 8)
            writer.align()
            writer.end()
        return writer.to_bytes()


def one(constants: list[tuple[int, list[int]]], instructions: list[tuple[int, list[int]]], junk: int = 0) -> int:
    maker = Maker(junk)
    maker.function(0, 1)
    maker.body(constants, instructions)
    (function,) = read_functions(maker.finish())
    return function.body_hash


ADD = [(BINOP, [3, 1, 0]), (RET, [1])]  # %0 + 7, where the constant is the value before the instruction
SEVEN = [(INTEGER, [14])]


def test_what_a_function_says() -> None:
    maker = Maker(names=b"caf\xc3\xa9\xff")
    maker.function(0, 5)
    maker.function(5, 1, linkage=3)
    maker.function(0, 3, proto=1)
    maker.function(0, 1, linkage=19)
    for _ in range(3):
        maker.body(SEVEN, ADD)
    functions = read_functions(maker.finish())
    digest = functions[0].body_hash
    assert functions == (
        DefinedFunction("café", "external", 2, digest),
        DefinedFunction("\udcff", "internal", 2, digest),
        DefinedFunction("c", "linkonce_odr", 2, digest),
    )
    assert 0 <= digest < 1 << 64


def test_hashes_stay_what_they_are() -> None:
    """Corpora hold hashes: a change of the rule has to be meant."""
    assert one(SEVEN, ADD) == 13596667132587520295


@pytest.mark.parametrize("junk", [1, 5, 40])
def test_what_stands_around_does_not_count(junk: int) -> None:
    assert one(SEVEN, ADD, junk) == one(SEVEN, ADD)
    unused = [(INTEGER, [2]), *SEVEN]
    assert one(unused, [(BINOP, [4, 1, 0]), (RET, [1])], junk) == one(SEVEN, ADD)
    # The other argument: it is the first one that is used.
    assert one(SEVEN, [(BINOP, [2, 1, 0]), (RET, [1])], junk) == one(SEVEN, ADD)
    # Locations and debug records.
    noise = [ADD[0], (35, [1, 2, 3, 4, 0]), (33, []), (61, [1, 2, 3, 4]), (65, [1, 2]), ADD[1]]
    assert one(SEVEN, noise, junk) == one(SEVEN, ADD)


CHANGES = {
    "constant": ([(INTEGER, [16])], ADD),
    "poison": ([(26, [])], ADD),
    "opcode": (SEVEN, [(BINOP, [3, 1, 1]), ADD[1]]),
    "flag": (SEVEN, [(BINOP, [3, 1, 0, 2]), ADD[1]]),
    "order": (SEVEN, [(BINOP, [1, 3, 0]), ADD[1]]),
    "operand": (SEVEN, [(BINOP, [3, 3, 0]), ADD[1]]),
    "arguments": (SEVEN, [(BINOP, [3, 2, 0]), ADD[1]]),
    "result": (SEVEN, [ADD[0], (RET, [2])]),
    "more": (SEVEN, [ADD[0], ADD[0], ADD[1]]),
    "unknown": (SEVEN, [ADD[0], (90, [1, 2]), ADD[1]]),
    "unknown, other": (SEVEN, [ADD[0], (90, [1, 3]), ADD[1]]),
}


def test_changes_count() -> None:
    hashes = {name: one(*change) for name, change in CHANGES.items()}
    hashes["none"] = one(SEVEN, ADD)
    assert len(set(hashes.values())) == len(hashes)


def test_calls_to_debug_intrinsics_do_not_count() -> None:
    def made(callee_size: int) -> DefinedFunction:
        maker = Maker()
        maker.function(0, 1)
        maker.function(2, callee_size, proto=1)
        # Values: two functions, two arguments, the constant; the call's type is explicit.
        call = (CALL, [0, 1 << 15, FUNCTION_TYPE, 5 - 1, 2, 2])
        maker.body(SEVEN, [call, *ADD])
        return read_functions(maker.finish())[0]

    assert made(14) == DefinedFunction("f", "external", 2, one(SEVEN, ADD))
    assert made(8).instructions == 3
    assert made(8).body_hash != made(7).body_hash  # llvm.dbg and llvm.db


def test_a_constant_of_global_values_numbers_them() -> None:
    def made(first: int, second: int, junk: int = 0) -> int:
        maker = Maker(junk)
        maker.function(0, 1)
        maker.function(0, 1, proto=1)
        maker.function(0, 1, proto=1)
        cast = [(CE_CAST, [9, junk + POINTER, maker.globals - 1 - which]) for which in (first, second)]
        maker.body(cast, [(BINOP, [1, 2, 0]), (RET, [1])])
        return read_functions(maker.finish())[0].body_hash

    assert made(0, 1) == made(1, 2) == made(1, 0, junk=7)
    assert made(0, 0) == made(2, 2, junk=3) != made(0, 1)


def test_versions_that_write_the_same_in_other_ways() -> None:
    def constant(code: int, record: list[int]) -> int:
        return one([(SETTYPE, [POINTER]), (INTEGER, [0]), (code, [I32, *record, POINTER, 0, I32, 3])], ADD)

    # Values: the function, two arguments, and two constants, of which the second is made of the function.
    old, inbounds, current, ranged = 12, 20, 32, 31
    assert constant(old, []) == constant(current, [0])
    assert constant(inbounds, []) == constant(current, [1]) == constant(current, [3]) != constant(old, [])
    assert constant(current, [2]) not in (constant(current, [0]), constant(current, [3]))
    narrow, wide = [32, 4, 8], [128, 1 << 32 | 2, 5, 6, 7]
    assert constant(ranged, [1, *narrow]) == constant(ranged, [3, *narrow]) != constant(ranged, [1, *wide])
    assert constant(ranged, [1, *narrow]) != constant(current, [1])

    def instruction(flags: int) -> int:
        return one(SEVEN, [(43, [flags, I32, 3, 2]), (RET, [1])])

    assert instruction(1) == instruction(3)
    assert len({instruction(flags) for flags in (0, 2, 3, 4)}) == 4
    # A null that is written as the number it is.
    assert one([(INTEGER, [0])], ADD) == one([(2, [])], ADD)


def test_values_defined_later() -> None:
    def made(first: int, second: int) -> int:
        # phi [%2, ...]: relative and signed; ret of a later value has its type.
        phi = (PHI, [I32, first << 1 | 1, 0])
        return one(SEVEN, [phi, (BINOP, [2**32 - second, I32, 1, 0]), *ADD])

    assert len({made(1, 1), made(2, 1), made(1, 2)}) == 3


def test_abbreviations_do_not_count() -> None:
    maker = Maker()
    maker.function(0, 1)
    writer = maker.writer
    writer.enter(BLOCKINFO, 3)
    writer.record(1, [FUNCTIONS])
    writer.abbreviation(BINOP, (VBR, 2), (FIXED, 7), (VBR, 4))
    writer.end()
    writer.enter(FUNCTIONS, 4)
    writer.abbreviation((FIXED, 4), (ARRAY,), (VBR, 3))
    writer.enter(CONSTANTS, 4)
    writer.record(SETTYPE, [I32])
    writer.abbreviation(INTEGER, (ARRAY,), (FIXED, 9))
    writer.fixed(4, 4)
    writer.vbr(1, 6)
    writer.fixed(14, 9)
    writer.end()
    writer.fixed(4, 4)
    writer.vbr(3, 2)
    writer.fixed(1, 7)
    writer.vbr(0, 4)
    writer.fixed(5, 4)
    writer.fixed(RET, 4)
    writer.vbr(1, 6)
    writer.vbr(1, 3)
    writer.end()
    assert read_functions(maker.finish())[0] == DefinedFunction("f", "external", 2, one(SEVEN, ADD))


Operand = st.one_of(
    st.tuples(st.just("literal"), st.integers(0, 2**64 - 1)),
    st.integers(1, 64).flatmap(lambda width: st.tuples(st.just(FIXED), st.just(width), st.integers(0, 2**width - 1))),
    st.tuples(st.just(VBR), st.integers(2, 32), st.integers(0, 2**64 - 1)),
    st.tuples(st.just(CHAR6), st.sampled_from(b"az_.09AZ")),
)
Elements = st.one_of(
    st.integers(1, 32).flatmap(
        lambda width: st.tuples(st.just((FIXED, width)), st.lists(st.integers(0, 2**width - 1), max_size=90))
    ),
    st.tuples(st.integers(2, 32).map(lambda width: (VBR, width)), st.lists(st.integers(0, 2**64 - 1), max_size=90)),
    st.tuples(st.just((CHAR6,)), st.lists(st.sampled_from(b"az_.09AZ"), max_size=90)),
)
Layout = st.tuples(st.lists(Operand, min_size=1, max_size=12), st.none() | Elements)
ALPHABET = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"


def write_value(writer: BitWriter, encoding: tuple[int, ...], value: int) -> None:
    if encoding[0] == FIXED:
        writer.fixed(value, encoding[1])
    elif encoding[0] == VBR:
        writer.vbr(value, encoding[1])
    else:
        writer.fixed(ALPHABET.index(value), 6)


@given(
    st.lists(st.one_of(Layout, st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=150)), max_size=12),
    st.integers(4, 32),
    st.integers(0, 3),
)
@settings(deadline=None, max_examples=150)
def test_records_of_any_encoding(items: list[object], width: int, shift: int) -> None:
    """What is written comes back, in whatever encoding, and wherever in the window its bits fall."""
    writer = BitWriter()
    writer.enter(MODULE, width)
    expected: list[tuple[int, list[int]]] = []
    abbreviation = 3
    for _ in range(shift):
        writer.record(1, [])
        expected.append((1, []))
    for item in items:
        if isinstance(item, list):
            writer.record(item[0], item[1:])
            expected.append((item[0], item[1:]))
            continue
        operands, array = item  # type: ignore[misc]
        described = [operand[1] if operand[0] == "literal" else operand[:-1] for operand in operands]
        writer.abbreviation(*described, *([] if array is None else [(ARRAY,), array[0]]))
        abbreviation += 1
        writer.fixed(abbreviation, width)
        for operand in operands:
            if operand[0] != "literal":
                write_value(writer, operand[:-1], operand[-1])
        if array is not None:
            writer.vbr(len(array[1]), 6)
            for value in array[1]:
                write_value(writer, array[0], value)
        numbers = [operand[-1] for operand in operands] + ([] if array is None else array[1])
        expected.append((numbers[0], numbers[1:]))
    writer.enter(FUNCTIONS, 4)
    writer.record(5, [1])
    writer.end()
    writer.record(2, [3])
    writer.end()
    data = writer.to_bytes()
    (block,) = iter_top_level(data, 0, len(data))
    found = list(iter_records(data, block, [], 0))
    code, nested = found.pop(-2)
    assert code == ENTER
    assert list(iter_records(data, Block(*nested), [], 0)) == [(5, [1])]
    assert found == [*expected, (2, [3])]
    for stop in range(block.start, block.stop, 4):
        with pytest.raises(FormatError):
            list(iter_records(data, block._replace(stop=stop), [], 0))


# --- what is not whole


def attempts(data: bytes) -> list[FormatError]:
    """Read damaged data: what is raised is ours, and says where."""
    errors = list(failures(data))
    for error in errors:
        assert error.offset is not None
        assert 0 <= error.offset <= len(data) + 64
    return errors


def failures(data: bytes) -> Iterator[FormatError]:
    for function in (read_functions, count_functions):
        try:
            function(data)
        except FormatError as error:
            yield error


def test_what_is_no_module() -> None:
    for data in (b"", b"\0" * 64):
        with pytest.raises(TruncatedError, match="expected a module"):
            read_functions(data)
    with pytest.raises(FormatError, match="magic"):
        read_functions(b"no bitcode at all")
    maker = Maker()
    maker.function(0, 1)
    maker.body(SEVEN, ADD)
    with pytest.raises(UnsupportedError, match="string table"):
        read_functions(maker.finish(strtab=False))
    assert count_functions(maker.writer.to_bytes()) is None


FAULTS = {
    "lacks operands": (SEVEN, [(BINOP, [])]),
    "lacks operands,": (SEVEN, [(PHI, [])]),
    "a code of more than 32 bits": (SEVEN, [(1 << 32, [1])]),
    "refers to a type": (SEVEN, [(PHI, [50, 1, 0])]),
    "which is not a function type": (SEVEN, [(CALL, [0, 1 << 15, I32, 1])]),
    "0 arguments, expected 2": (SEVEN, [(CALL, [0, 1 << 15, FUNCTION_TYPE, 1])]),
    "before version 4": (SEVEN, [(CALL, [0, 0, FUNCTION_TYPE, 1])]),
    "contains itself": ([(AGGREGATE, [4]), (AGGREGATE, [3])], ADD),
    "refers to value 77": ([(AGGREGATE, [77])], ADD),
    "refers to type 70": ([(CE_CAST, [1, 70, 0])], ADD),
    "is an argument": ([(AGGREGATE, [1])], ADD),
    "of type": ([(SETTYPE, [99]), *SEVEN], ADD),
}


@pytest.mark.parametrize("message", FAULTS)
def test_contents_that_contradict_themselves(message: str) -> None:
    with pytest.raises(FormatError, match=message.removesuffix(",")) as caught:
        one(*FAULTS[message])
    assert caught.value.offset is not None


def test_as_many_bodies_as_functions() -> None:
    maker = Maker()
    maker.function(0, 1)
    with pytest.raises(FormatError, match="0 bodies, expected 1"):
        read_functions(maker.finish())
    maker = Maker()
    maker.body(SEVEN, ADD)
    with pytest.raises(FormatError, match="more bodies than the 0 functions"):
        read_functions(maker.finish())


def test_one_table_of_types() -> None:
    maker = Maker()
    maker.writer.enter(TYPES, 4)
    maker.writer.record(2, [])
    maker.writer.end()
    with pytest.raises(FormatError, match="a second table of types"):
        read_functions(maker.finish())


def test_functions_that_name_many_global_values() -> None:
    maker = Maker(junk=3000)
    for _ in range(1500):
        maker.function(0, 1)
    maker.writer.enter(CONSTANTS, 4)
    maker.writer.record(SETTYPE, [3000])
    maker.writer.record(AGGREGATE, range(3000))
    maker.writer.end()
    for _ in range(1500):
        maker.body([], [(BINOP, [3, 3, 0]), (RET, [1])])
    with pytest.raises(FormatError, match="name more than 4194304 global values") as caught:
        read_functions(maker.finish())
    assert caught.value.offset is not None


def test_names_that_are_not_there() -> None:
    maker = Maker()
    maker.function(10, 10)
    maker.body(SEVEN, ADD)
    with pytest.raises(FormatError, match="a name at 10 to 20, but the string table has 16 bytes"):
        read_functions(maker.finish())
    maker = Maker(names=b"x" * 40_000)
    for _ in range(30):
        maker.function(0, 40_000)
    with pytest.raises(FormatError, match="share the 40000 bytes"):
        read_functions(maker.finish())


def read_block(data: bytes) -> list[tuple[int, list[int]]]:
    (block,) = iter_top_level(data, 0, len(data))
    return list(iter_records(data, block, [], 0))


def test_few_bits_ask_for_little_work() -> None:
    # Constants each made of the last one twice: no recursion, no doubling.
    chain = [(INTEGER, [2]), *((AGGREGATE, [3 + number, 3 + number]) for number in range(20_000))]
    assert one(chain, [(BINOP, [1, 20_002, 0]), *ADD]) != one(chain, [(BINOP, [2, 20_002, 0]), *ADD])
    # Arrays that claim more than there is.
    for element in ((FIXED, 7), (VBR, 6), (CHAR6,)):
        writer = BitWriter()
        writer.enter(MODULE, 3)
        writer.abbreviation(1, (ARRAY,), element)
        writer.fixed(4, 3)
        writer.vbr(1 << 60, 6)
        writer.end()
        with pytest.raises(TruncatedError, match="beyond the end of its block"):
            read_block(writer.to_bytes())


ABBREVIATIONS = {
    "with 60 literals": [*range(60)],
    "without a code": [],
    "out of place": [1, (BLOB,), (FIXED, 3)],
    "out of place,": [1, (ARRAY,)],
    "out of place,,": [(ARRAY,), (CHAR6,)],
    "elements have no size": [1, (ARRAY,), 7],
    "elements have no size,": [1, (ARRAY,), (FIXED, 0)],
    "encoding 7": [1, (7,)],
    "field of 65 bits": [1, (FIXED, 65)],
    "chunks of one bit": [1, (VBR, 1)],
    "at most 64 bits": [1, (VBR, 2)],
    "abbreviation 9, but 0": None,
}


@pytest.mark.parametrize("message", ABBREVIATIONS)
def test_abbreviations_that_make_no_sense(message: str) -> None:
    writer = BitWriter()
    writer.enter(MODULE, 4)
    operands = ABBREVIATIONS[message]
    if operands is None:
        writer.fixed(9, 4)
    else:
        writer.abbreviation(*operands)
        writer.fixed(4, 4)
        writer.fixed((1 << 200) - 1, 200)
    writer.end()
    with pytest.raises(FormatError, match=message.rstrip(",")) as caught:
        read_block(writer.to_bytes())
    assert caught.value.offset is not None


def test_truncation_at_every_word_and_some_bytes() -> None:
    data = small()
    whole = read_functions(data)
    assert len(whole) > 4
    for stop in [*range(0, len(data), 4), *range(1, len(data), 97)]:
        errors = attempts(data[:stop])
        assert errors, stop


@pytest.mark.parametrize("seed", range(6))
def test_flipped_bits_give_an_answer_or_an_error(seed: int) -> None:
    chance = random.Random(seed)
    choice = [data for data in real().values() if len(data) < 20_000]
    for _ in range(60):
        damaged = bytearray(chance.choice(choice))
        for _ in range(chance.choice((1, 1, 3, 40))):
            place = chance.randrange(8 * len(damaged))
            damaged[place >> 3] ^= 1 << (place & 7)
        attempts(bytes(damaged))


@given(st.binary(max_size=300), st.integers(0, 60))
@settings(deadline=None)
def test_random_bits_behind_a_head(noise: bytes, at: int) -> None:
    data = bytearray(small())
    start = min(len(data), at * len(data) // 60 // 4 * 4)
    data[start : start + len(noise)] = noise
    attempts(bytes(data))


# --- real modules


@pytest.mark.parametrize("name", ["lua-clang19", "lua-clang22", "zlib-clang19"])
def test_symbols_and_bodies_are_as_many(name: str) -> None:
    for stem, data in real(name).items():
        functions = read_functions(data)
        assert count_functions(data) == sum(each.linkage != "available_externally" for each in functions), stem
        if len(data) > 20_000:  # where bitcode is does not depend on how much it is
            continue
        # In a wrapper, in a view, behind other bytes, and before another module.
        wrapped = struct.pack("<5I", 0x0B17C0DE, 0, 20, len(data), 7) + data
        wrapped += bytes(-len(wrapped) % 16)
        for other in (wrapped, memoryview(data), data + data, bytes(4) + data):
            assert read_functions(other) == functions
            assert count_functions(other) == count_functions(data)


def test_the_same_library_by_two_compilers() -> None:
    """Most of what two versions of clang write before optimising is the same."""
    old, new = (
        {each.name: each.body_hash for data in real(name).values() for each in read_functions(data)}
        for name in ("lua-clang19", "lua-clang22")
    )
    assert old.keys() == new.keys()
    assert sum(old[name] == new[name] for name in old) > len(old) // 10
