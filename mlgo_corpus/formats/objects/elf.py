"""The sections, symbols and relocations of an ELF object, of each class and byte order (gabi, chapter 4)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.errors import FormatError, TruncatedError
from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.objects.objfile import Container, elf_table, identify_container

SHT_SYMTAB: Final = 2
SHT_RELA: Final = 4
SHT_REL: Final = 9
SHT_SYMTAB_SHNDX: Final = 18
SHF_EXECINSTR: Final = 4
STT_FUNC: Final = 2
STT_SECTION: Final = 3
STB_LOCAL: Final = 0
_SHT_NOBITS: Final = 8
_SHN_LORESERVE: Final = 0xFF00
_SHN_XINDEX: Final = 0xFFFF
_EM_MIPS: Final = 8
_SYMBOL_32 = [("name", "u4"), ("value", "u4"), ("size", "u4"), ("info", "u1"), ("other", "u1"), ("section", "u2")]
_SYMBOL_64 = [("name", "u4"), ("info", "u1"), ("other", "u1"), ("section", "u2"), ("value", "u8"), ("size", "u8")]
_SYMBOL = np.dtype([(name, "i8" if name == "section" else kind) for name, kind in _SYMBOL_64])
# numpy is slower at making rows of Python numbers.
_ROW = struct.Struct("=IBBqQQ")


class ElfObject:
    """An object's tables.

    Attributes:
        header: of the file: type, machine, version, entry, two offsets, flags, and sizes.
        headers: of each section: name, type, flags, address, offset, size, link, info, alignment, bytes of an entry.
        symbols: name, info, other, section, value, size. The section is 0 for one that is undefined, and negative if it
            is a reserved number.
        strings: the symbols' names, at the places that the symbols tell.

    Raises:
        TruncatedError: a table reaches past the end of the data.
        FormatError: the headers contradict themselves.
    """

    def __init__(self, data: Buffer) -> None:
        table = elf_table(data)
        self.header: tuple[int, ...] = table.layout.header.unpack_from(data)
        self.headers: list[tuple[int, ...]] = list(table.layout.section_header.iter_unpack(table.headers))
        self._data = memoryview(data)
        self._is_wide, self._order = data[4] == 2, "<" if data[5] == 1 else ">"
        self._names = bytes(self.content(table.e_shstrndx)) if table.e_shstrndx else b""
        self.symbols, self.strings = self._read_symbols()

    @classmethod
    def little64(cls, data: Buffer) -> ElfObject | None:
        """Read a 64-bit little-endian object, as most targets have; None if it is another."""
        usual = identify_container(data) is Container.ELF and data[4:6] == b"\2\1"
        return cls(data) if usual else None

    def content(self, section: int) -> memoryview:
        """Return the bytes of a section; none if it has none in the file.

        Raises:
            TruncatedError: it reaches past the end of the data.
            FormatError: there is no such section.
        """
        if section >= len(self.headers):
            raise FormatError(f"a reference to section {section}, but there are {len(self.headers)}", offset=0)
        _, sh_type, _, _, offset, size, *_ = self.headers[section]
        if sh_type == _SHT_NOBITS:
            return self._data[:0]
        if offset + size > len(self._data):
            message = f"section {section} is {size} bytes at {offset}, but the file ends at {len(self._data)}"
            raise TruncatedError(message, offset=offset)
        return self._data[offset : offset + size]

    def name(self, section: int) -> bytes:
        """Return a section's name."""
        return string_at(self._names, self.headers[section][0])

    @cached_property
    def rows(self) -> list[tuple[int, ...]]:
        """The symbols one by one."""
        return list(_ROW.iter_unpack(self.symbols.tobytes()))

    def symbol(self, number: int) -> tuple[int, ...]:
        """Return a symbol that something refers to.

        Raises:
            FormatError: there is no such symbol.
        """
        try:
            return self.rows[number]
        except IndexError:
            message = f"a reference to symbol {number}, but there are {len(self.rows)}"
            raise FormatError(message, offset=0) from None

    def words(self, section: int) -> tuple[int, ...]:
        """Return the numbers of 32 bits in a section of them."""
        content = self.content(section)
        return struct.unpack_from(f"{self._order}{len(content) // 4}I", content)

    def relocations(self) -> dict[int, int]:
        """Return the section of relocations, with addends, of each section that has one."""
        return {
            header[7]: number
            for number, header in enumerate(self.headers)
            if header[1] == SHT_RELA and header[7] < len(self.headers)
        }

    def relocations_in(self, section: int) -> Iterable[tuple[int, ...]]:
        """Return the relocations of a section of them: offset, type, symbol, and addend if they have it."""
        has_addend = self.headers[section][1] == SHT_RELA
        if not self._is_wide:
            found = self._unpack(section, "IIi" if has_addend else "II")
            return ((at, info & 0xFF, info >> 8, *addend) for at, info, *addend in found)
        found = self._unpack(section, "QIIq" if has_addend else "QII")
        if self._order == ">" or self.header[1] == _EM_MIPS:  # MIPS stores the symbol first, in either byte order
            return ((at, kind, symbol, *addend) for at, symbol, kind, *addend in found)
        return found

    def _unpack(self, section: int, form: str) -> Iterable[tuple[int, ...]]:
        entry = struct.Struct(self._order + form)
        return entry.iter_unpack(self._entries(section, entry.size))

    def _entries(self, section: int, size: int) -> memoryview:
        """Return the bytes of a section of entries of a size."""
        content, sh_entsize = self.content(section), self.headers[section][9]
        if sh_entsize != size or len(content) % size:
            message = f"section {section} has {len(content)} bytes in entries of {sh_entsize}, expected {size}"
            raise FormatError(message, offset=self.headers[section][4])
        return content

    def _read_symbols(self) -> tuple[NDArray[np.void], bytes]:
        types = [header[1] for header in self.headers]
        if SHT_SYMTAB not in types:
            return np.empty(0, _SYMBOL), b""
        number = types.index(SHT_SYMTAB)
        fields = _SYMBOL_64 if self._is_wide else _SYMBOL_32
        entry = np.dtype([(name, self._order + kind) for name, kind in fields])
        entries = np.frombuffer(self._entries(number, entry.itemsize), entry)
        symbols = np.empty(len(entries), _SYMBOL)
        for name, _ in fields:
            symbols[name] = entries[name]
        sections = symbols["section"]
        sections[sections >= _SHN_LORESERVE] -= _SHN_XINDEX + 1
        if SHT_SYMTAB_SHNDX in types:
            true = self.words(types.index(SHT_SYMTAB_SHNDX))[: len(symbols)]
            if len(true) < len(symbols):
                raise FormatError(f"{len(true)} section indices for {len(symbols)} symbols", offset=0)
            np.copyto(sections, true, where=sections == -1)
        if (last := sections.max(initial=0)) >= len(self.headers):
            raise FormatError(f"a symbol is in section {last}, but there are {len(self.headers)}", offset=0)
        return symbols, bytes(self.content(self.headers[number][6]))


def string_at(table: bytes, at: int) -> bytes:
    """Return the string of a table of strings that begins somewhere.

    Raises:
        FormatError: none does. Without a table all are empty.
    """
    end = table.find(b"\0", at)
    if end < 0:
        if at:
            raise FormatError(f"a name is at {at}, outside its string table", offset=0)
        return b""
    return table[at:end]
