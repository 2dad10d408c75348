"""The bytes that each function takes in an object: its code, and what goes with it when it goes.

Of ELF these are the function's symbols, its entry for unwinding (an FDE of ``.eh_frame``; DWARF 5, section 6.4.1) and
its table of landing pads (``.gcc_except_table``, which the FDE's augmentation points to). All of them are text as
``llvm-size`` counts it. What several functions share, such as constants and jump tables, is nobody's. Of Mach-O and
COFF, code alone is counted.

A compiler knows functions by their names in the IR. Where an object has several names for one place, only one of them
is a function's: an out-of-line constructor ``_ZN1AC2Ev`` has the alias ``_ZN1AC1Ev``. And Mach-O and 32-bit Windows put
``_`` before each name.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.objects.elf import ElfObject
from mlgo_corpus.formats.objects.objfile import Container, identify_container
from mlgo_corpus.formats.objects.symbols import Symbol, elf_symbols, parse_symbols

_FRAMES: Final = b".eh_frame"
_LANDING_PADS: Final = b".gcc_except_table"
_I386: Final = b"\x4c\x01"


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
    names = names or {}
    found: dict[str, int] = {}
    places: dict[tuple[int, int], str] = {}
    elf = ElfObject.little64(data)
    symbols = filter(_is_function, parse_symbols(data) if elf is None else elf_symbols(elf))
    for symbol in sorted(symbols, key=lambda symbol: (symbol.name not in names, symbol)):
        name = names.get(symbol.name, symbol.name)
        if places.setdefault((symbol.section, symbol.value), name) == name:
            found[name] = found.get(name, 0) + symbol.size
    if elf is not None:
        for place, size, _ in iter_unwinding(elf):
            if (owner := places.get(place)) is not None:
                found[owner] += size
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
