"""Symbols of object files: the places and sizes of functions, and what a linker resolves.

=======  ===========  ==========================================================================================
format   table        a symbol's size
=======  ===========  ==========================================================================================
ELF      ``.symtab``  ``st_size``, which the compiler writes: without padding
Mach-O   lief         up to the next symbol of the section, or its end: with padding
COFF     lief         up to the next symbol of the section, or its end: with padding
=======  ===========  ==========================================================================================

ELF is read by `mlgo_corpus.formats.objects.elf`. ``llvm-nm --print-size`` is the oracle of the tests. Sizes are of code
alone: data for unwinding, relocation and debugging is not included.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, NamedTuple

from mlgo_corpus.errors import UnsupportedError
from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.objects.elf import (
    SHF_EXECINSTR,
    STB_LOCAL,
    STT_FUNC,
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

LOCAL: Final = "local"
GLOBAL: Final = "global"
WEAK: Final = "weak"


class Symbol(NamedTuple):
    """A symbol that is defined in a section.

    Attributes:
        name: as in the table: with ``_`` before a C name in Mach-O.
        section: the section's number in the file; two sections may have one name.
        value: its offset in the section.
        size: in bytes.
        binding: `LOCAL`, `GLOBAL` or `WEAK`.
        is_code: whether it is a function; in COFF and Mach-O, whether its section holds code. In ELF so is a label
            without a type that has a size there: so LLVM writes the parts of basic block sections.
    """

    name: str
    section: int
    value: int
    size: int
    binding: str
    is_code: bool


def parse_symbols(data: Buffer) -> tuple[Symbol, ...]:
    """Read the symbols that are defined in an object's sections, in the order of its table.

    Sections' own symbols and files' names are left out.

    Raises:
        TruncatedError: the table reaches past the end of the data.
        FormatError: the headers contradict themselves.
        UnsupportedError: the data is not an ELF, Mach-O or COFF object.
    """
    container = identify_container(data)
    if container is Container.ELF:
        return elf_symbols(ElfObject(data))
    if container is Container.MACHO:
        parse_objfile(data)  # checks that the tables are complete
        return _macho_symbols(data)
    if container is Container.COFF:
        parse_objfile(data)
        return _coff_symbols(data)
    raise UnsupportedError(f"expected an ELF, Mach-O or COFF object, found {describe_head(data)}", offset=0)


# --- ELF

_STT_NOTYPE = 0
_STT_FILE = 4
_STT_GNU_IFUNC = 10
_STB_GLOBAL = 1
_FUNCTIONS = frozenset({STT_FUNC, _STT_GNU_IFUNC})
_NO_SYMBOLS = frozenset({STT_SECTION, _STT_FILE})
_BINDINGS = {0: LOCAL, 1: GLOBAL, 2: WEAK, 10: GLOBAL}


def elf_symbols(elf: ElfObject) -> tuple[Symbol, ...]:
    """Return the symbols of an ELF object, as `parse_symbols` does."""
    return tuple(
        Symbol(
            string_at(elf.strings, at).decode("utf-8", "surrogateescape"),
            section,
            value,
            size,
            _BINDINGS.get(info >> 4, LOCAL),
            kind in _FUNCTIONS or (kind == _STT_NOTYPE and size > 0 and elf.headers[section][2] & SHF_EXECINSTR > 0),
        )
        for at, info, _, section, value, size in elf.rows
        if section > 0 and (kind := info & 15) not in _NO_SYMBOLS
    )


class LinkedNames(NamedTuple):
    """What an object tells a linker.

    Attributes:
        defined: the names that it defines for others, in the order of its table.
        needed: the names that others must define, in the order of its table.
    """

    defined: tuple[str, ...]
    needed: tuple[str, ...]


def linked_names(data: Buffer) -> LinkedNames:
    """Return the names that an ELF object defines and needs.

    A name that is undefined and weak is not needed. A common symbol is defined.

    Raises:
        TruncatedError: the table reaches past the end of the data.
        FormatError: the headers contradict themselves.
        UnsupportedError: the data is not an ELF object.
    """
    if identify_container(data) is not Container.ELF:
        raise UnsupportedError(f"expected an ELF object, found {describe_head(data)}", offset=0)
    elf = ElfObject(data)
    bindings, undefined = elf.symbols["info"] >> 4, elf.symbols["section"] == 0
    chosen = ((bindings != STB_LOCAL) & ~undefined, (bindings == _STB_GLOBAL) & undefined)
    names = (elf.symbols["name"][one].tolist() for one in chosen)
    return LinkedNames(
        *(tuple(string_at(elf.strings, at).decode("utf-8", "surrogateescape") for at in one) for one in names)
    )


# --- Mach-O and COFF, which have no sizes

_N_STAB = 0xE0
_N_TYPE = 0x0E
_N_SECT = 0x0E
_N_EXT = 0x01
_N_WEAK_DEF = 0x0080
_IMAGE_SYM_CLASS_EXTERNAL = 2
_IMAGE_SYM_CLASS_STATIC = 3
_IMAGE_SYM_CLASS_WEAK_EXTERNAL = 105


def _macho_symbols(data: Buffer) -> tuple[Symbol, ...]:
    lief = load_lief()
    binary = lief.MachO.parse(bytes(data)).at(0)
    # Reading section.flags raises if a flag is set that lief has no name for.
    instructions = (lief.MachO.Section.FLAGS.PURE_INSTRUCTIONS, lief.MachO.Section.FLAGS.SOME_INSTRUCTIONS)
    ends = {}
    code = set()
    for number, section in enumerate(binary.sections, 1):
        ends[number] = section.virtual_address + section.size
        if macho_section_name(section).endswith(",__text") or any(map(section.has, instructions)):
            code.add(number)
    rows = []
    for symbol in binary.symbols:
        kind = int(symbol.raw_type)
        section = int(symbol.numberof_sections)
        if kind & _N_STAB or kind & _N_TYPE != _N_SECT or section not in ends:
            continue
        weak = int(symbol.description) & _N_WEAK_DEF
        binding = WEAK if weak and kind & _N_EXT else GLOBAL if kind & _N_EXT else LOCAL
        rows.append((_name(symbol), section, int(symbol.value), binding, section in code))
    return _up_to_next(rows, ends)


def _coff_symbols(data: Buffer) -> tuple[Symbol, ...]:
    lief = load_lief()
    binary = lief.COFF.parse(bytes(data))
    flag = lief.PE.Section.CHARACTERISTICS.CNT_CODE
    ends = {}
    code = set()
    names = {}
    for number, section in enumerate(binary.sections, 1):
        ends[number] = int(section.size)
        names[number] = _name(section)
        if section.has_characteristic(flag):
            code.add(number)
    classes = {
        _IMAGE_SYM_CLASS_EXTERNAL: GLOBAL,
        _IMAGE_SYM_CLASS_STATIC: LOCAL,
        _IMAGE_SYM_CLASS_WEAK_EXTERNAL: WEAK,
    }
    rows = []
    for symbol in binary.symbols:
        section = int(symbol.section_idx)
        binding = classes.get(int(symbol.storage_class))
        if section not in ends or binding is None:
            continue
        name = _name(symbol)
        if binding == LOCAL and name == names[section] and int(symbol.value) == 0:
            continue  # the section's own
        rows.append((name, section, int(symbol.value), binding, section in code))
    return _up_to_next(rows, ends)


def _name(item: Any) -> str:
    """Return the name of one of lief's items, which is bytes or raises an error if it is not UTF-8."""
    try:
        name = item.name
    except UnicodeDecodeError as error:
        name = error.object
    return name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else str(name)


