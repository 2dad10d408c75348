"""The bitcode modules in an object file, archive or linked binary, each with its own command.

`read_object` yields one `Embedded` for each module found, and one with a reason for each member that has none, so
that every input is accounted for. Bytes are returned exactly as embedded; only Mach-O's bitcode wrapper is removed.

If several modules share a section (a linked binary, ``ld -r``), the linker has concatenated their bitcode in one
section and their commands in another, in the same order. They are paired in that order and checked: a command's
``-main-file-name`` must be the base name of its module's ``source_filename``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from mlgo_corpus.errors import FormatError, TruncatedError, UnsupportedError
from mlgo_corpus.files.text import os_reason
from mlgo_corpus.formats.bitcode import headers as bitcode
from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.commands.embedded import (
    CommandFacts,
    read_facts,
    same_main_file,
    split_commands,
    split_options,
)
from mlgo_corpus.formats.objects import archive
from mlgo_corpus.formats.objects.objfile import (
    Container,
    Section,
    describe_head,
    identify_container,
    is_import_object,
    parse_fat,
    parse_objfile,
)

# The first line of a libtool ``.lo`` file: "# x.lo - a libtool object file".
_LIBTOOL_NOTE = b" - a libtool object file"
_MARKER = "a bitcode section without bitcode: compiled with -fembed-bitcode=marker?"
# A fat-LTO object (-ffat-lto-objects) keeps the bitcode of the LTO pre-link stage here, beside its machine code.
_FAT_LTO_SECTION = ".llvm.lto"


class Reason(StrEnum):
    """Why a row of ``modules.parquet`` has its status: the closed vocabulary."""

    # The module is in the corpus (status ``ok``).
    OK = "ok"
    RENAMED = "renamed"
    POST_OPT_IR = "post_opt_ir"
    RAW_LTO = "raw_lto"
    NO_COMMAND = "no_command"
    DROPPED_OPTIONS = "dropped_options"
    # It was left out (status ``skipped``).
    NO_BITCODE = "no_bitcode"
    FILTERED = "filtered"
    DUPLICATE = "duplicate"
    NO_OUTPUT = "no_output"
    # It could not be had (status ``failed``).
    MISSING = "missing"
    UNREADABLE = "unreadable"
    TRUNCATED = "truncated"
    MALFORMED = "malformed"
    UNSUPPORTED_FORMAT = "unsupported_format"
    UNPAIRED_COMMAND = "unpaired_command"
    COMPILE_FAILED = "compile_failed"
    MISSING_THINLTO_INDEX = "missing_thinlto_index"
    WORKER_DIED = "worker_died"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class SectionNames:
    """The sections in which compilers embed bitcode and commands. Mach-O names are written ``SEGMENT,section``."""

    bitcode: tuple[str, ...] = (".llvmbc", "__LLVM,__bitcode")
    command: tuple[str, ...] = (".llvmcmd", "__LLVM,__cmdline")

    @classmethod
    def of(cls, bitcode: str | None, command: str | None) -> SectionNames:
        """Return the names given, or the usual ones for None."""
        usual = cls()
        return cls(usual.bitcode if bitcode is None else (bitcode,), usual.command if command is None else (command,))

    def all(self) -> frozenset[str]:
        """Return all sections that may hold bitcode or commands."""
        return frozenset((*self.bitcode, *self.command, _FAT_LTO_SECTION))


@dataclass(frozen=True, slots=True)
class Embedded:
    """One module found in an object, or the reason why there is none.

    Attributes:
        member: its name within its file: an archive member, a fat slice, a linked module's main file;
            None if the file is the module.
        reason: `Reason.OK` or another reason of status ``ok`` for a module; else why there is none.
        bitcode: the module's bytes, without a wrapper.
        command: the bytes of its command as embedded; None if there is no command.
        facts: facts read from the command.
        detail: the reason in one line for a person.
        lost_bytes: bitcode bytes that a failure leaves unread.
    """

    member: str | None
    reason: Reason
    bitcode: Buffer | None = None
    command: Buffer | None = None
    facts: CommandFacts | None = None
    detail: str = ""
    lost_bytes: int = 0


@dataclass(slots=True)
class Tally:
    """Bytes counted while reading one file: ``bitcode_found`` equals modules, plus lost bytes, plus padding."""

    bitcode_found: int = 0
    padding: int = 0


def _no_file(name: str) -> Buffer:
    raise FileNotFoundError(name)


def read_object(
    data: Buffer,
    tally: Tally,
    *,
    names: SectionNames,
    open_member: Callable[[str], Buffer] = _no_file,
    member: str | None = None,
) -> Iterator[Embedded]:
    """Yield the modules of a file of any supported kind, in file order; never raise because of its content.

    Args:
        data: the whole file.
        tally: counts the bytes found.
        names: the sections to look in.
        open_member: reads a file that a thin archive refers to, given its path relative to the archive; may raise
            OSError. By default such files are missing.
        member: prefix for the members' names.
    """
    if not len(data):
        yield Embedded(member, Reason.TRUNCATED, detail="the file is empty")
        return
    try:
        if archive.is_archive(data):
            yield from _read_archive(data, tally, names, open_member, member)
            return
        if bitcode.is_bitcode(data):
            yield from _read_raw_bitcode(data, tally, member)
            return
        if identify_container(data) is Container.FAT_MACHO:
            for piece in parse_fat(data):
                inner = memoryview(data)[piece.offset : piece.offset + piece.size]
                if identify_container(inner) is Container.FAT_MACHO:
                    raise FormatError("a fat file inside a fat file", offset=piece.offset)
                yield from read_object(
                    inner, tally, names=names, open_member=open_member, member=_join(member, piece.arch)
                )
            return
        if bytes(data[:2]) == b"# " and _LIBTOOL_NOTE in bytes(data[:200]):
            yield Embedded(
                member, Reason.NO_BITCODE, detail="libtool's note about an object, which is a file of its own"
            )
            return
        if is_import_object(data):
            yield Embedded(member, Reason.NO_BITCODE, detail=OF_A_DLL)
            return
        yield from _read_objfile(data, tally, names, member)
    except FormatError as error:
        yield _failure(member, error)


def _reason_of(error: FormatError) -> Reason:
    """Return the reason that fits a format error."""
    if isinstance(error, TruncatedError):
        return Reason.TRUNCATED
    if isinstance(error, UnsupportedError):
        return Reason.UNSUPPORTED_FORMAT
    return Reason.MALFORMED


def _failure(member: str | None, error: FormatError, lost_bytes: int = 0) -> Embedded:
    return Embedded(member, _reason_of(error), detail=str(error), lost_bytes=lost_bytes)


def _join(prefix: str | None, name: str) -> str:
    return name if prefix is None else f"{prefix}/{name}"


def _read_archive(
    data: Buffer,
    tally: Tally,
    names: SectionNames,
    open_member: Callable[[str], Buffer],
    prefix: str | None,
) -> Iterator[Embedded]:
    empty = True
    files = set[str]()
    for item in archive.iter_members(data):
        empty = False
        member = _join(prefix, item.name)
        if item.offset is not None:
            content: Buffer = memoryview(data)[item.offset : item.offset + item.size]
        else:
            path = os.path.normpath(item.name)
            if path in files:  # a small archive could otherwise hold any number of large modules
                continue
            files.add(path)
            try:
                content = open_member(item.name)
            except FileNotFoundError:
                yield Embedded(member, Reason.MISSING, detail=f"the thin archive names {item.name!r}")
                continue
            except (OSError, ValueError) as error:
                yield Embedded(member, Reason.UNREADABLE, detail=os_reason(error))
                continue
            if len(content) and not _is_known(content):  # a thin archive may name any file: do not describe its content
                yield Embedded(member, Reason.UNSUPPORTED_FORMAT, detail=f"{item.name!r} is no object file")
                continue
        if archive.is_archive(content):
            yield Embedded(member, Reason.UNSUPPORTED_FORMAT, detail="an archive inside an archive")
            continue
        yield from read_object(content, tally, names=names, open_member=open_member, member=member)
    if empty:
        yield Embedded(prefix, Reason.NO_BITCODE, detail="the archive has no members")


def _read_raw_bitcode(data: Buffer, tally: Tally, member: str | None) -> Iterator[Embedded]:
    view = memoryview(data)
    extents, failure = _extents(view, 0)
    _count(tally, len(data), extents, failure)
    for number, extent in enumerate(extents):
        own = member if len(extents) == 1 and failure is None else _join(member, str(number))
        payload = view[extent.payload_start : extent.payload_stop]
        yield Embedded(own, Reason.RAW_LTO, payload, detail="bitcode of an LTO build: no command is embedded")
    if failure is not None:
        yield _failure(member, failure, len(data) - _covered(extents))
    elif not extents:
        yield Embedded(member, Reason.NO_BITCODE, detail=_MARKER)


def _read_objfile(data: Buffer, tally: Tally, names: SectionNames, member: str | None) -> Iterator[Embedded]:
    objfile = parse_objfile(data, names.all())
    view = memoryview(data)
    bitcode_sections = [item for item in objfile.sections if item.name in names.bitcode and item.size]
    if not bitcode_sections:
        fat_lto = [item for item in objfile.sections if item.name == _FAT_LTO_SECTION and item.size]
        _refuse_overlaps(fat_lto)
        for number, item in enumerate(fat_lto):
            own = member if len(fat_lto) == 1 else _join(member, str(number))
            yield from _read_raw_bitcode(view[item.offset : item.offset + item.size], tally, own)
        if not fat_lto:
            yield Embedded(member, Reason.NO_BITCODE, detail=_why_no_bitcode(data, names))
        return
    _refuse_overlaps(bitcode_sections)
    command_sections = [item for item in objfile.sections if item.name in names.command]
    _refuse_overlaps(command_sections)
    commands = _commands(view, command_sections)
    if len(bitcode_sections) == 1 and not objfile.linked:
        item = bitcode_sections[0]
        section = view[item.offset : item.offset + item.size]
        extents, failure = _extents(section, item.offset)
        if failure is None and len(extents) == 1:
            (extent,) = extents
            _count(tally, item.size, extents, None)
            if len(commands) > 1:
                yield Embedded(
                    member,
                    Reason.UNPAIRED_COMMAND,
                    detail=f"one module, but {len(commands)} commands",
                    lost_bytes=extent.payload_stop - extent.payload_start,
                )
                return
            # With one module the command is the whole section, byte for byte.
            whole = [view[item.offset : item.offset + item.size] for item in command_sections if item.size]
            command = whole[0] if len(whole) == 1 and commands else commands[0] if commands else None
            yield _module(member, section[extent.payload_start : extent.payload_stop], command)
            return
    yield from _read_glued(view, tally, bitcode_sections, commands, member)


def _read_glued(
    view: memoryview,
    tally: Tally,
    sections: Sequence[Section],
    commands: Sequence[memoryview],
    member: str | None,
) -> Iterator[Embedded]:
    """Yield the modules of sections that hold several, each with its command."""
    modules: list[memoryview] = []
    failures: list[Embedded] = []
    for item in sections:
        section = view[item.offset : item.offset + item.size]
        extents, failure = _extents(section, item.offset)
        _count(tally, item.size, extents, failure)
        modules.extend(section[extent.payload_start : extent.payload_stop] for extent in extents)
        if failure is not None:
            failures.append(_failure(member, failure, item.size - _covered(extents)))
    if not modules and not failures:
        yield Embedded(member, Reason.NO_BITCODE, detail=_MARKER)
    headers = [_header(module) for module in modules]
    facts = [read_facts(split_options(command)) for command in commands]
    pairs = _pair([header.source_filename for header in headers], [fact.main_file_name for fact in facts])
    for number, (module, header) in enumerate(zip(modules, headers, strict=True)):
        inner = os.path.basename(header.source_filename or "") or f"module-{number:03}"
        own = _join(member, inner) if len(modules) + len(failures) > 1 else member
        index = pairs[number]
        if index == _AMBIGUOUS:
            detail = f"{len(modules)} modules and {len(commands)} commands: it cannot be told which is this one's"
            yield Embedded(own, Reason.UNPAIRED_COMMAND, detail=detail, lost_bytes=len(module))
        else:
            yield _module(own, module, *((None, None) if index is None else (commands[index], facts[index])))
    yield from failures


# The index of a command that could belong to several modules.
_AMBIGUOUS = -1


def _pair(sources: Sequence[str | None], main_files: Sequence[str | None]) -> list[int | None]:
    """Return the index of each module's command, None if it was compiled without one, or ``_AMBIGUOUS``.

    Both lists are in link order. Lists of equal length pair one to one. Otherwise modules without a command lie between
    the others, and a command belongs to a module whose source has its main file's name. A pair is certain if pairing
    from the front and pairing from the back both make it; otherwise it is ambiguous.
    """
    count = len(main_files)
    if len(sources) == count:
        fits = all(same_main_file(main, source) for main, source in zip(main_files, sources, strict=True))
        return list(range(count)) if fits else [_AMBIGUOUS] * count
    front = _pair_greedily(sources, main_files)
    back = _pair_greedily(sources[::-1], main_files[::-1])
    if front is None or back is None:
        return [_AMBIGUOUS] * len(sources)
    mirrored = [None if index is None else count - 1 - index for index in reversed(back)]
    return [one if one == other else _AMBIGUOUS for one, other in zip(front, mirrored, strict=True)]


def _pair_greedily(sources: Sequence[str | None], main_files: Sequence[str | None]) -> list[int | None] | None:
    """Pair each command with the first fitting module after the previous pair; None if some command fits nowhere."""
    pairs: list[int | None] = []
    index = 0
    for source in sources:
        if index < len(main_files) and source is not None and same_main_file(main_files[index], source):
            pairs.append(index)
            index += 1
        else:
            pairs.append(None)
    return pairs if index == len(main_files) else None


def _refuse_overlaps(sections: Sequence[Section]) -> None:
    """Refuse sections that share bytes: a small file could otherwise hold any number of large modules."""
    end = 0
    for item in sorted(sections, key=lambda item: item.offset):
        if item.offset < end:
            raise FormatError(f"section {item.name!r} overlaps another", offset=item.offset)
        end = item.offset + item.size


def _is_known(data: Buffer) -> bool:
    return archive.is_archive(data) or bitcode.is_bitcode(data) or identify_container(data) is not None


def _covered(extents: Sequence[bitcode.Extent]) -> int:
    return extents[-1].stop if extents else 0


def _count(tally: Tally, size: int, extents: Sequence[bitcode.Extent], failure: FormatError | None) -> None:
    """Add a section to the tally: bytes that are not in a module, and not lost to a failure, are padding."""
    tally.bitcode_found += size
    whole = _covered(extents) if failure is not None else size
    tally.padding += whole - sum(extent.payload_stop - extent.payload_start for extent in extents)


def _module(
    member: str | None, module: memoryview, command: memoryview | None, facts: CommandFacts | None = None
) -> Embedded:
    if command is None:
        return Embedded(member, Reason.NO_COMMAND, module, detail="no command is embedded beside the bitcode")
    facts = facts or read_facts(split_options(command))
    if facts.embeds_post_opt:
        detail = "embedded by the driver's -fembed-bitcode: optimised IR and a truncated command"
        return Embedded(member, Reason.POST_OPT_IR, module, command, facts, detail)
    return Embedded(member, Reason.OK, module, command, facts)


def _extents(section: memoryview, offset: int) -> tuple[list[bitcode.Extent], FormatError | None]:
    """Return the complete modules of a section at ``offset`` of its file, and the error after them, if any."""
    extents: list[bitcode.Extent] = []
    try:
        for extent in bitcode.iter_extents(section):
            extents.append(extent)  # those before an error are kept
    except FormatError as error:
        return extents, type(error)(error.message, offset=offset + (error.offset or 0))
    return extents, None


def _header(module: memoryview) -> bitcode.ModuleHeader:
    try:
        return bitcode.read_module_header(module)
    except FormatError:
        return bitcode.ModuleHeader(None, None, None)


def _commands(view: memoryview, sections: Sequence[Section]) -> list[memoryview]:
    commands: list[memoryview] = []
    for item in sections:
        section = view[item.offset : item.offset + item.size]
        commands.extend(section[start:stop] for start, stop in split_commands(section))
    return commands


# The end of the detail of an object that clang made without being told to embed bitcode.
MADE_BY_CLANG = "; compiled without -Xclang -fembed-bitcode=all"
# The ends of the details of objects without bitcode that compiling again would not give any.
OTHER_SECTION = " is there"
OF_A_DLL = "part of an import library: the code is in a DLL"
# Compilers sign their objects here; the name shows a user which part of a build to look at.
_COMMENT = ".comment"
_MOST_COMMENT = 1000
# Parts of the table from which Windows loads DLLs: only import libraries have them in objects.
_DLL_IMPORTS = ".idata$"


def _why_no_bitcode(data: Buffer, names: SectionNames) -> str:
    """Return why an object has no bitcode, as far as its sections show."""
    try:
        sections = parse_objfile(data).sections
    except FormatError:
        return "no bitcode section"
    if any(item.name.startswith(".gnu.lto_") for item in sections):
        return "a GCC LTO object: GIMPLE, not LLVM bitcode"
    usual = next((item.name for item in sections if item.name in SectionNames().bitcode and item.size), None)
    if usual is not None:
        return f"no section {' or '.join(names.bitcode)}; the usual {usual}{OTHER_SECTION}"
    if any(item.name.startswith(_DLL_IMPORTS) for item in sections):
        return OF_A_DLL
    comment = next((item for item in sections if item.name == _COMMENT), None)
    if comment is None:
        return "no bitcode section; no compiler has signed it: assembly?"
    text = bytes(data[comment.offset : comment.offset + min(comment.size, _MOST_COMMENT)]).decode("ascii", "replace")
    signed = ", ".join(sorted({part for part in text.split("\0") if part}))
    return f"no bitcode section; made by {signed}{MADE_BY_CLANG if 'clang' in signed else ''}"


def describe_file(data: Buffer) -> str:
    """Return a short description of the kind of file."""
    if archive.is_archive(data):
        return "ar archive"
    if bitcode.is_bitcode(data):
        return "LLVM bitcode"
    container = identify_container(data)
    if container is None or container is Container.FAT_MACHO:
        return str(container or describe_head(data))
    try:
        linked = parse_objfile(data, ()).linked
    except FormatError:
        return f"damaged {container} file"
    return f"{container} {'linked binary' if linked else 'object'}"
