"""Find the object that a module was extracted from in its build, if it is still there and unchanged.

The recorded path comes from the corpus and is not trusted. So only files in the build's folders are read, after links
are resolved, and no content of a file is quoted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from mlgo_corpus.builds.objects import SectionNames, Tally, read_object
from mlgo_corpus.errors import FormatError
from mlgo_corpus.files.names import IMPORTED_SUFFIX
from mlgo_corpus.files.regular import read_file
from mlgo_corpus.files.text import os_reason, printable, unescaped
from mlgo_corpus.formats.bitcode import headers as bitcode
from mlgo_corpus.formats.buffer import Buffer
from mlgo_corpus.formats.objects import archive
from mlgo_corpus.formats.objects.objfile import Container, identify_container, parse_fat, parse_objfile


class OriginalReason(StrEnum):
    """Why there is no original object to compare a rebuilt one with.

    Attributes:
        OBJECT_MISSING: there is no such file, archive member or slice in the build.
        OBJECT_UNREADABLE: the object cannot be read, or is damaged.
        OBJECT_CHANGED: the object has other bitcode, or another command: it was built anew.
        LINKED: the file was linked from several modules, and does not contain their own objects.
        BITCODE_ONLY: the build has only bitcode of the module, as LTO builds do.
    """

    OBJECT_MISSING = "object_missing"
    OBJECT_UNREADABLE = "object_unreadable"
    OBJECT_CHANGED = "object_changed"
    LINKED = "linked"
    BITCODE_ONLY = "bitcode_only"


class NoOriginal(Exception):  # noqa: N818 - it becomes a row, not an error
    """Raised if there is no object to compare with; ``reason`` and ``detail`` say why."""

    def __init__(self, reason: OriginalReason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = printable(" ".join(detail.split()))


@dataclass(frozen=True, slots=True)
class Original:
    """An object as the build left it: its bytes, and the module as its section holds it, possibly in a wrapper."""

    content: Buffer
    embedded: Buffer


def find_original(
    build_dirs: Sequence[str],
    source: str,
    member: str | None,
    *,
    module: bytes,
    command: bytes | None,
    names: SectionNames,
) -> Original:
    """Find the object that a module was extracted from.

    Args:
        build_dirs: the folders to look in, in this order.
        source: the file's path relative to the build, as in ``modules.parquet``.
        member: what the module is inside the file, as in ``modules.parquet``.
        module: the module's bitcode, which the object must contain.
        command: the module's command, which the object must contain, too; None if the module has none.
        names: the sections to look in.

    Raises:
        NoOriginal: the object does not exist, or is another one.
    """
    worst: NoOriginal | None = None
    # A name with %XX may also be of a byte that is not UTF-8.
    for folder, name in product(build_dirs, dict.fromkeys((source, unescaped(source)))):
        try:
            return _find_in(os.path.join(folder, name), build_dirs, member, module, command, names)
        except NoOriginal as problem:  # of several builds, the problem of one that has such a file says more
            if worst is None or worst.reason is OriginalReason.OBJECT_MISSING:
                worst = problem
    raise worst or NoOriginal(OriginalReason.OBJECT_MISSING, "there is no folder to look in")


def _find_in(
    path: str,
    build_dirs: Sequence[str],
    member: str | None,
    module: bytes,
    command: bytes | None,
    names: SectionNames,
) -> Original:
    if path.endswith(IMPORTED_SUFFIX):
        raise NoOriginal(OriginalReason.BITCODE_ONLY, "extracted from what a ThinLTO link imported")
    try:
        data = _read_inside(path, build_dirs)
    except FileNotFoundError:
        where = os.path.dirname(path) or "."
        raise NoOriginal(OriginalReason.OBJECT_MISSING, f"no {os.path.basename(path)} in {where}") from None
    except (OSError, ValueError) as error:
        raise NoOriginal(OriginalReason.OBJECT_UNREADABLE, os_reason(error)) from None
    other: NoOriginal | None = None
    try:
        for content in _iter_contents(data, member, os.path.dirname(path), build_dirs):
            try:
                return Original(content, _embedded(content, module, command, names))
            except NoOriginal as problem:  # an archive may have two members of one name
                other = problem
    except FormatError as error:
        where = "" if error.offset is None else f" from byte {error.offset} on"
        detail = f"{os.path.basename(path)}: not an object or an archive, or damaged{where}"
        raise NoOriginal(OriginalReason.OBJECT_UNREADABLE, detail) from None
    raise other or NoOriginal(OriginalReason.OBJECT_MISSING, f"{os.path.basename(path)} has no member {member}")


def _read_inside(path: str, build_dirs: Sequence[str]) -> Buffer:
    """Read a file of the build.

    Raises:
        NoOriginal: the file is outside of the build's folders.
        OSError: the file cannot be read.
        ValueError: the path is not valid.
    """
    real = os.path.realpath(path)
    if not any(f"{real}/".startswith(f"{os.path.realpath(folder).rstrip('/')}/") for folder in build_dirs):
        detail = "its path leads out of the build's folders; `build_dirs` names another one"
        raise NoOriginal(OriginalReason.OBJECT_MISSING, detail)
    return read_file(real)


def _iter_contents(data: Buffer, member: str | None, folder: str, build_dirs: Sequence[str]) -> Iterator[Buffer]:
    """Yield the files inside an archive or a fat file that may be the named member; any other file as it is."""
    if archive.is_archive(data):
        for item in archive.iter_members(data):
            for rest in _rests(printable(item.name), member):
                if item.offset is not None:
                    inner: Buffer = memoryview(data)[item.offset : item.offset + item.size]
                else:
                    try:
                        inner = _read_inside(os.path.join(folder, item.name), build_dirs)
                    except (OSError, ValueError) as error:
                        detail = f"{item.name}, which a thin archive names: {os_reason(error)}"
                        raise NoOriginal(OriginalReason.OBJECT_UNREADABLE, detail) from None
                if not archive.is_archive(inner):
                    yield from _iter_contents(inner, rest, folder, build_dirs)
    elif identify_container(data) is Container.FAT_MACHO:
        for piece in parse_fat(data):
            for rest in _rests(piece.arch, member):
                inner = memoryview(data)[piece.offset : piece.offset + piece.size]
                if identify_container(inner) is not Container.FAT_MACHO:
                    yield from _iter_contents(inner, rest, folder, build_dirs)
    else:
        yield data


def _rests(name: str, member: str | None) -> Iterator[str | None]:
    """Yield the rest of a member's name after ``name``, None if nothing is left; nothing if it is in another file."""
    if member == name:
        yield None
    elif member is not None and member.startswith(f"{name}/"):
        yield member[len(name) + 1 :]


