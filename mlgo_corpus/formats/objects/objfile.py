r"""Object files and linked binaries: their named sections, as ranges of the file's bytes.

The formats, and where they are read:

========  ============================  ======================================================
format    identity (first bytes)        section table
========  ============================  ======================================================
ELF       ``7F 45 4C 46``               here: 32 and 64 bit, either byte order, extended counts
Mach-O    ``FEEDFACE``/``FEEDFACF``     lief; a fat file (``CAFEBABE``) is cut into slices here
COFF      a known machine number        lief; also ``/bigobj`` (``00 00 FF FF``)
PE        ``MZ``, then ``PE\0\0``         lief
========  ============================  ======================================================

ELF is read here because it is nearly every object of nearly every corpus: reading two headers and one string
table takes microseconds, loading lief takes a third of a second. Field names are those of the ELF specification
(gabi, chapters 4 "Sections" and "ELF Header"). lief is the oracle of the tests.

A section's range is checked against the file before it is returned; the bytes themselves never come from lief.
In every format, a file that is shorter than its headers say raises `TruncatedError`.
"""

from __future__ import annotations

import importlib
import signal
import struct
import sys
import threading
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mlgo_corpus.errors import FormatError, TruncatedError, UnsupportedError
from mlgo_corpus.formats.buffer import Buffer


class Container(StrEnum):
    """The format of an object file or a linked binary."""

    ELF = "ELF"
    MACHO = "Mach-O"
    FAT_MACHO = "fat Mach-O"
    COFF = "COFF"
    PE = "PE"


@dataclass(frozen=True, slots=True)
class Section:
    """A named range of the file. Mach-O names are written ``SEGMENT,section``."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class ObjFile:
    """One object or linked binary: its format, whether a linker made it, and its sections in file order."""

    container: Container
    linked: bool
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class FatSlice:
    """One architecture's file inside a fat Mach-O file."""

    arch: str
    offset: int
    size: int


def identify_container(head: Buffer) -> Container | None:
    """Return the format that a file's first bytes (64 are enough) have; None for anything else."""
    head = bytes(head[:64])
    if head[:4] == b"\x7fELF":
        return Container.ELF
    if head[:4] in _MACHO_MAGICS:
        return Container.MACHO
    if head[:4] in _FAT_MAGICS and len(head) >= 8 and 0 < struct.unpack_from(">I", head, 4)[0] < _MAX_FAT_SLICES:
        return Container.FAT_MACHO
    if head[:2] == b"MZ":
        return Container.PE
    if len(head) >= _COFF_HEADER_SIZE and head[:2] in _COFF_MACHINES and head[16:18] == b"\0\0":
        return Container.COFF
    if head[:4] == b"\0\0\xff\xff" and head[12:28] == _BIGOBJ_CLASS_ID:
        return Container.COFF
    return None


def is_import_object(head: Buffer) -> bool:
    """Return True for a short import object: a member of a DLL's import library that names one symbol of the DLL."""
    head = bytes(head[:8])
    return head[:6] == b"\0\0\xff\xff\0\0" and head[6:] in _COFF_MACHINES


def parse_objfile(data: Buffer, names: Collection[str] | None = None) -> ObjFile:
    """Read the section table of an ELF, Mach-O (one architecture), COFF or PE file.

    With ``names``, only sections of these names are returned; ELF files with tens of thousands of sections
    then take little more time than small ones.

    Raises:
        TruncatedError: a header, or a section that is returned, reaches past the end of the data.
        FormatError: the headers contradict themselves.
        UnsupportedError: the data is in none of these formats.
    """
    container = identify_container(data)
    if container is Container.ELF:
        return _parse_elf(data, names)
    if container is Container.MACHO:
        return _parse_macho(data, names)
    if container in (Container.COFF, Container.PE):
        return _parse_coff(data, names, container)
    raise UnsupportedError(f"expected an ELF, Mach-O or COFF file, found {describe_head(data)}", offset=0)


