"""The functions of a bitcode module, each with a hash of what it does, read without LLVM (17 to 22).

Two functions have the same hash if they have the same body, whatever else is in their modules: other types,
global values, constants, attributes, debug information, in any order and any encoding. Bodies that differ in an
instruction, an operand, a constant, a type, a flag or an alignment have different hashes (except for collisions of
64 bits). The rule is that of `formats.ir.text.body_digest`, which compares the text that LLVM prints:

- Metadata, debug information, attributes and the function's own header are ignored.
- Locals and blocks have no names here; global values and arguments are numbered by their first use in the body.
  Names that begin with ``llvm.`` are hashed: different intrinsics differ.

Four rules differ from those for text:

- A named struct is represented by the types of its fields. In the text its name is numbered, so there functions
  differ by which of two like structs they use, and not by a struct's contents. A struct's layout is part of what code
  does; a name is not, and may get another suffix in the next module.
- Attributes of a call's arguments (``noundef``, ``dereferenceable(8)``), which the text shows, are ignored: a
  compiler adds them depending on what it happens to know, for example whether a type is complete.
- A first block that has a name is printed with it; here it is like any first block.
- Metadata arguments, such as the rounding mode of ``llvm.experimental.constrained.fadd`` or the name in
  ``llvm.read_register``, are ignored, also where the text has them as strings.

So functions that are equal as text have equal hashes, except for the first of these.

A record with an unknown code, from an LLVM after 22, is hashed unchanged and assumed to be an instruction without
a value: then equal bodies may have different hashes.

`records` reads records, `values` resolves the numbers in them, and `bodies` has the rule for instructions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from mlgo_corpus.errors import FormatError, TruncatedError, UnsupportedError
from mlgo_corpus.formats.bitcode.bodies import (
    BUNDLE_TAGS_BLOCK_ID,
    CONSTANTS_BLOCK_ID,
    SYNC_SCOPES_BLOCK_ID,
    FunctionReader,
)
from mlgo_corpus.formats.bitcode.headers import Extent, iter_extents
from mlgo_corpus.formats.bitcode.records import (
    BLOCKINFO_BLOCK_ID,
    ENTER,
    Block,
    iter_records,
    iter_top_level,
    read_blockinfo,
)
from mlgo_corpus.formats.bitcode.values import Types, Values, digest
from mlgo_corpus.formats.buffer import Buffer

_MODULE_BLOCK_ID, _FUNCTION_BLOCK_ID, _TYPE_BLOCK_ID, _STRTAB_BLOCK_ID, _SYMTAB_BLOCK_ID = 8, 12, 17, 23, 25
_VERSION, _GLOBALVAR, _FUNCTION, _ALIAS_OLD, _ALIAS, _IFUNC = 1, 7, 8, 9, 14, 18
_BLOB = 1

_INTRINSIC = b"llvm."
_DEBUG_INTRINSICS = (b"llvm.dbg.", b"llvm.pseudoprobe")
_MAX_OVERLAP = 16  # names may have this many times the size of their string table in all

# Linkages that are not listed are external, as in LLVM.
_LINKAGES: Final = {
    **dict.fromkeys((1, 16), "weak"),
    **dict.fromkeys((10, 17), "weak_odr"),
    **dict.fromkeys((4, 18), "linkonce"),
    **dict.fromkeys((11, 19), "linkonce_odr"),
    **dict.fromkeys((9, 13, 14), "private"),
    2: "appending",
    3: "internal",
    7: "extern_weak",
    8: "common",
    12: "available_externally",
}

# llvm/Object/IRSymtab.h: a version, the offset and the number of the symbols, and six words for each symbol.
_SYMTAB_VERSION = 3
_SYMBOLS = 7  # position of the word in the header
_SYMBOL_WORDS = 6
_IR_NAME_SIZE, _FLAGS = 3, 5
_UNDEFINED, _INDIRECT, _EXECUTABLE = 1 << 3, 1 << 6, 1 << 13


class DefinedFunction(NamedTuple):
    """A function with a body.

    Attributes:
        name: with bytes that are not UTF-8 as lone surrogates.
        linkage: one of `formats.ir.text.LINKAGES`.
        instructions: their number, without debug information.
        body_hash: 64 bits; equal for equal bodies.
    """

    name: str
    linkage: str
    instructions: int
    body_hash: int


def read_functions(data: Buffer) -> tuple[DefinedFunction, ...]:
    """Read the functions with bodies of a bitcode file, raw or wrapped, in the order of the file.

    Of several concatenated files only the first is read (`iter_extents` separates them); of a file with several
    modules all are.

    Raises:
        FormatError: the bytes are not bitcode, or end too early; has the offset.
        UnsupportedError: the bitcode has no string table, as LLVM wrote it before version 5.
    """
    return tuple(
        function
        for content, module, origin, names in _named_modules(data)
        for function in _read_module(content, module, origin, names)
    )


def function_names(data: Buffer) -> tuple[str, ...]:
    """Read the names of the functions with bodies, as `read_functions` does, but not the bodies.

    Raises:
        FormatError: the bytes are not bitcode, or end too early; has the offset.
        UnsupportedError: the bitcode has no string table, as LLVM wrote it before version 5.
    """
    found: list[str] = []
    for content, module, origin, names in _named_modules(data):
        for code, record in iter_records(content, module, [], origin):
            if code == _FUNCTION and len(record) >= 6 and not record[4]:
                found.append(names.read(*record[:2]).decode("utf-8", "surrogateescape"))
            elif code == _VERSION and record[:1] < [2]:
                raise UnsupportedError("a module whose names are not in a string table", offset=module.start)
    return tuple(found)


def _named_modules(data: Buffer) -> Iterator[tuple[bytes, Block, int, _Names]]:
    """Yield the modules of a file: its content, the module's block, the file's beginning, and the names."""
    extent = _first(data)
    content = bytes(data[: extent.payload_stop])
    origin = extent.payload_start
    modules: list[Block] = []
    for block in iter_top_level(content, origin, extent.payload_stop):
        if block.block_id == _MODULE_BLOCK_ID:
            modules.append(block)
        elif block.block_id == _STRTAB_BLOCK_ID:
            # A string table belongs to the modules before it that have none yet.
            start, stop = _find_blob(content, block, origin)
            names = _Names(content[start:stop])
            for module in modules:
                yield content, module, origin, names
            modules = []
    if modules:
        raise UnsupportedError("a module without a string table", offset=modules[0].start)


def count_functions(data: Buffer) -> int | None:
    """Count the functions with bodies, in all modules of a file, by its symbol table alone.

    Return None if it has no symbol table (LLVM writes none for an unknown target), or one of another version.
    The number is that of `read_functions`, with two exceptions: functions that are ``available_externally`` are not
    counted, because a linker sees them as undefined; an ``ifunc`` is counted, because it looks like a function here.
    Aliases are not counted, nor are symbols of inline assembly.

    Raises:
        FormatError: the bytes are not bitcode, or end too early; has the offset.
    """
    extent = _first(data)
    content = data if isinstance(data, bytes) else bytes(data[: extent.payload_stop])
    origin = extent.payload_start
    for block in iter_top_level(content, origin, extent.payload_stop):
        if block.block_id == _SYMTAB_BLOCK_ID:
            return _count_symbols(content, *_find_blob(content, block, origin))
    return None


def _first(data: Buffer) -> Extent:
    extent = next(iter_extents(data), None)
    if extent is None:
        raise TruncatedError("reading bitcode, expected a module, found the end", offset=len(data))
    return extent


def _find_blob(data: bytes, block: Block, origin: int) -> tuple[int, int]:
    """Return where the blob of a block that consists of it begins and ends."""
    for code, values in iter_records(data, block, [], origin):
        if code == _BLOB and len(values) == 2:
            return values[0], values[1]
    raise FormatError(f"block {block.block_id} has no blob", offset=block.start)


def _count_symbols(data: bytes, start: int, stop: int) -> int | None:
    words = np.frombuffer(data, "<u4", (stop - start) // 4, start)
    if len(words) < _SYMBOLS + 2 or words[0] != _SYMTAB_VERSION:
        return None
    offset, count = int(words[_SYMBOLS]), int(words[_SYMBOLS + 1])
    if offset % 4 or offset // 4 + count * _SYMBOL_WORDS > len(words):
        message = f"a symbol table with {count} symbols at {offset}, but it has {4 * len(words)} bytes"
        raise FormatError(message, offset=start)
    symbols = words[offset // 4 : offset // 4 + count * _SYMBOL_WORDS].reshape(count, _SYMBOL_WORDS)
    flags = symbols[:, _FLAGS] & (_EXECUTABLE | _UNDEFINED | _INDIRECT)
    # Symbols of inline assembly have no name in the IR.
    return int(np.count_nonzero((flags == _EXECUTABLE) & (symbols[:, _IR_NAME_SIZE] != 0)))


def _read_module(data: bytes, module: Block, origin: int, names: _Names) -> list[DefinedFunction]:
    types = Types()
    values = Values(types)
    reader = FunctionReader(data, origin, types, values)
    defined: list[tuple[str, str, int]] = []  # name, linkage and type of each function with a body
    functions: list[DefinedFunction] = []
    place = module.start
    try:
        for code, record in iter_records(data, module, [], origin):
            if code == ENTER:
                block = Block(*record)
                place = block.start
                block_id = block.block_id
                if block_id == _FUNCTION_BLOCK_ID:
                    if len(functions) == len(defined):
                        raise FormatError(f"more bodies than the {len(defined)} functions that are declared with one")
                    name, linkage, kind = defined[len(functions)]
                    functions.append(DefinedFunction(name, linkage, *reader.read(block, kind)))
                elif block_id == BLOCKINFO_BLOCK_ID:
                    reader.abbreviations = read_blockinfo(data, block, origin)
                elif block_id == _TYPE_BLOCK_ID:
                    types.read(reader.records(block))
                elif block_id == CONSTANTS_BLOCK_ID:
                    values.add_constants(reader.records(block))
                    values.keep()
                elif block_id in (BUNDLE_TAGS_BLOCK_ID, SYNC_SCOPES_BLOCK_ID):
                    reader.lists[block_id] = block
            elif code in (_GLOBALVAR, _FUNCTION, _ALIAS, _ALIAS_OLD, _IFUNC):
                _add_global(code, record, names, reader, defined)
            elif code == _VERSION and record[:1] < [2]:
                raise UnsupportedError("a module whose names are not in a string table")
        if len(functions) < len(defined):
            raise FormatError(f"{len(functions)} bodies, expected {len(defined)}")
    except FormatError as error:
        if error.offset is None:
            error.offset = place
        raise
    return functions


def _add_global(
    code: int, record: list[int], names: _Names, reader: FunctionReader, defined: list[tuple[str, str, int]]
) -> None:
    """Add a global value; its number is the next one."""
    if len(record) < 6:
        raise FormatError(f"a global value with {len(record)} numbers, expected 6 or more")
    name = b""
    if names.is_intrinsic(record[0]) or (code == _FUNCTION and not record[4]):
        name = names.read(*record[:2])
    if code == _FUNCTION:
        space = record[18] if len(record) > 18 else 0
        if name.startswith(_DEBUG_INTRINSICS):
            reader.skipped.add(len(reader.values))
        if not record[4]:
            linkage = _LINKAGES.get(record[5], "external")
            defined.append((name.decode("utf-8", "surrogateescape"), linkage, record[2]))
    elif code == _GLOBALVAR:
        space = record[3] >> 2 if record[3] & 2 else 0
    else:
        space = record[3] if code != _ALIAS_OLD else 0
    # A name that begins with llvm. determines what the value means.
    reader.values.add_global(digest(name) if name.startswith(_INTRINSIC) else 0, space)


class _Names:
    """A string table. Names in it may overlap; the sum of their sizes is limited because of hostile input."""

    def __init__(self, strings: bytes) -> None:
        self._strings = strings
        self._left = _MAX_OVERLAP * len(strings) + (1 << 16)

    def is_intrinsic(self, start: int) -> bool:
        return self._strings.startswith(_INTRINSIC, start)

    def read(self, start: int, size: int) -> bytes:
        if start + size > len(self._strings):
            message = f"a name at {start} to {start + size}, but the string table has {len(self._strings)} bytes"
            raise FormatError(message)
        self._left -= size
        if self._left < 0:
            raise FormatError(f"too many names share the {len(self._strings)} bytes of a string table")
        return self._strings[start : start + size]