def _up_to_next(rows: Iterable[tuple[str, int, int, str, bool]], ends: Mapping[int, int]) -> tuple[Symbol, ...]:
    rows = list(rows)
    sizes: dict[tuple[int, int], int] = {}
    places = sorted({(section, value) for _, section, value, _, _ in rows})
    for (section, value), (next_section, next_value) in pairwise([*places, (0, 0)]):
        end = next_value if next_section == section else ends[section]
        sizes[section, value] = max(0, end - value)
    return tuple(
        Symbol(name, section, value, sizes[section, value], binding, is_code)
        for name, section, value, binding, is_code in rows
    )


# --- sizes of functions


class LabelStatus(StrEnum):
    """What became of a function in the object.

    Attributes:
        OK: it has a symbol of its own; its size is known.
        MERGED: it has a symbol at the same place as another function's: they are one (identical functions, aliases).
            The size is that of the one.
        ELIMINATED: it has no symbol any more: later passes removed it, or found no use for it.
        NOT_EMITTED: its linkage is ``available_externally``: its code is in another object.
        NO_SYMBOL: its linkage is ``private``: if it is in the object, then without a name.
    """

    OK = "ok"
    MERGED = "merged"
    ELIMINATED = "eliminated"
    NOT_EMITTED = "not_emitted"
    NO_SYMBOL = "no_symbol"