@dataclass(frozen=True, slots=True)
class ObjectSizes:
    """The size of an object in memory, in bytes.

    Attributes:
        text_size: Berkeley text, as llvm-size prints it: executable sections, in ELF also all others that are loaded
            and not written to (constants, unwind tables), in Mach-O all of the segment ``__TEXT``.
        code_size: executable sections only.
    """

    text_size: int
    code_size: int


def measure_object(data: Buffer) -> ObjectSizes:
    """Measure an object file; see `ObjectSizes`. llvm-size's rules are in llvm/tools/llvm-size and llvm/lib/Object.

    Raises:
        TruncatedError: the headers reach past the end of the data.
        FormatError: the headers contradict themselves.
        UnsupportedError: the data is not an object file.
    """
    container = identify_container(data)
    if container is Container.ELF:
        return _measure_elf(data)
    if container is Container.MACHO:
        binary = _read_macho(data)
        # Reading item.flags raises if a flag is set that lief has no name for.
        flag = load_lief().MachO.Section.FLAGS.PURE_INSTRUCTIONS
        code = sum(item.size for item in binary.sections if item.has(flag))
        text = sum(item.size for item in binary.sections if macho_section_name(item).startswith("__TEXT,"))
        return ObjectSizes(text, code)
    if container is Container.COFF:
        _check_coff_extent(data)
        binary = load_lief().COFF.parse(bytes(data))
        if binary is None:
            raise FormatError("the COFF headers cannot be read", offset=0)
        flag = load_lief().PE.Section.CHARACTERISTICS.CNT_CODE
        code = sum(item.size for item in binary.sections if item.has_characteristic(flag))
        return ObjectSizes(code, code)
    raise UnsupportedError(f"expected an ELF, Mach-O or COFF object, found {describe_head(data)}", offset=0)


def _measure_elf(data: Buffer) -> ObjectSizes:
    table = elf_table(data)
    text = code = 0
    for header in table.layout.section_header.iter_unpack(table.headers):
        _, _, sh_flags, _, _, sh_size, *_ = header
        if not sh_flags & _SHF_ALLOC:
            continue
        if sh_flags & _SHF_EXECINSTR:
            code += sh_size
        if sh_flags & _SHF_EXECINSTR or not sh_flags & _SHF_WRITE:
            text += sh_size
    return ObjectSizes(text, code)


def describe_head(data: Buffer) -> str:
    """Describe bytes for an error message: ``text that begins '#include'``, ``0 bytes``, ``bytes 00 01``."""
    head = bytes(data[:24])
    if not head:
        return "0 bytes"
    if all(32 <= byte < 127 or byte in b"\t\r\n" for byte in head):
        return f"text that begins {head.decode('ascii')!r}"
    if head[:4] in _FAT_MAGICS:
        return "a Java class or another file that begins CA FE BA BE"
    if head[:4] == b"\0asm":
        return "a WebAssembly file"
    return f"bytes {head[:8].hex(' ')}"


def _checked(section: Section, total: int) -> Section:
    if section.offset + section.size > total:
        raise TruncatedError(
            f"section {section.name!r} is {section.size} bytes at {section.offset}, but the file ends at {total}",
            offset=section.offset,
        )
    return section


# ELF


@dataclass(frozen=True, slots=True)
class _ElfLayout:
    """The layout of the file header and the section headers, for one class and byte order of ELF."""

    header: struct.Struct
    section_header: struct.Struct
    word: struct.Struct


def _elf_layout(order: str, header: str, section_header: str) -> _ElfLayout:
    return _ElfLayout(struct.Struct(order + header), struct.Struct(order + section_header), struct.Struct(order + "I"))


_ELF_HEADER_32 = "16x HHIIIIIHHHHHH"
_ELF_HEADER_64 = "16x HHIQQQIHHHHHH"
_ELF_SECTION_32 = "IIIIIIIIII"
_ELF_SECTION_64 = "IIQQQQIIQQ"