def _embedded(content: Buffer, module: bytes, command: bytes | None, names: SectionNames) -> Buffer:
    """Return the module as the object's section holds it."""
    if bitcode.is_bitcode(content):
        raise NoOriginal(OriginalReason.BITCODE_ONLY, "the build's file is bitcode itself")
    if parse_objfile(content, ()).linked:
        raise NoOriginal(OriginalReason.LINKED, "a linked file: the module's own object is not in it")
    found = list(read_object(content, Tally(), names=names))
    modules = [item for item in found if item.bitcode is not None]
    if len(modules) > 1:
        raise NoOriginal(OriginalReason.LINKED, f"linked of {len(modules)} modules")
    if not modules:
        raise NoOriginal(OriginalReason.OBJECT_CHANGED, "the object has no bitcode that can be read")
    if modules[0].bitcode != module:
        raise NoOriginal(OriginalReason.OBJECT_CHANGED, "the object holds other bitcode: it was built anew")
    if command is not None and modules[0].command is not None and modules[0].command != command:
        raise NoOriginal(OriginalReason.OBJECT_CHANGED, "the object holds another command: it was built anew")
    for section in parse_objfile(content, names.all()).sections:
        if section.name in names.bitcode and section.size:
            piece = memoryview(content)[section.offset : section.offset + section.size]
            for extent in bitcode.iter_extents(piece):
                return piece[extent.start : extent.stop]
    return module
