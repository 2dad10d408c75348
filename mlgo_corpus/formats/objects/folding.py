"""Which functions of objects are alike, so that a linker that folds (``--icf=all``) keeps one of them.

As lld finds them: functions with the same bytes and the same relocations, to targets that are alike. Only what has a
section to itself is folded, and nothing that has landing pads (lld, ELF/ICF.cpp). Of objects other than 64-bit
little-endian ELF, nothing is known.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.objects.elf import SHF_EXECINSTR, STB_LOCAL, STT_FUNC, ElfObject, string_at
from mlgo_corpus.formats.objects.footprints import iter_unwinding

_SHF_STRINGS: Final = 0x20
# How long the chains of calls are in which functions are compared: those that are alike and call each other are small.
_DEPTH: Final = 3
_LONGEST_STRING: Final = 256
# An address relative to where the next instruction begins, of which the addend says how far that is. No other usual
# target has a relocation of this number in code.
_R_X86_64_PC32: Final = 2
_TO_NEXT: Final = 4


def folding_classes(data: Buffer) -> dict[str, int]:
    """Return a number of 64 bits for each function that may be folded: equal for those that are alike, in any object.

    Raises:
        FormatError: the data is no object, or damaged.
    """
    elf = ElfObject.little64(data)
    return {} if elf is None else _Functions(elf).classes()


class _Functions:
    """The functions of an object that have a section to themselves."""

    def __init__(self, elf: ElfObject) -> None:
        self._elf = elf
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, list[str]] = {}
        shared = {place[0] for place, _, has_pads in iter_unwinding(elf) if has_pads}
        for name, info, _, section, value, size in elf.rows:
            if info & 15 == STT_FUNC and section > 0 and elf.headers[section][2] & SHF_EXECINSTR:
                text = string_at(elf.strings, name).decode("utf-8", "surrogateescape")
                self._names.setdefault(section, []).append(text)
                if value or not size:
                    shared.add(section)
        for section in shared:
            self._names.pop(section, None)

    def classes(self) -> dict[str, int]:
        """Return each function's number."""
        bodies: dict[int, bytes] = {}
        called: dict[int, list[int]] = {}
        relocations = self._elf.relocations()
        for section in self._names:
            parts = [bytes(self._elf.content(section))]
            called[section] = []
            if section in relocations:
                for offset, kind, symbol, addend in self._elf.relocations_in(relocations[section]):
                    function, other = self._target(kind, symbol, addend)
                    parts += (b"%d %d" % (offset, kind), other)
                    if function:
                        called[section].append(function)
            bodies[section] = _digest(*parts)
        found = bodies
        for _ in range(_DEPTH):
            found = {
                section: _digest(body, *(found[function] for function in called[section]))
                for section, body in bodies.items()
            }
        return {
            name: int.from_bytes(digest, "little") for section, digest in found.items() for name in self._names[section]
        }

    def _target(self, kind: int, symbol: int, addend: int) -> tuple[int, bytes]:
        """Return the section of the function that a relocation refers to, or else 0 and what tells it from others."""
        name, info, _, section, value, _ = self._elf.symbol(symbol)
        if section in self._names:
            return section, b"%d" % addend
        if info >> 4 != STB_LOCAL or section <= 0:
            return 0, b"name%d " % addend + string_at(self._elf.strings, name)
        if self._elf.headers[section][2] & _SHF_STRINGS:
            begin = value + addend + (_TO_NEXT if kind == _R_X86_64_PC32 else 0)
            text = bytes(self._elf.content(section)[begin : begin + _LONGEST_STRING])
            return 0, b"text" + text.partition(b"\0")[0]
        if section not in self._contents:
            self._contents[section] = _digest(bytes(self._elf.content(section)))
        return 0, b"data%d " % (value + addend) + self._contents[section]


def _digest(*parts: bytes) -> bytes:
    made = blake2b(digest_size=8)
    for part in parts:
        made.update(len(part).to_bytes(4, "little"))
        made.update(part)
    return made.digest()