# Keyed by e_ident[EI_CLASS] and e_ident[EI_DATA].
_ELF_LAYOUTS = {
    (1, 1): _elf_layout("<", _ELF_HEADER_32, _ELF_SECTION_32),
    (2, 1): _elf_layout("<", _ELF_HEADER_64, _ELF_SECTION_64),
    (1, 2): _elf_layout(">", _ELF_HEADER_32, _ELF_SECTION_32),
    (2, 2): _elf_layout(">", _ELF_HEADER_64, _ELF_SECTION_64),
}
_NATIVE_EI_DATA = 1 if sys.byteorder == "little" else 2
_ET_REL = 1
_SHT_NOBITS = 8
_SHF_WRITE = 0x1
_SHF_ALLOC = 0x2
_SHF_EXECINSTR = 0x4
_SHF_COMPRESSED = 0x800
_SHN_XINDEX = 0xFFFF
# Sections may share a name, as ".group", or the tail of one, as ".text.f" and ".rela.text.f". Long names that many
# share would take any amount of memory: all are at most so many times their table, and so many bytes more a section.
_SHARED_NAMES = 4
_USUAL_NAME = 256


@dataclass(frozen=True, slots=True)
class _ElfTable:
    """The section header table of an ELF file; ``headers`` is empty if the file has none."""

    linked: bool
    layout: _ElfLayout
    e_shoff: int
    e_shstrndx: int
    headers: memoryview


def elf_table(data: Buffer) -> _ElfTable:
    """Read an ELF file's headers.

    Raises:
        TruncatedError: the headers reach past the end of the data.
        FormatError: the headers contradict themselves.
    """
    total = len(data)
    if total < 16:
        raise TruncatedError(f"reading the ELF identification, expected 16 bytes, got {total}", offset=0)
    layout = _ELF_LAYOUTS.get((data[4], data[5]))
    if layout is None:
        raise FormatError(f"ELF class {data[4]} and data encoding {data[5]} do not exist", offset=4)
    if total < layout.header.size:
        raise TruncatedError(f"reading the ELF header, expected {layout.header.size} bytes, got {total}", offset=0)
    e_type, _, _, _, _, e_shoff, _, _, _, _, e_shentsize, e_shnum, e_shstrndx = layout.header.unpack_from(data)
    linked = e_type != _ET_REL
    if e_shoff == 0:
        return _ElfTable(linked, layout, 0, 0, memoryview(b""))
    entry = layout.section_header.size
    if e_shentsize != entry:
        raise FormatError(f"e_shentsize is {e_shentsize}, expected {entry}", offset=0)
    if e_shoff + entry > total:
        raise TruncatedError(
            f"reading the section header table at {e_shoff}, but the file ends at {total}", offset=e_shoff
        )
    if e_shnum == 0 or e_shstrndx == _SHN_XINDEX:  # the true numbers are in section header 0
        _, _, _, _, _, sh_size, sh_link, _, _, _ = layout.section_header.unpack_from(data, e_shoff)
        e_shnum = e_shnum or sh_size
        e_shstrndx = sh_link if e_shstrndx == _SHN_XINDEX else e_shstrndx
    table_end = e_shoff + e_shnum * entry
    if table_end > total:
        raise TruncatedError(
            f"reading {e_shnum} section headers at {e_shoff}, expected {e_shnum * entry} bytes, got {total - e_shoff}",
            offset=e_shoff,
        )
    return _ElfTable(linked, layout, e_shoff, e_shstrndx, memoryview(data)[e_shoff:table_end])


