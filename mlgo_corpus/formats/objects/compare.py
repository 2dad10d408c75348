"""Compare two objects that should be the same, and find where they first differ.

The embedded bitcode and command are ignored: the original's compiler embedded them, and a rebuild may not. So are the
file's own layout (offsets, string tables) and the numbers that depend on it: a relocation's symbol, a group's member
and an address-significance entry are compared by what they refer to.

**Equal** are two objects with equal file headers, the same sections in the same order (name, type, flags, alignment,
bytes; relocations with offset, type, addend and symbol; group members) and the same symbols in the same order (name,
binding, type, visibility, section, value, size).

**Code equal** are two objects whose executable sections are the same, in name, order and bytes, and whose relocations
of these are the same: offset, type, addend, and the name of the symbol (for a local one without the number by which
LLVM distinguishes equal names), or for a section's own symbol the name of the section. Data, read-only data, unwind
tables, debug information and symbol tables may be different.

Mach-O and COFF are read by lief: their symbols are compared by name, section and value.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

from mlgo_corpus.errors import FormatError, TruncatedError, UnsupportedError
from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.objects.elf import (
    SHF_EXECINSTR,
    SHT_REL,
    SHT_RELA,
    SHT_SYMTAB,
    SHT_SYMTAB_SHNDX,
    STB_LOCAL,
    STT_SECTION,
    ElfObject,
    string_at,
)
from mlgo_corpus.formats.objects.objfile import (
    Container,
    describe_head,
    identify_container,
    load_lief,
    macho_section_name,
    parse_objfile,
)

EMBEDDED: Final = frozenset({".llvmbc", ".llvmcmd", "__LLVM,__bitcode", "__LLVM,__cmdline"})
"""The usual names of the sections that are ignored."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place at which two objects differ.

    Attributes:
        section: a section's name, ``.symtab``, or ``header`` for the file's.
        offset: bytes into the section; None if only one object has the section, or if its kind differs.
        detail: one line for a person.
    """

    section: str
    offset: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing two objects: both are None if they are equal, ``code`` is None if their code is equal."""

    anything: Difference | None
    code: Difference | None


def compare_objects(original: Buffer, rebuilt: Buffer, ignored: frozenset[str] = EMBEDDED) -> Comparison:
    """Compare two objects, except for the ignored sections.

    Raises:
        TruncatedError: an object ends too early.
        FormatError: an object contradicts itself, or their formats differ.
        UnsupportedError: the objects' format is not supported.
    """
    first, second = _read(original, ignored), _read(rebuilt, ignored)
    if first.header != second.header:
        detail = f"expected {_shown(first.header)}, found {_shown(second.header)}"
        return Comparison(Difference("header", None, detail), Difference("header", None, detail))
    anything = _compare(first.parts, second.parts)
    if anything is None:
        anything = _compare_symbols(first.symbols, second.symbols)
    if anything is None:
        return Comparison(None, None)
    return Comparison(anything, _compare(first.code(), second.code()))


