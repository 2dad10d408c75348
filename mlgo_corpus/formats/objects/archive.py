r"""``ar`` archives: the place of each member's bytes.

This is the format as this module reads it. All variants share a frame::

    magic        "!<arch>\n", or "!<thin>\n" for a thin archive
    member       any number of them
      name       16 bytes of text, padded on the right with spaces like the other five fields
      date       12
      uid        6
      gid        6
      mode       8
      size       10, decimal: the number of bytes that follow the header
      end        "`\n"
      contents   ``size`` bytes
      padding    one byte where the contents end at an odd offset; may be missing after the last member

They differ in how a member is named. The form of the name field determines the variant:

- ``NAME/``: GNU and COFF, up to 15 bytes.
- ``NAME``: BSD, up to 16 bytes without a space.
- ``/N``: GNU and COFF; the name is at offset N of the name table and ends at ``/\n`` (GNU) or NUL (COFF).
- ``/N:M``: GNU, thin; the member whose header is at M of the archive whose name is at offset N.
- ``#1/N``: BSD; the first N bytes of the contents are the name, padded with NULs. ``size`` counts them.
- ``//``: not a member but the name table, which comes before the members that use it.
- ``/``: the GNU and COFF symbol table. COFF has a second one, the "second linker member".
- ``/SYM64/``: the GNU symbol table with offsets of 64 bits.
- ``/<ECSYMBOLS>/``, ``/<XFGHASHMAP>/``: further tables of COFF.
- ``__.SYMDEF``, ``__.SYMDEF SORTED``, ``__.SYMDEF_64``, ``__.SYMDEF_64 SORTED``, as ``NAME`` or ``#1/N``: the
  BSD symbol table.

A **thin** archive (GNU names only) holds its tables, but only the headers of its members: ``size`` is that of
a file elsewhere, and the name is its path relative to the archive. Such a file may be an archive itself.

What a reader may not assume: that names are unique, are UTF-8 or have no slashes; that there is a symbol
table; that padding bytes are newlines. Archives for Darwin pad the contents to 8 bytes with newlines that
count as contents, so a member may be up to seven bytes longer than the file it was made from.

Not read here: AIX's big archives (``<bigaf>\n``), and ``/N:M`` names, which GNU ``ar`` writes when it adds
an ordinary archive to a thin one (LLVM's ``ar`` lists that archive itself, like any other file). A thin
archive added to a thin one needs nothing special: both tools add its members instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mlgo_corpus.errors import FormatError, TruncatedError, UnsupportedError
from mlgo_corpus.formats.buffer import Buffer

MAGIC: Final = b"!<arch>\n"
THIN_MAGIC: Final = b"!<thin>\n"
_AIX_MAGICS = (b"<bigaf>\n", b"<aiaff>\n")

_HEADER_SIZE = 60
_NAME_FIELD = slice(0, 16)
_SIZE_FIELD = slice(48, 58)
_END_FIELD = slice(58, 60)
_END = b"`\n"

_NAME_TABLE = b"//"
_TABLES = (_NAME_TABLE, b"/", b"/SYM64/", b"/<ECSYMBOLS>/", b"/<XFGHASHMAP>/")
_BSD_NAME = b"#1/"
_BSD_TABLES = (b"__.SYMDEF", b"__.SYMDEF SORTED", b"__.SYMDEF_64", b"__.SYMDEF_64 SORTED")

# Longer than any path a system accepts. Unlimited, many members could share one endless name in the table.
_MAX_TABLE_NAME = 1 << 15


@dataclass(frozen=True, slots=True)
class Member:
    """One file in an archive: its contents are ``data[offset : offset + size]``.

    In a thin archive ``offset`` is None, ``name`` is the file's path relative to the archive's folder (it may
    be absolute), and ``size`` is that file's size according to the archive. Bytes of a name that are not UTF-8
    are surrogate escapes, so that ``os.fsencode`` restores them.
    """

    name: str
    offset: int | None
    size: int


def is_archive(data: Buffer) -> bool:
    """Return True if data begins with the magic of an archive that is read here, thin ones included."""
    return bytes(data[: len(MAGIC)]) in (MAGIC, THIN_MAGIC)


def iter_members(data: Buffer) -> Iterator[Member]:
    """Yield each member of an archive in its order, without symbol tables and name tables.

    Raises TruncatedError, UnsupportedError or another FormatError with the offset, after the members before
    that place have been yielded.
    """
    magic = bytes(data[: len(MAGIC)])
    if magic not in (MAGIC, THIN_MAGIC):
        raise _bad_magic(magic)
    name_table = b""
    position = len(MAGIC)
    while position < len(data):
        field, size = _parse_header(data, position)
        start = position + _HEADER_SIZE
        stop = start + size if magic == MAGIC or field in _TABLES else start
        if stop > len(data):
            raise _truncated(f"archive member {_show(field)}", start, size, len(data))
        if field == _NAME_TABLE:
            name_table = bytes(data[start:stop])
        elif field not in _TABLES:
            name, inline = _read_name(data, position, stop, field, name_table)
            if name not in _BSD_TABLES or not (inline or field == name):
                text = name.decode("utf-8", "surrogateescape")
                offset = start + inline if magic == MAGIC else None
                yield Member(text, offset, size - inline)
        position = stop + stop % 2


def _parse_header(data: Buffer, position: int) -> tuple[bytes, int]:
    """Return the name field and the size of the member whose header is at ``position``."""
    header = bytes(data[position : position + _HEADER_SIZE])
    if len(header) < _HEADER_SIZE:
        raise _truncated("an archive member's header", position, _HEADER_SIZE, len(data))
    if header[_END_FIELD] != _END:
        raise FormatError(
            f"an archive member's header ends in {_show(header[_END_FIELD])}, expected {_show(_END)}",
            offset=position + _END_FIELD.start,
        )
    field = header[_NAME_FIELD].rstrip(b" ")
    size = _parse_number(header[_SIZE_FIELD].rstrip(b" "), "its size", position + _SIZE_FIELD.start)
    return field, size


def _read_name(data: Buffer, position: int, stop: int, field: bytes, name_table: bytes) -> tuple[bytes, int]:
    """Return a member's name, and how many bytes of its contents are the name."""
    inline = 0
    if field.startswith(_BSD_NAME):
        start = position + _HEADER_SIZE
        inline = _parse_number(field.removeprefix(_BSD_NAME), "the length of its name", position)
        if inline > stop - start:
            message = f"an archive member of {stop - start} bytes says {inline} of them are its name"
            raise FormatError(message, offset=position)
        name = bytes(data[start : start + inline]).rstrip(b"\0")
    elif field.startswith(b"/"):
        name = _find_name(field, name_table, position)
    else:
        name = field.removesuffix(b"/")
    if not name:
        raise FormatError("an archive member without a name", offset=position)
    return name, inline