def _parse_elf(data: Buffer, names: Collection[str] | None) -> ObjFile:
    total = len(data)
    table = elf_table(data)
    linked, layout, headers, e_shoff, e_shstrndx = (
        table.linked,
        table.layout,
        table.headers,
        table.e_shoff,
        table.e_shstrndx,
    )
    entry = layout.section_header.size
    e_shnum = len(headers) // entry
    if e_shstrndx == 0:  # SHN_UNDEF: sections have no names
        return ObjFile(Container.ELF, linked, ())
    if e_shstrndx >= e_shnum:
        raise FormatError(f"e_shstrndx is {e_shstrndx}, but there are {e_shnum} sections", offset=e_shoff)
    strings = layout.section_header.unpack_from(data, e_shoff + e_shstrndx * entry)
    _checked(Section(".shstrtab", strings[4], strings[5]), total)
    name_table = bytes(data[strings[4] : strings[4] + strings[5]])
    left = _SHARED_NAMES * len(name_table) + _USUAL_NAME * e_shnum

    sections = []
    for index in _elf_candidates(headers, layout, data[5], name_table, names):
        sh_name, sh_type, sh_flags, _, sh_offset, sh_size, *_ = layout.section_header.unpack_from(
            headers, index * entry
        )
        end = name_table.find(b"\0", sh_name)
        if end < 0:
            raise FormatError(
                f"the name of section {index} is at {sh_name}, outside its string table",
                offset=e_shoff + index * entry,
            )
        left -= end - sh_name
        if left < 0:
            message = f"too many sections share long names: section {index} one of {end - sh_name} bytes"
            raise FormatError(message, offset=e_shoff + index * entry)
        name = name_table[sh_name:end].decode("utf-8", "replace")
        if names is not None and name not in names:
            continue
        section = Section(name, sh_offset, 0 if sh_type == _SHT_NOBITS else sh_size)
        if names is not None:
            if sh_flags & _SHF_COMPRESSED:
                raise UnsupportedError(f"section {name!r} is compressed (SHF_COMPRESSED)", offset=sh_offset)
            _checked(section, total)
        sections.append(section)
    return ObjFile(Container.ELF, linked, tuple(sections))