@dataclass(frozen=True, slots=True)
class Label:
    """The size of one function.

    Attributes:
        status: what became of the function.
        size: in bytes, with its fragments; None if it has no symbol.
        fragments: the number of symbols counted with its own.
        again: whether its bytes are those of a function before it, with which it is merged.
    """

    status: LabelStatus
    size: int | None
    fragments: int = 0
    again: bool = False


# The suffixes by which later passes name a part of a function: hot-cold splitting (cold, and its number), machine
# function splitting and basic block sections (cold, exception, __part), partial inlining's and the code extractor's
# names, coroutines' parts.
_FRAGMENT = re.compile(
    r"(?:cold|eh|__part|part|unlikely|split|exit|extracted|resume|destroy|cleanup|specialized)(?:\.\d+)*(?:\.\w+)?"
)


def object_name(name: str, data_layout: str) -> str:
    """Return a function's symbol name: Mach-O and 32-bit Windows put ``_`` before it, unless it begins with byte 1."""
    if name.startswith("\1"):
        return name[1:]
    return f"_{name}" if re.search(r"(?:^|-)m:[ox](?:-|$)", data_layout) else name


def label_functions(
    names: Sequence[str], linkages: Sequence[str], symbols: Sequence[Symbol], data_layout: str = ""
) -> tuple[Label, ...]:
    """Find the bytes of functions in an object.

    Args:
        names: the functions' names in the IR.
        linkages: the functions' linkages, as LLVM prints them.
        symbols: of the object, as `parse_symbols` returns them.
        data_layout: the module's, which determines how names are written.
    """
    wanted = {object_name(name, data_layout): number for number, name in enumerate(names)}
    own: dict[int, Symbol] = {}
    fragments: dict[int, list[int]] = {}
    for symbol in symbols:
        if symbol.name in wanted:
            own[wanted[symbol.name]] = symbol
        elif symbol.is_code and (number := _fragment_of(symbol.name, wanted)) is not None:
            fragments.setdefault(number, []).append(symbol.size)
    sharing: dict[tuple[int, int], int] = {}
    for symbol in own.values():
        if symbol.size:
            sharing[symbol.section, symbol.value] = sharing.get((symbol.section, symbol.value), 0) + 1
    labels = []
    seen: set[tuple[int, int]] = set()
    for number, linkage in enumerate(linkages):
        found = own.get(number)
        if found is None:
            status = {
                "available_externally": LabelStatus.NOT_EMITTED,
                "private": LabelStatus.NO_SYMBOL,
            }.get(linkage, LabelStatus.ELIMINATED)
            labels.append(Label(status, None))
            continue
        place = (found.section, found.value)
        status = LabelStatus.MERGED if sharing.get(place, 0) > 1 else LabelStatus.OK
        more = fragments.get(number, [])
        labels.append(Label(status, found.size + sum(more), len(more), again=found.size > 0 and place in seen))
        seen.add(place)
    return tuple(labels)


def _fragment_of(name: str, wanted: Mapping[str, int]) -> int | None:
    whole, dot, _ = name.rpartition(".")
    while dot:
        if whole in wanted and _FRAGMENT.fullmatch(name[len(whole) + 1 :]):
            return wanted[whole]
        whole, dot, _ = whole.rpartition(".")
    return None