# A tuple that describes what a number in the file refers to; the first element is the offset of the number.
_Reference = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    """A section as it is compared.

    ``references`` describe what its bytes refer to, where the bytes themselves do not matter. ``code_references`` are
    the same, with less detail of each symbol.
    """

    name: str
    is_code: bool
    kind: tuple[Any, ...]
    size: int
    content: Buffer
    references: tuple[_Reference, ...] = ()
    code_references: tuple[_Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class _Object:
    """An object as it is compared."""

    header: tuple[Any, ...]
    parts: tuple[_Part, ...]
    symbols: tuple[tuple[Any, ...], ...]

    def code(self) -> tuple[_Part, ...]:
        """Return the executable sections and their relocations."""
        return tuple(
            _Part(part.name, True, part.kind[:2], part.size, part.content, part.code_references)
            for part in self.parts
            if part.is_code
        )


def _compare(first: Sequence[_Part], second: Sequence[_Part]) -> Difference | None:
    """Find the first difference. Compare the lists of sections before their contents, which refer to each other."""
    names = {part.name for part in second}
    for mine, other in zip_longest(first, second):
        if mine is None:
            return Difference(other.name, None, "only the rebuilt object has this section")
        if other is None or (mine.name != other.name and mine.name not in names):
            return Difference(mine.name, None, "the rebuilt object has no such section")
        if mine.name != other.name:
            return Difference(other.name, None, f"this section stands where {mine.name} was")
    for mine, other in zip(first, second, strict=True):
        if mine.kind != other.kind:
            detail = f"type, flags, alignment: expected {_shown(mine.kind)}, found {_shown(other.kind)}"
            return Difference(mine.name, None, detail)
        if (difference := _compare_content(mine, other)) is not None:
            return difference
    return None


def _compare_content(mine: _Part, other: _Part) -> Difference | None:
    if mine.content != other.content or mine.size != other.size:
        offset = _first_difference(mine.content, other.content)
        if mine.size != other.size:
            return Difference(mine.name, offset, f"expected {mine.size} bytes, found {other.size}")
        expected, found = (bytes(part.content[offset : offset + 8]).hex(" ") for part in (mine, other))
        return Difference(mine.name, offset, f"expected {expected}, found {found}")
    if mine.references != other.references:
        for one, another in zip_longest(mine.references, other.references):
            if one != another:
                offset = (one or another)[0]
                return Difference(mine.name, offset, f"expected {_shown(one)}, found {_shown(another)}")
    return None


def _compare_symbols(first: Sequence[tuple[Any, ...]], second: Sequence[tuple[Any, ...]]) -> Difference | None:
    for number, (one, another) in enumerate(zip_longest(first, second)):
        if one != another:
            detail = f"symbol {number}: expected {_shown(one)}, found {_shown(another)}"
            return Difference(".symtab", None, detail)
    return None


def _first_difference(first: Buffer, second: Buffer) -> int:
    """Return the first offset at which two contents differ, or the shorter one's end."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high) // 2
        if first[low : middle + 1] == second[low : middle + 1]:
            low = middle + 1
        else:
            high = middle
    return low


def _shown(values: tuple[Any, ...] | None) -> str:
    if values is None:
        return "nothing"
    return " ".join(hex(value) if isinstance(value, int) else str(value) for value in values if value != "")[:200]


def _read(data: Buffer, ignored: frozenset[str]) -> _Object:
    container = identify_container(data)
    if container is Container.ELF:
        return _ElfReader(data, ignored).read()
    if container is Container.MACHO:
        return _read_macho(data, ignored)
    if container is Container.COFF:
        return _read_coff(data, ignored)
    raise UnsupportedError(f"expected an ELF, Mach-O or COFF object, found {describe_head(data)}", offset=0)


# --- ELF

_SHT_NULL, _SHT_STRTAB, _SHT_GROUP, _SHT_LLVM_ADDRSIG = 0, 3, 17, 0x6FFF4C03
_SHF_ALLOC, _SHF_INFO_LINK, _SHF_LINK_ORDER = 0x2, 0x40, 0x80
_ET_REL = 1
# The place of a symbol whose section is not compared.
_LEFT_OUT = "left out"
# LLVM distinguishes local symbols of one name by a number that is counted through the whole compile.
_NUMBERED = re.compile(r"\.\d+\Z")
_TABLES = frozenset({_SHT_NULL, SHT_SYMTAB, _SHT_STRTAB, SHT_SYMTAB_SHNDX})


@dataclass(frozen=True, slots=True)
class _Symbol:
    """A symbol of the table, with its name; a section's own symbol has the section's name."""

    name: str
    st_info: int
    st_other: int
    place: int | str
    st_value: int
    st_size: int

    @property
    def short_name(self) -> str:
        """The name; a local symbol's without its number."""
        return _NUMBERED.sub("", self.name) if self.st_info >> 4 == STB_LOCAL else self.name

    def key(self) -> tuple[Any, ...]:
        """Return all fields of the symbol."""
        return (self.name, self.st_info, self.st_other, self.place, self.st_value, self.st_size)


class _ElfReader:
    """Reader of one ELF object; see this module's docstring for what is compared."""

    def __init__(self, data: Buffer, ignored: frozenset[str]) -> None:
        self._elf = elf = ElfObject(data)
        e_type, e_machine, _, _, _, _, e_flags, *_ = elf.header
        if e_type != _ET_REL:
            raise UnsupportedError("expected a relocatable object, found a linked file", offset=16)
        self._header = (data[4], data[5], data[7], e_type, e_machine, e_flags)
        self._names = [_text(elf.name(number)) for number in range(len(elf.headers))]
        # The sections that are compared, and the position of each among them.
        kept = [number for number in range(len(elf.headers)) if self._is_kept(number, ignored)]
        self._places = {number: place for place, number in enumerate(kept)}
        self._symbols = [self._read_symbol(*values) for values in elf.rows]

    def read(self) -> _Object:
        """Return the object as it is compared."""
        symbols = tuple(symbol.key() for symbol in self._symbols[1:] if symbol.place != _LEFT_OUT)
        return _Object(self._header, tuple(self._part(number) for number in self._places), symbols)

    def _is_kept(self, number: int, ignored: frozenset[str]) -> bool:
        sh_type, sh_info = self._elf.headers[number][1], self._elf.headers[number][7]
        if sh_type in _TABLES or self._names[number] in ignored:
            return False
        relocates = sh_type in (SHT_REL, SHT_RELA) and sh_info < len(self._names)
        return not (relocates and self._names[sh_info] in ignored)

    def _read_symbol(self, st_name: int, st_info: int, st_other: int, section: int, value: int, size: int) -> _Symbol:
        if st_info & 15 == STT_SECTION and section > 0:
            name = self._names[section]
        else:
            name = _text(string_at(self._elf.strings, st_name))
        place = self._places.get(section, _LEFT_OUT) if section > 0 else f"#{section & 0xFFFF:x}"
        return _Symbol(name, st_info, st_other, place, value, size)

    def _part(self, number: int) -> _Part:
        _, sh_type, sh_flags, _, _, sh_size, sh_link, sh_info, sh_addralign, sh_entsize = self._elf.headers[number]
        name = self._names[number]
        executable = _SHF_ALLOC | SHF_EXECINSTR
        is_code = sh_flags & executable == executable
        linked = self._places.get(sh_link) if sh_flags & _SHF_LINK_ORDER else None
        flags = sh_flags & ~_SHF_INFO_LINK
        kind: tuple[Any, ...] = (sh_type, flags, sh_addralign, sh_entsize, "" if linked is None else linked)
        content = self._elf.content(number)
        if sh_type in (SHT_REL, SHT_RELA):
            target = self._elf.headers[sh_info] if sh_info < len(self._elf.headers) else (0,) * 10
            is_code = target[2] & executable == executable
            found = [
                (at, kind, addend, self._symbol(one)) for at, kind, one, *addend in self._elf.relocations_in(number)
            ]
            full = tuple((offset, r_type, *addend, *symbol.key()) for offset, r_type, addend, symbol in found)
            short = tuple((offset, r_type, *addend, symbol.short_name) for offset, r_type, addend, symbol in found)
            kind = (*kind, self._places.get(sh_info, ""))
            return _Part(name, is_code, kind, len(full), b"", full, short)
        if sh_type == _SHT_GROUP:
            flag, *members = self._elf.words(number) or (0,)
            named: list[_Reference] = [(0, flag, self._symbol(sh_info).name)]
            named += [(4 * at, self._places[member]) for at, member in enumerate(members, 1) if member in self._places]
            return _Part(name, False, kind, 0, b"", tuple(named))
        if sh_type == _SHT_LLVM_ADDRSIG:
            taken = tuple((at, *self._symbol(index).key()) for at, index in _ulebs(content))
            return _Part(name, False, kind, len(taken), b"", taken)
        return _Part(name, is_code, kind, sh_size, content)

    def _symbol(self, index: int) -> _Symbol:
        if index >= len(self._symbols):
            raise FormatError(f"a reference to symbol {index}, but there are {len(self._symbols)}", offset=0)
        return self._symbols[index]


def _ulebs(content: Buffer) -> Iterator[tuple[int, int]]:
    """Yield the numbers of a section, each with its offset."""
    start = value = shift = 0
    for at, byte in enumerate(content):
        value |= (byte & 127) << shift
        shift += 7
        if shift > 70:
            raise FormatError("a number of more than 64 bits", offset=start)
        if byte < 128:
            yield start, value
            start, value, shift = at + 1, 0, 0


# --- Mach-O and COFF


def _read_macho(data: Buffer, ignored: frozenset[str]) -> _Object:
    stored = {(item.name, item.offset) for item in parse_objfile(data).sections}
    lief = load_lief()
    binary = lief.MachO.parse(bytes(data)).at(0)
    flag = lief.MachO.Section.FLAGS.PURE_INSTRUCTIONS
    sections = list(binary.sections)
    names = [macho_section_name(item) for item in sections]
    symbol_names = [_text(one.name) for one in binary.symbols]
    parts = []
    for item, name in zip(sections, names, strict=True):
        if name in ignored:
            continue
        content = _slice(data, item.offset, item.size) if (name, item.offset) in stored else b""
        relocations = tuple(_macho_relocations(data, item, names, symbol_names))
        kind = (_number(item.type), item.alignment)
        parts.append(_Part(name, bool(item.has(flag)), kind, item.size, content, relocations, relocations))
    symbols = []
    for one in binary.symbols:
        name, number, value = _text(one.name), one.numberof_sections, one.value
        if 0 < number <= len(sections):
            if names[number - 1] in ignored or name.startswith("ltmp"):  # these represent sections, in order
                continue
            symbols.append((name, names[number - 1], value - sections[number - 1].virtual_address, one.description))
        else:
            symbols.append((name, number, value, one.description))
    header = (_number(binary.header.cpu_type), _number(binary.header.cpu_subtype))
    return _Object(header, tuple(parts), tuple(symbols))


def _macho_relocations(data: Buffer, item: Any, sections: list[str], symbols: list[str]) -> Iterator[_Reference]:
    """Read a section's relocations (``mach-o/reloc.h``). Some addresses that lief returns have another origin."""
    order = ">" if data[0] == 0xFE else "<"
    for r_address, r_info in struct.iter_unpack(
        f"{order}II", _slice(data, item.relocation_offset, 8 * item.numberof_relocations)
    ):
        if r_address >> 31:  # a scattered one, which has an address for a symbol
            yield r_address, r_info
            continue
        r_symbolnum, rest = (r_info & 0xFFFFFF, r_info >> 24) if order == "<" else (r_info >> 8, r_info & 0xFF)
        is_extern = rest & (0x08 if order == "<" else 0x10)
        table = symbols if is_extern else ["", *sections]
        yield r_address, rest, table[r_symbolnum] if r_symbolnum < len(table) else r_symbolnum


def _read_coff(data: Buffer, ignored: frozenset[str]) -> _Object:
    found = parse_objfile(data).sections
    lief = load_lief()
    binary = lief.COFF.parse(bytes(data))
    flag = lief.PE.Section.CHARACTERISTICS.CNT_CODE
    names = [item.name for item in found]
    parts = []
    for item, section in zip(binary.sections, found, strict=True):
        if section.name in ignored:
            continue
        content = _slice(data, section.offset, section.size) if section.offset else b""
        relocations = tuple(
            (one.address, _number(one.type), "" if one.symbol is None else _text(one.symbol.name))
            for one in item.relocations
        )
        is_code = bool(item.has_characteristic(flag))
        kind = (_number(item.characteristics),)
        parts.append(_Part(section.name, is_code, kind, section.size, content, relocations, relocations))
    symbols = []
    for one in binary.symbols:
        number = one.section_idx
        place = names[number - 1] if 0 < number <= len(names) else number
        if place not in ignored:
            symbols.append((_text(one.name), place, one.value))
    return _Object((_number(binary.header.machine),), tuple(parts), tuple(symbols))


def _number(value: Any) -> int:
    """Return the number of one of lief's enumerators; a value that it has no name for is a number already."""
    return int(getattr(value, "value", value))


def _text(name: Any) -> str:
    return name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else str(name)


def _slice(data: Buffer, offset: int, size: int) -> memoryview:
    if offset + size > len(data):
        raise TruncatedError(f"a section is {size} bytes at {offset}, the file ends at {len(data)}", offset=offset)
    return memoryview(data)[offset : offset + size]
