"""The bytes that each function takes in an object: its code, and what goes with it when it goes.

Of ELF these are the function's symbols, its entry for unwinding (an FDE of ``.eh_frame``; DWARF 5, section 6.4.1) and
its table of landing pads (``.gcc_except_table``, which the FDE's augmentation points to). All of them are text as
``llvm-size`` counts it. What several functions share, such as constants and jump tables, is nobody's. Of Mach-O and
COFF, code alone is counted.

A compiler knows functions by their names in the IR. Where an object has several names for one place, only one of them
is a function's: an out-of-line constructor ``_ZN1AC2Ev`` has the alias ``_ZN1AC1Ev``. And Mach-O and 32-bit Windows put
``_`` before each name.

A linker adds entries in tables of what it makes (`linked_footprints`), often more than a small function's code.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.objects.elf import SHF_EXECINSTR, STB_LOCAL, ElfObject, string_at
from mlgo_corpus.formats.objects.objfile import Container, identify_container
from mlgo_corpus.formats.objects.symbols import Symbol, elf_symbols, parse_symbols

_FRAMES: Final = b".eh_frame"
_LANDING_PADS: Final = b".gcc_except_table"
_I386: Final = b"\x4c\x01"
# Bytes of text that a linker adds, as llvm-size counts it. Each function with an FDE has an entry in .eh_frame_hdr.
_FOUND: Final = 8
# A name that is exported has a symbol, a version, and places in .gnu.hash, of 5 to 9 bytes in what was seen. The name
# itself comes on top.
_EXPORTED: Final = 24 + 2 + 6
# Another library may define a function of a shared library instead. So each place that tells where it is has a
# relocation: one for its stub in .plt, if it is called, and one for all code that takes its address, as calls do with
# -fno-plt.
_STUB: Final = 16
_RELOCATION: Final = 24
# Relocations of calls: R_X86_64_PC32 and _PLT32 of EM_X86_64, R_AARCH64_JUMP26 and _CALL26 of EM_AARCH64.
_CALLS: Final = {62: (2, 4), 183: (282, 283)}
_DEFAULT, _INTERNAL, _HIDDEN = 0, 1, 2  # STV_DEFAULT and so on


class Exports(IntEnum):
    """What is exported of the functions that are not hidden.

    Attributes:
        NOTHING: as of most programs, and where a list names what is exported.
        NAMES: their names; calls are to what has been linked.
        CALLS: their names, and calls may be to functions of other libraries that have these names.
    """

    NOTHING = 0
    NAMES = 1
    CALLS = 2


class _Unwinding(NamedTuple):
    """What a function has for unwinding.

    Attributes:
        place: the function's section, and where in it the function begins.
        size: bytes of its entry, and of its table of landing pads.
        has_pads: whether it has such a table.
    """

    place: tuple[int, int]
    size: int
    has_pads: bool


def names_by_symbol(data: Buffer, functions: Iterable[str]) -> dict[str, str]:
    """Return the functions' names by their symbols in an object; a name does not have the byte 1 that it begins with.

    Args:
        data: the object.
        functions: the functions' names in the IR.
    """
    container = identify_container(data)
    windows32 = container is Container.COFF and bytes(data[:2]) == _I386
    before = "_" if container is Container.MACHO or windows32 else ""
    return {name[1:] if name[:1] == "\1" else before + name: name.removeprefix("\1") for name in functions}


def function_footprints(data: Buffer, names: Mapping[str, str] | None = None) -> dict[str, int]:
    """Return the bytes of text of each function of an object, by its name, else by its symbol.

    Functions at one place count once, under the name that sorts first of those that are in ``names``, or else of all.
    Of ELF other than 64-bit little-endian, code alone is counted.

    Args:
        data: the object.
        names: the functions' names by their symbols, as `names_by_symbol` returns them.

    Raises:
        FormatError: the data is no object, or damaged.
    """
    return _measure(data, names or {}).sizes


def linked_footprints(
    data: Buffer, names: Mapping[str, str] | None = None, *, exports: Exports
) -> tuple[dict[str, int], dict[str, int]]:
    """Return what `function_footprints` does, and the bytes of text of each function in tables of what is linked.

    These are its entry in ``.eh_frame_hdr``, and if it is exported, those in ``.dynsym``, ``.dynstr``,
    ``.gnu.version`` and ``.gnu.hash``, and on x86-64 and AArch64 for its uses in ``.plt``, ``.rela.plt`` and
    ``.rela.dyn``. Of objects other than 64-bit little-endian ELF, nothing is known.

    Args:
        data: the object.
        names: the functions' names by their symbols, as `names_by_symbol` returns them.
        exports: what is exported of what it is linked into.

    Raises:
        FormatError: the data is no object, or damaged.
    """
    elf, sizes, owners, unwound = _measure(data, names or {})
    entries: dict[str, int] = {}
    if elf is None:
        return sizes, entries
    for place in unwound:
        entries[owners[place]] = entries.get(owners[place], 0) + _FOUND
    if exports:
        places = _places_needed(elf) if exports is Exports.CALLS else {}
        for number, (at, info, other, section, value, _) in enumerate(elf.rows):
            owner, visibility = owners.get((section, value)), other & 3
            if owner is None or info >> 4 == STB_LOCAL or visibility in (_INTERNAL, _HIDDEN):
                continue
            size = _EXPORTED + len(string_at(elf.strings, at)) + 1
            if visibility == _DEFAULT:
                size += places.get(number, 0)
            entries[owner] = entries.get(owner, 0) + size
    return sizes, entries


class _Measured(NamedTuple):
    """An object's functions.

    Attributes:
        elf: the object, if it is 64-bit little-endian ELF.
        sizes: bytes of text by name.
        owners: the name of the function at each place.
        unwound: the places of those that have an FDE.
    """

    elf: ElfObject | None
    sizes: dict[str, int]
    owners: dict[tuple[int, int], str]
    unwound: dict[tuple[int, int], None]


def _measure(data: Buffer, names: Mapping[str, str]) -> _Measured:
    sizes: dict[str, int] = {}
    owners: dict[tuple[int, int], str] = {}
    unwound: dict[tuple[int, int], None] = {}
    elf = ElfObject.little64(data)
    symbols = filter(_is_function, parse_symbols(data) if elf is None else elf_symbols(elf))
    for symbol in sorted(symbols, key=lambda symbol: (symbol.name not in names, symbol)):
        name = names.get(symbol.name, symbol.name)
        if owners.setdefault((symbol.section, symbol.value), name) == name:
            sizes[name] = sizes.get(name, 0) + symbol.size
    if elf is not None:
        for place, size, _ in iter_unwinding(elf):
            if (owner := owners.get(place)) is not None:
                sizes[owner] += size
                unwound[place] = None
    return _Measured(elf, sizes, owners, unwound)


def _places_needed(elf: ElfObject) -> Counter[int]:
    """Return the bytes of text in what tells code where functions are, by the numbers of their symbols."""
    found = Counter[int]()
    if (calls := _CALLS.get(elf.header[1])) is None:
        return found
    code = [number for target, number in elf.relocations().items() if elf.headers[target][2] & SHF_EXECINSTR]
    uses = {(symbol, kind in calls) for number in code for _, kind, symbol, *_ in elf.relocations_in(number)}
    for symbol, is_call in uses:
        found[symbol] += _RELOCATION + _STUB * is_call
    return found


def _is_function(symbol: Symbol) -> bool:
    return symbol.is_code and symbol.size > 0


def iter_unwinding(elf: ElfObject) -> Iterator[_Unwinding]:
    """Yield what each function that has an FDE has for unwinding."""
    pads: dict[int, list[int]] = {}
    frames: list[tuple[int, tuple[int, int], tuple[int, int] | None]] = []
    for target, number in elf.relocations().items():
        if not elf.name(target).startswith(_FRAMES):
            continue
        places = {}
        for offset, _, symbol, addend in elf.relocations_in(number):
            _, _, _, section, value, _ = elf.symbol(symbol)
            places[offset] = (section, value + addend)
        for start, length in _records(elf.content(target)):
            function = places.get(start + 8)
            if function is None:  # a CIE, or another object's
                continue
            pad = next(
                (places[at] for at in range(start + 12, start + 8 + 24) if at in places and at < start + length), None
            )
            frames.append((length, function, pad))
            if pad is not None:
                pads.setdefault(pad[0], []).append(pad[1])
    sizes: dict[tuple[int, int], int] = {}
    for section, starts in pads.items():
        if section > 0 and elf.name(section).startswith(_LANDING_PADS):
            ordered = sorted(set(starts))
            for start, after in zip(ordered, [*ordered[1:], elf.headers[section][5]], strict=True):
                sizes[section, start] = max(0, after - start)
    for length, function, pad in frames:
        yield _Unwinding(function, length + (0 if pad is None else sizes.get(pad, 0)), pad is not None)


def _records(frame: memoryview) -> Iterator[tuple[int, int]]:
    """Yield where each record of a section for unwinding begins, and its bytes."""
    at = 0
    while at + 4 <= len(frame):
        (length,) = struct.unpack_from("<I", frame, at)
        if length in (0, 0xFFFFFFFF) or at + 4 + length > len(frame):
            return
        yield at, length + 4
        at += length + 4