def _elf_candidates(
    headers: memoryview, layout: _ElfLayout, ei_data: int, name_table: bytes, names: Collection[str] | None
) -> Collection[int]:
    """Return the numbers of sections whose ``sh_name`` may mean one of the names; without names, of all sections.

    A name can be at several places of the table, also as the tail of a longer one.
    """
    entry = layout.section_header.size
    if names is None:
        return range(len(headers) // entry)
    places = set()
    for name in names:
        encoded = name.encode() + b"\0"
        at = name_table.find(encoded)
        while at >= 0:
            places.add(at)
            at = name_table.find(encoded, at + 1)
    if not places:
        return ()
    if ei_data == _NATIVE_EI_DATA:  # every sh_name in one strided read
        sh_names = headers.cast("I")[:: entry // 4].tolist()
    else:
        sh_names = [layout.word.unpack_from(headers, at)[0] for at in range(0, len(headers), entry)]
    return [index for index, sh_name in enumerate(sh_names) if sh_name in places]


# Mach-O

_MACHO_MAGICS = (b"\xce\xfa\xed\xfe", b"\xcf\xfa\xed\xfe", b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf")
_MACHO_HEADER_SIZE = {b"\xce": 28, b"\xcf": 32}
_MH_OBJECT = 1
_FAT_MAGICS = (b"\xca\xfe\xba\xbe", b"\xca\xfe\xba\xbf")
# A Java class file begins with CAFEBABE too, and has its version (45 and up) where a fat file has the number of slices.
_MAX_FAT_SLICES = 30
_MACHO_CPUS = {
    (7, 3): "i386",
    (12, 9): "armv7",
    (12, 11): "armv7s",
    (0x0100_0007, 3): "x86_64",
    (0x0100_0007, 8): "x86_64h",
    (0x0100_000C, 0): "arm64",
    (0x0100_000C, 2): "arm64e",
    (0x0200_000C, 1): "arm64_32",
}


def parse_fat(data: Buffer) -> tuple[FatSlice, ...]:
    """Read the slices of a fat Mach-O file (``mach-o/fat.h``; 32 and 64 bit forms, always big-endian)."""
    wide = data[3] == 0xBF
    form = struct.Struct(">IIQQII" if wide else ">IIIII")
    (count,) = struct.unpack_from(">I", data, 4)
    if 8 + count * form.size > len(data):
        raise TruncatedError(
            f"reading {count} fat_arch entries, expected {8 + count * form.size} bytes, got {len(data)}",
            offset=8,
        )
    slices = []
    for index in range(count):
        cputype, cpusubtype, offset, size, *_ = form.unpack_from(data, 8 + index * form.size)
        subtype = cpusubtype & 0x00FF_FFFF  # the top byte holds capability bits
        arch = _MACHO_CPUS.get((cputype, subtype), f"cpu{cputype:x}.{subtype}")
        _checked(Section(arch, offset, size), len(data))
        slices.append(FatSlice(arch, offset, size))
    end = 8 + count * form.size
    for item in sorted(slices, key=lambda item: item.offset):
        if item.offset < end:
            raise FormatError(f"the slice for {item.arch} overlaps another, or the header", offset=item.offset)
        end = item.offset + item.size
    return tuple(slices)


def _parse_macho(data: Buffer, names: Collection[str] | None) -> ObjFile:
    binary = _read_macho(data)
    found = (Section(macho_section_name(item), item.offset, item.size) for item in binary.sections if item.offset)
    (filetype,) = struct.unpack_from(">I" if data[0] == 0xFE else "<I", data, 12)
    return ObjFile(Container.MACHO, filetype != _MH_OBJECT, _wanted(found, names, len(data)))


def macho_section_name(section: Any) -> str:
    """Return the name of one of lief's sections, with its segment's.

    Raises:
        FormatError: it is not text.
    """
    try:
        return f"{section.segment_name},{section.name}"
    except UnicodeDecodeError as error:
        raise FormatError(f"a section's name is not text: {error.object!r}", offset=0) from None


def _read_macho(data: Buffer) -> Any:
    """Parse a file with lief, after a check that it is as long as its headers say."""
    total = len(data)
    swapped = data[0] == 0xFE
    size = _MACHO_HEADER_SIZE[bytes(data[3:4] if swapped else data[0:1])]
    if total < size:
        raise TruncatedError(f"reading the Mach-O header, expected {size} bytes, got {total}", offset=0)
    (sizeofcmds,) = struct.unpack_from(">I" if swapped else "<I", data, 20)
    if size + sizeofcmds > total:
        raise TruncatedError(f"reading {sizeofcmds} bytes of load commands, the file ends at {total}", offset=size)
    fat = load_lief().MachO.parse(bytes(data))
    if fat is None or len(fat) == 0:
        raise FormatError("the Mach-O load commands cannot be read", offset=0)
    binary = fat.at(0)
    if binary.has_symbol_command:
        symbols = binary.symbol_command
        wanted = max(
            symbols.symbol_offset + symbols.numberof_symbols * (16 if size == 32 else 12),
            symbols.strings_offset + symbols.strings_size,
        )
        if wanted > total:
            raise TruncatedError(
                f"the symbol table reaches to {wanted}, but the file ends at {total}",
                offset=symbols.symbol_offset,
            )
    return binary


# COFF and PE

# IMAGE_FILE_MACHINE_*: AMD64, I386, ARM64, ARM64EC, ARM64X, ARM, ARMNT
_COFF_MACHINES = tuple(struct.pack("<H", machine) for machine in (0x8664, 0x14C, 0xAA64, 0xA641, 0xA64E, 0x1C0, 0x1C4))
_COFF_HEADER_SIZE = 20
_BIGOBJ_HEADER_SIZE = 56
_BIGOBJ_CLASS_ID = bytes.fromhex("c7a1bad1eebaa94baf20faf66aa4dcb8")
_SECTION_HEADER_SIZE = 40


def _parse_coff(data: Buffer, names: Collection[str] | None, container: Container) -> ObjFile:
    total = len(data)
    if container is Container.PE:
        binary = load_lief().PE.parse(bytes(data)) if _is_pe(data) else None
        if binary is None:
            raise UnsupportedError("an MZ file without a PE header that can be read", offset=0)
        # On disk a PE section is padded to the file alignment; its virtual size is the size of its contents.
        found = (
            Section(_coff_name(item), item.offset, min(item.size, item.virtual_size or item.size))
            for item in binary.sections
        )
        return ObjFile(container, linked=True, sections=_wanted(found, names, total))
    _check_coff_extent(data)
    binary = load_lief().COFF.parse(bytes(data))
    if binary is None:
        raise FormatError("the COFF headers cannot be read", offset=0)
    found = (Section(_coff_name(item), item.offset, item.size) for item in binary.sections)
    return ObjFile(container, linked=False, sections=_wanted(found, names, total))


def _is_pe(data: Buffer) -> bool:
    if len(data) < 64:
        return False
    (e_lfanew,) = struct.unpack_from("<I", data, 60)
    return bytes(data[e_lfanew : e_lfanew + 4]) == b"PE\0\0"


def _check_coff_extent(data: Buffer) -> None:
    """Check that the section headers, the symbol table and the string table after it are within the file."""
    total = len(data)
    if data[0:4] == b"\0\0\xff\xff":
        if total < _BIGOBJ_HEADER_SIZE:
            raise TruncatedError(f"reading the bigobj header, expected 56 bytes, got {total}", offset=0)
        sections, symbols_at, symbols = struct.unpack_from("<III", data, 44)
        header_end, symbol_size = _BIGOBJ_HEADER_SIZE, 20
    else:
        (sections,) = struct.unpack_from("<H", data, 2)
        symbols_at, symbols = struct.unpack_from("<II", data, 8)
        header_end, symbol_size = _COFF_HEADER_SIZE, 18
    table_end = header_end + sections * _SECTION_HEADER_SIZE
    if table_end > total:
        raise TruncatedError(
            f"reading {sections} section headers, expected {table_end} bytes, got {total}", offset=header_end
        )
    if not symbols_at:
        return
    strings_at = symbols_at + symbols * symbol_size
    if strings_at + 4 > total:
        raise TruncatedError(
            f"reading {symbols} symbols at {symbols_at}, but the file ends at {total}", offset=symbols_at
        )
    (strings_size,) = struct.unpack_from("<I", data, strings_at)
    if strings_at + strings_size > total:
        raise TruncatedError(
            f"reading a string table of {strings_size} bytes, but the file ends at {total}", offset=strings_at
        )


def _coff_name(item: Any) -> str:
    """Return the section's name; one of more than eight bytes is in the string table, which lief resolves."""
    long_name = getattr(item, "coff_string", None)
    try:
        return str(long_name.string if long_name is not None else item.name).rstrip("\0")
    except UnicodeDecodeError as error:
        return error.object.decode("utf-8", "backslashreplace").rstrip("\0")


# lief


def _wanted(found: Any, names: Collection[str] | None, total: int) -> tuple[Section, ...]:
    if names is None:
        return tuple(found)
    return tuple(_checked(section, total) for section in found if section.name in names)


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """Let signals that ask the program to end wait for the end of the block.

    To block them would not do: the threads of other libraries get them then, and the main thread handles them anyway.
    """
    came: list[int] = []
    handlers: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():  # the only one that handles signals
            for asking in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if callable(handler := signal.getsignal(asking)):
                    handlers[asking] = handler
                    signal.signal(asking, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)


def load_lief() -> Any:
    """Import lief, which takes a third of a second, and silence its messages on stderr."""
    if "lief" not in sys.modules:
        with _signals_held_back():  # an exception while it is initialised, as of Ctrl-C, would abort the process
            importlib.import_module("lief")
    import lief

    lief.logging.disable()
    # Its enumerations warn of numbers that they have no name for; files may contain any number.
    warnings.filterwarnings("ignore", r"\S+ is not a valid \w+\.", RuntimeWarning)
    return lief