def _find_name(field: bytes, name_table: bytes, position: int) -> bytes:
    """Look up a ``/N`` name. GNU's and COFF's tables cannot be distinguished, so use the nearer end mark."""
    index, colon, _ = field.removeprefix(b"/").partition(b":")
    start = _parse_number(index, "the offset of its name", position)
    if colon:
        message = f"a member of another archive ({_show(field)}): thin archives of archives are not supported"
        raise UnsupportedError(message, offset=position)
    if start >= len(name_table):
        message = f"an archive member's name is at {start} of a name table of {len(name_table)} bytes"
        raise FormatError(message, offset=position)
    text = name_table[start : start + _MAX_TABLE_NAME]
    ends = [end for end in (text.find(b"/\n"), text.find(b"\0")) if end >= 0]
    if not ends:
        message = f"an archive member's name at {start} of the name table does not end"
        raise FormatError(message, offset=position)
    return text[: min(ends)]


def _parse_number(digits: bytes, purpose: str, offset: int) -> int:
    if not digits.isdigit():
        message = f"reading an archive member, expected {purpose} in decimal, found {_show(digits)}"
        raise FormatError(message, offset=offset)
    return int(digits)


def _bad_magic(magic: bytes) -> FormatError:
    if magic in _AIX_MAGICS:
        return UnsupportedError("an archive in AIX's format, which is not supported", offset=0)
    if MAGIC.startswith(magic) or THIN_MAGIC.startswith(magic):
        return _truncated("an archive's magic", 0, len(MAGIC), len(magic))
    return FormatError(f"expected the archive magic {_show(MAGIC)}, found {_show(magic)}", offset=0)


def _truncated(purpose: str, offset: int, expected: int, end: int) -> TruncatedError:
    return TruncatedError(f"reading {purpose}, expected {expected} bytes, got {end - offset}", offset=offset)


def _show(text: bytes) -> str:
    """Quote bytes for a message, with escapes for those that are not printable."""
    return repr(text).removeprefix("b")
