"""The bytes that each function takes in an object: its code, and what goes with it when it goes.

Of ELF these are the function's symbols, its entry for unwinding (an FDE of ``.eh_frame``; DWARF 5, section 6.4.1) and
its table of landing pads (``.gcc_except_table``, which the FDE's augmentation points to). All of them are text as
``llvm-size`` counts it. What several functions share, such as constants and jump tables, is nobody's. Of Mach-O and
COFF, code alone is counted.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import numpy as np

from mlgo_corpus.errors import FormatError
from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.objects.objfile import Container, elf_table, identify_container
from mlgo_corpus.formats.objects.symbols import Symbol, parse_symbols

_SHT_RELA: Final = 4
_FRAMES: Final = b".eh_frame"
_LANDING_PADS: Final = b".gcc_except_table"
_RELA = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_SHN_LORESERVE = 0xFF00


def function_footprints(data: Buffer) -> dict[str, int]:
    """Return the bytes of text of each function of an object, by its symbol.

    Functions at one place count once, under the name that sorts first. Of ELF other than 64-bit little-endian, code
    alone is counted.

    Raises:
        FormatError: the data is no object, or damaged.
    """
    found: dict[str, int] = {}
    places: dict[tuple[int, int], str] = {}
    for symbol in sorted(filter(_is_function, parse_symbols(data))):
        if places.setdefault((symbol.section, symbol.value), symbol.name) == symbol.name:
            found[symbol.name] = found.get(symbol.name, 0) + symbol.size
    if identify_container(data) is Container.ELF and data[4] == 2 and data[5] == 1:
        for place, size in _unwinding(data):
            if (name := places.get(place)) is not None:
                found[name] += size
    return found


def _is_function(symbol: Symbol) -> bool:
    return symbol.is_code and symbol.size > 0


def _unwinding(data: Buffer) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield the place of each function that has an FDE, and the bytes of this and of its table of landing pads."""
    table = elf_table(data)
    headers = list(table.layout.section_header.iter_unpack(table.headers))
    whole = memoryview(data)

    def content(number: int) -> memoryview:
        offset, size = headers[number][4], headers[number][5]
        if offset + size > len(whole):
            raise FormatError(f"section {number} reaches past the end of the file", offset=offset)
        return whole[offset : offset + size]

    names = bytes(content(table.e_shstrndx)) if table.e_shstrndx < len(headers) else b""
    pads: dict[int, list[int]] = {}
    frames: list[tuple[int, int, tuple[int, int], tuple[int, int] | None]] = []
    for number, header in enumerate(headers):
        if header[1] != _SHT_RELA or header[9] != _RELA.itemsize or header[7] >= len(headers):
            continue
        target, symbols = header[7], header[6]
        if not _name(names, headers[target][0]).startswith(_FRAMES) or symbols >= len(headers):
            continue
        frame = content(target)
        entries_of = content(number)
        relocations = np.frombuffer(entries_of[: len(entries_of) // _RELA.itemsize * _RELA.itemsize], _RELA)
        named = content(symbols)
        entries = np.frombuffer(named[: len(named) // _SYMBOL.itemsize * _SYMBOL.itemsize], _SYMBOL)
        places = {}
        if len(relocations) and int(relocations["symbol"].max()) < len(entries):
            of = entries[relocations["symbol"]]
            inside = of["section"] < _SHN_LORESERVE
            values = (of["value"].astype(np.int64) + relocations["addend"]).tolist()
            offsets, sections = relocations["offset"].tolist(), of["section"].tolist()
            places = {
                offset: (section, value)
                for offset, section, value, good in zip(offsets, sections, values, inside.tolist(), strict=True)
                if good
            }
        for start, length in _records(frame):
            function = places.get(start + 8)
            if function is None:  # a CIE, or another object's
                continue
            pad = next(
                (places[at] for at in range(start + 12, start + 8 + 24) if at in places and at < start + length), None
            )
            frames.append((start, length, function, pad))
            if pad is not None:
                pads.setdefault(pad[0], []).append(pad[1])
    sizes: dict[tuple[int, int], int] = {}
    for section, starts in pads.items():
        if 0 < section < len(headers) and _name(names, headers[section][0]).startswith(_LANDING_PADS):
            ordered = sorted(set(starts))
            for start, after in zip(ordered, [*ordered[1:], headers[section][5]], strict=True):
                sizes[section, start] = max(0, after - start)
    for _, length, function, pad in frames:
        yield function, length + (0 if pad is None else sizes.get(pad, 0))


def _records(frame: memoryview) -> Iterator[tuple[int, int]]:
    """Yield where each record of a section for unwinding begins, and its bytes."""
    at = 0
    while at + 4 <= len(frame):
        (length,) = struct.unpack_from("<I", frame, at)
        if length in (0, 0xFFFFFFFF) or at + 4 + length > len(frame):
            return
        yield at, length + 4
        at += length + 4


def _name(names: bytes, at: int) -> bytes:
    return names[at : names.find(b"\0", at)]
