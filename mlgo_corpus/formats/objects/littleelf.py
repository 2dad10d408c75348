"""The sections, symbols and relocations of a 64-bit little-endian ELF object, as most targets have."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from mlgo_corpus.errors import FormatError
from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.objects.objfile import Container, elf_table, identify_container

SHT_SYMTAB: Final = 2
_SHT_RELA: Final = 4
SHN_LORESERVE: Final = 0xFF00
_SHT_NOBITS: Final = 8
_RELA = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)


class LittleElf:
    """An object's tables.

    Attributes:
        headers: of each section: name, type, flags, address, offset, size, link, info, alignment, bytes of an entry.

    Raises:
        FormatError: the headers contradict themselves.
    """

    def __init__(self, data: Buffer) -> None:
        table = elf_table(data)
        self.headers = list(table.layout.section_header.iter_unpack(table.headers))
        self._data = memoryview(data)
        self._names = bytes(self.content(table.e_shstrndx)) if table.e_shstrndx < len(self.headers) else b""

    @classmethod
    def of(cls, data: Buffer) -> LittleElf | None:
        """Read an object; None if it is of another format."""
        if identify_container(data) is not Container.ELF or data[4] != 2 or data[5] != 1:
            return None
        return cls(data)

    def content(self, section: int) -> memoryview:
        """Return the bytes of a section; none if there is no such section, or it has none in the file.

        Raises:
            FormatError: it reaches past the end of the file.
        """
        if section >= len(self.headers) or self.headers[section][1] == _SHT_NOBITS:
            return self._data[:0]
        offset, size = self.headers[section][4:6]
        if offset + size > len(self._data):
            raise FormatError(f"section {section} reaches past the end of the file", offset=offset)
        return self._data[offset : offset + size]

    def name(self, section: int) -> bytes:
        """Return a section's name."""
        return string_at(self._names, self.headers[section][0])

    def relocations(self) -> dict[int, int]:
        """Return the section of relocations of each section that has one."""
        return {
            header[7]: number
            for number, header in enumerate(self.headers)
            if header[1] == _SHT_RELA and header[9] == _RELA.itemsize and header[7] < len(self.headers)
        }

    def relocations_in(self, section: int) -> NDArray[np.void]:
        """Return the relocations of a section of them: offset, type, symbol, addend."""
        return self._entries(section, _RELA)

    def symbols_in(self, section: int) -> NDArray[np.void]:
        """Return the symbols of a symbol table: name, info, other, section, value, size."""
        return self._entries(section, _SYMBOL)

    def _entries(self, section: int, kind: np.dtype[np.void]) -> NDArray[np.void]:
        content = self.content(section)
        return np.frombuffer(content[: len(content) // kind.itemsize * kind.itemsize], kind)


def string_at(table: bytes, at: int) -> bytes:
    """Return the string of a table of strings that begins somewhere."""
    return table[at : table.find(b"\0", at)]
